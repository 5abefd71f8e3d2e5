/*
 * A message as an entry of its stream: the stream's name, the fields in their order, what they take.
 *
 * What the relay and `outboxd replay` have in common, so that both write the same.  Pure but for the struct given, which belongs to one thread.
 */
#ifndef OUTBOXD_ENTRY_H
#define OUTBOXD_ENTRY_H

#include <stddef.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/buf.h"
#include "outboxd/clock.h"
#include "outboxd/err.h"
#include "outboxd/redis.h"
#include "outboxd/template.h"

/* message_id, aggregate_type, aggregate_id, event_type, payload, created_at; then headers where the table has them. */
#define ENTRY_FIELDS_N 6

/* created_at's date, formatted once a day. */
struct entry_day {
  int64_t day; /* since 1970 */
  char text[CLOCK_RFC3339_BYTES];
  size_t bytes;
};

#define ENTRY_DAY_INIT \
  { .day = INT64_MIN }

/* Number of fields of the batch's entries: 6, or 7 with headers. */
int entry_fields_n(const struct batch *batch);

/* Renders the name of the message's stream for its lane into buf->data, which grows where it has to; len is left alone.  *bytes gets its length.
 * ERR_RETRY on no memory. */
must_check int entry_stream(const struct template *template, const struct batch *batch, const struct msg *msg,
                            struct buf *buf, size_t *bytes, struct err *err);

/* Appends the fields' values as words of the command under way; SQL NULL is the empty text.  ERR_RETRY on no memory. */
must_check int entry_append(struct redis_pipeline *pipeline, struct entry_day *day, const struct batch *batch,
                            const struct msg *msg, struct err *err);

#endif
