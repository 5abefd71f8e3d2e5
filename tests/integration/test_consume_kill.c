/*
 * Consumers killed with -9 at random moments under load, and both servers: each message takes effect exactly once, in order for each aggregate.
 */
#include <inttypes.h>

#include "db.h"
#include "harness.h"
#include "prng.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 120000
#define APPS_N 2
#define KILLS_N 12
#define SERVER_KILLS_N 3

static struct stack *stack;

static void make_tables(PGconn *conn) {
  table_create(stack, conn, TABLE_INIT_PLAIN, TABLE);
  db_exec(conn, "CREATE TABLE effects (seq bigserial PRIMARY KEY, message_id uuid NOT NULL, aggregate_type text, "
                "aggregate_id text, lane int)");
}

static struct writer *start_load(int rate, bool can_reconnect) {
  return writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                               .table = TABLE,
                                               .threads_n = 2,
                                               .aggregates_n = 100,
                                               .rollback_percent = 10,
                                               .rate = rate,
                                               .seed = prng_seed(),
                                               .can_reconnect = can_reconnect});
}

static struct relay *start_app(void) {
  return relay_start_consumer_app(stack, ARGS("--group", "effects", "--threads", "2", "--redis-timeout", "2s"));
}

/* Everything that was committed has had its effect: once, in its order. */
static void require_effects(PGconn *conn) {
  REQUIRE(db_int(conn, "SELECT count(*) FROM (SELECT message_id FROM effects GROUP BY 1 HAVING count(*) > 1) x") == 0,
          "messages took effect twice");
  REQUIRE(db_int(conn, "SELECT count(*) FROM effects e WHERE NOT EXISTS (SELECT FROM " TABLE
                       " m WHERE m.message_id = e.message_id)") == 0,
          "messages that were rolled back took effect");
  REQUIRE(db_int(conn,
                 "SELECT count(*) FROM (SELECT m.id < lag(m.id) OVER (PARTITION BY m.aggregate_type, m.aggregate_id "
                 "ORDER BY e.seq) AS is_wrong FROM effects e JOIN " TABLE
                 " m USING (message_id)) x WHERE is_wrong") == 0,
          "messages of one aggregate took effect out of order");
  REQUIRE(db_int(conn, "SELECT count(*) FROM effects") == db_int(conn, "SELECT count(*) FROM processed_messages"),
          "effects and marks differ");
}

/* Ends the load, waits until the consumers are through, checks. */
static void finish(PGconn *conn, struct writer *writer, struct relay *relay, struct relay *apps[APPS_N]) {
  writer_stop(writer);
  (void)writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  int64_t rows_n = db_int(conn, "SELECT count(*) FROM " TABLE);
  WAIT_FOR(DRAIN_MS, db_int(conn, "SELECT count(*) FROM effects") >= rows_n,
           "%" PRId64 " of %" PRId64 " messages took effect", db_int(conn, "SELECT count(*) FROM effects"), rows_n);
  require_effects(conn);
  REQUIRE(db_int(conn, "SELECT count(*) FROM effects") == rows_n, "another number of effects than of messages");
  for (int i = 0; i < APPS_N; i++) {
    /* The last one may have been started just now: before this line SIGTERM would end it by itself. */
    relay_wait_log(apps[i], "consumer_started", NULL, NULL, DRAIN_MS);
    relay_stop(apps[i]);
  }
  relay_stop(relay);
  /* Nothing is left pending in the group, and nothing was parked. */
  redisContext *redis = rds_open(stack->redis_url);
  for (int lane = 0; lane < 16; lane++) {
    REQUIRE(rds_int(redis, "EXISTS outbox:{%d}:parked:effects", lane) == 0, "a message was parked in lane %d", lane);
    if (rds_int(redis, "EXISTS outbox:{%d}", lane) == 1) {
      redisReply *pending = rds_cmd(redis, "XPENDING outbox:{%d} effects", lane);
      REQUIRE(pending->element[0]->integer == 0, "%lld entries of lane %d are pending", pending->element[0]->integer,
              lane);
      freeReplyObject(pending);
    }
  }
  redisFree(redis);
  printf("# %" PRId64 " messages\n", rows_n);
}

static int64_t effects_n(PGconn *conn) {
  return db_int(conn, "SELECT count(*) FROM effects");
}

static void test_consumers_killed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed()};
  struct relay *apps[APPS_N];
  (void)state;
  make_tables(conn);
  struct writer *writer = start_load(600, false);
  struct relay *relay = relay_start(stack, ARGS("run"));
  for (int i = 0; i < APPS_N; i++) {
    apps[i] = start_app();
  }
  for (int i = 0; i < harness_scaled(KILLS_N); i++) {
    int64_t before_n = effects_n(conn);
    struct relay **app = &apps[prng_below(&prng, APPS_N)];
    WAIT_FOR(60000, effects_n(conn) > before_n, "kill %d: nothing takes effect", i);
    wait_out(prng_between(&prng, 0, 400)); /* a random moment of its work */
    REQUIRE(relay_is_running(*app), "kill %d: the consumer has ended by itself", i);
    relay_kill(*app);
    relay_forget(app);
    *app = start_app();
  }
  finish(conn, writer, relay, apps);
  PQfinish(conn);
}

static void test_redis_killed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed() + 1};
  struct relay *apps[APPS_N];
  (void)state;
  make_tables(conn);
  struct writer *writer = start_load(400, false);
  struct relay *relay = relay_start(stack, ARGS("run"));
  for (int i = 0; i < APPS_N; i++) {
    apps[i] = start_app();
  }
  for (int i = 0; i < harness_scaled(SERVER_KILLS_N); i++) {
    int64_t before_n = effects_n(conn);
    WAIT_FOR(60000, effects_n(conn) > before_n, "kill %d: nothing takes effect", i);
    wait_out(prng_between(&prng, 0, 500));
    stack_redis_kill(stack);
    wait_out(prng_between(&prng, 0, 300));
    stack_redis_restart(stack);
  }
  finish(conn, writer, relay, apps);
  PQfinish(conn);
}

static void test_postgres_killed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed() + 2};
  struct relay *apps[APPS_N];
  (void)state;
  make_tables(conn);
  struct writer *writer = start_load(400, true);
  struct relay *relay = relay_start(stack, ARGS("run"));
  for (int i = 0; i < APPS_N; i++) {
    apps[i] = start_app();
  }
  for (int i = 0; i < harness_scaled(SERVER_KILLS_N); i++) {
    int64_t before_n = effects_n(conn);
    WAIT_FOR(60000, effects_n(conn) > before_n, "kill %d: nothing takes effect", i);
    wait_out(prng_between(&prng, 0, 500));
    PQfinish(conn);
    stack_pg_kill(stack);
    stack_pg_restart(stack);
    conn = db_open(stack->conninfo);
  }
  finish(conn, writer, relay, apps);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_consumers_killed),
      HARNESS_TEST(test_redis_killed),
      HARNESS_TEST(test_postgres_killed),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
