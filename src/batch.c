/*
 * A batch and its runs.
 *
 * Owns: the PGresult of one claim and the messages that refer into it.  Threads: see include/outboxd/batch.h.
 * Never: copies a payload; changes a result.
 */
#include "outboxd/batch.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/pg.h"

#define POSTGRES_EPOCH_US INT64_C(946684800000000) /* 2000-01-01 in microseconds since 1970 */

int batch_lane_of(int64_t hash, int lanes_n) {
  /* ((hash % n) + n) % n in PostgreSQL, whose % truncates as C's does. */
  return (int)((hash % lanes_n + lanes_n) % lanes_n);
}

/* PostgreSQL's years 294247 to 294276 are later than microseconds since 1970 reach: they read as infinity. */
static int64_t unix_us(int64_t postgres_us) {
  int64_t us;
  if (postgres_us == INT64_MIN) {
    return postgres_us;
  }
  return __builtin_add_overflow(postgres_us, POSTGRES_EPOCH_US, &us) ? INT64_MAX : us;
}

static int64_t time_us(const PGresult *result, int row, enum batch_column column) {
  return unix_us(pg_get_int64(result, row, (int)column));
}

static int64_t texts_bytes(const struct batch *batch, int row) {
  int64_t bytes = batch_has_headers(batch) ? PQgetlength(batch->result, row, COL_HEADERS) : 0;
  for (int column = COL_MESSAGE_ID; column <= COL_PAYLOAD; column++) {
    bytes += PQgetlength(batch->result, row, column);
  }
  return bytes;
}

static int growth_of(const PGresult *result, int row) {
  int stored = pg_get_int32(result, row, COL_COMPRESSED);
  return stored > 0 ? PQgetlength(result, row, COL_PAYLOAD) / stored + 1 : 0;
}

static struct msg read_msg(const struct batch *batch, int row, int lanes_n) {
  const PGresult *result = batch->result;
  struct msg msg = {.id = pg_get_int64(result, row, COL_ID),
                    .key = pg_get_int64(result, row, COL_AGGREGATE_KEY),
                    .bytes = texts_bytes(batch, row),
                    .row = row,
                    .texts = PQgetvalue(result, row, COL_MESSAGE_ID),
                    .lane = batch_lane_of(pg_get_int64(result, row, COL_LANE_HASH), lanes_n),
                    .leaf = (uint32_t)pg_get_int32(result, row, COL_LEAF),
                    .has_created_at = PQgetisnull(result, row, COL_CREATED_AT) == 0,
                    .is_revived = PQgetisnull(result, row, COL_REVIVED) == 0};
  if (msg.has_created_at) {
    msg.created_us = time_us(result, row, COL_CREATED_AT);
  }
  assert(PQgetlength(result, row, COL_CTID) == BATCH_CTID_BYTES);
  memcpy(msg.ctid, PQgetvalue(result, row, COL_CTID), BATCH_CTID_BYTES);
  return msg;
}

/* Reads the rows, in id order, and counts those of each lane in counts[lane + 1]. */
static int read_rows(struct batch *batch, int lanes_n, struct msg *rows, int *counts, struct err *err) {
  int64_t last_id = INT64_MIN;
  for (int row = 0; row < batch->n; row++) {
    rows[row] = read_msg(batch, row, lanes_n);
    if (rows[row].id < last_id) {
      return err_set(err, ERR_BUG, "claim_order", "the claim returned id %lld after %lld", (long long)rows[row].id,
                     (long long)last_id);
    }
    last_id = rows[row].id;
    counts[rows[row].lane + 1]++;
    int growth = growth_of(batch->result, row);
    batch->growth = growth > batch->growth ? growth : batch->growth;
  }
  return 0;
}

/* Counting sort by lane, stable: within a lane the rows keep the claim's id order. */
static int build_runs(struct batch *batch, int lanes_n, struct err *err) {
  int rc = -1;
  int *counts = calloc((size_t)lanes_n + 1, sizeof *counts);
  struct msg *rows = calloc((size_t)batch->n + 1, sizeof *rows);
  if (counts == NULL || rows == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d messages in %d lanes", batch->n, lanes_n);
    goto out;
  }
  if (read_rows(batch, lanes_n, rows, counts, err) != 0) {
    goto out;
  }
  for (int lane = 0; lane < lanes_n; lane++) {
    if (counts[lane + 1] > 0) {
      batch->runs[batch->runs_n++] =
          (struct run){.lane = lane, .n = counts[lane + 1], .msgs = batch->msgs + counts[lane]};
    }
    counts[lane + 1] += counts[lane];
  }
  for (int row = 0; row < batch->n; row++) {
    batch->msgs[counts[rows[row].lane]++] = rows[row];
  }
  if (batch->n > 0) {
    batch->last = rows[batch->n - 1];
  }
  rc = 0;
out:
  free(rows);
  free(counts);
  return rc;
}

int batch_new(PGresult **result, int lanes_n, struct batch **out, struct err *err) {
  *out = NULL;
  struct batch *batch = calloc(1, sizeof *batch);
  if (batch == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a batch");
  }
  atomic_init(&batch->refs_n, 1);
  batch->result = *result;
  *result = NULL;
  batch->n = PQntuples(batch->result);
  size_t runs_max = (size_t)(batch->n < lanes_n ? batch->n : lanes_n);
  batch->msgs = calloc((size_t)batch->n + 1, sizeof *batch->msgs);
  batch->runs = calloc(runs_max + 1, sizeof *batch->runs);
  if (batch->msgs == NULL || batch->runs == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for a batch of %d messages", batch->n);
    batch_unref(&batch);
    return -1;
  }
  if (batch->n > 0) {
    batch->db_now_us = time_us(batch->result, 0, COL_NOW);
  }
  if (build_runs(batch, lanes_n, err) != 0) {
    batch_unref(&batch);
    return -1;
  }
  *out = batch;
  return 0;
}

void batch_ref(struct batch *batch) {
  atomic_fetch_add_explicit(&batch->refs_n, 1, memory_order_relaxed);
}

void batch_unref(struct batch **ref) {
  struct batch *batch = *ref;
  *ref = NULL;
  if (batch == NULL || atomic_fetch_sub_explicit(&batch->refs_n, 1, memory_order_acq_rel) > 1) {
    return;
  }
  if (batch->msgs != NULL) {
    for (int i = 0; i < batch->n; i++) {
      free(batch->msgs[i].error);
    }
  }
  free(batch->msgs);
  free(batch->runs);
  PQclear(batch->result);
  free(batch);
}

const char *batch_text(const struct batch *batch, const struct msg *msg, enum batch_column column, size_t *bytes) {
  *bytes = (size_t)PQgetlength(batch->result, msg->row, (int)column);
  return PQgetvalue(batch->result, msg->row, (int)column);
}

bool batch_is_null(const struct batch *batch, const struct msg *msg, enum batch_column column) {
  return PQgetisnull(batch->result, msg->row, (int)column) != 0;
}

int64_t batch_int64(const struct batch *batch, const struct msg *msg, enum batch_column column) {
  return pg_get_int64(batch->result, msg->row, (int)column);
}

int32_t batch_int32(const struct batch *batch, const struct msg *msg, enum batch_column column) {
  return pg_get_int32(batch->result, msg->row, (int)column);
}

bool batch_has_headers(const struct batch *batch) {
  return PQnfields(batch->result) > COL_HEADERS;
}

bool batch_is_all_published(const struct batch *batch) {
  int published_n = 0;
  for (int i = 0; i < batch->n; i++) {
    published_n += batch->msgs[i].outcome == OUTCOME_PUBLISHED;
  }
  return published_n == batch->handed_n;
}

void batch_set_outcome(struct msg *msg, enum outcome outcome, const char *text) {
  assert(msg->outcome == OUTCOME_NONE);
  msg->outcome = outcome;
  if (outcome == OUTCOME_FAILED) {
    msg->error = strdup(text != NULL ? text : "refused without a reason");
  }
}
