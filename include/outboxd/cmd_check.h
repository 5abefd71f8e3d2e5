/*
 * `outboxd check`: says whether `outboxd run` would work with the same options, and what to do where it would not.
 */
#ifndef OUTBOXD_CMD_CHECK_H
#define OUTBOXD_CMD_CHECK_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"

/* Looks at PostgreSQL and Redis and writes what it found on stdout: a line for each thing (docs/check.md), or one JSON object with --json.  *status
 * gets 0, or 1 when an error is among them.  Changes nothing on either server, takes no lock that a relay or a writer could meet.  Main thread; blocks up to
 * --session-timeout and --redis-timeout a question.  ERR_FATAL: there is no report (no memory, stdout). */
must_check int cmd_check(const struct cfg *cfg, int *status, struct err *err);

#endif
