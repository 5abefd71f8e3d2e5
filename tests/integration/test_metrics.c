/*
 * --metrics-file: what a relay writes is what promtool accepts and what the stats line says; the Prometheus rules of docs/alerting.md fire on it when
 * they should and not otherwise.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "db.h"
#include "harness.h"
#include "outboxd/clock.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000
#define PATH_BYTES (STACK_PATH_BYTES + 32)

static struct stack *stack;

/* A path in the stack's directory. */
static const char *path_of(const char *name, char out[PATH_BYTES]) {
  (void)snprintf(out, PATH_BYTES, "%s/%s", stack->dir, name);
  return out;
}

/* The file as text; "" when there is none.  The buffer is overwritten by the next call. */
static const char *read_text(const char *path) {
  static char text[1 << 16];
  FILE *file = fopen(path, "re");
  size_t n = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  text[n] = '\0';
  if (file != NULL) {
    (void)fclose(file);
  }
  return text;
}

/* Runs a shell command in the stack's directory; fails the test with what it wrote unless it ends with status. */
static void require_status(int status, const char *command) {
  char out[PATH_BYTES];
  char line[2000];
  path_of("command.out", out);
  (void)remove(out);
  (void)snprintf(line, sizeof line, "cd '%s' && %s", stack->dir, command);
  int got = proc_run(
      &(struct proc_spec){.name = "sh", .argv = (const char *const[]){"sh", "-c", line, NULL}, .stdout_path = out},
      60000);
  REQUIRE(got == status, "\"%s\" ends with %d: %s", command, got, read_text(out));
}

/* The value of a series of this relay and table ("x", labels without the braces' first two); -1 when it is not there. */
static double value_of(const char *text, const char *name, const char *more) {
  char line[300];
  (void)snprintf(line, sizeof line, "\noutboxd_%s{relay=\"outboxd-a\",table=\"" TABLE "\"%s} ", name, more);
  const char *found = strstr(text, line);
  return found != NULL ? strtod(found + strlen(line), NULL) : -1;
}

static double field_of(const json_t *line, const char *name) {
  return json_number_value(json_object_get(line, name));
}

static void test_file_says_what_the_log_says(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char path[PATH_BYTES];
  (void)state;
  path_of("outboxd-a.prom", path);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  /* One lane's stream is no stream: its messages are refused. */
  rds_run(redis, "SET outbox:{3} x");
  struct relay *relay = relay_start(stack, ARGS("run", "--metrics-file", path, "--stats-every", "100ms",
                                                "--max-attempts", "1", "--on-dead", "block", "--no-cleanup"));
  relay_wait_log(relay, "relay_started", NULL, NULL, DRAIN_MS);
  require_status(0, "promtool check metrics <outboxd-a.prom");
  table_fill(conn, TABLE_PLAIN, TABLE, 5000, 500, 100);
  wait_sql_int(conn, 0, DRAIN_MS,
               "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND attempts = 0 AND aggregate_id NOT IN "
               "(SELECT aggregate_id FROM " TABLE " WHERE attempts > 0)");
  WAIT_FOR(DRAIN_MS, value_of(read_text(path), "messages_published_total", "") > 0, "the file is not written anew");
  require_status(0, "promtool check metrics <outboxd-a.prom");
  relay_stop(relay);

  /* The last line and the last file are of the same moment. */
  const json_t *lines = relay_lines(relay);
  const json_t *last = NULL;
  double failed = 0;
  double dead = 0;
  for (size_t i = 0; i < json_array_size(lines); i++) {
    const json_t *line = json_array_get(lines, i);
    if (strcmp(json_string_value(json_object_get(line, "event")), "stats") == 0) {
      last = line;
      failed += field_of(line, "failed");
      dead += field_of(line, "dead");
    }
  }
  REQUIRE(last != NULL, "no stats line");
  const char *text = read_text(path);
  double published = (double)db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
  REQUIRE(published > 4000 && published < 5000, "%.0f messages are published", published);
  REQUIRE(value_of(text, "messages_published_total", "") == published && field_of(last, "published_total") == published,
          "published: %.0f in the table, %.0f in the file, %.0f in the log", published,
          value_of(text, "messages_published_total", ""), field_of(last, "published_total"));
  REQUIRE(value_of(text, "messages_claimed_total", "") == field_of(last, "claimed_total"), "claimed differs");
  REQUIRE(failed > 0 && value_of(text, "messages_failed_total", "") == failed &&
              value_of(text, "messages_dead_total", "") == dead,
          "failed: %.0f in the log, %.0f in the file", failed, value_of(text, "messages_failed_total", ""));
  REQUIRE(value_of(text, "lag_seconds_count", "") == published, "the lag was measured of %.0f of %.0f messages",
          value_of(text, "lag_seconds_count", ""), published);
  REQUIRE(value_of(text, "lag_seconds_bucket", ",le=\"+Inf\"") == published &&
              value_of(text, "lag_seconds_bucket", ",le=\"60\"") == published &&
              value_of(text, "lag_seconds_sum", "") > 0,
          "the lag's buckets");
  REQUIRE(value_of(text, "messages_in_flight", "") == 0 && value_of(text, "queue_depth", ",publisher=\"1\"") == 0,
          "something is in flight at the end");
  REQUIRE(value_of(text, "redis_connected", ",publisher=\"0\"") == 1, "no connection");
  require_status(0, "promtool check metrics <outboxd-a.prom");
  require_status(0, "! ls | grep -F .tmp");
  redisFree(redis);
  PQfinish(conn);
}

/* The gauges of the table: as the alert thread saw it, by the database's clock, and as old as they say once it sees nothing any more. */
static void test_file_tells_what_waits_in_the_table(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  char path[PATH_BYTES];
  (void)state;
  path_of("outboxd-a.prom", path);
  (void)remove(path);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay =
      relay_start(stack, ARGS("run", "--metrics-file", path, "--stats-every", "100ms", "--stale-check-every", "200ms",
                              "--session-timeout", "2s", "--no-cleanup"));
  WAIT_FOR(DRAIN_MS, value_of(read_text(path), "table_pending_messages", "") == 0, "no gauge of an empty table");
  const char *text = read_text(path);
  REQUIRE(value_of(text, "table_oldest_pending_seconds", "") == 0 && value_of(text, "table_dead_messages", "") == 0,
          "an empty table has something in it");
  stack_redis_freeze(stack);
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, attempts, "
                "created_at) SELECT gen_random_uuid(), 'a', i::text, 'e', '{}', CASE WHEN i <= 2 THEN 10 ELSE 0 END, "
                "now() - interval '1 hour' FROM generate_series(1, 7) i");
  /* Two questions of one look: what is inserted between them is seen by the second only. */
  WAIT_FOR(DRAIN_MS,
           value_of(read_text(path), "table_pending_messages", "") == 7 &&
               value_of(read_text(path), "table_oldest_pending_seconds", "") > 0,
           "pending messages are not told");
  text = read_text(path);
  double age = value_of(text, "table_oldest_pending_seconds", "");
  REQUIRE(age >= 3600 && age < 3700, "an age of %f s", age);
  REQUIRE(value_of(text, "table_dead_messages", "") == 2, "%f dead ones", value_of(text, "table_dead_messages", ""));
  require_status(0, "promtool check metrics <outboxd-a.prom");
  /* Without a database the time of the look stands still, while the file is written on. */
  stack_pg_freeze(stack);
  WAIT_FOR(DRAIN_MS, (double)clock_wall_us() / 1e6 - value_of(read_text(path), "table_seen_timestamp_seconds", "") > 3,
           "the look's time goes on");
  int stats_n = relay_count(relay, "stats");
  double seen = value_of(read_text(path), "table_seen_timestamp_seconds", "");
  WAIT_FOR(DRAIN_MS, relay_count(relay, "stats") >= stats_n + 5, "no more stats lines");
  text = read_text(path);
  REQUIRE(value_of(text, "table_seen_timestamp_seconds", "") == seen &&
              value_of(text, "table_pending_messages", "") == 7,
          "something else is told than what was seen last");
  stack_pg_thaw(stack);
  stack_redis_thaw(stack);
  WAIT_FOR(DRAIN_MS, value_of(read_text(path), "table_pending_messages", "") == 2, "only the dead ones are left");
  relay_stop(relay);
  PQfinish(conn);
}

static void test_file_that_cannot_be_written_ends_the_start(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  char path[PATH_BYTES];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay =
      relay_start(stack, ARGS("run", "--metrics-file", path_of("no/such.prom", path), "--no-cleanup"));
  REQUIRE(relay_wait(relay, DRAIN_MS) == 1, "the status is not 1");
  const json_t *line = relay_wait_log(relay, "relay_failed", NULL, NULL, 1000);
  const char *message = json_string_value(json_object_get(line, "message"));
  REQUIRE(strstr(message, "--metrics-file") != NULL && strstr(message, path) != NULL &&
              strstr(message, "No such file or directory") != NULL,
          "the message does not say what is wrong: %s", message);
  PQfinish(conn);
}

static void test_file_that_cannot_be_written_later_is_a_warning(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  char path[PATH_BYTES];
  char dir[PATH_BYTES];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  REQUIRE(mkdir(path_of("metrics", dir), 0755) == 0, "mkdir");
  struct relay *relay = relay_start(stack, ARGS("run", "--metrics-file", path_of("metrics/outboxd-a.prom", path),
                                                "--stats-every", "100ms", "--no-cleanup"));
  relay_wait_log(relay, "stats", NULL, NULL, DRAIN_MS);
  require_status(0, "rm -r metrics");
  const json_t *line = relay_wait_log(relay, "metrics_file_failed", NULL, NULL, DRAIN_MS);
  REQUIRE(strcmp(json_string_value(json_object_get(line, "path")), path) == 0, "another path");
  int stats_n = relay_count(relay, "stats");
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  WAIT_FOR(DRAIN_MS, relay_count(relay, "stats") >= stats_n + 5, "no more stats lines");
  REQUIRE(relay_count(relay, "metrics_file_failed") == 1, "the warning comes again and again");
  REQUIRE(mkdir(dir, 0755) == 0, "mkdir");
  WAIT_FOR(DRAIN_MS, value_of(read_text(path), "messages_published_total", "") == 100, "it is not written again");
  relay_stop(relay);
  PQfinish(conn);
}

/* test_metrics_rules.yml has figures over time in promtool's notation, and what should come of them. */
static void test_rules_of_the_page_fire_when_they_should(void **state) {
  char command[1000];
  (void)state;
  char *root = realpath(".", NULL);
  REQUIRE(root != NULL, "realpath: %s", strerror(errno));
  (void)snprintf(
      command, sizeof command,
      "awk '/^```$/ { is_in = 0 } is_in { print } /^```yaml$/ { getline; is_in = $2 == \"outboxd-prometheus.yml\" }' "
      "'%s/docs/alerting.md' >outboxd-prometheus.yml && cp '%s/tests/integration/test_metrics_rules.yml' .",
      root, root);
  free(root);
  require_status(0, command);
  require_status(0, "promtool check rules outboxd-prometheus.yml | grep -q '13 rules found'");
  require_status(0, "promtool test rules test_metrics_rules.yml");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_file_says_what_the_log_says),
      HARNESS_TEST(test_file_tells_what_waits_in_the_table),
      HARNESS_TEST(test_file_that_cannot_be_written_ends_the_start),
      HARNESS_TEST(test_file_that_cannot_be_written_later_is_a_warning),
      HARNESS_TEST(test_rules_of_the_page_fire_when_they_should),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
