/*
 * Relays and their cleanups: a relay under load does not suffer when partitions come and go, and days go by without a loss.
 */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "table.h"
#include "wait.h"

static struct stack *stack;

#define DONE_MS 60000

/* What the table held, for the checker: rows that have been dropped since count as published, so they have to be in a stream. */
static struct check_report require_good(PGconn *conn, int64_t expect_pending) {
  db_exec(conn, "DROP TABLE IF EXISTS checked");
  db_exec(conn, "CREATE TABLE checked AS SELECT * FROM outbox_messages");
  db_exec(conn, "UPDATE archive SET published_at = now()");
  db_exec(conn,
          "INSERT INTO checked SELECT * FROM archive a WHERE NOT EXISTS (SELECT FROM checked c WHERE c.id = a.id)");
  return check_require_good(stack, &(struct check_options){.table = "checked", .expect_pending = expect_pending});
}

static int64_t partitions_n(PGconn *conn) {
  return db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass");
}

/* Fifty partitions full of pending messages are drained and dropped, sixty are made, while applications write. */
static void a_relay_under_load_does_not_suffer(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_50, "outbox_messages");
  table_fill(conn, TABLE_50, "outbox_messages", harness_scaled(30000), 500, 100);
  db_exec(conn, "CREATE TABLE archive AS SELECT * FROM outbox_messages");
  struct writer *writer = writer_start(&(struct writer_options){
      .conninfo = stack->conninfo, .table = "outbox_messages", .threads_n = 4, .rate = 1500, .seed = 7});
  struct relay *relay = relay_start(stack, ARGS("run", "--retention", "1h", "--cleanup-every", "1s",
                                                "--partitions-ahead", "60d", "--batch", "200", "--lanes", "16"));
  WAIT_FOR(DONE_MS, relay_count(relay, "partition_dropped") >= 47 && relay_count(relay, "partition_created") >= 59,
           "%d dropped, %d created", relay_count(relay, "partition_dropped"), relay_count(relay, "partition_created"));
  writer_stop(writer);
  struct writer_result written = writer_wait(writer, DONE_MS);
  wait_no_pending(conn, "outbox_messages", 10, DONE_MS);
  relay_stop(relay);
  struct check_report report = require_good(conn, 0);
  print_message("%" PRId64 " written meanwhile, %" PRId64 " entries, %d dropped, %d busy\n", written.committed_n,
                report.entries_n, relay_count(relay, "partition_dropped"), relay_count(relay, "partition_busy"));
  assert_int_equal(report.entries_n, harness_scaled(30000) + written.committed_n);
  /* Nothing that the relay would have to tell an operator. */
  assert_int_equal(relay_count(relay, "postgres_down"), 0);
  assert_int_equal(relay_count(relay, "postgres_refuses"), 0);
  assert_int_equal(relay_count(relay, "cleanup_failed"), 0);
  assert_int_equal(relay_count(relay, "partition_stranded"), 0);
  assert_int_equal(partitions_n(conn), 62); /* yesterday's, today's, sixty ahead */
  PQfinish(conn);
}

/* Two relays share the lanes, one of them maintains. */
static void two_relays_have_one_maintainer(void **state) {
  struct relay *relays[2];
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT, "outbox_messages");
  for (int i = 0; i < 2; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--cleanup-every", "1s", "--session-timeout", "3s"));
    relay_wait_log(relays[i], "relay_started", NULL, NULL, DONE_MS);
  }
  WAIT_FOR(DONE_MS, relay_count(relays[0], "cleanup_done") + relay_count(relays[1], "cleanup_done") >= 5, "no cleanup");
  int maintainer = relay_count(relays[0], "cleanup_elected") > 0 ? 0 : 1;
  assert_int_equal(relay_count(relays[maintainer], "cleanup_elected"), 1);
  assert_int_equal(relay_count(relays[1 - maintainer], "cleanup_elected"), 0);
  assert_int_equal(relay_count(relays[1 - maintainer], "cleanup_done"), 0);
  relay_kill(relays[maintainer]);
  relay_wait_log(relays[1 - maintainer], "cleanup_done", NULL, NULL, DONE_MS);
  relay_stop(relays[1 - maintainer]);
  PQfinish(conn);
}

static void no_cleanup_means_none(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_50, "outbox_messages");
  struct relay *relay = relay_start(stack, ARGS("run", "--no-cleanup", "--cleanup-every", "1s"));
  relay_wait_log(relay, "relay_started", NULL, NULL, DONE_MS);
  wait_out(2000);
  relay_stop(relay);
  assert_int_equal(partitions_n(conn), 50);
  assert_int_equal(relay_count(relay, "cleanup_elected"), 0);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- days */

#define FIRST_DAY "timestamptz '2026-01-30 00:00+00'"
#define STEP_HOURS 6
#define STEPS 8

/* Messages of the simulated hours from step on; the archive gets them in the same transaction. */
static void write_messages(PGconn *conn, int step, int n) {
  db_exec(conn,
          "WITH w AS (INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload, created_at) "
          "SELECT 'account', 'a' || i %% 7, 'made', jsonb_build_object('step', %d), " FIRST_DAY
          " + %d * interval '1 hour' "
          "+ i * interval '6 hours' / %d FROM generate_series(0, %d - 1) i RETURNING *) INSERT INTO archive SELECT * "
          "FROM w",
          step, step * STEP_HOURS, n, n);
}

/* Two days go by, from the 30th over the month's end into the 1st, with a relay that starts anew every six hours: --retention puts its cut
 * exactly at the simulated moment minus one day.  Partitions go when their day is over and all of it is published, not before. */
static void days_go_by_without_a_loss(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT, "outbox_messages");
  db_exec(conn, "SET TimeZone = 'UTC'");
  for (int day = -1; day <= 2; day++) {
    db_exec(conn,
            "DO $$ DECLARE d timestamptz := " FIRST_DAY
            " + %d * interval '1 day'; BEGIN EXECUTE format('CREATE TABLE %%I "
            "PARTITION OF outbox_messages FOR VALUES FROM (%%L) TO (%%L)', to_char(d, "
            "'\"outbox_messages_y\"YYYY\"m\"MM\"d\"DD'), d, d + interval '1 day'); END $$",
            day);
  }
  db_exec(conn, "CREATE TABLE archive AS SELECT * FROM outbox_messages");
  /* A message of the first day is refused for ever: its aggregate's stream is no stream. */
  db_exec(conn,
          "WITH w AS (INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload, created_at, "
          "attempts) SELECT 'account', 'dead', 'made', '{}', " FIRST_DAY " + interval '1 hour', 10 RETURNING *) "
          "INSERT INTO archive SELECT * FROM w");
  for (int step = 0; step < STEPS; step++) {
    char retention[32];
    write_messages(conn, step, 20);
    /* The cut lies one day behind the end of this step. */
    (void)snprintf(retention, sizeof retention, "%" PRId64 "ms",
                   db_int(conn,
                          "SELECT (extract(epoch FROM now() - (" FIRST_DAY
                          " + %d * interval '1 hour' - interval '1 day')) "
                          "* 1000)::bigint",
                          (step + 1) * STEP_HOURS));
    struct relay *relay =
        relay_start(stack, ARGS("run", "--retention", retention, "--cleanup-every", "1s", "--partitions-ahead", "1d"));
    wait_no_pending(conn, "outbox_messages", 10, DONE_MS);
    int done_n = relay_count(relay, "cleanup_done");
    WAIT_FOR(DONE_MS, relay_count(relay, "cleanup_done") >= done_n + 2, "no cleanup");
    relay_stop(relay);
    int64_t hours = (step + 1) * STEP_HOURS - 24; /* the cut, in hours after the first day's beginning */
    assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_class WHERE relname = 'outbox_messages_y2026m01d29'"),
                     hours < 0);
    /* The 30th is over for the cut at its 24th hour, but the dead message keeps it. */
    assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_class WHERE relname = 'outbox_messages_y2026m01d30'"), 1);
    assert_int_equal(relay_count(relay, "partition_kept"), hours >= 24);
    assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_class WHERE relname IN ('outbox_messages_y2026m01d31', "
                                  "'outbox_messages_y2026m02d01')"),
                     2);
  }
  /* The operator settles the dead one; two days later all is gone. */
  db_exec(conn, "UPDATE outbox_messages SET attempts = 0 WHERE aggregate_id = 'dead'");
  struct relay *relay =
      relay_start(stack, ARGS("run", "--cleanup-every", "1s", "--partitions-ahead", "1d", "--retention", "1h"));
  WAIT_FOR(
      DONE_MS,
      db_int(conn, "SELECT count(*) FROM pg_class WHERE relname ~ '^outbox_messages_y2026m0[12]d(29|30|31|01)$'") == 0,
      "expired partitions are still there");
  relay_stop(relay);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages"), 0);
  assert_int_equal(require_good(conn, 0).entries_n, STEPS * 20 + 1);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(a_relay_under_load_does_not_suffer),
      HARNESS_TEST(two_relays_have_one_maintainer),
      HARNESS_TEST(no_cleanup_means_none),
      HARNESS_TEST(days_go_by_without_a_loss),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
