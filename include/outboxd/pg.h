/*
 * One PostgreSQL session, driven without blocking: open, send a request, take its reply.
 *
 * A request is a list of statements sent in one go (pipeline mode, one round trip, one sync); its reply is one result a statement.
 * A session belongs to one thread.  The only file that looks at SQLSTATE or at libpq's error texts.
 * Never: retries by itself, waits without a deadline, logs.
 */
#ifndef OUTBOXD_PG_H
#define OUTBOXD_PG_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "outboxd/err.h"
#include "outboxd/stop.h"

struct pg;

enum pg_state {
  PG_CLOSED,     /* no connection; pg_open may be called */
  PG_CONNECTING, /* under way: drive it */
  PG_IDLE,       /* open, no request under way (a transaction may be open) */
  PG_BUSY        /* a request is under way: drive it */
};

enum pg_event {
  PG_EV_NONE,  /* nothing to tell yet */
  PG_EV_OPEN,  /* PG_CONNECTING has become PG_IDLE */
  PG_EV_REPLY, /* the request is answered, the state is PG_IDLE: look at pg_reply */
  PG_EV_LOST   /* connecting failed, the session died or a deadline passed; the state is PG_CLOSED, *err says why */
};

#define PG_STEPS_MAX 64

/* One statement of a request.  Everything is borrowed for the call of pg_send. */
struct pg_step {
  enum { PG_QUERY, PG_PREPARE, PG_EXECUTE } kind;
  const char *name; /* PG_PREPARE, PG_EXECUTE: the prepared statement */
  const char *sql;  /* PG_QUERY, PG_PREPARE: one statement */
  int params_n;
  const Oid *types;          /* PG_QUERY, PG_PREPARE: of parameters the statement may not use; NULL or 0: as it says */
  const char *const *values; /* NULL elements are SQL NULL */
  const int *lengths;        /* bytes; needed for binary ones only */
  const int *formats;        /* 0 text, 1 binary; NULL: all text */
  bool is_binary_result;
};

/* The result of each step in order; owned by the session until the next pg_send or pg_close, unless taken. */
struct pg_reply {
  int n;
  PGresult *results[PG_STEPS_MAX]; /* NULL where taken, or where a step was not run because an earlier one failed */
  bool is_failed;
  int failed_step;
  struct err err; /* of the first failed step */
};

/* Makes a closed session.  conninfo is a libpq string or URI ("" takes PG* variables), copied; role names it in application_name
 * ("outboxd <role>"); timeout_ms bounds connecting, and is given to the server as tcp_user_timeout.  Caller: pg_free. */
must_check int pg_new(const char *conninfo, const char *role, int64_t timeout_ms, struct pg **out, struct err *err);
/* Closes too.  NULL is fine. */
void pg_free(struct pg *pg);

/* Starts connecting.  ERR_RETRY or ERR_FATAL (a conninfo that cannot be parsed); then the state is still PG_CLOSED. */
must_check int pg_open(struct pg *pg, int64_t now_us, struct err *err);
/* Is it that of a statement with NOWAIT that met a lock, or of one that waited for a lock beyond lock_timeout? */
bool pg_is_lock_refused(const struct err *err);
/* Is it that of a REPEATABLE READ transaction that would have written a row that was changed since its snapshot? */
bool pg_is_row_changed(const struct err *err);
/* True once after a notification of a LISTEN of this session came in, however many did. */
bool pg_take_notified(struct pg *pg);
/* Drops the connection at once; the server rolls back what was open.  Keeps nothing. */
void pg_close(struct pg *pg);

enum pg_state pg_state(const struct pg *pg);
/* For poll(2): -1 when closed. */
int pg_fd(const struct pg *pg);
short pg_poll_events(const struct pg *pg);
/* When to call pg_drive at the latest (clock_now_us); INT64_MAX when idle. */
int64_t pg_deadline_us(const struct pg *pg);

/* For a loop over many sessions: what poll(2) said of pg_fd and pg_poll_events; the next pg_drive goes by it instead of asking for itself.
 * The server sends a large reply in pieces of 8 KB, and each would wake the loop's thread: after one, the others gather until
 * pg_gather_until_us (clock_now_us; INT64_MIN: nothing to wait for), and before that the session is not to be polled. */
void pg_polled(struct pg *pg, short revents);
int64_t pg_gather_until_us(const struct pg *pg);

/* Goes on as far as it can without blocking.  On PG_EV_LOST fills *err.  Cheap to call when there is nothing to do. */
enum pg_event pg_drive(struct pg *pg, int64_t now_us, struct err *err);

/* Sends a request (state PG_IDLE; at most PG_STEPS_MAX steps); it is given up, and the session with it, at deadline_us.
 * On an error the session is closed.  ERR_RETRY. */
must_check int pg_send(struct pg *pg, const struct pg_step *steps, int n, int64_t deadline_us, struct err *err);

/* The last reply; valid from PG_EV_REPLY until the next pg_send or pg_close. */
const struct pg_reply *pg_reply(const struct pg *pg);
/* Takes one result out: the caller PQclears it. */
PGresult *pg_take_result(struct pg *pg, int step);

/* Blocking forms for threads with nothing else to do: both see *stop (may be NULL) and end with ERR_RETRY "stopped" then.
 * pg_connect opens, checks the server's version (ERR_FATAL below 14) and that no transaction-pooling proxy is between (ERR_FATAL),
 * and applies the session settings (time zone UTC, timeouts; see sql/session.sql).
 * pg_call sends and waits; -1 also when a step failed (the session stays open: PG_IDLE). */
must_check int pg_connect(struct pg *pg, const struct stop *stop, struct err *err);
must_check int pg_call(struct pg *pg, const struct pg_step *steps, int n, int64_t timeout_ms, const struct stop *stop,
                       struct err *err);

/* Hands the connection of an idle session out for blocking use by somebody else, out of pipeline mode; NULL and ERR_RETRY on an error, which closes the
 * session.  Between the two calls no other function may be given the session. */
PGconn *pg_lend(struct pg *pg, struct err *err);
/* Takes it back; *status is what it was left in (PQTRANS_ACTIVE: not usable any more, close it).  ERR_RETRY: the connection was lost. */
must_check int pg_take_back(struct pg *pg, PGTransactionStatusType *status, struct err *err);

/* The step that applies the session settings, for those who drive their session themselves, and the check of its result: the same
 * errors as pg_connect. */
struct pg_step pg_setup_step(const struct pg *pg);
must_check int pg_setup_check(const struct pg *pg, const PGresult *result, struct err *err);

/* The server process's id as the connection knows it; 0 when closed. */
int pg_pid(const struct pg *pg);

/* A whole number of a text result; NULL is 0. */
int64_t pg_parse_int64(const PGresult *result, int row, int column);
/* What went wrong with a statement of somebody else's session: fills *err from result (NULL: from conn).  Always returns -1. */
int pg_describe(const PGconn *conn, const PGresult *result, struct err *err);
/* Values of binary results. */
int64_t pg_get_int64(const PGresult *result, int row, int column);
int32_t pg_get_int32(const PGresult *result, int row, int column);

#endif
