/*
 * The coordinator's lanes: which are ours, which may be claimed.
 *
 * Owns: the state of each lane.  Run by: the coordinator's thread.
 * Never: lets a lane be claimed whose journal was not read and compared with the table since it was last lost; hands a lane on while a batch
 * is open.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/pgarray.h"

#define TAKE_RETRY_FIRST_MS 100
#define TAKE_RETRY_MAX_MS 5000
#define TAKE_PATIENCE_US 1000000 /* lanes that are ready wait so long for others, so as to begin together */

int lanes_new(struct coordinator *c, struct err *err) {
  size_t n = (size_t)c->cfg->lanes_n;
  c->lanes = calloc(n, sizeof *c->lanes);
  c->lanes_joined = calloc(n, sizeof *c->lanes_joined);
  c->lanes_leaving = calloc(n, sizeof *c->lanes_leaving);
  c->checking = -1;
  if (c->lanes == NULL || c->lanes_joined == NULL || c->lanes_leaving == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %zu lanes", n);
  }
  for (size_t i = 0; i < n; i++) {
    c->lanes[i].backoff = (struct backoff){.first_ms = TAKE_RETRY_FIRST_MS, .max_ms = TAKE_RETRY_MAX_MS};
  }
  return 0;
}

void lanes_free(struct coordinator *c) {
  journal_names_free(c->checking_names);
  for (int i = 0; c->lanes != NULL && i < c->cfg->lanes_n; i++) {
    journal_names_free(c->lanes[i].names);
  }
  free(c->lanes);
  free(c->lanes_joined);
  free(c->lanes_leaving);
  buf_free(&c->active_param);
}

static bool is_move_legal(enum owned_state from, enum owned_state to) {
  switch (to) {
  case OWNED_NOT:
  case OWNED_UNREAD:
    return true;
  case OWNED_JOINING:
    return from == OWNED_NOT;
  case OWNED_READING:
    return from == OWNED_UNREAD;
  case OWNED_CHECKING:
    return from == OWNED_READING;
  case OWNED_READY:
    return from == OWNED_CHECKING;
  case OWNED_ACTIVE:
    return from == OWNED_READY;
  case OWNED_LOST:
    return from == OWNED_ACTIVE;
  }
  return false;
}

static void set_state(struct coordinator *c, int lane, enum owned_state state) {
  struct owned_lane *l = &c->lanes[lane];
  assert(is_move_legal(l->state, state));
  if (c->checking == lane) {
    c->checking = -1; /* the answer, when it comes, is for nobody: lanes_on_pending */
  }
  journal_names_free(l->names);
  l->names = NULL;
  l->state = state;
}

static int publisher_of(const struct coordinator *c, int lane) {
  return lane % c->cfg->publishers_n;
}

/* -------------------------------------------------------------------------------------------------- losing */

void lanes_lose(struct coordinator *c, int lane, const char *why, bool is_fenced, int64_t retry_us) {
  static struct log_limit limit = {.interval_us = 1000000};
  struct owned_lane *l = &c->lanes[lane];
  int64_t not_said = 0;
  if (is_fenced && log_limit_pass(&limit, &not_said)) {
    log_event(LOG_WARNING, "lane_fenced", why, LOG_INT("lane", lane), LOG_INT("held_back", not_said));
  }
  switch (l->state) {
  case OWNED_ACTIVE:
    l->retry_us = retry_us;
    set_state(c, lane, OWNED_LOST);
    coordinator_want_drain(c);
    break;
  case OWNED_READING:
  case OWNED_CHECKING:
  case OWNED_READY:
    l->retry_us = retry_us;
    set_state(c, lane, OWNED_UNREAD);
    break;
  case OWNED_NOT:
  case OWNED_JOINING:
  case OWNED_UNREAD:
  case OWNED_LOST:
    break;
  }
}

void lanes_on_lease_lost(struct coordinator *c) {
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_ACTIVE) {
      set_state(c, i, OWNED_LOST);
    } else if (c->lanes[i].state != OWNED_LOST && c->lanes[i].state != OWNED_NOT) {
      set_state(c, i, OWNED_NOT);
    }
  }
  memset(c->lanes_leaving, 0, (size_t)c->cfg->lanes_n * sizeof *c->lanes_leaving);
  c->is_leaving = false;
  journal_names_free(c->checking_names);
  c->checking_names = NULL;
  c->is_lease_lost = true;
  coordinator_want_drain(c);
}

/* -------------------------------------------------------------------------------------------------- the fleet */

static int share_of(int lanes_n, int members_n, int rank) {
  return members_n > 0 ? lanes_n / members_n + (rank < lanes_n % members_n) : lanes_n;
}

/* Compares what we hold with our fair share: hands the surplus on at the next drain, tries what is free at once. */
void lanes_on_fleet(struct coordinator *c, int64_t now_us) {
  if (c->phase != PHASE_RUN && c->phase != PHASE_DRAIN) {
    return; /* the plan for the next epoch is being carried out */
  }
  const struct fleet *fleet = lease_fleet(c->lease);
  int share_n = share_of(c->cfg->lanes_n, fleet->members_n, fleet->rank);
  int owned_n = 0;
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    owned_n += lease_owns(c->lease, i);
  }
  c->has_no_share = share_n == 0;
  if (owned_n > share_n && !c->is_leaving) {
    for (int i = c->cfg->lanes_n - 1; i >= 0 && owned_n > share_n; i--) {
      if (lease_owns(c->lease, i)) {
        c->lanes_leaving[i] = true;
        c->is_leaving = true;
        owned_n--;
      }
    }
    coordinator_want_drain(c);
    return;
  }
  if (owned_n >= share_n || c->is_ending || c->is_lease_lost) {
    return;
  }
  bool *wanted = calloc((size_t)c->cfg->lanes_n + 1, sizeof *wanted);
  if (wanted == NULL) {
    return; /* the next tick tries again */
  }
  /* Start anywhere: processes that start together should not all try the same ones. */
  int start = (int)backoff_random((uint64_t)c->cfg->lanes_n);
  int wanted_n = 0;
  for (int i = 0; i < c->cfg->lanes_n && owned_n + wanted_n < share_n; i++) {
    int lane = (start + i) % c->cfg->lanes_n;
    if (!fleet->is_owned[lane] && c->lanes[lane].state == OWNED_NOT) {
      wanted[lane] = true;
      wanted_n++;
    }
  }
  struct err err = ERR_INIT;
  if (wanted_n > 0 && lease_take(c->lease, wanted, now_us, &err) != 0) {
    lanes_on_lease_lost(c);
    coordinator_postgres_failed(c, "lease", &err, true, now_us);
  }
  free(wanted);
}

void lanes_on_taken(struct coordinator *c) {
  bool is_any_new = false;
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (lease_owns(c->lease, i) && c->lanes[i].state == OWNED_NOT) {
      set_state(c, i, OWNED_JOINING);
      is_any_new = true;
    }
  }
  if (is_any_new) {
    coordinator_want_drain(c);
  }
}

/* -------------------------------------------------------------------------------------------------- between epochs */

void lanes_plan(struct coordinator *c) {
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_LOST) {
      set_state(c, i, c->is_lease_lost ? OWNED_NOT : OWNED_UNREAD);
    }
    if (c->lanes[i].state == OWNED_NOT && c->lanes_joined[i]) {
      coordinator_push_job(c, publisher_of(c, i), (struct job){.kind = JOB_DROP, .lane = i});
    }
    c->lanes_joined[i] = c->lanes[i].state != OWNED_NOT && !c->lanes_leaving[i];
  }
  c->is_lease_lost = false;
}

void lanes_on_joined(struct coordinator *c) {
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_JOINING && c->lanes_joined[i]) {
      c->lanes[i].retry_us = 0;
      set_state(c, i, OWNED_UNREAD);
    }
  }
}

void lanes_on_released(struct coordinator *c) {
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes_leaving[i]) {
      c->lanes_leaving[i] = false;
      if (c->lanes[i].state != OWNED_NOT) {
        set_state(c, i, OWNED_NOT);
        coordinator_push_job(c, publisher_of(c, i), (struct job){.kind = JOB_DROP, .lane = i});
      }
    }
  }
  c->is_leaving = false;
}

static bool is_any(const struct coordinator *c, enum owned_state a, enum owned_state b) {
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == a || c->lanes[i].state == b) {
      return true;
    }
  }
  return false;
}

static bool is_taking_over(const struct coordinator *c) {
  return is_any(c, OWNED_READING, OWNED_CHECKING);
}

bool lanes_want_epoch(const struct coordinator *c, int64_t now_us) {
  return is_any(c, OWNED_READY, OWNED_READY) && (!is_taking_over(c) || now_us - c->taking_since_us > TAKE_PATIENCE_US);
}

static void log_lanes(const struct coordinator *c) {
  int64_t *active = calloc((size_t)c->cfg->lanes_n + 1, sizeof *active);
  int n = 0;
  for (int i = 0; active != NULL && i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_ACTIVE) {
      active[n++] = i;
    }
  }
  log_event(LOG_INFO, "lanes_changed", "this process relays these lanes", LOG_INT("lanes_n", n),
            LOG_INT("lanes_total", c->cfg->lanes_n), LOG_INTS("lanes", active, n));
  free(active);
}

int lanes_start_epoch(struct coordinator *c, int64_t now_us, struct err *err) {
  int active_n = 0;
  bool is_changed = false;
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_READY) {
      set_state(c, i, OWNED_ACTIVE);
      is_changed = true;
    }
    active_n += c->lanes[i].state == OWNED_ACTIVE;
  }
  is_changed = is_changed || active_n != c->active_n;
  c->active_n = active_n;
  buf_reset(&c->active_param);
  if (pgarray_begin(&c->active_param, PGARRAY_INT4, active_n, err) != 0) {
    return -1;
  }
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_ACTIVE && pgarray_int4(&c->active_param, i, err) != 0) {
      return -1;
    }
  }
  if (is_changed) {
    log_lanes(c);
    pthread_mutex_lock(&c->stats_mutex);
    c->stats.lanes_active_n = active_n;
    pthread_mutex_unlock(&c->stats_mutex);
    c->is_caught_up = false;
  }
  c->epoch++;
  c->is_epoch_told = false;
  c->is_cut = false;
  buf_reset(&c->left);
  c->known_id = horizon_cursor(c->horizon) > c->known_id ? horizon_cursor(c->horizon) : c->known_id;
  horizon_reset(c->horizon);
  c->is_probed = false;
  c->next_poll_us = c->next_poll_us < now_us ? c->next_poll_us : now_us;
  (void)held_back_release_due(c->held_back, now_us);
  return 0;
}

/* -------------------------------------------------------------------------------------------------- taking over */

static void open_lane(struct coordinator *c, int lane, struct journal_names **ref) {
  struct journal_names *names = *ref;
  *ref = NULL;
  coordinator_push_job(c, publisher_of(c, lane), (struct job){.kind = JOB_OPEN, .lane = lane, .names = names});
  set_state(c, lane, OWNED_READY);
}

void lanes_on_note(struct coordinator *c, struct note *note, int64_t now_us) {
  struct owned_lane *l = &c->lanes[note->lane];
  switch (note->kind) {
  case NOTE_JOURNAL:
    if (l->state == OWNED_READING) {
      set_state(c, note->lane, OWNED_CHECKING);
      l->names = note->names;
      note->names = NULL;
    }
    journal_names_free(note->names);
    break;
  case NOTE_TAKE_FAILED:
    if (l->state == OWNED_READING) {
      set_state(c, note->lane, OWNED_UNREAD);
      l->retry_us = now_us + backoff_next_us(&l->backoff);
    }
    break;
  case NOTE_LANE_LOST:
    /* Taking the lane over may succeed and the next write fail again: only a published message ends the backoff. */
    lanes_lose(c, note->lane, note->err.text, note->is_fenced, now_us + backoff_next_us(&l->backoff));
    break;
  case NOTE_DONE:
  case NOTE_FATAL:
    break;
  }
}

void lanes_on_pending(struct coordinator *c) {
  if (c->checking >= 0) {
    int lane = c->checking;
    c->checking = -1;
    open_lane(c, lane, &c->checking_names);
  }
  journal_names_free(c->checking_names);
  c->checking_names = NULL;
}

void lanes_act(struct coordinator *c, int64_t now_us) {
  struct err err = ERR_INIT;
  if (!is_taking_over(c)) {
    c->taking_since_us = now_us;
  }
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    struct owned_lane *l = &c->lanes[i];
    if (l->state == OWNED_UNREAD && l->retry_us <= now_us && !c->is_ending) {
      coordinator_push_job(c, publisher_of(c, i), (struct job){.kind = JOB_DROP, .lane = i});
      coordinator_push_job(c, publisher_of(c, i), (struct job){.kind = JOB_TAKE, .lane = i});
      set_state(c, i, OWNED_READING);
    }
    if (l->state != OWNED_CHECKING || l->names == NULL) {
      continue;
    }
    if (l->names->n == 0) {
      open_lane(c, i, &l->names);
    } else if (lease_state(c->lease) == LEASE_READY && c->checking_names == NULL) {
      c->checking = i;
      c->checking_names = l->names;
      l->names = NULL;
      if (lease_ask_pending(c->lease, c->checking_names, now_us, &err) != 0) {
        lanes_on_lease_lost(c);
        coordinator_postgres_failed(c, "lease", &err, true, now_us);
        return;
      }
    }
  }
}

int64_t lanes_next_us(const struct coordinator *c) {
  int64_t next_us = INT64_MAX;
  for (int i = 0; i < c->cfg->lanes_n; i++) {
    if (c->lanes[i].state == OWNED_UNREAD && c->lanes[i].retry_us < next_us) {
      next_us = c->lanes[i].retry_us;
    }
  }
  return next_us;
}
