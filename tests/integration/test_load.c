/*
 * The main job: many clients write while the relay runs; afterwards every committed message is in its stream, once and in order.
 */
#include <inttypes.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "prng.h"
#include "table.h"
#include "wait.h"

#define MESSAGES_N 100000
#define AGGREGATES_N 10000
#define CLIENTS_N 8
#define DRAIN_MS 120000

static struct stack *stack;

static void run_load(enum table_form form, const char *stream) {
  const char *table = "outbox_messages";
  PGconn *conn = db_open(stack->conninfo);
  struct relay *relay;
  struct writer *writer;
  struct writer_result result;
  int64_t started_ms;

  table_create(stack, conn, form, table);
  relay = relay_start(stack, ARGS("run", "--stream", stream));
  started_ms = wait_now_ms();
  writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                 .table = table,
                                                 .threads_n = CLIENTS_N,
                                                 .messages_n = harness_scaled(MESSAGES_N),
                                                 .aggregates_n = AGGREGATES_N,
                                                 .rollback_percent = 10,
                                                 .seed = prng_seed()});
  result = writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, table, 10, DRAIN_MS);
  printf("%" PRId64 " messages written by %d clients in %.1f s (%" PRId64
         " more rolled back), all published after %.1f s\n",
         result.committed_n, CLIENTS_N, result.seconds, result.rolled_back_n,
         (double)(wait_now_ms() - started_ms) / 1000);
  relay_stop(relay);
  writer_verify(writer, conn);
  struct check_report report = check_require_good(stack, &(struct check_options){.stream = stream});
  REQUIRE(report.published_n == result.committed_n, "%" PRId64 " published, %" PRId64 " committed", report.published_n,
          result.committed_n);
  REQUIRE(db_int(conn, "SELECT count(*) FROM %s WHERE attempts <> 0 OR last_error IS NOT NULL", table) == 0,
          "attempts were burnt");
  PQfinish(conn);
}

static void test_one_stream_a_lane(void **state) {
  (void)state;
  run_load(TABLE_PLAIN, "outbox:{%l}");
}

static void test_one_stream_an_aggregate(void **state) {
  (void)state;
  run_load(TABLE_INIT, "outbox:{%l}:%t:%i");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_one_stream_a_lane),
      HARNESS_TEST(test_one_stream_an_aggregate),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
