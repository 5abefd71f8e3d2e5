/*
 * The harness itself: servers that are killed, frozen and restarted keep what they promised, and the load remembers what it wrote.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "prng.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000

static struct stack *stack;

static void test_load_writes_what_it_says(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct writer *writer;
  struct writer_result result;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                 .table = TABLE,
                                                 .messages_n = 5001,
                                                 .aggregates_n = 100,
                                                 .rollback_percent = 20,
                                                 .payload_max_bytes = 3000,
                                                 .seed = prng_seed()});
  result = writer_wait(writer, DRAIN_MS);
  REQUIRE(result.committed_n == 5001 && result.in_doubt_n == 0 && result.rolled_back_n > 0,
          "%" PRId64 " committed, %" PRId64 " rolled back", result.committed_n, result.rolled_back_n);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 5001, "the table has another number of rows");
  REQUIRE(db_int(conn, "SELECT count(DISTINCT (aggregate_type, aggregate_id)) FROM " TABLE) == 100,
          "not 100 aggregates");
  writer_verify(writer, conn);
  PQfinish(conn);
}

static void test_load_keeps_its_rate(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct writer *writer;
  struct writer_result result;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                 .table = TABLE,
                                                 .threads_n = 4,
                                                 .messages_n = 1000,
                                                 .rate = 1000,
                                                 .seed = prng_seed()});
  result = writer_wait(writer, DRAIN_MS);
  REQUIRE(result.seconds > 0.9, "1,000 messages at 1,000 a second took %.2f s", result.seconds);
  PQfinish(conn);
}

static void test_postgres_survives_kills_under_load(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct writer *writer;
  struct writer_result result;
  int64_t rows_n;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = writer_start(&(struct writer_options){
      .conninfo = stack->conninfo, .table = TABLE, .threads_n = 4, .seed = prng_seed(), .can_reconnect = true});
  for (int i = 0; i < 2; i++) {
    int64_t before_n = writer_committed(writer);
    WAIT_FOR(DRAIN_MS, writer_committed(writer) > before_n + 500, "the load does not go on");
    PQfinish(conn);
    stack_pg_kill(stack);
    stack_pg_restart(stack);
    conn = db_open(stack->conninfo);
  }
  int64_t before_n = writer_committed(writer);
  WAIT_FOR(DRAIN_MS, writer_committed(writer) > before_n + 500, "the load does not go on");
  writer_stop(writer);
  result = writer_wait(writer, DRAIN_MS);
  writer_verify(writer, conn);
  rows_n = db_int(conn, "SELECT count(*) FROM " TABLE);
  REQUIRE(rows_n >= result.committed_n && rows_n <= result.committed_n + result.in_doubt_n,
          "%" PRId64 " rows, %" PRId64 " committed, %" PRId64 " in doubt", rows_n, result.committed_n,
          result.in_doubt_n);
  PQfinish(conn);
}

static void test_frozen_postgres_answers_after_the_thaw(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  stack_pg_freeze(stack);
  REQUIRE(PQsendQuery(conn, "SELECT 1") == 1, "cannot send");
  wait_out(200);
  REQUIRE(PQconsumeInput(conn) == 1 && PQisBusy(conn), "a frozen server answers");
  stack_pg_thaw(stack);
  PGresult *result = PQgetResult(conn);
  REQUIRE(PQresultStatus(result) == PGRES_TUPLES_OK, "no answer after the thaw");
  PQclear(result);
  PQfinish(conn);
}

static void test_redis_comes_back_from_its_aof(void **state) {
  (void)state;
  for (int round = 1; round <= 3; round++) {
    redisContext *redis = rds_open(stack->redis_url);
    for (int i = 0; i < 100; i++) {
      rds_run(redis, "XADD s * n %d", i);
    }
    redisFree(redis);
    stack_redis_kill(stack);
    stack_redis_restart(stack);
    redis = rds_open(stack->redis_url);
    REQUIRE(rds_int(redis, "XLEN s") == 100 * round, "entries are missing after kill %d", round);
    redisFree(redis);
  }
}

static void test_redis_answers_over_its_unix_socket(void **state) {
  char url[STACK_URL_BYTES];
  (void)state;
  snprintf(url, sizeof url, "unix://%s", stack->redis_socket);
  redisContext *redis = rds_open(url);
  rds_run(redis, "PING");
  redisFree(redis);
}

static void test_every_form_of_table_can_be_filled(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (int form = 0; form < TABLE_FORMS_N; form++) {
    if (form == TABLE_INIT || form == TABLE_INIT_PLAIN) {
      continue; /* the relay's own: test_layouts */
    }
    table_create(stack, conn, (enum table_form)form, TABLE);
    table_fill(conn, (enum table_form)form, TABLE, 100, 10, 10);
    struct check_report report = check_require_good(stack, &(struct check_options){.expect_pending = 100});
    REQUIRE(report.aggregates_n == 10, "%s: %" PRId64 " aggregates", table_form_name((enum table_form)form),
            report.aggregates_n);
    db_exec(conn, "DROP TABLE " TABLE);
  }
  PQfinish(conn);
}

static void test_real_events_load_in_order(void **state) {
  const char *path = table_real_path();
  PGconn *conn;
  (void)state;
  if (path == NULL) {
    skip();
  }
  conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  int64_t messages_n = table_fill_real(conn, TABLE, path, 2);
  REQUIRE(messages_n > 600 && messages_n % 2 == 0, "%" PRId64 " messages", messages_n);
  REQUIRE(db_int(conn,
                 "SELECT count(*) FROM " TABLE " a JOIN " TABLE " b ON b.id = a.id + %" PRId64
                 " WHERE a.payload::text = b.payload::text AND a.event_type = b.event_type",
                 messages_n / 2) == messages_n / 2,
          "the second round is not the first once more");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_load_writes_what_it_says),           HARNESS_TEST(test_load_keeps_its_rate),
      HARNESS_TEST(test_postgres_survives_kills_under_load), HARNESS_TEST(test_frozen_postgres_answers_after_the_thaw),
      HARNESS_TEST(test_redis_comes_back_from_its_aof),      HARNESS_TEST(test_redis_answers_over_its_unix_socket),
      HARNESS_TEST(test_every_form_of_table_can_be_filled),  HARNESS_TEST(test_real_events_load_in_order),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
