/*
 * The coordinator: the one thread that drives all claimers and the lease, dispatches batches to the publishers and settles them.
 *
 * Never: blocks on anything but poll(2), talks to Redis.  See docs/architecture.md.
 */
#ifndef OUTBOXD_COORDINATOR_H
#define OUTBOXD_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/histogram.h"
#include "outboxd/publisher.h"
#include "outboxd/queue.h"
#include "outboxd/stop.h"
#include "outboxd/table.h"

struct coordinator;

/* Counters: at rest claimed = published + failed + withheld + given_back. */
struct coordinator_stats {
  int64_t claimed_n;
  int64_t published_n;  /* settled as published */
  int64_t failed_n;     /* settled with an attempt more */
  int64_t withheld_n;   /* settled as they were */
  int64_t given_back_n; /* rolled back or lost with a session */
  int64_t dead_n;       /* of the failed: the last attempt */
  int64_t batches_n;
  int64_t sweeps_n;
  int64_t reconnects_n; /* sessions opened again */
  int lanes_active_n;
  int held_back_n;
};

/* How the coordinator is, for whoever tells a service manager. */
struct coordinator_health {
  int64_t
      turns_n; /* how often its loop has gone round, reaching for a server counting as well: it goes on while it waits for one */
  bool is_postgres_down;
  bool is_standby; /* there are more processes than lanes, and none for this one */
  int lanes_active_n;
};

/* Starts the thread.  Everything is borrowed for the coordinator's life; publishers has cfg->publishers_n elements; notes is read by the
 * coordinator alone; drain ends it after what is in flight is settled, abort at once; it sets finished when its loop is over. */
must_check int coordinator_start(const struct cfg *cfg, struct table *table, struct publisher *const *publishers,
                                 struct queue *notes, const struct stop *drain, const struct stop *abort,
                                 struct stop *finished, struct coordinator **out, struct err *err);

/* Waits for the thread and closes its sessions, which frees the locks and the lanes; returns the exit status: 0 after a clean drain, 1 otherwise with
 * *err filled when there is a reason to tell. */
int coordinator_join(struct coordinator *coordinator, struct err *err);

/* After coordinator_join and after the publishers have ended: batches that were not settled are theirs until then.  NULL is fine. */
void coordinator_free(struct coordinator *coordinator);

/* A copy of the counters; merges the stage times (microseconds) into the histograms given (may be NULL) and resets its own.  Any thread; takes the
 * coordinator's statistics lock. */
void coordinator_read_stats(struct coordinator *coordinator, struct coordinator_stats *out,
                            struct histogram *claim_time, struct histogram *settle_time);

/* A copy of it.  Any thread; takes the coordinator's statistics lock. */
void coordinator_read_health(struct coordinator *coordinator, struct coordinator_health *out);

#endif
