/*
 * The wake-up: with the trigger of `outboxd init --notify` messages do not wait for the next poll, which here never comes.
 */
#include <stdlib.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define NO_POLL "--poll-interval", "1h"
#define WAIT_MS 30000

static struct stack *stack;

static void init_notify(const char *more) {
  struct relay *init = more != NULL ? relay_start(stack, ARGS("init", "--table", TABLE, "--notify", more))
                                    : relay_start(stack, ARGS("init", "--table", TABLE, "--notify"));
  int status = relay_wait(init, WAIT_MS);
  REQUIRE(status == 0, "outboxd init --notify ended with %d", status);
}

static struct relay *start_listening(void) {
  struct relay *relay = relay_start(stack, ARGS("run", NO_POLL));
  (void)relay_wait_log(relay, "listening", NULL, NULL, WAIT_MS);
  return relay;
}

/* Single messages one after the other, each of which has to be told of by itself; a transaction of several statements among them. */
static void require_flow(PGconn *conn, enum table_form form) {
  for (int i = 0; i < 20; i++) {
    table_fill(conn, form, TABLE, 1, 1, 10);
    wait_no_pending(conn, TABLE, 10, WAIT_MS);
  }
  db_exec(conn, "BEGIN");
  for (int i = 0; i < 3; i++) {
    db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                  "VALUES (gen_random_uuid(), 'order', 'x', 'placed', '{}')");
  }
  db_exec(conn, "COMMIT");
  wait_no_pending(conn, TABLE, 10, WAIT_MS);
}

static void require_woken(enum table_form form, const char *more) {
  PGconn *conn = db_open(stack->conninfo);
  init_notify(more);
  init_notify(more); /* again: found */
  struct relay *relay = start_listening();
  require_flow(conn, form);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_inserts_wake_the_relay(void **state) {
  (void)state;
  require_woken(TABLE_INIT, NULL);
}

static void test_inserts_into_a_plain_table_wake_the_relay(void **state) {
  (void)state;
  require_woken(TABLE_INIT_PLAIN, "--plain");
}

/* The printed SQL makes the same trigger. */
static void test_print_has_the_trigger(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct relay *init = relay_start(stack, ARGS("init", "--table", TABLE, "--notify", "--print"));
    REQUIRE(relay_wait(init, WAIT_MS) == 0, "outboxd init --print failed");
    char *sql = relay_stdout(init);
    db_exec(conn, "%s", sql);
    free(sql);
  }
  struct relay *relay = start_listening();
  require_flow(conn, TABLE_INIT);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_a_trigger_that_comes_later_is_found(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", NO_POLL));
  (void)relay_wait_log(relay, "lanes_changed", NULL, NULL, WAIT_MS);
  assert_int_equal(relay_count(relay, "listening"), 0);
  init_notify(NULL);
  (void)relay_wait_log(relay, "listening", NULL, NULL, WAIT_MS);
  require_flow(conn, TABLE_PLAIN);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* What was committed while nobody listened is not left to a poll. */
static void test_listening_survives_the_loss_of_its_session(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  init_notify(NULL);
  struct relay *relay = start_listening();
  for (int i = 0; i < 3; i++) {
    db_exec(conn,
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'outboxd lease'");
    table_fill(conn, TABLE_INIT, TABLE, 100, 10, 10);
    (void)relay_wait_log(relay, "listening", NULL, NULL, WAIT_MS);
    wait_no_pending(conn, TABLE, 10, WAIT_MS);
    require_flow(conn, TABLE_INIT);
  }
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* Two relays: whose lane a message is in decides who publishes it, and both are told of each. */
static void test_every_relay_is_woken(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  init_notify(NULL);
  struct relay *first = start_listening();
  struct relay *second = start_listening();
  for (int i = 0; i < 10; i++) {
    table_fill(conn, TABLE_INIT, TABLE, 200, 100, 10);
    wait_no_pending(conn, TABLE, 10, WAIT_MS);
  }
  relay_stop(first);
  relay_stop(second);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_inserts_wake_the_relay),
      HARNESS_TEST(test_inserts_into_a_plain_table_wake_the_relay),
      HARNESS_TEST(test_print_has_the_trigger),
      HARNESS_TEST(test_a_trigger_that_comes_later_is_found),
      HARNESS_TEST(test_listening_survives_the_loss_of_its_session),
      HARNESS_TEST(test_every_relay_is_woken),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
