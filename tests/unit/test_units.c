/*
 * units: durations and sizes, both ways.
 */
#include <stdio.h>

#include "outboxd/units.h"
#include "unit.h"

struct good {
  const char *text;
  int64_t value;
  const char *shortest;
};

static const struct good durations[] = {
    {"0", 0, "0"},
    {"0s", 0, "0"},
    {"1ms", 1, "1ms"},
    {"100ms", 100, "100ms"},
    {"1000ms", 1000, "1s"},
    {"5s", 5000, "5s"},
    {"90s", 90000, "90s"},
    {"60s", 60000, "1m"},
    {"5m", 300000, "5m"},
    {"24h", 86400000, "1d"},
    {"25h", 90000000, "25h"},
    {"15d", 1296000000, "15d"},
    {"007s", 7000, "7s"},
    {"9223372036854775807ms", INT64_MAX, "9223372036854775807ms"},
};
static const char *const bad_durations[] = {"",
                                            "5",
                                            "s",
                                            "-1s",
                                            "+1s",
                                            " 1s",
                                            "1s ",
                                            "1 s",
                                            "1.5s",
                                            "1S",
                                            "1sec",
                                            "1m30s",
                                            "1us",
                                            "ms",
                                            "00x",
                                            "1w",
                                            "1d\n",
                                            "0x1s",
                                            "1,5s",
                                            "9223372036854775808ms",
                                            "106751991168d",
                                            "99999999999999999999999s"};

static const struct good sizes[] = {
    {"0", 0, "0"},
    {"1", 1, "1B"},
    {"1000", 1000, "1000B"},
    {"1000B", 1000, "1000B"},
    {"64KiB", 65536, "64KiB"},
    {"1024KiB", 1048576, "1MiB"},
    {"8MiB", 8388608, "8MiB"},
    {"1GiB", 1073741824, "1GiB"},
    {"1500MiB", 1572864000, "1500MiB"},
    {"9223372036854775807", INT64_MAX, "9223372036854775807B"},
};
static const char *const bad_sizes[] = {"",
                                        "B",
                                        "MiB",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 MiB",
                                        "8MB",
                                        "8M",
                                        "8mb",
                                        "8mib",
                                        "1.5MiB",
                                        "8MiBs",
                                        "1TiB",
                                        "0x10",
                                        "9223372036854775808",
                                        "8589934592GiB"};

static void durations_parse_and_print(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(durations); i++) {
    int64_t value = -1;
    int64_t again = -1;
    char text[64];
    assert_int_equal(units_parse_duration_ms(durations[i].text, &value, NULL), 0);
    assert_int_equal(value, durations[i].value);
    units_format_duration(value, text, sizeof text);
    assert_string_equal(text, durations[i].shortest);
    assert_int_equal(units_parse_duration_ms(text, &again, NULL), 0);
    assert_int_equal(again, value);
  }
}

static void sizes_parse_and_print(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(sizes); i++) {
    int64_t value = -1;
    int64_t again = -1;
    char text[64];
    assert_int_equal(units_parse_size_bytes(sizes[i].text, &value, NULL), 0);
    assert_int_equal(value, sizes[i].value);
    units_format_size(value, text, sizeof text);
    assert_string_equal(text, sizes[i].shortest);
    assert_int_equal(units_parse_size_bytes(text, &again, NULL), 0);
    assert_int_equal(again, value);
  }
}

static void anything_else_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad_durations); i++) {
    struct err err = ERR_INIT;
    int64_t value = 0;
    if (units_parse_duration_ms(bad_durations[i], &value, &err) != -1) {
      fail_msg("the duration \"%s\" was taken as %lld ms", bad_durations[i], (long long)value);
    }
    assert_int_equal(err.class, ERR_USAGE);
  }
  for (size_t i = 0; i < COUNT(bad_sizes); i++) {
    struct err err = ERR_INIT;
    int64_t value = 0;
    if (units_parse_size_bytes(bad_sizes[i], &value, &err) != -1) {
      fail_msg("the size \"%s\" was taken as %lld bytes", bad_sizes[i], (long long)value);
    }
    assert_int_equal(err.class, ERR_USAGE);
  }
}

static void errors_say_what_is_wanted(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  int64_t value;
  (void)!units_parse_duration_ms("5", &value, &err);
  assert_contains(err.text, "\"5\" is not a duration");
  (void)!units_parse_size_bytes("8MB", &value, &err);
  assert_contains(err.text, "\"8MB\" is not a size");
  (void)!units_parse_size_bytes("99999999999999999999", &value, &err);
  assert_contains(err.text, "too large");
}

static void output_is_cut_to_the_room(void **state) {
  (void)state;
  char text[4] = "zzz";
  units_format_duration(12345, text, sizeof text);
  assert_string_equal(text, "123");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(durations_parse_and_print), cmocka_unit_test(sizes_parse_and_print),
      cmocka_unit_test(anything_else_is_refused),  cmocka_unit_test(errors_say_what_is_wanted),
      cmocka_unit_test(output_is_cut_to_the_room),
  };
  return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
