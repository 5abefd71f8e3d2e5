/*
 * A set of keys: their bytes one behind the other, found by open addressing.
 *
 * Owns its memory; the thread that has the set runs it.
 */
#include "outboxd/keyset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 64

void keyset_reset(struct keyset *set) {
  buf_reset(&set->bytes);
  if (set->n > 0) {
    memset(set->slots, 0, (size_t)set->slots_n * sizeof *set->slots);
  }
  set->n = 0;
}

void keyset_free(struct keyset *set) {
  buf_free(&set->bytes);
  free(set->keys);
  free(set->slots);
  *set = (struct keyset)KEYSET_INIT;
}

/* FNV-1a, 64 bits (G. Fowler, L. C. Noll, K.-P. Vo). */
static uint64_t hash_of(const unsigned char *key, size_t n) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < n; i++) {
    hash = (hash ^ key[i]) * UINT64_C(1099511628211);
  }
  return hash ^ hash >> 32;
}

/* The slot that holds the key, or the free one where it belongs. */
static uint32_t *find_slot(const struct keyset *set, const void *key, size_t n, uint64_t hash) {
  size_t mask = (size_t)set->slots_n - 1;
  for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
    uint32_t *slot = &set->slots[i];
    if (*slot == 0) {
      return slot;
    }
    const struct keyset_key *have = &set->keys[*slot - 1];
    if (have->hash == hash && have->n == n && (n == 0 || memcmp(set->bytes.data + have->from, key, n) == 0)) {
      return slot;
    }
  }
}

static int grow(struct keyset *set, struct err *err) {
  int size = set->size == 0 ? FIRST_SIZE : set->size * 2;
  struct keyset_key *keys = realloc(set->keys, (size_t)size * sizeof *keys);
  if (keys == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "stream names");
  }
  set->keys = keys;
  uint32_t *slots = calloc((size_t)size * 2, sizeof *slots);
  if (slots == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "stream names");
  }
  free(set->slots);
  set->slots = slots;
  set->slots_n = size * 2;
  set->size = size;
  for (int i = 0; i < set->n; i++) {
    const struct keyset_key *key = &set->keys[i];
    *find_slot(set, set->bytes.data + key->from, key->n, key->hash) = (uint32_t)i + 1;
  }
  return 0;
}

int keyset_add(struct keyset *set, const void *key, size_t n, int *number, struct err *err) {
  if (set->n == set->size && grow(set, err) != 0) {
    return -1;
  }
  uint64_t hash = hash_of(key, n);
  uint32_t *slot = find_slot(set, key, n, hash);
  if (*slot == 0) {
    size_t from = set->bytes.len;
    if (buf_append(&set->bytes, key, n, err) != 0) {
      return -1;
    }
    set->keys[set->n] = (struct keyset_key){.from = from, .n = n, .hash = hash};
    set->n++;
    *slot = (uint32_t)set->n;
  }
  *number = (int)*slot - 1;
  return 0;
}

const char *keyset_get(const struct keyset *set, int number, size_t *n) {
  *n = set->keys[number].n;
  return set->bytes.data + set->keys[number].from;
}
