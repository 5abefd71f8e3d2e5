/*
 * Ending: signals under load, a second signal, --until-empty, and a Redis that hangs while the relay wants to go.
 */
#include <inttypes.h>
#include <signal.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "prng.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000

static struct stack *stack;

/* Nothing of a relay that has ended is left: no session, no lane, no row lock, no message that is written but not marked. */
static void require_nothing_left(PGconn *conn) {
  struct check_report report;

  WAIT_FOR(5000, fleet_sessions(conn, "outboxd") == 0, "a session outlives its relay");
  REQUIRE(fleet_look(conn, TABLE).lanes_n == 0, "a lane is still owned");
  report = check_require_good(stack, &(struct check_options){.expect_pending = -1, .is_dead_ok = true});
  REQUIRE(report.pending_in_stream_n == 0, "%" PRId64 " messages were written and not marked",
          report.pending_in_stream_n);
}

static int64_t published_n(PGconn *conn) {
  return db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
}

static void stop_under_load(int signum) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed()};

  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (int round = 0; round < 3; round++) {
    struct relay *relay;
    int64_t signalled_ms;

    int64_t before_n = published_n(conn);
    table_fill(conn, TABLE_PLAIN, TABLE, 50000, 500, 50);
    relay = relay_start(stack, ARGS("run"));
    WAIT_FOR(DRAIN_MS, published_n(conn) > before_n, "round %d: nothing is published", round);
    wait_out(prng_between(&prng, 0, 300));
    relay_signal(relay, signum);
    signalled_ms = wait_now_ms();
    int status = relay_wait(relay, 10000);
    REQUIRE(status == 0, "round %d: ended with %d", round, status);
    printf("round %d: ended %" PRId64 " ms after the signal, %" PRId64 " messages left\n", round,
           wait_now_ms() - signalled_ms, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"));
    require_nothing_left(conn);
  }
  REQUIRE(relay_wait(relay_start(stack, ARGS("run", "--until-empty")), DRAIN_MS) == 0, "the rest is not published");
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_sigterm_drains(void **state) {
  (void)state;
  stop_under_load(SIGTERM);
}

static void test_sigint_drains(void **state) {
  (void)state;
  stop_under_load(SIGINT);
}

static void test_idle_relay_ends_at_once(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--poll-interval", "1h"));
  fleet_wait_even(conn, TABLE, 16, 1, 10000);
  relay_signal(relay, SIGTERM);
  REQUIRE(relay_wait(relay, 3000) == 0, "no clean end");
  require_nothing_left(conn);
  PQfinish(conn);
}

/* A relay whose messages are on their way to a Redis that hangs. */
static struct relay *start_stuck(PGconn *conn, const char *shutdown_timeout) {
  struct relay *relay;

  table_create(stack, conn, TABLE_PLAIN, TABLE);
  relay = relay_start(stack, ARGS("run", "--shutdown-timeout", shutdown_timeout, "--redis-timeout", "1m"));
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 100, 20);
  WAIT_FOR(10000, fleet_locked_rows(conn, TABLE) > 0, "nothing is claimed");
  return relay;
}

static void finish_stuck(PGconn *conn) {
  stack_redis_thaw(stack);
  WAIT_FOR(5000, fleet_sessions(conn, "outboxd") == 0, "a session outlives its relay");
  REQUIRE(relay_wait(relay_start(stack, ARGS("run", "--until-empty")), DRAIN_MS) == 0, "the rest is not published");
  check_require_good(stack, NULL);
}

static void test_shutdown_timeout_holds_while_redis_hangs(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  int64_t signalled_ms, took_ms;
  (void)state;
  struct relay *relay = start_stuck(conn, "2s");
  signalled_ms = wait_now_ms();
  relay_signal(relay, SIGTERM);
  int status = relay_wait(relay, 10000);
  took_ms = wait_now_ms() - signalled_ms;
  printf("ended with %d after %" PRId64 " ms\n", status, took_ms);
  REQUIRE(took_ms >= 1500 && took_ms < wait_scaled_ms(5000), "--shutdown-timeout 2s: it took %" PRId64 " ms", took_ms);
  REQUIRE(status == 1, "ended with %d though it could not drain", status);
  finish_stuck(conn);
  PQfinish(conn);
}

static void test_redis_back_within_the_shutdown_timeout(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  struct relay *relay = start_stuck(conn, "30s");
  relay_signal(relay, SIGTERM);
  wait_out(1000);
  REQUIRE(relay_is_running(relay), "it has not waited for Redis");
  stack_redis_thaw(stack);
  REQUIRE(relay_wait(relay, 20000) == 0, "no clean end");
  require_nothing_left(conn);
  finish_stuck(conn);
  PQfinish(conn);
}

static void test_second_signal_ends_at_once(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  struct relay *relay = start_stuck(conn, "10m");
  relay_signal(relay, SIGTERM);
  wait_out(500);
  REQUIRE(relay_is_running(relay), "the first signal does not drain");
  relay_signal(relay, SIGTERM);
  int status = relay_wait(relay, 3000);
  REQUIRE(status != 0, "ended with 0 though it could not drain");
  finish_stuck(conn);
  PQfinish(conn);
}

static void test_until_empty(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  REQUIRE(relay_wait(relay_start(stack, ARGS("run", "--until-empty")), 20000) == 0, "an empty table is not the end");
  table_fill(conn, TABLE_PLAIN, TABLE, 20000, 100, 20);
  /* Dead ones are not waited for. */
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, attempts, last_error) "
          "VALUES (gen_random_uuid(), 'order', 'dead', 'x', '{}', 10, 'was refused')");
  REQUIRE(relay_wait(relay_start(stack, ARGS("run", "--until-empty")), DRAIN_MS) == 0, "no clean end");
  struct check_report report = check_require_good(stack, &(struct check_options){.is_dead_ok = true});
  REQUIRE(report.dead_n == 1, "the dead message has moved");
  require_nothing_left(conn);
  PQfinish(conn);
}

static void test_until_empty_waits_for_a_late_commit(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *late = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  /* A lower id commits after higher ones have been published: the sweep finds it. */
  db_exec(late, "BEGIN");
  table_fill(late, TABLE_PLAIN, TABLE, 10, 10, 20);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 90, 20);
  db_exec(conn, "UPDATE " TABLE " SET aggregate_id = 'other ' || aggregate_id");
  struct relay *relay = relay_start(stack, ARGS("run"));
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  db_exec(late, "COMMIT");
  wait_sql_int(conn, 1010, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(late);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_sigterm_drains),
      HARNESS_TEST(test_sigint_drains),
      HARNESS_TEST(test_idle_relay_ends_at_once),
      HARNESS_TEST(test_shutdown_timeout_holds_while_redis_hangs),
      HARNESS_TEST(test_redis_back_within_the_shutdown_timeout),
      HARNESS_TEST(test_second_signal_ends_at_once),
      HARNESS_TEST(test_until_empty),
      HARNESS_TEST(test_until_empty_waits_for_a_late_commit),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
