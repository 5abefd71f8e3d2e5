/*
 * kill -9 under load: of the relay, of Redis (with its log synced at every write), of PostgreSQL.  Nothing is lost, doubled or out of order.
 */
#include <inttypes.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "prng.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define RELAY_KILLS_N 20
#define REDIS_KILLS_N 5
#define PG_KILLS_N 3
#define DRAIN_MS 120000

static struct stack *stack;

static struct writer *start_load(int rate, bool can_reconnect) {
  return writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                               .table = TABLE,
                                               .threads_n = 4,
                                               .aggregates_n = 500,
                                               .rollback_percent = 10,
                                               .rate = rate,
                                               .seed = prng_seed(),
                                               .can_reconnect = can_reconnect});
}

/* Ends the load, lets the relay run empty, checks everything. */
static void finish(PGconn *conn, struct writer *writer, struct relay *relay) {
  struct writer_result result;

  writer_stop(writer);
  result = writer_wait(writer, DRAIN_MS);
  if (relay == NULL) {
    relay = relay_start(stack, ARGS("run"));
  }
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  writer_verify(writer, conn);
  struct check_report report = check_require_good(stack, NULL);
  REQUIRE(report.rows_n >= result.committed_n && report.rows_n <= result.committed_n + result.in_doubt_n,
          "%" PRId64 " rows, %" PRId64 " committed, %" PRId64 " in doubt", report.rows_n, result.committed_n,
          result.in_doubt_n);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts <> 0") == 0, "an outage has burnt attempts");
}

static int64_t published_n(PGconn *conn) {
  return db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
}

static void test_relay_killed_20_times(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed()};
  struct writer *writer;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = start_load(4000, false);
  for (int i = 0; i < harness_scaled(RELAY_KILLS_N); i++) {
    int64_t before_n = published_n(conn);
    struct relay *relay = relay_start(stack, ARGS("run", "--batch", i % 2 == 0 ? "1000" : "50"));
    WAIT_FOR(60000, published_n(conn) > before_n, "start %d: nothing is published", i);
    /* A random moment of its work. */
    wait_out(prng_between(&prng, 0, 300));
    REQUIRE(relay_is_running(relay), "start %d: the relay has ended by itself", i);
    relay_kill(relay);
  }
  finish(conn, writer, NULL);
  PQfinish(conn);
}

static void test_redis_killed_5_times(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed() + 1};
  struct writer *writer;
  struct relay *relay;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = start_load(3000, false);
  relay = relay_start(stack, ARGS("run"));
  for (int i = 0; i < harness_scaled(REDIS_KILLS_N); i++) {
    int64_t before_n = published_n(conn);
    WAIT_FOR(60000, published_n(conn) > before_n, "kill %d: the relay does not come back", i);
    wait_out(prng_between(&prng, 0, 700));
    stack_redis_kill(stack);
    wait_out(prng_between(&prng, 0, 300));
    stack_redis_restart(stack);
  }
  REQUIRE(relay_is_running(relay), "the relay has ended by itself");
  finish(conn, writer, relay);
  PQfinish(conn);
}

static void test_postgres_killed_3_times(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed() + 2};
  struct writer *writer;
  struct relay *relay;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = start_load(3000, true);
  relay = relay_start(stack, ARGS("run"));
  for (int i = 0; i < harness_scaled(PG_KILLS_N); i++) {
    int64_t before_n = published_n(conn);
    WAIT_FOR(60000, published_n(conn) > before_n, "kill %d: the relay does not come back", i);
    wait_out(prng_between(&prng, 0, 700));
    PQfinish(conn);
    stack_pg_kill(stack);
    stack_pg_restart(stack);
    conn = db_open(stack->conninfo);
  }
  REQUIRE(relay_is_running(relay), "the relay has ended by itself");
  finish(conn, writer, relay);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_relay_killed_20_times),
      HARNESS_TEST(test_redis_killed_5_times),
      HARNESS_TEST(test_postgres_killed_3_times),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
