/*
 * The outcomes of a batch as statements, partition by partition.
 *
 * Built from a batch whose outcomes are complete; private to the claimer that settles it.
 */
#ifndef OUTBOXD_SETTLE_H
#define OUTBOXD_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/table.h"

struct settle;

/* The leaves whose settle statements a session has prepared; zero-initialised, freed by settle_prepared_clear. */
struct settle_prepared {
  int n;
  uint32_t *oids;
};
void settle_prepared_clear(struct settle_prepared *prepared);

/* Groups the outcomes by partition (all must be known to table) and builds the parameters.  ERR_RETRY on no memory, ERR_BUG on an
 * unknown partition.  batch is borrowed for the call only. */
must_check int settle_new(const struct batch *batch, const struct table *table, struct settle **out, struct err *err);
void settle_free(struct settle *settle);

/* Fills steps (PG_STEPS_MAX of them) with the next statements, preparing what the session has not prepared yet, and the COMMIT behind the
 * last ones; returns their number, 0 when everything was handed out.  -1: ERR_RETRY on no memory. */
must_check int settle_next(struct settle *settle, struct settle_prepared *prepared, struct pg_step *steps,
                           struct err *err);

/* Compares the counts of affected rows of the statements handed out last with what they must be.  ERR_BUG names the partition. */
must_check int settle_check(const struct settle *settle, const struct pg_reply *reply, struct err *err);

#endif
