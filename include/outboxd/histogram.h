/*
 * A histogram of durations with a bounded relative error, in constant memory.
 *
 * Log-linear, as in G. Tene's HdrHistogram: each power of two is cut into 64 slots of equal width, so a value read back is
 * at most 1/64 larger than the one recorded.  Not thread-safe: it belongs to one thread, or lies under its owner's lock.
 */
#ifndef OUTBOXD_HISTOGRAM_H
#define OUTBOXD_HISTOGRAM_H

#include <stdint.h>

/* 128 slots of one microsecond each, then 64 for each of the other 56 powers of two of an int64_t. */
#define HISTOGRAM_SLOTS (128 + 56 * 64)

/* Zeroed memory is an empty histogram.  About 29 KB: not for the stack of a small thread. */
struct histogram {
  uint64_t count;
  int64_t max; /* exact */
  uint64_t slots[HISTOGRAM_SLOTS];
};

/* Adds a value (microseconds); a negative one, which a step of a clock can make, counts as 0. */
void histogram_record(struct histogram *histogram, int64_t value_us);

/* Adds everything in from to into. */
void histogram_merge(struct histogram *into, const struct histogram *from);

/* Empties it. */
void histogram_reset(struct histogram *histogram);

/* The smallest recorded value that at least a share q (0..1) of all values does not exceed; 0 when there are none.  Never
 * below the exact one, above it by at most 1/64 of it, never above the maximum. */
int64_t histogram_quantile_us(const struct histogram *histogram, double q);

#endif
