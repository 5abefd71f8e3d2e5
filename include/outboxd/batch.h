/*
 * A batch: what one claim returned, cut into runs, one a lane.  The messages refer into the PGresult; nothing is copied.
 *
 * Made by a claimer, handed to the publishers by the coordinator, given back to it with an outcome for each message.
 * Reference-counted: the coordinator holds one, each publisher one for as long as it carries names of the batch's messages in a journal.
 * Between batch_new and the last batch_unref the result is read-only; the outcomes of a run are written by the one publisher that has
 * the run, before it posts the completion (the queue's lock orders that with the coordinator's reading).
 */
#ifndef OUTBOXD_BATCH_H
#define OUTBOXD_BATCH_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"

/* The columns of sql/claim.sql, in its order; the result is binary. */
enum batch_column {
  COL_LEAF,       /* oid of the partition (or of the plain table) */
  COL_CTID,       /* tid: block int4, offset int2 */
  COL_ID,         /* int8 */
  COL_MESSAGE_ID, /* this and the texts below: bytes as PostgreSQL prints them */
  COL_AGGREGATE_TYPE,
  COL_AGGREGATE_ID,
  COL_EVENT_TYPE,
  COL_PAYLOAD,
  COL_ATTEMPTS,      /* int4 */
  COL_CREATED_AT,    /* timestamptz: int8 microseconds since 2000 */
  COL_LANE_HASH,     /* int8: hash of aggregate_id; lane = hash mod lanes */
  COL_AGGREGATE_KEY, /* int8: hash of (aggregate_type, aggregate_id); equal for equal aggregates */
  COL_COMPRESSED,    /* int4: stored bytes of a compressed payload, else 0 */
  COL_LOOKED_N,      /* int4: pending messages the claim looked at; 0 from a simple one */
  COL_FIT_N,         /* int4: how many of them should have been locked; from a simple one whether this row fits */
  COL_NOW,           /* timestamptz: the database's clock at the claim */
  COL_SNAPSHOT,      /* text of the claim's snapshot and its own transaction (horizon.h); in the first row at least */
  COL_REVIVED, /* int8: the transaction that gave a dead message new attempts, its lower 32 bits; NULL for any other message */
  COL_HEADERS /* only when the table has the column */
};

enum outcome {
  OUTCOME_NONE = 0,  /* not decided */
  OUTCOME_PUBLISHED, /* certain to be in its stream */
  OUTCOME_FAILED,    /* refused by Redis or unfit: costs an attempt; msg.error says why */
  OUTCOME_WITHHELD   /* not tried, or its fate unknown: stays pending, costs nothing */
};

#define BATCH_CTID_BYTES 6

/* What is asked of a message again and again is read once, while the row is still in the cache of whoever received it: one line of it. */
struct msg {
  int64_t id;
  int64_t key; /* COL_AGGREGATE_KEY */
  /* COL_CREATED_AT, microseconds since 1970 UTC; INT64_MAX / INT64_MIN for infinity (and years above 294246) / -infinity */
  int64_t created_us;
  int64_t bytes; /* of its texts, the headers too */
  char *error;   /* OUTCOME_FAILED: owned, a sentence; else NULL */
  int row;       /* in the result */
  int lane;
  uint32_t leaf;     /* COL_LEAF */
  const char *texts; /* COL_MESSAGE_ID, the first of the texts; for batch_prefetch */
  enum outcome outcome;
  unsigned char ctid[BATCH_CTID_BYTES]; /* COL_CTID */
  bool has_created_at;                  /* else it is NULL, and created_us 0 */
  bool is_revived;                      /* COL_REVIVED is not NULL */
};

/* The messages of one lane within a batch, in id order. */
struct run {
  int lane;
  int n;
  struct msg *msgs; /* points into batch->msgs */
};

struct batch {
  PGresult *result;
  int64_t epoch;
  int64_t seq; /* claim order within the process, from 1 */
  int n;
  int looked_n;     /* pending messages the claim looked at: as many as it may take, or all there were */
  int fit_n;        /* how many of them it should have returned: a missing one is held by another session */
  struct msg *msgs; /* grouped by lane, in id order within a lane */
  int runs_n;
  struct run *runs;
  int64_t claimed_us; /* clock_now_us when the claim's reply was in */
  int64_t db_now_us;  /* COL_NOW, microseconds since 1970 */
  struct msg last;    /* the last one in id order, as the claim returned it */
  int growth;         /* text bytes of one stored byte of a compressed payload, rounded up, at most; 0: there is none */
  int parts_open_n;   /* coordinator only: publishers that have not answered yet */
  int handed_n;       /* messages that had no outcome when the batch was marked or handed to the publishers */
  bool needs_mark;    /* its rows are not locked: claimer_mark comes before anything else */
  bool is_waiting;    /* coordinator only: no publisher has it yet; it, or one before it, is being marked */
  bool is_untouched;  /* coordinator only: all of it is held back, no publisher has it */
  bool is_given_back; /* coordinator only: to be rolled back instead of settled */
  _Atomic int refs_n;
};

/* Takes over *result (set to NULL) and builds the runs.  lanes_n as configured.  Asserts id order.  ERR_RETRY on no memory, ERR_BUG when order or
 * lanes do not hold.  One reference, the caller's. */
must_check int batch_new(PGresult **result, int lanes_n, struct batch **out, struct err *err);
void batch_ref(struct batch *batch);
/* Drops one reference and sets *ref to NULL; frees with the last.  Any thread. */
void batch_unref(struct batch **ref);

/* The lane of a hash: the same arithmetic as sql/claim.sql's. */
int batch_lane_of(int64_t hash, int lanes_n);

/* Bytes of a text column; *bytes gets the length.  SQL NULL reads as the empty text. */
const char *batch_text(const struct batch *batch, const struct msg *msg, enum batch_column column, size_t *bytes);

/* Has the processor fetch a message that is read soon: another core has written it, and its texts are not beside those of the message before.  A hint and
 * no more: libpq (15) keeps a row in one piece, the lengths of its columns before their texts.  Any thread. */
static inline void batch_prefetch(const struct msg *msg) {
  enum { LINE_BYTES = 64, BEFORE_BYTES = 6 * LINE_BYTES, AFTER_BYTES = 8 * LINE_BYTES };
  for (int at = -BEFORE_BYTES; at < AFTER_BYTES; at += LINE_BYTES) {
    __builtin_prefetch(msg->texts + at);
  }
}

bool batch_is_null(const struct batch *batch, const struct msg *msg, enum batch_column column);
int64_t batch_int64(const struct batch *batch, const struct msg *msg, enum batch_column column);
int32_t batch_int32(const struct batch *batch, const struct msg *msg, enum batch_column column);
bool batch_has_headers(const struct batch *batch);

/* Was all of it published that was handed out to be (handed_n)? */
bool batch_is_all_published(const struct batch *batch);

/* Sets the outcome; text (may be NULL) is copied as the error of a failed one. */
void batch_set_outcome(struct msg *msg, enum outcome outcome, const char *text);

#endif
