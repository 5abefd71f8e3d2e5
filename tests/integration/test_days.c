/*
 * Days go by: the database's clock is moved, the relay runs on.
 *
 * The private PostgreSQL server runs under libfaketime, so that its now() is what the test says while everything else has the machine's time: each date
 * that outboxd goes by has to come from the database.
 */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "maintainer.h"
#include "outboxd/clock.h"
#include "table.h"
#include "wait.h"

static struct stack *stack;

#define DONE_MS 60000
#define TABLE "outbox_messages"

/* -------------------------------------------------------------------------------------------------- helpers */

/* It is now so late for the database ("2028-02-28 23:59:54"). */
static void set_clock(PGconn *conn, const char *when) {
  int64_t target_s = db_int(conn, "SELECT extract(epoch FROM timestamptz '%s+00')::bigint", when);
  stack_pg_set_clock(stack, (double)target_s - (double)clock_wall_us() / 1e6);
  REQUIRE(db_int(conn, "SELECT extract(epoch FROM clock_timestamp() - timestamptz '%s+00')::bigint", when) < 3600,
          "the clock cannot be set");
}

static void wait_clock(PGconn *conn, const char *when) {
  char sql[200];
  (void)snprintf(sql, sizeof sql, "SELECT (clock_timestamp() >= timestamptz '%s+00')::int", when);
  wait_sql_int(conn, 1, DONE_MS, sql);
}

static void add_day(PGconn *conn, const char *day) {
  db_exec(conn,
          "DO $$ DECLARE d timestamptz := '%s 00:00+00'; BEGIN EXECUTE format('CREATE TABLE %%I PARTITION OF " TABLE
          " FOR VALUES FROM (%%L) TO (%%L)', to_char(d, '\"" TABLE
          "_y\"YYYY\"m\"MM\"d\"DD'), d, d + interval '1 day'); "
          "END $$",
          day);
}

static bool has_day(PGconn *conn, const char *day) {
  return db_int(conn,
                "SELECT count(*) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = '" TABLE
                "'::regclass AND c.relname = '" TABLE "_%s'",
                day) == 1;
}

static bool is_about(const json_t *line, const void *arg) {
  const char *partition = json_string_value(json_object_get(line, "partition"));
  const char *day = arg;
  size_t n = partition != NULL ? strlen(partition) : 0;
  return n > strlen(day) && strcmp(partition + n - strlen(day), day) == 0;
}

static const json_t *wait_day(struct relay *relay, const char *event, const char *day) {
  return relay_wait_log(relay, event, is_about, day, DONE_MS);
}

static double number_of(const json_t *line, const char *field) {
  const json_t *value = json_object_get(line, field);
  REQUIRE(json_is_number(value), "%s has no number %s", json_string_value(json_object_get(line, "event")), field);
  return json_number_value(value);
}

static void require_count(struct relay *relay, const char *event, int n) {
  REQUIRE(relay_count(relay, event) == n, "%d lines %s instead of %d", relay_count(relay, event), event, n);
}

/* Writers over midnight; returns how many messages were committed. */
static struct writer *write_on(uint64_t seed) {
  return writer_start(&(struct writer_options){
      .conninfo = stack->conninfo, .table = TABLE, .threads_n = 4, .aggregates_n = 50, .rate = 300, .seed = seed});
}

static int64_t end_writing(PGconn *conn, struct writer *writer) {
  writer_stop(writer);
  int64_t committed_n = writer_wait(writer, DONE_MS).committed_n;
  REQUIRE(committed_n > 0, "nothing was written");
  wait_no_pending(conn, TABLE, 10, DONE_MS);
  return committed_n;
}

/* -------------------------------------------------------------------------------------------------- two days */

/* A table of today, two days before and four ahead, and an archive that gets each row that is inserted, in its transaction. */
static PGconn *make_table(void) {
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "SET TimeZone = 'UTC'");
  table_create(stack, conn, TABLE_INIT, TABLE);
  db_exec(conn, "DO $$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = '" TABLE
                "'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$");
  db_exec(conn, "CREATE TABLE archive AS SELECT * FROM " TABLE);
  db_exec(conn, "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO archive VALUES (NEW.*); "
                "RETURN NULL; END'");
  db_exec(conn, "CREATE TRIGGER keep AFTER INSERT ON " TABLE " FOR EACH ROW EXECUTE FUNCTION keep()");
  static const char *const days[] = {"2028-02-26", "2028-02-27", "2028-02-28", "2028-02-29",
                                     "2028-03-01", "2028-03-02", "2028-03-03"};
  for (size_t i = 0; i < sizeof days / sizeof days[0]; i++) {
    add_day(conn, days[i]);
  }
  return conn;
}

/* Redis hangs from before midnight until the alert has come: it is raised once the messages are old enough, and ends with what caused it. */
static void stall_over_midnight(PGconn *conn, struct relay *relay) {
  wait_clock(conn, "2028-02-28 23:59:56");
  require_count(relay, "outbox_stale", 0);
  stack_redis_freeze(stack);
  const json_t *line = relay_wait_log(relay, "outbox_stale", NULL, NULL, DONE_MS);
  REQUIRE(number_of(line, "oldest_pending_seconds") > 4 && number_of(line, "oldest_pending_seconds") < 60,
          "an age of %f s", number_of(line, "oldest_pending_seconds"));
  stack_redis_thaw(stack);
  (void)relay_wait_log(relay, "outbox_stale_cleared", NULL, NULL, DONE_MS);
}

/* A transaction stays open for a day. */
static void leave_a_transaction_open(PGconn *conn, struct relay *relay, const char *until) {
  PGconn *old = db_open(stack->conninfo);
  db_exec(old, "SET application_name = 'forgotten'; BEGIN; SELECT 1");
  require_count(relay, "old_transaction", 0);
  set_clock(conn, until);
  const json_t *line = relay_wait_log(relay, "old_transaction", NULL, NULL, DONE_MS);
  REQUIRE(number_of(line, "transaction_seconds") > 80000 &&
              strcmp(json_string_value(json_object_get(line, "application_name")), "forgotten") == 0,
          "told wrongly");
  db_exec(old, "COMMIT");
  PQfinish(old);
  (void)relay_wait_log(relay, "old_transaction_cleared", NULL, NULL, DONE_MS);
}

/* From the 28th of February 2028 over the leap day into the 2nd of March.  Each midnight is gone through in the clock's own pace while applications
 * write; in between the clock is put forward while nothing is pending. */
static void days_go_by(void **state) {
  int64_t written_n = 0;
  (void)state;
  PGconn *conn = make_table();
  set_clock(conn, "2028-02-28 23:59:50");
  struct relay *relay = relay_start(
      stack, ARGS("run", "--retention", "1d", "--cleanup-every", "1s", "--partitions-ahead", "4d", "--stale-after",
                  "5s", "--stale-check-every", "200ms", "--alert-repeat", "1h", "--redis-timeout", "1m"));
  /* What ended two days ago goes at once. */
  (void)wait_day(relay, "partition_dropped", "y2028m02d26");
  (void)relay_wait_log(relay, "cleanup_done", NULL, NULL, DONE_MS);
  assert_false(has_day(conn, "y2028m03d04"));
  if (db_int(conn, "SELECT (clock_timestamp() < '2028-02-28 23:59:58+00')::int") == 1) {
    assert_true(has_day(conn, "y2028m02d27"));
  }

  /* Midnight, into the leap day. */
  struct writer *writer = write_on(1);
  stall_over_midnight(conn, relay);
  wait_clock(conn, "2028-02-29 00:00:02");
  (void)wait_day(relay, "partition_dropped", "y2028m02d27");
  (void)wait_day(relay, "partition_created", "y2028m03d04");
  written_n += end_writing(conn, writer);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE "_y2028m02d28") > 0 &&
              db_int(conn, "SELECT count(*) FROM " TABLE "_y2028m02d29") > 0,
          "nothing was written before or after midnight");

  /* The month's end. */
  leave_a_transaction_open(conn, relay, "2028-02-29 23:59:54");
  assert_true(has_day(conn, "y2028m02d28"));
  writer = write_on(2);
  wait_clock(conn, "2028-03-01 00:00:02");
  (void)wait_day(relay, "partition_dropped", "y2028m02d28");
  (void)wait_day(relay, "partition_created", "y2028m03d05");
  written_n += end_writing(conn, writer);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE "_y2028m02d29") > 0 &&
              db_int(conn, "SELECT count(*) FROM " TABLE "_y2028m03d01") > 0,
          "nothing was written before or after the month's end");
  require_count(relay, "outbox_stale_cleared", 1);
  require_count(relay, "dead_messages", 0);

  /* A dead message of the leap day keeps its partition. */
  db_exec(conn,
          "INSERT INTO " TABLE " (aggregate_type, aggregate_id, event_type, payload, attempts, created_at) VALUES "
          "('account', 'dead', 'made', '{}', 10, '2028-02-29 12:00+00')");
  written_n++;
  (void)relay_wait_log(relay, "dead_messages", NULL, NULL, DONE_MS);
  set_clock(conn, "2028-03-01 23:59:54");
  writer = write_on(3);
  const json_t *kept = wait_day(relay, "partition_kept", "y2028m02d29");
  assert_true(db_int(conn, "SELECT (clock_timestamp() >= '2028-03-02 00:00+00')::int") == 1);
  assert_int_equal(number_of(kept, "dead"), 1);
  (void)wait_day(relay, "partition_created", "y2028m03d06");
  written_n += end_writing(conn, writer);
  require_count(relay, "dead_messages_cleared", 0);
  require_count(relay, "outbox_stale_cleared", 1);
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0 WHERE aggregate_id = 'dead'");
  (void)relay_wait_log(relay, "dead_messages_cleared", NULL, NULL, DONE_MS);
  (void)relay_wait_log(relay, "outbox_stale_cleared", NULL, NULL, DONE_MS);
  (void)wait_day(relay, "partition_dropped", "y2028m02d29");
  assert_true(has_day(conn, "y2028m03d01"));
  relay_stop(relay);

  /* Alerts that had no reason. */
  static const char *const never[] = {"outbox_probe_failed", "postgres_unreachable",   "redis_unreachable",
                                      "lane_without_owner",  "partitions_running_out", "default_partition_has_rows",
                                      "alert_part_off",      "partition_stranded",     "partition_blocked",
                                      "partition_returned",  "partition_held",         "cleanup_failed",
                                      "cleanup_off",         "postgres_down",          "message_dead"};
  for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
    require_count(relay, never[i], 0);
  }
  require_count(relay, "outbox_stale_cleared", 2);
  require_count(relay, "old_transaction", 1);
  require_count(relay, "dead_messages", 1);
  require_count(relay, "partition_kept", 1);
  require_count(relay, "partition_dropped", 4);
  require_count(relay, "partition_created", 3); /* one at each midnight */

  /* Every message that was ever committed is in its stream, once and in order: the rows that were dropped count as published. */
  assert_int_equal(db_int(conn, "SELECT count(*) FROM archive"), written_n);
  db_exec(conn, "UPDATE archive SET published_at = now()");
  struct check_report report = check_require_good(stack, &(struct check_options){.table = "archive"});
  print_message("%" PRId64 " messages over three midnights\n", report.entries_n);
  assert_int_equal(report.entries_n, written_n);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"), 0);
  PQfinish(conn);
}

/* Nobody makes partitions while days go by: it is said two days ahead, and then that inserts fail; it ends when they are made. */
static void partitions_run_out_when_nobody_makes_them(void **state) {
  (void)state;
  PGconn *conn = make_table();
  set_clock(conn, "2028-02-29 23:59:55");
  struct relay *relay = relay_start(stack, ARGS("run", "--no-cleanup", "--stale-check-every", "200ms"));
  (void)relay_wait_log(relay, "lanes_changed", NULL, NULL, DONE_MS);
  wait_clock(conn, "2028-02-29 23:59:59");
  require_count(relay, "partitions_running_out", 0);
  set_clock(conn, "2028-03-01 23:59:58");
  wait_clock(conn, "2028-03-02 00:00:00"); /* until the 4th there are two days */
  const json_t *line = relay_wait_log(relay, "partitions_running_out", NULL, NULL, DONE_MS);
  assert_string_equal(json_string_value(json_object_get(line, "level")), "error");
  assert_true(number_of(line, "covered_seconds") > 86400 && number_of(line, "covered_seconds") < 2 * 86400);
  set_clock(conn, "2028-03-03 23:59:57");
  require_count(relay, "partitions_running_out", 1);
  line = relay_wait_log(relay, "partitions_running_out", NULL, NULL, DONE_MS);
  assert_string_equal(json_string_value(json_object_get(line, "level")), "critical");
  assert_true(db_int(conn, "SELECT (clock_timestamp() >= '2028-03-04 00:00+00')::int") == 1);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  (void)relay_wait_log(relay, "partitions_running_out_cleared", NULL, NULL, DONE_MS);
  relay_stop(maintainer);
  relay_stop(relay);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- a minute */

/* A transaction that has held the table for more than a minute is not waited for: nothing is touched until it ends. */
static void a_long_transaction_holds_a_partition(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *holder = db_open(stack->conninfo);
  (void)state;
  db_exec(conn, "SET TimeZone = 'UTC'");
  table_create(stack, conn, TABLE_INIT, TABLE);
  add_day(conn, "2020-01-02");
  db_exec(holder, "SET application_name = 'nightly report'; BEGIN; SELECT count(*) FROM " TABLE);
  stack_pg_set_clock(stack, 90);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s", "--alert-repeat", "1h");
  const json_t *line = wait_day(maintainer, "partition_held", "y2020m01d02");
  assert_string_equal(json_string_value(json_object_get(line, "level")), "warning");
  assert_int_equal(number_of(line, "backend_pid"), PQbackendPID(holder));
  assert_string_equal(json_string_value(json_object_get(line, "application_name")), "nightly report");
  assert_true(number_of(line, "transaction_seconds") >= 90 && number_of(line, "transaction_seconds") < 1000);
  line = relay_wait_log(maintainer, "cleanup_done", NULL, NULL, DONE_MS);
  assert_int_equal(number_of(line, "busy"), 1);
  (void)relay_wait_log(maintainer, "cleanup_done", NULL, NULL, DONE_MS);
  require_count(maintainer, "partition_held", 1); /* once, not in each run */
  assert_true(has_day(conn, "y2020m01d02"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_description WHERE description LIKE 'outboxd is removing%%'"),
                   0);
  db_exec(holder, "COMMIT");
  PQfinish(holder);
  (void)wait_day(maintainer, "partition_dropped", "y2020m01d02");
  relay_stop(maintainer);
  PQfinish(conn);
}

int main(int argc, char *argv[]) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(days_go_by),
      HARNESS_TEST(partitions_run_out_when_nobody_makes_them),
      HARNESS_TEST(a_long_transaction_holds_a_partition),
  };
  maintainer_become(argc, argv);
  return HARNESS_RUN(tests, &stack, &((struct stack_options){.has_clock = true}));
}
