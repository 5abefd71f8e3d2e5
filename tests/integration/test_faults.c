/*
 * Every fault once, as a test of its own, then a short mixture with a fixed seed: nothing lost, doubled, out of order or made up.
 *
 * The driver is tests/faults/; the long form is make faults.
 */
#include <inttypes.h>
#include <string.h>

#include "../faults/faults.h"
#include "db.h"
#include "harness.h"
#include "wait.h"

#define NAME_BYTES 64
#define MIXTURE_SEED 20261201
#define MIXTURE_STEPS_N 6
#define FLOWS_AGAIN_MS 5000 /* after the end of a relay, in the other one */
#define BACK_MS 6000        /* after a server's return, or whatever else was healed */

static struct stack *stack;
static struct faults *faults; /* goes on from test to test, until one fails */
static bool is_good;          /* this test has come to its end */

static int setup(void **state) {
  is_good = false;
  if (faults != NULL) {
    faults_load(faults);
    return 0;
  }
  harness_setup(state);
  faults = faults_begin(stack, &(struct faults_options){.seed = prng_seed(), .rate = 800, .is_short = true});
  return 0;
}

static int teardown(void **state) {
  if (is_good)
    return 0;
  faults = NULL;
  return harness_teardown(state);
}

#define FAULTS_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static void finish(void) {
  faults_check(faults);
  is_good = true;
}

/* *state is the fault. */
static void test_fault(void **state) {
  const struct fault *fault = *state;
  faults_step(faults, &fault, 1, prng_seed(), true);
  struct faults_recovery recovery = faults_last_recovery(faults, fault);
  REQUIRE(recovery.first_ms <= wait_scaled_ms(BACK_MS) && recovery.all_ms <= wait_scaled_ms(BACK_MS),
          "back after %" PRId64 " and %" PRId64 " ms only", recovery.first_ms, recovery.all_ms);
  finish();
}

static void test_mixture(void **state) {
  struct prng prng = {.state = MIXTURE_SEED};
  (void)state;
  for (int i = 0; i < MIXTURE_STEPS_N; i++)
    faults_random_step(faults, prng_next(&prng));
  finish();
}

/* kill -9 of one of two relays, and nobody starts it again: the other one's time to get its lanes flowing. */
static void test_lanes_of_a_killed_relay_flow_in_the_other(void **state) {
  int64_t first_ms;
  (void)state;
  faults->slots[0].is_ending = true;
  relay_kill(faults->slots[0].relay);
  int64_t killed_ms = wait_now_ms();
  faults_wait_recovery(faults, &first_ms);
  int64_t all_ms = wait_now_ms() - killed_ms;
  printf("all lanes flow in the other relay after %" PRId64 " ms\n", all_ms);
  REQUIRE(all_ms <= wait_scaled_ms(FLOWS_AGAIN_MS), "its lanes flow again after %" PRId64 " ms only", all_ms);
  faults_start_relay(faults, 0);
  finish();
}

/* FLUSHALL under load.  docs/redis.md: what was settled before is gone with the streams; all that is pending is added to the new, empty
 * ones; no relay ends; nothing is twice in them, nor out of order. */
static void test_flushall(void **state) {
  static struct check_report report;
  struct check_options options = {
      .conninfo = faults->conninfo, .redis_url = stack->redis_url, .max_attempts = 50, .expect_pending = -1};
  PGconn *conn = db_open(faults->conninfo);
  int64_t first_ms;
  (void)state;
  /* Settled when it comes: gone for certain. */
  int64_t settled_n = db_int(conn, "SELECT count(*) FROM " FAULTS_TABLE " WHERE published_at IS NOT NULL");
  REQUIRE(faults_redis(faults, "FLUSHALL"), "FLUSHALL fails");
  int64_t flushed_id = db_int(conn, "SELECT max(id) FROM " FAULTS_TABLE);
  faults_wait_recovery(faults, &first_ms);
  writer_stop(faults->writer);
  writer_wait(faults->writer, 60000);
  wait_no_pending(conn, FAULTS_TABLE, 50, 60000);
  check_run(&options, &report);
  check_print(&options, &report, stdout);
  int64_t later_n = db_int(conn, "SELECT count(*) FROM " FAULTS_TABLE " WHERE id > %" PRId64, flushed_id);
  REQUIRE(report.found_n[CHECK_LOST] >= settled_n, "more is in the streams than can be");
  REQUIRE(report.entries_n >= later_n, "messages that were written after FLUSHALL are missing");
  REQUIRE(report.found_n[CHECK_LOST] + report.entries_n == report.rows_n, "a message is neither gone nor in a stream");
  for (int kind = 0; kind < CHECK_KINDS_N; kind++)
    REQUIRE(kind == CHECK_LOST || report.found_n[kind] == 0, "FLUSHALL made something %s",
            check_kind_name((enum check_kind)kind));
  /* docs/guarantees.md: an operator who sets published_at to NULL has them published again. */
  REQUIRE(faults_redis(faults, "FLUSHALL"), "FLUSHALL fails");
  db_exec(conn, "UPDATE " FAULTS_TABLE " SET published_at = NULL");
  PQfinish(conn);
  finish();
}

/* SIGTERM with all of it over: every process ends with 0. */
static void test_all_end_well(void **state) {
  (void)state;
  faults_end(faults);
  faults = NULL;
  is_good = true;
}

int main(void) {
  static char names[FAULTS_KINDS_MAX][NAME_BYTES];
  struct CMUnitTest tests[FAULTS_KINDS_MAX + 8] = {
      FAULTS_TEST(test_lanes_of_a_killed_relay_flow_in_the_other),
  };
  size_t n = 1;
  for (int i = 0; i < faults_kinds_n; i++) {
    snprintf(names[i], sizeof names[i], "test_fault_%s", faults_kinds[i].name);
    tests[n] = (struct CMUnitTest)FAULTS_TEST(test_fault);
    tests[n].name = names[i];
    /* cmocka hands it to the test, which only reads it. */
    memcpy(&tests[n].initial_state, &(const void *){&faults_kinds[i]}, sizeof tests[n].initial_state);
    n++;
  }
  tests[n++] = (struct CMUnitTest)FAULTS_TEST(test_mixture);
  tests[n++] = (struct CMUnitTest)FAULTS_TEST(test_flushall);
  tests[n++] = (struct CMUnitTest)FAULTS_TEST(test_all_end_well);
  return harness_main(__FILE__, tests, n, &stack, &faults_stack_options);
}
