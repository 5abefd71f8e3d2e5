/*
 * The lease: one PostgreSQL session that stands for the process in the fleet.
 *
 * Holds the membership lock and the gates of the process's lanes, and asks the questions that are not a claim's: who is in the fleet, which
 * journalled messages are still pending, which aggregates have dead messages, is anything pending at all.  Driven by the coordinator's
 * thread alone; one request at a time.  Never: blocks, decides which lanes to take.
 * See docs/architecture.md "Who owns which lane".
 */
#ifndef OUTBOXD_LEASE_H
#define OUTBOXD_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/journal.h"
#include "outboxd/pg.h"
#include "outboxd/table.h"

enum lease_state {
  LEASE_CLOSED,     /* no session: no gates, no membership */
  LEASE_CONNECTING, /* the connection is being made */
  LEASE_SETTING_UP, /* settings, membership */
  LEASE_READY,      /* may be asked */
  LEASE_ASKED       /* a request is under way */
};

enum lease_event {
  LEASE_EV_NONE,
  LEASE_EV_READY,     /* set up: member of the fleet, no lanes yet */
  LEASE_EV_FLEET,     /* lease_fleet is up to date */
  LEASE_EV_TAKEN,     /* lease_take is answered: lease_owns tells which */
  LEASE_EV_RELEASED,  /* the lanes are given back */
  LEASE_EV_PENDING,   /* lease_ask_pending is answered: the names are reduced to those still pending */
  LEASE_EV_DEAD,      /* lease_ask_dead is answered: lease_dead_keys */
  LEASE_EV_LISTENING, /* the table has the trigger of `outboxd init --notify`; this session hears of its inserts */
  LEASE_EV_LEFT,      /* lease_ask_left is answered: lease_is_anything_left */
  LEASE_EV_REPLACED,  /* the table's name now belongs to another table; *err is ERR_FATAL and says so */
  LEASE_EV_LOST       /* the session is gone, and with it gates and membership; *err says why */
};

/* What lease_ask_fleet saw. */
struct fleet {
  int members_n;
  int rank;       /* of this process among the members, by server process id, from 0 */
  bool *is_owned; /* per lane: some member holds its gate (this process included) */
};

struct dead_key {
  int64_t key; /* aggregate */
  int64_t id;  /* of its oldest dead message */
};

struct lease;

must_check int lease_new(const struct cfg *cfg, const struct table *table, struct lease **out, struct err *err);
void lease_free(struct lease *lease);

enum lease_state lease_state(const struct lease *lease);
struct pg *lease_pg(struct lease *lease);
must_check int lease_open(struct lease *lease, int64_t now_us, struct err *err);
void lease_close(struct lease *lease);

/* READY: each starts one request; -1 with the session lost. */
must_check int lease_ask_fleet(struct lease *lease, int64_t now_us, struct err *err);
/* Tries the gates of the wanted lanes (flags, lanes_n of them). */
must_check int lease_take(struct lease *lease, const bool *wanted, int64_t now_us, struct err *err);
/* Gives the gates of these lanes back; only when no claimer holds their use locks any more. */
must_check int lease_release(struct lease *lease, const bool *lanes, int64_t now_us, struct err *err);
/* Which of the names (borrowed until the event, then changed in place) are still pending? */
must_check int lease_ask_pending(struct lease *lease, struct journal_names *names, int64_t now_us, struct err *err);
must_check int lease_ask_dead(struct lease *lease, int64_t now_us, struct err *err);
/* Is anything pending in any lane, whoever owns it, other than dead messages and aggregates in held_back (int8[] or NULL)? */
must_check int lease_ask_left(struct lease *lease, const struct buf *held_back, int64_t now_us, struct err *err);
/* Does the table have the trigger of `outboxd init --notify`?  If so, LISTEN follows of itself. */
must_check int lease_ask_trigger(struct lease *lease, int64_t now_us, struct err *err);
must_check int lease_touch(struct lease *lease, int64_t now_us, struct err *err);
int64_t lease_touch_due_us(const struct lease *lease);

enum lease_event lease_drive(struct lease *lease, int64_t now_us, struct err *err);

bool lease_owns(const struct lease *lease, int lane);
const struct fleet *lease_fleet(const struct lease *lease);
int lease_dead_keys(const struct lease *lease, const struct dead_key **out);
bool lease_is_listening(const struct lease *lease);
/* True once after rows were committed. */
bool lease_take_woken(struct lease *lease);
bool lease_is_anything_left(const struct lease *lease);

#endif
