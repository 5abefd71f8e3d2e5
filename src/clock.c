/*
 * Monotonic and wall time.
 *
 * Owns nothing; any thread.  Deadlines are always monotonic: a step of the wall clock must never shorten or stretch a wait.
 */
#include "outboxd/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define US_PER_S 1000000
#define NS_PER_US 1000
#define S_PER_DAY 86400

static int64_t read_us(clockid_t id) {
  struct timespec ts;
  if (clock_gettime(id, &ts) != 0) {
    abort(); /* both clocks exist on every system with POSIX timers */
  }
  return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / NS_PER_US;
}

int64_t clock_now_us(void) {
  return read_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void) {
  return read_us(CLOCK_REALTIME);
}

int clock_poll_timeout_ms(int64_t deadline_us, int64_t now_us) {
  if (deadline_us <= now_us) {
    return 0;
  }
  /* Both are distances from one origin; unsigned, since INT64_MAX minus a negative now does not fit. */
  uint64_t left_us = (uint64_t)deadline_us - (uint64_t)now_us;
  uint64_t left_ms = left_us / 1000 + (left_us % 1000 != 0);
  return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

struct timespec *clock_poll_timeout(int64_t deadline_us, int64_t now_us, struct timespec *out) {
  uint64_t left_us = deadline_us <= now_us ? 0 : (uint64_t)deadline_us - (uint64_t)now_us;
  uint64_t left_s = left_us / 1000000;
  *out = (struct timespec){.tv_sec = left_s > INT_MAX ? INT_MAX : (time_t)left_s,
                           .tv_nsec = (long)(left_us % 1000000) * 1000};
  return out;
}

/* Days since 1970-01-01 to the proleptic Gregorian date (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms"):
 * counts in eras of 400 years from 0000-03-01, so that the leap day is the last of a year. */
static void civil_from_days(int64_t days, int64_t *year, int *month, int *day) {
  days += 719468;
  int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  int64_t day_of_era = days - era * 146097;
  int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  int64_t month_from_march = (5 * day_of_year + 2) / 153;
  *day = (int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
  *month = (int)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  *year = year_of_era + era * 400 + (*month <= 2 ? 1 : 0);
}

size_t clock_format_rfc3339(int64_t wall_us, char out[CLOCK_RFC3339_BYTES]) {
  int64_t seconds = wall_us / US_PER_S;
  int64_t us = wall_us % US_PER_S;
  if (us < 0) {
    us += US_PER_S;
    seconds--;
  }
  int64_t days = seconds / S_PER_DAY;
  int64_t second_of_day = seconds % S_PER_DAY;
  if (second_of_day < 0) {
    second_of_day += S_PER_DAY;
    days--;
  }
  int64_t year;
  int month;
  int day;
  civil_from_days(days, &year, &month, &day);
  const char *sign = year < 0 ? "-" : year > 9999 ? "+" : "";
  int len = snprintf(out, CLOCK_RFC3339_BYTES, "%s%04lld-%02d-%02dT%02d:%02d:%02d.%06dZ", sign,
                     (long long)(year < 0 ? -year : year), month, day, (int)(second_of_day / 3600),
                     (int)(second_of_day / 60 % 60), (int)(second_of_day % 60), (int)us);
  return (size_t)len;
}

/* The inverse of civil_from_days. */
static int64_t days_from_civil(int year, int month, int day) {
  int64_t y = month <= 2 ? year - 1 : year;
  int64_t era = y / 400; /* years before 0000 are not read */
  int64_t year_of_era = y - era * 400;
  int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

static int month_days(int year, int month) {
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return days[month - 1] + (month == 2 && is_leap ? 1 : 0);
}

/* Reads exactly n digits, then moves *text behind them. */
static bool take_digits(const char **text, int n, int *out) {
  *out = 0;
  for (int i = 0; i < n; i++) {
    char c = (*text)[i];
    if (c < '0' || c > '9') {
      return false;
    }
    *out = *out * 10 + (c - '0');
  }
  *text += n;
  return true;
}

static bool take_char(const char **text, const char *any_of) {
  if (**text == '\0' || strchr(any_of, **text) == NULL) {
    return false;
  }
  ++*text;
  return true;
}

/* ".5": up to six digits; none is 0. */
static bool take_fraction(const char **text, int *us) {
  int digits_n = 0;
  *us = 0;
  if (!take_char(text, ".")) {
    return true;
  }
  for (; **text >= '0' && **text <= '9' && digits_n < 6; ++*text, digits_n++) {
    *us = *us * 10 + (**text - '0');
  }
  for (int i = digits_n; i < 6; i++) {
    *us *= 10;
  }
  return digits_n > 0;
}

/* "Z" or "+02:00"; seconds east of UTC. */
static bool take_offset(const char **text, int *offset_s) {
  int hour;
  int minute;
  *offset_s = 0;
  if (take_char(text, "Zz")) {
    return true;
  }
  int sign = **text == '-' ? -1 : 1;
  if (!take_char(text, "+-") || !take_digits(text, 2, &hour) || !take_char(text, ":") ||
      !take_digits(text, 2, &minute) || hour > 23 || minute > 59) {
    return false;
  }
  *offset_s = sign * (hour * 3600 + minute * 60);
  return true;
}

int clock_parse_time(const char *text, int64_t *wall_us, struct err *err) {
  const char *at = text;
  int year;
  int month;
  int day;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int us = 0;
  int offset_s = 0;
  bool is_read = take_digits(&at, 4, &year) && take_char(&at, "-") && take_digits(&at, 2, &month) &&
                 take_char(&at, "-") && take_digits(&at, 2, &day);
  if (is_read && *at != '\0') {
    is_read = take_char(&at, "Tt ") && take_digits(&at, 2, &hour) && take_char(&at, ":") &&
              take_digits(&at, 2, &minute) && take_char(&at, ":") && take_digits(&at, 2, &second) &&
              take_fraction(&at, &us);
    if (is_read && *at == '\0') {
      return err_set(err, ERR_USAGE, "bad_time",
                     "\"%.40s\" does not say in which zone: add Z for UTC, or such as +02:00", text);
    }
    is_read = is_read && take_offset(&at, &offset_s) && *at == '\0';
  }
  if (!is_read) {
    return err_set(
        err, ERR_USAGE, "bad_time",
        "\"%.40s\" is not a time: it takes 2026-01-31T23:59:59Z, with up to six digits behind the seconds and "
        "Z or such as +02:00, or a day, 2026-01-31",
        text);
  }
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > month_days(year, month) || hour > 23 || minute > 59 ||
      second > 59) {
    return err_set(err, ERR_USAGE, "bad_time", "\"%.40s\" is not in the calendar, or not on the clock", text);
  }
  int second_of_day = hour * 3600 + minute * 60 + second;
  int64_t seconds = days_from_civil(year, month, day) * S_PER_DAY + second_of_day - offset_s;
  *wall_us = seconds * US_PER_S + us;
  return 0;
}

void clock_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t attr;
  /* These fail only for arguments that are wrong, which these are not. */
  if (pthread_condattr_init(&attr) != 0 || pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) != 0 ||
      pthread_cond_init(cond, &attr) != 0) {
    abort();
  }
  (void)pthread_condattr_destroy(&attr);
}

int clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_us) {
  if (deadline_us == INT64_MAX) {
    return pthread_cond_wait(cond, mutex);
  }
  if (deadline_us <= 0) {
    return ETIMEDOUT;
  }
  struct timespec deadline = {.tv_sec = (time_t)(deadline_us / US_PER_S),
                              .tv_nsec = (long)(deadline_us % US_PER_S) * NS_PER_US};
  return pthread_cond_timedwait(cond, mutex, &deadline);
}
