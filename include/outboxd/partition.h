/*
 * Partitions by date: what they are called, where they begin and end, which ones are missing.  Pure, any thread.
 */
#ifndef OUTBOXD_PARTITION_H
#define OUTBOXD_PARTITION_H

#include <stdint.h>

#include "outboxd/err.h"

#define PARTITION_DAY_US (INT64_C(86400) * 1000000)

/* Microseconds since 1970 UTC; the upper bound is exclusive.  INT64_MIN and INT64_MAX: there is none. */
struct partition_bounds {
  int64_t from_us;
  int64_t to_us;
};

/* Midnight UTC at or before at_us. */
int64_t partition_day_start(int64_t at_us);

/* Partitions that end at or before this may go: what is older than retention_ms, but never yesterday's, which is made anew otherwise. */
int64_t partition_cut(int64_t now_us, int64_t retention_ms);

#define PARTITION_NAME_BYTES 64 /* PostgreSQL's NAMEDATALEN: 63 bytes and the NUL */
/* What a table's name may have, so that the names made from it (_y2026m01d31, _pending_idx) fit. */
#define PARTITION_TABLE_BYTES_MAX 51

/* Writes <table>_yYYYYmMMdDD after the lower bound's UTC day; with tHHMM behind it when the bound is not midnight.  ERR_USAGE when that is
 * longer than PostgreSQL's 63 bytes. */
must_check int partition_name(const char *table, int64_t from_us, char out[PARTITION_NAME_BYTES], struct err *err);

#define PARTITION_BOUND_BYTES 48
/* Writes a bound as an SQL literal, quotes included: '2026-01-31 00:00:00+00'. */
void partition_format_bound(int64_t bound_us, char out[PARTITION_BOUND_BYTES]);

#define PARTITION_PLAN_MAX 4096
/* The partitions missing between from_us and to_us, oldest first, given those that exist (sorted, not overlapping).  They follow the interval
 * of the newest one: whole months when both its ends are months' ends, else its length, UTC days when there is none; a gap before it is filled
 * by days.  ERR_FATAL when it would be more than PARTITION_PLAN_MAX.  *out is the caller's to free (NULL when *out_n is 0). */
must_check int partition_plan(const struct partition_bounds *existing, int existing_n, int64_t from_us, int64_t to_us,
                              struct partition_bounds **out, int *out_n, struct err *err);

#endif
