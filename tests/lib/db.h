/*
 * Small PostgreSQL helpers for tests: every one fails the test on an error, and says which statement it was.  Blocking.
 */
#ifndef TEST_DB_H
#define TEST_DB_H

#include <libpq-fe.h>
#include <stdint.h>

/* Opens a session (application_name "test" unless conninfo says otherwise; notices are dropped).  Caller: PQfinish. */
PGconn *db_open(const char *conninfo);

/* Runs statements, whatever they return. */
void db_exec(PGconn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Number of rows the one statement affected. */
int64_t db_affected(PGconn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The single value of a query as a number; NULL is 0. */
int64_t db_int(PGconn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The single value of a query as text, NULL as "".  Caller frees. */
char *db_text(PGconn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The whole result.  Caller: PQclear. */
PGresult *db_rows(PGconn *conn, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One statement with parameters (NULL elements are SQL NULL). */
void db_exec_params(PGconn *conn, const char *sql, int params_n, const char *const *values);

#endif
