/*
 * A publisher's writes: build the round, send it, read what comes back.
 *
 * Runs on the publisher's thread.  Never: has more than one write of a lane under way; decides anything before the reply is there.
 */
#include <limits.h>

#include "outboxd/clock.h"
#include "outboxd/publisher_impl.h"

/* A write above --max-write-bytes (one huge message) gets more time, as if the network carried only this much. */
#define SLOW_BYTES_PER_US 10

static int append_wait(const struct publisher *pub, struct redis_pipeline *pipeline, struct err *err) {
  int replicas_n = pub->cfg->wait_replicas_n;
  if (replicas_n == 0) {
    return 0;
  }
  /* Its answer must come before the write's deadline. */
  int64_t wait_ms = pub->cfg->redis_timeout_ms * 3 / 4;
  return redis_pipeline_begin(pipeline, 3, err) != 0 || redis_pipeline_arg(pipeline, "WAIT", 4, err) != 0 ||
                 redis_pipeline_arg_int(pipeline, replicas_n, err) != 0 ||
                 redis_pipeline_arg_int(pipeline, wait_ms > 0 ? wait_ms : 1, err) != 0
             ? -1
             : 0;
}

/* WAIT is the last command; too few acknowledgements, and it is as if the reply had been lost. */
static int check_wait(const struct publisher *pub, const struct redis_pipeline *pipeline, struct err *err) {
  if (pub->cfg->wait_replicas_n == 0) {
    return 0;
  }
  const struct redis_reply *reply = redis_pipeline_reply(pipeline, redis_pipeline_n(pipeline) - 1);
  if (redis_reply_is_error(reply, NULL, err)) {
    err->class = ERR_RETRY;
    return err_wrap(err, "WAIT");
  }
  if (redis_reply_int(reply) < pub->cfg->wait_replicas_n) {
    return err_set(err, ERR_RETRY, "NOREPLICAS",
                   "%d replicas were asked to confirm a write (--wait-replicas), %lld did in time",
                   pub->cfg->wait_replicas_n, (long long)redis_reply_int(reply));
  }
  return 0;
}

static int build_round(struct publisher *pub, struct err *err) {
  round_begin(&pub->round);
  for (int i = 0; i < pub->lanes_n; i++) {
    struct lane *lane = &pub->lanes[(pub->first_lane + i) % pub->lanes_n];
    if (lane->state != LANE_OPEN || lane->head == NULL) {
      continue;
    }
    if (round_add(&pub->round, lane, err) != 0) {
      return -1;
    }
    publisher_report_finished(pub, lane);
  }
  pub->first_lane = (pub->first_lane + 1) % pub->lanes_n;
  return pub->round.calls_n == 0 ? 0 : append_wait(pub, pub->round.pipeline, err);
}

/* Tries the calls again that found the script missing. */
static int eval_missing(struct publisher *pub, const struct net_wait *wait, struct err *err) {
  redis_pipeline_reset(pub->pipeline, (size_t)pub->cfg->max_write_bytes);
  for (int i = 0; i < pub->round.calls_n; i++) {
    if (pub->round.calls[i].is_missing && round_append_eval(&pub->round, i, pub->pipeline, err) != 0) {
      return -1;
    }
  }
  return append_wait(pub, pub->pipeline, err) != 0 ||
                 link_exchange(&pub->link, pub->pipeline, INT_MAX, wait, err) != 0 ||
                 check_wait(pub, pub->pipeline, err) != 0
             ? -1
             : 0;
}

/* Reads one reply; true when the whole connection failed with it. */
static bool read_reply(struct publisher *pub, struct call *call, const struct redis_reply *reply, int64_t now_us,
                       struct err *link_err) {
  struct err err = ERR_INIT;
  call->is_missing = false;
  switch (round_read_reply(&pub->round, call, reply, now_us, &err)) {
  case CALL_DONE:
  case CALL_AGAIN:
    publisher_report_finished(pub, call->lane);
    return false;
  case CALL_EVAL:
    call->is_missing = true;
    return false;
  case CALL_FENCED:
    pub->fenced_n++;
    publisher_lose_lane(pub, call->lane, &err, true);
    return false;
  case CALL_LANE_FAILED:
    publisher_lose_lane(pub, call->lane, &err, false);
    return false;
  case CALL_LINK_FAILED:
    break;
  }
  *link_err = err;
  return true;
}

/* Reads the replies that are there, in order; -1 when one tells of the whole connection.  A call without reply leaves its messages undecided. */
static int read_replies(struct publisher *pub, bool *has_missing, struct err *err) {
  int rc = 0;
  int64_t now_us = clock_now_us();
  for (int i = 0; i < pub->round.calls_n; i++) {
    struct call *call = &pub->round.calls[i];
    const struct redis_reply *reply = redis_pipeline_reply(pub->round.pipeline, call->command);
    if (reply != NULL && read_reply(pub, call, reply, now_us, err)) {
      rc = -1;
    }
    *has_missing |= call->is_missing;
  }
  return rc;
}

static int read_eval_replies(struct publisher *pub, struct err *err) {
  int rc = 0;
  int command = 0;
  int64_t now_us = clock_now_us();
  for (int i = 0; i < pub->round.calls_n; i++) {
    struct call *call = &pub->round.calls[i];
    if (!call->is_missing) {
      continue;
    }
    const struct redis_reply *reply = redis_pipeline_reply(pub->pipeline, command++);
    if (reply != NULL && read_reply(pub, call, reply, now_us, err)) {
      rc = -1;
    }
    if (reply != NULL && call->is_missing) {
      rc = err_set(err, ERR_RETRY, "NOSCRIPT", "Redis does not find a script that was sent along");
    }
  }
  return rc;
}

static void record_round(struct publisher *pub, int64_t began_us, bool is_done) {
  (void)pthread_mutex_lock(&pub->stats_mutex);
  if (is_done) {
    histogram_record(&pub->round_trip, clock_now_us() - began_us);
  }
  for (int i = 0; i < pub->round.lags_n; i++) {
    histogram_record(&pub->lag, pub->round.lags_us[i]);
  }
  (void)pthread_mutex_unlock(&pub->stats_mutex);
}

/* Sends what is built, reads what comes back.  -1 when the connection failed with it: everything that is undecided is to be withheld. */
static int send_round(struct publisher *pub, struct err *err) {
  struct round *round = &pub->round;
  int64_t bytes = (int64_t)redis_pipeline_bytes(round->pipeline);
  int64_t extra_us = bytes > pub->cfg->max_write_bytes ? (bytes - pub->cfg->max_write_bytes) / SLOW_BYTES_PER_US : 0;
  int64_t began_us = clock_now_us();
  const struct net_wait wait = {.deadline_us = began_us + pub->cfg->redis_timeout_ms * 1000 + extra_us,
                                .stops = {pub->abort, NULL}};
  /* With --wait-replicas nothing is decided before enough replicas have confirmed it. */
  bool has_wait = pub->cfg->wait_replicas_n > 0;
  bool has_missing = false;

  int rc = link_exchange(&pub->link, round->pipeline, INT_MAX, &wait, err);
  if (rc == 0) {
    pub->writes_n++;
    pub->calls_n += round->calls_n;
    rc = check_wait(pub, round->pipeline, err);
  }
  if ((rc == 0 || !has_wait) && read_replies(pub, &has_missing, err) != 0) {
    rc = -1;
  }
  if (rc == 0 && has_missing) {
    rc = eval_missing(pub, &wait, err);
    if ((rc == 0 || !has_wait) && read_eval_replies(pub, err) != 0) {
      rc = -1;
    }
  }
  record_round(pub, began_us, rc == 0);
  return rc;
}

void publisher_write(struct publisher *pub) {
  struct err err = ERR_INIT;
  if (build_round(pub, &err) != 0) {
    link_down(&pub->link, &err);
    publisher_lose_all(pub, &err);
    return;
  }
  if (pub->round.calls_n > 0 && send_round(pub, &err) != 0) {
    link_down(&pub->link, &err);
    publisher_tell_fatal(pub, &err);
    publisher_lose_all(pub, &err);
  }
}
