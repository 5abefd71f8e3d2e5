/*
 * Alerts about messages and about the servers come when they should, go when they should, and not otherwise.
 */
#include "test_alert.h"

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- messages */

static void test_nothing_is_said_when_all_is_well(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  PGconn *owner = own_lanes();
  table_fill(conn, TABLE_INIT, TABLE, 1000, 100, 20);
  struct relay *watch = start_watch(ARGS("run", QUICK, "--stale-after", "1m"));
  wait_out(4500); /* longer than any limit */
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
  insert(conn, "a", 4, "now() + interval '1 minute'");
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

/* Before the relay has read its table there is no alert thread yet. */
static void test_postgres_away_from_the_start(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PQfinish(conn);
  stack_pg_shutdown(stack);
  struct relay *relay = relay_start(stack, ARGS("run", QUICK, "--alert-repeat", "2s"));
  const json_t *line = relay_wait_log(relay, "postgres_unreachable", NULL, NULL, 60000); /* after 30 s */
  REQUIRE(strcmp(text(line, "level"), "critical") == 0 && number(line, "down_seconds") >= 30 &&
              number(line, "down_seconds") < 60 && strlen(text(line, "error")) > 0,
          "told wrongly");
  WAIT_FOR(LOG_MS, relay_count(relay, "postgres_unreachable") >= 2, "it is not repeated");
  stack_pg_restart(stack);
  wait_cleared(relay, "postgres_unreachable");
  (void)relay_wait_log(relay, "relay_started", NULL, NULL, LOG_MS);
  relay_stop(relay);
}

/* A relay that was told to end and cannot, because Redis hangs, still says what is wrong. */
static void test_alerts_go_on_while_draining(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", QUICK, "--stale-after", "2s", "--redis-timeout", "5m",
                                                "--shutdown-timeout", "5m", "--alert-repeat", "1h"));
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  wait_no_pending(conn, TABLE, 10, LOG_MS);
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  (void)wait_line(relay, "outbox_stale", "critical");
  relay_signal(relay, SIGTERM);
  (void)wait_line(relay, "relay_stopping", "info");
  int said_n = relay_count(relay, "outbox_stale");
  WAIT_FOR(LOG_MS, relay_count(relay, "outbox_stale") >= said_n + 5, "it is not said any more once the relay drains");
  stack_redis_thaw(stack);
  REQUIRE(relay_wait(relay, LOG_MS) == 0, "no clean end");
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
      ALERT_TEST(test_relay_tells_of_stale_messages),
      ALERT_TEST(test_relay_tells_of_dead_messages),
      ALERT_TEST(test_postgres_away_from_the_start),
      ALERT_TEST(test_alerts_go_on_while_draining),
  };
  return alert_tests_main(__FILE__, argc, argv, tests, sizeof(tests) / sizeof(tests[0]), &stack);
}
