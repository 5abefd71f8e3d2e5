/*
 * The coordinator's inside, shared by the files it is made of: coordinator.c (the loop and the phases), coordinator_lanes.c (which lanes are ours
 * and ready), coordinator_claims.c (what is claimed next), coordinator_batches.c (dispatch, outcomes, settle).
 *
 * All of it is private to the coordinator's thread but for struct coordinator_shared.
 */
#ifndef OUTBOXD_COORDINATOR_PRIVATE_H
#define OUTBOXD_COORDINATOR_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "outboxd/backoff.h"
#include "outboxd/batch.h"
#include "outboxd/claimer.h"
#include "outboxd/coordinator.h"
#include "outboxd/held_back.h"
#include "outboxd/histogram.h"
#include "outboxd/horizon.h"
#include "outboxd/lease.h"
#include "outboxd/publisher.h"

/* Where the coordinator is between two epochs.  RUN is the only one in which claims are made; the others are gone through in this order,
 * each being skipped when it has nothing to do. */
enum phase {
  PHASE_RUN,     /* claims go on */
  PHASE_DRAIN,   /* no new claim; waits until no batch is open */
  PHASE_LEAVE,   /* the claimers give the use locks of lanes that are handed on back, and take those of new ones */
  PHASE_RELEASE, /* the lease gives their gates back */
  PHASE_DEAD     /* --on-dead block: which aggregates have dead messages? */
};

/* A lane as this process sees it. */
enum owned_state {
  OWNED_NOT,      /* no gate */
  OWNED_JOINING,  /* the gate is ours, the claimers' use locks are not complete */
  OWNED_UNREAD,   /* ours; its journal has to be read */
  OWNED_READING,  /* the publisher reads the journal */
  OWNED_CHECKING, /* PostgreSQL is asked which of the journal's names are still pending */
  OWNED_READY,    /* open at the publisher; takes part from the next epoch on */
  OWNED_ACTIVE,   /* takes part in this epoch's claims */
  OWNED_LOST      /* was active; to be taken over afresh when no batch is open any more */
};

struct owned_lane {
  enum owned_state state;
  int64_t retry_us; /* OWNED_UNREAD: not before */
  struct backoff backoff;
  struct journal_names *names; /* OWNED_CHECKING: owned */
};

/* A claimer and its reconnecting. */
struct seat {
  struct claimer *claimer;
  struct backoff backoff;
  int64_t retry_us;
  struct batch *batch; /* open: from the claim until settled, given back or lost; one reference */
  bool is_lost;        /* the session went while the batch was open: waits for the publishers only */
  int64_t sent_us;     /* of the claim, the probe, the mark or the settle under way */
  int64_t mark_us;     /* what the batch's mark took; 0: it had none */
};

struct coordinator {
  const struct cfg *cfg;
  struct table *table;
  struct publisher *const *publishers;
  struct queue *notes;
  struct stop *finished;
  const struct stop *drain; /* set: settle what is in flight, then end */
  const struct stop *abort; /* set: end at once */
  pthread_t thread;
  bool is_started;

  enum phase phase;
  bool is_drain_wanted;
  bool is_ending; /* no more claims; end when drained */
  int exit_status;
  struct err fatal; /* why it ends with status 1 */

  struct lease *lease;
  struct backoff lease_backoff;
  int64_t lease_retry_us;
  int64_t next_fleet_us;
  bool is_left_asked;       /* --until-empty: the question waits for the lease */
  bool has_no_share;        /* there are more processes than lanes, and none for us */
  int64_t next_trigger_us;  /* when to look again whether the table has the trigger of --notify */
  int64_t next_left_us;     /* --until-empty without lanes: when to ask again */
  int64_t postgres_down_us; /* since when no session could be had; 0: it answers */

  struct owned_lane *lanes;
  bool *lanes_joined;      /* flags: what the claimers' use locks should be */
  bool *lanes_leaving;     /* flags: being handed on */
  bool is_leaving;         /* some are */
  bool is_lease_lost;      /* the lease went: everything leaves at the next drain */
  int64_t taking_since_us; /* since when lanes are being taken over; now when none is */
  struct buf active_param; /* int4[] of the active lanes */
  int active_n;
  int checking;                         /* lane whose names PostgreSQL is asked about; -1: none */
  struct journal_names *checking_names; /* of that question; owned, the lease's while it asks */

  struct seat *seats;
  int claiming; /* index of the seat that claims or probes; -1: none */
  int64_t epoch;
  int64_t seq;
  struct horizon *horizon;   /* how far the claims of this epoch have come */
  int64_t known_id;          /* largest id claimed before this epoch: held-back aggregates' known rows lie up to it */
  struct buf left;           /* int64_t: ids above near of what was claimed in this epoch and not published */
  struct buf in_flight;      /* int8[] of the open batches' ids and of these */
  bool is_caught_up;         /* the last claim found less than a whole batch */
  int64_t simple_allowed_us; /* until then claims are careful ones */
  int64_t careful_us;        /* for how long, this time */
  struct backoff careful;    /* the next, longer when it is soon needed again */
  bool is_wary;   /* the last batch was not published as it was handed out: a mark may have to be taken back again */
  bool is_cut;    /* a batch of this epoch was not handed to the publishers: nothing behind it is */
  bool is_woken;  /* rows were committed since the last claim or probe was sent */
  bool is_probed; /* the probe of this poll found something */
  bool is_epoch_told; /* the publishers know of this epoch */
  int64_t next_poll_us;
  bool is_claim_behind;     /* the claim that was sent last looks where claims have been in an earlier epoch */
  int64_t sweep_started_us; /* of the last one; 0: it was never answered */
  int64_t sweep_spent_us;   /* by it so far; -1 before its first answer */
  int64_t sweep_cost_us;    /* the same, as far as that is credible */
  int64_t sweep_before_us;  /* cost of the one before */
  int64_t sweep_allowed_us; /* sweeps may take a twentieth of the time: not before */
  int64_t sweep_due_us;     /* while claims are full: the next one */
  int64_t dead_check_us;    /* --on-dead block: when to look again; INT64_MAX */
  bool is_dead_known;
  int64_t dead_asked_us;
  int printed_per_stored; /* see struct claim */

  struct held_back *held_back;

  pthread_mutex_t stats_mutex; /* guards what follows */
  struct coordinator_stats stats;
  struct coordinator_health health;
  struct histogram claim_time;
  struct histogram settle_time;
};

#define DEAD_EVERY_US 2000000 /* --on-dead block: has an operator freed an aggregate? */
#define SEATS(c) ((c)->cfg->claimers_n)

/* coordinator_claims.c */
/* The claimer that could claim now; -1: none, and what frees one is an event. */
int claims_free_seat(const struct coordinator *c);
/* Sends the next claim or probe, if it is time. */
void claims_send(struct coordinator *c, int64_t now_us);
void claims_plan_poll(struct coordinator *c, int64_t now_us);
/* When a sweep may begin at the earliest; INT64_MAX while the one under way has not been answered: what frees it is an event. */
int64_t claims_sweep_allowed_us(const struct coordinator *c);
void claims_begin_sweep(struct coordinator *c, int64_t now_us);
/* A claim has been answered, or its session was lost. */
void claims_count_sweep(struct coordinator *c, const struct seat *seat, bool is_answered, int64_t now_us);
void claims_be_careful(struct coordinator *c, int64_t now_us);
void claims_note_horizon(struct coordinator *c, const struct batch *batch, int64_t now_us);
void claims_learn_sizes(struct coordinator *c, const struct batch *batch);
void claims_note_left(struct coordinator *c, const struct batch *batch);

/* coordinator_batches.c */
void batches_on_claimer(struct coordinator *c, int index, enum claimer_event event, int64_t now_us);
void batches_on_done(struct note *note);
void batches_act(struct coordinator *c, int64_t now_us);
bool batches_are_none_open(const struct coordinator *c);
void batches_drop_all(struct coordinator *c);

/* coordinator_lanes.c */
must_check int lanes_new(struct coordinator *c, struct err *err);
void lanes_free(struct coordinator *c);
void lanes_lose(struct coordinator *c, int lane, const char *why, bool is_fenced, int64_t retry_us);
void lanes_on_lease_lost(struct coordinator *c);
void lanes_act(struct coordinator *c, int64_t now_us);
void lanes_on_fleet(struct coordinator *c, int64_t now_us);
void lanes_on_taken(struct coordinator *c);
void lanes_on_pending(struct coordinator *c);
void lanes_on_note(struct coordinator *c, struct note *note, int64_t now_us);
bool lanes_want_epoch(const struct coordinator *c, int64_t now_us);
/* Between epochs: says which use locks the claimers should hold from now on. */
void lanes_plan(struct coordinator *c);
/* The claimers' use locks fit: new lanes may be read. */
void lanes_on_joined(struct coordinator *c);
void lanes_on_released(struct coordinator *c);
must_check int lanes_start_epoch(struct coordinator *c, int64_t now_us, struct err *err);
int64_t lanes_next_us(const struct coordinator *c);

/* coordinator.c */
void coordinator_want_drain(struct coordinator *c);
void coordinator_postgres_failed(struct coordinator *c, const char *session, const struct err *err, bool was_open,
                                 int64_t now_us);
void coordinator_push_job(struct coordinator *c, int publisher, struct job job);

#endif
