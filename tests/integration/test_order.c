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

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_message_after_a_late_commit),
      HARNESS_TEST(test_row_locked_by_a_foreign_session),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
