/*
 * How far `run --until-empty` is, on a terminal: a thread of its own that counts what is pending and draws.
 *
 * Used by the main thread.
 */
#ifndef OUTBOXD_RELAY_PROGRESS_H
#define OUTBOXD_RELAY_PROGRESS_H

#include "outboxd/cfg.h"
#include "outboxd/coordinator.h"
#include "outboxd/err.h"
#include "outboxd/table.h"

struct relay_progress;

/* Starts the thread; *out is NULL without --until-empty, or where stderr is no terminal: the log is all there is then.  cfg and coordinator are borrowed
 * for its life, table for the call.  From here to relay_progress_stop log lines wipe the line that is drawn. */
must_check int relay_progress_start(const struct cfg *cfg, const struct table *table, struct coordinator *coordinator,
                                    struct relay_progress **out, struct err *err);
/* Ends the thread and wipes its line; waits for neither server.  NULL is fine. */
void relay_progress_stop(struct relay_progress *progress);

#endif
