/*
 * The coordinator's batches: dispatch, outcomes, settle.
 *
 * Owns: the open batches (one a seat at most), what is held back.  Run by: the coordinator's thread.
 * Never: counts a message as published before the COMMIT of its mark is confirmed; lets anything of an aggregate be claimed behind a
 * message of it that was refused or is held by another session.
 */
#include <assert.h>

#include "coordinator.h"
#include "outboxd/log.h"

#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 60000
#define LOCKED_RETRY_MS 500 /* a row held by another session is looked at again after about so long */

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

/* -------------------------------------------------------------------------------------------------- claimed */

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
  claims_note_horizon(c, batch, now_us);
  claims_plan_poll(c, now_us);
  hold_back_locked(c, index, now_us);
  hold_back_revived(c, batch, now_us);
  claims_learn_sizes(c, batch);
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
  claims_plan_poll(c, now_us);
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
    bool is_allowed = now_us >= claims_sweep_allowed_us(c);
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
      claims_be_careful(c, now_us);
    }
    claims_count_sweep(c, seat, event != CLAIMER_EV_LOST, now_us);
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
    claims_plan_poll(c, now_us);
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
    claims_be_careful(c, now_us);
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
    claims_note_left(c, seat->batch);
    batch_unref(&seat->batch);
    return;
  }
  case CLAIMER_EV_GIVEN_BACK:
    if (seat->batch->is_untouched) {
      count_batch(c, seat->batch, true);
      claims_note_left(c, seat->batch);
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
