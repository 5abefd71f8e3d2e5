/*
 * What can never work ends with status 1 and a message that names the thing, a wrong command line with 2; what may come back is waited for.
 */
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define END_MS 20000
#define DRAIN_MS 60000
#define PG_PASSWORD "pg-s3cret-word"
#define REDIS_PASSWORD "redis-s3cret-word"
#define WRONG_PASSWORD "wr0ng-s3cret-word"

static struct stack *stack;

/* Runs it to its end; requires the status and that standard error names every one of the words (NULL at the end), and no password. */
static void require_end(const char *const *args, int expected, const char *const *words) {
  struct relay *relay = relay_run_plain(stack, args, END_MS);
  int status = relay_wait(relay, 0);
  char *text = relay_text(relay);

  if (status != expected) {
    FAIL("%s %s: ended with %d, not %d: %s", args[0], args[1], status, expected, text);
  }
  for (; *words != NULL; words++) {
    if (strcasestr(text, *words) == NULL) {
      FAIL("the message does not name \"%s\": %s", *words, text);
    }
  }
  if (strstr(text, "s3cret") != NULL) {
    FAIL("a password is in the log: %s", text);
  }
  free(text);
}

static void create_table(void) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PQfinish(conn);
}

static void test_unknown_table(void **state) {
  (void)state;
  require_end(ARGS("run", "--table", "no_such_outbox"), 1, ARGS("no_such_outbox"));
  require_end(ARGS("run", "--table", "no_schema.outbox"), 1, ARGS("no_schema"));
  require_end(ARGS("run", "--no-cleanup", "--table", "out-box"), 2, ARGS("out-box", "quoted"));
}

static void test_missing_columns(void **state) {
  static const char *const columns[] = {"message_id", "aggregate_type", "aggregate_id", "event_type",  "payload",
                                        "attempts",   "last_error",     "created_at",   "published_at"};
  (void)state;
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
    PGconn *conn = db_open(stack->conninfo);
    db_exec(conn, "DROP TABLE IF EXISTS " TABLE);
    table_create(stack, conn, TABLE_PLAIN, TABLE);
    db_exec(conn, "ALTER TABLE " TABLE " DROP COLUMN %s", columns[i]);
    PQfinish(conn);
    require_end(ARGS("run", "--until-empty"), 1, ARGS(columns[i], TABLE));
  }
}

static void test_wrong_column_type(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "ALTER TABLE " TABLE " ALTER payload TYPE bytea USING '\\x00'");
  PQfinish(conn);
  require_end(ARGS("run", "--until-empty"), 1, ARGS("payload", "bytea"));
}

static void test_missing_privileges(void **state) {
  char conninfo[STACK_URL_BYTES];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "DROP ROLE IF EXISTS bare");
  db_exec(conn, "CREATE ROLE bare LOGIN");
  stack_conninfo(stack, "bare", STACK_DATABASE, conninfo);
  require_end(ARGS("run", "--until-empty", "--database", conninfo), 1, ARGS("bare", TABLE));
  db_exec(conn, "GRANT SELECT ON " TABLE " TO bare");
  require_end(ARGS("run", "--until-empty", "--database", conninfo), 1, ARGS("bare", TABLE));
  db_exec(conn, "DROP OWNED BY bare; DROP ROLE bare");
  PQfinish(conn);
}

static void test_bad_templates(void **state) {
  static const char *const templates[] = {"outbox",        "outbox:%l", "outbox:{%t}", "outbox:{%l}:%x",
                                          "outbox:{%l}:%", "%t:{%l}",   "a{b}:{%l}"};
  (void)state;
  create_table();
  for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
    require_end(ARGS("run", "--until-empty", "--stream", templates[i]), 1, ARGS("template"));
  }
}

static void test_wrong_postgres_password(void **state) {
  char conninfo[2 * STACK_URL_BYTES];
  char user[STACK_URL_BYTES];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "DROP ROLE IF EXISTS guarded");
  db_exec(conn, "CREATE ROLE guarded LOGIN SUPERUSER PASSWORD '" PG_PASSWORD "'");
  stack_conninfo(stack, "guarded", STACK_DATABASE, user);
  snprintf(conninfo, sizeof conninfo, "%s password=" WRONG_PASSWORD, user);
  require_end(ARGS("run", "--until-empty", "--database", conninfo), 1, ARGS("password", "guarded"));
  require_end(ARGS("run", "--until-empty", "--database", user), 1, ARGS("password"));
  snprintf(conninfo, sizeof conninfo, "%s password=" PG_PASSWORD, user);
  require_end(ARGS("run", "--until-empty", "--database", conninfo), 0, ARGS(NULL));
  PQfinish(conn);
}

static void test_unknown_database(void **state) {
  char conninfo[STACK_URL_BYTES];
  (void)state;
  require_end(ARGS("run", "--database", stack_conninfo(stack, STACK_PG_USER, "no_such_database", conninfo)), 1,
              ARGS("no_such_database"));
}

static void test_bad_conninfo(void **state) {
  (void)state;
  require_end(ARGS("run", "--database", "hots=127.0.0.1"), 1, ARGS("--database"));
  /* libpq takes these for names of databases, and a relay would wait for them. */
  require_end(ARGS("run", "--database", "postgres:/app"), 1, ARGS("--database", "//"));
  require_end(ARGS("run", "--database", "postgresql:relay@127.0.0.1/app"), 1, ARGS("--database", "//"));
}

static void test_wrong_redis_password(void **state) {
  char url[STACK_URL_BYTES];
  (void)state;
  create_table();
  snprintf(url, sizeof url, "redis://:" WRONG_PASSWORD "@127.0.0.1:%d", stack->redis_port.number);
  require_end(ARGS("run", "--until-empty", "--redis", url), 1, ARGS("redis", "password"));
  snprintf(url, sizeof url, "redis://127.0.0.1:%d", stack->redis_port.number);
  require_end(ARGS("run", "--until-empty", "--redis", url), 1, ARGS("redis"));
}

static void test_redis_over_a_unix_socket(void **state) {
  char url[STACK_URL_BYTES];
  (void)state;
  create_table();
  snprintf(url, sizeof url, "unix://:" REDIS_PASSWORD "@%s", stack->redis_socket);
  require_end(ARGS("run", "--until-empty", "--redis", url), 0, ARGS(NULL));
}

static void test_usage_errors(void **state) {
  (void)state;
  require_end(ARGS("run", "--no-such-option"), 2, ARGS("no-such-option"));
  require_end(ARGS("run", "--lanes", "none"), 2, ARGS("lanes"));
  require_end(ARGS("run", "--lanes", "0"), 2, ARGS("lanes"));
  require_end(ARGS("run", "--poll-interval", "5 parsecs"), 2, ARGS("poll-interval"));
  require_end(ARGS("run", "--max-write-bytes", "many"), 2, ARGS("max-write-bytes"));
  require_end(ARGS("run", "--on-dead", "pray"), 2, ARGS("on-dead"));
  require_end(ARGS("run", "surplus"), 2, ARGS(NULL));
  require_end(ARGS("jump", "--table", "x"), 2, ARGS("command"));
}

/* Starts a relay while something is down, brings it back, and expects everything to be published. */
static void require_waits(bool is_pg_down, bool is_redis_down) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relay;

  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 100, 20);
  PQfinish(conn);
  if (is_pg_down) {
    stack_pg_shutdown(stack);
  }
  if (is_redis_down) {
    stack_redis_shutdown(stack);
  }
  relay = relay_start(stack, ARGS("run"));
  wait_out(2000);
  REQUIRE(relay_is_running(relay), "the relay does not wait for what is down");
  REQUIRE(json_array_size(relay_lines(relay)) < 20, "the log is flooded");
  REQUIRE(proc_cpu_ms(relay_pid(relay)) < wait_scaled_ms(500), "it is busy while it waits");
  if (is_redis_down) {
    stack_redis_restart(stack);
  }
  if (is_pg_down) {
    stack_pg_restart(stack);
  }
  conn = db_open(stack->conninfo);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_postgres_down_at_start(void **state) {
  (void)state;
  require_waits(true, false);
}

static void test_redis_down_at_start(void **state) {
  (void)state;
  require_waits(false, true);
}

static void test_both_down_at_start(void **state) {
  (void)state;
  require_waits(true, true);
}

int main(void) {
  const struct stack_options options = {
      .pg_hba = "local all all trust\nhost all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n",
      .redis_password = REDIS_PASSWORD};
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_unknown_table),        HARNESS_TEST(test_missing_columns),
      HARNESS_TEST(test_wrong_column_type),    HARNESS_TEST(test_missing_privileges),
      HARNESS_TEST(test_bad_templates),        HARNESS_TEST(test_wrong_postgres_password),
      HARNESS_TEST(test_unknown_database),     HARNESS_TEST(test_bad_conninfo),
      HARNESS_TEST(test_wrong_redis_password), HARNESS_TEST(test_redis_over_a_unix_socket),
      HARNESS_TEST(test_usage_errors),         HARNESS_TEST(test_postgres_down_at_start),
      HARNESS_TEST(test_redis_down_at_start),  HARNESS_TEST(test_both_down_at_start),
  };
  return HARNESS_RUN(tests, &stack, &options);
}
