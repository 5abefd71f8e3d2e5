/*
 * From which id on the next claim has to look, so that no late commit is overtaken.
 *
 * Ids are drawn in order but commit out of order: when the claims have come as far as id C, a transaction that was in progress then may
 * still bring rows with smaller ids, and a later row of the same aggregate must not be claimed before them.  What a claim's snapshot says
 * about transactions in progress tells how far back that is possible.  Pure bookkeeping, coordinator's thread.
 *
 * *near* is the cursor of a moment ago; behind it only transactions can bring anything that were in progress then, and those are
 * remembered here, each with the id above which its ids lie (*low*).  A claim starts at near, or at the smallest low of those that are no
 * longer in progress in the claim's own snapshot.  See docs/architecture.md "Cursor and horizon".
 */
#ifndef OUTBOXD_HORIZON_H
#define OUTBOXD_HORIZON_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/err.h"

struct horizon;

/* What a claim found; snapshot is the text of pg_current_snapshot() and, behind another colon, the claim's own transaction
 * ("xmin:xmax:xip,xip:own"), NULL when it is not known.  Transactions of our own claims only mark rows: they bring nothing. */
struct horizon_claim {
  int64_t now_us;
  int64_t last_id;      /* the last one claimed */
  const char *snapshot; /* borrowed */
  bool is_cut;          /* limited by rows or bytes: there may be more behind last_id */
  bool
      is_old; /* the row of last_id was written so long ago that no id before it is still waiting for its transaction to begin */
};

must_check int horizon_new(struct horizon **out, struct err *err);
void horizon_free(struct horizon *horizon);

/* A new epoch: everything is looked at from the beginning. */
void horizon_reset(struct horizon *horizon);

/* Takes note of a claim that returned rows.  ERR_RETRY on no memory (then nothing is noted, which is always safe). */
must_check int horizon_note(struct horizon *horizon, const struct horizon_claim *claim, struct err *err);

/* Had the transaction with these lower 32 bits ended when the first claim of this epoch looked?  False also when that is not known.  What such a
 * transaction changed was before the eyes of every claim since, from the first id on; what a later one changed may lie behind near unseen. */
bool horizon_has_ended(const struct horizon *horizon, uint32_t xid);

int64_t horizon_near(const struct horizon *horizon);
/* The smallest low, or near: no claim starts below it. */
int64_t horizon_far(const struct horizon *horizon);
/* The largest id claimed in this epoch; INT64_MIN at its beginning. */
int64_t horizon_cursor(const struct horizon *horizon);
/* The remembered transactions (xid8[]) and their lows (int8[]) in binary form; NULL when there are none.  Valid until the next horizon_note or
 * horizon_reset. */
const struct buf *horizon_xids(const struct horizon *horizon);
const struct buf *horizon_lows(const struct horizon *horizon);

#endif
