/*
 * `outboxd status`: what is pending and dead, who relays it, where it goes.
 *
 * Main thread; blocking, for some seconds at most where a server does not answer.
 */
#ifndef OUTBOXD_CMD_STATUS_H
#define OUTBOXD_CMD_STATUS_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"

/* Tells on stdout, once or, with --watch, until SIGINT or SIGTERM.  *status becomes 1 when one of the servers could not be asked (the other
 * is told of all the same) or a message is older than --max-age; after a signal it is 0.  ERR_USAGE: table, URL or template; ERR_FATAL: there is no
 * such table.  Changes nothing, in neither server. */
must_check int cmd_status(const struct cfg *cfg, int *status, struct err *err);

#endif
