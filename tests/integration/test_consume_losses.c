/*
 * A consumer whose surroundings change under it: a session lost unnoticed, a worker that is stopped and wakes, groups and streams that are deleted,
 * a Redis that forgets, an index that names a stream twice.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "db.h"
#include "harness.h"
#include "outbox.h"
#include "rds.h"
#include "relay.h"
#include "stack_impl.h"
#include "wait.h"

#define WAIT_MS 30000
#define STREAMS_N 450 /* more than two pages of the index */

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- helpers */

/* Payloads: "ok"; "wait" LATER until is_cured, then as "ok"; "doomed" LATER until is_cured, then PARK once, then as "ok"; "move" adds a message to the
 * stream of the aggregate "a", which moves it to the end of the index; "cure" sets is_cured. */
static _Atomic bool is_cured;
static _Atomic int doomed_n; /* calls for "doomed" since then */

/* As the relay adds to a stream that is in the index of its lane. */
static void add_indexed(redisContext *redis, const char *aggregate_id, int n, const char *payload) {
  rds_run(redis, "EVAL %s 2 outbox:{0}:account:%s outbox:{0}:streams %s 018f4d5e-0000-7000-8000-%012d %s",
          "local id = redis.call('XADD', KEYS[1], '*', 'message_id', ARGV[2], 'aggregate_type', 'account', "
          "'aggregate_id', ARGV[1], 'event_type', 'e', 'payload', ARGV[3], 'created_at', 'c') "
          "return redis.call('ZADD', KEYS[2], string.match(id, '%d+'), KEYS[1])",
          aggregate_id, aggregate_id, n, payload);
}

static enum outbox_verdict handle(void *ctx, PGconn *conn, const struct outbox_message *message,
                                  struct outbox_failure *failure) {
  const char *const values[] = {message->message_id, message->aggregate_id};
  (void)ctx;
  if (strcmp(message->payload, "\"cure\"") == 0) {
    atomic_store(&is_cured, true);
  } else if (strcmp(message->payload, "\"move\"") == 0) {
    redisContext *redis = rds_open(stack->redis_url);
    add_indexed(redis, "a", 2, "\"ok\"");
    redisFree(redis);
  } else if (strcmp(message->payload, "\"ok\"") != 0) {
    bool is_doomed = strcmp(message->payload, "\"doomed\"") == 0;
    if (!atomic_load(&is_cured)) {
      failure->retry_after_ms = 20;
      return OUTBOX_LATER;
    }
    if (is_doomed && atomic_fetch_add(&doomed_n, 1) == 0) {
      snprintf(failure->text, sizeof failure->text, "no use");
      return OUTBOX_PARK;
    }
  }
  PQclear(PQexecParams(conn, "INSERT INTO effects (message_id, aggregate_id) VALUES ($1, $2)", 2, NULL, values, NULL,
                       NULL, 0));
  return OUTBOX_DONE;
}

static struct run {
  struct outbox_consumer *consumer;
  pthread_t thread;
  struct outbox_error error;
  int rc;
} run;

static void *run_consumer(void *arg) {
  (void)arg;
  run.rc = outbox_consumer_run(run.consumer, handle, NULL, &run.error);
  return NULL;
}

static void start(const char *stream) {
  const char *const options[] = {
      "database", stack->conninfo, "redis", stack->redis_url, "group", "g", "lanes", "1", "stream", stream, "batch",
      "50",       "poll-interval", "20ms",  "max-attempts",   "2"};
  run = (struct run){.rc = -1};
  REQUIRE(outbox_consumer_new(&run.consumer, &run.error) == 0, "%s", run.error.text);
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i += 2) {
    REQUIRE(outbox_consumer_set(run.consumer, options[i], options[i + 1], &run.error) == 0, "%s", run.error.text);
  }
  REQUIRE(pthread_create(&run.thread, NULL, run_consumer, NULL) == 0, "no thread");
}

static struct outbox_counts stop(void) {
  struct outbox_counts counts;
  outbox_consumer_stop(run.consumer);
  REQUIRE(pthread_join(run.thread, NULL) == 0, "join");
  REQUIRE(run.rc == 0, "%s: %s", run.error.code, run.error.text);
  outbox_consumer_counts(run.consumer, &counts);
  outbox_consumer_free(run.consumer);
  return counts;
}

/* Both servers, the tables made. */
struct scene {
  PGconn *conn;
  redisContext *redis;
};

static struct scene begin(void) {
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "CREATE TABLE processed_messages (message_id uuid NOT NULL, consumer text NOT NULL, processed_at "
                "timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (message_id, consumer))");
  db_exec(conn, "CREATE TABLE effects (seq bigserial PRIMARY KEY, message_id uuid, aggregate_id text)");
  atomic_store(&is_cured, false);
  atomic_store(&doomed_n, 0);
  return (struct scene){conn, rds_open(stack->redis_url)};
}

static void end(const struct scene *scene) {
  redisFree(scene->redis);
  PQfinish(scene->conn);
}

static void add_id(redisContext *redis, const char *id, const char *aggregate_id, const char *payload) {
  const char *names[] = {"message_id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_at"};
  const char *values[] = {id, "account", aggregate_id, "e", payload, "2026-01-31T23:59:59.000001Z"};
  free(rds_xadd(redis, "outbox:{0}", "*", 6, names, values, NULL));
}

/* Message n, whose id ends with it. */
static void add(redisContext *redis, int n, const char *aggregate_id, const char *payload) {
  char id[40];
  snprintf(id, sizeof id, "018f4d5e-0000-7000-8000-%012d", n);
  add_id(redis, id, aggregate_id, payload);
}

static void require_order(PGconn *conn, const char *expected) {
  char *got = db_text(conn, "SELECT string_agg(right(message_id::text, 2), ' ' ORDER BY seq) FROM effects");
  REQUIRE(strcmp(got, expected) == 0, "effects of %s, not %s", got, expected);
  free(got);
}

static long long pending_n(redisContext *redis) {
  redisReply *reply = rds_cmd(redis, "XPENDING outbox:{0} g");
  long long n = reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->integer : -1;
  freeReplyObject(reply);
  return n;
}

/* -------------------------------------------------------------------------------------------------- tests */

/* While all of the index is gone through, a stream that is written moves to its end and is asked once more what is pending: what waits for a retry is found a
 * second time, and must not be handled after it was parked. */
static void test_what_is_found_twice_is_parked_once(void **state) {
  struct scene scene = begin();
  (void)state;
  add_indexed(scene.redis, "a", 1, "\"doomed\"");
  rds_run(scene.redis, "ZADD outbox:{0}:streams 1 outbox:{0}:account:a");
  for (int i = 0; i < STREAMS_N; i++) {
    char aggregate_id[16];
    snprintf(aggregate_id, sizeof aggregate_id, "n%d", i);
    add_indexed(scene.redis, aggregate_id, 100 + i,
                i == STREAMS_N / 2 + 25 ? "\"move\""
                : i == STREAMS_N - 1    ? "\"cure\""
                                        : "\"ok\"");
  }
  start("outbox:{%l}:%t:%i");
  wait_sql_int(scene.conn, STREAMS_N + 1, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, rds_int(scene.redis, "XLEN outbox:{0}:parked:g") == 1, "the message is not parked");
  struct outbox_counts counts = stop();
  REQUIRE(atomic_load(&doomed_n) == 1, "a message that was parked was given to the handler %d more times",
          atomic_load(&doomed_n) - 1);
  REQUIRE(counts.parked_n == 1 &&
              db_int(scene.conn, "SELECT count(*) FROM effects WHERE message_id::text LIKE '%%0001'") == 0,
          "parked and handled");
  end(&scene);
}

/* A worker that has lost its session and its connection together, and does not know of the first: somebody else has the lane's lock, and is at the last attempt of
 * a message.  Whatever it writes over the owner's token, it must not park that message. */
static void test_a_token_without_the_session_is_none(void **state) {
  struct scene scene = begin();
  PGconn *other = db_open(stack->conninfo);
  (void)state;
  add(scene.redis, 1, "a", "\"ok\"");
  start("outbox:{%l}");
  wait_sql_int(scene.conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  /* The other's lock waits behind the worker's, and has it as soon as its session has ended. */
  char *lock =
      db_text(scene.conn,
              "SELECT (classid::int8 << 32 | objid::int8)::text FROM pg_locks WHERE locktype = 'advisory' AND granted "
              "AND mode = 'ExclusiveLock'");
  char *pid = db_text(scene.conn, "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'outboxd consumer'");
  char take[80];
  snprintf(take, sizeof take, "SELECT pg_advisory_lock(%s)", lock);
  REQUIRE(PQsendQuery(other, take) == 1, "%s", PQerrorMessage(other));
  wait_sql_int(scene.conn, 1, WAIT_MS, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
  db_exec(scene.conn,
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outboxd consumer'");
  PGresult *taken = PQgetResult(other);
  REQUIRE(PQresultStatus(taken) == PGRES_TUPLES_OK, "%s", PQerrorMessage(other));
  PQclear(taken);
  PQclear(PQgetResult(other));
  /* The owner has read it, and counted its last attempt. */
  rds_run(scene.redis, "EVAL %s 1 outbox:{0}",
          "redis.call('XADD', KEYS[1], '*', 'message_id', '018f4d5e-0000-7000-8000-000000000002', 'aggregate_type', "
          "'account', "
          "'aggregate_id', 'a', 'event_type', 'e', 'payload', '\"ok\"', 'created_at', 'c') "
          "local id = redis.call('XREADGROUP', 'GROUP', 'g', 'outboxd', 'STREAMS', KEYS[1], '>')[1][2][1][1] "
          "return #redis.call('XCLAIM', KEYS[1], 'g', 'outboxd', 0, id, 'RETRYCOUNT', 3, 'JUSTID')");
  rds_run(scene.redis, "CLIENT KILL TYPE normal");
  /* It comes back, and does not get the lane. */
  char again[200];
  snprintf(again, sizeof again,
           "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' AND mode = "
           "'ShareLock' AND application_name = 'outboxd consumer' AND pid <> %s",
           pid);
  wait_sql_int(scene.conn, 1, WAIT_MS, again);
  REQUIRE(rds_int(scene.redis, "EXISTS outbox:{0}:parked:g") == 0, "it has parked what the lane's owner has in hand");
  (void)stop();
  free(lock);
  free(pid);
  PQfinish(other);
  end(&scene);
}

/* Message 1 waits for a retry, 2 behind it, 3 of another aggregate is handled. */
static void start_waiting(const struct scene *scene) {
  add(scene->redis, 1, "a", "\"wait\"");
  add(scene->redis, 2, "a", "\"ok\"");
  add(scene->redis, 3, "b", "\"ok\"");
  start("outbox:{%l}");
  wait_sql_int(scene->conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
}

static void test_a_group_is_destroyed_while_retries_wait(void **state) {
  struct scene scene = begin();
  (void)state;
  start_waiting(&scene);
  rds_run(scene.redis, "XGROUP DESTROY outbox:{0} g");
  add(scene.redis, 4, "a", "\"ok\"");
  add(scene.redis, 5, "b", "\"ok\"");
  wait_sql_int(scene.conn, 2, WAIT_MS, "SELECT count(*) FROM effects");
  atomic_store(&is_cured, true);
  wait_sql_int(scene.conn, 5, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, pending_n(scene.redis) == 0, "entries are pending");
  (void)stop();
  require_order(scene.conn, "03 05 01 02 04");
  end(&scene);
}

static void test_a_stream_is_deleted_while_retries_wait(void **state) {
  struct scene scene = begin();
  (void)state;
  start_waiting(&scene);
  rds_run(scene.redis, "DEL outbox:{0}");
  add(scene.redis, 4, "a", "\"ok\"");
  wait_sql_int(scene.conn, 2, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, pending_n(scene.redis) == 0, "entries are pending");
  struct outbox_counts counts = stop();
  require_order(scene.conn, "03 04");
  REQUIRE(counts.lost_n == 2, "lost %d", (int)counts.lost_n);
  end(&scene);
}

static void test_redis_forgets_everything(void **state) {
  struct scene scene = begin();
  (void)state;
  add(scene.redis, 1, "a", "\"ok\"");
  add(scene.redis, 2, "b", "\"wait\"");
  start("outbox:{%l}");
  wait_sql_int(scene.conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  rds_run(scene.redis, "FLUSHALL");
  /* What the relay adds once more, and what is new. */
  add(scene.redis, 1, "a", "\"ok\"");
  add(scene.redis, 2, "b", "\"ok\"");
  add(scene.redis, 3, "a", "\"ok\"");
  wait_sql_int(scene.conn, 3, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, pending_n(scene.redis) == 0, "entries are pending");
  (void)stop();
  require_order(scene.conn, "01 02 03");
  end(&scene);
}

static void test_a_message_id_that_is_no_uuid(void **state) {
  struct scene scene = begin();
  (void)state;
  add_id(scene.redis, "order 17", "a", "\"ok\"");
  add(scene.redis, 1, "a", "\"ok\"");
  start("outbox:{%l}");
  wait_sql_int(scene.conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, pending_n(scene.redis) == 0, "entries are pending");
  struct outbox_counts counts = stop();
  require_order(scene.conn, "01");
  REQUIRE(counts.parked_n == 1 && rds_int(scene.redis, "XLEN outbox:{0}:parked:g") == 1, "it is not parked");
  end(&scene);
}

/* Makes the user of docs/consuming.md, with the line that stands there. */
static void make_documented_user(redisContext *redis) {
  char line[1024];
  const char *words[64];
  int n = 0;
  bool is_found = false;
  FILE *file = fopen("docs/consuming.md", "re");
  REQUIRE(file != NULL, "no docs/consuming.md here");
  while (!is_found && fgets(line, sizeof line, file) != NULL) {
    is_found = strstr(line, "ACL SETUSER consumer ") != NULL;
  }
  fclose(file);
  REQUIRE(is_found, "docs/consuming.md has no ACL SETUSER consumer");
  for (char *at = line, *word; n < 64 && (word = strtok_r(at, " \n", &at)) != NULL;) {
    words[n++] = word;
  }
  redisReply *reply = redisCommandArgv(redis, n, words, NULL);
  REQUIRE(reply != NULL && reply->type == REDIS_REPLY_STATUS, "%s", reply != NULL ? reply->str : redis->errstr);
  freeReplyObject(reply);
}

/* Handled, tried again, parked, inherited; one stream a lane and many: all with the rights that the documentation names. */
static void test_the_documented_rights_are_enough(void **state) {
  struct scene scene = begin();
  char url[sizeof stack->redis_url];
  (void)state;
  make_documented_user(scene.redis);
  memcpy(url, stack->redis_url, sizeof url);
  snprintf(stack->redis_url, sizeof stack->redis_url, "redis://consumer:password@%s", strstr(url, "://") + 3);
  add(scene.redis, 1, "a", "\"wait\"");
  add(scene.redis, 2, "b", "\"doomed\"");
  add(scene.redis, 3, "c", "\"ok\"");
  rds_run(scene.redis, "XGROUP CREATE outbox:{0} g 0");
  freeReplyObject(rds_cmd(scene.redis, "XREADGROUP GROUP g outboxd COUNT 1 STREAMS outbox:{0} >"));
  start("outbox:{%l}");
  wait_sql_int(scene.conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  atomic_store(&is_cured, true);
  wait_sql_int(scene.conn, 2, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, rds_int(scene.redis, "XLEN outbox:{0}:parked:g") == 1, "the message is not parked");
  (void)stop();
  add_indexed(scene.redis, "d", 4, "\"ok\"");
  rds_run(scene.redis, "ZADD outbox:{0}:streams 1 outbox:{0}:account:gone");
  start("outbox:{%l}:%t:%i");
  wait_sql_int(scene.conn, 3, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, rds_int(scene.redis, "ZCARD outbox:{0}:streams") == 1, "the name of a stream that is gone stays");
  (void)stop();
  memcpy(stack->redis_url, url, sizeof url);
  end(&scene);
}

/* A worker is stopped with a message in hand, another one takes its lanes over, and it wakes: nothing of what it had in hand is committed or acknowledged by
 * it. */
static void test_a_stopped_worker_wakes(void **state) {
  struct scene scene = begin();
  char path[STACK_PATH_BYTES];
  char text[2 * STACK_PATH_BYTES];
  (void)state;
  stack_print_path(path, sizeof path, "%s/slow.sh", stack->dir);
  snprintf(text, sizeof text, "#!/bin/sh\nwhile IFS= read -r line; do sleep 0.05; echo ok; done\n");
  stack_write_file(path, text);
  REQUIRE(chmod(path, 0755) == 0, "chmod %s", path);
  for (int n = 1; n <= 60; n++) {
    add(scene.redis, n, "a", "\"ok\"");
  }
  const char *const args[] = {"--group",           "g",      "--exec", path, "--lanes", "1", "--session-timeout", "2s",
                              "--handler-timeout", "1500ms", NULL};
  struct relay *stopped = relay_start_consumer(stack, args);
  WAIT_FOR(WAIT_MS, db_int(scene.conn, "SELECT count(*) FROM processed_messages") > 3, "nothing is handled");
  relay_signal(stopped, SIGSTOP);
  struct relay *other = relay_start_consumer(stack, args);
  wait_sql_int(scene.conn, 60, WAIT_MS, "SELECT count(*) FROM processed_messages");
  relay_signal(stopped, SIGCONT);
  (void)relay_wait_log(stopped, "consumer_down", NULL, NULL, WAIT_MS);
  for (int n = 61; n <= 70; n++) {
    add(scene.redis, n, "a", "\"ok\"");
  }
  wait_sql_int(scene.conn, 70, WAIT_MS, "SELECT count(*) FROM processed_messages");
  /* In their order, whoever handled them. */
  REQUIRE(db_int(scene.conn, "SELECT count(*) FROM (SELECT message_id < lag(message_id) OVER (ORDER BY processed_at, "
                             "message_id) AS is_wrong "
                             "FROM processed_messages) x WHERE is_wrong") == 0,
          "out of order");
  relay_stop(other);
  relay_stop(stopped);
  REQUIRE(pending_n(scene.redis) == 0 && rds_int(scene.redis, "EXISTS outbox:{0}:parked:g") == 0, "pending or parked");
  end(&scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_what_is_found_twice_is_parked_once),
      HARNESS_TEST(test_a_token_without_the_session_is_none),
      HARNESS_TEST(test_a_group_is_destroyed_while_retries_wait),
      HARNESS_TEST(test_a_stream_is_deleted_while_retries_wait),
      HARNESS_TEST(test_redis_forgets_everything),
      HARNESS_TEST(test_a_message_id_that_is_no_uuid),
      HARNESS_TEST(test_the_documented_rights_are_enough),
      HARNESS_TEST(test_a_stopped_worker_wakes),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
