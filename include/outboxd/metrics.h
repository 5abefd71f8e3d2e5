/*
 * The figures in Prometheus' text format, in a file for node_exporter's textfile collector (--metrics-file).
 *
 * Used by the main thread.  Never: leaves half a file where a reader could find it; opens a port.
 * Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).  Names and meanings: docs/logging.md, "Metrics".
 */
#ifndef OUTBOXD_METRICS_H
#define OUTBOXD_METRICS_H

#include "outboxd/buf.h"
#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/stats.h"

struct metrics;

/* For cfg->metrics_file, borrowed like the rest of cfg.  Writes nothing yet.  ERR_RETRY without memory. */
must_check int metrics_new(const struct cfg *cfg, struct metrics **out, struct err *err);
void metrics_free(struct metrics *metrics);

/* Appends the whole text to out.  ERR_RETRY without memory. */
must_check int metrics_render(const struct metrics *metrics, const struct stats_figures *figures, struct buf *out,
                              struct err *err);

/* Writes the file: a temporary one beside it, then rename(2), so that a reader finds the old text or the new.  Blocks for as long as the file system
 * does.  ERR_RETRY, with the path in the text: the caller decides what a failure means. */
must_check int metrics_write(struct metrics *metrics, const struct stats_figures *figures, struct err *err);

#endif
