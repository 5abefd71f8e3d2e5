/*
 * The two clocks: a monotonic one for deadlines and durations, the wall clock for log lines only.
 */
#ifndef OUTBOXD_CLOCK_H
#define OUTBOXD_CLOCK_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"

/* Microseconds of CLOCK_MONOTONIC.  Any thread. */
int64_t clock_now_us(void);

/* Microseconds since 1970 UTC of CLOCK_REALTIME.  Any thread. */
int64_t clock_wall_us(void);

/* Milliseconds from now_us until deadline_us, rounded up, 0 when it has passed, at most INT_MAX: a timeout for poll(2). */
int clock_poll_timeout_ms(int64_t deadline_us, int64_t now_us);
/* The same for ppoll(2), to the microsecond.  Returns out. */
struct timespec *clock_poll_timeout(int64_t deadline_us, int64_t now_us, struct timespec *out);

#define CLOCK_RFC3339_BYTES 40
/* Writes wall_us (microseconds since 1970 UTC) as RFC 3339 with microseconds and Z ("2026-01-31T23:59:59.000001Z").
 * Years past 9999 or before 0001 get more digits or a sign, as ISO 8601 has it.  Returns the length. */
size_t clock_format_rfc3339(int64_t wall_us, char out[CLOCK_RFC3339_BYTES]);

/* Reads RFC 3339 ("2026-01-31T23:59:59.5Z", "2026-01-31 23:59:59+02:00": seconds may have up to six digits behind the point) or a day
 * ("2026-01-31": its beginning in UTC); years 0001 to 9999.  ERR_USAGE says what it takes, or what is wrong. */
must_check int clock_parse_time(const char *text, int64_t *wall_us, struct err *err);

/* Makes a condition variable that waits on CLOCK_MONOTONIC. */
void clock_cond_init(pthread_cond_t *cond);

/* Waits on cond until deadline_us (clock_now_us); INT64_MAX waits for ever.  Returns 0, or ETIMEDOUT. */
int clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_us);

#endif
