/*
 * Durations and sizes as people write them on the command line.  Pure functions, any thread.
 */
#ifndef OUTBOXD_UNITS_H
#define OUTBOXD_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"

/* "100ms", "5s", "1m", "2h", "15d" (a whole number and a unit; nothing else) to milliseconds.  "0" alone is 0.  ERR_USAGE on anything else or overflow. */
must_check int units_parse_duration_ms(const char *text, int64_t *out_ms, struct err *err);

/* "8MiB", "64KiB", "1GiB", "1000" or "1000B" to bytes.  ERR_USAGE on anything else or overflow. */
must_check int units_parse_size_bytes(const char *text, int64_t *out_bytes, struct err *err);

/* The shortest exact form ("1m", "90s", "8MiB", "1000B"); out is cut to n bytes. */
void units_format_duration(int64_t ms, char *out, size_t n);
void units_format_size(int64_t bytes, char *out, size_t n);

#endif
