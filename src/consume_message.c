/*
 * One message: read out of its entry, given to the handler in its transaction.
 *
 * Owns nothing beyond a call.  Runs on the worker's thread.  Never acknowledges, parks, retries.
 */
#include <stdio.h>
#include <string.h>

#include "outboxd/consume_impl.h"

/* -------------------------------------------------------------------------------------------------- reading */

static const char *text_of(const json_t *envelope, const char *name, const char *otherwise) {
  const char *text = json_string_value(json_object_get(envelope, name));
  return text != NULL ? text : otherwise;
}

/* The attributes of CloudEvents that stand for the table's columns. */
static int parse_cloudevent(struct outbox_message *message, json_t **json, struct err *err) {
  json_error_t error;
  *json = json_loadb(message->cloudevent, message->cloudevent_bytes, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(*json)) {
    return err_set(err, ERR_REJECT, "cloudevent", "the field cloudevent holds no JSON object");
  }
  message->message_id = text_of(*json, "id", NULL);
  message->event_type = text_of(*json, "type", NULL);
  message->aggregate_type = text_of(*json, "aggregatetype", text_of(*json, "source", NULL));
  message->aggregate_id = text_of(*json, "aggregateid", text_of(*json, "subject", ""));
  message->created_at = text_of(*json, "time", NULL);
  return 0;
}

static void take_field(struct outbox_message *message, const char *name, const char *value, size_t bytes) {
  if (strcmp(name, "message_id") == 0) {
    message->message_id = value;
  } else if (strcmp(name, "aggregate_type") == 0) {
    message->aggregate_type = value;
  } else if (strcmp(name, "aggregate_id") == 0) {
    message->aggregate_id = value;
  } else if (strcmp(name, "event_type") == 0) {
    message->event_type = value;
  } else if (strcmp(name, "payload") == 0) {
    message->payload = value;
    message->payload_bytes = bytes;
  } else if (strcmp(name, "created_at") == 0) {
    message->created_at = value;
  } else if (strcmp(name, "headers") == 0 && bytes > 0) {
    message->headers = value;
    message->headers_bytes = bytes;
  } else if (strcmp(name, "cloudevent") == 0) {
    message->cloudevent = value;
    message->cloudevent_bytes = bytes;
  }
}

int consume_parse(const struct redis_reply *fields, struct outbox_message *message, json_t **json, struct err *err) {
  *message = (struct outbox_message){0};
  *json = NULL;
  for (size_t i = 0; i + 1 < redis_reply_n(fields); i += 2) {
    size_t name_bytes;
    size_t bytes;
    const char *name = redis_reply_text(redis_reply_at(fields, i), &name_bytes);
    const char *value = redis_reply_text(redis_reply_at(fields, i + 1), &bytes);
    take_field(message, name, value, bytes);
  }
  if (message->cloudevent != NULL && parse_cloudevent(message, json, err) != 0) {
    return -1;
  }
  const struct {
    const char *name, *value;
  } needed[] = {{"message_id", message->message_id},
                {"aggregate_type", message->aggregate_type},
                {"aggregate_id", message->aggregate_id},
                {"event_type", message->event_type},
                {"payload", message->cloudevent != NULL ? "" : message->payload}};
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
    if (needed[i].value == NULL) {
      return err_set(err, ERR_REJECT, "no_message", "the entry has no %s: it was not written by a relay",
                     needed[i].name);
    }
  }
  return 0;
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) {
    hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
  }
  return hash;
}

uint64_t consume_aggregate_key(const struct outbox_message *message) {
  size_t n = strlen(message->aggregate_type);
  uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), message->aggregate_type, n + 1);
  return hash_bytes(hash, message->aggregate_id, strlen(message->aggregate_id));
}

/* -------------------------------------------------------------------------------------------------- handling */

/* An inherited message may have been what its former worker died of.  So the attempt is counted before it is made; of those that are new it is counted
 * when it has failed, which spares a round trip.  *is_pending: it was neither acknowledged nor parked since it was asked for.  A stream that moves up in the
 * index while all of it is gone through is asked twice, and what waits for a retry meanwhile is found twice. */
static int count_attempt(struct consume_worker *worker, const struct consume_entry *entry, bool *is_pending,
                         struct err *err) {
  const char *group = worker->cfg->group;
  struct redis_pipeline *call = worker->call;
  char count[16];
  (void)snprintf(count, sizeof count, "%d", entry->failures + 2);
  redis_pipeline_reset(call, CONSUME_BATCH_BYTES);
  if (redis_pipeline_command(call, err, "XPENDING", entry->stream, group, entry->id, entry->id, "1", NULL) != 0 ||
      redis_pipeline_command(call, err, "XCLAIM", entry->stream, group, CONSUME_NAME, "0", entry->id, "RETRYCOUNT",
                             count, "JUSTID", NULL) != 0 ||
      consume_exchange(worker, call, err) != 0) {
    return -1;
  }
  for (int i = 0; i < redis_pipeline_n(call); i++) {
    if (redis_reply_is_error(redis_pipeline_reply(call, i), NULL, err)) {
      return -1;
    }
  }
  *is_pending = redis_reply_n(redis_pipeline_reply(call, 0)) > 0;
  return 0;
}

/* Calls the handler between lending the connection and taking it back. */
static enum consume_outcome call_handler(struct consume_worker *worker, const struct outbox_message *message,
                                         struct outbox_failure *failure, struct err *err) {
  const struct consume_shared *shared = worker->shared;
  PGconn *conn = session_lend(&worker->session, err);
  if (conn == NULL) {
    return CONSUME_GONE;
  }
  *failure = (struct outbox_failure){0};
  enum outbox_verdict verdict = shared->handle(shared->ctx, conn, message, failure);
  failure->text[sizeof failure->text - 1] = '\0';
  if (session_take_back(&worker->session, err) != 0) {
    if (err->class != ERR_REJECT) {
      return CONSUME_GONE;
    }
    if (verdict == OUTBOX_DONE) {
      (void)snprintf(failure->text, sizeof failure->text, "%s", err->text);
      verdict = OUTBOX_RETRY;
    }
  }
  switch (verdict) {
  case OUTBOX_DONE:
    return CONSUME_HANDLED;
  case OUTBOX_RETRY:
    return CONSUME_FAILED;
  case OUTBOX_PARK:
    return CONSUME_REFUSED;
  case OUTBOX_LATER:
    return CONSUME_UNABLE;
  }
  return CONSUME_FAILED;
}

enum consume_outcome consume_message(struct consume_worker *worker, const struct consume_entry *entry,
                                     const struct outbox_message *message, struct outbox_failure *failure,
                                     struct err *err) {
  struct consume_session *session = &worker->session;
  bool is_first = false;
  bool is_pending = true;
  *failure = (struct outbox_failure){0};
  if (session_begin(session, message->message_id, &is_first, err) != 0) {
    (void)snprintf(failure->text, sizeof failure->text, "cannot be marked as handled: %.900s", err->text);
    return err->class == ERR_REJECT ? CONSUME_REFUSED : CONSUME_GONE;
  }
  if (!is_first) {
    return session_rollback(session, err) == 0 ? CONSUME_REPEATED : CONSUME_GONE;
  }
  if (entry->is_inherited && count_attempt(worker, entry, &is_pending, err) != 0) {
    struct err ignored = ERR_INIT;
    (void)(session_rollback(session, &ignored) == 0);
    return CONSUME_GONE;
  }
  if (!is_pending) {
    return session_rollback(session, err) == 0 ? CONSUME_REPEATED : CONSUME_GONE;
  }
  enum consume_outcome outcome = call_handler(worker, message, failure, err);
  if (outcome == CONSUME_GONE) {
    return outcome;
  }
  if (outcome == CONSUME_HANDLED) {
    if (session_commit(session, err) == 0) {
      return CONSUME_HANDLED;
    }
    (void)snprintf(failure->text, sizeof failure->text, "COMMIT: %.900s", err->text);
    return err->class == ERR_REJECT ? CONSUME_FAILED : CONSUME_GONE;
  }
  if (session_is_open(session) && session_rollback(session, err) != 0) {
    return CONSUME_GONE;
  }
  return session_is_open(session) ? outcome : CONSUME_GONE;
}
