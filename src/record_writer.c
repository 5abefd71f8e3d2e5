/*
 * liboutbox: many events over one connection.
 *
 * Owns the prepared statement's text and the buffers of its parameters; the connection is the caller's, and so is the thread.
 * Never: keeps an event beyond the call, so that none can slip into a transaction that is not its own.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/buf.h"
#include "outboxd/pgarray.h"
#include "outboxd/record.h"
#include "outboxd/schema.h"
#include "outboxd/sql.h"

#define COLUMNS_N 6
#define HEADERS 5 /* of the columns */
#define CHUNK_EVENTS_N 1000
#define CHUNK_BYTES ((size_t)4 << 20)
#define CAST_BYTES 128

static const char *const columns[COLUMNS_N] = {"message_id", "aggregate_type", "aggregate_id",
                                               "event_type", "payload",        "headers"};

struct outbox_writer {
  PGconn *conn;
  int pid;   /* of the server process that knows the statement; 0: none yet */
  char *sql; /* sql/record_many.sql for this table */
  char statement[48];
  bool has_headers;
  struct buf params[COLUMNS_N];
};

/* -------------------------------------------------------------------------------------------------- life */

/* Finds each column's cast ("::uuid") in the rows of sql/layout_columns.sql. */
static int read_columns(struct outbox_writer *writer, const PGresult *rows, const char *table,
                        char casts[COLUMNS_N][CAST_BYTES], struct err *err) {
  if (PQntuples(rows) == 0) {
    return err_set(err, ERR_FATAL, "unknown_table", "there is no table %s in the database \"%s\"", table,
                   PQdb(writer->conn));
  }
  for (int i = 0; i < COLUMNS_N; i++) {
    bool is_found = false;
    for (int row = 0; row < PQntuples(rows); row++) {
      if (strcmp(PQgetvalue(rows, row, 0), columns[i]) == 0) {
        (void)snprintf(casts[i], CAST_BYTES, "::%s", PQgetvalue(rows, row, 1));
        is_found = true;
      }
    }
    if (i == HEADERS) {
      writer->has_headers = is_found;
    } else if (!is_found) {
      return err_set(err, ERR_FATAL, "missing_column", "the table %s has no column %s", table, columns[i]);
    }
  }
  return 0;
}

static int make_statement(struct outbox_writer *writer, const char *table, char casts[COLUMNS_N][CAST_BYTES],
                          struct err *err) {
  static atomic_int writers_n;
  char headers_value[CAST_BYTES + 32] = "";
  if (writer->has_headers) {
    /* An empty text stands for NULL: it is no JSON. */
    (void)snprintf(headers_value, sizeof headers_value, ", NULLIF(e.headers, '')%s", casts[HEADERS]);
  }
  const struct sql_var vars[] = {{"table", table},
                                 {"headers_column", writer->has_headers ? ", headers" : ""},
                                 {"message_id_type", casts[0]},
                                 {"aggregate_type_type", casts[1]},
                                 {"aggregate_id_type", casts[2]},
                                 {"event_type_type", casts[3]},
                                 {"payload_type", casts[4]},
                                 {"headers_value", headers_value},
                                 {NULL, NULL}};
  (void)snprintf(writer->statement, sizeof writer->statement, "outbox_writer_%d", atomic_fetch_add(&writers_n, 1));
  return sql_expand(embed_record_many_sql, vars, &writer->sql, err);
}

int outbox_writer_new(PGconn *conn, const char *table, struct outbox_writer **out, struct outbox_error *error) {
  struct err err = ERR_INIT;
  struct schema_name parts;
  char quoted[SCHEMA_FULL_NAME_BYTES];
  char casts[COLUMNS_N][CAST_BYTES] = {""};
  PGresult *rows = NULL;
  *out = NULL;
  struct outbox_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) {
    (void)err_set(&err, ERR_RETRY, "ENOMEM", "no memory for a writer");
    return record_refuse(&err, error);
  }
  writer->conn = conn;
  if (record_check_connection(conn, false, &err) != 0 ||
      schema_parse_name(table != NULL ? table : "outbox_messages", &parts, &err) != 0) {
    goto fail;
  }
  schema_quote_name(&parts, quoted);
  const char *values[] = {quoted};
  rows = PQexecParams(conn, embed_layout_columns_sql, 1, NULL, values, NULL, NULL, 0);
  if (PQresultStatus(rows) != PGRES_TUPLES_OK) {
    PGresult *failed = rows;
    rows = NULL;
    if (record_finish(conn, failed, &err) != 0) {
      goto fail;
    }
  }
  if (read_columns(writer, rows, quoted, casts, &err) != 0 || make_statement(writer, quoted, casts, &err) != 0) {
    goto fail;
  }
  PQclear(rows);
  *out = writer;
  return 0;
fail:
  PQclear(rows);
  outbox_writer_free(writer);
  return record_refuse(&err, error);
}

void outbox_writer_free(struct outbox_writer *writer) {
  if (writer == NULL) {
    return;
  }
  for (int i = 0; i < COLUMNS_N; i++) {
    buf_free(&writer->params[i]);
  }
  free(writer->sql);
  free(writer);
}

/* -------------------------------------------------------------------------------------------------- writing */

static size_t event_bytes(const struct outbox_event *event) {
  return strlen(event->aggregate_type) + strlen(event->aggregate_id) + strlen(event->event_type) +
         strlen(event->payload) + (event->headers != NULL ? strlen(event->headers) : 0);
}

static int append(struct buf *buf, const char *text, struct err *err) {
  return pgarray_bytes(buf, text, strlen(text), err);
}

static int append_event(struct outbox_writer *writer, const struct outbox_event *event, const char *id,
                        struct err *err) {
  struct buf *params = writer->params;
  return append(&params[0], id, err) == 0 && append(&params[1], event->aggregate_type, err) == 0 &&
                 append(&params[2], event->aggregate_id, err) == 0 && append(&params[3], event->event_type, err) == 0 &&
                 append(&params[4], event->payload, err) == 0 &&
                 append(&params[HEADERS], event->headers != NULL ? event->headers : "", err) == 0
             ? 0
             : -1;
}

/* The statement is made known to the server process that has none of it yet: PQreset may have led to another. */
static int prepare(struct outbox_writer *writer, struct err *err) {
  if (writer->pid == PQbackendPID(writer->conn)) {
    return 0;
  }
  if (record_finish(writer->conn, PQprepare(writer->conn, writer->statement, writer->sql, 0, NULL), err) != 0) {
    return -1;
  }
  writer->pid = PQbackendPID(writer->conn);
  return 0;
}

/* Writes n events, few enough for one statement. */
static int write_chunk(struct outbox_writer *writer, const struct outbox_event *events, size_t n,
                       char (*ids)[OUTBOX_ID_BYTES], struct err *err) {
  const char *values[COLUMNS_N];
  int lengths[COLUMNS_N];
  int formats[COLUMNS_N];
  for (int i = 0; i < COLUMNS_N; i++) {
    buf_reset(&writer->params[i]);
    if (pgarray_begin(&writer->params[i], PGARRAY_TEXT, (int)n, err) != 0) {
      return -1;
    }
  }
  for (size_t i = 0; i < n; i++) {
    char id[OUTBOX_ID_BYTES];
    if (record_check_event(&events[i], id, err) != 0 || append_event(writer, &events[i], id, err) != 0) {
      return -1;
    }
    if (ids != NULL) {
      memcpy(ids[i], id, sizeof id);
    }
  }
  for (int i = 0; i < COLUMNS_N; i++) {
    values[i] = writer->params[i].data;
    lengths[i] = (int)writer->params[i].len;
    formats[i] = 1;
  }
  return record_finish(writer->conn,
                       PQexecPrepared(writer->conn, writer->statement, COLUMNS_N, values, lengths, formats, 0), err);
}

/* All of them, before the first is sent, so that a mistake in the call changes nothing. */
static int check_events(const struct outbox_writer *writer, const struct outbox_event *events, size_t n,
                        struct err *err) {
  for (size_t i = 0; i < n; i++) {
    struct outbox_event event = events[i];
    char id[OUTBOX_ID_BYTES];
    event.message_id = event.message_id != NULL ? event.message_id : "-"; /* is made when it is written */
    if (record_check_event(&event, id, err) != 0) {
      return err_wrap(err, "event %zu", i);
    }
    if (event.headers != NULL && !writer->has_headers) {
      return err_set(err, ERR_USAGE, "no_headers", "event %zu has headers, but the table has no column headers", i);
    }
  }
  return 0;
}

int outbox_writer_record(struct outbox_writer *writer, const struct outbox_event *events, size_t n,
                         char (*message_ids)[OUTBOX_ID_BYTES], struct outbox_error *error) {
  struct err err = ERR_INIT;
  if (record_check_connection(writer->conn, true, &err) != 0 || check_events(writer, events, n, &err) != 0 ||
      (n > 0 && prepare(writer, &err) != 0)) {
    return record_refuse(&err, error);
  }
  for (size_t from = 0; from < n;) {
    size_t to = from;
    size_t bytes = 0;
    do {
      bytes += event_bytes(&events[to++]);
    } while (to < n && to - from < CHUNK_EVENTS_N && bytes < CHUNK_BYTES);
    if (write_chunk(writer, &events[from], to - from, message_ids != NULL ? &message_ids[from] : NULL, &err) != 0) {
      return record_refuse(&err, error);
    }
    from = to;
  }
  return 0;
}
