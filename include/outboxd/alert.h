/*
 * The stale alert and its companions: a thread that looks every --stale-check-every and logs what an operator has to know.
 *
 * Own PostgreSQL session and own Redis connection; shares nothing with the threads that relay but the stop token.  Every relay of a fleet has
 * one and logs what it sees: an alert that lasts appears in each relay's log.
 * See docs/logging.md for its events.
 */
#ifndef OUTBOXD_ALERT_H
#define OUTBOXD_ALERT_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/alert_rules.h"
#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/stop.h"
#include "outboxd/table.h"
#include "outboxd/url.h"

struct alert;

/* How long something must last before it is worth a line. */
struct alert_limits {
  int64_t unreachable_us; /* a server does not answer */
  int64_t lane_us;        /* a lane has no owner: handing one on takes a moment */
  int64_t transaction_us; /* a transaction of the database is open */
};
#define ALERT_LIMITS      \
  ((struct alert_limits){ \
      .unreachable_us = INT64_C(30000000), .lane_us = INT64_C(15000000), .transaction_us = INT64_C(600000000)})

/* Starts with ALERT_LIMITS.  cfg, url and stop are borrowed for the thread's life; of table only what is immutable is used (oid, name,
 * is_partitioned), copied at start.  ERR_RETRY, ERR_FATAL. */
must_check int alert_start(const struct cfg *cfg, const struct url *url, const struct table *table,
                           const struct stop *stop, struct alert **out, struct err *err);

/* The same with other limits, for tests that cannot wait ten minutes. */
must_check int alert_start_limited(const struct cfg *cfg, const struct url *url, const struct table *table,
                                   const struct stop *stop, const struct alert_limits *limits, struct alert **out,
                                   struct err *err);

/* The same watch over PostgreSQL while the table has not been read yet, so that there is nothing to start the thread with: called after each attempt, with
 * what went wrong or with NULL once it answers, it logs postgres_unreachable and its end.  *state is the caller's, zeroed before the first call. */
void alert_before_start(const struct cfg *cfg, struct alert_state *state, const struct err *err);

/* The table as the thread saw it last, for whoever shows figures. */
struct alert_reading {
  int64_t seen_us; /* when the oldest message was looked at, in microseconds since 1970 by our clock; 0: not yet */
  int64_t oldest_pending_us; /* its age then, by the database's clock; 0: nothing was pending */
  bool has_counts;           /* the last question for the counts was answered */
  int64_t pending_n;         /* dead ones included; 100,000 at most */
  int64_t dead_n;            /* among these */
};

/* Copies it.  Any thread, until alert_stop; takes the thread's own lock for the copy only. */
void alert_read(struct alert *alert, struct alert_reading *reading);

/* Waits for the thread, which ends soon after *stop is set, and frees.  NULL is fine. */
void alert_stop(struct alert *alert);

#endif
