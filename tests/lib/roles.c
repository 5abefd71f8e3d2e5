/*
 * Roles with no more rights than they need: see roles.h.
 */
#include "roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "fail.h"
#include "stack_impl.h"

#define SCRIPT_MS 30000
#define PASSWORD_ENV "OUTBOXD_REDIS_PASSWORD=" ROLES_REDIS_PASSWORD

bool roles_are_on(void) {
  const char *text = getenv("TEST_ROLES");
  if (text == NULL || text[0] == '\0') {
    return false;
  }
  REQUIRE(strcmp(text, "relay") == 0 || strcmp(text, "maintenance") == 0, "TEST_ROLES is relay or maintenance, not %s",
          text);
  return true;
}

static const char *argument(const char *const *args, const char *name, const char *otherwise) {
  for (; *args != NULL; args++) {
    if (strcmp(*args, name) == 0 && args[1] != NULL) {
      return args[1];
    }
  }
  return otherwise;
}

bool roles_is_relay(const char *const *args) {
  const char *text = getenv("TEST_ROLES");
  return roles_are_on() && text != NULL && strcmp(text, "relay") == 0 && strcmp(args[0], "init") != 0;
}

/* Runs a script of ours; its output goes to roles.log. */
static void run_script(const struct stack *stack, const char *const *argv, const char *const *env) {
  char log_path[STACK_PATH_BYTES];
  stack_print_path(log_path, sizeof log_path, "%s/roles.log", stack->dir);
  int status =
      proc_run(&(struct proc_spec){.name = argv[0], .argv = argv, .env = env, .stdout_path = log_path}, SCRIPT_MS);
  REQUIRE(status == 0, "%s ended with status %d, see %s", argv[0], status, log_path);
}

void roles_path(const struct stack *stack, char out[ROLES_PATH_BYTES]) {
  const char *set = getenv("PATH");
  (void)snprintf(out, ROLES_PATH_BYTES, "PATH=%s:%s", stack->pg_bin, set != NULL ? set : "/usr/bin:/bin");
}

void roles_apply_postgres(const struct stack *stack, const char *table, const char *option) {
  char path[ROLES_PATH_BYTES];
  const char *const env[] = {path, NULL};
  roles_path(stack, path);
  const char *const argv[] = {
      "scripts/postgres-roles.sh", "--database", stack->conninfo, "--table", table, "--apply", option, NULL};
  run_script(stack, argv, env);
}

void roles_apply_redis(const struct stack *stack, const char *template) {
  char port[16];
  const char *const env[] = {PASSWORD_ENV, NULL};
  (void)snprintf(port, sizeof port, "%d", stack->redis_port.number);
  const char *const argv[] = {"scripts/redis-user.sh", "--stream", template, "--apply", "-p", port, NULL};
  run_script(stack, argv, env);
}

char *roles_redis_line(const char *dir) {
  char path[STACK_PATH_BYTES];
  char line[1024] = "";
  const char *const env[] = {PASSWORD_ENV, NULL};
  const char *const argv[] = {"scripts/redis-user.sh", "--config", NULL};
  stack_print_path(path, sizeof path, "%s/redis-user", dir);
  (void)remove(path);
  int status = proc_run(&(struct proc_spec){.name = argv[0], .argv = argv, .env = env, .stdout_path = path}, SCRIPT_MS);
  FILE *file = fopen(path, "re");
  REQUIRE(status == 0 && file != NULL && fgets(line, sizeof line, file) != NULL, "%s fails", argv[0]);
  (void)fclose(file);
  char *copy = strdup(line);
  REQUIRE(copy != NULL, "out of memory");
  return copy;
}

/* For a table that has them already the script would change nothing, and takes its time. */
static bool is_prepared(const struct stack *stack, const char *table) {
  PGconn *conn = db_open(stack->conninfo);
  const char *values[] = {table};
  PGresult *rows = PQexecParams(conn,
                                "SELECT c.oid, d.oid FROM pg_class c, pg_database d WHERE c.oid = to_regclass($1) "
                                "AND d.datname = current_database()",
                                1, NULL, values, NULL, NULL, 0);
  bool is_there = PQntuples(rows) == 1;
  if (is_there) {
    static char last[64];
    char now[64];
    stack_print_path(now, sizeof now, "%s %s", PQgetvalue(rows, 0, 0), PQgetvalue(rows, 0, 1));
    is_there = strcmp(now, last) == 0;
    stack_print_path(last, sizeof last, "%s", now);
  }
  PQclear(rows);
  PQfinish(conn);
  return is_there;
}

void roles_prepare(const struct stack *stack, const char *const *args, char conninfo[STACK_URL_BYTES],
                   char redis_url[STACK_URL_BYTES]) {
  const char *table = argument(args, "--table", "outbox_messages");
  const char *template = argument(args, "--stream", NULL);
  if (!is_prepared(stack, table)) {
    roles_apply_postgres(stack, table, NULL);
  }
  if (template != NULL) {
    roles_apply_redis(stack, template);
  }
  (void)stack_conninfo(stack, roles_is_relay(args) ? "outboxd_relay" : "outboxd_maintenance", STACK_DATABASE, conninfo);
  stack_print_path(redis_url, STACK_URL_BYTES, "redis://" ROLES_REDIS_USER ":" ROLES_REDIS_PASSWORD "@127.0.0.1:%d",
                   stack->redis_port.number);
}
