/*
 * What systemd is told of the relay, and when: ready, status, alive, stopping.  docs/deployment.md says it for users.
 *
 * Main thread only; asks the coordinator and the publishers through their own locks, one after the other.  Each function takes NULL, and does nothing then:
 * nobody is to be told.  What could not be sent is sent later; no failure here ends the relay.
 */
#ifndef OUTBOXD_SERVICE_H
#define OUTBOXD_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/coordinator.h"
#include "outboxd/err.h"
#include "outboxd/publisher.h"
#include "outboxd/stats.h"

struct service;

/* NULL without $NOTIFY_SOCKET, or when that cannot be used, which is logged.  cfg is borrowed.  Before other threads exist.  Caller: service_close. */
struct service *service_open(const struct cfg *cfg);
void service_close(struct service *service);

/* While the table is not read yet: PostgreSQL does not answer, for the reason given.  Called after each attempt; systemd gives the start more time. */
void service_waits(struct service *service, const struct err *err);

/* Says what is due at now_us (clock_now_us); returns when to call it again.  publishers has cfg->publishers_n elements.
 *
 * The coordinator is vouched for (WATCHDOG=1, more time for the start) only when it has gone round since the last time. */
int64_t service_step(struct service *service, struct coordinator *coordinator, struct publisher *const *publishers,
                     const struct stats *stats, int64_t now_us);

/* The relay ends, within --shutdown-timeout; from now on only the watchdog is served.  Once, whenever it is called first. */
void service_stopping(struct service *service);

/* It ends because of err, which stays as the unit's status. */
void service_failed(struct service *service, const struct err *err);

/* -------------------------------------------------------------------------------------------------- for tests */

/* What a status is made of. */
struct service_view {
  bool is_ready; /* has been since the start */
  int lanes_n;
  const struct coordinator_health *health;
  bool is_redis_down;
  const struct stats_figures *figures; /* as of the last stats line */
};

#define SERVICE_STATUS_BYTES 256

/* Does it relay, or stand by because there is nothing for it to relay? */
bool service_is_ready(const struct service_view *view);

/* The status as one line of text.  Pure. */
void service_describe(const struct service_view *view, char out[SERVICE_STATUS_BYTES]);

#endif
