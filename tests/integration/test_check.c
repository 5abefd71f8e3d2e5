/*
 * outboxd check: everything in order, and what it finds of the PostgreSQL server, each thing provoked and gone when it is mended.
 */
#include "test_check.h"

#include <sys/stat.h>

#include "fleet.h"

static struct stack *stack;

static void lock_lanes_must_be_free(PGconn *conn) {
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0, "advisory locks are held");
}

/* -------------------------------------------------------------------------------------------------- in order */

static void all_is_well(void **state) {
  static const enum table_form forms[] = {TABLE_PLAIN, TABLE_INIT, TABLE_INIT_PLAIN, TABLE_LOOSE, TABLE_HEADERS};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "outbox_%zu", i);
    table_create(stack, conn, forms[i], name);
    table_fill(conn, forms[i], name, 200, 20, 20);
    REQUIRE_FINE("--table", name, "--stale-after", "1d"); /* a timestamp without zone is hours away from UTC */
    REQUIRE_FINE("--table", name, "--stale-after", "1d", "--stream", "s:{%l}:%t:%i:%e", "--lanes", "3");
    lock_lanes_must_be_free(conn);
  }
  PQfinish(conn);
}

/* Nothing is written to either server, and a relay at work is not disturbed. */
static void changes_nothing_beside_a_relay(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  REQUIRE_FINE("--lanes", "4");
  REQUIRE(rds_int(redis, "DBSIZE") == 0, "there are keys in Redis");
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", "4"));
  relay_wait_log(relay, "relay_started", NULL, NULL, 30000);
  fleet_wait_even(conn, TABLE, 4, 1, 30000);
  table_fill(conn, TABLE_INIT, TABLE, 2000, 50, 50);
  wait_no_pending(conn, TABLE, 10, 60000);
  long long keys_n = rds_int(redis, "DBSIZE");
  int changes_n = relay_count(relay, "lanes_changed");
  char *before = db_text(conn, "SELECT string_agg(t::text, '' ORDER BY id) FROM " TABLE " t");
  for (int i = 0; i < 3; i++) {
    REQUIRE_FINE("--lanes", "4");
  }
  char *after = db_text(conn, "SELECT string_agg(t::text, '' ORDER BY id) FROM " TABLE " t");
  REQUIRE(strcmp(before, after) == 0, "rows have changed");
  REQUIRE(rds_int(redis, "DBSIZE") == keys_n, "keys have come or gone");
  REQUIRE(relay_is_running(relay) && relay_count(relay, "lanes_changed") == changes_n, "the relay is disturbed");
  REQUIRE(fleet_look(conn, TABLE).lanes_n == 4, "lanes have lost their owner");
  relay_stop(relay);
  free(before);
  free(after);
  redisFree(redis);
  PQfinish(conn);
}

/* For people: one line each, the sum at the end. */
static void lines_for_people(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_run_plain(stack, ARGS("check"), RUN_MS);
  char *out = relay_stdout(relay);
  REQUIRE(relay_wait(relay, 0) == 0, "it ends with %d", relay_wait(relay, 0));
  REQUIRE(strncmp(out, "ok       postgres           connected to ", 40) == 0, "not such a line: %s", out);
  REQUIRE(strstr(out, "\n0 errors, 0 warnings, 0 skipped, ") != NULL, "no sum: %s", out);
  free(out);
  relay = relay_run_plain(stack, ARGS("check", "--table", "missing"), RUN_MS);
  out = relay_stdout(relay);
  REQUIRE(relay_wait(relay, 0) == 1, "it ends with %d", relay_wait(relay, 0));
  REQUIRE(strstr(out, "\nerror    table              there is no table missing in this database -> outboxd init") !=
              NULL,
          "not such a line: %s", out);
  free(out);
  relay = relay_run_plain(stack, ARGS("check", "--lanes", "0"), RUN_MS);
  REQUIRE(relay_wait(relay, 0) == 2, "it ends with %d", relay_wait(relay, 0));
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- servers */

static void servers_that_are_away(void **state) {
  char conninfo[STACK_URL_BYTES];
  int status;
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PQfinish(conn);
  /* Each by itself: the rest is looked at all the same. */
  REQUIRE_ONLY("error", "redis", "redis://127.0.0.1:1", "start Redis", "--redis", "redis://127.0.0.1:1");
  REQUIRE_ONLY("error", "postgres", "refused", "start PostgreSQL", "--database", "host=127.0.0.1 port=1");
  json_t *report = run_check(ARGS("--redis", "redis://127.0.0.1:1", "--database", "host=127.0.0.1 port=1"), &status);
  REQUIRE(status == 1 && count_bad(report) == 2, "not both");
  require_level(report, "redis", "error");
  require_level(report, "postgres", "error");
  require_level(report, "table", "skipped");
  json_decref(report);
  REQUIRE_ONLY("error", "postgres", "does not exist", "correct --database", "--database",
               stack_conninfo(stack, "nobody_known", STACK_DATABASE, conninfo));
  REQUIRE_ONLY("error", "redis", "neither redis:// nor", "correct --redis", "--redis", "http://s3cret@x");
  REQUIRE_ONLY("error", "stream", "template", "correct --stream", "--stream", "no lanes");
  (void)snprintf(conninfo, sizeof conninfo, "redis://127.0.0.1:%d/99", stack->redis_port.number);
  REQUIRE_ONLY("error", "redis", "DB index", "correct", "--redis", conninfo);
}

static void passwords_are_not_shown(void **state) {
  char url[STACK_URL_BYTES];
  (void)state;
  (void)snprintf(url, sizeof url, "redis://relay:s3cret-word@127.0.0.1:%d", stack->redis_port.number);
  struct relay *relay = relay_run_plain(
      stack, ARGS("check", "--redis", url, "--database", "host=127.0.0.1 port=1 password=s3cret-too"), RUN_MS);
  char *out = relay_stdout(relay);
  REQUIRE(relay_wait(relay, 0) == 1, "it ends with %d", relay_wait(relay, 0));
  REQUIRE(strstr(out, "s3cret") == NULL, "a password is shown: %s", out);
  REQUIRE(strstr(out, "error    redis ") != NULL && strstr(out, "WRONGPASS") != NULL, "not said: %s", out);
  free(out);
}

static void database_that_takes_no_writes(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "ALTER DATABASE " STACK_DATABASE " SET default_transaction_read_only = on");
  REQUIRE_ONLY("error", "primary", "read-only", "default_transaction_read_only", NULL);
  db_exec(conn, "SET default_transaction_read_only = off");
  db_exec(conn, "ALTER DATABASE " STACK_DATABASE " RESET default_transaction_read_only");
  REQUIRE_ALL_FINE();
  PQfinish(conn);
}

/* A server in recovery: with nothing to recover from, but as read-only as any other standby. */
static void standby(void **state) {
  char path[STACK_PATH_BYTES + 32];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  PQfinish(conn);
  stack_pg_shutdown(stack);
  (void)snprintf(path, sizeof path, "%s/data/standby.signal", stack->pg_dir);
  FILE *file = fopen(path, "we");
  REQUIRE(file != NULL && fchmod(fileno(file), 0666) == 0 && fclose(file) == 0, "cannot write %s", path);
  stack_pg_restart(stack);
  REQUIRE_ONLY("error", "primary", "standby", "lead to the primary", NULL);
  conn = db_open(stack->conninfo);
  REQUIRE(db_int(conn, "SELECT pg_promote()") == 1, "it is not promoted");
  REQUIRE_ALL_FINE();
  PQfinish(conn);
}

/* A session ends a moment after its client. */
#define NARROW_N "SELECT count(*) FROM pg_stat_activity WHERE usename = 'narrow'"

static void sessions_that_do_not_fit(void **state) {
  char conninfo[STACK_URL_BYTES];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "DROP ROLE IF EXISTS narrow");
  db_exec(conn, "CREATE ROLE narrow LOGIN CONNECTION LIMIT 6 IN ROLE pg_read_all_stats");
  db_exec(conn, "GRANT SELECT, UPDATE, DELETE ON " TABLE " TO narrow");
  stack_conninfo(stack, "narrow", STACK_DATABASE, conninfo);
  REQUIRE_ONLY("error", "sessions", "7", "ALTER ROLE narrow CONNECTION LIMIT", "--database", conninfo);
  /* Six are enough with fewer claimers, but not beside another relay's. */
  wait_sql_int(conn, 0, RUN_MS, NARROW_N);
  REQUIRE_FINE("--database", conninfo, "--claimers", "2");
  wait_sql_int(conn, 0, RUN_MS, NARROW_N);
  PGconn *other = db_open(conninfo);
  REQUIRE_ONLY("warning", "sessions", "5 are left", "ALTER ROLE narrow", "--database", conninfo, "--claimers", "2");
  PQfinish(other);
  REQUIRE_ONLY("error", "sessions", "max_connections", "max_connections", "--claimers", "64", "--database",
               stack->conninfo);
  db_exec(conn, "DROP OWNED BY narrow; DROP ROLE narrow");
  PQfinish(conn);
}

static void clocks_and_old_transactions(void **state) {
  int status;
  PGconn *conn = db_open(stack->conninfo);
  PGconn *old = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  REQUIRE_ALL_FINE();
  stack_pg_set_clock(stack, 30);
  REQUIRE_ONLY("warning", "clock", "s ahead of this host's", "chrony", NULL);
  stack_pg_set_clock(stack, -30);
  REQUIRE_ONLY("warning", "clock", "s behind this host's", "chrony", NULL);
  stack_pg_set_clock(stack, 0);
  db_exec(old, "SET application_name = 'nightly report'; BEGIN; SELECT 1");
  REQUIRE_ALL_FINE();
  stack_pg_set_clock(stack, 3600);
  json_t *report = run_check(ARGS(NULL), &status);
  REQUIRE(count_bad(report) == 2 && status == 0, "not the clock and the transaction");
  require_level(report, "transactions", "warning");
  char *dumped = json_dumps(report, 0);
  REQUIRE(strstr(dumped, "nightly report") != NULL && strstr(dumped, "pg_terminate_backend") != NULL,
          "it is not said which: %s", dumped);
  free(dumped);
  json_decref(report);
  stack_pg_set_clock(stack, 0);
  db_exec(old, "COMMIT");
  REQUIRE_ALL_FINE();
  PQfinish(old);
  PQfinish(conn);
}

static void metrics_directory(void **state) {
  char path[STACK_PATH_BYTES + 64];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  (void)snprintf(path, sizeof path, "%s/nowhere/metrics", stack->dir);
  REQUIRE_ONLY("warning", "metrics_file", "No such file", "make it", "--metrics-file", path);
  (void)snprintf(path, sizeof path, "%s/metrics", stack->dir);
  REQUIRE_FINE("--metrics-file", path);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CHECK_TEST(all_is_well),
      CHECK_TEST(changes_nothing_beside_a_relay),
      CHECK_TEST(lines_for_people),
      CHECK_TEST(servers_that_are_away),
      CHECK_TEST(passwords_are_not_shown),
      CHECK_TEST(database_that_takes_no_writes),
      CHECK_TEST(standby),
      CHECK_TEST(sessions_that_do_not_fit),
      CHECK_TEST(clocks_and_old_transactions),
      CHECK_TEST(metrics_directory),
  };
  static const char *const settings[] = {"max_connections=60", NULL};
  return HARNESS_RUN(tests, &stack,
                     (&(struct stack_options){.has_aof = true, .has_clock = true, .pg_settings = settings}));
}
