/*
 * The checker's reading of the table: one COPY in binary form, one record a row.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"
#include "db.h"
#include "fail.h"

/* The columns of the COPY, in its order; after them come headers, when the table has them. */
enum column {
  COL_ID,
  COL_MESSAGE_ID,
  COL_STATE,
  COL_LANE,
  COL_TYPE,
  COL_AGGREGATE_ID,
  COL_EVENT,
  COL_PAYLOAD,
  COL_CREATED_AT,
  COL_HEADERS
};
#define COLUMNS_MAX 10
#define COPY_SIGNATURE "PGCOPY\n\377\r\n"
#define COPY_SIGNATURE_BYTES 11
/* Signature, flags, length of the extension. */
#define COPY_HEADER_BYTES (COPY_SIGNATURE_BYTES + 8)

/* Takes a tuple of the COPY apart; false at the trailer. */
static bool split_tuple(const char *tuple, size_t bytes, int columns_n, struct check_text *out) {
  const char *at = tuple;
  const char *end = tuple + bytes;
  uint16_t count;

  memcpy(&count, at, sizeof count);
  at += sizeof count;
  if (ntohs(count) == 0xffff) {
    return false;
  }
  REQUIRE(ntohs(count) == columns_n, "COPY: %d columns, not %d", ntohs(count), columns_n);
  for (int i = 0; i < columns_n; i++) {
    uint32_t length;
    memcpy(&length, at, sizeof length);
    at += sizeof length;
    /* -1 is NULL; an entry has the empty string there. */
    out[i] = (struct check_text){at, ntohl(length) == UINT32_MAX ? 0 : ntohl(length)};
    at += out[i].bytes;
    REQUIRE(at <= end, "COPY: a tuple that is cut off");
  }
  return true;
}

static int64_t get_int64(const struct check_text *text) {
  uint64_t value;
  REQUIRE(text->bytes == sizeof value, "COPY: %zu bytes for a bigint", text->bytes);
  memcpy(&value, text->v, sizeof value);
  return (int64_t)be64toh(value);
}

/* The stream a row belongs to, written out anew from the template. */
static struct check_stream *render_stream(struct check *check, const struct check_text *columns) {
  char lane[24];
  char *name = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&name, &bytes);
  struct check_stream *stream;

  if (out == NULL) {
    FAIL("out of memory");
  }
  snprintf(lane, sizeof lane, "%" PRId64, get_int64(&columns[COL_LANE]));
  for (const char *at = check->options->stream; *at != '\0'; at++) {
    struct check_text value = {at, 1};
    if (*at == '%') {
      at++;
      if (*at == 'l') {
        value = (struct check_text){lane, strlen(lane)};
      }
      if (*at == 't') {
        value = columns[COL_TYPE];
      }
      if (*at == 'i') {
        value = columns[COL_AGGREGATE_ID];
      }
      if (*at == 'e') {
        value = columns[COL_EVENT];
      }
      REQUIRE(*at != '\0' && strchr("ltie%", *at) != NULL, "the template %s has an unknown placeholder",
              check->options->stream);
    }
    fwrite(value.v, 1, value.bytes, out);
  }
  fclose(out);
  stream = check_stream_of(check, name, bytes);
  free(name);
  return stream;
}

static struct check_aggregate *find_aggregate(struct check *check, const struct check_text *type,
                                              const struct check_text *id) {
  size_t bytes = type->bytes + 1 + id->bytes;
  struct check_aggregate *aggregate = malloc(sizeof *aggregate + bytes);
  struct check_aggregate *known;
  char *key;

  if (aggregate == NULL) {
    FAIL("out of memory");
  }
  memset(aggregate, 0, sizeof *aggregate);
  key = (char *)(aggregate + 1);
  memcpy(key, type->v, type->bytes);
  key[type->bytes] = '\0';
  memcpy(key + type->bytes + 1, id->v, id->bytes);
  HASH_FIND(hh, check->aggregates, key, bytes, known);
  if (known != NULL) {
    free(aggregate);
    return known;
  }
  HASH_ADD_KEYPTR(hh, check->aggregates, key, bytes, aggregate);
  return aggregate;
}

static void count_state(struct check_report *report, enum check_row_state state) {
  report->rows_n++;
  switch (state) {
  case ROW_PENDING:
    report->pending_n++;
    return;
  case ROW_PUBLISHED:
    report->published_n++;
    return;
  case ROW_DEAD:
    report->dead_n++;
    return;
  case ROW_DISCARDED:
    report->discarded_n++;
    return;
  }
}

static void add_row(struct check *check, const struct check_text *columns) {
  const struct check_text *message_id = &columns[COL_MESSAGE_ID];
  struct check_row *row = malloc(sizeof *row + message_id->bytes + 1);
  struct check_row *known;
  size_t row_bytes = 0;

  if (row == NULL) {
    FAIL("out of memory");
  }
  memset(row, 0, sizeof *row);
  memcpy(row->message_id, message_id->v, message_id->bytes);
  row->message_id[message_id->bytes] = '\0';
  row->message_id_bytes = message_id->bytes;
  row->id = get_int64(&columns[COL_ID]);
  row->state = (enum check_row_state)get_int64(&columns[COL_STATE]);
  row->aggregate = find_aggregate(check, &columns[COL_TYPE], &columns[COL_AGGREGATE_ID]);
  row->stream = render_stream(check, columns);
  for (int field = 0; field < CHECK_FIELDS_N - (check->has_headers ? 0 : 1); field++) {
    const struct check_text *value = &columns[COL_TYPE + field];
    row->hashes[field] = check_hash(value->v, value->bytes);
    row_bytes += value->bytes;
  }
  if (row_bytes > row->stream->largest_row_bytes) {
    row->stream->largest_row_bytes = row_bytes;
  }
  count_state(check->report, row->state);

  HASH_FIND(hh, check->rows, row->message_id, row->message_id_bytes, known);
  if (known != NULL) {
    /* Nothing in the form without a unique index forbids it, but then no reader can tell the two apart. */
    check_note(check, CHECK_DUPLICATE,
               "message %s: two rows of the table have this message_id (ids %" PRId64 " and %" PRId64 ")",
               row->message_id, known->id, row->id);
    free(row);
    return;
  }
  HASH_ADD_KEYPTR(hh, check->rows, row->message_id, row->message_id_bytes, row);
}

static char *copy_statement(const struct check *check, const char *table) {
  char *sql = NULL;
  /* created_at: a column without time zone is taken as UTC. */
  int length = asprintf(
      &sql,
      "COPY (SELECT id::bigint, message_id::text, "
      "(CASE WHEN published_at IS NOT NULL AND last_error LIKE 'discarded: %%' THEN %d "
      "WHEN published_at IS NOT NULL THEN %d WHEN coalesce(attempts, 0) >= %d THEN %d ELSE %d END)::bigint, "
      "((hashtextextended(coalesce(aggregate_id::text, ''), 0) %% %d + %d) %% %d)::bigint, "
      "aggregate_type::text, aggregate_id::text, event_type::text, payload::text, "
      "to_char(created_at::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')%s "
      "FROM %s) TO STDOUT (FORMAT binary)",
      ROW_DISCARDED, ROW_PUBLISHED, check->options->max_attempts, ROW_DEAD, ROW_PENDING, check->options->lanes_n,
      check->options->lanes_n, check->options->lanes_n, check->has_headers ? ", headers::text" : "", table);
  if (length < 0) {
    FAIL("out of memory");
  }
  return sql;
}

static void copy_rows(struct check *check, PGconn *conn, const char *sql) {
  int columns_n = check->has_headers ? COLUMNS_MAX : COLUMNS_MAX - 1;
  struct check_text columns[COLUMNS_MAX];
  bool is_first = true;
  PGresult *result = PQexec(conn, sql);
  char *tuple;
  int bytes;

  REQUIRE(PQresultStatus(result) == PGRES_COPY_OUT, "%s\nthe statement was: %s", PQerrorMessage(conn), sql);
  PQclear(result);
  while ((bytes = PQgetCopyData(conn, &tuple, 0)) > 0) {
    size_t skip = 0;
    if (is_first) {
      REQUIRE(bytes >= COPY_HEADER_BYTES && memcmp(tuple, COPY_SIGNATURE, COPY_SIGNATURE_BYTES) == 0,
              "COPY: no binary data");
      skip = COPY_HEADER_BYTES;
      is_first = false;
    }
    /* The header comes alone or with the first tuple, depending on the server. */
    if ((size_t)bytes > skip && split_tuple(tuple + skip, (size_t)bytes - skip, columns_n, columns)) {
      add_row(check, columns);
    }
    PQfreemem(tuple);
  }
  for (result = PQgetResult(conn); result != NULL; result = PQgetResult(conn)) {
    REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK, "COPY: %s", PQerrorMessage(conn));
    PQclear(result);
  }
}

void check_read_table(struct check *check) {
  PGconn *conn = db_open(check->options->conninfo);
  const char *given = check->options->table;
  PGresult *result =
      PQexecParams(conn,
                   "SELECT $1::regclass::text, EXISTS (SELECT FROM pg_attribute WHERE attrelid = $1::regclass AND "
                   "attname = 'headers' AND NOT attisdropped)",
                   1, NULL, &given, NULL, NULL, 0);
  char *sql;

  REQUIRE(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(conn));
  check->has_headers = strcmp(PQgetvalue(result, 0, 1), "t") == 0;
  db_exec(conn, "SET timezone = 'UTC'; SET DateStyle = 'ISO'");
  sql = copy_statement(check, PQgetvalue(result, 0, 0));
  copy_rows(check, conn, sql);
  free(sql);
  PQclear(result);
  PQfinish(conn);
}
