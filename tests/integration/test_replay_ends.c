/*
 * outboxd replay: what ends it early, what it says then, and that it goes on from there.
 */
#include "test_replay.h"

/* A signal between two writes: everything up to the id it says is there, nothing behind it; and the rest follows. */
static void test_a_signal_and_going_on(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  fill_published(conn, TABLE_INIT, 400, 20, 10);
  int64_t began_ms = wait_now_ms();
  struct relay *replay = start_replay(ARGS("replay", "--all", "--rate", "30"));
  WAIT_FOR(COMMAND_MS, entries_n(redis, "replay:") >= 40, "nothing is published");
  /* 40 of 30 a second, in calls of 3: a lower bound, which no load can break. */
  REQUIRE(wait_now_ms() - began_ms >= 1000, "faster than --rate: 40 in %" PRId64 " ms", wait_now_ms() - began_ms);
  relay_signal(replay, SIGINT);
  assert_int_equal(relay_wait(replay, COMMAND_MS), 1);
  char *said = relay_text(replay);
  long long id = after_id_of(said);
  REQUIRE(id >= 40 && id < 400 && strstr(said, "stopped by a signal") != NULL, "it said: %s", said);
  assert_int_equal(entries_n(redis, "replay:"), id); /* ids are 1..400 */
  free(said);
  char after[32];
  snprintf(after, sizeof after, "%lld", id);
  SAYS(0, "ids ", "replay", "--all", "--rate", "0", "--after-id", after);
  assert_int_equal(entries_n(redis, "replay:"), 400);
  check_replayed(REPLAY_STREAM);
  redisFree(redis);
  PQfinish(conn);
}

/* Redis is full: nothing is claimed to be there that is not. */
static void test_redis_full(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  fill_published(conn, TABLE_INIT, 6000, 50, 1000);
  long long used =
      rds_int(redis, "EVAL %s 0", "return tonumber(string.match(redis.call('INFO', 'memory'), 'used_memory:(%d+)'))");
  rds_run(redis, "CONFIG SET maxmemory %lld", used + 4000000);
  char *said = NULL;
  assert_int_equal(run(ARGS("replay", "--all", "--rate", "0"), &said), 1);
  long long id = after_id_of(said);
  REQUIRE(id > 0 && id < 6000 && strstr(said, "OOM") != NULL, "it said: %s", said);
  assert_int_equal(entries_n(redis, "replay:"), id);
  free(said);
  char after[32];
  snprintf(after, sizeof after, "%lld", id);
  rds_run(redis, "CONFIG SET maxmemory 1");
  SAYS(1, "nothing was published: Redis refuses", "replay", "--all", "--after-id", after);
  rds_run(redis, "CONFIG SET maxmemory 0");
  SAYS(0, "published once more", "replay", "--all", "--rate", "0", "--after-id", after);
  check_replayed(REPLAY_STREAM);
  assert_int_equal(entries_n(redis, "replay:"), 6000);
  redisFree(redis);
  PQfinish(conn);
}

/* One stream's name is taken by a string: it stops at just that message, in the middle of a call. */
static void test_a_refused_message_stops_it(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  static const char stream[] = "replay:{%l}:%i";
  fill_published(conn, TABLE_PLAIN, 300, 300, 10);
  char *lane = db_text(conn, "SELECT ((hashtextextended('123', 0) %% 16) + 16) %% 16");
  rds_run(redis, "SET replay:{%s}:123 poison", lane);
  char says[256];
  snprintf(
      says, sizeof says,
      "the last confirmed id is 122; go on with the same command and --after-id 122: Redis refuses message 123 for "
      "stream replay:{%s}:123: WRONGTYPE",
      lane);
  SAYS(1, says, "replay", "--all", "--rate", "0", "--stream", stream);
  assert_int_equal(entries_n(redis, "replay:"), 122);
  rds_run(redis, "DEL replay:{%s}:123", lane);
  SAYS(0, "178 messages published once more", "replay", "--all", "--rate", "0", "--stream", stream, "--after-id",
       "122");
  check_replayed(stream);
  assert_int_equal(entries_n(redis, "replay:"), 300);
  free(lane);
  redisFree(redis);
  PQfinish(conn);
}

/* Redis hangs in the middle of a call: what became of it is not known, and it says so; no more than that comes twice. */
static void test_a_reply_that_does_not_come(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  fill_published(conn, TABLE_INIT, 400, 20, 10);
  struct relay *replay = start_replay(ARGS("replay", "--all", "--rate", "30", "--redis-timeout", "500ms"));
  WAIT_FOR(COMMAND_MS, entries_n(redis, "replay:") >= 10, "nothing is published");
  stack_redis_freeze(stack);
  assert_int_equal(relay_wait(replay, COMMAND_MS), 1);
  stack_redis_thaw(stack);
  char *said = relay_text(replay);
  long long id = after_id_of(said);
  long long from = 0;
  long long to = 0;
  const char *doubt = strstr(said, "; of ids ");
  REQUIRE(id >= 10 && doubt != NULL && sscanf(doubt, "; of ids %lld to %lld it is not known", &from, &to) == 2,
          "it said: %s", said);
  assert_int_equal(from, id + 1);
  assert_in_range(to, from, from + 2);
  free(said);
  char after[32];
  snprintf(after, sizeof after, "%lld", id);
  SAYS(0, "published once more", "replay", "--all", "--rate", "0", "--after-id", after);
  assert_in_range(entries_n(redis, "replay:"), 400, 400 + (to - id));
  redisFree(redis);
  PQfinish(conn);
}

/* A replay of 120 messages, stopped while less than 60 are published; caller: relay_signal SIGCONT. */
static struct relay *start_and_hold(PGconn *conn, redisContext *redis) {
  fill_published(conn, TABLE_PLAIN, 120, 20, 1000);
  /* 64 KiB are about 30 of these messages. */
  struct relay *replay = start_replay(ARGS("replay", "--all", "--rate", "20", "--max-batch-bytes", "64KiB"));
  WAIT_FOR(COMMAND_MS, entries_n(redis, "replay:") >= 1, "nothing is published");
  relay_signal(replay, SIGSTOP);
  REQUIRE(entries_n(redis, "replay:") < 60, "it was too late to change something");
  return replay;
}

/* Rows that go while it runs (retention, a person) are not published, and counted. */
static void test_rows_that_go_meanwhile(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  struct relay *replay = start_and_hold(conn, redis);
  db_exec(conn, "DELETE FROM " TABLE " WHERE id > 100; UPDATE " TABLE " SET published_at = NULL WHERE id = 99");
  db_exec(conn, "VACUUM " TABLE);
  relay_signal(replay, SIGCONT);
  assert_int_equal(relay_wait(replay, COMMAND_MS), 0);
  char *out = relay_stdout(replay);
  REQUIRE(strstr(out, "99 messages published once more") != NULL && strstr(out, "left out: 21 gone meanwhile") != NULL,
          "it said: %s", out);
  assert_int_equal(entries_n(redis, "replay:"), 99);
  free(out);
  redisFree(redis);
  PQfinish(conn);
}

/* Rows that are moved while it runs are not taken for gone: it ends, and goes on with a new search. */
static void moved_by(const char *statement) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  struct relay *replay = start_and_hold(conn, redis);
  db_exec(conn, "DELETE FROM " TABLE " WHERE id = 1");
  db_exec(conn, "%s", statement);
  relay_signal(replay, SIGCONT);
  assert_int_equal(relay_wait(replay, COMMAND_MS), 1);
  char *said = relay_text(replay);
  char after[32];
  snprintf(after, sizeof after, "%lld", after_id_of(said));
  REQUIRE(strstr(said, "no longer where they were found") != NULL &&
              strtoll(after, NULL, 10) == entries_n(redis, "replay:"),
          "it said: %s", said);
  free(said);
  SAYS(0, "published once more", "replay", "--all", "--rate", "0", "--after-id", after);
  assert_int_equal(entries_n(redis, "replay:"), 120);
  redisFree(redis);
  PQfinish(conn);
}

static void test_rows_moved_by_vacuum_full(void **state) {
  (void)state;
  moved_by("VACUUM FULL " TABLE);
}

static void test_a_row_moved_by_an_update(void **state) {
  (void)state;
  moved_by("UPDATE " TABLE " SET attempts = 1 WHERE id = 110");
}

/* PostgreSQL dies in the middle. */
static void test_postgres_killed(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  fill_published(conn, TABLE_PLAIN, 300, 20, 1000);
  PQfinish(conn);
  struct relay *replay = start_replay(ARGS("replay", "--all", "--rate", "60", "--max-batch-bytes", "64KiB"));
  WAIT_FOR(COMMAND_MS, entries_n(redis, "replay:") >= 1, "nothing is published");
  stack_pg_kill(stack);
  assert_int_equal(relay_wait(replay, COMMAND_MS), 1);
  stack_pg_restart(stack);
  char *said = relay_text(replay);
  char after[32];
  snprintf(after, sizeof after, "%lld", after_id_of(said));
  REQUIRE(strtoll(after, NULL, 10) == entries_n(redis, "replay:"), "it said: %s", said);
  free(said);
  SAYS(0, "published once more", "replay", "--all", "--rate", "0", "--after-id", after);
  check_replayed(REPLAY_STREAM);
  redisFree(redis);
}

/* Beside a fleet under load: neither disturbs the other. */
static void test_beside_a_loaded_fleet(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  int64_t messages_n = harness_scaled(6000);
  table_create(stack, conn, TABLE_INIT, TABLE);
  struct relay *relays[2];
  for (int i = 0; i < 2; i++) {
    relays[i] = relay_start(stack, ARGS("run", "--batch", "100"));
  }
  struct writer *writer = writer_start(&(struct writer_options){.conninfo = stack->conninfo,
                                                                .table = TABLE,
                                                                .threads_n = 4,
                                                                .messages_n = messages_n,
                                                                .aggregates_n = 200,
                                                                .rollback_percent = 5,
                                                                .rate = 1500,
                                                                .seed = 5});
  WAIT_FOR(COMMAND_MS, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") > 500,
           "nothing flows");
  SAYS(0, "published once more to streams replay:{%l}", "replay", "--all", "--rate", "0");
  SAYS(0, "published once more to streams second:{%l}", "replay", "--all", "--rate", "0", "--stream", "second:{%l}");
  writer_wait(writer, COMMAND_MS);
  wait_no_pending(conn, TABLE, 10, COMMAND_MS);
  for (int i = 0; i < 2; i++) {
    relay_stop(relays[i]);
  }
  writer_verify(writer, conn);
  check_require_good(stack, NULL);
  SAYS(0, "published once more to streams third:{%l}", "replay", "--all", "--rate", "0", "--stream", "third:{%l}");
  check_replayed("third:{%l}");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_a_signal_and_going_on),      HARNESS_TEST(test_redis_full),
      HARNESS_TEST(test_a_refused_message_stops_it), HARNESS_TEST(test_a_reply_that_does_not_come),
      HARNESS_TEST(test_rows_that_go_meanwhile),     HARNESS_TEST(test_rows_moved_by_vacuum_full),
      HARNESS_TEST(test_a_row_moved_by_an_update),   HARNESS_TEST(test_postgres_killed),
      HARNESS_TEST(test_beside_a_loaded_fleet),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
