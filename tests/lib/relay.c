/*
 * The program under test: see relay.h.
 *
 * Owns: the list of relays of the running test.
 */
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "outboxd/options.h"
#include "roles.h"
#include "stack_impl.h"
#include "wait.h"

#define RELAYS_MAX 64
#define ARGS_MAX 96

struct relay {
  struct proc proc;
  int number;
  char log_path[STACK_PATH_BYTES];
  char out_path[STACK_PATH_BYTES];
  bool is_plain;
  off_t read_bytes; /* of the log: whole lines only */
  json_t *lines;
  bool *is_returned; /* beside lines: given out by relay_wait_log */
  size_t is_returned_n;
};

static struct relay *relays[RELAYS_MAX];
static int relays_n;
static int started_n; /* numbers the log files over the whole program */

static char *read_whole(const char *path, off_t from) {
  FILE *file = fopen(path, "re");
  char *text = NULL;
  size_t bytes = 0;
  char buf[65536];
  FILE *out;

  if (file == NULL) {
    FAIL("cannot read %s: %s", path, strerror(errno));
  }
  fseeko(file, from, SEEK_SET);
  out = open_memstream(&text, &bytes);
  if (out == NULL) {
    FAIL("out of memory");
  }
  for (size_t n = fread(buf, 1, sizeof buf, file); n > 0; n = fread(buf, 1, sizeof buf, file)) {
    fwrite(buf, 1, n, out);
  }
  fclose(file);
  if (fclose(out) != 0 || text == NULL) {
    FAIL("out of memory");
  }
  return text;
}

/* The last lines of every relay's log, for whoever reads the failure. */
static void print_tails(void) {
  for (int i = 0; i < relays_n; i++) {
    char *text = read_whole(relays[i]->log_path, 0);
    const char *tail = text + strlen(text);
    for (int lines_n = 0; tail > text && lines_n < 16; tail--) {
      if (tail[-1] == '\n') {
        lines_n++;
      }
      if (lines_n == 16) {
        break;
      }
    }
    fprintf(stderr, "--- relay %d (pid %d) logged last:\n%s", relays[i]->number, (int)relays[i]->proc.pid, tail);
    free(text);
  }
}

static bool has_argument(const char *const *args, const char *name) {
  for (; *args != NULL; args++) {
    if (strcmp(*args, name) == 0) {
      return true;
    }
  }
  return false;
}

/* Does a command take --redis? */
static bool takes_redis(const char *name) {
  const struct option_row *row = options_table();
  while (strcmp(row->name, "redis") != 0) {
    row++;
  }
  for (const struct command_row *command = options_commands(); command->name != NULL; command++) {
    if (name != NULL && strcmp(name, command->name) == 0) {
      return options_takes(row, (enum cfg_command)command->command);
    }
  }
  return false;
}

/* The binary whose name is the relay's with suffix behind it, or, when that begins with a slash, another one of the same build. */
static void find_binary(const char *suffix, char binary[STACK_PATH_BYTES]) {
  const char *set = getenv("OUTBOXD_BIN");
  const char *relay = set != NULL && set[0] != '\0' ? set : "build/outboxd";
  const char *slash = strrchr(relay, '/');
  int n = suffix[0] == '/' && slash != NULL ? (int)(slash - relay) : (int)strlen(relay);
  stack_print_path(binary, STACK_PATH_BYTES, "%.*s%s", n, relay, suffix);
}

static struct relay *start(const struct stack *stack, const char *suffix, const char *const *env,
                           const char *const *args, bool is_plain) {
  char binary[STACK_PATH_BYTES];
  const char *argv[ARGS_MAX];
  struct relay *relay;
  char conninfo[STACK_URL_BYTES];
  char redis_url[STACK_URL_BYTES];
  int n = 0;

  REQUIRE(relays_n < RELAYS_MAX, "more than %d relays in one test", RELAYS_MAX);
  find_binary(suffix, binary);
  argv[n++] = binary;
  for (const char *const *arg = args; *arg != NULL; arg++) {
    REQUIRE(n + 7 < ARGS_MAX, "too many arguments");
    argv[n++] = *arg;
  }
  stack_print_path(conninfo, sizeof conninfo, "%s", stack->conninfo);
  stack_print_path(redis_url, sizeof redis_url, "%s", stack->redis_url);
  if (!is_plain && suffix[0] != '/' && !has_argument(args, "--database") && roles_are_on()) {
    roles_prepare(stack, args, conninfo, redis_url);
    if (roles_is_relay(args) && !has_argument(args, "--no-cleanup")) {
      argv[n++] = "--no-cleanup";
    }
  }
  if (!is_plain && !has_argument(args, "--database")) {
    argv[n++] = "--database";
    argv[n++] = conninfo;
  }
  if (!is_plain && !has_argument(args, "--redis") && (suffix[0] == '/' || takes_redis(args[0]))) {
    argv[n++] = "--redis";
    argv[n++] = redis_url;
  }
  argv[n] = NULL;

  relay = calloc(1, sizeof *relay);
  if (relay == NULL) {
    FAIL("out of memory");
  }
  relay->number = ++started_n;
  relay->is_plain = is_plain;
  relay->lines = json_array();
  stack_print_path(relay->log_path, sizeof relay->log_path, "%s/relay-%d.log", stack->dir, relay->number);
  stack_print_path(relay->out_path, sizeof relay->out_path, "%s/relay-%d.out", stack->dir, relay->number);
  relays[relays_n++] = relay;
  fail_add_context(print_tails);
  proc_start(
      &relay->proc,
      &(struct proc_spec){
          .name = "outboxd", .argv = argv, .env = env, .stdout_path = relay->out_path, .stderr_path = relay->log_path});
  return relay;
}

struct relay *relay_start(const struct stack *stack, const char *const *args) {
  return start(stack, "", NULL, args, false);
}

struct relay *relay_start_variant(const struct stack *stack, const char *suffix, const char *const *args) {
  return start(stack, suffix, NULL, args, false);
}

struct relay *relay_start_consumer(const struct stack *stack, const char *const *args) {
  return start(stack, "/outbox-consume", NULL, args, false);
}

struct relay *relay_start_consumer_app(const struct stack *stack, const char *const *args) {
  return start(stack, "/tests/tools/consumer-app", NULL, args, false);
}

struct relay *relay_run_consumer_plain(const struct stack *stack, const char *const *args, int64_t timeout_ms) {
  struct relay *relay = start(stack, "/outbox-consume", NULL, args, false);
  relay->is_plain = true;
  relay_wait(relay, timeout_ms);
  return relay;
}

struct relay *relay_start_plain(const struct stack *stack, const char *const *env, const char *const *args) {
  return start(stack, "", env, args, true);
}

struct relay *relay_run_plain(const struct stack *stack, const char *const *args, int64_t timeout_ms) {
  struct relay *relay = start(stack, "", NULL, args, false);
  relay->is_plain = true;
  relay_wait(relay, timeout_ms);
  return relay;
}

pid_t relay_pid(const struct relay *relay) {
  return relay->proc.pid;
}

bool relay_is_running(struct relay *relay) {
  return proc_is_running(&relay->proc);
}

void relay_signal(struct relay *relay, int signum) {
  proc_signal(&relay->proc, signum);
}

static void add_line(struct relay *relay, const char *text, size_t bytes) {
  static const char *const required[] = {"ts", "level", "event", "message"};
  json_error_t error;
  json_t *line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);

  if (!json_is_object(line)) {
    FAIL("relay %d logged a line that is no JSON object (%s): %.*s", relay->number,
         line == NULL ? error.text : "another value", (int)bytes, text);
  }
  for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
    if (!json_is_string(json_object_get(line, required[i]))) {
      FAIL("relay %d logged a line without %s: %.*s", relay->number, required[i], (int)bytes, text);
    }
  }
  json_array_append_new(relay->lines, line);
}

/* Takes in what has been written since the last look; a line without its end is left for the next. */
static void look(struct relay *relay) {
  char *text;

  if (relay->is_plain) {
    return;
  }
  text = read_whole(relay->log_path, relay->read_bytes);
  for (const char *line = text;;) {
    const char *end = strchr(line, '\n');
    if (end == NULL) {
      break;
    }
    add_line(relay, line, (size_t)(end - line));
    relay->read_bytes += end - line + 1;
    line = end + 1;
  }
  free(text);
}

static bool has_event(const json_t *line, const char *event) {
  return event == NULL || strcmp(json_string_value(json_object_get(line, "event")), event) == 0;
}

static void note_returned(struct relay *relay, size_t index) {
  if (index >= relay->is_returned_n) {
    size_t n = index * 2 + 64;
    bool *grown = realloc(relay->is_returned, n * sizeof *grown);
    if (grown == NULL) {
      FAIL("out of memory");
    }
    memset(grown + relay->is_returned_n, 0, (n - relay->is_returned_n) * sizeof *grown);
    relay->is_returned = grown;
    relay->is_returned_n = n;
  }
  relay->is_returned[index] = true;
}

const json_t *relay_wait_log(struct relay *relay, const char *event, relay_predicate *is_match, const void *arg,
                             int64_t timeout_ms) {
  struct wait wait = wait_begin(timeout_ms);
  size_t index = 0;

  for (;;) {
    bool is_running = relay_is_running(relay);
    look(relay);
    for (; index < json_array_size(relay->lines); index++) {
      const json_t *line = json_array_get(relay->lines, index);
      if (index < relay->is_returned_n && relay->is_returned[index]) {
        continue;
      }
      if (!has_event(line, event) || (is_match != NULL && !is_match(line, arg))) {
        continue;
      }
      note_returned(relay, index);
      return line;
    }
    if (!is_running) {
      FAIL("relay %d ended (%d) without logging %s", relay->number, relay->proc.exit_status, event);
    }
    if (!wait_next(&wait)) {
      FAIL("relay %d has not logged %s after %lld ms", relay->number, event, (long long)wait_scaled_ms(timeout_ms));
    }
  }
}

int relay_count(struct relay *relay, const char *event) {
  size_t index;
  json_t *line;
  int n = 0;

  look(relay);
  json_array_foreach(relay->lines, index, line) {
    if (has_event(line, event)) {
      n++;
    }
  }
  return n;
}

const json_t *relay_lines(struct relay *relay) {
  look(relay);
  return relay->lines;
}

int64_t relay_sum(struct relay *relay, const char *event, const char *field) {
  const json_t *lines = relay_lines(relay);
  int64_t sum = 0;
  for (size_t i = 0; i < json_array_size(lines); i++) {
    const json_t *line = json_array_get(lines, i);
    if (strcmp(json_string_value(json_object_get(line, "event")), event) == 0) {
      sum += json_integer_value(json_object_get(line, field));
    }
  }
  return sum;
}

char *relay_text(struct relay *relay) {
  return read_whole(relay->log_path, 0);
}

char *relay_stdout(struct relay *relay) {
  return read_whole(relay->out_path, 0);
}

int relay_wait(struct relay *relay, int64_t timeout_ms) {
  if (!proc_wait(&relay->proc, timeout_ms)) {
    FAIL("relay %d does not end within %lld ms", relay->number, (long long)wait_scaled_ms(timeout_ms));
  }
  look(relay);
  return relay->proc.exit_status;
}

void relay_stop(struct relay *relay) {
  int status;
  relay_signal(relay, SIGTERM);
  status = relay_wait(relay, 60000);
  REQUIRE(status == 0, "relay %d ended with %d after a SIGTERM", relay->number, status);
}

void relay_kill(struct relay *relay) {
  relay_signal(relay, SIGKILL);
  relay_wait(relay, 10000);
}

static void end(struct relay *relay) {
  proc_stop(&relay->proc);
  json_decref(relay->lines);
  free(relay->is_returned);
  free(relay);
}

int relay_run_command(const struct stack *stack, const char *const *args, int64_t timeout_ms, char **out) {
  struct relay *relay = relay_run_plain(stack, args, timeout_ms);
  int status = relay_wait(relay, 1000);
  if (out != NULL) {
    *out = relay_stdout(relay);
    if ((*out)[0] == '\0') {
      free(*out);
      *out = relay_text(relay);
    }
  }
  relay_forget(&relay);
  return status;
}

void relay_require_says(const struct stack *stack, int wanted, const char *says, const char *const *args,
                        int64_t timeout_ms) {
  char *out = NULL;
  int status = relay_run_command(stack, args, timeout_ms, &out);
  REQUIRE(status == wanted, "exit status %d, not %d; it said: %s", status, wanted, out);
  REQUIRE(strstr(out, says) != NULL, "\"%s\" is not in: %s", says, out);
  free(out);
}

void relay_forget(struct relay **relay) {
  for (int i = 0; i < relays_n; i++) {
    if (relays[i] == *relay) {
      relays[i] = relays[--relays_n];
      break;
    }
  }
  end(*relay);
  *relay = NULL;
}

void relay_end_all(void) {
  while (relays_n > 0)
    end(relays[--relays_n]);
}
