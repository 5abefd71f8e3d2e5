/*
 * A message as a CloudEvents 1.0 envelope in JSON (--format cloudevents).
 *
 * https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md, structured mode.  Pure functions, any thread.
 */
#ifndef OUTBOXD_CLOUDEVENT_H
#define OUTBOXD_CLOUDEVENT_H

#include <stdbool.h>

#include "outboxd/batch.h"
#include "outboxd/buf.h"
#include "outboxd/err.h"

/* What all envelopes of a table have in common.  Immutable once made. */
struct cloudevent_form {
  char *source;         /* a URI reference; owned */
  bool is_payload_text; /* the payload is text, not json or jsonb: data is a JSON string */
};

/* source: --cloudevents-source; "" gives /outboxd/<table>, percent-encoded where it has to be.  ERR_USAGE when source is no URI reference.
 * Caller: cloudevent_form_fini. */
must_check int cloudevent_form_init(struct cloudevent_form *form, const char *source, const char *table,
                                    bool is_payload_text, struct err *err);
void cloudevent_form_fini(struct cloudevent_form *form);

/* Appends the envelope: specversion, id (message_id), source, type (event_type), subject (aggregate_id), time (created_at), datacontenttype,
 * aggregatetype, the headers that can be extension attributes, data (the payload byte for byte; left out when it is NULL).
 * ERR_REJECT with a sentence when the message has no envelope: empty event_type, text that is not UTF-8.  ERR_RETRY on no memory.  *out has garbage
 * behind its old length then. */
must_check int cloudevent_append(const struct cloudevent_form *form, const struct batch *batch, const struct msg *msg,
                                 struct buf *out, struct err *err);

#endif
