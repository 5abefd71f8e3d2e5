/*
 * The rules of docs/alerting.md for Loki, Vector, Datadog and CloudWatch select what they should from log lines that outboxd wrote here, and a rule with a
 * mistake in it is noticed.  scripts/check-alert-rules.py evaluates them; test_metrics.c has the rules for Prometheus.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "db.h"
#include "harness.h"
#include "maintainer.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DONE_MS 60000
#define PATH_BYTES (STACK_PATH_BYTES + 32)

static struct stack *stack;

static void wait_for(struct relay *relay, const char *event) {
  (void)relay_wait_log(relay, event, NULL, NULL, DONE_MS);
}

/* -------------------------------------------------------------------------------------------------- lines */

/* A relay on a plain table whose messages are refused, whose servers go and come, whose metrics file cannot be written. */
static void write_relay_lines(PGconn *conn, redisContext *redis) {
  char dir[PATH_BYTES];
  char path[PATH_BYTES];
  (void)snprintf(dir, sizeof dir, "%s/metrics", stack->dir);
  (void)snprintf(path, sizeof path, "%s/metrics/a.prom", stack->dir);
  REQUIRE(mkdir(dir, 0755) == 0, "mkdir: %s", strerror(errno));
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET outbox:{3} x");
  rds_run(redis, "CONFIG SET maxmemory-policy allkeys-lru");
  rds_run(redis, "CONFIG SET maxmemory 1gb");
  struct relay *relay = relay_start(stack, ARGS("run", "--max-attempts", "2", "--stale-after", "1s",
                                                "--stale-check-every", "200ms", "--stats-every", "200ms",
                                                "--alert-repeat", "1h", "--metrics-file", path, "--no-cleanup"));
  wait_for(relay, "relay_started");
  REQUIRE(remove(path) == 0 && remove(dir) == 0, "remove: %s", strerror(errno));
  table_fill(conn, TABLE_PLAIN, TABLE, 500, 100, 20);
  static const char *const events[] = {"message_failed", "message_dead",    "dead_messages",      "outbox_stale",
                                       "stats",          "redis_may_evict", "metrics_file_failed"};
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
    wait_for(relay, events[i]);
  }
  rds_run(redis, "CONFIG SET maxmemory 0");
  rds_run(redis, "DEL outbox:{3}");
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0 WHERE attempts > 0 AND published_at IS NULL");
  wait_for(relay, "dead_messages_cleared");
  stack_redis_kill(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 10, 20); /* whoever has nothing to write does not notice */
  wait_for(relay, "redis_down");
  stack_redis_restart(stack);
  wait_for(relay, "redis_up");
  stack_pg_kill(stack);
  wait_for(relay, "postgres_down");
  stack_pg_restart(stack);
  wait_for(relay, "postgres_up");
  relay_stop(relay);
}

/* Relays that cannot work, or only badly. */
static void write_failures(PGconn *conn) {
  struct relay *relay = relay_start(stack, ARGS("run", "--table", "nowhere"));
  REQUIRE(relay_wait(relay, DONE_MS) == 1, "it works without a table");
  table_create(stack, conn, TABLE_INIT, "days");
  db_exec(conn, "CREATE TABLE rest PARTITION OF days DEFAULT");
  db_exec(conn,
          "DO $$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits JOIN pg_class c ON c.oid = "
          "inhrelid WHERE inhparent = 'days'::regclass AND relname <> 'rest' LOOP EXECUTE 'DROP TABLE ' || p; END "
          "LOOP; END $$");
  db_exec(conn, "INSERT INTO days (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '1', 'e', '{}')");
  db_exec(conn, "DO $$ DECLARE i regclass; BEGIN SELECT indexrelid INTO i FROM pg_index WHERE indrelid = "
                "'days'::regclass; EXECUTE 'DROP INDEX ' || i; END $$");
  relay = relay_start(
      stack, ARGS("run", "--table", "days", "--stream", "days:{%l}", "--stale-check-every", "200ms", "--no-cleanup"));
  wait_for(relay, "no_pending_index");
  wait_for(relay, "partitions_running_out");
  wait_for(relay, "default_partition_has_rows");
  relay_stop(relay);
}

/* Expired partitions: one goes, one has a pending message, one has a view, one was left half detached by an operator. */
static void write_cleanup_lines(PGconn *conn) {
  PGconn *holder = db_open(stack->conninfo);
  db_exec(conn, "DROP TABLE " TABLE);
  table_create(stack, conn, TABLE_INIT, TABLE);
  db_exec(conn, "SET TimeZone = 'UTC'");
  for (int day = 1; day <= 4; day++) {
    db_exec(conn, "CREATE TABLE old_%d PARTITION OF " TABLE " FOR VALUES FROM ('2020-01-0%d') TO ('2020-01-0%d')", day,
            day, day + 1);
  }
  db_exec(conn,
          "INSERT INTO " TABLE " (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'a', '1', "
          "'e', '{}', timestamptz '2020-01-02 12:00' + i * interval '2 days' FROM generate_series(0, 1) i");
  db_exec(conn, "CREATE VIEW report AS SELECT * FROM old_3");
  db_exec(holder, "BEGIN; LOCK TABLE ONLY " TABLE " IN ACCESS SHARE MODE");
  db_exec(conn, "SET statement_timeout = '300ms'");
  PGresult *result = PQexec(conn, "ALTER TABLE " TABLE " DETACH PARTITION old_4 CONCURRENTLY");
  REQUIRE(PQresultStatus(result) == PGRES_FATAL_ERROR, "the detach was not cancelled");
  PQclear(result);
  db_exec(holder, "COMMIT");
  PQfinish(holder);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  wait_for(maintainer, "partition_detach_finished");
  wait_for(maintainer, "partition_dropped");
  wait_for(maintainer, "partition_kept");
  wait_for(maintainer, "partition_blocked");
  wait_for(maintainer, "cleanup_done");
  relay_stop(maintainer);
}

/* -------------------------------------------------------------------------------------------------- rules */

/* Runs the evaluator on a page; what it says goes to standard output when it should be content, and is returned by its status. */
static int evaluate(const char *page, bool is_shown) {
  char command[4 * PATH_BYTES];
  char out[PATH_BYTES];
  (void)snprintf(out, sizeof out, "%s/rules.out", stack->dir);
  (void)remove(out);
  (void)snprintf(command, sizeof command,
                 "PATH=/usr/bin:$PATH exec python3 scripts/check-alert-rules.py '%s' docs/logging.md '%s'/relay*.log",
                 page, stack->dir);
  int status = proc_run(
      &(struct proc_spec){.name = "sh", .argv = (const char *const[]){"sh", "-c", command, NULL}, .stdout_path = out},
      DONE_MS);
  FILE *file = fopen(out, "re");
  char line[1000];
  while (is_shown && file != NULL && fgets(line, sizeof line, file) != NULL) {
    printf("  %s", line);
  }
  if (file != NULL) {
    (void)fclose(file);
  }
  return status;
}

/* The page with one mistake, by sed. */
static void require_noticed(const char *mistake) {
  char command[4 * PATH_BYTES];
  char page[PATH_BYTES];
  (void)snprintf(page, sizeof page, "%s/alerting.md", stack->dir);
  (void)snprintf(command, sizeof command, "sed '%s' docs/alerting.md >'%s'; ! cmp -s docs/alerting.md '%s'", mistake,
                 page, page);
  int status =
      proc_run(&(struct proc_spec){.name = "sh", .argv = (const char *const[]){"sh", "-c", command, NULL}}, DONE_MS);
  REQUIRE(status == 0, "nothing is changed by %s", mistake);
  status = evaluate(page, false);
  REQUIRE(status == 1, "the rules with %s in them are said to be right (%d)", mistake, status);
}

static void test_rules_select_what_they_should(void **state) {
  static const char *const mistakes[] = {
      /* names in Loki's rules: alone, in a list, of a field, of a label that is not taken out of the line */
      "s/event=\"outbox_stale\"/event=\"outbox_stal\"/",
      "s/event=~\"outbox_probe_failed|/event=~\"outbox_prob_failed|/",
      "s/|partition_kept|/|partitions_kept|/",
      "s/seconds=\"oldest_pending_seconds\"/seconds=\"oldest_pending_secs\"/",
      "s/json event=\"event\", level=\"level\"/json event=\"event\"/",
      /* Vector */
      "s/\"redis_unreachable\", \"lane/\"redis_unreachabel\", \"lane/",
      "s/\\.level == \"warning\"/.level == \"warn\"/",
      "s/^field = \"lag_p99_ms\"/field = \"lag_p99\"/",
      /* Datadog */
      "s/@event:outbox_stale/@event:outbox-stale/",
      "s/(no_pending_index OR/(no_pending_indexes OR/",
      /* CloudWatch */
      "s/\\$\\.event = \"outbox_stale\"/$.event = \"outbox_stael\"/",
      "s/\\$\\.event = \"partition_held\" ||/$.event = \"partition_help\" ||/",
      "s/\\$\\.level = \"critical\"/$.level = \"crit\"/",
      "s/\\$\\.level = \"error\" \\&\\& \\$\\.event != \"postgres_down\"/$.level = \"error\"/",
      "s/\\$\\.oldest_pending_seconds/$.oldest_seconds/",
  };
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  write_relay_lines(conn, redis);
  redisFree(redis);
  PQfinish(conn);
  conn = db_open(stack->conninfo);
  write_failures(conn);
  write_cleanup_lines(conn);
  REQUIRE(evaluate("docs/alerting.md", true) == 0, "the rules do not select what they should");
  for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
    require_noticed(mistakes[i]);
  }
  PQfinish(conn);
}

int main(int argc, char *argv[]) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_rules_select_what_they_should),
  };
  maintainer_become(argc, argv);
  return HARNESS_RUN(tests, &stack, NULL);
}
