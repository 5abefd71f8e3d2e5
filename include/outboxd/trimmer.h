/*
 * The trimmer: a thread that removes old entries of the streams as --trim says, and names of streams that are gone from their index.
 *
 * Own connection to Redis; looks after the lanes that this process has.  What may be removed is decided in Redis, in the step that removes it
 * (src/trim.lua), so a relay that has just lost a lane does no harm there.  See docs/redis.md "Trimming" and docs/logging.md for its events.
 */
#ifndef OUTBOXD_TRIMMER_H
#define OUTBOXD_TRIMMER_H

#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/publisher.h"
#include "outboxd/stop.h"
#include "outboxd/template.h"
#include "outboxd/trim_rule.h"
#include "outboxd/url.h"

struct trimmer;

/* Since the start of the process. */
struct trimmer_stats {
  int64_t trimmed_n;        /* entries removed */
  int64_t trimmed_unread_n; /* those of them that some consumer group had not read or not acknowledged */
};

/* Starts the thread, or none (*out is NULL) when there is nothing to trim and no index.  Everything is borrowed for the thread's life. */
must_check int trimmer_start(const struct cfg *cfg, const struct url *url, const struct template *template,
                             const struct trim_rule *rule, struct publisher *const *publishers, const struct stop *stop,
                             struct trimmer **out, struct err *err);

/* Waits for the thread, which ends soon after *stop is set, and frees.  NULL is fine. */
void trimmer_stop(struct trimmer *trimmer);

/* Any thread; NULL is fine: all 0. */
void trimmer_read_stats(const struct trimmer *trimmer, struct trimmer_stats *out);

#endif
