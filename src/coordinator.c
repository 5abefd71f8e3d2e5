/*
 * The coordinator: the loop, the phases between two epochs, the timers.
 *
 * Owns: the lease, the claimers, and what it knows of lanes and batches.  One thread of its own; started and joined by the relay.
 * Never: blocks on anything but its poll(2); talks to Redis; decides anything from an error's text.
 */
#include "coordinator.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/log.h"

#define FLEET_EVERY_US 1000000
#define FLEET_SOON_US 250000 /* while we have less than we should */
#define LEFT_EVERY_US 1000000
#define TRIGGER_EVERY_US (10 * INT64_C(1000000))
#define RECONNECT_FIRST_MS 100
#define RECONNECT_MAX_MS 5000
/* For so long all claims are careful ones after one that did not do: PostgreSQL logs an error for each try that met a lock. */
#define CAREFUL_FIRST_MS 250
#define CAREFUL_MAX_MS 60000
#define TURN_EVERY_US 250000 /* at least: whoever watches over this thread sees that it goes round */
#define DEAD_SHARE 20        /* looking for dead messages takes at most one part in so many of the time */

void coordinator_want_drain(struct coordinator *c) {
  c->is_drain_wanted = true;
}

void coordinator_push_job(struct coordinator *c, int publisher, struct job job) {
  struct job *copy = malloc(sizeof *copy);
  if (copy == NULL) {
    /* Without the job a batch would never be answered: there is nothing to go on with. */
    log_event(LOG_CRITICAL, "out_of_memory", "no memory to tell a publisher what to do",
              LOG_INT("publisher", publisher));
    abort();
  }
  *copy = job;
  publisher_push(c->publishers[publisher], &copy);
}

void coordinator_postgres_failed(struct coordinator *c, const char *session, const struct err *err, bool was_open,
                                 int64_t now_us) {
  static struct log_limit limit = {.interval_us = 1000000};
  static struct log_limit refused_limit = {.interval_us = 30 * INT64_C(1000000)};
  int64_t not_said = 0;
  if (was_open) {
    if (log_limit_pass(&limit, &not_said)) {
      log_event(LOG_WARNING, "session_lost", err->text, LOG_STR("session", session), LOG_STR("code", err->code),
                LOG_INT("held_back", not_said));
    }
    return;
  }
  if (c->postgres_down_us == 0) {
    c->postgres_down_us = now_us;
    log_event(LOG_ERROR, "postgres_down", err->text, LOG_STR("session", session), LOG_STR("code", err->code));
  } else if (err->class != ERR_RETRY && log_limit_pass(&refused_limit, &not_said)) {
    log_event(LOG_ERROR, "postgres_refuses", err->text, LOG_STR("session", session), LOG_STR("code", err->code),
              LOG_INT("held_back", not_said));
  }
}

static void postgres_answers(struct coordinator *c, int64_t now_us) {
  if (c->postgres_down_us != 0) {
    log_event(LOG_INFO, "postgres_up", "PostgreSQL answers again",
              LOG_REAL("down_seconds", (double)(now_us - c->postgres_down_us) / 1e6));
    c->postgres_down_us = 0;
  }
}

/* -------------------------------------------------------------------------------------------------- phases */

static bool is_every_claimer_synced(const struct coordinator *c) {
  for (int i = 0; i < SEATS(c); i++) {
    const struct claimer *claimer = c->seats[i].claimer;
    switch (claimer_state(claimer)) {
    case CLAIMER_CLOSED:
    case CLAIMER_CONNECTING:
    case CLAIMER_SETTING_UP:
      break; /* holds nothing, and is synced before it is used */
    case CLAIMER_READY:
    case CLAIMER_SYNCING:
    case CLAIMER_TOUCHING:
    case CLAIMER_PROBING:
    case CLAIMER_CLAIMING:
    case CLAIMER_LOOKING:
    case CLAIMER_OPEN:
    case CLAIMER_MARKING:
    case CLAIMER_SETTLING:
    case CLAIMER_GIVING_BACK:
      if (!claimer_is_synced(claimer, c->lanes_joined)) {
        return false;
      }
      break;
    }
  }
  return true;
}

static void start_epoch(struct coordinator *c, int64_t now_us) {
  struct err err = ERR_INIT;
  if (lanes_start_epoch(c, now_us, &err) != 0) {
    log_event(LOG_ERROR, "out_of_memory", err.text, LOG_STR("code", err.code));
    return; /* the phase stays; the next turn of the loop tries again */
  }
  c->phase = PHASE_RUN; /* a drain wanted meanwhile follows at once */
  pthread_mutex_lock(&c->stats_mutex);
  c->stats.sweeps_n++;
  c->stats.held_back_n = held_back_n(c->held_back, HELD_LOCKED) + held_back_n(c->held_back, HELD_FAILED) +
                         held_back_n(c->held_back, HELD_DEAD);
  pthread_mutex_unlock(&c->stats_mutex);
}

/* Goes through the phases as far as nothing has to be waited for. */
static void advance(struct coordinator *c, int64_t now_us) {
  struct err err = ERR_INIT;
  switch (c->phase) {
  case PHASE_RUN:
    if (!c->is_drain_wanted && !lanes_want_epoch(c, now_us) && !c->is_ending) {
      return;
    }
    c->phase = PHASE_DRAIN;
    c->is_drain_wanted = false;
    claims_begin_sweep(c, now_us);
    /* fallthrough */
  case PHASE_DRAIN:
    if (!batches_are_none_open(c) || c->is_ending) {
      return;
    }
    lanes_plan(c);
    c->phase = PHASE_LEAVE;
    /* fallthrough */
  case PHASE_LEAVE:
    if (!is_every_claimer_synced(c)) {
      return;
    }
    lanes_on_joined(c);
    c->phase = PHASE_RELEASE;
    /* fallthrough */
  case PHASE_RELEASE:
    if (c->is_leaving && lease_state(c->lease) == LEASE_READY) {
      if (lease_release(c->lease, c->lanes_leaving, now_us, &err) != 0) {
        lanes_on_lease_lost(c);
        coordinator_postgres_failed(c, "lease", &err, true, now_us);
      }
    }
    if (c->is_leaving) {
      return;
    }
    c->phase = PHASE_DEAD;
    /* fallthrough */
  case PHASE_DEAD:
    if (c->cfg->on_dead == CFG_ON_DEAD_BLOCK && !c->is_dead_known) {
      if (lease_state(c->lease) == LEASE_READY) {
        c->dead_asked_us = now_us;
        if (lease_ask_dead(c->lease, now_us, &err) != 0) {
          lanes_on_lease_lost(c);
          coordinator_postgres_failed(c, "lease", &err, true, now_us);
        }
      }
      /* Without a lease there is nothing to claim: its loss started a drain that comes here again. */
      if (lease_state(c->lease) != LEASE_CLOSED) {
        return;
      }
    }
    start_epoch(c, now_us);
    return;
  }
}

/* -------------------------------------------------------------------------------------------------- sessions */

/* What can never work: the first such error is what the process ends with, once nothing is in flight. */
static void give_up(struct coordinator *c, const struct err *err) {
  if (c->fatal.class == ERR_NONE) {
    c->fatal = *err;
  }
  c->is_ending = true;
  c->exit_status = 1;
}

static void keep_dead(struct coordinator *c, int64_t now_us) {
  const struct dead_key *dead = NULL;
  struct err err = ERR_INIT;
  int n = lease_dead_keys(c->lease, &dead);
  int64_t *keys = calloc((size_t)n + 1, sizeof *keys);
  for (int i = 0; keys != NULL && i < n; i++) {
    keys[i] = dead[i].key;
  }
  if (keys == NULL || held_back_keep_dead(c->held_back, keys, n, &err) < 0) {
    log_event(LOG_ERROR, "out_of_memory", "no memory for the aggregates with dead messages", LOG_INT("aggregates", n));
  } else {
    int64_t wait_us = (now_us - c->dead_asked_us) * DEAD_SHARE;
    c->is_dead_known = true;
    c->dead_check_us = n == 0 ? INT64_MAX : now_us + (wait_us > DEAD_EVERY_US ? wait_us : DEAD_EVERY_US);
  }
  free(keys);
}

static void on_lease(struct coordinator *c, enum lease_event event, const struct err *err, bool was_open,
                     int64_t now_us) {
  switch (event) {
  case LEASE_EV_NONE:
    return;
  case LEASE_EV_READY:
    backoff_reset(&c->lease_backoff);
    postgres_answers(c, now_us);
    c->next_fleet_us = now_us;
    c->next_trigger_us = now_us;
    c->is_dead_known = false;
    return;
  case LEASE_EV_FLEET:
    lanes_on_fleet(c, now_us);
    return;
  case LEASE_EV_TAKEN:
    c->is_dead_known = false;
    lanes_on_taken(c);
    return;
  case LEASE_EV_RELEASED:
    lanes_on_released(c);
    return;
  case LEASE_EV_PENDING:
    lanes_on_pending(c);
    return;
  case LEASE_EV_DEAD:
    keep_dead(c, now_us);
    return;
  case LEASE_EV_LISTENING:
    log_event(LOG_INFO, "listening", "inserts into the table wake this relay (outboxd init --notify)",
              LOG_STR("table", c->table->name));
    c->is_woken = true; /* what was committed before */
    return;
  case LEASE_EV_LEFT:
    c->is_left_asked = false;
    c->is_ending = c->is_ending || !lease_is_anything_left(c->lease);
    return;
  case LEASE_EV_REPLACED:
    give_up(c, err);
    return;
  case LEASE_EV_LOST:
    c->lease_retry_us = now_us + backoff_next_us(&c->lease_backoff);
    lanes_on_lease_lost(c);
    coordinator_postgres_failed(c, "lease", err, was_open, now_us);
    return;
  }
}

/* Called on each turn, and whenever a server has been reached for: resolving a name may take long (libpq waits for it), and is no hanging. */
static void tell_health(struct coordinator *c) {
  pthread_mutex_lock(&c->stats_mutex);
  c->health.turns_n++;
  c->health.is_postgres_down = c->postgres_down_us != 0;
  c->health.is_standby = c->has_no_share;
  c->health.lanes_active_n = c->active_n;
  pthread_mutex_unlock(&c->stats_mutex);
}

/* What may be sent on the lease when nothing else is under way, most urgent first. */
static void use_lease(struct coordinator *c, int64_t now_us) {
  struct err err = ERR_INIT;
  int rc = 0;
  if (lease_state(c->lease) == LEASE_CLOSED) {
    if (now_us >= c->lease_retry_us && !c->is_ending && lease_open(c->lease, now_us, &err) != 0) {
      on_lease(c, LEASE_EV_LOST, &err, false, now_us);
    }
    tell_health(c);
    return;
  }
  if (lease_state(c->lease) != LEASE_READY) {
    return;
  }
  /* A process that gets no lane sees nothing; with --until-empty it has to ask whether there is anything left for the others. */
  bool has_no_view = c->cfg->is_until_empty && c->has_no_share && c->phase == PHASE_RUN && now_us >= c->next_left_us;
  if (c->is_left_asked || has_no_view) {
    c->next_left_us = now_us + LEFT_EVERY_US;
    const struct buf *held = NULL;
    c->is_left_asked = false;
    rc = held_back_param(c->held_back, INT64_MIN, &held, &err);
    rc = rc == 0 ? lease_ask_left(c->lease, held, now_us, &err) : 0;
  } else if (now_us >= c->next_fleet_us && !c->is_ending) {
    bool is_short = c->active_n < c->cfg->lanes_n;
    c->next_fleet_us = now_us + (is_short ? FLEET_SOON_US : FLEET_EVERY_US);
    rc = lease_ask_fleet(c->lease, now_us, &err);
  } else if (now_us >= c->next_trigger_us && !lease_is_listening(c->lease) && !c->is_ending) {
    c->next_trigger_us = now_us + TRIGGER_EVERY_US;
    rc = lease_ask_trigger(c->lease, now_us, &err);
  } else if (now_us >= lease_touch_due_us(c->lease)) {
    rc = lease_touch(c->lease, now_us, &err);
  }
  if (rc != 0) {
    on_lease(c, LEASE_EV_LOST, &err, true, now_us);
  }
}

static void use_claimers(struct coordinator *c, int64_t now_us) {
  for (int i = 0; i < SEATS(c); i++) {
    struct seat *seat = &c->seats[i];
    struct err err = ERR_INIT;
    int rc = 0;
    bool is_opening = false;
    switch (claimer_state(seat->claimer)) {
    case CLAIMER_CLOSED:
      is_opening = true;
      if (now_us >= seat->retry_us && !c->is_ending) {
        rc = claimer_open(seat->claimer, now_us, &err);
        tell_health(c);
      }
      break;
    case CLAIMER_READY:
      if (seat->batch == NULL && !claimer_is_synced(seat->claimer, c->lanes_joined)) {
        rc = claimer_sync(seat->claimer, c->lanes_joined, now_us, &err);
      } else if (now_us >= claimer_touch_due_us(seat->claimer)) {
        rc = claimer_touch(seat->claimer, now_us, &err);
      }
      break;
    case CLAIMER_OPEN:
      if (now_us >= claimer_touch_due_us(seat->claimer)) {
        rc = claimer_touch(seat->claimer, now_us, &err);
      }
      break;
    case CLAIMER_CONNECTING:
    case CLAIMER_SETTING_UP:
    case CLAIMER_SYNCING:
    case CLAIMER_PROBING:
    case CLAIMER_CLAIMING:
    case CLAIMER_LOOKING:
    case CLAIMER_MARKING:
    case CLAIMER_TOUCHING:
    case CLAIMER_SETTLING:
    case CLAIMER_GIVING_BACK:
      break;
    }
    if (rc != 0) {
      batches_on_claimer(c, i, CLAIMER_EV_LOST, now_us);
      coordinator_postgres_failed(c, "claimer", &err, !is_opening, now_us);
    }
  }
}

static void drive_sessions(struct coordinator *c, int64_t now_us) {
  struct err err = ERR_INIT;
  bool was_open = lease_state(c->lease) == LEASE_READY || lease_state(c->lease) == LEASE_ASKED;
  on_lease(c, lease_drive(c->lease, now_us, &err), &err, was_open, now_us);
  c->is_woken = lease_take_woken(c->lease) || c->is_woken;
  for (int i = 0; i < SEATS(c); i++) {
    struct claimer *claimer = c->seats[i].claimer;
    enum claimer_state before = claimer_state(claimer);
    was_open = before != CLAIMER_CONNECTING && before != CLAIMER_SETTING_UP;
    err_clear(&err);
    enum claimer_event event = claimer_drive(claimer, now_us, &err);
    if (event == CLAIMER_EV_READY && lease_state(c->lease) != LEASE_CLOSED) {
      postgres_answers(c, now_us);
    }
    batches_on_claimer(c, i, event, now_us);
    if (event == CLAIMER_EV_LOST) {
      if (was_open && err.class != ERR_RETRY) {
        /* The names of partitions may have changed under us: look them up again. */
        table_forget_leaves(c->table);
      }
      coordinator_postgres_failed(c, "claimer", &err, was_open, now_us);
      pthread_mutex_lock(&c->stats_mutex);
      c->stats.reconnects_n++;
      pthread_mutex_unlock(&c->stats_mutex);
    }
  }
}

static void take_notes(struct coordinator *c, int64_t now_us) {
  struct queue_item *item = NULL;
  if (queue_take(c->notes, 0, &item) != QUEUE_ITEMS) {
    return;
  }
  while (item != NULL) {
    struct note *note = (struct note *)item;
    item = item->next;
    switch (note->kind) {
    case NOTE_DONE:
      batches_on_done(note);
      break;
    case NOTE_JOURNAL:
    case NOTE_TAKE_FAILED:
    case NOTE_LANE_LOST:
      lanes_on_note(c, note, now_us);
      break;
    case NOTE_FATAL:
      give_up(c, &note->err);
      break;
    }
    free(note);
  }
}

/* -------------------------------------------------------------------------------------------------- the loop */

static int64_t earliest(int64_t a_us, int64_t b_us) {
  return a_us < b_us ? a_us : b_us;
}

static int64_t next_deadline_us(const struct coordinator *c) {
  int64_t at_us = earliest(pg_deadline_us(lease_pg(c->lease)), lease_touch_due_us(c->lease));
  if (lease_state(c->lease) == LEASE_CLOSED) {
    at_us = earliest(at_us, c->lease_retry_us);
  } else if (lease_state(c->lease) == LEASE_READY) {
    if (!c->is_ending) {
      at_us = earliest(at_us, c->next_fleet_us);
      at_us = lease_is_listening(c->lease) ? at_us : earliest(at_us, c->next_trigger_us);
    }
    if (c->cfg->is_until_empty && c->has_no_share) {
      at_us = earliest(at_us, c->next_left_us);
    }
  }
  for (int i = 0; i < SEATS(c); i++) {
    const struct seat *seat = &c->seats[i];
    at_us = earliest(at_us, earliest(pg_deadline_us(claimer_pg(seat->claimer)), claimer_touch_due_us(seat->claimer)));
    if (claimer_state(seat->claimer) == CLAIMER_CLOSED) {
      at_us = earliest(at_us, seat->retry_us);
    }
  }
  if (c->phase == PHASE_RUN && c->active_n > 0) {
    int64_t due_us = held_back_next_due_us(c->held_back);
    int64_t allowed_us = claims_sweep_allowed_us(c);
    due_us = due_us > allowed_us ? due_us : allowed_us;
    at_us = earliest(at_us, earliest(due_us, c->dead_check_us));
    /* With every claimer's batch at a Redis that hangs there is nothing to poll with, and polling is long due. */
    if (c->is_caught_up && c->claiming < 0 && claims_free_seat(c) >= 0) {
      at_us = earliest(at_us, c->next_poll_us > c->sweep_allowed_us || horizon_cursor(c->horizon) != INT64_MIN
                                  ? c->next_poll_us
                                  : c->sweep_allowed_us);
      if (c->is_woken && horizon_cursor(c->horizon) == INT64_MIN) {
        at_us = earliest(at_us, c->sweep_allowed_us);
      }
    }
  }
  return earliest(at_us, lanes_next_us(c));
}

/* Adds a session to what is polled; one whose reply gathers is left out until *deadline_us at the latest. */
static struct pollfd session_pollfd(const struct pg *pg, int64_t now_us, int64_t *deadline_us) {
  int64_t gather_until_us = pg_gather_until_us(pg);
  if (gather_until_us > now_us) {
    *deadline_us = earliest(*deadline_us, gather_until_us);
    return (struct pollfd){.fd = -1};
  }
  return (struct pollfd){.fd = pg_fd(pg), .events = pg_poll_events(pg)};
}

static void wait_for_something(struct coordinator *c, struct pollfd *fds) {
  int64_t now_us = clock_now_us();
  int64_t deadline_us = earliest(next_deadline_us(c), now_us + TURN_EVERY_US);
  nfds_t n = 0;
  fds[n++] = (struct pollfd){.fd = queue_fd(c->notes), .events = POLLIN};
  fds[n++] = (struct pollfd){.fd = stop_fd(c->abort), .events = POLLIN};
  fds[n++] = (struct pollfd){.fd = c->is_ending ? -1 : stop_fd(c->drain), .events = POLLIN};
  struct pollfd *of_sessions = fds + n;
  of_sessions[0] = session_pollfd(lease_pg(c->lease), now_us, &deadline_us);
  for (int i = 0; i < SEATS(c); i++) {
    of_sessions[1 + i] = session_pollfd(claimer_pg(c->seats[i].claimer), now_us, &deadline_us);
  }
  n += 1 + (nfds_t)SEATS(c);
  struct timespec timeout;
  if (ppoll(fds, n, clock_poll_timeout(deadline_us, now_us, &timeout), NULL) < 0) {
    return; /* a signal: the sessions are asked one by one */
  }
  pg_polled(lease_pg(c->lease), of_sessions[0].revents);
  for (int i = 0; i < SEATS(c); i++) {
    pg_polled(claimer_pg(c->seats[i].claimer), of_sessions[1 + i].revents);
  }
}

static void *run(void *arg) {
  struct coordinator *c = arg;
  struct pollfd *fds = calloc((size_t)SEATS(c) + 4, sizeof *fds);
  assert(fds != NULL);
  while (!stop_is_set(c->abort)) {
    int64_t now_us = clock_now_us();
    if (stop_is_set(c->drain)) {
      c->is_ending = true;
    }
    tell_health(c);
    take_notes(c, now_us);
    drive_sessions(c, now_us);
    batches_act(c, now_us);
    lanes_act(c, now_us);
    use_lease(c, now_us);
    advance(c, now_us);
    use_claimers(c, now_us);
    claims_send(c, now_us);
    if (c->is_ending && batches_are_none_open(c)) {
      break;
    }
    wait_for_something(c, fds);
  }
  if (stop_is_set(c->abort)) {
    c->exit_status = 1;
  }
  free(fds);
  stop_set(c->finished);
  return NULL;
}

/* -------------------------------------------------------------------------------------------------- life */

void coordinator_free(struct coordinator *c) {
  if (c == NULL) {
    return;
  }
  if (c->seats != NULL) {
    batches_drop_all(c);
    for (int i = 0; i < SEATS(c); i++) {
      claimer_free(c->seats[i].claimer);
    }
  }
  free(c->seats);
  lease_free(c->lease);
  lanes_free(c);
  held_back_free(c->held_back);
  horizon_free(c->horizon);
  buf_free(&c->in_flight);
  buf_free(&c->left);
  pthread_mutex_destroy(&c->stats_mutex);
  free(c);
}

int coordinator_start(const struct cfg *cfg, struct table *table, struct publisher *const *publishers,
                      struct queue *notes, const struct stop *drain, const struct stop *abort, struct stop *finished,
                      struct coordinator **out, struct err *err) {
  *out = NULL;
  struct coordinator *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the coordinator");
  }
  c->cfg = cfg;
  c->table = table;
  c->publishers = publishers;
  c->notes = notes;
  c->drain = drain;
  c->abort = abort;
  c->finished = finished;
  c->claiming = -1;
  c->known_id = INT64_MIN;
  c->dead_check_us = INT64_MAX;
  c->sweep_due_us = INT64_MAX;
  c->lease_backoff = (struct backoff){.first_ms = RECONNECT_FIRST_MS, .max_ms = RECONNECT_MAX_MS};
  c->careful = (struct backoff){.first_ms = CAREFUL_FIRST_MS, .max_ms = CAREFUL_MAX_MS};
  pthread_mutex_init(&c->stats_mutex, NULL);
  c->seats = calloc((size_t)cfg->claimers_n, sizeof *c->seats);
  if (c->seats == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d claimers", cfg->claimers_n);
    goto fail;
  }
  for (int i = 0; i < cfg->claimers_n; i++) {
    c->seats[i].backoff = (struct backoff){.first_ms = RECONNECT_FIRST_MS, .max_ms = RECONNECT_MAX_MS};
    if (claimer_new(cfg, table, &c->seats[i].claimer, err) != 0) {
      goto fail;
    }
  }
  if (lanes_new(c, err) != 0 || held_back_new(&c->held_back, err) != 0 || horizon_new(&c->horizon, err) != 0 ||
      lease_new(cfg, table, &c->lease, err) != 0) {
    goto fail;
  }
  int rc = pthread_create(&c->thread, NULL, run, c);
  if (rc != 0) {
    (void)err_errno(err, ERR_RETRY, rc, "starting the coordinator's thread");
    goto fail;
  }
  (void)pthread_setname_np(c->thread, "coordinator");
  *out = c;
  return 0;
fail:
  coordinator_free(c);
  return -1;
}

int coordinator_join(struct coordinator *c, struct err *err) {
  (void)pthread_join(c->thread, NULL);
  for (int i = 0; i < SEATS(c); i++) {
    claimer_close(c->seats[i].claimer);
  }
  lease_close(c->lease);
  *err = c->fatal;
  return c->exit_status;
}

void coordinator_read_stats(struct coordinator *c, struct coordinator_stats *out, struct histogram *claim_time,
                            struct histogram *settle_time) {
  pthread_mutex_lock(&c->stats_mutex);
  *out = c->stats;
  if (claim_time != NULL) {
    histogram_merge(claim_time, &c->claim_time);
    histogram_reset(&c->claim_time);
  }
  if (settle_time != NULL) {
    histogram_merge(settle_time, &c->settle_time);
    histogram_reset(&c->settle_time);
  }
  pthread_mutex_unlock(&c->stats_mutex);
}

void coordinator_read_health(struct coordinator *c, struct coordinator_health *out) {
  pthread_mutex_lock(&c->stats_mutex);
  *out = c->health;
  pthread_mutex_unlock(&c->stats_mutex);
}
