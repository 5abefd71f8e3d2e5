/*
 * The trimmer's thread: walks over the streams of its process's lanes, a bounded step at a time.
 *
 * Owns: its connection to Redis, what it has counted.  Run by: its thread.
 * Never: decides by itself what may be removed (that is src/trim.lua's, in Redis); takes more than a tenth of the time; ends because of an error.
 *
 * Events: trim_unread (warning: --trim maxlen or age has removed what some group had not read), trim_waits (warning: --trim acked removes nothing from
 * some streams), trim_failed (warning).  Each at most once a minute or an hour, with counts.
 */
#include "outboxd/trimmer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/keyset.h"
#include "outboxd/log.h"
#include "outboxd/net.h"
#include "outboxd/redis.h"
#include "outboxd/sha1.h"

#define STEP_ENTRIES "1000" /* removed by one call */
#define SCAN_NAMES "100"    /* of the index, in one step */
#define SHARE 10            /* a step is followed by a pause of so many times its duration, less one */
#define PAUSE_MAX_US INT64_C(1000000)
#define WARN_US (INT64_C(60) * 1000000)
#define WAITS_US (INT64_C(3600) * 1000000)
#define SHOWN_BYTES 200

/* What a warning is about, gathered until it may be written. */
struct gathered {
  int64_t streams_n; /* calls that met it */
  int64_t entries_n;
  char stream[SHOWN_BYTES]; /* one of them */
};

struct trimmer {
  /* Set before the thread starts. */
  const struct cfg *cfg;
  const struct template *template;
  const struct trim_rule *rule;
  struct publisher *const *publishers;
  const struct stop *stop;
  bool has_index;
  char value[24];           /* rule->value */
  char sha[SHA1_HEX_BYTES]; /* of the script */
  pthread_t thread;

  /* The thread's own. */
  struct redis *redis;
  struct redis_pipeline *pipeline;
  struct buf key;
  struct keyset names; /* streams of the step under way */
  struct gathered unread;
  struct gathered waits;
  struct log_limit unread_limit;
  struct log_limit waits_limit;
  struct log_limit failed_limit;

  _Atomic int64_t trimmed_n;
  _Atomic int64_t trimmed_unread_n;
};

/* -------------------------------------------------------------------------------------------------- warnings */

static void gather(struct gathered *gathered, const char *name, size_t bytes, int64_t entries_n) {
  gathered->streams_n++;
  gathered->entries_n += entries_n;
  (void)snprintf(gathered->stream, sizeof gathered->stream, "%.*s",
                 (int)(bytes < sizeof gathered->stream ? bytes : sizeof gathered->stream - 1), name);
}

/* is_last: the thread ends, nothing goes unsaid. */
static void warn_unread(struct trimmer *trimmer, bool is_last) {
  int64_t held_back;
  struct gathered *unread = &trimmer->unread;
  if (unread->entries_n == 0 || (!log_limit_pass(&trimmer->unread_limit, &held_back) && !is_last)) {
    return;
  }
  log_event(
      LOG_WARNING, "trim_unread", "--trim has removed entries that a consumer group had not read or not acknowledged",
      LOG_INT("entries", unread->entries_n), LOG_STR("stream", unread->stream), LOG_STR("trim", trimmer->cfg->trim));
  *unread = (struct gathered){0};
}

/* Once a round over all lanes: how many streams waited in it. */
static void warn_waits(struct trimmer *trimmer) {
  int64_t held_back;
  if (trimmer->waits.streams_n > 0 && log_limit_pass(&trimmer->waits_limit, &held_back)) {
    log_event(LOG_WARNING, "trim_waits",
              "--trim acked removes nothing from streams that have no consumer group, or lack one of --ensure-group",
              LOG_INT("streams", trimmer->waits.streams_n), LOG_STR("stream", trimmer->waits.stream));
  }
  trimmer->waits = (struct gathered){0};
}

static void warn_failed(struct trimmer *trimmer, int lane, const struct err *err) {
  int64_t held_back;
  if (strcmp(err->code, "stopped") != 0 && log_limit_pass(&trimmer->failed_limit, &held_back)) {
    log_event(LOG_WARNING, "trim_failed", "streams could not be trimmed; it is tried again", LOG_INT("lane", lane),
              LOG_STR("code", err->code), LOG_STR("error", err->text), LOG_INT("held_back", held_back));
  }
}

/* -------------------------------------------------------------------------------------------------- one step */

static void pause_us(const struct trimmer *trimmer, int64_t us) {
  struct pollfd fd = {.fd = stop_fd(trimmer->stop), .events = POLLIN};
  if (us > 0) {
    (void)poll(&fd, 1, (int)((us + 999) / 1000));
  }
}

/* Sends what is in the pipeline, then lets the others have Redis for a while. */
static int exchange(struct trimmer *trimmer, struct err *err) {
  int64_t began_us = clock_now_us();
  const struct net_wait wait = {.deadline_us = began_us + trimmer->cfg->redis_timeout_ms * 1000,
                                .stops = {trimmer->stop, NULL}};
  if (!redis_is_open(trimmer->redis) && redis_open(trimmer->redis, &wait, err) != 0) {
    return -1;
  }
  began_us = clock_now_us();
  if (redis_exchange(trimmer->redis, trimmer->pipeline, &wait, err) != 0) {
    return -1;
  }
  int64_t rest_us = (clock_now_us() - began_us) * (SHARE - 1);
  pause_us(trimmer, rest_us < PAUSE_MAX_US ? rest_us : PAUSE_MAX_US);
  return 0;
}

static int append_text(struct trimmer *trimmer, const char *text, struct err *err) {
  return redis_pipeline_arg(trimmer->pipeline, text, strlen(text), err);
}

/* The key of the lane's index, in trimmer->key. */
static int render_index(struct trimmer *trimmer, int lane, struct err *err) {
  size_t bytes = template_index_key(trimmer->template, lane, NULL, 0);
  buf_reset(&trimmer->key);
  if (buf_reserve(&trimmer->key, bytes, err) != 0) {
    return -1;
  }
  trimmer->key.len = template_index_key(trimmer->template, lane, trimmer->key.data, bytes);
  return 0;
}

/* The first call of a pipeline brings the script along, the others find it loaded. */
static int append_call(struct trimmer *trimmer, int name, struct err *err) {
  struct redis_pipeline *pipeline = trimmer->pipeline;
  const struct option_list *groups = &trimmer->cfg->ensure_groups;
  bool is_first = redis_pipeline_n(pipeline) == 0;
  int keys_n = trimmer->has_index ? 2 : 1;
  size_t bytes;
  const char *stream = keyset_get(&trimmer->names, name, &bytes);
  if (redis_pipeline_begin(pipeline, 3 + keys_n + 3 + groups->n, err) != 0 ||
      append_text(trimmer, is_first ? "EVAL" : "EVALSHA", err) != 0 ||
      redis_pipeline_arg(pipeline, is_first ? embed_trim_lua : trimmer->sha,
                         is_first ? embed_trim_lua_bytes : strlen(trimmer->sha), err) != 0 ||
      redis_pipeline_arg_int(pipeline, keys_n, err) != 0 || redis_pipeline_arg(pipeline, stream, bytes, err) != 0 ||
      (trimmer->has_index && redis_pipeline_arg(pipeline, trimmer->key.data, trimmer->key.len, err) != 0) ||
      append_text(trimmer, trim_mode_name(trimmer->rule->mode), err) != 0 ||
      append_text(trimmer, trimmer->value, err) != 0 || append_text(trimmer, STEP_ENTRIES, err) != 0) {
    return -1;
  }
  for (int i = 0; i < groups->n; i++) {
    if (append_text(trimmer, groups->values[i], err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Enters what the script did with a stream; true when there may be more to do. */
static bool read_reply(struct trimmer *trimmer, int lane, int name, const struct redis_reply *reply) {
  struct err err = ERR_INIT;
  size_t bytes;
  size_t state_bytes = 0;
  const char *stream = keyset_get(&trimmer->names, name, &bytes);
  if (redis_reply_is_error(reply, NULL, &err)) {
    (void)err_wrap(&err, "stream %.*s", (int)(bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES), stream);
    warn_failed(trimmer, lane, &err);
    return false;
  }
  if (redis_reply_n(reply) < 4) {
    return false;
  }
  int64_t removed_n = redis_reply_int(redis_reply_at(reply, 0));
  int64_t unread_n = redis_reply_int(redis_reply_at(reply, 1));
  const char *state = redis_reply_text(redis_reply_at(reply, 3), &state_bytes);
  (void)atomic_fetch_add(&trimmer->trimmed_n, removed_n);
  (void)atomic_fetch_add(&trimmer->trimmed_unread_n, unread_n);
  if (unread_n > 0) {
    gather(&trimmer->unread, stream, bytes, unread_n);
  }
  if (trimmer->rule->mode == TRIM_ACKED && strcmp(state, "waits") == 0) {
    gather(&trimmer->waits, stream, bytes, 0);
  }
  return redis_reply_int(redis_reply_at(reply, 2)) != 0;
}

/* Trims the streams in trimmer->names as far as it goes: a call for each, then again for those that have more. */
static int trim_names(struct trimmer *trimmer, int lane, struct err *err) {
  int n = trimmer->names.n;
  int *left = calloc((size_t)n + 1, sizeof *left);
  int rc = -1;
  if (left == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "trimming");
  }
  for (int i = 0; i < n; i++) {
    left[i] = i;
  }
  while (n > 0 && !stop_is_set(trimmer->stop)) {
    redis_pipeline_reset(trimmer->pipeline, 0);
    for (int i = 0; i < n; i++) {
      if (append_call(trimmer, left[i], err) != 0) {
        goto out;
      }
    }
    if (exchange(trimmer, err) != 0) {
      goto out;
    }
    int more_n = 0;
    for (int i = 0; i < n; i++) {
      if (read_reply(trimmer, lane, left[i], redis_pipeline_reply(trimmer->pipeline, i))) {
        left[more_n++] = left[i];
      }
    }
    n = more_n;
    warn_unread(trimmer, false);
  }
  rc = 0;
out:
  free(left);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- lanes */

static int trim_lane(struct trimmer *trimmer, int lane, struct err *err) {
  const struct template_values values = {.lane = lane};
  int number;
  size_t bytes = template_render(trimmer->template, &values, NULL, 0);
  buf_reset(&trimmer->key);
  keyset_reset(&trimmer->names);
  if (buf_reserve(&trimmer->key, bytes, err) != 0) {
    return -1;
  }
  (void)template_render(trimmer->template, &values, trimmer->key.data, bytes);
  if (keyset_add(&trimmer->names, trimmer->key.data, bytes, &number, err) != 0) {
    return -1;
  }
  return trim_names(trimmer, lane, err);
}

/* One step of ZSCAN: its names into trimmer->names, where to go on into cursor. */
static int scan_index(struct trimmer *trimmer, char *cursor, size_t cursor_size, struct err *err) {
  struct redis_pipeline *pipeline = trimmer->pipeline;
  size_t bytes;
  int number;
  redis_pipeline_reset(pipeline, 0);
  keyset_reset(&trimmer->names);
  if (redis_pipeline_begin(pipeline, 5, err) != 0 || append_text(trimmer, "ZSCAN", err) != 0 ||
      redis_pipeline_arg(pipeline, trimmer->key.data, trimmer->key.len, err) != 0 ||
      append_text(trimmer, cursor, err) != 0 || append_text(trimmer, "COUNT", err) != 0 ||
      append_text(trimmer, SCAN_NAMES, err) != 0 || exchange(trimmer, err) != 0) {
    return -1;
  }
  const struct redis_reply *reply = redis_pipeline_reply(pipeline, 0);
  if (redis_reply_is_error(reply, NULL, err)) {
    return err_wrap(err, "the index of stream names %.*s",
                    (int)(trimmer->key.len < SHOWN_BYTES ? trimmer->key.len : SHOWN_BYTES), trimmer->key.data);
  }
  if (redis_reply_n(reply) != 2) {
    return err_set(err, ERR_RETRY, "EPROTO", "ZSCAN answered something else than a cursor and names");
  }
  (void)snprintf(cursor, cursor_size, "%s", redis_reply_text(redis_reply_at(reply, 0), &bytes));
  const struct redis_reply *pairs = redis_reply_at(reply, 1);
  for (size_t i = 0; i + 1 < redis_reply_n(pairs); i += 2) {
    const char *name = redis_reply_text(redis_reply_at(pairs, i), &bytes);
    if (keyset_add(&trimmer->names, name, bytes, &number, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static bool has_lane(const struct trimmer *trimmer, int lane) {
  return publisher_has_lane(trimmer->publishers[lane % trimmer->cfg->publishers_n], lane);
}

static int walk_index(struct trimmer *trimmer, int lane, struct err *err) {
  char cursor[32] = "0";
  if (render_index(trimmer, lane, err) != 0) {
    return -1;
  }
  do {
    if (scan_index(trimmer, cursor, sizeof cursor, err) != 0 || trim_names(trimmer, lane, err) != 0) {
      return -1;
    }
  } while (strcmp(cursor, "0") != 0 && !stop_is_set(trimmer->stop) && has_lane(trimmer, lane));
  return 0;
}

static void walk_lanes(struct trimmer *trimmer) {
  for (int lane = 0; lane < trimmer->cfg->lanes_n && !stop_is_set(trimmer->stop); lane++) {
    struct err err = ERR_INIT;
    if (!has_lane(trimmer, lane)) {
      continue;
    }
    int rc = trimmer->has_index ? walk_index(trimmer, lane, &err) : trim_lane(trimmer, lane, &err);
    if (rc != 0) {
      warn_failed(trimmer, lane, &err);
    }
    if (rc != 0 && !redis_is_open(trimmer->redis)) {
      return; /* the other lanes would fare no better */
    }
  }
}

/* -------------------------------------------------------------------------------------------------- the thread */

static void *trimmer_main(void *arg) {
  struct trimmer *trimmer = arg;
  while (!stop_is_set(trimmer->stop)) {
    int64_t began_us = clock_now_us();
    walk_lanes(trimmer);
    warn_waits(trimmer);
    pause_us(trimmer, began_us + trimmer->cfg->trim_every_ms * 1000 - clock_now_us());
  }
  warn_unread(trimmer, true);
  return NULL;
}

static void free_trimmer(struct trimmer *trimmer) {
  redis_pipeline_free(trimmer->pipeline);
  redis_free(trimmer->redis);
  keyset_free(&trimmer->names);
  buf_free(&trimmer->key);
  free(trimmer);
}

int trimmer_start(const struct cfg *cfg, const struct url *url, const struct template *template,
                  const struct trim_rule *rule, struct publisher *const *publishers, const struct stop *stop,
                  struct trimmer **out, struct err *err) {
  *out = NULL;
  if (rule->mode == TRIM_NOTHING && template_is_per_lane(template)) {
    return 0;
  }
  struct trimmer *trimmer = calloc(1, sizeof *trimmer);
  if (trimmer == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "trimmer");
  }
  trimmer->cfg = cfg;
  trimmer->template = template;
  trimmer->rule = rule;
  trimmer->publishers = publishers;
  trimmer->stop = stop;
  trimmer->has_index = !template_is_per_lane(template);
  trimmer->names = (struct keyset)KEYSET_INIT;
  trimmer->unread_limit.interval_us = WARN_US;
  trimmer->failed_limit.interval_us = WARN_US;
  trimmer->waits_limit.interval_us = WAITS_US;
  sha1_hex(embed_trim_lua, embed_trim_lua_bytes, trimmer->sha);
  (void)snprintf(trimmer->value, sizeof trimmer->value, "%lld", (long long)rule->value);
  if (redis_new(url, cfg->redis_timeout_ms, &trimmer->redis, err) != 0 ||
      redis_pipeline_new(&trimmer->pipeline, err) != 0) {
    free_trimmer(trimmer);
    return -1;
  }
  int errnum = pthread_create(&trimmer->thread, NULL, trimmer_main, trimmer);
  if (errnum != 0) {
    free_trimmer(trimmer);
    return err_errno(err, ERR_RETRY, errnum, "trimmer");
  }
  (void)pthread_setname_np(trimmer->thread, "trimmer");
  *out = trimmer;
  return 0;
}

void trimmer_stop(struct trimmer *trimmer) {
  if (trimmer != NULL) {
    (void)pthread_join(trimmer->thread, NULL);
    free_trimmer(trimmer);
  }
}

void trimmer_read_stats(const struct trimmer *trimmer, struct trimmer_stats *out) {
  *out = (struct trimmer_stats){0};
  if (trimmer != NULL) {
    out->trimmed_n = atomic_load(&trimmer->trimmed_n);
    out->trimmed_unread_n = atomic_load(&trimmer->trimmed_unread_n);
  }
}
