/*
 * Who owns which lanes, as anybody can see it in pg_locks.
 */
#ifndef TEST_FLEET_H
#define TEST_FLEET_H

#include <libpq-fe.h>
#include <stdint.h>

#define FLEET_OWNERS_MAX 16

struct fleet_view {
  int owners_n;        /* processes that own a lane */
  int lanes_n;         /* lanes that are owned */
  int least_n, most_n; /* lanes of the owner with the fewest and with the most */
};

struct fleet_view fleet_look(PGconn *conn, const char *table);

/* Until lanes_n lanes are spread over owners_n processes as evenly as whole numbers allow.  Fails the test after timeout_ms (scaled);
 * returns the milliseconds it took. */
int64_t fleet_wait_even(PGconn *conn, const char *table, int lanes_n, int owners_n, int64_t timeout_ms);

/* Sessions of relays on this server whose application_name begins so ("outboxd" for all). */
int64_t fleet_sessions(PGconn *conn, const char *application_name);

/* Rows of the table that some other session holds locked. */
int64_t fleet_locked_rows(PGconn *conn, const char *table);

#endif
