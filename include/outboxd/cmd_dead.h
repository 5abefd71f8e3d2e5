/*
 * `outboxd dead`, `retry` and `discard`: dead messages listed, given new attempts, given up.
 *
 * Main thread; blocking.
 */
#ifndef OUTBOXD_CMD_DEAD_H
#define OUTBOXD_CMD_DEAD_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"

/* Lists on stdout.  ERR_USAGE: the table's name or a selector; ERR_FATAL: no such table, a missing privilege; ERR_RETRY: the database is away.  Changes
 * nothing. */
must_check int cmd_dead(const struct cfg *cfg, struct err *err);

/* What retry and discard do, by cfg->command; tells on stdout how many messages were changed and which of those named by --id were not, and why.
 * *status becomes 1 when there were such.  In transactions of about a thousand messages, each with whole aggregates; what was committed before
 * an error stays, and *err says how much that is: the same command may be run again.  Errors as cmd_dead; ERR_RETRY also when a row stays locked by another
 * session for half a minute. */
must_check int cmd_dead_change(const struct cfg *cfg, int *status, struct err *err);

#endif
