/*
 * The lines between outbox-consume and a handler.
 *
 * Owns nothing.  Any thread.  Never parses a payload into anything: numbers and escapes reach the handler as PostgreSQL printed them.
 */
#include "outboxd/exec_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define ANSWER_SHOWN_BYTES 80

/* -------------------------------------------------------------------------------------------------- grammar */

/* Where in a text, and in which nesting: a '{' or '[' for each level. */
struct scan {
  const char *at, *end;
  struct buf levels;
};

static void skip_space(struct scan *scan) {
  while (scan->at < scan->end && memchr(" \t\r\n", *scan->at, 4) != NULL) {
    scan->at++;
  }
}

static bool take(struct scan *scan, char c) {
  if (scan->at < scan->end && *scan->at == c) {
    scan->at++;
    return true;
  }
  return false;
}

static bool take_string(struct scan *scan) {
  if (!take(scan, '"')) {
    return false;
  }
  while (scan->at < scan->end && *scan->at != '"') {
    unsigned char c = (unsigned char)*scan->at++;
    if (c < 0x20) {
      return false;
    }
    if (c == '\\') {
      if (take(scan, 'u')) {
        for (int i = 0; i < 4; i++) {
          if (scan->at >= scan->end || memchr("0123456789abcdefABCDEF", *scan->at++, 22) == NULL) {
            return false;
          }
        }
      } else if (scan->at >= scan->end || memchr("\"\\/bfnrt", *scan->at++, 8) == NULL) {
        return false;
      }
    }
  }
  return take(scan, '"');
}

static bool take_digits(struct scan *scan) {
  const char *from = scan->at;
  while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9') {
    scan->at++;
  }
  return scan->at > from;
}

static bool take_number(struct scan *scan) {
  (void)take(scan, '-');
  if (!take(scan, '0') && !take_digits(scan)) {
    return false;
  }
  if (take(scan, '.') && !take_digits(scan)) {
    return false;
  }
  if (take(scan, 'e') || take(scan, 'E')) {
    if (!take(scan, '+')) {
      (void)take(scan, '-');
    }
    return take_digits(scan);
  }
  return true;
}

static bool take_word(struct scan *scan, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(scan->end - scan->at) < n || memcmp(scan->at, word, n) != 0) {
    return false;
  }
  scan->at += n;
  return true;
}

static bool take_key(struct scan *scan) {
  skip_space(scan);
  if (!take_string(scan)) {
    return false;
  }
  skip_space(scan);
  return take(scan, ':');
}

/* A value, or the beginning of one with parts.  *is_whole: it has ended. */
static bool take_value(struct scan *scan, bool *is_whole) {
  skip_space(scan);
  *is_whole = true;
  if (scan->at >= scan->end) {
    return false;
  }
  char c = *scan->at;
  if (c == '{' || c == '[') {
    scan->at++;
    skip_space(scan);
    if (take(scan, c == '{' ? '}' : ']')) {
      return true;
    }
    *is_whole = false;
    return buf_append(&scan->levels, &c, 1, NULL) == 0 && (c == '[' || take_key(scan));
  }
  return c == '"' ? take_string(scan)
                  : take_word(scan, "true") || take_word(scan, "false") || take_word(scan, "null") || take_number(scan);
}

/* What follows a value that has ended, within its levels: a comma, or ends. */
static bool take_after(struct scan *scan) {
  while (scan->levels.len > 0) {
    char level = scan->levels.data[scan->levels.len - 1];
    skip_space(scan);
    if (take(scan, ',')) {
      return level == '[' || take_key(scan);
    }
    if (!take(scan, level == '{' ? '}' : ']')) {
      return false;
    }
    scan->levels.len--;
  }
  return true;
}

bool exec_line_is_json(const char *bytes, size_t n) {
  struct scan scan = {.at = bytes, .end = bytes + n, .levels = BUF_INIT};
  bool is_good = true;
  do {
    bool is_whole = false;
    is_good = take_value(&scan, &is_whole) && (!is_whole || take_after(&scan));
    if (is_whole && scan.levels.len == 0) {
      break;
    }
  } while (is_good);
  skip_space(&scan);
  is_good = is_good && scan.at == scan.end;
  buf_free(&scan.levels);
  return is_good;
}

/* -------------------------------------------------------------------------------------------------- a message */

static int put_string(struct buf *line, const char *text, size_t n, struct err *err) {
  if (buf_append(line, "\"", 1, err) != 0) {
    return -1;
  }
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    int rc;
    if (c == '"' || c == '\\') {
      rc = buf_printf(line, err, "\\%c", c);
    } else if (c < 0x20 || c == 0x7f) {
      rc = buf_printf(line, err, "\\u%04x", c);
    } else {
      rc = buf_append(line, &text[i], 1, err);
    }
    if (rc != 0) {
      return -1;
    }
  }
  return buf_append(line, "\"", 1, err);
}

static int put_member(struct buf *line, const char *name, const char *text, struct err *err) {
  if (buf_printf(line, err, "%s\"%s\":", line->data[line->len - 1] == '{' ? "" : ",", name) != 0) {
    return -1;
  }
  return text != NULL ? put_string(line, text, strlen(text), err) : buf_append_str(line, "null", err);
}

/* A JSON text as it stands, or under another name as a string. */
static int put_json(struct buf *line, const char *name, const char *text, size_t n, struct err *err) {
  if (!exec_line_is_json(text, n)) {
    return buf_printf(line, err, ",\"%s_text\":", name) == 0 ? put_string(line, text, n, err) : -1;
  }
  if (buf_printf(line, err, ",\"%s\":", name) != 0) {
    return -1;
  }
  size_t from = line->len;
  if (buf_append(line, text, n, err) != 0) {
    return -1;
  }
  /* Within strings JSON has no line breaks: these stand between parts. */
  for (size_t i = from; i < line->len; i++) {
    if (line->data[i] == '\n' || line->data[i] == '\r') {
      line->data[i] = ' ';
    }
  }
  return 0;
}

int exec_line_write(struct buf *line, const struct outbox_message *message, bool has_place, struct err *err) {
  if (buf_append(line, "{", 1, err) != 0 || put_member(line, "message_id", message->message_id, err) != 0 ||
      put_member(line, "aggregate_type", message->aggregate_type, err) != 0 ||
      put_member(line, "aggregate_id", message->aggregate_id, err) != 0 ||
      put_member(line, "event_type", message->event_type, err) != 0) {
    return -1;
  }
  if (message->payload != NULL && put_json(line, "payload", message->payload, message->payload_bytes, err) != 0) {
    return -1;
  }
  if (message->cloudevent != NULL &&
      put_json(line, "cloudevent", message->cloudevent, message->cloudevent_bytes, err) != 0) {
    return -1;
  }
  if (put_member(line, "created_at", message->created_at, err) != 0) {
    return -1;
  }
  if (message->headers != NULL ? put_json(line, "headers", message->headers, message->headers_bytes, err) != 0
                               : buf_append_str(line, ",\"headers\":null", err) != 0) {
    return -1;
  }
  if (has_place && (put_member(line, "stream", message->stream, err) != 0 ||
                    put_member(line, "entry_id", message->entry_id, err) != 0)) {
    return -1;
  }
  return buf_printf(line, err, ",\"lane\":%d,\"attempt\":%d}\n", message->lane, message->attempt);
}

/* -------------------------------------------------------------------------------------------------- an answer */

static int refuse(const char *line, size_t bytes, struct err *err) {
  char shown[ANSWER_SHOWN_BYTES + 1];
  size_t n = 0;
  while (n < bytes && n < ANSWER_SHOWN_BYTES) {
    shown[n] = line[n] >= ' ' && line[n] < 0x7f ? line[n] : '?';
    n++;
  }
  shown[n] = '\0';
  return err_set(err, ERR_REJECT, "bad_answer",
                 "the handler answered \"%s\"; right is {\"ok\":true}, {\"ok\":false,\"error\":\"why\"}, or one of the "
                 "words ok, retry, park, later with a reason behind it",
                 shown);
}

static int read_object(const json_t *object, const char *line, size_t bytes, enum outbox_verdict *verdict,
                       struct outbox_failure *failure, struct err *err) {
  const json_t *ok = json_object_get(object, "ok");
  const char *error = json_string_value(json_object_get(object, "error"));
  json_int_t after_ms = json_integer_value(json_object_get(object, "retry_after_ms"));
  if (!json_is_boolean(ok)) {
    return refuse(line, bytes, err);
  }
  *verdict = json_is_true(ok)                                 ? OUTBOX_DONE
             : json_is_true(json_object_get(object, "park"))  ? OUTBOX_PARK
             : json_is_true(json_object_get(object, "later")) ? OUTBOX_LATER
                                                              : OUTBOX_RETRY;
  (void)snprintf(failure->text, sizeof failure->text, "%s",
                 error != NULL             ? error
                 : *verdict == OUTBOX_DONE ? ""
                                           : "the handler did not say why");
  failure->retry_after_ms = after_ms > 0 ? after_ms : 0;
  return 0;
}

static int read_word(const char *line, size_t bytes, enum outbox_verdict *verdict, struct outbox_failure *failure,
                     struct err *err) {
  static const struct {
    const char *word;
    enum outbox_verdict verdict;
  } words[] = {{"ok", OUTBOX_DONE}, {"retry", OUTBOX_RETRY}, {"park", OUTBOX_PARK}, {"later", OUTBOX_LATER}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    size_t n = strlen(words[i].word);
    if (bytes >= n && memcmp(line, words[i].word, n) == 0 && (bytes == n || line[n] == ' ')) {
      *verdict = words[i].verdict;
      size_t at = bytes == n ? n : n + 1;
      (void)snprintf(failure->text, sizeof failure->text, "%.*s", (int)(bytes - at < 1000 ? bytes - at : 1000),
                     line + at);
      if (failure->text[0] == '\0' && *verdict != OUTBOX_DONE) {
        (void)snprintf(failure->text, sizeof failure->text, "the handler did not say why");
      }
      return 0;
    }
  }
  return refuse(line, bytes, err);
}

int exec_line_read(const char *line, size_t bytes, enum outbox_verdict *verdict, struct outbox_failure *failure,
                   struct err *err) {
  *failure = (struct outbox_failure){0};
  while (bytes > 0 && (line[bytes - 1] == '\r' || line[bytes - 1] == ' ')) {
    bytes--;
  }
  if (bytes == 0 || line[0] != '{') {
    return read_word(line, bytes, verdict, failure, err);
  }
  /* jansson takes a zero byte for the end. */
  json_t *object = memchr(line, '\0', bytes) == NULL ? json_loadb(line, bytes, 0, NULL) : NULL;
  int rc = json_is_object(object) ? read_object(object, line, bytes, verdict, failure, err) : refuse(line, bytes, err);
  json_decref(object);
  return rc;
}
