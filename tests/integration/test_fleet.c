/*
 * Several processes on one table under load: they share the lanes evenly, one is killed, one is added, one leaves.
 */
#include <inttypes.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "prng.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define EVEN_MS 5000
#define DRAIN_MS 60000

static struct stack *stack;

/* The lanes must be even within EVEN_MS of something that happened. */
static void require_even(PGconn *conn, int owners_n, const char *what) {
  int64_t took_ms = fleet_wait_even(conn, TABLE, 16, owners_n, EVEN_MS);
  printf("%s: 16 lanes evenly in %d processes after %" PRId64 " ms\n", what, owners_n, took_ms);
}

static void test_killed_and_added_under_load(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relays[4];
  struct writer *writer;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                 .table = TABLE,
                                                 .threads_n = 4,
                                                 .rate = 4000,
                                                 .rollback_percent = 5,
                                                 .seed = prng_seed()});
  relays[0] = relay_start(stack, ARGS("run"));
  require_even(conn, 1, "one started");
  relays[1] = relay_start(stack, ARGS("run", "--publishers", "3", "--claimers", "2"));
  require_even(conn, 2, "a second one started");
  wait_out(500);
  relay_kill(relays[0]);
  require_even(conn, 1, "one killed");
  relays[2] = relay_start(stack, ARGS("run"));
  require_even(conn, 2, "one added");
  relays[3] = relay_start(stack, ARGS("run"));
  require_even(conn, 3, "another one added");
  wait_out(500);
  relay_stop(relays[1]);
  require_even(conn, 2, "one stopped");
  writer_stop(writer);
  writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relays[2]);
  relay_stop(relays[3]);
  writer_verify(writer, conn);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_more_processes_than_lanes(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relays[3];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (int i = 0; i < 3; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--lanes", "2"));
  }
  fleet_wait_even(conn, TABLE, 2, 2, 15000);
  table_fill(conn, TABLE_PLAIN, TABLE, 2000, 100, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  for (int i = 0; i < 3; i++) {
    relay_stop(relays[i]);
  }
  check_require_good(stack, &(struct check_options){.lanes_n = 2});
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_killed_and_added_under_load),
      HARNESS_TEST(test_more_processes_than_lanes),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
