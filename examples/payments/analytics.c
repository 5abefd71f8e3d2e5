/*
 * analytics: adds up what each account sends and receives.
 *
 *   analytics CONNINFO REDIS-URL     SIGTERM: finishes the events in hand and ends
 *
 * Everything the handler writes over conn is one transaction with the mark that says the event was handled: so it counts once, whatever is killed when.
 */
#include <outbox.h>
#include <signal.h>
#include <stdio.h>

static const char add_event[] = "WITH event AS ("
                                "  INSERT INTO account_events (message_id, account, n, payment, change)"
                                "  SELECT $1::uuid, $2::bigint, n, payment, change"
                                "  FROM jsonb_to_record($3::jsonb) AS payload (n bigint, payment bigint, change bigint)"
                                "  RETURNING account, change"
                                ") INSERT INTO account_totals AS t"
                                "  SELECT account, 1, greatest(change, 0), greatest(-change, 0) FROM event"
                                "  ON CONFLICT (account) DO UPDATE SET events = t.events + 1,"
                                "    received = t.received + excluded.received, sent = t.sent + excluded.sent";

static enum outbox_verdict handle(void *ctx, PGconn *conn, const struct outbox_message *message,
                                  struct outbox_failure *failure) {
  const char *values[] = {message->message_id, message->aggregate_id, message->payload};
  PGresult *result = PQexecParams(conn, add_event, 3, NULL, values, NULL, NULL, 0);
  bool is_done = PQresultStatus(result) == PGRES_COMMAND_OK;
  (void)ctx;
  if (!is_done) {
    (void)snprintf(failure->text, sizeof failure->text, "%s", PQerrorMessage(conn));
  }
  PQclear(result);
  return is_done ? OUTBOX_DONE : OUTBOX_RETRY;
}

static struct outbox_consumer *consumer;

static void on_term(int signum) {
  (void)signum;
  outbox_consumer_stop(consumer);
}

static void write_line(void *ctx, enum outbox_log_level level, const char *line, size_t bytes) {
  (void)ctx;
  (void)level;
  (void)fprintf(stderr, "%.*s\n", (int)bytes, line);
}

int main(int argc, char *argv[]) {
  struct sigaction action = {.sa_handler = on_term, .sa_flags = SA_RESTART};
  struct outbox_error error = {0};
  int status = 1;
  if (argc != 3) {
    (void)fprintf(stderr, "usage: analytics CONNINFO REDIS-URL\n");
    return 2;
  }
  outbox_set_log(OUTBOX_INFO, write_line, NULL);
  if (outbox_consumer_new(&consumer, &error) == 0 && outbox_consumer_set(consumer, "database", argv[1], &error) == 0 &&
      outbox_consumer_set(consumer, "redis", argv[2], &error) == 0 &&
      outbox_consumer_set(consumer, "group", "analytics", &error) == 0 &&
      outbox_consumer_set(consumer, "threads", "2", &error) == 0) {
    (void)sigaction(SIGTERM, &action, NULL);
    status = outbox_consumer_run(consumer, handle, NULL, &error) == 0 ? 0 : 1;
  }
  if (status != 0) {
    (void)fprintf(stderr, "analytics: %s\n", error.text);
  }
  outbox_consumer_free(consumer);
  return status;
}
