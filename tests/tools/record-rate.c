/*
 * How fast liboutbox writes: events a second, one by one and with a writer, in transactions of a given size.
 *
 *   record-rate CONNINFO [EVENTS [PER_TRANSACTION]]    into the table outbox_messages, which stays as it is: all is rolled back
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "outbox.h"

static double now_s(void) {
  struct timespec ts;
  (void)clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
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
  long events_n = argc > 2 ? strtol(argv[2], NULL, 10) : 100000;
  long per_n = argc > 3 ? strtol(argv[3], NULL, 10) : 1000;
  if (argc < 2 || events_n < 1 || per_n < 1) {
    fprintf(stderr, "record-rate CONNINFO [EVENTS [PER_TRANSACTION]]\n");
    return 2;
  }
  PGconn *conn = PQconnectdb(argv[1]);
  struct outbox_writer *writer = NULL;
  struct outbox_event *events = calloc((size_t)per_n, sizeof *events);
  char(*ids)[16] = calloc((size_t)per_n, sizeof *ids);
  if (events == NULL || ids == NULL) {
    fprintf(stderr, "record-rate: no memory\n");
    exit(1);
  }
  for (long i = 0; i < per_n; i++) {
    snprintf(ids[i], sizeof ids[i], "%ld", i % 997);
    events[i] = (struct outbox_event){
        .aggregate_type = "account",
        .aggregate_id = ids[i],
        .event_type = "money.sent",
        .payload = "{\"amount\": 10.50, \"currency\": \"EUR\", \"to\": \"DE02120300000000202051\", "
                   "\"reference\": \"invoice 2026-0042, thank you for your order\"}"};
  }
  check(outbox_writer_new(conn, NULL, &writer, &error), &error);
  for (int is_bulk = 0; is_bulk < 2; is_bulk++) {
    double began_s = now_s();
    for (long done_n = 0; done_n < events_n; done_n += per_n) {
      run(conn, "BEGIN");
      if (is_bulk) {
        check(outbox_writer_record(writer, events, (size_t)per_n, NULL, &error), &error);
      } else {
        for (long i = 0; i < per_n; i++) {
          check(outbox_record(conn, NULL, &events[i], NULL, &error), &error);
        }
      }
      run(conn, "ROLLBACK");
    }
    printf("%-22s %8.0f events/s\n", is_bulk ? "outbox_writer_record" : "outbox_record",
           (double)events_n / (now_s() - began_s));
  }
  outbox_writer_free(writer);
  PQfinish(conn);
  free(events);
  free(ids);
  return 0;
}
