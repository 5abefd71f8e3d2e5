/*
 * Text for people: what stands on a terminal.
 *
 * Pure functions, any thread.
 */
#ifndef OUTBOXD_SAY_H
#define OUTBOXD_SAY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SAY_BYTES 40

/* "1,234,567".  Returns out, as all of these do. */
const char *say_count(int64_t n, char out[SAY_BYTES]);

/* Microseconds, in two units at most: "0.4 s", "12 s", "3 m 20 s", "5 h 2 m", "12 d 3 h"; a negative age (clocks differ) is "0 s". */
const char *say_age(int64_t us, char out[SAY_BYTES]);

/* "512 B", "8.0 KiB", "1.4 GiB". */
const char *say_bytes(int64_t bytes, char out[SAY_BYTES]);

/* Writes data as it may stand on a terminal: control characters, which could move the cursor or worse, as '?'; cut after max bytes (whole
 * UTF-8 characters) with "..." behind. */
void say_clean(FILE *out, const char *text, size_t max);

#endif
