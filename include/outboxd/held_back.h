/*
 * The aggregates whose pending messages may not be claimed for now, and until when.
 *
 * Owned by the coordinator's thread.  An aggregate leaves only by held_back_release_due or held_back_keep_dead, which are called when no batch
 * is open, so that nothing of it can overtake what held it back.  See docs/architecture.md "Order, precisely".
 */
#ifndef OUTBOXD_HELD_BACK_H
#define OUTBOXD_HELD_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/err.h"

enum held_reason {
  HELD_LOCKED, /* another session holds a row of it */
  HELD_FAILED, /* a message of it waits for its next attempt */
  HELD_DEAD    /* a message of it is dead, and --on-dead block */
};
#define HELD_REASONS_N 3

struct held_back;

must_check int held_back_new(struct held_back **out, struct err *err);
void held_back_free(struct held_back *held_back);

/* Adds an aggregate, or replaces what is known of it: a dead one stays dead, else the later due time counts.  due_us: clock_now_us; INT64_MAX: until
 * held_back_keep_dead.  last_id: the largest id of its messages that is known; INT64_MAX where none is.  ERR_RETRY on no memory. */
must_check int held_back_add(struct held_back *held_back, int64_t key, enum held_reason reason, int64_t due_us,
                             int64_t last_id, struct err *err);

/* Is it held back?  Then a message of it with this id is known from now on. */
bool held_back_saw(struct held_back *held_back, int64_t key, int64_t id);

/* Removes those that are due; returns their number. */
int held_back_release_due(struct held_back *held_back, int64_t now_us);

/* Makes HELD_DEAD exactly these keys: others of that reason leave, new ones come in.  Returns the number that left, -1 on no memory. */
must_check int held_back_keep_dead(struct held_back *held_back, const int64_t *keys, int n, struct err *err);

/* No aggregate falls due before; exact after held_back_release_due.  INT64_MAX when nothing falls due. */
int64_t held_back_next_due_us(const struct held_back *held_back);
int held_back_n(const struct held_back *held_back, enum held_reason reason);
bool held_back_has(const struct held_back *held_back, int64_t key);

/* The keys of those that are known to have a message with an id above above_id, as int8[] in binary form; NULL when there are none.  Valid until the next
 * change or call.  INT64_MIN: all keys.  ERR_RETRY on no memory. */
must_check int held_back_param(struct held_back *held_back, int64_t above_id, const struct buf **out, struct err *err);

#endif
