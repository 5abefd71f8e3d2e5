/*
 * outboxd replay: what it publishes once more, what it leaves alone, what it refuses.
 */
#include "test_replay.h"

/* From every form of table what the checker expects, and nothing else changes; where a relay was, entry by entry what it has published. */
static void test_every_form_as_the_relay_published_it(void **state) {
  (void)state;
  for (int form = 0; form < TABLE_FORMS_N; form++) {
    stack_reset(stack);
    PGconn *conn = db_open(stack->conninfo);
    redisContext *redis = rds_open(stack->redis_url);
    table_create(stack, conn, (enum table_form)form, TABLE);
    table_fill(conn, (enum table_form)form, TABLE, 2300, 40, 60);
    bool is_relayed = form == TABLE_PLAIN || form == TABLE_HEADERS || form == TABLE_INIT;
    if (is_relayed) {
      struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup"));
      REQUIRE(relay_wait(relay, COMMAND_MS) == 0, "%s: the relay failed", table_form_name((enum table_form)form));
    } else {
      db_exec(conn, "UPDATE " TABLE " SET published_at = now()");
    }
    char *before = fingerprint(conn);
    SAYS(0, "2,300 messages published once more to streams replay:{%l}: ids 1 to 2300\n", "replay", "--all", "--rate",
         "0");
    char *after = fingerprint(conn);
    assert_string_equal(before, after);
    check_replayed(REPLAY_STREAM);
    if (is_relayed) {
      check_require_good(stack, NULL);
    }
    /* Entry by entry: fields, values, order. */
    assert_int_equal(
        is_relayed
            ? rds_int(
                  redis, "EVAL %s 0",
                  "local n = 0 for lane = 0, 15 do "
                  "local a = redis.call('XRANGE', 'outbox:{' .. lane .. '}', '-', '+') "
                  "local b = redis.call('XRANGE', 'replay:{' .. lane .. '}', '-', '+') "
                  "if #a ~= #b then return -1 end "
                  "for i = 1, #a do if cjson.encode(a[i][2]) ~= cjson.encode(b[i][2]) then return -2 end n = n + 1 end "
                  "end return n")
            : 2300,
        2300);
    free(before);
    free(after);
    redisFree(redis);
    PQfinish(conn);
  }
}

static void test_selectors(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  table_create(stack, conn, TABLE_50, TABLE);
  /* Ids 1..12, an hour apart from midnight UTC three days ago on; aggregates Shop::Order:a, b; events x.0, x.1, x.2. */
  db_exec(conn, "SET TimeZone = 'UTC'");
  db_exec(conn,
          "INSERT INTO " TABLE
          " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at, published_at)"
          " SELECT gen_random_uuid(), 'Shop::Order', CASE i %% 2 WHEN 1 THEN 'a' ELSE 'b' END, 'x.' || i %% 3, '{}',"
          " date_trunc('day', now()) - interval '3 days' + make_interval(hours => i), now()"
          " FROM generate_series(1, 12) i");
  char *day = db_text(conn, "SELECT to_char(date_trunc('day', now()) - interval '3 days', 'YYYY-MM-DD')");
  char *next = db_text(conn, "SELECT to_char(date_trunc('day', now()) - interval '2 days', 'YYYY-MM-DD')");
  char five[64];
  char five_east[64];
  snprintf(five, sizeof five, "%sT05:00:00Z", day);
  snprintf(five_east, sizeof five_east, "%s 07:30:00.000001+02:30", day);
  SAYS(0, "12 messages would be published once more to streams replay:{%l}: ids 1 to 12; nothing was\n", "replay",
       "--dry-run", "--from", day, "--to", next);
  SAYS(0, "none of these messages is published\n", "replay", "--dry-run", "--from", next);
  SAYS(0, "none of these messages is published\n", "replay", "--dry-run", "--to", day);
  SAYS(0, ": ids 5 to 12;", "replay", "--dry-run", "--from", five);
  SAYS(0, ": ids 6 to 12;", "replay", "--dry-run", "--from", five_east);
  SAYS(0, ": ids 1 to 4;", "replay", "--dry-run", "--to", five);
  SAYS(0, ": ids 1 to 5;", "replay", "--dry-run", "--to", five_east);
  SAYS(0, "6 messages would", "replay", "--dry-run", "--aggregate", "Shop::Order:b");
  SAYS(0, "2 messages would be published once more to streams replay:{%l}: ids 2 to 8;", "replay", "--dry-run",
       "--aggregate", "Shop::Order:b", "--event", "x.2");
  SAYS(0, "1 message would", "replay", "--dry-run", "--all", "--after-id", "11");
  SAYS(0, "3 messages would", "replay", "--dry-run", "--id", "3", "--id", "4", "--id", "9", "--id", "99");
  assert_int_equal(entries_n(redis, ""), 0);

  SAYS(0, "6 messages published once more to streams mine:{%l}:%t:%i: ids 1 to 11\n", "replay", "--aggregate",
       "Shop::Order:a", "--stream", "mine:{%l}:%t:%i");
  assert_int_equal(entries_n(redis, "mine:"), 6);
  assert_int_equal(entries_n(redis, ""), 6);
  SAYS(0, "1 message published once more to streams replay:{%l}: ids 4 to 4\n", "replay", "--id", "4");
  free(day);
  free(next);
  redisFree(redis);
  PQfinish(conn);
}

static void test_what_was_never_published_is_left_out(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  fill_published(conn, TABLE_LOOSE, 20, 5, 10);
  db_exec(conn, "UPDATE " TABLE " SET published_at = NULL WHERE id <= 3; "
                "UPDATE " TABLE " SET published_at = NULL, attempts = 10 WHERE id = 4; "
                "UPDATE " TABLE " SET created_at = NULL WHERE id = 8; "
                "UPDATE " TABLE " SET last_error = 'WRONGTYPE once' WHERE id = 9");
  SAYS(0, "1 message discarded", "discard", "--all", "--reason", "no");
  char *before = fingerprint(conn);
  SAYS(0, "left out: 3 pending, 1 discarded\n", "replay", "--all", "--dry-run");
  SAYS(0,
       "16 messages published once more to streams replay:{%l}: ids 5 to 20\n"
       "left out: 3 pending, 1 discarded\n",
       "replay", "--all");
  char *after = fingerprint(conn);
  assert_string_equal(before, after);
  assert_int_equal(entries_n(redis, "replay:"), 16);
  SAYS(0, "none of these messages is published\nleft out: 2 pending\n", "replay", "--id", "1", "--id", "2");
  free(before);
  free(after);
  redisFree(redis);
  PQfinish(conn);
}

static void test_wrong_lines_are_refused(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  fill_published(conn, TABLE_PLAIN, 3, 3, 10);
  SAYS(2, "replay needs to be told which messages", "replay");
  SAYS(2, "replay needs to be told which messages", "replay", "--after-id", "3");
  SAYS(2, "--all goes with no other selector", "replay", "--all", "--id", "1");
  SAYS(2, "--from: \"yesterday\" is not a time: it takes 2026-01-31T23:59:59Z", "replay", "--from", "yesterday");
  SAYS(2, "--to: \"2026-02-30\" is not in the calendar", "replay", "--to", "2026-02-30");
  SAYS(2, "--from: \"2026-02-01T00:00:00\" does not say in which zone", "replay", "--from", "2026-02-01T00:00:00");
  SAYS(2, "--from 2026-02-01 is not before --to 2026-02-01", "replay", "--from", "2026-02-01", "--to", "2026-02-01");
  SAYS(2, "--after-id takes the number in the column id, not \"x\"", "replay", "--all", "--after-id", "x");
  SAYS(2, "--id takes the number", "replay", "--id", "x");
  SAYS(2, "the stream template has no {%l}", "replay", "--all", "--stream", "replay");
  SAYS(1, "nothing was published: there is no table nowhere", "replay", "--all", "--table", "nowhere");
  SAYS(1, "nothing was published: cannot connect to Redis", "replay", "--all", "--redis", "redis://127.0.0.1:1");
  PQfinish(conn);
}

/* Whether a relay has been there is seen in Redis, whatever this process was told. */
static void test_streams_of_a_relay_are_refused(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  table_create(stack, conn, TABLE_INIT, TABLE);
  table_fill(conn, TABLE_INIT, TABLE, 50, 10, 10);
  SAYS(2, "is a relay's, and its consumers would see these events again", "replay", "--all", "--stream", "outbox:{%l}");
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--stream", "mine:{%l}"));
  assert_int_equal(relay_wait(relay, COMMAND_MS), 0);
  SAYS(2, "add --into-relay-streams if that is what you want", "replay", "--all", "--stream", "mine:{%l}");
  SAYS(2, "is a relay's", "replay", "--all", "--stream", "mine:{%l}:%i", "--dry-run");
  assert_int_equal(entries_n(redis, ""), 50);
  SAYS(0, "outboxd: warning: with --into-relay-streams consumers of mine:{%l} see up to 50 events again\n", "replay",
       "--all", "--stream", "mine:{%l}", "--into-relay-streams");
  assert_int_equal(entries_n(redis, "mine:"), 100);
  /* The relay's journals are not touched: it goes on. */
  table_fill(conn, TABLE_INIT, TABLE, 50, 10, 10);
  relay = relay_start(stack, ARGS("run", "--until-empty", "--stream", "mine:{%l}"));
  assert_int_equal(relay_wait(relay, COMMAND_MS), 0);
  assert_int_equal(relay_count(relay, "lane_lost"), 0);
  assert_int_equal(entries_n(redis, "mine:"), 150);
  redisFree(redis);
  PQfinish(conn);
}

/* Neither searched nor waited for: another session holds all partitions but one. */
static void test_partitions_outside_of_the_range_are_not_touched(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  fill_published(conn, TABLE_50, 1000, 20, 10);
  db_exec(conn, "SET TimeZone = 'UTC'");
  char *from = db_text(conn, "SELECT to_char(now() - interval '5 days', 'YYYY-MM-DD')");
  char *to = db_text(conn, "SELECT to_char(now() - interval '4 days', 'YYYY-MM-DD')");
  int64_t wanted_n =
      db_int(conn, "SELECT count(*) FROM " TABLE " WHERE created_at >= '%s' AND created_at < '%s'", from, to);
  REQUIRE(wanted_n > 0 && wanted_n < 100, "%" PRId64 " messages on a day", wanted_n);
  db_exec(conn, "BEGIN");
  PGresult *rows = db_rows(conn,
                           "SELECT c.oid::regclass FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
                           "WHERE i.inhparent = '" TABLE "'::regclass AND c.oid NOT IN "
                           "(SELECT tableoid FROM " TABLE " WHERE created_at >= '%s' AND created_at < '%s')",
                           from, to);
  assert_true(PQntuples(rows) > 40);
  for (int i = 0; i < PQntuples(rows); i++) {
    db_exec(conn, "LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE", PQgetvalue(rows, i, 0));
  }
  PQclear(rows);
  SAYS(0, "published once more", "replay", "--from", from, "--to", to);
  assert_int_equal(entries_n(redis, "replay:"), wanted_n);
  free(from);
  free(to);
  redisFree(redis);
  PQfinish(conn);
}

/* Payloads that compress well, read in small pieces; messages larger than a piece go alone. */
static void test_large_payloads_in_small_pieces(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT, TABLE);
  for (int bytes = 10; bytes <= 200000; bytes *= 20) {
    table_fill(conn, TABLE_INIT, TABLE, 40, 7, bytes);
  }
  table_fill(conn, TABLE_INIT, TABLE, 40, 7, 10);
  db_exec(conn, "UPDATE " TABLE " SET published_at = now()");
  SAYS(0, "200 messages published once more", "replay", "--all", "--max-batch-bytes", "64KiB", "--max-write-bytes",
       "64KiB", "--rate", "0");
  check_replayed(REPLAY_STREAM);
  PQfinish(conn);
}

/* SELECT, and the Redis user that the documentation says. */
static void test_reading_the_table_is_enough(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  char conninfo[STACK_URL_BYTES];
  char url[STACK_URL_BYTES];
  fill_published(conn, TABLE_INIT, 1500, 20, 10);
  db_exec(conn, "DROP ROLE IF EXISTS reader");
  db_exec(conn, "CREATE ROLE reader LOGIN; GRANT SELECT ON " TABLE " TO reader");
  (void)stack_conninfo(stack, "reader", STACK_DATABASE, conninfo);
  roles_apply_redis(stack, REPLAY_STREAM);
  snprintf(url, sizeof url, "redis://" ROLES_REDIS_USER ":" ROLES_REDIS_PASSWORD "@127.0.0.1:%d",
           stack->redis_port.number);
  SAYS(0, "1,500 messages published once more", "replay", "--all", "--rate", "0", "--database", conninfo, "--redis",
       url);
  check_replayed(REPLAY_STREAM);
  SAYS(1, "scripts/redis-user.sh --stream 'mine:{%l}' makes a user", "replay", "--all", "--database", conninfo,
       "--redis", url, "--stream", "mine:{%l}");
  db_exec(conn, "REVOKE SELECT ON " TABLE " FROM reader");
  SAYS(1, "permission denied", "replay", "--all", "--database", conninfo, "--redis", url);
  rds_run(redis, "ACL DELUSER " ROLES_REDIS_USER);
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_every_form_as_the_relay_published_it),
      HARNESS_TEST(test_selectors),
      HARNESS_TEST(test_what_was_never_published_is_left_out),
      HARNESS_TEST(test_wrong_lines_are_refused),
      HARNESS_TEST(test_streams_of_a_relay_are_refused),
      HARNESS_TEST(test_partitions_outside_of_the_range_are_not_touched),
      HARNESS_TEST(test_large_payloads_in_small_pieces),
      HARNESS_TEST(test_reading_the_table_is_enough),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
