/*
 * A log that nobody reads, or that goes nowhere, stops no relay.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000

static struct stack *stack;

static const char *binary(void) {
  const char *path = getenv("OUTBOXD_BIN");
  return path != NULL && path[0] != '\0' ? path : "build/outboxd";
}

/* The pipe stays full for as long as the relay works, then it is read: what is missing is told. */
static void test_full_pipe_does_not_stop_the_relay(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  char path[STACK_PATH_BYTES + 16];
  static char text[1 << 20];
  static struct proc relay; /* when the test fails it is ended at exit */
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  (void)snprintf(path, sizeof path, "%s/log.fifo", stack->dir);
  REQUIRE(mkfifo(path, 0600) == 0, "mkfifo: %s", strerror(errno));
  int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* O_RDWR: opening waits for no writer */
  REQUIRE(fd >= 0 && fcntl(fd, F_SETPIPE_SZ, 4096) >= 4096, "the pipe: %s", strerror(errno));
  proc_start(&relay, &(struct proc_spec){.name = "outboxd",
                                         .argv = (const char *const[]){binary(), "run", "--database", stack->conninfo,
                                                                       "--redis", stack->redis_url, "--stats-every",
                                                                       "100ms", "--no-cleanup", NULL},
                                         .stderr_path = path,
                                         .stop_signal = SIGTERM});
  for (int i = 0; i < 5; i++) {
    table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
    wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  }
  /* A stats line every 100 ms of about 1 KB: the pipe has been full for long. */
  wait_out(1000);
  size_t n = 0;
  struct wait wait = wait_begin(DRAIN_MS);
  while (strstr(text, "\"event\":\"log_lines_lost\"") == NULL) {
    REQUIRE(wait_next(&wait), "the lost lines are not told of: %s", text);
    ssize_t got = read(fd, text + n, sizeof text - 1 - n);
    n += got > 0 ? (size_t)got : 0;
    text[n] = '\0';
  }
  /* It ends, too, with nobody reading. */
  proc_signal(&relay, SIGTERM);
  REQUIRE(proc_wait(&relay, DRAIN_MS) && relay.exit_status == 0, "the relay ends with %d", relay.exit_status);
  (void)close(fd);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* 2>&-: the descriptor's number must not become a connection's. */
static void test_closed_descriptors_do_not_become_connections(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
  int status =
      proc_run(&(struct proc_spec){.name = "outboxd",
                                   .argv = (const char *const[]){"sh", "-c", "exec \"$0\" \"$@\" 0<&- 1>&- 2>&-",
                                                                 binary(), "run", "--database", stack->conninfo,
                                                                 "--redis", stack->redis_url, "--stats-every", "100ms",
                                                                 "--until-empty", "--no-cleanup", NULL}},
               DRAIN_MS);
  REQUIRE(status == 0, "the relay ends with %d", status);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* The reader ends while the relay runs: no SIGPIPE. */
static void test_reader_that_goes_away_does_not_end_the_relay(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
  int status = proc_run(
      &(struct proc_spec){
          .name = "sh",
          .argv = (const char *const[]){"bash", "-c", "set -o pipefail; \"$0\" \"$@\" 2>&1 >/dev/null | head -n 1",
                                        binary(), "run", "--database", stack->conninfo, "--redis", stack->redis_url,
                                        "--stats-every", "100ms", "--until-empty", "--no-cleanup", NULL}},
      DRAIN_MS);
  REQUIRE(status == 0, "the relay ends with %d", status);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_full_pipe_does_not_stop_the_relay),
      HARNESS_TEST(test_closed_descriptors_do_not_become_connections),
      HARNESS_TEST(test_reader_that_goes_away_does_not_end_the_relay),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
