/*
 * --ensure-group and the index of stream names, by the relay: every group sees every message, every stream is in the index, and nothing of this
 * ever stands between a message and its stream.
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
#define LANES_N 16
#define DRAIN_MS 60000
#define KILLS_N 8

static struct stack *stack;

static long long groups_n(redisContext *redis, const char *stream) {
  redisReply *reply = redisCommand(redis, "XINFO GROUPS %s", stream);
  REQUIRE(reply != NULL, "%s", redis->errstr);
  long long n = reply->type == REDIS_REPLY_ARRAY ? (long long)reply->elements : -1;
  freeReplyObject(reply);
  return n;
}

/* Everything that a group is given from its start on, over all streams named. */
static long long read_all(redisContext *redis, const char *group, const char *stream) {
  long long n = 0;
  for (;;) {
    redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP %s c COUNT 1000 STREAMS %s >", group, stream);
    size_t got = reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->element[1]->elements : 0;
    freeReplyObject(reply);
    if (got == 0) {
      return n;
    }
    n += (long long)got;
  }
}

/* All streams of the server are in the index of their lane, with the time of their newest entry, and nothing else is; each has so many groups.
 * Returns how many there are. */
static long long require_indexed(redisContext *redis, long long wanted_groups_n) {
  redisReply *names = rds_cmd(redis, "KEYS outbox:{*}:*:*");
  long long indexed_n = 0;
  for (int lane = 0; lane < LANES_N; lane++) {
    indexed_n += rds_int(redis, "ZCARD outbox:{%d}:streams", lane);
  }
  REQUIRE(indexed_n == (long long)names->elements, "%lld names in the indexes, %zu streams", indexed_n,
          names->elements);
  for (size_t i = 0; i < names->elements; i++) {
    const char *name = names->element[i]->str;
    redisReply *last = rds_cmd(redis, "XINFO STREAM %s", name);
    long long ms = -1;
    for (size_t f = 0; f + 1 < last->elements; f += 2) {
      if (strcmp(last->element[f]->str, "last-generated-id") == 0) {
        ms = strtoll(last->element[f + 1]->str, NULL, 10);
      }
    }
    redisReply *score = rds_cmd(redis, "ZSCORE outbox:{%d}:streams %s", atoi(name + strlen("outbox:{")), name);
    REQUIRE(score->type == REDIS_REPLY_STRING && strtoll(score->str, NULL, 10) == ms,
            "%s is indexed with %s, its newest entry is of %lld", name, score->str != NULL ? score->str : "nothing",
            ms);
    REQUIRE(groups_n(redis, name) == wanted_groups_n, "%s has %lld groups", name, groups_n(redis, name));
    freeReplyObject(score);
    freeReplyObject(last);
  }
  long long n = (long long)names->elements;
  freeReplyObject(names);
  return n;
}

static void test_groups_of_lanes_are_there_before_messages(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char stream[64];
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--ensure-group", "notify", "--ensure-group", "analytics"));
  for (int lane = 0; lane < LANES_N; lane++) {
    snprintf(stream, sizeof stream, "outbox:{%d}", lane);
    WAIT_FOR(DRAIN_MS, groups_n(redis, stream) == 2, "%s has no groups", stream);
  }
  table_fill(conn, TABLE_PLAIN, TABLE, 3000, 100, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  /* A deleted stream is a new one, groups and all, although the relay holds its lane. */
  rds_run(redis, "DEL outbox:{3}");
  table_fill(conn, TABLE_PLAIN, TABLE, 3000, 100, 20);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  long long notify_n = 0;
  long long analytics_n = 0;
  long long entries_n = 0;
  for (int lane = 0; lane < LANES_N; lane++) {
    snprintf(stream, sizeof stream, "outbox:{%d}", lane);
    entries_n += rds_int(redis, "XLEN %s", stream);
    notify_n += read_all(redis, "notify", stream);
    analytics_n += read_all(redis, "analytics", stream);
  }
  REQUIRE(entries_n > 5000 && notify_n == entries_n && analytics_n == entries_n, "%lld entries, %lld and %lld read",
          entries_n, notify_n, analytics_n);
  REQUIRE(rds_int(redis, "EXISTS outbox:{0}:streams") == 0, "a lane template has an index");
  REQUIRE(relay_count(relay, "stream_upkeep_failed") == 0, "something failed");
  redisFree(redis);
  PQfinish(conn);
}

/* kill -9 again and again: what the script does is atomic, so the index and the groups are whole whenever one looks. */
static void test_streams_of_aggregates_while_the_relay_is_killed(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  struct prng prng = {.state = prng_seed()};
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct writer *writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                                .table = TABLE,
                                                                .threads_n = 4,
                                                                .aggregates_n = 400,
                                                                .rollback_percent = 10,
                                                                .rate = 2000,
                                                                .seed = prng_seed()});
  const char *const *args = ARGS("run", "--stream", BY_AGGREGATE, "--ensure-group", "g", "--ensure-group", "h");
  for (int i = 0; i < harness_scaled(KILLS_N); i++) {
    int64_t before_n = db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
    struct relay *relay = relay_start(stack, args);
    WAIT_FOR(DRAIN_MS, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") > before_n,
             "start %d: nothing is published", i);
    wait_out(prng_between(&prng, 0, 300));
    relay_kill(relay);
    require_indexed(redis, 2);
  }
  writer_stop(writer);
  writer_wait(writer, DRAIN_MS);
  struct relay *relay = relay_start(stack, args);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  writer_verify(writer, conn);
  check_require_good(stack, &(struct check_options){.stream = BY_AGGREGATE});
  REQUIRE(require_indexed(redis, 2) > 300, "too few streams for this test");
  redisFree(redis);
  PQfinish(conn);
}

static int64_t lane_of(PGconn *conn, const char *aggregate) {
  return db_int(conn, "SELECT ((hashtextextended('%s', 0) %% 16) + 16) %% 16", aggregate);
}

/* An index and a stream of another type: the messages of that stream die with their reason, all others are published, the index is told of. */
static void test_poison(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 600, 200, 20);
  long long lane = (long long)lane_of(conn, "7");
  rds_run(redis, "SET outbox:{%lld}:payment:7 poison", lane);
  rds_run(redis, "SET outbox:{%lld}:streams poison", (lane + 1) % LANES_N);
  struct relay *relay = relay_start(
      stack, ARGS("run", "--stream", BY_AGGREGATE, "--max-attempts", "2", "--until-empty", "--ensure-group", "g"));
  REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "the relay does not end");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts > 0 AND aggregate_id <> '7'") == 0,
          "a message was refused for the index' sake");
  const json_t *line = relay_wait_log(relay, "stream_upkeep_failed", NULL, NULL, DRAIN_MS);
  const char *error = json_string_value(json_object_get(line, "error"));
  REQUIRE(strstr(error, "WRONGTYPE") != NULL && strstr(error, "ZADD") != NULL, "it says: %s", error);
  struct check_report report =
      check_require_good(stack, &(struct check_options){.stream = BY_AGGREGATE, .max_attempts = 2, .is_dead_ok = true});
  REQUIRE(report.dead_n == 3, "%" PRId64 " dead", report.dead_n);
  /* With the key gone, the next message brings its stream back into the index. */
  rds_run(redis, "DEL outbox:{%lld}:streams", (lane + 1) % LANES_N);
  rds_run(redis, "DEL outbox:{%lld}:payment:7", lane);
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0 WHERE published_at IS NULL");
  table_fill(conn, TABLE_PLAIN, TABLE, 600, 200, 20);
  relay = relay_start(stack, ARGS("run", "--stream", BY_AGGREGATE, "--until-empty", "--ensure-group", "g"));
  REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "the relay does not end");
  require_indexed(redis, 1);
  redisFree(redis);
  PQfinish(conn);
}

/* The Redis user of an older relay, whose keys do not include the index, nor its commands the new ones: everything is published, no attempt is
 * burned; once the rights are there, the index is. */
static void test_user_without_rights_to_the_index(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char url[STACK_URL_BYTES];
  (void)state;
  rds_run(redis, "ACL SETUSER older on >secret resetkeys resetchannels -@all ~outbox:lanes ~outbox:{*}:journal "
                 "~outbox:{*}:*:* +select +client|setname +set +get +eval +evalsha +getrange +xadd +ping +info");
  snprintf(url, sizeof url, "redis://older:secret@127.0.0.1:%d", stack->redis_port.number);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 3000, 200, 20);
  struct relay *relay =
      relay_start(stack, ARGS("run", "--redis", url, "--stream", BY_AGGREGATE, "--ensure-group", "g"));
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_wait_log(relay, "stream_upkeep_failed", NULL, NULL, DRAIN_MS);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts > 0") == 0, "attempts were burned");
  REQUIRE(rds_int(redis, "EXISTS outbox:{0}:streams") == 0, "there is an index");
  /* A stream that it may not write among them is found all the same. */
  rds_run(redis, "ACL SETUSER older resetkeys ~outbox:lanes ~outbox:{*}:journal ~outbox:{*}:order:*");
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                "SELECT gen_random_uuid(), CASE WHEN i = 5 THEN 'secret' ELSE 'order' END, i::text, 'x', '{}' "
                "FROM generate_series(1, 20) i");
  wait_sql_int(conn, 1, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND attempts > 0");
  wait_sql_int(conn, 1, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL");
  rds_run(redis, "ACL SETUSER older allkeys +@all");
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                "SELECT gen_random_uuid(), 'order', 'new', 'x', '{}'");
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  char stream[64];
  long long lane = (long long)lane_of(conn, "new");
  snprintf(stream, sizeof stream, "outbox:{%lld}:order:new", lane);
  REQUIRE(rds_int(redis, "ZCOUNT outbox:{%lld}:streams -inf +inf", lane) > 0, "no index although it may be written");
  REQUIRE(groups_n(redis, stream) == 1, "no group although it may be made");
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.stream = BY_AGGREGATE});
  rds_run(redis, "ACL DELUSER older");
  redisFree(redis);
  PQfinish(conn);
}

/* Redis runs full under load: calls are refused as a whole, and afterwards streams, index and groups agree. */
static void test_redis_full(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--stream", BY_AGGREGATE, "--ensure-group", "g"));
  for (int i = 0; i < 5; i++) {
    table_fill(conn, TABLE_PLAIN, TABLE, 500, 100, 200);
    rds_run(redis, "CONFIG SET maxmemory 1");
    table_fill(conn, TABLE_PLAIN, TABLE, 500, 150, 200);
    if (i == 0) {
      relay_wait_log(relay, "redis_down", NULL, NULL, DRAIN_MS);
    }
    require_indexed(redis, 1);
    rds_run(redis, "CONFIG SET maxmemory 0");
  }
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.stream = BY_AGGREGATE});
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts > 0") == 0, "attempts were burned");
  require_indexed(redis, 1);
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_groups_of_lanes_are_there_before_messages),
      HARNESS_TEST(test_streams_of_aggregates_while_the_relay_is_killed),
      HARNESS_TEST(test_poison),
      HARNESS_TEST(test_user_without_rights_to_the_index),
      HARNESS_TEST(test_redis_full),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
