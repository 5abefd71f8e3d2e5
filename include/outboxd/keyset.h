/*
 * Distinct byte strings, numbered from 0 in the order of their first appearance: the streams of one script call.
 *
 * Belongs to one thread; keeps its memory from use to use.
 */
#ifndef OUTBOXD_KEYSET_H
#define OUTBOXD_KEYSET_H

#include <stddef.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/err.h"

struct keyset_key {
  size_t from; /* offset in bytes */
  size_t n;
  uint64_t hash;
};

struct keyset {
  struct buf bytes;
  int n;
  int size;
  struct keyset_key *keys;
  int slots_n;     /* a power of two, at least twice n */
  uint32_t *slots; /* number of a key plus 1; 0: free */
};

#define KEYSET_INIT \
  { BUF_INIT, 0, 0, NULL, 0, NULL }

void keyset_reset(struct keyset *set);
void keyset_free(struct keyset *set);
/* The number of a key, which is added when it is new.  ERR_RETRY on no memory. */
must_check int keyset_add(struct keyset *set, const void *key, size_t n, int *number, struct err *err);
/* The bytes of a key; valid until the next keyset_add. */
const char *keyset_get(const struct keyset *set, int number, size_t *n);

#endif
