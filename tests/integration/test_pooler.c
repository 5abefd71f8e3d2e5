/*
 * A pooling proxy between the relay and PostgreSQL (pgbouncer): pooling of transactions would break the session locks that lanes are owned
 * by, so the relay refuses to start.  It cannot see how the proxy pools: one that pools sessions is refused as well.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "db.h"
#include "harness.h"
#include "proc.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define END_MS 20000

static struct stack *stack;
static struct port port = PORT_INIT;
static struct proc pooler;
static char pooled_conninfo[STACK_URL_BYTES];

static bool answers(void) {
  PGconn *conn = PQconnectdb(pooled_conninfo);
  bool is_ok = PQstatus(conn) == CONNECTION_OK;
  PQfinish(conn);
  return is_ok;
}

static void start_pooler(const char *mode) {
  char path[STACK_PATH_BYTES + 32];
  char log[STACK_PATH_BYTES + 32];
  port_take(&port);
  (void)snprintf(path, sizeof path, "%s/pgbouncer.ini", stack->dir);
  (void)snprintf(log, sizeof log, "%s/pgbouncer.log", stack->dir);
  FILE *file = fopen(path, "w");
  REQUIRE(file != NULL, "cannot write %s", path);
  (void)fprintf(file,
                "[databases]\n" STACK_DATABASE " = host=127.0.0.1 port=%d user=" STACK_PG_USER
                "\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\n"
                "pool_mode = %s\nignore_startup_parameters = extra_float_digits,options,tcp_user_timeout\n",
                stack->pg_port.number, port.number, mode);
  REQUIRE(fclose(file) == 0, "cannot write %s", path);
  (void)snprintf(pooled_conninfo, sizeof pooled_conninfo, "host=127.0.0.1 port=%d user=" STACK_PG_USER " dbname=%s",
                 port.number, STACK_DATABASE);
  const char *const argv[] = {"/usr/sbin/pgbouncer", path, NULL};
  proc_start(&pooler, &(struct proc_spec){.name = "pgbouncer", .argv = argv, .stdout_path = log, .user = "postgres"});
  struct wait wait = wait_begin(END_MS);
  while (!answers()) {
    REQUIRE(wait_next(&wait), "pgbouncer does not answer");
  }
}

static void stop_pooler(void) {
  proc_stop(&pooler);
  port_release(&port);
}

static void fill(void) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 500, 50, 20);
  PQfinish(conn);
}

static void require_refusal(const char *mode) {
  fill();
  start_pooler(mode);
  struct relay *relay = relay_run_plain(stack, ARGS("run", "--until-empty", "--database", pooled_conninfo), END_MS);
  char *text = relay_text(relay);
  REQUIRE(relay_wait(relay, 0) == 1, "ended with %d, not 1: %s", relay_wait(relay, 0), text);
  REQUIRE(strstr(text, "pooling proxy") != NULL, "the message does not say why: %s", text);
  free(text);
  stop_pooler();
}

static void check_says_so(void **state) {
  (void)state;
  fill();
  start_pooler("transaction");
  struct relay *relay = relay_run_plain(stack, ARGS("check", "--database", pooled_conninfo), END_MS);
  char *text = relay_stdout(relay);
  REQUIRE(relay_wait(relay, 0) == 1 && strstr(text, "error    pooling_proxy ") != NULL &&
              strstr(text, "PostgreSQL itself") != NULL,
          "not found: %s", text);
  free(text);
  stop_pooler();
}

static void pooled_transactions_are_refused(void **state) {
  (void)state;
  require_refusal("transaction");
}

static void pooled_sessions_are_refused_too(void **state) {
  (void)state;
  require_refusal("session");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(pooled_transactions_are_refused),
      HARNESS_TEST(check_says_so),
      HARNESS_TEST(pooled_sessions_are_refused_too),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
