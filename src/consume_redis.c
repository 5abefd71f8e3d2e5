/*
 * A worker's exchanges with Redis.
 *
 * Owns nothing but the use of the worker's connection.  Runs on the worker's thread.  Never retries, and logs nothing but that no relay has been
 * here; every wait ends at --redis-timeout or when the abort token is set.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/consume_impl.h"
#include "outboxd/log.h"
#include "outboxd/redis_error.h"

static struct net_wait wait_for(const struct consume_worker *worker) {
  return (struct net_wait){.deadline_us = clock_now_us() + worker->cfg->redis_timeout_ms * 1000,
                           .stops = {worker->shared->abort, NULL}};
}

bool consume_copy(const struct redis_reply *reply, char *out, size_t n) {
  size_t bytes;
  const char *text = redis_reply_text(reply, &bytes);
  if (redis_reply_kind(reply) != REDIS_TEXT || bytes >= n) {
    return false;
  }
  memcpy(out, text, bytes + 1);
  return true;
}

/* The relay records what it runs with, as JSON, when it first connects; before that any number of lanes is taken. */
static int check_lanes(struct consume_worker *worker, struct err *err) {
  const struct template *template = worker->shared->template;
  size_t n = template_lanes_key(template, NULL, 0);
  int rc = -1;
  json_t *fleet = NULL;
  char *key = calloc(1, n + 1);
  if (key == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a key");
  }
  (void)template_lanes_key(template, key, n);
  const struct redis_reply *reply = consume_command(worker, err, "GET", key, NULL);
  if (reply == NULL) {
    goto out;
  }
  if (redis_reply_kind(reply) == REDIS_NIL && worker->number == 0 && !worker->is_redis_proven) {
    log_event(LOG_WARNING, "consumer_no_relay",
              "no relay has begun to write streams of this prefix yet; if one is running, --stream or --redis differ",
              LOG_STR("group", worker->cfg->group), LOG_STR("stream", worker->cfg->stream), LOG_STR("key", key));
  }
  size_t bytes;
  const char *text = redis_reply_text(reply, &bytes);
  fleet = json_loadb(text, bytes, 0, NULL);
  const json_t *lanes = json_object_get(fleet, "lanes");
  if (json_is_integer(lanes) && json_integer_value(lanes) != worker->cfg->lanes_n) {
    (void)err_set(err, ERR_FATAL, "lanes", "the relays of these streams run with --lanes %lld, this consumer with %d",
                  (long long)json_integer_value(lanes), worker->cfg->lanes_n);
    goto out;
  }
  rc = 0;
out:
  json_decref(fleet);
  free(key);
  return rc;
}

int consume_redis_open(struct consume_worker *worker, struct err *err) {
  struct net_wait wait = wait_for(worker);
  if (redis_open(worker->redis, &wait, err) == 0 && check_lanes(worker, err) == 0) {
    worker->is_redis_proven = true;
    return 0;
  }
  redis_close(worker->redis);
  if (worker->is_redis_proven && err->class == ERR_FATAL) {
    err->class = ERR_RETRY;
  }
  return -1;
}

int consume_exchange(struct consume_worker *worker, struct redis_pipeline *pipeline, struct err *err) {
  struct net_wait wait = wait_for(worker);
  return redis_exchange(worker->redis, pipeline, &wait, err);
}

const struct redis_reply *consume_command(struct consume_worker *worker, struct err *err, const char *word, ...) {
  int n = 0;
  va_list args;
  redis_pipeline_reset(worker->call, CONSUME_BATCH_BYTES);
  va_start(args, word);
  for (const char *w = word; w != NULL; w = va_arg(args, const char *)) {
    n++;
  }
  va_end(args);
  int rc = redis_pipeline_begin(worker->call, n, err);
  va_start(args, word);
  for (const char *w = word; w != NULL && rc == 0; w = va_arg(args, const char *)) {
    rc = redis_pipeline_arg(worker->call, w, strlen(w), err);
  }
  va_end(args);
  if (rc != 0 || consume_exchange(worker, worker->call, err) != 0) {
    return NULL;
  }
  const struct redis_reply *reply = redis_pipeline_reply(worker->call, 0);
  return redis_reply_is_error(reply, NULL, err) ? NULL : reply;
}

/* XREAD beside the group, of one entry: it only tells that there is something, and the owner's script reads it. */
static int begin_wait(struct consume_worker *worker, int64_t timeout_ms, struct err *err) {
  struct redis_pipeline *call = worker->call;
  redis_pipeline_reset(call, CONSUME_BATCH_BYTES);
  if (redis_pipeline_begin(call, 6 + 2 * worker->lanes_n, err) != 0 || redis_pipeline_arg(call, "XREAD", 5, err) != 0 ||
      redis_pipeline_arg(call, "COUNT", 5, err) != 0 || redis_pipeline_arg(call, "1", 1, err) != 0 ||
      redis_pipeline_arg(call, "BLOCK", 5, err) != 0 || redis_pipeline_arg_int(call, timeout_ms, err) != 0 ||
      redis_pipeline_arg(call, "STREAMS", 7, err) != 0) {
    return -1;
  }
  for (int part = 0; part < 2; part++) {
    for (int i = 0; i < worker->cfg->lanes_n; i++) {
      const struct consume_lane *lane = worker->lanes[i];
      const char *text = lane == NULL ? NULL : part == 0 ? lane->stream : lane->last_id;
      if (text != NULL && redis_pipeline_arg(call, text, strlen(text), err) != 0) {
        return -1;
      }
    }
  }
  return 0;
}

int consume_wait(struct consume_worker *worker, int64_t timeout_ms, struct err *err) {
  if (begin_wait(worker, timeout_ms, err) != 0) {
    return -1;
  }
  struct net_wait wait = wait_for(worker);
  wait.deadline_us += timeout_ms * 1000;
  wait.stops[1] = worker->shared->drain;
  if (redis_exchange(worker->redis, worker->call, &wait, err) != 0) {
    return strcmp(err->code, "stopped") == 0 ? 0 : -1;
  }
  const struct redis_reply *reply = redis_pipeline_reply(worker->call, 0);
  if (redis_reply_is_error(reply, NULL, err)) {
    return -1;
  }
  for (size_t i = 0; i < redis_reply_n(reply); i++) {
    size_t bytes;
    const char *name = redis_reply_text(redis_reply_at(redis_reply_at(reply, i), 0), &bytes);
    for (int number = 0; number < worker->cfg->lanes_n; number++) {
      struct consume_lane *lane = worker->lanes[number];
      if (lane != NULL && strcmp(lane->stream, name) == 0) {
        lane->is_drained = false;
      }
    }
  }
  return 0;
}
