/*
 * Order where it is hard to keep: ids that commit late while the relay is busy, and rows that somebody else holds locked.
 */
#include <inttypes.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "prng.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000
#define ROUNDS_N 40

static struct stack *stack;

static void insert(PGconn *conn, const char *id) {
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
          "VALUES (gen_random_uuid(), 'order', '%s', 'x', '{}')",
          id);
}

/* A transaction takes its id, lingers while the relay passes that id, commits; then the same client writes the aggregate's next message.
 * Whoever sees the second can see the first, so the first has to be published before it. */
static void test_message_after_a_late_commit(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *late = db_open(stack->conninfo);
  struct writer *writer;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--batch", "200"));
  /* Keeps the relay from ever being idle. */
  writer = writer_start(
      &(struct writer_options){.conninfo = stack->conninfo, .table = TABLE, .threads_n = 4, .seed = prng_seed()});
  for (int round = 0; round < harness_scaled(ROUNDS_N); round++) {
    char id[32];
    snprintf(id, sizeof id, "late %d", round);
    db_exec(late, "BEGIN");
    insert(late, id);
    int64_t late_id = db_int(late, "SELECT currval('" TABLE "_id_seq')");
    WAIT_FOR(DRAIN_MS,
             db_int(conn, "SELECT EXISTS (SELECT FROM " TABLE " WHERE id > %" PRId64 " AND published_at IS NOT NULL)",
                    late_id) == 1,
             "round %d: the relay does not get past the open transaction", round);
    db_exec(late, "COMMIT");
    insert(late, id);
  }
  writer_stop(writer);
  writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(late);
  PQfinish(conn);
}

static void test_row_locked_by_a_foreign_session(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  PGconn *foreign = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 20; i++) {
      insert(conn, i == 0 ? "locked" : "free");
    }
  }
  db_exec(foreign, "BEGIN; SELECT FROM " TABLE " WHERE id = (SELECT min(id) FROM " TABLE
                   " WHERE aggregate_id = 'locked') FOR UPDATE");
  struct relay *relay = relay_start(stack, ARGS("run"));
  wait_sql_int(conn, 0, DRAIN_MS,
               "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND aggregate_id = 'free'");
  wait_out(1000);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL AND aggregate_id = 'locked'") ==
              0,
          "a message has overtaken the one that is locked");
  db_exec(foreign, "ROLLBACK");
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(foreign);
  PQfinish(conn);
}

/* Rows are not locked between a claim and its mark.  Applications that change or withdraw pending messages meanwhile, at random: who was told that a
 * pending row was changed finds the change in the stream, and what was deleted is not there.  The checker compares rows with entries. */
static void test_changed_and_withdrawn_while_pending(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  struct prng prng = {.state = prng_seed()};
  int64_t changed_n = 0;
  int64_t withdrawn_n = 0;
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (int round = 0; round < harness_scaled(ROUNDS_N) / 4; round++) {
    table_fill(conn, TABLE_PLAIN, TABLE, 3000, 100, 400);
    int64_t last_id = db_int(conn, "SELECT max(id) FROM " TABLE);
    struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup"));
    while (relay_is_running(relay)) {
      int64_t id = prng_between(&prng, last_id - 2999, last_id);
      if (prng_below(&prng, 2) == 0) {
        changed_n += db_affected(conn,
                                 "UPDATE " TABLE " SET payload = '{\"changed\": %" PRIu64 "}' WHERE id = %" PRId64
                                 " AND published_at IS NULL",
                                 prng_below(&prng, 1000000), id);
      } else {
        withdrawn_n += db_affected(conn, "DELETE FROM " TABLE " WHERE id = %" PRId64 " AND published_at IS NULL", id);
      }
    }
    REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "round %d: the relay fails", round);
  }
  printf("%" PRId64 " changed, %" PRId64 " withdrawn\n", changed_n, withdrawn_n);
  REQUIRE(changed_n > 0 && withdrawn_n > 0, "the relay was always first");
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* Sessions that end while they mark, with batches behind them that are marked already: none of these may go first. */
static void test_sessions_lost_while_they_mark(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "CREATE TABLE pace (seconds float8)");
  db_exec(conn, "INSERT INTO pace VALUES (0.4)");
  db_exec(conn, "GRANT SELECT ON pace TO PUBLIC");
  db_exec(conn,
          "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(seconds * random()) FROM "
          "pace; RETURN NULL; END'");
  db_exec(conn, "CREATE TRIGGER slow BEFORE UPDATE ON " TABLE " FOR EACH STATEMENT EXECUTE FUNCTION slow()");
  table_fill(conn, TABLE_PLAIN, TABLE, 3000, 5, 20);
  struct relay *relay = relay_start(stack, ARGS("run", "--batch", "100", "--no-cleanup"));
  for (int i = 0; i < 10; i++) {
    WAIT_FOR(DRAIN_MS,
             db_int(conn, "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE "
                          "application_name = 'outboxd claimer' AND wait_event = 'PgSleep' ORDER BY xact_start LIMIT "
                          "1) AS marking") == 1,
             "no session marks");
  }
  db_exec(conn, "UPDATE pace SET seconds = 0");
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  REQUIRE(relay_count(relay, "session_lost") > 0, "the relay has lost no session");
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_message_after_a_late_commit),
      HARNESS_TEST(test_row_locked_by_a_foreign_session),
      HARNESS_TEST(test_changed_and_withdrawn_while_pending),
      HARNESS_TEST(test_sessions_lost_while_they_mark),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
