/*
 * A relay that hangs (SIGSTOP) for longer than --session-timeout beside a second one: the second takes its lanes over while it hangs, and
 * what it does when it wakes is refused.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "prng.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define SESSION_TIMEOUT "2s"
#define SESSION_TIMEOUT_MS 2000
#define DRAIN_MS 60000

static struct stack *stack;

static bool is_fenced(const json_t *line, const void *arg) {
  (void)arg;
  return strstr(json_string_value(json_object_get(line, "event")), "fenced") != NULL;
}

static void test_lanes_of_a_hanging_relay_flow_in_the_other(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed()};
  struct relay *relays[2];
  struct writer *writer;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (int i = 0; i < 2; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--session-timeout", SESSION_TIMEOUT));
  }
  fleet_wait_even(conn, TABLE, 16, 2, 15000);
  writer = writer_start(&(struct writer_options){
      .conninfo = stack->conninfo, .table = TABLE, .threads_n = 4, .rate = 3000, .seed = prng_seed()});
  for (int round = 0; round < 3; round++) {
    struct relay *frozen = relays[round % 2];
    int64_t frozen_ms;

    wait_out(prng_between(&prng, 100, 600));
    relay_signal(frozen, SIGSTOP);
    frozen_ms = wait_now_ms();
    fleet_wait_even(conn, TABLE, 16, 1, 2 * SESSION_TIMEOUT_MS + 6000);
    printf("round %d: all lanes in the other relay after %" PRId64 " ms\n", round, wait_now_ms() - frozen_ms);
    /* All that is there by now gets out while the relay still hangs, whichever lane it is in. */
    int64_t last_id = db_int(conn, "SELECT max(id) FROM " TABLE);
    WAIT_FOR(DRAIN_MS,
             db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND id <= %" PRId64, last_id) == 0,
             "round %d: messages wait for the relay that hangs", round);
    int64_t left_ms = frozen_ms + 2 * SESSION_TIMEOUT_MS - wait_now_ms();
    if (left_ms > 0) {
      wait_out(left_ms);
    }
    relay_signal(frozen, SIGCONT);
    fleet_wait_even(conn, TABLE, 16, 2, 30000);
  }
  writer_stop(writer);
  writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  for (int i = 0; i < 2; i++) {
    relay_stop(relays[i]);
  }
  writer_verify(writer, conn);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* The hardest form: the relay is stopped in the middle of a write that Redis has half of.  When it wakes it writes the other half, and only
 * the journal's token can tell Redis that this owner is none any more. */
static void test_write_of_a_woken_relay_is_refused(void **state) {
  static const char *const args[] = {"run",
                                     "--lanes",
                                     "1",
                                     "--claimers",
                                     "1",
                                     "--session-timeout",
                                     SESSION_TIMEOUT,
                                     "--redis-timeout",
                                     "5m",
                                     "--max-write-bytes",
                                     "64MiB",
                                     "--max-batch-bytes",
                                     "128MiB",
                                     NULL};
  const struct check_options options = {.lanes_n = 1};
  PGconn *conn = db_open(stack->conninfo);
  struct relay *woken, *other;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  woken = relay_start(stack, args);
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);

  stack_redis_freeze(stack);
  /* More than the socket's buffers take. */
  db_exec(conn,
          "INSERT INTO " TABLE
          " (message_id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), 'order', "
          "(i %% 5)::text, 'x', to_jsonb((SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 30000) j)) "
          "FROM generate_series(1, 40) i");
  WAIT_FOR(DRAIN_MS, fleet_locked_rows(conn, TABLE) == 40, "the relay has not claimed the messages");
  wait_out(500); /* until its write is stuck */
  relay_signal(woken, SIGSTOP);
  stack_redis_thaw(stack);

  other = relay_start(stack, args);
  wait_no_pending(conn, TABLE, 10, 2 * SESSION_TIMEOUT_MS + 20000);
  check_require_good(stack, &options);
  relay_signal(woken, SIGCONT);
  relay_wait_log(woken, NULL, is_fenced, NULL, DRAIN_MS);
  check_require_good(stack, &options);

  /* And it is a good relay afterwards. */
  relay_stop(other);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(woken);
  check_require_good(stack, &options);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_lanes_of_a_hanging_relay_flow_in_the_other),
      HARNESS_TEST(test_write_of_a_woken_relay_is_refused),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
