/*
 * --publishers, --claimers, --lanes, --batch and --max-batch-bytes do what they say, and where an aggregate's messages go depends on none of the first two.
 */
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000

static struct stack *stack;

/* Threads of the process and its claimer sessions once it has done some work. */
struct sizes {
  int threads_n;
  int64_t sessions_n;
};

static struct sizes measure(PGconn *conn, const char *publishers, const char *claimers) {
  struct relay *relay =
      relay_start(stack, ARGS("run", "--publishers", publishers, "--claimers", claimers, "--no-cleanup"));
  struct sizes sizes;

  table_fill(conn, TABLE_PLAIN, TABLE, 2000, 100, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  fleet_wait_even(conn, TABLE, 16, 1, DRAIN_MS);
  sizes.threads_n = proc_threads_n(relay_pid(relay));
  sizes.sessions_n = fleet_sessions(conn, "outboxd");
  relay_stop(relay);
  /* The server notices a moment later that its client has said goodbye. */
  struct wait wait = wait_begin(10000);
  while (fleet_sessions(conn, "outboxd") > 0) {
    REQUIRE(wait_next(&wait), "a session outlives its relay");
  }
  return sizes;
}

static void test_publishers_are_threads_and_claimers_are_sessions(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct sizes small = measure(conn, "1", "1");
  struct sizes wide = measure(conn, "6", "1");
  struct sizes deep = measure(conn, "1", "5");
  printf("threads %d, %d, %d; sessions %" PRId64 ", %" PRId64 ", %" PRId64 "\n", small.threads_n, wide.threads_n,
         deep.threads_n, small.sessions_n, wide.sessions_n, deep.sessions_n);
  REQUIRE(wide.threads_n == small.threads_n + 5, "five more publishers are not five more threads");
  REQUIRE(wide.sessions_n == small.sessions_n, "publishers have PostgreSQL sessions");
  REQUIRE(deep.sessions_n == small.sessions_n + 4, "four more claimers are not four more sessions");
  REQUIRE(deep.threads_n == small.threads_n, "claimers are threads");
  /* Every run has found each aggregate's own stream: the checker works out where it should be without knowing any of this. */
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* When the relay last asked PostgreSQL anything. */
static char *last_asked(PGconn *conn) {
  return db_text(conn, "SELECT max(query_start) FROM pg_stat_activity WHERE application_name LIKE 'outboxd%%'");
}

/* Looks on while the relay goes on working, that is until it has asked PostgreSQL twice more: it claims no more than most_n. */
static void require_no_more_locked(PGconn *conn, const char *what, int64_t most_n) {
  struct wait wait = wait_begin(DRAIN_MS);
  for (int asked_n = 0; asked_n < 2; asked_n++) {
    char *before = last_asked(conn), *now = strdup(before);
    while (strcmp(before, now) == 0) {
      int64_t locked_n = fleet_locked_rows(conn, TABLE);
      REQUIRE(locked_n <= most_n, "%s: %" PRId64 " messages are claimed at once", what, locked_n);
      REQUIRE(wait_next(&wait), "the relay hangs");
      free(now);
      now = last_asked(conn);
    }
    free(before);
    free(now);
  }
}

/* Rows that are locked while Redis answers nothing: one batch for each claimer. */
static void require_locked(PGconn *conn, const char *batch, const char *claimers, int64_t least_n, int64_t most_n) {
  struct relay *relay = relay_start(
      stack, ARGS("run", "--batch", batch, "--claimers", claimers, "--redis-timeout", "1m", "--no-cleanup"));
  int64_t locked_n = 0;

  fleet_wait_even(conn, TABLE, 16, 1, DRAIN_MS);
  /* Lanes are owned before their journals are read; what goes through shows that they are open. */
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 100, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 500, 100, 20);
  struct wait wait = wait_begin(10000);
  do {
    locked_n = fleet_locked_rows(conn, TABLE);
    REQUIRE(locked_n <= most_n, "--batch %s --claimers %s: %" PRId64 " messages are claimed at once", batch, claimers,
            locked_n);
  } while (locked_n < least_n && wait_next(&wait));
  REQUIRE(locked_n >= least_n, "--batch %s --claimers %s: only %" PRId64 " messages are claimed", batch, claimers,
          locked_n);
  require_no_more_locked(conn, batch, most_n);
  stack_redis_thaw(stack);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
}

static void test_batch_bounds_a_claim(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  require_locked(conn, "10", "1", 10, 10);
  require_locked(conn, "100", "1", 100, 100);
  require_locked(conn, "20", "3", 60, 60); /* each of them has a batch of its own */
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* 100 payloads of 100 KB, and what is locked of them while Redis answers nothing. */
static void test_max_batch_bytes_bounds_a_claim(void **state) {
  static const struct {
    const char *limit;
    int64_t least_n, most_n;
  } cases[] = {{"1MiB", 1, 10}, {"4MiB", 11, 41}};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct relay *relay = relay_start(stack, ARGS("run", "--max-batch-bytes", cases[i].limit, "--claimers", "1",
                                                  "--redis-timeout", "1m", "--no-cleanup"));
    int64_t locked_n = 0;
    fleet_wait_even(conn, TABLE, 16, 1, DRAIN_MS);
    table_fill(conn, TABLE_PLAIN, TABLE, 100, 100, 20);
    wait_no_pending(conn, TABLE, 10, DRAIN_MS);
    stack_redis_freeze(stack);
    db_exec(conn,
            "INSERT INTO " TABLE
            " (message_id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), 'order', i, "
            "'x', to_jsonb((SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 3200) j)) FROM "
            "generate_series(1, 100) i");
    /* The simple form of a claim, which knows no sizes beforehand, gives back at once what has turned out too large: what is looked at is a claim
     * that stays. */
    WAIT_FOR(DRAIN_MS,
             db_int(conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outboxd%%' AND state = "
                          "'idle in transaction' AND clock_timestamp() - state_change > interval '500 ms'") > 0,
             "nothing stays claimed");
    require_no_more_locked(conn, cases[i].limit, cases[i].most_n);
    locked_n = fleet_locked_rows(conn, TABLE);
    printf("--max-batch-bytes %s: %" PRId64 " messages of 102400 bytes at once\n", cases[i].limit, locked_n);
    REQUIRE(locked_n >= cases[i].least_n, "--max-batch-bytes %s: only %" PRId64 " messages are claimed", cases[i].limit,
            locked_n);
    stack_redis_thaw(stack);
    wait_no_pending(conn, TABLE, 10, DRAIN_MS);
    relay_stop(relay);
  }
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_lanes_are_streams(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  static const char *const lanes[] = {"1", "5", "64"};
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
    int lanes_n = atoi(lanes[i]);
    rds_run(redis, "FLUSHALL");
    db_exec(conn, "TRUNCATE " TABLE);
    table_fill(conn, TABLE_PLAIN, TABLE, 5000, 2000, 20);
    struct relay *relay = relay_start(stack, ARGS("run", "--lanes", lanes[i], "--until-empty"));
    REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "--lanes %s fails", lanes[i]);
    struct check_report report = check_require_good(stack, &(struct check_options){.lanes_n = lanes_n});
    REQUIRE(report.streams_n == lanes_n, "--lanes %s: %" PRId64 " streams", lanes[i], report.streams_n);
  }
  redisFree(redis);
  PQfinish(conn);
}

static void test_other_lanes_than_the_fleet_are_refused(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  REQUIRE(relay_wait(relay_start(stack, ARGS("run", "--until-empty")), DRAIN_MS) == 0, "the first relay fails");
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  struct relay *other = relay_run_plain(stack, ARGS("run", "--lanes", "8", "--until-empty"), DRAIN_MS);
  REQUIRE(relay_wait(other, 0) == 1, "another --lanes is not refused with status 1");
  char *text = relay_text(other);
  REQUIRE(strstr(text, "16") != NULL && strstr(text, "8") != NULL && strstr(text, "lanes") != NULL,
          "the message does not say what is wrong: %s", text);
  REQUIRE(strstr(text, "redis_down") == NULL, "it is told to be an outage: %s", text);
  free(text);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL") == 100,
          "it has published all the same");
  /* Another stream prefix is another fleet. */
  REQUIRE(relay_wait(relay_start(stack, ARGS("run", "--lanes", "8", "--stream", "other:{%l}", "--until-empty")),
                     DRAIN_MS) == 0,
          "a fleet of its own is refused");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_publishers_are_threads_and_claimers_are_sessions),
      HARNESS_TEST(test_batch_bounds_a_claim),
      HARNESS_TEST(test_max_batch_bytes_bounds_a_claim),
      HARNESS_TEST(test_lanes_are_streams),
      HARNESS_TEST(test_other_lanes_than_the_fleet_are_refused),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
