/*
 * The checker's reading of the streams: finds them by the template, pages through each, judges every entry.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"
#include "fail.h"
#include "rds.h"

/* A page of XRANGE: so many entries, or fewer where rows are large. */
#define PAGE_ENTRIES_MAX 2000
#define PAGE_BYTES (16 * 1024 * 1024)
#define SHOWN_BYTES_MAX 60

static const char *const field_names[CHECK_FIELDS_N] = {"aggregate_type", "aggregate_id", "event_type",
                                                        "payload",        "created_at",   "headers"};

/* The template as a glob: literal text escaped, * for each placeholder. */
static char *make_pattern(const char *stream) {
  char *pattern = malloc(strlen(stream) * 2 + 1);
  char *out = pattern;

  if (pattern == NULL) {
    FAIL("out of memory");
  }
  for (const char *at = stream; *at != '\0'; at++) {
    if (*at == '%' && at[1] == '%') {
      at++;
      *out++ = '%';
    } else if (*at == '%' && at[1] != '\0') {
      at++;
      *out++ = '*';
    } else {
      if (strchr("*?[]\\^-", *at) != NULL) {
        *out++ = '\\';
      }
      *out++ = *at;
    }
  }
  *out = '\0';
  return pattern;
}

static void find_streams(struct check *check, redisContext *redis) {
  char *pattern = make_pattern(check->options->stream);
  char cursor[32] = "0";

  do {
    redisReply *reply = rds_cmd(redis, "SCAN %s MATCH %s COUNT 5000 TYPE stream", cursor, pattern);
    REQUIRE(reply->elements == 2 && reply->element[1]->type == REDIS_REPLY_ARRAY, "SCAN: an unexpected reply");
    snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
    for (size_t i = 0; i < reply->element[1]->elements; i++) {
      const redisReply *name = reply->element[1]->element[i];
      check_stream_of(check, name->str, name->len)->is_there = true;
    }
    freeReplyObject(reply);
  } while (strcmp(cursor, "0") != 0);
  free(pattern);
}

/* Where an entry stands, for the report. */
struct place {
  const struct check_stream *stream;
  const char *entry_id;
};

/* "stream outbox:{3}, entry 17-1" */
static const char *place_text(const struct place *place, char buf[256]) {
  snprintf(buf, 256, "stream %.*s, entry %s", (int)(place->stream->name_bytes < 160 ? place->stream->name_bytes : 160),
           place->stream->name, place->entry_id);
  return buf;
}

/* Compares the fields with the row; at most one finding an entry. */
static void judge_fields(struct check *check, const struct check_row *row, const redisReply *fields,
                         const struct place *place) {
  size_t fields_n = check->has_headers ? CHECK_FIELDS_N : CHECK_FIELDS_N - 1;
  char where[256];

  if (fields->elements != 2 * (fields_n + 1)) {
    check_note(check, CHECK_FIELDS, "message %s: %zu fields, not %zu (%s)", row->message_id, fields->elements / 2,
               fields_n + 1, place_text(place, where));
    return;
  }
  for (size_t i = 0; i < fields_n; i++) {
    const redisReply *name = fields->element[2 * (i + 1)];
    const redisReply *value = fields->element[2 * (i + 1) + 1];
    if (name->len != strlen(field_names[i]) || memcmp(name->str, field_names[i], name->len) != 0) {
      check_note(check, CHECK_FIELDS, "message %s: field %zu is named %.*s, not %s (%s)", row->message_id, i + 2,
                 (int)(name->len < SHOWN_BYTES_MAX ? name->len : SHOWN_BYTES_MAX), name->str, field_names[i],
                 place_text(place, where));
      return;
    }
    if (check_hash(value->str, value->len) != row->hashes[i]) {
      check_note(check, CHECK_FIELDS,
                 "message %s (id %" PRId64 "): %s differs from the row, the stream has %zu bytes: %.*s (%s)",
                 row->message_id, row->id, field_names[i], (size_t)value->len,
                 (int)(value->len < SHOWN_BYTES_MAX ? value->len : SHOWN_BYTES_MAX), value->str,
                 place_text(place, where));
      return;
    }
  }
}

/* First appearance of a message: is its aggregate further on already? */
static void judge_order(struct check *check, const struct check_row *row, const struct place *place) {
  struct check_aggregate *aggregate = row->aggregate;

  if (aggregate->stream_number != place->stream->number) {
    aggregate->stream_number = place->stream->number;
    aggregate->last_id = INT64_MIN;
  }
  if (row->id < aggregate->last_id) {
    char where[256];
    check_note(check, CHECK_OUT_OF_ORDER,
               "message %s: id %" PRId64 " comes after id %" PRId64 " of the same aggregate (%s)", row->message_id,
               row->id, aggregate->last_id, place_text(place, where));
    return;
  }
  aggregate->last_id = row->id;
}

static void judge_entry(struct check *check, const redisReply *entry, const struct check_stream *stream) {
  struct place place = {.stream = stream};
  const redisReply *fields, *message_id;
  struct check_row *row;
  char where[256];

  REQUIRE(entry->type == REDIS_REPLY_ARRAY && entry->elements == 2 && entry->element[1]->type == REDIS_REPLY_ARRAY,
          "XRANGE: an unexpected reply");
  place.entry_id = entry->element[0]->str;
  fields = entry->element[1];
  check->report->entries_n++;
  if (fields->elements < 2 || strcmp(fields->element[0]->str, "message_id") != 0) {
    check_note(check, CHECK_PHANTOM, "an entry whose first field is not message_id (%s)", place_text(&place, where));
    return;
  }
  message_id = fields->element[1];
  HASH_FIND(hh, check->rows, message_id->str, message_id->len, row);
  if (row == NULL) {
    check_note(check, CHECK_PHANTOM, "message %.*s: the table has no such row (%s)",
               (int)(message_id->len < SHOWN_BYTES_MAX ? message_id->len : SHOWN_BYTES_MAX), message_id->str,
               place_text(&place, where));
    return;
  }
  row->seen_n++;
  if (row->state == ROW_DISCARDED) {
    check_note(check, CHECK_PHANTOM, "message %s (id %" PRId64 "): was discarded, but is in a stream (%s)",
               row->message_id, row->id, place_text(&place, where));
  }
  judge_fields(check, row, fields, &place);
  if (row->stream != stream) {
    check_note(check, CHECK_WRONG_STREAM, "message %s (id %" PRId64 "): belongs to %.*s (%s)", row->message_id, row->id,
               (int)(row->stream->name_bytes < 100 ? row->stream->name_bytes : 100), row->stream->name,
               place_text(&place, where));
  }
  if (row->seen_n > 1) {
    check_note(check, CHECK_DUPLICATE, "message %s (id %" PRId64 "): appearance number %" PRId64 " (%s)",
               row->message_id, row->id, row->seen_n, place_text(&place, where));
    return;
  }
  judge_order(check, row, &place);
}

static void ask_page(redisContext *redis, const struct check_stream *stream, const char *from, size_t count) {
  /* Written out before the reply of the page before is judged, so that server and checker work at the same time. */
  int done = 0;
  if (redisAppendCommand(redis, "XRANGE %b %s + COUNT %lld", stream->name, stream->name_bytes, from,
                         (long long)count) != REDIS_OK) {
    FAIL("Redis, XRANGE: %s", redis->errstr);
  }
  while (!done) {
    REQUIRE(redisBufferWrite(redis, &done) == REDIS_OK, "Redis, XRANGE: %s", redis->errstr);
  }
}

static void read_stream(struct check *check, redisContext *redis, const struct check_stream *stream) {
  size_t fitting_n = PAGE_BYTES / (stream->largest_row_bytes + 200);
  size_t count = fitting_n > PAGE_ENTRIES_MAX ? PAGE_ENTRIES_MAX : fitting_n + 1;
  redisReply *page;
  bool is_last = false;

  ask_page(redis, stream, "-", count);
  while (!is_last) {
    if (redisGetReply(redis, (void **)&page) != REDIS_OK) {
      FAIL("Redis, XRANGE: %s", redis->errstr);
    }
    if (page->type != REDIS_REPLY_ARRAY) {
      FAIL("Redis, XRANGE %s: %s", stream->name, page->type == REDIS_REPLY_ERROR ? page->str : "unexpected");
    }
    is_last = page->elements < count;
    if (!is_last) {
      char from[64];
      snprintf(from, sizeof from, "(%s", page->element[page->elements - 1]->element[0]->str);
      ask_page(redis, stream, from, count);
    }
    for (size_t i = 0; i < page->elements; i++) {
      judge_entry(check, page->element[i], stream);
    }
    freeReplyObject(page);
  }
}

static void judge_missing(struct check *check) {
  for (const struct check_row *row = check->rows; row != NULL; row = row->hh.next) {
    if (row->seen_n > 0 && row->state == ROW_PENDING) {
      check->report->pending_in_stream_n++;
    }
    if (row->seen_n > 0 || row->state != ROW_PUBLISHED) {
      continue;
    }
    check_note(check, CHECK_LOST, "message %s (id %" PRId64 "): marked published, but in no stream; belongs to %.*s",
               row->message_id, row->id, (int)(row->stream->name_bytes < 100 ? row->stream->name_bytes : 100),
               row->stream->name);
  }
}

void check_read_streams(struct check *check) {
  redisContext *redis = rds_open(check->options->redis_url);

  find_streams(check, redis);
  for (const struct check_stream *stream = check->streams; stream != NULL; stream = stream->hh.next) {
    if (!stream->is_there) {
      continue;
    }
    check->report->streams_n++;
    read_stream(check, redis, stream);
  }
  judge_missing(check);
  redisFree(redis);
}
