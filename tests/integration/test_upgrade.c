/*
 * A plain table becomes partitioned under load: writers write on, relays are stopped or disconnected, the script is killed at each of its steps.
 */
#include "test_upgrade.h"

#include <inttypes.h>

#include "check.h"
#include "fleet.h"
#include "prng.h"
#include "table.h"

#define RELAYS_N 3

/* Kills it as soon as the query's value is as expected.  What its psql has sent may still happen, as it may when a machine is lost. */
static void kill_script_when(struct run *run, PGconn *conn, const char *sql) {
  WAIT_FOR(WAIT_MS, db_int(conn, "%s", sql) == 1, "never true: %s; %s", sql, said(run));
  proc_signal(&run->proc, SIGKILL);
  REQUIRE(proc_wait(&run->proc, WAIT_MS), "killed, and still there");
}

static void wait_published(PGconn *conn, int64_t more_n) {
  int64_t before_n = db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
  WAIT_FOR(WAIT_MS, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") >= before_n + more_n,
           "the relays do not publish");
}

static struct writer *write_on(void) {
  return writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                               .table = TABLE,
                                               .threads_n = 4,
                                               .aggregates_n = 200,
                                               .rate = 1500,
                                               .rollback_percent = 5,
                                               .seed = prng_seed()});
}

static void finish_load(PGconn *conn, struct writer *writer, struct relay **relays) {
  writer_stop(writer);
  struct writer_result result = writer_wait(writer, WAIT_MS);
  wait_no_pending(conn, TABLE, 10, WAIT_MS);
  for (int i = 0; i < RELAYS_N; i++) {
    relay_stop(relays[i]);
  }
  printf("%" PRId64 " messages, %" PRId64 " of them in the partition of before\n", result.committed_n,
         db_int(conn, "SELECT count(*) FROM " TABLE "_plain"));
  writer_verify(writer, conn);
  check_require_good(stack, NULL);
}

static void require_finished(PGconn *conn) {
  REQUIRE(db_int(conn, IS_PARTITIONED) == 1 && db_int(conn, HAS_BOUND) == 0, "the table is not as it should be");
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = '" TABLE "'::regclass") >= 14,
          "there are no partitions ahead");
}

/* Relays are stopped for the exchange and started again; the script is killed at each of its steps. */
static void test_killed_at_every_step_under_load(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relays[RELAYS_N];
  static struct run run;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct writer *writer = write_on();
  for (int i = 0; i < RELAYS_N; i++) {
    relays[i] = relay_start(stack, ARGS("run"));
  }
  wait_published(conn, 500);
  run_script(TABLE, "--dry-run", 0, "ATTACH PARTITION");
  REQUIRE(db_int(conn, IS_PARTITIONED) == 0 && db_int(conn, HAS_BOUND) == 0, "--dry-run has changed something");

  start_script(&run, TABLE, "--apply", NULL);
  kill_script_when(&run, conn, HAS_BOUND);
  start_script(&run, TABLE, "--apply", NULL);
  kill_script_when(&run, conn, "SELECT count(*) FROM pg_constraint WHERE conname = 'outboxd_bound' AND convalidated");
  start_script(&run, TABLE, "--apply", NULL);
  WAIT_FOR(WAIT_MS, strstr(said(&run), "stop all relays") != NULL, "it does not wait for the relays: %s", said(&run));
  wait_published(conn, 200);
  REQUIRE(db_int(conn, IS_PARTITIONED) == 0, "exchanged beside running relays");
  for (int i = 0; i < RELAYS_N; i++) {
    relay_stop(relays[i]);
  }
  kill_script_when(&run, conn, IS_PARTITIONED);
  for (int i = 0; i < RELAYS_N; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--no-cleanup"));
  }
  run_script(TABLE, "--apply", 0, "is partitioned; the rows of before are in");
  require_finished(conn);
  run_script(TABLE, "--apply", 0, "is partitioned; the rows of before are in");
  wait_published(conn, 500);
  finish_load(conn, writer, relays);
  PQfinish(conn);
}

/* Relays that are not stopped: their sessions are ended, they notice, and end. */
static void test_relays_are_disconnected(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relays[RELAYS_N];
  static struct run run;
  (void)state;
  table_create(stack, conn, TABLE_INIT_PLAIN, TABLE);
  struct writer *writer = write_on();
  for (int i = 0; i < RELAYS_N; i++) {
    relays[i] = relay_start(stack, ARGS("run"));
  }
  wait_published(conn, 500);
  fleet_wait_even(conn, TABLE, 16, RELAYS_N, WAIT_MS);
  start_script(&run, TABLE, "--apply", "--disconnect-relays");
  for (int i = 0; i < RELAYS_N; i++) {
    int status = relay_wait(relays[i], WAIT_MS);
    const json_t *line = relay_wait_log(relays[i], "relay_failed", NULL, NULL, WAIT_MS);
    REQUIRE(status == 1 && strcmp(json_string_value(json_object_get(line, "code")), "table_replaced") == 0,
            "relay %d ended with status %d, %s", i, status, json_string_value(json_object_get(line, "message")));
    relays[i] = relay_start(stack, ARGS("run"));
  }
  wait_script(&run, 0);
  require_finished(conn);
  wait_published(conn, 500);
  finish_load(conn, writer, relays);
  PQfinish(conn);
}

/* While somebody has the membership lock no relay joins; afterwards it does. */
static void test_nobody_joins_while_the_fleet_is_closed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 10);
  (void)db_int(conn, "SELECT pg_advisory_lock('" TABLE "'::regclass::oid::int8::bit(32)::int4, 196608)::text = ''");
  struct relay *relay = relay_start(stack, ARGS("run"));
  const json_t *line = relay_wait_log(relay, "postgres_down", NULL, NULL, WAIT_MS);
  REQUIRE(strcmp(json_string_value(json_object_get(line, "code")), "fleet_closed") == 0, "it fails with %s",
          json_string_value(json_object_get(line, "message")));
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") == 0, "it relays");
  (void)db_int(conn, "SELECT pg_advisory_unlock_all()::text = ''");
  wait_no_pending(conn, TABLE, 10, WAIT_MS);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_killed_at_every_step_under_load),
      HARNESS_TEST(test_relays_are_disconnected),
      HARNESS_TEST(test_nobody_joins_while_the_fleet_is_closed),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
