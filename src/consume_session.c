/*
 * A worker's PostgreSQL session.
 *
 * Owns the session and what was last seen of the group's workers.  Runs on the worker's thread.  Never retries, never logs.
 */
#include "outboxd/consume_session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/buf.h"
#include "outboxd/pgarray.h"
#include "outboxd/schema.h"
#include "outboxd/sql.h"

#define LANE_MASK UINT64_C(0xffff)
#define MEMBER_LANE 0xffff /* no lane has this number: the membership lock */
#define PROCESS "outbox_process"
#define SLACK_MS 1000

/* FNV-1a, with a length before each text so that two pairs never read alike. */
static uint64_t hash_text(uint64_t hash, const char *text) {
  size_t n = strlen(text);
  for (size_t i = 0; i < sizeof n; i++) {
    hash = (hash ^ (n >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
  }
  for (size_t i = 0; i < n; i++) {
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
  }
  return hash;
}

int session_init(struct consume_session *session, const struct consume_cfg *cfg, const struct stop *abort,
                 struct err *err) {
  struct schema_name name;
  char quoted[SCHEMA_FULL_NAME_BYTES];
  *session = (struct consume_session){.cfg = cfg, .abort = abort};
  if (schema_parse_name(cfg->processed_table, &name, err) != 0) {
    return -1;
  }
  schema_quote_name(&name, quoted);
  const struct sql_var vars[] = {{"processed", quoted}, {NULL, NULL}};
  uint64_t key = hash_text(hash_text(UINT64_C(0xcbf29ce484222325), cfg->stream), cfg->group) & ~LANE_MASK;
  (void)snprintf(session->key, sizeof session->key, "%" PRId64, (int64_t)key);
  session->is_taken = calloc((size_t)cfg->lanes_n, sizeof *session->is_taken);
  if (session->is_taken == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the lanes");
  }
  if (sql_expand(embed_process_once_sql, vars, &session->process, err) != 0) {
    return -1;
  }
  return pg_new(cfg->database, "consumer", cfg->session_timeout_ms, &session->pg, err);
}

void session_fini(struct consume_session *session) {
  pg_free(session->pg);
  free(session->process);
  free(session->is_taken);
  *session = (struct consume_session){0};
}

bool session_is_open(const struct consume_session *session) {
  return pg_state(session->pg) == PG_IDLE;
}

void session_close(struct consume_session *session) {
  pg_close(session->pg);
}

/* One round trip.  On an error that leaves the session open it is closed, unless the caller wants it kept. */
static int call(struct consume_session *session, const struct pg_step *steps, int n, bool is_kept, struct err *err) {
  if (pg_call(session->pg, steps, n, session->cfg->session_timeout_ms + SLACK_MS, session->abort, err) == 0) {
    return 0;
  }
  if (!is_kept) {
    pg_close(session->pg);
  }
  return -1;
}

int session_open(struct consume_session *session, struct err *err) {
  if (pg_connect(session->pg, session->abort, err) != 0) {
    goto fail;
  }
  char member[24];
  (void)snprintf(member, sizeof member, "%d", MEMBER_LANE);
  const char *values[] = {session->key, member};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = embed_consume_join_sql, .params_n = 2, .values = values},
      {.kind = PG_PREPARE, .name = PROCESS, .sql = session->process},
  };
  if (call(session, steps, 2, false, err) != 0) {
    goto fail;
  }
  session->is_proven = true;
  return 0;
fail:
  if (session->is_proven && err->class == ERR_FATAL) {
    err->class = ERR_RETRY;
  }
  return -1;
}

int session_prove(struct consume_session *session, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "SELECT 1"};
  return call(session, &step, 1, false, err);
}

int session_look(struct consume_session *session, struct err *err) {
  const char *values[] = {session->key};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_consume_workers_sql, .params_n = 1, .values = values};
  if (call(session, &step, 1, false, err) != 0) {
    return -1;
  }
  const PGresult *rows = pg_reply(session->pg)->results[0];
  session->members_n = 0;
  session->rank = 0;
  memset(session->is_taken, 0, (size_t)session->cfg->lanes_n * sizeof *session->is_taken);
  for (int row = 0; row < PQntuples(rows); row++) {
    int64_t lane = pg_parse_int64(rows, row, 0);
    if (lane == MEMBER_LANE) {
      session->rank += pg_parse_int64(rows, row, 1) < pg_pid(session->pg);
      session->members_n++;
    } else if (lane < session->cfg->lanes_n) {
      session->is_taken[lane] = true;
    }
  }
  return 0;
}

int session_take(struct consume_session *session, bool *lanes, struct err *err) {
  struct buf array = BUF_INIT;
  int n = 0;
  int rc = -1;
  for (int lane = 0; lane < session->cfg->lanes_n; lane++) {
    n += lanes[lane];
  }
  if (pgarray_begin(&array, PGARRAY_INT4, n, err) != 0) {
    goto out;
  }
  for (int lane = 0; lane < session->cfg->lanes_n; lane++) {
    if (lanes[lane] && pgarray_int4(&array, lane, err) != 0) {
      goto out;
    }
  }
  const char *values[] = {session->key, array.data};
  const int lengths[] = {0, (int)array.len};
  const int formats[] = {0, 1};
  const struct pg_step step = {.kind = PG_QUERY,
                               .sql = embed_consume_take_sql,
                               .params_n = 2,
                               .values = values,
                               .lengths = lengths,
                               .formats = formats};
  if (call(session, &step, 1, false, err) != 0) {
    goto out;
  }
  const PGresult *rows = pg_reply(session->pg)->results[0];
  for (int row = 0; row < PQntuples(rows); row++) {
    lanes[pg_parse_int64(rows, row, 0)] = PQgetvalue(rows, row, 1)[0] == 't';
  }
  rc = 0;
out:
  buf_free(&array);
  return rc;
}

int session_release(struct consume_session *session, int lane, struct err *err) {
  char number[16];
  (void)snprintf(number, sizeof number, "%d", lane);
  const char *values[] = {session->key, number};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_consume_release_sql, .params_n = 2, .values = values};
  return call(session, &step, 1, false, err);
}

/* -------------------------------------------------------------------------------------------------- a message's transaction */

int session_rollback(struct consume_session *session, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "ROLLBACK"};
  return call(session, &step, 1, false, err);
}

/* A statement was refused: is it the message's fault?  Then the transaction is rolled back and the session stays. */
static int refused(struct consume_session *session, struct err *err) {
  struct err ignored = ERR_INIT;
  bool is_of_message = err->class == ERR_BUG || err->class == ERR_REJECT;
  if (pg_state(session->pg) != PG_IDLE || !is_of_message || session_rollback(session, &ignored) != 0) {
    pg_close(session->pg);
    err->class = ERR_RETRY;
    return -1;
  }
  err->class = ERR_REJECT;
  return -1;
}

int session_begin(struct consume_session *session, const char *message_id, bool *is_first, struct err *err) {
  const char *values[] = {message_id, session->cfg->group};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = "BEGIN"},
      {.kind = PG_EXECUTE, .name = PROCESS, .params_n = 2, .values = values},
  };
  if (call(session, steps, 2, true, err) != 0) {
    return refused(session, err);
  }
  *is_first = strcmp(PQcmdTuples(pg_reply(session->pg)->results[1]), "1") == 0;
  return 0;
}

int session_commit(struct consume_session *session, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "COMMIT"};
  if (call(session, &step, 1, true, err) != 0) {
    return refused(session, err);
  }
  /* COMMIT of a transaction that has failed is a ROLLBACK. */
  if (strcmp(PQcmdStatus(pg_reply(session->pg)->results[0]), "COMMIT") != 0) {
    return err_set(err, ERR_REJECT, "rolled_back", "PostgreSQL rolled the transaction back instead of committing it");
  }
  return 0;
}

PGconn *session_lend(struct consume_session *session, struct err *err) {
  return pg_lend(session->pg, err);
}

int session_take_back(struct consume_session *session, struct err *err) {
  PGTransactionStatusType status = PQTRANS_UNKNOWN;
  if (pg_take_back(session->pg, &status, err) != 0) {
    return -1;
  }
  switch (status) {
  case PQTRANS_INTRANS:
    return 0;
  case PQTRANS_INERROR:
    return err_set(err, ERR_REJECT, "aborted_transaction",
                   "a statement of the handler has failed, so that nothing of it can be committed");
  case PQTRANS_IDLE:
    return err_set(err, ERR_REJECT, "no_transaction", "the handler has ended the transaction that it was called in");
  case PQTRANS_ACTIVE:
  case PQTRANS_UNKNOWN:
    break;
  }
  pg_close(session->pg);
  return err_set(err, ERR_REJECT, "busy", "the handler has left a statement under way");
}
