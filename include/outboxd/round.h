/*
 * One write to Redis: a script call for each lane that has something to write, and what their replies mean.
 *
 * Belongs to a publisher's thread; does no I/O: it fills a pipeline, and reads the replies that somebody else fetched into it.
 * See docs/architecture.md "The journal" and src/publish.lua.
 */
#ifndef OUTBOXD_ROUND_H
#define OUTBOXD_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/cfg.h"
#include "outboxd/cloudevent.h"
#include "outboxd/entry.h"
#include "outboxd/err.h"
#include "outboxd/keyset.h"
#include "outboxd/lane.h"
#include "outboxd/redis.h"
#include "outboxd/sha1.h"
#include "outboxd/template.h"

#define ROUND_CALL_MESSAGES_MAX 2000
/* proto-max-bulk-len as Redis has it by default: of a longer value nothing but a closed connection would be heard. */
#define ROUND_VALUE_BYTES_MAX ((size_t)512 * 1024 * 1024)

/* A message that a call decides. */
struct item {
  struct msg *msg;
  const struct batch *batch;
  int stream;           /* number in the call's keys */
  size_t envelope_from; /* in the round's envelopes, with --format cloudevents */
  size_t envelope_bytes;
  bool is_inherited; /* in the stream already; waits for the replicas only */
};

struct call {
  struct lane *lane;
  int command; /* in the pipeline */
  int first;   /* items[first .. first + n) */
  int n;
  int adds_n; /* those of them that are added; a call without any writes the journal only */
  int carried_n;
  bool has_index;    /* the index of stream names is one of its keys */
  bool is_missing;   /* the script was not loaded: sent again as EVAL */
  size_t lines_from; /* the names of those added, in lines */
  size_t lines_bytes;
  char token[JOURNAL_TOKEN_BYTES]; /* the new one */
};

enum call_result {
  CALL_DONE,        /* all its items have their outcome */
  CALL_AGAIN,       /* nothing was written, nothing is decided: write it in another way next time */
  CALL_EVAL,        /* the script is not loaded */
  CALL_FENCED,      /* another relay wrote the lane */
  CALL_LANE_FAILED, /* infrastructure, of this lane alone */
  CALL_LINK_FAILED  /* infrastructure, of the connection */
};

struct round {
  const struct template *template;
  int64_t write_bytes_max;
  bool has_wait;                      /* replicas are waited for: inherited messages need a call as well */
  bool has_index;                     /* the template makes more than one stream a lane */
  const struct cloudevent_form *form; /* NULL: a field for each column */
  const struct option_list *groups;   /* --ensure-group */
  int64_t stream_ttl_ms;              /* 0: none */

  struct redis_pipeline *pipeline;
  struct call *calls;
  int calls_n;
  int calls_size;
  struct item *items;
  int items_n;
  int items_size;
  int64_t bytes; /* of the messages taken so far */
  struct buf envelopes;
  struct buf lines;
  struct buf journal;
  struct buf stream;
  struct keyset streams;
  int64_t *lags_us; /* of the messages that replies reported as added; room for items_size */
  int lags_n;
  char sha[SHA1_HEX_BYTES];
  struct entry_day day;
};

/* cfg, template and form (NULL: --format fields) are borrowed.  ERR_RETRY on no memory.  Caller: round_fini. */
must_check int round_init(struct round *round, const struct cfg *cfg, const struct template *template,
                          const struct cloudevent_form *form, struct err *err);
void round_fini(struct round *round);

/* Empties it for the next write. */
void round_begin(struct round *round);

/* Takes what the lane's queue has and the limits allow into a call; none is made when nothing needs one.  Messages that can be decided without Redis are
 * decided.  ERR_RETRY on no memory: the round is unusable until round_begin. */
must_check int round_add(struct round *round, struct lane *lane, struct err *err);

/* Puts call number `index` of from's pipeline into pipeline again, as EVAL. */
must_check int round_append_eval(const struct round *round, int index, struct redis_pipeline *pipeline,
                                 struct err *err);

/* Logs, limited, that a group, an entry of the index or an expiry could not be written; text is Redis' error.  No message depends on these. */
void round_log_upkeep(int lane, const char *text);

/* What the reply to a call means; decides its messages and moves the lane's token and names on when it was written.  reply_us: when it came in.
 * err is filled for CALL_FENCED, CALL_LANE_FAILED and CALL_LINK_FAILED (class ERR_RETRY). */
must_check enum call_result round_read_reply(struct round *round, const struct call *call,
                                             const struct redis_reply *reply, int64_t reply_us, struct err *err);

#endif
