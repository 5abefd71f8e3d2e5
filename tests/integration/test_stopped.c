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
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define SESSION_TIMEOUT \
  "4s" /* so that a busy machine gets all out in the 4 s that are left after the sessions have ended */
#define SESSION_TIMEOUT_MS 4000
#define DRAIN_MS 60000

static struct stack *stack;

static bool is_fenced(const json_t *line, const void *arg) {
  (void)arg;
  return strstr(json_string_value(json_object_get(line, "event")), "fenced") != NULL;
}

static bool is_owned_by_one(PGconn *conn) {
  struct fleet_view view = fleet_look(conn, TABLE);
  return view.owners_n == 1 && view.lanes_n == 16;
}

/* Within twice --session-timeout the other relay has the lanes, and has published what waited in them. */
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
  for (int round = 0; round < 2; round++) {
    struct relay *frozen = relays[round % 2];

    wait_out(prng_between(&prng, 100, 600));
    relay_signal(frozen, SIGSTOP);
    int64_t frozen_ms = wait_now_ms();
    struct wait wait = wait_begin(2 * SESSION_TIMEOUT_MS); /* for both */
    while (!is_owned_by_one(conn)) {
      REQUIRE(wait_next(&wait), "round %d: the relay that hangs keeps its lanes", round);
    }
    printf("round %d: all lanes in the other relay after %" PRId64 " ms\n", round, wait_now_ms() - frozen_ms);
    /* All that is there by now gets out while the relay still hangs, whichever lane it is in. */
    int64_t last_id = db_int(conn, "SELECT max(id) FROM " TABLE);
    while (db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND id <= %" PRId64, last_id) > 0) {
      REQUIRE(wait_next(&wait), "round %d: messages wait for the relay that hangs", round);
    }
    printf("round %d: all messages published after %" PRId64 " ms\n", round, wait_now_ms() - frozen_ms);
    while (wait_next(&wait)) {
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

/* ---- the hardest form: the relay is stopped in the middle of a write that Redis has half of.  When it wakes it writes the other half, and
 * only the journal's token can tell Redis that this owner is none any more. */

#define BIG_N 40                 /* messages of 320 KB: more than the socket's buffers take */
#define BIG_SESSION_TIMEOUT "8s" /* claiming so much takes a slow machine its time */
#define BIG_SESSION_TIMEOUT_MS 8000

static const char *const big_args[] = {"run",
                                       "--lanes",
                                       "1",
                                       "--claimers",
                                       "1",
                                       "--session-timeout",
                                       BIG_SESSION_TIMEOUT,
                                       "--redis-timeout",
                                       "5m",
                                       "--max-write-bytes",
                                       "64MiB",
                                       "--max-batch-bytes",
                                       "128MiB",
                                       NULL};
static const struct check_options big_options = {.lanes_n = 1};

struct pair {
  struct relay *woken, *other;
};

/* The first has half of its write in Redis and is stopped, the second has taken over and published everything.  suffix: which binary. */
static struct pair stop_in_a_write(PGconn *conn, const char *suffix) {
  struct pair pair;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  pair.woken = relay_start_variant(stack, suffix, big_args);
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);

  stack_redis_freeze(stack);
  db_exec(conn,
          "INSERT INTO " TABLE
          " (message_id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), 'order', "
          "(i %% 5)::text, 'x', to_jsonb((SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 10000) j)) "
          "FROM generate_series(1, %d) i",
          BIG_N);
  WAIT_FOR(DRAIN_MS, fleet_locked_rows(conn, TABLE) == BIG_N, "the relay has not claimed the messages");
  port_wait_stuck(stack->redis_port.number, 64 * 1024, DRAIN_MS);
  relay_signal(pair.woken, SIGSTOP);
  stack_redis_thaw(stack);

  pair.other = relay_start_variant(stack, suffix, big_args);
  wait_no_pending(conn, TABLE, 10, 2 * BIG_SESSION_TIMEOUT_MS + 20000);
  check_require_good(stack, &big_options);
  return pair;
}

static void test_write_of_a_woken_relay_is_refused(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  struct pair pair = stop_in_a_write(conn, "");
  relay_signal(pair.woken, SIGCONT);
  relay_wait_log(pair.woken, NULL, is_fenced, NULL, DRAIN_MS);
  check_require_good(stack, &big_options);

  /* And it is a good relay afterwards. */
  relay_stop(pair.other);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(pair.woken);
  check_require_good(stack, &big_options);
  PQfinish(conn);
}

/* The same with a relay whose script does not compare the token: the checker must find what the woken one adds.  If it did not, the test above would
 * show nothing. */
static void test_without_the_compare_and_set_it_is_found_twice(void **state) {
  static struct check_report report;
  const struct check_options options = {
      .conninfo = stack->conninfo, .redis_url = stack->redis_url, .lanes_n = 1, .expect_pending = -1};
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  struct pair pair = stop_in_a_write(conn, "-nocas");
  relay_signal(pair.woken, SIGCONT);
  WAIT_FOR(DRAIN_MS, rds_int(redis, "XLEN outbox:{0}") == 10 + 2 * BIG_N, "the woken relay writes nothing");
  REQUIRE(!check_run(&options, &report), "the checker finds nothing wrong");
  check_print(&options, &report, stdout);
  assert_int_equal(report.found_n[CHECK_DUPLICATE], BIG_N);
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_lanes_of_a_hanging_relay_flow_in_the_other),
      HARNESS_TEST(test_write_of_a_woken_relay_is_refused),
      HARNESS_TEST(test_without_the_compare_and_set_it_is_found_twice),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
