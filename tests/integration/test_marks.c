/*
 * How a claim keeps its rows: marked before the publication, or locked.  Seen in the last statement of the session that has the batch while Redis hangs.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "rds.h"
#include "relay.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000
#define MESSAGES_N 10

static struct stack *stack;

/* Until the only claimer holds a batch whose last statement has this in it: "UPDATE" the mark, "bounds AS" the claim. */
static void wait_held_by(PGconn *conn, const char *text) {
  WAIT_FOR(
      DRAIN_MS,
      db_int(conn,
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outboxd claimer' AND state = 'idle in "
             "transaction' AND query LIKE '%%%s%%'",
             text) == 1,
      "no batch is held by a statement with %s", text);
}

static void test_rows_are_marked_unless_the_last_batch_was_refused(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(
      stack, ARGS("run", "--lanes", "1", "--claimers", "1", "--max-attempts", "100", "--redis-timeout", "1m"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, DRAIN_MS);
  for (int i = 0; i < 2; i++) {
    stack_redis_freeze(stack);
    table_fill(conn, TABLE_PLAIN, TABLE, MESSAGES_N, MESSAGES_N, 10);
    wait_held_by(conn, "UPDATE");
    stack_redis_thaw(stack);
    wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  }

  rds_run(redis, "RENAME outbox:{0} kept");
  rds_run(redis, "SET outbox:{0} refuses");
  table_fill(conn, TABLE_PLAIN, TABLE, 1, 1, 10);
  WAIT_FOR(DRAIN_MS, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts > 0") == 1, "nothing is refused");
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, MESSAGES_N, MESSAGES_N, 10);
  wait_held_by(conn, "bounds AS");
  stack_redis_thaw(stack);
  rds_run(redis, "DEL outbox:{0}");
  rds_run(redis, "RENAME kept outbox:{0}");
  wait_no_pending(conn, TABLE, 100, DRAIN_MS);

  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, MESSAGES_N, MESSAGES_N, 10);
  wait_held_by(conn, "UPDATE");
  stack_redis_thaw(stack);
  wait_no_pending(conn, TABLE, 100, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  redisFree(redis);
  PQfinish(conn);
}

/* Somebody waits for a row that a notification tells of: it is locked, which takes a round trip less. */
static void test_a_notified_relay_locks_its_rows_while_it_has_no_backlog(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  char *said = NULL;
  REQUIRE(relay_run_command(stack, ARGS("init", "--plain", "--notify"), DRAIN_MS, &said) == 0, "%s", said);
  free(said);
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", "1", "--claimers", "1", "--redis-timeout", "1m"));
  relay_wait_log(relay, "listening", NULL, NULL, DRAIN_MS);
  table_fill(conn, TABLE_PLAIN, TABLE, MESSAGES_N, MESSAGES_N, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);

  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 1, 1, 10);
  wait_held_by(conn, "bounds AS");
  stack_redis_thaw(stack);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  PQfinish(conn);
}

static int lines_n(const char *path, const char *text) {
  char line[2000];
  int n = 0;
  FILE *in = fopen(path, "r");
  REQUIRE(in != NULL, "no %s", path);
  while (fgets(line, sizeof line, in) != NULL) {
    n += strstr(line, text) != NULL;
  }
  fclose(in);
  return n;
}

/* PostgreSQL logs an error for each claim that meets the row, and every batch behind it goes back: ever more seldom, though it is looked at every half second. */
static void test_a_row_that_stays_locked_is_tried_ever_more_seldom(void **state) {
  enum { ROUNDS_N = 80, ROUND_MS = 100 };
  PGconn *conn = db_open(stack->conninfo);
  PGconn *other = db_open(stack->conninfo);
  char path[STACK_URL_BYTES];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 1, 1, 10);
  db_exec(other, "BEGIN");
  db_exec(other, "SELECT 1 FROM " TABLE " FOR UPDATE");
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", "1", "--poll-interval", "20ms"));
  for (int i = 0; i < ROUNDS_N; i++) {
    db_exec(conn, "INSERT INTO " TABLE
                  " (aggregate_type, aggregate_id, event_type, message_id, payload) SELECT 'account', 'a' || i, 'x', "
                  "gen_random_uuid(), '{}' FROM generate_series(1, 10) i");
    wait_out(ROUND_MS);
  }
  snprintf(path, sizeof path, "%s/postgres.log", stack->dir);
  int tries_n =
      lines_n(path, "canceling statement due to lock timeout") + lines_n(path, "could not obtain lock on row");
  REQUIRE(tries_n >= 1, "nothing has met the lock");
  REQUIRE(tries_n <= 7, "%d claims have met the lock in %d s", tries_n, ROUNDS_N * ROUND_MS / 1000);
  db_exec(other, "ROLLBACK");
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  PQfinish(other);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_rows_are_marked_unless_the_last_batch_was_refused),
      HARNESS_TEST(test_a_notified_relay_locks_its_rows_while_it_has_no_backlog),
      HARNESS_TEST(test_a_row_that_stays_locked_is_tried_ever_more_seldom),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
