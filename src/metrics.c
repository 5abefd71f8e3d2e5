/*
 * The metrics file.
 *
 * Owns: the names, the text, the file.  Run by: the main thread.
 * Durations are histograms since the start, not quantiles: Prometheus can add histograms over a fleet and take quantiles over any stretch of
 * time, while quantiles can be neither added nor averaged.
 */
#include "outboxd/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outboxd/clock.h"

struct metrics {
  const struct cfg *cfg;
  char *temporary;        /* path of the file that is renamed */
  struct buf labels;      /* of every series: relay="...",table="...", values escaped */
  double started_seconds; /* since 1970 */
};

/* Upper bounds of the buckets: from a fast round trip to the lag after a long outage. */
static const int64_t bounds_us[] = {250,      500,      1000,     2500,      5000,      10000,     25000,
                                    50000,    100000,   250000,   500000,    1000000,   2500000,   5000000,
                                    10000000, 30000000, 60000000, 300000000, 900000000, 3600000000};
#define BOUNDS_N (sizeof bounds_us / sizeof bounds_us[0])

/* -------------------------------------------------------------------------------------------------- text */

/* Appends a label's value: backslash, quote and line break are escaped. */
static int append_escaped(struct buf *out, const char *text, struct err *err) {
  for (const char *p = text; *p != '\0'; p++) {
    int rc = *p == '\n'                ? buf_append_str(out, "\\n", err)
             : *p == '"' || *p == '\\' ? buf_printf(out, err, "\\%c", *p)
                                       : buf_append(out, p, 1, err);
    if (rc != 0) {
      return -1;
    }
  }
  return 0;
}

static int append_head(struct buf *out, const char *name, const char *type, const char *help, struct err *err) {
  return buf_printf(out, err, "# HELP outboxd_%s %s\n# TYPE outboxd_%s %s\n", name, help, name, type);
}

static int append_whole(const struct metrics *metrics, struct buf *out, const char *name, const char *type,
                        int64_t value, const char *help, struct err *err) {
  if (append_head(out, name, type, help, err) != 0) {
    return -1;
  }
  return buf_printf(out, err, "outboxd_%s{%s} %" PRId64 "\n", name, metrics->labels.data, value);
}

static int append_info(const struct metrics *metrics, struct buf *out, struct err *err) {
  if (append_head(out, "info", "gauge", "Always 1; the labels say what runs.", err) != 0 ||
      buf_printf(out, err, "outboxd_info{%s,version=\"%s\",stream=\"", metrics->labels.data, OUTBOXD_VERSION) != 0 ||
      append_escaped(out, metrics->cfg->stream, err) != 0 || buf_append_str(out, "\"} 1\n", err) != 0 ||
      append_head(out, "start_time_seconds", "gauge", "When the process started, in seconds since 1970.", err) != 0) {
    return -1;
  }
  return buf_printf(out, err, "outboxd_start_time_seconds{%s} %.3f\n", metrics->labels.data, metrics->started_seconds);
}

static int append_counters(const struct metrics *metrics, const struct stats_figures *figures, struct buf *out,
                           struct err *err) {
  const struct coordinator_stats *c = &figures->total;
  const struct publisher_stats *p = &figures->publishers_total;
  const struct {
    const char *name;
    int64_t value;
    const char *help;
  } counters[] = {
      {"messages_claimed_total", c->claimed_n, "Messages claimed from the table."},
      {"messages_published_total", c->published_n, "Messages marked as published."},
      {"messages_failed_total", c->failed_n, "Refused messages: one attempt each."},
      {"messages_withheld_total", c->withheld_n, "Messages left as they were, to be claimed again."},
      {"messages_given_back_total", c->given_back_n, "Messages of batches that were rolled back."},
      {"messages_dead_total", c->dead_n, "Messages refused for the last time (--max-attempts)."},
      {"messages_inherited_total", p->inherited_n, "Messages found in the stream already and only marked."},
      {"batches_total", c->batches_n, "Batches claimed."},
      {"sweeps_total", c->sweeps_n, "Claims that began at the oldest pending message."},
      {"lanes_fenced_total", p->fenced_n, "Writes refused because another relay had written the lane."},
      {"redis_writes_total", p->writes_n, "Round trips to Redis that published."},
      {"redis_calls_total", p->calls_n, "Script calls in them."},
      {"redis_sent_bytes_total", p->bytes_n, "Bytes sent to Redis."},
      {"redis_connects_total", p->connects_n, "Connections made to Redis."},
      {"entries_trimmed_total", figures->trimmed_total.trimmed_n, "Entries removed from streams (--trim)."},
      {"entries_trimmed_unread_total", figures->trimmed_total.trimmed_unread_n,
       "Those of them that a consumer group had not read or not acknowledged."},
      {"postgres_reconnects_total", c->reconnects_n, "Claimers' sessions lost, or not had, and tried again."},
  };
  for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
    if (append_whole(metrics, out, counters[i].name, "counter", counters[i].value, counters[i].help, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int append_publishers(const struct metrics *metrics, const struct stats_figures *figures, struct buf *out,
                             struct err *err) {
  if (append_head(out, "queue_depth", "gauge", "Jobs that wait in a publisher's queue.", err) != 0) {
    return -1;
  }
  for (int i = 0; i < figures->publishers_n; i++) {
    if (buf_printf(out, err, "outboxd_queue_depth{%s,publisher=\"%d\"} %" PRId64 "\n", metrics->labels.data, i,
                   figures->publishers[i].queue_depth) != 0) {
      return -1;
    }
  }
  if (append_head(out, "redis_connected", "gauge", "1 while a publisher has a connection to Redis.", err) != 0) {
    return -1;
  }
  for (int i = 0; i < figures->publishers_n; i++) {
    if (buf_printf(out, err, "outboxd_redis_connected{%s,publisher=\"%d\"} %d\n", metrics->labels.data, i,
                   figures->publishers[i].is_connected) != 0) {
      return -1;
    }
  }
  return 0;
}

static int append_levels(const struct metrics *metrics, const struct stats_figures *figures, struct buf *out,
                         struct err *err) {
  const struct {
    const char *name;
    int64_t value;
    const char *help;
  } levels[] = {
      {"messages_in_flight", figures->in_flight_n, "Messages claimed, neither settled nor given back yet."},
      {"lanes", figures->lanes_n, "Lanes of the fleet (--lanes)."},
      {"lanes_active", figures->total.lanes_active_n, "Lanes that this process relays."},
      {"aggregates_held_back", figures->total.held_back_n, "Aggregates that are not claimed for now."},
  };
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
    if (append_whole(metrics, out, levels[i].name, "gauge", levels[i].value, levels[i].help, err) != 0) {
      return -1;
    }
  }
  return append_publishers(metrics, figures, out, err);
}

static int append_seconds(const struct metrics *metrics, struct buf *out, const char *name, int64_t us,
                          const char *help, struct err *err) {
  if (append_head(out, name, "gauge", help, err) != 0) {
    return -1;
  }
  return buf_printf(out, err, "outboxd_%s{%s} %.3f\n", name, metrics->labels.data, (double)us / 1e6);
}

/* What is not known has no series: nobody takes a table that could not be looked at for an empty one. */
static int append_table(const struct metrics *metrics, const struct alert_reading *table, struct buf *out,
                        struct err *err) {
  if (table->seen_us == 0) {
    return 0;
  }
  if (append_seconds(metrics, out, "table_seen_timestamp_seconds", table->seen_us,
                     "When the table was looked at last, in seconds since 1970.", err) != 0 ||
      append_seconds(metrics, out, "table_oldest_pending_seconds", table->oldest_pending_us,
                     "Age of the oldest message not published then, dead ones included; 0: there was none.",
                     err) != 0) {
    return -1;
  }
  if (!table->has_counts) {
    return 0;
  }
  return append_whole(metrics, out, "table_pending_messages", "gauge", table->pending_n,
                      "Messages not published then, dead ones included; 100000: so many or more.", err) != 0 ||
                 append_whole(metrics, out, "table_dead_messages", "gauge", table->dead_n, "Dead ones among them.",
                              err) != 0
             ? -1
             : 0;
}

/* The values of one slot, as histogram.h lays them out: the largest, and the width. */
static void slot_bounds(unsigned slot, int64_t *top_us, int64_t *width_us) {
  if (slot < 128) {
    *top_us = slot;
    *width_us = 1;
    return;
  }
  unsigned shift = slot / 64 - 1;
  *width_us = INT64_C(1) << shift;
  *top_us = (int64_t)((uint64_t)(slot - shift * 64) << shift) + (*width_us - 1);
}

/* Buckets count what is at most their bound, to within the width of a slot (1/64 of the value). */
static int append_times(const struct metrics *metrics, const struct histogram *times, const char *name,
                        const char *help, struct buf *out, struct err *err) {
  uint64_t upto[BOUNDS_N] = {0};
  uint64_t seen = 0;
  size_t bound = 0;
  double sum_us = 0;
  for (unsigned slot = 0; slot < HISTOGRAM_SLOTS; slot++) {
    int64_t top_us = 0;
    int64_t width_us = 0;
    slot_bounds(slot, &top_us, &width_us);
    for (; bound < BOUNDS_N && top_us > bounds_us[bound]; bound++) {
      upto[bound] = seen;
    }
    seen += times->slots[slot];
    sum_us += (double)times->slots[slot] * ((double)top_us - (double)(width_us - 1) / 2);
  }
  if (append_head(out, name, "histogram", help, err) != 0) {
    return -1;
  }
  const char *labels = metrics->labels.data;
  for (size_t i = 0; i < BOUNDS_N; i++) {
    if (buf_printf(out, err, "outboxd_%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", name, labels, (double)bounds_us[i] / 1e6,
                   upto[i]) != 0) {
      return -1;
    }
  }
  return buf_printf(out, err,
                    "outboxd_%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\noutboxd_%s_sum{%s} %.6f\noutboxd_%s_count{%s} "
                    "%" PRIu64 "\n",
                    name, labels, seen, name, labels, sum_us / 1e6, name, labels, seen);
}

int metrics_render(const struct metrics *metrics, const struct stats_figures *figures, struct buf *out,
                   struct err *err) {
  static const struct {
    enum stats_time time;
    const char *name;
    const char *help;
  } times[] = {
      {STATS_LAG, "lag_seconds", "From a message's created_at to the reply that it is in its stream."},
      {STATS_CLAIM, "claim_seconds", "From sending a claim until its rows are there."},
      {STATS_SETTLE, "settle_seconds",
       "From sending a batch's outcomes until their commit is confirmed, and its mark."},
      {STATS_ROUND_TRIP, "redis_round_trip_seconds", "From writing to Redis until the last reply."},
  };
  if (append_info(metrics, out, err) != 0 || append_counters(metrics, figures, out, err) != 0 ||
      append_levels(metrics, figures, out, err) != 0 || append_table(metrics, &figures->table, out, err) != 0) {
    return -1;
  }
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    if (append_times(metrics, &figures->times_total[times[i].time], times[i].name, times[i].help, out, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- file */

static int fail(const struct metrics *metrics, int errnum, struct err *err) {
  return err_errno(err, ERR_RETRY, errnum, "--metrics-file: cannot write %s", metrics->cfg->metrics_file);
}

static int write_all(int fd, const char *bytes, size_t n) {
  while (n > 0) {
    ssize_t written = write(fd, bytes, n);
    if (written < 0 && errno != EINTR) {
      return -1;
    }
    if (written > 0) {
      bytes += written;
      n -= (size_t)written;
    }
  }
  return 0;
}

int metrics_write(struct metrics *metrics, const struct stats_figures *figures, struct err *err) {
  struct buf text = BUF_INIT;
  bool is_made = false;
  int fd = -1;
  int rc = -1;
  if (metrics_render(metrics, figures, &text, err) != 0) {
    goto out;
  }
  /* No fsync: after a crash of the machine the figures are worth nothing, and the next start writes the file anew. */
  fd = open(metrics->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) {
    (void)fail(metrics, errno, err);
    goto out;
  }
  is_made = true;
  if (write_all(fd, text.data, text.len) != 0) {
    (void)fail(metrics, errno, err);
    goto out;
  }
  rc = close(fd);
  fd = -1;
  if (rc != 0 || rename(metrics->temporary, metrics->cfg->metrics_file) != 0) {
    rc = fail(metrics, errno, err);
    goto out;
  }
  is_made = false;

out:
  if (fd >= 0) {
    (void)close(fd);
  }
  if (is_made) {
    (void)unlink(metrics->temporary);
  }
  buf_free(&text);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- life */

/* relay tells relays on one machine apart, since two files that one node_exporter reads must not hold the same series: the file's name without ".prom".
 * table is what fleets are told apart by. */
static int make_labels(struct metrics *metrics, struct err *err) {
  static const char ending[] = ".prom";
  const char *slash = strrchr(metrics->cfg->metrics_file, '/');
  char *name = strdup(slash != NULL ? slash + 1 : metrics->cfg->metrics_file);
  int rc = -1;
  if (name == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "--metrics-file");
  }
  size_t bytes = strlen(name);
  if (bytes > strlen(ending) && strcmp(name + bytes - strlen(ending), ending) == 0) {
    name[bytes - strlen(ending)] = '\0';
  }
  if (buf_append_str(&metrics->labels, "relay=\"", err) == 0 && append_escaped(&metrics->labels, name, err) == 0 &&
      buf_append_str(&metrics->labels, "\",table=\"", err) == 0 &&
      append_escaped(&metrics->labels, metrics->cfg->table, err) == 0 &&
      buf_append_str(&metrics->labels, "\"", err) == 0) {
    rc = 0;
  }
  free(name);
  return rc;
}

int metrics_new(const struct cfg *cfg, struct metrics **out, struct err *err) {
  *out = NULL;
  struct metrics *metrics = calloc(1, sizeof *metrics);
  if (metrics == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "--metrics-file");
  }
  metrics->cfg = cfg;
  metrics->started_seconds = (double)clock_wall_us() / 1e6;
  /* The collector reads *.prom only.  The process id keeps two relays with the same file, or a leftover, apart. */
  if (asprintf(&metrics->temporary, "%s.%ld.tmp", cfg->metrics_file, (long)getpid()) < 0) {
    metrics->temporary = NULL;
    (void)err_errno(err, ERR_RETRY, ENOMEM, "--metrics-file");
    goto fail;
  }
  if (make_labels(metrics, err) != 0) {
    goto fail;
  }
  *out = metrics;
  return 0;
fail:
  metrics_free(metrics);
  return -1;
}

void metrics_free(struct metrics *metrics) {
  if (metrics != NULL) {
    buf_free(&metrics->labels);
    free(metrics->temporary);
    free(metrics);
  }
}
