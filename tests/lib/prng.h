/*
 * Repeatable random numbers: splitmix64 (Steele, Lea, Flood 2014).  One state a thread.
 */
#ifndef TEST_PRNG_H
#define TEST_PRNG_H

#include <stdint.h>

struct prng {
  uint64_t state;
};

/* The seed of this program: $TEST_SEED, else from the clock; printed once so that a run can be repeated.  Main thread. */
uint64_t prng_seed(void);

uint64_t prng_next(struct prng *prng);

/* 0..n-1; n > 0. */
uint64_t prng_below(struct prng *prng, uint64_t n);

/* min..max, both included. */
int64_t prng_between(struct prng *prng, int64_t min, int64_t max);

#define PRNG_UUID_BYTES 37
/* A version 4 uuid in canonical form, with its NUL. */
void prng_uuid(struct prng *prng, char out[PRNG_UUID_BYTES]);

#endif
