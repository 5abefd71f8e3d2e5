/*
 * The relay's figures: collected once, printed as the `stats` line and as the metrics file.
 *
 * Owns: the last counters, to tell rates from, and the times since the start.  Run by: the main thread.
 */
#include "outboxd/stats.h"

#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/metrics.h"

struct stats {
  const struct cfg *cfg;
  struct coordinator *coordinator;
  struct publisher *const *publishers;
  struct alert *alert;
  const struct trimmer *trimmer; /* NULL: nothing is trimmed */
  struct metrics *metrics;       /* NULL: no file */
  int64_t since_us;
  struct stats_publisher *publishers_now;
  int64_t *queue_depths; /* the same as a list for the log */
  struct stats_figures figures;
  struct histogram times_total[STATS_TIMES_N];
  struct histogram times_fresh[STATS_TIMES_N];
};

/* -------------------------------------------------------------------------------------------------- collecting */

static void collect_coordinator(struct stats *stats) {
  struct coordinator_stats *total = &stats->figures.total;
  const struct coordinator_stats last = *total;
  coordinator_read_stats(stats->coordinator, total, &stats->times_fresh[STATS_CLAIM],
                         &stats->times_fresh[STATS_SETTLE]);
  stats->figures.fresh = (struct coordinator_stats){
      .claimed_n = total->claimed_n - last.claimed_n,
      .published_n = total->published_n - last.published_n,
      .failed_n = total->failed_n - last.failed_n,
      .withheld_n = total->withheld_n - last.withheld_n,
      .given_back_n = total->given_back_n - last.given_back_n,
      .dead_n = total->dead_n - last.dead_n,
      .batches_n = total->batches_n - last.batches_n,
      .sweeps_n = total->sweeps_n - last.sweeps_n,
      .reconnects_n = total->reconnects_n - last.reconnects_n,
  };
  stats->figures.in_flight_n =
      total->claimed_n - total->published_n - total->failed_n - total->withheld_n - total->given_back_n;
}

static void collect_publishers(struct stats *stats) {
  struct publisher_stats *total = &stats->figures.publishers_total;
  const struct publisher_stats last = *total;
  memset(total, 0, sizeof *total);
  for (int p = 0; p < stats->cfg->publishers_n; p++) {
    struct publisher_stats one;
    publisher_read_stats(stats->publishers[p], &one, &stats->times_fresh[STATS_ROUND_TRIP],
                         &stats->times_fresh[STATS_LAG]);
    total->inherited_n += one.inherited_n;
    total->fenced_n += one.fenced_n;
    total->connects_n += one.connects_n;
    total->writes_n += one.writes_n;
    total->calls_n += one.calls_n;
    total->bytes_n += one.bytes_n;
    stats->queue_depths[p] = (int64_t)one.queue_depth;
    stats->publishers_now[p] =
        (struct stats_publisher){.queue_depth = (int64_t)one.queue_depth, .is_connected = one.is_connected};
  }
  stats->figures.publishers_fresh = (struct publisher_stats){
      .inherited_n = total->inherited_n - last.inherited_n,
      .fenced_n = total->fenced_n - last.fenced_n,
      .connects_n = total->connects_n - last.connects_n,
      .writes_n = total->writes_n - last.writes_n,
      .calls_n = total->calls_n - last.calls_n,
      .bytes_n = total->bytes_n - last.bytes_n,
  };
}

static void collect_trimmer(struct stats *stats) {
  struct trimmer_stats *total = &stats->figures.trimmed_total;
  const struct trimmer_stats last = *total;
  trimmer_read_stats(stats->trimmer, total);
  stats->figures.trimmed_fresh =
      (struct trimmer_stats){.trimmed_n = total->trimmed_n - last.trimmed_n,
                             .trimmed_unread_n = total->trimmed_unread_n - last.trimmed_unread_n};
}

/* Ends an interval: what happened in it is fresh. */
static void collect(struct stats *stats) {
  int64_t now_us = clock_now_us();
  for (int i = 0; i < STATS_TIMES_N; i++) {
    histogram_reset(&stats->times_fresh[i]);
  }
  collect_coordinator(stats);
  collect_publishers(stats);
  collect_trimmer(stats);
  alert_read(stats->alert, &stats->figures.table);
  for (int i = 0; i < STATS_TIMES_N; i++) {
    histogram_merge(&stats->times_total[i], &stats->times_fresh[i]);
  }
  stats->figures.interval_seconds = (double)(now_us - stats->since_us) / 1e6;
  stats->since_us = now_us;
}

/* -------------------------------------------------------------------------------------------------- printing */

static double quantile_ms(const struct histogram *histogram, double q) {
  return (double)histogram_quantile_us(histogram, q) / 1000.0;
}

static void log_figures(const struct stats_figures *figures, const int64_t *queue_depths) {
  const struct coordinator_stats *fresh = &figures->fresh;
  const struct publisher_stats *publishers = &figures->publishers_fresh;
  const struct histogram *lag = &figures->times_fresh[STATS_LAG];
  const struct histogram *claim = &figures->times_fresh[STATS_CLAIM];
  const struct histogram *settle = &figures->times_fresh[STATS_SETTLE];
  const struct histogram *round_trip = &figures->times_fresh[STATS_ROUND_TRIP];
  double seconds = figures->interval_seconds;
  log_event(
      LOG_INFO, "stats", "what happened since the last line", LOG_REAL("interval_seconds", seconds),
      LOG_INT("claimed", fresh->claimed_n), LOG_INT("published", fresh->published_n),
      LOG_REAL("rate_per_second", seconds > 0 ? (double)fresh->published_n / seconds : 0.0),
      LOG_INT("failed", fresh->failed_n), LOG_INT("withheld", fresh->withheld_n),
      LOG_INT("given_back", fresh->given_back_n), LOG_INT("in_flight", figures->in_flight_n),
      LOG_INT("dead", fresh->dead_n), LOG_INT("inherited", publishers->inherited_n),
      LOG_INT("fenced", publishers->fenced_n), LOG_INT("batches", fresh->batches_n), LOG_INT("sweeps", fresh->sweeps_n),
      LOG_REAL("lag_p50_ms", quantile_ms(lag, 0.5)), LOG_REAL("lag_p99_ms", quantile_ms(lag, 0.99)),
      LOG_REAL("lag_max_ms", (double)lag->max / 1000.0), LOG_REAL("claim_p50_ms", quantile_ms(claim, 0.5)),
      LOG_REAL("claim_p99_ms", quantile_ms(claim, 0.99)), LOG_REAL("settle_p50_ms", quantile_ms(settle, 0.5)),
      LOG_REAL("settle_p99_ms", quantile_ms(settle, 0.99)),
      LOG_REAL("redis_round_trip_p50_ms", quantile_ms(round_trip, 0.5)),
      LOG_REAL("redis_round_trip_p99_ms", quantile_ms(round_trip, 0.99)), LOG_INT("redis_writes", publishers->writes_n),
      LOG_INT("redis_bytes", publishers->bytes_n), LOG_INTS("queue_depths", queue_depths, figures->publishers_n),
      LOG_INT("redis_connects", publishers->connects_n), LOG_INT("postgres_reconnects", fresh->reconnects_n),
      LOG_INT("lanes_active", figures->total.lanes_active_n),
      LOG_INT("aggregates_held_back", figures->total.held_back_n), LOG_INT("trimmed", figures->trimmed_fresh.trimmed_n),
      LOG_INT("trimmed_unread", figures->trimmed_fresh.trimmed_unread_n),
      LOG_INT("claimed_total", figures->total.claimed_n), LOG_INT("published_total", figures->total.published_n));
}

static void write_metrics(struct stats *stats) {
  static struct log_limit limit = {.interval_us = 3600 * INT64_C(1000000)};
  struct err err = ERR_INIT;
  int64_t held_back = 0;
  if (metrics_write(stats->metrics, &stats->figures, &err) != 0 && log_limit_pass(&limit, &held_back)) {
    log_event(LOG_WARNING, "metrics_file_failed", err.text, LOG_STR("path", stats->cfg->metrics_file),
              LOG_STR("code", err.code), LOG_INT("held_back", held_back));
  }
}

void stats_log(struct stats *stats) {
  collect(stats);
  log_figures(&stats->figures, stats->queue_depths);
  if (stats->metrics != NULL) {
    write_metrics(stats);
  }
}

const struct stats_figures *stats_last(const struct stats *stats) {
  return &stats->figures;
}

/* -------------------------------------------------------------------------------------------------- life */

/* Shows at start whether the file can be written. */
static int start_metrics(struct stats *stats, struct err *err) {
  if (metrics_new(stats->cfg, &stats->metrics, err) != 0) {
    return -1;
  }
  if (metrics_write(stats->metrics, &stats->figures, err) != 0) {
    err->class = ERR_FATAL;
    return -1;
  }
  return 0;
}

int stats_new(const struct cfg *cfg, struct coordinator *coordinator, struct publisher *const *publishers,
              struct alert *alert, const struct trimmer *trimmer, struct stats **out, struct err *err) {
  *out = NULL;
  size_t n = (size_t)cfg->publishers_n;
  struct stats *stats = calloc(1, sizeof *stats);
  if (stats == NULL || (stats->queue_depths = calloc(n, sizeof *stats->queue_depths)) == NULL ||
      (stats->publishers_now = calloc(n, sizeof *stats->publishers_now)) == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for the statistics");
    goto fail;
  }
  stats->cfg = cfg;
  stats->coordinator = coordinator;
  stats->publishers = publishers;
  stats->alert = alert;
  stats->trimmer = trimmer;
  stats->since_us = clock_now_us();
  stats->figures = (struct stats_figures){.publishers_n = cfg->publishers_n,
                                          .lanes_n = cfg->lanes_n,
                                          .publishers = stats->publishers_now,
                                          .times_total = stats->times_total,
                                          .times_fresh = stats->times_fresh};
  if (cfg->metrics_file[0] != '\0' && start_metrics(stats, err) != 0) {
    goto fail;
  }
  *out = stats;
  return 0;
fail:
  stats_free(stats);
  return -1;
}

void stats_free(struct stats *stats) {
  if (stats != NULL) {
    metrics_free(stats->metrics);
    free(stats->publishers_now);
    free(stats->queue_depths);
    free(stats);
  }
}
