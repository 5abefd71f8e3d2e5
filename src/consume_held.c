/*
 * Messages that wait: queues of ids, and the aggregates whose first message has failed.
 *
 * Owns a lane's queues; they hold ids, so that what waits costs no payload's memory.  Runs on the lane's worker's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"
#include "outboxd/consume_impl.h"

#define BLOCKED_LOOK_US 1000000 /* between two looks whether a parked entry is still there */
#define PARKED_PAGE "100"

int consume_push(struct consume_queue *queue, const char *stream, const char *id, int failures, bool is_inherited,
                 struct err *err) {
  size_t n = strlen(stream) + 1;
  struct consume_item *item = malloc(sizeof *item + n);
  if (item == NULL || strlen(id) >= sizeof item->id) {
    free(item);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a message that waits");
  }
  *item = (struct consume_item){.failures = failures, .is_inherited = is_inherited};
  memcpy(item->id, id, strlen(id) + 1);
  memcpy(item->stream, stream, n);
  if (queue->tail == NULL) {
    queue->head = item;
  } else {
    queue->tail->next = item;
  }
  queue->tail = item;
  queue->n++;
  return 0;
}

void consume_pop(struct consume_queue *queue) {
  struct consume_item *item = queue->head;
  queue->head = item->next;
  if (queue->head == NULL) {
    queue->tail = NULL;
  }
  queue->n--;
  free(item);
}

void consume_empty(struct consume_queue *queue) {
  while (queue->head != NULL) {
    consume_pop(queue);
  }
}

/* -------------------------------------------------------------------------------------------------- aggregates */

struct consume_held *held_find(const struct consume_lane *lane, uint64_t key) {
  struct consume_held *held = NULL;
  HASH_FIND(hh, lane->held, &key, sizeof key, held);
  return held;
}

struct consume_held *held_add(struct consume_lane *lane, uint64_t key, int64_t due_us, struct err *err) {
  struct consume_held *held = calloc(1, sizeof *held);
  if (held != NULL) {
    held->key = key;
    held->due_us = due_us;
    HASH_ADD(hh, lane->held, key, sizeof held->key, held);
  }
  if (held == NULL || held->hh.tbl == NULL) {
    free(held);
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for an aggregate that waits");
    return NULL;
  }
  if (due_us < lane->held_due_us) {
    lane->held_due_us = due_us;
  }
  return held;
}

int held_push(struct consume_lane *lane, struct consume_held *held, const char *stream, const char *id, int failures,
              struct err *err) {
  if (consume_push(&held->queue, stream, id, failures, false, err) != 0) {
    return -1;
  }
  lane->waiting_n++;
  return 0;
}

static void pop(struct consume_lane *lane, struct consume_held *held) {
  consume_pop(&held->queue);
  lane->waiting_n--;
}

static void drop(struct consume_lane *lane, struct consume_held *held) {
  HASH_DEL(lane->held, held);
  consume_empty(&held->queue);
  free(held);
}

void held_clear(struct consume_lane *lane) {
  struct consume_held *held = NULL;
  struct consume_held *next = NULL;
  HASH_ITER(hh, lane->held, held, next) {
    drop(lane, held);
  }
  lane->waiting_n = 0;
  lane->held_due_us = INT64_MAX;
}

/* -------------------------------------------------------------------------------------------------- work */

/* The aggregate's first message once more.  *is_over: it is not to be gone on with for now. */
static enum consume_result work_first(struct consume_worker *worker, struct consume_lane *lane,
                                      struct consume_held *held, bool *is_over, struct err *err) {
  struct outbox_message message;
  struct consume_item *item = held->queue.head;
  json_t *json = NULL;
  bool is_failed = false;
  int failures = item->failures;
  int fetched_n = 0;
  enum consume_result result = CONSUME_LOST;
  char parked_id[CONSUME_ENTRY_ID_BYTES] = "";
  *is_over = false;
  /* The lane's batch may be in hand: the fetch has a pipeline of its own. */
  struct redis_pipeline *fetch = NULL;
  if (redis_pipeline_new(&fetch, err) != 0 || read_fetch(worker, fetch, &held->queue, 1, &fetched_n, err) != 0) {
    goto out;
  }
  struct consume_entry entry = {.stream = item->stream,
                                .id = item->id,
                                .fields = read_fields(redis_pipeline_reply(fetch, 0)),
                                .failures = item->failures,
                                .is_inherited = item->is_inherited};
  if (entry.fields == NULL) {
    result = lane_drop_lost(worker, lane, &entry, err);
  } else if (consume_parse(entry.fields, &message, &json, err) != 0) {
    result = lane_park(worker, lane, &entry, NULL, item->failures, err->text, parked_id, err);
  } else {
    result = lane_handle(worker, lane, &entry, &message, &is_failed, &failures, &held->due_us, parked_id, err);
  }
  if (result != CONSUME_OK) {
    goto out;
  }
  if (is_failed) {
    item->failures = failures;
    *is_over = true;
  } else {
    pop(lane, held);
    if (parked_id[0] != '\0' && worker->cfg->on_parked == CONSUME_ON_PARKED_BLOCK) {
      memcpy(held->parked_id, parked_id, sizeof parked_id);
      held->due_us = clock_now_us() + BLOCKED_LOOK_US;
      *is_over = true;
    }
  }
out:
  json_decref(json);
  redis_pipeline_free(fetch);
  return result;
}

/* Is the parked entry that blocks the aggregate still there? */
static enum consume_result look_at_parked(struct consume_worker *worker, struct consume_lane *lane,
                                          struct consume_held *held, bool *is_over, struct err *err) {
  const struct redis_reply *reply =
      consume_command(worker, err, "XRANGE", lane->parked_key, held->parked_id, held->parked_id, NULL);
  if (reply == NULL) {
    return CONSUME_LOST;
  }
  *is_over = redis_reply_n(reply) > 0;
  if (*is_over) {
    held->due_us = clock_now_us() + BLOCKED_LOOK_US;
  } else {
    held->parked_id[0] = '\0';
  }
  return CONSUME_OK;
}

/* One aggregate that is due, as far as it goes. */
static enum consume_result work_one(struct consume_worker *worker, struct consume_lane *lane, struct consume_held *held,
                                    int64_t slice_us, struct err *err) {
  bool is_over = false;
  enum consume_result result = CONSUME_OK;
  if (held->parked_id[0] != '\0') {
    result = look_at_parked(worker, lane, held, &is_over, err);
  }
  while (result == CONSUME_OK && !is_over && held->queue.head != NULL && clock_now_us() < slice_us &&
         !stop_is_set(worker->shared->drain)) {
    result = work_first(worker, lane, held, &is_over, err);
  }
  if (result == CONSUME_OK && !is_over && held->queue.head == NULL) {
    drop(lane, held);
  }
  return result;
}

enum consume_result held_work(struct consume_worker *worker, struct consume_lane *lane, int64_t slice_us,
                              struct err *err) {
  int64_t now_us = clock_now_us();
  if (now_us < lane->held_due_us) {
    return CONSUME_NOTHING;
  }
  struct consume_held *held = NULL;
  struct consume_held *next = NULL;
  HASH_ITER(hh, lane->held, held, next) {
    if (held->due_us <= now_us) {
      enum consume_result result = work_one(worker, lane, held, slice_us, err);
      if (result != CONSUME_OK) {
        return result;
      }
    }
  }
  lane->held_due_us = INT64_MAX;
  HASH_ITER(hh, lane->held, held, next) { /* NOLINT(clang-analyzer-unix.Malloc) */
    if (held->due_us < lane->held_due_us) {
      lane->held_due_us = held->due_us;
    }
  }
  return CONSUME_OK;
}

/* -------------------------------------------------------------------------------------------------- parked before */

static int hold_parked(struct consume_lane *lane, const struct redis_reply *entry, struct err *err) {
  struct outbox_message message;
  json_t *json = NULL;
  struct err ignored = ERR_INIT;
  int rc = 0;
  char id[CONSUME_ENTRY_ID_BYTES];
  if (consume_copy(redis_reply_at(entry, 0), id, sizeof id) &&
      consume_parse(redis_reply_at(entry, 1), &message, &json, &ignored) == 0) {
    uint64_t key = consume_aggregate_key(&message);
    struct consume_held *held = held_find(lane, key);
    if (held == NULL) {
      held = held_add(lane, key, clock_now_us() + BLOCKED_LOOK_US, err);
    }
    if (held == NULL) {
      rc = -1;
    } else {
      memcpy(held->parked_id, id, sizeof id);
    }
  }
  json_decref(json);
  return rc;
}

enum consume_result held_load_parked(struct consume_worker *worker, struct consume_lane *lane, struct err *err) {
  char from[CONSUME_ENTRY_ID_BYTES + 1] = "-";
  for (;;) {
    const struct redis_reply *page =
        consume_command(worker, err, "XRANGE", lane->parked_key, from, "+", "COUNT", PARKED_PAGE, NULL);
    if (page == NULL) {
      return CONSUME_LOST;
    }
    size_t n = redis_reply_n(page);
    for (size_t i = 0; i < n; i++) {
      if (hold_parked(lane, redis_reply_at(page, i), err) != 0) {
        return CONSUME_LOST;
      }
    }
    if (n == 0 || !consume_copy(redis_reply_at(redis_reply_at(page, n - 1), 0), from + 1, sizeof from - 1)) {
      return CONSUME_OK;
    }
    from[0] = '('; /* behind it */
  }
}
