/*
 * What every fuzzer includes: the entry point, a check that is there in every build, and a way to take an input apart.
 *
 * A fuzzer is one file with LLVMFuzzerTestOneInput.  It is linked with libFuzzer (make fuzz) or with replay.c (make unit).
 * It must be deterministic and keep no state from input to input.
 */
#ifndef OUTBOXD_TESTS_FUZZ_H
#define OUTBOXD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A property: aborts when it does not hold. */
#define FUZZ_REQUIRE(condition_)                                                                     \
  do {                                                                                               \
    if (!(condition_)) {                                                                             \
      (void)fprintf(stderr, "%s:%d: property does not hold: %s\n", __FILE__, __LINE__, #condition_); \
      abort();                                                                                       \
    }                                                                                                \
  } while (0)

/* The bytes of an input that are not taken yet. */
struct fuzz_input {
  const uint8_t *data;
  size_t n;
};

/* The next byte; 0 when there is none. */
static inline unsigned fuzz_u8(struct fuzz_input *input) {
  if (input->n == 0) {
    return 0;
  }
  input->n--;
  return *input->data++;
}

static inline uint64_t fuzz_u64(struct fuzz_input *input) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) {
    value = value << 8 | fuzz_u8(input);
  }
  return value;
}

/* At most max bytes, as many as the next byte says.  A copy of its own size with a NUL behind it, so that reading too far is seen; *n gets its
 * length.  Caller: free. */
static inline char *fuzz_bytes(struct fuzz_input *input, size_t max, size_t *n) {
  size_t want = fuzz_u8(input);
  want = want < max ? want : max;
  *n = want < input->n ? want : input->n;
  char *copy = malloc(*n + 1);
  FUZZ_REQUIRE(copy != NULL);
  if (*n > 0) {
    memcpy(copy, input->data, *n);
  }
  copy[*n] = '\0';
  input->data += *n;
  input->n -= *n;
  return copy;
}

/* All that is left, in the same way. */
static inline char *fuzz_rest(struct fuzz_input *input, size_t *n) {
  char *copy = calloc(1, input->n + 1);
  FUZZ_REQUIRE(copy != NULL);
  if (input->n > 0) {
    memcpy(copy, input->data, input->n);
  }
  *n = input->n;
  input->data += input->n;
  input->n = 0;
  return copy;
}

#endif
