/*
 * Real events of a hosting service, many times over: payloads nobody here made up arrive byte for byte.
 */
#include <inttypes.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "table.h"
#include "wait.h"

#define TIMES 100

static struct stack *stack;

/* Fills the table while a relay runs and checks what arrives. */
static void run_real(enum table_form form, const char *stream) {
  const char *path = table_real_path();
  const char *table = "outbox_messages";
  PGconn *conn;
  struct relay *relay;
  int64_t messages_n;

  if (path == NULL) {
    skip();
  }
  conn = db_open(stack->conninfo);
  table_create(stack, conn, form, table);
  relay = relay_start(stack, ARGS("run", "--stream", stream, "--until-empty"));
  REQUIRE(relay_wait(relay, 30000) == 0, "an empty table is not the end of --until-empty");
  relay = relay_start(stack, ARGS("run", "--stream", stream));
  messages_n = table_fill_real(conn, table, path, (int)harness_scaled(TIMES));
  wait_no_pending(conn, table, 10, 120000);
  relay_stop(relay);
  struct check_report report = check_require_good(stack, &(struct check_options){.stream = stream});
  REQUIRE(report.entries_n == messages_n, "%" PRId64 " entries for %" PRId64 " messages", report.entries_n, messages_n);
  PQfinish(conn);
}

static void test_real_events_in_the_plain_table(void **state) {
  (void)state;
  run_real(TABLE_PLAIN, "outbox:{%l}");
}

static void test_real_events_in_the_partitioned_table(void **state) {
  (void)state;
  run_real(TABLE_INIT, "events:{%l}:%e");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_real_events_in_the_plain_table),
      HARNESS_TEST(test_real_events_in_the_partitioned_table),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
