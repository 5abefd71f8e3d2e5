/*
 * `outboxd replay`, writing: the batch's messages in id order, a script call for some hundred of them.
 *
 * Owns nothing of its own: the connection is struct replay's.  Main thread.
 * Never: counts a message that Redis has not confirmed; sends a call again, for nobody knows what became of the first one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_replay_impl.h"
#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/redis_error.h"
#include "outboxd/round.h"

#define CALL_MESSAGES_MAX 500 /* Redis does nothing else meanwhile: some milliseconds */
#define CALLS_PER_S 10        /* with a low --rate: fewer messages a call, so that they flow evenly */
#define US_PER_S 1000000
#define US_PER_MS INT64_C(1000)
#define SLOW_BYTES_PER_US 10 /* a huge message gets more time, as if the network carried only this much */
#define NOTE_MS INT64_C(200)

void replay_note(struct replay *replay) {
  progress_note(&replay->progress, replay->published_n + replay->discarded_n + replay->unnamed_n + replay->gone_n,
                replay->total_n, clock_now_us());
}

/* -------------------------------------------------------------------------------------------------- whose streams */

/* Where relays keep what their fleet runs with: beside their streams. */
static int check_record(struct replay *replay, struct err *err) {
  const struct redis_reply *reply = redis_pipeline_reply(replay->pipeline, 0);
  if (redis_reply_is_error(reply, NULL, err)) {
    err->class = ERR_FATAL;
    return err_wrap(
        err,
        "cannot ask Redis whether the streams %s are a relay's (scripts/redis-user.sh --stream '%s' makes a "
        "user with the permissions this takes)",
        replay->cfg->replay_stream, replay->cfg->replay_stream);
  }
  bool is_relays = redis_reply_kind(reply) != REDIS_NIL || strcmp(replay->cfg->replay_stream, replay->cfg->stream) == 0;
  if (is_relays && !replay->cfg->is_into_relay) {
    return err_set(
        err, ERR_USAGE, "usage",
        "the prefix of --stream %s is a relay's, and its consumers would see these events again; choose another "
        "one, such as replay:{%%l}, or add --into-relay-streams if that is what you want",
        replay->cfg->replay_stream);
  }
  return 0;
}

int replay_open(struct replay *replay, struct err *err) {
  char *key = NULL;
  size_t bytes = template_lanes_key(replay->template, NULL, 0);
  const struct net_wait wait = {.deadline_us = clock_now_us() + replay->cfg->redis_timeout_ms * US_PER_MS,
                                .stops = {replay->stop, NULL}};
  int rc = -1;
  if (redis_new(&replay->url, replay->cfg->redis_timeout_ms, &replay->redis, err) != 0 ||
      redis_pipeline_new(&replay->pipeline, err) != 0) {
    return -1;
  }
  if (redis_open(replay->redis, &wait, err) != 0) {
    return err_wrap(err, "cannot connect to Redis");
  }
  key = calloc(1, bytes + 1);
  if (key == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "a key's name");
  }
  (void)template_lanes_key(replay->template, key, bytes);
  if (redis_pipeline_command(replay->pipeline, err, "GET", key, NULL) == 0 &&
      redis_exchange(replay->redis, replay->pipeline, &wait, err) == 0) {
    rc = check_record(replay, err);
  }
  free(key);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- one call */

/* The batch's messages are grouped by lane; in id order they are in the order of their rows. */
static int take_items(struct replay *replay, const struct batch *batch, struct err *err) {
  if (batch->n > replay->items_size) {
    struct replay_item *grown = realloc(replay->items, (size_t)batch->n * sizeof *grown);
    if (grown == NULL) {
      return err_errno(err, ERR_RETRY, ENOMEM, "write");
    }
    replay->items = grown;
    replay->items_size = batch->n;
  }
  for (int i = 0; i < batch->n; i++) {
    replay->items[batch->msgs[i].row].msg = &batch->msgs[i];
  }
  return 0;
}

static int calls_messages_max(const struct replay *replay) {
  int even_n = replay->cfg->rate_n / CALLS_PER_S;
  if (replay->cfg->rate_n == 0 || even_n > CALL_MESSAGES_MAX) {
    return CALL_MESSAGES_MAX;
  }
  return even_n > 0 ? even_n : 1;
}

/* How many messages from items[first] on go into one call: numbers their streams, adds up their bytes. */
static int choose(struct replay *replay, const struct batch *batch, int first, int *n, int64_t *bytes,
                  struct err *err) {
  int max = calls_messages_max(replay);
  *n = 0;
  *bytes = 0;
  keyset_reset(&replay->streams);
  for (int i = first; i < batch->n && *n < max; i++, ++*n) {
    struct replay_item *item = &replay->items[i];
    size_t stream_bytes = 0;
    int64_t more = item->msg->bytes;
    if ((uint64_t)more > ROUND_VALUE_BYTES_MAX) {
      return err_set(err, ERR_FATAL, "too_large",
                     "message %lld has %lld bytes; Redis takes at most 512 MiB (proto-max-bulk-len)",
                     (long long)item->msg->id, (long long)more);
    }
    if (*n > 0 && *bytes + more > replay->cfg->max_write_bytes) {
      break;
    }
    *bytes += more;
    if (entry_stream(replay->template, batch, item->msg, &replay->stream, &stream_bytes, err) != 0 ||
        keyset_add(&replay->streams, replay->stream.data, stream_bytes, &item->stream, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int build_call(struct replay *replay, const struct batch *batch, int first, int n, struct err *err) {
  struct redis_pipeline *pipeline = replay->pipeline;
  bool is_many = replay->streams.n > 1;
  int fields_n = entry_fields_n(batch);
  redis_pipeline_reset(pipeline, (size_t)replay->cfg->max_write_bytes * 4);
  if (redis_pipeline_begin(pipeline, 3 + replay->streams.n + 2 + n * (fields_n + (is_many ? 1 : 0)), err) != 0 ||
      redis_pipeline_arg(pipeline, "EVAL", 4, err) != 0 ||
      redis_pipeline_arg(pipeline, embed_replay_lua, embed_replay_lua_bytes, err) != 0 ||
      redis_pipeline_arg_int(pipeline, replay->streams.n, err) != 0) {
    return -1;
  }
  for (int i = 0; i < replay->streams.n; i++) {
    size_t bytes = 0;
    const char *stream = keyset_get(&replay->streams, i, &bytes);
    if (redis_pipeline_arg(pipeline, stream, bytes, err) != 0) {
      return -1;
    }
  }
  if (redis_pipeline_arg_int(pipeline, n, err) != 0 || redis_pipeline_arg_int(pipeline, fields_n, err) != 0) {
    return -1;
  }
  for (int i = first; i < first + n; i++) {
    if ((is_many && redis_pipeline_arg_int(pipeline, replay->items[i].stream + 1, err) != 0) ||
        entry_append(pipeline, &replay->day, batch, replay->items[i].msg, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static void confirm(struct replay *replay, int first, int n) {
  if (n > 0) {
    replay->first_id = replay->published_n == 0 ? replay->items[first].msg->id : replay->first_id;
    replay->last_id = replay->items[first + n - 1].msg->id;
    replay->published_n += n;
  }
}

/* A message that was refused: nothing behind it was added. */
static int tell_refused(const struct replay *replay, int at, const struct redis_reply *error, struct err *err) {
  size_t bytes = 0;
  size_t stream_bytes = 0;
  const char *text = redis_reply_text(error, &bytes); /* a string: the script's word for what XADD said */
  const char *stream = keyset_get(&replay->streams, replay->items[at].stream, &stream_bytes);
  (void)redis_error_classify(text, bytes, err);
  return err_wrap(err, "Redis refuses message %lld for stream %.*s", (long long)replay->items[at].msg->id,
                  stream_bytes < 200 ? (int)stream_bytes : 200, stream);
}

static int read_reply(struct replay *replay, int first, int n, struct err *err) {
  const struct redis_reply *reply = redis_pipeline_reply(replay->pipeline, 0);
  if (redis_reply_is_error(reply, NULL, err)) {
    return err_wrap(err, "Redis refuses the messages from %lld on", (long long)replay->items[first].msg->id);
  }
  int64_t added_n = redis_reply_n(reply) > 0 ? redis_reply_int(redis_reply_at(reply, 0)) : -1;
  bool is_refused = redis_reply_n(reply) > 1;
  if (added_n < 0 || added_n > n || (added_n < n) != is_refused) {
    return err_set(err, ERR_RETRY, "EPROTO", "Redis answered with something that is not the script's reply");
  }
  confirm(replay, first, (int)added_n);
  return is_refused ? tell_refused(replay, first + (int)added_n, redis_reply_at(reply, 1), err) : 0;
}

/* -------------------------------------------------------------------------------------------------- all of them */

/* Until another call may go by --rate. */
static int pace(struct replay *replay, struct err *err) {
  int64_t due_us = replay->began_us;
  if (replay->cfg->rate_n > 0) {
    due_us += (int64_t)((double)replay->published_n * US_PER_S / replay->cfg->rate_n);
  }
  for (int64_t now_us = clock_now_us(); now_us < due_us && !stop_is_set(replay->stop); now_us = clock_now_us()) {
    int64_t until_us = due_us - now_us < NOTE_MS * US_PER_MS ? due_us : now_us + NOTE_MS * US_PER_MS;
    const struct net_wait wait = {.deadline_us = until_us, .stops = {replay->stop, NULL}};
    struct err ignored = ERR_INIT;
    (void)!net_poll(-1, 0, &wait, &ignored);
    replay_note(replay);
  }
  return stop_is_set(replay->stop) ? err_set(err, ERR_RETRY, "stopped", "stopped by a signal") : 0;
}

/* A signal does not cut a call short: what became of it would not be known. */
static int send_call(struct replay *replay, int first, int n, int64_t bytes, struct err *err) {
  int64_t extra_us = bytes > replay->cfg->max_write_bytes ? bytes / SLOW_BYTES_PER_US : 0;
  const struct net_wait wait = {.deadline_us = clock_now_us() + replay->cfg->redis_timeout_ms * US_PER_MS + extra_us};
  if (redis_exchange(replay->redis, replay->pipeline, &wait, err) != 0) {
    replay->has_doubt = true;
    replay->doubt_from_id = replay->items[first].msg->id;
    replay->doubt_to_id = replay->items[first + n - 1].msg->id;
    return -1;
  }
  return read_reply(replay, first, n, err);
}

int replay_write(struct replay *replay, const struct batch *batch, struct err *err) {
  int n = 0;
  replay->began_us = replay->began_us == 0 ? clock_now_us() : replay->began_us;
  if (take_items(replay, batch, err) != 0) {
    return -1;
  }
  for (int first = 0; first < batch->n; first += n) {
    int64_t bytes = 0;
    if (pace(replay, err) != 0 || choose(replay, batch, first, &n, &bytes, err) != 0 ||
        build_call(replay, batch, first, n, err) != 0 || send_call(replay, first, n, bytes, err) != 0) {
      return -1;
    }
    replay_note(replay);
  }
  return 0;
}
