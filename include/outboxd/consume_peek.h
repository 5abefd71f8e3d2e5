/*
 * outbox-consume --print: what the streams hold now, to the standard output.
 */
#ifndef OUTBOXD_CONSUME_PEEK_H
#define OUTBOXD_CONSUME_PEEK_H

#include "outboxd/consume_cfg.h"

/* Prints each message as a line of JSON, lane by lane, stream by stream, at most cfg->limit_n of them (0: all); no group is touched and PostgreSQL not
 * asked.  Main thread; blocks, each exchange at most --redis-timeout. */
must_check int consume_peek(const struct consume_cfg *cfg, struct err *err);

#endif
