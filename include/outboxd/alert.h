/*
 * The stale alert and its companions: a thread that looks every --stale-check-every and logs what an operator has to know.
 *
 * Own PostgreSQL session and own Redis connection; shares nothing with the threads that relay but the stop token.  Every relay of a fleet has
 * one and logs what it sees: an alert that lasts appears in each relay's log.
 * See docs/logging.md for its events.
 */
#ifndef OUTBOXD_ALERT_H
#define OUTBOXD_ALERT_H

#include <stdint.h>

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

/* Waits for the thread, which ends soon after *stop is set, and frees.  NULL is fine. */
void alert_stop(struct alert *alert);

#endif
