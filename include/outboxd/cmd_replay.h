/*
 * `outboxd replay`: messages that are published are published once more, to other streams.
 *
 * Main thread; blocking.
 */
#ifndef OUTBOXD_CMD_REPLAY_H
#define OUTBOXD_CMD_REPLAY_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"

/* Publishes and says on stdout how many, on stderr how far it is.  Changes nothing in the database.  ERR_USAGE: the command line; anything else: it ended
 * early (SIGINT and SIGTERM too, ERR_RETRY "stopped"), and *err says up to which id Redis has confirmed everything, and how to go on. */
must_check int cmd_replay(const struct cfg *cfg, struct err *err);

#endif
