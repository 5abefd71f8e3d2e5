/*
 * The aggregates that may not be claimed for now.
 *
 * Owns: the set, and its form as a parameter.  Run by: the coordinator's thread.
 */
#include "outboxd/held_back.h"

#include <stdlib.h>
#include <uthash.h>

#include "outboxd/pgarray.h"

struct entry {
  int64_t key;
  enum held_reason reason;
  int64_t due_us;
  int64_t last_id;
  bool is_kept; /* scratch of held_back_keep_dead */
  UT_hash_handle hh;
};

struct held_back {
  struct entry *entries;
  int n[HELD_REASONS_N];
  struct buf param;
  int param_n;
  int64_t param_above; /* it has the keys that have messages above this id */
  bool is_param_stale;
  int64_t next_due_us; /* a lower bound of all due times */
};

int held_back_new(struct held_back **out, struct err *err) {
  *out = calloc(1, sizeof **out);
  if (*out == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the aggregates held back");
  }
  (*out)->next_due_us = INT64_MAX;
  return 0;
}

static void drop(struct held_back *held_back, struct entry *entry) {
  held_back->n[entry->reason]--;
  held_back->is_param_stale = true;
  /* The analyzer does not follow uthash's links: it takes the last entry for one that was freed before. */
  HASH_DEL(held_back->entries, entry); /* NOLINT(clang-analyzer-unix.Malloc) */
  free(entry);
}

void held_back_free(struct held_back *held_back) {
  if (held_back == NULL) {
    return;
  }
  struct entry *entry = NULL;
  struct entry *next = NULL;
  HASH_ITER(hh, held_back->entries, entry, next) {
    drop(held_back, entry);
  }
  buf_free(&held_back->param);
  free(held_back);
}

static struct entry *find(const struct held_back *held_back, int64_t key) {
  struct entry *entry = NULL;
  HASH_FIND(hh, held_back->entries, &key, sizeof key, entry);
  return entry;
}

bool held_back_has(const struct held_back *held_back, int64_t key) {
  return find(held_back, key) != NULL;
}

static void raise_last(struct held_back *held_back, struct entry *entry, int64_t id) {
  if (id > entry->last_id) {
    held_back->is_param_stale |= entry->last_id <= held_back->param_above && id > held_back->param_above;
    entry->last_id = id;
  }
}

bool held_back_saw(struct held_back *held_back, int64_t key, int64_t id) {
  struct entry *entry = find(held_back, key);
  if (entry != NULL) {
    raise_last(held_back, entry, id);
  }
  return entry != NULL;
}

int held_back_add(struct held_back *held_back, int64_t key, enum held_reason reason, int64_t due_us, int64_t last_id,
                  struct err *err) {
  struct entry *entry = find(held_back, key);
  held_back->next_due_us = due_us < held_back->next_due_us ? due_us : held_back->next_due_us;
  if (entry != NULL) {
    if (reason > entry->reason) {
      held_back->n[entry->reason]--;
      held_back->n[reason]++;
      entry->reason = reason;
    }
    entry->due_us = due_us > entry->due_us ? due_us : entry->due_us;
    raise_last(held_back, entry, last_id);
    return 0;
  }
  entry = calloc(1, sizeof *entry);
  if (entry == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory to hold an aggregate back");
  }
  entry->key = key;
  entry->reason = reason;
  entry->due_us = due_us;
  entry->last_id = last_id;
  HASH_ADD(hh, held_back->entries, key, sizeof entry->key, entry);
  held_back->n[reason]++;
  held_back->is_param_stale = true;
  return 0;
}

int held_back_release_due(struct held_back *held_back, int64_t now_us) {
  int released_n = 0;
  int64_t next_due_us = INT64_MAX;
  struct entry *entry = NULL;
  struct entry *next = NULL;
  HASH_ITER(hh, held_back->entries, entry, next) {
    if (entry->due_us <= now_us) {
      drop(held_back, entry);
      released_n++;
    } else {
      next_due_us = entry->due_us < next_due_us ? entry->due_us : next_due_us;
    }
  }
  held_back->next_due_us = next_due_us;
  return released_n;
}

int held_back_keep_dead(struct held_back *held_back, const int64_t *keys, int n, struct err *err) {
  for (int i = 0; i < n; i++) {
    if (held_back_add(held_back, keys[i], HELD_DEAD, INT64_MAX, INT64_MAX, err) != 0) {
      return -1;
    }
    find(held_back, keys[i])->is_kept = true;
  }
  int left_n = 0;
  struct entry *entry = NULL;
  struct entry *next = NULL;
  HASH_ITER(hh, held_back->entries, entry, next) {
    if (entry->reason == HELD_DEAD && !entry->is_kept) {
      drop(held_back, entry);
      left_n++;
    } else {
      entry->is_kept = false;
    }
  }
  return left_n;
}

int64_t held_back_next_due_us(const struct held_back *held_back) {
  return held_back->next_due_us;
}

int held_back_n(const struct held_back *held_back, enum held_reason reason) {
  return held_back->n[reason];
}

static int build_param(struct held_back *held_back, int64_t above_id, struct err *err) {
  int n = 0;
  for (const struct entry *entry = held_back->entries; entry != NULL; entry = entry->hh.next) {
    n += entry->last_id > above_id;
  }
  held_back->is_param_stale = true;
  buf_reset(&held_back->param);
  if (pgarray_begin(&held_back->param, PGARRAY_INT8, n, err) != 0) {
    return -1;
  }
  for (const struct entry *entry = held_back->entries; entry != NULL; entry = entry->hh.next) {
    if (entry->last_id > above_id && pgarray_int8(&held_back->param, entry->key, err) != 0) {
      return -1;
    }
  }
  held_back->param_n = n;
  held_back->param_above = above_id;
  held_back->is_param_stale = false;
  return 0;
}

int held_back_param(struct held_back *held_back, int64_t above_id, const struct buf **out, struct err *err) {
  bool is_other = held_back->is_param_stale || above_id != held_back->param_above;
  if (is_other && build_param(held_back, above_id, err) != 0) {
    return -1;
  }
  *out = held_back->param_n > 0 ? &held_back->param : NULL;
  return 0;
}
