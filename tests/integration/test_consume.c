/*
 * A consumer of liboutbox against the real servers: what it handles, in which order, what it does with what fails, who has which lane.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "db.h"
#include "harness.h"
#include "outbox.h"
#include "rds.h"
#include "wait.h"

#define WAIT_MS 30000
#define CONSUMERS_MAX 3

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- helpers */

/* What the handler of a consumer does: inserts into effects; then as the payload says. */
struct run {
  struct outbox_consumer *consumer;
  pthread_t thread;
  struct outbox_error error;
  int rc;
  const char *name; /* in effects */
};

static struct run runs[CONSUMERS_MAX];

static void exec_on(PGconn *conn, const char *sql, const char *const *values, int n) {
  PQclear(PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0));
}

/* Payloads: "ok"; "fail:N" fails until attempt N; "park"; "break" leaves a failed statement and says DONE; "commit" ends the transaction; "busy" leaves a
 * statement under way; "later:N" LATER until the N-th call. */
static enum outbox_verdict handle(void *ctx, PGconn *conn, const struct outbox_message *message,
                                  struct outbox_failure *failure) {
  struct run *run = ctx;
  static _Atomic int laters_n;
  char attempt[16];
  char lane[16];
  const char *payload = message->payload;
  snprintf(attempt, sizeof attempt, "%d", message->attempt);
  snprintf(lane, sizeof lane, "%d", message->lane);
  const char *values[] = {message->message_id, message->aggregate_id, attempt, run->name, lane};
  exec_on(conn, "INSERT INTO effects (message_id, aggregate_id, attempt, name, lane) VALUES ($1, $2, $3, $4, $5)",
          values, 5);
  if (strncmp(payload, "\"fail:", 6) == 0 && message->attempt < atoi(payload + 6)) {
    snprintf(failure->text, sizeof failure->text, "attempt %d is none", message->attempt);
    return OUTBOX_RETRY;
  }
  if (strncmp(payload, "\"later:", 7) == 0 && atomic_fetch_add(&laters_n, 1) + 1 < atoi(payload + 7)) {
    return OUTBOX_LATER;
  }
  if (strcmp(payload, "\"park\"") == 0) {
    snprintf(failure->text, sizeof failure->text, "no use");
    return OUTBOX_PARK;
  }
  if (strcmp(payload, "\"break\"") == 0) {
    exec_on(conn, "SELECT 1/0", NULL, 0);
  } else if (strcmp(payload, "\"commit\"") == 0) {
    exec_on(conn, "COMMIT", NULL, 0);
  } else if (strcmp(payload, "\"busy\"") == 0) {
    (void)PQsendQuery(conn, "SELECT 1");
  }
  return OUTBOX_DONE;
}

static void *run_consumer(void *arg) {
  struct run *run = arg;
  run->rc = outbox_consumer_run(run->consumer, handle, run, &run->error);
  return NULL;
}

/* Starts consumer i with the stack's servers, the group "g", and more options: name, value, ..., NULL. */
static struct run *start(int i, const char *const *options) {
  struct run *run = &runs[i];
  const char *const standard[] = {"database", stack->conninfo, "redis", stack->redis_url, "group", "g", "retry-after",
                                  "20ms",     "retry-max",     "50ms",  "max-attempts",   "3",     NULL};
  *run = (struct run){.name = i == 0 ? "first" : i == 1 ? "second" : "third"};
  REQUIRE(outbox_consumer_new(&run->consumer, &run->error) == 0, "%s", run->error.text);
  for (const char *const *option = standard; *option != NULL; option += 2) {
    REQUIRE(outbox_consumer_set(run->consumer, option[0], option[1], &run->error) == 0, "%s", run->error.text);
  }
  for (const char *const *option = options; *option != NULL; option += 2) {
    REQUIRE(outbox_consumer_set(run->consumer, option[0], option[1], &run->error) == 0, "%s", run->error.text);
  }
  REQUIRE(pthread_create(&run->thread, NULL, run_consumer, run) == 0, "no thread");
  return run;
}

#define START(i, ...) start((i), (const char *const[]){__VA_ARGS__, NULL})

static struct outbox_counts stop(struct run *run) {
  struct outbox_counts counts;
  outbox_consumer_stop(run->consumer);
  REQUIRE(pthread_join(run->thread, NULL) == 0, "join");
  REQUIRE(run->rc == 0, "%s: %s", run->error.code, run->error.text);
  outbox_consumer_counts(run->consumer, &counts);
  outbox_consumer_free(run->consumer);
  run->consumer = NULL;
  return counts;
}

static PGconn *make_tables(void) {
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "CREATE TABLE processed_messages (message_id uuid NOT NULL, consumer text NOT NULL, processed_at "
                "timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (message_id, consumer))");
  db_exec(
      conn,
      "CREATE TABLE effects (seq bigserial PRIMARY KEY, message_id uuid, aggregate_id text, attempt int, name text, "
      "lane int)");
  return conn;
}

/* Message n, whose id ends with it. */
static void message_id(int n, char out[40]) {
  snprintf(out, 40, "018f4d5e-0000-7000-8000-%012d", n);
}

static void add(redisContext *redis, const char *stream, int n, const char *aggregate_id, const char *payload) {
  char id[40];
  message_id(n, id);
  const char *names[] = {"message_id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_at"};
  const char *values[] = {id, "account", aggregate_id, "e", payload, "2026-01-31T23:59:59.000001Z"};
  free(rds_xadd(redis, stream, "*", 6, names, values, NULL));
}

/* As the relay adds to a stream that is in the index of its lane. */
static void add_indexed(redisContext *redis, int lane, const char *stream, int n, const char *aggregate_id) {
  char id[40];
  message_id(n, id);
  rds_run(redis, "EVAL %s 2 %s outbox:{%d}:streams %s %s",
          "local id = redis.call('XADD', KEYS[1], '*', 'message_id', ARGV[1], 'aggregate_type', 'account', "
          "'aggregate_id', ARGV[2], "
          "'event_type', 'e', 'payload', '\"ok\"', 'created_at', 'c') "
          "return redis.call('ZADD', KEYS[2], string.match(id, '%d+'), KEYS[1])",
          stream, lane, id, aggregate_id);
}

static void require_order(PGconn *conn, const char *expected) {
  char *got = db_text(conn, "SELECT string_agg(right(message_id::text, 2), ' ' ORDER BY seq) FROM effects");
  REQUIRE(strcmp(got, expected) == 0, "effects of %s, not %s", got, expected);
  free(got);
}

static long long pending_n(redisContext *redis, const char *stream) {
  redisReply *reply = rds_cmd(redis, "XPENDING %s g", stream);
  long long n = reply->element[0]->integer;
  freeReplyObject(reply);
  return n;
}

/* -------------------------------------------------------------------------------------------------- tests */

static void test_failures_hold_back_their_aggregate_only(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, "outbox:{3}", 1, "a", "\"fail:3\"");
  add(redis, "outbox:{3}", 2, "a", "\"ok\"");
  add(redis, "outbox:{3}", 3, "b", "\"ok\"");
  add(redis, "outbox:{3}", 4, "a", "\"fail:2\"");
  add(redis, "outbox:{3}", 5, "b", "\"ok\"");
  struct run *run = START(0, "threads", "2", "retry-after", "500ms", "retry-max", "500ms");
  wait_sql_int(conn, 5, WAIT_MS, "SELECT count(*) FROM effects");
  wait_sql_int(conn, 5, WAIT_MS, "SELECT count(*) FROM processed_messages WHERE consumer = 'g'");
  /* While it runs, too. */
  add(redis, "outbox:{3}", 6, "a", "\"ok\"");
  wait_sql_int(conn, 6, WAIT_MS, "SELECT count(*) FROM effects");
  struct outbox_counts counts = stop(run);
  require_order(conn, "03 05 01 02 04 06");
  REQUIRE(counts.handled_n == 6 && counts.failed_n == 3 && counts.parked_n == 0, "handled %d, failed %d, parked %d",
          (int)counts.handled_n, (int)counts.failed_n, (int)counts.parked_n);
  REQUIRE(db_int(conn, "SELECT attempt FROM effects WHERE message_id::text LIKE '%%01'") == 3, "attempts");
  REQUIRE(pending_n(redis, "outbox:{3}") == 0, "entries are pending");
  redisFree(redis);
  PQfinish(conn);
}

/* Some parked entry has this error and so many attempts. */
static void require_parked(redisContext *redis, const char *key, const char *error, const char *attempts) {
  redisReply *all = rds_cmd(redis, "XRANGE %s - +", key);
  bool is_found = false;
  for (size_t i = 0; i < all->elements; i++) {
    const redisReply *fields = all->element[i]->element[1];
    bool has_error = false;
    bool has_attempts = false;
    for (size_t k = 0; k + 1 < fields->elements; k += 2) {
      const char *name = fields->element[k]->str;
      const char *value = fields->element[k + 1]->str;
      has_error = has_error || (strcmp(name, "parked_error") == 0 && strstr(value, error) != NULL);
      has_attempts = has_attempts || (strcmp(name, "parked_attempts") == 0 && strcmp(value, attempts) == 0);
    }
    is_found = is_found || (has_error && has_attempts);
  }
  REQUIRE(is_found, "no entry of %s has the error \"%s\" and %s attempts", key, error, attempts);
  freeReplyObject(all);
}

static void test_parks_what_keeps_failing(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, "outbox:{0}", 1, "a", "\"fail:9\"");
  add(redis, "outbox:{0}", 2, "a", "\"ok\"");
  add(redis, "outbox:{0}", 3, "b", "\"park\"");
  add(redis, "outbox:{0}", 4, "b", "\"ok\"");
  free(rds_xadd(redis, "outbox:{0}", "*", 1, (const char *[]){"what"}, (const char *[]){"ever"}, NULL));
  add(redis, "outbox:{0}", 5, "c", "\"later:4\"");
  struct run *run = START(0, "batch", "2");
  wait_sql_int(conn, 3, WAIT_MS, "SELECT count(*) FROM effects");
  struct outbox_counts counts = stop(run);
  REQUIRE(counts.parked_n == 3 && counts.handled_n == 3, "parked %d, handled %d", (int)counts.parked_n,
          (int)counts.handled_n);
  REQUIRE(rds_int(redis, "XLEN outbox:{0}:parked:g") == 3, "parked entries");
  REQUIRE(pending_n(redis, "outbox:{0}") == 0, "entries are pending");
  require_parked(redis, "outbox:{0}:parked:g", "no use", "1");
  require_parked(redis, "outbox:{0}:parked:g", "no message_id", "0");
  require_parked(redis, "outbox:{0}:parked:g", "attempt 3 is none", "3");
  /* Not handled: no effect, no mark, so that it can be handled when it is added again. */
  REQUIRE(db_int(conn, "SELECT count(*) FROM processed_messages") == 3, "a parked message is marked");
  REQUIRE(db_int(conn, "SELECT attempt FROM effects WHERE message_id::text LIKE '%%05'") == 1,
          "LATER counts an attempt");
  redisFree(redis);
  PQfinish(conn);
}

static void test_a_parked_message_may_block_its_aggregate(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, "outbox:{0}", 1, "a", "\"park\"");
  add(redis, "outbox:{0}", 2, "a", "\"ok\"");
  add(redis, "outbox:{0}", 3, "b", "\"ok\"");
  struct run *run = START(0, "on-parked", "block");
  wait_sql_int(conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  (void)stop(run);
  require_order(conn, "03");
  /* The next worker knows from the stream of parked entries. */
  add(redis, "outbox:{0}", 4, "a", "\"ok\"");
  add(redis, "outbox:{0}", 5, "b", "\"ok\"");
  run = START(0, "on-parked", "block");
  wait_sql_int(conn, 2, WAIT_MS, "SELECT count(*) FROM effects");
  require_order(conn, "03 05");
  redisReply *parked = rds_cmd(redis, "XRANGE outbox:{0}:parked:g - +");
  REQUIRE(parked->elements == 1, "%zu parked", parked->elements);
  rds_run(redis, "XDEL outbox:{0}:parked:g %s", parked->element[0]->element[0]->str);
  freeReplyObject(parked);
  wait_sql_int(conn, 4, WAIT_MS, "SELECT count(*) FROM effects");
  (void)stop(run);
  require_order(conn, "03 05 02 04");
  redisFree(redis);
  PQfinish(conn);
}

static void test_a_dead_workers_messages_come_first(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  for (int n = 1; n <= 5; n++) {
    add(redis, "outbox:{7}", n, "a", "\"ok\"");
  }
  rds_run(redis, "XGROUP CREATE outbox:{7} g 0");
  freeReplyObject(rds_cmd(redis, "XREADGROUP GROUP g somebody COUNT 4 STREAMS outbox:{7} >"));
  /* One it had handled, and not acknowledged; one that was trimmed since. */
  db_exec(conn, "INSERT INTO processed_messages VALUES ('018f4d5e-0000-7000-8000-000000000001', 'g')");
  redisReply *entries = rds_cmd(redis, "XRANGE outbox:{7} - +");
  rds_run(redis, "XDEL outbox:{7} %s", entries->element[2]->element[0]->str);
  freeReplyObject(entries);
  struct run *run = START(0, "group", "g");
  wait_sql_int(conn, 3, WAIT_MS, "SELECT count(*) FROM effects");
  struct outbox_counts counts = stop(run);
  require_order(conn, "02 04 05");
  REQUIRE(counts.repeated_n == 1 && counts.lost_n == 1, "repeated %d, lost %d", (int)counts.repeated_n,
          (int)counts.lost_n);
  REQUIRE(pending_n(redis, "outbox:{7}") == 0, "entries are pending");
  redisFree(redis);
  PQfinish(conn);
}

/* A message that its workers die of is parked at last: each attempt is counted before it is made. */
static void test_what_a_worker_dies_of_is_parked(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, "outbox:{7}", 1, "a", "\"busy\"");
  add(redis, "outbox:{7}", 2, "a", "\"ok\"");
  struct run *run = START(0, "max-attempts", "2");
  wait_sql_int(conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  struct outbox_counts counts = stop(run);
  REQUIRE(counts.parked_n == 1, "parked %d", (int)counts.parked_n);
  require_order(conn, "02");
  require_parked(redis, "outbox:{7}:parked:g", "the worker ended", "2");
  redisFree(redis);
  PQfinish(conn);
}

static void test_handlers_that_spoil_the_transaction_have_failed(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, "outbox:{1}", 1, "a", "\"break\"");
  add(redis, "outbox:{1}", 2, "b", "\"commit\"");
  struct run *run = START(0, "max-attempts", "2");
  WAIT_FOR(WAIT_MS, rds_int(redis, "XLEN outbox:{1}:parked:g") == 1, "the message is not parked");
  wait_sql_int(conn, 1, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, pending_n(redis, "outbox:{1}") == 0, "entries are pending");
  struct outbox_counts counts = stop(run);
  require_parked(redis, "outbox:{1}:parked:g", "a statement of the handler has failed", "2");
  /* Who commits by himself has committed the mark, too: once. */
  require_order(conn, "02");
  REQUIRE(counts.repeated_n == 1, "repeated %d", (int)counts.repeated_n);
  redisFree(redis);
  PQfinish(conn);
}

static void test_lanes_are_shared_and_handed_on(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  struct run *first = START(0, "threads", "2");
  wait_sql_int(conn, 16, WAIT_MS,
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'");
  struct run *second = START(1, "threads", "2");
  /* Four workers, four lanes each. */
  wait_sql_int(conn, 4, WAIT_MS,
               "SELECT count(*) FROM (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = "
               "'ExclusiveLock' GROUP BY pid HAVING count(*) = 4) x");
  int n = 1;
  for (int lane = 0; lane < 16; lane++, n++) {
    char stream[32];
    snprintf(stream, sizeof stream, "outbox:{%d}", lane);
    add(redis, stream, n, "a", "\"ok\"");
  }
  wait_sql_int(conn, 16, WAIT_MS, "SELECT count(*) FROM effects");
  REQUIRE(db_int(conn, "SELECT count(*) FROM effects WHERE name = 'first'") == 8, "the first has not half of them");
  /* Whoever stops hands his lanes on. */
  (void)stop(first);
  for (int lane = 0; lane < 16; lane++, n++) {
    char stream[32];
    snprintf(stream, sizeof stream, "outbox:{%d}", lane);
    add(redis, stream, n, "a", "\"ok\"");
  }
  wait_sql_int(conn, 24, WAIT_MS, "SELECT count(*) FROM effects WHERE name = 'second'");
  /* Another group sees all of it again. */
  struct run *third = START(2, "group", "h");
  wait_sql_int(conn, 32, WAIT_MS, "SELECT count(*) FROM effects WHERE name = 'third'");
  (void)stop(third);
  (void)stop(second);
  redisFree(redis);
  PQfinish(conn);
}

/* Streams that are found by the lane's index: before the consumer and after it, with the group and without. */
static void test_streams_of_an_index(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  int n = 1;
  for (int i = 0; i < 450; i++, n++) { /* more than a page */
    char stream[48];
    char aggregate[16];
    snprintf(stream, sizeof stream, "outbox:{%d}:account:%d", i % 16, i);
    snprintf(aggregate, sizeof aggregate, "%d", i);
    add_indexed(redis, i % 16, stream, n, aggregate);
  }
  /* The group is there before the stream. */
  rds_run(redis, "XGROUP CREATE outbox:{2}:account:early g 0 MKSTREAM");
  /* The index knows a stream that is gone. */
  rds_run(redis, "ZADD outbox:{2}:streams 1 outbox:{2}:account:gone");
  struct run *run = START(0, "stream", "outbox:{%l}:%t:%i", "poll-interval", "20ms");
  wait_sql_int(conn, 450, WAIT_MS, "SELECT count(*) FROM effects");
  add_indexed(redis, 2, "outbox:{2}:account:early", n++, "early");
  add_indexed(redis, 2, "outbox:{2}:account:late", n++, "late");
  add_indexed(redis, 0, "outbox:{0}:account:0", n++, "0");
  wait_sql_int(conn, 453, WAIT_MS, "SELECT count(*) FROM effects");
  WAIT_FOR(WAIT_MS, rds_int(redis, "EXISTS outbox:{2}:account:gone") == 0, "a stream that is gone was made");
  redisReply *gone = rds_cmd(redis, "ZSCORE outbox:{2}:streams outbox:{2}:account:gone");
  REQUIRE(gone->type == REDIS_REPLY_NIL, "a stream that is gone stays in the index");
  freeReplyObject(gone);
  (void)stop(run);
  REQUIRE(db_int(conn, "SELECT count(DISTINCT message_id) FROM effects") == 453, "handled twice");
  REQUIRE(pending_n(redis, "outbox:{0}:account:0") == 0, "entries are pending");
  /* Pending ones of a dead worker are found in each of them. */
  add_indexed(redis, 5, "outbox:{5}:account:5", n++, "5");
  freeReplyObject(rds_cmd(redis, "XREADGROUP GROUP g somebody STREAMS outbox:{5}:account:5 >"));
  run = START(0, "stream", "outbox:{%l}:%t:%i", "poll-interval", "20ms");
  wait_sql_int(conn, 454, WAIT_MS, "SELECT count(*) FROM effects");
  (void)stop(run);
  redisFree(redis);
  PQfinish(conn);
}

static void test_waiting_messages_are_bounded(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, "outbox:{0}", 1, "a", "\"fail:2\"");
  for (int n = 2; n <= 30; n++) {
    add(redis, "outbox:{0}", n, "a", "\"ok\"");
  }
  add(redis, "outbox:{0}", 31, "b", "\"ok\"");
  struct run *run = START(0, "max-waiting", "5", "batch", "2");
  wait_sql_int(conn, 31, WAIT_MS, "SELECT count(*) FROM effects");
  (void)stop(run);
  REQUIRE(
      db_int(conn,
             "SELECT count(*) FROM (SELECT message_id < lag(message_id) OVER (ORDER BY seq) AS is_wrong FROM effects "
             "WHERE aggregate_id = 'a') x WHERE is_wrong") == 0,
      "out of order");
  redisFree(redis);
  PQfinish(conn);
}

static void test_what_can_never_work_ends_it(void **state) {
  struct run *run = &runs[0];
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  static const struct {
    const char *name, *value, *code;
    enum outbox_error_kind kind;
  } cases[] = {
      {"processed-table", "nowhere", "42P01", OUTBOX_REFUSED},
      {"stream", "outbox", "bad_template", OUTBOX_USAGE},
      {"redis", "http://x", "bad_url", OUTBOX_USAGE},
      {"database", "host=127.0.0.1 nonsense=1", "conninfo", OUTBOX_REFUSED},
      {"lanes", "3", "lanes", OUTBOX_REFUSED},
  };
  rds_run(redis, "SET outbox:lanes %s", "{\"lanes\":16,\"table\":\"t\",\"database\":\"d\"}");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run = START(0, cases[i].name, cases[i].value);
    REQUIRE(pthread_join(run->thread, NULL) == 0, "join");
    REQUIRE(run->rc == -1 && run->error.kind == cases[i].kind, "%s: kind %d: %s", cases[i].name, (int)run->error.kind,
            run->error.text);
    REQUIRE(strcmp(run->error.code, cases[i].code) == 0 || cases[i].kind == OUTBOX_USAGE, "%s: code %s: %s",
            cases[i].name, run->error.code, run->error.text);
    outbox_consumer_free(run->consumer);
  }
  REQUIRE(outbox_consumer_new(&run->consumer, &run->error) == 0, "%s", run->error.text);
  REQUIRE(outbox_consumer_set(run->consumer, "lanes", "0", &run->error) == -1 && run->error.kind == OUTBOX_USAGE,
          "lanes 0");
  REQUIRE(strstr(run->error.text, "from 1 to 1024") != NULL, "%s", run->error.text);
  REQUIRE(outbox_consumer_set(run->consumer, "exec", "x", &run->error) == -1, "exec is the program's");
  REQUIRE(outbox_consumer_run(run->consumer, handle, run, &run->error) == -1 && run->error.kind == OUTBOX_USAGE,
          "no group");
  outbox_consumer_free(run->consumer);
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_failures_hold_back_their_aggregate_only),
      HARNESS_TEST(test_parks_what_keeps_failing),
      HARNESS_TEST(test_a_parked_message_may_block_its_aggregate),
      HARNESS_TEST(test_a_dead_workers_messages_come_first),
      HARNESS_TEST(test_what_a_worker_dies_of_is_parked),
      HARNESS_TEST(test_handlers_that_spoil_the_transaction_have_failed),
      HARNESS_TEST(test_lanes_are_shared_and_handed_on),
      HARNESS_TEST(test_streams_of_an_index),
      HARNESS_TEST(test_waiting_messages_are_bounded),
      HARNESS_TEST(test_what_can_never_work_ends_it),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
