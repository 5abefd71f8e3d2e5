/*
 * A lane as its worker goes through it.
 *
 * Owns the lane's keys, what is in hand and what is to be acknowledged.  Runs on the lane's worker's thread.  The order of an aggregate rests on this: entries
 * come in the order of their ids, and one whose aggregate waits goes to the end of its queue.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/consume_impl.h"
#include "outboxd/log.h"

#define ACKS_N 200 /* acknowledgements that are sent at the latest together */
#define TAIL_BYTES 300

static struct log_limit failed_limit = {.interval_us = 1000000};
static struct log_limit lost_limit = {.interval_us = 1000000};
static struct log_limit full_limit = {.interval_us = 60000000};

/* -------------------------------------------------------------------------------------------------- life */

static char *lane_key(const struct template *template, int number, const char *tail, const char *group) {
  char text[TAIL_BYTES];
  (void)snprintf(text, sizeof text, "%s%s", tail, group);
  size_t n = template_lane_key(template, number, text, NULL, 0);
  char *key = calloc(1, n + 1);
  if (key != NULL) {
    (void)template_lane_key(template, number, text, key, n);
  }
  return key;
}

int lane_new(struct consume_worker *worker, int number, struct consume_lane **out, struct err *err) {
  const struct template *template = worker->shared->template;
  const char *group = worker->cfg->group;
  struct consume_lane *lane = calloc(1, sizeof *lane);
  *out = NULL;
  if (lane == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a lane");
  }
  lane->number = number;
  lane->owner_key = lane_key(template, number, "owner:", group);
  lane->index_key = lane_key(template, number, TEMPLATE_INDEX_TAIL, "");
  lane->parked_key = lane_key(template, number, "parked:", group);
  if (template_is_per_lane(template)) {
    const struct template_values values = {.lane = number};
    size_t n = template_render(template, &values, NULL, 0);
    lane->stream = calloc(1, n + 1);
    if (lane->stream != NULL) {
      (void)template_render(template, &values, lane->stream, n);
    }
  }
  if (lane->owner_key == NULL || lane->index_key == NULL || lane->parked_key == NULL ||
      (template_is_per_lane(template) && lane->stream == NULL)) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for a lane");
    goto fail;
  }
  if (redis_pipeline_new(&lane->in, err) != 0 || redis_pipeline_new(&lane->out, err) != 0) {
    goto fail;
  }
  lane_restart(worker, lane);
  *out = lane;
  return 0;
fail:
  lane_free(worker, lane);
  return -1;
}

void lane_restart(struct consume_worker *worker, struct consume_lane *lane) {
  atomic_fetch_sub(&worker->shared->waiting_n, lane->waiting_n);
  read_clear(lane);
  held_clear(lane);
  redis_pipeline_reset(lane->out, CONSUME_BATCH_BYTES);
  lane->is_begun = false;
  lane->is_scanning = true;
  lane->score_from = 0;
  lane->page_limit = 200;
  lane->poll_due_us = 0;
  lane->rescan_due_us = clock_now_us() + INT64_C(600000000);
  lane->is_drained = false;
  lane->last_id[0] = '\0';
  lane->read_n = worker->cfg->batch_n;
}

void lane_free(struct consume_worker *worker, struct consume_lane *lane) {
  if (lane == NULL) {
    return;
  }
  if (lane->in != NULL && lane->out != NULL) {
    lane_restart(worker, lane);
  }
  redis_pipeline_free(lane->in);
  redis_pipeline_free(lane->out);
  free(lane->batch);
  free(lane->owner_key);
  free(lane->index_key);
  free(lane->parked_key);
  free(lane->stream);
  free(lane);
}

/* -------------------------------------------------------------------------------------------------- acknowledging */

int lane_flush(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  if (redis_pipeline_n(lane->out) == 0) {
    return 0;
  }
  if (consume_exchange(worker, lane->out, err) != 0) {
    return -1;
  }
  for (int i = 0; i < redis_pipeline_n(lane->out); i++) {
    /* A group that was destroyed meanwhile is made anew by the next read, and its messages are found to be handled. */
    if (redis_reply_is_error(redis_pipeline_reply(lane->out, i), NULL, err) && err->class == ERR_RETRY) {
      return -1;
    }
  }
  redis_pipeline_reset(lane->out, CONSUME_BATCH_BYTES);
  return 0;
}

static enum consume_result acknowledge(struct consume_worker *worker, struct consume_lane *lane,
                                       const struct consume_entry *entry, struct err *err) {
  if (redis_pipeline_command(lane->out, err, "XACK", entry->stream, worker->cfg->group, entry->id, NULL) != 0) {
    return CONSUME_LOST;
  }
  return redis_pipeline_n(lane->out) < ACKS_N || lane_flush(worker, lane, err) == 0 ? CONSUME_OK : CONSUME_LOST;
}

enum consume_result lane_drop_lost(struct consume_worker *worker, struct consume_lane *lane,
                                   const struct consume_entry *entry, struct err *err) {
  int64_t held_back = 0;
  atomic_fetch_add(&worker->shared->lost_n, 1);
  if (log_limit_pass(&lost_limit, &held_back)) {
    log_event(LOG_ERROR, "entry_lost", "an entry was trimmed from its stream before the group had handled it",
              LOG_STR("group", worker->cfg->group), LOG_INT("lane", lane->number), LOG_STR("stream", entry->stream),
              LOG_STR("entry", entry->id), LOG_INT("held_back", held_back));
  }
  return acknowledge(worker, lane, entry, err);
}

enum consume_result lane_park(struct consume_worker *worker, struct consume_lane *lane,
                              const struct consume_entry *entry, const struct outbox_message *message, int attempts,
                              const char *why, char *parked_id, struct err *err) {
  char count[16];
  (void)snprintf(count, sizeof count, "%d", attempts);
  const struct redis_reply *reply =
      consume_command(worker, err, "EVAL", embed_consume_park_lua, "3", entry->stream, lane->parked_key,
                      lane->owner_key, worker->cfg->group, entry->id, count, why, lane->token, NULL);
  if (reply == NULL && strcmp(err->code, "FENCED") == 0) {
    read_fenced(lane, err);
  }
  if (reply == NULL || !consume_copy(reply, parked_id, CONSUME_ENTRY_ID_BYTES)) {
    return CONSUME_LOST;
  }
  if (parked_id[0] != '\0') {
    atomic_fetch_add(&worker->shared->parked_n, 1);
    log_event(LOG_ERROR, "message_parked", "a message cannot be handled; it stands in the stream of parked ones",
              LOG_STR("group", worker->cfg->group), LOG_STR("message_id", message != NULL ? message->message_id : NULL),
              LOG_STR("aggregate_type", message != NULL ? message->aggregate_type : NULL),
              LOG_STR("aggregate_id", message != NULL ? message->aggregate_id : NULL),
              LOG_STR("event_type", message != NULL ? message->event_type : NULL), LOG_INT("lane", lane->number),
              LOG_STR("stream", lane->parked_key), LOG_STR("entry", parked_id), LOG_INT("attempts", attempts),
              LOG_STR("error", why));
  }
  return CONSUME_OK;
}

/* -------------------------------------------------------------------------------------------------- one message */

/* An attempt has failed, or could not be made: the attempts are counted in Redis too, so that the next worker knows. */
static enum consume_result on_failed(struct consume_worker *worker, struct consume_lane *lane,
                                     const struct consume_entry *entry, const struct outbox_message *message,
                                     const struct outbox_failure *failure, int attempts, int64_t *due_us,
                                     struct err *err) {
  int64_t held_back = 0;
  char count[16];
  (void)snprintf(count, sizeof count, "%d", attempts + 1);
  *due_us = clock_now_us() +
            (failure->retry_after_ms > 0
                 ? failure->retry_after_ms * 1000
                 : backoff_nth_us(worker->cfg->retry_first_ms, worker->cfg->retry_max_ms, attempts > 0 ? attempts : 1));
  if (log_limit_pass(&failed_limit, &held_back)) {
    log_event(LOG_WARNING, "message_retried", "a message was not handled; it is tried again",
              LOG_STR("group", worker->cfg->group), LOG_STR("message_id", message->message_id),
              LOG_STR("aggregate_type", message->aggregate_type), LOG_STR("aggregate_id", message->aggregate_id),
              LOG_STR("event_type", message->event_type), LOG_INT("lane", lane->number), LOG_INT("attempts", attempts),
              LOG_STR("error", failure->text), LOG_INT("held_back", held_back));
  }
  return redis_pipeline_command(lane->out, err, "XCLAIM", entry->stream, worker->cfg->group, CONSUME_NAME, "0",
                                entry->id, "RETRYCOUNT", count, "JUSTID", NULL) == 0
             ? CONSUME_OK
             : CONSUME_LOST;
}

enum consume_result lane_handle(struct consume_worker *worker, struct consume_lane *lane,
                                const struct consume_entry *entry, const struct outbox_message *message,
                                bool *is_failed, int *failures, int64_t *due_us, char *parked_id, struct err *err) {
  struct consume_shared *shared = worker->shared;
  struct outbox_failure failure = {0};
  struct outbox_message given = *message;
  *is_failed = false;
  parked_id[0] = '\0';
  given.stream = entry->stream;
  given.entry_id = entry->id;
  given.lane = lane->number;
  given.attempt = entry->failures + 1;
  given.worker = worker->number;
  if (entry->is_inherited && entry->failures >= worker->cfg->max_attempts_n) {
    return lane_park(worker, lane, entry, message, entry->failures,
                     "the worker ended while it handled the message, at the last attempt", parked_id, err);
  }
  enum consume_outcome outcome = consume_message(worker, entry, &given, &failure, err);
  switch (outcome) {
  case CONSUME_HANDLED:
    atomic_fetch_add(&shared->handled_n, 1);
    return acknowledge(worker, lane, entry, err);
  case CONSUME_REPEATED:
    atomic_fetch_add(&shared->repeated_n, 1);
    return acknowledge(worker, lane, entry, err);
  case CONSUME_GONE:
    return CONSUME_LOST;
  case CONSUME_UNABLE:
    *is_failed = true;
    *failures = entry->failures;
    return on_failed(worker, lane, entry, message, &failure, *failures, due_us, err);
  case CONSUME_FAILED:
  case CONSUME_REFUSED:
    break;
  }
  atomic_fetch_add(&shared->failed_n, 1);
  *failures = entry->failures + 1;
  if (outcome == CONSUME_REFUSED || *failures >= worker->cfg->max_attempts_n) {
    return lane_park(worker, lane, entry, message, *failures, failure.text, parked_id, err);
  }
  *is_failed = true;
  return on_failed(worker, lane, entry, message, &failure, *failures, due_us, err);
}

/* An entry of the batch. */
static enum consume_result work_entry(struct consume_worker *worker, struct consume_lane *lane,
                                      const struct consume_entry *entry, struct err *err) {
  struct outbox_message message;
  json_t *json = NULL;
  bool is_failed = false;
  int failures = 0;
  int64_t due_us = 0;
  char parked_id[CONSUME_ENTRY_ID_BYTES] = "";
  enum consume_result result = CONSUME_LOST;
  if (entry->fields == NULL) {
    return lane_drop_lost(worker, lane, entry, err);
  }
  if (consume_parse(entry->fields, &message, &json, err) != 0) {
    result = lane_park(worker, lane, entry, NULL, entry->failures, err->text, parked_id, err);
    goto out;
  }
  uint64_t key = consume_aggregate_key(&message);
  struct consume_held *held = held_find(lane, key);
  if (held != NULL) {
    if (held_push(lane, held, entry->stream, entry->id, entry->failures, err) == 0) {
      held->queue.tail->is_inherited = entry->is_inherited;
      result = CONSUME_OK;
    }
    goto out;
  }
  result = lane_handle(worker, lane, entry, &message, &is_failed, &failures, &due_us, parked_id, err);
  bool is_blocked = parked_id[0] != '\0' && worker->cfg->on_parked == CONSUME_ON_PARKED_BLOCK;
  if (result == CONSUME_OK && (is_failed || is_blocked)) {
    held = held_add(lane, key, is_failed ? due_us : clock_now_us(), err);
    if (held == NULL || (is_failed && held_push(lane, held, entry->stream, entry->id, failures, err) != 0)) {
      result = CONSUME_LOST;
    } else {
      memcpy(held->parked_id, parked_id, sizeof parked_id);
    }
  }
out:
  json_decref(json);
  return result;
}

/* -------------------------------------------------------------------------------------------------- turns */

/* A worker that has lost its session unnoticed writes its token over the new owner's, whom that sends back to this point.  So a token counts only when the
 * session, and the lane's lock with it, outlived its writing: whoever takes the lane after that writes a later one. */
static enum consume_result begin(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  if (uuid7_make(lane->token, err) != 0 ||
      consume_command(worker, err, "SET", lane->owner_key, lane->token, NULL) == NULL ||
      session_prove(&worker->session, err) != 0) {
    return CONSUME_LOST;
  }
  lane->is_begun = true;
  return worker->cfg->on_parked == CONSUME_ON_PARKED_BLOCK ? held_load_parked(worker, lane, err) : CONSUME_OK;
}

static void tell_full(const struct consume_worker *worker, const struct consume_lane *lane) {
  int64_t held_back = 0;
  if (lane->waiting_n >= worker->cfg->max_waiting_n && log_limit_pass(&full_limit, &held_back)) {
    log_event(LOG_ERROR, "lane_full", "too many messages wait behind failed ones; no more are read of this lane",
              LOG_STR("group", worker->cfg->group), LOG_INT("lane", lane->number), LOG_INT("waiting", lane->waiting_n),
              LOG_INT("held_back", held_back));
  }
}

/* The batch, as far as the slice goes. */
static enum consume_result work_batch(struct consume_worker *worker, struct consume_lane *lane, int64_t slice_us,
                                      struct err *err) {
  while (lane->batch_at < lane->batch_n && clock_now_us() < slice_us && !stop_is_set(worker->shared->drain)) {
    enum consume_result result = work_entry(worker, lane, &lane->batch[lane->batch_at], err);
    if (result != CONSUME_OK) {
      return result;
    }
    lane->batch_at++;
  }
  return CONSUME_OK;
}

enum consume_result lane_turn(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  int64_t slice_us = clock_now_us() + CONSUME_SLICE_US;
  int before_n = lane->waiting_n;
  if (!lane->is_begun && begin(worker, lane, err) != CONSUME_OK) {
    return CONSUME_LOST;
  }
  enum consume_result result = held_work(worker, lane, slice_us, err);
  bool has_worked = result == CONSUME_OK;
  while (result != CONSUME_LOST && clock_now_us() < slice_us && !stop_is_set(worker->shared->drain)) {
    result = CONSUME_OK;
    if (lane->batch_at >= lane->batch_n) {
      result = read_next(worker, lane, err);
      if (result == CONSUME_NOTHING) {
        tell_full(worker, lane);
        break;
      }
    }
    if (result == CONSUME_OK) {
      has_worked = true;
      result = work_batch(worker, lane, slice_us, err);
    }
  }
  atomic_fetch_add(&worker->shared->waiting_n, lane->waiting_n - before_n);
  if (result == CONSUME_LOST || lane_flush(worker, lane, err) != 0) {
    return CONSUME_LOST;
  }
  return has_worked ? CONSUME_OK : CONSUME_NOTHING;
}
