/*
 * Building the script calls of one write.
 *
 * Owns the pipeline and the arrays of the round, kept from write to write: in the common path nothing is allocated for a message.
 * Runs on its publisher's thread.  Never: does I/O; decides a message as published (that is round_reply.c's, after the reply).
 */
#include "outboxd/round.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"

#define MESSAGE_OVERHEAD_BYTES 160 /* of a message in a call: lengths, its name in the journal */
#define ENVELOPE_FIELDS_N 3        /* words a message: the envelope, then its aggregate's type and id for the script */
#define SHOWN_LIMIT "512 MiB (proto-max-bulk-len)"
#define PREFETCH_N 4 /* messages ahead: one is written in about the time that it takes to fetch one */

int round_init(struct round *round, const struct cfg *cfg, const struct template *template,
               const struct cloudevent_form *form, struct err *err) {
  *round = (struct round){.template = template,
                          .write_bytes_max = cfg->max_write_bytes,
                          .has_wait = cfg->wait_replicas_n > 0,
                          .has_index = !template_is_per_lane(template),
                          .form = form,
                          .groups = &cfg->ensure_groups,
                          .stream_ttl_ms = cfg->stream_ttl_ms,
                          .streams = KEYSET_INIT};
  round->day = (struct entry_day)ENTRY_DAY_INIT;
  sha1_hex(embed_publish_lua, embed_publish_lua_bytes, round->sha);
  return redis_pipeline_new(&round->pipeline, err);
}

void round_fini(struct round *round) {
  redis_pipeline_free(round->pipeline);
  free(round->calls);
  free(round->items);
  free(round->lags_us);
  buf_free(&round->envelopes);
  buf_free(&round->lines);
  buf_free(&round->journal);
  buf_free(&round->stream);
  keyset_free(&round->streams);
}

void round_begin(struct round *round) {
  /* A single huge message must not be paid for ever after. */
  redis_pipeline_reset(round->pipeline, (size_t)round->write_bytes_max * 4);
  round->calls_n = 0;
  round->items_n = 0;
  round->lags_n = 0;
  round->bytes = 0;
  buf_reset(&round->lines);
  if (round->envelopes.size > (size_t)round->write_bytes_max * 4) {
    buf_free(&round->envelopes);
  }
  buf_reset(&round->envelopes);
}

/* ---- taking messages */

static int grow_items(struct round *round, struct err *err) {
  int size = round->items_size == 0 ? 256 : round->items_size * 2;
  struct item *items = realloc(round->items, (size_t)size * sizeof *items);
  if (items == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "write");
  }
  round->items = items;
  int64_t *lags_us = realloc(round->lags_us, (size_t)size * sizeof *lags_us);
  if (lags_us == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "write");
  }
  round->lags_us = lags_us;
  round->items_size = size;
  return 0;
}

static int add_item(struct round *round, struct item item, struct err *err) {
  if (round->items_n == round->items_size && grow_items(round, err) != 0) {
    return -1;
  }
  round->items[round->items_n++] = item;
  return 0;
}

static int new_call(struct round *round, struct lane *lane, struct call **out, struct err *err) {
  if (round->calls_n == round->calls_size) {
    int size = round->calls_size == 0 ? 16 : round->calls_size * 2;
    struct call *calls = realloc(round->calls, (size_t)size * sizeof *calls);
    if (calls == NULL) {
      return err_errno(err, ERR_RETRY, ENOMEM, "write");
    }
    round->calls = calls;
    round->calls_size = size;
  }
  *out = &round->calls[round->calls_n];
  **out = (struct call){.lane = lane, .first = round->items_n, .lines_from = round->lines.len};
  return 0;
}

enum look { LOOK_ADD, LOOK_INHERITED, LOOK_DECIDED };

/* What is to be done with the next message of a lane.  *bytes gets its size for LOOK_ADD. */
static enum look look_at(const struct round *round, struct lane *lane, const struct batch *batch, struct msg *msg,
                         int64_t *bytes) {
  size_t id_bytes;
  const char *id = batch_text(batch, msg, COL_MESSAGE_ID, &id_bytes);
  if (id_bytes == 0) {
    lane_decide(lane, msg, OUTCOME_FAILED,
                batch_is_null(batch, msg, COL_MESSAGE_ID)
                    ? "message_id is NULL: consumers could not tell repetitions"
                    : "message_id is empty: consumers could not tell repetitions");
    return LOOK_DECIDED;
  }
  /* Before anything else: what is in the stream is published whatever became of its aggregate. */
  if (lane_claim_inherited(lane, id, id_bytes, batch->seq)) {
    if (round->has_wait) {
      return LOOK_INHERITED;
    }
    lane_decide_inherited(lane, msg);
    return LOOK_DECIDED;
  }
  if (lane_is_stopped(lane, msg->key)) {
    lane_decide(lane, msg, OUTCOME_WITHHELD, NULL);
    return LOOK_DECIDED;
  }
  *bytes = msg->bytes + MESSAGE_OVERHEAD_BYTES;
  if ((uint64_t)*bytes > ROUND_VALUE_BYTES_MAX) {
    struct err text = ERR_INIT;
    (void)err_set(&text, ERR_REJECT, "too_large", "the message has %lld bytes; Redis takes at most " SHOWN_LIMIT,
                  (long long)*bytes);
    lane_decide(lane, msg, OUTCOME_FAILED, text.text);
    return LOOK_DECIDED;
  }
  return LOOK_ADD;
}

/* Renders the message's stream and gives it a number within the call.  Most often it is the one of the message before. */
static int number_stream(struct round *round, const struct batch *batch, const struct msg *msg, int *number,
                         struct err *err) {
  size_t bytes = 0;
  if (entry_stream(round->template, batch, msg, &round->stream, &bytes, err) != 0) {
    return -1;
  }
  return keyset_add(&round->streams, round->stream.data, bytes, number, err);
}

/* Makes the envelope of an item; *bytes is the message's size then.  ERR_REJECT when it has none. */
static int make_envelope(struct round *round, struct item *item, int64_t *bytes, struct err *err) {
  item->envelope_from = round->envelopes.len;
  if (cloudevent_append(round->form, item->batch, item->msg, &round->envelopes, err) != 0) {
    return -1;
  }
  item->envelope_bytes = round->envelopes.len - item->envelope_from;
  if (item->envelope_bytes > ROUND_VALUE_BYTES_MAX) {
    return err_set(err, ERR_REJECT, "too_large", "its envelope has %zu bytes; Redis takes at most " SHOWN_LIMIT,
                   item->envelope_bytes);
  }
  *bytes = (int64_t)item->envelope_bytes + MESSAGE_OVERHEAD_BYTES;
  return 0;
}

/* Takes messages from the lane's queue into the call. */
static int take_messages(struct round *round, struct call *call, int *fields_n, struct err *err) {
  struct lane *lane = call->lane;
  bool is_per_lane = template_is_per_lane(round->template);
  for (struct entry *entry = lane->head; entry != NULL; entry = entry->next) {
    const struct batch *batch = entry->part->batch;
    int batch_fields_n = round->form != NULL ? ENVELOPE_FIELDS_N : entry_fields_n(batch);
    for (int i = entry->at; i < entry->run->n; i++) {
      struct msg *msg = &entry->run->msgs[i];
      if (i + PREFETCH_N < entry->run->n) {
        batch_prefetch(msg + PREFETCH_N);
      }
      if (msg->outcome != OUTCOME_NONE) {
        continue;
      }
      int taken_n = round->items_n - call->first;
      if (taken_n >= (lane->is_single ? 1 : ROUND_CALL_MESSAGES_MAX) || (taken_n > 0 && batch_fields_n != *fields_n)) {
        return 0;
      }
      int64_t bytes = 0;
      struct item item = {.msg = msg, .batch = batch};
      switch (look_at(round, lane, batch, msg, &bytes)) {
      case LOOK_DECIDED:
        continue;
      case LOOK_INHERITED:
        item.is_inherited = true;
        break;
      case LOOK_ADD:
        if (round->form != NULL && make_envelope(round, &item, &bytes, err) != 0) {
          if (err->class != ERR_REJECT) {
            return -1;
          }
          lane_decide(lane, msg, OUTCOME_FAILED, err->text);
          err_clear(err);
          continue;
        }
        /* A single message above the limit goes alone. */
        if (round->bytes > 0 && round->bytes + bytes > round->write_bytes_max) {
          return 0;
        }
        round->bytes += bytes;
        if ((!is_per_lane || call->adds_n == 0) && number_stream(round, batch, msg, &item.stream, err) != 0) {
          return -1;
        }
        call->adds_n++;
        break;
      }
      *fields_n = batch_fields_n;
      if (add_item(round, item, err) != 0) {
        return -1;
      }
    }
  }
  return 0;
}

/* ---- writing the call */

/* The journal's value if everything is added; the new names also go to the round's lines. */
static int make_journal(struct round *round, struct call *call, struct err *err) {
  buf_reset(&round->journal);
  if (buf_append_str(&round->journal, call->token, err) != 0 || buf_append(&round->journal, "\n", 1, err) != 0 ||
      lane_append_names(call->lane, &round->journal, &call->carried_n, err) != 0) {
    return -1;
  }
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    size_t bytes;
    const char *id = batch_text(item->batch, item->msg, COL_MESSAGE_ID, &bytes);
    if (!item->is_inherited && journal_append_name(&round->lines, item->msg->id, id, bytes, err) != 0) {
      return -1;
    }
  }
  call->lines_bytes = round->lines.len - call->lines_from;
  return call->lines_bytes == 0
             ? 0
             : buf_append(&round->journal, round->lines.data + call->lines_from, call->lines_bytes, err);
}

typedef size_t render_key(const struct template *template, int lane, char *buf, size_t cap);

static int append_lane_key(struct round *round, int lane, render_key *render, struct err *err) {
  size_t bytes = render(round->template, lane, round->stream.data, round->stream.size);
  if (bytes > round->stream.size) {
    if (buf_reserve(&round->stream, bytes, err) != 0) {
      return -1;
    }
    bytes = render(round->template, lane, round->stream.data, round->stream.size);
  }
  return redis_pipeline_arg(round->pipeline, round->stream.data, bytes, err);
}

static int append_keys(struct round *round, const struct call *call, struct err *err) {
  size_t bytes = 0;
  if (redis_pipeline_arg_int(round->pipeline, 1 + round->streams.n + (call->has_index ? 1 : 0), err) != 0 ||
      append_lane_key(round, call->lane->no, template_journal_key, err) != 0) {
    return -1;
  }
  for (int i = 0; i < round->streams.n; i++) {
    const char *stream = keyset_get(&round->streams, i, &bytes);
    if (redis_pipeline_arg(round->pipeline, stream, bytes, err) != 0) {
      return -1;
    }
  }
  return call->has_index ? append_lane_key(round, call->lane->no, template_index_key, err) : 0;
}

/* Number of the words that tell of the index, the expiry and the groups; 0 where none of these is wanted. */
static int upkeep_n(const struct round *round, const struct call *call) {
  bool is_any = call->has_index || round->stream_ttl_ms > 0 || round->groups->n > 0;
  return is_any ? 2 + round->groups->n : 0;
}

static int append_upkeep(struct round *round, const struct call *call, struct err *err) {
  int n = upkeep_n(round, call);
  if (redis_pipeline_arg_int(round->pipeline, n, err) != 0) {
    return -1;
  }
  if (n == 0) {
    return 0;
  }
  if (redis_pipeline_arg_int(round->pipeline, call->has_index, err) != 0 ||
      redis_pipeline_arg_int(round->pipeline, round->stream_ttl_ms, err) != 0) {
    return -1;
  }
  for (int i = 0; i < round->groups->n; i++) {
    const char *group = round->groups->values[i];
    if (redis_pipeline_arg(round->pipeline, group, strlen(group), err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int append_message(struct round *round, const struct item *item, struct err *err) {
  if (round->form == NULL) {
    return entry_append(round->pipeline, &round->day, item->batch, item->msg, err);
  }
  size_t type_bytes;
  size_t id_bytes;
  const char *type = batch_text(item->batch, item->msg, COL_AGGREGATE_TYPE, &type_bytes);
  const char *id = batch_text(item->batch, item->msg, COL_AGGREGATE_ID, &id_bytes);
  return redis_pipeline_arg(round->pipeline, round->envelopes.data + item->envelope_from, item->envelope_bytes, err) !=
                     0 ||
                 redis_pipeline_arg(round->pipeline, type, type_bytes, err) != 0 ||
                 redis_pipeline_arg(round->pipeline, id, id_bytes, err) != 0
             ? -1
             : 0;
}

static int append_call(struct round *round, struct call *call, int fields_n, struct err *err) {
  struct redis_pipeline *pipeline = round->pipeline;
  bool has_stream = round->streams.n > 1;
  journal_new_token(call->token);
  if (make_journal(round, call, err) != 0) {
    return -1;
  }
  /* A probe has the index too: it may be what was refused. */
  call->has_index =
      round->has_index && call->lane->index == LANE_INDEX_WRITTEN && (call->adds_n > 0 || call->lane->wants_probe);
  int args_n = 3 + 1 + round->streams.n + (call->has_index ? 1 : 0) + 7 +
               call->adds_n * (fields_n + (has_stream ? 1 : 0)) + upkeep_n(round, call);
  call->command = redis_pipeline_n(pipeline);
  if (redis_pipeline_begin(pipeline, args_n, err) != 0 || redis_pipeline_arg(pipeline, "EVALSHA", 7, err) != 0 ||
      redis_pipeline_arg(pipeline, round->sha, strlen(round->sha), err) != 0 || append_keys(round, call, err) != 0 ||
      redis_pipeline_arg(pipeline, call->lane->token, strlen(call->lane->token), err) != 0 ||
      redis_pipeline_arg(pipeline, call->token, strlen(call->token), err) != 0 ||
      redis_pipeline_arg(pipeline, round->journal.data, round->journal.len, err) != 0 ||
      redis_pipeline_arg_int(pipeline, call->carried_n, err) != 0 ||
      redis_pipeline_arg_int(pipeline, call->adds_n, err) != 0 ||
      redis_pipeline_arg_int(pipeline, fields_n, err) != 0 || append_upkeep(round, call, err) != 0) {
    return -1;
  }
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    if (!item->is_inherited && ((has_stream && redis_pipeline_arg_int(pipeline, item->stream + 1, err) != 0) ||
                                append_message(round, item, err) != 0)) {
      return -1;
    }
  }
  return 0;
}

int round_add(struct round *round, struct lane *lane, struct err *err) {
  assert(lane->state == LANE_OPEN);
  struct call *call = NULL;
  int fields_n = ENTRY_FIELDS_N;
  if (new_call(round, lane, &call, err) != 0) {
    return -1;
  }
  keyset_reset(&round->streams);
  if (!lane->wants_probe && take_messages(round, call, &fields_n, err) != 0) {
    return -1;
  }
  call->n = round->items_n - call->first;
  if (call->n == 0 && !lane->wants_probe) {
    return 0;
  }
  round->calls_n++;
  return append_call(round, call, fields_n, err);
}

int round_append_eval(const struct round *round, int index, struct redis_pipeline *pipeline, struct err *err) {
  const char *const words[] = {"EVAL", embed_publish_lua};
  const size_t word_bytes[] = {4, embed_publish_lua_bytes};
  return redis_pipeline_again(pipeline, round->pipeline, round->calls[index].command, words, word_bytes, 2, err);
}
