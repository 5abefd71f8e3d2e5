/*
 * say: numbers, ages and sizes for people; data that must not move a terminal's cursor.
 */
#include <stdlib.h>

#include "outboxd/say.h"
#include "unit.h"

static void counts_are_grouped(void **state) {
  (void)state;
  static const struct {
    int64_t n;
    const char *text;
  } cases[] = {{0, "0"}, {999, "999"}, {1000, "1,000"}, {-1234567, "-1,234,567"}, {100000, "100,000"}};
  char out[SAY_BYTES];
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_string_equal(say_count(cases[i].n, out), cases[i].text);
  }
  assert_string_equal(say_count(INT64_MIN, out), "-9,223,372,036,854,775,808");
}

static void ages_have_two_units_at_most(void **state) {
  (void)state;
  static const struct {
    int64_t us;
    const char *text;
  } cases[] = {{-5, "0 s"},
               {0, "0 s"},
               {400000, "0.4 s"},
               {9999999, "9.9 s"},
               {10000000, "10 s"},
               {59999999, "59 s"},
               {60000000, "1 m 0 s"},
               {INT64_C(3599) * 1000000, "59 m 59 s"},
               {INT64_C(3600) * 1000000, "1 h 0 m"},
               {INT64_C(86400) * 1000000, "1 d 0 h"},
               {INT64_C(1066 * 1000) * 1000000, "12 d 8 h"}};
  char out[SAY_BYTES];
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_string_equal(say_age(cases[i].us, out), cases[i].text);
  }
}

static void sizes_have_the_unit_that_fits(void **state) {
  (void)state;
  char out[SAY_BYTES];
  assert_string_equal(say_bytes(0, out), "0 B");
  assert_string_equal(say_bytes(1023, out), "1023 B");
  assert_string_equal(say_bytes(8192, out), "8.0 KiB");
  assert_string_equal(say_bytes(INT64_C(1503238554), out), "1.4 GiB");
  assert_string_equal(say_bytes(INT64_C(5) << 50, out), "5120.0 TiB");
}

static void assert_clean(const char *text, size_t max, const char *wanted) {
  char *out = NULL;
  size_t n = 0;
  FILE *file = open_memstream(&out, &n);
  assert_non_null(file);
  say_clean(file, text, max);
  assert_int_equal(fclose(file), 0);
  assert_string_equal(out, wanted);
  free(out);
}

static void control_characters_are_shown(void **state) {
  (void)state;
  assert_clean("plain", 80, "plain");
  assert_clean("a\033[2Jb\r\nc\x7f", 80, "a?[2Jb??c?");
  assert_clean("\xc2\x9b"
               "2J\xc2\xa0\xc3\xa4",
               80, "?2J\xc2\xa0\xc3\xa4");
  assert_clean("abcdef", 3, "abc...");
  assert_clean("ab\xc3\xa4", 3, "ab...");
  assert_clean("", 0, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_grouped),
      cmocka_unit_test(ages_have_two_units_at_most),
      cmocka_unit_test(sizes_have_the_unit_that_fits),
      cmocka_unit_test(control_characters_are_shown),
  };
  return cmocka_run_group_tests_name("say", tests, NULL, NULL);
}
