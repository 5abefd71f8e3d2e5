/*
 * A claimer: a PostgreSQL session with at most one batch open.
 *
 * Owns: its session, the batch between the claim's reply and claimer_take_batch, the parameters of requests under way.
 * Run by: the coordinator's thread.  Never: blocks, logs, decides.
 */
#include "outboxd/claimer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/locks.h"
#include "outboxd/pgarray.h"
#include "outboxd/settle.h"

#define SLACK_MS 1000 /* the server's statement_timeout comes first */

struct claimer {
  struct pg *pg;
  enum claimer_state state;
  bool is_in_transaction; /* CLAIMER_TOUCHING: which of READY and OPEN to go back to */
  const struct cfg *cfg;
  struct table *table;
  bool *lanes;        /* use locks this session holds */
  bool *lanes_wanted; /* CLAIMER_SYNCING: what it will hold */
  int64_t last_sent_us;
  struct batch *batch;
  struct held *held;
  int held_n;
  struct settle *mark; /* of the batch, until it is settled or given back */
  struct settle *settle;
  struct settle_prepared prepared;
  bool is_claim_prepared[CLAIM_KINDS_N][CLAIM_FORMS_N];
  bool is_probe_prepared[PROBE_FORMS_N];
  bool was_redone;
  struct claim claim;    /* under way: kept for the look at what was passed over */
  bool has_asked_leaves; /* CLAIMER_LOOKING: what was asked */
  bool has_asked_held;
  struct buf params; /* arrays of the other requests */
};

/* The states and what may follow; CLOSED may follow any. */
static bool is_move_legal(enum claimer_state from, enum claimer_state to) {
  switch (from) {
  case CLAIMER_CLOSED:
    return to == CLAIMER_CONNECTING;
  case CLAIMER_CONNECTING:
    return to == CLAIMER_SETTING_UP;
  case CLAIMER_SETTING_UP:
  case CLAIMER_SYNCING:
  case CLAIMER_PROBING:
  case CLAIMER_GIVING_BACK:
    return to == CLAIMER_READY;
  case CLAIMER_READY:
    return to == CLAIMER_SYNCING || to == CLAIMER_PROBING || to == CLAIMER_CLAIMING || to == CLAIMER_TOUCHING;
  case CLAIMER_CLAIMING:
    return to == CLAIMER_CLAIMING || to == CLAIMER_LOOKING || to == CLAIMER_OPEN;
  case CLAIMER_LOOKING:
    return to == CLAIMER_OPEN || to == CLAIMER_READY;
  case CLAIMER_OPEN:
    return to == CLAIMER_MARKING || to == CLAIMER_TOUCHING || to == CLAIMER_SETTLING || to == CLAIMER_GIVING_BACK;
  case CLAIMER_MARKING:
    return to == CLAIMER_MARKING || to == CLAIMER_OPEN;
  case CLAIMER_TOUCHING:
    return to == CLAIMER_READY || to == CLAIMER_OPEN;
  case CLAIMER_SETTLING:
    return to == CLAIMER_SETTLING || to == CLAIMER_READY;
  }
  return false;
}

static void set_state(struct claimer *claimer, enum claimer_state state) {
  assert(state == CLAIMER_CLOSED || is_move_legal(claimer->state, state));
  claimer->state = state;
}

int claimer_new(const struct cfg *cfg, struct table *table, struct claimer **out, struct err *err) {
  *out = NULL;
  struct claimer *claimer = calloc(1, sizeof *claimer);
  if (claimer == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a claimer");
  }
  claimer->cfg = cfg;
  claimer->table = table;
  claimer->state = CLAIMER_CLOSED;
  claimer->lanes = calloc((size_t)cfg->lanes_n, sizeof *claimer->lanes);
  claimer->lanes_wanted = calloc((size_t)cfg->lanes_n, sizeof *claimer->lanes_wanted);
  if (claimer->lanes == NULL || claimer->lanes_wanted == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for a claimer's lanes");
    goto fail;
  }
  if (pg_new(cfg->database, "claimer", cfg->session_timeout_ms, &claimer->pg, err) != 0) {
    goto fail;
  }
  *out = claimer;
  return 0;
fail:
  claimer_free(claimer);
  return -1;
}

static void drop_settle(struct claimer *claimer) {
  settle_free(claimer->settle); /* before the mark: it points there */
  settle_free(claimer->mark);
  claimer->settle = NULL;
  claimer->mark = NULL;
}

void claimer_close(struct claimer *claimer) {
  pg_close(claimer->pg);
  batch_unref(&claimer->batch);
  drop_settle(claimer);
  settle_prepared_clear(&claimer->prepared);
  memset(claimer->is_claim_prepared, 0, sizeof claimer->is_claim_prepared);
  memset(claimer->is_probe_prepared, 0, sizeof claimer->is_probe_prepared);
  claimer->held_n = 0;
  claimer->is_in_transaction = false;
  memset(claimer->lanes, 0, (size_t)claimer->cfg->lanes_n * sizeof *claimer->lanes);
  set_state(claimer, CLAIMER_CLOSED);
}

void claimer_free(struct claimer *claimer) {
  if (claimer == NULL) {
    return;
  }
  if (claimer->pg != NULL) {
    claimer_close(claimer);
  }
  pg_free(claimer->pg);
  free(claimer->lanes);
  free(claimer->lanes_wanted);
  free(claimer->held);
  buf_free(&claimer->params);
  free(claimer);
}

enum claimer_state claimer_state(const struct claimer *claimer) {
  return claimer->state;
}

struct pg *claimer_pg(struct claimer *claimer) {
  return claimer->pg;
}

bool claimer_is_synced(const struct claimer *claimer, const bool *wanted) {
  return memcmp(claimer->lanes, wanted, (size_t)claimer->cfg->lanes_n * sizeof *wanted) == 0;
}

/* -------------------------------------------------------------------------------------------------- requests */

static int request(struct claimer *claimer, const struct pg_step *steps, int n, int64_t now_us, struct err *err) {
  claimer->last_sent_us = now_us;
  if (pg_send(claimer->pg, steps, n, now_us + (claimer->cfg->session_timeout_ms + SLACK_MS) * 1000, err) != 0) {
    claimer_close(claimer);
    return -1;
  }
  return 0;
}

int claimer_open(struct claimer *claimer, int64_t now_us, struct err *err) {
  if (pg_open(claimer->pg, now_us, err) != 0) {
    return -1;
  }
  set_state(claimer, CLAIMER_CONNECTING);
  return 0;
}

static int set_up(struct claimer *claimer, int64_t now_us, struct err *err) {
  const struct pg_step steps[] = {
      pg_setup_step(claimer->pg),
      {.kind = PG_QUERY, .sql = embed_session_plan_sql},
      {.kind = PG_PREPARE, .name = "passed", .sql = claimer->table->passed},
      {.kind = PG_PREPARE, .name = "locked", .sql = claimer->table->locked},
  };
  set_state(claimer, CLAIMER_SETTING_UP);
  return request(claimer, steps, 4, now_us, err);
}

/* Appends the array of the lanes that are in a and not in b; returns their number, -1 on no memory. */
static int append_difference(struct claimer *claimer, const bool *a, const bool *b, struct err *err) {
  int n = 0;
  for (int lane = 0; lane < claimer->cfg->lanes_n; lane++) {
    n += a[lane] && !b[lane];
  }
  if (pgarray_begin(&claimer->params, PGARRAY_INT4, n, err) != 0) {
    return -1;
  }
  for (int lane = 0; lane < claimer->cfg->lanes_n; lane++) {
    if (a[lane] && !b[lane] && pgarray_int4(&claimer->params, lane, err) != 0) {
      return -1;
    }
  }
  return n;
}

int claimer_sync(struct claimer *claimer, const bool *wanted, int64_t now_us, struct err *err) {
  char table_key[16];
  char use_key[16];
  (void)snprintf(table_key, sizeof table_key, "%d", locks_table_key(claimer->table->oid));
  (void)snprintf(use_key, sizeof use_key, "%d", LOCKS_USE);
  memcpy(claimer->lanes_wanted, wanted, (size_t)claimer->cfg->lanes_n * sizeof *wanted);
  buf_reset(&claimer->params);
  int taken_n = append_difference(claimer, wanted, claimer->lanes, err);
  size_t taken_bytes = claimer->params.len;
  int left_n = taken_n < 0 ? -1 : append_difference(claimer, claimer->lanes, wanted, err);
  if (left_n < 0) {
    claimer_close(claimer);
    return -1;
  }
  const char *taken[] = {table_key, claimer->params.data, use_key};
  const int taken_lengths[] = {0, (int)taken_bytes, 0};
  const char *left[] = {table_key, claimer->params.data + taken_bytes, use_key};
  const int left_lengths[] = {0, (int)(claimer->params.len - taken_bytes), 0};
  const int formats[] = {0, 1, 0};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY,
       .sql = embed_lane_use_sql,
       .params_n = 3,
       .values = taken,
       .lengths = taken_lengths,
       .formats = formats},
      {.kind = PG_QUERY,
       .sql = embed_lane_leave_sql,
       .params_n = 3,
       .values = left,
       .lengths = left_lengths,
       .formats = formats},
  };
  set_state(claimer, CLAIMER_SYNCING);
  return request(claimer, steps, 2, now_us, err);
}

int claimer_probe(struct claimer *claimer, const struct claim *claim, int64_t now_us, struct err *err) {
  struct claim_params params;
  struct pg_step steps[2];
  int n = 0;
  unsigned form = claim_form(claim) % PROBE_FORMS_N;
  if (!claimer->is_probe_prepared[form]) {
    steps[n++] = claim_step_prepare_probe(claimer->table, form);
    claimer->is_probe_prepared[form] = true; /* if it fails, the session is closed */
  }
  steps[n++] = claim_step_probe(claim, &params);
  set_state(claimer, CLAIMER_PROBING);
  return request(claimer, steps, n, now_us, err);
}

static int send_claim(struct claimer *claimer, bool is_again, int64_t now_us, struct err *err) {
  const struct claim *claim = &claimer->claim;
  struct claim_params params;
  struct pg_step steps[4];
  int n = 0;
  bool *is_prepared = &claimer->is_claim_prepared[claim->kind][claim_form(claim)];
  if (is_again) {
    steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = "ROLLBACK"};
  }
  /* What is marked must be what was read.  First, since preparing takes a snapshot. */
  const char *begin = claim->kind == CLAIM_MARKING ? "BEGIN ISOLATION LEVEL REPEATABLE READ" : "BEGIN";
  steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = begin};
  if (!*is_prepared) {
    steps[n++] = claim_step_prepare_claim(claimer->table, claim_form(claim), claim->kind);
    *is_prepared = true; /* if it fails, the session is closed */
  }
  steps[n++] = claim_step_claim(claim, &params);
  set_state(claimer, CLAIMER_CLAIMING);
  return request(claimer, steps, n, now_us, err);
}

int claimer_claim(struct claimer *claimer, const struct claim *claim, int64_t now_us, struct err *err) {
  claimer->claim = *claim;
  claimer->held_n = 0;
  return send_claim(claimer, false, now_us, err);
}

static int send_settle(struct claimer *claimer, struct settle *settle, int64_t now_us, struct err *err) {
  struct pg_step steps[PG_STEPS_MAX];
  int n = settle_next(settle, &claimer->prepared, steps, err);
  if (n < 0) {
    claimer_close(claimer);
    return -1;
  }
  set_state(claimer, settle == claimer->mark ? CLAIMER_MARKING : CLAIMER_SETTLING);
  return request(claimer, steps, n, now_us, err);
}

int claimer_mark(struct claimer *claimer, const struct batch *batch, int64_t now_us, struct err *err) {
  assert(batch->needs_mark);
  if (settle_new_mark(batch, claimer->table, &claimer->mark, err) != 0) {
    claimer_close(claimer);
    return -1;
  }
  return send_settle(claimer, claimer->mark, now_us, err);
}

int claimer_settle(struct claimer *claimer, const struct batch *batch, int64_t now_us, struct err *err) {
  assert(batch->needs_mark == (claimer->mark != NULL));
  if (settle_new(batch, claimer->table, claimer->mark, &claimer->settle, err) != 0) {
    claimer_close(claimer);
    return -1;
  }
  return send_settle(claimer, claimer->settle, now_us, err);
}

int claimer_give_back(struct claimer *claimer, int64_t now_us, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "ROLLBACK"};
  set_state(claimer, CLAIMER_GIVING_BACK);
  return request(claimer, &step, 1, now_us, err);
}

int claimer_touch(struct claimer *claimer, int64_t now_us, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "SELECT 1"};
  claimer->is_in_transaction = claimer->state == CLAIMER_OPEN;
  set_state(claimer, CLAIMER_TOUCHING);
  return request(claimer, &step, 1, now_us, err);
}

int64_t claimer_touch_due_us(const struct claimer *claimer) {
  bool is_idle = claimer->state == CLAIMER_READY || claimer->state == CLAIMER_OPEN;
  return is_idle ? claimer->last_sent_us + claimer->cfg->session_timeout_ms * 1000 / 3 : INT64_MAX;
}

/* -------------------------------------------------------------------------------------------------- replies */

/* Calls for each partition of the batch that the table does not know; may name one more than once. */
static int append_unknown_leaves(struct claimer *claimer, int *unknown_n, bool is_counting, struct err *err) {
  const struct batch *batch = claimer->batch;
  uint32_t last_oid = 0;
  for (int i = 0; i < batch->n; i++) {
    uint32_t oid = batch->msgs[i].leaf;
    if (oid == last_oid || table_find_leaf(claimer->table, oid) != NULL) {
      continue;
    }
    last_oid = oid;
    if (is_counting) {
      (*unknown_n)++;
    } else if (pgarray_int4(&claimer->params, (int32_t)oid, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* In the claim's transaction: asks for names of partitions met for the first time and for the rows that were passed over.  An empty
 * claim's transaction ends here.  1 when it sent something, 0 when there was no need. */
static int look(struct claimer *claimer, int64_t now_us, struct err *err) {
  const struct batch *batch = claimer->batch;
  int unknown_n = 0;
  struct claim_params params;
  struct pg_step steps[3];
  int n = 0;
  if (append_unknown_leaves(claimer, &unknown_n, true, err) != 0) {
    return -1;
  }
  claimer->has_asked_leaves = unknown_n > 0;
  claimer->has_asked_held =
      batch->n > 0 ? batch->n < batch->fit_n : claimer->claim.is_probed && claimer->claim.kind == CLAIM_CAREFUL;
  buf_reset(&claimer->params);
  if (claimer->has_asked_leaves && (pgarray_begin(&claimer->params, PGARRAY_OID, unknown_n, err) != 0 ||
                                    append_unknown_leaves(claimer, &unknown_n, false, err) != 0)) {
    return -1;
  }
  const char *values[] = {claimer->params.data};
  const int lengths[] = {(int)claimer->params.len};
  const int formats[] = {1};
  if (claimer->has_asked_leaves) {
    steps[n++] = (struct pg_step){.kind = PG_QUERY,
                                  .sql = embed_leaves_sql,
                                  .params_n = 1,
                                  .values = values,
                                  .lengths = lengths,
                                  .formats = formats};
  }
  if (claimer->has_asked_held) {
    steps[n++] = batch->n > 0 ? claim_step_passed(&claimer->claim, batch->last.id, &params)
                              : claim_step_locked(&claimer->claim, &params);
  }
  if (batch->n == 0) {
    steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = "COMMIT"};
  }
  if (n == 0) {
    return 0;
  }
  set_state(claimer, CLAIMER_LOOKING);
  return request(claimer, steps, n, now_us, err) == 0 ? 1 : -1;
}

static int keep_leaves(struct claimer *claimer, const PGresult *rows, struct err *err) {
  for (int row = 0; row < PQntuples(rows); row++) {
    uint32_t oid = (uint32_t)strtoul(PQgetvalue(rows, row, 0), NULL, 10);
    if (table_add_leaf(claimer->table, oid, PQgetvalue(rows, row, 1), err) != 0) {
      return -1;
    }
  }
  return 0;
}

static enum claimer_event end_of_claim(struct claimer *claimer) {
  if (claimer->batch->n > 0) {
    set_state(claimer, CLAIMER_OPEN);
    return CLAIMER_EV_CLAIMED;
  }
  batch_unref(&claimer->batch);
  set_state(claimer, CLAIMER_READY);
  return CLAIMER_EV_EMPTY;
}

/* The claim did not do: its transaction is given up, and the careful one is asked the same. */
static enum claimer_event claim_again(struct claimer *claimer, int64_t now_us, struct err *err) {
  claimer->was_redone = true;
  claimer->claim.kind = CLAIM_CAREFUL;
  return send_claim(claimer, true, now_us, err) == 0 ? CLAIMER_EV_NONE : CLAIMER_EV_LOST;
}

/* Are all rows of a claim that was not careful within their share of the bytes? */
static bool do_all_fit(const PGresult *result) {
  for (int row = 0; row < PQntuples(result); row++) {
    if (pg_get_int32(result, row, COL_FIT_N) == 0) {
      return false;
    }
  }
  return true;
}

static enum claimer_event on_claimed(struct claimer *claimer, int64_t now_us, struct err *err) {
  const struct pg_reply *reply = pg_reply(claimer->pg);
  if (claimer->claim.kind != CLAIM_CAREFUL && !do_all_fit(reply->results[reply->n - 1])) {
    return claim_again(claimer, now_us, err);
  }
  PGresult *result = pg_take_result(claimer->pg, reply->n - 1);
  if (batch_new(&result, claimer->cfg->lanes_n, &claimer->batch, err) != 0) {
    claimer_close(claimer);
    return CLAIMER_EV_LOST;
  }
  struct batch *batch = claimer->batch;
  batch->claimed_us = now_us;
  batch->needs_mark = claimer->claim.kind == CLAIM_MARKING;
  /* The others pass nothing over. */
  bool is_careful = claimer->claim.kind == CLAIM_CAREFUL && batch->n > 0;
  batch->looked_n = is_careful ? pg_get_int32(batch->result, 0, COL_LOOKED_N) : batch->n;
  batch->fit_n = is_careful ? pg_get_int32(batch->result, 0, COL_FIT_N) : batch->n;
  switch (look(claimer, now_us, err)) {
  case 0:
    return end_of_claim(claimer);
  case 1:
    return CLAIMER_EV_NONE;
  default:
    claimer_close(claimer);
    return CLAIMER_EV_LOST;
  }
}

static enum claimer_event on_looked(struct claimer *claimer, const struct pg_reply *reply, struct err *err) {
  int step = 0;
  int rc = 0;
  if (claimer->has_asked_leaves) {
    rc = keep_leaves(claimer, reply->results[step++], err);
  }
  if (rc == 0 && claimer->has_asked_held) {
    rc = claim_find_held(claimer->batch, reply->results[step], &claimer->held, &claimer->held_n, err);
  }
  if (rc != 0) {
    claimer_close(claimer);
    return CLAIMER_EV_LOST;
  }
  return end_of_claim(claimer);
}

static enum claimer_event on_synced(struct claimer *claimer, const struct pg_reply *reply, struct err *err) {
  for (int row = 0; row < PQntuples(reply->results[0]); row++) {
    if (PQgetvalue(reply->results[0], row, 1)[0] != 't') {
      (void)err_set(err, ERR_RETRY, "use_lock", "the use lock of lane %s is held by another session",
                    PQgetvalue(reply->results[0], row, 0));
      claimer_close(claimer);
      return CLAIMER_EV_LOST;
    }
  }
  memcpy(claimer->lanes, claimer->lanes_wanted, (size_t)claimer->cfg->lanes_n * sizeof *claimer->lanes);
  set_state(claimer, CLAIMER_READY);
  return CLAIMER_EV_READY;
}

/* Of a settle or a mark. */
static enum claimer_event on_settled(struct claimer *claimer, const struct pg_reply *reply, int64_t now_us,
                                     struct err *err) {
  bool is_mark = claimer->state == CLAIMER_MARKING;
  struct settle *settle = is_mark ? claimer->mark : claimer->settle;
  struct pg_step steps[PG_STEPS_MAX];
  int n = -1;
  if (settle_check(settle, reply, err) == 0 && (!is_mark || settle_keep_places(settle, claimer->pg, err) == 0)) {
    n = settle_next(settle, &claimer->prepared, steps, err);
  }
  if (n < 0) {
    claimer_close(claimer);
    return CLAIMER_EV_LOST;
  }
  if (n > 0) {
    return request(claimer, steps, n, now_us, err) == 0 ? CLAIMER_EV_NONE : CLAIMER_EV_LOST;
  }
  if (is_mark) {
    set_state(claimer, CLAIMER_OPEN);
    return CLAIMER_EV_MARKED;
  }
  drop_settle(claimer);
  set_state(claimer, CLAIMER_READY);
  return CLAIMER_EV_SETTLED;
}

static enum claimer_event on_failed(struct claimer *claimer, const struct pg_reply *reply, int64_t now_us,
                                    struct err *err) {
  /* lock_timeout, which has the same SQLSTATE, comes after half the session timeout. */
  bool is_at_once = now_us - claimer->last_sent_us < claimer->cfg->session_timeout_ms * 1000 / 2;
  bool is_lock_refused = is_at_once && pg_is_lock_refused(&reply->err);
  if (claimer->state == CLAIMER_CLAIMING && claimer->claim.kind == CLAIM_LOCKING && is_lock_refused) {
    return claim_again(claimer, now_us, err);
  }
  if (claimer->state == CLAIMER_MARKING && (is_lock_refused || pg_is_row_changed(&reply->err))) {
    set_state(claimer, CLAIMER_OPEN);
    return CLAIMER_EV_REFUSED;
  }
  *err = reply->err;
  claimer_close(claimer);
  return CLAIMER_EV_LOST;
}

static enum claimer_event on_reply(struct claimer *claimer, int64_t now_us, struct err *err) {
  const struct pg_reply *reply = pg_reply(claimer->pg);
  if (reply->is_failed) {
    return on_failed(claimer, reply, now_us, err);
  }
  switch (claimer->state) {
  case CLAIMER_SETTING_UP:
    if (pg_setup_check(claimer->pg, reply->results[0], err) != 0) {
      claimer_close(claimer);
      return CLAIMER_EV_LOST;
    }
    set_state(claimer, CLAIMER_READY);
    return CLAIMER_EV_READY;
  case CLAIMER_SYNCING:
    return on_synced(claimer, reply, err);
  case CLAIMER_PROBING:
    set_state(claimer, CLAIMER_READY);
    return PQntuples(reply->results[reply->n - 1]) > 0 ? CLAIMER_EV_FOUND : CLAIMER_EV_NOTHING;
  case CLAIMER_CLAIMING:
    return on_claimed(claimer, now_us, err);
  case CLAIMER_LOOKING:
    return on_looked(claimer, reply, err);
  case CLAIMER_TOUCHING:
    set_state(claimer, claimer->is_in_transaction ? CLAIMER_OPEN : CLAIMER_READY);
    return CLAIMER_EV_NONE;
  case CLAIMER_MARKING:
  case CLAIMER_SETTLING:
    return on_settled(claimer, reply, now_us, err);
  case CLAIMER_GIVING_BACK:
    drop_settle(claimer);
    set_state(claimer, CLAIMER_READY);
    return CLAIMER_EV_GIVEN_BACK;
  case CLAIMER_CLOSED:
  case CLAIMER_CONNECTING:
  case CLAIMER_READY:
  case CLAIMER_OPEN:
    break;
  }
  assert(!"a reply in a state that expects none");
  return CLAIMER_EV_NONE;
}

enum claimer_event claimer_drive(struct claimer *claimer, int64_t now_us, struct err *err) {
  switch (pg_drive(claimer->pg, now_us, err)) {
  case PG_EV_NONE:
    return CLAIMER_EV_NONE;
  case PG_EV_OPEN:
    return set_up(claimer, now_us, err) == 0 ? CLAIMER_EV_NONE : CLAIMER_EV_LOST;
  case PG_EV_REPLY:
    return on_reply(claimer, now_us, err);
  case PG_EV_LOST:
    claimer_close(claimer);
    return CLAIMER_EV_LOST;
  }
  return CLAIMER_EV_NONE;
}

bool claimer_take_was_redone(struct claimer *claimer) {
  bool was_redone = claimer->was_redone;
  claimer->was_redone = false;
  return was_redone;
}

struct batch *claimer_take_batch(struct claimer *claimer) {
  struct batch *batch = claimer->batch;
  claimer->batch = NULL;
  return batch;
}

int claimer_held(const struct claimer *claimer, const struct held **out) {
  *out = claimer->held;
  return claimer->held_n;
}
