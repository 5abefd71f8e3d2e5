/*
 * Tables that make it hard: statistics that lie, updates that do not happen, payloads that together are larger than a process should be.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define ALERT_SCANS_MAX 5 /* its first look, at a table that is empty: three */
#define DRAIN_MS 60000

static struct stack *stack;

/* ---- statistics */

/* Sequential scans of the table so far, when nobody else is connected who might still have some to report. */
static int64_t scans_n(PGconn *conn) {
  WAIT_FOR(DRAIN_MS, fleet_sessions(conn, "outboxd") == 0, "a session outlives its relay");
  db_exec(conn, "SELECT pg_stat_clear_snapshot()");
  return db_int(conn, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = '" TABLE "'");
}

/* ANALYZE of an empty table, as after a nightly TRUNCATE, and a relay that has made its plans then: a scan of the whole table, and a sort, look best.
 * What comes in later must not be gone through from end to end by each claim. */
static void test_claims_keep_to_the_index_whatever_statistics_say(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "ALTER TABLE " TABLE " SET (autovacuum_enabled = off)");
  db_exec(conn, "ANALYZE " TABLE);
  /* Our own questions are not to be counted. */
  db_exec(conn, "SET enable_seqscan = off; SET enable_bitmapscan = off");
  int64_t before_n = scans_n(conn);
  struct relay *relay = relay_start(
      stack, ARGS("run", "--poll-interval", "10ms", "--batch", "200", "--stale-check-every", "1h", "--no-cleanup"));
  for (int i = 0; i < 20; i++) {
    table_fill(conn, TABLE_PLAIN, TABLE, 2, 2, 10);
    wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  }
  table_fill(conn, TABLE_PLAIN, TABLE, 20000, 500, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  int64_t scanned_n = scans_n(conn) - before_n;
  printf("%" PRId64 " sequential scans\n", scanned_n);
  REQUIRE(scanned_n <= ALERT_SCANS_MAX, "the table was scanned from end to end %" PRId64 " times", scanned_n);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* ---- updates that do not happen */

#define KEPT_N 50

static bool is_settle_count(const json_t *line, const void *arg) {
  (void)arg;
  const char *code = json_string_value(json_object_get(line, "code"));
  return code != NULL && strcmp(code, "settle_count") == 0;
}

/* Somebody's trigger throws the relay's updates away.  Nothing tells the relay so but the number of rows. */
static void test_updates_that_do_not_happen_are_noticed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "CREATE FUNCTION keep_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'");
  db_exec(conn, "CREATE TRIGGER keep_row BEFORE UPDATE ON " TABLE " FOR EACH ROW WHEN (OLD.aggregate_id = '3') EXECUTE "
                "FUNCTION keep_row()");
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", "1", "--no-cleanup"));
  table_fill(conn, TABLE_PLAIN, TABLE, KEPT_N, 5, 20);
  for (int i = 0; i < 2; i++) {
    const json_t *line = relay_wait_log(relay, "session_lost", is_settle_count, NULL, DRAIN_MS);
    const char *text = json_string_value(json_object_get(line, "message"));
    REQUIRE(strstr(text, "trigger") != NULL && strstr(text, TABLE) != NULL, "it does not say what to look for: %s",
            text);
  }
  REQUIRE(relay_is_running(relay), "the relay has ended");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE aggregate_id = '3' AND published_at IS NULL AND "
                       "attempts = 0") == KEPT_N / 5,
          "the trigger does not do its work");
  /* They are in the stream, once, however often they were claimed since. */
  REQUIRE(rds_int(redis, "XLEN outbox:{0}") == KEPT_N, "not each message is in the stream once");
  db_exec(conn, "DROP TRIGGER keep_row ON " TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, KEPT_N, 5, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts <> 0") == 0, "messages were blamed");
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  redisFree(redis);
  PQfinish(conn);
}

/* ---- payloads */

#define LARGE_N 20
#define LARGE_BYTES 4000000
#define MEMORY_MAX_MIB 85

/* The most memory the process has had. */
static int64_t peak_mib(pid_t pid) {
  char path[64], line[256];
  long long kib = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "re");
  REQUIRE(file != NULL, "cannot read %s", path);
  while (kib == 0 && fgets(line, sizeof line, file) != NULL)
    (void)sscanf(line, "VmHWM: %lld kB", &kib);
  fclose(file);
  REQUIRE(kib > 0, "%s has no VmHWM", path);
  return kib / 1024;
}

/* The sanitizers keep what was freed. */
static bool is_memory_ours(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return false;
#else
  return true;
#endif
#else
  return true;
#endif
}

/* A backlog of 80 MB that is stored in 1 MB, so that its rows look small: claimed at once it would all be in memory, several times over. */
static void test_a_backlog_of_large_payloads_does_not_fill_the_memory(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) SELECT "
          "gen_random_uuid(), 'order', (i %% 5)::text, 'x', to_jsonb(repeat('x', %d)) FROM generate_series(1, %d) i",
          LARGE_BYTES, LARGE_N);
  struct relay *relay =
      relay_start(stack, ARGS("run", "--lanes", "2", "--max-batch-bytes", "16MiB", "--claimers", "1", "--no-cleanup"));
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  int64_t mib = peak_mib(relay_pid(relay));
  relay_stop(relay);
  printf("%d payloads of %d bytes: at most %" PRId64 " MiB\n", LARGE_N, LARGE_BYTES, mib);
  REQUIRE(!is_memory_ours() || mib < MEMORY_MAX_MIB, "the relay has had %" PRId64 " MiB", mib);
  check_require_good(stack, &(struct check_options){.lanes_n = 2});
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_claims_keep_to_the_index_whatever_statistics_say),
      HARNESS_TEST(test_updates_that_do_not_happen_are_noticed),
      HARNESS_TEST(test_a_backlog_of_large_payloads_does_not_fill_the_memory),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
