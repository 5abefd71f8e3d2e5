/*
 * A server that is away or hangs for a while: what the relay does meanwhile, and how soon it is back.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "proc.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000
#define BACK_MS 6000 /* after a server's return everything flows again */

static struct stack *stack;

/* Once a sweep (a look from the very beginning) that met a hanging server was taken for a dear one, and the next not made for nine times as long:
 * PostgreSQL hung for 3 s, and the relay for 27 more. */
static void test_flows_at_once_after_postgres_hung(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--poll-interval", "20ms", "--session-timeout", "30s"));
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  for (int i = 0; i < 3; i++) {
    /* Idle: whatever it asks next is a sweep. */
    wait_out(200);
    stack_pg_freeze(stack);
    wait_out(3000);
    stack_pg_thaw(stack);
    table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
    int64_t thawed_ms = wait_now_ms();
    wait_no_pending(conn, TABLE, 10, BACK_MS);
    printf("published %" PRId64 " ms after it\n", wait_now_ms() - thawed_ms);
  }
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_flows_at_once_after_postgres_hung),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
