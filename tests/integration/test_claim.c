/*
 * The claim by itself: a claimer and its session, without a coordinator.
 */
#include <inttypes.h>
#include <poll.h>

#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "outboxd/buf.h"
#include "outboxd/claimer.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/options.h"
#include "outboxd/pgarray.h"
#include "table.h"
#include "wait.h"

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

/* A session that claims, on a table of rows_n messages. */
struct rig {
  PGconn *conn;
  struct cfg cfg;
  struct stop *stop;
  struct table *table;
  struct claimer *claimer;
};

static void rig_open_form(struct rig *rig, enum table_form form, int rows_n) {
  char *argv[] = {(char[]){"outboxd"}, (char[]){"run"}, (char[]){"--database"}, stack->conninfo, NULL};
  struct err err = ERR_INIT;
  *rig = (struct rig){.conn = db_open(stack->conninfo)};
  table_create(stack, rig->conn, form, TABLE);
  table_fill(rig->conn, form, TABLE, rows_n, rows_n, 10);
  REQUIRE(options_parse(4, argv, &rig->cfg, &err) == 0 && stop_new(&rig->stop, &err) == 0, "%s", err.text);
  rig->table = load_table(&rig->cfg, rig->stop);
  REQUIRE(claimer_new(&rig->cfg, rig->table, &rig->claimer, &err) == 0, "%s", err.text);
  REQUIRE(claimer_open(rig->claimer, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(rig->claimer, CLAIMER_EV_READY);
}

static void rig_open(struct rig *rig, int rows_n) {
  rig_open_form(rig, TABLE_PLAIN, rows_n);
}

static void rig_close(struct rig *rig) {
  claimer_free(rig->claimer);
  table_free(rig->table);
  stop_free(rig->stop);
  options_free(&rig->cfg);
  PQfinish(rig->conn);
}

/* Claims; the batch is the caller's. */
static struct batch *rig_claim(struct rig *rig, const struct claim *claim) {
  struct err err = ERR_INIT;
  REQUIRE(claimer_claim(rig->claimer, claim, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(rig->claimer, CLAIMER_EV_CLAIMED);
  return claimer_take_batch(rig->claimer);
}

static void rig_give_back(struct rig *rig, struct batch **batch) {
  struct err err = ERR_INIT;
  batch_unref(batch);
  REQUIRE(claimer_give_back(rig->claimer, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(rig->claimer, CLAIMER_EV_GIVEN_BACK);
}

static struct claim claim_of(enum claim_kind kind) {
  return (struct claim){.max_attempts_n = 10, .rows_n = 100, .bytes = 1000000, .printed_per_stored = 64, .kind = kind};
}

/* Marks what has no outcome; expects the event. */
static void rig_mark(struct rig *rig, const struct batch *batch, enum claimer_event expected) {
  struct err err = ERR_INIT;
  REQUIRE(claimer_mark(rig->claimer, batch, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(rig->claimer, expected);
}

/* Settles a batch that has been given its outcomes. */
static void rig_settle(struct rig *rig, struct batch **batch) {
  struct err err = ERR_INIT;
  REQUIRE(claimer_settle(rig->claimer, *batch, clock_now_us(), &err) == 0, "%s", err.text);
  wait_event(rig->claimer, CLAIMER_EV_SETTLED);
  batch_unref(batch);
}

/* As the coordinator does before it marks. */
static void hand_out(struct batch *batch) {
  for (int i = 0; i < batch->n; i++) {
    batch->handed_n += batch->msgs[i].outcome == OUTCOME_NONE;
  }
}

static struct msg *msg_of(struct batch *batch, int64_t id) {
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].id == id) {
      return &batch->msgs[i];
    }
  }
  REQUIRE(false, "no message %lld", (long long)id);
  return NULL;
}

static void publish_the_rest(struct batch *batch) {
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].outcome == OUTCOME_NONE) {
      batch_set_outcome(&batch->msgs[i], OUTCOME_PUBLISHED, NULL);
    }
  }
}

static bool has_id(const struct batch *batch, int64_t id) {
  for (int i = 0; i < batch->n; i++) {
    if (batch->msgs[i].id == id) {
      return true;
    }
  }
  return false;
}

/* A claim is on its way while another batch of this process is given back, or its session ends: that batch's rows, which the claim left out when
 * it looked, are free when it locks.  Its messages are in the streams already; a claim of the same epoch must not return them, for nobody has
 * read the journals again yet.  (Found by the fault driver: a deleted journal made duplicates in the other lanes.) */
static void test_rows_of_open_batches_are_left_out_though_nobody_holds_them(void **state) {
  static const int64_t open_ids[] = {2, 4};
  struct rig rig;
  struct err err = ERR_INIT;
  struct buf in_flight = BUF_INIT;
  (void)state;
  rig_open(&rig, 6);
  REQUIRE(pgarray_begin(&in_flight, PGARRAY_INT8, 2, &err) == 0 && pgarray_int8(&in_flight, open_ids[0], &err) == 0 &&
              pgarray_int8(&in_flight, open_ids[1], &err) == 0,
          "%s", err.text);
  for (int form = 0; form < 2 * CLAIM_KINDS_N; form++) {
    int is_many = form % 2;
    const struct held *held = NULL;
    struct claim claim = claim_of((enum claim_kind)(form / 2));
    claim.in_flight = &in_flight;
    claim.in_flight_n = is_many != 0 ? 1000 : 2; /* which statement it is */
    struct batch *batch = rig_claim(&rig, &claim);
    assert_int_equal(batch->n, 4);
    assert_int_equal(batch->looked_n, 4);
    assert_false(has_id(batch, open_ids[0]) || has_id(batch, open_ids[1]));
    assert_int_equal(claimer_held(rig.claimer, &held), 0);
    assert_false(claimer_take_was_redone(rig.claimer));
    rig_give_back(&rig, &batch);
  }
  buf_free(&in_flight);
  rig_close(&rig);
}

/* A simple claim stops at a row that another session holds, and is made again by one that passes it over and says so. */
static void test_a_simple_claim_that_meets_a_lock_is_made_again(void **state) {
  struct rig rig;
  (void)state;
  rig_open(&rig, 6);
  PGconn *other = db_open(stack->conninfo);
  db_exec(other, "BEGIN");
  db_exec(other, "SELECT 1 FROM " TABLE " WHERE id = 3 FOR UPDATE");
  const struct claim claim = claim_of(CLAIM_LOCKING);
  struct batch *batch = rig_claim(&rig, &claim);
  const struct held *held = NULL;
  assert_true(claimer_take_was_redone(rig.claimer));
  assert_false(claimer_take_was_redone(rig.claimer));
  assert_int_equal(batch->n, 5);
  assert_int_equal(batch->fit_n, 6);
  assert_false(has_id(batch, 3));
  assert_int_equal(claimer_held(rig.claimer, &held), 1);
  assert_int_equal(held[0].id, 3);
  rig_give_back(&rig, &batch);

  db_exec(other, "COMMIT");
  batch = rig_claim(&rig, &claim);
  assert_false(claimer_take_was_redone(rig.claimer));
  assert_int_equal(batch->n, 6);
  assert_int_equal(claimer_held(rig.claimer, &held), 0);
  rig_give_back(&rig, &batch);
  PQfinish(other);
  rig_close(&rig);
}

/* One payload of 300 kB among small ones, stored compressed; a limit of 1 MB for 100 rows.  Then one that is larger than the limit. */
static void test_a_simple_claim_that_meets_a_large_payload_is_made_again(void **state) {
  struct rig rig;
  (void)state;
  rig_open(&rig, 6);
  db_exec(rig.conn, "UPDATE " TABLE " SET payload = jsonb_build_object('n', repeat('abcdefghij', 30000)) WHERE id = 3");
  const struct claim claim = claim_of(CLAIM_MARKING);
  struct batch *batch = rig_claim(&rig, &claim);
  assert_true(claimer_take_was_redone(rig.claimer));
  assert_int_equal(batch->n, 6);
  assert_int_equal(batch->looked_n, 6);
  rig_give_back(&rig, &batch);

  db_exec(
      rig.conn,
      "UPDATE " TABLE
      " SET payload = jsonb_build_object('n', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 40000) i)) "
      "WHERE id = 3");
  batch = rig_claim(&rig, &claim);
  assert_true(claimer_take_was_redone(rig.claimer));
  assert_int_equal(batch->n, 2); /* up to it: the limit is reached */
  assert_int_equal(batch->looked_n, 6);
  assert_int_equal(batch->fit_n, 2);
  rig_give_back(&rig, &batch);

  struct claim behind = claim;
  behind.near = 2;
  batch = rig_claim(&rig, &behind);
  assert_int_equal(batch->n, 1); /* alone */
  assert_true(has_id(batch, 3));
  rig_give_back(&rig, &batch);
  rig_close(&rig);
}

/* More large payloads than are measured at a time: each claim takes some of them, in order, none is left out. */
static void test_many_large_payloads_are_claimed_some_at_a_time(void **state) {
  struct rig rig;
  int n = 0;
  (void)state;
  rig_open(&rig, 150);
  db_exec(rig.conn, "UPDATE " TABLE
                    " SET payload = jsonb_build_object('n', (SELECT string_agg(md5((id * 1000 + i %% 600)::text), '') "
                    "FROM generate_series(1, 1000) i), 'm', repeat('x', 300000))");
  struct claim claim = claim_of(CLAIM_CAREFUL);
  claim.rows_n = 1000;
  claim.bytes = 32000000;
  while (n < 150) {
    struct batch *batch = rig_claim(&rig, &claim);
    REQUIRE(batch->n > 0 && batch->n <= 64, "%d at once", batch->n);
    for (int i = 0; i < batch->n; i++) {
      assert_true(has_id(batch, n + i + 1));
    }
    n += batch->n;
    claim.near = n;
    rig_give_back(&rig, &batch);
  }
  rig_close(&rig);
}

/* The rows of a marking claim are not locked before the mark, then they are: all but those that have an outcome already.  When all is
 * published nothing more is written. */
static void test_a_mark_holds_the_rows_until_the_batch_is_settled(void **state) {
  struct rig rig;
  (void)state;
  rig_open(&rig, 6);
  PGconn *other = db_open(stack->conninfo);
  const struct claim claim = claim_of(CLAIM_MARKING);
  struct batch *batch = rig_claim(&rig, &claim);
  assert_int_equal(batch->n, 6);
  assert_int_equal(fleet_locked_rows(other, TABLE), 0);
  batch_set_outcome(msg_of(batch, 2), OUTCOME_WITHHELD, NULL); /* of an aggregate that is held back */
  hand_out(batch);
  rig_mark(&rig, batch, CLAIMER_EV_MARKED);
  assert_int_equal(fleet_locked_rows(other, TABLE), 5);
  assert_int_equal(db_int(other, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"), 6);
  publish_the_rest(batch);
  rig_settle(&rig, &batch);
  assert_int_equal(db_int(other, "SELECT id FROM " TABLE " WHERE published_at IS NULL"), 2);
  assert_int_equal(db_int(other, "SELECT count(*) FROM " TABLE " WHERE attempts > 0 OR last_error IS NOT NULL"), 0);
  assert_int_equal(fleet_locked_rows(other, TABLE), 0);

  batch = rig_claim(&rig, &claim);
  hand_out(batch);
  rig_mark(&rig, batch, CLAIMER_EV_MARKED);
  rig_give_back(&rig, &batch);
  assert_int_equal(db_int(other, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"), 1);
  PQfinish(other);
  rig_close(&rig);
}

/* Starts to withdraw a message that is held by a claimer, and waits until that waits. */
static PGconn *begin_to_withdraw(int64_t id) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *watch = db_open(stack->conninfo);
  char sql[128];
  snprintf(sql, sizeof sql, "DELETE FROM " TABLE " WHERE id = %" PRId64 " AND published_at IS NULL", id);
  REQUIRE(PQsendQuery(conn, sql) == 1, "%s", PQerrorMessage(conn));
  WAIT_FOR(TIMEOUT_MS,
           db_int(watch, "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND wait_event_type = 'Lock'",
                  PQbackendPID(conn)) == 1,
           "nobody waits for message %" PRId64, id);
  PQfinish(watch);
  return conn;
}

static void end_to_withdraw(PGconn *conn, const char *rows_n) {
  PGresult *result = PQgetResult(conn);
  REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(conn));
  assert_string_equal(PQcmdTuples(result), rows_n);
  PQclear(result);
  PQfinish(conn);
}

/* Where not all of a marked batch was published, the rows say what became of each; and at no moment before is one of them free. */
static void test_a_mark_is_taken_back_for_what_was_not_published(void **state) {
  static const enum table_form forms[] = {TABLE_PLAIN, TABLE_50};
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    struct rig rig;
    stack_reset(stack);
    rig_open_form(&rig, forms[f], 300); /* of TABLE_50: more partitions than fit into one round of statements */
    db_exec(rig.conn, "UPDATE " TABLE " SET attempts = 2, last_error = 'before' WHERE id IN (7, 9)");
    struct claim claim = claim_of(CLAIM_MARKING);
    claim.rows_n = 1000;
    struct batch *batch = rig_claim(&rig, &claim);
    assert_int_equal(batch->n, 300);
    batch_set_outcome(msg_of(batch, 5), OUTCOME_WITHHELD, NULL);
    hand_out(batch);
    rig_mark(&rig, batch, CLAIMER_EV_MARKED);
    PGconn *published = begin_to_withdraw(10);
    PGconn *withheld = begin_to_withdraw(6);
    batch_set_outcome(msg_of(batch, 6), OUTCOME_WITHHELD, NULL);
    batch_set_outcome(msg_of(batch, 7), OUTCOME_FAILED, "no room");
    batch_set_outcome(msg_of(batch, 8), OUTCOME_WITHHELD, NULL);
    batch_set_outcome(msg_of(batch, 200), OUTCOME_FAILED, "no luck");
    publish_the_rest(batch);
    rig_settle(&rig, &batch);
    end_to_withdraw(published, "0");
    end_to_withdraw(withheld, "1");
    char *left = db_text(
        rig.conn, "SELECT string_agg(format('%%s %%s %%s', id, attempts, last_error), ', ' ORDER BY id) FROM " TABLE
                  " WHERE published_at IS NULL");
    assert_string_equal(left, "5 0 , 7 3 no room, 8 0 , 200 1 no luck");
    assert_int_equal(db_int(rig.conn, "SELECT count(*) FROM " TABLE " WHERE last_error = 'before'"), 1);
    free(left);

    batch = rig_claim(&rig, &claim);
    assert_int_equal(batch->n, 4);
    hand_out(batch);
    rig_mark(&rig, batch, CLAIMER_EV_MARKED);
    publish_the_rest(batch);
    rig_settle(&rig, &batch);
    assert_int_equal(db_int(rig.conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"), 0);
    rig_close(&rig);
  }
}

/* Between a claim without locks and its mark another session locks, changes or deletes one of the rows: nothing is marked. */
static void test_a_mark_is_refused_when_a_row_is_not_what_was_read(void **state) {
  static const struct {
    const char *sql;
    bool stays_open;
    int then_n;
  } cases[] = {
      {"SELECT 1 FROM " TABLE " WHERE id = 3 FOR UPDATE", true, 6},
      {"UPDATE " TABLE " SET payload = '{\"n\": \"changed\"}' WHERE id = 3", true, 6},
      {"UPDATE " TABLE " SET payload = '{\"n\": \"changed\"}' WHERE id = 3", false, 6},
      {"UPDATE " TABLE " SET published_at = now() WHERE id = 3", false, 5},
      {"DELETE FROM " TABLE " WHERE id = 3", false, 5},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct rig rig;
    stack_reset(stack);
    rig_open(&rig, 6);
    PGconn *other = db_open(stack->conninfo);
    const struct claim claim = claim_of(CLAIM_MARKING);
    struct batch *batch = rig_claim(&rig, &claim);
    assert_int_equal(batch->n, 6);
    hand_out(batch);
    db_exec(other, "BEGIN");
    db_exec(other, "%s", cases[i].sql);
    if (!cases[i].stays_open) {
      db_exec(other, "COMMIT");
    }
    rig_mark(&rig, batch, CLAIMER_EV_REFUSED);
    rig_give_back(&rig, &batch);
    if (cases[i].stays_open) {
      db_exec(other, "COMMIT");
    }
    assert_int_equal(fleet_locked_rows(other, TABLE), 0);
    batch = rig_claim(&rig, &claim);
    assert_int_equal(batch->n, cases[i].then_n);
    hand_out(batch);
    rig_mark(&rig, batch, CLAIMER_EV_MARKED);
    publish_the_rest(batch);
    rig_settle(&rig, &batch);
    assert_int_equal(db_int(other, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"), 0);
    PQfinish(other);
    rig_close(&rig);
  }
}

/* Nothing keeps ids unique in a table without a primary key, and a sequence may have been set back.  Where a mark has to be taken back, rows of the
 * same id cannot be told from each other: nothing is written, the batch goes back whole. */
static void test_a_mark_of_rows_with_the_same_id_is_given_up(void **state) {
  struct rig rig;
  struct err err = ERR_INIT;
  (void)state;
  stack_reset(stack);
  rig_open_form(&rig, TABLE_50, 6);
  db_exec(rig.conn,
          "UPDATE " TABLE " SET id = 3, created_at = (SELECT created_at FROM " TABLE " WHERE id = 3) WHERE id = 4");
  const struct claim claim = claim_of(CLAIM_MARKING);
  struct batch *batch = rig_claim(&rig, &claim);
  assert_int_equal(batch->n, 6);
  hand_out(batch);
  rig_mark(&rig, batch, CLAIMER_EV_MARKED);
  batch_set_outcome(msg_of(batch, 3), OUTCOME_FAILED, "no room");
  publish_the_rest(batch);
  assert_int_equal(claimer_settle(rig.claimer, batch, clock_now_us(), &err), -1);
  assert_string_equal(err.code, "same_id");
  assert_int_equal(claimer_state(rig.claimer), CLAIMER_CLOSED);
  batch_unref(&batch);
  WAIT_FOR(TIMEOUT_MS, fleet_locked_rows(rig.conn, TABLE) == 0, "its rows stay locked");
  assert_int_equal(
      db_int(rig.conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND coalesce(attempts, 0) = 0"), 6);
  rig_close(&rig);
}

/* A mark does not wait for long.  The settle of a marked batch, some of which is in the streams, does. */
static void test_a_settle_waits_though_the_mark_would_not(void **state) {
  struct rig rig;
  struct err err = ERR_INIT;
  (void)state;
  stack_reset(stack);
  rig_open(&rig, 6);
  db_exec(rig.conn, "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS "
                    "'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'");
  db_exec(rig.conn, "CREATE TRIGGER wait BEFORE UPDATE ON " TABLE
                    " FOR EACH ROW WHEN (NEW.published_at IS NULL) EXECUTE FUNCTION wait_for_lock()");
  const struct claim claim = claim_of(CLAIM_MARKING);
  struct batch *batch = rig_claim(&rig, &claim);
  hand_out(batch);
  rig_mark(&rig, batch, CLAIMER_EV_MARKED);
  batch_set_outcome(msg_of(batch, 3), OUTCOME_FAILED, "no room");
  publish_the_rest(batch);
  db_exec(rig.conn, "SELECT pg_advisory_lock(1)");
  REQUIRE(claimer_settle(rig.claimer, batch, clock_now_us(), &err) == 0, "%s", err.text);
  for (int64_t end_us = clock_now_us() + 500000; clock_now_us() < end_us; wait_out(10)) {
    REQUIRE(claimer_drive(rig.claimer, clock_now_us(), &err) == CLAIMER_EV_NONE, "it did not wait: %s", err.text);
  }
  db_exec(rig.conn, "SELECT pg_advisory_unlock(1)");
  wait_event(rig.claimer, CLAIMER_EV_SETTLED);
  batch_unref(&batch);
  assert_int_equal(db_int(rig.conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND attempts = 1"), 1);
  assert_int_equal(db_int(rig.conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL"), 1);
  db_exec(rig.conn, "DROP FUNCTION wait_for_lock() CASCADE");
  rig_close(&rig);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_rows_of_open_batches_are_left_out_though_nobody_holds_them),
      HARNESS_TEST(test_a_simple_claim_that_meets_a_lock_is_made_again),
      HARNESS_TEST(test_a_simple_claim_that_meets_a_large_payload_is_made_again),
      HARNESS_TEST(test_a_mark_holds_the_rows_until_the_batch_is_settled),
      HARNESS_TEST(test_a_mark_is_taken_back_for_what_was_not_published),
      HARNESS_TEST(test_a_mark_is_refused_when_a_row_is_not_what_was_read),
      HARNESS_TEST(test_a_mark_of_rows_with_the_same_id_is_given_up),
      HARNESS_TEST(test_a_settle_waits_though_the_mark_would_not),
      HARNESS_TEST(test_many_large_payloads_are_claimed_some_at_a_time),
  };
  log_setup(LOG_CRITICAL, LOG_TEXT);
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_no_redis = true}));
}
