/*
 * The mark of a batch and its outcomes as statements, partition by partition.
 *
 * A batch whose claim locked its rows has its outcomes written at the end.  One whose claim did not is marked as published before it is; what was
 * published then only has to be committed, for the others the mark is taken back in the same transaction.
 * Private to the claimer that has the batch.
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

/* The mark: all messages that have no outcome yet as published, without COMMIT.  Groups them by partition (all must be known to table) and builds the
 * parameters.  ERR_RETRY on no memory, ERR_BUG on an unknown partition.  batch is borrowed for the call only. */
must_check int settle_new_mark(const struct batch *batch, const struct table *table, struct settle **out,
                               struct err *err);
/* The outcomes, which must be complete, in the same way.  mark: the batch's, or NULL where its rows are locked; borrowed until settle_free.  ERR_RETRY also
 * where a mark has to be taken back and rows of a partition have the same id. */
must_check int settle_new(const struct batch *batch, const struct table *table, const struct settle *mark,
                          struct settle **out, struct err *err);
void settle_free(struct settle *settle);

/* Fills steps (PG_STEPS_MAX of them) with the next statements, preparing what the session has not prepared yet, and the COMMIT (not for a mark) behind
 * the last ones; returns their number, 0 when everything was handed out.  -1: ERR_RETRY on no memory. */
must_check int settle_next(struct settle *settle, struct settle_prepared *prepared, struct pg_step *steps,
                           struct err *err);

/* Compares the counts of affected rows of the statements handed out last with what they must be.  ERR_BUG names the partition. */
must_check int settle_check(const struct settle *settle, const struct pg_reply *reply, struct err *err);

/* Of a mark, after the check: takes from the session's reply where the rows are now.  ERR_RETRY on no memory. */
must_check int settle_keep_places(struct settle *settle, struct pg *pg, struct err *err);

#endif
