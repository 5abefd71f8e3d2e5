/*
 * `outboxd status`, PostgreSQL's half.
 *
 * Owns nothing of its own: the session is struct status_look's.  Main thread.
 * Never: writes, walks more than some hundred thousand entries of the pending index, reads what is not pending.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd_status_impl.h"
#include "embed.h"
#include "outboxd/buf.h"
#include "outboxd/locks.h"
#include "outboxd/sql.h"

#define REPLY_MS INT64_C(10500)
#define NUMBER_BYTES 24

int status_new(int lanes_n, struct status *status, struct err *err) {
  memset(status, 0, sizeof *status);
  status->lanes_n = lanes_n;
  status->oldest_us = STATUS_NOT_KNOWN;
  status->lanes = calloc((size_t)lanes_n, sizeof *status->lanes);
  if (status->lanes == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d lanes", lanes_n);
  }
  for (int i = 0; i < lanes_n; i++) {
    status->lanes[i].oldest_us = STATUS_NOT_KNOWN;
    status->lanes[i].oldest_dead_us = STATUS_NOT_KNOWN;
  }
  return 0;
}

void status_fini(struct status *status) {
  free(status->lanes);
  free(status->partitions);
  free(status->groups);
  memset(status, 0, sizeof *status);
}

/* NULL as STATUS_NOT_KNOWN. */
static int64_t age_at(const PGresult *rows, int row, int column) {
  int64_t us = pg_parse_int64(rows, row, column);
  return PQgetisnull(rows, row, column) ? STATUS_NOT_KNOWN : us > 0 ? us : 0;
}

static void text_at(const PGresult *rows, int row, int column, char out[STATUS_NAME_BYTES]) {
  (void)snprintf(out, STATUS_NAME_BYTES, "%s", PQgetvalue(rows, row, column));
}

/* Rows valid until the next question; NULL on an error. */
static const PGresult *ask(struct status_look *look, const char *sql, int params_n, const char *const *values,
                           struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql, .params_n = params_n, .values = values};
  return pg_call(look->pg, &step, 1, REPLY_MS, look->stop, err) == 0 ? pg_reply(look->pg)->results[0] : NULL;
}

/* The same for a statement about the table. */
static const PGresult *ask_table(struct status_look *look, const char *text, int params_n, const char *const *values,
                                 struct err *err) {
  char quoted[SCHEMA_FULL_NAME_BYTES];
  char *sql = NULL;
  schema_quote_name(&look->table.name, quoted);
  const struct sql_var vars[] = {{"table", quoted}, {NULL, NULL}};
  if (sql_expand(text, vars, &sql, err) != 0) {
    return NULL;
  }
  const PGresult *rows = ask(look, sql, params_n, values, err);
  free(sql);
  return rows;
}

static int open_session(struct status_look *look, struct err *err) {
  if (pg_state(look->pg) == PG_IDLE) {
    return 0;
  }
  if (pg_connect(look->pg, look->stop, err) != 0) {
    return err_wrap(err, "cannot connect to PostgreSQL");
  }
  if (ask(look, embed_status_session_sql, 0, NULL, err) == NULL) {
    pg_close(look->pg);
    return -1;
  }
  return 0;
}

static int look_at_pending(struct status_look *look, struct status *status, struct err *err) {
  char attempts[NUMBER_BYTES];
  char lanes[NUMBER_BYTES];
  const char *values[] = {attempts, lanes};
  int64_t total_n = 0;
  (void)snprintf(attempts, sizeof attempts, "%d", look->cfg->max_attempts_n);
  (void)snprintf(lanes, sizeof lanes, "%d", status->lanes_n);
  const PGresult *rows = ask_table(look, embed_status_pending_sql, 2, values, err);
  if (rows == NULL) {
    return -1;
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    struct status_lane *lane = &status->lanes[pg_parse_int64(rows, row, 0)];
    lane->pending_n = pg_parse_int64(rows, row, 1);
    lane->dead_n = pg_parse_int64(rows, row, 2);
    lane->oldest_us = age_at(rows, row, 3);
    lane->oldest_id = pg_parse_int64(rows, row, 4);
    lane->oldest_dead_us = age_at(rows, row, 5);
    total_n += lane->pending_n;
    if (lane->oldest_us > status->oldest_us) {
      status->oldest_us = lane->oldest_us;
      status->oldest_id = lane->oldest_id;
    }
  }
  status->is_pending_at_least = total_n > STATUS_COUNTED_MAX;
  status->is_pending_seen = true;
  return 0;
}

static int look_at_oldest(struct status_look *look, struct status *status, struct err *err) {
  char attempts[NUMBER_BYTES];
  const char *values[] = {attempts};
  (void)snprintf(attempts, sizeof attempts, "%d", look->cfg->max_attempts_n);
  const PGresult *rows = ask_table(look, embed_status_oldest_sql, 1, values, err);
  if (rows == NULL) {
    return -1;
  }
  if (PQntuples(rows) > 0) {
    status->oldest_id = pg_parse_int64(rows, 0, 0);
    status->oldest_us = age_at(rows, 0, 1);
  }
  return 0;
}

static int look_at_owners(struct status_look *look, struct status *status, struct err *err) {
  char oid[NUMBER_BYTES];
  char first[NUMBER_BYTES];
  char last[NUMBER_BYTES];
  const char *values[] = {oid, first, last};
  (void)snprintf(oid, sizeof oid, "%u", look->table.oid);
  (void)snprintf(first, sizeof first, "%d", LOCKS_GATE);
  (void)snprintf(last, sizeof last, "%d", LOCKS_GATE + status->lanes_n - 1);
  const PGresult *rows = ask(look, embed_status_owners_sql, 3, values, err);
  if (rows == NULL) {
    return -1;
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    struct status_lane *lane = &status->lanes[pg_parse_int64(rows, row, 0) - LOCKS_GATE];
    lane->is_owned = true;
    lane->owner_pid = (int)pg_parse_int64(rows, row, 1);
    text_at(rows, row, 2, lane->owner_host);
    lane->is_owner_hidden = PQgetisnull(rows, row, 3);
    text_at(rows, row, 4, lane->owner_application);
    lane->owner_us = age_at(rows, row, 6);
  }
  status->is_owners_seen = true;
  return 0;
}

/* One statement that looks into all partitions: "SELECT 0, * FROM (...) p UNION ALL SELECT 1, ...". */
static int make_counts(const PGresult *names, struct buf *sql, struct err *err) {
  for (int row = 0; row < PQntuples(names); row++) {
    const struct sql_var vars[] = {{"partition", PQgetvalue(names, row, 1)}, {NULL, NULL}};
    char *part = NULL;
    int rc = sql_expand(embed_status_partition_sql, vars, &part, err);
    if (rc == 0) {
      rc = buf_printf(sql, err, "%sSELECT %d, q.* FROM (%s) q", row > 0 ? " UNION ALL " : "", row, part);
    }
    free(part);
    if (rc != 0) {
      return -1;
    }
  }
  return 0;
}

static int look_at_partitions(struct status_look *look, struct status *status, struct err *err) {
  char oid[NUMBER_BYTES];
  char attempts[NUMBER_BYTES];
  const char *of_table[] = {oid};
  const char *values[] = {attempts};
  struct buf sql = BUF_INIT;
  int rc = -1;
  (void)snprintf(oid, sizeof oid, "%u", look->table.oid);
  (void)snprintf(attempts, sizeof attempts, "%d", look->cfg->max_attempts_n);
  const PGresult *rows = ask(look, embed_status_partitions_sql, 1, of_table, err);
  if (rows == NULL) {
    return -1;
  }
  int n = PQntuples(rows);
  status->partitions = calloc((size_t)n + 1, sizeof *status->partitions);
  if (status->partitions == NULL || make_counts(rows, &sql, err) != 0) {
    if (status->partitions == NULL) {
      (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d partitions", n);
    }
    goto out;
  }
  for (int row = 0; row < n; row++) {
    text_at(rows, row, 2, status->partitions[row].name);
    status->partitions[row].bytes = pg_parse_int64(rows, row, 3);
    status->partitions[row].pending_n = STATUS_NOT_KNOWN;
  }
  status->partitions_n = n;
  rows = n > 0 ? ask(look, sql.data, 1, values, err) : NULL;
  if (rows == NULL && n > 0) {
    goto out;
  }
  for (int row = 0; rows != NULL && row < PQntuples(rows); row++) {
    struct status_partition *partition = &status->partitions[pg_parse_int64(rows, row, 0)];
    partition->pending_n = pg_parse_int64(rows, row, 1);
    partition->dead_n = pg_parse_int64(rows, row, 2);
  }
  status->is_partitions_seen = true;
  rc = 0;
out:
  buf_free(&sql);
  return rc;
}

static int find_table(struct status_look *look, struct err *err) {
  if (look->is_found) {
    return 0;
  }
  if (schema_find_table(look->pg, &look->name, look->cfg->table, look->stop, &look->table, err) != 0) {
    return -1;
  }
  look->is_found = true;
  return 0;
}

int status_look_postgres(struct status_look *look, bool is_quick, struct status *status, struct err *err) {
  if (open_session(look, &status->postgres_err) != 0) {
    return 0;
  }
  if (find_table(look, &status->postgres_err) != 0) {
    if (strcmp(status->postgres_err.code, "unknown_table") == 0) {
      *err = status->postgres_err;
      return -1;
    }
    return 0;
  }
  status->is_partitioned = look->table.kind == 'p';
  int rc = 0;
  if (is_quick) {
    rc = look_at_oldest(look, status, &status->postgres_err);
  } else {
    /* A part that is refused leaves the others alone; the first error is told. */
    struct err others[2] = {ERR_INIT, ERR_INIT};
    rc = look_at_pending(look, status, &status->postgres_err);
    int owners = pg_state(look->pg) == PG_IDLE ? look_at_owners(look, status, &others[0]) : 0;
    int partitions = pg_state(look->pg) == PG_IDLE ? look_at_partitions(look, status, &others[1]) : 0;
    if (rc == 0 && (owners != 0 || partitions != 0)) {
      status->postgres_err = owners != 0 ? others[0] : others[1];
      rc = -1;
    }
  }
  status->is_postgres_seen = rc == 0;
  return 0;
}
