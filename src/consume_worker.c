/*
 * A worker: keeps its session, its connection and its share of the lanes, and takes the lanes in turns.
 *
 * Owns all three.  One thread each.  An outage of either server is waited out with a backoff: without the session there are no lanes; without Redis the
 * lanes stay and are begun anew.
 */
#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/consume_impl.h"
#include "outboxd/log.h"

#define LOOK_US 1000000     /* between two looks at who is there */
#define LOOK_SOON_US 250000 /* while we have fewer lanes than our share */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 5000

/* -------------------------------------------------------------------------------------------------- life */

int worker_init(struct consume_worker *worker, struct consume_shared *shared, int number, struct err *err) {
  const struct consume_cfg *cfg = shared->cfg;
  *worker = (struct consume_worker){.number = number, .shared = shared, .cfg = cfg};
  worker->pg_outage.backoff = (struct backoff){.first_ms = BACKOFF_FIRST_MS, .max_ms = BACKOFF_MAX_MS};
  worker->redis_outage.backoff = worker->pg_outage.backoff;
  worker->lanes = calloc((size_t)cfg->lanes_n, sizeof *worker->lanes);
  worker->wanted = calloc((size_t)cfg->lanes_n, sizeof *worker->wanted);
  if (worker->lanes == NULL || worker->wanted == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a worker");
  }
  return session_init(&worker->session, cfg, shared->abort, err) == 0 &&
                 redis_new(&shared->url, cfg->redis_timeout_ms, &worker->redis, err) == 0 &&
                 redis_pipeline_new(&worker->call, err) == 0
             ? 0
             : -1;
}

static void free_lane(struct consume_worker *worker, int number) {
  if (worker->lanes[number] != NULL) {
    lane_free(worker, worker->lanes[number]);
    worker->lanes[number] = NULL;
    worker->lanes_n--;
  }
}

static void free_lanes(struct consume_worker *worker) {
  for (int i = 0; i < worker->cfg->lanes_n; i++) {
    free_lane(worker, i);
  }
}

void worker_fini(struct consume_worker *worker) {
  if (worker->shared == NULL) {
    return;
  }
  if (worker->lanes != NULL) {
    free_lanes(worker);
  }
  session_fini(&worker->session);
  redis_free(worker->redis);
  redis_pipeline_free(worker->call);
  free(worker->lanes);
  free(worker->wanted);
}

/* -------------------------------------------------------------------------------------------------- outages */

static void log_down(const struct consume_worker *worker, const char *server, const struct err *err) {
  log_event(LOG_WARNING, "consumer_down",
            "a server cannot be worked with; nothing is lost, consuming goes on when it is back",
            LOG_STR("group", worker->cfg->group), LOG_INT("worker", worker->number), LOG_STR("server", server),
            LOG_STR("code", err->code), LOG_STR("error", err->text));
}

static void on_failure(struct consume_worker *worker, struct consume_outage *outage, const char *server,
                       const struct err *err) {
  int64_t now_us = clock_now_us();
  struct consume_shared *shared = worker->shared;
  if (err->class == ERR_FATAL && !atomic_exchange(&shared->has_failed, true)) {
    shared->failure = *err;
    stop_set(shared->drain);
    return;
  }
  if (strcmp(err->code, "stopped") == 0) {
    return;
  }
  if (outage->since_us == 0) {
    outage->since_us = now_us;
    log_down(worker, server, err);
  }
  /* The first attempt after something that worked is made at once: most often a connection was only idle for too long. */
  outage->next_us = outage->backoff.failures_n == 0 ? now_us : now_us + backoff_next_us(&outage->backoff);
  outage->backoff.failures_n += outage->backoff.failures_n == 0;
}

static void on_success(const struct consume_worker *worker, struct consume_outage *outage, const char *server) {
  backoff_reset(&outage->backoff);
  if (outage->since_us != 0) {
    double seconds = (double)(clock_now_us() - outage->since_us) / 1e6;
    outage->since_us = 0;
    log_event(LOG_INFO, "consumer_up", "the server can be worked with again", LOG_STR("group", worker->cfg->group),
              LOG_INT("worker", worker->number), LOG_STR("server", server), LOG_REAL("duration_seconds", seconds));
  }
}

static void on_pg_lost(struct consume_worker *worker, const struct err *err) {
  session_close(&worker->session);
  free_lanes(worker);
  on_failure(worker, &worker->pg_outage, "postgresql", err);
}

static void on_redis_lost(struct consume_worker *worker, const struct err *err) {
  redis_close(worker->redis);
  for (int i = 0; i < worker->cfg->lanes_n; i++) {
    if (worker->lanes[i] != NULL) {
      lane_restart(worker, worker->lanes[i]);
    }
  }
  on_failure(worker, &worker->redis_outage, "redis", err);
}

/* A turn was lost: by which of the two? */
static void on_lost(struct consume_worker *worker, const struct err *err) {
  if (!session_is_open(&worker->session) || strcmp(err->code, "fenced") == 0) {
    on_pg_lost(worker, err);
    /* Redis may have lost its connection in the same turn; it is begun anew, too. */
    redis_close(worker->redis);
  } else {
    on_redis_lost(worker, err);
  }
}

/* Pauses until until_us, a worker's next look, or the end. */
static void pause_until(const struct consume_worker *worker, int64_t until_us) {
  const struct net_wait wait = {.deadline_us = until_us, .stops = {worker->shared->drain, worker->shared->abort}};
  struct err ignored = ERR_INIT;
  (void)(net_poll(-1, 0, &wait, &ignored) == 0);
}

/* Opens what is not open, unless its next attempt is not due yet.  False: there is nothing to work with. */
static bool keep_open(struct consume_worker *worker) {
  struct err err = ERR_INIT;
  int64_t now_us = clock_now_us();
  if (!session_is_open(&worker->session)) {
    if (now_us < worker->pg_outage.next_us) {
      pause_until(worker, worker->pg_outage.next_us);
      return false;
    }
    if (session_open(&worker->session, &err) != 0) {
      on_pg_lost(worker, &err);
      return false;
    }
    worker->look_due_us = 0;
    on_success(worker, &worker->pg_outage, "postgresql");
  }
  return true;
}

static bool keep_redis_open(struct consume_worker *worker) {
  struct err err = ERR_INIT;
  if (redis_is_open(worker->redis)) {
    return true;
  }
  int64_t now_us = clock_now_us();
  if (now_us < worker->redis_outage.next_us) {
    int64_t until_us = worker->redis_outage.next_us;
    pause_until(worker, until_us < worker->look_due_us ? until_us : worker->look_due_us);
    return false;
  }
  if (consume_redis_open(worker, &err) != 0) {
    on_redis_lost(worker, &err);
    return false;
  }
  on_success(worker, &worker->redis_outage, "redis");
  return true;
}

/* -------------------------------------------------------------------------------------------------- lanes */

static void log_lanes(const struct consume_worker *worker) {
  int64_t numbers[1024];
  int n = 0;
  for (int i = 0; i < worker->cfg->lanes_n; i++) {
    if (worker->lanes[i] != NULL) {
      numbers[n++] = i;
    }
  }
  log_event(LOG_INFO, "consumer_lanes", "the lanes of this worker have changed", LOG_STR("group", worker->cfg->group),
            LOG_INT("worker", worker->number), LOG_INT("lanes_n", n), LOG_INTS("lanes", numbers, n));
}

static int release(struct consume_worker *worker, int number, struct err *err) {
  /* What could not be acknowledged is found to be handled by the next owner. */
  if (redis_is_open(worker->redis) && lane_flush(worker, worker->lanes[number], err) != 0) {
    on_redis_lost(worker, err);
  }
  free_lane(worker, number);
  return session_release(&worker->session, number, err);
}

static int take(struct consume_worker *worker, int share_n, struct err *err) {
  int lanes_n = worker->cfg->lanes_n;
  int wanted_n = 0;
  /* Start anywhere: workers that start together should not all try the same ones. */
  int start = (int)backoff_random((uint64_t)lanes_n);
  memset(worker->wanted, 0, (size_t)lanes_n * sizeof *worker->wanted);
  for (int i = 0; i < lanes_n && worker->lanes_n + wanted_n < share_n; i++) {
    int number = (start + i) % lanes_n;
    if (!worker->session.is_taken[number]) {
      worker->wanted[number] = true;
      wanted_n++;
    }
  }
  if (wanted_n == 0) {
    return 0;
  }
  if (session_take(&worker->session, worker->wanted, err) != 0) {
    return -1;
  }
  for (int number = 0; number < lanes_n; number++) {
    if (worker->wanted[number]) {
      if (lane_new(worker, number, &worker->lanes[number], err) != 0) {
        session_close(&worker->session);
        return -1;
      }
      worker->lanes_n++;
    }
  }
  return 0;
}

/* Every lane is read once more, whatever a sign of new entries may have missed. */
static void undrain(struct consume_worker *worker) {
  for (int i = 0; i < worker->cfg->lanes_n; i++) {
    if (worker->lanes[i] != NULL) {
      worker->lanes[i]->is_drained = false;
    }
  }
}

/* Compares what we have with our fair share: gives the surplus back, tries what is free. */
static int rebalance(struct consume_worker *worker, struct err *err) {
  struct consume_session *session = &worker->session;
  int before_n = worker->lanes_n;
  int lanes_n = worker->cfg->lanes_n;
  if (session_look(session, err) != 0) {
    return -1;
  }
  int members_n = session->members_n > 0 ? session->members_n : 1;
  int share_n = lanes_n / members_n + (session->rank < lanes_n % members_n);
  for (int i = lanes_n - 1; i >= 0 && worker->lanes_n > share_n; i--) {
    if (worker->lanes[i] != NULL && release(worker, i, err) != 0) {
      return -1;
    }
  }
  if (worker->lanes_n < share_n && take(worker, share_n, err) != 0) {
    return -1;
  }
  if (worker->lanes_n != before_n) {
    log_lanes(worker);
  }
  worker->look_due_us = clock_now_us() + (worker->lanes_n < share_n ? LOOK_SOON_US : LOOK_US);
  undrain(worker);
  return 0;
}

/* -------------------------------------------------------------------------------------------------- the loop */

/* Gives each lane a turn.  *has_worked: one of them had something to do. */
static bool turn_all(struct consume_worker *worker, bool *has_worked) {
  struct err err = ERR_INIT;
  *has_worked = false;
  int lanes_n = worker->cfg->lanes_n;
  for (int n = 0; n < lanes_n && !stop_is_set(worker->shared->drain); n++) {
    /* On from where the last round ended: slow handlers make rounds that are cut short. */
    struct consume_lane *lane = worker->lanes[worker->next_lane];
    worker->next_lane = (worker->next_lane + 1) % lanes_n;
    if (lane == NULL) {
      continue;
    }
    enum consume_result result = lane_turn(worker, lane, &err);
    if (result == CONSUME_LOST) {
      on_lost(worker, &err);
      return false;
    }
    *has_worked = *has_worked || result == CONSUME_OK;
    /* One turn of every lane may take long: the fleet is not left waiting for it. */
    if (clock_now_us() >= worker->look_due_us) {
      *has_worked = true;
      return true;
    }
  }
  return true;
}

/* Nothing to do: until an entry comes, a retry is due, or it is time to look at the others. */
static void wait_idle(struct consume_worker *worker) {
  struct err err = ERR_INIT;
  int64_t now_us = clock_now_us();
  int64_t until_us = worker->look_due_us;
  bool can_block = worker->lanes_n > 0 && template_is_per_lane(worker->shared->template);
  for (int i = 0; i < worker->cfg->lanes_n; i++) {
    const struct consume_lane *lane = worker->lanes[i];
    if (lane != NULL) {
      int64_t due_us =
          lane->stream == NULL && lane->poll_due_us < lane->held_due_us ? lane->poll_due_us : lane->held_due_us;
      until_us = due_us < until_us ? due_us : until_us;
      can_block = can_block && lane->is_drained && lane->last_id[0] != '\0';
    }
  }
  if (!can_block && template_is_per_lane(worker->shared->template)) {
    /* A lane that is full, or cannot be read, must neither keep the worker going round nor the others from being read. */
    int64_t poll_us = now_us + worker->cfg->poll_interval_ms * 1000;
    until_us = until_us < poll_us ? until_us : poll_us;
    undrain(worker);
  }
  if (until_us <= now_us) {
    return;
  }
  if (!can_block) {
    pause_until(worker, until_us);
  } else if (consume_wait(worker, (until_us - now_us) / 1000 + 1, &err) != 0) {
    on_lost(worker, &err);
  }
}

/* Gives back what is ours, so that others need not wait for the session's end. */
static void leave(struct consume_worker *worker) {
  struct err err = ERR_INIT;
  for (int i = 0; i < worker->cfg->lanes_n; i++) {
    if (worker->lanes[i] != NULL && session_is_open(&worker->session) && release(worker, i, &err) != 0) {
      break;
    }
  }
  free_lanes(worker);
  session_close(&worker->session);
  redis_close(worker->redis);
}

void worker_run(struct consume_worker *worker) {
  while (!stop_is_set(worker->shared->drain)) {
    struct err err = ERR_INIT;
    bool has_worked = false;
    if (!keep_open(worker)) {
      continue;
    }
    if (clock_now_us() >= worker->look_due_us && rebalance(worker, &err) != 0) {
      on_pg_lost(worker, &err);
      continue;
    }
    if (!keep_redis_open(worker) || !turn_all(worker, &has_worked)) {
      continue;
    }
    if (!has_worked) {
      wait_idle(worker);
    }
  }
  leave(worker);
}
