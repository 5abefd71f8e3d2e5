/*
 * A program as users of liboutbox write it: built by scripts/test-library.sh with what pkg-config says, against what was installed.
 *
 *   app             the version, and a new id
 *   app CONNINFO    records an event in a transaction of its own and handles it once
 */
#include <outbox.h>
#include <stdio.h>
#include <stdlib.h>

/* Names of the library's own parts: a program may have its own of them. */
int err_set(int rc);
int err_set(int rc) {
  return rc;
}

static void run(PGconn *conn, const char *sql) {
  PGresult *result = PQexec(conn, sql);
  if (PQresultStatus(result) != PGRES_COMMAND_OK) {
    fprintf(stderr, "%s: %s", sql, PQerrorMessage(conn));
    exit(1);
  }
  PQclear(result);
}

static void check(int rc, const struct outbox_error *error) {
  if (rc != 0) {
    fprintf(stderr, "%s: %s\n", error->code, error->text);
    exit(1);
  }
}

int main(int argc, char *argv[]) {
  struct outbox_error error = {0};
  char id[OUTBOX_ID_BYTES];
  check(outbox_uuid_v7(id, &error), &error);
  printf("%s %s\n", outbox_version(), id);
  if (argc == 2) {
    PGconn *conn = PQconnectdb(argv[1]);
    const struct outbox_event event = {
        .aggregate_type = "account", .aggregate_id = "42", .event_type = "money.sent", .payload = "{\"amount\": 10}"};
    bool is_first = false;
    run(conn, "BEGIN");
    check(outbox_record(conn, NULL, &event, id, &error), &error);
    check(outbox_process_once(conn, NULL, id, "app", &is_first, &error), &error);
    run(conn, "COMMIT");
    printf("%s %s\n", id, is_first ? "first" : "again");
    PQfinish(conn);
  }
  return err_set(0);
}
