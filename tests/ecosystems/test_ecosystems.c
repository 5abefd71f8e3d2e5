/*
 * The examples for other languages, against the real relay: events are written and acted on by them, the consumer is killed half-way.
 *
 * Apart from the integration tests, since it takes interpreters and libraries of its own (make test-ecosystems).
 */
#include "harness.h"

#include <string.h>

#include "check.h"
#include "db.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define GROUP "notify"
#define LANES 16
#define HALF 300
#define RUN_MS 60000
#define WAIT_MS 60000
#define ARGS_MAX 8

static struct stack *stack;

struct language {
  const char *name;
  const char *pay[ARGS_MAX];     /* FIRST COUNT are added */
  const char *notify[ARGS_MAX];  /* GROUP WORKER WORKERS are added */
  const char *outside[ARGS_MAX]; /* records without a transaction */
};

static const struct language python = {
    "python",
    {"/usr/bin/python3", "examples/python/pay.py"},
    {"/usr/bin/python3", "examples/python/notify.py"},
    {"/usr/bin/python3", "-c",
     "import os, sys; sys.path.insert(0, 'examples/python'); import outbox, psycopg2; "
     "db = psycopg2.connect(os.environ['DATABASE_URL']); db.autocommit = True; "
     "outbox.record(db.cursor(), 'account', 1, 'money.sent', {})"},
};

static const struct language node = {
    "node",
    {"node", "examples/node/pay.js"},
    {"node", "examples/node/notify.js"},
    {"node", "-e",
     "const { Client } = require('pg'); const db = new Client({ connectionString: process.env.DATABASE_URL }); "
     "db.connect().then(() => require('./examples/node/outbox.js').record(db, 'account', 1, 'money.sent', {}))"
     ".catch((error) => { console.error(error.message); process.exit(1); })"},
};

static const struct language laravel = {
    "laravel",
    {"php", "tests/ecosystems/laravel.php", "pay"},
    {"php", "tests/ecosystems/laravel.php", "outbox:consume"},
    {"php", "tests/ecosystems/laravel.php", "outside"},
};

/* -------------------------------------------------------------------------------------------------- helpers */

static char database_url[64 + STACK_URL_BYTES];
static char redis_url[64 + STACK_URL_BYTES];
static char node_path[STACK_PATH_BYTES + 64];
static const char *const env[] = {database_url, redis_url, node_path, NULL};
static char output[STACK_PATH_BYTES + 16];

static void describe(void) {
  const char *modules = getenv("NODE_MODULES");
  (void)snprintf(database_url, sizeof database_url, "DATABASE_URL=postgresql://" STACK_PG_USER "@127.0.0.1:%d/%s",
                 stack->pg_port.number, STACK_DATABASE);
  (void)snprintf(redis_url, sizeof redis_url, "REDIS_URL=redis://127.0.0.1:%d", stack->redis_port.number);
  (void)snprintf(node_path, sizeof node_path, "NODE_PATH=%s", modules != NULL ? modules : "build/node/node_modules");
  (void)snprintf(output, sizeof output, "%s/examples.log", stack->dir);
}

/* What the examples said, for whoever looks at a failure. */
static void show_output(void) {
  char line[512];
  FILE *file = fopen(output, "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    (void)fprintf(stderr, "  example: %s", line);
  }
  if (file != NULL) {
    (void)fclose(file);
  }
}

static bool output_says(const char *text) {
  char line[1024];
  bool is_found = false;
  FILE *file = fopen(output, "re");
  while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
    is_found = strstr(line, text) != NULL;
  }
  if (file != NULL) {
    (void)fclose(file);
  }
  return is_found;
}

static struct proc_spec spec_of(const char *name, const char *const *command, const char *const *more,
                                const char *argv[2 * ARGS_MAX]) {
  int n = 0;
  for (; *command != NULL; command++) {
    argv[n++] = *command;
  }
  for (; *more != NULL; more++) {
    argv[n++] = *more;
  }
  argv[n] = NULL;
  return (struct proc_spec){.name = name, .argv = argv, .env = env, .stdout_path = output};
}

static int run(const char *const *command, const char *const *more) {
  const char *argv[2 * ARGS_MAX];
  struct proc_spec spec = spec_of(command[0], command, more, argv);
  return proc_run(&spec, RUN_MS);
}

static void pay(const struct language *language, int first) {
  char from[16];
  char count[16];
  (void)snprintf(from, sizeof from, "%d", first);
  (void)snprintf(count, sizeof count, "%d", HALF);
  REQUIRE(run(language->pay, ARGS(from, count)) == 0, "%s: paying fails", language->name);
}

static void start_consumer(const struct language *language, struct proc *proc) {
  const char *argv[2 * ARGS_MAX];
  struct proc_spec spec = spec_of("consumer", language->notify, ARGS(GROUP, "0", "1"), argv);
  proc_start(proc, &spec);
}

static const redisReply *field(const redisReply *map, const char *name) {
  for (size_t i = 0; i + 1 < map->elements; i += 2) {
    if (strcmp(map->element[i]->str, name) == 0) {
      return map->element[i + 1];
    }
  }
  FAIL("there is no %s in the reply", name);
}

/* Has the group read and acknowledged all there is? */
static bool is_drained(redisContext *redis) {
  bool is_all = true;
  for (int lane = 0; lane < LANES && is_all; lane++) {
    redisReply *stream = rds_cmd(redis, "XINFO STREAM outbox:{%d}", lane);
    redisReply *groups = rds_cmd(redis, "XINFO GROUPS outbox:{%d}", lane);
    is_all = groups->elements == 1 && field(groups->element[0], "pending")->integer == 0 &&
             strcmp(field(groups->element[0], "last-delivered-id")->str, field(stream, "last-generated-id")->str) == 0;
    freeReplyObject(stream);
    freeReplyObject(groups);
  }
  return is_all;
}

static int64_t pending_n(redisContext *redis) {
  int64_t n = 0;
  for (int lane = 0; lane < LANES; lane++) {
    redisReply *pending = rds_cmd(redis, "XPENDING outbox:{%d} " GROUP, lane);
    n += pending->element[0]->integer;
    freeReplyObject(pending);
  }
  return n;
}

static void require_once(PGconn *conn, const struct language *language) {
  REQUIRE(db_int(conn, "SELECT count(*) FROM notifications") == (int64_t)2 * HALF &&
              db_int(conn, "SELECT count(DISTINCT n) FROM notifications") == (int64_t)2 * HALF,
          "%s: %d notifications of %d events", language->name, (int)db_int(conn, "SELECT count(*) FROM notifications"),
          2 * HALF);
  REQUIRE(db_int(conn, "SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY account ORDER BY id) AS before FROM "
                       "notifications) x WHERE before >= n") == 0,
          "%s: an account's events are out of order", language->name);
}

/* -------------------------------------------------------------------------------------------------- tests */

static void try_language(const struct language *language) {
  struct proc consumer = {0};
  PGconn *conn = db_open(stack->conninfo);
  PGconn *holder = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  db_exec(conn, "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL); INSERT INTO accounts SELECT i, 1000 "
                "FROM generate_series(0, 9) i");
  /* No key that would hide what happens twice. */
  db_exec(conn, "CREATE TABLE notifications (id bigserial, message_id uuid NOT NULL, account text, n int)");

  REQUIRE(run(language->outside, ARGS(NULL)) != 0, "%s: records without a transaction", language->name);
  REQUIRE(output_says("outside of"), "%s: it does not say what is wrong", language->name);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 0, "%s: it was written", language->name);

  struct relay *relay = relay_start(stack, ARGS("run", "--no-cleanup"));
  pay(language, 0);
  start_consumer(language, &consumer);
  WAIT_FOR(WAIT_MS, db_int(conn, "SELECT count(*) FROM notifications") >= 50 || !proc_is_running(&consumer),
           "%s: no notifications", language->name);

  /* Killed in a transaction that has noted the message and not yet acted on it, with more entries read and not acknowledged. */
  db_exec(holder, "BEGIN; LOCK TABLE notifications IN SHARE MODE");
  pay(language, HALF);
  WAIT_FOR(WAIT_MS,
           db_int(conn, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'notifications'::regclass") ==
               1,
           "%s: the consumer does not come to its next message", language->name);
  REQUIRE(proc_is_running(&consumer), "%s: the consumer has ended", language->name);
  proc_signal(&consumer, SIGKILL);
  REQUIRE(proc_wait(&consumer, WAIT_MS), "it does not end");
  REQUIRE(pending_n(redis) > 0, "%s: nothing was left to take over", language->name);
  db_exec(holder, "ROLLBACK");
  start_consumer(language, &consumer);
  WAIT_FOR(WAIT_MS, db_int(conn, "SELECT count(*) FROM notifications") >= (int64_t)2 * HALF && is_drained(redis),
           "%s: %d notifications, %d entries pending", language->name,
           (int)db_int(conn, "SELECT count(*) FROM notifications"), (int)pending_n(redis));
  require_once(conn, language);

  /* All of them a second time. */
  for (int lane = 0; lane < LANES; lane++) {
    rds_run(redis, "XGROUP SETID outbox:{%d} " GROUP " 0", lane);
  }
  WAIT_FOR(WAIT_MS, is_drained(redis), "%s: not read again", language->name);
  require_once(conn, language);
  proc_signal(&consumer, SIGTERM);
  REQUIRE(proc_wait(&consumer, WAIT_MS) && consumer.exit_status == 0, "%s: after SIGTERM it ends with %d",
          language->name, consumer.exit_status);
  relay_stop(relay);
  check_require_good(stack, NULL);
  redisFree(redis);
  PQfinish(holder);
  PQfinish(conn);
}

static void init_table(void) {
  struct relay *init = relay_start(stack, ARGS("init"));
  REQUIRE(relay_wait(init, RUN_MS) == 0, "init fails");
}

static void python_with_psycopg2_and_redis_py(void **state) {
  (void)state;
  init_table();
  try_language(&python);
}

static void node_with_pg_and_ioredis(void **state) {
  (void)state;
  init_table();
  try_language(&node);
}

/* The tables come from the migration, which is also undone and done again. */
static void laravel_with_phpredis(void **state) {
  char sql[STACK_PATH_BYTES + 16];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  (void)snprintf(sql, sizeof sql, "%s/outbox.sql", stack->dir);
  const char *const print[] = {getenv("OUTBOXD_BIN") != NULL ? getenv("OUTBOXD_BIN") : "build/outboxd", "init",
                               "--print", "--plain", NULL};
  REQUIRE(proc_run(&(struct proc_spec){.name = "init", .argv = print, .stdout_path = sql}, RUN_MS) == 0,
          "init --print fails");
  const char *const migrate[] = {"php", "tests/ecosystems/laravel.php", "migrate", NULL};
  const char *const rollback[] = {"php", "tests/ecosystems/laravel.php", "rollback", NULL};
  REQUIRE(run(migrate, ARGS(stack->dir)) == 0, "the migration fails");
  REQUIRE(run(rollback, ARGS(stack->dir)) == 0, "undoing the migration fails");
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_class WHERE relname = '" TABLE "'") == 0, "the table is still there");
  REQUIRE(run(migrate, ARGS(stack->dir)) == 0, "the migration fails the second time");
  PQfinish(conn);
  try_language(&laravel);
}

static int setup(void **state) {
  int rc = harness_setup(state);
  describe();
  (void)unlink(output);
  return rc;
}

#define ECOSYSTEM_TEST(function) cmocka_unit_test_setup_teardown(function, setup, harness_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      ECOSYSTEM_TEST(python_with_psycopg2_and_redis_py),
      ECOSYSTEM_TEST(node_with_pg_and_ioredis),
      ECOSYSTEM_TEST(laravel_with_phpredis),
  };
  fail_add_context(show_output);
  return HARNESS_RUN(tests, &stack, NULL);
}
