/*
 * The inside of `outboxd replay`: the command (cmd_replay.c), reading the table (cmd_replay_read.c), writing to Redis (cmd_replay_write.c).
 *
 * Main thread, no other exists.
 */
#ifndef OUTBOXD_CMD_REPLAY_IMPL_H
#define OUTBOXD_CMD_REPLAY_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/buf.h"
#include "outboxd/cfg.h"
#include "outboxd/entry.h"
#include "outboxd/err.h"
#include "outboxd/keyset.h"
#include "outboxd/pg.h"
#include "outboxd/progress.h"
#include "outboxd/redis.h"
#include "outboxd/schema.h"
#include "outboxd/selector.h"
#include "outboxd/stop.h"
#include "outboxd/template.h"
#include "outboxd/url.h"

#define REPLAY_SESSION_MS INT64_C(30000)
#define REPLAY_NUMBER_BYTES 24
/* Pending ones are counted up to here. */
#define REPLAY_PENDING_MAX 100000

/* The messages of the batch that is being written, in id order. */
struct replay_item {
  const struct msg *msg;
  int stream; /* number in the call's keys */
};

struct replay {
  const struct cfg *cfg;
  const struct stop *stop; /* set by a signal */
  struct selector selector;
  char after[REPLAY_NUMBER_BYTES];
  char *range; /* SQL: what --from and --to say */
  struct template *template;
  struct url url;
  struct progress progress;

  /* Reading. */
  struct pg *pg;
  char quoted[SCHEMA_FULL_NAME_BYTES]; /* the table's name for SQL */
  bool has_headers;
  char *page;         /* SQL, looking into all partitions */
  char *page_in_span; /* SQL, only into those that created_at leads to */
  char *moved;        /* SQL: rows of a page that are elsewhere now, likewise */
  char *moved_in_span;
  PGresult *keys;       /* of the cursor's last FETCH */
  int key;              /* the next of them */
  struct buf params[4]; /* of the page */

  /* Writing. */
  struct redis *redis;
  struct redis_pipeline *pipeline;
  struct keyset streams;
  struct buf stream;
  struct entry_day day;
  struct replay_item *items; /* room for items_size */
  int items_size;
  int64_t began_us; /* of the first write: what the rate is counted from */

  /* What became of the messages: total = published + discarded + unnamed + gone, at the end. */
  int64_t total_n; /* published ones that were asked for */
  int64_t published_n;
  int64_t discarded_n;
  int64_t unnamed_n;     /* no message_id: the relay has never published it */
  int64_t gone_n;        /* no longer there: dropped with its partition, deleted, given back */
  int64_t pending_n;     /* not of the total */
  int64_t first_id;      /* of those published; means nothing while there is none */
  int64_t last_id;       /* everything up to it was confirmed */
  int64_t doubt_from_id; /* sent, and no reply came; has_doubt */
  int64_t doubt_to_id;
  bool has_doubt;
};

/* Draws how far it is, when that is due. */
void replay_note(struct replay *replay);

/* Connects, finds the messages (which reads the table once) and counts them.  Errors as pg_connect, schema_find, pg_call. */
must_check int replay_find(struct replay *replay, struct err *err);
/* The next messages in id order, as many as --max-batch-bytes allows, or one; *out is NULL when there is none left.  Caller: batch_unref. */
must_check int replay_read(struct replay *replay, struct batch **out, struct err *err);
/* --dry-run: passes over all of them, and counts as published what would be. */
must_check int replay_count(struct replay *replay, struct err *err);

/* Connects, and refuses streams that are a relay's unless that was asked for. */
must_check int replay_open(struct replay *replay, struct err *err);
/* Adds the batch's messages in id order, as fast as --rate allows.  Stops at the first that is refused, at a signal between two writes. */
must_check int replay_write(struct replay *replay, const struct batch *batch, struct err *err);

#endif
