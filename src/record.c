/*
 * liboutbox: one event, and messages handled once, over the caller's connection.
 *
 * Owns nothing beyond a call; runs on the caller's thread.  Never: begins, commits or rolls back anything, logs.
 */
#include "outboxd/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/pg.h"
#include "outboxd/schema.h"
#include "outboxd/sql.h"
#include "outboxd/uuid7.h"

#define RECORD_PARAMS_N 6

const char *outbox_version(void) {
  return OUTBOXD_VERSION;
}

/* -------------------------------------------------------------------------------------------------- errors */

static enum outbox_error_kind kind_of(enum err_class class) {
  switch (class) {
  case ERR_NONE:
    return OUTBOX_NONE;
  case ERR_RETRY:
    return OUTBOX_UNAVAILABLE;
  case ERR_REJECT:
  case ERR_FATAL:
    return OUTBOX_REFUSED;
  case ERR_USAGE:
    return OUTBOX_USAGE;
  case ERR_BUG:
    return OUTBOX_INTERNAL;
  }
  return OUTBOX_INTERNAL;
}

int record_refuse(const struct err *err, struct outbox_error *error) {
  if (error != NULL) {
    error->kind = kind_of(err->class);
    (void)snprintf(error->code, sizeof error->code, "%s", err->code);
    (void)snprintf(error->text, sizeof error->text, "%s", err->text);
  }
  return -1;
}

int record_check_connection(const PGconn *conn, bool is_within, struct err *err) {
  if (conn == NULL || PQstatus(conn) != CONNECTION_OK) {
    return err_set(err, ERR_RETRY, "no_connection", "there is no connection to PostgreSQL");
  }
  if (PQpipelineStatus(conn) != PQ_PIPELINE_OFF) {
    return err_set(err, ERR_USAGE, "pipeline_mode", "the connection is in pipeline mode; leave it first");
  }
  switch (PQtransactionStatus(conn)) {
  case PQTRANS_INTRANS:
    return 0;
  case PQTRANS_IDLE:
    return !is_within ? 0
                      : err_set(err, ERR_USAGE, "no_transaction",
                                "the connection is not in a transaction: BEGIN one, make the change that the event "
                                "tells of in it, and COMMIT both together");
  case PQTRANS_INERROR:
    return err_set(err, ERR_USAGE, "aborted_transaction",
                   "the transaction has failed before: nothing in it can be committed any more, ROLLBACK it");
  case PQTRANS_ACTIVE:
    return err_set(err, ERR_USAGE, "busy", "another statement is under way on the connection; take its results first");
  case PQTRANS_UNKNOWN:
    break;
  }
  return err_set(err, ERR_RETRY, "no_connection", "the connection to PostgreSQL was lost");
}

int record_finish(PGconn *conn, PGresult *result, struct err *err) {
  ExecStatusType status = PQresultStatus(result);
  int rc = 0;
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    rc = pg_describe(conn, result, err);
    /* What no class of the relay's knows is the data's fault here: a value that a constraint or a type refuses. */
    if (err->class == ERR_BUG) {
      err->class = ERR_REJECT;
    }
  }
  PQclear(result);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- statements */

int record_expand(const char *sql, const char *variable, const char *name, const char *standard, char **out,
                  struct err *err) {
  struct schema_name parts;
  char quoted[SCHEMA_FULL_NAME_BYTES];
  if (schema_parse_name(name != NULL ? name : standard, &parts, err) != 0) {
    return -1;
  }
  schema_quote_name(&parts, quoted);
  const struct sql_var vars[] = {{variable, quoted}, {NULL, NULL}};
  return sql_expand(sql, vars, out, err);
}

int record_check_event(const struct outbox_event *event, char id[OUTBOX_ID_BYTES], struct err *err) {
  const struct {
    const char *name, *value;
  } members[] = {{"aggregate_type", event->aggregate_type},
                 {"aggregate_id", event->aggregate_id},
                 {"event_type", event->event_type},
                 {"payload", event->payload}};
  for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
    if (members[i].value == NULL) {
      return err_set(err, ERR_USAGE, "no_value", "the event has no %s", members[i].name);
    }
  }
  if (event->message_id == NULL) {
    return uuid7_make(id, err);
  }
  int n = snprintf(id, OUTBOX_ID_BYTES, "%s", event->message_id);
  return n > 0 && n < OUTBOX_ID_BYTES
             ? 0
             : err_set(err, ERR_USAGE, "message_id", "a message_id has 1 to %d bytes, not %d", OUTBOX_ID_BYTES - 1, n);
}

int outbox_uuid_v7(char out[OUTBOX_ID_BYTES], struct outbox_error *error) {
  struct err err = ERR_INIT;
  return uuid7_make(out, &err) == 0 ? 0 : record_refuse(&err, error);
}

int outbox_record(PGconn *conn, const char *table, const struct outbox_event *event, char message_id[OUTBOX_ID_BYTES],
                  struct outbox_error *error) {
  struct err err = ERR_INIT;
  char *sql = NULL;
  int rc = -1;
  char id[OUTBOX_ID_BYTES];
  bool has_headers = event->headers != NULL;
  if (record_check_connection(conn, true, &err) != 0 || record_check_event(event, id, &err) != 0 ||
      record_expand(has_headers ? embed_record_headers_sql : embed_record_sql, "table", table, "outbox_messages", &sql,
                    &err) != 0) {
    goto out;
  }
  const char *values[RECORD_PARAMS_N] = {
      id, event->aggregate_type, event->aggregate_id, event->event_type, event->payload, event->headers};
  if (record_finish(
          conn,
          PQexecParams(conn, sql, has_headers ? RECORD_PARAMS_N : RECORD_PARAMS_N - 1, NULL, values, NULL, NULL, 0),
          &err) != 0) {
    goto out;
  }
  if (message_id != NULL) {
    memcpy(message_id, id, OUTBOX_ID_BYTES);
  }
  rc = 0;
out:
  free(sql);
  return rc == 0 ? 0 : record_refuse(&err, error);
}

int outbox_process_once(PGconn *conn, const char *table, const char *message_id, const char *consumer, bool *is_first,
                        struct outbox_error *error) {
  struct err err = ERR_INIT;
  char *sql = NULL;
  int rc = -1;
  if (message_id == NULL || consumer == NULL) {
    (void)err_set(&err, ERR_USAGE, "no_value", "there is no %s", message_id == NULL ? "message_id" : "consumer");
    goto out;
  }
  if (record_check_connection(conn, true, &err) != 0 ||
      record_expand(embed_process_once_sql, "processed", table, "processed_messages", &sql, &err) != 0) {
    goto out;
  }
  const char *values[] = {message_id, consumer};
  PGresult *result = PQexecParams(conn, sql, 2, NULL, values, NULL, NULL, 0);
  bool is_new = strcmp(PQcmdTuples(result), "1") == 0;
  if (record_finish(conn, result, &err) != 0) {
    goto out;
  }
  *is_first = is_new;
  rc = 0;
out:
  free(sql);
  return rc == 0 ? 0 : record_refuse(&err, error);
}
