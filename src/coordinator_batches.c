/*
 * The coordinator's batches: claim, dispatch, outcomes, settle.
 *
 * Owns: the open batches (one a seat at most), the cursor, what is held back.  Run by: the coordinator's thread.
 * Never: counts a message as published before the COMMIT of its mark is confirmed; lets anything of an aggregate be claimed behind a
 * message of it that was refused or is held by another session.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/pgarray.h"

#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 60000
#define LOCKED_RETRY_MS 500  /* a row held by another session is looked at again after about so long */
#define SWEEP_SHARE 20       /* sweeps take at most one part in so many of the time */
#define SWEEP_GROWTH 4       /* a sweep is believed to cost at most so many times what the one before did, */
#define SWEEP_CHEAP_US 10000 /* and this */
#define SWEEP_EVERY_US 10000000
/* After a row that was locked by another session or too large for a simple claim all claims are careful ones for a time, twice as long as before if that went
 * well for no longer than the time before and this.  More than LOCKED_RETRY_MS: a row that stays locked is met again after about so long. */
#define CAREFUL_FORGET_US 5000000
#define OLD_US 5000000   /* no INSERT waits so long between drawing its id and writing */
#define PRINTED_FIRST 64 /* text bytes of one stored byte of a compressed payload, before any was seen */
#define PRINTED_LEAST 4

static void count_batch(struct coordinator *c, const struct batch *batch, bool is_settled) {
  int64_t published_n = 0;
  int64_t failed_n = 0;
  for (int i = 0; i < batch->n; i++) {
    published_n += batch->msgs[i].outcome == OUTCOME_PUBLISHED;
    failed_n += batch->msgs[i].outcome == OUTCOME_FAILED;
  }
  pthread_mutex_lock(&c->stats_mutex);
  if (is_settled) {
    c->stats.published_n += published_n;
    c->stats.failed_n += failed_n;
    c->stats.withheld_n += batch->n - published_n - failed_n;
  } else {
    c->stats.given_back_n += batch->n;
  }
  pthread_mutex_unlock(&c->stats_mutex);
}

bool batches_are_none_open(const struct coordinator *c) {
  if (c->claiming >= 0) {
    return false;
  }
  for (int i = 0; i < SEATS(c); i++) {
    if (c->seats[i].batch != NULL) {
      return false;
    }
  }
  return true;
}

/* -------------------------------------------------------------------------------------------------- claim */

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
static void be_careful(struct coordinator *c, int64_t now_us) {
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
static void note_left(struct coordinator *c, const struct batch *batch) {
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
      batches_begin_sweep(c, now_us);
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

int batches_free_seat(const struct coordinator *c) {
  for (int i = 0; i < SEATS(c); i++) {
    const struct seat *seat = &c->seats[i];
    if (seat->batch == NULL && claimer_state(seat->claimer) == CLAIMER_READY &&
        claimer_is_synced(seat->claimer, c->lanes_joined)) {
      return i;
    }
  }
  return -1;
}

void batches_claim(struct coordinator *c, int64_t now_us) {
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
    if (horizon_cursor(c->horizon) != INT64_MIN && now_us >= batches_sweep_allowed_us(c) && batches_are_none_open(c)) {
      coordinator_want_drain(c);
      return;
    }
  }
  int index = batches_free_seat(c);
  if (index >= 0) {
    send_claim(c, index, now_us);
  }
}

/* One interval after the last poll was due, not after it was answered. */
static void plan_poll(struct coordinator *c, int64_t now_us) {
  int64_t interval_us = c->cfg->poll_interval_ms * 1000;
  if (c->next_poll_us <= now_us) {
    c->next_poll_us = c->next_poll_us + interval_us > now_us ? c->next_poll_us + interval_us : now_us + interval_us;
  }
}

int64_t batches_sweep_allowed_us(const struct coordinator *c) {
  bool is_unanswered = c->sweep_started_us != 0 && c->sweep_spent_us < 0;
  return is_unanswered ? INT64_MAX : c->sweep_allowed_us;
}

void batches_begin_sweep(struct coordinator *c, int64_t now_us) {
  c->sweep_before_us = c->sweep_cost_us;
  c->sweep_started_us = now_us;
  c->sweep_spent_us = -1;
}

/* What the sweep has taken so far decides when the next may be: all from its start to the first answer, and each further claim among rows where the
 * claims had been before.  These walk past every row that is held back, so many retries are cheaper in few sweeps.  One that
 * takes far longer than the one before met a database (or, in the drain before it, a Redis) that hung: nine times that would be a pause for
 * nothing.  When they are dear indeed, the next few show it. */
static void count_sweep(struct coordinator *c, const struct seat *seat, bool is_answered, int64_t now_us) {
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

/* Aggregates of which another session holds a row: nothing of them is claimed until it is looked at again. */
static void hold_back_locked(struct coordinator *c, int index, int64_t now_us) {
  static struct log_limit limit = {.interval_us = 60 * INT64_C(1000000)};
  const struct held *held = NULL;
  int held_n = claimer_held(c->seats[index].claimer, &held);
  struct batch *batch = c->seats[index].batch;
  struct err err = ERR_INIT;
  int64_t not_said = 0;
  for (int h = 0; h < held_n; h++) {
    int64_t due_us = now_us + backoff_nth_us(LOCKED_RETRY_MS, LOCKED_RETRY_MS, 1);
    if (held_back_add(c->held_back, held[h].key, HELD_LOCKED, due_us, held[h].id, &err) != 0) {
      log_event(LOG_ERROR, "out_of_memory", err.text, LOG_STR("code", err.code));
    }
    for (int i = 0; batch != NULL && i < batch->n; i++) {
      struct msg *msg = &batch->msgs[i];
      if (msg->key == held[h].key && msg->id > held[h].id && msg->outcome == OUTCOME_NONE) {
        batch_set_outcome(msg, OUTCOME_WITHHELD, NULL);
      }
    }
  }
  if (held_n > 0 && log_limit_pass(&limit, &not_said)) {
    log_event(LOG_WARNING, "rows_locked",
              "another session holds pending rows locked; they and the later ones of their aggregates wait",
              LOG_INT("rows", held_n), LOG_INT("first_id", held[0].id), LOG_INT("held_back", not_said));
  }
}

static bool has_runs_of(const struct coordinator *c, const struct batch *batch, int publisher) {
  for (int r = 0; r < batch->runs_n; r++) {
    if (batch->runs[r].lane % c->cfg->publishers_n == publisher) {
      return true;
    }
  }
  return false;
}

/* Hands a batch's runs to their publishers. */
static void dispatch(struct coordinator *c, struct batch *batch) {
  if (!c->is_epoch_told) {
    for (int p = 0; p < c->cfg->publishers_n; p++) {
      coordinator_push_job(c, p, (struct job){.kind = JOB_EPOCH, .epoch = c->epoch});
    }
    c->is_epoch_told = true;
  }
  for (int p = 0; p < c->cfg->publishers_n; p++) {
    if (has_runs_of(c, batch, p)) {
      batch->parts_open_n++; /* answers are notes, read by this thread: none is counted before all are */
      coordinator_push_job(c, p, (struct job){.kind = JOB_PUBLISH, .epoch = c->epoch, .batch = batch});
    }
  }
}

/* How much compressed payloads grow when they are printed: twice the most seen in this batch, coming down slowly. */
static void learn_sizes(struct coordinator *c, const struct batch *batch) {
  if (batch->growth > 0) {
    int wanted = 2 * batch->growth > PRINTED_LEAST ? 2 * batch->growth : PRINTED_LEAST;
    int slower = c->printed_per_stored - c->printed_per_stored / 8;
    c->printed_per_stored = c->printed_per_stored > wanted && slower > wanted ? slower : wanted;
  }
}

/* A message that was dead and was given new attempts while this epoch was under way: an earlier one of its aggregate may have been revived with it,
 * where the claims have been already.  Both wait for the next sweep, which sees them in their order. */
static void hold_back_revived(struct coordinator *c, const struct batch *batch, int64_t now_us) {
  struct err err = ERR_INIT;
  for (int i = 0; i < batch->n; i++) {
    const struct msg *msg = &batch->msgs[i];
    if (!msg->is_revived || horizon_has_ended(c->horizon, (uint32_t)batch_int64(batch, msg, COL_REVIVED))) {
      continue;
    }
    if (held_back_add(c->held_back, msg->key, HELD_FAILED, now_us, msg->id, &err) != 0) {
      log_event(LOG_ERROR, "out_of_memory", err.text, LOG_STR("code", err.code));
    }
  }
}

/* The messages of aggregates that are held back stay pending; the next sweep that comes after their release finds them. */
static void withhold_held_back(const struct coordinator *c, struct batch *batch) {
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].outcome == OUTCOME_NONE && held_back_saw(c->held_back, batch->msgs[i].key, batch->msgs[i].id)) {
      batch_set_outcome(&batch->msgs[i], OUTCOME_WITHHELD, NULL);
    }
    batch->handed_n += batch->msgs[i].outcome == OUTCOME_NONE;
  }
}

static void withhold_all(struct batch *batch) {
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].outcome == OUTCOME_NONE) {
      batch_set_outcome(&batch->msgs[i], OUTCOME_WITHHELD, NULL);
    }
  }
}

/* Hands on what waits, in the order of the claims, up to the first batch that is being marked.  Behind one that cannot be handed on nothing
 * is in this epoch: it might overtake. */
static void dispatch_waiting(struct coordinator *c) {
  for (;;) {
    struct seat *first = NULL;
    for (int i = 0; i < SEATS(c); i++) {
      struct seat *seat = &c->seats[i];
      if (seat->batch != NULL && seat->batch->is_waiting && (first == NULL || seat->batch->seq < first->batch->seq)) {
        first = seat;
      }
    }
    if (first == NULL || claimer_state(first->claimer) == CLAIMER_MARKING) {
      return;
    }
    first->batch->is_waiting = false;
    if (c->is_cut) {
      withhold_all(first->batch);
    } else {
      dispatch(c, first->batch);
    }
  }
}

/* The batch stays pending, and what was claimed behind it. */
static void cut(struct coordinator *c, struct batch *batch) {
  withhold_all(batch);
  batch->is_waiting = false;
  c->is_cut = true;
  coordinator_want_drain(c);
  dispatch_waiting(c);
}

/* Its rows are locked, or are marked now. */
static void hand_on(struct coordinator *c, int index, int64_t now_us) {
  struct seat *seat = &c->seats[index];
  struct err err = ERR_INIT;
  seat->batch->is_waiting = true;
  seat->sent_us = now_us;
  seat->mark_us = 0;
  if (seat->batch->needs_mark && !c->is_cut && claimer_mark(seat->claimer, seat->batch, now_us, &err) != 0) {
    batches_on_claimer(c, index, CLAIMER_EV_LOST, now_us);
    coordinator_postgres_failed(c, "claimer", &err, true, now_us);
    return;
  }
  dispatch_waiting(c);
}

static void note_horizon(struct coordinator *c, const struct batch *batch, int64_t now_us) {
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

static void on_claimed(struct coordinator *c, int index, int64_t now_us) {
  struct seat *seat = &c->seats[index];
  struct batch *batch = claimer_take_batch(seat->claimer);
  seat->batch = batch;
  seat->is_lost = false;
  batch->epoch = c->epoch;
  batch->seq = ++c->seq;
  for (int i = 0; i < batch->n; i++) {
    assert(c->lanes[batch->msgs[i].lane].state == OWNED_ACTIVE || c->lanes[batch->msgs[i].lane].state == OWNED_LOST);
  }
  c->is_caught_up = batch->looked_n < c->cfg->batch_n && batch->fit_n == batch->looked_n;
  note_horizon(c, batch, now_us);
  plan_poll(c, now_us);
  hold_back_locked(c, index, now_us);
  hold_back_revived(c, batch, now_us);
  learn_sizes(c, batch);
  pthread_mutex_lock(&c->stats_mutex);
  c->stats.claimed_n += batch->n;
  c->stats.batches_n++;
  histogram_record(&c->claim_time, now_us - seat->sent_us);
  pthread_mutex_unlock(&c->stats_mutex);
  withhold_held_back(c, batch);
  batch->is_untouched = batch->handed_n == 0;
  if (!batch->is_untouched) {
    hand_on(c, index, now_us);
  }
}

/* Nothing came back: everything is done, or all of it is held by others and the next claim goes on behind. */
static void on_empty(struct coordinator *c, int index, int64_t now_us) {
  const struct held *held = NULL;
  int held_n = claimer_held(c->seats[index].claimer, &held);
  hold_back_locked(c, index, now_us);
  if (held_n >= c->cfg->batch_n) {
    c->is_caught_up = false; /* now that they are held back, the next claim sees what lies behind them */
    return;
  }
  c->is_caught_up = true;
  plan_poll(c, now_us);
}

/* -------------------------------------------------------------------------------------------------- outcomes */

static void on_failed(struct coordinator *c, const struct batch *batch, const struct msg *msg, int64_t now_us) {
  static struct log_limit failed_limit = {.interval_us = 1000000};
  struct err err = ERR_INIT;
  int64_t not_said = 0;
  int attempts_n = batch_int32(batch, msg, COL_ATTEMPTS) + 1;
  bool is_dead = attempts_n >= c->cfg->max_attempts_n;
  int rc = 0;
  if (!is_dead) {
    rc = held_back_add(c->held_back, msg->key, HELD_FAILED,
                       now_us + backoff_nth_us(RETRY_FIRST_MS, RETRY_MAX_MS, attempts_n), msg->id, &err);
  } else if (c->cfg->on_dead == CFG_ON_DEAD_BLOCK) {
    rc = held_back_add(c->held_back, msg->key, HELD_DEAD, INT64_MAX, msg->id, &err);
    c->dead_check_us = c->dead_check_us < now_us + DEAD_EVERY_US ? c->dead_check_us : now_us + DEAD_EVERY_US;
  } else {
    /* The later ones of the aggregate may flow, as soon as the mark of the dead one is committed. */
    rc = held_back_add(c->held_back, msg->key, HELD_FAILED, now_us, msg->id, &err);
  }
  if (rc != 0) {
    log_event(LOG_ERROR, "out_of_memory", err.text, LOG_STR("code", err.code));
  }
  if (!is_dead && !log_limit_pass(&failed_limit, &not_said)) {
    return;
  }
  size_t bytes = 0;
  /* PQgetvalue ends every value with a NUL. */
  log_event(is_dead ? LOG_ERROR : LOG_WARNING, is_dead ? "message_dead" : "message_failed",
            is_dead ? "a message was refused for the last time; it is kept, with the reason in last_error"
                    : "a message was refused; it will be tried again",
            LOG_INT("id", msg->id), LOG_STR("message_id", batch_text(batch, msg, COL_MESSAGE_ID, &bytes)),
            LOG_STR("aggregate_type", batch_text(batch, msg, COL_AGGREGATE_TYPE, &bytes)),
            LOG_STR("aggregate_id", batch_text(batch, msg, COL_AGGREGATE_ID, &bytes)),
            LOG_STR("event_type", batch_text(batch, msg, COL_EVENT_TYPE, &bytes)), LOG_INT("lane", msg->lane),
            LOG_INT("attempts", attempts_n), LOG_STR("error", msg->error), LOG_INT("held_back", not_said));
  if (is_dead) {
    pthread_mutex_lock(&c->stats_mutex);
    c->stats.dead_n++;
    pthread_mutex_unlock(&c->stats_mutex);
  }
}

static void tell_settled(struct coordinator *c, struct batch *batch) {
  for (int r = 0; r < batch->runs_n; r++) {
    if (batch->runs[r].msgs[0].outcome == OUTCOME_PUBLISHED) {
      backoff_reset(&c->lanes[batch->runs[r].lane].backoff);
    }
  }
  for (int p = 0; p < c->cfg->publishers_n; p++) {
    if (has_runs_of(c, batch, p)) {
      batch_ref(batch);
      coordinator_push_job(c, p, (struct job){.kind = JOB_SETTLED, .epoch = c->epoch, .batch = batch});
    }
  }
}

/* The batch's rows are pending again, or may be: what its lanes' journals say has to be compared with the table afresh. */
static void end_unsettled(struct coordinator *c, struct seat *seat) {
  struct batch *batch = seat->batch;
  count_batch(c, batch, false);
  c->is_wary = true;
  for (int r = 0; r < batch->runs_n; r++) {
    bool is_clean = true;
    for (int i = 0; i < batch->runs[r].n; i++) {
      is_clean = is_clean && batch->runs[r].msgs[i].outcome == OUTCOME_WITHHELD;
    }
    if (!is_clean && c->lanes[batch->runs[r].lane].state == OWNED_ACTIVE) {
      lanes_lose(c, batch->runs[r].lane, "its batch was not settled", false, 0);
    }
  }
  seat->is_lost = false;
  batch_unref(&seat->batch);
  coordinator_want_drain(c);
}

/* Outcomes are in: settle, or give back. */
static void on_answered(struct coordinator *c, int index, int64_t now_us) {
  struct seat *seat = &c->seats[index];
  struct batch *batch = seat->batch;
  struct err err = ERR_INIT;
  if (seat->is_lost) {
    end_unsettled(c, seat);
    return;
  }
  if (claimer_state(seat->claimer) != CLAIMER_OPEN) {
    return; /* a touch is under way */
  }
  bool has_outcome = false;
  for (int i = 0; i < batch->n; i++) {
    struct msg *msg = &batch->msgs[i];
    assert(msg->outcome != OUTCOME_NONE);
    has_outcome = has_outcome || msg->outcome != OUTCOME_WITHHELD;
    if (msg->outcome == OUTCOME_FAILED && !batch->is_given_back) {
      on_failed(c, batch, msg, now_us);
    }
  }
  seat->sent_us = now_us;
  int rc = has_outcome && !batch->is_given_back ? claimer_settle(seat->claimer, batch, now_us, &err)
                                                : claimer_give_back(seat->claimer, now_us, &err);
  if (rc != 0) {
    batches_on_claimer(c, index, CLAIMER_EV_LOST, now_us);
    coordinator_postgres_failed(c, "claimer", &err, true, now_us);
  }
}

void batches_act(struct coordinator *c, int64_t now_us) {
  for (int i = 0; i < SEATS(c); i++) {
    struct seat *seat = &c->seats[i];
    bool is_settling =
        claimer_state(seat->claimer) == CLAIMER_SETTLING || claimer_state(seat->claimer) == CLAIMER_GIVING_BACK;
    bool is_answered = seat->batch != NULL && !seat->batch->is_waiting && seat->batch->parts_open_n == 0;
    if (is_answered && !is_settling) {
      on_answered(c, i, now_us);
    }
  }
  if (c->phase == PHASE_RUN) {
    bool is_allowed = now_us >= batches_sweep_allowed_us(c);
    bool is_due = held_back_next_due_us(c->held_back) <= now_us;
    /* Who is woken again and again never comes to a poll. */
    bool is_sweep_due = (!c->is_caught_up || lease_is_listening(c->lease)) && now_us >= c->sweep_due_us;
    if (now_us >= c->dead_check_us) {
      c->dead_check_us = INT64_MAX;
      c->is_dead_known = false;
      coordinator_want_drain(c);
    }
    if (is_allowed && (is_due || is_sweep_due)) {
      coordinator_want_drain(c);
    }
  }
}

void batches_on_done(struct note *note) {
  struct batch *batch = note->batch;
  assert(batch->parts_open_n > 0);
  batch->parts_open_n--;
  batch->is_given_back = batch->is_given_back || note->is_give_back;
}

void batches_on_claimer(struct coordinator *c, int index, enum claimer_event event, int64_t now_us) {
  struct seat *seat = &c->seats[index];
  if (c->claiming == index && event != CLAIMER_EV_NONE) {
    c->claiming = -1;
    if (claimer_take_was_redone(seat->claimer)) {
      be_careful(c, now_us);
    }
    count_sweep(c, seat, event != CLAIMER_EV_LOST, now_us);
  }
  switch (event) {
  case CLAIMER_EV_NONE:
    return;
  case CLAIMER_EV_READY:
    backoff_reset(&seat->backoff);
    return;
  case CLAIMER_EV_FOUND:
    c->is_probed = true; /* the claim follows at once */
    return;
  case CLAIMER_EV_NOTHING:
    plan_poll(c, now_us);
    if (c->cfg->is_until_empty && held_back_n(c->held_back, HELD_LOCKED) == 0 &&
        held_back_n(c->held_back, HELD_FAILED) == 0 && batches_are_none_open(c)) {
      c->is_left_asked = true;
    }
    return;
  case CLAIMER_EV_CLAIMED:
    c->is_probed = false;
    on_claimed(c, index, now_us);
    return;
  case CLAIMER_EV_MARKED:
    seat->mark_us = now_us - seat->sent_us;
    dispatch_waiting(c);
    return;
  case CLAIMER_EV_REFUSED:
    be_careful(c, now_us);
    cut(c, seat->batch);
    return;
  case CLAIMER_EV_EMPTY:
    c->is_probed = false;
    on_empty(c, index, now_us);
    return;
  case CLAIMER_EV_SETTLED: {
    count_batch(c, seat->batch, true);
    pthread_mutex_lock(&c->stats_mutex);
    histogram_record(&c->settle_time, seat->mark_us + now_us - seat->sent_us);
    pthread_mutex_unlock(&c->stats_mutex);
    c->is_wary = !batch_is_all_published(seat->batch);
    tell_settled(c, seat->batch);
    note_left(c, seat->batch);
    batch_unref(&seat->batch);
    return;
  }
  case CLAIMER_EV_GIVEN_BACK:
    if (seat->batch->is_untouched) {
      count_batch(c, seat->batch, true);
      note_left(c, seat->batch);
      batch_unref(&seat->batch);
    } else {
      end_unsettled(c, seat);
    }
    return;
  case CLAIMER_EV_LOST:
    c->is_probed = false;
    seat->is_lost = true;
    seat->retry_us = now_us + backoff_next_us(&seat->backoff);
    if (seat->batch != NULL && seat->batch->is_waiting) {
      cut(c, seat->batch);
    } else if (seat->batch != NULL) {
      coordinator_want_drain(c);
    }
    return;
  }
}

void batches_drop_all(struct coordinator *c) {
  for (int i = 0; i < SEATS(c); i++) {
    if (c->seats[i].batch != NULL) {
      count_batch(c, c->seats[i].batch, false);
      batch_unref(&c->seats[i].batch);
    }
  }
}
