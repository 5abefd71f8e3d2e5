/*
 * The periodic `stats` line: what happened since the last one.
 *
 * Used by the main thread; reads the coordinator's and the publishers' counters through their own locks, one after the other.
 */
#ifndef OUTBOXD_STATS_H
#define OUTBOXD_STATS_H

#include "outboxd/cfg.h"
#include "outboxd/coordinator.h"
#include "outboxd/err.h"
#include "outboxd/publisher.h"

struct stats;

/* coordinator and publishers (cfg->publishers_n of them) are borrowed for its life. */
must_check int stats_new(const struct cfg *cfg, struct coordinator *coordinator, struct publisher *const *publishers,
                         struct stats **out, struct err *err);
void stats_free(struct stats *stats);

/* Writes one line and starts the next interval. */
void stats_log(struct stats *stats);

#endif
