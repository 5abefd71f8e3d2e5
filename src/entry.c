/*
 * A message as an entry of its stream.
 *
 * Owns nothing.  In the relay's common path nothing is allocated for a message.
 */
#include "outboxd/entry.h"

#include <string.h>

#define US_PER_DAY (INT64_C(86400) * 1000000)

/* The fields that are texts; created_at, which is formatted, comes between the payload and the headers. */
static const enum batch_column texts[] = {COL_MESSAGE_ID, COL_AGGREGATE_TYPE, COL_AGGREGATE_ID, COL_EVENT_TYPE,
                                          COL_PAYLOAD};
#define TEXTS_N (sizeof texts / sizeof texts[0])

int entry_fields_n(const struct batch *batch) {
  return ENTRY_FIELDS_N + (batch_has_headers(batch) ? 1 : 0);
}

int entry_stream(const struct template *template, const struct batch *batch, const struct msg *msg, struct buf *buf,
                 size_t *bytes, struct err *err) {
  struct template_values values = {.lane = msg->lane};
  if (!template_is_per_lane(template)) {
    values.aggregate_type = batch_text(batch, msg, COL_AGGREGATE_TYPE, &values.aggregate_type_bytes);
    values.aggregate_id = batch_text(batch, msg, COL_AGGREGATE_ID, &values.aggregate_id_bytes);
    values.event_type = batch_text(batch, msg, COL_EVENT_TYPE, &values.event_type_bytes);
  }
  *bytes = template_render(template, &values, buf->data, buf->size);
  if (*bytes > buf->size) {
    if (buf_reserve(buf, *bytes, err) != 0) {
      return -1;
    }
    *bytes = template_render(template, &values, buf->data, buf->size);
  }
  return 0;
}

/* created_at as clock_format_rfc3339 has it. */
static size_t format_time(struct entry_day *cache, int64_t us, char out[CLOCK_RFC3339_BYTES]) {
  if (us == INT64_MAX || us == INT64_MIN) {
    const char *text = us > 0 ? "infinity" : "-infinity";
    memcpy(out, text, strlen(text));
    return strlen(text);
  }
  int64_t day = us / US_PER_DAY - (us % US_PER_DAY < 0 ? 1 : 0);
  if (day != cache->day) {
    cache->bytes = clock_format_rfc3339(day * US_PER_DAY, cache->text) - strlen("00:00:00.000000Z");
    cache->day = day;
  }
  int64_t rest = us - day * US_PER_DAY;
  memcpy(out, cache->text, cache->bytes);
  char *at = out + cache->bytes;
  memcpy(at, "00:00:00.000000Z", 16);
  for (int i = 14; i >= 9; i--, rest /= 10) {
    at[i] = (char)('0' + rest % 10);
  }
  int second = (int)(rest % 60);
  int minute = (int)(rest / 60 % 60);
  int hour = (int)(rest / 3600);
  at[0] = (char)('0' + hour / 10);
  at[1] = (char)('0' + hour % 10);
  at[3] = (char)('0' + minute / 10);
  at[4] = (char)('0' + minute % 10);
  at[6] = (char)('0' + second / 10);
  at[7] = (char)('0' + second % 10);
  return cache->bytes + 16;
}

static int append_column(struct redis_pipeline *pipeline, const struct batch *batch, const struct msg *msg,
                         enum batch_column column, struct err *err) {
  size_t bytes;
  const char *text = batch_text(batch, msg, column, &bytes);
  return redis_pipeline_arg(pipeline, text, bytes, err);
}

int entry_append(struct redis_pipeline *pipeline, struct entry_day *day, const struct batch *batch,
                 const struct msg *msg, struct err *err) {
  char created_at[CLOCK_RFC3339_BYTES];
  size_t created_at_bytes = 0; /* SQL NULL reads as the empty text, as in the other columns */
  if (msg->has_created_at) {
    created_at_bytes = format_time(day, msg->created_us, created_at);
  }
  for (size_t i = 0; i < TEXTS_N; i++) {
    if (append_column(pipeline, batch, msg, texts[i], err) != 0) {
      return -1;
    }
  }
  if (redis_pipeline_arg(pipeline, created_at, created_at_bytes, err) != 0) {
    return -1;
  }
  return batch_has_headers(batch) ? append_column(pipeline, batch, msg, COL_HEADERS, err) : 0;
}
