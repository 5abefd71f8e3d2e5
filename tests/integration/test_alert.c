/*
 * Each alert comes when it should, goes when it should, and not otherwise.
 *
 * Most tests run the alert thread alone, in a program of its own (this one, called again): its limits are then seconds instead of minutes, and
 * no relay moves what the test has set up.  It is started and read like a relay.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "db.h"
#include "embed.h"
#include "harness.h"
#include "outboxd/alert.h"
#include "outboxd/log.h"
#include "outboxd/options.h"
#include "outboxd/pg.h"
#include "outboxd/sql.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define LANES_N 16
#define LOG_MS 20000
#define QUICK "--stale-check-every", "200ms"

static struct stack *stack;

/* Settings of Redis outlive a FLUSHALL. */
static int setup(void **state) {
  int rc = harness_setup(state);
  redisContext *redis = rds_open(stack->redis_url);
  rds_run(redis, "CONFIG SET maxmemory 0");
  rds_run(redis, "CONFIG SET maxmemory-policy noeviction");
  rds_run(redis, "ACL DELUSER relay");
  redisFree(redis);
  return rc;
}

#define ALERT_TEST(function) cmocka_unit_test_setup_teardown(function, setup, harness_teardown)

/* -------------------------------------------------------------------------------------------------- the alert thread alone */

static int watch_until_signal(const struct cfg *cfg, struct stop *stop, const sigset_t *signals, struct err *err) {
  static const struct alert_limits limits = {.unreachable_us = 2000000, .lane_us = 1000000, .transaction_us = 2000000};
  struct url url = {0};
  struct pg *pg = NULL;
  struct table *table = NULL;
  struct alert *alert = NULL;
  int number;
  int rc = -1;

  if (url_parse(cfg->redis, &url, err) != 0 || pg_new(cfg->database, "start", 10000, &pg, err) != 0 ||
      pg_connect(pg, NULL, err) != 0 || table_load(pg, cfg, NULL, &table, err) != 0) {
    goto out;
  }
  pg_close(pg);
  if (alert_start_limited(cfg, &url, table, stop, &limits, &alert, err) != 0) {
    goto out;
  }
  log_event(LOG_INFO, "watch_started", "the alert thread runs", LOG_INT("pid", getpid()));
  while (sigwait(signals, &number) != 0) {
  }
  stop_set(stop);
  rc = 0;
out:
  alert_stop(alert);
  table_free(table);
  pg_free(pg);
  url_fini(&url);
  return rc;
}

/* What this program does when it is called with a relay's arguments. */
static int watch_main(int argc, char *argv[]) {
  struct cfg cfg;
  struct err err = ERR_INIT;
  struct stop *stop = NULL;
  sigset_t signals;
  int rc;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  (void)sigprocmask(SIG_BLOCK, &signals, NULL);
  if (options_parse(argc, argv, &cfg, &err) != 0 || stop_new(&stop, &err) != 0) {
    fprintf(stderr, "%s\n", err.text);
    return 2;
  }
  log_setup(cfg.log_level, cfg.log_format);
  rc = watch_until_signal(&cfg, stop, &signals, &err);
  if (rc != 0) {
    log_event(LOG_CRITICAL, "watch_failed", err.text, LOG_STR("code", err.code));
  }
  stop_free(stop);
  options_free(&cfg);
  return rc == 0 ? 0 : 1;
}

static struct relay *start_watch(const char *const *args) {
  const char *relay = getenv("OUTBOXD_BIN");
  char *kept = relay != NULL ? strdup(relay) : NULL;
  (void)setenv("OUTBOXD_BIN", "/proc/self/exe", 1);
  struct relay *watch = relay_start(stack, args);
  if (kept != NULL) {
    (void)setenv("OUTBOXD_BIN", kept, 1);
  } else {
    (void)unsetenv("OUTBOXD_BIN");
  }
  free(kept);
  (void)relay_wait_log(watch, "watch_started", NULL, NULL, LOG_MS);
  return watch;
}

/* -------------------------------------------------------------------------------------------------- lines */

static double number(const json_t *line, const char *field) {
  const json_t *value = json_object_get(line, field);
  REQUIRE(json_is_number(value), "%s has no number %s", json_string_value(json_object_get(line, "event")), field);
  return json_number_value(value);
}

static const char *text(const json_t *line, const char *field) {
  const char *value = json_string_value(json_object_get(line, field));
  REQUIRE(value != NULL, "%s has no text %s", json_string_value(json_object_get(line, "event")), field);
  return value;
}

static bool flag(const json_t *line, const char *field) {
  const json_t *value = json_object_get(line, field);
  REQUIRE(json_is_boolean(value), "%s has no flag %s", json_string_value(json_object_get(line, "event")), field);
  return json_is_true(value);
}

static const json_t *wait_line(struct relay *watch, const char *event, const char *level) {
  const json_t *line = relay_wait_log(watch, event, NULL, NULL, LOG_MS);
  REQUIRE(strcmp(text(line, "level"), level) == 0, "%s is logged as %s", event, text(line, "level"));
  return line;
}

/* The line that says it is over; the alert is then not said again. */
static void wait_cleared(struct relay *watch, const char *event) {
  char cleared[64];
  snprintf(cleared, sizeof cleared, "%s_cleared", event);
  const json_t *line = wait_line(watch, cleared, "info");
  REQUIRE(number(line, "duration_seconds") >= 0, "a negative duration");
  int said_n = relay_count(watch, event);
  wait_out(700);
  REQUIRE(relay_count(watch, event) == said_n, "%s is said again after it was cleared", event);
  REQUIRE(relay_count(watch, cleared) == 1, "%s is said %d times", cleared, relay_count(watch, cleared));
}

static void require_lines(struct relay *watch, int n) {
  REQUIRE((int)json_array_size(relay_lines(watch)) == n, "%d lines instead of %d",
          (int)json_array_size(relay_lines(watch)), n);
}

static bool is_part(const json_t *line, const void *part) {
  return strcmp(text(line, "part"), part) == 0;
}

static const json_t *wait_part(struct relay *watch, const char *event, const char *part) {
  return relay_wait_log(watch, event, is_part, part, LOG_MS);
}

/* -------------------------------------------------------------------------------------------------- what is watched */

static void lock_lane(PGconn *conn, int lane) {
  db_exec(conn, "SELECT pg_advisory_lock('" TABLE "'::regclass::oid::int, x'10000'::int + %d)", lane);
}

static void unlock_lane(PGconn *conn, int lane) {
  db_exec(conn, "SELECT pg_advisory_unlock('" TABLE "'::regclass::oid::int, x'10000'::int + %d)", lane);
}

/* A session that owns all lanes, as a relay would. */
static PGconn *own_lanes(void) {
  PGconn *owner = db_open(stack->conninfo);
  for (int lane = 0; lane < LANES_N; lane++) {
    lock_lane(owner, lane);
  }
  return owner;
}

static void insert(PGconn *conn, const char *aggregate_id, int attempts, const char *created_at) {
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, attempts, created_at) "
          "VALUES (gen_random_uuid(), 'order', '%s', 'order.paid', '{}', %d, %s)",
          aggregate_id, attempts, created_at);
}

static void publish_all(PGconn *conn) {
  db_exec(conn, "UPDATE " TABLE " SET published_at = now() WHERE published_at IS NULL");
}

/* -------------------------------------------------------------------------------------------------- messages */

static void test_nothing_is_said_when_all_is_well(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  PGconn *owner = own_lanes();
  table_fill(conn, TABLE_INIT, TABLE, 1000, 100, 20);
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  wait_out(3500); /* longer than any limit */
  require_lines(watch, 1);
  relay_stop(watch);
  require_lines(watch, 1);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_stale_at_each_check_until_published(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  int lane = (int)db_int(conn, "SELECT ((hashtextextended('k\xc3\xb6nig', 0) %% 16) + 16) %% 16");
  unlock_lane(owner, lane);
  insert(conn, "young", 0, "now()");
  insert(conn, "k\xc3\xb6nig", 3, "now() - interval '1 hour'");
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--alert-repeat", "1h"));
  const json_t *line = wait_line(watch, "outbox_stale", "critical");
  double age = number(line, "oldest_pending_seconds");
  REQUIRE(age >= 3600 && age < 3660, "an age of %f s", age);
  REQUIRE(number(line, "id") == 2 && strcmp(text(line, "aggregate_id"), "k\xc3\xb6nig") == 0 &&
              strcmp(text(line, "aggregate_type"), "order") == 0 && strcmp(text(line, "event_type"), "order.paid") == 0,
          "not the oldest message");
  REQUIRE(number(line, "lane") == lane && !flag(line, "lane_has_owner"), "lane %d without an owner is told wrongly",
          lane);
  REQUIRE(number(line, "pending_messages") == 2 && number(line, "dead_messages") == 0 && !flag(line, "is_at_least"),
          "counted wrongly");
  REQUIRE(!flag(line, "is_dead") && number(line, "attempts") == 3, "attempts are told wrongly");
  lock_lane(owner, lane);
  /* At each check, neither more nor less. */
  WAIT_FOR(LOG_MS, relay_count(watch, "outbox_stale") >= 3, "it is not said at each check");
  int before_n = relay_count(watch, "outbox_stale");
  wait_out(2000);
  int said_n = relay_count(watch, "outbox_stale") - before_n;
  REQUIRE(said_n >= 3 && said_n <= wait_scaled_ms(2000) / 200 + 1, "said %d times in 2 s", said_n);
  const json_t *last = NULL;
  for (int i = 1; i < before_n + said_n; i++) {
    last = wait_line(watch, "outbox_stale", "critical");
  }
  REQUIRE(last != NULL && flag(last, "lane_has_owner"), "the lane has an owner by now");
  publish_all(conn);
  wait_cleared(watch, "outbox_stale");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_dead_messages(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  insert(conn, "a", 4, "now()");
  struct relay *watch =
      start_watch(ARGS("run", QUICK, "--stale-after", "2s", "--max-attempts", "5", "--alert-repeat", "1s"));
  wait_out(600);
  REQUIRE(relay_count(watch, "dead_messages") == 0, "a message that may still be tried is called dead");
  publish_all(conn);
  insert(conn, "b", 5, "now()");
  insert(conn, "c", 0, "now() + interval '1 minute'");
  const json_t *line = wait_line(watch, "dead_messages", "error");
  REQUIRE(number(line, "dead_messages") == 1 && number(line, "first_dead_id") == 2, "told wrongly");
  WAIT_FOR(LOG_MS, relay_count(watch, "dead_messages") >= 2, "it is not repeated");
  line = wait_line(watch, "outbox_stale", "critical");
  REQUIRE(flag(line, "is_dead") && number(line, "dead_messages") == 1 && number(line, "pending_messages") == 2 &&
              number(line, "oldest_waiting_seconds") < 0,
          "a dead message is not told apart");
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0 WHERE attempts = 5");
  wait_cleared(watch, "dead_messages");
  publish_all(conn);
  wait_cleared(watch, "outbox_stale");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_times_that_mean_nothing(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_LOOSE, TABLE);
  PGconn *owner = own_lanes();
  db_exec(conn,
          "INSERT INTO " TABLE " (created_at) VALUES (NULL), ('infinity'), ('-infinity'), (now() AT TIME ZONE 'UTC' - "
          "interval '1 hour')");
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  const json_t *line = wait_line(watch, "outbox_stale", "critical");
  double age = number(line, "oldest_pending_seconds");
  REQUIRE(number(line, "id") == 4 && age >= 3600 && age < 3660, "message %g is the oldest with %g s",
          number(line, "id"), age);
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- servers */

static void test_postgres_does_not_answer(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "3s"));
  wait_out(600);
  stack_pg_freeze(stack);
  const json_t *line = wait_line(watch, "postgres_unreachable", "critical");
  REQUIRE(number(line, "down_seconds") >= 2, "said too early");
  line = wait_line(watch, "outbox_probe_failed", "critical");
  REQUIRE(number(line, "unknown_for_seconds") > 3 && strlen(text(line, "error")) > 0, "told wrongly");
  WAIT_FOR(LOG_MS, relay_count(watch, "outbox_probe_failed") >= 3, "it is not said at each check");
  stack_pg_thaw(stack);
  wait_cleared(watch, "outbox_probe_failed");
  wait_cleared(watch, "postgres_unreachable");
  REQUIRE(relay_count(watch, "lane_without_owner") == 0 && relay_count(watch, "alert_part_off") == 0,
          "something else is said");
  /* The thread ends at once though its question is not answered. */
  stack_pg_freeze(stack);
  wait_out(300);
  relay_signal(watch, SIGTERM);
  REQUIRE(relay_wait(watch, 2000) == 0, "no clean end");
  stack_pg_thaw(stack);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_postgres_is_killed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  insert(conn, "a", 0, "now() - interval '1 hour'");
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "3s"));
  (void)wait_line(watch, "outbox_stale", "critical");
  stack_pg_kill(stack);
  PQfinish(conn);
  (void)wait_line(watch, "postgres_unreachable", "critical");
  (void)wait_line(watch, "outbox_probe_failed", "critical");
  REQUIRE(relay_count(watch, "outbox_stale_cleared") == 0, "that nothing can be seen is taken for good news");
  stack_pg_restart(stack);
  wait_cleared(watch, "outbox_probe_failed");
  wait_cleared(watch, "postgres_unreachable");
  int said_n = relay_count(watch, "outbox_stale");
  WAIT_FOR(LOG_MS, relay_count(watch, "outbox_stale") > said_n, "the old message is forgotten");
  relay_stop(watch);
}

static void test_probe_is_refused(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "2s"));
  db_exec(conn, "ALTER TABLE " TABLE " RENAME TO elsewhere");
  const json_t *line = wait_part(watch, "alert_part_off", "oldest");
  REQUIRE(strcmp(text(line, "level"), "warning") == 0, "a wrong level");
  line = wait_line(watch, "outbox_probe_failed", "critical");
  REQUIRE(strstr(text(line, "error"), "does not exist") != NULL, "the reason is not told");
  db_exec(conn, "ALTER TABLE elsewhere RENAME TO " TABLE);
  wait_cleared(watch, "outbox_probe_failed");
  (void)wait_part(watch, "alert_part_off_cleared", "oldest");
  REQUIRE(relay_count(watch, "postgres_unreachable") == 0, "a server that refuses is not away");
  relay_stop(watch);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_redis_does_not_answer(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m", "--alert-repeat", "1h"));
  wait_out(600);
  stack_redis_freeze(stack);
  const json_t *line = wait_line(watch, "redis_unreachable", "critical");
  REQUIRE(number(line, "down_seconds") >= 2, "said too early");
  stack_redis_thaw(stack);
  wait_cleared(watch, "redis_unreachable");
  REQUIRE(relay_count(watch, "redis_unreachable") == 1, "said more than once");
  stack_redis_kill(stack);
  (void)wait_line(watch, "redis_unreachable", "critical");
  stack_redis_restart(stack);
  WAIT_FOR(LOG_MS, relay_count(watch, "redis_unreachable_cleared") == 2, "that it is back is not said");
  stack_redis_freeze(stack);
  wait_out(300);
  relay_signal(watch, SIGTERM);
  REQUIRE(relay_wait(watch, 2000) == 0, "no clean end");
  stack_redis_thaw(stack);
  PQfinish(owner);
  PQfinish(conn);
}

static void test_redis_memory(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  rds_run(redis, "CONFIG SET maxmemory-policy allkeys-lru");
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  wait_out(600);
  require_lines(watch, 1); /* without a limit nothing is evicted */
  rds_run(redis, "CONFIG SET maxmemory 1gb");
  const json_t *line = wait_line(watch, "redis_may_evict", "error");
  REQUIRE(strcmp(text(line, "maxmemory_policy"), "allkeys-lru") == 0 && number(line, "maxmemory_bytes") == 1 << 30,
          "told wrongly");
  rds_run(redis, "CONFIG SET maxmemory-policy volatile-lru");
  wait_cleared(watch, "redis_may_evict");
  REQUIRE(relay_count(watch, "redis_memory_high") == 0, "there is memory left");
  rds_run(redis, "CONFIG SET maxmemory 1mb"); /* less than Redis takes when it is empty */
  line = wait_line(watch, "redis_memory_high", "error");
  REQUIRE(number(line, "used_percent") > 90, "told wrongly");
  rds_run(redis, "CONFIG SET maxmemory 1gb");
  wait_cleared(watch, "redis_memory_high");
  relay_stop(watch);
  redisFree(redis);
  PQfinish(owner);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- the database */

static void test_lane_without_owner(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PGconn *owner = own_lanes();
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  wait_out(400);
  unlock_lane(owner, 3);
  unlock_lane(owner, 9);
  const json_t *line = wait_line(watch, "lane_without_owner", "error");
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

/* Runs EXPLAIN ANALYZE as the alert's session would; the execution time in milliseconds, the best of five. */
static double explain(PGconn *conn, const char *sql, const char *args, bool is_printed) {
  double best = 1e9;
  char *expanded = NULL;
  struct err err = ERR_INIT;
  const struct sql_var vars[] = {{"table", TABLE}, {NULL, NULL}};
  REQUIRE(sql_expand(sql, vars, &expanded, &err) == 0, "%s", err.text);
  db_exec(conn, "DEALLOCATE ALL");
  db_exec(conn, "PREPARE look AS %s", expanded);
  for (int i = 0; i < 5; i++) {
    PGresult *plan = db_rows(conn, "EXPLAIN (ANALYZE, COSTS OFF) EXECUTE look(%s)", args);
    for (int row = 0; row < PQntuples(plan); row++) {
      const char *line = PQgetvalue(plan, row, 0);
      const char *time = strstr(line, "Execution Time: ");
      if (is_printed && i == 0 && (row < 8 || time != NULL)) {
        printf("  %s\n", line);
      }
      REQUIRE(strstr(line, "Seq Scan") == NULL && strstr(line, "Bitmap") == NULL, "the pending index is not used: %s",
              line);
      if (time != NULL && strtod(time + strlen("Execution Time: "), NULL) < best) {
        best = strtod(time + strlen("Execution Time: "), NULL);
      }
    }
    PQclear(plan);
  }
  free(expanded);
  return best;
}

static void test_a_look_is_cheap(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *session = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_50, TABLE);
  PGconn *owner = own_lanes();
  table_fill(conn, TABLE_50, TABLE, 1000000, 1000, 20);
  publish_all(conn);
  table_fill(conn, TABLE_50, TABLE, 100000, 1000, 20);
  db_exec(session, "%s", embed_session_plan_sql);
  double oldest_ms = explain(session, embed_alert_oldest_sql, "10, 16", true);
  double counts_ms = explain(session, embed_alert_counts_sql, "10", true);
  printf("oldest message in %.1f ms, counts in %.1f ms\n", oldest_ms, counts_ms);
  REQUIRE(oldest_ms < (double)wait_scaled_ms(50), "the age of the oldest message takes %f ms", oldest_ms);
  REQUIRE(counts_ms < (double)wait_scaled_ms(500), "counting takes %f ms", counts_ms);
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
  PQfinish(session);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- in a relay */

static void test_relay_tells_of_stale_messages(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", QUICK, "--stale-after", "2s", "--alert-repeat", "2s"));
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  wait_no_pending(conn, TABLE, 10, LOG_MS);
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  const json_t *line = wait_line(relay, "outbox_stale", "critical");
  REQUIRE(number(line, "oldest_pending_seconds") > 2 && flag(line, "lane_has_owner"), "told wrongly");
  stack_redis_thaw(stack);
  wait_cleared(relay, "outbox_stale");
  relay_stop(relay);
  PQfinish(conn);
}

static void test_relay_tells_of_dead_messages(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET outbox:{5} poison");
  table_fill(conn, TABLE_PLAIN, TABLE, 200, 100, 20);
  struct relay *relay =
      relay_start(stack, ARGS("run", QUICK, "--stale-after", "1m", "--max-attempts", "1", "--alert-repeat", "1h"));
  const json_t *line = wait_line(relay, "dead_messages", "error");
  REQUIRE(number(line, "dead_messages") > 0, "told wrongly");
  rds_run(redis, "DEL outbox:{5}");
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0 WHERE published_at IS NULL");
  wait_cleared(relay, "dead_messages");
  REQUIRE(relay_count(relay, "lane_without_owner") == 0 && relay_count(relay, "outbox_stale") == 0,
          "something else is said");
  relay_stop(relay);
  redisFree(redis);
  PQfinish(conn);
}

int main(int argc, char *argv[]) {
  const struct CMUnitTest tests[] = {
      ALERT_TEST(test_nothing_is_said_when_all_is_well),
      ALERT_TEST(test_stale_at_each_check_until_published),
      ALERT_TEST(test_dead_messages),
      ALERT_TEST(test_times_that_mean_nothing),
      ALERT_TEST(test_postgres_does_not_answer),
      ALERT_TEST(test_postgres_is_killed),
      ALERT_TEST(test_probe_is_refused),
      ALERT_TEST(test_redis_does_not_answer),
      ALERT_TEST(test_redis_memory),
      ALERT_TEST(test_lane_without_owner),
      ALERT_TEST(test_partitions_run_out),
      ALERT_TEST(test_default_partition),
      ALERT_TEST(test_old_transaction),
      ALERT_TEST(test_missing_privileges_turn_parts_off),
      ALERT_TEST(test_info_is_forbidden),
      ALERT_TEST(test_a_look_is_cheap),
      ALERT_TEST(test_relay_tells_of_stale_messages),
      ALERT_TEST(test_relay_tells_of_dead_messages),
  };
  static const char *const settings[] = {"max_prepared_transactions=5", NULL};
  if (argc > 1) {
    return watch_main(argc, argv);
  }
  return HARNESS_RUN(tests, &stack, &(struct stack_options){.pg_settings = settings});
}
