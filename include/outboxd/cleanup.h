/*
 * The cleanup: a thread that makes partitions ahead and removes what is older than --retention, every --cleanup-every.
 *
 * Own PostgreSQL session; shares nothing with the threads that relay but the stop token.  Never drops a row that is pending or dead.
 * See docs/architecture.md "Maintenance" and docs/logging.md for its events.
 */
#ifndef OUTBOXD_CLEANUP_H
#define OUTBOXD_CLEANUP_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/stop.h"

struct cleanup;

/* cfg and stop are borrowed for the thread's life. */
must_check int cleanup_start(const struct cfg *cfg, const struct stop *stop, struct cleanup **out, struct err *err);

/* Waits for the thread, which ends soon after *stop is set, and frees.  NULL is fine. */
void cleanup_stop(struct cleanup *cleanup);

#endif
