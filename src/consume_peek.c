/*
 * outbox-consume --print.
 *
 * Owns a connection to Redis for the time of a call.  Main thread.  Never writes to Redis.
 */
#include "outboxd/consume_peek.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/consume_impl.h"
#include "outboxd/exec_line.h"

#define PAGE "100"

struct peek {
  struct consume_shared shared;
  struct consume_worker worker; /* for its connection alone */
  int64_t printed_n;
  struct buf line;
};

static bool is_enough(const struct peek *peek) {
  return peek->worker.cfg->limit_n > 0 && peek->printed_n >= peek->worker.cfg->limit_n;
}

static int print_entry(struct peek *peek, int lane, const char *stream, const char *id,
                       const struct redis_reply *fields, struct err *err) {
  struct outbox_message message;
  json_t *json = NULL;
  int rc = 0;
  if (consume_parse(fields, &message, &json, err) != 0) {
    (void)fprintf(stderr, "outbox-consume: %s %s: %s\n", stream, id, err->text);
    goto out;
  }
  message.lane = lane;
  message.stream = stream;
  message.entry_id = id;
  buf_reset(&peek->line);
  rc = exec_line_write(&peek->line, &message, true, err);
  if (rc == 0 && fwrite(peek->line.data, 1, peek->line.len, stdout) != peek->line.len) {
    rc = err_set(err, ERR_FATAL, "stdout", "cannot write to the standard output");
  }
  peek->printed_n++;
out:
  json_decref(json);
  return rc;
}

static int print_stream(struct peek *peek, int lane, const char *stream, struct err *err) {
  char from[CONSUME_ENTRY_ID_BYTES + 1] = "-";
  while (!is_enough(peek)) {
    const struct redis_reply *page =
        consume_command(&peek->worker, err, "XRANGE", stream, from, "+", "COUNT", PAGE, NULL);
    if (page == NULL) {
      return err_wrap(err, "%.200s", stream);
    }
    size_t n = redis_reply_n(page);
    for (size_t i = 0; i < n && !is_enough(peek); i++) {
      const struct redis_reply *entry = redis_reply_at(page, i);
      if (!consume_copy(redis_reply_at(entry, 0), from + 1, sizeof from - 1) ||
          print_entry(peek, lane, stream, from + 1, redis_reply_at(entry, 1), err) != 0) {
        return -1;
      }
    }
    if (n == 0) {
      return 0;
    }
    from[0] = '('; /* behind it */
  }
  return 0;
}

/* The streams of the lane's index, by the time of their last entries. */
static int print_indexed(struct peek *peek, const struct consume_lane *lane, struct err *err) {
  int rc = -1;
  int n = 0;
  char **names = NULL;
  const struct redis_reply *reply = consume_command(&peek->worker, err, "ZRANGE", lane->index_key, "0", "-1", NULL);
  if (reply == NULL) {
    return err_wrap(err, "%.200s", lane->index_key);
  }
  names = calloc(redis_reply_n(reply) + 1, sizeof *names);
  for (size_t i = 0; names != NULL && i < redis_reply_n(reply); i++) {
    size_t bytes;
    names[n] = strdup(redis_reply_text(redis_reply_at(reply, i), &bytes));
    if (names[n] == NULL) {
      (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for names of streams");
      goto out;
    }
    n++;
  }
  for (int i = 0; i < n && !is_enough(peek); i++) {
    if (print_stream(peek, lane->number, names[i], err) != 0) {
      goto out;
    }
  }
  rc = 0;
out:
  for (int i = 0; i < n; i++) {
    free(names[i]);
  }
  free(names);
  return rc;
}

static int print_lanes(struct peek *peek, struct err *err) {
  for (int i = 0; i < peek->worker.cfg->lanes_n && !is_enough(peek); i++) {
    struct consume_lane *lane = NULL;
    if (lane_new(&peek->worker, i, &lane, err) != 0) {
      return -1;
    }
    int rc = lane->stream != NULL ? print_stream(peek, i, lane->stream, err) : print_indexed(peek, lane, err);
    lane_free(&peek->worker, lane);
    if (rc != 0) {
      return -1;
    }
  }
  return 0;
}

int consume_peek(const struct consume_cfg *cfg, struct err *err) {
  struct consume_cfg own = *cfg;
  char group[] = "";
  int rc = -1;
  own.group = cfg->group != NULL ? cfg->group : group;
  struct peek peek = {.line = BUF_INIT};
  peek.shared.cfg = &own;
  if (stop_new(&peek.shared.drain, err) != 0 || stop_new(&peek.shared.abort, err) != 0 ||
      template_parse(cfg->stream, &peek.shared.template, err) != 0 ||
      url_parse(cfg->redis, &peek.shared.url, err) != 0) {
    goto out;
  }
  peek.worker = (struct consume_worker){.shared = &peek.shared, .cfg = &own};
  if (redis_new(&peek.shared.url, own.redis_timeout_ms, &peek.worker.redis, err) != 0 ||
      redis_pipeline_new(&peek.worker.call, err) != 0 || consume_redis_open(&peek.worker, err) != 0) {
    goto out;
  }
  rc = print_lanes(&peek, err);
out:
  redis_free(peek.worker.redis);
  redis_pipeline_free(peek.worker.call);
  template_free(peek.shared.template);
  url_fini(&peek.shared.url);
  stop_free(peek.shared.drain);
  stop_free(peek.shared.abort);
  buf_free(&peek.line);
  return rc;
}
