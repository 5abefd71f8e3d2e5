/*
 * Where a lane's entries come from: first what was pending when the lane was taken over, in the order of its ids, then what is new.
 *
 * Owns the lane's page of stream names and its batch.  Runs on the lane's worker's thread.  A lane of one stream has a page of one name for ever; a lane
 * of many finds their names in the relay's index, by the time of their last entries (docs/consuming.md "How it works").
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/consume_impl.h"
#include "outboxd/log.h"
#include "outboxd/redis_error.h"

#define PAGE_N 200    /* names of streams; more where so many have their last entry in one millisecond */
#define STREAMS_N 50  /* of one call of the script */
#define PENDING_N 100 /* ids asked for at a time and stream */
#define RESCAN_US INT64_C(600000000)

static struct log_limit unreadable_limit = {.interval_us = 10000000};
static struct log_limit fenced_limit = {.interval_us = 1000000};

/* -------------------------------------------------------------------------------------------------- the page */

static void clear_page(struct consume_page *page) {
  for (int i = 0; i < page->n; i++) {
    free(page->names[i]);
  }
  free(page->names);
  *page = (struct consume_page){0};
}

static int fill_page(struct consume_page *page, const struct redis_reply *names, size_t step, struct err *err) {
  size_t n = redis_reply_n(names) / step;
  clear_page(page);
  page->names = calloc(n + 1, sizeof *page->names);
  if (page->names == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for names of streams");
  }
  for (size_t i = 0; i < n; i++) {
    size_t bytes;
    page->names[i] = strdup(redis_reply_text(redis_reply_at(names, i * step), &bytes));
    if (page->names[i] == NULL) {
      return err_set(err, ERR_RETRY, "ENOMEM", "no memory for names of streams");
    }
    page->n++;
  }
  return 0;
}

/* The next names from the index: on from where the last page ended, and from the beginning now and then, since a clock of Redis that was set back gives
 * later entries earlier times. */
static enum consume_result page_of_index(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  int64_t now_us = clock_now_us();
  char from[24];
  char limit[16];
  if (!lane->is_scanning && now_us < lane->poll_due_us) {
    return CONSUME_NOTHING;
  }
  if (!lane->is_scanning && now_us >= lane->rescan_due_us) {
    lane->rescan_due_us = now_us + RESCAN_US;
    lane->score_from = 0;
  }
  const struct redis_reply *time = consume_command(worker, err, "TIME", NULL);
  if (time == NULL) {
    return CONSUME_LOST;
  }
  size_t bytes;
  int64_t redis_ms = 0;
  if (redis_reply_n(time) == 2) {
    redis_ms = strtoll(redis_reply_text(redis_reply_at(time, 0), &bytes), NULL, 10) * 1000 +
               strtoll(redis_reply_text(redis_reply_at(time, 1), &bytes), NULL, 10) / 1000;
  }
  if (!lane->is_scanning && redis_ms < lane->score_from) {
    lane->score_from = redis_ms;
  }
  (void)snprintf(from, sizeof from, "%lld", (long long)lane->score_from);
  (void)snprintf(limit, sizeof limit, "%d", lane->page_limit);
  const struct redis_reply *reply = consume_command(worker, err, "ZRANGEBYSCORE", lane->index_key, from, "+inf",
                                                    "WITHSCORES", "LIMIT", "0", limit, NULL);
  if (reply == NULL || fill_page(&lane->page, reply, 2, err) != 0) {
    return CONSUME_LOST;
  }
  lane->page.is_asked = !lane->is_scanning;
  if (lane->page.n < lane->page_limit) {
    /* Up to date: the scan is over when this page is. */
    lane->is_scanning = false;
    lane->poll_due_us = clock_now_us() + worker->cfg->poll_interval_ms * 1000;
  }
  if (lane->page.n == 0) {
    return CONSUME_NOTHING;
  }
  size_t last_bytes;
  int64_t last = (int64_t)strtod(redis_reply_text(redis_reply_at(reply, redis_reply_n(reply) - 1), &last_bytes), NULL);
  lane->page_limit = lane->page.n == lane->page_limit && last == lane->score_from ? lane->page_limit * 2 : PAGE_N;
  lane->score_from = last;
  return CONSUME_OK;
}

static enum consume_result next_page(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  if (lane->stream == NULL) {
    return page_of_index(worker, lane, err);
  }
  if (lane->page.n == 0) {
    lane->page.names = calloc(1, sizeof *lane->page.names);
    if (lane->page.names == NULL || (lane->page.names[0] = strdup(lane->stream)) == NULL) {
      (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for names of streams");
      return CONSUME_LOST;
    }
    lane->page.n = 1;
  }
  if (lane->is_drained) {
    return CONSUME_NOTHING;
  }
  lane->page.at = 0;
  return CONSUME_OK;
}

/* -------------------------------------------------------------------------------------------------- what is pending */

static int append_pending(struct consume_worker *worker, const char *stream, const char *after, struct err *err) {
  char from[CONSUME_ENTRY_ID_BYTES + 1];
  char n[8];
  (void)snprintf(from, sizeof from, "%s%s", after[0] != '\0' ? "(" : "-", after);
  (void)snprintf(n, sizeof n, "%d", PENDING_N);
  return redis_pipeline_command(worker->call, err, "XPENDING", stream, worker->cfg->group, from, "+", n, NULL);
}

/* Takes the ids of one stream's reply; *is_full: there may be more behind *last. */
static int take_pending(struct consume_lane *lane, const char *stream, const struct redis_reply *reply, bool *is_full,
                        char last[CONSUME_ENTRY_ID_BYTES], struct err *err) {
  unsigned effects = 0;
  *is_full = false;
  if (redis_reply_is_error(reply, &effects, err)) {
    /* No group yet, or no stream: nothing can be pending. */
    return strcmp(err->code, "NOGROUP") == 0 || strcmp(err->code, "WRONGTYPE") == 0 ? 0 : -1;
  }
  for (size_t i = 0; i < redis_reply_n(reply); i++) {
    const struct redis_reply *row = redis_reply_at(reply, i);
    int64_t deliveries = redis_reply_n(row) == 4 ? redis_reply_int(redis_reply_at(row, 3)) : 0;
    if (deliveries < 1 || !consume_copy(redis_reply_at(row, 0), last, CONSUME_ENTRY_ID_BYTES)) {
      return err_set(err, ERR_RETRY, "EPROTO", "XPENDING answered something that is not its form");
    }
    /* The first delivery is no failure; each attempt that failed is counted on top of it. */
    int failures = deliveries - 1 < 32767 ? (int)(deliveries - 1) : 32767;
    if (consume_push(&lane->inherited, stream, last, failures, true, err) != 0) {
      return -1;
    }
  }
  *is_full = redis_reply_n(reply) == PENDING_N;
  return 0;
}

/* Asks what is pending in the page's streams, whosever it was: the lane's lock is ours, so nobody is at work on it.  All streams in one exchange, then those that
 * have more, one by one. */
static int ask_pending(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  struct consume_page *page = &lane->page;
  char last[CONSUME_ENTRY_ID_BYTES] = "";
  int rc = -1;
  int *full = calloc((size_t)page->n, sizeof *full);
  char(*lasts)[CONSUME_ENTRY_ID_BYTES] = calloc((size_t)page->n, sizeof *lasts);
  if (full == NULL || lasts == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for what is pending");
    goto out;
  }
  redis_pipeline_reset(worker->call, CONSUME_BATCH_BYTES);
  for (int i = 0; i < page->n; i++) {
    if (append_pending(worker, page->names[i], "", err) != 0) {
      goto out;
    }
  }
  if (consume_exchange(worker, worker->call, err) != 0) {
    goto out;
  }
  for (int i = 0; i < page->n; i++) {
    bool is_full = false;
    if (take_pending(lane, page->names[i], redis_pipeline_reply(worker->call, i), &is_full, lasts[i], err) != 0) {
      goto out;
    }
    full[i] = is_full;
  }
  for (int i = 0; i < page->n; i++) {
    for (bool is_full = full[i] != 0; is_full;) {
      memcpy(last, lasts[i], sizeof last);
      redis_pipeline_reset(worker->call, CONSUME_BATCH_BYTES);
      if (append_pending(worker, page->names[i], last, err) != 0 || consume_exchange(worker, worker->call, err) != 0 ||
          take_pending(lane, page->names[i], redis_pipeline_reply(worker->call, 0), &is_full, lasts[i], err) != 0) {
        goto out;
      }
    }
  }
  page->is_asked = true;
  rc = 0;
out:
  free(full);
  free(lasts);
  return rc;
}

int read_fetch(struct consume_worker *worker, struct redis_pipeline *pipeline, const struct consume_queue *queue,
               int max, int *n, struct err *err) {
  *n = 0;
  redis_pipeline_reset(pipeline, CONSUME_BATCH_BYTES);
  for (const struct consume_item *item = queue->head; item != NULL && *n < max; item = item->next) {
    if (redis_pipeline_command(pipeline, err, "XRANGE", item->stream, item->id, item->id, NULL) != 0) {
      return -1;
    }
    (*n)++;
  }
  if (consume_exchange(worker, pipeline, err) != 0) {
    return -1;
  }
  for (int i = 0; i < *n; i++) {
    if (redis_reply_is_error(redis_pipeline_reply(pipeline, i), NULL, err)) {
      return -1;
    }
  }
  return 0;
}

const struct redis_reply *read_fields(const struct redis_reply *reply) {
  if (redis_reply_n(reply) != 1 || redis_reply_n(redis_reply_at(reply, 0)) != 2) {
    return NULL;
  }
  const struct redis_reply *fields = redis_reply_at(redis_reply_at(reply, 0), 1);
  return redis_reply_kind(fields) == REDIS_LIST ? fields : NULL;
}

/* -------------------------------------------------------------------------------------------------- the batch */

static int add_entry(struct consume_lane *lane, const struct consume_entry *entry, struct err *err) {
  if (lane->batch_n == lane->batch_size) {
    int size = lane->batch_size == 0 ? 128 : lane->batch_size * 2;
    struct consume_entry *grown = realloc(lane->batch, (size_t)size * sizeof *grown);
    if (grown == NULL) {
      return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a batch of entries");
    }
    lane->batch = grown;
    lane->batch_size = size;
  }
  lane->batch[lane->batch_n++] = *entry;
  return 0;
}

static void clear_batch(struct consume_lane *lane) {
  lane->batch_n = 0;
  lane->batch_at = 0;
  consume_empty(&lane->in_hand);
  redis_pipeline_reset(lane->in, CONSUME_BATCH_BYTES);
}

void read_clear(struct consume_lane *lane) {
  clear_batch(lane);
  clear_page(&lane->page);
  consume_empty(&lane->inherited);
}

/* The batch becomes what was inherited next. */
static enum consume_result read_inherited(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  int n = 0;
  if (read_fetch(worker, lane->in, &lane->inherited, lane->read_n < CONSUME_FETCH_N ? lane->read_n : CONSUME_FETCH_N,
                 &n, err) != 0) {
    return CONSUME_LOST;
  }
  for (int i = 0; i < n; i++) {
    /* From one queue to the other, which lives as long as the batch. */
    struct consume_item *item = lane->inherited.head;
    if (consume_push(&lane->in_hand, item->stream, item->id, item->failures, true, err) != 0) {
      return CONSUME_LOST;
    }
    consume_pop(&lane->inherited);
    item = lane->in_hand.tail;
    struct consume_entry entry = {.stream = item->stream,
                                  .id = item->id,
                                  .fields = read_fields(redis_pipeline_reply(lane->in, i)),
                                  .failures = item->failures,
                                  .is_inherited = true};
    if (add_entry(lane, &entry, err) != 0) {
      return CONSUME_LOST;
    }
  }
  return CONSUME_OK;
}

/* The entries of one stream, which the script has read; counts their bytes. */
static int take_entries(struct consume_lane *lane, const char *stream, const struct redis_reply *entries,
                        size_t *bytes_read, struct err *err) {
  for (size_t i = 0; i < redis_reply_n(entries); i++) {
    const struct redis_reply *row = redis_reply_at(entries, i);
    size_t bytes;
    struct consume_entry entry = {.stream = stream, .id = redis_reply_text(redis_reply_at(row, 0), &bytes)};
    const struct redis_reply *fields = redis_reply_n(row) == 2 ? redis_reply_at(row, 1) : NULL;
    entry.fields = fields != NULL && redis_reply_kind(fields) == REDIS_LIST ? fields : NULL;
    for (size_t k = 0; entry.fields != NULL && k < redis_reply_n(fields); k++) {
      (void)redis_reply_text(redis_reply_at(fields, k), &bytes);
      *bytes_read += bytes;
    }
    if (add_entry(lane, &entry, err) != 0) {
      return -1;
    }
    (void)snprintf(lane->last_id, sizeof lane->last_id, "%s", entry.id);
  }
  return 0;
}

static int on_stream_error(const struct consume_lane *lane, const char *stream, const struct redis_reply *reply,
                           struct err *err) {
  size_t bytes;
  int64_t held_back = 0;
  const char *text = redis_reply_text(reply, &bytes);
  (void)redis_error_classify(text, bytes, err);
  if (err->class == ERR_RETRY) {
    return -1;
  }
  if (log_limit_pass(&unreadable_limit, &held_back)) {
    log_event(LOG_ERROR, "stream_unreadable", "a stream cannot be read; the others of its lane are",
              LOG_INT("lane", lane->number), LOG_STR("stream", stream), LOG_STR("code", err->code),
              LOG_STR("error", err->text), LOG_INT("held_back", held_back));
  }
  return 0;
}

/* Reads the script's reply into the batch. */
static int take_read(struct consume_lane *lane, const struct redis_reply *reply, int streams_n, int read_max,
                     struct err *err) {
  size_t bytes = 0;
  size_t bytes_read = 0;
  int64_t looked_n = redis_reply_n(reply) >= 2 ? redis_reply_int(redis_reply_at(reply, 1)) : -1;
  if (looked_n < 0 || looked_n > streams_n) {
    return err_set(err, ERR_RETRY, "EPROTO", "the reading script answered something that is not its form");
  }
  lane->is_drained = lane->stream != NULL && looked_n == streams_n;
  for (size_t i = 2; i + 2 < redis_reply_n(reply); i += 3) {
    int64_t number = redis_reply_int(redis_reply_at(reply, i));
    const char *word = redis_reply_text(redis_reply_at(reply, i + 1), &bytes);
    const struct redis_reply *value = redis_reply_at(reply, i + 2);
    if (number < 0 || number >= streams_n) {
      return err_set(err, ERR_RETRY, "EPROTO", "the reading script answered something that is not its form");
    }
    const char *stream = lane->page.names[lane->page.at + number];
    if (strcmp(word, "GOT") == 0) {
      if (take_entries(lane, stream, value, &bytes_read, err) != 0) {
        return -1;
      }
    } else if (strcmp(word, "END") == 0) {
      (void)consume_copy(value, lane->last_id, sizeof lane->last_id);
    } else if (on_stream_error(lane, stream, value, err) != 0) {
      return -1;
    }
  }
  lane->page.at += (int)looked_n;
  /* Large entries are read a few at a time. */
  if (bytes_read > CONSUME_BATCH_BYTES && lane->read_n > 1) {
    lane->read_n /= 2;
  } else if (bytes_read < CONSUME_BATCH_BYTES / 4 && lane->read_n < read_max) {
    lane->read_n = lane->read_n * 2 < read_max ? lane->read_n * 2 : read_max;
  }
  return 0;
}

void read_fenced(const struct consume_lane *lane, struct err *err) {
  int64_t held_back = 0;
  if (log_limit_pass(&fenced_limit, &held_back)) {
    log_event(LOG_WARNING, "consumer_fenced", "another worker of the group has taken the lane over",
              LOG_INT("lane", lane->number), LOG_INT("held_back", held_back));
  }
  (void)err_set(err, ERR_RETRY, "fenced", "another worker of the group has taken lane %d over", lane->number);
}

/* Reads new entries of the page's next streams. */
static enum consume_result read_new(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  const struct consume_page *page = &lane->page;
  struct redis_pipeline *in = lane->in;
  bool has_index = lane->stream == NULL;
  int streams_n = page->n - page->at < STREAMS_N ? page->n - page->at : STREAMS_N;
  int keys_n = 1 + has_index + streams_n;
  const char *group = worker->cfg->group;
  redis_pipeline_reset(in, CONSUME_BATCH_BYTES);
  if (redis_pipeline_begin(in, 3 + keys_n + 5, err) != 0 || redis_pipeline_arg(in, "EVAL", 4, err) != 0 ||
      redis_pipeline_arg(in, embed_consume_read_lua, embed_consume_read_lua_bytes, err) != 0 ||
      redis_pipeline_arg_int(in, keys_n, err) != 0 ||
      redis_pipeline_arg(in, lane->owner_key, strlen(lane->owner_key), err) != 0 ||
      (has_index && redis_pipeline_arg(in, lane->index_key, strlen(lane->index_key), err) != 0)) {
    return CONSUME_LOST;
  }
  for (int i = 0; i < streams_n; i++) {
    const char *name = page->names[page->at + i];
    if (redis_pipeline_arg(in, name, strlen(name), err) != 0) {
      return CONSUME_LOST;
    }
  }
  if (redis_pipeline_arg(in, lane->token, strlen(lane->token), err) != 0 ||
      redis_pipeline_arg(in, group, strlen(group), err) != 0 ||
      redis_pipeline_arg(in, CONSUME_NAME, strlen(CONSUME_NAME), err) != 0 ||
      redis_pipeline_arg_int(in, lane->read_n, err) != 0 || redis_pipeline_arg_int(in, has_index, err) != 0 ||
      consume_exchange(worker, in, err) != 0) {
    return CONSUME_LOST;
  }
  const struct redis_reply *reply = redis_pipeline_reply(in, 0);
  if (redis_reply_is_error(reply, NULL, err)) {
    return CONSUME_LOST;
  }
  size_t bytes;
  const char *word = redis_reply_n(reply) > 0 ? redis_reply_text(redis_reply_at(reply, 0), &bytes) : "";
  if (strcmp(word, "FENCED") == 0) {
    read_fenced(lane, err);
    return CONSUME_LOST;
  }
  return take_read(lane, reply, streams_n, worker->cfg->batch_n, err) == 0 ? CONSUME_OK : CONSUME_LOST;
}

enum consume_result read_next(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  clear_batch(lane);
  while (lane->batch_n == 0) {
    enum consume_result result = CONSUME_OK;
    if (lane->inherited.head != NULL) {
      result = read_inherited(worker, lane, err);
    } else if (lane->page.at >= lane->page.n) {
      result = next_page(worker, lane, err);
    } else if (!lane->page.is_asked) {
      result = ask_pending(worker, lane, err) == 0 ? CONSUME_OK : CONSUME_LOST;
    } else if (lane->waiting_n >= worker->cfg->max_waiting_n) {
      result = CONSUME_NOTHING;
    } else {
      result = read_new(worker, lane, err);
    }
    if (result != CONSUME_OK) {
      return result;
    }
    if (stop_is_set(worker->shared->drain)) {
      return CONSUME_NOTHING;
    }
  }
  return CONSUME_OK;
}
