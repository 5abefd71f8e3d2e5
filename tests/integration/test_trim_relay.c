/*
 * --trim and --stream-ttl by the relay, beside consumers: whoever reads in a group gets everything, streams end up empty, names of streams that are
 * gone leave the index, and what is cut unread is told of.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "prng.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define BY_AGGREGATE "outbox:{%l}:%t:%i"
#define LANES_N 4
#define LANES_TEXT "4"
#define DRAIN_MS 60000
#define GROUPS_N 3

static struct stack *stack;

static long long length_n(redisContext *redis) {
  long long n = 0;
  for (int lane = 0; lane < LANES_N; lane++) {
    n += rds_int(redis, "XLEN outbox:{%d}", lane);
  }
  return n;
}

/* One consumer of a group over all lanes, which leaves some of what it gets for later. */
struct consumer {
  const char *group;
  long long got_n;
};

static void acknowledge(redisContext *redis, const char *group, int lane, const char *id) {
  rds_run(redis, "XACK outbox:{%d} %s %s", lane, group, id);
}

static void consume(redisContext *redis, struct consumer *consumer, struct prng *prng) {
  for (int lane = 0; lane < LANES_N; lane++) {
    redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP %s c COUNT %d STREAMS outbox:{%d} >", consumer->group,
                                (int)prng_between(prng, 1, 100), lane);
    if (reply->type == REDIS_REPLY_ARRAY) {
      const redisReply *entries = reply->element[0]->element[1];
      consumer->got_n += (long long)entries->elements;
      for (size_t i = 0; i < entries->elements; i++) {
        REQUIRE(entries->element[i]->element[1]->type == REDIS_REPLY_ARRAY, "an entry without its fields");
        if (prng_below(prng, 10) < 8) {
          acknowledge(redis, consumer->group, lane, entries->element[i]->element[0]->str);
        }
      }
    }
    freeReplyObject(reply);
  }
}

/* What is pending is read again, as after a crash: it must still be there. */
static void catch_up(redisContext *redis, const struct consumer *consumer) {
  for (int lane = 0; lane < LANES_N; lane++) {
    redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP %s c COUNT 1000 STREAMS outbox:{%d} 0", consumer->group, lane);
    const redisReply *entries = reply->element[0]->element[1];
    for (size_t i = 0; i < entries->elements; i++) {
      REQUIRE(entries->element[i]->element[1]->type == REDIS_REPLY_ARRAY, "%s: a pending entry was trimmed away: %s",
              consumer->group, entries->element[i]->element[0]->str);
      acknowledge(redis, consumer->group, lane, entries->element[i]->element[0]->str);
    }
    freeReplyObject(reply);
  }
}

static int64_t pending_n(PGconn *conn) {
  return db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL");
}

/* Makes a group in the middle of it: it has to get what stands in the streams at that moment. */
static long long make_group(redisContext *redis, const char *group) {
  long long n = 0;
  for (int lane = 0; lane < LANES_N; lane++) {
    redisReply *reply = rds_cmd(redis, "EVAL %s 1 outbox:{%d} %s",
                                "redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM') "
                                "return redis.call('XLEN', KEYS[1])",
                                lane, group);
    n += reply->integer;
    freeReplyObject(reply);
  }
  return n;
}

static void test_acked_beside_consumers(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  struct prng prng = {.state = prng_seed()};
  struct consumer consumers[GROUPS_N] = {{"a", 0}, {"b", 0}, {"late", 0}};
  const int64_t messages_n = harness_scaled(20000);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  /* Two relays, one of them killed on the way: whose lane it is does not matter for what may be removed. */
  const char *const *args = ARGS("run", "--lanes", LANES_TEXT, "--ensure-group", "a", "--ensure-group", "b", "--trim",
                                 "acked", "--trim-keep", "0", "--trim-every", "100ms");
  struct relay *relay = relay_start(stack, args);
  struct relay *other = relay_start(stack, args);
  struct writer *writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                                .table = TABLE,
                                                                .threads_n = 2,
                                                                .messages_n = messages_n,
                                                                .aggregates_n = 300,
                                                                .rate = 4000,
                                                                .seed = prng_seed()});
  WAIT_FOR(DRAIN_MS, rds_int(redis, "EXISTS outbox:{0} outbox:{1} outbox:{2} outbox:{3}") == LANES_N, "no groups yet");
  long long late_must_get_n = -1;
  int64_t at_late_n = 0;
  struct wait wait = wait_begin(DRAIN_MS);
  while (consumers[0].got_n < messages_n || consumers[1].got_n < messages_n) {
    for (int i = 0; i < (late_must_get_n >= 0 ? GROUPS_N : 2); i++) {
      consume(redis, &consumers[i], &prng);
      if (prng_below(&prng, 5) == 0) {
        catch_up(redis, &consumers[i]);
      }
    }
    if (late_must_get_n < 0 && consumers[0].got_n > messages_n / 2) {
      relay_kill(other);
      late_must_get_n = make_group(redis, "late");
      at_late_n = db_int(conn, "SELECT count(*) FROM " TABLE); /* whatever comes from now on is new to the group */
    }
    REQUIRE(wait_next(&wait), "%lld and %lld of %" PRId64 " messages read, %" PRId64 " pending", consumers[0].got_n,
            consumers[1].got_n, messages_n, pending_n(conn));
  }
  writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  while (length_n(redis) > 0) {
    for (int i = 0; i < GROUPS_N; i++) {
      consume(redis, &consumers[i], &prng);
      catch_up(redis, &consumers[i]);
    }
    REQUIRE(wait_next(&wait), "%lld entries stay although all groups have acknowledged them", length_n(redis));
  }
  relay_stop(relay);
  REQUIRE(consumers[0].got_n == messages_n && consumers[1].got_n == messages_n, "%lld and %lld of %" PRId64 " messages",
          consumers[0].got_n, consumers[1].got_n, messages_n);
  REQUIRE(late_must_get_n >= 0 && consumers[2].got_n >= late_must_get_n + (messages_n - at_late_n),
          "the late group got %lld; when it was made the streams had %lld entries, and at least %" PRId64 " came later",
          consumers[2].got_n, late_must_get_n, messages_n - at_late_n);
  REQUIRE(relay_count(relay, "trim_unread") == 0 && relay_count(relay, "trim_failed") == 0, "a warning");
  const json_t *stats = relay_wait_log(relay, "stats", NULL, NULL, DRAIN_MS);
  REQUIRE(json_is_integer(json_object_get(stats, "trimmed")), "the stats line does not tell what was trimmed");
  redisFree(redis);
  PQfinish(conn);
}

static void test_maxlen_warns_of_what_is_unread(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 4000, 100, 20);
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", LANES_TEXT, "--ensure-group", "a", "--trim",
                                                "maxlen=100", "--trim-every", "100ms", "--stats-every", "100ms"));
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  WAIT_FOR(DRAIN_MS, length_n(redis) == 100LL * LANES_N, "%lld entries", length_n(redis));
  /* And the trimmer has been told of it, as the stats line shows: it does not wait for an answer when it is to end. */
  int64_t removed_n = 4000 - 100 * LANES_N;
  WAIT_FOR(DRAIN_MS, relay_sum(relay, "stats", "trimmed") == removed_n, "%lld counted",
           (long long)relay_sum(relay, "stats", "trimmed"));
  relay_stop(relay);
  /* The first line as soon as there is something to say, the last one when the relay ends: together they tell of all. */
  int64_t entries_n = relay_sum(relay, "trim_unread", "entries");
  REQUIRE(entries_n == removed_n, "%lld entries told of", (long long)entries_n);
  redisFree(redis);
  PQfinish(conn);
}

static void test_acked_says_that_it_waits(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 100, 20);
  struct relay *relay = relay_start(
      stack, ARGS("run", "--lanes", LANES_TEXT, "--trim", "acked", "--trim-keep", "0", "--trim-every", "100ms"));
  relay_wait_log(relay, "trim_waits", NULL, NULL, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  REQUIRE(length_n(redis) == 1000, "%lld entries although nobody has read them", length_n(redis));
  redisFree(redis);
  PQfinish(conn);
}

static long long indexed_n(redisContext *redis) {
  long long n = 0;
  for (int lane = 0; lane < LANES_N; lane++) {
    n += rds_int(redis, "ZCARD outbox:{%d}:streams", lane);
  }
  return n;
}

static long long streams_n(redisContext *redis) {
  redisReply *names = rds_cmd(redis, "KEYS outbox:{*}:*:*");
  long long n = (long long)names->elements;
  freeReplyObject(names);
  return n;
}

static void test_streams_expire_and_leave_the_index(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 2000, 500, 20);
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", LANES_TEXT, "--stream", BY_AGGREGATE, "--stream-ttl",
                                                "1h", "--ensure-group", "a", "--trim-every", "100ms"));
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  long long all_n = streams_n(redis);
  REQUIRE(all_n >= 400 && indexed_n(redis) == all_n, "%lld streams, %lld indexed", all_n, indexed_n(redis));
  redisReply *names = rds_cmd(redis, "KEYS outbox:{*}:*:*");
  for (size_t i = 0; i < names->elements; i++) {
    long long ttl_ms = rds_int(redis, "PTTL %s", names->element[i]->str);
    REQUIRE(ttl_ms > 3000000 && ttl_ms <= 3600000, "%s expires in %lld ms", names->element[i]->str, ttl_ms);
  }
  /* Half of them are gone, as if they had expired. */
  for (size_t i = 0; i < names->elements / 2; i++) {
    rds_run(redis, "PEXPIRE %s 1", names->element[i]->str);
  }
  WAIT_FOR(DRAIN_MS, indexed_n(redis) == all_n - (long long)(names->elements / 2), "%lld names stay", indexed_n(redis));
  freeReplyObject(names);
  /* They come back with their next message, groups and all. */
  table_fill(conn, TABLE_PLAIN, TABLE, 2000, 500, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  WAIT_FOR(DRAIN_MS, indexed_n(redis) == all_n && streams_n(redis) == all_n, "%lld of %lld", indexed_n(redis), all_n);
  names = rds_cmd(redis, "KEYS outbox:{*}:*:*");
  for (size_t i = 0; i < names->elements; i++) {
    redisReply *groups = rds_cmd(redis, "XINFO GROUPS %s", names->element[i]->str);
    REQUIRE(groups->elements == 1, "%s has no group", names->element[i]->str);
    freeReplyObject(groups);
  }
  freeReplyObject(names);
  relay_stop(relay);
  REQUIRE(relay_count(relay, "trim_failed") == 0 && relay_count(relay, "stream_upkeep_failed") == 0, "a warning");
  redisFree(redis);
  PQfinish(conn);
}

static void test_bad_options_are_refused(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  relay_require_says(stack, 1, "maxlen=100000", ARGS("run", "--trim", "maxlen=all"), DRAIN_MS);
  relay_require_says(stack, 1, "--stream-ttl is for streams that are one of many", ARGS("run", "--stream-ttl", "1h"),
                     DRAIN_MS);
  relay_require_says(stack, 1, "--trim takes", ARGS("check", "--trim", "everything"), DRAIN_MS);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_acked_beside_consumers),   HARNESS_TEST(test_maxlen_warns_of_what_is_unread),
      HARNESS_TEST(test_acked_says_that_it_waits), HARNESS_TEST(test_streams_expire_and_leave_the_index),
      HARNESS_TEST(test_bad_options_are_refused),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
