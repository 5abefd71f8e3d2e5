/*
 * What systemd is told of the relay, and when.
 *
 * Owns: what has been told.  Run by: the main thread.  Never: vouches for a coordinator that does not go round; records as told what was not sent.
 */
#include "outboxd/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/systemd.h"

#define LOOK_EVERY_US 1000000
#define LOOK_SOON_US 100000     /* until it is ready */
#define EXTEND_EVERY_US 5000000 /* until it is ready: how often the start is given more time */
#define EXTEND_US 60000000      /* and how much, beyond what one attempt to reach a server may take */

struct service {
  const struct cfg *cfg;
  struct systemd *systemd;
  bool is_ready;
  bool is_stopping;
  char status[SERVICE_STATUS_BYTES]; /* as told last */
  int64_t vouched_turns_n;           /* the coordinator's turns when it was vouched for last */
  int64_t next_vouch_us;
  int64_t next_look_us;
};

/* -------------------------------------------------------------------------------------------------- what there is to say */

bool service_is_ready(const struct service_view *view) {
  /* A lane is active only after Redis has answered with its journal. */
  return view->is_ready || view->health->lanes_active_n > 0 || view->health->is_standby;
}

static void add(char out[SERVICE_STATUS_BYTES], const char *text) {
  size_t used = strlen(out);
  (void)snprintf(out + used, SERVICE_STATUS_BYTES - used, "%s", text);
}

static void describe_figures(const struct stats_figures *figures, char out[SERVICE_STATUS_BYTES]) {
  char text[128];
  const struct alert_reading *table = &figures->table;
  if (figures->interval_seconds > 0) {
    (void)snprintf(text, sizeof text, ", %.1f published/s, %" PRId64 " in flight",
                   (double)figures->fresh.published_n / figures->interval_seconds, figures->in_flight_n);
    add(out, text);
  }
  if (table->has_counts) {
    (void)snprintf(text, sizeof text, ", %" PRId64 "%s pending, oldest %.1f s, %" PRId64 " dead", table->pending_n,
                   table->pending_n >= ALERT_PENDING_MAX ? " or more" : "", (double)table->oldest_pending_us / 1e6,
                   table->dead_n);
    add(out, text);
  }
}

void service_describe(const struct service_view *view, char out[SERVICE_STATUS_BYTES]) {
  const struct coordinator_health *health = view->health;
  char text[64];
  out[0] = '\0';
  if (!service_is_ready(view)) {
    add(out, health->is_postgres_down ? "waiting for PostgreSQL"
             : view->is_redis_down    ? "waiting for Redis"
                                      : "taking lanes over");
    return;
  }
  if (health->is_postgres_down) {
    add(out, "PostgreSQL does not answer; ");
  }
  if (view->is_redis_down) {
    add(out, "Redis does not answer; ");
  }
  if (health->is_standby && health->lanes_active_n == 0) {
    (void)snprintf(text, sizeof text, "standby: others relay all %d lanes", view->lanes_n);
  } else {
    (void)snprintf(text, sizeof text, "%d of %d lanes", health->lanes_active_n, view->lanes_n);
  }
  add(out, text);
  describe_figures(view->figures, out);
}

/* -------------------------------------------------------------------------------------------------- saying it */

static bool tell(struct service *service, const char *lines) {
  static struct log_limit limit = {.interval_us = 3600 * INT64_C(1000000)};
  struct err err = ERR_INIT;
  int64_t held_back = 0;
  if (systemd_send(service->systemd, lines, &err) == 0) {
    return true;
  }
  if (strcmp(err.code, "EAGAIN") != 0 && log_limit_pass(&limit, &held_back)) {
    log_event(LOG_WARNING, "systemd_unreachable", err.text, LOG_STR("code", err.code), LOG_INT("held_back", held_back));
  }
  return false;
}

static void remember_status(struct service *service, const char *status) {
  (void)snprintf(service->status, sizeof service->status, "%s", status);
}

static void add_time(const struct service *service, int64_t more_us, char lines[SYSTEMD_MESSAGE_BYTES]) {
  char number[32];
  int64_t attempt_us = (service->cfg->session_timeout_ms + service->cfg->redis_timeout_ms) * 1000;
  (void)snprintf(number, sizeof number, "%" PRId64, more_us + attempt_us);
  systemd_line(lines, SYSTEMD_MESSAGE_BYTES, "EXTEND_TIMEOUT_USEC", number);
}

void service_waits(struct service *service, const struct err *err) {
  char lines[SYSTEMD_MESSAGE_BYTES] = "";
  char status[ERR_TEXT_BYTES + 64];
  if (service == NULL || service->is_stopping) {
    return;
  }
  (void)snprintf(status, sizeof status, "waiting for PostgreSQL: %s", err->text);
  add_time(service, EXTEND_US, lines);
  systemd_line(lines, sizeof lines, "STATUS", status);
  (void)tell(service, lines);
}

static bool is_any_down(const struct service *service, struct publisher *const *publishers) {
  for (int i = 0; i < service->cfg->publishers_n; i++) {
    if (publisher_is_down(publishers[i])) {
      return true;
    }
  }
  return false;
}

/* How often the coordinator is vouched for: half of what systemd asks for is sd_watchdog_enabled(3)'s advice. */
static int64_t vouch_every_us(const struct service *service) {
  int64_t watchdog_us = systemd_watchdog_us(service->systemd);
  int64_t every_us = watchdog_us > 0 ? watchdog_us / 2 : INT64_MAX;
  return !service->is_ready && every_us > EXTEND_EVERY_US ? EXTEND_EVERY_US : every_us;
}

/* When to look again: a keep-alive that falls due between two looks must not be late by more than a part of what systemd allows. */
static int64_t look_every_us(const struct service *service) {
  int64_t every_us = service->is_ready ? LOOK_EVERY_US : LOOK_SOON_US;
  int64_t watchdog_us = systemd_watchdog_us(service->systemd);
  return watchdog_us > 0 && watchdog_us / 8 < every_us ? watchdog_us / 8 : every_us;
}

int64_t service_step(struct service *service, struct coordinator *coordinator, struct publisher *const *publishers,
                     const struct stats *stats, int64_t now_us) {
  if (service == NULL) {
    return INT64_MAX;
  }
  if (now_us < service->next_look_us) {
    return service->next_look_us;
  }
  struct coordinator_health health;
  coordinator_read_health(coordinator, &health);
  const struct service_view view = {.is_ready = service->is_ready,
                                    .lanes_n = service->cfg->lanes_n,
                                    .health = &health,
                                    .is_redis_down = is_any_down(service, publishers),
                                    .figures = stats_last(stats)};
  char lines[SYSTEMD_MESSAGE_BYTES] = "";
  char status[SERVICE_STATUS_BYTES];
  service_describe(&view, status);
  bool is_ready = service_is_ready(&view);
  bool is_vouched = now_us >= service->next_vouch_us && health.turns_n != service->vouched_turns_n;
  if (is_ready && !service->is_ready && !service->is_stopping) {
    systemd_line(lines, sizeof lines, "READY", "1");
  }
  if (is_vouched && systemd_watchdog_us(service->systemd) > 0) {
    systemd_line(lines, sizeof lines, "WATCHDOG", "1");
  }
  if (is_vouched && !is_ready && !service->is_stopping) {
    add_time(service, EXTEND_US, lines);
  }
  if (!service->is_stopping && strcmp(status, service->status) != 0) {
    systemd_line(lines, sizeof lines, "STATUS", status);
  }
  if (lines[0] == '\0' || tell(service, lines)) {
    service->is_ready = is_ready;
    remember_status(service, status);
    if (is_vouched) {
      int64_t every_us = vouch_every_us(service);
      service->vouched_turns_n = health.turns_n;
      service->next_vouch_us = every_us < INT64_MAX ? now_us + every_us : INT64_MAX;
    }
  }
  service->next_look_us = now_us + look_every_us(service);
  return service->next_look_us;
}

void service_stopping(struct service *service) {
  char lines[SYSTEMD_MESSAGE_BYTES] = "STOPPING=1";
  if (service == NULL || service->is_stopping) {
    return;
  }
  service->is_stopping = true;
  add_time(service, service->cfg->shutdown_timeout_ms * 1000, lines);
  systemd_line(lines, sizeof lines, "STATUS", "stopping: what is in flight is being settled");
  (void)tell(service, lines);
}

void service_failed(struct service *service, const struct err *err) {
  char lines[SYSTEMD_MESSAGE_BYTES] = "";
  if (service == NULL) {
    return;
  }
  systemd_line(lines, sizeof lines, "STATUS", err->text);
  (void)tell(service, lines);
}

/* -------------------------------------------------------------------------------------------------- life */

struct service *service_open(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  struct systemd *systemd = NULL;
  if (systemd_open(&systemd, &err) != 0) {
    log_event(LOG_WARNING, "systemd_unreachable", err.text, LOG_STR("code", err.code));
    return NULL;
  }
  struct service *service = systemd != NULL ? calloc(1, sizeof *service) : NULL;
  if (service == NULL) {
    systemd_free(systemd);
    return NULL;
  }
  service->cfg = cfg;
  service->systemd = systemd;
  char lines[SYSTEMD_MESSAGE_BYTES] = "";
  add_time(service, EXTEND_US, lines);
  systemd_line(lines, sizeof lines, "STATUS", "connecting to PostgreSQL");
  (void)tell(service, lines);
  return service;
}

void service_close(struct service *service) {
  if (service != NULL) {
    systemd_free(service->systemd);
    free(service);
  }
}
