/*
 * Alerts about the database: lanes, partitions, transactions; what is missing without a privilege, and what a look costs.
 */
#include "test_alert.h"

#include "embed.h"
#include "outboxd/sql.h"

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- the database */

static bool are_two(const json_t *line, const void *arg) {
  (void)arg;
  return number(line, "lanes_n") == 2;
}

static void test_lane_without_owner(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--alert-repeat", "1s"));
  /* Handing a lane on takes a moment. */
  unlock_lane(owner, 5);
  wait_out(800);
  lock_lane(owner, 5);
  wait_out(400);
  require_lines(watch, 1);
  unlock_lane(owner, 3);
  unlock_lane(owner, 9);
  const json_t *line = relay_wait_log(watch, "lane_without_owner", are_two, NULL, LOG_MS);
  const json_t *lanes = json_object_get(line, "lanes");
  REQUIRE(json_array_size(lanes) == 2 && json_integer_value(json_array_get(lanes, 0)) == 3 &&
              json_integer_value(json_array_get(lanes, 1)) == 9,
          "other lanes are told");
  lock_lane(owner, 3);
  wait_out(600);
  REQUIRE(relay_count(watch, "lane_without_owner_cleared") == 0, "lane 9 is still without an owner");
  lock_lane(owner, 9);
  wait_cleared(watch, "lane_without_owner");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

static void drop_from_day(PGconn *conn, int day) {
  db_exec(
      conn,
      "DO $do$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid "
      "WHERE inhparent = '" TABLE "'::regclass AND right(c.relname, 11) >= to_char((now() AT TIME ZONE 'UTC') + "
      "interval '%d days', '\"y\"YYYY\"m\"MM\"d\"DD') LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $do$",
      day);
}

static void test_partitions_run_out(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--alert-repeat", "1h"));
  drop_from_day(conn, 4);
  wait_out(600);
  require_lines(watch, 1); /* today and three days more */
  drop_from_day(conn, 2);
  const json_t *line = wait_line(watch, "partitions_running_out", "error");
  double covered = number(line, "covered_seconds");
  REQUIRE(covered > 86400 && covered <= 2 * 86400.0, "partitions for %f s", covered);
  drop_from_day(conn, 0);
  line = wait_line(watch, "partitions_running_out", "critical");
  REQUIRE(number(line, "covered_seconds") <= 0, "told wrongly");
  struct relay *init = relay_start(stack, ARGS("init"));
  REQUIRE(relay_wait(init, 30000) == 0, "outboxd init fails");
  wait_cleared(watch, "partitions_running_out");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_default_partition(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  PGconn *owner = own_lanes();
  db_exec(conn, "CREATE TABLE \"the rest\" PARTITION OF " TABLE " DEFAULT");
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  wait_out(600);
  require_lines(watch, 1); /* an empty one is fine */
  insert(conn, "a", 0, "now() + interval '1 year'");
  publish_all(conn);
  const json_t *line = wait_line(watch, "default_partition_has_rows", "warning");
  REQUIRE(strcmp(text(line, "partition"), "\"public\".\"the rest\"") == 0 && number(line, "rows") == 1 &&
              !flag(line, "is_at_least"),
          "told wrongly");
  db_exec(conn, "DROP TABLE \"the rest\"");
  wait_cleared(watch, "default_partition_has_rows");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_old_transaction(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *old = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--alert-repeat", "1h"));
  db_exec(old, "SET application_name = 'nightly report'; BEGIN; SELECT 1");
  const json_t *line = wait_line(watch, "old_transaction", "warning");
  REQUIRE(number(line, "transaction_seconds") > 2 && number(line, "pid") == PQbackendPID(old) &&
              strcmp(text(line, "application_name"), "nightly report") == 0 &&
              strcmp(text(line, "state"), "idle in transaction") == 0,
          "told wrongly");
  db_exec(old, "COMMIT");
  wait_cleared(watch, "old_transaction");
  /* One that no session shows. */
  db_exec(old, "BEGIN; CREATE TABLE prepared_one (); PREPARE TRANSACTION 'left behind'");
  line = wait_line(watch, "old_transaction", "warning");
  REQUIRE(number(line, "pid") == 0 && strcmp(text(line, "application_name"), "left behind") == 0 &&
              strcmp(text(line, "state"), "prepared") == 0,
          "told wrongly");
  db_exec(old, "ROLLBACK PREPARED 'left behind'");
  WAIT_FOR(LOG_MS, relay_count(watch, "old_transaction_cleared") == 2, "that it is over is not said");
  relay_stop(watch);
  PQfinish(old);
  PQfinish(owner);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- privileges */

static void test_missing_privileges_turn_parts_off(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *old = db_open(stack->conninfo);
  char conninfo[STACK_URL_BYTES];
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  db_exec(conn, "DO $$ BEGIN CREATE ROLE \"The Relay\" LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
  db_exec(conn, "REVOKE pg_read_all_stats FROM \"The Relay\"");
  db_exec(conn, "GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO \"The Relay\"");
  PGconn *owner = own_lanes();
  db_exec(old, "BEGIN; SELECT 1");
  snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%d user='The Relay' dbname=" STACK_DATABASE,
           stack->pg_port.number);
  struct relay *watch =
      start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--database", conninfo, "--alert-repeat", "1s"));
  const json_t *line = wait_part(watch, "alert_part_off", "transactions");
  REQUIRE(strcmp(text(line, "level"), "warning") == 0, "a wrong level");
  char grant[512];
  snprintf(grant, sizeof grant, "%s", text(line, "grant"));
  db_exec(conn, "CREATE TABLE \"the rest\" PARTITION OF " TABLE " DEFAULT");
  insert(conn, "a", 0, "now() + interval '1 year'");
  line = wait_part(watch, "alert_part_off", "default_partition");
  wait_out(1000);
  REQUIRE(relay_count(watch, "alert_part_off") == 2, "said more than once");
  REQUIRE(relay_count(watch, "old_transaction") == 0 && relay_count(watch, "default_partition_has_rows") == 0,
          "something is said that cannot be known");
  /* What the lines name helps, and at once. */
  db_exec(conn, "%s", grant);
  db_exec(conn, "%s", text(line, "grant"));
  (void)wait_part(watch, "alert_part_off_cleared", "transactions");
  (void)wait_part(watch, "alert_part_off_cleared", "default_partition");
  (void)wait_line(watch, "old_transaction", "warning");
  (void)wait_line(watch, "default_partition_has_rows", "warning");
  relay_stop(watch);
  PQfinish(old);
  PQfinish(owner);
  db_exec(conn, "DROP OWNED BY \"The Relay\"; DROP ROLE \"The Relay\"");
  PQfinish(conn);
}

static void test_info_is_forbidden(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char url[STACK_URL_BYTES];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  rds_run(redis, "ACL SETUSER relay reset on >secret ~* +@all -info -ping");
  rds_run(redis, "CONFIG SET maxmemory 1mb");
  snprintf(url, sizeof url, "redis://relay:secret@127.0.0.1:%d", stack->redis_port.number);
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--redis", url));
  const json_t *line = wait_part(watch, "alert_part_off", "redis_memory");
  REQUIRE(strcmp(text(line, "code"), "NOPERM") == 0, "the reason is %s", text(line, "code"));
  wait_out(3000);
  REQUIRE(relay_count(watch, "redis_unreachable") == 0, "a PING that is forbidden is taken for an outage");
  require_lines(watch, 2);
  REQUIRE(strcmp(text(line, "grant"), "ACL SETUSER relay +info") == 0, "it names %s", text(line, "grant"));
  rds_run(redis, "ACL SETUSER relay +info");
  (void)wait_line(watch, "redis_memory_high", "error");
  char *log = relay_text(watch);
  REQUIRE(strstr(log, "secret") == NULL, "a password is in the log");
  free(log);
  relay_stop(watch);
  redisFree(redis);
  PQfinish(owner);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- how much it costs */

#define RUNS_N 5

/* The line of a plan that tells the execution time, in milliseconds; negative for any other. */
static double execution_ms(const char *line) {
  static const char words[] = "Execution Time: ";
  const char *time = strstr(line, words);
  return time != NULL ? strtod(time + strlen(words), NULL) : -1;
}

/* Runs EXPLAIN ANALYZE as the alert's session would, and requires that each partition is read by its pending index, and no row in vain.
 * The best execution time of five, in milliseconds.  TIMING OFF: two readings of the clock for each row of each node would be
 * half of what is measured. */
static double explain(PGconn *conn, const char *sql, const char *args) {
  double best_ms = 1e9;
  char *expanded = NULL;
  struct err err = ERR_INIT;
  const struct sql_var vars[] = {{"table", TABLE}, {NULL, NULL}};
  REQUIRE(sql_expand(sql, vars, &expanded, &err) == 0, "%s", err.text);
  db_exec(conn, "DEALLOCATE ALL");
  db_exec(conn, "PREPARE look AS %s", expanded);
  for (int i = 0; i < RUNS_N; i++) {
    PGresult *plan = db_rows(conn, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE look(%s)", args);
    int scans_n = 0;
    for (int row = 0; row < PQntuples(plan); row++) {
      const char *line = PQgetvalue(plan, row, 0);
      double time_ms = execution_ms(line);
      if (i == 0 && (row < 10 || time_ms >= 0)) {
        printf("  %s\n", line);
      }
      REQUIRE(strstr(line, "Seq Scan") == NULL && strstr(line, "Bitmap") == NULL &&
                  strstr(line, "Rows Removed") == NULL,
              "more is read than the pending index has: %s", line);
      scans_n += strstr(line, "Index Scan using \"part ") != NULL && strstr(line, "_id_idx\"") != NULL;
      best_ms = time_ms >= 0 && time_ms < best_ms ? time_ms : best_ms;
    }
    REQUIRE(scans_n == 50, "%d partitions of 50 are read by the pending index", scans_n);
    PQclear(plan);
  }
  free(expanded);
  return best_ms;
}

/* What a look asks, in a session of its own as the alert thread's is: the question that decides within 50 ms, the counts by the index. */
static void require_cheap(const char *when) {
  PGconn *session = db_open(stack->conninfo);
  db_exec(session, "%s", embed_session_plan_sql);
  double oldest_ms = explain(session, embed_alert_oldest_sql, "10, 16");
  char args[64];
  (void)snprintf(args, sizeof args, "10, %lld",
                 (long long)db_int(session, "SELECT min(id) FROM " TABLE " WHERE published_at IS NULL"));
  double counts_ms = explain(session, embed_alert_counts_sql, args);
  printf("%s: the oldest message in %.1f ms, counts in %.1f ms\n", when, oldest_ms, counts_ms);
  REQUIRE(oldest_ms < (double)wait_scaled_ms(50), "the age of the oldest message takes %f ms", oldest_ms);
  REQUIRE(counts_ms < (double)wait_scaled_ms(500), "counting takes %f ms", counts_ms);
  PQfinish(session);
}

/* How many times the sessions of the alert thread have counted: by the rows that were read from the pending index. */
static int64_t rows_read(PGconn *conn) {
  db_exec(conn, "SELECT pg_stat_clear_snapshot()");
  return db_int(conn, "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE indexrelname LIKE '%%_id_idx'");
}

static void test_a_look_is_cheap(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_50, TABLE);
  PGconn *owner = own_lanes();
  table_fill(conn, TABLE_50, TABLE, 1000000, 1000, 20);
  publish_all(conn);
  table_fill(conn, TABLE_50, TABLE, 100000, 1000, 20);
  require_cheap("before a vacuum");
  db_exec(conn, "VACUUM ANALYZE " TABLE);
  require_cheap("after a vacuum");
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  const json_t *line = wait_line(watch, "outbox_stale", "critical");
  REQUIRE(number(line, "pending_messages") == 100000 && !flag(line, "is_at_least"), "100,000 are counted exactly");
  relay_stop(watch);
  table_fill(conn, TABLE_50, TABLE, 1000, 10, 20);
  watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  line = wait_line(watch, "outbox_stale", "critical");
  REQUIRE(number(line, "pending_messages") == 100000 && flag(line, "is_at_least"), "more are not said to be more");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

/* While something makes the thread look more often than at its checks, it does not count each time. */
static void test_only_checks_count(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  table_fill(conn, TABLE_PLAIN, TABLE, 50000, 1000, 20);
  unlock_lane(owner, 7); /* within its grace: a look every 0.1 to 5 s */
  /* Stale by then: the look that finds the lane without an owner, at least 3 s after the start, is the last one for an hour. */
  struct relay *watch = start_watch(ARGS("run", "--stale-check-every", "1h", "--stale-after", "3s"));
  (void)wait_line(watch, "lane_without_owner", "error");
  /* Once at the start, and once for the line. */
  const json_t *line = wait_line(watch, "outbox_stale", "critical");
  REQUIRE(number(line, "pending_messages") == 50000, "the line between two checks has no counts");
  wait_out(1000);
  relay_stop(watch);
  int64_t read_n = 0;
  WAIT_FOR(LOG_MS, (read_n = rows_read(conn)) >= 100000, "%" PRId64 " rows were read", read_n);
  REQUIRE(read_n < 150000, "%" PRId64 " rows were read: it counts at each look", read_n);
  PQfinish(owner);
  PQfinish(conn);
}

int main(int argc, char *argv[]) {
  const struct CMUnitTest tests[] = {
      ALERT_TEST(test_lane_without_owner),
      ALERT_TEST(test_partitions_run_out),
      ALERT_TEST(test_default_partition),
      ALERT_TEST(test_old_transaction),
      ALERT_TEST(test_missing_privileges_turn_parts_off),
      ALERT_TEST(test_info_is_forbidden),
      ALERT_TEST(test_a_look_is_cheap),
      ALERT_TEST(test_only_checks_count),
  };
  return alert_tests_main(__FILE__, argc, argv, tests, sizeof(tests) / sizeof(tests[0]), &stack);
}
