/*
 * A publisher against a real Redis: outcomes, order within an epoch, the journal, lanes taken over.
 */
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "pubrig.h"
#include "rds.h"
#include "wait.h"

static struct stack *stack;

/* The message_ids of a stream, separated by spaces.  Static memory. */
static const char *stream_ids(redisContext *redis, const char *stream) {
  static char text[65536];
  size_t n = 0;
  redisReply *reply = rds_cmd(redis, "XRANGE %s - +", stream);
  text[0] = '\0';
  for (size_t i = 0; i < reply->elements; i++) {
    const redisReply *fields = reply->element[i]->element[1];
    REQUIRE(strcmp(fields->element[0]->str, "message_id") == 0, "the first field is %s", fields->element[0]->str);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "", fields->element[1]->str);
    REQUIRE(n < sizeof text, "too many entries");
  }
  freeReplyObject(reply);
  return text;
}

/* The names (message_ids) in a lane's journal, separated by spaces.  Static memory. */
static const char *journal_ids(redisContext *redis, int lane) {
  static char text[65536];
  struct journal_names *names;
  struct err err = ERR_INIT;
  size_t n = 0;
  redisReply *reply = rds_cmd(redis, "GET outbox:{%d}:journal", lane);
  if (journal_parse(reply->str, reply->str != NULL ? reply->len : 0, &names, &err) != 0)
    FAIL("%s", err.text);
  text[0] = '\0';
  for (int i = 0; i < names->n; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "", names->v[i].message_id);
  journal_names_free(names);
  freeReplyObject(reply);
  return text;
}

#define assert_outcomes(batch_, expected_)                                                 \
  do {                                                                                     \
    char outcomes_[4096];                                                                  \
    assert_string_equal(rig_outcomes((batch_), outcomes_, sizeof outcomes_), (expected_)); \
  } while (0)

static void test_publishes_in_order_with_all_fields(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  assert_int_equal(rig_take(&rig, 0, false), 0);
  assert_int_equal(rig_take(&rig, 1, false), 0);
  struct batch *batch =
      rig_batch(&rig,
                (struct rig_row[]){{1, 0, "order", "a b\n\"", "{\"x\": 1.50}", "id", NULL, 0},
                                   {2, 1, "order", "7", "null", "id", "{\"h\": 1}", 0},
                                   {3, 0, "", "\xf0\x9f\x98\x80", "\"p\\u0041\"", "%we ird", "[]", 0}},
                3);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "ppp");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 %we ird");
  assert_string_equal(journal_ids(redis, 0), "m-1 %we ird");

  redisReply *reply = rds_cmd(redis, "XRANGE outbox:{0} - + COUNT 1");
  const redisReply *fields = reply->element[0]->element[1];
  static const char *const names[] = {"message_id", "aggregate_type", "aggregate_id", "event_type",
                                      "payload",    "created_at",     "headers"};
  static const char *const values[] = {"m-1", "order", "a b\n\"", "created", "{\"x\": 1.50}", NULL, ""};
  assert_int_equal(fields->elements, 14);
  for (size_t i = 0; i < 7; i++) {
    assert_string_equal(fields->element[2 * i]->str, names[i]);
    if (values[i] != NULL)
      assert_string_equal(fields->element[2 * i + 1]->str, values[i]);
  }
  char expected[CLOCK_RFC3339_BYTES];
  clock_format_rfc3339(batch->msgs[0].created_us, expected);
  assert_string_equal(fields->element[11]->str, expected);
  freeReplyObject(reply);

  struct histogram *lag = calloc(1, sizeof *lag);
  struct histogram *round_trip = calloc(1, sizeof *round_trip);
  struct publisher_stats stats;
  WAIT_FOR(5000, (stats = rig_stats(&rig)).published_n == 3, "published_n is %lld", (long long)stats.published_n);
  assert_int_equal(stats.connects_n, 1);
  assert_int_equal(stats.calls_n, 2);
  assert_int_equal(stats.writes_n, 1); /* both lanes in one round trip */
  assert_true(stats.is_connected);
  publisher_read_stats(rig.publisher, &stats, round_trip, lag);
  free(lag);
  free(round_trip);
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_names_are_carried_until_settled(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 2, false);
  struct batch *first = rig_simple_batch(&rig, 2, 1, 2, 2);
  struct batch *second = rig_simple_batch(&rig, 2, 3, 2, 2);
  struct batch *third = rig_simple_batch(&rig, 2, 5, 1, 1);
  rig_publish(&rig, first, NULL);
  rig_publish(&rig, second, NULL);
  assert_string_equal(journal_ids(redis, 2), "m-1 m-2 m-3 m-4");
  rig_settle(&rig, &first);
  rig_publish(&rig, third, NULL);
  assert_string_equal(journal_ids(redis, 2), "m-3 m-4 m-5");
  rig_settle(&rig, &second);
  rig_settle(&rig, &third);
  struct batch *last = rig_simple_batch(&rig, 2, 6, 1, 1);
  rig_publish(&rig, last, NULL);
  assert_string_equal(journal_ids(redis, 2), "m-6");
  assert_string_equal(stream_ids(redis, "outbox:{2}"), "m-1 m-2 m-3 m-4 m-5 m-6");
  rig_settle(&rig, &last);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_inherited_message_is_not_added_again(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  struct batch *batch = rig_simple_batch(&rig, 0, 1, 3, 3);
  rig_publish(&rig, batch, NULL);
  batch_unref(&batch); /* the relay dies before it settles */
  rig_stop(&rig);

  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  assert_int_equal(rig_take(&rig, 0, false), 3);
  batch = rig_simple_batch(&rig, 0, 2, 4, 4); /* 2 and 3 are in the stream, 4 and 5 are not */
  rig_publish(&rig, batch, NULL);
  assert_outcomes(batch, "pppp");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-2 m-3 m-4 m-5");
  /* All names travel on until their batch is settled; 1 was not claimed and stays. */
  assert_string_equal(journal_ids(redis, 0), "m-1 m-2 m-3 m-4 m-5");
  rig_settle(&rig, &batch);
  batch = rig_simple_batch(&rig, 0, 6, 1, 1);
  rig_publish(&rig, batch, NULL);
  assert_string_equal(journal_ids(redis, 0), "m-1 m-6");
  struct publisher_stats stats;
  WAIT_FOR(5000, (stats = rig_stats(&rig)).published_n == 3, "published_n is %lld", (long long)stats.published_n);
  assert_int_equal(stats.inherited_n, 2);
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_batch_given_back_is_not_added_again(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  struct batch *batch = rig_simple_batch(&rig, 0, 1, 2, 2);
  rig_publish(&rig, batch, NULL);
  batch_unref(&batch); /* rolled back: nothing says that it is settled */
  rig_next_epoch(&rig);
  batch = rig_simple_batch(&rig, 0, 1, 3, 3);
  rig_publish(&rig, batch, NULL);
  assert_outcomes(batch, "ppp");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-2 m-3");
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_foreign_write_fences(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  struct batch *batch = rig_simple_batch(&rig, 0, 1, 1, 1);
  rig_publish(&rig, batch, NULL);
  rig_settle(&rig, &batch);
  rds_run(redis, "SET outbox:{0}:journal %s", "somebody-else\n1 m-1\n");
  batch = rig_batch(&rig,
                    (struct rig_row[]){{2, 0, "t", "a", "{}", "id", "none", 0},
                                       {3, 1, "t", "b", "{}", "id", "none", 0},
                                       {4, 0, "t", "a", "{}", "id", "none", 0}},
                    3);
  rig_push_batch(&rig, JOB_PUBLISH, batch);
  struct note *note = rig_expect(&rig, NOTE_LANE_LOST, 0);
  assert_true(note->is_fenced);
  rig_free_note(note);
  note = rig_expect(&rig, NOTE_DONE, -1);
  assert_true(note->is_give_back);
  rig_free_note(note);
  assert_outcomes(batch, "wpw");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1");
  batch_unref(&batch);

  /* The rest of the epoch is withheld even when the lane was taken over again. */
  assert_int_equal(rig_take(&rig, 0, true), 1);
  batch = rig_simple_batch(&rig, 0, 5, 1, 1);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "w");
  batch_unref(&batch);
  rig_next_epoch(&rig);
  batch = rig_simple_batch(&rig, 0, 2, 2, 2);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "pp");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-2 m-3");
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_deleted_journal_fences(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  int lost_n = 0;
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  struct batch *batch = rig_simple_batch(&rig, 0, 1, 1, 1);
  rig_publish(&rig, batch, NULL);
  rig_settle(&rig, &batch);
  rds_run(redis, "FLUSHALL");
  batch = rig_simple_batch(&rig, 0, 2, 1, 1);
  assert_true(rig_publish(&rig, batch, &lost_n));
  assert_int_equal(lost_n, 1);
  assert_outcomes(batch, "w");
  batch_unref(&batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_refused_message_stops_its_aggregate(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig.stream = "outbox:{%l}:%i";
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rds_run(redis, "SET outbox:{0}:bad x");
  struct rig_row rows[] = {{1, 0, "t", "good", "{}", "id", "none", 0}, {2, 0, "t", "bad", "{}", "id", "none", 0},
                           {3, 0, "t", "bad", "{}", "id", "none", 0},  {4, 0, "u", "bad", "{}", "id", "none", 0},
                           {5, 0, "t", "good", "{}", "id", "none", 0}, {6, 0, "t", "none", "{}", NULL, "none", 0},
                           {7, 0, "t", "none", "{}", "id", "none", 0}, {8, 0, "t", "empty", "{}", "", "none", 0}};
  struct batch *batch = rig_batch(&rig, rows, 8);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "pfwfpfwf");
  assert_non_null(strstr(rig_error(batch, 2), "stream outbox:{0}:bad: WRONGTYPE"));
  assert_non_null(strstr(rig_error(batch, 6), "NULL"));
  assert_non_null(strstr(rig_error(batch, 8), "empty"));
  assert_string_equal(journal_ids(redis, 0), "m-1 m-5");
  rig_settle(&rig, &batch);

  /* Later in the epoch: still stopped, although the stream would take it now. */
  rds_run(redis, "DEL outbox:{0}:bad");
  batch = rig_batch(
      &rig, (struct rig_row[]){{9, 0, "t", "bad", "{}", "id", "none", 0}, {10, 0, "t", "good", "{}", "id", "none", 0}},
      2);
  rig_publish(&rig, batch, NULL);
  assert_outcomes(batch, "wp");
  rig_settle(&rig, &batch);
  rig_next_epoch(&rig);
  batch = rig_batch(&rig, rows + 1, 3);
  rig_publish(&rig, batch, NULL);
  assert_outcomes(batch, "ppp");
  assert_string_equal(stream_ids(redis, "outbox:{0}:bad"), "m-2 m-3 m-4");
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_closed_lane_withholds(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  struct batch *batch = rig_simple_batch(&rig, 3, 1, 3, 1);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "www");
  batch_unref(&batch);
  rig_take(&rig, 3, false);
  rig_push(&rig, JOB_DROP, 3);
  batch = rig_simple_batch(&rig, 3, 1, 3, 1);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "www");
  batch_unref(&batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void count_done(struct rig *rig, int n) {
  for (int i = 0; i < n; i++)
    rig_free_note(rig_expect(rig, NOTE_DONE, -1));
}

static void test_many_messages_over_many_streams(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  struct batch *batches[4];
  char outcomes[4096];
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig.stream = "outbox:{%l}:%i";
  rig.cfg.max_write_bytes = 64 * 1024;
  rig_start(&rig);
  for (int lane = 0; lane < 4; lane++)
    rig_take(&rig, lane, false);
  /* All queued at once: they share writes, none of which holds one lane's all. */
  for (int lane = 0; lane < 4; lane++) {
    batches[lane] = rig_simple_batch(&rig, lane, 1 + 10000 * lane, 3000, 300);
    rig_push_batch(&rig, JOB_PUBLISH, batches[lane]);
  }
  count_done(&rig, 4);
  for (int lane = 0; lane < 4; lane++) {
    rig_outcomes(batches[lane], outcomes, sizeof outcomes);
    assert_int_equal(strspn(outcomes, "p"), 3000);
    for (int i = 0; i < 300; i++) {
      char expected[512] = "";
      char stream[64];
      size_t n = 0;
      for (int nth = 0; nth < 10; nth++)
        n += (size_t)snprintf(expected + n, sizeof expected - n, "%sm-%d", nth > 0 ? " " : "",
                              1 + 10000 * lane + i + 300 * nth);
      snprintf(stream, sizeof stream, "outbox:{%d}:a%d", lane, i);
      assert_string_equal(stream_ids(redis, stream), expected);
    }
    rig_settle(&rig, &batches[lane]);
  }
  struct publisher_stats stats;
  WAIT_FOR(5000, (stats = rig_stats(&rig)).published_n == 12000, "published_n is %lld", (long long)stats.published_n);
  assert_true(stats.writes_n > 12000 * 150 / (64 * 1024));
  rig_stop(&rig);
  redisFree(redis);
}

static void test_runs_of_several_batches_share_a_call(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  struct batch *batches[3];
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  stack_redis_freeze(stack);
  for (int i = 0; i < 3; i++) {
    batches[i] = rig_simple_batch(&rig, 0, 1 + 10 * i, 2, 1);
    rig_push_batch(&rig, JOB_PUBLISH, batches[i]);
  }
  stack_redis_thaw(stack);
  count_done(&rig, 3);
  assert_string_equal(journal_ids(redis, 0), "m-1 m-2 m-11 m-12 m-21 m-22");
  /* The names of each batch go when it is settled, no sooner. */
  rig_settle(&rig, &batches[1]);
  struct batch *last = rig_simple_batch(&rig, 0, 31, 1, 1);
  rig_publish(&rig, last, NULL);
  assert_string_equal(journal_ids(redis, 0), "m-1 m-2 m-21 m-22 m-31");
  rig_settle(&rig, &batches[0]);
  rig_settle(&rig, &batches[2]);
  rig_settle(&rig, &last);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_another_fleet_is_fatal(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "SET outbox:lanes %s", "{\"lanes\":16}");
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_push(&rig, JOB_TAKE, 0);
  rig_free_note(rig_expect(&rig, NOTE_TAKE_FAILED, 0));
  struct note *note = rig_expect(&rig, NOTE_FATAL, -1);
  assert_non_null(strstr(note->err.text, "{\"lanes\":16}"));
  assert_non_null(strstr(note->err.text, RIG_FLEET));
  rig_free_note(note);
  rig_stop(&rig);
  redisFree(redis);
}

int main(void) {
  const struct CMUnitTest tests[] = {HARNESS_TEST(test_publishes_in_order_with_all_fields),
                                     HARNESS_TEST(test_names_are_carried_until_settled),
                                     HARNESS_TEST(test_inherited_message_is_not_added_again),
                                     HARNESS_TEST(test_batch_given_back_is_not_added_again),
                                     HARNESS_TEST(test_foreign_write_fences),
                                     HARNESS_TEST(test_deleted_journal_fences),
                                     HARNESS_TEST(test_refused_message_stops_its_aggregate),
                                     HARNESS_TEST(test_closed_lane_withholds),
                                     HARNESS_TEST(test_many_messages_over_many_streams),
                                     HARNESS_TEST(test_runs_of_several_batches_share_a_call),
                                     HARNESS_TEST(test_another_fleet_is_fatal)};
  log_setup(LOG_CRITICAL, LOG_TEXT);
  return HARNESS_RUN(tests, &stack, &(struct stack_options){.has_no_pg = true});
}
