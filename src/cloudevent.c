/*
 * The CloudEvents envelope of a message.
 *
 * Owns nothing.  Any thread.  Never: parses or prints the payload, so that no number or escape in it changes.
 */
#include "outboxd/cloudevent.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/clock.h"

/* Names that an extension must not have, since the envelope has them. */
static const char *const taken[] = {"specversion",     "id",         "source", "type",         "subject", "time",
                                    "datacontenttype", "dataschema", "data",   "aggregatetype"};
#define EXTENSION_NAME_BYTES_MAX 20
#define PLAIN_TIME_BYTES 27 /* of a year with four digits */

/* -------------------------------------------------------------------------------------------------- the source */

static bool is_one_of(char c, const char *set) {
  return c != '\0' && strchr(set, c) != NULL;
}

static bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* RFC 3986: unreserved, reserved, and the percent sign of an escape. */
static bool is_uri_reference(const char *text) {
  for (const char *p = text; *p != '\0'; p++) {
    bool is_escape =
        *p == '%' && is_one_of(p[1], "0123456789abcdefABCDEF") && is_one_of(p[2], "0123456789abcdefABCDEF");
    if (!is_escape && !is_alphanumeric(*p) && !is_one_of(*p, "-._~:/?#[]@!$&'()*+,;=")) {
      return false;
    }
  }
  return true;
}

static int make_source(const char *table, char **out, struct err *err) {
  struct buf buf = BUF_INIT;
  if (buf_append_str(&buf, "/outboxd/", err) != 0) {
    return -1;
  }
  for (const char *p = table; *p != '\0'; p++) {
    bool is_plain = is_alphanumeric(*p) || is_one_of(*p, "-._~");
    if ((is_plain ? buf_append(&buf, p, 1, err) : buf_printf(&buf, err, "%%%02X", (unsigned)(unsigned char)*p)) != 0) {
      buf_free(&buf);
      return -1;
    }
  }
  if (buf_append(&buf, "", 1, err) != 0) {
    buf_free(&buf);
    return -1;
  }
  *out = buf.data;
  return 0;
}

int cloudevent_form_init(struct cloudevent_form *form, const char *source, const char *table, bool is_payload_text,
                         struct err *err) {
  *form = (struct cloudevent_form){.is_payload_text = is_payload_text};
  if (source[0] == '\0') {
    return make_source(table, &form->source, err);
  }
  if (!is_uri_reference(source)) {
    return err_set(err, ERR_USAGE, "bad_source",
                   "--cloudevents-source takes a URI reference, such as /payments or https://example.com/payments; "
                   "other characters are written %%20");
  }
  form->source = strdup(source);
  return form->source != NULL ? 0 : err_errno(err, ERR_RETRY, ENOMEM, "--cloudevents-source");
}

void cloudevent_form_fini(struct cloudevent_form *form) {
  free(form->source);
  form->source = NULL;
}

/* -------------------------------------------------------------------------------------------------- values */

struct sink {
  struct buf *out;
  struct err *err;
};

static int dump(const char *bytes, size_t n, void *arg) {
  struct sink *sink = arg;
  return buf_append(sink->out, bytes, n, sink->err);
}

static int append_json(struct buf *out, const json_t *value, struct err *err) {
  struct sink sink = {out, err};
  return json_dump_callback(value, dump, &sink, JSON_ENCODE_ANY | JSON_COMPACT) == 0
             ? 0
             : err_errno(err, ERR_RETRY, ENOMEM, "an envelope");
}

/* A JSON string.  what: the column, for the error. */
static int append_text(struct buf *out, const char *text, size_t bytes, const char *what, struct err *err) {
  json_t *value = json_stringn(text, bytes);
  if (value == NULL) {
    return err_set(err, ERR_REJECT, "not_utf8", "%s is not UTF-8, which JSON has to be (--format cloudevents)", what);
  }
  int rc = append_json(out, value, err);
  json_decref(value);
  return rc;
}

/* ,"name":"the column's text"; nothing for an empty one: an attribute that is there has a value. */
static int append_column(struct buf *out, const struct batch *batch, const struct msg *msg, enum batch_column column,
                         const char *name, const char *what, struct err *err) {
  size_t bytes;
  const char *text = batch_text(batch, msg, column, &bytes);
  if (bytes == 0) {
    return 0;
  }
  return buf_printf(out, err, ",\"%s\":", name) != 0 ? -1 : append_text(out, text, bytes, what, err);
}

/* The time, where RFC 3339 has one: four digits of year, not infinity. */
static int append_time(struct buf *out, const struct msg *msg, struct err *err) {
  char text[CLOCK_RFC3339_BYTES];
  int64_t us = msg->created_us;
  if (!msg->has_created_at || us == INT64_MAX || us == INT64_MIN) {
    return 0;
  }
  size_t bytes = clock_format_rfc3339(us, text);
  return bytes != PLAIN_TIME_BYTES ? 0 : buf_printf(out, err, ",\"time\":\"%.*s\"", (int)bytes, text);
}

/* -------------------------------------------------------------------------------------------------- extensions */

static bool is_extension_name(const char *name) {
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
  if (n == 0 || n > EXTENSION_NAME_BYTES_MAX || name[n] != '\0') {
    return false;
  }
  for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
    if (strcmp(name, taken[i]) == 0) {
      return false;
    }
  }
  return true;
}

/* Strings without control characters, booleans, integers of 32 bits: the types that an attribute in JSON may have. */
static bool is_extension_value(const json_t *value) {
  if (json_is_integer(value)) {
    return json_integer_value(value) >= INT32_MIN && json_integer_value(value) <= INT32_MAX;
  }
  if (json_is_string(value)) {
    const char *text = json_string_value(value);
    for (size_t i = 0; i < json_string_length(value); i++) {
      unsigned char c = (unsigned char)text[i];
      /* U+0080 to U+009F are 0xC2 and a byte below 0xA0. */
      if (c < 0x20 || c == 0x7f || (c == 0xC2 && (unsigned char)text[i + 1] < 0xA0)) {
        return false;
      }
    }
    return json_string_length(value) > 0;
  }
  return json_is_boolean(value);
}

static int append_headers(struct buf *out, const struct batch *batch, const struct msg *msg, struct err *err) {
  size_t bytes = 0;
  const char *text = batch_has_headers(batch) ? batch_text(batch, msg, COL_HEADERS, &bytes) : "";
  json_t *headers = bytes > 0 ? json_loadb(text, bytes, 0, NULL) : NULL;
  if (headers == NULL && bytes > 0) {
    headers = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL,
                         NULL); /* an integer above 64 bits is no reason to lose the others */
  }
  const char *name;
  json_t *value;
  int rc = 0;
  json_object_foreach(headers, name, value) {
    if (!is_extension_name(name) || !is_extension_value(value)) {
      continue;
    }
    rc = buf_printf(out, err, ",\"%s\":", name) != 0 ? -1 : append_json(out, value, err);
    if (rc != 0) {
      break;
    }
  }
  json_decref(headers);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- the envelope */

static int append_data(const struct cloudevent_form *form, const struct batch *batch, const struct msg *msg,
                       struct buf *out, struct err *err) {
  size_t bytes;
  const char *payload = batch_text(batch, msg, COL_PAYLOAD, &bytes);
  if (batch_is_null(batch, msg, COL_PAYLOAD)) {
    return 0;
  }
  if (buf_append_str(out, ",\"data\":", err) != 0) {
    return -1;
  }
  return form->is_payload_text ? append_text(out, payload, bytes, "payload", err)
                               : buf_append(out, payload, bytes, err);
}

int cloudevent_append(const struct cloudevent_form *form, const struct batch *batch, const struct msg *msg,
                      struct buf *out, struct err *err) {
  size_t type_bytes;
  (void)batch_text(batch, msg, COL_EVENT_TYPE, &type_bytes);
  if (type_bytes == 0) {
    return err_set(err, ERR_REJECT, "no_type", "event_type is empty: a CloudEvent has a type (--format cloudevents)");
  }
  const char *content_type = batch_is_null(batch, msg, COL_PAYLOAD) ? ""
                             : form->is_payload_text                ? ",\"datacontenttype\":\"text/plain\""
                                                                    : ",\"datacontenttype\":\"application/json\"";
  if (buf_append_str(out, "{\"specversion\":\"1.0\"", err) != 0 ||
      append_column(out, batch, msg, COL_MESSAGE_ID, "id", "message_id", err) != 0 ||
      /* A URI reference has nothing that JSON escapes. */
      buf_printf(out, err, ",\"source\":\"%s\"", form->source) != 0 ||
      append_column(out, batch, msg, COL_EVENT_TYPE, "type", "event_type", err) != 0 ||
      append_column(out, batch, msg, COL_AGGREGATE_ID, "subject", "aggregate_id", err) != 0 ||
      append_time(out, msg, err) != 0 || buf_append_str(out, content_type, err) != 0 ||
      append_column(out, batch, msg, COL_AGGREGATE_TYPE, "aggregatetype", "aggregate_type", err) != 0 ||
      append_headers(out, batch, msg, err) != 0 || append_data(form, batch, msg, out, err) != 0) {
    return -1;
  }
  return buf_append(out, "}", 1, err);
}
