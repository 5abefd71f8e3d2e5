/*
 * A lane as its publisher sees it: the journal's token, the names that travel from write to write, the queue of what is to be written.
 *
 * Belongs to the publisher's thread; does no I/O.  See docs/architecture.md "The journal" and "Order, precisely".
 */
#ifndef OUTBOXD_LANE_H
#define OUTBOXD_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/buf.h"
#include "outboxd/err.h"
#include "outboxd/journal.h"

enum lane_state {
  LANE_CLOSED, /* not taken, or lost: whatever comes for it is withheld */
  LANE_READ,   /* its journal was read; waits to be told which of the names are pending */
  LANE_OPEN    /* may be written */
};

/* Is the index of stream names a key of the lane's calls?  Begins anew with each epoch. */
enum lane_index {
  LANE_INDEX_WRITTEN, /* yes, where the template has one */
  LANE_INDEX_REFUSED, /* Redis refused a call that had no other key but the journal: whether it takes one without is being found out */
  LANE_INDEX_LEFT_OUT /* no: Redis takes calls without it */
};

/* A publisher's share of a batch; ends with its last run. */
struct part {
  struct batch *batch; /* borrowed until the share is reported as done */
  int runs_n;          /* in queues */
  bool is_give_back;   /* a foreign token was met: nothing of this batch may be settled */
};

/* A run in a lane's queue. */
struct entry {
  struct entry *next;
  struct part *part;
  struct run *run;
  int at; /* every message before it has its outcome */
};

/* Counters that lanes add to; one for all lanes of a publisher. */
struct lane_counts {
  int64_t published_n;
  int64_t inherited_n;
  int64_t failed_n;
  int64_t withheld_n;
};

/* A name that was in the journal when the lane was taken over, of a message that was pending then: it is in the stream already. */
struct inherited;
/* Names of the messages of one batch that were added and are not known to be settled. */
struct carried;
/* An aggregate that nothing more may be written of within this epoch. */
struct stopped;

struct lane {
  int no;
  enum lane_state state;
  bool has_take;    /* somebody waits for its journal */
  bool wants_probe; /* a call was refused as a whole: find out whether the journal alone may be written */
  bool is_single;   /* for this epoch: one message a call */
  enum lane_index index;
  int64_t lost_epoch;              /* runs of this epoch and earlier ones are withheld */
  char token[JOURNAL_TOKEN_BYTES]; /* of the journal, as far as is known; "": no journal */
  struct lane_counts *counts;

  struct inherited *inherited; /* by message_id */
  int inherited_n;
  struct buf inherited_lines; /* their text */
  bool is_inherited_stale;    /* the text has to be made anew */
  struct carried *carried;    /* oldest first */
  struct stopped *stopped;    /* by aggregate key */

  struct entry *head;
  struct entry **tail;
};

void lane_init(struct lane *lane, int no, struct lane_counts *counts);
/* The queue must be empty. */
void lane_fini(struct lane *lane);

/* The only way to change the state; asserts that the step is legal. */
void lane_set_state(struct lane *lane, enum lane_state state);

/* Inherits names (copied); those of an older ownership are gone. */
void lane_inherit(struct lane *lane, const struct journal_names *names);
/* Forgets token and names: the lane is somebody else's, or will be taken over afresh.  The queue and the stopped aggregates stay. */
void lane_forget(struct lane *lane);
/* What was stopped may go on.  Names still carried belong to batches that were given back, since an epoch begins with none open: their messages
 * will be claimed again and are in the stream, so they become inherited ones. */
void lane_begin_epoch(struct lane *lane);

/* True when the message is in the stream already; remembers that batch_seq will settle it. */
bool lane_claim_inherited(struct lane *lane, const char *message_id, size_t bytes, int64_t batch_seq);
/* Carries lines (journal_append_name) of n messages of a batch until it is settled. */
void lane_carry(struct lane *lane, int64_t batch_seq, const char *lines, size_t bytes, int n);
/* Drops the names that batch_seq settled. */
void lane_settled(struct lane *lane, int64_t batch_seq);
/* Appends the lines of all names that travel on; *n gets their number. */
must_check int lane_append_names(struct lane *lane, struct buf *buf, int *n, struct err *err);

void lane_stop_aggregate(struct lane *lane, int64_t key);
bool lane_is_stopped(const struct lane *lane, int64_t key);

/* Appends a run. */
void lane_queue(struct lane *lane, struct part *part, struct run *run);
/* Steps over messages that have their outcome.  Takes off the first run when all of it has: returns its part, else NULL. */
struct part *lane_take_finished(struct lane *lane);

/* Gives a message its one outcome and counts it.  FAILED and WITHHELD also stop its aggregate for the rest of the epoch. */
void lane_decide(struct lane *lane, struct msg *msg, enum outcome outcome, const char *text);
/* The same for a message that is published because of an earlier owner's write. */
void lane_decide_inherited(struct lane *lane, struct msg *msg);
/* Withholds everything queued. */
void lane_withhold_all(struct lane *lane, bool is_give_back);

#endif
