/*
 * A consumer's insides: what its workers share, a worker, a lane as its worker sees it.
 *
 * consumer.c starts and ends workers; consume_worker.c keeps one's servers and lanes; consume_lane.c, consume_read.c and consume_held.c are a lane's way through
 * its streams; consume_message.c is one message's transaction; consume_redis.c the exchanges with Redis.
 */
#ifndef OUTBOXD_CONSUME_IMPL_H
#define OUTBOXD_CONSUME_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#define HASH_NONFATAL_OOM 1 /* a library does not end the process */
#include <uthash.h>

#include "outbox.h"
#include "outboxd/backoff.h"
#include "outboxd/consume_cfg.h"
#include "outboxd/consume_session.h"
#include "outboxd/redis.h"
#include "outboxd/stop.h"
#include "outboxd/template.h"
#include "outboxd/url.h"
#include "outboxd/uuid7.h"

#define CONSUME_ENTRY_ID_BYTES 44 /* two numbers of 20 digits, a dash, a NUL */
#define CONSUME_NAME "outboxd" /* the consumer's name within the group: all workers', since a lane has one at a time */
#define CONSUME_SLICE_US 50000 /* a lane's turn */
#define CONSUME_FETCH_N 100    /* entries that are fetched again in one exchange */
#define CONSUME_BATCH_BYTES (4 << 20) /* what a batch should not exceed by much */

/* What all workers of a consumer share: immutable but for the atomics. */
struct consume_shared {
  const struct consume_cfg *cfg;
  struct template *template;
  struct url url;
  struct stop *drain; /* finish the message in hand */
  struct stop *abort; /* give it up */
  outbox_handler *handle;
  void *ctx;
  _Atomic int64_t handled_n, repeated_n, failed_n, parked_n, lost_n, waiting_n;
  _Atomic bool has_failed; /* a worker has met what can never work: */
  struct err failure;      /* written once, by whoever set has_failed, and read after all threads have ended */
};

/* An entry that is known by its id alone, to be fetched when its turn comes. */
struct consume_item {
  struct consume_item *next;
  int failures;      /* attempts that have failed */
  bool is_inherited; /* was pending when the lane was taken over */
  char id[CONSUME_ENTRY_ID_BYTES];
  char stream[];
};

struct consume_queue {
  struct consume_item *head, *tail;
  int n;
};

/* An aggregate whose first message has failed, or is parked: its messages wait. */
struct consume_held {
  uint64_t key;
  struct consume_queue queue;
  int64_t due_us;
  char parked_id[CONSUME_ENTRY_ID_BYTES]; /* "": not blocked by a parked entry */
  UT_hash_handle hh;
};

/* An entry in hand. */
struct consume_entry {
  const char *stream;
  const char *id;
  const struct redis_reply *fields; /* NULL: it is not in the stream any more */
  int failures;
  bool is_inherited;
};

/* Names of streams to be looked at. */
struct consume_page {
  char **names;
  int n;
  int at;
  bool is_asked; /* for what is pending in them */
};

struct consume_lane {
  int number;
  bool is_begun; /* the owner's token is set */
  char token[UUID7_TEXT_BYTES];
  char *owner_key, *index_key, *parked_key;
  char *stream; /* the lane's only one; NULL: they are in the index */

  struct consume_page page;
  bool is_scanning;   /* all streams of the index, since the lane was taken over */
  int64_t score_from; /* of the next page of the index */
  int page_limit;
  int64_t poll_due_us; /* of the index */
  int64_t rescan_due_us;
  bool is_drained;                      /* nothing new at the last look, and no sign of anything since */
  char last_id[CONSUME_ENTRY_ID_BYTES]; /* of the only stream: what lies behind it is new; "": not known */
  int read_n;                           /* entries to read at a time */

  struct consume_queue inherited;
  struct redis_pipeline *in; /* holds what is in hand */
  struct consume_entry *batch;
  int batch_n, batch_at, batch_size;
  struct consume_queue in_hand; /* the items behind the batch, when it was fetched by id */

  struct consume_held *held; /* hash table */
  int waiting_n;             /* in all of their queues */
  int64_t held_due_us;       /* the earliest; INT64_MAX: none */

  struct redis_pipeline *out; /* acknowledgements not sent yet */
};

struct consume_worker {
  int number;
  struct consume_shared *shared;
  const struct consume_cfg *cfg;
  struct consume_session session;
  struct redis *redis;
  struct redis_pipeline *call;
  bool is_redis_proven;
  struct consume_lane **lanes; /* per lane: NULL when it is not ours */
  bool *wanted;
  int lanes_n;   /* ours */
  int next_lane; /* whose turn is next */
  int64_t look_due_us;
  struct consume_outage {
    struct backoff backoff;
    int64_t next_us;
    int64_t since_us; /* 0: none */
  } pg_outage, redis_outage;
};

/* What became of a step.  LOST: *err says why; the session or the connection is to be made anew. */
enum consume_result { CONSUME_OK, CONSUME_NOTHING, CONSUME_LOST };

/* ---- consume_redis.c: exchanges that end at --redis-timeout; any error closes the connection */

must_check int consume_redis_open(struct consume_worker *worker, struct err *err);
must_check int consume_exchange(struct consume_worker *worker, struct redis_pipeline *pipeline, struct err *err);
/* One command of strings, in worker->call; the reply is valid until the next.  An error reply is an error, and closes nothing. */
const struct redis_reply *consume_command(struct consume_worker *worker, struct err *err, const char *word, ...)
    __attribute__((sentinel));
/* Waits for a new entry in the lanes' only streams, at most timeout_ms; marks lanes that have one as not drained.  "stopped" is no error. */
must_check int consume_wait(struct consume_worker *worker, int64_t timeout_ms, struct err *err);
/* The text of a reply that is one, into out; false when it is none or does not fit. */
bool consume_copy(const struct redis_reply *reply, char *out, size_t n);

/* ---- consume_message.c */

enum consume_outcome {
  CONSUME_HANDLED,
  CONSUME_REPEATED,
  CONSUME_FAILED,
  CONSUME_UNABLE,
  CONSUME_REFUSED,
  CONSUME_GONE
};

/* The fields of an entry as a message; json (NULL at first) owns what was read out of an envelope: json_decref it after use.  ERR_REJECT: it is none. */
must_check int consume_parse(const struct redis_reply *fields, struct outbox_message *message, json_t **json,
                             struct err *err);
/* Gives the message to the handler within its transaction.  GONE: the session or the connection was lost, *err says why; nothing is known of the
 * message.  FAILED, UNABLE (not the message's fault), REFUSED (park it): failure says why. */
enum consume_outcome consume_message(struct consume_worker *worker, const struct consume_entry *entry,
                                     const struct outbox_message *message, struct outbox_failure *failure,
                                     struct err *err);
/* One number for an aggregate. */
uint64_t consume_aggregate_key(const struct outbox_message *message);

/* ---- consume_held.c: queues, and aggregates that wait */

must_check int consume_push(struct consume_queue *queue, const char *stream, const char *id, int failures,
                            bool is_inherited, struct err *err);
void consume_pop(struct consume_queue *queue);
void consume_empty(struct consume_queue *queue);

struct consume_held *held_find(const struct consume_lane *lane, uint64_t key);
/* The aggregate's messages wait from now on. */
struct consume_held *held_add(struct consume_lane *lane, uint64_t key, int64_t due_us, struct err *err);
must_check int held_push(struct consume_lane *lane, struct consume_held *held, const char *stream, const char *id,
                         int failures, struct err *err);
void held_clear(struct consume_lane *lane);
/* Goes on with aggregates that are due, until slice_us. */
enum consume_result held_work(struct consume_worker *worker, struct consume_lane *lane, int64_t slice_us,
                              struct err *err);
/* With --on-parked block: which aggregates have parked entries. */
enum consume_result held_load_parked(struct consume_worker *worker, struct consume_lane *lane, struct err *err);

/* ---- consume_read.c: where entries come from */

/* Fills the lane's empty batch: first with what is inherited, then with what is new.  NOTHING: there is nothing now. */
enum consume_result read_next(struct consume_worker *worker, struct consume_lane *lane, struct err *err);
void read_clear(struct consume_lane *lane);
/* A script has found another owner's token: logs it, fills *err with the code "fenced". */
void read_fenced(const struct consume_lane *lane, struct err *err);
/* Fetches entries by their ids into pipeline (reset by it), at most max of the queue's first; *n gets how many. */
must_check int read_fetch(struct consume_worker *worker, struct redis_pipeline *pipeline,
                          const struct consume_queue *queue, int max, int *n, struct err *err);
/* The fields that the reply to one of them brought; NULL: it is gone. */
const struct redis_reply *read_fields(const struct redis_reply *reply);

/* ---- consume_lane.c */

must_check int lane_new(struct consume_worker *worker, int number, struct consume_lane **out, struct err *err);
void lane_free(struct consume_worker *worker, struct consume_lane *lane);
/* Forgets everything but that the lane is ours. */
void lane_restart(struct consume_worker *worker, struct consume_lane *lane);
/* Works for about CONSUME_SLICE_US; NOTHING: there was nothing to do. */
enum consume_result lane_turn(struct consume_worker *worker, struct consume_lane *lane, struct err *err);
/* Sends what is to be acknowledged. */
must_check int lane_flush(struct consume_worker *worker, struct consume_lane *lane, struct err *err);
/* Gives one entry to the handler and sees to what follows: acknowledged, or parked, or (*is_failed) to be tried again at *due_us with *failures.  parked_id
 * (CONSUME_ENTRY_ID_BYTES) gets the parked entry's id, or "". */
enum consume_result lane_handle(struct consume_worker *worker, struct consume_lane *lane,
                                const struct consume_entry *entry, const struct outbox_message *message,
                                bool *is_failed, int *failures, int64_t *due_us, char *parked_id, struct err *err);
/* Acknowledges an entry, parks one: for those that are no message. */
enum consume_result lane_drop_lost(struct consume_worker *worker, struct consume_lane *lane,
                                   const struct consume_entry *entry, struct err *err);
enum consume_result lane_park(struct consume_worker *worker, struct consume_lane *lane,
                              const struct consume_entry *entry, const struct outbox_message *message, int attempts,
                              const char *why, char *parked_id, struct err *err);

/* ---- consume_worker.c */

must_check int worker_init(struct consume_worker *worker, struct consume_shared *shared, int number, struct err *err);
void worker_fini(struct consume_worker *worker);
/* Until the drain token is set. */
void worker_run(struct consume_worker *worker);

#endif
