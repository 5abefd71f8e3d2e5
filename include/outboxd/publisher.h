/*
 * A publisher: a thread with one Redis connection that writes the lanes l with l mod publishers == its index.
 *
 * Told what to do by jobs in its queue; answers by notes in the coordinator's queue, one for each job that wants one.
 * Owns: its connection, and per lane the journal's token, the inherited names and the names it carries.  No other thread sees them.
 * Never: talks to PostgreSQL; writes to a lane whose journal it has not taken over; counts a message as published without a stream id.
 */
#ifndef OUTBOXD_PUBLISHER_H
#define OUTBOXD_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/cfg.h"
#include "outboxd/cloudevent.h"
#include "outboxd/err.h"
#include "outboxd/histogram.h"
#include "outboxd/journal.h"
#include "outboxd/queue.h"
#include "outboxd/stop.h"
#include "outboxd/template.h"
#include "outboxd/url.h"

enum job_kind {
  JOB_PUBLISH, /* write the runs of .batch whose lanes are this publisher's; answered by NOTE_DONE */
  JOB_TAKE, /* forget the lane as JOB_DROP does, then read its journal; answered by NOTE_JOURNAL or NOTE_TAKE_FAILED */
  JOB_OPEN, /* .names (those of the journal just read that are still pending; with the token that NOTE_JOURNAL had) are inherited; the lane may be written */
  JOB_SETTLED, /* .batch is committed: drop the names of its published messages and the reference */
  JOB_DROP, /* forget the lane (released, or to be taken over afresh): token, inherited and carried names, references */
  JOB_EPOCH /* a new epoch begins: what was stopped within the last one may go on (lanes that were lost stay closed until JOB_OPEN) */
};

struct job {
  struct queue_item item; /* first */
  enum job_kind kind;
  int lane;
  int64_t epoch;
  struct batch *
      batch; /* JOB_PUBLISH: borrowed until NOTE_DONE.  JOB_SETTLED: the job owns one reference, which the publisher drops */
  struct journal_names *names; /* JOB_OPEN: owned */
};

enum note_kind {
  NOTE_DONE,        /* every run of the publisher's in .batch has its outcomes */
  NOTE_JOURNAL,     /* .lane's journal was read: .names */
  NOTE_TAKE_FAILED, /* .lane's journal could not be read: .err; ask again later */
  NOTE_LANE_LOST, /* .lane was refused or fenced, or its connection was lost: it is closed until it is taken over afresh; .err, .is_fenced */
  NOTE_FATAL      /* can never work: .err (wrong password at the first contact, another number of lanes recorded) */
};

struct note {
  struct queue_item item; /* first */
  enum note_kind kind;
  int publisher;
  int lane;
  struct batch *batch; /* NOTE_DONE */
  bool is_fenced;      /* NOTE_LANE_LOST: another relay wrote the lane */
  bool is_give_back;   /* NOTE_DONE: a lane of the batch was fenced by a foreign token: roll the whole batch back */
  struct journal_names *names; /* NOTE_JOURNAL: owned by the receiver */
  struct err err;
};

/* Counted by the publisher, read by whoever prints statistics. */
struct publisher_stats {
  int64_t published_n; /* XADDs answered with an id */
  int64_t inherited_n; /* answered as published without an XADD */
  int64_t failed_n;
  int64_t withheld_n;
  int64_t fenced_n;
  int64_t connects_n;
  int64_t writes_n; /* round trips */
  int64_t calls_n;  /* script calls */
  int64_t bytes_n;  /* sent */
  bool is_connected;
  bool is_down; /* Redis does not answer it */
  size_t queue_depth;
};

struct publisher;

/* Starts the thread; it connects when the first JOB_TAKE asks it to.  url, template, form (NULL: --format fields), fleet, cfg, notes (the coordinator's queue) and abort (set when
 * everything must end at once) are borrowed for the publisher's life.  fleet: what all processes on these streams must agree on (lanes, table, database), as
 * a text that is compared byte for byte with what the first one recorded in Redis; another one there is a NOTE_FATAL. */
must_check int publisher_start(const struct cfg *cfg, const struct url *url, const struct template *template,
                               const struct cloudevent_form *form, const char *fleet, int index, struct queue *notes,
                               const struct stop *abort, struct publisher **out, struct err *err);

/* Closes the queue, waits for the thread, frees.  A write under way is finished (within --redis-timeout, unless abort is set), what was still queued is
 * answered as withheld.  NULL is fine. */
void publisher_stop(struct publisher *publisher);

/* Queues a job and sets *job to NULL.  Coordinator thread. */
void publisher_push(struct publisher *publisher, struct job **job);

/* A copy of the counters; merges the round-trip and the commit-to-stream histograms (microseconds) into those given (may be NULL) and resets its own.
 * Any thread; takes the publisher's statistics lock. */
void publisher_read_stats(struct publisher *publisher, struct publisher_stats *out, struct histogram *round_trip,
                          struct histogram *lag);

/* Does it have the lane, so that it may write there?  As of its last turn: true for a moment after the lane was lost, false for a moment after it was
 * taken.  Any thread; takes the publisher's statistics lock. */
bool publisher_has_lane(struct publisher *publisher, int lane);

/* Does Redis not answer it?  Any thread; takes the publisher's statistics lock. */
bool publisher_is_down(struct publisher *publisher);

#endif
