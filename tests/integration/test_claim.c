/*
 * The claim by itself: a claimer and its session, without a coordinator.
 */
#include <poll.h>

#include "db.h"
#include "harness.h"
#include "outboxd/buf.h"
#include "outboxd/claimer.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/options.h"
#include "outboxd/pgarray.h"
#include "table.h"

#define TABLE "outbox_messages"
#define TIMEOUT_MS 30000
#define STATEMENTS_MS 10000

static struct stack *stack;

static struct table *load_table(const struct cfg *cfg, struct stop *stop) {
  struct err err = ERR_INIT;
  struct pg *pg = NULL;
  struct table *table = NULL;
  REQUIRE(pg_new(cfg->database, "test", STATEMENTS_MS, &pg, &err) == 0 && pg_connect(pg, stop, &err) == 0 &&
              table_load(pg, cfg, stop, &table, &err) == 0,
          "%s", err.text);
  pg_free(pg);
  return table;
}

static void wait_event(struct claimer *claimer, enum claimer_event expected) {
  int64_t end_us = clock_now_us() + TIMEOUT_MS * 1000;
  struct err err = ERR_INIT;
  enum claimer_event event;
  while ((event = claimer_drive(claimer, clock_now_us(), &err)) == CLAIMER_EV_NONE) {
    struct pollfd fd = {.fd = pg_fd(claimer_pg(claimer)), .events = pg_poll_events(claimer_pg(claimer))};
    REQUIRE(clock_now_us() < end_us, "event %d does not come", (int)expected);
    (void)poll(&fd, 1, 100);
  }
  REQUIRE(event == expected, "event %d, not %d: %s", (int)event, (int)expected, err.text);
}

/* A claim is on its way while another batch of this process is given back, or its session ends: that batch's rows, which the claim left out when
 * it looked, are free when it locks.  Its messages are in the streams already; a claim of the same epoch must not return them, for nobody has
 * read the journals again yet.  (Found by the fault driver: a deleted journal made duplicates in the other lanes.) */
static void test_rows_of_open_batches_are_left_out_though_nobody_holds_them(void **state) {
  char *argv[] = {(char[]){"outboxd"}, (char[]){"run"}, (char[]){"--database"}, stack->conninfo, NULL};
  static const int64_t open_ids[] = {2, 4};
  PGconn *conn = db_open(stack->conninfo);
  struct err err = ERR_INIT;
  struct cfg cfg = {0};
  struct stop *stop = NULL;
  struct claimer *claimer = NULL;
  struct buf in_flight = BUF_INIT;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 6, 6, 10);
  REQUIRE(options_parse(4, argv, &cfg, &err) == 0 && stop_new(&stop, &err) == 0, "%s", err.text);
  struct table *table = load_table(&cfg, stop);
  REQUIRE(claimer_new(&cfg, table, &claimer, &err) == 0, "%s", err.text);
  REQUIRE(claimer_open(claimer, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(claimer, CLAIMER_EV_READY);

  REQUIRE(pgarray_begin(&in_flight, PGARRAY_INT8, 2, &err) == 0 && pgarray_int8(&in_flight, open_ids[0], &err) == 0 &&
              pgarray_int8(&in_flight, open_ids[1], &err) == 0,
          "%s", err.text);
  const struct claim claim = {
      .in_flight = &in_flight, .max_attempts_n = 10, .rows_n = 100, .bytes = 1000000, .printed_per_stored = 64};
  REQUIRE(claimer_claim(claimer, &claim, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(claimer, CLAIMER_EV_CLAIMED);
  struct batch *batch = claimer_take_batch(claimer);
  const struct held *held = NULL;
  assert_int_equal(batch->n, 4);
  for (int i = 0; i < batch->n; i++)
    assert_true(batch->msgs[i].id != open_ids[0] && batch->msgs[i].id != open_ids[1]);
  assert_int_equal(claimer_held(claimer, &held), 0);

  batch_unref(&batch);
  claimer_free(claimer);
  table_free(table);
  stop_free(stop);
  options_free(&cfg);
  buf_free(&in_flight);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {HARNESS_TEST(test_rows_of_open_batches_are_left_out_though_nobody_holds_them)};
  log_setup(LOG_CRITICAL, LOG_TEXT);
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_no_redis = true}));
}
