/*
 * clock: RFC 3339, poll timeouts, waits with a deadline.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "outboxd/clock.h"
#include "unit.h"

static void rfc3339_table(void **state) {
  (void)state;
  static const struct {
    int64_t wall_us;
    const char *text;
  } cases[] = {
      {0, "1970-01-01T00:00:00.000000Z"},
      {-1, "1969-12-31T23:59:59.999999Z"},
      {1, "1970-01-01T00:00:00.000001Z"},
      {INT64_C(951782400000000), "2000-02-29T00:00:00.000000Z"},
      {INT64_C(4107542399999999), "2100-02-28T23:59:59.999999Z"},
      {INT64_C(4107542400000000), "2100-03-01T00:00:00.000000Z"}, /* 2100 has no leap day */
      {INT64_C(1769903999000001), "2026-01-31T23:59:59.000001Z"},
      {INT64_C(253402300799999999), "9999-12-31T23:59:59.999999Z"},
      {INT64_C(253402300800000000), "+10000-01-01T00:00:00.000000Z"},
      {INT64_C(-62135596800000000), "0001-01-01T00:00:00.000000Z"},
      {INT64_C(-62135596800000001), "0000-12-31T23:59:59.999999Z"},
      {INT64_C(-62167219200000001), "-0001-12-31T23:59:59.999999Z"},
      {INT64_MAX, "+294247-01-10T04:00:54.775807Z"},
      {INT64_MIN, "-290308-12-21T19:59:05.224192Z"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char text[CLOCK_RFC3339_BYTES];
    size_t len = clock_format_rfc3339(cases[i].wall_us, text);
    assert_string_equal(text, cases[i].text);
    assert_int_equal(len, strlen(cases[i].text));
  }
}

/* The C library knows the calendar too. */
static void rfc3339_agrees_with_gmtime(void **state) {
  (void)state;
  uint64_t x = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    int64_t seconds = (int64_t)(x % 315537897600u) - INT64_C(62135596800); /* years 1 to 9999 */
    time_t t = (time_t)seconds;
    struct tm tm;
    assert_non_null(gmtime_r(&t, &tm));
    char want[64];
    (void)snprintf(want, sizeof want, "%04d-%02d-%02dT%02d:%02d:%02d.000123Z", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    char text[CLOCK_RFC3339_BYTES];
    (void)clock_format_rfc3339(seconds * 1000000 + 123, text);
    assert_string_equal(text, want);
  }
}

static void times_are_read(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t wall_us;
  } cases[] = {
      {"1970-01-01", 0},
      {"1970-01-01T00:00:00Z", 0},
      {"1970-01-01t00:00:00z", 0},
      {"1970-01-01 02:00:00+02:00", 0},
      {"1969-12-31T18:30:00-05:30", 0},
      {"1969-12-31T23:59:59.999999Z", -1},
      {"2000-02-29", INT64_C(951782400000000)},
      {"2026-01-31T23:59:59.000001Z", INT64_C(1769903999000001)},
      {"2026-01-31T23:59:59.5Z", INT64_C(1769903999500000)},
      {"0001-01-01", INT64_C(-62135596800000000)},
      {"9999-12-31T23:59:59.999999Z", INT64_C(253402300799999999)},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct err err = ERR_INIT;
    int64_t us = 1;
    if (clock_parse_time(cases[i].text, &us, &err) != 0) {
      fail_msg("%s was refused: %s", cases[i].text, err.text);
    }
    assert_true(us == cases[i].wall_us);
  }
}

static void what_is_no_time_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *why;
  } cases[] = {
      {"", "is not a time"},
      {"yesterday", "is not a time"},
      {"1764547200", "is not a time"},
      {"2026-1-31", "is not a time"},
      {"2026-01-31 ", "is not a time"},
      {" 2026-01-31", "is not a time"},
      {"2026-01-31T", "is not a time"},
      {"2026-01-31T10", "is not a time"},
      {"2026-01-31T10:00Z", "is not a time"},
      {"2026-01-31T10:00:00.Z", "is not a time"},
      {"2026-01-31T10:00:00.1234567Z", "is not a time"},
      {"2026-01-31T10:00:00Zulu", "is not a time"},
      {"2026-01-31T10:00:00+2:00", "is not a time"},
      {"2026-01-31T10:00:00+24:00", "is not a time"},
      {"2026-01-31T10:00:00+0200", "is not a time"},
      {"12026-01-31", "is not a time"},
      {"2026-01-31T10:00:00", "add Z for UTC"},
      {"2026-01-31 10:00:00.25", "add Z for UTC"},
      {"2026-02-29", "not in the calendar"},
      {"2100-02-29", "not in the calendar"},
      {"2026-13-01", "not in the calendar"},
      {"2026-00-01", "not in the calendar"},
      {"2026-04-31", "not in the calendar"},
      {"2026-01-00", "not in the calendar"},
      {"0000-01-01", "not in the calendar"},
      {"2026-01-31T24:00:00Z", "not on the clock"},
      {"2026-01-31T10:60:00Z", "not on the clock"},
      {"2026-01-31T10:00:60Z", "not on the clock"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct err err = ERR_INIT;
    int64_t us = 0;
    assert_int_equal(clock_parse_time(cases[i].text, &us, &err), -1);
    assert_int_equal(err.class, ERR_USAGE);
    assert_contains(err.text, cases[i].why);
  }
}

/* What is written is read as it was. */
static void times_written_are_read_again(void **state) {
  (void)state;
  uint64_t x = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    int64_t us = (int64_t)(x % UINT64_C(315537897600000000)) - INT64_C(62135596800000000); /* years 1 to 9999 */
    char text[CLOCK_RFC3339_BYTES];
    int64_t again = 0;
    (void)clock_format_rfc3339(us, text);
    assert_int_equal(clock_parse_time(text, &again, NULL), 0);
    assert_true(again == us);
  }
}

static void poll_timeout_table(void **state) {
  (void)state;
  static const struct {
    int64_t deadline_us, now_us;
    int want_ms;
  } cases[] = {
      {0, 0, 0},
      {1000, 1000, 0},
      {999, 1000, 0},
      {1001, 1000, 1}, /* rounded up: a poll that returns early would spin */
      {2000, 1000, 1},
      {2001, 1000, 2},
      {INT64_MAX, 0, INT_MAX},
      {INT64_MAX, INT64_MIN, INT_MAX},
      {0, INT64_MAX, 0},
      {INT64_MIN, 0, 0},
      {INT64_C(1000) * INT_MAX, 0, INT_MAX},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_int_equal(clock_poll_timeout_ms(cases[i].deadline_us, cases[i].now_us), cases[i].want_ms);
  }
}

static void poll_timeout_is_exact(void **state) {
  (void)state;
  static const struct {
    int64_t deadline_us, now_us;
    struct timespec want;
  } cases[] = {
      {0, 0, {0, 0}},
      {999, 1000, {0, 0}},
      {1001, 1000, {0, 1000}},
      {1000000, 1, {0, 999999000}},
      {3500000, 1000000, {2, 500000000}},
      {INT64_MAX, INT64_MIN, {INT_MAX, 551615000}}, /* 2^64 - 1 us */
      {INT64_MIN, 0, {0, 0}},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct timespec out;
    assert_ptr_equal(clock_poll_timeout(cases[i].deadline_us, cases[i].now_us, &out), &out);
    assert_int_equal(out.tv_sec, cases[i].want.tv_sec);
    assert_int_equal(out.tv_nsec, cases[i].want.tv_nsec);
  }
}

static void clocks_read_what_they_should(void **state) {
  (void)state;
  int64_t a = clock_now_us();
  int64_t b = clock_now_us();
  assert_true(a > 0 && b >= a);
  int64_t wall_s = clock_wall_us() / 1000000;
  int64_t off_s = wall_s - (int64_t)time(NULL);
  assert_true(off_s >= -1 && off_s <= 1);
}

static void cond_wait_ends_at_its_deadline_not_before(void **state) {
  (void)state;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond;
  clock_cond_init(&cond);
  assert_int_equal(pthread_mutex_lock(&mutex), 0);
  int64_t deadline_us = clock_now_us() + 20000;
  int rc;
  do {
    rc = clock_cond_wait(&cond, &mutex, deadline_us);
  } while (rc == 0);
  assert_int_equal(rc, ETIMEDOUT);
  assert_true(clock_now_us() >= deadline_us);
  /* A deadline in the past does not wait, nor fail in another way. */
  assert_int_equal(clock_cond_wait(&cond, &mutex, 0), ETIMEDOUT);
  assert_int_equal(clock_cond_wait(&cond, &mutex, -5), ETIMEDOUT);
  assert_int_equal(clock_cond_wait(&cond, &mutex, 1), ETIMEDOUT);
  assert_int_equal(pthread_mutex_unlock(&mutex), 0);
  (void)pthread_cond_destroy(&cond);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rfc3339_table),
      cmocka_unit_test(rfc3339_agrees_with_gmtime),
      cmocka_unit_test(times_are_read),
      cmocka_unit_test(what_is_no_time_is_refused),
      cmocka_unit_test(times_written_are_read_again),
      cmocka_unit_test(poll_timeout_table),
      cmocka_unit_test(poll_timeout_is_exact),
      cmocka_unit_test(clocks_read_what_they_should),
      cmocka_unit_test(cond_wait_ends_at_its_deadline_not_before),
  };
  return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
