/*
 * progress: what a line says at which width, with and without a total, and when it is written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "outboxd/progress.h"
#include "unit.h"

#define SECOND INT64_C(1000000)

static void lines_of_80_columns(void **state) {
  (void)state;
  static const struct {
    struct progress_view view;
    const char *line;
  } cases[] = {
      {{"replay", 0, 1000000, 0, 0}, "replay  [>                                 ]  0 %  0 of 1,000,000  0/s  for 0 s"},
      {{"replay", 500000, 1000000, 50 * SECOND, 10000},
       "replay  [==========>         ]  50 %  500,000 of 1,000,000  10,000/s  50 s left"},
      {{"replay", 999999, 1000000, 50 * SECOND, 0.5},
       "replay  [=====================>]  99 %  999,999 of 1,000,000  0.5/s  2.0 s left"},
      {{"replay", 1000000, 1000000, 50 * SECOND, 10000},
       "replay  [==================]  100 %  1,000,000 of 1,000,000  10,000/s  0 s left"},
      {{"replay", 7, 5, 50 * SECOND, 1},
       "replay  [=====================================]  100 %  7 of 5  1.0/s  0 s left"},
      {{"replay", 0, 0, 0, 0}, "replay  [======================================]  100 %  0 of 0  0/s  for 0 s"},
      {{"replay", 1234567, PROGRESS_UNKNOWN, 90 * SECOND, 100}, "replay  1,234,567  100/s  for 1 m 30 s"},
      {{"replay", 0, PROGRESS_UNKNOWN, 90 * SECOND, 0}, "replay  for 1 m 30 s"},
      /* Nothing moves: nobody can say how long it takes. */
      {{"replay", 10, 1000000, 7200 * SECOND, 0},
       "replay  [>                            ]  0 %  10 of 1,000,000  0/s  for 2 h 0 m"},
      /* No room for a bar, then not for all of the rest. */
      {{"index on public.outbox_messages: scanning the table", 500, 1000, SECOND, 10},
       "index on public.outbox_messages: scanning the table  50 %  500 of 1,000  10/s"},
      {{"index on a_schema.a_table_with_a_name_as_long_as_names_may_be_in_PostgreSQL: scanning the table", 5, 10, 0, 1},
       "index on a_schema.a_table_with_a_name_as_long_as_names_may_be_in_PostgreSQL: sc"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char line[PROGRESS_LINE_BYTES];
    size_t n = progress_format(&cases[i].view, 80, line);
    assert_string_equal(line, cases[i].line);
    assert_int_equal(n, strlen(line));
    assert_true(n < 80);
  }
}

/* Whatever the figures and the width: one column stays free, and the buffer holds it. */
static void no_line_is_too_wide(void **state) {
  (void)state;
  static const int64_t numbers[] = {PROGRESS_UNKNOWN, 0,        1, 999, 1000000, INT64_C(123456789012),
                                    INT64_MAX / 2,    INT64_MAX};
  static const double rates[] = {0, 1e-9, 0.04, 9.99, 1e6, 1e18, 1e300};
  for (int width = 0; width < 300; width += 7) {
    for (size_t d = 1; d < COUNT(numbers); d++) {
      for (size_t t = 0; t < COUNT(numbers); t++) {
        for (size_t r = 0; r < COUNT(rates); r++) {
          const struct progress_view view = {"replay", numbers[d], numbers[t], numbers[d], rates[r]};
          char line[PROGRESS_LINE_BYTES];
          size_t n = progress_format(&view, width, line);
          int max = width < 10 ? 10 : width > PROGRESS_WIDTH_MAX ? PROGRESS_WIDTH_MAX : width;
          assert_int_equal(n, strlen(line));
          assert_true(n < (size_t)max);
          n = progress_format_plain(&view, line);
          assert_int_equal(n, strlen(line));
        }
      }
    }
  }
}

static void plain_lines(void **state) {
  (void)state;
  char line[PROGRESS_LINE_BYTES];
  const struct progress_view known = {"replay", 500, 1000, SECOND, 100};
  (void)progress_format_plain(&known, line);
  assert_string_equal(line, "replay: 50 %, 500 of 1,000, 100/s, 5.0 s left");
  const struct progress_view unknown = {"replay: finding the messages", 0, PROGRESS_UNKNOWN, 61 * SECOND, 0};
  (void)progress_format_plain(&unknown, line);
  assert_string_equal(line, "replay: finding the messages: for 1 m 1 s");
}

/* What a progress has written into a temporary file since the last call. */
static const char *written(FILE *file, char *text, size_t size) {
  static long from;
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  long to = ftell(file);
  if (to < from) {
    from = 0;
  }
  assert_int_equal(fseek(file, from, SEEK_SET), 0);
  size_t n = fread(text, 1, size - 1, file);
  text[n] = '\0';
  from = to;
  return text;
}

static void plain_lines_come_every_five_seconds(void **state) {
  (void)state;
  char text[1024];
  struct progress progress;
  FILE *file = tmpfile();
  assert_non_null(file);
  progress_begin(&progress, "work", fileno(file), false, 0);
  for (int64_t s = 1; s < 5; s++) {
    progress_note(&progress, s * 10, 1000, s * SECOND);
  }
  assert_string_equal(written(file, text, sizeof text), "");
  progress_note(&progress, 50, 1000, 5 * SECOND);
  assert_string_equal(written(file, text, sizeof text), "outboxd: work: 5 %, 50 of 1,000, 10/s, 1 m 35 s left\n");
  progress_note(&progress, 60, 1000, 6 * SECOND);
  progress_wipe(&progress);
  assert_string_equal(written(file, text, sizeof text), "");
  assert_int_equal(fclose(file), 0);
}

static void a_terminals_line_is_drawn_again(void **state) {
  (void)state;
  char text[4096];
  struct progress progress;
  FILE *file = tmpfile();
  assert_non_null(file);
  progress_begin(&progress, "a\033[2Jb", fileno(file), true, 0); /* a name may hold anything */
  progress_note(&progress, 1, 1000, SECOND / 4);
  progress_wipe(&progress);
  assert_string_equal(written(file, text, sizeof text), "");
  progress_note(&progress, 10, PROGRESS_UNKNOWN, SECOND);
  assert_string_equal(written(file, text, sizeof text), "\r\033[Ka?[2Jb  10  10/s  for 1.0 s");
  progress_note(&progress, 11, PROGRESS_UNKNOWN, SECOND + SECOND / 10);
  assert_string_equal(written(file, text, sizeof text), "");
  progress_wipe(&progress);
  assert_string_equal(written(file, text, sizeof text), "\r\033[K");
  progress_go_on(&progress, "next", SECOND + SECOND / 10);
  progress_note(&progress, 0, PROGRESS_UNKNOWN, SECOND + SECOND / 10);
  assert_string_equal(written(file, text, sizeof text), "\r\033[Knext  for 1.1 s");
  assert_int_equal(fclose(file), 0);
}

/* Half of what it says comes from the last few seconds. */
static void the_rate_follows(void **state) {
  (void)state;
  struct progress progress;
  int64_t done_n = 0;
  int64_t now_us = 0;
  progress_begin(&progress, "work", -1, false, 0);
  for (int i = 0; i < 100; i++) {
    progress_note(&progress, done_n += 100, -1, now_us += SECOND / 10);
  }
  assert_true(progress.rate > 990 && progress.rate < 1010);
  for (int i = 0; i < 50; i++) {
    progress_note(&progress, done_n += 10, -1, now_us += SECOND / 10);
  }
  assert_true(progress.rate > 300 && progress.rate < 600);
  for (int i = 0; i < 600; i++) {
    progress_note(&progress, done_n, -1, now_us += SECOND / 10);
  }
  assert_true(progress.rate < 1);
}

static void a_file_is_no_terminal(void **state) {
  (void)state;
  FILE *file = tmpfile();
  assert_non_null(file);
  assert_false(progress_is_terminal(fileno(file)));
  assert_int_equal(fclose(file), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_80_columns),
      cmocka_unit_test(no_line_is_too_wide),
      cmocka_unit_test(plain_lines),
      cmocka_unit_test(plain_lines_come_every_five_seconds),
      cmocka_unit_test(a_terminals_line_is_drawn_again),
      cmocka_unit_test(the_rate_follows),
      cmocka_unit_test(a_file_is_no_terminal),
  };
  return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
