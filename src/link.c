/*
 * Keeping a connection to Redis.
 *
 * Owns the connection, the backoff and the outage's log lines.  Runs on its publisher's thread.  Never gives up by itself; never waits
 * beyond what it was given.
 */
#include "outboxd/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/backoff.h"
#include "outboxd/clock.h"
#include "outboxd/fleet.h"
#include "outboxd/log.h"
#include "outboxd/redis_error.h"

#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 5000
#define PROBE_WAIT_MS 500
#define DESCRIBED_BYTES 300

int link_init(struct link *link, const struct cfg *cfg, const struct url *url, const struct template *template,
              const char *fleet, int publisher, struct err *err) {
  *link = (struct link){.url = url,
                        .fleet = fleet,
                        .timeout_ms = cfg->redis_timeout_ms,
                        .wait_replicas_n = cfg->wait_replicas_n,
                        .publisher = publisher};
  size_t bytes = template_lanes_key(template, NULL, 0);
  link->fleet_key = calloc(1, bytes + 1);
  if (link->fleet_key == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "redis connection");
  }
  (void)template_lanes_key(template, link->fleet_key, bytes);
  return redis_new(url, cfg->redis_timeout_ms, &link->redis, err);
}

void link_fini(struct link *link) {
  redis_free(link->redis);
  free(link->fleet_key);
}

bool link_is_open(const struct link *link) {
  return redis_is_open(link->redis);
}

/* ---- outages */

static void note_failure(struct link *link) {
  redis_close(link->redis);
  /* The first attempt after a connection that worked is made at once: most often it was only idle for too long. */
  int64_t delay_us = link->failures_n == 0 ? 0 : backoff_nth_us(BACKOFF_FIRST_MS, BACKOFF_MAX_MS, link->failures_n);
  if (link->failures_n < 1000) {
    link->failures_n++;
  }
  link->next_attempt_us = clock_now_us() + delay_us;
}

static void log_down(struct link *link, const struct err *err) {
  bool is_end = err->class == ERR_FATAL; /* the relay's last line says why */
  if (link->down_since_us != 0 || is_end || strcmp(err->code, "stopped") == 0) {
    return;
  }
  link->down_since_us = clock_now_us();
  char where[DESCRIBED_BYTES];
  url_describe(link->url, where, sizeof where);
  log_event(LOG_WARNING, "redis_down",
            "Redis cannot be written to; nothing is lost, publishing goes on when it is back",
            LOG_INT("publisher", link->publisher), LOG_STR("redis", where), LOG_STR("code", err->code),
            LOG_STR("error", err->text));
}

static void log_up(struct link *link) {
  if (link->down_since_us == 0) {
    return;
  }
  double seconds = (double)(clock_now_us() - link->down_since_us) / 1e6;
  link->down_since_us = 0;
  char where[DESCRIBED_BYTES];
  url_describe(link->url, where, sizeof where);
  log_event(LOG_INFO, "redis_up", "Redis can be written to again", LOG_INT("publisher", link->publisher),
            LOG_STR("redis", where), LOG_REAL("duration_seconds", seconds));
}

void link_down(struct link *link, const struct err *err) {
  if (redis_is_open(link->redis)) {
    if (link->failures_n == 0) {
      link->failures_n = 1; /* what went wrong was an answer, so that an attempt at once has no point */
    }
    note_failure(link);
  }
  log_down(link, err);
}

/* ---- connecting */

/* An error reply while the connection is being checked; *err has it. */
static int refuse(const struct link *link, unsigned effects, struct err *err) {
  bool is_hopeless = (effects & REDIS_EFFECT_ACCESS) != 0 || err->class == ERR_REJECT;
  err->class = is_hopeless && !link->is_proven ? ERR_FATAL : ERR_RETRY;
  return err_wrap(err, "recording what the fleet runs with in the key \"%s\"", link->fleet_key);
}

/* The write that records the fleet's setting is also the proof that Redis takes writes now: it is refused for want of memory or of replicas, on a
 * replica and while loading even when the key exists. */
static int check_fleet(struct link *link, struct redis_pipeline *pipeline, struct err *err) {
  for (int i = 0; i < redis_pipeline_n(pipeline); i++) {
    unsigned effects = 0;
    if (redis_reply_is_error(redis_pipeline_reply(pipeline, i), &effects, err)) {
      return refuse(link, effects, err);
    }
  }
  size_t bytes;
  const char *found = redis_reply_text(redis_pipeline_reply(pipeline, 1), &bytes);
  if (fleet_compare(link->fleet_key, found, bytes, link->fleet, err) != 0) {
    return -1;
  }
  if (link->wait_replicas_n > 0 && redis_reply_int(redis_pipeline_reply(pipeline, 2)) < link->wait_replicas_n) {
    return err_set(err, ERR_RETRY, "NOREPLICAS", "%d replicas are wanted (--wait-replicas), %lld answer",
                   link->wait_replicas_n, (long long)redis_reply_int(redis_pipeline_reply(pipeline, 2)));
  }
  return 0;
}

static int probe(struct link *link, const struct net_wait *wait, struct err *err) {
  struct redis_pipeline *pipeline = NULL;
  int rc = -1;
  if (redis_pipeline_new(&pipeline, err) != 0 ||
      redis_pipeline_command(pipeline, err, "SET", link->fleet_key, link->fleet, "NX", NULL) != 0 ||
      redis_pipeline_command(pipeline, err, "GET", link->fleet_key, NULL) != 0) {
    goto out;
  }
  if (link->wait_replicas_n > 0 &&
      (redis_pipeline_begin(pipeline, 3, err) != 0 || redis_pipeline_arg(pipeline, "WAIT", 4, err) != 0 ||
       redis_pipeline_arg_int(pipeline, link->wait_replicas_n, err) != 0 ||
       redis_pipeline_arg_int(pipeline, PROBE_WAIT_MS, err) != 0)) {
    goto out;
  }
  if (redis_exchange(link->redis, pipeline, wait, err) != 0) {
    goto out;
  }
  rc = check_fleet(link, pipeline, err);
out:
  redis_pipeline_free(pipeline);
  return rc;
}

int link_open(struct link *link, const struct net_wait *wait, struct err *err) {
  if (redis_is_open(link->redis)) {
    return 0;
  }
  if (link->fatal.class == ERR_FATAL) {
    *err = link->fatal;
    return -1;
  }
  if (redis_open(link->redis, wait, err) != 0 || probe(link, wait, err) != 0) {
    if (err->class == ERR_FATAL) {
      link->fatal = *err;
    }
    if (link->failures_n == 0) {
      link->failures_n = 1;
    }
    note_failure(link);
    log_down(link, err);
    return -1;
  }
  link->is_proven = true;
  link->connects_n++;
  log_up(link);
  return 0;
}

/* Until the next attempt is due. */
static int pause_until_due(const struct link *link, const struct net_wait *wait, struct err *err) {
  struct net_wait pause = *wait;
  if (clock_now_us() >= link->next_attempt_us) {
    return 0;
  }
  bool is_too_late = link->next_attempt_us >= wait->deadline_us;
  pause.deadline_us = is_too_late ? wait->deadline_us : link->next_attempt_us;
  struct err ignored = ERR_INIT;
  if (net_poll(-1, 0, &pause, &ignored) != 0 && net_is_stopped(wait)) {
    *err = ignored;
    return -1;
  }
  return is_too_late ? -1 : 0;
}

int link_exchange(struct link *link, struct redis_pipeline *pipeline, int connects_max, const struct net_wait *wait,
                  struct err *err) {
  int connects_n = 0;
  (void)err_set(err, ERR_RETRY, "ENOTCONN", "no connection to Redis, and the next attempt is not due yet");
  for (;;) {
    if (!redis_is_open(link->redis)) {
      if (connects_n == connects_max || pause_until_due(link, wait, err) != 0) {
        return -1; /* *err says why the attempt before failed */
      }
      connects_n++;
      if (link_open(link, wait, err) != 0) {
        if (err->class == ERR_FATAL || net_is_stopped(wait) || clock_now_us() >= wait->deadline_us) {
          return -1;
        }
        continue;
      }
    }
    if (redis_exchange(link->redis, pipeline, wait, err) == 0) {
      link->failures_n = 0;
      link->bytes_n += (int64_t)redis_pipeline_bytes(pipeline);
      return 0;
    }
    note_failure(link);
    if (net_is_stopped(wait) || clock_now_us() >= wait->deadline_us) {
      return -1;
    }
    /* WAIT speaks of its own connection's writes: what was answered on the old one cannot be confirmed on a new one. */
    if (link->wait_replicas_n > 0 && redis_pipeline_replied_n(pipeline) > 0) {
      return -1;
    }
  }
}
