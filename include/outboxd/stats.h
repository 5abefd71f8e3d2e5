/*
 * What the relay has done, as figures, and the periodic `stats` line made of them; with --metrics-file the same figures go into a file.
 *
 * Used by the main thread; reads the coordinator's, the publishers' and the alert thread's figures through their own locks, one after the other.
 */
#ifndef OUTBOXD_STATS_H
#define OUTBOXD_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/alert.h"
#include "outboxd/cfg.h"
#include "outboxd/coordinator.h"
#include "outboxd/err.h"
#include "outboxd/histogram.h"
#include "outboxd/publisher.h"
#include "outboxd/trimmer.h"

/* The durations that are measured, all in microseconds. */
enum stats_time {
  STATS_LAG,        /* from a message's created_at to the reply that it is in its stream */
  STATS_CLAIM,      /* from sending a claim until its rows are there */
  STATS_SETTLE,     /* from sending a batch's outcomes until their COMMIT is confirmed */
  STATS_ROUND_TRIP, /* from writing to Redis until the last reply */
  STATS_TIMES_N
};

/* One publisher as it is now. */
struct stats_publisher {
  int64_t queue_depth; /* jobs that wait */
  bool is_connected;
};

/* Everything that the stats line and the metrics file say.  total is since the start of the process, fresh since the figures before. */
struct stats_figures {
  double interval_seconds; /* that fresh covers */
  struct coordinator_stats total;
  struct coordinator_stats fresh; /* its counters; the levels (lanes_active_n, held_back_n) are in total only */
  struct publisher_stats publishers_total; /* sums over all publishers; levels are in publishers[] */
  struct publisher_stats publishers_fresh;
  struct trimmer_stats trimmed_total;
  struct trimmer_stats trimmed_fresh;
  int64_t in_flight_n;        /* claimed, and neither settled nor given back yet */
  struct alert_reading table; /* the metrics file's only: the log has the alerts themselves */
  int publishers_n;
  int lanes_n;
  const struct stats_publisher *publishers;
  const struct histogram *times_total; /* STATS_TIMES_N each */
  const struct histogram *times_fresh;
};

struct stats;

/* coordinator, publishers (cfg->publishers_n of them), alert and trimmer (may be NULL) are borrowed for its life.  With cfg->metrics_file the file is written for the first time;
 * ERR_FATAL when that cannot be done. */
must_check int stats_new(const struct cfg *cfg, struct coordinator *coordinator, struct publisher *const *publishers,
                         struct alert *alert, const struct trimmer *trimmer, struct stats **out, struct err *err);
void stats_free(struct stats *stats);

/* Writes one line, and the metrics file anew, and starts the next interval.  A file that cannot be written is warned of, once an hour. */
void stats_log(struct stats *stats);

/* The figures of the last line; before the first one interval_seconds is 0.  Borrowed until the next. */
const struct stats_figures *stats_last(const struct stats *stats);

#endif
