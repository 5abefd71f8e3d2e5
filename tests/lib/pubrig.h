/*
 * A publisher thread without the rest of the relay: made-up batches go in, its notes come out.
 *
 * The rig plays the coordinator.  Everything fails the test on an error.  Main thread only.
 */
#ifndef TEST_PUBRIG_H
#define TEST_PUBRIG_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/publisher.h"

struct stack;

#define RIG_LANES_N 4
#define RIG_FLEET "{\"lanes\":4,\"table\":\"public.outbox_messages\",\"database\":\"work\"}"

struct rig {
  struct cfg cfg; /* may be changed before rig_start */
  char url_text[512];
  const char *stream;
  const char *fleet;
  struct url url;
  struct template *template;
  struct queue *notes;
  struct queue_item *backlog; /* notes taken and not yet looked at */
  struct stop *abort;
  struct publisher *publisher;
  int64_t epoch;
  int64_t last_seq;
};

/* One message of a made-up batch.  lane is where it goes, whatever its aggregate. */
struct rig_row {
  int64_t id;
  int lane;
  const char *type;
  const char *aggregate;
  const char *payload;
  const char *message_id; /* NULL: SQL NULL; "id": "m-<id>" */
  const char *headers;    /* "none" in the first row: the table has no such column; NULL: SQL NULL */
  size_t payload_bytes;   /* 0: strlen(payload) */
};

/* Defaults: RIG_LANES_N lanes, one publisher, outbox:{%l}, 2 s redis timeout. */
void rig_init(struct rig *rig, const char *redis_url);
void rig_start(struct rig *rig);
/* Ends the publisher; its own identity of counts is asserted there. */
void rig_stop(struct rig *rig);

/* A batch of the rows, which must be in id order. */
struct batch *rig_batch(struct rig *rig, const struct rig_row *rows, int n);
/* n messages "m-<id>" from first_id in one lane, aggregates_n aggregates in turn. */
struct batch *rig_simple_batch(struct rig *rig, int lane, int64_t first_id, int n, int aggregates_n);

void rig_push(struct rig *rig, enum job_kind kind, int lane);
void rig_push_batch(struct rig *rig, enum job_kind kind, struct batch *batch);
void rig_next_epoch(struct rig *rig);

/* The next note; fails when none comes in time.  Caller: rig_free_note. */
struct note *rig_note(struct rig *rig, int64_t timeout_ms);
void rig_free_note(struct note *note);
/* The same for one that must be of this kind (and lane, unless -1). */
struct note *rig_expect(struct rig *rig, enum note_kind kind, int lane);
/* True when there is no note now. */
bool rig_is_quiet(struct rig *rig);

/* Takes a lane over and opens it with all names of its journal (or none, when is_settled); returns the number of names it had. */
int rig_take(struct rig *rig, int lane, bool is_settled);
/* The same when all messages before pending_from are settled; returns the number of names that are not. */
int rig_take_since(struct rig *rig, int lane, int64_t pending_from);
/* rig_take again and again until it works. */
int rig_retake(struct rig *rig, int lane, bool is_settled);

/* Publishes and waits for NOTE_DONE, whose is_give_back it returns; NOTE_LANE_LOST on the way are counted in *lost_n (may be NULL). */
bool rig_publish(struct rig *rig, struct batch *batch, int *lost_n);
/* JOB_SETTLED with a reference, then drops the caller's. */
void rig_settle(struct rig *rig, struct batch **batch);

/* One letter a message in the batch's order: p f w, . for none. */
const char *rig_outcomes(const struct batch *batch, char *out, size_t out_bytes);
const char *rig_error(const struct batch *batch, int64_t id);

struct publisher_stats rig_stats(struct rig *rig);

#endif
