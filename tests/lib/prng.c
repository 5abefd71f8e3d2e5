/*
 * Repeatable random numbers: see prng.h.
 */
#include "prng.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

uint64_t prng_seed(void) {
  static bool is_known;
  static uint64_t seed;
  const char *given;

  if (is_known) {
    return seed;
  }
  given = getenv("TEST_SEED");
  if (given != NULL && given[0] != '\0') {
    seed = strtoull(given, NULL, 10);
  } else {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = ((uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 20) ^ (uint64_t)getpid()) % 1000000000U;
  }
  is_known = true;
  printf("seed %" PRIu64 " (TEST_SEED=%" PRIu64 " repeats it)\n", seed, seed);
  fflush(stdout);
  return seed;
}

uint64_t prng_next(struct prng *prng) {
  uint64_t z = (prng->state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

uint64_t prng_below(struct prng *prng, uint64_t n) {
  return prng_next(prng) % n;
}

int64_t prng_between(struct prng *prng, int64_t min, int64_t max) {
  return min + (int64_t)prng_below(prng, (uint64_t)(max - min) + 1);
}

void prng_uuid(struct prng *prng, char out[PRNG_UUID_BYTES]) {
  uint64_t a = prng_next(prng);
  uint64_t b = prng_next(prng);

  a = (a & ~(uint64_t)0xf000) | 0x4000;
  b = (b & ~((uint64_t)3 << 62)) | ((uint64_t)2 << 62);
  snprintf(out, PRNG_UUID_BYTES, "%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(a >> 32), (unsigned)((a >> 16) & 0xffff),
           (unsigned)(a & 0xffff), (unsigned)(b >> 48), b & 0xffffffffffffU);
}
