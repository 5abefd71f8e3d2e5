/*
 * The private PostgreSQL of a stack: see stack.h.
 *
 * initdb takes seconds, so it runs once a version; its result is kept below $TEST_CACHE (build/cache) and copied from there.
 */
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db.h"
#include "fail.h"
#include "stack.h"
#include "stack_impl.h"
#include "wait.h"

/* PostgreSQL refuses to run as root. */
#define SERVER_USER "postgres"
#define READY_MS 60000
#define BACKENDS_MAX 512
#define ARGS_MAX 128

static void find_bin(char out[STACK_PATH_BYTES]) {
  const char *given = getenv("TEST_PG_BIN");
  glob_t found;
  long best = -1;

  if (given != NULL && given[0] != '\0') {
    stack_print_path(out, STACK_PATH_BYTES, "%s", given);
    return;
  }
  if (glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++) {
      long version = strtol(found.gl_pathv[i] + strlen("/usr/lib/postgresql/"), NULL, 10);
      if (version <= best) {
        continue;
      }
      best = version;
      stack_print_path(out, STACK_PATH_BYTES, "%.*s", (int)(strlen(found.gl_pathv[i]) - strlen("/postgres")),
                       found.gl_pathv[i]);
    }
    globfree(&found);
  }
  if (best >= 0) {
    return;
  }
  const char *path = getenv("PATH");
  while (path != NULL && *path != '\0') {
    size_t length = strcspn(path, ":");
    char program[STACK_PATH_BYTES + 16];
    stack_print_path(out, STACK_PATH_BYTES, "%.*s", (int)length, path);
    snprintf(program, sizeof program, "%s/postgres", out);
    if (access(program, X_OK) == 0) {
      return;
    }
    path += length;
    if (*path == ':') {
      path++;
    }
  }
  FAIL("no PostgreSQL server found: set TEST_PG_BIN to the directory of its programs");
}

/* "15.4" out of "postgres (PostgreSQL) 15.4 (Debian ...)". */
static void read_version(const char *bin, char *out, size_t n) {
  char command[STACK_PATH_BYTES + 32];
  char line[256] = "";
  FILE *pipe;

  snprintf(command, sizeof command, "%s/postgres --version", bin);
  pipe = popen(command, "re");
  if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL) {
    FAIL("cannot run %s", command);
  }
  pclose(pipe);
  const char *version = strstr(line, ") ");
  if (version == NULL) {
    FAIL("%s says: %s", command, line);
  }
  snprintf(out, n, "%.*s", (int)strspn(version + 2, "0123456789."), version + 2);
}

static void run_or_fail(const char *const *argv, const char *user, const char *log_path) {
  int status =
      proc_run(&(struct proc_spec){.name = argv[0], .argv = argv, .stdout_path = log_path, .user = user}, 120000);
  if (status != 0) {
    FAIL("%s ended with status %d, see %s", argv[0], status, log_path);
  }
}

/* Keeps a copy for the next program; another one may be doing the same just now. */
static void keep_template(const char *data, const char *cache, const char *template, const char *log_path) {
  char mine[STACK_PATH_BYTES];

  stack_print_path(mine, sizeof mine, "%s.%d", template, (int)getpid());
  run_or_fail((const char *[]){"mkdir", "-p", cache, NULL}, NULL, log_path);
  run_or_fail((const char *[]){"cp", "-a", data, mine, NULL}, NULL, log_path);
  if (rename(mine, template) != 0) {
    run_or_fail((const char *[]){"rm", "-rf", mine, NULL}, NULL, log_path);
  }
}

static void make_data_dir(const struct stack *stack) {
  const char *cache = getenv("TEST_CACHE");
  char version[32], template[STACK_PATH_BYTES], data[STACK_PATH_BYTES], initdb[STACK_PATH_BYTES],
      log_path[STACK_PATH_BYTES];

  if (cache == NULL || cache[0] == '\0') {
    cache = "build/cache";
  }
  read_version(stack->pg_bin, version, sizeof version);
  stack_print_path(template, sizeof template, "%s/pgdata-%s-%d", cache, version, (int)geteuid());
  stack_print_path(data, sizeof data, "%s/data", stack->pg_dir);
  stack_print_path(initdb, sizeof initdb, "%s/initdb", stack->pg_bin);
  stack_print_path(log_path, sizeof log_path, "%s/initdb.log", stack->dir);
  if (access(template, F_OK) == 0) {
    run_or_fail((const char *[]){"cp", "-a", template, data, NULL}, NULL, log_path);
    return;
  }
  run_or_fail((const char *[]){initdb, "-D", data, "-U", STACK_PG_USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
                               "--no-sync", NULL},
              SERVER_USER, log_path);
  keep_template(data, cache, template, log_path);
}

/* What makes libfaketime take its offset from a file, at each reading of the clock.  Monotonic time stays what it is: timeouts are no dates. */
#define CLOCK_ENV_N 4
#define CLOCK_ENV_BYTES (STACK_PATH_BYTES + 64)

static void find_clock(const struct stack *stack, char env[CLOCK_ENV_N][CLOCK_ENV_BYTES]) {
  glob_t found;
  if (glob("/usr/lib/*/faketime/libfaketime.so.1", 0, NULL, &found) != 0) {
    FAIL("there is no libfaketime: install the package faketime");
  }
  snprintf(env[0], CLOCK_ENV_BYTES, "LD_PRELOAD=%s", found.gl_pathv[0]);
  snprintf(env[1], CLOCK_ENV_BYTES, "FAKETIME_TIMESTAMP_FILE=%s/clock", stack->dir);
  snprintf(env[2], CLOCK_ENV_BYTES, "FAKETIME_NO_CACHE=1");
  snprintf(env[3], CLOCK_ENV_BYTES, "DONT_FAKE_MONOTONIC=1");
  globfree(&found);
}

/* By rename: a reader finds the old text or the new. */
void stack_pg_set_clock(struct stack *stack, double ahead_seconds) {
  char path[STACK_PATH_BYTES], fresh[STACK_PATH_BYTES], text[64];
  stack_print_path(path, sizeof path, "%s/clock", stack->dir);
  stack_print_path(fresh, sizeof fresh, "%s/clock.new", stack->dir);
  snprintf(text, sizeof text, "%+.6f\n", ahead_seconds);
  stack_write_file(fresh, text);
  REQUIRE(chmod(fresh, 0644) == 0 && rename(fresh, path) == 0, "cannot set the clock: %s", strerror(errno));
}

/* Starts the server process on the port it has. */
static void launch(struct stack *stack) {
  const char *argv[ARGS_MAX];
  char program[STACK_PATH_BYTES], data[STACK_PATH_BYTES], log_path[STACK_PATH_BYTES], number[16];
  char socket_setting[STACK_PATH_BYTES + 64];
  char clock[CLOCK_ENV_N][CLOCK_ENV_BYTES];
  const char *const clock_env[] = {clock[0], clock[1], clock[2], clock[3], NULL};
  const char *const defaults[] = {"listen_addresses=127.0.0.1", "timezone=America/St_Johns",
                                  "log_min_messages=warning",   "log_line_prefix=%m [%p] %a ",
                                  "max_wal_size=4GB",           "shared_buffers=256MB"};
  int n = 0;

  stack_print_path(program, sizeof program, "%s/postgres", stack->pg_bin);
  stack_print_path(data, sizeof data, "%s/data", stack->pg_dir);
  stack_print_path(log_path, sizeof log_path, "%s/postgres.log", stack->dir);
  stack_print_path(socket_setting, sizeof socket_setting, "unix_socket_directories=%s", stack->pg_dir);
  snprintf(number, sizeof number, "%d", stack->pg_port.number);
  argv[n++] = program;
  argv[n++] = "-D";
  argv[n++] = data;
  argv[n++] = "-p";
  argv[n++] = number;
  argv[n++] = "-c";
  argv[n++] = socket_setting;
  argv[n++] = "-c";
  argv[n++] = stack->options.has_fsync ? "fsync=on" : "fsync=off";
  for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
    argv[n++] = "-c";
    argv[n++] = defaults[i];
  }
  for (const char *const *setting = stack->options.pg_settings; setting != NULL && *setting != NULL; setting++) {
    REQUIRE(n + 3 < ARGS_MAX, "too many settings");
    argv[n++] = "-c";
    argv[n++] = *setting;
  }
  argv[n] = NULL;
  if (stack->options.has_clock) {
    find_clock(stack, clock);
  }
  proc_start(&stack->pg, &(struct proc_spec){.name = "postgres",
                                             .argv = argv,
                                             .env = stack->options.has_clock ? clock_env : NULL,
                                             .stdout_path = log_path,
                                             .user = SERVER_USER,
                                             .stop_signal = SIGQUIT});
}

/* Waits until it takes connections; false when it ended instead (a port taken meanwhile, memory of a killed one still in use). */
static bool is_coming_up(struct stack *stack) {
  char admin[STACK_URL_BYTES];
  struct wait wait = wait_begin(READY_MS);

  stack_conninfo(stack, STACK_PG_USER, "postgres", admin);
  for (;;) {
    PGconn *conn = PQconnectdb(admin);
    bool is_ready = PQstatus(conn) == CONNECTION_OK;
    PQfinish(conn);
    if (is_ready) {
      return true;
    }
    if (!proc_is_running(&stack->pg)) {
      return false;
    }
    if (!wait_next(&wait)) {
      FAIL("PostgreSQL does not come up, see %s/postgres.log", stack->dir);
    }
  }
}

void stack_pg_init(struct stack *stack) {
  find_bin(stack->pg_bin);
  stack_make_dir(stack, "pg", SERVER_USER, stack->pg_dir);
  make_data_dir(stack);
  if (stack->options.has_clock) {
    stack_pg_set_clock(stack, 0);
  }
  if (stack->options.pg_hba != NULL) {
    char path[STACK_PATH_BYTES];
    stack_print_path(path, sizeof path, "%s/data/pg_hba.conf", stack->pg_dir);
    stack_write_file(path, stack->options.pg_hba);
  }
  for (int attempt = 0; attempt < 5; attempt++) {
    port_take(&stack->pg_port);
    launch(stack);
    if (is_coming_up(stack)) {
      stack_conninfo(stack, STACK_PG_USER, STACK_DATABASE, stack->conninfo);
      return;
    }
    port_release(&stack->pg_port);
  }
  FAIL("PostgreSQL does not start, see %s/postgres.log", stack->dir);
}

static int list_backends(const struct stack *stack, pid_t pids[BACKENDS_MAX]) {
  int n = proc_children(stack->pg.pid, pids, BACKENDS_MAX);
  REQUIRE(n <= BACKENDS_MAX, "more than %d backends", BACKENDS_MAX);
  return n;
}

void stack_pg_kill(struct stack *stack) {
  pid_t pids[BACKENDS_MAX];
  int n;

  /* A stopped server starts no new backend, so that the list is complete. */
  proc_signal(&stack->pg, SIGSTOP);
  n = list_backends(stack, pids);
  proc_signal(&stack->pg, SIGKILL);
  for (int i = 0; i < n; i++) {
    kill(pids[i], SIGKILL);
  }
  REQUIRE(proc_wait(&stack->pg, 10000), "PostgreSQL survives a SIGKILL");
  for (int i = 0; i < n; i++) {
    WAIT_FOR(10000, proc_threads_n(pids[i]) == 0, "a backend survives a SIGKILL");
  }
  stack->is_pg_frozen = false;
}

void stack_pg_shutdown(struct stack *stack) {
  proc_signal(&stack->pg, SIGINT);
  REQUIRE(proc_wait(&stack->pg, 60000), "PostgreSQL does not shut down");
}

void stack_pg_restart(struct stack *stack) {
  struct wait wait = wait_begin(READY_MS);
  do {
    launch(stack);
    if (is_coming_up(stack)) {
      return;
    }
  } while (wait_next(&wait));
  FAIL("PostgreSQL does not start again, see %s/postgres.log", stack->dir);
}

void stack_pg_freeze(struct stack *stack) {
  pid_t pids[BACKENDS_MAX];
  proc_signal(&stack->pg, SIGSTOP);
  int n = list_backends(stack, pids);
  for (int i = 0; i < n; i++) {
    kill(pids[i], SIGSTOP);
  }
  stack->is_pg_frozen = true;
}

void stack_pg_thaw(struct stack *stack) {
  pid_t pids[BACKENDS_MAX];
  int n = list_backends(stack, pids);
  for (int i = 0; i < n; i++) {
    kill(pids[i], SIGCONT);
  }
  proc_signal(&stack->pg, SIGCONT);
  stack->is_pg_frozen = false;
}
