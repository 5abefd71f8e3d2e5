/*
 * A statement that takes long, with something to do meanwhile.
 *
 * For threads with nothing else to do; the session's owner calls.
 */
#ifndef OUTBOXD_PGTICK_H
#define OUTBOXD_PGTICK_H

#include <stdint.h>

#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/stop.h"

/* As pg_call, and calls tick(arg) every every_ms milliseconds until the reply is there: about so often, for tick's own time is added.  tick must
 * not use pg.  stop may be NULL. */
must_check int pgtick_call(struct pg *pg, const struct pg_step *steps, int n, int64_t timeout_ms,
                           const struct stop *stop, int64_t every_ms, void (*tick)(void *arg), void *arg,
                           struct err *err);

#endif
