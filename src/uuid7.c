/*
 * Version 7 uuids.
 *
 * Owns the time of the last one made.  Any thread.  Never makes two that compare equal or backwards within the process, whatever the clock
 * does; across a fork(2) the random bits keep them apart.
 */
#include "outboxd/uuid7.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#define NS_PER_MS 1000000
#define FRACTION_BITS 12
#define FRACTION_MASK 0xfff

static atomic_uint_fast64_t last_tick;

/* Milliseconds since 1970 and 4096ths of one behind them (RFC 9562, section 6.2, method 3). */
static uint64_t clock_tick(void) {
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
  uint64_t fraction = ((uint64_t)now.tv_nsec % NS_PER_MS << FRACTION_BITS) / NS_PER_MS;
  return ms << FRACTION_BITS | fraction;
}

/* The clock's, or one more than the last where that is not ahead of it. */
static uint64_t next_tick(void) {
  uint64_t now = clock_tick();
  uint_fast64_t last = atomic_load(&last_tick);
  uint64_t tick;
  do {
    tick = now > last ? now : last + 1;
  } while (!atomic_compare_exchange_weak(&last_tick, &last, tick));
  return tick;
}

int uuid7_make(char out[UUID7_TEXT_BYTES], struct err *err) {
  uint64_t bits = 0;
  ssize_t got;
  do {
    got = getrandom(&bits, sizeof bits, 0);
  } while (got < 0 && errno == EINTR);
  if (got != (ssize_t)sizeof bits) {
    return err_errno(err, ERR_RETRY, errno, "random numbers for a uuid");
  }
  uint64_t tick = next_tick();
  uint64_t ms = tick >> FRACTION_BITS;
  bits = (bits & UINT64_C(0x3fffffffffffffff)) | UINT64_C(0x8000000000000000); /* the variant */
  (void)snprintf(out, UUID7_TEXT_BYTES, "%08" PRIx32 "-%04" PRIx32 "-7%03" PRIx32 "-%04" PRIx32 "-%012" PRIx64,
                 (uint32_t)(ms >> 16), (uint32_t)(ms & 0xffff), (uint32_t)(tick & FRACTION_MASK),
                 (uint32_t)(bits >> 48), bits & UINT64_C(0xffffffffffff));
  return 0;
}
