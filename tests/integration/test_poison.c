/*
 * One poison stream among 16: a key of another type where lane 5's stream should be.  The other lanes do not care; its messages are
 * retried, each aggregate's first one before its next, and die with the reason kept.
 */
#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "proxy.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define POISON_KEY "outbox:{5}"
#define LANE "(((hashtextextended(aggregate_id::text, 0) % 16) + 16) % 16)"
#define MAX_ATTEMPTS 3
#define MAX_ATTEMPTS_TEXT "3"
#define DRAIN_MS 60000

static struct stack *stack;

/* A few aggregates in every lane, three messages each, interleaved. */
static void fill(PGconn *conn) {
  table_fill(conn, TABLE_PLAIN, TABLE, 600, 200, 20);
}

static int64_t count(PGconn *conn, const char *where) {
  return db_int(conn, "SELECT count(*) FROM " TABLE " WHERE %s", where);
}

/* A message that has been tried (since all of them had tried_n attempts) while an earlier one of its aggregate is neither published nor dead has not waited its turn. */
static void require_turns_since(PGconn *conn, int tried_n, int max_attempts) {
  char *offender =
      db_text(conn,
              "SELECT string_agg(l.id || ' before ' || e.id, ', ') FROM " TABLE " l JOIN " TABLE " e ON "
              "e.aggregate_type = l.aggregate_type AND e.aggregate_id = l.aggregate_id AND e.id < l.id "
              "WHERE (l.attempts > %d OR l.published_at IS NOT NULL) AND e.published_at IS NULL AND e.attempts < %d",
              tried_n, max_attempts);
  REQUIRE(offender[0] == '\0', "messages that did not wait their turn: %s", offender);
  free(offender);
}

static void require_turns(PGconn *conn) {
  require_turns_since(conn, 0, MAX_ATTEMPTS);
}

/* The aggregates of the poison lane. */
static int64_t poisoned_aggregates(PGconn *conn) {
  return db_int(conn, "SELECT count(DISTINCT (aggregate_type, aggregate_id)) FROM " TABLE " WHERE %s = 5", LANE);
}

static const char first_is_dead[] =
    "attempts >= " MAX_ATTEMPTS_TEXT " AND NOT EXISTS (SELECT FROM " TABLE " e WHERE e.aggregate_type = " TABLE
    ".aggregate_type AND e.aggregate_id = " TABLE ".aggregate_id AND e.id < " TABLE ".id)";

/* Poison, messages, and a relay; returns when the first message of each poisoned aggregate is dead.  Meanwhile the others flow. */
static struct relay *run_until_dead(PGconn *conn, redisContext *redis, const char *on_dead) {
  struct relay *relay;
  int64_t aggregates_n;

  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET %s poison", POISON_KEY);
  fill(conn);
  aggregates_n = poisoned_aggregates(conn);
  REQUIRE(aggregates_n > 3, "the poison lane is too empty for this test");
  relay = relay_start(stack, ARGS("run", "--max-attempts", MAX_ATTEMPTS_TEXT, "--on-dead", on_dead));
  WAIT_FOR(DRAIN_MS, count(conn, LANE " = 5 AND attempts > 0") > 0, "no message of the poison lane is tried");
  /* The other 15 lanes go on, with what is there and with what comes. */
  wait_sql_int(conn, 0, 5000, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND " LANE " <> 5");
  fill(conn);
  wait_sql_int(conn, 0, 5000, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND " LANE " <> 5");
  struct wait wait = wait_begin(DRAIN_MS);
  while (count(conn, first_is_dead) < aggregates_n) {
    require_turns(conn);
    REQUIRE(wait_next(&wait), "only %" PRId64 " of %" PRId64 " first messages are dead", count(conn, first_is_dead),
            aggregates_n);
  }
  require_turns(conn);
  REQUIRE(count(conn, "attempts > " MAX_ATTEMPTS_TEXT) == 0, "a message was tried more often than --max-attempts says");
  REQUIRE(count(conn, "attempts > 0 AND last_error NOT LIKE '%WRONGTYPE%'") == 0 &&
              count(conn, "attempts > 0 AND last_error IS NULL") == 0,
          "last_error does not say why");
  REQUIRE(count(conn, LANE " <> 5 AND (attempts > 0 OR last_error IS NOT NULL)") == 0, "another lane has suffered");
  return relay;
}

static void test_skip_lets_later_messages_flow(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  struct relay *relay = run_until_dead(conn, redis, "skip");
  rds_run(redis, "DEL %s", POISON_KEY);
  wait_no_pending(conn, TABLE, MAX_ATTEMPTS, DRAIN_MS);
  relay_stop(relay);
  struct check_report report =
      check_require_good(stack, &(struct check_options){.max_attempts = MAX_ATTEMPTS, .is_dead_ok = true});
  REQUIRE(report.dead_n > 0 && report.dead_n < report.rows_n, "%" PRId64 " dead", report.dead_n);
  redisFree(redis);
  PQfinish(conn);
}

static void test_block_keeps_the_aggregate_stopped(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  struct relay *relay = run_until_dead(conn, redis, "block");
  int64_t pending_n = count(conn, "published_at IS NULL AND attempts = 0");
  REQUIRE(pending_n > 0, "nothing waits behind the dead messages");
  rds_run(redis, "DEL %s", POISON_KEY);
  /* Another aggregate of the same lane flows, the stopped ones do not. */
  char *id = db_text(conn, "SELECT 'new ' || i FROM generate_series(1, 1000) i WHERE "
                           "(((hashtextextended('new ' || i, 0) %% 16) + 16) %% 16) = 5 LIMIT 1");
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
          "VALUES (gen_random_uuid(), 'order', '%s', 'x', '{}')",
          id);
  char new_is_out[256];
  snprintf(new_is_out, sizeof new_is_out, "aggregate_id = '%s' AND published_at IS NOT NULL", id);
  WAIT_FOR(DRAIN_MS, count(conn, new_is_out) == 1, "another aggregate of the lane does not flow");
  wait_out(3000);
  REQUIRE(count(conn, "published_at IS NULL AND attempts = 0") == pending_n, "a message behind a dead one has moved");
  /* The operator acts. */
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0 WHERE attempts >= %d AND published_at IS NULL", MAX_ATTEMPTS);
  wait_sql_int(conn, 0, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL");
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.max_attempts = MAX_ATTEMPTS});
  free(id);
  redisFree(redis);
  PQfinish(conn);
}

static void test_one_poison_aggregate_among_streams_of_their_own(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  static const char stream[] = "outbox:{%l}:%t:%i";
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  fill(conn);
  /* Aggregate 7 of table_fill: 7 % 3 is 1, a payment. */
  char *key = db_text(conn, "SELECT 'outbox:{' || (((hashtextextended('7', 0) %% 16) + 16) %% 16) || '}:payment:7'");
  rds_run(redis, "SET %s poison", key);
  struct relay *relay =
      relay_start(stack, ARGS("run", "--stream", stream, "--max-attempts", MAX_ATTEMPTS_TEXT, "--until-empty"));
  /* Even the other aggregates of its lane do not wait for it. */
  wait_sql_int(conn, 0, 10000, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND aggregate_id <> '7'");
  REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "dead messages keep --until-empty from ending");
  REQUIRE(count(conn,
                "published_at IS NULL AND attempts = 3 AND last_error LIKE '%WRONGTYPE%' AND aggregate_id = '7'") == 3,
          "not dead as it should be");
  struct check_report report = check_require_good(
      stack, &(struct check_options){.stream = stream, .max_attempts = MAX_ATTEMPTS, .is_dead_ok = true});
  REQUIRE(report.dead_n == 3, "%" PRId64 " dead", report.dead_n);
  free(key);
  redisFree(redis);
  PQfinish(conn);
}

/* The default of ten attempts: two are left, so that the test need not wait for minutes of backoff. */
static void test_ten_attempts_and_the_reason_is_kept(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET %s poison", POISON_KEY);
  fill(conn);
  db_exec(conn, "UPDATE " TABLE " SET attempts = 8 WHERE %s = 5", LANE);
  int64_t poisoned_n = count(conn, LANE " = 5");
  /* The ninth attempt is refused; the tenth would follow after half a minute or more: the next process knows no backoff. */
  struct relay *relay = relay_start(stack, ARGS("run"));
  WAIT_FOR(DRAIN_MS, count(conn, "attempts = 9") > 0, "%s", "nothing is tried for the ninth time");
  WAIT_FOR(DRAIN_MS, count(conn, "published_at IS NULL AND NOT " LANE " = 5") == 0, "%s", "the others do not flow");
  require_turns_since(conn, 8, 10);
  REQUIRE(count(conn, "attempts >= 10") == 0, "dead after nine attempts");
  REQUIRE(relay_count(relay, "message_dead") == 0, "reported dead after nine attempts");
  relay_stop(relay);
  relay = relay_start(stack, ARGS("run"));
  struct wait wait = wait_begin(DRAIN_MS);
  while (count(conn, "attempts = 10") == 0) {
    require_turns_since(conn, 8, 10);
    REQUIRE(wait_next(&wait), "nothing dies");
  }
  relay_wait_log(relay, "message_dead", NULL, NULL, DRAIN_MS);
  relay_stop(relay);
  require_turns_since(conn, 8, 10);
  REQUIRE(count(conn, "attempts > 10") == 0, "tried after its death");
  REQUIRE(count(conn, "attempts = 10 AND last_error LIKE '%WRONGTYPE%'") == count(conn, "attempts = 10"),
          "a dead message without its reason");
  REQUIRE(count(conn, "published_at IS NOT NULL AND " LANE " = 5") == 0, "something of the poison lane is published");
  REQUIRE(count(conn, LANE " = 5") == poisoned_n, "a message is gone");
  redisFree(redis);
  PQfinish(conn);
}

/* Of hundreds of refused aggregates one is due at any moment.  Looking for it from the start of the order may take a twentieth of the time and no more: while
 * PostgreSQL's answer is under way, the next retry that falls due begins nothing. */
static void test_due_retries_do_not_sweep_all_the_time(void **state) {
  enum { AGGREGATES_N = 500, DELAY_MS = 50, OBSERVED_MS = 10000 };
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char delayed[STACK_URL_BYTES];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET outbox:{0} poison");
  table_fill(conn, TABLE_PLAIN, TABLE, AGGREGATES_N, AGGREGATES_N, 0);
  int64_t started_ms = wait_now_ms();
  struct proxy *proxy = proxy_start(stack->pg_port.number);
  proxy_set_delay(proxy, DELAY_MS);
  (void)snprintf(delayed, sizeof delayed, "host=127.0.0.1 port=%d user=" STACK_PG_USER " dbname=" STACK_DATABASE,
                 proxy_port(proxy));
  struct relay *relay = relay_start(stack, ARGS("run", "--database", delayed, "--lanes", "1", "--batch", "50",
                                                "--no-cleanup", "--stats-every", "500ms"));
  wait_sql_int(conn, AGGREGATES_N, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE attempts > 0");
  wait_out(OBSERVED_MS);
  WAIT_FOR(DRAIN_MS, count(conn, "attempts > 1") > 0, "%s", "the retries do not come");
  relay_stop(relay);
  int64_t ms = wait_now_ms() - started_ms;
  int64_t sweeps_n = relay_sum(relay, "stats", "sweeps");
  /* A claim there and back takes two delays, so twenty times that lies between two sweeps; some more are let pass: the first ones, whose cost is
   * believed step by step, and those for which the relay does not wait (its start, its end). */
  int64_t most_n = ms / (20 * 2 * DELAY_MS) + 10;
  REQUIRE(sweeps_n > 0, "the stats lines count no sweep");
  REQUIRE(sweeps_n <= most_n, "%" PRId64 " sweeps in %" PRId64 " ms, %" PRId64 " at most", sweeps_n, ms, most_n);
  proxy_stop(proxy);
  redisFree(redis);
  PQfinish(conn);
}

/* The claims begin a little behind where they have been, for what commits late.  What was refused there is not brought again and again. */
static void test_what_was_refused_is_not_claimed_again_at_once(void **state) {
  enum { MESSAGES_N = 5000 };
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET outbox:{0} poison");
  table_fill(conn, TABLE_PLAIN, TABLE, MESSAGES_N, MESSAGES_N, 0);
  /* Young however slow this runs, and the next retry is half a minute away. */
  db_exec(conn, "UPDATE " TABLE " SET created_at = now() + interval '1 hour', attempts = 7");
  struct relay *relay =
      relay_start(stack, ARGS("run", "--lanes", "1", "--batch", "100", "--no-cleanup", "--stats-every", "500ms"));
  wait_sql_int(conn, MESSAGES_N, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE attempts = 8");
  relay_stop(relay);
  int64_t claimed_n = relay_sum(relay, "stats", "claimed");
  REQUIRE(claimed_n >= MESSAGES_N, "the stats lines count %" PRId64 " claimed messages", claimed_n);
  REQUIRE(claimed_n <= 2 * MESSAGES_N, "%d messages were refused once each, and claimed %" PRId64 " times in all",
          MESSAGES_N, claimed_n);
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_ten_attempts_and_the_reason_is_kept),
      HARNESS_TEST(test_skip_lets_later_messages_flow),
      HARNESS_TEST(test_block_keeps_the_aggregate_stopped),
      HARNESS_TEST(test_one_poison_aggregate_among_streams_of_their_own),
      HARNESS_TEST(test_what_was_refused_is_not_claimed_again_at_once),
      HARNESS_TEST(test_due_retries_do_not_sweep_all_the_time),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
