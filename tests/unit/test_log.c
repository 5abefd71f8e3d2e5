/*
 * log: what goes to stderr, as a reader of the lines sees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "unit.h"

#define CAPTURE_BYTES 65536
#define THREADS_N 4
#define LINES_N 500

static int saved_stderr = -1;
static FILE *capture_file;

/* From here to captured(), stderr goes to a file. */
static void capture(void) {
  capture_file = tmpfile();
  assert_non_null(capture_file);
  saved_stderr = dup(STDERR_FILENO);
  assert_true(saved_stderr >= 0);
  assert_true(dup2(fileno(capture_file), STDERR_FILENO) >= 0);
}

/* From here to restore(), stderr is fd, which is used up. */
static void redirect(int fd) {
  saved_stderr = dup(STDERR_FILENO);
  assert_true(saved_stderr >= 0);
  assert_true(dup2(fd, STDERR_FILENO) >= 0);
  (void)close(fd);
}

/* stderr is what it was; the log has let go of what it was since. */
static void restore(void) {
  assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
  (void)close(saved_stderr);
  log_setup(LOG_INFO, LOG_JSON);
}

/* What was written since capture(); the buffer is overwritten by the next call. */
static const char *captured(void) {
  static char text[CAPTURE_BYTES];
  assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
  (void)close(saved_stderr);
  rewind(capture_file);
  size_t n = fread(text, 1, sizeof text - 1, capture_file);
  text[n] = '\0';
  (void)fclose(capture_file);
  return text;
}

/* Lets the log tell of the lines a test made it lose, so that the next test starts afresh. */
static void flush_lost(void) {
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  log_write(LOG_INFO, "e", "m", NULL);
  assert_contains(captured(), "\"event\":\"log_lines_lost\"");
}

/* One line of JSON, parsed strictly. */
static json_t *parse_line(const char *line) {
  json_error_t error;
  size_t len = strlen(line);
  assert_true(len > 0 && line[len - 1] == '\n');
  assert_ptr_equal(strchr(line, '\n'), line + len - 1);
  json_t *json = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);
  if (json == NULL) {
    fail_msg("not JSON: %s: %s", error.text, line);
  }
  return json;
}

static const char *get_string(const json_t *json, const char *name) {
  const char *value = json_string_value(json_object_get(json, name));
  if (value == NULL) {
    fail_msg("no string %s", name);
  }
  return value;
}

/* Logs value as JSON and gives it back as a reader of the line gets it; caller frees. */
static char *round_trip(const char *value) {
  capture();
  log_setup(LOG_DEBUG, LOG_JSON);
  log_event(LOG_INFO, "test_event", "a test", LOG_STR("value", value));
  json_t *json = parse_line(captured());
  char *got = strdup(get_string(json, "value"));
  json_decref(json);
  return got;
}

static void json_has_all_fields_in_order(void **state) {
  (void)state;
  static const int64_t depths[] = {3, 0, INT64_MIN};
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  log_event(LOG_WARNING, "stats", "how it goes", LOG_STR("name", "n"), LOG_STR("nothing", NULL), LOG_INT("count", -5),
            LOG_REAL("rate_per_second", 0.25), LOG_BOOL("is_idle", true), LOG_INTS("depths", depths, 3),
            LOG_INTS("none", NULL, 0));
  const char *line = captured();
  json_t *json = parse_line(line);
  assert_string_equal(get_string(json, "level"), "warning");
  assert_string_equal(get_string(json, "event"), "stats");
  assert_string_equal(get_string(json, "message"), "how it goes");
  char ts[CLOCK_RFC3339_BYTES];
  (void)clock_format_rfc3339(clock_wall_us(), ts);
  assert_int_equal(strlen(get_string(json, "ts")), strlen(ts));
  assert_memory_equal(get_string(json, "ts"), ts, strlen("2026-01"));
  json_decref(json);
  assert_memory_equal(line, "{\"ts\":\"", 7);
  assert_contains(
      line, "\"level\":\"warning\",\"event\":\"stats\",\"message\":\"how it goes\",\"name\":\"n\",\"nothing\":null,"
            "\"count\":-5,\"rate_per_second\":0.25,\"is_idle\":true,\"depths\":[3,0,-9223372036854775808],"
            "\"none\":[]}\n");
}

static void fields_may_be_missing(void **state) {
  (void)state;
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  log_write(LOG_INFO, "bare", "nothing to add", NULL);
  json_t *json = parse_line(captured());
  assert_int_equal(json_object_size(json), 4);
  json_decref(json);
}

static void invalid_utf8_is_replaced(void **state) {
  (void)state;
#define R "\xEF\xBF\xBD"
  static const struct {
    const char *value, *want;
  } cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},                 /* the last one there is */
      {"\xEF\xBF\xBE\xEF\xB7\x90", "\xEF\xBF\xBE\xEF\xB7\x90"}, /* noncharacters are characters */
      {"a\xFFz", "a" R "z"},
      {"\x80", R},
      {"\xC3", R},
      {"\xC3(", R "("},
      {"\xE2\x82", R R},
      {"\xF0\x9F\x98", R R R},
      {"\xC0\xAF", R R},             /* overlong */
      {"\xE0\x80\xAF", R R R},       /* overlong */
      {"\xF0\x80\x80\xAF", R R R R}, /* overlong */
      {"\xED\xA0\x80", R R R},       /* surrogate */
      {"\xF4\x90\x80\x80", R R R R}, /* beyond U+10FFFF */
      {"\xF8\x88\x80\x80\x80", R R R R R},
  };
#undef R
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *got = round_trip(cases[i].value);
    assert_string_equal(got, cases[i].want);
    free(got);
  }
}

static void control_characters_survive(void **state) {
  (void)state;
  char value[130];
  for (int c = 1; c < 128; c++) {
    value[c - 1] = (char)c;
  }
  value[127] = '\0';
  char *got = round_trip(value);
  assert_string_equal(got, value);
  free(got);
}

static void numbers_json_has_no_word_for_become_null(void **state) {
  (void)state;
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  log_event(LOG_INFO, "e", "m", LOG_REAL("a", (double)NAN), LOG_REAL("b", (double)INFINITY));
  assert_contains(captured(), "\"a\":null,\"b\":null}\n");
}

static void levels_below_the_least_are_silent(void **state) {
  (void)state;
  for (int least = LOG_DEBUG; least <= LOG_CRITICAL; least++) {
    for (int level = LOG_DEBUG; level <= LOG_CRITICAL; level++) {
      capture();
      log_setup((enum log_level)least, LOG_JSON);
      log_write((enum log_level)level, "e", "m", NULL);
      const char *line = captured();
      assert_int_equal(strlen(line) > 0, level >= least);
      if (level >= least) {
        assert_contains(line, log_level_name((enum log_level)level));
      }
    }
  }
}

/* A line longer than a pipe takes in one piece is cut, and stays valid. */
static void long_values_are_cut_and_the_line_stays_whole(void **state) {
  (void)state;
  char value[20001];
  static int64_t many[1024];
  for (size_t i = 0; i < COUNT(many); i++) {
    many[i] = INT64_MAX;
  }
  for (size_t i = 0; i + 3 <= sizeof value - 1; i += 3) {
    memcpy(value + i, "\xE2\x82\xAC", 3);
  }
  value[sizeof value - 3] = '\0';
  for (int form = LOG_JSON; form <= LOG_TEXT; form++) {
    capture();
    log_setup(LOG_INFO, (enum log_format)form);
    log_event(LOG_ERROR, "e", value, LOG_STR("value", value), LOG_INTS("many", many, (int)COUNT(many)),
              LOG_INT("last", 1));
    const char *line = captured();
    assert_in_range(strlen(line), 500, PIPE_BUF);
    assert_contains(line, "\xE2\x80\xA6"); /* an ellipsis shows the cut */
    assert_contains(line, "last");
    if (form == LOG_JSON) {
      json_decref(parse_line(line));
    }
  }
}

static void too_many_fields_leave_the_event(void **state) {
  (void)state;
  static char names[300][32];
  struct log_field fields[301];
  for (size_t i = 0; i < COUNT(names); i++) {
    (void)snprintf(names[i], sizeof names[i], "a_field_with_number_%zu", i);
    fields[i] = LOG_INT(names[i], 1);
  }
  fields[COUNT(names)] = (struct log_field){.kind = LOG_F_END};
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  log_write(LOG_ERROR, "crowded", "m", fields);
  json_t *json = parse_line(captured());
  assert_string_equal(get_string(json, "event"), "crowded");
  assert_string_equal(get_string(json, "level"), "error");
  json_decref(json);
}

static void text_quotes_what_needs_it(void **state) {
  (void)state;
  static const int64_t depths[] = {1, 2};
  capture();
  log_setup(LOG_DEBUG, LOG_TEXT);
  log_event(LOG_CRITICAL, "outbox_stale", "the oldest\nwaits", LOG_STR("plain", "a:b"), LOG_STR("spaced", "a b"),
            LOG_STR("quoted", "say \"x\\y\""), LOG_STR("equals", "a=b"), LOG_STR("empty", ""), LOG_STR("none", NULL),
            LOG_STR("lines", "1\n2\t\x1b[31m"), LOG_STR("broken", "\xFF"), LOG_INT("n", -1), LOG_REAL("r", 1.5),
            LOG_BOOL("b", false), LOG_INTS("depths", depths, 2));
  const char *line = captured();
  const char *rest = strchr(line, ' ');
  assert_non_null(rest);
  assert_string_equal(
      rest, " CRITICAL outbox_stale the oldest\\nwaits plain=a:b spaced=\"a b\" quoted=\"say \\\"x\\\\y\\\"\" "
            "equals=\"a=b\" empty=\"\" none=null lines=\"1\\n2\\u0009\\u001b[31m\" broken=\xEF\xBF\xBD n=-1 r=1.5 "
            "b=false depths=1,2\n");
  assert_int_equal(rest[-1], 'Z');
}

static void errno_is_left_alone(void **state) {
  (void)state;
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  errno = ENOTTY;
  log_event(LOG_INFO, "e", "m", LOG_STR("s", "v"));
  int errnum = errno;
  (void)captured();
  assert_int_equal(errnum, ENOTTY);

  /* Nor when the line cannot be written. */
  capture();
  (void)close(STDERR_FILENO);
  errno = ENOTTY;
  log_event(LOG_INFO, "e", "m", LOG_STR("s", "v"));
  errnum = errno;
  assert_string_equal(captured(), "");
  assert_int_equal(errnum, ENOTTY);
  flush_lost();
}

static void *log_many(void *arg) {
  char filler[2000];
  memset(filler, 'f', sizeof filler);
  filler[sizeof filler - 1] = '\0';
  for (int i = 0; i < LINES_N; i++) {
    log_event(LOG_INFO, "from_a_thread", "m", LOG_INT("thread", *(const int *)arg), LOG_STR("filler", filler));
  }
  return NULL;
}

/* The reader of a pipe must never find two threads' lines in one. */
static void threads_do_not_mix_lines_in_a_pipe(void **state) {
  (void)state;
  int pipe_fds[2];
  pthread_t threads[THREADS_N];
  int numbers[THREADS_N];
  assert_int_equal(pipe(pipe_fds), 0);
  redirect(pipe_fds[1]);
  log_setup(LOG_INFO, LOG_JSON);
  for (int i = 0; i < THREADS_N; i++) {
    numbers[i] = i;
    assert_int_equal(pthread_create(&threads[i], NULL, log_many, &numbers[i]), 0);
  }
  FILE *reader = fdopen(pipe_fds[0], "r");
  assert_non_null(reader);
  char line[8192];
  int seen_n[THREADS_N] = {0};
  for (int i = 0; i < THREADS_N * LINES_N; i++) {
    assert_non_null(fgets(line, sizeof line, reader));
    json_t *json = parse_line(line);
    json_int_t number = json_integer_value(json_object_get(json, "thread"));
    assert_in_range(number, 0, THREADS_N - 1);
    seen_n[number]++;
    json_decref(json);
  }
  for (int i = 0; i < THREADS_N; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(seen_n[i], LINES_N);
  }
  restore();
  (void)fclose(reader);
}

static void journal_lines_begin_with_their_priority(void **state) {
  (void)state;
  static const char *const want[] = {"<7>", "<6>", "<4>", "<3>", "<2>"};
  struct stat stat;
  char stream[64];
  capture();
  assert_int_equal(fstat(STDERR_FILENO, &stat), 0);
  (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)stat.st_dev, (uintmax_t)stat.st_ino);
  (void)setenv("JOURNAL_STREAM", stream, 1);
  log_setup(LOG_DEBUG, LOG_JSON);
  for (int level = LOG_DEBUG; level <= LOG_CRITICAL; level++) {
    log_write((enum log_level)level, "e", "m", NULL);
  }
  log_setup(LOG_DEBUG, LOG_TEXT);
  log_write(LOG_INFO, "e", "m", NULL);
  const char *line = captured();
  for (int level = LOG_DEBUG; level <= LOG_CRITICAL; level++) {
    assert_memory_equal(line, want[level], 3);
    assert_int_equal(line[3], '{');
    line = strchr(line, '\n') + 1;
  }
  assert_memory_equal(line, "<6>2", 4);

  /* Of another process's stream, or no stream at all. */
  static const char *const others[] = {"", "1:1", "1", ":", "x:y", "%s:", "%s%s", " %s"};
  for (size_t i = 0; i < COUNT(others); i++) {
    char other[160];
    capture();
    assert_int_equal(fstat(STDERR_FILENO, &stat), 0);
    (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)stat.st_dev, (uintmax_t)stat.st_ino);
    (void)snprintf(other, sizeof other, "%s%s", strchr(others[i], '%') != NULL ? stream : others[i],
                   strchr(others[i], '%') != NULL ? "x" : "");
    (void)setenv("JOURNAL_STREAM", other, 1);
    log_setup(LOG_INFO, LOG_JSON);
    log_write(LOG_INFO, "e", "m", NULL);
    assert_int_equal(captured()[0], '{');
  }
  (void)unsetenv("JOURNAL_STREAM");
  log_setup(LOG_INFO, LOG_JSON);
}

/* Logs n lines of which nobody reads any; returns the microseconds it took. */
static int64_t log_unread(int n) {
  static char filler[3000];
  memset(filler, 'f', sizeof filler - 1);
  int64_t began_us = clock_now_us();
  for (int i = 0; i < n; i++) {
    log_event(LOG_INFO, "unread", "m", LOG_STR("filler", filler));
  }
  return clock_now_us() - began_us;
}

/* Reads all there is and returns the number of whole lines of JSON. */
static int drain_lines(int fd) {
  static char text[1 << 20];
  size_t len = 0;
  ssize_t n;
  int lines_n = 0;
  assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
  while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0) {
    len += (size_t)n;
  }
  text[len] = '\0';
  for (char *line = text; *line != '\0';) {
    char *next = strchr(line, '\n');
    assert_non_null(next);
    char after = next[1];
    next[1] = '\0';
    json_decref(parse_line(line));
    next[1] = after;
    line = next + 1;
    lines_n++;
  }
  return lines_n;
}

/* A reader that hangs costs one short wait, not one a line; when it reads again it is told what it has missed. */
static void check_unread(int reader_fd, int writer_fd) {
  redirect(writer_fd);
  log_setup(LOG_INFO, LOG_JSON);
  int64_t took_us = log_unread(500);
  int whole_n = drain_lines(reader_fd);
  log_event(LOG_INFO, "read_again", "m", LOG_INT("n", 1));
  char text[2000];
  ssize_t n = read(reader_fd, text, sizeof text - 1);
  restore();
  (void)close(reader_fd);
  assert_in_range(took_us, 500000, 10000000);
  assert_in_range(whole_n, 5, 499);
  assert_true(n > 0);
  text[n] = '\0';
  char want[64];
  (void)snprintf(want, sizeof want, "\"lines\":%d}\n", 500 - whole_n);
  assert_contains(text, "\"event\":\"read_again\"");
  assert_contains(text, "\"event\":\"log_lines_lost\"");
  assert_contains(text, want);
}

static void full_pipe_blocks_nobody(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  check_unread(fds[0], fds[1]);
}

static void full_socket_blocks_nobody(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  check_unread(fds[0], fds[1]);
}

static void reader_that_went_away_kills_nobody(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  (void)close(fds[0]);
  redirect(fds[1]);
  log_setup(LOG_INFO, LOG_JSON);
  int64_t took_us = log_unread(100); /* SIGPIPE would end the test */
  restore();
  assert_in_range(took_us, 0, 900000);

  /* A pipe has no such flag: the relay ignores the signal. */
  void (*before)(int) = signal(SIGPIPE, SIG_IGN);
  assert_int_equal(pipe(fds), 0);
  (void)close(fds[0]);
  redirect(fds[1]);
  log_setup(LOG_INFO, LOG_JSON);
  took_us = log_unread(100);
  restore();
  (void)signal(SIGPIPE, before);
  assert_in_range(took_us, 0, 900000);
  flush_lost();
}

/* Half a line is followed by a line of its own. */
static void torn_line_is_ended(void **state) {
  (void)state;
  struct rlimit before;
  char filler[1000];
  memset(filler, 'f', sizeof filler - 1);
  filler[sizeof filler - 1] = '\0';
  void (*on_limit)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  capture();
  log_setup(LOG_INFO, LOG_JSON);
  struct rlimit limit = {.rlim_cur = 500, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  log_event(LOG_INFO, "torn", "m", LOG_STR("filler", filler));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  log_event(LOG_INFO, "whole", "m", LOG_INT("n", 1));
  const char *text = captured();
  (void)signal(SIGXFSZ, on_limit);
  assert_memory_equal(text + 500, "\n{\"ts\"", 6);
  assert_contains(text, "\"event\":\"whole\"");
  assert_contains(text, "\"lines\":1}\n");
}

/* Started with 2>&-: the number must not go to a connection, which would then get the log. */
static void closed_descriptors_are_filled(void **state) {
  (void)state;
  int saved[3];
  int fds[2];
  for (int fd = 0; fd < 3; fd++) {
    saved[fd] = fcntl(fd, F_DUPFD, 10);
    (void)close(fd);
  }
  log_setup(LOG_INFO, LOG_JSON);
  int rc = pipe(fds);
  log_write(LOG_INFO, "e", "m", NULL);
  for (int fd = 0; fd < 3; fd++) {
    (void)dup2(saved[fd], fd);
    (void)close(saved[fd]);
  }
  log_setup(LOG_INFO, LOG_JSON);
  assert_int_equal(rc, 0);
  assert_in_range(fds[0], 3, 1000);
  (void)close(fds[0]);
  (void)close(fds[1]);
}

static void repeats_are_limited_and_counted(void **state) {
  (void)state;
  struct log_limit limit = {.interval_us = 3600 * INT64_C(1000000)};
  int64_t held_back = -1;
  assert_true(log_limit_pass(&limit, &held_back));
  assert_int_equal(held_back, 0);
  for (int i = 0; i < 7; i++) {
    assert_false(log_limit_pass(&limit, &held_back));
  }
  atomic_store(&limit.next_us, clock_now_us()); /* the hour is over */
  assert_true(log_limit_pass(&limit, &held_back));
  assert_int_equal(held_back, 7);
  assert_false(log_limit_pass(&limit, &held_back));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_has_all_fields_in_order),
      cmocka_unit_test(fields_may_be_missing),
      cmocka_unit_test(invalid_utf8_is_replaced),
      cmocka_unit_test(control_characters_survive),
      cmocka_unit_test(numbers_json_has_no_word_for_become_null),
      cmocka_unit_test(levels_below_the_least_are_silent),
      cmocka_unit_test(long_values_are_cut_and_the_line_stays_whole),
      cmocka_unit_test(too_many_fields_leave_the_event),
      cmocka_unit_test(text_quotes_what_needs_it),
      cmocka_unit_test(errno_is_left_alone),
      cmocka_unit_test(threads_do_not_mix_lines_in_a_pipe),
      cmocka_unit_test(repeats_are_limited_and_counted),
      cmocka_unit_test(journal_lines_begin_with_their_priority),
      cmocka_unit_test(full_pipe_blocks_nobody),
      cmocka_unit_test(full_socket_blocks_nobody),
      cmocka_unit_test(reader_that_went_away_kills_nobody),
      cmocka_unit_test(torn_line_is_ended),
      cmocka_unit_test(closed_descriptors_are_filled),
  };
  return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
