/*
 * Exponential backoff with jitter.
 *
 * Owns: a pseudo-random state for each thread, seeded from the kernel.
 */
#include "outboxd/backoff.h"

#include <sys/random.h>

#include "outboxd/clock.h"

/* xorshift64*, Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016). */
uint64_t backoff_random(uint64_t n) {
  static _Thread_local uint64_t state;
  while (state == 0) {
    if (getrandom(&state, sizeof state, GRND_NONBLOCK) != (ssize_t)sizeof state) {
      state = (uint64_t)clock_now_us();
    }
  }
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return n > 0 ? (state * UINT64_C(2685821657736338717) >> 11) % n : 0;
}

int64_t backoff_nth_us(int64_t first_ms, int64_t max_ms, int nth) {
  int64_t wait_ms = first_ms;
  for (int i = 1; i < nth && wait_ms < max_ms; i++) {
    wait_ms *= 2;
  }
  int64_t wait_us = (wait_ms < max_ms ? wait_ms : max_ms) * 1000;
  return wait_us / 2 + (int64_t)backoff_random((uint64_t)(wait_us / 2 + 1));
}

int64_t backoff_next_us(struct backoff *backoff) {
  backoff->failures_n++;
  return backoff_nth_us(backoff->first_ms, backoff->max_ms, backoff->failures_n);
}

void backoff_reset(struct backoff *backoff) {
  backoff->failures_n = 0;
}
