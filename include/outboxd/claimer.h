/*
 * A claimer: one PostgreSQL session that has at most one batch open - claimed, in publication, or being settled.
 *
 * Driven by the coordinator's thread alone, never blocks.  Owns: its session, its transaction, the use locks of its lanes.
 * Never: decides what to claim or what becomes of a message; tells of a settled batch before the COMMIT is confirmed.
 * See docs/architecture.md "Claim, publish, settle".
 */
#ifndef OUTBOXD_CLAIMER_H
#define OUTBOXD_CLAIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/cfg.h"
#include "outboxd/claim.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/table.h"

enum claimer_state {
  CLAIMER_CLOSED,     /* no session; claimer_open may be called */
  CLAIMER_CONNECTING, /* the connection is being made */
  CLAIMER_SETTING_UP, /* settings, prepared statements */
  CLAIMER_READY,      /* no transaction open: may probe, claim, change lanes, be touched */
  CLAIMER_SYNCING,    /* use locks are being taken or given back */
  CLAIMER_PROBING,    /* asks whether anything is pending */
  CLAIMER_CLAIMING,   /* BEGIN and the claim are under way */
  CLAIMER_LOOKING,    /* in the claim's transaction: looks up rows held by others, names of new partitions */
  CLAIMER_OPEN,       /* a batch is open: may mark, settle, give back, be touched */
  CLAIMER_MARKING,    /* its rows are being marked as published, before they are */
  CLAIMER_TOUCHING,   /* READY or OPEN, and a touch is under way */
  CLAIMER_SETTLING,   /* marks and COMMIT are under way */
  CLAIMER_GIVING_BACK /* ROLLBACK is under way */
};

enum claimer_event {
  CLAIMER_EV_NONE,
  CLAIMER_EV_READY,   /* set up or synced: CLAIMER_READY */
  CLAIMER_EV_FOUND,   /* the probe: something is pending */
  CLAIMER_EV_NOTHING, /* the probe: nothing is pending */
  CLAIMER_EV_CLAIMED, /* a batch was claimed: claimer_take_batch; rows held by others: claimer_held */
  CLAIMER_EV_MARKED,  /* the batch's rows are marked: nobody else can touch them */
  CLAIMER_EV_REFUSED, /* another session holds or has changed one of them: none is marked, the batch can only be given back */
  CLAIMER_EV_EMPTY,      /* the claim returned nothing; rows held by others: claimer_held */
  CLAIMER_EV_SETTLED,    /* committed */
  CLAIMER_EV_GIVEN_BACK, /* rolled back */
  CLAIMER_EV_LOST        /* the session is gone and with it the transaction; *err says why */
};

struct claimer;

must_check int claimer_new(const struct cfg *cfg, struct table *table, struct claimer **out, struct err *err);
void claimer_free(struct claimer *claimer);

enum claimer_state claimer_state(const struct claimer *claimer);
struct pg *claimer_pg(struct claimer *claimer);

/* CLOSED: starts connecting.  ERR_RETRY, ERR_FATAL. */
must_check int claimer_open(struct claimer *claimer, int64_t now_us, struct err *err);
/* Drops the session, whatever it does. */
void claimer_close(struct claimer *claimer);

/* True when the session holds the use lock of exactly the wanted lanes (array of lanes_n flags). */
bool claimer_is_synced(const struct claimer *claimer, const bool *wanted);

/* READY: each starts one request; -1 with the session lost. */
must_check int claimer_sync(struct claimer *claimer, const bool *wanted, int64_t now_us, struct err *err);
must_check int claimer_probe(struct claimer *claimer, const struct claim *claim, int64_t now_us, struct err *err);
must_check int claimer_claim(struct claimer *claimer, const struct claim *claim, int64_t now_us, struct err *err);
/* OPEN, a batch that needs it: marks those messages of the batch that have no outcome (borrowed until the event).  MARKED or REFUSED. */
must_check int claimer_mark(struct claimer *claimer, const struct batch *batch, int64_t now_us, struct err *err);
/* OPEN: writes the outcomes of the batch (borrowed until the event) and commits. */
must_check int claimer_settle(struct claimer *claimer, const struct batch *batch, int64_t now_us, struct err *err);
must_check int claimer_give_back(struct claimer *claimer, int64_t now_us, struct err *err);
/* READY or OPEN: keeps the server's dead-man's timeouts from ending the session when nothing was sent for a third of them. */
must_check int claimer_touch(struct claimer *claimer, int64_t now_us, struct err *err);
/* When the next touch is due (clock_now_us); INT64_MAX when none is. */
int64_t claimer_touch_due_us(const struct claimer *claimer);

/* Goes on without blocking; at most one event a call. */
enum claimer_event claimer_drive(struct claimer *claimer, int64_t now_us, struct err *err);

/* True once after a claim that was not careful did not do and was made again carefully. */
bool claimer_take_was_redone(struct claimer *claimer);
/* After CLAIMED: the batch, now the caller's. */
struct batch *claimer_take_batch(struct claimer *claimer);
/* After CLAIMED or EMPTY: the rows held by others, valid until the next request.  Returns their number. */
int claimer_held(const struct claimer *claimer, const struct held **out);

#endif
