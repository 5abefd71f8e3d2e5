/*
 * The watchdog: systemd hears that a relay is alive while its coordinator goes round, whatever the servers do, and only then.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "test_systemd.h"

#define WATCHDOG_MS 600
#define ALIVE_N 3 /* keep-alives that are waited for */

static void require_alive(const char *when) {
  int before_n = manager_count(manager, "WATCHDOG=1");
  manager_wait(manager, "WATCHDOG=1", before_n + ALIVE_N, WAIT_MS);
  printf("alive %s\n", when);
}

/* Idle without a poll to wake it, then with each server killed or hanging under load. */
static void test_alive_through_outages(void **state) {
  PGconn *conn = open_table();
  (void)state;
  manager = manager_start(socket_path(), WATCHDOG_MS);
  struct relay *relay = relay_start(stack, ARGS("run", "--poll-interval", "100ms", "--redis-timeout", "30s"));
  manager_wait(manager, "READY=1", 1, WAIT_MS);
  require_alive("while idle");

  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 10);
  require_alive("while Redis hangs");
  stack_redis_kill(stack);
  manager_wait_status(manager, "Redis does not answer; ", WAIT_MS);
  require_alive("while Redis is away");
  stack_redis_restart(stack);
  wait_no_pending(conn, TABLE, 10, WAIT_MS);
  manager_wait_status(manager, "16 of 16 lanes", WAIT_MS);

  PQfinish(conn);
  stack_pg_freeze(stack);
  require_alive("while PostgreSQL hangs");
  stack_pg_kill(stack);
  manager_wait_status(manager, "PostgreSQL does not answer; ", WAIT_MS);
  require_alive("while PostgreSQL is away");
  stack_pg_restart(stack);
  WAIT_FOR(WAIT_MS, strncmp(manager_status(manager), "16 of 16 lanes", 14) == 0, "the status is \"%s\"",
           manager_status(manager));
  relay_stop(relay);
  REQUIRE(manager_count(manager, "READY=1") == 1, "ready more than once");
}

static pid_t find_thread(pid_t pid, const char *name) {
  char path[300], comm[32];
  pid_t found = 0;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  if (tasks == NULL) {
    FAIL("cannot read %s: %s", path, strerror(errno));
  }
  for (struct dirent *task = readdir(tasks); task != NULL && found == 0; task = readdir(tasks)) {
    snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)pid, task->d_name);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(comm, sizeof comm, file) != NULL && strncmp(comm, name, strlen(name)) == 0) {
      found = (pid_t)strtol(task->d_name, NULL, 10);
    }
    if (file != NULL) {
      fclose(file);
    }
  }
  closedir(tasks);
  return found;
}

/* Only the coordinator stands still, as a debugger can make it: the main thread goes on, and must not vouch for it. */
static void test_hung_coordinator_is_not_vouched_for(void **state) {
  PGconn *conn = open_table();
  int status;
  (void)state;
  manager = manager_start(socket_path(), WATCHDOG_MS);
  struct relay *relay = relay_start(stack, ARGS("run", "--stats-every", "100ms"));
  manager_wait(manager, "READY=1", 1, WAIT_MS);
  pid_t thread = find_thread(relay_pid(relay), "coordinator");
  REQUIRE(thread > 0, "there is no thread \"coordinator\"");
  if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0 || ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0) {
    FAIL("cannot stop a thread: %s", strerror(errno));
  }
  REQUIRE(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status), "the thread does not stop");
  int stats_n = relay_count(relay, "stats");
  int before_n = manager_count(manager, "WATCHDOG=1");
  wait_out(5 * WATCHDOG_MS);
  /* One may be for the last turn before it. */
  int after_n = manager_count(manager, "WATCHDOG=1");
  REQUIRE(after_n <= before_n + 1, "%d keep-alives for a thread that stands still", after_n - before_n);
  WAIT_FOR(WAIT_MS, relay_count(relay, "stats") > stats_n, "the main thread stands still too");
  REQUIRE(ptrace(PTRACE_DETACH, thread, NULL, NULL) == 0, "cannot let it go on: %s", strerror(errno));
  require_alive("after it went on");
  relay_stop(relay);
  PQfinish(conn);
}

static void test_stopped_process_is_silent(void **state) {
  PGconn *conn = open_table();
  (void)state;
  manager = manager_start(socket_path(), WATCHDOG_MS);
  struct relay *relay = relay_start(stack, ARGS("run"));
  manager_wait(manager, "READY=1", 1, WAIT_MS);
  require_alive("before");
  relay_signal(relay, SIGSTOP);
  WAIT_FOR(WAIT_MS, waitid(P_PID, (id_t)relay_pid(relay), &(siginfo_t){0}, WSTOPPED | WNOWAIT) == 0, "not stopped");
  int before_n = manager_count(manager, "WATCHDOG=1");
  wait_out(5 * WATCHDOG_MS);
  REQUIRE(manager_count(manager, "WATCHDOG=1") == before_n, "a stopped process says that it is alive");
  relay_signal(relay, SIGCONT);
  require_alive("again");
  relay_stop(relay);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SYSTEMD_TEST(test_alive_through_outages),
      SYSTEMD_TEST(test_hung_coordinator_is_not_vouched_for),
      SYSTEMD_TEST(test_stopped_process_is_silent),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
