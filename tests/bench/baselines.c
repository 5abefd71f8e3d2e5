/*
 * The SQL limit: see baselines.h.
 */
#include "baselines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "fail.h"
#include "usage.h"

#define BATCH_N 1000
#define LEAVES_MAX 64
#define TID_BYTES 32

#define COLUMNS \
  "tableoid, ctid, id, message_id, aggregate_type, aggregate_id, event_type, payload, attempts, created_at"
enum { COL_TABLE, COL_PLACE, COL_ID, COL_MESSAGE_ID, COL_TYPE, COL_AGGREGATE_ID, COL_EVENT, COL_PAYLOAD };

struct session {
  PGconn *conn;
  char leaves[LEAVES_MAX][16]; /* oids, as text */
  int leaves_n;
  int64_t read_bytes; /* of the columns, so that no compiler drops the reading */
};

static void take(PGconn *conn, ExecStatusType wanted, PGresult **out) {
  PGresult *result = PQgetResult(conn);
  REQUIRE(PQresultStatus(result) == wanted, "the SQL limit: %s, not %s: %s", PQresStatus(PQresultStatus(result)),
          PQresStatus(wanted), PQerrorMessage(conn));
  if (out != NULL) {
    *out = result;
  } else {
    PQclear(result);
  }
  if (wanted != PGRES_PIPELINE_SYNC) {
    result = PQgetResult(conn); /* the end of this statement's results */
    REQUIRE(result == NULL, "the SQL limit: one result too many");
  }
}

static void prepare(struct session *session, const char *name, const char *sql) {
  PGresult *result = PQprepare(session->conn, name, sql, 0, NULL);
  REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", sql, PQerrorMessage(session->conn));
  PQclear(result);
}

static void open_session(struct session *session, struct bench *bench, bool is_bare) {
  char sql[512];

  session->conn = db_open(bench->stack->conninfo);
  /* As the relay's own sessions are set: whatever the statistics say, the pending index in id order. */
  db_exec(session->conn,
          "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; "
          "SET enable_sort = off; SET jit = off; SET max_parallel_workers_per_gather = 0");
  prepare(session, "begin", "BEGIN");
  prepare(session, "commit", "COMMIT");
  snprintf(sql, sizeof sql,
           "SELECT " COLUMNS " FROM " BENCH_TABLE
           " WHERE published_at IS NULL AND id > $1::bigint ORDER BY id LIMIT %d%s",
           BATCH_N, is_bare ? "" : " FOR UPDATE SKIP LOCKED");
  prepare(session, "claim", sql);
  PGresult *leaves = db_rows(session->conn, "SELECT relid::oid, relid::regclass FROM pg_partition_tree('" BENCH_TABLE
                                            "') WHERE isleaf UNION SELECT oid, oid::regclass FROM pg_class WHERE oid = "
                                            "'" BENCH_TABLE "'::regclass AND relkind = 'r'");
  session->leaves_n = PQntuples(leaves);
  REQUIRE(session->leaves_n > 0 && session->leaves_n <= LEAVES_MAX, "%d partitions", session->leaves_n);
  for (int i = 0; i < session->leaves_n; i++) {
    snprintf(session->leaves[i], sizeof session->leaves[i], "%s", PQgetvalue(leaves, i, 0));
    snprintf(sql, sizeof sql, "UPDATE %s SET published_at = clock_timestamp() WHERE ctid = ANY ($1::tid[])",
             PQgetvalue(leaves, i, 1));
    prepare(session, session->leaves[i], sql);
  }
  PQclear(leaves);
  REQUIRE(PQenterPipelineMode(session->conn) == 1, "no pipeline mode");
}

/* BEGIN and claim, one round trip. */
static PGresult *claim(struct session *session, int64_t cursor) {
  PGresult *rows;
  char number[24];
  const char *const values[] = {number};

  snprintf(number, sizeof number, "%" PRId64, cursor);
  PQsendQueryPrepared(session->conn, "begin", 0, NULL, NULL, NULL, 0);
  PQsendQueryPrepared(session->conn, "claim", 1, values, NULL, NULL, 0);
  PQpipelineSync(session->conn);
  take(session->conn, PGRES_COMMAND_OK, NULL);
  take(session->conn, PGRES_TUPLES_OK, &rows);
  take(session->conn, PGRES_PIPELINE_SYNC, NULL);
  return rows;
}

/* The places of the rows of one partition as an array; "" when there is none. */
static void write_places(struct session *session, const PGresult *rows, const char *leaf, char *out) {
  char *at = out;
  for (int row = 0; row < PQntuples(rows); row++) {
    if (strcmp(PQgetvalue(rows, row, COL_TABLE), leaf) != 0) {
      continue;
    }
    at[0] = at == out ? '{' : ',';
    at[1] = '"';
    at += 2;
    size_t bytes = (size_t)PQgetlength(rows, row, COL_PLACE);
    memcpy(at, PQgetvalue(rows, row, COL_PLACE), bytes);
    at += bytes;
    *at++ = '"';
    for (int column = COL_MESSAGE_ID; column <= COL_PAYLOAD; column++) {
      session->read_bytes += PQgetlength(rows, row, column);
    }
  }
  if (at != out) {
    *at++ = '}';
  }
  *at = '\0';
}

/* UPDATE and COMMIT, one round trip. */
static void mark(struct session *session, const PGresult *rows) {
  static char places[BATCH_N * TID_BYTES];
  const char *const values[] = {places};
  int updates_n = 0;

  for (int i = 0; i < session->leaves_n; i++) {
    write_places(session, rows, session->leaves[i], places);
    if (places[0] != '\0') {
      PQsendQueryPrepared(session->conn, session->leaves[i], 1, values, NULL, NULL, 0);
      updates_n++;
    }
  }
  PQsendQueryPrepared(session->conn, "commit", 0, NULL, NULL, NULL, 0);
  PQpipelineSync(session->conn);
  for (int i = 0; i <= updates_n; i++) {
    take(session->conn, PGRES_COMMAND_OK, NULL);
  }
  take(session->conn, PGRES_PIPELINE_SYNC, NULL);
}

static int64_t wal_bytes(struct bench *bench) {
  return db_int(bench->conn, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint");
}

struct sql_limit baseline_sql(struct bench *bench, int64_t first_id, bool is_bare) {
  struct session session = {0};
  struct sql_limit limit = {0};
  int64_t cursor = 0;
  int rows_n;

  open_session(&session, bench, is_bare);
  int64_t wal_before = wal_bytes(bench);
  struct usage before = usage_now(bench->stack);
  do {
    PGresult *rows = claim(&session, cursor);
    rows_n = PQntuples(rows);
    mark(&session, rows);
    if (rows_n > 0) {
      cursor = strtoll(PQgetvalue(rows, rows_n - 1, COL_ID), NULL, 10);
    }
    PQclear(rows);
  } while (rows_n > 0);
  struct usage after = usage_now(bench->stack);
  int64_t wal_after = wal_bytes(bench);
  PQfinish(session.conn);
  REQUIRE(session.read_bytes > 0, "the SQL limit has read nothing");
  limit.rate = bench_rate(bench, first_id, NULL, &limit.messages_n);
  limit.pg_cpu_us = (after.pg_s - before.pg_s) * 1e6 / (double)limit.messages_n;
  limit.wal_bytes = (double)(wal_after - wal_before) / (double)limit.messages_n;
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", is_bare ? "bare update" : "SQL limit",
                                  "messages", (json_int_t)limit.messages_n, "rate_per_second", limit.rate,
                                  "postgres_cpu_us", limit.pg_cpu_us, "wal_bytes", limit.wal_bytes));
  bench_say("%-26s %8" PRId64 " messages  %7.0f/s   CPU us a message: PostgreSQL %.2f",
            is_bare ? "bare update" : "SQL limit", limit.messages_n, limit.rate, limit.pg_cpu_us);
  return limit;
}
