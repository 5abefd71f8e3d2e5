/*
 * The checker's report, for people and for programs.
 */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "check_impl.h"

static const char *const kind_names[CHECK_KINDS_N] = {"lost",    "duplicate",    "out of order",
                                                      "phantom", "wrong fields", "wrong stream"};

const char *check_kind_name(enum check_kind kind) {
  return kind_names[kind];
}

/* 1234567 as 1,234,567. */
static const char *grouped(int64_t n, char buf[32]) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%" PRId64, n);
  char *out = buf;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') {
      *out++ = ',';
    }
    *out++ = digits[i];
  }
  *out = '\0';
  return buf;
}

static void print_count(FILE *out, const char *name, int64_t n, const char *remark) {
  char buf[32];
  fprintf(out, "  %-14s %12s%s%s\n", name, grouped(n, buf), remark[0] != '\0' ? "   " : "", remark);
}

void check_print(const struct check_options *options, const struct check_report *report, FILE *out) {
  char buf[32];
  bool is_good = !report->is_pending_wrong && !report->is_dead_wrong;

  fprintf(out, "%s against the streams %s\n", options->table != NULL ? options->table : "outbox_messages",
          options->stream != NULL ? options->stream : "outbox:{%l}");
  print_count(out, "messages", report->rows_n, "");
  print_count(out, "published", report->published_n, "");
  print_count(out, "pending", report->pending_n, report->is_pending_wrong ? "<- not what was expected" : "");
  if (report->pending_in_stream_n > 0) {
    print_count(out, " in a stream", report->pending_in_stream_n, "(written, not yet marked)");
  }
  print_count(out, "dead", report->dead_n, report->is_dead_wrong ? "<- none was expected" : "");
  if (report->discarded_n > 0) {
    print_count(out, "discarded", report->discarded_n, "");
  }
  print_count(out, "aggregates", report->aggregates_n, "");
  print_count(out, "streams", report->streams_n, "");
  print_count(out, "entries", report->entries_n, "");
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    print_count(out, kind_names[kind], report->found_n[kind], report->found_n[kind] > 0 ? "<-" : "");
    is_good = is_good && report->found_n[kind] == 0;
  }
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    if (report->found_n[kind] == 0) {
      continue;
    }
    fprintf(out, "%s, the first of %s:\n", kind_names[kind], grouped(report->found_n[kind], buf));
    for (int i = 0; i < CHECK_FIRST_N && i < report->found_n[kind]; i++) {
      fprintf(out, "  %s\n", report->first[kind][i]);
    }
  }
  fprintf(out, "%s (checked in %.1f s)\n", is_good ? "Everything is as it should be." : "SOMETHING IS WRONG.",
          report->seconds);
  fflush(out);
}

/* "out of order" as out_of_order. */
static const char *key_of(const char *name, char buf[32]) {
  snprintf(buf, 32, "%s", name);
  for (char *at = buf; *at != '\0'; at++) {
    if (*at == ' ') {
      *at = '_';
    }
  }
  return buf;
}

void check_print_json(const struct check_report *report, FILE *out) {
  json_t *root =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "messages", (json_int_t)report->rows_n,
                "published", (json_int_t)report->published_n, "pending", (json_int_t)report->pending_n,
                "pending_in_stream", (json_int_t)report->pending_in_stream_n, "dead", (json_int_t)report->dead_n,
                "discarded", (json_int_t)report->discarded_n, "aggregates", (json_int_t)report->aggregates_n, "streams",
                (json_int_t)report->streams_n, "entries", (json_int_t)report->entries_n, "seconds", report->seconds);
  json_t *first = json_object();
  bool is_good = !report->is_pending_wrong && !report->is_dead_wrong;
  char key[32];

  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    json_t *lines = json_array();
    is_good = is_good && report->found_n[kind] == 0;
    json_object_set_new(root, key_of(kind_names[kind], key), json_integer(report->found_n[kind]));
    for (int i = 0; i < CHECK_FIRST_N && i < report->found_n[kind]; i++) {
      const char *text = report->first[kind][i];
      json_t *line = json_string(text);
      /* A cut through a character, or bytes that never were UTF-8. */
      json_array_append_new(lines, line != NULL ? line : json_string("(not UTF-8)"));
    }
    json_object_set_new(first, key, lines);
  }
  json_object_set_new(root, "first", first);
  json_object_set_new(root, "is_good", json_boolean(is_good));
  json_dumpf(root, out, JSON_COMPACT);
  fputc('\n', out);
  json_decref(root);
}
