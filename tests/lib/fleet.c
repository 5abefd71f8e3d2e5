/*
 * Who owns which lanes: see fleet.h.
 */
#include "fleet.h"

#include "db.h"
#include "fail.h"
#include "outboxd/locks.h"
#include "wait.h"

#include <stdlib.h>

struct fleet_view fleet_look(PGconn *conn, const char *table) {
  PGresult *row = db_rows(
      conn,
      "SELECT count(*), coalesce(sum(n), 0), coalesce(min(n), 0), coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM "
      "pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 2 AND "
      "database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND "
      "classid = '%s'::regclass AND objid BETWEEN %d AND %d GROUP BY pid) g",
      table, LOCKS_GATE, LOCKS_GATE + LOCKS_LANE_MASK);
  struct fleet_view view = {
      .owners_n = atoi(PQgetvalue(row, 0, 0)),
      .lanes_n = atoi(PQgetvalue(row, 0, 1)),
      .least_n = atoi(PQgetvalue(row, 0, 2)),
      .most_n = atoi(PQgetvalue(row, 0, 3)),
  };
  PQclear(row);
  return view;
}

int64_t fleet_wait_even(PGconn *conn, const char *table, int lanes_n, int owners_n, int64_t timeout_ms) {
  int64_t started_ms = wait_now_ms();
  struct wait wait = wait_begin(timeout_ms);
  for (;;) {
    struct fleet_view view = fleet_look(conn, table);
    if (view.owners_n == owners_n && view.lanes_n == lanes_n &&
        view.most_n - view.least_n <= (lanes_n % owners_n == 0 ? 0 : 1)) {
      break;
    }
    if (!wait_next(&wait)) {
      FAIL("after %lld ms %d of %d lanes are owned by %d processes (%d wanted), between %d and %d each",
           (long long)wait_scaled_ms(timeout_ms), view.lanes_n, lanes_n, view.owners_n, owners_n, view.least_n,
           view.most_n);
    }
  }
  return wait_now_ms() - started_ms;
}

int64_t fleet_sessions(PGconn *conn, const char *application_name) {
  return db_int(conn, "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, '%s')",
                application_name);
}

int64_t fleet_locked_rows(PGconn *conn, const char *table) {
  /* A row lock is the locker's transaction in xmax.  Trying for the rows instead would be a lock of our own, which the relay gets to see. */
  return db_int(conn,
                "SELECT count(*) FROM %s WHERE xmax::text IN (SELECT transactionid::text FROM pg_locks WHERE "
                "locktype = 'transactionid' AND granted)",
                table);
}
