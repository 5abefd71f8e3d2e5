/*
 * A consumer as users of liboutbox write it, to be killed: each message's effect is a row of the table effects, written over the handler's connection.
 *
 *   consumer-app --NAME VALUE...    options of outbox_consumer_set
 *
 * The consumer's events go to stderr.  SIGTERM stops it.  Exit status 0, or 1.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outbox.h"

static struct outbox_consumer *consumer;

static void on_term(int signum) {
  (void)signum;
  outbox_consumer_stop(consumer); /* NOLINT(bugprone-signal-handler,cert-sig30-c): outbox.h allows it */
}

static void write_line(void *ctx, enum outbox_log_level level, const char *line, size_t bytes) {
  char whole[4200];
  (void)ctx;
  (void)level;
  int n = snprintf(whole, sizeof whole, "%.*s\n", (int)bytes, line);
  ssize_t written = write(STDERR_FILENO, whole, (size_t)n);
  (void)written;
}

static enum outbox_verdict handle(void *ctx, PGconn *conn, const struct outbox_message *message,
                                  struct outbox_failure *failure) {
  char lane[16];
  (void)ctx;
  (void)snprintf(lane, sizeof lane, "%d", message->lane);
  const char *values[] = {message->message_id, message->aggregate_type, message->aggregate_id, lane};
  PGresult *result =
      PQexecParams(conn, "INSERT INTO effects (message_id, aggregate_type, aggregate_id, lane) VALUES ($1, $2, $3, $4)",
                   4, NULL, values, NULL, NULL, 0);
  bool is_done = PQresultStatus(result) == PGRES_COMMAND_OK;
  if (!is_done) {
    (void)snprintf(failure->text, sizeof failure->text, "%s", PQerrorMessage(conn));
  }
  PQclear(result);
  return is_done ? OUTBOX_DONE : OUTBOX_RETRY;
}

int main(int argc, char *argv[]) {
  struct outbox_error error = {0};
  int status = 1;
  outbox_set_log(OUTBOX_INFO, write_line, NULL);
  if (outbox_consumer_new(&consumer, &error) != 0) {
    goto out;
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    if (outbox_consumer_set(consumer, argv[i] + 2, argv[i + 1], &error) != 0) {
      goto out;
    }
  }
  (void)signal(SIGTERM, on_term);
  if (outbox_consumer_run(consumer, handle, NULL, &error) != 0) {
    goto out;
  }
  status = 0;
out:
  if (status != 0) {
    (void)fprintf(stdout, "consumer-app: %s: %s\n", error.code, error.text);
  }
  outbox_consumer_free(consumer);
  return status;
}
