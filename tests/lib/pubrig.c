/*
 * The rig around a publisher: see pubrig.h.
 */
#include "pubrig.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "outboxd/clock.h"
#include "wait.h"

#define NOTE_MS 30000
#define POSTGRES_EPOCH_US INT64_C(946684800000000)

static const char *const kind_names[] = {"NOTE_DONE", "NOTE_JOURNAL", "NOTE_TAKE_FAILED", "NOTE_LANE_LOST",
                                         "NOTE_FATAL"};

void rig_init(struct rig *rig, const char *redis_url) {
  *rig = (struct rig){.stream = "outbox:{%l}", .fleet = RIG_FLEET, .epoch = 1};
  rig->cfg.lanes_n = RIG_LANES_N;
  rig->cfg.publishers_n = 1;
  rig->cfg.max_write_bytes = 8 * 1024 * 1024;
  rig->cfg.redis_timeout_ms = 2000;
  snprintf(rig->url_text, sizeof rig->url_text, "%s", redis_url);
}

void rig_start(struct rig *rig) {
  struct err err = ERR_INIT;
  if (url_parse(rig->url_text, &rig->url, &err) != 0 || template_parse(rig->stream, &rig->template, &err) != 0 ||
      queue_new(&rig->notes, true, &err) != 0 || stop_new(&rig->abort, &err) != 0 ||
      publisher_start(&rig->cfg, &rig->url, rig->template, NULL, rig->fleet, 0, rig->notes, rig->abort, &rig->publisher,
                      &err) != 0)
    FAIL("%s", err.text);
  rig_push(rig, JOB_EPOCH, 0);
}

void rig_stop(struct rig *rig) {
  publisher_stop(rig->publisher);
  while (!rig_is_quiet(rig))
    rig_free_note(rig_note(rig, 0));
  queue_free(rig->notes);
  stop_free(rig->abort);
  template_free(rig->template);
  url_fini(&rig->url);
}

/* ---- batches */

static void set_value(PGresult *result, int row, int column, const void *bytes, size_t n) {
  char empty[1] = "";
  char *copy = n > 0 ? malloc(n) : empty;
  if (copy == NULL)
    FAIL("out of memory");
  if (n > 0)
    memcpy(copy, bytes, n);
  if (!PQsetvalue(result, row, column, copy, bytes == NULL ? -1 : (int)n))
    FAIL("PQsetvalue");
  if (n > 0)
    free(copy);
}

static void set_text(PGresult *result, int row, int column, const char *text) {
  set_value(result, row, column, text, text != NULL ? strlen(text) : 0);
}

static void set_int64(PGresult *result, int row, int column, int64_t value) {
  uint64_t big = htobe64((uint64_t)value);
  set_value(result, row, column, &big, sizeof big);
}

static void set_int32(PGresult *result, int row, int column, int32_t value) {
  uint32_t big = htobe32((uint32_t)value);
  set_value(result, row, column, &big, sizeof big);
}

static int64_t key_of(const char *type, const char *aggregate) {
  uint64_t hash = 1469598103934665603u;
  for (const char *p = type; *p != '\0'; p++)
    hash = (hash ^ (unsigned char)*p) * 1099511628211u;
  hash = (hash ^ 0xff) * 1099511628211u;
  for (const char *p = aggregate; *p != '\0'; p++)
    hash = (hash ^ (unsigned char)*p) * 1099511628211u;
  return (int64_t)hash;
}

struct batch *rig_batch(struct rig *rig, const struct rig_row *rows, int n) {
  static char name[] = "column";
  PGresAttDesc columns[COL_HEADERS + 1];
  bool has_headers = n > 0 && (rows[0].headers == NULL || strcmp(rows[0].headers, "none") != 0);
  int64_t now_us = clock_wall_us() - POSTGRES_EPOCH_US;
  PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
  struct batch *batch;
  struct err err = ERR_INIT;

  for (int i = 0; i <= COL_HEADERS; i++)
    columns[i] = (PGresAttDesc){.name = name, .format = 1, .typid = 25, .typlen = -1};
  if (result == NULL || !PQsetResultAttrs(result, has_headers ? COL_HEADERS + 1 : COL_HEADERS, columns))
    FAIL("PQsetResultAttrs");
  for (int i = 0; i < n; i++) {
    char message_id[64];
    snprintf(message_id, sizeof message_id, "m-%lld", (long long)rows[i].id);
    set_int32(result, i, COL_LEAF, 0);
    set_value(result, i, COL_CTID, "\0\0\0\0\0", 6);
    set_int32(result, i, COL_COMPRESSED, 0);
    set_int64(result, i, COL_ID, rows[i].id);
    set_text(result, i, COL_MESSAGE_ID,
             rows[i].message_id != NULL && strcmp(rows[i].message_id, "id") == 0 ? message_id : rows[i].message_id);
    set_text(result, i, COL_AGGREGATE_TYPE, rows[i].type);
    set_text(result, i, COL_AGGREGATE_ID, rows[i].aggregate);
    set_text(result, i, COL_EVENT_TYPE, "created");
    set_value(result, i, COL_PAYLOAD, rows[i].payload,
              rows[i].payload_bytes > 0 ? rows[i].payload_bytes : strlen(rows[i].payload));
    set_int32(result, i, COL_ATTEMPTS, 0);
    set_int64(result, i, COL_CREATED_AT, now_us - 1000);
    set_int64(result, i, COL_LANE_HASH, rows[i].lane);
    set_int64(result, i, COL_AGGREGATE_KEY, key_of(rows[i].type, rows[i].aggregate));
    set_int64(result, i, COL_NOW, now_us);
    if (has_headers)
      set_text(result, i, COL_HEADERS, rows[i].headers);
  }
  if (batch_new(&result, rig->cfg.lanes_n, &batch, &err) != 0)
    FAIL("%s", err.text);
  batch->epoch = rig->epoch;
  batch->seq = ++rig->last_seq;
  batch->claimed_us = clock_now_us();
  return batch;
}

struct batch *rig_simple_batch(struct rig *rig, int lane, int64_t first_id, int n, int aggregates_n) {
  struct rig_row *rows = calloc((size_t)n, sizeof *rows);
  char(*aggregates)[32] = calloc((size_t)aggregates_n, sizeof *aggregates);
  struct batch *batch;
  if (rows == NULL || aggregates == NULL)
    FAIL("out of memory");
  for (int i = 0; i < aggregates_n; i++)
    snprintf(aggregates[i], sizeof aggregates[i], "a%d", i);
  for (int i = 0; i < n; i++)
    rows[i] =
        (struct rig_row){first_id + i, lane, "order", aggregates[i % aggregates_n], "{\"n\": 1}", "id", "none", 0};
  batch = rig_batch(rig, rows, n);
  free(rows);
  free(aggregates);
  return batch;
}

/* ---- jobs and notes */

static void push(struct rig *rig, struct job job) {
  struct job *copy = malloc(sizeof *copy);
  if (copy == NULL)
    FAIL("out of memory");
  *copy = job;
  publisher_push(rig->publisher, &copy);
}

void rig_push(struct rig *rig, enum job_kind kind, int lane) {
  push(rig, (struct job){.kind = kind, .lane = lane, .epoch = rig->epoch});
}

void rig_push_batch(struct rig *rig, enum job_kind kind, struct batch *batch) {
  push(rig, (struct job){.kind = kind, .batch = batch, .epoch = batch->epoch});
}

void rig_next_epoch(struct rig *rig) {
  rig->epoch++;
  rig_push(rig, JOB_EPOCH, 0);
}

static bool fetch(struct rig *rig, int64_t timeout_ms) {
  if (rig->backlog != NULL)
    return true;
  int64_t deadline_us = timeout_ms == 0 ? 0 : clock_now_us() + wait_scaled_ms(timeout_ms) * 1000;
  return queue_take(rig->notes, deadline_us, &rig->backlog) == QUEUE_ITEMS;
}

struct note *rig_note(struct rig *rig, int64_t timeout_ms) {
  struct note *note;
  if (!fetch(rig, timeout_ms))
    FAIL("no note within %lld ms", (long long)timeout_ms);
  note = (struct note *)rig->backlog;
  rig->backlog = rig->backlog->next;
  return note;
}

void rig_free_note(struct note *note) {
  journal_names_free(note->names);
  free(note);
}

struct note *rig_expect(struct rig *rig, enum note_kind kind, int lane) {
  struct note *note = rig_note(rig, NOTE_MS);
  REQUIRE(note->kind == kind, "%s (lane %d: %s) instead of %s", kind_names[note->kind], note->lane, note->err.text,
          kind_names[kind]);
  REQUIRE(lane < 0 || note->lane == lane, "%s of lane %d instead of %d", kind_names[kind], note->lane, lane);
  return note;
}

bool rig_is_quiet(struct rig *rig) {
  return !fetch(rig, 0);
}

/* Drops the names of messages before pending_from, which are settled. */
static void drop_settled(struct journal_names *names, int64_t pending_from) {
  int kept_n = 0;
  for (int i = 0; i < names->n; i++) {
    if (names->v[i].id >= pending_from)
      names->v[kept_n++] = names->v[i];
    else
      free(names->v[i].message_id);
  }
  names->n = kept_n;
}

static int open_read(struct rig *rig, struct note *note, bool is_settled) {
  int names_n = note->names->n;
  if (is_settled)
    drop_settled(note->names, INT64_MAX);
  push(rig, (struct job){.kind = JOB_OPEN, .lane = note->lane, .epoch = rig->epoch, .names = note->names});
  note->names = NULL;
  rig_free_note(note);
  return names_n;
}

int rig_take(struct rig *rig, int lane, bool is_settled) {
  rig_push(rig, JOB_TAKE, lane);
  return open_read(rig, rig_expect(rig, NOTE_JOURNAL, lane), is_settled);
}

int rig_take_since(struct rig *rig, int lane, int64_t pending_from) {
  rig_push(rig, JOB_TAKE, lane);
  struct note *note = rig_expect(rig, NOTE_JOURNAL, lane);
  drop_settled(note->names, pending_from);
  return open_read(rig, note, false);
}

int rig_retake(struct rig *rig, int lane, bool is_settled) {
  for (int tries_n = 0; tries_n < 1000; tries_n++) {
    struct note *note;
    rig_push(rig, JOB_TAKE, lane);
    note = rig_note(rig, NOTE_MS);
    if (note->kind == NOTE_JOURNAL)
      return open_read(rig, note, is_settled);
    REQUIRE(note->kind == NOTE_TAKE_FAILED, "%s: %s", kind_names[note->kind], note->err.text);
    rig_free_note(note);
  }
  FAIL("lane %d could not be taken", lane);
}

bool rig_publish(struct rig *rig, struct batch *batch, int *lost_n) {
  rig_push_batch(rig, JOB_PUBLISH, batch);
  for (;;) {
    struct note *note = rig_note(rig, NOTE_MS);
    enum note_kind kind = note->kind;
    bool is_give_back = note->is_give_back;
    bool is_ours = note->batch == batch;
    if (kind == NOTE_LANE_LOST && lost_n != NULL)
      (*lost_n)++;
    else if (kind != NOTE_DONE)
      FAIL("%s: %s", kind_names[kind], note->err.text);
    rig_free_note(note);
    if (kind == NOTE_DONE) {
      REQUIRE(is_ours, "NOTE_DONE of another batch");
      return is_give_back;
    }
  }
}

void rig_settle(struct rig *rig, struct batch **batch) {
  batch_ref(*batch);
  rig_push_batch(rig, JOB_SETTLED, *batch);
  batch_unref(batch);
}

/* ---- what came of it */

const char *rig_outcomes(const struct batch *batch, char *out, size_t out_bytes) {
  size_t n = 0;
  for (int row = 0; row < batch->n && n + 1 < out_bytes; row++) {
    for (int i = 0; i < batch->n; i++) {
      if (batch->msgs[i].row == row)
        out[n++] = ".pfw"[batch->msgs[i].outcome];
    }
  }
  out[n] = '\0';
  return out;
}

const char *rig_error(const struct batch *batch, int64_t id) {
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].id == id)
      return batch->msgs[i].error != NULL ? batch->msgs[i].error : "";
  }
  FAIL("no message %lld", (long long)id);
}

struct publisher_stats rig_stats(struct rig *rig) {
  struct publisher_stats stats;
  publisher_read_stats(rig->publisher, &stats, NULL, NULL);
  return stats;
}
