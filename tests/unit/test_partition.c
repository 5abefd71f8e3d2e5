/*
 * Names and bounds of partitions, and which are missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "outboxd/partition.h"

/* "2026-01-31" or "2026-01-31 06:30" to microseconds; "-" and "+" are the open ends. */
static int64_t at(const char *text) {
  struct tm tm;
  memset(&tm, 0, sizeof tm);
  if (strcmp(text, "-") == 0) {
    return INT64_MIN;
  }
  if (strcmp(text, "+") == 0) {
    return INT64_MAX;
  }
  const char *end = strptime(text, strlen(text) > 10 ? "%Y-%m-%d %H:%M" : "%Y-%m-%d", &tm);
  assert_true(end != NULL && *end == '\0');
  return (int64_t)timegm(&tm) * 1000000;
}

static void day_starts_at_midnight_utc(void **state) {
  (void)state;
  assert_int_equal(partition_day_start(at("2026-03-01 23:59")), at("2026-03-01"));
  assert_int_equal(partition_day_start(at("2026-03-01")), at("2026-03-01"));
  assert_int_equal(partition_day_start(-1), -PARTITION_DAY_US);
}

static void names_follow_the_lower_bound(void **state) {
  static const struct {
    const char *table, *from, *name;
  } cases[] = {
      {"outbox_messages", "2026-01-31", "outbox_messages_y2026m01d31"},
      {"outbox_messages", "2024-02-29", "outbox_messages_y2024m02d29"},
      {"t", "2026-12-31 23:05", "t_y2026m12d31t2305"},
      {"A \"b\"", "2026-01-01", "A \"b\"_y2026m01d01"},
  };
  struct err err = ERR_INIT;
  char name[PARTITION_NAME_BYTES];
  char table[PARTITION_NAME_BYTES];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(partition_name(cases[i].table, at(cases[i].from), name, &err), 0);
    assert_string_equal(name, cases[i].name);
  }
  memset(table, 'x', sizeof table);
  table[PARTITION_TABLE_BYTES_MAX] = '\0';
  assert_int_equal(partition_name(table, at("2026-01-31"), name, &err), 0);
  assert_int_equal(strlen(name), 63);
  table[PARTITION_TABLE_BYTES_MAX] = 'x';
  table[PARTITION_TABLE_BYTES_MAX + 1] = '\0';
  assert_int_equal(partition_name(table, at("2026-01-31"), name, &err), -1);
  assert_int_equal(err.class, ERR_USAGE);
  assert_non_null(strstr(err.text, "at most 51"));
}

static void bounds_are_literals(void **state) {
  char text[PARTITION_BOUND_BYTES];
  (void)state;
  partition_format_bound(at("2026-01-31"), text);
  assert_string_equal(text, "'2026-01-31 00:00:00+00'");
  partition_format_bound(at("1999-12-31 23:59") + 7, text);
  assert_string_equal(text, "'1999-12-31 23:59:00.000007+00'");
  partition_format_bound(-1, text);
  assert_string_equal(text, "'1969-12-31 23:59:59.999999+00'");
}

struct span {
  const char *from, *to;
};

static void plans(void **state) {
  static const struct {
    const char *what;
    struct span existing[4];
    struct span wanted;
    struct span plan[8];
  } cases[] = {
      {"nothing there: days",
       {{NULL, NULL}},
       {"2026-02-27", "2026-03-02"},
       {{"2026-02-27", "2026-02-28"}, {"2026-02-28", "2026-03-01"}, {"2026-03-01", "2026-03-02"}}},
      {"all there",
       {{"2026-01-01", "2026-01-02"}, {"2026-01-02", "2026-01-03"}},
       {"2026-01-01", "2026-01-03"},
       {{NULL, NULL}}},
      {"days go on",
       {{"2026-01-01", "2026-01-02"}},
       {"2026-01-01", "2026-01-04"},
       {{"2026-01-02", "2026-01-03"}, {"2026-01-03", "2026-01-04"}}},
      {"a gap is filled",
       {{"2026-01-01", "2026-01-02"}, {"2026-01-03", "2026-01-04"}},
       {"2026-01-01", "2026-01-04"},
       {{"2026-01-02", "2026-01-03"}}},
      {"yesterday before the first one",
       {{"2026-01-02", "2026-01-03"}},
       {"2026-01-01", "2026-01-03"},
       {{"2026-01-01", "2026-01-02"}}},
      {"months go on over the year's end",
       {{"2026-11-01", "2026-12-01"}},
       {"2026-11-28", "2027-01-02"},
       {{"2026-12-01", "2027-01-01"}, {"2027-01-01", "2027-02-01"}}},
      {"a leap February", {{"2024-01-01", "2024-02-01"}}, {"2024-01-31", "2024-03-01"}, {{"2024-02-01", "2024-03-01"}}},
      {"quarters", {{"2026-01-01", "2026-04-01"}}, {"2026-03-31", "2026-04-02"}, {{"2026-04-01", "2026-07-01"}}},
      {"weeks",
       {{"2026-01-05", "2026-01-12"}},
       {"2026-01-11", "2026-01-20"},
       {{"2026-01-12", "2026-01-19"}, {"2026-01-19", "2026-01-26"}}},
      {"days of another time zone",
       {{"2026-01-01 05:00", "2026-01-02 05:00"}},
       {"2026-01-02", "2026-01-04"},
       {{"2026-01-02 05:00", "2026-01-03 05:00"}, {"2026-01-03 05:00", "2026-01-04 05:00"}}},
      {"weeks, the newest long gone: still in step",
       {{"2026-01-05", "2026-01-12"}},
       {"2026-02-10", "2026-02-12"},
       {{"2026-02-09", "2026-02-16"}}},
      {"months, the newest long gone",
       {{"2025-01-01", "2025-02-01"}},
       {"2026-02-10", "2026-02-12"},
       {{"2026-02-01", "2026-03-01"}}},
      {"a gap shorter than a day",
       {{"2026-01-01", "2026-01-01 12:00"}, {"2026-01-01 18:00", "2026-01-03"}},
       {"2026-01-01", "2026-01-03"},
       {{"2026-01-01 12:00", "2026-01-01 18:00"}}},
      {"open at the top", {{"2026-01-01", "+"}}, {"2026-01-05", "2026-01-09"}, {{NULL, NULL}}},
      {"open at the bottom: days from there",
       {{"-", "2026-01-06"}},
       {"2026-01-05", "2026-01-07"},
       {{"2026-01-06", "2026-01-07"}}},
      {"nothing wanted", {{NULL, NULL}}, {"2026-01-05", "2026-01-05"}, {{NULL, NULL}}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct partition_bounds existing[4];
    struct partition_bounds *plan = NULL;
    struct err err = ERR_INIT;
    int existing_n = 0;
    int n = 0;
    for (; existing_n < 4 && cases[i].existing[existing_n].from != NULL; existing_n++) {
      existing[existing_n].from_us = at(cases[i].existing[existing_n].from);
      existing[existing_n].to_us = at(cases[i].existing[existing_n].to);
    }
    print_message("%s\n", cases[i].what);
    assert_int_equal(
        partition_plan(existing, existing_n, at(cases[i].wanted.from), at(cases[i].wanted.to), &plan, &n, &err), 0);
    int expected_n = 0;
    for (; expected_n < 8 && cases[i].plan[expected_n].from != NULL; expected_n++) {
      assert_true(expected_n < n);
      assert_int_equal(plan[expected_n].from_us, at(cases[i].plan[expected_n].from));
      assert_int_equal(plan[expected_n].to_us, at(cases[i].plan[expected_n].to));
    }
    assert_int_equal(n, expected_n);
    free(plan);
  }
}

static void a_plan_has_an_end(void **state) {
  struct partition_bounds minute = {at("2026-01-01"), at("2026-01-01 00:01")};
  struct partition_bounds *plan = NULL;
  struct err err = ERR_INIT;
  int n = 0;
  (void)state;
  assert_int_equal(partition_plan(&minute, 1, minute.from_us, at("2026-01-15"), &plan, &n, &err), -1);
  assert_null(plan);
  assert_int_equal(err.class, ERR_FATAL);
  assert_int_equal(partition_plan(NULL, 0, 0, PARTITION_DAY_US * PARTITION_PLAN_MAX, &plan, &n, &err), 0);
  assert_int_equal(n, PARTITION_PLAN_MAX);
  free(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(day_starts_at_midnight_utc), cmocka_unit_test(names_follow_the_lower_bound),
      cmocka_unit_test(bounds_are_literals),        cmocka_unit_test(plans),
      cmocka_unit_test(a_plan_has_an_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
