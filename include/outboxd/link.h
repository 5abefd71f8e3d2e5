/*
 * A publisher's way to Redis over time: opens the connection, checks the fleet's record on each, waits between attempts, tells of outages.
 *
 * Belongs to the publisher's thread.  Logs `redis_down` once at the start of an outage and `redis_up` once at its end.
 */
#ifndef OUTBOXD_LINK_H
#define OUTBOXD_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/net.h"
#include "outboxd/redis.h"
#include "outboxd/template.h"
#include "outboxd/url.h"

struct link {
  struct redis *redis;
  const struct url *url;
  const char *fleet;
  char *fleet_key;
  int64_t timeout_ms;
  int wait_replicas_n;
  int publisher;
  int failures_n;          /* since the last exchange that worked */
  int64_t next_attempt_us; /* not before */
  int64_t down_since_us;   /* 0: no outage */
  bool is_proven;          /* connected and accepted once */
  struct err fatal;        /* class ERR_FATAL once it can never work */
  int64_t connects_n;
  int64_t bytes_n; /* sent by exchanges that worked */
};

/* url and fleet are borrowed.  fleet: what all processes on these streams must agree on, compared byte for byte with what the first one
 * recorded.  Caller: link_fini. */
must_check int link_init(struct link *link, const struct cfg *cfg, const struct url *url,
                         const struct template *template, const char *fleet, int publisher, struct err *err);
void link_fini(struct link *link);

bool link_is_open(const struct link *link);

/* Sends the pipeline and collects its replies; connects when there is no connection, and when it is lost connects again and sends what is
 * unanswered once more, at most connects_max times, until the wait's deadline, with the pauses that the backoff asks for.  With
 * --wait-replicas a pipeline of which a part is answered is not sent again.  ERR_RETRY, ERR_FATAL. */
must_check int link_exchange(struct link *link, struct redis_pipeline *pipeline, int connects_max,
                             const struct net_wait *wait, struct err *err);

/* Connects unless connected; one attempt, now. */
must_check int link_open(struct link *link, const struct net_wait *wait, struct err *err);

/* Redis cannot be worked with for the reason given: the connection is closed if it still is open, the outage begins unless it has. */
void link_down(struct link *link, const struct err *err);

#endif
