/*
 * What the tests of the alerts share: the alert thread alone, in a program of its own (the test program, called again).  Its limits are then
 * seconds instead of minutes, and no relay moves what the test has set up.  It is started and read like a relay.
 *
 * A header only, for the two programs beside it.
 */
#ifndef TEST_ALERT_H
#define TEST_ALERT_H

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "db.h"
#include "harness.h"
#include "outboxd/alert.h"
#include "outboxd/log.h"
#include "outboxd/options.h"
#include "outboxd/pg.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define LANES_N 16
#define LOG_MS 20000
#define QUICK "--stale-check-every", "200ms"

/* Settings of Redis outlive a FLUSHALL. */
static inline int setup(void **state) {
  int rc = harness_setup(state);
  redisContext *redis = rds_open(harness_stack->redis_url);
  rds_run(redis, "CONFIG SET maxmemory 0");
  rds_run(redis, "CONFIG SET maxmemory-policy noeviction");
  rds_run(redis, "ACL DELUSER relay");
  redisFree(redis);
  return rc;
}

#define ALERT_TEST(function) cmocka_unit_test_setup_teardown(function, setup, harness_teardown)

/* -------------------------------------------------------------------------------------------------- the alert thread alone */

static inline int watch_until_signal(const struct cfg *cfg, struct stop *stop, const sigset_t *signals,
                                     struct err *err) {
  static const struct alert_limits limits = {.unreachable_us = 2000000, .lane_us = 3000000, .transaction_us = 2000000};
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
static inline int watch_main(int argc, char *argv[]) {
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

static inline struct relay *start_watch(const char *const *args) {
  const char *relay = getenv("OUTBOXD_BIN");
  char *kept = relay != NULL ? strdup(relay) : NULL;
  (void)setenv("OUTBOXD_BIN", "/proc/self/exe", 1);
  struct relay *watch = relay_start(harness_stack, args);
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

static inline double number(const json_t *line, const char *field) {
  const json_t *value = json_object_get(line, field);
  REQUIRE(json_is_number(value), "%s has no number %s", json_string_value(json_object_get(line, "event")), field);
  return json_number_value(value);
}

static inline const char *text(const json_t *line, const char *field) {
  const char *value = json_string_value(json_object_get(line, field));
  REQUIRE(value != NULL, "%s has no text %s", json_string_value(json_object_get(line, "event")), field);
  return value;
}

static inline bool flag(const json_t *line, const char *field) {
  const json_t *value = json_object_get(line, field);
  REQUIRE(json_is_boolean(value), "%s has no flag %s", json_string_value(json_object_get(line, "event")), field);
  return json_is_true(value);
}

static inline const json_t *wait_line(struct relay *watch, const char *event, const char *level) {
  const json_t *line = relay_wait_log(watch, event, NULL, NULL, LOG_MS);
  REQUIRE(strcmp(text(line, "level"), level) == 0, "%s is logged as %s", event, text(line, "level"));
  return line;
}

/* The line that says it is over; the alert is then not said again. */
static inline void wait_cleared(struct relay *watch, const char *event) {
  char cleared[64];
  snprintf(cleared, sizeof cleared, "%s_cleared", event);
  const json_t *line = wait_line(watch, cleared, "info");
  REQUIRE(number(line, "duration_seconds") >= 0, "a negative duration");
  int said_n = relay_count(watch, event);
  wait_out(700);
  REQUIRE(relay_count(watch, event) == said_n, "%s is said again after it was cleared", event);
  REQUIRE(relay_count(watch, cleared) == 1, "%s is said %d times", cleared, relay_count(watch, cleared));
}

static inline void require_lines(struct relay *watch, int n) {
  REQUIRE((int)json_array_size(relay_lines(watch)) == n, "%d lines instead of %d",
          (int)json_array_size(relay_lines(watch)), n);
}

static inline bool is_part(const json_t *line, const void *part) {
  return strcmp(text(line, "part"), part) == 0;
}

static inline const json_t *wait_part(struct relay *watch, const char *event, const char *part) {
  return relay_wait_log(watch, event, is_part, part, LOG_MS);
}

/* -------------------------------------------------------------------------------------------------- what is watched */

static inline void lock_lane(PGconn *conn, int lane) {
  db_exec(conn, "SELECT pg_advisory_lock('" TABLE "'::regclass::oid::int, x'10000'::int + %d)", lane);
}

static inline void unlock_lane(PGconn *conn, int lane) {
  db_exec(conn, "SELECT pg_advisory_unlock('" TABLE "'::regclass::oid::int, x'10000'::int + %d)", lane);
}

/* A session that owns all lanes, as a relay would. */
static inline PGconn *own_lanes(void) {
  PGconn *owner = db_open(harness_stack->conninfo);
  for (int lane = 0; lane < LANES_N; lane++) {
    lock_lane(owner, lane);
  }
  return owner;
}

static inline void insert(PGconn *conn, const char *aggregate_id, int attempts, const char *created_at) {
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, attempts, created_at) "
          "VALUES (gen_random_uuid(), 'order', '%s', 'order.paid', '{}', %d, %s)",
          aggregate_id, attempts, created_at);
}

static inline void publish_all(PGconn *conn) {
  db_exec(conn, "UPDATE " TABLE " SET published_at = now() WHERE published_at IS NULL");
}

/* What main returns: a relay's arguments call the alert thread. */
static inline int alert_tests_main(const char *name, int argc, char *argv[], const struct CMUnitTest *tests,
                                   size_t tests_n, struct stack **stack) {
  static const char *const settings[] = {"max_prepared_transactions=5", NULL};
  if (argc > 1) {
    return watch_main(argc, argv);
  }
  return harness_main(name, tests, tests_n, stack, &(struct stack_options){.pg_settings = settings});
}

#endif
