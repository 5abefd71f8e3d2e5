/*
 * What the parts of a publisher share: src/publisher.c (the thread, its jobs and notes), src/publisher_take.c (taking lanes over) and
 * src/publisher_write.c (writes).
 *
 * For those three alone.
 */
#ifndef OUTBOXD_PUBLISHER_IMPL_H
#define OUTBOXD_PUBLISHER_IMPL_H

#include <pthread.h>

#include "outboxd/histogram.h"
#include "outboxd/lane.h"
#include "outboxd/link.h"
#include "outboxd/publisher.h"
#include "outboxd/round.h"

struct publisher {
  /* Set before the thread starts. */
  const struct cfg *cfg;
  const struct template *template;
  const struct stop *abort;
  struct queue *notes;
  struct queue *jobs;
  struct stop *quit; /* publisher_stop was called: nothing new is begun */
  int index;
  pthread_t thread;

  /* The thread's own. */
  struct link link;
  struct round round;
  struct redis_pipeline *pipeline; /* for takes, and for calls sent again as EVAL */
  struct lane *lanes;              /* number l of the fleet is lanes[l / publishers] */
  int lanes_n;
  int first_lane; /* of the next round: everybody's turn comes */
  int64_t epoch;
  bool is_fatal_told;
  struct lane_counts counts;
  int64_t fenced_n;
  int64_t writes_n;
  int64_t calls_n;
  int64_t accepted_n; /* messages handed in; each gets exactly one outcome */

  pthread_mutex_t stats_mutex;
  /* Under stats_mutex: */
  struct publisher_stats stats;
  bool *is_open; /* lanes_n: which lanes are open */
  struct histogram round_trip;
  struct histogram lag;
};

/* Queues a copy of the note for the coordinator; what it owns goes along. */
void publisher_send_note(struct publisher *pub, struct note note);
/* Takes finished runs off the lane's queue; reports batches that are done with. */
void publisher_report_finished(struct publisher *pub, struct lane *lane);
/* Tells the coordinator once when err can never be cured. */
void publisher_tell_fatal(struct publisher *pub, const struct err *err);
/* Nothing more of the lane in this epoch, and nothing at all until it was taken over afresh. */
void publisher_lose_lane(struct publisher *pub, struct lane *lane, const struct err *err, bool is_fenced);
/* The same for every open lane. */
void publisher_lose_all(struct publisher *pub, const struct err *err);

/* Takes over the lanes that somebody waits for (has_take), in one round trip: each is answered by a note.  Blocks for --redis-timeout at most. */
void publisher_take_lanes(struct publisher *pub);
/* The lane, or each that waits, cannot be taken over now. */
void publisher_fail_take(struct publisher *pub, struct lane *lane, const struct err *err);
void publisher_fail_takes(struct publisher *pub, const struct err *err);

/* One write: whatever the open lanes have and the limits allow, sent, answered and read.  Blocks for --redis-timeout at most (more for one huge
 * message), ends early when abort is set. */
void publisher_write(struct publisher *pub);

#endif
