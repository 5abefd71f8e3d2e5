/*
 * PostgreSQL helpers for tests: see db.h.
 */
#include "db.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

static void drop_notice(void *arg, const PGresult *result) {
  (void)arg;
  (void)result;
}

PGconn *db_open(const char *conninfo) {
  const char *names[] = {"dbname", "fallback_application_name", NULL};
  const char *values[] = {conninfo, "test", NULL};
  PGconn *conn = PQconnectdbParams(names, values, 1);
  if (PQstatus(conn) != CONNECTION_OK) {
    FAIL("cannot connect to PostgreSQL: %s", PQerrorMessage(conn));
  }
  PQsetNoticeReceiver(conn, drop_notice, NULL);
  return conn;
}

static char *format(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));
static char *format(const char *fmt, va_list args) {
  char *sql = NULL;
  if (vasprintf(&sql, fmt, args) < 0) {
    FAIL("out of memory");
  }
  return sql;
}

/* Runs sql and frees it. */
static PGresult *run(PGconn *conn, char *sql) {
  PGresult *result = PQexec(conn, sql);
  ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    FAIL("%s\nthe statement was: %.2000s", PQerrorMessage(conn), sql);
  }
  free(sql);
  return result;
}

#define RUN(result)                         \
  PGresult *result;                         \
  do {                                      \
    va_list args_;                          \
    va_start(args_, fmt);                   \
    result = run(conn, format(fmt, args_)); \
    va_end(args_);                          \
  } while (0)

void db_exec(PGconn *conn, const char *fmt, ...) {
  RUN(result);
  PQclear(result);
}

int64_t db_affected(PGconn *conn, const char *fmt, ...) {
  RUN(result);
  int64_t n = strtoll(PQcmdTuples(result), NULL, 10);
  PQclear(result);
  return n;
}

static void require_single(const PGresult *result, const char *fmt) {
  REQUIRE(PQntuples(result) == 1 && PQnfields(result) == 1, "not a single value: %s", fmt);
}

int64_t db_int(PGconn *conn, const char *fmt, ...) {
  RUN(result);
  require_single(result, fmt);
  const char *text = PQgetvalue(result, 0, 0);
  int64_t value = strcmp(text, "t") == 0 ? 1 : strtoll(text, NULL, 10);
  PQclear(result);
  return value;
}

char *db_text(PGconn *conn, const char *fmt, ...) {
  RUN(result);
  require_single(result, fmt);
  char *text = strdup(PQgetvalue(result, 0, 0));
  PQclear(result);
  REQUIRE(text != NULL, "out of memory");
  return text;
}

PGresult *db_rows(PGconn *conn, const char *fmt, ...) {
  RUN(result);
  return result;
}

void db_exec_params(PGconn *conn, const char *sql, int params_n, const char *const *values) {
  PGresult *result = PQexecParams(conn, sql, params_n, NULL, values, NULL, NULL, 0);
  ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    FAIL("%s\nthe statement was: %s", PQerrorMessage(conn), sql);
  }
  PQclear(result);
}
