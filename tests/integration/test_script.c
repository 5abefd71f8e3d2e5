/*
 * src/publish.lua by itself, on a real Redis: the compare-and-set, what is refused and withheld, what the journal says afterwards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "harness.h"
#include "outboxd/sha1.h"
#include "rds.h"

static struct stack *stack;

#define JOURNAL "o:{0}:journal"
#define ARGS_MAX 64

/* One call: keys, then arguments, each list ends with NULL. */
static redisReply *call(redisContext *redis, const char *verb, const char *const *keys, const char *const *args) {
  const char *argv[ARGS_MAX] = {verb};
  char sha[SHA1_HEX_BYTES], numkeys[16];
  int argc = 3, keys_n = 0;
  redisReply *reply;

  sha1_hex(embed_publish_lua, embed_publish_lua_bytes, sha);
  argv[1] = strcmp(verb, "EVAL") == 0 ? embed_publish_lua : sha;
  for (; keys[keys_n] != NULL; keys_n++)
    argv[argc++] = keys[keys_n];
  snprintf(numkeys, sizeof numkeys, "%d", keys_n);
  argv[2] = numkeys;
  for (int i = 0; args[i] != NULL; i++)
    argv[argc++] = args[i];
  REQUIRE(argc < ARGS_MAX, "too many arguments");
  reply = redisCommandArgv(redis, argc, argv, NULL);
  REQUIRE(reply != NULL, "%s", redis->errstr);
  return reply;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CALL(redis_, keys_, ...) call((redis_), "EVAL", (keys_), LIST(__VA_ARGS__))

static void assert_reply(redisReply *reply, const char *const *expected) {
  size_t n = 0;
  while (expected[n] != NULL)
    n++;
  if (reply->type == REDIS_REPLY_ERROR)
    fail_msg("%s", reply->str);
  assert_int_equal(reply->elements, n);
  for (size_t i = 0; i < n; i++) {
    if (strncmp(reply->element[i]->str, expected[i], strlen(expected[i])) != 0)
      assert_string_equal(reply->element[i]->str, expected[i]);
  }
  freeReplyObject(reply);
}

static void assert_error(redisReply *reply, const char *part) {
  assert_int_equal(reply->type, REDIS_REPLY_ERROR);
  if (strstr(reply->str, part) == NULL)
    assert_string_equal(reply->str, part);
  freeReplyObject(reply);
}

static void assert_text(redisContext *redis, const char *key, const char *expected) {
  redisReply *reply = rds_cmd(redis, "GET %s", key);
  if (expected == NULL)
    assert_int_equal(reply->type, REDIS_REPLY_NIL);
  else
    assert_string_equal(reply->str, expected);
  freeReplyObject(reply);
}

static void test_adds_and_journals(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  const char *const *keys = LIST(JOURNAL, "o:{0}");
  (void)state;
  assert_reply(CALL(redis, keys, "", "t1", "t1\n1 m1\n2 m2\n", "0", "2", "6", "0", "m1", "order", "a", "made", "{}",
                    "T1", "m2", "order", "b", "made", "null", "T2"),
               LIST("WRITTEN", "aa"));
  assert_text(redis, JOURNAL, "t1\n1 m1\n2 m2\n");
  redisReply *reply = rds_cmd(redis, "XRANGE o:{0} - +");
  static const char *const fields[] = {"message_id", "m2",   "aggregate_type", "order", "aggregate_id", "b",
                                       "event_type", "made", "payload",        "null",  "created_at",   "T2"};
  assert_int_equal(reply->elements, 2);
  assert_int_equal(reply->element[1]->element[1]->elements, 12);
  for (size_t i = 0; i < 12; i++)
    assert_string_equal(reply->element[1]->element[1]->element[i]->str, fields[i]);
  freeReplyObject(reply);

  /* Headers; carried names; the next token. */
  assert_reply(CALL(redis, keys, "t1", "t2", "t2\n1 m1\n2 m2\n3 m3\n", "2", "1", "7", "0", "m3", "order", "a", "made",
                    "{}", "T3", "{\"h\":1}"),
               LIST("WRITTEN", "a"));
  assert_text(redis, JOURNAL, "t2\n1 m1\n2 m2\n3 m3\n");
  reply = rds_cmd(redis, "XREVRANGE o:{0} + - COUNT 1");
  assert_int_equal(reply->element[0]->element[1]->elements, 14);
  assert_string_equal(reply->element[0]->element[1]->element[12]->str, "headers");
  assert_string_equal(reply->element[0]->element[1]->element[13]->str, "{\"h\":1}");
  freeReplyObject(reply);
  redisFree(redis);
}

static void test_another_token_fences(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  const char *const *keys = LIST(JOURNAL, "o:{0}");
  static const char *const journals[] = {"t1\n1 m1\n", "t12\n1 m1\n", "t\n", "t1"};
  (void)state;
  /* A token is expected, and there is no journal. */
  assert_reply(CALL(redis, keys, "t0", "t1", "t1\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
               LIST("FENCED", ""));
  assert_text(redis, JOURNAL, NULL);
  for (size_t i = 0; i < 4; i++) {
    rds_run(redis, "SET %s %s", JOURNAL, journals[i]);
    /* None is expected, and there is one. */
    assert_reply(CALL(redis, keys, "", "t2", "t2\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
                 LIST("FENCED", journals[i]));
    if (i > 0) {
      /* Neither a longer token nor a shorter one will do, nor one without its line break. */
      assert_reply(CALL(redis, keys, "t1", "t2", "t2\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
                   LIST("FENCED", journals[i]));
    }
    assert_text(redis, JOURNAL, journals[i]);
  }
  assert_int_equal(rds_int(redis, "EXISTS o:{0}"), 0);
  redisFree(redis);
}

static void test_the_same_call_twice(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  const char *const *keys = LIST(JOURNAL, "o:{0}");
  (void)state;
  for (int i = 0; i < 2; i++)
    assert_reply(CALL(redis, keys, "", "t1", "t1\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
                 i == 0 ? LIST("WRITTEN", "a") : LIST("FENCED", "t1\n1 m1\n"));
  assert_int_equal(rds_int(redis, "XLEN o:{0}"), 1);
  redisFree(redis);
}

static void test_refused_and_withheld(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  const char *const *keys = LIST(JOURNAL, "o:{0}:good", "o:{0}:bad", "o:{0}:worse");
  (void)state;
  rds_run(redis, "SET o:{0}:bad x");
  rds_run(redis, "SET o:{0}:worse x");
  rds_run(redis, "SET %s %s", JOURNAL, "t0\n7 m7\n");
  /* (o, ab) must not be taken for (oa, b). */
  assert_reply(CALL(redis, keys, "t0", "t1", "t1\n7 m7\n8 m8\n1 m1\n2 m2\n3 m3\n4 m4\n5 m5\n6 m6\n", "2", "6", "6", "0",
                    "1", "m1", "o", "x", "e", "{}", "T", "2", "m2", "o", "ab", "e", "{}", "T", "1", "m3", "o", "ab",
                    "e", "{}", "T", "1", "m4", "oa", "b", "e", "{}", "T", "3", "m5", "o", "c", "e", "{}", "T", "2",
                    "m6", "o", "c", "e", "{}", "T"),
               LIST("WRITTEN", "arwarw", "WRONGTYPE", "WRONGTYPE"));
  assert_text(redis, JOURNAL, "t1\n7 m7\n8 m8\n1 m1\n4 m4\n");
  assert_int_equal(rds_int(redis, "XLEN o:{0}:good"), 2);
  assert_text(redis, "o:{0}:bad", "x");
  redisFree(redis);
}

static void test_everything_refused(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "SET o:{0} x");
  assert_reply(
      CALL(redis, LIST(JOURNAL, "o:{0}"), "", "t1", "t1\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
      LIST("WRITTEN", "r", "WRONGTYPE"));
  assert_text(redis, JOURNAL, "t1\n");
  redisFree(redis);
}

static void test_no_messages(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  assert_reply(CALL(redis, LIST(JOURNAL), "", "t1", "t1\n5 m5\n", "1", "0", "6", "0"), LIST("WRITTEN", ""));
  assert_text(redis, JOURNAL, "t1\n5 m5\n");
  redisFree(redis);
}

static void test_exhausted_stream(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "XADD o:{0} 18446744073709551615-18446744073709551615 f v");
  assert_reply(
      CALL(redis, LIST(JOURNAL, "o:{0}"), "", "t1", "t1\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
      LIST("WRITTEN", "r", "ERR The stream has exhausted the last possible ID"));
  assert_text(redis, JOURNAL, "t1\n");
  redisFree(redis);
}

static void test_nothing_is_added_without_memory(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "CONFIG SET maxmemory 1");
  redisReply *reply =
      CALL(redis, LIST(JOURNAL, "o:{0}"), "", "t1", "t1\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T");
  rds_run(redis, "CONFIG SET maxmemory 0");
  assert_error(reply, "OOM");
  assert_text(redis, JOURNAL, NULL);
  assert_int_equal(rds_int(redis, "EXISTS o:{0}"), 0);
  redisFree(redis);
}

static void test_journal_of_another_type(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "LPUSH %s x", JOURNAL);
  assert_error(
      CALL(redis, LIST(JOURNAL, "o:{0}"), "", "t1", "t1\n1 m1\n", "0", "1", "6", "0", "m1", "o", "a", "e", "{}", "T"),
      "WRONGTYPE");
  assert_int_equal(rds_int(redis, "EXISTS o:{0}"), 0);
  redisFree(redis);
}

static void test_name_by_which_it_is_called(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  char sha[SHA1_HEX_BYTES];
  (void)state;
  rds_run(redis, "SCRIPT FLUSH");
  assert_error(call(redis, "EVALSHA", LIST(JOURNAL), LIST("", "t1", "t1\n", "0", "0", "6", "0")), "NOSCRIPT");
  redisReply *reply = rds_cmd(redis, "SCRIPT LOAD %b", embed_publish_lua, embed_publish_lua_bytes);
  sha1_hex(embed_publish_lua, embed_publish_lua_bytes, sha);
  assert_string_equal(reply->str, sha);
  freeReplyObject(reply);
  assert_reply(call(redis, "EVALSHA", LIST(JOURNAL), LIST("", "t1", "t1\n", "0", "0", "6", "0")), LIST("WRITTEN", ""));
  redisFree(redis);
}

static long long groups_n(redisContext *redis, const char *stream) {
  redisReply *reply = rds_cmd(redis, "XINFO GROUPS %s", stream);
  long long n = (long long)reply->elements;
  freeReplyObject(reply);
  return n;
}

/* The newest id's milliseconds, as the index should have them. */
static void assert_indexed(redisContext *redis, const char *index, const char *stream) {
  redisReply *last = rds_cmd(redis, "XREVRANGE %s + - COUNT 1", stream);
  redisReply *score = rds_cmd(redis, "ZSCORE %s %s", index, stream);
  assert_int_equal(strtoll(last->element[0]->element[0]->str, NULL, 10), strtoll(score->str, NULL, 10));
  freeReplyObject(last);
  freeReplyObject(score);
}

static void test_groups_index_and_expiry(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  const char *const *keys = LIST(JOURNAL, "o:{0}:a", "o:{0}:b", "o:{0}:streams");
  (void)state;
  assert_reply(CALL(redis, keys, "", "t1", "t1\n1 m1\n2 m2\n3 m3\n", "0", "3", "6", "4", "1", "60000", "g1", "g 2", "1",
                    "m1", "o", "a", "e", "{}", "T", "2", "m2", "o", "b", "e", "{}", "T", "1", "m3", "o", "a", "e", "{}",
                    "T"),
               LIST("WRITTEN", "aaa"));
  for (int i = 0; i < 2; i++) {
    const char *stream = i == 0 ? "o:{0}:a" : "o:{0}:b";
    assert_int_equal(groups_n(redis, stream), 2);
    assert_indexed(redis, "o:{0}:streams", stream);
    assert_true(rds_int(redis, "PTTL %s", stream) > 50000);
    /* From the start: both groups are given what this very call has added. */
    redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP %s c STREAMS %s >", "g1", stream);
    assert_int_equal(reply->element[0]->element[1]->elements, i == 0 ? 2 : 1);
    freeReplyObject(reply);
  }
  assert_int_equal(rds_int(redis, "ZCARD o:{0}:streams"), 2);

  /* A stream that was deleted gets its groups again, one that is there keeps those it has. */
  rds_run(redis, "DEL o:{0}:a");
  rds_run(redis, "XGROUP DESTROY o:{0}:b g1");
  assert_reply(CALL(redis, keys, "t1", "t2", "t2\n4 m4\n5 m5\n", "0", "2", "6", "3", "1", "0", "g1", "1", "m4", "o",
                    "a", "e", "{}", "T", "2", "m5", "o", "b", "e", "{}", "T"),
               LIST("WRITTEN", "aa"));
  assert_int_equal(groups_n(redis, "o:{0}:a"), 1);
  assert_int_equal(groups_n(redis, "o:{0}:b"), 1);
  assert_int_equal(rds_int(redis, "PTTL o:{0}:a"), -1);
  assert_indexed(redis, "o:{0}:streams", "o:{0}:a");

  /* One stream and the index are not two streams; a group, and no index. */
  assert_reply(CALL(redis, LIST(JOURNAL, "o:{0}:c", "o:{0}:streams"), "t2", "t3", "t3\n6 m6\n", "0", "1", "6", "2", "1",
                    "0", "m6", "o", "c", "e", "{}", "T"),
               LIST("WRITTEN", "a"));
  assert_reply(CALL(redis, LIST(JOURNAL, "o:{0}"), "t3", "t4", "t4\n7 m7\n", "0", "1", "6", "3", "0", "0", "g1", "m7",
                    "o", "c", "e", "{}", "T"),
               LIST("WRITTEN", "a"));
  assert_int_equal(rds_int(redis, "ZCARD o:{0}:streams"), 3);
  assert_int_equal(groups_n(redis, "o:{0}"), 1);
  redisFree(redis);
}

/* Whatever becomes of the index: the messages are in, each once, and the journal says so. */
static void test_index_that_cannot_be_written(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  const char *const *keys = LIST(JOURNAL, "o:{0}:a", "o:{0}:b", "o:{0}:streams");
  (void)state;
  rds_run(redis, "SET o:{0}:streams x");
  rds_run(redis, "SET o:{0}:b x");
  assert_reply(
      CALL(redis, keys, "", "t1", "t1\n1 m1\n", "0", "1", "6", "2", "1", "0", "1", "m1", "o", "a", "e", "{}", "T"),
      LIST("WRITTEN", "a", "WRONGTYPE"));
  assert_text(redis, JOURNAL, "t1\n1 m1\n");
  /* Behind the error of a message. */
  redisReply *reply = CALL(redis, keys, "t1", "t2", "t2\n2 m2\n3 m3\n", "0", "2", "6", "2", "1", "0", "2", "m2", "o",
                           "b", "e", "{}", "T", "1", "m3", "o", "a", "e", "{}", "T");
  assert_int_equal(reply->elements, 4);
  assert_non_null(strstr(reply->element[3]->str, "ZADD o:{0}:streams"));
  assert_reply(reply, LIST("WRITTEN", "ra", "WRONGTYPE", "WRONGTYPE"));
  assert_text(redis, JOURNAL, "t2\n3 m3\n");
  assert_int_equal(rds_int(redis, "XLEN o:{0}:a"), 2);
  assert_text(redis, "o:{0}:streams", "x");
  redisFree(redis);
}

/* Data can name a stream as the index is named: that message is refused, before there is an index too. */
static void test_stream_named_as_the_index(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  assert_reply(CALL(redis, LIST(JOURNAL, "o:{0}:streams", "o:{0}:a", "o:{0}:streams"), "", "t1", "t1\n1 m1\n2 m2\n",
                    "0", "2", "6", "2", "1", "0", "1", "m1", "o", "streams", "e", "{}", "T", "2", "m2", "o", "a", "e",
                    "{}", "T"),
               LIST("WRITTEN", "ra", "ERR the name of the stream"));
  assert_text(redis, JOURNAL, "t1\n2 m2\n");
  assert_int_equal(rds_int(redis, "ZCARD o:{0}:streams"), 1);
  redisFree(redis);
}

int main(void) {
  const struct CMUnitTest tests[] = {HARNESS_TEST(test_groups_index_and_expiry),
                                     HARNESS_TEST(test_index_that_cannot_be_written),
                                     HARNESS_TEST(test_stream_named_as_the_index),
                                     HARNESS_TEST(test_adds_and_journals),
                                     HARNESS_TEST(test_another_token_fences),
                                     HARNESS_TEST(test_the_same_call_twice),
                                     HARNESS_TEST(test_refused_and_withheld),
                                     HARNESS_TEST(test_everything_refused),
                                     HARNESS_TEST(test_no_messages),
                                     HARNESS_TEST(test_exhausted_stream),
                                     HARNESS_TEST(test_nothing_is_added_without_memory),
                                     HARNESS_TEST(test_journal_of_another_type),
                                     HARNESS_TEST(test_name_by_which_it_is_called)};
  const struct stack_options options = {.has_no_pg = true};
  return HARNESS_RUN(tests, &stack, &options);
}
