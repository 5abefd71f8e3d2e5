/*
 * `outboxd status`, Redis' half.
 *
 * Owns nothing of its own: the connection is struct status_look's.  Main thread.
 * Never: writes, has entries sent, looks at more than STATUS_NEWEST_N entries of a stream.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_status_impl.h"
#include "embed.h"
#include "outboxd/clock.h"

#define KEY_BYTES_MAX 4096
#define LANE_COMMANDS_N 2
#define US_PER_MS 1000

int64_t status_lag(int64_t told_n, const char *last_delivered, const char *last_id) {
  if (told_n >= 0) {
    return told_n;
  }
  return last_id[0] != '\0' && strcmp(last_delivered, last_id) == 0 ? 0 : STATUS_NOT_KNOWN;
}

void status_rate(struct status_lane *lane, int64_t minute_n, int64_t looked_n, int64_t oldest_ms, int64_t added_n) {
  bool is_whole = lane->length_n > looked_n; /* there are entries behind those looked at */
  lane->minute_n = minute_n;
  lane->is_minute_estimated = false;
  /* All there are are younger, and consumers or XTRIM took some away, perhaps young ones; before Redis 7 nobody knows. */
  lane->is_minute_at_least = minute_n > 0 && minute_n == looked_n && !is_whole && added_n != lane->length_n;
  if (minute_n == looked_n && is_whole && looked_n > 1) {
    int64_t estimated_n = looked_n * STATUS_MINUTE_MS / (oldest_ms > 0 ? oldest_ms : 1);
    lane->minute_n = estimated_n < lane->length_n ? estimated_n : lane->length_n;
    lane->is_minute_estimated = true;
  }
}

/* -------------------------------------------------------------------------------------------------- replies */

static void copy_text(const struct redis_reply *reply, char *out, size_t n) {
  size_t bytes = 0;
  enum redis_kind kind = redis_reply_kind(reply);
  const char *text = kind == REDIS_TEXT || kind == REDIS_STATUS ? redis_reply_text(reply, &bytes) : "";
  (void)snprintf(out, n, "%.*s", (int)(bytes < n ? bytes : n), text);
}

/* STATUS_NOT_KNOWN where there is no number. */
static int64_t number(const struct redis_reply *reply) {
  return reply != NULL && redis_reply_kind(reply) == REDIS_INT ? redis_reply_int(reply) : STATUS_NOT_KNOWN;
}

/* The value behind a name in a flat list; NULL. */
static const struct redis_reply *named(const struct redis_reply *list, const char *name) {
  for (size_t i = 0; i + 1 < redis_reply_n(list); i += 2) {
    char found[32];
    copy_text(redis_reply_at(list, i), found, sizeof found);
    if (strcmp(found, name) == 0) {
      return redis_reply_at(list, i + 1);
    }
  }
  return NULL;
}

/* The reply of src/status.lua; last_id gets the stream's. */
static void read_stream(const struct redis_reply *reply, struct status_lane *lane, char last_id[64]) {
  last_id[0] = '\0';
  if (redis_reply_n(reply) == 0) {
    return;
  }
  copy_text(redis_reply_at(reply, 0), lane->key_type, sizeof lane->key_type);
  lane->is_stream_seen = true;
  if (redis_reply_n(reply) < 7) {
    return;
  }
  lane->length_n = number(redis_reply_at(reply, 1));
  copy_text(redis_reply_at(reply, 2), last_id, 64);
  status_rate(lane, number(redis_reply_at(reply, 4)), number(redis_reply_at(reply, 5)),
              number(redis_reply_at(reply, 6)), number(redis_reply_at(reply, 3)));
}

static int read_groups(const struct redis_reply *reply, int lane, const char *last_id, struct status *status,
                       struct err *err) {
  size_t n = redis_reply_n(reply);
  struct status_group *grown = realloc(status->groups, ((size_t)status->groups_n + n + 1) * sizeof *grown);
  if (grown == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %zu consumer groups", n);
  }
  status->groups = grown;
  for (size_t i = 0; i < n; i++) {
    const struct redis_reply *item = redis_reply_at(reply, i);
    struct status_group *group = &status->groups[status->groups_n++];
    char delivered[64] = "";
    memset(group, 0, sizeof *group);
    group->lane = lane;
    if (named(item, "name") != NULL) {
      copy_text(named(item, "name"), group->name, sizeof group->name);
    }
    if (named(item, "last-delivered-id") != NULL) {
      copy_text(named(item, "last-delivered-id"), delivered, sizeof delivered);
    }
    group->consumers_n = number(named(item, "consumers"));
    group->unacked_n = number(named(item, "pending"));
    group->lag_n = status_lag(number(named(item, "lag")), delivered, last_id);
  }
  return 0;
}

static void read_record(const struct redis_reply *reply, struct status *status) {
  size_t bytes = 0;
  if (redis_reply_kind(reply) != REDIS_TEXT) {
    return;
  }
  const char *text = redis_reply_text(reply, &bytes);
  json_t *record = json_loadb(text, bytes, 0, NULL);
  status->recorded_lanes_n = json_integer_value(json_object_get(record, "lanes"));
  json_decref(record);
}

static int read_replies(struct status_look *look, struct status *status, struct err *err) {
  const struct redis_reply *record = redis_pipeline_reply(look->pipeline, 0);
  char last_id[64];
  if (redis_reply_is_error(record, NULL, err)) {
    return -1;
  }
  read_record(record, status);
  for (int i = 0; status->is_per_lane && i < status->lanes_n; i++) {
    const struct redis_reply *stream = redis_pipeline_reply(look->pipeline, 1 + LANE_COMMANDS_N * i);
    const struct redis_reply *groups = redis_pipeline_reply(look->pipeline, 2 + LANE_COMMANDS_N * i);
    if (redis_reply_is_error(stream, NULL, err)) {
      return -1;
    }
    read_stream(stream, &status->lanes[i], last_id);
    if (strcmp(status->lanes[i].key_type, "stream") == 0 && redis_reply_kind(groups) == REDIS_LIST &&
        read_groups(groups, i, last_id, status, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- questions */

static int ask_lane(struct status_look *look, int lane, struct err *err) {
  char key[KEY_BYTES_MAX + 1];
  const struct template_values values = {.lane = lane};
  size_t bytes = template_render(look->template, &values, key, KEY_BYTES_MAX);
  if (bytes > KEY_BYTES_MAX) {
    return err_set(err, ERR_FATAL, "stream", "the names that --stream makes are longer than %d bytes", KEY_BYTES_MAX);
  }
  key[bytes] = '\0';
  char newest[16];
  (void)snprintf(newest, sizeof newest, "%d", STATUS_NEWEST_N);
  if (redis_pipeline_command(look->pipeline, err, "EVAL", embed_status_lua, "1", key, newest, NULL) != 0) {
    return -1;
  }
  return redis_pipeline_command(look->pipeline, err, "XINFO", "GROUPS", key, NULL);
}

static int ask(struct status_look *look, struct status *status, struct err *err) {
  char key[KEY_BYTES_MAX + 1];
  size_t bytes = template_lanes_key(look->template, key, KEY_BYTES_MAX);
  key[bytes < KEY_BYTES_MAX ? bytes : KEY_BYTES_MAX] = '\0';
  redis_pipeline_reset(look->pipeline, 0);
  if (redis_pipeline_command(look->pipeline, err, "GET", key, NULL) != 0) {
    return -1;
  }
  for (int i = 0; status->is_per_lane && i < status->lanes_n; i++) {
    if (ask_lane(look, i, err) != 0) {
      return -1;
    }
  }
  return 0;
}

void status_look_redis(struct status_look *look, struct status *status) {
  const struct net_wait wait = {.deadline_us = clock_now_us() + look->cfg->redis_timeout_ms * US_PER_MS,
                                .stops = {look->stop, NULL}};
  struct err *err = &status->redis_err;
  status->is_per_lane = template_is_per_lane(look->template);
  if ((!redis_is_open(look->redis) && redis_open(look->redis, &wait, err) != 0)) {
    (void)err_wrap(err, "cannot connect to Redis");
    return;
  }
  if (ask(look, status, err) != 0 || redis_exchange(look->redis, look->pipeline, &wait, err) != 0) {
    return;
  }
  status->is_redis_seen = read_replies(look, status, err) == 0;
}
