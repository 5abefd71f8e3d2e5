/*
 * `outboxd init`: makes the outbox table, or adds what an existing one lacks.
 */
#ifndef OUTBOXD_CMD_INIT_H
#define OUTBOXD_CMD_INIT_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"

/* Does what the command line says and tells on stdout what was made and what was found, one line each; with --print writes the SQL there and
 * touches no database.  Main thread; blocks, for long only where an index is built on a table in use.  ERR_USAGE: the table's name;
 * ERR_FATAL: what stands under the name cannot be an outbox, nothing was changed; ERR_RETRY: the database is away or a lock is held. */
must_check int cmd_init(const struct cfg *cfg, struct err *err);

#endif
