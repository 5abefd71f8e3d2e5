/*
 * What the programs about scripts/upgrade-to-partitioned.sh share: to run it, and what it leaves.
 *
 * A header only, like harness.h.
 */
#ifndef TEST_UPGRADE_H
#define TEST_UPGRADE_H

#include "harness.h"

#include <string.h>

#include "db.h"
#include "roles.h"
#include "wait.h"

#define SCRIPT "scripts/upgrade-to-partitioned.sh"
#define TABLE "outbox_messages"
#define SCRIPT_MS 120000
#define WAIT_MS 60000
#define IS_PARTITIONED "SELECT (relkind = 'p')::int FROM pg_class WHERE oid = '" TABLE "'::regclass"
#define HAS_BOUND "SELECT count(*) FROM pg_constraint WHERE conname = 'outboxd_bound'"

static struct stack *stack;

/* A run of the script; what it says goes to a file of its own. */
struct run {
  struct proc proc;
  char path[STACK_PATH_BYTES + 32];
};

static inline void start_script(struct run *run, const char *table, const char *option, const char *more) {
  static int runs_n;
  char path[ROLES_PATH_BYTES];
  const char *program = getenv("OUTBOXD_BIN");
  const char *const env[] = {path, NULL};
  const char *const argv[] = {SCRIPT,
                              "--database",
                              stack->conninfo,
                              "--table",
                              table,
                              "--outboxd",
                              program != NULL ? program : "build/outboxd",
                              option,
                              more,
                              NULL};
  roles_path(stack, path);
  (void)snprintf(run->path, sizeof run->path, "%s/upgrade.%d", stack->dir, runs_n++);
  proc_start(&run->proc, &(struct proc_spec){.name = "upgrade", .argv = argv, .env = env, .stdout_path = run->path});
}

/* What it has said so far, until the next call. */
static inline char *said(const struct run *run) {
  static char text[32768];
  FILE *file = fopen(run->path, "re");
  size_t n = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  text[n] = '\0';
  if (file != NULL) {
    (void)fclose(file);
  }
  return text;
}

static inline void wait_script(struct run *run, int expected) {
  REQUIRE(proc_wait(&run->proc, SCRIPT_MS), "the script does not end: %s", said(run));
  REQUIRE(run->proc.exit_status == expected, "exit status %d instead of %d: %s", run->proc.exit_status, expected,
          said(run));
}

static inline void run_script(const char *table, const char *option, int expected, const char *says) {
  static struct run run;
  start_script(&run, table, option, NULL);
  wait_script(&run, expected);
  REQUIRE(strstr(said(&run), says) != NULL, "it does not say \"%s\": %s", says, said(&run));
}

static inline void drain(const char *table) {
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--table", table));
  REQUIRE(relay_wait(relay, WAIT_MS) == 0, "the relay fails");
}

#endif
