/*
 * The coordinator's claims: when the next one is sent, of which kind, what it asks for and leaves out; and what an answer says about the next.
 *
 * Owns: the horizon, the price of sweeps, what is left of the batches of this epoch.  Run by: the coordinator's thread.
 * Never: has two claims under way; lets a claim go on behind what may still bring rows.
 */
#include <string.h>

#include "coordinator.h"
#include "outboxd/log.h"
#include "outboxd/pgarray.h"

#define SWEEP_SHARE 20       /* sweeps take at most one part in so many of the time */
#define SWEEP_GROWTH 4       /* a sweep is believed to cost at most so many times what the one before did, */
#define SWEEP_CHEAP_US 10000 /* and this */
#define SWEEP_EVERY_US 10000000
/* After a row that was locked by another session or too large for a simple claim all claims are careful ones for a time, twice as long as before if that went
 * well for no longer than the time before and this.  More than the half second after which a row that stays locked is met again. */
#define CAREFUL_FORGET_US 5000000
#define OLD_US 5000000   /* no INSERT waits so long between drawing its id and writing */
#define PRINTED_FIRST 64 /* text bytes of one stored byte of a compressed payload, before any was seen */
#define PRINTED_LEAST 4

/* A mark that is taken back leaves a dead version of each row: not while Redis does not answer, or refuses.  And it takes a round trip more: not for
 * the few rows that a notification tells of, which somebody wants at once. */
static enum claim_kind choose_kind(const struct coordinator *c, int64_t now_us) {
  if (now_us < c->simple_allowed_us) {
    return CLAIM_CAREFUL;
  }
  bool is_urgent = c->is_caught_up && lease_is_listening(c->lease);
  return c->is_wary || is_urgent ? CLAIM_LOCKING : CLAIM_MARKING;
}

/* A claim that was not careful, or its mark, did not do.  Others that were under way may say the same: that is once. */
void claims_be_careful(struct coordinator *c, int64_t now_us) {
  if (now_us < c->simple_allowed_us) {
    return;
  }
  if (now_us - c->simple_allowed_us > c->careful_us + CAREFUL_FORGET_US) {
    backoff_reset(&c->careful);
  }
  c->careful_us = backoff_next_us(&c->careful);
  c->simple_allowed_us = now_us + c->careful_us;
}

static int remember_left(struct coordinator *c, const struct msg *msg, struct err *err) {
  if (msg->outcome == OUTCOME_WITHHELD) {
    (void)held_back_saw(c->held_back, msg->key, msg->id);
  }
  return msg->id > horizon_near(c->horizon) ? buf_append(&c->left, &msg->id, sizeof msg->id, err) : 0;
}

/* The batch is settled; what was not published stays pending, and is for another epoch.  The claims of this one begin a little behind where they have
 * been, and would bring it once more each time. */
void claims_note_left(struct coordinator *c, const struct batch *batch) {
  struct err err = ERR_INIT;
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].outcome != OUTCOME_PUBLISHED && remember_left(c, &batch->msgs[i], &err) != 0) {
      log_event(LOG_ERROR, "out_of_memory", err.text, LOG_STR("code", err.code));
      return;
    }
  }
}

/* Forgets what claims begin behind now.  Returns how many are left. */
static int drop_left(struct coordinator *c) {
  int64_t near = horizon_near(c->horizon);
  int64_t id;
  size_t kept = 0;
  for (size_t at = 0; at < c->left.len; at += sizeof id) {
    memcpy(&id, c->left.data + at, sizeof id);
    if (id > near) {
      memcpy(c->left.data + kept, &id, sizeof id);
      kept += sizeof id;
    }
  }
  c->left.len = kept;
  return (int)(kept / sizeof id);
}

/* The ids that the claim may meet and has to leave out: those of the open batches, which are pending until their settle commits, and what is left. */
static int fill_in_flight(struct coordinator *c, struct err *err) {
  int64_t far = horizon_far(c->horizon);
  int n = drop_left(c);
  for (int i = 0; i < SEATS(c); i++) {
    const struct batch *batch = c->seats[i].batch;
    for (int m = 0; batch != NULL && m < batch->n; m++) {
      n += batch->msgs[m].id > far;
    }
  }
  buf_reset(&c->in_flight);
  if (pgarray_begin(&c->in_flight, PGARRAY_INT8, n, err) != 0) {
    return -1;
  }
  for (int i = 0; i < SEATS(c); i++) {
    const struct batch *batch = c->seats[i].batch;
    for (int m = 0; batch != NULL && m < batch->n; m++) {
      if (batch->msgs[m].id > far && pgarray_int8(&c->in_flight, batch->msgs[m].id, err) != 0) {
        return -1;
      }
    }
  }
  for (size_t at = 0; at < c->left.len; at += sizeof(int64_t)) {
    int64_t id;
    memcpy(&id, c->left.data + at, sizeof id);
    if (pgarray_int8(&c->in_flight, id, err) != 0) {
      return -1;
    }
  }
  return n;
}

static int fill_claim(struct coordinator *c, struct claim *claim, int64_t now_us, struct err *err) {
  int in_flight_n = fill_in_flight(c, err);
  if (in_flight_n < 0) {
    return -1;
  }
  *claim = (struct claim){.near = horizon_near(c->horizon),
                          .far = horizon_far(c->horizon),
                          .lanes = c->active_n < c->cfg->lanes_n ? &c->active_param : NULL,
                          .xids = horizon_xids(c->horizon),
                          .lows = horizon_lows(c->horizon),
                          .in_flight = in_flight_n > 0 ? &c->in_flight : NULL,
                          .in_flight_n = in_flight_n,
                          .max_attempts_n = c->cfg->max_attempts_n,
                          .rows_n = c->cfg->batch_n,
                          .bytes = c->cfg->max_batch_bytes,
                          .printed_per_stored = c->printed_per_stored > 0 ? c->printed_per_stored : PRINTED_FIRST,
                          .kind = choose_kind(c, now_us),
                          .is_probed = c->is_probed};
  /* Ahead of where the claims have been, the rows of aggregates held back are few: on_claimed leaves them out one by one.  The list may be long, and
   * PostgreSQL makes a table of it for each claim. */
  c->is_claim_behind = horizon_near(c->horizon) < c->known_id;
  return c->is_claim_behind ? held_back_param(c->held_back, claim->far, &claim->held_back, err) : 0;
}

/* Sends a claim, or the cheaper probe when the last claim found less than a batch. */
static void send_claim(struct coordinator *c, int index, int64_t now_us) {
  struct err err = ERR_INIT;
  struct claim claim;
  struct seat *seat = &c->seats[index];
  int rc = fill_claim(c, &claim, now_us, &err);
  if (rc == 0) {
    seat->sent_us = now_us;
    c->claiming = index;
    bool is_new_sweep = c->sweep_spent_us >= 0 || c->sweep_started_us == 0;
    if (horizon_cursor(c->horizon) == INT64_MIN && is_new_sweep && !c->is_probed) {
      claims_begin_sweep(c, now_us);
    }
    bool is_probe = c->is_caught_up && !c->is_probed && !c->is_woken;
    c->is_woken = false; /* what is committed from here on is told again */
    rc = is_probe ? claimer_probe(seat->claimer, &claim, now_us, &err)
                  : claimer_claim(seat->claimer, &claim, now_us, &err);
  }
  if (rc != 0) {
    batches_on_claimer(c, index, CLAIMER_EV_LOST, now_us);
    coordinator_postgres_failed(c, "claimer", &err, true, now_us);
  }
}

int claims_free_seat(const struct coordinator *c) {
  for (int i = 0; i < SEATS(c); i++) {
    const struct seat *seat = &c->seats[i];
    if (seat->batch == NULL && claimer_state(seat->claimer) == CLAIMER_READY &&
        claimer_is_synced(seat->claimer, c->lanes_joined)) {
      return i;
    }
  }
  return -1;
}

void claims_send(struct coordinator *c, int64_t now_us) {
  if (c->phase != PHASE_RUN || c->claiming >= 0 || c->active_n == 0) {
    return;
  }
  bool is_idle = c->is_caught_up && !c->is_probed;
  if (is_idle && horizon_cursor(c->horizon) == INT64_MIN && now_us < c->sweep_allowed_us) {
    return;
  }
  if (is_idle && !c->is_woken) {
    if (now_us < c->next_poll_us) {
      return;
    }
    /* A poll looks from the start of the order again, for what committed late: with nothing in flight, as every sweep.  A claim that was woken for
     * goes on from the horizon. */
    if (horizon_cursor(c->horizon) != INT64_MIN && now_us >= claims_sweep_allowed_us(c) && batches_are_none_open(c)) {
      coordinator_want_drain(c);
      return;
    }
  }
  int index = claims_free_seat(c);
  if (index >= 0) {
    send_claim(c, index, now_us);
  }
}

/* One interval after the last poll was due, not after it was answered. */
void claims_plan_poll(struct coordinator *c, int64_t now_us) {
  int64_t interval_us = c->cfg->poll_interval_ms * 1000;
  if (c->next_poll_us <= now_us) {
    c->next_poll_us = c->next_poll_us + interval_us > now_us ? c->next_poll_us + interval_us : now_us + interval_us;
  }
}

int64_t claims_sweep_allowed_us(const struct coordinator *c) {
  bool is_unanswered = c->sweep_started_us != 0 && c->sweep_spent_us < 0;
  return is_unanswered ? INT64_MAX : c->sweep_allowed_us;
}

void claims_begin_sweep(struct coordinator *c, int64_t now_us) {
  c->sweep_before_us = c->sweep_cost_us;
  c->sweep_started_us = now_us;
  c->sweep_spent_us = -1;
}

/* What the sweep has taken so far decides when the next may be: all from its start to the first answer, and each further claim among rows where the
 * claims had been before.  These walk past every row that is held back, so many retries are cheaper in few sweeps.  One that
 * takes far longer than the one before met a database (or, in the drain before it, a Redis) that hung: nine times that would be a pause for
 * nothing.  When they are dear indeed, the next few show it. */
void claims_count_sweep(struct coordinator *c, const struct seat *seat, bool is_answered, int64_t now_us) {
  if (seat->sent_us < c->sweep_started_us) {
    return; /* it was under way when the sweep began with a drain */
  }
  if (!is_answered) {
    /* Its session is lost: that has a backoff of its own. */
    c->sweep_started_us = c->sweep_spent_us < 0 ? 0 : c->sweep_started_us;
    return;
  }
  if (c->sweep_spent_us >= 0 && !c->is_claim_behind) {
    return;
  }
  bool is_first = c->sweep_spent_us < 0;
  int64_t credible_us = SWEEP_GROWTH * c->sweep_before_us + SWEEP_CHEAP_US;
  c->sweep_spent_us = is_first ? now_us - c->sweep_started_us : c->sweep_spent_us + now_us - seat->sent_us;
  c->sweep_cost_us = c->sweep_spent_us < credible_us ? c->sweep_spent_us : credible_us;
  int64_t allowed_us =
      is_first ? now_us + c->sweep_cost_us * (SWEEP_SHARE - 1) : c->sweep_started_us + c->sweep_cost_us * SWEEP_SHARE;
  c->sweep_allowed_us = is_first || allowed_us > c->sweep_allowed_us ? allowed_us : c->sweep_allowed_us;
  c->sweep_due_us = c->sweep_allowed_us > now_us + SWEEP_EVERY_US ? c->sweep_allowed_us : now_us + SWEEP_EVERY_US;
}

/* -------------------------------------------------------------------------------------------------- learnt from an answer */

void claims_note_horizon(struct coordinator *c, const struct batch *batch, int64_t now_us) {
  struct err err = ERR_INIT;
  const struct msg *last = &batch->last;
  const struct msg first = {.row = 0};
  size_t bytes = 0;
  const struct horizon_claim claim = {
      .now_us = now_us,
      .last_id = last->id,
      .snapshot = batch_is_null(batch, &first, COL_SNAPSHOT) ? NULL : batch_text(batch, &first, COL_SNAPSHOT, &bytes),
      .is_cut = !c->is_caught_up,
      .is_old = last->has_created_at && last->created_us < batch->db_now_us - OLD_US};
  if (horizon_note(c->horizon, &claim, &err) != 0) {
    log_event(LOG_ERROR, "out_of_memory", err.text, LOG_STR("code", err.code));
  }
}

/* How much compressed payloads grow when they are printed: twice the most seen in this batch, coming down slowly. */
void claims_learn_sizes(struct coordinator *c, const struct batch *batch) {
  if (batch->growth > 0) {
    int wanted = 2 * batch->growth > PRINTED_LEAST ? 2 * batch->growth : PRINTED_LEAST;
    int slower = c->printed_per_stored - c->printed_per_stored / 8;
    c->printed_per_stored = c->printed_per_stored > wanted && slower > wanted ? slower : wanted;
  }
}
