/*
 * The log-linear histogram.
 *
 * Owns nothing; runs on whichever thread holds the histogram.
 */
#include "outboxd/histogram.h"

#include <string.h>

#define LINEAR 128 /* below this a slot holds one value */
#define SLOTS_PER_POWER 64
#define POWER_BITS 6 /* log2 of SLOTS_PER_POWER */

static unsigned slot_of(uint64_t value) {
  if (value < LINEAR) {
    return (unsigned)value;
  }
  /* The highest set bit and the POWER_BITS bits below it select the slot. */
  unsigned shift = 63u - (unsigned)__builtin_clzll(value) - POWER_BITS;
  return shift * SLOTS_PER_POWER + (unsigned)(value >> shift);
}

/* The largest value that falls into the slot. */
static int64_t slot_top(unsigned slot) {
  if (slot < LINEAR) {
    return (int64_t)slot;
  }
  unsigned shift = slot / SLOTS_PER_POWER - 1;
  uint64_t first = (uint64_t)(slot - shift * SLOTS_PER_POWER) << shift;
  return (int64_t)(first + ((UINT64_C(1) << shift) - 1));
}

void histogram_record(struct histogram *histogram, int64_t value_us) {
  int64_t value = value_us > 0 ? value_us : 0;
  histogram->slots[slot_of((uint64_t)value)]++;
  histogram->count++;
  if (value > histogram->max) {
    histogram->max = value;
  }
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
  for (unsigned i = 0; i < HISTOGRAM_SLOTS; i++) {
    into->slots[i] += from->slots[i];
  }
  into->count += from->count;
  if (from->max > into->max) {
    into->max = from->max;
  }
}

void histogram_reset(struct histogram *histogram) {
  memset(histogram, 0, sizeof *histogram);
}

int64_t histogram_quantile_us(const struct histogram *histogram, double q) {
  /* The rank of the value looked for, counted from 1. */
  double exact_rank = q * (double)histogram->count;
  uint64_t rank = exact_rank > 1 ? (uint64_t)exact_rank : 1;
  if ((double)rank < exact_rank) {
    rank++;
  }
  uint64_t seen = 0;
  for (unsigned i = 0; i < HISTOGRAM_SLOTS; i++) {
    seen += histogram->slots[i];
    if (seen >= rank) {
      int64_t top = slot_top(i);
      return top < histogram->max ? top : histogram->max;
    }
  }
  return histogram->max;
}
