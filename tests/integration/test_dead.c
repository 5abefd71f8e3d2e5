/*
 * outboxd dead, retry and discard: what they list, change and refuse; beside running relays, under load, with the checker at the end.
 */
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "prng.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define LANE "(((hashtextextended(aggregate_id::text, 0) % 16) + 16) % 16)"
#define COMMAND_MS 60000
#define DRAIN_MS 60000

static struct stack *stack;

static int run(const char *const *args, char **out) {
  return relay_run_command(stack, args, COMMAND_MS, out);
}

#define SAYS(status, says, ...) relay_require_says(stack, (status), (says), ARGS(__VA_ARGS__), COMMAND_MS)

/* Messages 1..6: aggregates a, b by turns; 1, 2 and 3 are dead, 4 is tried, 5 waits, 6 is published. */
static PGconn *make_dead(enum table_form form) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, form, TABLE);
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, attempts, last_error)"
          " SELECT gen_random_uuid(), 'Shop::Order', CASE i %% 2 WHEN 1 THEN 'a' ELSE 'b' END, 'event.' || i, '{}',"
          " CASE WHEN i < 4 THEN 10 WHEN i = 4 THEN 2 ELSE 0 END, CASE WHEN i < 5 THEN 'WRONGTYPE no ' || i END"
          " FROM generate_series(1, 6) i");
  db_exec(conn, "UPDATE " TABLE " SET published_at = now() WHERE id = 6");
  return conn;
}

static int64_t count(PGconn *conn, const char *where) {
  return db_int(conn, "SELECT count(*) FROM " TABLE " WHERE %s", where);
}

static void test_dead_lists(void **state) {
  (void)state;
  PGconn *conn = make_dead(TABLE_INIT);
  SAYS(0, "1  Shop::Order:a  event.1\n    10 attempts, ", "dead");
  SAYS(0, "\n    WRONGTYPE no 3\n3 dead\n", "dead");
  SAYS(0, "1 dead, and there are more", "dead", "--limit", "1");
  SAYS(0, "2  Shop::Order:b  event.2", "dead", "--aggregate", "Shop::Order:b");
  SAYS(0, "4 dead\n", "dead", "--max-attempts", "2");
  SAYS(0, "no message is dead", "dead", "--event", "event.1", "--id", "2");
  SAYS(0, "no message is discarded", "dead", "--discarded");
  char *out = NULL;
  assert_int_equal(run(ARGS("dead", "--json", "--id", "2"), &out), 0);
  json_t *line = json_loads(out, 0, NULL);
  REQUIRE(line != NULL, "no JSON: %s", out);
  assert_int_equal(json_integer_value(json_object_get(line, "id")), 2);
  assert_int_equal(json_integer_value(json_object_get(line, "attempts")), 10);
  assert_string_equal(json_string_value(json_object_get(line, "last_error")), "WRONGTYPE no 2");
  json_decref(line);
  free(out);
  PQfinish(conn);
}

static void test_wrong_lines_change_nothing(void **state) {
  (void)state;
  PGconn *conn = make_dead(TABLE_PLAIN);
  SAYS(2, "retry needs to be told which messages", "retry");
  SAYS(2, "--all goes with no other selector", "retry", "--all", "--id", "1");
  SAYS(2, "discard needs --reason", "discard", "--all");
  SAYS(2, "--id takes the number in the column id", "retry", "--id", "one");
  SAYS(2, "--aggregate takes", "retry", "--aggregate", "a");
  SAYS(1, "there is no table nowhere", "retry", "--all", "--table", "nowhere");
  char reason[1100];
  memset(reason, 'x', sizeof reason - 1);
  reason[sizeof reason - 1] = '\0';
  SAYS(2, "--reason has 1099 characters", "discard", "--all", "--reason", reason);
  SAYS(0, "3 messages would be given new attempts; nothing was changed", "retry", "--all", "--dry-run");
  SAYS(0, "3 messages would be discarded; nothing was changed", "discard", "--all", "--dry-run");
  assert_int_equal(count(conn, "attempts = 10 AND published_at IS NULL"), 3);
  PQfinish(conn);
}

static void test_retry_touches_dead_messages_only(void **state) {
  (void)state;
  PGconn *conn = make_dead(TABLE_PLAIN);
  SAYS(1,
       "0 messages given new attempts\nnot changed: id 4: it is not dead, the relay tries it (2 of 10 attempts)\n"
       "not changed: id 6: it is published\nnot changed: id 99: there is no such message\n",
       "retry", "--id", "4", "--id", "6", "--id", "99");
  SAYS(1, "the other selectors leave it out", "retry", "--id", "1", "--event", "event.2");
  SAYS(0, "1 message given new attempts\n", "retry", "--id", "2");
  SAYS(0, "2 messages given new attempts\n", "retry", "--aggregate", "Shop::Order:a", "--aggregate", "Shop::Order:x");
  assert_int_equal(count(conn, "id < 4 AND attempts = 0 AND last_error LIKE 'WRONGTYPE%'"), 3);
  assert_int_equal(count(conn, "id = 4 AND attempts = 2"), 1);
  SAYS(0, "{\"command\":\"retry\",\"changed\":0,\"unchanged\":[]}\n", "retry", "--all", "--json");
  PQfinish(conn);
}

static void test_discard_keeps_the_reason(void **state) {
  (void)state;
  PGconn *conn = make_dead(TABLE_INIT);
  SAYS(0, "1 message discarded\n", "discard", "--id", "1", "--reason", "sent by hand");
  assert_int_equal(count(conn, "id = 1 AND published_at IS NOT NULL AND attempts = 10 AND "
                               "last_error = 'discarded: sent by hand (refused with: WRONGTYPE no 1)'"),
                   1);
  SAYS(1, "not changed: id 1: it is not pending", "retry", "--id", "1");
  SAYS(0, "discarded: sent by hand (refused with: WRONGTYPE no 1)\n1 discarded\n", "dead", "--discarded");
  SAYS(0, "2 messages discarded\n", "discard", "--all", "--reason", "x");
  SAYS(0, "no message is dead", "dead");
  PQfinish(conn);
}

/* More than a transaction takes, and an aggregate that is in all of them. */
static void test_many_in_bounded_transactions(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT, TABLE);
  table_fill(conn, TABLE_INIT, TABLE, 5000, 2500, 10);
  db_exec(conn, "UPDATE " TABLE " SET attempts = 10, last_error = 'no'");
  SAYS(0, "5,000 messages given new attempts\n", "retry", "--all");
  assert_int_equal(count(conn, "attempts > 0"), 0);
  /* No aggregate is in two transactions. */
  assert_int_equal(db_int(conn, "SELECT count(*) FROM (SELECT 1 FROM " TABLE
                                " GROUP BY aggregate_type, aggregate_id HAVING count(DISTINCT xmin::text) > 1) s"),
                   0);
  assert_true(db_int(conn, "SELECT count(DISTINCT xmin::text) FROM " TABLE) > 1);
  PQfinish(conn);
}

/* A row that somebody holds is waited for, and looked at again under its lock. */
static void test_a_held_row_is_waited_for(void **state) {
  (void)state;
  PGconn *conn = make_dead(TABLE_PLAIN);
  db_exec(conn, "BEGIN; UPDATE " TABLE " SET published_at = now() WHERE id = 1");
  char database[STACK_URL_BYTES + 16];
  snprintf(database, sizeof database, "DATABASE_URL=%s", stack->conninfo);
  const char *const env[] = {database, NULL};
  struct relay *retry = relay_start_plain(stack, env, ARGS("retry", "--all"));
  PGconn *watcher = db_open(stack->conninfo);
  wait_sql_int(
      watcher, 1, DRAIN_MS,
      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outboxd dead' AND wait_event_type = 'Lock'");
  db_exec(conn, "COMMIT");
  assert_int_equal(relay_wait(retry, DRAIN_MS), 0);
  char *out = relay_stdout(retry);
  REQUIRE(strcmp(out, "2 messages given new attempts\n") == 0, "it said: %s", out);
  assert_int_equal(count(conn, "id = 1 AND attempts = 10 AND published_at IS NOT NULL"), 1);
  free(out);
  PQfinish(watcher);
  PQfinish(conn);
}

/* --on-dead skip, a backlog, and claims that have passed the first of an aggregate's dead messages when both are revived. */
static void test_revived_messages_keep_their_order(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  /* Pairs of dead messages far apart, with other aggregates' messages between. */
  table_fill(conn, TABLE_PLAIN, TABLE, 300, 300, 10);
  table_fill(conn, TABLE_PLAIN, TABLE, 40000, 100000, 10);
  db_exec(conn, "UPDATE " TABLE " SET aggregate_id = 'other ' || id WHERE id > 300");
  table_fill(conn, TABLE_PLAIN, TABLE, 300, 300, 10);
  db_exec(conn, "UPDATE " TABLE " SET attempts = 10, last_error = 'no' WHERE aggregate_id NOT LIKE 'other %%'");
  struct relay *relay = relay_start(stack, ARGS("run", "--batch", "50", "--claimers", "2"));
  WAIT_FOR(DRAIN_MS, count(conn, "published_at IS NOT NULL") > 500, "nothing flows");
  /* Redis stands still meanwhile, or a fast relay would be through with the backlog before the operator's command has started. */
  rds_run(redis, "CLIENT PAUSE 60000 WRITE");
  SAYS(0, "600 messages given new attempts\n", "retry", "--all");
  REQUIRE(count(conn, "published_at IS NULL AND aggregate_id LIKE 'other %'") > 0, "the backlog was too small");
  rds_run(redis, "CLIENT UNPAUSE");
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, NULL);
  redisFree(redis);
  PQfinish(conn);
}

/* Poison that comes and goes in three lanes of a loaded fleet with --on-dead block, while an operator retries and discards at random. */
static void test_random_operator_beside_a_fleet(void **state) {
  (void)state;
  struct prng prng = {.state = prng_seed()};
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  struct relay *relays[3];
  int64_t messages_n = harness_scaled(6000);
  table_create(stack, conn, TABLE_INIT, TABLE);
  for (int i = 0; i < 3; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--max-attempts", "1", "--on-dead", "block", "--batch", "100"));
  }
  struct writer *writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                                .table = TABLE,
                                                                .threads_n = 4,
                                                                .messages_n = messages_n,
                                                                .aggregates_n = 200,
                                                                .rollback_percent = 5,
                                                                .rate = 1000,
                                                                .seed = prng_next(&prng)});
  struct wait wait = wait_begin(DRAIN_MS);
  for (int step = 0; step < 12 || writer_committed(writer) < messages_n; step++) {
    /* A stream gives way to a key of another type under another name, and comes back later. */
    char lane[16];
    snprintf(lane, sizeof lane, "%d", (int)prng_between(&prng, 3, 5));
    rds_run(redis, "EVAL %s 2 outbox:{%s} kept:{%s}",
            "if redis.call('TYPE', KEYS[1]).ok == 'string' then redis.call('DEL', KEYS[1]) "
            "if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end return 0 end "
            "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end "
            "redis.call('SET', KEYS[1], 'poison') return 1",
            lane, lane);
    if (prng_below(&prng, 4) > 0) {
      assert_int_equal(run(ARGS("retry", "--all", "--max-attempts", "1"), NULL), 0);
    } else {
      char *id = db_text(conn, "SELECT min(id) FROM " TABLE " WHERE published_at IS NULL AND attempts >= 1");
      if (id[0] != '\0') {
        int status = run(ARGS("discard", "--max-attempts", "1", "--reason", "at random", "--id", id), NULL);
        REQUIRE(status == 0 || status == 1, "discard ended with %d", status);
      }
      free(id);
    }
    REQUIRE(wait_next(&wait), "the load does not end");
  }
  writer_wait(writer, DRAIN_MS);
  for (int lane = 3; lane <= 5; lane++) {
    rds_run(redis, "EVAL %s 2 outbox:{%d} kept:{%d}",
            "if redis.call('TYPE', KEYS[1]).ok == 'string' then redis.call('DEL', KEYS[1]) "
            "if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end end return 0",
            lane, lane);
  }
  /* Several dead ones of an aggregate there are none of: the later ones wait.  So one retry is enough, once nothing is in flight. */
  wait = wait_begin(DRAIN_MS);
  while (count(conn, "published_at IS NULL") > 0) {
    assert_int_equal(run(ARGS("retry", "--all", "--max-attempts", "1"), NULL), 0);
    REQUIRE(wait_next(&wait), "%" PRId64 " messages are still pending", count(conn, "published_at IS NULL"));
  }
  for (int i = 0; i < 3; i++) {
    relay_stop(relays[i]);
  }
  writer_verify(writer, conn);
  REQUIRE(count(conn, "last_error IS NOT NULL") > 0, "nothing was ever refused");
  check_require_good(stack, &(struct check_options){.max_attempts = 1});
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_dead_lists),
      HARNESS_TEST(test_wrong_lines_change_nothing),
      HARNESS_TEST(test_retry_touches_dead_messages_only),
      HARNESS_TEST(test_discard_keeps_the_reason),
      HARNESS_TEST(test_many_in_bounded_transactions),
      HARNESS_TEST(test_a_held_row_is_waited_for),
      HARNESS_TEST(test_revived_messages_keep_their_order),
      HARNESS_TEST(test_random_operator_beside_a_fleet),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
