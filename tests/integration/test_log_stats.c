/*
 * The stats line: every claimed message is accounted for, and a delay put in on purpose shows in the figure that is about it.
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
#define DRAIN_MS 60000

static struct stack *stack;

static double field_of(const json_t *line, const char *name) {
  const json_t *value = json_object_get(line, name);
  REQUIRE(json_is_number(value), "the stats line has no number %s", name);
  return json_number_value(value);
}

/* What the stats lines of a relay that has ended add up to. */
struct sums {
  double claimed, published, failed, withheld, given_back, dead;
  const json_t *last;
};

static struct sums add_up(struct relay *relay) {
  struct sums sums = {0};
  const json_t *lines = relay_lines(relay);
  for (size_t i = 0; i < json_array_size(lines); i++) {
    const json_t *line = json_array_get(lines, i);
    if (strcmp(json_string_value(json_object_get(line, "event")), "stats") != 0) {
      continue;
    }
    sums.claimed += field_of(line, "claimed");
    sums.published += field_of(line, "published");
    sums.failed += field_of(line, "failed");
    sums.withheld += field_of(line, "withheld");
    sums.given_back += field_of(line, "given_back");
    sums.dead += field_of(line, "dead");
    sums.last = line;
    /* At any moment, not only at rest. */
    double in_flight = field_of(line, "in_flight");
    REQUIRE(sums.claimed == sums.published + sums.failed + sums.withheld + sums.given_back + in_flight,
            "claimed %.0f, published %.0f, failed %.0f, withheld %.0f, given back %.0f, in flight %.0f", sums.claimed,
            sums.published, sums.failed, sums.withheld, sums.given_back, in_flight);
    REQUIRE(in_flight >= 0 && sums.claimed == field_of(line, "claimed_total") &&
                sums.published == field_of(line, "published_total"),
            "the totals are not the sums");
  }
  REQUIRE(sums.last != NULL, "no stats line");
  return sums;
}

/* Refused messages, killed servers, ended sessions: no message is lost count of. */
static void test_every_claimed_message_is_accounted_for(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "SET outbox:{3} x");
  struct relay *relay = relay_start(stack, ARGS("run", "--stats-every", "100ms", "--batch", "100", "--no-cleanup",
                                                "--redis-timeout", "500ms", "--max-attempts", "1000"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, DRAIN_MS);
  struct writer *writer = writer_start(&(struct writer_options){
      .conninfo = stack->conninfo, .table = TABLE, .threads_n = 2, .messages_n = 0, .rate = 2000, .seed = prng_seed()});
  wait_sql_int(conn, 1, DRAIN_MS, "SELECT (count(*) > 500)::int FROM " TABLE " WHERE published_at IS NOT NULL");
  for (int i = 0; i < 3; i++) {
    int64_t published_n = db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
    WAIT_FOR(DRAIN_MS,
             db_int(conn, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                          "WHERE application_name LIKE 'outboxd claimer%%'") > 0,
             "no claimer has a session");
    stack_redis_freeze(stack);
    relay_wait_log(relay, "redis_down", NULL, NULL, DRAIN_MS);
    stack_redis_thaw(stack);
    relay_wait_log(relay, "redis_up", NULL, NULL, DRAIN_MS);
    WAIT_FOR(DRAIN_MS, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") > published_n,
             "it does not go on");
  }
  writer_stop(writer);
  writer_wait(writer, DRAIN_MS);
  rds_run(redis, "DEL outbox:{3}");
  wait_no_pending(conn, TABLE, 1000, 2 * DRAIN_MS);
  relay_stop(relay);
  struct sums sums = add_up(relay);
  double rows = (double)db_int(conn, "SELECT count(*) FROM " TABLE);
  printf("%.0f messages: claimed %.0f, published %.0f, failed %.0f, withheld %.0f, given back %.0f\n", rows,
         sums.claimed, sums.published, sums.failed, sums.withheld, sums.given_back);
  REQUIRE(field_of(sums.last, "in_flight") == 0, "in flight at rest");
  REQUIRE(sums.failed > 0 && sums.withheld > 0 && sums.given_back > 0, "not every end was met");
  /* A COMMIT whose answer was lost with its session is counted as given back, whatever became of it. */
  REQUIRE(sums.published <= rows && sums.published + sums.given_back >= rows, "%.0f rows, %.0f published", rows,
          sums.published);
  check_require_good(stack, NULL);
  redisFree(redis);
  PQfinish(conn);
}

/* A part of a relay's log: its messages' figures, over however many stats lines they fell into. */
struct phase {
  struct relay *relay;
  size_t first;
};

static struct phase phase_begin(struct relay *relay) {
  return (struct phase){.relay = relay, .first = json_array_size(relay_lines(relay))};
}

static bool is_at_rest(const json_t *line, const void *published_total) {
  return field_of(line, "published_total") >= *(const double *)published_total && field_of(line, "in_flight") == 0;
}

/* Until the relay has logged the end of everything it was given; published_total: messages since its start. */
static void phase_end(struct phase phase, PGconn *conn, double published_total) {
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_wait_log(phase.relay, "stats", is_at_rest, &published_total, DRAIN_MS);
}

/* Over the phase's lines that have the figure: the largest.  A quantile that nothing went into is 0. */
static double most_of(struct phase phase, const char *name) {
  double most = 0;
  const json_t *lines = relay_lines(phase.relay);
  for (size_t i = phase.first; i < json_array_size(lines); i++) {
    const json_t *line = json_array_get(lines, i);
    if (strcmp(json_string_value(json_object_get(line, "event")), "stats") == 0 && field_of(line, name) > most) {
      most = field_of(line, name);
    }
  }
  return most;
}

#define REQUIRE_MOST_BETWEEN(phase_, name_, min_, max_)                                                           \
  REQUIRE(most_of((phase_), (name_)) >= (min_) && most_of((phase_), (name_)) <= (max_), "%s is %.3f, not %d..%d", \
          (name_), most_of((phase_), (name_)), (int)(min_), (int)(max_))

/* Each delay in turn shows in its own quantiles and not in the others. */
static void test_delays_show_where_they_were_made(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay =
      relay_start(stack, ARGS("run", "--stats-every", "200ms", "--no-cleanup", "--redis-timeout", "20s"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, DRAIN_MS);

  /* Nothing delayed. */
  struct phase phase = phase_begin(relay);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  phase_end(phase, conn, 100);
  REQUIRE_MOST_BETWEEN(phase, "lag_p50_ms", 0.001, 10000);
  REQUIRE(most_of(phase, "lag_p50_ms") <= most_of(phase, "lag_p99_ms") &&
              most_of(phase, "lag_p99_ms") <= most_of(phase, "lag_max_ms"),
          "the lag's quantiles are not in order");
  REQUIRE_MOST_BETWEEN(phase, "claim_p50_ms", 0.001, 5000);
  REQUIRE_MOST_BETWEEN(phase, "settle_p50_ms", 0.001, 5000);
  REQUIRE_MOST_BETWEEN(phase, "redis_round_trip_p50_ms", 0.001, 5000);
  double round_trip_ms = most_of(phase, "redis_round_trip_p50_ms");

  /* One message in ten of an hour ago: the lag, and nothing else. */
  phase = phase_begin(relay);
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) "
          "SELECT gen_random_uuid(), 't', i::text, 'e', '{}', CASE WHEN i %% 10 = 0 THEN now() - interval '1 hour' "
          "ELSE now() END FROM generate_series(1, 100) i");
  phase_end(phase, conn, 200);
  REQUIRE_MOST_BETWEEN(phase, "lag_p99_ms", 3600000, 3716250);
  REQUIRE_MOST_BETWEEN(phase, "lag_max_ms", 3600000, 3660000);
  REQUIRE_MOST_BETWEEN(phase, "claim_p99_ms", 0.001, 60000);
  REQUIRE_MOST_BETWEEN(phase, "redis_round_trip_p99_ms", 0.001, 60000);

  /* Redis takes 1.5 s. */
  phase = phase_begin(relay);
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 20);
  wait_out(1500);
  stack_redis_thaw(stack);
  phase_end(phase, conn, 300);
  REQUIRE_MOST_BETWEEN(phase, "redis_round_trip_p99_ms", 1000, 20000);
  REQUIRE_MOST_BETWEEN(phase, "lag_p50_ms", 1000, 60000);
  REQUIRE(most_of(phase, "settle_p50_ms") < most_of(phase, "redis_round_trip_p99_ms"), "settling took as long");

  /* Marking takes 1 s. */
  phase = phase_begin(relay);
  db_exec(conn,
          "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'");
  db_exec(conn, "CREATE TRIGGER slow BEFORE UPDATE ON " TABLE " FOR EACH STATEMENT EXECUTE FUNCTION slow()");
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 10, 20);
  phase_end(phase, conn, 310);
  REQUIRE_MOST_BETWEEN(phase, "settle_p50_ms", 1000, 20000);
  REQUIRE(most_of(phase, "redis_round_trip_p50_ms") < most_of(phase, "settle_p50_ms"), "Redis took as long");
  printf("undelayed round trip %.3f ms\n", round_trip_ms);
  db_exec(conn, "DROP TRIGGER slow ON " TABLE);
  relay_stop(relay);
  add_up(relay);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_every_claimed_message_is_accounted_for),
      HARNESS_TEST(test_delays_show_where_they_were_made),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
