/*
 * The periodic `stats` line.
 *
 * Owns: the last values, to tell rates from.  Run by: the main thread.
 */
#include "outboxd/stats.h"

#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/log.h"

struct stats {
  const struct cfg *cfg;
  struct coordinator *coordinator;
  struct publisher *const *publishers;
  int64_t since_us;
  struct coordinator_stats last;
  struct publisher_stats last_sum; /* over all publishers */
  int64_t *queue_depths;
  /* Of the interval; here because they are too large for a stack. */
  struct histogram lag;
  struct histogram round_trip;
  struct histogram claim_time;
  struct histogram settle_time;
};

int stats_new(const struct cfg *cfg, struct coordinator *coordinator, struct publisher *const *publishers,
              struct stats **out, struct err *err) {
  *out = NULL;
  struct stats *stats = calloc(1, sizeof *stats);
  if (stats == NULL || (stats->queue_depths = calloc((size_t)cfg->publishers_n, sizeof *stats->queue_depths)) == NULL) {
    free(stats);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the statistics");
  }
  stats->cfg = cfg;
  stats->coordinator = coordinator;
  stats->publishers = publishers;
  stats->since_us = clock_now_us();
  *out = stats;
  return 0;
}

void stats_free(struct stats *stats) {
  if (stats != NULL) {
    free(stats->queue_depths);
    free(stats);
  }
}

static void sum_publishers(struct stats *stats, struct publisher_stats *sum) {
  memset(sum, 0, sizeof *sum);
  for (int p = 0; p < stats->cfg->publishers_n; p++) {
    struct publisher_stats one;
    publisher_read_stats(stats->publishers[p], &one, &stats->round_trip, &stats->lag);
    sum->inherited_n += one.inherited_n;
    sum->fenced_n += one.fenced_n;
    sum->connects_n += one.connects_n;
    sum->writes_n += one.writes_n;
    sum->bytes_n += one.bytes_n;
    stats->queue_depths[p] = (int64_t)one.queue_depth;
  }
}

static double quantile_ms(const struct histogram *histogram, double q) {
  return (double)histogram_quantile_us(histogram, q) / 1000.0;
}

void stats_log(struct stats *stats) {
  struct coordinator_stats now;
  struct publisher_stats sum;
  int64_t now_us = clock_now_us();
  histogram_reset(&stats->lag);
  histogram_reset(&stats->round_trip);
  histogram_reset(&stats->claim_time);
  histogram_reset(&stats->settle_time);
  coordinator_read_stats(stats->coordinator, &now, &stats->claim_time, &stats->settle_time);
  sum_publishers(stats, &sum);
  const struct coordinator_stats *last = &stats->last;
  double seconds = (double)(now_us - stats->since_us) / 1e6;
  int64_t published_n = now.published_n - last->published_n;
  log_event(LOG_INFO, "stats", "what happened since the last line", LOG_REAL("interval_seconds", seconds),
            LOG_INT("published", published_n),
            LOG_REAL("rate_per_second", seconds > 0 ? (double)published_n / seconds : 0.0),
            LOG_INT("failed", now.failed_n - last->failed_n), LOG_INT("withheld", now.withheld_n - last->withheld_n),
            LOG_INT("given_back", now.given_back_n - last->given_back_n), LOG_INT("dead", now.dead_n - last->dead_n),
            LOG_INT("inherited", sum.inherited_n - stats->last_sum.inherited_n),
            LOG_INT("fenced", sum.fenced_n - stats->last_sum.fenced_n),
            LOG_INT("batches", now.batches_n - last->batches_n), LOG_INT("sweeps", now.sweeps_n - last->sweeps_n),
            LOG_REAL("lag_p50_ms", quantile_ms(&stats->lag, 0.5)), LOG_REAL("lag_p99_ms", quantile_ms(&stats->lag, 0.99)),
            LOG_REAL("lag_max_ms", (double)stats->lag.max / 1000.0),
            LOG_REAL("claim_p50_ms", quantile_ms(&stats->claim_time, 0.5)),
            LOG_REAL("claim_p99_ms", quantile_ms(&stats->claim_time, 0.99)),
            LOG_REAL("settle_p50_ms", quantile_ms(&stats->settle_time, 0.5)),
            LOG_REAL("settle_p99_ms", quantile_ms(&stats->settle_time, 0.99)),
            LOG_REAL("redis_round_trip_p50_ms", quantile_ms(&stats->round_trip, 0.5)),
            LOG_REAL("redis_round_trip_p99_ms", quantile_ms(&stats->round_trip, 0.99)),
            LOG_INT("redis_writes", sum.writes_n - stats->last_sum.writes_n),
            LOG_INT("redis_bytes", sum.bytes_n - stats->last_sum.bytes_n),
            LOG_INTS("queue_depths", stats->queue_depths, stats->cfg->publishers_n),
            LOG_INT("redis_connects", sum.connects_n - stats->last_sum.connects_n),
            LOG_INT("postgres_reconnects", now.reconnects_n - last->reconnects_n),
            LOG_INT("lanes_active", now.lanes_active_n), LOG_INT("aggregates_held_back", now.held_back_n),
            LOG_INT("claimed_total", now.claimed_n), LOG_INT("published_total", now.published_n));
  stats->last = now;
  stats->last_sum = sum;
  stats->since_us = now_us;
}
