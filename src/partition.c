/*
 * Names, bounds and the plan of partitions by date.
 *
 * Owns nothing; any thread.  All arithmetic is in UTC: must never look at a time zone, neither of this machine nor of the database.
 */
#include "outboxd/partition.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND_US INT64_C(1000000)

/* How far each partition reaches: months when there are any, else microseconds, which are never 0. */
struct interval {
  int months;
  int64_t us;
};

int64_t partition_day_start(int64_t at_us) {
  int64_t rest = at_us % PARTITION_DAY_US;
  return at_us - (rest < 0 ? rest + PARTITION_DAY_US : rest);
}

int64_t partition_cut(int64_t now_us, int64_t retention_ms) {
  int64_t yesterday_us = partition_day_start(now_us) - PARTITION_DAY_US;
  int64_t cut_us = now_us - retention_ms * 1000;
  return cut_us < yesterday_us ? cut_us : yesterday_us;
}

static struct tm split(int64_t at_us) {
  struct tm tm;
  int64_t rest = at_us % SECOND_US;
  time_t seconds = (time_t)((at_us - (rest < 0 ? rest + SECOND_US : rest)) / SECOND_US);
  memset(&tm, 0, sizeof tm);
  (void)gmtime_r(&seconds, &tm);
  return tm;
}

int partition_name(const char *table, int64_t from_us, char out[PARTITION_NAME_BYTES], struct err *err) {
  struct tm tm = split(from_us);
  char time_of_day[24] = "";
  if (from_us != partition_day_start(from_us)) {
    (void)snprintf(time_of_day, sizeof time_of_day, "t%02d%02d", tm.tm_hour, tm.tm_min);
  }
  int n = snprintf(out, PARTITION_NAME_BYTES, "%s_y%04dm%02dd%02d%s", table, tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, time_of_day);
  if (n < 0 || n >= PARTITION_NAME_BYTES) {
    return err_set(err, ERR_USAGE, "name_too_long",
                   "the table name \"%s\" has %zu bytes: its partitions' names (%s_y2026m01d31) would not fit into "
                   "PostgreSQL's 63; "
                   "choose one of at most %d",
                   table, strlen(table), table, PARTITION_TABLE_BYTES_MAX);
  }
  return 0;
}

void partition_format_bound(int64_t bound_us, char out[PARTITION_BOUND_BYTES]) {
  struct tm tm = split(bound_us);
  int64_t fraction = ((bound_us % SECOND_US) + SECOND_US) % SECOND_US;
  char digits[16] = "";
  if (fraction != 0) {
    (void)snprintf(digits, sizeof digits, ".%06d", (int)fraction);
  }
  (void)snprintf(out, PARTITION_BOUND_BYTES, "'%04d-%02d-%02d %02d:%02d:%02d%s+00'", tm.tm_year + 1900, tm.tm_mon + 1,
                 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, digits);
}

static bool is_month_start(int64_t at_us) {
  return at_us == partition_day_start(at_us) && split(at_us).tm_mday == 1;
}

static struct interval interval_of(const struct partition_bounds *bounds) {
  if (bounds->from_us == INT64_MIN || bounds->to_us == INT64_MAX || bounds->to_us <= bounds->from_us) {
    return (struct interval){0, PARTITION_DAY_US};
  }
  if (is_month_start(bounds->from_us) && is_month_start(bounds->to_us)) {
    struct tm from = split(bounds->from_us);
    struct tm to = split(bounds->to_us);
    return (struct interval){(to.tm_year - from.tm_year) * 12 + to.tm_mon - from.tm_mon, PARTITION_DAY_US};
  }
  return (struct interval){0, bounds->to_us - bounds->from_us};
}

/* The end of the partition that begins at from_us. */
static int64_t end_after(int64_t from_us, struct interval interval) {
  if (interval.months == 0) {
    return from_us + interval.us;
  }
  struct tm tm = split(from_us);
  tm.tm_mon += interval.months; /* timegm carries into the years */
  return (int64_t)timegm(&tm) * SECOND_US;
}

/* The first partition that ends after at_us, in steps from the newest one's end. */
static struct partition_bounds following(const struct partition_bounds *newest, int64_t at_us) {
  struct interval interval = interval_of(newest);
  int64_t from_us = newest->to_us;
  if (interval.months == 0 && at_us > from_us) {
    from_us += (at_us - from_us) / interval.us * interval.us;
  }
  while (end_after(from_us, interval) <= at_us) {
    from_us = end_after(from_us, interval);
  }
  return (struct partition_bounds){from_us, end_after(from_us, interval)};
}

int partition_plan(const struct partition_bounds *existing, int existing_n, int64_t from_us, int64_t to_us,
                   struct partition_bounds **out, int *out_n, struct err *err) {
  struct partition_bounds *plan = NULL;
  int n = 0;
  int next = 0; /* of the existing ones: the first that ends after at_us */
  int64_t at_us = from_us;

  *out = NULL;
  *out_n = 0;
  while (at_us < to_us) {
    struct partition_bounds piece;
    while (next < existing_n && existing[next].to_us <= at_us) {
      next++;
    }
    if (next < existing_n && existing[next].from_us <= at_us) {
      at_us = existing[next].to_us;
      continue;
    }
    if (next < existing_n || existing_n == 0) {
      piece = (struct partition_bounds){at_us, partition_day_start(at_us) + PARTITION_DAY_US};
      if (next < existing_n && piece.to_us > existing[next].from_us) {
        piece.to_us = existing[next].from_us;
      }
    } else {
      piece = following(&existing[existing_n - 1], at_us);
    }
    if (n == PARTITION_PLAN_MAX) {
      free(plan);
      return err_set(err, ERR_FATAL, "too_many_partitions",
                     "more than %d partitions would have to be made; choose a smaller --partitions-ahead",
                     PARTITION_PLAN_MAX);
    }
    struct partition_bounds *grown = n % 64 != 0 ? plan : realloc(plan, ((size_t)n + 64) * sizeof *plan);
    if (grown == NULL) {
      free(plan);
      return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a list of %d partitions", n);
    }
    plan = grown;
    plan[n++] = piece;
    at_us = piece.to_us;
  }
  *out = plan;
  *out_n = n;
  return 0;
}
