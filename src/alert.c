/*
 * The alert thread: looks, judges, logs.
 *
 * Owns: the state of each alert.  Run by: its thread.  Never: changes anything in PostgreSQL or Redis.
 *
 * event                      level     when
 * outbox_stale               critical  a pending or dead message is older than --stale-after; each check while it lasts
 * outbox_probe_failed        critical  that could not be looked at for longer than --stale-after; each check while it lasts
 * postgres_unreachable       critical  no session, for more than 30 s
 * redis_unreachable          critical  no connection or no answer to PING, for more than 30 s
 * dead_messages              error     there are dead messages
 * lane_without_owner         error     no relay has had a lane for more than 15 s
 * partitions_running_out     error     partitions for fewer than 2 days ahead (or half of --partitions-ahead, when that is less)
 *                            critical  none for now: inserts fail
 * default_partition_has_rows warning   the DEFAULT partition is not empty
 * old_transaction            warning   a transaction of the database is older than 10 minutes
 * redis_may_evict            error     maxmemory is set with an allkeys-* policy
 * redis_memory_high          error     used memory above 90 % of maxmemory, until it is below 85 %
 * alert_part_off             warning   one of the questions was refused; once, with the GRANT that helps
 *
 * All but the first two and the last are said when they begin, when they get worse, and every --alert-repeat; each ends with an info line
 * of its name and _cleared.
 */
#include "outboxd/alert.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/alert_probe.h"
#include "outboxd/alert_rules.h"
#include "outboxd/backoff.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"

#define RELOOK_FIRST_MS 100 /* between looks while something is not as it should be but not yet worth an alert */
#define RELOOK_MAX_MS 5000
#define NEVER_US INT64_MAX
#define GRANT_BYTES 2048

enum alarm {
  ALARM_STALE,
  ALARM_PROBE,
  ALARM_POSTGRES,
  ALARM_REDIS,
  ALARM_DEAD,
  ALARM_LANES,
  ALARM_PARTITIONS,
  ALARM_DEFAULT,
  ALARM_TRANSACTION,
  ALARM_EVICT,
  ALARM_MEMORY
};
#define ALARMS_N 11

static const struct {
  const char *event;
  const char *message;
} cleared[ALARMS_N] = {
    [ALARM_STALE] = {"outbox_stale_cleared", "no message is older than --stale-after any more"},
    [ALARM_PROBE] = {"outbox_probe_failed_cleared", "the age of the oldest message can be looked at again"},
    [ALARM_POSTGRES] = {"postgres_unreachable_cleared", "PostgreSQL answers again"},
    [ALARM_REDIS] = {"redis_unreachable_cleared", "Redis answers again"},
    [ALARM_DEAD] = {"dead_messages_cleared", "there are no dead messages any more"},
    [ALARM_LANES] = {"lane_without_owner_cleared", "every lane has an owner"},
    [ALARM_PARTITIONS] = {"partitions_running_out_cleared", "there are partitions for long enough"},
    [ALARM_DEFAULT] = {"default_partition_has_rows_cleared", "the DEFAULT partition is empty"},
    [ALARM_TRANSACTION] = {"old_transaction_cleared", "no transaction that can be seen is old"},
    [ALARM_EVICT] = {"redis_may_evict_cleared", "Redis evicts no streams"},
    [ALARM_MEMORY] = {"redis_memory_high_cleared", "Redis has memory left"},
};

struct alert {
  const struct cfg *cfg;
  const struct url *url;
  const struct stop *stop;
  struct alert_limits limits;
  char *table;
  struct alert_probe *probe;
  pthread_t thread;
  struct alert_view view;
  int64_t now_us;
  bool is_check;     /* this look is one that --stale-check-every asks for */
  int64_t probed_us; /* when the oldest message was seen last */
  struct alert_state states[ALARMS_N];
  struct alert_state part_states[ALERT_PARTS_N];
  int64_t *lanes_since_us; /* per lane: see alert_lanes_missing */
  int64_t *lanes_missing;
  bool is_lane_waiting;
  pthread_mutex_t reading_mutex; /* guards what follows */
  struct alert_reading reading;
};

/* -------------------------------------------------------------------------------------------------- one alarm */

static double seconds(int64_t us) {
  return (double)us / 1e6;
}

static double lasting(const struct alert *alert, enum alarm alarm) {
  return seconds(alert->now_us - alert->states[alarm].since_us);
}

/* True when the alarm's line is to be written now.  The line that it is over is written here. */
static bool step(struct alert *alert, enum alarm alarm, int severity, int64_t after_us, int64_t repeat_us) {
  switch (alert_state_step(&alert->states[alarm], severity, after_us, repeat_us, alert->now_us)) {
  case ALERT_QUIET:
    return false;
  case ALERT_RAISE:
  case ALERT_REPEAT:
    return true;
  case ALERT_CLEAR:
    log_event(LOG_INFO, cleared[alarm].event, cleared[alarm].message, LOG_STR("table", alert->table),
              LOG_REAL("duration_seconds", lasting(alert, alarm)));
    return false;
  }
  return false;
}

/* The usual one: no grace, --alert-repeat. */
static bool step_now(struct alert *alert, enum alarm alarm, int severity) {
  return step(alert, alarm, severity, 0, alert->cfg->alert_repeat_ms * 1000);
}

/* One that is said at each check. */
static bool step_each(struct alert *alert, enum alarm alarm, bool is_on) {
  return step(alert, alarm, is_on, 0, alert->is_check ? 0 : NEVER_US);
}

/* A figure that may be unknown: null then. */
static struct log_field figure(const char *name, bool is_known, int64_t value) {
  return is_known ? LOG_INT(name, value) : LOG_STR(name, NULL);
}

static bool is_seen(struct alert *alert, enum alert_part part, enum alarm alarm) {
  if (alert->view.seen[part] != ALERT_SEEN) {
    alert_state_unknown(&alert->states[alarm]);
    return false;
  }
  return true;
}

/* -------------------------------------------------------------------------------------------------- messages */

static void judge_stale(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  if (!is_seen(alert, ALERT_PART_OLDEST, ALARM_STALE)) {
    return;
  }
  alert->probed_us = alert->now_us;
  bool is_stale = view->is_pending && view->oldest_us > alert->cfg->stale_after_ms * 1000;
  if (!step_each(alert, ALARM_STALE, is_stale)) {
    return;
  }
  bool has_counts = view->seen[ALERT_PART_COUNTS] == ALERT_SEEN;
  bool has_lanes = view->seen[ALERT_PART_LANES] == ALERT_SEEN;
  log_event(LOG_CRITICAL, "outbox_stale",
            view->is_dead ? "the oldest message that is not published is dead: it waits for an operator"
                          : "messages are not published in time",
            LOG_STR("table", alert->table), LOG_REAL("oldest_pending_seconds", seconds(view->oldest_us)),
            LOG_REAL("stale_after_seconds", (double)alert->cfg->stale_after_ms / 1e3), LOG_INT("id", view->oldest_id),
            LOG_BOOL("is_dead", view->is_dead), LOG_INT("attempts", view->attempts),
            LOG_STR("aggregate_type", view->aggregate_type), LOG_STR("aggregate_id", view->aggregate_id),
            LOG_STR("event_type", view->event_type), LOG_INT("lane", view->lane),
            has_lanes ? LOG_BOOL("lane_has_owner", view->is_owned[view->lane]) : LOG_STR("lane_has_owner", NULL),
            figure("pending_messages", has_counts, view->pending_n), figure("dead_messages", has_counts, view->dead_n),
            LOG_BOOL("is_at_least", has_counts && view->is_at_least),
            has_counts && view->is_waiting ? LOG_REAL("oldest_waiting_seconds", seconds(view->waiting_us))
                                           : LOG_STR("oldest_waiting_seconds", NULL),
            LOG_REAL("duration_seconds", lasting(alert, ALARM_STALE)));
}

static void judge_probe(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  int64_t blind_us = alert->now_us - alert->probed_us;
  const struct err *err = view->is_postgres_up ? &view->errs[ALERT_PART_OLDEST] : &view->postgres_err;
  if (step_each(alert, ALARM_PROBE, blind_us > alert->cfg->stale_after_ms * 1000)) {
    log_event(LOG_CRITICAL, "outbox_probe_failed", "whether messages are published in time cannot be told",
              LOG_STR("table", alert->table), LOG_REAL("unknown_for_seconds", seconds(blind_us)),
              LOG_REAL("stale_after_seconds", (double)alert->cfg->stale_after_ms / 1e3), LOG_STR("code", err->code),
              LOG_STR("error", err->text));
  }
}

static void judge_dead(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  if (!is_seen(alert, ALERT_PART_COUNTS, ALARM_DEAD)) {
    return;
  }
  if (view->dead_n == 0 && view->is_at_least) {
    alert_state_unknown(&alert->states[ALARM_DEAD]); /* they may be among those that were not counted */
    return;
  }
  if (step_now(alert, ALARM_DEAD, view->dead_n > 0)) {
    log_event(LOG_ERROR, "dead_messages",
              "messages were refused --max-attempts times; look at their last_error, then retry or discard them",
              LOG_STR("table", alert->table), LOG_INT("dead_messages", view->dead_n),
              LOG_BOOL("is_at_least", view->is_at_least), LOG_INT("first_dead_id", view->first_dead_id),
              LOG_INT("pending_messages", view->pending_n), LOG_REAL("duration_seconds", lasting(alert, ALARM_DEAD)));
  }
}

static void judge_lanes(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  const int lanes_n = alert->cfg->lanes_n;
  alert->is_lane_waiting = false;
  if (!is_seen(alert, ALERT_PART_LANES, ALARM_LANES)) {
    memset(alert->lanes_since_us, 0, (size_t)lanes_n * sizeof *alert->lanes_since_us);
    return;
  }
  int missing_n = alert_lanes_missing(view->is_owned, lanes_n, alert->limits.lane_us, alert->now_us,
                                      alert->lanes_since_us, alert->lanes_missing, &alert->is_lane_waiting);
  if (missing_n == 0 && alert->is_lane_waiting) {
    return; /* whether they are owned soon enough shows later */
  }
  if (step_now(alert, ALARM_LANES, missing_n > 0)) {
    log_event(LOG_ERROR, "lane_without_owner", "no relay publishes these lanes", LOG_STR("table", alert->table),
              LOG_INTS("lanes", alert->lanes_missing, missing_n), LOG_INT("lanes_n", missing_n),
              LOG_INT("relays", view->members_n), LOG_REAL("duration_seconds", lasting(alert, ALARM_LANES)));
  }
}

/* -------------------------------------------------------------------------------------------------- servers */

static void say_postgres_unreachable(const char *table, double down_seconds, const struct err *err) {
  log_event(LOG_CRITICAL, "postgres_unreachable", "PostgreSQL does not answer; nothing is published",
            LOG_STR("table", table), LOG_REAL("down_seconds", down_seconds), LOG_STR("code", err->code),
            LOG_STR("error", err->text));
}

static void judge_servers(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  const int64_t after_us = alert->limits.unreachable_us;
  const int64_t repeat_us = alert->cfg->alert_repeat_ms * 1000;
  if (step(alert, ALARM_POSTGRES, !view->is_postgres_up, after_us, repeat_us)) {
    say_postgres_unreachable(alert->table, lasting(alert, ALARM_POSTGRES), &view->postgres_err);
  }
  if (step(alert, ALARM_REDIS, !view->is_redis_up, after_us, repeat_us)) {
    char where[256];
    url_describe(alert->url, where, sizeof where);
    log_event(LOG_CRITICAL, "redis_unreachable", "Redis does not answer; nothing is published",
              LOG_STR("table", alert->table), LOG_STR("redis", where),
              LOG_REAL("down_seconds", lasting(alert, ALARM_REDIS)), LOG_STR("code", view->redis_err.code),
              LOG_STR("error", view->redis_err.text));
  }
}

static void judge_memory(struct alert *alert) {
  const struct alert_memory *memory = &alert->view.memory;
  if (!is_seen(alert, ALERT_PART_REDIS_MEMORY, ALARM_EVICT) || !is_seen(alert, ALERT_PART_REDIS_MEMORY, ALARM_MEMORY)) {
    return;
  }
  if (step_now(alert, ALARM_EVICT, alert_may_evict(memory))) {
    log_event(LOG_ERROR, "redis_may_evict",
              "Redis deletes streams when its memory is used up: set maxmemory-policy noeviction",
              LOG_STR("table", alert->table), LOG_STR("maxmemory_policy", memory->policy),
              LOG_INT("maxmemory_bytes", memory->max_bytes), LOG_INT("used_memory_bytes", memory->used_bytes),
              LOG_REAL("duration_seconds", lasting(alert, ALARM_EVICT)));
  }
  bool is_full = alert_is_nearly_full(memory, alert->states[ALARM_MEMORY].is_raised);
  if (step_now(alert, ALARM_MEMORY, is_full)) {
    log_event(LOG_ERROR, "redis_memory_high",
              "Redis has used most of its memory; at the limit it refuses writes or evicts keys",
              LOG_STR("table", alert->table), LOG_INT("used_memory_bytes", memory->used_bytes),
              LOG_INT("maxmemory_bytes", memory->max_bytes),
              LOG_REAL("used_percent", 100 * (double)memory->used_bytes / (double)memory->max_bytes),
              LOG_STR("maxmemory_policy", memory->policy), LOG_REAL("duration_seconds", lasting(alert, ALARM_MEMORY)));
  }
}

/* -------------------------------------------------------------------------------------------------- the database */

static void judge_partitions(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  if (!is_seen(alert, ALERT_PART_PARTITIONS, ALARM_PARTITIONS)) {
    return;
  }
  bool has_default = view->default_name[0] != '\0';
  bool is_none_left = view->covered_us <= 0;
  bool is_short = view->covered_us < alert_partitions_min_us(alert->cfg->partitions_ahead_ms) || is_none_left;
  if (step_now(alert, ALARM_PARTITIONS, is_short + (is_none_left && !has_default))) {
    log_event(is_none_left && !has_default ? LOG_CRITICAL : LOG_ERROR, "partitions_running_out",
              has_default    ? "partitions are running out: soon rows go to the DEFAULT partition"
              : is_none_left ? "there is no partition for now: inserts fail; run outboxd init"
                             : "partitions are running out: soon inserts fail",
              LOG_STR("table", alert->table), LOG_REAL("covered_seconds", seconds(view->covered_us)),
              LOG_BOOL("has_default", has_default), LOG_REAL("duration_seconds", lasting(alert, ALARM_PARTITIONS)));
  }
}

static void judge_default(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  /* A partition that is gone holds nothing. */
  bool is_gone = view->seen[ALERT_PART_PARTITIONS] == ALERT_SEEN && view->default_name[0] == '\0';
  if (!is_gone && !is_seen(alert, ALERT_PART_DEFAULT, ALARM_DEFAULT)) {
    return;
  }
  if (step_now(alert, ALARM_DEFAULT, view->default_rows_n > 0)) {
    bool is_at_least = view->default_rows_n > 1000;
    log_event(
        LOG_WARNING, "default_partition_has_rows",
        "rows have gone to the DEFAULT partition: they are published, but not removed with their day, and no partition "
        "can be made for their days",
        LOG_STR("table", alert->table), LOG_STR("partition", view->default_name),
        LOG_INT("rows", is_at_least ? 1000 : view->default_rows_n), LOG_BOOL("is_at_least", is_at_least),
        LOG_REAL("duration_seconds", lasting(alert, ALARM_DEFAULT)));
  }
}

static void judge_transactions(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  if (!is_seen(alert, ALERT_PART_TRANSACTIONS, ALARM_TRANSACTION)) {
    return;
  }
  if (step_now(alert, ALARM_TRANSACTION, view->transaction_us > alert->limits.transaction_us)) {
    log_event(LOG_WARNING, "old_transaction",
              "a transaction has been open for long: until it ends vacuum keeps what was updated since, and claims get "
              "slower",
              LOG_STR("table", alert->table), LOG_REAL("transaction_seconds", seconds(view->transaction_us)),
              LOG_INT("pid", view->transaction_pid), LOG_STR("application_name", view->transaction_name),
              LOG_STR("role", view->transaction_role), LOG_STR("state", view->transaction_state),
              LOG_REAL("duration_seconds", lasting(alert, ALARM_TRANSACTION)));
  }
}

/* -------------------------------------------------------------------------------------------------- parts that are off */

/* What gives us the privilege that a part needs. */
static void describe_grant(const struct alert *alert, enum alert_part part, char *out, size_t n) {
  const struct alert_view *view = &alert->view;
  switch (part) {
  case ALERT_PART_OLDEST:
  case ALERT_PART_COUNTS:
    (void)snprintf(out, n, "GRANT SELECT ON %s TO %s", alert->table, view->role);
    return;
  case ALERT_PART_LANES:
    (void)snprintf(out, n, "GRANT SELECT ON pg_catalog.pg_locks TO %s", view->role);
    return;
  case ALERT_PART_PARTITIONS:
    (void)snprintf(out, n, "GRANT SELECT ON pg_catalog.pg_inherits TO %s", view->role);
    return;
  case ALERT_PART_DEFAULT:
    (void)snprintf(out, n, "GRANT SELECT ON %s TO %s", view->default_name, view->role);
    return;
  case ALERT_PART_TRANSACTIONS:
    (void)snprintf(out, n, "GRANT pg_read_all_stats TO %s", view->role);
    return;
  case ALERT_PART_REDIS_MEMORY:
    (void)snprintf(out, n, "ACL SETUSER %s +info", alert->url->user != NULL ? alert->url->user : "default");
    return;
  }
}

static void judge_part(struct alert *alert, enum alert_part part) {
  const struct alert_view *view = &alert->view;
  struct alert_state *state = &alert->part_states[part];
  const struct err *err = &view->errs[part];
  if (view->seen[part] == ALERT_NOT_SEEN) {
    alert_state_unknown(state);
    return;
  }
  bool is_partly = view->seen[part] == ALERT_SEEN && part == ALERT_PART_TRANSACTIONS && !view->sees_all;
  bool is_off = view->seen[part] == ALERT_FAILED || is_partly;
  enum alert_say say = alert_state_step(state, is_off, 0, NEVER_US, alert->now_us);
  if (say == ALERT_RAISE) {
    char grant[GRANT_BYTES];
    describe_grant(alert, part, grant, sizeof grant);
    log_event(LOG_WARNING, "alert_part_off",
              is_partly ? "transactions of other roles cannot be seen: an old one is not reported"
                        : "a part of the alerts is off: its question was not answered",
              LOG_STR("table", alert->table), LOG_STR("part", alert_part_name(part)),
              LOG_STR("code", is_partly ? NULL : err->code), LOG_STR("error", is_partly ? NULL : err->text),
              LOG_STR("grant", grant));
  } else if (say == ALERT_CLEAR) {
    log_event(LOG_INFO, "alert_part_off_cleared", "a part of the alerts is on again", LOG_STR("table", alert->table),
              LOG_STR("part", alert_part_name(part)),
              LOG_REAL("duration_seconds", seconds(alert->now_us - state->since_us)));
  }
}

/* -------------------------------------------------------------------------------------------------- the thread */

static void judge(struct alert *alert) {
  judge_servers(alert);
  for (int part = 0; part < ALERT_PARTS_N; part++) {
    judge_part(alert, (enum alert_part)part);
  }
  judge_stale(alert);
  judge_probe(alert);
  judge_dead(alert);
  judge_lanes(alert);
  judge_partitions(alert);
  judge_default(alert);
  judge_transactions(alert);
  judge_memory(alert);
}

/* What could not be looked at stays as it was seen last. */
static void keep_reading(struct alert *alert) {
  const struct alert_view *view = &alert->view;
  int64_t seen_us = clock_wall_us();
  (void)pthread_mutex_lock(&alert->reading_mutex);
  if (view->seen[ALERT_PART_OLDEST] == ALERT_SEEN) {
    alert->reading.seen_us = seen_us;
    alert->reading.oldest_pending_us = view->is_pending && view->oldest_us > 0 ? view->oldest_us : 0;
  }
  if (view->seen[ALERT_PART_COUNTS] != ALERT_NOT_SEEN) {
    alert->reading.has_counts = view->seen[ALERT_PART_COUNTS] == ALERT_SEEN;
    alert->reading.pending_n = view->pending_n;
    alert->reading.dead_n = view->dead_n;
  }
  (void)pthread_mutex_unlock(&alert->reading_mutex);
}

/* From which age of the oldest message on its companions are to be counted in this look.  Looks between the checks need no counts but for the first line that
 * says that messages are stale. */
static int64_t count_from_us(const struct alert *alert) {
  if (alert->is_check) {
    return 0;
  }
  return alert->states[ALARM_STALE].is_raised ? NEVER_US : alert->cfg->stale_after_ms * 1000;
}

/* Something may turn into an alert, or be over, long before the next check. */
static bool is_uneasy(const struct alert *alert) {
  const struct alert_view *view = &alert->view;
  return !view->is_postgres_up || !view->is_redis_up || view->seen[ALERT_PART_OLDEST] != ALERT_SEEN ||
         alert->is_lane_waiting;
}

static void *alert_main(void *arg) {
  struct alert *alert = arg;
  const int64_t every_us = alert->cfg->stale_check_every_ms * 1000;
  struct backoff backoff = {.first_ms = RELOOK_FIRST_MS, .max_ms = RELOOK_MAX_MS};
  int64_t next_check_us = clock_now_us();
  alert->probed_us = next_check_us;
  while (!stop_is_set(alert->stop)) {
    alert->is_check = clock_now_us() >= next_check_us;
    alert_probe_look(alert->probe, count_from_us(alert), &alert->view);
    if (stop_is_set(alert->stop)) {
      break;
    }
    alert->now_us = clock_now_us();
    keep_reading(alert);
    judge(alert);
    if (alert->is_check) {
      next_check_us += every_us;
      /* A look that took longer than a check: the missed ones are not made up for. */
      next_check_us = next_check_us > alert->now_us ? next_check_us : alert->now_us + every_us;
    }
    int64_t wake_us = next_check_us;
    if (is_uneasy(alert)) {
      int64_t relook_us = alert->now_us + backoff_next_us(&backoff);
      wake_us = relook_us < wake_us ? relook_us : wake_us;
    } else {
      backoff_reset(&backoff);
    }
    struct pollfd fd = {.fd = stop_fd(alert->stop), .events = POLLIN};
    (void)poll(&fd, 1, clock_poll_timeout_ms(wake_us, clock_now_us()));
  }
  return NULL;
}

static void free_alert(struct alert *alert) {
  alert_probe_free(alert->probe);
  (void)pthread_mutex_destroy(&alert->reading_mutex);
  free(alert->lanes_missing);
  free(alert->lanes_since_us);
  free(alert->table);
  free(alert);
}

int alert_start_limited(const struct cfg *cfg, const struct url *url, const struct table *table,
                        const struct stop *stop, const struct alert_limits *limits, struct alert **out,
                        struct err *err) {
  *out = NULL;
  struct alert *alert = calloc(1, sizeof *alert);
  if (alert == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the alert");
  }
  (void)pthread_mutex_init(&alert->reading_mutex, NULL);
  alert->cfg = cfg;
  alert->url = url;
  alert->stop = stop;
  alert->limits = *limits;
  alert->table = strdup(table->name);
  alert->lanes_since_us = calloc((size_t)cfg->lanes_n, sizeof *alert->lanes_since_us);
  alert->lanes_missing = calloc((size_t)cfg->lanes_n, sizeof *alert->lanes_missing);
  if (alert->table == NULL || alert->lanes_since_us == NULL || alert->lanes_missing == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for the alert");
    goto fail;
  }
  if (alert_probe_new(cfg, url, table, stop, &alert->probe, err) != 0) {
    goto fail;
  }
  int errnum = pthread_create(&alert->thread, NULL, alert_main, alert);
  if (errnum != 0) {
    (void)err_errno(err, ERR_RETRY, errnum, "starting the alert thread");
    goto fail;
  }
  (void)pthread_setname_np(alert->thread, "alert");
  *out = alert;
  return 0;
fail:
  free_alert(alert);
  return -1;
}

int alert_start(const struct cfg *cfg, const struct url *url, const struct table *table, const struct stop *stop,
                struct alert **out, struct err *err) {
  const struct alert_limits limits = ALERT_LIMITS;
  return alert_start_limited(cfg, url, table, stop, &limits, out, err);
}

void alert_before_start(const struct cfg *cfg, struct alert_state *state, const struct err *err) {
  const struct alert_limits limits = ALERT_LIMITS;
  int64_t now_us = clock_now_us();
  switch (alert_state_step(state, err != NULL, limits.unreachable_us, cfg->alert_repeat_ms * 1000, now_us)) {
  case ALERT_QUIET:
    return;
  case ALERT_RAISE:
  case ALERT_REPEAT:
    say_postgres_unreachable(cfg->table, seconds(now_us - state->since_us), err);
    return;
  case ALERT_CLEAR:
    log_event(LOG_INFO, cleared[ALARM_POSTGRES].event, cleared[ALARM_POSTGRES].message, LOG_STR("table", cfg->table),
              LOG_REAL("duration_seconds", seconds(now_us - state->since_us)));
    return;
  }
}

void alert_read(struct alert *alert, struct alert_reading *reading) {
  (void)pthread_mutex_lock(&alert->reading_mutex);
  *reading = alert->reading;
  (void)pthread_mutex_unlock(&alert->reading_mutex);
}

void alert_stop(struct alert *alert) {
  if (alert == NULL) {
    return;
  }
  (void)pthread_join(alert->thread, NULL);
  free_alert(alert);
}
