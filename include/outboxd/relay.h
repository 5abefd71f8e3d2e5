/*
 * `outboxd run`: the one place that ties the parts together, with one visible start list and a stop list that mirrors it.
 *
 * Runs on the main thread, which also takes the signals and prints the statistics.
 */
#ifndef OUTBOXD_RELAY_H
#define OUTBOXD_RELAY_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"

/* Relays until told to stop.  Returns the exit status: 0 after a clean drain, 1 otherwise; *err says why when there is something to say. */
int relay_run(const struct cfg *cfg, struct err *err);

#endif
