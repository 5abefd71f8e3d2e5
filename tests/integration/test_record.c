/*
 * liboutbox's writing side: events are in the table when, and only when, the caller's transaction commits, whatever form the table has;
 * messages are handled once.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "outbox.h"
#include "proc.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define MANY_N 2500

static struct stack *stack;

static const struct outbox_event sample = {.aggregate_type = "account",
                                           .aggregate_id = "42",
                                           .event_type = "money.sent",
                                           .payload = "{\"amount\": 10.50, \"to\": \"O'Brien\"}"};

static void require_error(int rc, const struct outbox_error *error, enum outbox_error_kind kind, const char *code,
                          const char *says) {
  REQUIRE(rc == -1, "it did not fail");
  REQUIRE(error->kind == kind && strcmp(error->code, code) == 0, "kind %d, code %s: %s", (int)error->kind, error->code,
          error->text);
  REQUIRE(strstr(error->text, says) != NULL, "\"%s\" is not in: %s", says, error->text);
}

static void require_done(int rc, const struct outbox_error *error) {
  REQUIRE(rc == 0, "%s: %s", error->code, error->text);
}

/* Ids as the form's types take them. */
static struct outbox_event event_for(enum table_form form, char id[OUTBOX_ID_BYTES], int n) {
  struct outbox_event event = sample;
  if (form == TABLE_BIGINT_IDS) {
    snprintf(id, OUTBOX_ID_BYTES, "%d", 1000 + n);
    event.message_id = id;
  }
  if (form == TABLE_UUID_IDS) {
    event.aggregate_id = "018f4d5e-0000-7000-8000-000000000042";
  }
  if (form == TABLE_HEADERS && n % 2 == 0) {
    event.headers = "{\"traceparent\": \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"}";
  }
  return event;
}

static void test_every_form_of_the_table(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct outbox_error error = {0};
  (void)state;
  for (int number = 0; number < TABLE_FORMS_N; number++) {
    enum table_form form = (enum table_form)number;
    char name[32];
    char own[3][OUTBOX_ID_BYTES];
    char ids[3][OUTBOX_ID_BYTES];
    struct outbox_writer *writer = NULL;
    snprintf(name, sizeof name, "outbox_%d", number);
    table_create(stack, conn, form, name);
    db_exec(conn, "BEGIN");
    struct outbox_event first = event_for(form, own[0], 0);
    require_done(outbox_record(conn, name, &first, ids[0], &error), &error);
    db_exec(conn, "COMMIT");
    require_done(outbox_writer_new(conn, name, &writer, &error), &error);
    struct outbox_event two[] = {event_for(form, own[1], 1), event_for(form, own[2], 2)};
    db_exec(conn, "BEGIN");
    require_done(outbox_writer_record(writer, two, 2, &ids[1], &error), &error);
    db_exec(conn, "COMMIT");
    outbox_writer_free(writer);

    PGresult *rows = db_rows(conn,
                             "SELECT message_id::text, payload::jsonb = '{\"amount\": 10.50, \"to\": \"O''Brien\"}', "
                             "aggregate_type, event_type FROM %s ORDER BY id",
                             name);
    REQUIRE(PQntuples(rows) == 3, "%s: %d rows", table_form_name(form), PQntuples(rows));
    for (int i = 0; i < 3; i++) {
      REQUIRE(strcmp(PQgetvalue(rows, i, 0), ids[i]) == 0, "%s: id %s, told %s", table_form_name(form),
              PQgetvalue(rows, i, 0), ids[i]);
      REQUIRE(PQgetvalue(rows, i, 1)[0] == 't', "%s: another payload", table_form_name(form));
      REQUIRE(strcmp(PQgetvalue(rows, i, 3), "money.sent") == 0, "%s", PQgetvalue(rows, i, 3));
    }
    PQclear(rows);
    if (form == TABLE_HEADERS) {
      REQUIRE(db_int(conn, "SELECT count(*) FROM %s WHERE headers ? 'traceparent'", name) == 2, "headers");
      REQUIRE(db_int(conn, "SELECT count(*) FROM %s WHERE headers IS NULL", name) == 1, "headers");
    }
  }
  PQfinish(conn);
}

static void test_refused_outside_of_a_transaction(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct outbox_error error = {0};
  struct outbox_writer *writer = NULL;
  bool is_first = false;
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  require_error(outbox_record(conn, NULL, &sample, NULL, &error), &error, OUTBOX_USAGE, "no_transaction", "BEGIN");
  require_error(outbox_process_once(conn, NULL, "018f4d5e-0000-7000-8000-000000000042", "c", &is_first, &error), &error,
                OUTBOX_USAGE, "no_transaction", "BEGIN");
  require_done(outbox_writer_new(conn, NULL, &writer, &error), &error);
  require_error(outbox_writer_record(writer, &sample, 1, NULL, &error), &error, OUTBOX_USAGE, "no_transaction",
                "BEGIN");

  /* A transaction that failed, one under way, pipeline mode, no connection. */
  db_exec(conn, "BEGIN");
  PQclear(PQexec(conn, "SELECT 1/0"));
  require_error(outbox_record(conn, NULL, &sample, NULL, &error), &error, OUTBOX_USAGE, "aborted_transaction",
                "ROLLBACK");
  db_exec(conn, "ROLLBACK; BEGIN");
  REQUIRE(PQsendQuery(conn, "SELECT 1") == 1, "%s", PQerrorMessage(conn));
  require_error(outbox_record(conn, NULL, &sample, NULL, &error), &error, OUTBOX_USAGE, "busy", "under way");
  while (true) {
    PGresult *result = PQgetResult(conn);
    if (result == NULL) {
      break;
    }
    PQclear(result);
  }
  REQUIRE(PQenterPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
  require_error(outbox_record(conn, NULL, &sample, NULL, &error), &error, OUTBOX_USAGE, "pipeline_mode", "leave");
  REQUIRE(PQexitPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
  REQUIRE(outbox_record(NULL, NULL, &sample, NULL, NULL) == -1, "it did not fail");
  require_error(outbox_record(NULL, NULL, &sample, NULL, &error), &error, OUTBOX_UNAVAILABLE, "no_connection",
                "no connection");
  db_exec(conn, "COMMIT");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 0, "something was written");
  outbox_writer_free(writer);
  PQfinish(conn);
}

static void test_wrong_calls_are_told(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct outbox_error error = {0};
  struct outbox_writer *writer = NULL;
  struct outbox_event event = sample;
  char longest[OUTBOX_ID_BYTES + 1];
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  require_error(outbox_writer_new(conn, "nowhere", &writer, &error), &error, OUTBOX_REFUSED, "unknown_table",
                "no table \"nowhere\"");
  db_exec(conn, "CREATE TABLE odd (message_id uuid, payload jsonb)");
  require_error(outbox_writer_new(conn, "odd", &writer, &error), &error, OUTBOX_REFUSED, "missing_column",
                "no column aggregate_type");
  require_error(outbox_writer_new(conn, "a.b.c", &writer, &error), &error, OUTBOX_USAGE, "table_name", "a.b.c");
  require_done(outbox_writer_new(conn, NULL, &writer, &error), &error);

  db_exec(conn, "BEGIN");
  event.event_type = NULL;
  require_error(outbox_record(conn, NULL, &event, NULL, &error), &error, OUTBOX_USAGE, "no_value", "event_type");
  struct outbox_event pair[] = {sample, sample};
  pair[1].payload = NULL;
  require_error(outbox_writer_record(writer, pair, 2, NULL, &error), &error, OUTBOX_USAGE, "no_value",
                "event 1: the event has no payload");
  pair[1] = sample;
  pair[1].headers = "{}";
  require_error(outbox_writer_record(writer, pair, 2, NULL, &error), &error, OUTBOX_USAGE, "no_headers", "event 1");
  event = sample;
  memset(longest, 'x', OUTBOX_ID_BYTES);
  longest[OUTBOX_ID_BYTES] = '\0';
  event.message_id = longest;
  require_error(outbox_record(conn, NULL, &event, NULL, &error), &error, OUTBOX_USAGE, "message_id", "1 to 63");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 0, "the transaction is not usable any more");

  /* What the server refuses: its SQLSTATE, and nothing of the payload. */
  event = sample;
  event.payload = "{\"secret\": 4711";
  require_error(outbox_record(conn, NULL, &event, NULL, &error), &error, OUTBOX_REFUSED, "22P02", "json");
  REQUIRE(strstr(error.text, "4711") == NULL, "the payload is in: %s", error.text);
  db_exec(conn, "ROLLBACK; BEGIN");
  pair[0] = event;
  pair[1] = sample;
  require_error(outbox_writer_record(writer, pair, 2, NULL, &error), &error, OUTBOX_REFUSED, "22P02", "json");
  db_exec(conn, "ROLLBACK; BEGIN");
  require_done(outbox_writer_record(writer, &sample, 1, NULL, &error), &error);
  db_exec(conn, "ROLLBACK");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 0, "a rolled back event stays");

  /* A session that is gone. */
  PGconn *other = db_open(stack->conninfo);
  db_exec(conn, "BEGIN");
  db_exec(other, "SELECT pg_terminate_backend(%d)", PQbackendPID(conn));
  /* Whether the last words of the session still arrive as an answer of its own is a matter of timing. */
  REQUIRE(outbox_record(conn, NULL, &sample, NULL, &error) == -1, "it did not fail");
  REQUIRE(error.kind == OUTBOX_UNAVAILABLE &&
              (strcmp(error.code, "57P01") == 0 || strcmp(error.code, "connection") == 0),
          "kind %d, code %s: %s", (int)error.kind, error.code, error.text);
  require_error(outbox_record(conn, NULL, &sample, NULL, &error), &error, OUTBOX_UNAVAILABLE, "no_connection",
                "no connection");
  outbox_writer_free(writer);
  PQfinish(other);
  PQfinish(conn);
}

/* Thousands in one call: ids in order, each aggregate's order kept all the way into the streams. */
static void test_many_reach_the_streams_in_order(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct outbox_error error = {0};
  struct outbox_writer *writer = NULL;
  struct outbox_event *events = calloc(MANY_N, sizeof *events);
  char(*texts)[2][64] = calloc(MANY_N, sizeof *texts);
  char(*ids)[OUTBOX_ID_BYTES] = calloc(MANY_N, sizeof *ids);
  (void)state;
  REQUIRE(events != NULL && texts != NULL && ids != NULL, "no memory");
  table_create(stack, conn, TABLE_INIT, TABLE);
  for (int i = 0; i < MANY_N; i++) {
    snprintf(texts[i][0], sizeof texts[i][0], "%d", i % 17);
    snprintf(texts[i][1], sizeof texts[i][1], "{\"n\": %d}", i);
    events[i] = (struct outbox_event){
        .aggregate_type = "account", .aggregate_id = texts[i][0], .event_type = "e", .payload = texts[i][1]};
  }
  require_done(outbox_writer_new(conn, NULL, &writer, &error), &error);
  db_exec(conn, "BEGIN");
  require_done(outbox_writer_record(writer, events, 0, NULL, &error), &error);
  require_done(outbox_writer_record(writer, events, MANY_N, ids, &error), &error);
  db_exec(conn, "COMMIT");
  REQUIRE(db_int(conn,
                 "SELECT count(*) FROM (SELECT (payload->>'n')::int - row_number() OVER (ORDER BY id) AS d FROM " TABLE
                 ") x WHERE d <> -1") == 0,
          "ids do not follow the call's order");
  PGresult *rows = db_rows(conn, "SELECT message_id FROM " TABLE " ORDER BY id");
  REQUIRE(PQntuples(rows) == MANY_N, "%d rows", PQntuples(rows));
  for (int i = 0; i < MANY_N; i++) {
    REQUIRE(strcmp(PQgetvalue(rows, i, 0), ids[i]) == 0, "event %d has another id than was told", i);
    REQUIRE(i == 0 || strcmp(ids[i - 1], ids[i]) < 0, "ids do not ascend at %d", i);
  }
  PQclear(rows);
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty"));
  REQUIRE(relay_wait(relay, 60000) == 0, "the relay failed");
  struct check_report report = check_require_good(stack, NULL);
  REQUIRE(report.entries_n == MANY_N, "%" PRId64 " entries", report.entries_n);
  outbox_writer_free(writer);
  PQfinish(conn);
  free(events);
  free(texts);
  free(ids);
}

struct second {
  PGconn *conn;
  int rc;
  bool is_first;
  struct outbox_error error;
};

static void *ask_second(void *arg) {
  struct second *second = arg;
  second->rc = outbox_process_once(second->conn, NULL, "018f4d5e-0000-7000-8000-000000000042", "mailer",
                                   &second->is_first, &second->error);
  return NULL;
}

static void test_a_message_is_handled_once(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct outbox_error error = {0};
  struct second second = {.conn = db_open(stack->conninfo)};
  const char *id = "018f4d5e-0000-7000-8000-000000000042";
  bool is_first = false;
  pthread_t thread;
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  /* Rolled back, it counts as not handled. */
  db_exec(conn, "BEGIN");
  require_done(outbox_process_once(conn, NULL, id, "mailer", &is_first, &error), &error);
  REQUIRE(is_first, "not the first");
  db_exec(conn, "ROLLBACK; BEGIN");
  require_done(outbox_process_once(conn, "public.processed_messages", id, "mailer", &is_first, &error), &error);
  REQUIRE(is_first, "a rolled back handling counts");
  require_done(outbox_process_once(conn, NULL, id, "ledger", &is_first, &error), &error);
  REQUIRE(is_first, "another consumer's handling counts");
  /* A second transaction waits for the first one's end. */
  db_exec(second.conn, "BEGIN");
  REQUIRE(pthread_create(&thread, NULL, ask_second, &second) == 0, "no thread");
  PGconn *watcher = db_open(stack->conninfo);
  wait_sql_int(watcher, 1, 30000, "SELECT count(*) FROM pg_locks WHERE NOT granted");
  db_exec(conn, "COMMIT");
  REQUIRE(pthread_join(thread, NULL) == 0, "join");
  require_done(second.rc, &second.error);
  REQUIRE(!second.is_first, "handled twice");
  db_exec(second.conn, "COMMIT");
  db_exec(conn, "BEGIN");
  require_error(outbox_process_once(conn, NULL, "no uuid", "mailer", &is_first, &error), &error, OUTBOX_REFUSED,
                "22P02", "uuid");
  db_exec(conn, "ROLLBACK");
  PQfinish(watcher);
  PQfinish(second.conn);
  PQfinish(conn);
}

/* A program of the library's users, built against what make install puts in place (scripts/test-library.sh). */
static void test_a_program_against_the_installed_library(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  char path[STACK_PATH_BYTES + 32];
  (void)snprintf(path, sizeof path, "%s/test-library.log", stack->dir);
  int status = proc_run(&(struct proc_spec){.name = "test-library",
                                            .argv = (const char *[]){"scripts/test-library.sh", stack->conninfo, NULL},
                                            .stdout_path = path},
                        200000);
  char *output = proc_output(path);
  REQUIRE(status == 0, "scripts/test-library.sh failed: %s", output);
  free(output);
  /* A sanitized build leaves the program out. */
  int64_t rows_n = db_int(conn, "SELECT count(*) FROM " TABLE);
  REQUIRE(rows_n == db_int(conn, "SELECT count(*) FROM processed_messages WHERE consumer = 'app'"),
          "rows and marks differ");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_every_form_of_the_table),   HARNESS_TEST(test_refused_outside_of_a_transaction),
      HARNESS_TEST(test_wrong_calls_are_told),      HARNESS_TEST(test_many_reach_the_streams_in_order),
      HARNESS_TEST(test_a_message_is_handled_once), HARNESS_TEST(test_a_program_against_the_installed_library),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
