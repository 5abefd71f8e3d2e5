/*
 * A publisher and a Redis that fails it in every way: nothing is lost, added twice or blamed on a message that cannot help it.
 */
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "outboxd/log.h"
#include "proxy.h"
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
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "",
                          reply->element[i]->element[1]->element[1]->str);
    REQUIRE(n < sizeof text, "too many entries");
  }
  freeReplyObject(reply);
  return text;
}

#define assert_outcomes(batch_, expected_)                                                 \
  do {                                                                                     \
    char outcomes_[4096];                                                                  \
    assert_string_equal(rig_outcomes((batch_), outcomes_, sizeof outcomes_), (expected_)); \
  } while (0)

/* Publishes in an epoch of its own until nothing is withheld any more, taking lanes over again as they are lost; returns the number of tries. */
static int publish_until_done(struct rig *rig, const struct rig_row *rows, int n) {
  for (int tries_n = 1; tries_n < 100; tries_n++) {
    bool is_lost[RIG_LANES_N] = {false};
    char outcomes[256];
    struct batch *batch;
    bool is_done = false;
    rig_next_epoch(rig);
    batch = rig_batch(rig, rows, n);
    rig_push_batch(rig, JOB_PUBLISH, batch);
    while (!is_done) {
      struct note *note = rig_note(rig, 30000);
      REQUIRE(note->kind == NOTE_DONE || note->kind == NOTE_LANE_LOST, "note %d: %s", (int)note->kind, note->err.text);
      REQUIRE(!note->is_fenced && !note->is_give_back, "fenced although nobody else writes: %s", note->err.text);
      is_done = note->kind == NOTE_DONE;
      is_lost[note->lane] |= note->kind == NOTE_LANE_LOST;
      rig_free_note(note);
    }
    rig_outcomes(batch, outcomes, sizeof outcomes);
    REQUIRE(strchr(outcomes, 'f') == NULL, "failed: %s", outcomes);
    /* Given back, so that the journal has to say what is in the streams. */
    batch_unref(&batch);
    for (int lane = 0; lane < RIG_LANES_N; lane++) {
      if (is_lost[lane])
        rig_retake(rig, lane, false);
    }
    if (strchr(outcomes, 'w') == NULL)
      return tries_n;
  }
  FAIL("not published after 100 tries");
}

static const struct rig_row four_rows[] = {{1, 0, "t", "a", "{}", "id", "none", 0},
                                           {2, 1, "t", "b", "{}", "id", "none", 0},
                                           {3, 0, "t", "a", "{}", "id", "none", 0},
                                           {4, 1, "t", "c", "{}", "id", "none", 0}};

/* The connection is cut after n bytes of the first write, for every n; in one direction the write is cut, in the other its reply is lost. */
static void sweep(enum proxy_direction direction, int64_t step) {
  for (int64_t cut = 1;; cut += step) {
    struct rig rig;
    struct proxy *proxy;
    redisContext *redis;
    int64_t before;
    stack_reset(stack);
    redis = rds_open(stack->redis_url);
    proxy = proxy_start(stack->redis_port.number);
    rig_init(&rig, stack->redis_url);
    snprintf(rig.url_text, sizeof rig.url_text, "redis://127.0.0.1:%d", proxy_port(proxy));
    rig_start(&rig);
    rig_take(&rig, 0, false);
    rig_take(&rig, 1, false);
    before = proxy_bytes(proxy, direction);
    proxy_cut_after(proxy, direction, cut);
    assert_int_equal(publish_until_done(&rig, four_rows, 4), 1);
    assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-3");
    assert_string_equal(stream_ids(redis, "outbox:{1}"), "m-2 m-4");
    bool is_over = !proxy_has_cut(proxy);
    rig_stop(&rig);
    proxy_stop(proxy);
    redisFree(redis);
    if (is_over) {
      assert_true(cut > 30 && before > 0);
      return;
    }
  }
}

static void test_write_cut_all_along(void **state) {
  (void)state;
  sweep(PROXY_TO_SERVER, 7);
}

static void test_reply_cut_at_every_byte(void **state) {
  (void)state;
  sweep(PROXY_TO_CLIENT, 1);
}

static void test_connection_killed_while_idle(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rds_run(redis, "CLIENT KILL TYPE normal SKIPME yes");
  struct batch *batch = rig_simple_batch(&rig, 0, 1, 2, 1);
  rig_publish(&rig, batch, NULL);
  assert_outcomes(batch, "pp");
  rig_settle(&rig, &batch);
  WAIT_FOR(5000, rig_stats(&rig).connects_n == 2, "connects_n is %lld", (long long)rig_stats(&rig).connects_n);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_script_flushed(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  for (int i = 0; i < 3; i++) {
    rds_run(redis, "SCRIPT FLUSH");
    rig_next_epoch(&rig);
    struct batch *batch = rig_batch(&rig, four_rows, 4);
    rig_publish(&rig, batch, NULL);
    assert_outcomes(batch, "pppp");
    batch_unref(&batch);
  }
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-3");
  rig_stop(&rig);
  redisFree(redis);
}

static void test_redis_hangs(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  int lost_n = 0;
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig.cfg.redis_timeout_ms = 300;
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  stack_redis_freeze(stack);
  struct batch *batch = rig_batch(&rig, four_rows, 4);
  assert_false(rig_publish(&rig, batch, &lost_n));
  assert_outcomes(batch, "wwww");
  assert_int_equal(lost_n, 2);
  batch_unref(&batch);
  /* What needs no Redis is answered meanwhile. */
  batch = rig_batch(&rig, four_rows, 4);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "wwww");
  batch_unref(&batch);
  rig_push(&rig, JOB_TAKE, 0);
  rig_free_note(rig_expect(&rig, NOTE_TAKE_FAILED, 0));
  stack_redis_thaw(stack);
  rig_retake(&rig, 0, false);
  rig_retake(&rig, 1, false);
  publish_until_done(&rig, four_rows, 4);
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-3");
  assert_string_equal(stream_ids(redis, "outbox:{1}"), "m-2 m-4");
  rig_stop(&rig);
  redisFree(redis);
}

static void test_redis_killed_and_restarted(void **state) {
  struct rig rig;
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig.cfg.redis_timeout_ms = 30000;
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  for (int i = 0; i < 3; i++) {
    char expected[64];
    stack_redis_kill(stack);
    rig_next_epoch(&rig);
    struct batch *batch = rig_simple_batch(&rig, 0, 1 + i, 1, 1);
    rig_push_batch(&rig, JOB_PUBLISH, batch);
    stack_redis_restart(stack);
    struct note *note = rig_expect(&rig, NOTE_DONE, -1); /* the very same call was sent again: no lane is lost */
    rig_free_note(note);
    assert_outcomes(batch, "p");
    rig_settle(&rig, &batch);
    redisContext *redis = rds_open(stack->redis_url);
    snprintf(expected, sizeof expected, "%s", i == 0 ? "m-1" : i == 1 ? "m-1 m-2" : "m-1 m-2 m-3");
    assert_string_equal(stream_ids(redis, "outbox:{0}"), expected);
    redisFree(redis);
  }
  rig_stop(&rig);
}

static void test_redis_down_for_longer(void **state) {
  struct rig rig;
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig.cfg.redis_timeout_ms = 300;
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  stack_redis_kill(stack);
  struct batch *batch = rig_batch(&rig, four_rows, 4);
  int lost_n = 0;
  assert_false(rig_publish(&rig, batch, &lost_n));
  assert_int_equal(lost_n, 2);
  assert_outcomes(batch, "wwww");
  batch_unref(&batch);
  for (int i = 0; i < 3; i++) {
    rig_push(&rig, JOB_TAKE, 0);
    rig_free_note(rig_expect(&rig, NOTE_TAKE_FAILED, 0));
  }
  stack_redis_restart(stack);
  rig_retake(&rig, 0, false);
  rig_retake(&rig, 1, false);
  publish_until_done(&rig, four_rows, 4);
  redisContext *redis = rds_open(stack->redis_url);
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-3");
  redisFree(redis);
  rig_stop(&rig);
}

/* Redis refuses every write for a reason of its own: no message is to blame, and nothing is added. */
static void refuse_and_recover(const char *const *refuse, const char *const *recover, const char *code) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  for (int i = 0; refuse[i] != NULL; i++)
    rds_run(redis, refuse[i]);
  struct batch *batch = rig_batch(&rig, four_rows, 4);
  rig_push_batch(&rig, JOB_PUBLISH, batch);
  struct note *note = rig_expect(&rig, NOTE_LANE_LOST, -1);
  assert_string_equal(note->err.code, code);
  assert_int_equal(note->err.class, ERR_RETRY);
  rig_free_note(note);
  rig_free_note(rig_expect(&rig, NOTE_LANE_LOST, -1));
  rig_free_note(rig_expect(&rig, NOTE_DONE, -1));
  assert_outcomes(batch, "wwww");
  batch_unref(&batch);
  /* A lane is not taken over while it could not be written. */
  rig_push(&rig, JOB_TAKE, 0);
  note = rig_expect(&rig, NOTE_TAKE_FAILED, 0);
  assert_string_equal(note->err.code, code);
  rig_free_note(note);
  for (int i = 0; recover[i] != NULL; i++)
    rds_run(redis, recover[i]);
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "");
  rig_retake(&rig, 0, false);
  rig_retake(&rig, 1, false);
  publish_until_done(&rig, four_rows, 4);
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-3");
  rig_stop(&rig);
  redisFree(redis);
}

static void test_out_of_memory(void **state) {
  (void)state;
  refuse_and_recover((const char *[]){"CONFIG SET maxmemory 1", NULL}, (const char *[]){"CONFIG SET maxmemory 0", NULL},
                     "OOM");
}

static void test_read_only_replica(void **state) {
  (void)state;
  /* The master it is told of does not exist, so that its data stay. */
  refuse_and_recover((const char *[]){"REPLICAOF 127.0.0.1 1", NULL}, (const char *[]){"REPLICAOF NO ONE", NULL},
                     "READONLY");
}

static void test_too_few_replicas_to_write(void **state) {
  (void)state;
  refuse_and_recover((const char *[]){"CONFIG SET min-replicas-to-write 1", NULL},
                     (const char *[]){"CONFIG SET min-replicas-to-write 0", NULL}, "NOREPLICAS");
}

static void test_journal_of_another_type(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  int lost_n = 0;
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  rds_run(redis, "LPUSH outbox:{0}:journal x");
  struct batch *batch = rig_batch(&rig, four_rows, 4);
  assert_false(rig_publish(&rig, batch, &lost_n));
  assert_outcomes(batch, "wpwp"); /* the other lane does not care */
  assert_int_equal(lost_n, 1);
  rig_settle(&rig, &batch);
  rig_push(&rig, JOB_TAKE, 0);
  struct note *note = rig_expect(&rig, NOTE_TAKE_FAILED, 0);
  assert_string_equal(note->err.code, "WRONGTYPE");
  rig_free_note(note);
  rds_run(redis, "DEL outbox:{0}:journal");
  rds_run(redis, "SET outbox:{0}:journal %s", "something else");
  rig_push(&rig, JOB_TAKE, 0);
  note = rig_expect(&rig, NOTE_TAKE_FAILED, 0); /* never taken for an empty one */
  rig_free_note(note);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_value_redis_does_not_take(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  static char payload[3 * 1024 * 1024];
  (void)state;
  memset(payload, 'x', sizeof payload - 1);
  rds_run(redis, "CONFIG SET proto-max-bulk-len 1mb");
  rig_init(&rig, stack->redis_url);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  struct batch *batch = rig_batch(&rig,
                                  (struct rig_row[]){{1, 0, "t", "a", "{}", "id", "none", 0},
                                                     {2, 1, "t", "b", "{}", "id", "none", 0},
                                                     {3, 0, "t", "big", payload, "id", "none", 0},
                                                     {4, 0, "t", "a", "{}", "id", "none", 0}},
                                  4);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "ppfp");
  assert_non_null(strstr(rig_error(batch, 3), "Protocol error"));
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-4");
  rds_run(redis, "CONFIG SET proto-max-bulk-len 512mb");
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  redisFree(redis);
}

static void test_key_denied_by_acl(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "ACL SETUSER relay on >secret +@all ~outbox:lanes ~outbox:{*}:journal ~outbox:{*}:a ~outbox:{1}");
  rig_init(&rig, stack->redis_url);
  rig.stream = "outbox:{%l}:%i";
  snprintf(rig.url_text, sizeof rig.url_text, "redis://relay:secret@127.0.0.1:%d", stack->redis_port.number);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  struct rig_row rows[] = {{1, 0, "t", "a", "{}", "id", "none", 0},
                           {2, 0, "t", "denied", "{}", "id", "none", 0},
                           {3, 0, "t", "a", "{}", "id", "none", 0},
                           {4, 0, "t", "denied", "{}", "id", "none", 0}};
  struct batch *batch = rig_batch(&rig, rows, 4);
  assert_false(rig_publish(&rig, batch, NULL));
  assert_outcomes(batch, "pfpw");
  assert_non_null(strstr(rig_error(batch, 2), "NOPERM"));
  assert_string_equal(stream_ids(redis, "outbox:{0}:a"), "m-1 m-3");
  rig_settle(&rig, &batch);

  /* The journal itself denied: nobody's fault but the infrastructure's. */
  rds_run(redis, "ACL SETUSER relay resetkeys ~outbox:lanes ~outbox:{*}:a");
  rig_next_epoch(&rig);
  int lost_n = 0;
  batch = rig_batch(&rig, (struct rig_row[]){{5, 0, "t", "a", "{}", "id", "none", 0}}, 1);
  assert_false(rig_publish(&rig, batch, &lost_n));
  assert_outcomes(batch, "w");
  assert_int_equal(lost_n, 1);
  batch_unref(&batch);

  /* The command denied. */
  rds_run(redis, "ACL SETUSER relay allkeys -xadd");
  rig_next_epoch(&rig);
  rig_retake(&rig, 0, false);
  lost_n = 0;
  batch = rig_batch(&rig, (struct rig_row[]){{5, 0, "t", "a", "{}", "id", "none", 0}}, 1);
  assert_false(rig_publish(&rig, batch, &lost_n));
  assert_outcomes(batch, "w");
  assert_int_equal(lost_n, 1);
  batch_unref(&batch);
  rig_stop(&rig);
  rds_run(redis, "ACL DELUSER relay");
  redisFree(redis);
}

/* docs/redis.md "Commands and permissions". */
static void test_documented_permissions_suffice(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis,
          "ACL SETUSER outboxd on >secret resetchannels -@all ~outbox:* +set +get +getrange +xadd +eval +evalsha "
          "+select +client|setname +wait");
  rds_run(redis, "SCRIPT FLUSH");
  rig_init(&rig, stack->redis_url);
  snprintf(rig.url_text, sizeof rig.url_text, "redis://outboxd:secret@127.0.0.1:%d/3", stack->redis_port.number);
  rig_start(&rig);
  rig_take(&rig, 0, false);
  rig_take(&rig, 1, false);
  assert_int_equal(publish_until_done(&rig, four_rows, 4), 1);
  rds_run(redis, "SELECT 3");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-3");
  rig_stop(&rig);
  rds_run(redis, "ACL DELUSER outboxd");
  redisFree(redis);
}

static void test_wrong_password(void **state) {
  struct rig rig;
  (void)state;
  rig_init(&rig, stack->redis_url);
  snprintf(rig.url_text, sizeof rig.url_text, "redis://relay:sesame@127.0.0.1:%d", stack->redis_port.number);
  rig_start(&rig);
  rig_push(&rig, JOB_TAKE, 0);
  rig_free_note(rig_expect(&rig, NOTE_TAKE_FAILED, 0));
  struct note *note = rig_expect(&rig, NOTE_FATAL, -1);
  assert_string_equal(note->err.code, "WRONGPASS");
  assert_null(strstr(note->err.text, "sesame"));
  rig_free_note(note);
  rig_stop(&rig);
}

static void test_stop_and_abort_while_redis_hangs(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct rig rig;
    int64_t began_ms;
    rig_init(&rig, stack->redis_url);
    rig.cfg.redis_timeout_ms = 60000;
    rig_start(&rig);
    rig_take(&rig, 0, false);
    stack_redis_freeze(stack);
    struct batch *batch = rig_simple_batch(&rig, 0, 1, 1, 1);
    if (i == 0)
      rig_push_batch(&rig, JOB_PUBLISH, batch);
    else
      rig_push(&rig, JOB_TAKE, 1);
    began_ms = wait_now_ms();
    if (i == 0)
      stop_set(rig.abort);
    rig_stop(&rig); /* while a lane is being taken, stopping alone is enough */
    assert_true(wait_now_ms() - began_ms < wait_scaled_ms(5000));
    assert_outcomes(batch, i == 0 ? "w" : ".");
    batch_unref(&batch);
    stack_redis_thaw(stack);
  }
}

static void test_replicas_are_waited_for(void **state) {
  struct rig rig;
  struct port port = PORT_INIT;
  struct proc replica = {.pid = 0};
  char number[16], master[16], url[64];
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  port_take(&port);
  snprintf(number, sizeof number, "%d", port.number);
  snprintf(master, sizeof master, "%d", stack->redis_port.number);
  snprintf(url, sizeof url, "redis://127.0.0.1:%d", port.number);
  rig_init(&rig, stack->redis_url);
  rig.cfg.wait_replicas_n = 1;
  rig.cfg.redis_timeout_ms = 1000;
  rig_start(&rig);
  rig_push(&rig, JOB_TAKE, 0);
  struct note *note = rig_expect(&rig, NOTE_TAKE_FAILED, 0);
  assert_string_equal(note->err.code, "NOREPLICAS");
  rig_free_note(note);

  rds_run(redis, "CONFIG SET repl-diskless-sync-delay 0");
  proc_start(&replica, &(struct proc_spec){.name = "redis-replica",
                                           .argv = (const char *[]){stack_redis_server(), "--port", number, "--bind",
                                                                    "127.0.0.1", "--save", "", "--replicaof",
                                                                    "127.0.0.1", master, "--dir", stack->dir, NULL}});
  rig_retake(&rig, 0, false);
  publish_until_done(&rig, four_rows, 1); /* a replica that has only just come up may be late once */
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1");

  proc_signal(&replica, SIGSTOP);
  int lost_n = 0;
  struct batch *batch = rig_simple_batch(&rig, 0, 2, 2, 1);
  assert_false(rig_publish(&rig, batch, &lost_n));
  assert_outcomes(batch, "ww");
  assert_int_equal(lost_n, 1);
  batch_unref(&batch);
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-2 m-3");
  proc_signal(&replica, SIGCONT);
  rig_next_epoch(&rig);
  rig_retake(&rig, 0, false); /* found in the journal, waited for again, not added again */
  batch = rig_simple_batch(&rig, 0, 2, 2, 1);
  rig_publish(&rig, batch, NULL);
  assert_outcomes(batch, "pp");
  assert_string_equal(stream_ids(redis, "outbox:{0}"), "m-1 m-2 m-3");
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  proc_stop(&replica);
  port_release(&port);
  redisFree(redis);
}

int main(void) {
  const struct CMUnitTest tests[] = {HARNESS_TEST(test_write_cut_all_along),
                                     HARNESS_TEST(test_reply_cut_at_every_byte),
                                     HARNESS_TEST(test_connection_killed_while_idle),
                                     HARNESS_TEST(test_script_flushed),
                                     HARNESS_TEST(test_redis_hangs),
                                     HARNESS_TEST(test_redis_killed_and_restarted),
                                     HARNESS_TEST(test_redis_down_for_longer),
                                     HARNESS_TEST(test_out_of_memory),
                                     HARNESS_TEST(test_read_only_replica),
                                     HARNESS_TEST(test_too_few_replicas_to_write),
                                     HARNESS_TEST(test_journal_of_another_type),
                                     HARNESS_TEST(test_value_redis_does_not_take),
                                     HARNESS_TEST(test_key_denied_by_acl),
                                     HARNESS_TEST(test_documented_permissions_suffice),
                                     HARNESS_TEST(test_wrong_password),
                                     HARNESS_TEST(test_stop_and_abort_while_redis_hangs),
                                     HARNESS_TEST(test_replicas_are_waited_for)};
  const struct stack_options options = {.has_no_pg = true, .has_aof = true};
  log_setup(LOG_CRITICAL, LOG_TEXT);
  return HARNESS_RUN(tests, &stack, &options);
}
