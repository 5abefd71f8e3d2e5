/*
 * From which id on the next claim has to look.
 *
 * Owns: the last claims' cursors and snapshots, the transactions that may still bring rows behind near.  Run by: the coordinator's thread.
 * Never: forgets such a transaction before a claim has looked everywhere it may have written.
 */
#include "outboxd/horizon.h"

#include <stdlib.h>
#include <string.h>

#include "outboxd/pgarray.h"

/* A claim's cursor becomes near after so long: in between, a session may have drawn an id and not yet begun to write. */
#define NEAR_DELAY_US 200000

/* Transactions of our own that can still be in progress in a snapshot: one for each claimer, of which there are at most 64. */
#define OWN_XIDS_N 128

/* A claim that near has not reached yet. */
struct past {
  struct past *next;
  int64_t at_us;
  int64_t last_id;
  bool is_old;
  uint64_t xmax; /* of its snapshot: no transaction from here on had ended */
  int xids_n;
  uint64_t xids[]; /* in progress in its snapshot */
};

/* A transaction that was in progress when near passed. */
struct open_xid {
  uint64_t xid;
  int64_t low; /* it may have drawn ids above this one */
};

struct horizon {
  struct past *first; /* oldest */
  struct past **last;
  int64_t near;
  int64_t cursor;
  struct open_xid *open;
  int open_n;
  int open_size;
  uint64_t own[OWN_XIDS_N]; /* a ring of the last claims' transactions */
  int own_at;
  struct past *start; /* a copy of the epoch's first; NULL: not known yet */
  struct buf xids;    /* both as parameters */
  struct buf lows;
};

int horizon_new(struct horizon **out, struct err *err) {
  *out = calloc(1, sizeof **out);
  if (*out == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the horizon");
  }
  (*out)->last = &(*out)->first;
  horizon_reset(*out);
  return 0;
}

static void drop_first(struct horizon *horizon) {
  struct past *past = horizon->first;
  horizon->first = past->next;
  if (horizon->first == NULL) {
    horizon->last = &horizon->first;
  }
  free(past);
}

void horizon_reset(struct horizon *horizon) {
  while (horizon->first != NULL) {
    drop_first(horizon);
  }
  free(horizon->start);
  horizon->start = NULL;
  horizon->near = INT64_MIN;
  horizon->cursor = INT64_MIN;
  horizon->open_n = 0;
  buf_reset(&horizon->xids);
  buf_reset(&horizon->lows);
}

void horizon_free(struct horizon *horizon) {
  if (horizon == NULL) {
    return;
  }
  horizon_reset(horizon);
  free(horizon->open);
  buf_free(&horizon->xids);
  buf_free(&horizon->lows);
  free(horizon);
}

static bool is_own(const struct horizon *horizon, uint64_t xid) {
  for (int i = 0; i < OWN_XIDS_N; i++) {
    if (horizon->own[i] == xid) {
      return true;
    }
  }
  return false;
}

/* Reads a number at *at and steps over it; false when there is none that fits. */
static bool read_xid(const char **at, uint64_t *out) {
  const char *p = *at;
  uint64_t xid = 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    if (__builtin_mul_overflow(xid, 10, &xid) || __builtin_add_overflow(xid, (uint64_t)(*p - '0'), &xid)) {
      return false;
    }
  }
  bool is_number = p > *at;
  *at = p;
  *out = xid;
  return is_number;
}

static bool read_colon(const char **at) {
  return *(*at)++ == ':';
}

/* Reads "xmin:xmax:xip,xip:own" into a new entry, without transactions of our own; NULL when it is no such text or there is no memory. */
static struct past *read_snapshot(struct horizon *horizon, const char *text) {
  uint64_t xid;
  uint64_t xmax;
  const char *at = text;
  if (text == NULL || !read_xid(&at, &xid) || !read_colon(&at) || !read_xid(&at, &xmax) || !read_colon(&at)) {
    return NULL;
  }
  size_t xids_n = 1;
  for (const char *p = at; *p != '\0'; p++) {
    xids_n += *p == ',';
  }
  struct past *past = calloc(1, sizeof *past + xids_n * sizeof past->xids[0]);
  if (past == NULL) {
    return NULL;
  }
  past->xmax = xmax;
  bool has_more = *at != '\0' && *at != ':';
  while (has_more) {
    if (!read_xid(&at, &xid)) {
      goto fail;
    }
    if (!is_own(horizon, xid)) {
      past->xids[past->xids_n++] = xid;
    }
    has_more = *at == ',';
    at += has_more;
  }
  if (*at == ':') {
    at++;
    if (!read_xid(&at, &xid) || *at != '\0') {
      goto fail;
    }
    horizon->own[horizon->own_at] = xid;
    horizon->own_at = (horizon->own_at + 1) % OWN_XIDS_N;
  }
  if (*at == '\0') {
    return past;
  }
fail:
  free(past);
  return NULL;
}

static bool has_xid(const struct past *past, uint64_t xid) {
  for (int i = 0; i < past->xids_n; i++) {
    if (past->xids[i] == xid) {
      return true;
    }
  }
  return false;
}

/* What has ended before the snapshot of a claim that looked everywhere brings nothing any more. */
static void forget_ended(struct horizon *horizon, const struct past *now) {
  int kept_n = 0;
  for (int i = 0; i < horizon->open_n; i++) {
    if (has_xid(now, horizon->open[i].xid)) {
      horizon->open[kept_n++] = horizon->open[i];
    }
  }
  horizon->open_n = kept_n;
}

static int remember_open(struct horizon *horizon, uint64_t xid, int64_t low, struct err *err) {
  for (int i = 0; i < horizon->open_n; i++) {
    if (horizon->open[i].xid == xid) {
      return 0;
    }
  }
  if (horizon->open_n == horizon->open_size) {
    int size = horizon->open_size > 0 ? horizon->open_size * 2 : 64;
    struct open_xid *grown = realloc(horizon->open, (size_t)size * sizeof *grown);
    if (grown == NULL) {
      return err_set(err, ERR_RETRY, "ENOMEM", "no memory for open transactions");
    }
    horizon->open = grown;
    horizon->open_size = size;
  }
  horizon->open[horizon->open_n++] = (struct open_xid){.xid = xid, .low = low};
  return 0;
}

/* May near pass this claim?  Not before its delay is over, and not beyond what the newest claim looked at. */
static bool is_passable(const struct past *past, const struct horizon_claim *claim) {
  return (past->is_old || claim->now_us - past->at_us >= NEAR_DELAY_US) &&
         (!claim->is_cut || past->last_id <= claim->last_id);
}

/* Moves near over the claims that are old enough.  Their transactions that are still in progress in the newest snapshot stay remembered; those
 * that were not known before began after the claim before, so their ids lie above its cursor. */
static int advance_near(struct horizon *horizon, const struct past *now, const struct horizon_claim *claim,
                        struct err *err) {
  while (horizon->first != NULL && is_passable(horizon->first, claim)) {
    const struct past *past = horizon->first;
    for (int i = 0; i < past->xids_n; i++) {
      if (has_xid(now, past->xids[i]) && remember_open(horizon, past->xids[i], horizon->near, err) != 0) {
        return -1;
      }
    }
    horizon->near = past->last_id > horizon->near ? past->last_id : horizon->near;
    if (past == now) {
      return 0; /* stays as the newest; passing it again changes nothing */
    }
    drop_first(horizon);
  }
  return 0;
}

static int build_params(struct horizon *horizon, struct err *err) {
  buf_reset(&horizon->xids);
  buf_reset(&horizon->lows);
  if (horizon->open_n == 0) {
    return 0;
  }
  if (pgarray_begin(&horizon->xids, PGARRAY_XID8, horizon->open_n, err) != 0 ||
      pgarray_begin(&horizon->lows, PGARRAY_INT8, horizon->open_n, err) != 0) {
    return -1;
  }
  for (int i = 0; i < horizon->open_n; i++) {
    if (pgarray_int8(&horizon->xids, (int64_t)horizon->open[i].xid, err) != 0 ||
        pgarray_int8(&horizon->lows, horizon->open[i].low, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Keeps what the epoch's first claim saw; without memory it stays unknown. */
static void note_start(struct horizon *horizon, const struct past *now) {
  size_t bytes = sizeof *now + (size_t)now->xids_n * sizeof now->xids[0];
  horizon->start = malloc(bytes);
  if (horizon->start != NULL) {
    memcpy(horizon->start, now, bytes);
  }
}

bool horizon_has_ended(const struct horizon *horizon, uint32_t xid) {
  const struct past *start = horizon->start;
  /* Transaction ids turn round: the half of them behind xmax is the past. */
  if (start == NULL || (int32_t)((uint32_t)start->xmax - xid) <= 0) {
    return false;
  }
  for (int i = 0; i < start->xids_n; i++) {
    if ((uint32_t)start->xids[i] == xid) {
      return false;
    }
  }
  return true;
}

int horizon_note(struct horizon *horizon, const struct horizon_claim *claim, struct err *err) {
  bool is_first = horizon->cursor == INT64_MIN;
  struct past *now = read_snapshot(horizon, claim->snapshot);
  if (is_first && now != NULL) {
    note_start(horizon, now);
  }
  horizon->cursor = claim->last_id > horizon->cursor ? claim->last_id : horizon->cursor;
  if (now == NULL || (claim->is_cut && claim->last_id < horizon->near)) {
    /* Not known, or it did not come as far as near: everything stays as it is, and the next claim looks at the same again. */
    free(now);
    return 0;
  }
  now->at_us = claim->now_us;
  now->last_id = claim->last_id;
  now->is_old = claim->is_old;
  *horizon->last = now;
  horizon->last = &now->next;
  forget_ended(horizon, now);
  if (advance_near(horizon, now, claim, err) != 0 || build_params(horizon, err) != 0) {
    horizon_reset(horizon); /* looking from the beginning is always right */
    return -1;
  }
  return 0;
}

int64_t horizon_near(const struct horizon *horizon) {
  return horizon->near;
}

int64_t horizon_far(const struct horizon *horizon) {
  int64_t far = horizon->near;
  for (int i = 0; i < horizon->open_n; i++) {
    far = horizon->open[i].low < far ? horizon->open[i].low : far;
  }
  return far;
}

int64_t horizon_cursor(const struct horizon *horizon) {
  return horizon->cursor;
}

const struct buf *horizon_xids(const struct horizon *horizon) {
  return horizon->xids.len > 0 ? &horizon->xids : NULL;
}

const struct buf *horizon_lows(const struct horizon *horizon) {
  return horizon->lows.len > 0 ? &horizon->lows : NULL;
}
