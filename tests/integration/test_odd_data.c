/*
 * Data nobody hopes for: names of any characters, payloads from nothing to 20 MB, columns without a value, times at the edge.
 */
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define RUN_MS 60000

static struct stack *stack;

static const char *const odd_names[] = {
    "",
    " ",
    "two words",
    "  outer spaces  ",
    "it's",
    "say \"hi\"",
    "{brace}",
    "}",
    "{",
    "{0}:journal",
    "journal",
    "100%",
    "%l%t%i%e%%",
    "%s%n",
    "a:b:c",
    ":",
    "line\nbreak\r\n",
    "tab\t",
    "back\\slash\\n",
    "*?[a-z]",
    "caf\u00e9",
    "\U0001F600\U0001F468\u200D\U0001F469",
    "\u05e2\u05d1\u05e8\u05d9\u05ea",
    "-1",
    "NULL",
    "; DROP TABLE outbox_messages; --",
    "$1",
    "\x01\x02\x7f",
};
#define ODD_NAMES_N ((int)(sizeof odd_names / sizeof odd_names[0]))

static void add(PGconn *conn, const char *type, const char *id, const char *event, const char *payload) {
  db_exec_params(conn,
                 "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                 "VALUES (gen_random_uuid(), $1, $2, $3, $4)",
                 4, (const char *[]){type, id, event, payload});
}

static void relay_until_empty(const char *stream) {
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup", "--stream", stream));
  int status = relay_wait(relay, RUN_MS);
  REQUIRE(status == 0, "outboxd run --until-empty ended with %d", status);
}

/* Every odd name as type with every other as id, and two messages of each aggregate. */
static void fill_odd_names(PGconn *conn) {
  char longest[256];
  char longest_wide[255 * 4 + 1] = "";

  memset(longest, 'x', 255);
  longest[255] = '\0';
  for (int i = 0; i < 255; i++) {
    strcat(longest_wide, "\U0001F600");
  }
  db_exec(conn, "BEGIN");
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < ODD_NAMES_N; i++) {
      for (int j = 0; j < ODD_NAMES_N; j++) {
        add(conn, odd_names[i], odd_names[j], odd_names[(i + j) % ODD_NAMES_N], "{}");
      }
    }
    add(conn, longest, longest, longest, "{}");
    add(conn, longest_wide, longest_wide, longest_wide, "{}");
  }
  db_exec(conn, "COMMIT");
}

static void test_odd_names_one_stream_a_lane(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  fill_odd_names(conn);
  relay_until_empty("outbox:{%l}");
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_odd_names_one_stream_an_aggregate(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  fill_odd_names(conn);
  relay_until_empty("out%%box:{%l}:%t:%i");
  check_require_good(stack, &(struct check_options){.stream = "out%%box:{%l}:%t:%i"});
  PQfinish(conn);
}

/* A stream whose name would be the journal's own key: the message cannot go there, and the journal must not suffer. */
static void test_stream_named_like_the_journal(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (int i = 0; i < 50; i++) {
    add(conn, i % 2 == 0 ? "journal" : "order", "7", "x", "{}");
  }
  struct relay *relay =
      relay_start(stack, ARGS("run", "--stream", "outbox:{%l}:%t", "--max-attempts", "1", "--until-empty"));
  REQUIRE(relay_wait(relay, RUN_MS) == 0, "the relay does not get past such a message");
  check_require_good(stack, &(struct check_options){.stream = "outbox:{%l}:%t", .max_attempts = 1, .is_dead_ok = true});
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE aggregate_type = 'order' AND published_at IS NOT NULL") ==
              25,
          "messages beside it are not published");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE
                       " WHERE aggregate_type = 'journal' AND published_at IS NULL AND last_error <> ''") == 25,
          "a message that went nowhere is not dead with a reason");
  char *key = db_text(conn, "SELECT 'outbox:{' || (((hashtextextended('7', 0) %% 16) + 16) %% 16) || '}:journal'");
  redisReply *type = rds_cmd(redis, "TYPE %s", key);
  REQUIRE(strcmp(type->str, "stream") != 0, "the journal's key is a stream");
  freeReplyObject(type);
  free(key);
  redisFree(redis);
  PQfinish(conn);
}

static void test_payloads_small_and_strange(void **state) {
  static const char *const payloads[] = {
      "null",
      "{}",
      "[]",
      "\"\"",
      "0",
      "-0.0",
      "1.10",
      "1e400",
      "123456789012345678901234567890.123456789",
      "true",
      "{\"b\":1,\"a\":2,\"b\":3}",
      "\"\\u0001\\u001f\\\"\\\\\\/\"",
      "\"\\ud83d\\ude00\"",
      "[[[[[[[[[[[]]]]]]]]]]]",
      "{\"\":{\"\":\"\"}}",
  };
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
    add(conn, "order", "1", "x", payloads[i]);
  }
  relay_until_empty("outbox:{%l}");
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_payloads_up_to_20_megabytes(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  /* Sizes around every limit, among small ones of the same aggregates; incompressible and compressible. */
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
          "SELECT gen_random_uuid(), 'order', (i %% 5)::text, 'x', "
          "CASE WHEN i %% 4 > 0 THEN to_jsonb(i) WHEN i %% 8 = 0 THEN to_jsonb(repeat('x', i * 50000)) ELSE to_jsonb("
          "(SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, i * 1000) j)) END FROM generate_series(1, "
          "100) i");
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                "SELECT gen_random_uuid(), 'order', '3', 'x', to_jsonb((SELECT string_agg(md5(j::text), '') FROM "
                "generate_series(1, 650000) j))");
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                "SELECT gen_random_uuid(), 'order', (i %% 5)::text, 'x', to_jsonb(i) FROM generate_series(1, 100) i");
  relay_until_empty("outbox:{%l}");
  check_require_good(stack, NULL);
  REQUIRE(db_int(conn, "SELECT max(octet_length(payload::text)) FROM " TABLE) > 20000000, "no payload of 20 MB");
  PQfinish(conn);
}

static void test_columns_without_a_value(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_LOOSE, TABLE);
  for (int i = 0; i < 32; i++) {
    db_exec(conn,
            "INSERT INTO " TABLE
            " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at, attempts) VALUES "
            "(gen_random_uuid(), %s, %s, %s, %s, %s, NULL)",
            i & 1 ? "NULL" : "'order'", i & 2 ? "NULL" : "'1'", i & 4 ? "NULL" : "'x'", i & 8 ? "NULL" : "'{}'",
            i & 16 ? "NULL" : "'2026-03-01 12:00:00.5'");
  }
  relay_until_empty("outbox:{%l}:%t:%i:%e");
  check_require_good(stack, &(struct check_options){.stream = "outbox:{%l}:%t:%i:%e"});
  PQfinish(conn);
}

static void test_times_at_the_edge(void **state) {
  static const char *const times[] = {
      "2026-01-31 23:59:59.999999+00", "2026-02-01 00:00:00+00",        "1969-12-31 23:59:59.999999+00",
      "1970-01-01 00:00:00+00",        "2000-01-01 00:00:00+00",        "1999-12-31 23:59:59.000001+00",
      "0001-01-01 00:00:00+00",        "9999-12-31 23:59:59.999999+00", "2024-02-29 12:00:00+14",
      "2100-03-01 00:00:00-11",        "1600-02-29 00:00:00+00",        "2016-12-31 23:59:60+00",
  };
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    db_exec(conn,
            "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES "
            "(gen_random_uuid(), 'order', '1', 'x', '{}', '%s')",
            times[i]);
  }
  relay_until_empty("outbox:{%l}");
  check_require_good(stack, NULL);
  /* What has no such form at all must not stop the others. */
  db_exec(conn,
          "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES "
          "(gen_random_uuid(), 'order', '2', 'x', '{}', 'infinity'), (gen_random_uuid(), 'order', '2', 'x', '{}', "
          "'-infinity'), "
          "(gen_random_uuid(), 'order', '2', 'x', '{}', '4000-01-01 BC'), (gen_random_uuid(), 'order', '3', 'x', '{}', "
          "now())");
  relay_until_empty("outbox:{%l}");
  wait_no_pending(conn, TABLE, 10, 1000);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_odd_names_one_stream_a_lane),
      HARNESS_TEST(test_odd_names_one_stream_an_aggregate),
      HARNESS_TEST(test_stream_named_like_the_journal),
      HARNESS_TEST(test_payloads_small_and_strange),
      HARNESS_TEST(test_payloads_up_to_20_megabytes),
      HARNESS_TEST(test_columns_without_a_value),
      HARNESS_TEST(test_times_at_the_edge),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
