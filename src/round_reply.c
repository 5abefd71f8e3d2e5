/*
 * What the replies of a write mean for its messages and its lanes.
 *
 * Runs on its publisher's thread.  Never counts a message as published that a reply does not name as added.
 */
#include <assert.h>
#include <string.h>

#include "outboxd/alloc.h"
#include "outboxd/log.h"
#include "outboxd/redis_error.h"
#include "outboxd/round.h"

#define SHOWN_STREAM_BYTES 200

static struct log_limit unknown_limit = {.interval_us = INT64_C(10) * 1000000};

static void log_unknown(const struct err *err, int lane) {
  int64_t held_back;
  if (log_limit_pass(&unknown_limit, &held_back)) {
    log_event(LOG_ERROR, "redis_error_unknown", "Redis answered with an error that outboxd does not know",
              LOG_STR("error", err->text), LOG_INT("lane", lane), LOG_INT("held_back", held_back));
  }
}

void round_log_upkeep(int lane, const char *text) {
  static struct log_limit limit = {.interval_us = INT64_C(60) * 1000000};
  int64_t held_back;
  if (log_limit_pass(&limit, &held_back)) {
    log_event(
        LOG_ERROR, "stream_upkeep_failed",
        "a consumer group, the index of stream names or an expiry could not be written; the messages are published "
        "all the same; on NOPERM make the user's rules anew with scripts/redis-user.sh and its --ensure-group",
        LOG_STR("error", text), LOG_INT("lane", lane), LOG_INT("held_back", held_back));
  }
}

static unsigned classify(const struct redis_reply *reply, const struct call *call, struct err *err) {
  size_t bytes;
  const char *text = redis_reply_text(reply, &bytes);
  unsigned effects = redis_error_classify(text, bytes, err);
  if ((effects & REDIS_EFFECT_UNKNOWN) != 0) {
    log_unknown(err, call->lane->no);
  }
  return effects;
}

static void fail_item(const struct round *round, const struct item *item, struct lane *lane, const struct err *cause) {
  char stream[SHOWN_STREAM_BYTES];
  struct template_values values = {.lane = item->msg->lane};
  values.aggregate_type = batch_text(item->batch, item->msg, COL_AGGREGATE_TYPE, &values.aggregate_type_bytes);
  values.aggregate_id = batch_text(item->batch, item->msg, COL_AGGREGATE_ID, &values.aggregate_id_bytes);
  values.event_type = batch_text(item->batch, item->msg, COL_EVENT_TYPE, &values.event_type_bytes);
  size_t bytes = template_render(round->template, &values, stream, sizeof stream);
  struct err text = ERR_INIT;
  if (bytes <= sizeof stream) {
    (void)err_set(&text, cause->class, cause->code, "stream %.*s: %s", (int)bytes, stream, cause->text);
  } else {
    text = *cause;
  }
  lane_decide(lane, item->msg, OUTCOME_FAILED, text.text);
}

/* From the commit to the reply: by the database's clock up to the claim, by ours from there on. */
static void note_lag(struct round *round, const struct item *item, int64_t reply_us) {
  int64_t created_us = item->msg->created_us;
  if (!item->msg->has_created_at || created_us == INT64_MAX || created_us == INT64_MIN) {
    return;
  }
  int64_t lag_us = item->batch->db_now_us - created_us + (reply_us - item->batch->claimed_us);
  round->lags_us[round->lags_n++] = lag_us > 0 ? lag_us : 0;
}

/* The message was added by this call, or is inherited and on the replicas now. */
static void publish_item(struct round *round, const struct item *item, struct lane *lane, int64_t reply_us) {
  if (item->is_inherited) {
    lane_decide_inherited(lane, item->msg);
  } else {
    lane_decide(lane, item->msg, OUTCOME_PUBLISHED, NULL);
    note_lag(round, item, reply_us);
  }
}

/* The names of the call's published messages travel on from now. */
static void carry_item(const struct item *item, struct lane *lane, struct buf *line) {
  size_t bytes;
  const char *id = batch_text(item->batch, item->msg, COL_MESSAGE_ID, &bytes);
  buf_reset(line);
  if (journal_append_name(line, item->msg->id, id, bytes, NULL) != 0) {
    alloc_failed(bytes); /* a name that is in the stream must not be lost */
  }
  lane_carry(lane, item->batch->seq, line->data, line->len, 1);
}

/* Everything was added: the lines of the call are carried as they are, batch by batch. */
static void publish_all(struct round *round, const struct call *call, int64_t reply_us) {
  const char *lines = call->lines_bytes > 0 ? round->lines.data + call->lines_from : "";
  const char *end = lines + call->lines_bytes;
  int i = call->first;
  const int items_end = call->first + call->n;
  while (i < items_end) {
    int64_t seq = round->items[i].batch->seq;
    const char *from = lines;
    int lines_n = 0;
    bool is_rest = round->items[items_end - 1].batch->seq == seq;
    for (; i < items_end && round->items[i].batch->seq == seq; i++) {
      publish_item(round, &round->items[i], call->lane, reply_us);
      if (!round->items[i].is_inherited) {
        lines_n++;
        if (!is_rest) {
          const char *line_end = memchr(lines, '\n', (size_t)(end - lines));
          lines = line_end + 1;
        }
      }
    }
    lines = is_rest ? end : lines;
    lane_carry(call->lane, seq, from, (size_t)(lines - from), lines_n);
  }
}

/* outcomes has one letter for each message that was to be added. */
static enum call_result read_outcomes(struct round *round, const struct call *call, const struct redis_reply *reply,
                                      const char *outcomes, int64_t reply_us, struct err *err) {
  struct lane *lane = call->lane;
  struct buf line = BUF_INIT;
  enum call_result result = CALL_DONE;
  size_t errors_at = 2;
  int at = 0;
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    char outcome = item->is_inherited ? 'a' : outcomes[at++];
    if (outcome == 'a') {
      publish_item(round, item, lane, reply_us);
      if (!item->is_inherited) {
        carry_item(item, lane, &line);
      }
      continue;
    }
    if (outcome == 'r' && errors_at < redis_reply_n(reply)) {
      struct err cause = ERR_INIT;
      (void)classify(redis_reply_at(reply, errors_at++), call, &cause);
      if (cause.class == ERR_REJECT) {
        fail_item(round, item, lane, &cause);
        continue;
      }
      /* Not the message's fault: nothing more of this lane until it is taken over afresh. */
      *err = cause;
      result = CALL_LINK_FAILED;
    }
    lane_decide(lane, item->msg, OUTCOME_WITHHELD, NULL);
  }
  buf_free(&line);
  return result;
}

/* The journal was written, by a call without streams: so these were to blame for the call that was refused, or the index where it was left out. */
static void answer_probe(struct lane *lane) {
  if (!lane->wants_probe) {
    return;
  }
  lane->wants_probe = false;
  if (lane->index == LANE_INDEX_REFUSED) {
    lane->index = LANE_INDEX_LEFT_OUT;
  } else {
    lane->is_single = true;
  }
}

/* Behind the outcomes and an error for each message refused: what the call could not keep up beside the entries. */
static void read_upkeep(const struct call *call, const struct redis_reply *reply, const char *outcomes, size_t n) {
  size_t at = 2;
  for (size_t i = 0; i < n; i++) {
    at += outcomes[i] == 'r';
  }
  if (at < redis_reply_n(reply)) {
    size_t bytes;
    round_log_upkeep(call->lane->no, redis_reply_text(redis_reply_at(reply, at), &bytes));
  }
}

static enum call_result read_written(struct round *round, const struct call *call, const struct redis_reply *reply,
                                     int64_t reply_us, struct err *err) {
  struct lane *lane = call->lane;
  size_t n = 0;
  const char *outcomes = redis_reply_n(reply) >= 2 ? redis_reply_text(redis_reply_at(reply, 1), &n) : "";
  if (n != (size_t)call->adds_n) {
    (void)err_set(err, ERR_RETRY, "EPROTO", "the script answered with %zu outcomes for %d messages", n, call->adds_n);
    return CALL_LANE_FAILED;
  }
  memcpy(lane->token, call->token, sizeof lane->token);
  answer_probe(lane);
  read_upkeep(call, reply, outcomes, n);
  if (strspn(outcomes, "a") == n) {
    publish_all(round, call, reply_us);
    return CALL_DONE;
  }
  return read_outcomes(round, call, reply, outcomes, reply_us, err);
}

static bool is_name_of(const struct journal_name *name, const struct item *item) {
  size_t bytes;
  const char *id = batch_text(item->batch, item->msg, COL_MESSAGE_ID, &bytes);
  return name->id == item->msg->id && name->message_id_bytes == bytes && memcmp(name->message_id, id, bytes) == 0;
}

/* Our own token stands there: the write did happen, its reply was lost.  The journal names, behind those it carried and in order, the
 * messages that went in; why the others did not is not known, they stay pending. */
static enum call_result read_own(struct round *round, const struct call *call, const struct journal_names *names,
                                 int64_t reply_us, struct err *err) {
  struct lane *lane = call->lane;
  if (round->has_wait) {
    (void)err_set(err, ERR_RETRY, "reply_lost",
                  "the write of lane %d happened on a lost connection: whether the replicas have it is not known",
                  lane->no);
    return CALL_LANE_FAILED;
  }
  int at = call->carried_n;
  for (int i = call->first; i < call->first + call->n; i++) {
    if (!round->items[i].is_inherited && at < names->n && is_name_of(&names->v[at], &round->items[i])) {
      at++;
    }
  }
  if (at != names->n) {
    (void)err_set(err, ERR_RETRY, "journal",
                  "the journal has our token, but names messages that were not written with it");
    return CALL_LANE_FAILED;
  }
  memcpy(lane->token, call->token, sizeof lane->token);
  answer_probe(lane);
  struct buf line = BUF_INIT;
  at = call->carried_n;
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    if (item->is_inherited) {
      publish_item(round, item, lane, reply_us);
    } else if (at < names->n && is_name_of(&names->v[at], item)) {
      at++;
      publish_item(round, item, lane, reply_us);
      carry_item(item, lane, &line);
    } else {
      lane_decide(lane, item->msg, OUTCOME_WITHHELD, NULL);
    }
  }
  buf_free(&line);
  return CALL_DONE;
}

static enum call_result read_fenced(struct round *round, const struct call *call, const struct redis_reply *reply,
                                    int64_t reply_us, struct err *err) {
  struct journal_names *names = NULL;
  size_t bytes = 0;
  const char *value = redis_reply_n(reply) >= 2 ? redis_reply_text(redis_reply_at(reply, 1), &bytes) : "";
  enum call_result result = CALL_FENCED;
  if (journal_parse(value, bytes, &names, err) != 0) {
    goto out;
  }
  if (strcmp(names->token, call->token) == 0) {
    result = read_own(round, call, names, reply_us, err);
    goto out;
  }
  (void)err_set(err, ERR_RETRY, "fenced",
                "the journal of lane %d has the token \"%s\" where \"%s\" was left: another relay wrote it%s",
                call->lane->no, names->token, call->lane->token,
                names->token[0] == '\0' ? ", or the key was deleted" : "");
out:
  journal_names_free(names);
  return result;
}

static enum call_result read_error(struct round *round, const struct call *call, const struct redis_reply *reply,
                                   struct err *err) {
  struct lane *lane = call->lane;
  unsigned effects = classify(reply, call, err);
  if ((effects & REDIS_EFFECT_EVAL) != 0) {
    return CALL_EVAL;
  }
  if ((effects & REDIS_EFFECT_SINGLE) != 0 && call->adds_n > 0) {
    if (!lane->is_single) {
      lane->wants_probe = true;
      return CALL_AGAIN;
    }
    assert(call->n == 1);
    fail_item(round, &round->items[call->first], lane, err);
    return CALL_DONE;
  }
  if ((effects & REDIS_EFFECT_SINGLE) != 0 && call->has_index) {
    lane->index = LANE_INDEX_REFUSED;
    round_log_upkeep(lane->no, err->text);
    return CALL_AGAIN;
  }
  enum call_result result = err->class == ERR_RETRY ? CALL_LINK_FAILED : CALL_LANE_FAILED;
  err->class = ERR_RETRY;
  (void)err_wrap(err, "lane %d", lane->no);
  return result;
}

enum call_result round_read_reply(struct round *round, const struct call *call, const struct redis_reply *reply,
                                  int64_t reply_us, struct err *err) {
  if (redis_reply_kind(reply) == REDIS_ERROR) {
    return read_error(round, call, reply, err);
  }
  size_t bytes = 0;
  const char *word = redis_reply_n(reply) > 0 ? redis_reply_text(redis_reply_at(reply, 0), &bytes) : "";
  if (strcmp(word, "WRITTEN") == 0) {
    return read_written(round, call, reply, reply_us, err);
  }
  if (strcmp(word, "FENCED") == 0) {
    return read_fenced(round, call, reply, reply_us, err);
  }
  (void)err_set(err, ERR_RETRY, "EPROTO", "the script answered neither WRITTEN nor FENCED");
  return CALL_LANE_FAILED;
}
