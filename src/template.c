/*
 * The stream name's template: checked and cut into pieces once, rendered for each message.
 *
 * Owns each struct template, which nobody writes after template_parse.  Any thread.
 */
#include "outboxd/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLE "outbox:{%l} or outbox:{%l}:%t:%i"
#define LANES "lanes" /* behind the prefix: what the fleet runs with */

enum part_kind { PART_TEXT, PART_LANE, PART_AGGREGATE_TYPE, PART_AGGREGATE_ID, PART_EVENT_TYPE };

struct part {
  enum part_kind kind;
  const char *text; /* PART_TEXT: into the template's own text, not terminated */
  size_t bytes;
};

struct template {
  char *text;          /* all literal text, with %% already made % */
  size_t prefix_bytes; /* what stands before {%l}, at the start of text */
  bool is_per_lane;
  size_t parts_n;
  struct part parts[]; /* the whole name */
};

/* Writes into a buffer that may be too small and counts all the same. */
struct sink {
  char *buf;
  size_t cap;
  size_t len;
};

static void put(struct sink *sink, const char *bytes, size_t n) {
  if (sink->len < sink->cap) {
    size_t room = sink->cap - sink->len;
    memcpy(sink->buf + sink->len, bytes, n < room ? n : room);
  }
  sink->len += n;
}

static void put_lane(struct sink *sink, int lane) {
  char digits[12];
  int n = snprintf(digits, sizeof digits, "%d", lane);
  put(sink, digits, (size_t)n);
}

static int bad(struct err *err, const char *what) {
  return err_set(err, ERR_USAGE, "bad_template", "the stream template %s; right is, for example, %s", what, EXAMPLE);
}

static bool kind_of(char letter, enum part_kind *kind) {
  switch (letter) {
  case 'l':
    *kind = PART_LANE;
    return true;
  case 't':
    *kind = PART_AGGREGATE_TYPE;
    return true;
  case 'i':
    *kind = PART_AGGREGATE_ID;
    return true;
  case 'e':
    *kind = PART_EVENT_TYPE;
    return true;
  case '%':
    *kind = PART_TEXT;
    return true;
  default:
    return false;
  }
}

/* Copies one literal character; a new part starts when the last one was a placeholder. */
static void add_char(struct template *template, char **end, char c) {
  struct part *last = template->parts_n > 0 ? &template->parts[template->parts_n - 1] : NULL;
  if (last == NULL || last->kind != PART_TEXT) {
    last = &template->parts[template->parts_n++];
    *last = (struct part){.kind = PART_TEXT, .text = *end};
  }
  *(*end)++ = c;
  last->bytes++;
}

/* Cuts all of text into parts, the prefix among them. */
static int compile(struct template *template, const char *text, struct err *err) {
  char *end = template->text;
  for (const char *p = text; *p != '\0'; p++) {
    enum part_kind kind = PART_TEXT;
    if (*p == '%') {
      p++;
      if (*p == '\0') {
        return bad(err, "ends with a lone % (a percent sign is written %%)");
      }
      if (!kind_of(*p, &kind)) {
        return bad(
            err,
            "has a % before a letter that stands for nothing: it takes %l lane, %t aggregate_type, %i aggregate_id, "
            "%e event_type, %% percent");
      }
    }
    if (kind == PART_TEXT) {
      add_char(template, &end, *p);
    } else {
      template->parts[template->parts_n++] = (struct part){.kind = kind};
      template->is_per_lane = template->is_per_lane &&kind == PART_LANE;
    }
  }
  return 0;
}

/* Everything before the hash tag must be the same for every message and hold no brace, or Redis would hash something else. */
static int check_prefix(const struct template *template, struct err *err) {
  const struct part *parts = template->parts;
  const char *brace = NULL;
  if (template->parts_n > 0 && parts[0].kind == PART_TEXT) {
    brace = memchr(parts[0].text, '{', parts[0].bytes);
    const char *closing = memchr(parts[0].text, '}', parts[0].bytes);
    if (closing != NULL && (brace == NULL || closing < brace)) {
      return bad(err, "has a } before {%l}");
    }
  } else if (template->parts_n > 0) {
    return bad(err, "has a placeholder before {%l}, where only fixed text may stand");
  }
  if (brace == NULL) {
    return bad(err, template->parts_n > 1 ? "has a placeholder before {%l}, where only fixed text may stand, or no {%l}"
                                          : "has no {%l}, which keeps a lane in one Redis hash slot");
  }
  bool is_tag = brace == parts[0].text + parts[0].bytes - 1 && template->parts_n >= 3 && parts[1].kind == PART_LANE &&
                parts[2].kind == PART_TEXT && parts[2].text[0] == '}';
  return is_tag ? 0 : bad(err, "has a { before {%l}, or something beside %l between its braces");
}

int template_parse(const char *text, struct template **out, struct err *err) {
  size_t len = strlen(text);
  /* There are never more parts than characters. */
  struct template *template = calloc(1, sizeof *template + (len + 1) * sizeof template->parts[0]);
  if (template == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the stream template");
  }
  template->is_per_lane = true;
  template->text = malloc(len + 1);
  if (template->text == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for the stream template");
    goto fail;
  }
  if (compile(template, text, err) != 0 || check_prefix(template, err) != 0) {
    goto fail;
  }
  template->prefix_bytes = template->parts[0].bytes - 1;
  if (template->parts_n == 3 && template->parts[2].bytes == strlen("}:journal") &&
      memcmp(template->parts[2].text, "}:journal", template->parts[2].bytes) == 0) {
    (void)bad(err, "names the key <prefix>{<lane>}:journal, which is the relay's own");
    goto fail;
  }
  *out = template;
  return 0;

fail:
  template_free(template);
  return -1;
}

void template_free(struct template *template) {
  if (template == NULL) {
    return;
  }
  free(template->text);
  free(template);
}

bool template_is_per_lane(const struct template *template) {
  return template->is_per_lane;
}

size_t template_render(const struct template *template, const struct template_values *values, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  for (size_t i = 0; i < template->parts_n; i++) {
    const struct part *part = &template->parts[i];
    switch (part->kind) {
    case PART_TEXT:
      put(&sink, part->text, part->bytes);
      break;
    case PART_LANE:
      put_lane(&sink, values->lane);
      break;
    case PART_AGGREGATE_TYPE:
      put(&sink, values->aggregate_type, values->aggregate_type_bytes);
      break;
    case PART_AGGREGATE_ID:
      put(&sink, values->aggregate_id, values->aggregate_id_bytes);
      break;
    case PART_EVENT_TYPE:
      put(&sink, values->event_type, values->event_type_bytes);
      break;
    }
  }
  return sink.len;
}

/* A pattern's characters stand for themselves behind a backslash. */
static void put_literal(struct sink *sink, const char *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (bytes[i] != '\0' && strchr("*?[]\\", bytes[i]) != NULL) {
      put(sink, "\\", 1);
    }
    put(sink, &bytes[i], 1);
  }
}

typedef void put_text(struct sink *sink, const char *bytes, size_t n);

/* The prefix, written by put for a key or by put_literal for a pattern, and a text behind it. */
static void put_prefixed(const struct template *template, put_text *put_prefix, const char *text, struct sink *sink) {
  put_prefix(sink, template->text, template->prefix_bytes);
  put(sink, text, strlen(text));
}

size_t template_lane_key(const struct template *template, int lane, const char *tail, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  put_prefixed(template, put, "{", &sink);
  put_lane(&sink, lane);
  put(&sink, "}:", 2);
  put(&sink, tail, strlen(tail));
  return sink.len;
}

size_t template_journal_key(const struct template *template, int lane, char *buf, size_t cap) {
  return template_lane_key(template, lane, "journal", buf, cap);
}

size_t template_index_key(const struct template *template, int lane, char *buf, size_t cap) {
  return template_lane_key(template, lane, TEMPLATE_INDEX_TAIL, buf, cap);
}

size_t template_journal_pattern(const struct template *template, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  put_prefixed(template, put_literal, "{*}:journal", &sink);
  return sink.len;
}

size_t template_index_pattern(const struct template *template, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  put_prefixed(template, put_literal, "{*}:" TEMPLATE_INDEX_TAIL, &sink);
  return sink.len;
}

size_t template_lanes_key(const struct template *template, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  put_prefixed(template, put, LANES, &sink);
  return sink.len;
}

size_t template_lanes_pattern(const struct template *template, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  put_prefixed(template, put_literal, LANES, &sink);
  return sink.len;
}

size_t template_stream_pattern(const struct template *template, char *buf, size_t cap) {
  struct sink sink = {buf, cap, 0};
  for (size_t i = 0; i < template->parts_n; i++) {
    const struct part *part = &template->parts[i];
    if (part->kind == PART_TEXT) {
      put_literal(&sink, part->text, part->bytes);
    } else {
      put(&sink, "*", 1);
    }
  }
  return sink.len;
}
