/*
 * Progress: what stands on a terminal (a pseudo-terminal of 80 columns) while a replay, an index or --until-empty takes its time, and what goes into a
 * file instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "db.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define COMMAND_MS 60000
#define WIPE "\r\033[K"

static struct stack *stack;

struct terminal {
  int fd; /* the side that a person sees */
  char path[64];
  char seen[1 << 18];
  size_t seen_n;
};

static struct terminal terminal;

static void terminal_open(void) {
  const struct winsize size = {.ws_row = 24, .ws_col = 80};
  terminal.seen_n = 0;
  terminal.seen[0] = '\0';
  terminal.fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  REQUIRE(terminal.fd >= 0 && grantpt(terminal.fd) == 0 && unlockpt(terminal.fd) == 0 &&
              ptsname_r(terminal.fd, terminal.path, sizeof terminal.path) == 0 &&
              ioctl(terminal.fd, TIOCSWINSZ, &size) == 0,
          "no pseudo-terminal: %s", strerror(errno));
}

/* Takes in what has been written; true when text is among all of it. */
static bool terminal_shows(const char *text) {
  ssize_t n;
  while (terminal.seen_n + 1 < sizeof terminal.seen &&
         (n = read(terminal.fd, terminal.seen + terminal.seen_n, sizeof terminal.seen - terminal.seen_n - 1)) > 0) {
    terminal.seen_n += (size_t)n;
  }
  terminal.seen[terminal.seen_n] = '\0';
  return strstr(terminal.seen, text) != NULL;
}

/* A command with the terminal as its stderr; stdout goes into a file. */
static void start_on_terminal(struct proc *proc, const char *const *args) {
  static char database[STACK_URL_BYTES + 16];
  static char redis[STACK_URL_BYTES + 16];
  const char *binary = getenv("OUTBOXD_BIN");
  const char *argv[32] = {binary != NULL && binary[0] != '\0' ? binary : "build/outboxd"};
  char out_path[STACK_PATH_BYTES + 16];
  for (int i = 0; args[i] != NULL; i++) {
    argv[i + 1] = args[i];
  }
  snprintf(database, sizeof database, "DATABASE_URL=%s", stack->conninfo);
  snprintf(redis, sizeof redis, "REDIS_URL=%s", stack->redis_url);
  snprintf(out_path, sizeof out_path, "%s/terminal.out", stack->dir);
  const char *const env[] = {database, redis, "TERM=xterm", NULL};
  proc_start(proc,
             &(struct proc_spec){
                 .name = "outboxd", .argv = argv, .env = env, .stdout_path = out_path, .stderr_path = terminal.path});
}

/* Reads on until it has ended. */
static int wait_on_terminal(struct proc *proc) {
  WAIT_FOR(COMMAND_MS, (terminal_shows(""), !proc_is_running(proc)), "it does not end; the terminal shows: %s",
           terminal.seen);
  (void)terminal_shows("");
  close(terminal.fd);
  return proc->exit_status;
}

/* Every line that was drawn fits into 80 columns, and the last thing done with the last one is to wipe it. */
static void require_lines_fit(void) {
  const char *last = NULL;
  int lines_n = 0;
  for (const char *at = strstr(terminal.seen, WIPE); at != NULL; at = strstr(at + 1, WIPE)) {
    size_t n = strcspn(at + strlen(WIPE), "\r\n");
    const char *line = at + strlen(WIPE);
    if (n > 0 && line[0] != '{') {
      REQUIRE(n < 80, "%zu columns: %.*s", n, (int)n, line);
      lines_n++;
    }
    last = line;
  }
  REQUIRE(lines_n > 0, "nothing was drawn: %s", terminal.seen);
  /* What is left after it is not progress. */
  REQUIRE(strstr(last, "% ") == NULL && strstr(last, "/s ") == NULL, "the line was left on the terminal: %s", last);
}

static void test_replay_on_a_terminal(void **state) {
  (void)state;
  struct proc proc = {0};
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT, TABLE);
  table_fill(conn, TABLE_INIT, TABLE, 200, 20, 10);
  db_exec(conn, "UPDATE " TABLE " SET published_at = now()");
  terminal_open();
  start_on_terminal(&proc, ARGS("replay", "--all", "--rate", "100"));
  WAIT_FOR(COMMAND_MS, terminal_shows("of 200  "), "no progress: %s", terminal.seen);
  assert_int_equal(wait_on_terminal(&proc), 0);
  REQUIRE(strstr(terminal.seen, WIPE "replay  [") != NULL && strstr(terminal.seen, " left") != NULL, "it shows: %s",
          terminal.seen);
  require_lines_fit();
  PQfinish(conn);
}

static void test_replay_into_a_file(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  char database[STACK_URL_BYTES + 16];
  char redis[STACK_URL_BYTES + 16];
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 130, 20, 10);
  db_exec(conn, "UPDATE " TABLE " SET published_at = now()");
  snprintf(database, sizeof database, "DATABASE_URL=%s", stack->conninfo);
  snprintf(redis, sizeof redis, "REDIS_URL=%s", stack->redis_url);
  const char *const env[] = {database, redis, NULL};
  /* At least 6.5 seconds: a line comes after five. */
  struct relay *replay = relay_start_plain(stack, env, ARGS("replay", "--all", "--rate", "20"));
  assert_int_equal(relay_wait(replay, COMMAND_MS), 0);
  char *said = relay_text(replay);
  REQUIRE(strncmp(said, "outboxd: replay: ", 17) == 0 && strstr(said, " of 130, ") != NULL &&
              strchr(said, '\r') == NULL && strchr(said, '\033') == NULL,
          "it said: %s", said);
  free(said);
  PQfinish(conn);
}

/* An index that cannot go on: it waits for a writer, which pg_stat_progress_create_index tells of. */
static void test_index_on_a_terminal(void **state) {
  (void)state;
  struct proc proc = {0};
  PGconn *conn = db_open(stack->conninfo);
  PGconn *writer = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 20, 10);
  char *index = db_text(conn, "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = '" TABLE
                              "'::regclass AND indpred IS NOT NULL");
  db_exec(conn, "DROP INDEX %s", index);
  db_exec(writer, "BEGIN; INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                  "VALUES (gen_random_uuid(), 'a', 'b', 'c', '{}')");
  terminal_open();
  start_on_terminal(&proc, ARGS("init", "--plain"));
  WAIT_FOR(COMMAND_MS, terminal_shows("waiting for writers"), "no progress: %s", terminal.seen);
  db_exec(writer, "COMMIT");
  assert_int_equal(wait_on_terminal(&proc), 0);
  REQUIRE(strstr(terminal.seen, "index on public.outbox_messages: waiting for writers") != NULL, "it shows: %s",
          terminal.seen);
  require_lines_fit();
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_index WHERE indrelid = '" TABLE
                                "'::regclass AND indpred IS NOT NULL AND indisvalid"),
                   1);
  free(index);
  PQfinish(writer);
  PQfinish(conn);
}

/* Log lines and progress share the terminal: each log line is whole. */
static void test_until_empty_on_a_terminal(void **state) {
  (void)state;
  struct proc proc = {0};
  PGconn *conn = db_open(stack->conninfo);
  PGconn *holder = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 500, 20, 10);
  db_exec(holder, "BEGIN; SELECT FROM " TABLE " WHERE id = 500 FOR UPDATE");
  terminal_open();
  start_on_terminal(&proc, ARGS("run", "--until-empty", "--no-cleanup", "--stats-every", "200ms"));
  WAIT_FOR(COMMAND_MS, terminal_shows(" of 500  "), "no progress: %s", terminal.seen);
  db_exec(holder, "COMMIT");
  assert_int_equal(wait_on_terminal(&proc), 0);
  require_lines_fit();
  REQUIRE(strstr(terminal.seen, WIPE "until empty  ") != NULL, "it shows: %s", terminal.seen);
  int log_n = 0;
  for (const char *at = strstr(terminal.seen, "{\"ts\":"); at != NULL; at = strstr(at + 1, "{\"ts\":")) {
    json_error_t error;
    json_t *line = json_loadb(at, strcspn(at, "\r\n"), 0, &error);
    REQUIRE(line != NULL, "a log line is torn (%s): %.*s", error.text, (int)strcspn(at, "\n"), at);
    json_decref(line);
    log_n++;
  }
  assert_true(log_n > 3);
  PQfinish(holder);
  PQfinish(conn);
}

/* Without a terminal the log stays as it is. */
static void test_until_empty_into_a_file(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 500, 20, 10);
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup"));
  assert_int_equal(relay_wait(relay, COMMAND_MS), 0);
  char *text = relay_text(relay); /* relay_wait has looked at each line: JSON */
  REQUIRE(strchr(text, '\r') == NULL && strstr(text, "until empty") == NULL, "it said: %s", text);
  free(text);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_replay_on_a_terminal),    HARNESS_TEST(test_replay_into_a_file),
      HARNESS_TEST(test_index_on_a_terminal),     HARNESS_TEST(test_until_empty_on_a_terminal),
      HARNESS_TEST(test_until_empty_into_a_file),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
