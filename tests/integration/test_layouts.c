/*
 * Every form of table the relay claims to work on, and the names a table may have.
 */
#include <inttypes.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "table.h"
#include "wait.h"

#define MESSAGES_N 5000
#define AGGREGATES_N 300
#define RUN_MS 60000

static struct stack *stack;

/* Runs the relay until the table is empty and checks. */
static void relay_all(const char *table, const char *stream) {
  struct relay *relay =
      relay_start(stack, ARGS("run", "--table", table, "--stream", stream, "--until-empty", "--no-cleanup"));
  int status = relay_wait(relay, RUN_MS);
  REQUIRE(status == 0, "outboxd run --until-empty ended with %d", status);
  struct check_report report = check_require_good(stack, &(struct check_options){.table = table, .stream = stream});
  REQUIRE(report.published_n == report.rows_n, "not all is published");
}

static void run_form(enum table_form form, const char *table) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, form, table);
  table_fill(conn, form, table, harness_scaled(MESSAGES_N), AGGREGATES_N, 100);
  relay_all(table, "outbox:{%l}");
  table_fill(conn, form, table, harness_scaled(MESSAGES_N) / 10, AGGREGATES_N, 100);
  relay_all(table, "outbox:{%l}");
  PQfinish(conn);
}

#define FORM_TEST(name, form)          \
  static void name(void **state) {     \
    (void)state;                       \
    run_form(form, "outbox_messages"); \
  }

FORM_TEST(test_plain, TABLE_PLAIN)
FORM_TEST(test_text_ids, TABLE_TEXT_IDS)
FORM_TEST(test_uuid_ids, TABLE_UUID_IDS)
FORM_TEST(test_json_payload, TABLE_JSON)
FORM_TEST(test_text_payload, TABLE_TEXT_PAYLOAD)
FORM_TEST(test_headers, TABLE_HEADERS)
FORM_TEST(test_loose, TABLE_LOOSE)
FORM_TEST(test_init, TABLE_INIT)
FORM_TEST(test_init_plain, TABLE_INIT_PLAIN)

static void test_50_partitions(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  run_form(TABLE_50, "outbox_messages");
  int64_t filled_n = db_int(conn, "SELECT count(DISTINCT tableoid) FROM outbox_messages");
  REQUIRE(filled_n == 50, "messages were in %" PRId64 " partitions only", filled_n);
  PQfinish(conn);
}

static void test_bigint_ids(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  /* message_id is a number that counts from one start: filled once. */
  table_create(stack, conn, TABLE_BIGINT_IDS, "outbox_messages");
  table_fill(conn, TABLE_BIGINT_IDS, "outbox_messages", harness_scaled(MESSAGES_N), AGGREGATES_N, 100);
  relay_all("outbox_messages", "outbox:{%l}:%i");
  PQfinish(conn);
}

static void test_odd_table_name(void **state) {
  static const char table[] = "\"Sales & Co\".\"Out box:%l\"";
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  db_exec(conn, "CREATE SCHEMA \"Sales & Co\"");
  table_create(stack, conn, TABLE_PLAIN, table);
  table_fill(conn, TABLE_PLAIN, table, 1000, 100, 100);
  relay_all(table, "outbox:{%l}");
  PQfinish(conn);
}

static void test_two_tables_beside_each_other(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relays[2];
  static const char *const tables[] = {"first_outbox", "second_outbox"};
  static const char *const streams[] = {"first:{%l}", "second:{%l}"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    table_create(stack, conn, TABLE_PLAIN, tables[i]);
    table_fill(conn, TABLE_PLAIN, tables[i], 2000, 100, 100);
  }
  for (int i = 0; i < 2; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--table", tables[i], "--stream", streams[i], "--until-empty"));
  }
  for (int i = 0; i < 2; i++) {
    REQUIRE(relay_wait(relays[i], RUN_MS) == 0, "a relay failed");
  }
  for (int i = 0; i < 2; i++) {
    check_require_good(stack, &(struct check_options){.table = tables[i], .stream = streams[i]});
  }
  PQfinish(conn);
}

static void test_partition_added_under_way(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relay;
  (void)state;
  table_create(stack, conn, TABLE_50, "outbox_messages");
  relay = relay_start(stack, ARGS("run", "--no-cleanup"));
  table_fill(conn, TABLE_50, "outbox_messages", 1000, 100, 100);
  wait_no_pending(conn, "outbox_messages", 10, RUN_MS);
  db_exec(conn,
          "CREATE TABLE \"far ahead\" PARTITION OF outbox_messages FOR VALUES FROM ('2999-01-01') TO ('2999-02-01')");
  db_exec(conn,
          "INSERT INTO outbox_messages (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) "
          "SELECT gen_random_uuid(), 'order', (i %% 7)::text, 'x', '{}', '2999-01-15' FROM generate_series(1, 100) i");
  wait_no_pending(conn, "outbox_messages", 10, RUN_MS);
  db_exec(conn, "ALTER TABLE \"far ahead\" RENAME TO \"renamed\"");
  db_exec(conn,
          "INSERT INTO outbox_messages (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) "
          "SELECT gen_random_uuid(), 'order', (i %% 7)::text, 'x', '{}', '2999-01-15' FROM generate_series(1, 100) i");
  wait_no_pending(conn, "outbox_messages", 10, RUN_MS);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_least_privileges_are_enough(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  char conninfo[STACK_URL_BYTES];
  struct relay *relay;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, "outbox_messages");
  table_fill(conn, TABLE_PLAIN, "outbox_messages", 1000, 100, 100);
  db_exec(conn, "DROP ROLE IF EXISTS only_relay");
  db_exec(conn, "CREATE ROLE only_relay LOGIN");
  db_exec(conn, "GRANT SELECT, UPDATE (attempts, last_error, published_at) ON outbox_messages TO only_relay");
  relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup", "--database",
                                  stack_conninfo(stack, "only_relay", STACK_DATABASE, conninfo)));
  REQUIRE(relay_wait(relay, RUN_MS) == 0, "the documented privileges are not enough");
  check_require_good(stack, NULL);
  db_exec(conn, "DROP OWNED BY only_relay; DROP ROLE only_relay");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_plain),
      HARNESS_TEST(test_text_ids),
      HARNESS_TEST(test_uuid_ids),
      HARNESS_TEST(test_bigint_ids),
      HARNESS_TEST(test_json_payload),
      HARNESS_TEST(test_text_payload),
      HARNESS_TEST(test_headers),
      HARNESS_TEST(test_loose),
      HARNESS_TEST(test_50_partitions),
      HARNESS_TEST(test_init),
      HARNESS_TEST(test_init_plain),
      HARNESS_TEST(test_odd_table_name),
      HARNESS_TEST(test_two_tables_beside_each_other),
      HARNESS_TEST(test_partition_added_under_way),
      HARNESS_TEST(test_least_privileges_are_enough),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
