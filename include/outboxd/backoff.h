/*
 * Exponential backoff with jitter.  A struct backoff belongs to one thread.
 *
 * Each wait is drawn from [d/2, d], d doubling from first_ms to max_ms ("equal jitter": AWS Architecture Blog, "Exponential Backoff and
 * Jitter", 2015).
 */
#ifndef OUTBOXD_BACKOFF_H
#define OUTBOXD_BACKOFF_H

#include <stdint.h>

struct backoff {
  int64_t first_ms;
  int64_t max_ms;
  int failures_n; /* since the last success */
};

/* Counts a failure and gives the time to wait, in microseconds. */
int64_t backoff_next_us(struct backoff *backoff);

/* The next failure starts over. */
void backoff_reset(struct backoff *backoff);

/* The wait after failure number nth (from 1) without keeping a state, in microseconds. */
int64_t backoff_nth_us(int64_t first_ms, int64_t max_ms, int nth);

/* A pseudo-random number in [0, n): for jitter and for nothing that must not be guessed.  Any thread. */
uint64_t backoff_random(uint64_t n);

#endif
