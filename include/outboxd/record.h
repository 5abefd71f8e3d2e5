/*
 * What liboutbox's writing functions share: the check of the caller's connection, names of tables, errors handed out.
 *
 * Whichever thread has the connection.
 */
#ifndef OUTBOXD_RECORD_H
#define OUTBOXD_RECORD_H

#include <libpq-fe.h>

#include "outbox.h"
#include "outboxd/err.h"

/* Hands *err out as the library's callers get it.  error may be NULL.  Always -1. */
int record_refuse(const struct err *err, struct outbox_error *error);

/* Can a statement be sent on conn, and (is_within) is it in a transaction?  ERR_USAGE says what to do. */
must_check int record_check_connection(const PGconn *conn, bool is_within, struct err *err);

/* One of sql/, its :variable replaced by the table's quoted name; name NULL: standard.  *out is the caller's to free. */
must_check int record_expand(const char *sql, const char *variable, const char *name, const char *standard, char **out,
                             struct err *err);

/* Members that must not be NULL are there, and the id has room.  Fills id: the event's own or a new one. */
must_check int record_check_event(const struct outbox_event *event, char id[OUTBOX_ID_BYTES], struct err *err);

/* Reads what a statement returned: ERR_NONE and 0 when it did what it should.  Takes result over. */
must_check int record_finish(PGconn *conn, PGresult *result, struct err *err);

#endif
