/*
 * Roles with no more rights than they need: what the scripts make, that it suffices, and that outboxd check names what is taken away.
 */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "rds.h"
#include "roles.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define RELAY "outboxd_relay"
#define MAINTENANCE "outboxd_maintenance"
#define WRITER "outboxd_writer"
#define CONSUMER "outboxd_consumer"
#define RUN_MS 60000
#define DRAIN_MS 60000

static struct stack *stack;
static char relay_conninfo[STACK_URL_BYTES];
static char maintenance_conninfo[STACK_URL_BYTES];
static char redis_url[STACK_URL_BYTES];

static int setup(void **state) {
  int rc = harness_setup(state);
  redisContext *redis = rds_open(stack->redis_url);
  rds_run(redis, "ACL DELUSER " ROLES_REDIS_USER);
  redisFree(redis);
  stack_conninfo(stack, RELAY, STACK_DATABASE, relay_conninfo);
  stack_conninfo(stack, MAINTENANCE, STACK_DATABASE, maintenance_conninfo);
  (void)snprintf(redis_url, sizeof redis_url, "redis://" ROLES_REDIS_USER ":" ROLES_REDIS_PASSWORD "@127.0.0.1:%d",
                 stack->redis_port.number);
  return rc;
}

#define ROLES_TEST(function) cmocka_unit_test_setup_teardown(function, setup, harness_teardown)

/* -------------------------------------------------------------------------------------------------- helpers */

/* Runs check; its lines that are neither ok nor skipped, the caller's to free. */
static char *findings(const char *conninfo, const char *const *more, int *status) {
  const char *args[24] = {"check", "--redis", redis_url, "--database", conninfo};
  for (int n = 5; *more != NULL; more++) {
    args[n++] = *more;
  }
  struct relay *relay = relay_run_plain(stack, args, RUN_MS);
  *status = relay_wait(relay, 0);
  char *out = relay_stdout(relay);
  char *to = out;
  for (char *line = out; *line != '\0';) {
    size_t n = strcspn(line, "\n") + 1;
    if (strncmp(line, "warning ", 8) == 0 || strncmp(line, "error ", 6) == 0) {
      memmove(to, line, n);
      to += n;
    }
    line += n;
  }
  *to = '\0';
  relay_forget(&relay);
  return out;
}

static void require_fine(const char *conninfo, const char *const *more) {
  int status;
  char *found = findings(conninfo, more, &status);
  REQUIRE(status == 0 && found[0] == '\0', "exit status %d, %s", status, found);
  free(found);
}

/* Requires one finding, and returns what it proposes; the caller's to free. */
static char *require_proposed(const char *conninfo, const char *const *more, const char *says, const char *fix) {
  int status;
  char *found = findings(conninfo, more, &status);
  REQUIRE(found[0] != '\0' && strchr(found, '\n') == found + strlen(found) - 1, "not one finding (%s): %s", says,
          found);
  REQUIRE(strstr(found, says) != NULL && strstr(found, fix) != NULL, "it does not say \"%s\" and \"%s\": %s", says, fix,
          found);
  REQUIRE(status == (strncmp(found, "error ", 6) == 0), "exit status %d: %s", status, found);
  char *proposed = strdup(strstr(found, " -> ") + strlen(" -> "));
  REQUIRE(proposed != NULL, "out of memory");
  proposed[strlen(proposed) - 1] = '\0'; /* the line's end */
  free(found);
  return proposed;
}

static void require_one(const char *conninfo, const char *const *more, const char *says, const char *fix) {
  free(require_proposed(conninfo, more, says, fix));
}

/* Does what was proposed to Redis, and frees it. */
static void mend_redis(redisContext *redis, char *proposed) {
  const char *words[16];
  int n = 0;
  char *save = NULL;
  for (char *word = strtok_r(proposed, " '", &save); word != NULL; word = strtok_r(NULL, " '", &save)) {
    REQUIRE(n < 16, "many words");
    words[n++] = word;
  }
  redisReply *reply = redisCommandArgv(redis, n, words, NULL);
  REQUIRE(reply != NULL && reply->type == REDIS_REPLY_STATUS, "%s is refused", words[0]);
  freeReplyObject(reply);
  free(proposed);
}

static void make_roles(const char *option) {
  roles_apply_postgres(stack, TABLE, option);
  roles_apply_redis(stack, "outbox:{%l}");
}

/* A statement that must be refused for want of a privilege. */
static void require_denied(PGconn *conn, const char *sql) {
  PGresult *result = PQexec(conn, sql);
  const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  REQUIRE(sqlstate != NULL && strcmp(sqlstate, "42501") == 0, "not denied: %s", sql);
  PQclear(result);
}

/* -------------------------------------------------------------------------------------------------- PostgreSQL */

/* Each right of the relay, in every form of table: taken away, named, given back by the very statement that is proposed. */
static void each_right_is_named(void **state) {
  static const struct {
    const char *revoke;
    const char *says;
    const char *fix;
  } cases[] = {
      {"REVOKE SELECT ON " TABLE " FROM " RELAY, "lacks SELECT on public." TABLE,
       "GRANT SELECT ON public." TABLE " TO"},
      {"REVOKE UPDATE (attempts) ON " TABLE " FROM " RELAY, "lacks UPDATE (attempts) on", "GRANT UPDATE (attempts) ON"},
      {"REVOKE UPDATE (last_error) ON " TABLE " FROM " RELAY, "lacks UPDATE (last_error)", "GRANT UPDATE (last_error)"},
      {"REVOKE UPDATE (published_at) ON " TABLE " FROM " RELAY, "lacks UPDATE (published_at)",
       "GRANT UPDATE (published_at)"},
      {"REVOKE pg_read_all_stats FROM " RELAY, "cannot see other roles' transactions",
       "GRANT pg_read_all_stats TO " RELAY},
  };
  static const enum table_form forms[] = {TABLE_PLAIN, TABLE_INIT};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    db_exec(conn, "DROP TABLE IF EXISTS " TABLE);
    table_create(stack, conn, forms[f], TABLE);
    make_roles(NULL);
    require_fine(relay_conninfo, ARGS("--no-cleanup"));
    require_fine(maintenance_conninfo, ARGS("--processed-retention", forms[f] == TABLE_INIT ? "30d" : "0"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      db_exec(conn, "%s", cases[i].revoke);
      char *proposed = require_proposed(relay_conninfo, ARGS("--no-cleanup"), cases[i].says, cases[i].fix);
      db_exec(conn, "%s", proposed);
      free(proposed);
    }
    require_fine(relay_conninfo, ARGS("--no-cleanup"));
  }
  /* Of one partition, and of the schema. */
  char *partition =
      db_text(conn, "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = '" TABLE "'::regclass");
  db_exec(conn, "REVOKE UPDATE (attempts) ON %s FROM " RELAY, partition);
  require_one(relay_conninfo, ARGS("--no-cleanup"), partition, "GRANT UPDATE (attempts) ON");
  make_roles(NULL);
  db_exec(conn, "REVOKE USAGE ON SCHEMA public FROM PUBLIC, " RELAY);
  require_one(relay_conninfo, ARGS("--no-cleanup"), "schema public", "GRANT USAGE ON SCHEMA public TO " RELAY);
  make_roles(NULL);
  require_fine(relay_conninfo, ARGS("--no-cleanup"));
  free(partition);
  PQfinish(conn);
}

/* The relay's role without --no-cleanup: what is missing for that, and only that. */
static void rights_to_clean_up(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  make_roles(NULL);
  require_one(relay_conninfo, ARGS(NULL), "may not delete from public." TABLE, "GRANT SELECT, DELETE ON public." TABLE);
  db_exec(conn, "DROP TABLE " TABLE);
  table_create(stack, conn, TABLE_INIT, TABLE);
  make_roles(NULL);
  require_fine(maintenance_conninfo, ARGS(NULL));
  db_exec(conn, "GRANT CREATE ON SCHEMA public TO " RELAY);
  require_one(relay_conninfo, ARGS(NULL), "not a member of the table's owner " MAINTENANCE, "GRANT " MAINTENANCE);
  db_exec(conn, "REVOKE CREATE ON SCHEMA public FROM " RELAY ", " MAINTENANCE);
  require_one(maintenance_conninfo, ARGS(NULL), "may not make tables in schema public",
              "GRANT CREATE ON SCHEMA public TO " MAINTENANCE);
  require_fine(relay_conninfo, ARGS("--no-cleanup"));
  PQfinish(conn);
}

/* A table that an application's role made: it goes on with it, and maintenance gets the outbox only, or all that the owner has. */
static void tables_of_somebody_else(void **state) {
  char app_conninfo[STACK_URL_BYTES];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (int keeps_owner = 0; keeps_owner < 2; keeps_owner++) {
    db_exec(conn, "DROP TABLE IF EXISTS " TABLE "; DROP TABLE IF EXISTS ledger");
    db_exec(conn, "DO $$ BEGIN CREATE ROLE shop_app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    db_exec(conn, "DO $$ BEGIN CREATE ROLE " MAINTENANCE "; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    db_exec(conn, "REVOKE " MAINTENANCE " FROM shop_app; REVOKE shop_app FROM " MAINTENANCE);
    db_exec(conn, "GRANT CREATE ON SCHEMA public TO shop_app");
    stack_conninfo(stack, "shop_app", STACK_DATABASE, app_conninfo);
    PGconn *app = db_open(app_conninfo);
    table_create(stack, app, TABLE_50, TABLE);
    db_exec(app, "CREATE TABLE ledger (n int)");
    make_roles(keeps_owner ? "--keep-owner" : NULL);
    table_fill(app, TABLE_50, TABLE, 500, 20, 20);
    require_fine(maintenance_conninfo, ARGS("--partitions-ahead", "0", "--stale-after", "100d"));
    require_fine(relay_conninfo, ARGS("--partitions-ahead", "0", "--stale-after", "100d", "--no-cleanup"));
    REQUIRE(db_int(conn, "SELECT has_table_privilege('" MAINTENANCE "', 'ledger', 'SELECT')") == keeps_owner,
            "maintenance may read what is none of its business, or may not");
    /* Partitions that the maintainer makes can be worked in by the relay. */
    struct relay *maintainer =
        relay_start(stack, ARGS("run", "--database", maintenance_conninfo, "--redis", redis_url, "--retention", "60d"));
    relay_wait_log(maintainer, "cleanup_done", NULL, NULL, DRAIN_MS);
    REQUIRE(relay_count(maintainer, "cleanup_off") == 0 && relay_count(maintainer, "partition_created") > 0,
            "no partition is made");
    relay_stop(maintainer);
    struct relay *relay =
        relay_start(stack, ARGS("run", "--database", relay_conninfo, "--redis", redis_url, "--no-cleanup"));
    db_exec(app, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) "
                 "SELECT gen_random_uuid(), 'order', i::text, 'x', '{}', now() + interval '10 days' "
                 "FROM generate_series(1, 20) i");
    wait_no_pending(conn, TABLE, 10, DRAIN_MS);
    relay_stop(relay);
    check_require_good(stack, NULL);
    PQfinish(app);
    redisContext *redis = rds_open(stack->redis_url);
    rds_run(redis, "FLUSHALL");
    redisFree(redis);
  }
  db_exec(conn, "REVOKE shop_app FROM " MAINTENANCE);
  db_exec(conn, "DROP OWNED BY shop_app; DROP ROLE shop_app");
  PQfinish(conn);
}

static void what_a_writer_may(void **state) {
  static const enum table_form forms[] = {TABLE_PLAIN, TABLE_INIT, TABLE_HEADERS};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    db_exec(conn, "RESET ROLE; DROP TABLE IF EXISTS " TABLE);
    table_create(stack, conn, forms[i], TABLE);
    make_roles(NULL);
    db_exec(conn, "SET ROLE " WRITER);
    REQUIRE(db_int(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                         "VALUES (gen_random_uuid(), 'a', 'b', 'c', '{}') RETURNING id") > 0,
            "no id");
    require_denied(conn, "SELECT payload FROM " TABLE);
    require_denied(conn, "UPDATE " TABLE " SET published_at = now()");
    require_denied(conn, "DELETE FROM " TABLE);
    require_denied(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, "
                         "published_at) VALUES (gen_random_uuid(), 'a', 'b', 'c', '{}', now())");
    db_exec(conn, "SET ROLE " RELAY);
    require_denied(conn, "INSERT INTO " TABLE " (aggregate_type) VALUES ('a')");
    require_denied(conn, "DELETE FROM " TABLE);
    require_denied(conn, "UPDATE " TABLE " SET payload = '{}'");
    db_exec(conn, "RESET ROLE");
  }
  PQfinish(conn);
}

/* The functions for applications, as those who call them and nobody else, whatever PUBLIC may. */
static void who_may_call_what(void **state) {
  static const enum table_form forms[] = {TABLE_INIT, TABLE_INIT_PLAIN};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    db_exec(conn, "DROP TABLE IF EXISTS " TABLE "; DROP TABLE IF EXISTS processed_messages; DROP FUNCTION IF EXISTS "
                  "outbox_record, outbox_process_once, outbox_uuid_v7");
    table_create(stack, conn, forms[i], TABLE);
    db_exec(conn, "REVOKE EXECUTE ON FUNCTION outbox_record, outbox_uuid_v7, outbox_process_once FROM PUBLIC");
    make_roles(NULL);
    REQUIRE(db_int(conn, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox\\_%%' AND proowner = '" MAINTENANCE
                         "'::regrole") == (forms[i] == TABLE_INIT ? 3 : 0),
            "the functions' owner");
    db_exec(conn, "SET ROLE " WRITER "; BEGIN");
    db_exec(conn, "SELECT outbox_record('a', 'b', 'c', '{}')");
    db_exec(conn, "COMMIT");
    require_denied(conn, "SELECT outbox_process_once(gen_random_uuid(), 'c')");
    db_exec(conn, "SET ROLE " CONSUMER "; BEGIN");
    REQUIRE(db_int(conn, "SELECT outbox_process_once('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'c')::int") == 1,
            "not new");
    REQUIRE(db_int(conn, "SELECT outbox_process_once('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'c')::int") == 0, "new");
    db_exec(conn, "COMMIT");
    require_denied(conn, "SELECT outbox_record('a', 'b', 'c', '{}')");
    require_denied(conn, "SELECT payload FROM " TABLE);
    require_denied(conn, "DELETE FROM processed_messages");
    db_exec(conn, "RESET ROLE");
    relay_require_says(stack, 0, "found    function   outbox_record", ARGS("init", "--table", TABLE), RUN_MS);
  }
  relay_require_says(stack, 0, "found    function   outbox_record", ARGS("init", "--database", maintenance_conninfo),
                     RUN_MS);
  PQfinish(conn);
}

/* Without --apply nothing happens; what is printed does the same. */
static void printed_statements(void **state) {
  char path[STACK_PATH_BYTES + 16];
  char program[STACK_PATH_BYTES + 16];
  char search[ROLES_PATH_BYTES];
  const char *const env[] = {search, NULL};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  (void)snprintf(path, sizeof path, "%s/roles.sql", stack->dir);
  roles_path(stack, search);
  (void)snprintf(program, sizeof program, "%s/psql", stack->pg_bin);
  const char *const print[] = {"scripts/postgres-roles.sh",
                               "--database",
                               stack->conninfo,
                               "--relay",
                               "R \"x\"",
                               "--maintenance",
                               "m",
                               "--writer",
                               "w",
                               NULL};
  REQUIRE(proc_run(&(struct proc_spec){.name = print[0], .argv = print, .env = env, .stdout_path = path}, RUN_MS) == 0,
          "it fails");
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_roles WHERE rolname IN ('R \"x\"', 'm', 'w')") == 0, "roles are made");
  const char *const feed[] = {program, "-qX", "-v", "ON_ERROR_STOP=1", "-f", path, stack->conninfo, NULL};
  REQUIRE(proc_run(&(struct proc_spec){.name = "psql", .argv = feed}, RUN_MS) == 0, "psql fails");
  REQUIRE(db_int(conn, "SELECT has_column_privilege('R \"x\"', '" TABLE "', 'attempts', 'UPDATE')") == 1,
          "not granted");
  db_exec(conn, "DROP OWNED BY \"R \"\"x\"\"\", m, w CASCADE; DROP ROLE \"R \"\"x\"\"\", m, w");
  const char *const wrong[] = {"scripts/postgres-roles.sh", "--relay", "same", "--writer", "same", NULL};
  REQUIRE(proc_run(&(struct proc_spec){.name = wrong[0], .argv = wrong, .env = env}, RUN_MS) == 2,
          "one role for two is taken");
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- Redis */

static void each_redis_right_is_named(void **state) {
  static const struct {
    const char *rule;
    const char *says;
    const char *fix;
  } cases[] = {
      {"-set", "may not run SET", "+set"},
      {"-get", "may not run GET", "+get"},
      {"-getrange", "may not run GETRANGE", "+getrange"},
      {"-xadd", "may not run XADD", "+xadd"},
      {"-eval", "may not run EVAL -> ", "+eval"},
      {"-evalsha", "may not run EVALSHA", "+evalsha"},
      {"-info", "may not run INFO", "+info"},
  };
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  make_roles(NULL);
  rds_run(redis, "ACL LOG RESET");
  require_fine(relay_conninfo, ARGS("--no-cleanup"));
  redisReply *log = rds_cmd(redis, "ACL LOG");
  REQUIRE(log->elements == 0, "the check was denied something, and that is in Redis' ACL LOG");
  freeReplyObject(log);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rds_run(redis, "ACL SETUSER " ROLES_REDIS_USER " %s", cases[i].rule);
    mend_redis(redis, require_proposed(relay_conninfo, ARGS("--no-cleanup"), cases[i].says, cases[i].fix));
  }
  require_fine(relay_conninfo, ARGS("--no-cleanup"));
  static const struct {
    const char *keys;
    const char *says;
    const char *fix;
  } key_cases[] = {
      {"resetkeys ~outbox:lanes ~outbox:{*}:journal", "may not XADD key outbox:{0} (streams), nor others",
       "~outbox:{*}'"},
      {"resetkeys ~outbox:lanes ~outbox:{?} ~outbox:{??}", "key outbox:{0}:journal (journals)", "~outbox:{*}:journal'"},
      {"resetkeys ~outbox:{*}*", "may not SET key outbox:lanes (the fleet's record) ->", "~outbox:lanes'"},
  };
  for (size_t i = 0; i < sizeof key_cases / sizeof key_cases[0]; i++) {
    char command[256];
    (void)snprintf(command, sizeof command, "ACL SETUSER " ROLES_REDIS_USER " %s", key_cases[i].keys);
    rds_run(redis, command);
    mend_redis(redis, require_proposed(relay_conninfo, ARGS("--no-cleanup"), key_cases[i].says, key_cases[i].fix));
    require_fine(relay_conninfo, ARGS("--no-cleanup"));
  }
  /* What the check alone needs may be missing: then it says that it did not look. */
  rds_run(redis, "ACL SETUSER " ROLES_REDIS_USER " -acl|dryrun -type");
  require_fine(relay_conninfo, ARGS("--no-cleanup"));
  rds_run(redis, "ACL SETUSER " ROLES_REDIS_USER " -eval");
  require_one(relay_conninfo, ARGS("--no-cleanup"), "cannot EVAL", "docs/privileges.md");
  redisFree(redis);
  PQfinish(conn);
}

/* The user as Redis prints it; caller frees. */
static char *acl_line(redisContext *redis) {
  redisReply *list = rds_cmd(redis, "ACL LIST");
  char *line = NULL;
  for (size_t i = 0; i < list->elements && line == NULL; i++) {
    if (strncmp(list->element[i]->str, "user " ROLES_REDIS_USER " ", strlen("user " ROLES_REDIS_USER " ")) == 0) {
      line = strdup(list->element[i]->str);
    }
  }
  REQUIRE(line != NULL, "there is no user " ROLES_REDIS_USER);
  freeReplyObject(list);
  return line;
}

/* What the script prints, given to redis-cli, makes the same user as --apply. */
static void require_printed_the_same(redisContext *redis, const char *template) {
  char command[512];
  char *applied = acl_line(redis);
  (void)snprintf(command, sizeof command, "scripts/redis-user.sh --stream '%s' | redis-cli -e -p %d", template,
                 stack->redis_port.number);
  rds_run(redis, "ACL SETUSER " ROLES_REDIS_USER " resetkeys -@all");
  const char *const argv[] = {"bash", "-c", command, NULL};
  REQUIRE(proc_run(&(struct proc_spec){.name = "bash", .argv = argv}, RUN_MS) == 0, "it fails: %s", command);
  char *printed = acl_line(redis);
  REQUIRE(strcmp(applied, printed) == 0, "not the same:\n%s\n%s", applied, printed);
  free(applied);
  free(printed);
}

/* Templates with what a pattern would take for its own; the user fits these streams and no other's. */
static void patterns_of_the_template(void **state) {
  static const char *const templates[] = {"outbox:{%l}:%t:%i", "a*b[c]?\\d:{%l}:%e%%", "{%l}"};
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  roles_apply_postgres(stack, TABLE, NULL);
  for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
    roles_apply_redis(stack, templates[i]);
    require_printed_the_same(redis, templates[i]);
    table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 10);
    require_fine(relay_conninfo, ARGS("--no-cleanup", "--stream", templates[i]));
    struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup", "--database", relay_conninfo,
                                                  "--redis", redis_url, "--stream", templates[i]));
    REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "the relay fails with %s", templates[i]);
    check_require_good(stack, &(struct check_options){.stream = templates[i]});
    db_exec(conn, "TRUNCATE " TABLE);
    rds_run(redis, "FLUSHALL");
  }
  roles_apply_redis(stack, "mine:{%l}");
  redisContext *relay = rds_open(redis_url);
  redisReply *reply = redisCommand(relay, "XADD %s * a b", "yours:{1}");
  REQUIRE(reply != NULL && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM", 6) == 0, "not denied");
  freeReplyObject(reply);
  reply = redisCommand(relay, "DEL mine:{1}:journal");
  REQUIRE(reply != NULL && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM", 6) == 0, "not denied");
  freeReplyObject(reply);
  redisFree(relay);
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ROLES_TEST(each_right_is_named),       ROLES_TEST(rights_to_clean_up),       ROLES_TEST(tables_of_somebody_else),
      ROLES_TEST(what_a_writer_may),         ROLES_TEST(who_may_call_what),        ROLES_TEST(printed_statements),
      ROLES_TEST(each_redis_right_is_named), ROLES_TEST(patterns_of_the_template),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
