/*
 * outboxd status: what it tells of a table, a fleet and streams; when a server is away; as a probe; again and again.
 */
#include <string.h>

#include "db.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define COMMAND_MS 60000

static struct stack *stack;

static int run(const char *const *args, char **out) {
  return relay_run_command(stack, args, COMMAND_MS, out);
}

#define SAYS(status, says, ...) relay_require_says(stack, (status), (says), ARGS(__VA_ARGS__), COMMAND_MS)

static json_t *status_json(int wanted, const char *const *args) {
  char *out = NULL;
  int status = run(args, &out);
  json_t *root = json_loads(out, 0, NULL);
  REQUIRE(status == wanted && root != NULL, "exit status %d; it said: %s", status, out);
  free(out);
  return root;
}

static int64_t int_of(const json_t *root, const char *name) {
  const json_t *value = json_object_get(root, name);
  REQUIRE(json_is_integer(value), "%s is no number", name);
  return json_integer_value(value);
}

static void require_80_columns(const char *text) {
  for (const char *line = text; *line != '\0';) {
    size_t n = strcspn(line, "\n");
    REQUIRE(n <= 80, "%zu columns: %.*s", n, (int)n, line);
    line += n + (line[n] == '\n');
  }
}

static void test_tells_of_all_of_it(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char *out = NULL;
  table_create(stack, conn, TABLE_INIT, TABLE);
  table_fill(conn, TABLE_INIT, TABLE, 640, 64, 20);
  struct relay *relay = relay_start(stack, ARGS("run"));
  wait_no_pending(conn, TABLE, 10, COMMAND_MS);
  rds_run(redis, "XGROUP CREATE outbox:{3} billing 0");
  json_t *root = status_json(0, ARGS("status", "--json"));
  assert_int_equal(int_of(root, "pending"), 0);
  assert_int_equal(int_of(root, "lanes_recorded"), 16);
  assert_int_equal(json_array_size(json_object_get(root, "partitions")), 16);
  REQUIRE(int_of(root, "published_last_minute") <= 640, "more than there are");
  int64_t length_n = 0;
  for (size_t i = 0; i < 16; i++) {
    const json_t *lane = json_array_get(json_object_get(root, "lanes"), i);
    length_n += json_integer_value(json_object_get(lane, "stream_length"));
    const char *name = json_string_value(json_object_get(json_object_get(lane, "owner"), "application_name"));
    REQUIRE(name != NULL && strstr(name, "outboxd") != NULL, "lane %zu has no owner", i);
  }
  assert_int_equal(length_n, 640);
  const json_t *group = json_array_get(json_object_get(root, "groups"), 0);
  assert_string_equal(json_string_value(json_object_get(group, "name")), "billing");
  json_decref(root);
  relay_stop(relay);

  /* A dead message, and nobody to relay. */
  table_fill(conn, TABLE_INIT, TABLE, 10, 10, 20);
  db_exec(conn,
          "UPDATE " TABLE " SET attempts = 10 WHERE id = (SELECT min(id) FROM " TABLE " WHERE published_at IS NULL)");
  assert_int_equal(run(ARGS("status"), &out), 0);
  require_80_columns(out);
  REQUIRE(strstr(out, "pending    10\n") != NULL && strstr(out, "dead       1, the oldest") != NULL &&
              strstr(out, "no relay runs") != NULL && strstr(out, "billing") != NULL,
          "it said: %s", out);
  free(out);
  SAYS(0, "the fleet runs with --lanes 16, this command with 8", "status", "--lanes", "8");
  SAYS(0, "published  not known", "status", "--stream", "outbox:{%l}:%i");
  SAYS(1, "there is no table nowhere", "status", "--table", "nowhere");
  rds_run(redis, "DEL outbox:{5}");
  rds_run(redis, "SET outbox:{5} x");
  SAYS(0, "a string!", "status");
  redisFree(redis);
  PQfinish(conn);
}

static void test_one_server_away(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 30, 10, 20);
  stack_redis_kill(stack);
  SAYS(1, "Redis could not be asked: cannot connect to Redis", "status");
  SAYS(1, "pending    30\n", "status");
  SAYS(0, "ok: the oldest message has waited for", "status", "--max-age", "1h");
  stack_redis_restart(stack);
  PQfinish(conn);
  stack_pg_kill(stack);
  SAYS(1, "PostgreSQL could not be asked: cannot connect to PostgreSQL", "status");
  SAYS(1, "none yet", "status");
  SAYS(1, "not known: cannot connect", "status", "--max-age", "1h");
  stack_pg_restart(stack);
}

static void test_max_age(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  SAYS(0, "ok: nothing waits\n", "status", "--max-age", "5m");
  table_fill(conn, TABLE_PLAIN, TABLE, 3, 3, 20);
  db_exec(conn, "UPDATE " TABLE
                " SET created_at = now() - interval '7 minutes', attempts = CASE id WHEN 1 THEN 10 ELSE 0 END "
                "WHERE id < 3");
  SAYS(1, "too old: message 2 has waited for 7 m ", "status", "--max-age", "5m");
  json_t *root = status_json(1, ARGS("status", "--max-age", "5m", "--json"));
  assert_true(json_is_true(json_object_get(root, "is_too_old")));
  json_decref(root);
  /* A dead one waits for an operator, not for the relay. */
  db_exec(conn, "UPDATE " TABLE " SET attempts = 10 WHERE id = 2");
  SAYS(0, "ok: the oldest", "status", "--max-age", "5m");
  PQfinish(conn);
}

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *p = strstr(text, part); p != NULL; p = strstr(p + 1, part)) {
    n++;
  }
  return n;
}

static bool has_said(struct relay *watch, const char *part, int n) {
  char *out = relay_stdout(watch);
  bool has = count_of(out, part) >= n;
  free(out);
  return has;
}

static void test_watch_ends_cleanly(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  char database[STACK_URL_BYTES + 16];
  char redis[STACK_URL_BYTES + 16];
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  snprintf(database, sizeof database, "DATABASE_URL=%s", stack->conninfo);
  snprintf(redis, sizeof redis, "REDIS_URL=%s", stack->redis_url);
  const char *const env[] = {database, redis, NULL};
  struct relay *watch = relay_start_plain(stack, env, ARGS("status", "--watch", "50ms"));
  WAIT_FOR(COMMAND_MS, has_said(watch, "pending    0\n", 2), "it does not look twice");
  table_fill(conn, TABLE_PLAIN, TABLE, 4, 4, 20);
  WAIT_FOR(COMMAND_MS, has_said(watch, "pending    4\n", 1), "it does not look at the table as it is");
  relay_signal(watch, SIGINT);
  assert_int_equal(relay_wait(watch, COMMAND_MS), 0);
  char *out = relay_stdout(watch);
  REQUIRE(strchr(out, '\033') == NULL, "it redraws what is no terminal");
  free(out);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_tells_of_all_of_it),
      HARNESS_TEST(test_one_server_away),
      HARNESS_TEST(test_max_age),
      HARNESS_TEST(test_watch_ends_cleanly),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
