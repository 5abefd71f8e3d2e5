/*
 * The checker itself: silent on streams that are right, and seen failing on each way they can be wrong.
 *
 * No relay runs here: the good streams are made from SQL, entry by entry.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "rds.h"
#include "table.h"

#define MESSAGES_N 400
#define LANES_N 4
#define TABLE "outbox_messages"

static struct stack *stack;

/* What every test starts from. */
struct scene {
  PGconn *conn;
  redisContext *redis;
  struct check_options options;
  struct check_report report;
};

static const char *const names[] = {"message_id", "aggregate_type", "aggregate_id", "event_type",
                                    "payload",    "created_at",     "headers"};

/* Publishes every row as the contract says, in id order, and marks it. */
static void publish_all(struct scene *scene, const char *stream_sql, bool has_headers) {
  PGresult *rows =
      db_rows(scene->conn,
              "SELECT %s, message_id, aggregate_type, aggregate_id, event_type, payload::text, "
              "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')%s FROM (SELECT *, "
              "((hashtextextended(aggregate_id::text, 0) %% %d) + %d) %% %d AS lane FROM %s) s ORDER BY id",
              stream_sql, has_headers ? ", headers::text" : "", LANES_N, LANES_N, LANES_N, TABLE);
  for (int row = 0; row < PQntuples(rows); row++) {
    const char *values[7];
    for (int i = 0; i < 7 && i + 1 < PQnfields(rows); i++) {
      values[i] = PQgetvalue(rows, row, i + 1);
    }
    free(rds_xadd(scene->redis, PQgetvalue(rows, row, 0), "*", has_headers ? 7 : 6, names, values, NULL));
  }
  PQclear(rows);
  db_exec(scene->conn, "UPDATE %s SET published_at = now()", TABLE);
}

static void make_scene(struct scene *scene, enum table_form form) {
  memset(scene, 0, sizeof *scene);
  scene->conn = db_open(stack->conninfo);
  scene->redis = rds_open(stack->redis_url);
  scene->options =
      (struct check_options){.conninfo = stack->conninfo, .redis_url = stack->redis_url, .lanes_n = LANES_N};
  table_create(stack, scene->conn, form, TABLE);
  table_fill(scene->conn, form, TABLE, MESSAGES_N, 40, 30);
}

static void make_good_scene(struct scene *scene) {
  make_scene(scene, TABLE_PLAIN);
  publish_all(scene, "'outbox:{' || lane || '}'", false);
}

static void end_scene(struct scene *scene) {
  PQfinish(scene->conn);
  redisFree(scene->redis);
}

/* Checks and requires so many findings of each kind, no more, no fewer. */
static void require_found(struct scene *scene, const int64_t expected[CHECK_KINDS_N]) {
  int64_t total = 0;
  bool is_good = check_run(&scene->options, &scene->report);

  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    if (scene->report.found_n[kind] != expected[kind]) {
      check_print(&scene->options, &scene->report, stderr);
      FAIL("%s: %" PRId64 " found, %" PRId64 " are there", check_kind_name((enum check_kind)kind),
           scene->report.found_n[kind], expected[kind]);
    }
    total += expected[kind];
  }
  REQUIRE(is_good == (total == 0), "the verdict does not follow from the findings");
}

static void require_named(const struct scene *scene, enum check_kind kind, const char *text) {
  REQUIRE(strstr(scene->report.first[kind][0], text) != NULL, "the finding does not name %s: %s", text,
          scene->report.first[kind][0]);
}

/* The n-th entry (from 0) of a stream, as XRANGE has it; caller frees *page. */
static const redisReply *entry_at(struct scene *scene, const char *stream, size_t n, redisReply **page) {
  *page = rds_cmd(scene->redis, "XRANGE %s - +", stream);
  REQUIRE(n < (*page)->elements, "the stream has only %zu entries", (*page)->elements);
  return (*page)->element[n];
}

/* Adds a copy of an entry to a stream, its payload changed when payload is not NULL. */
static void add_copy(struct scene *scene, const char *stream, const redisReply *entry, const char *id,
                     const char *message_id, const char *payload) {
  const char *values[6];
  size_t bytes[6];
  for (size_t i = 0; i < 6; i++) {
    values[i] = entry->element[1]->element[2 * i + 1]->str;
    bytes[i] = entry->element[1]->element[2 * i + 1]->len;
  }
  if (message_id != NULL) {
    values[0] = message_id;
    bytes[0] = strlen(message_id);
  }
  if (payload != NULL) {
    values[4] = payload;
    bytes[4] = strlen(payload);
  }
  free(rds_xadd(scene->redis, stream, id, 6, names, values, bytes));
}

/* Writes a stream anew with entries i and j exchanged and entry `altered` (-1: none) given another payload. */
static void rewrite_stream(struct scene *scene, const char *stream, const redisReply *page, size_t i, size_t j,
                           int altered, const char *payload) {
  rds_run(scene->redis, "DEL %s", stream);
  for (size_t n = 0; n < page->elements; n++) {
    size_t from = n == i ? j : n == j ? i : n;
    add_copy(scene, stream, page->element[from], "*", NULL, (int)from == altered ? payload : NULL);
  }
}

static bool is_same_aggregate(const redisReply *a, const redisReply *b) {
  return strcmp(a->element[1]->element[3]->str, b->element[1]->element[3]->str) == 0 &&
         strcmp(a->element[1]->element[5]->str, b->element[1]->element[5]->str) == 0;
}

static const char *message_id_of(const redisReply *entry) {
  return entry->element[1]->element[1]->str;
}

/* A stream that holds something. */
#define STREAM "outbox:{1}"

static void test_good_streams_pass(void **state) {
  struct scene scene;
  (void)state;
  make_good_scene(&scene);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){0});
  REQUIRE(scene.report.rows_n == MESSAGES_N && scene.report.published_n == MESSAGES_N &&
              scene.report.entries_n == MESSAGES_N && scene.report.streams_n == LANES_N && scene.report.pending_n == 0,
          "the counts are wrong");
  end_scene(&scene);
}

static void test_good_stream_an_aggregate_passes(void **state) {
  struct scene scene;
  (void)state;
  make_scene(&scene, TABLE_HEADERS);
  scene.options.stream = "out%%*[x]:{%l}:%t:%i:%e";
  publish_all(&scene, "'out%*[x]:{' || lane || '}:' || aggregate_type || ':' || aggregate_id || ':' || event_type",
              true);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){0});
  REQUIRE(scene.report.streams_n == 40 && scene.report.entries_n == MESSAGES_N, "the counts are wrong");
  end_scene(&scene);
}

static void test_deleted_entry_is_lost(void **state) {
  struct scene scene;
  redisReply *page;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 5, &page);
  rds_run(scene.redis, "XDEL %s %s", STREAM, entry->element[0]->str);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_LOST] = 1});
  require_named(&scene, CHECK_LOST, message_id_of(entry));
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_deleted_stream_is_lost(void **state) {
  struct scene scene;
  (void)state;
  make_good_scene(&scene);
  int64_t entries_n = rds_int(scene.redis, "XLEN %s", STREAM);
  rds_run(scene.redis, "DEL %s", STREAM);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_LOST] = entries_n});
  end_scene(&scene);
}

static void test_entry_added_twice_is_duplicate(void **state) {
  struct scene scene;
  redisReply *page;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 5, &page);
  add_copy(&scene, STREAM, entry, "*", NULL, NULL);
  add_copy(&scene, STREAM, entry, "*", NULL, NULL);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_DUPLICATE] = 2});
  require_named(&scene, CHECK_DUPLICATE, message_id_of(entry));
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_swapped_entries_are_out_of_order(void **state) {
  struct scene scene;
  redisReply *page;
  size_t next = 6;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 5, &page);
  while (next < page->elements && !is_same_aggregate(entry, page->element[next])) {
    next++;
  }
  REQUIRE(next < page->elements, "the aggregate has one message only");
  rewrite_stream(&scene, STREAM, page, 5, next, -1, NULL);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_OUT_OF_ORDER] = 1});
  require_named(&scene, CHECK_OUT_OF_ORDER, message_id_of(entry));
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_order_of_different_aggregates_is_free(void **state) {
  struct scene scene;
  redisReply *page;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 5, &page);
  REQUIRE(!is_same_aggregate(entry, page->element[6]), "neighbours of one aggregate");
  rewrite_stream(&scene, STREAM, page, 5, 6, -1, NULL);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){0});
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_entry_without_row_is_phantom(void **state) {
  struct scene scene;
  redisReply *page;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 5, &page);
  add_copy(&scene, STREAM, entry, "*", "00000000-0000-4000-8000-00000000dead", NULL);
  rds_run(scene.redis, "XADD %s * something else", STREAM);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_PHANTOM] = 2});
  require_named(&scene, CHECK_PHANTOM, "00000000-0000-4000-8000-00000000dead");
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_rolled_back_message_is_phantom(void **state) {
  struct scene scene;
  (void)state;
  make_good_scene(&scene);
  /* As if a relay had read what was never committed. */
  db_exec(scene.conn, "DELETE FROM %s WHERE id = 11", TABLE);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_PHANTOM] = 1});
  end_scene(&scene);
}

static void test_altered_payload_is_found(void **state) {
  struct scene scene;
  redisReply *page;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 0, &page);
  const redisReply *payload = entry->element[1]->element[9];
  char *altered = strdup(payload->str);
  REQUIRE(altered != NULL, "out of memory");
  altered[payload->len - 3] ^= 1;
  rewrite_stream(&scene, STREAM, page, 0, 0, 0, altered);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_FIELDS] = 1});
  require_named(&scene, CHECK_FIELDS, "payload differs");
  free(altered);
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_wrong_field_names_and_order_are_found(void **state) {
  static const char *const swapped[] = {"message_id", "aggregate_id", "aggregate_type",
                                        "event_type", "payload",      "created_at"};
  static const char *const values[] = {"00000000-0000-4000-8000-000000000001", "order", "1", "x", "{}",
                                       "2026-01-31T10:30:00.000000Z"};
  struct scene scene;
  (void)state;
  make_scene(&scene, TABLE_PLAIN);
  db_exec(scene.conn, "TRUNCATE %s", TABLE);
  for (int i = 1; i <= 4; i++) {
    db_exec(scene.conn,
            "INSERT INTO %s (message_id, aggregate_type, aggregate_id, event_type, payload, created_at, published_at) "
            "VALUES "
            "('00000000-0000-4000-8000-00000000000%d', 'order', '1', 'x', '{}', '2026-01-31 14:00:00+03:30', now())",
            TABLE, i);
  }
  char *stream = db_text(scene.conn, "SELECT 'outbox:{' || ((hashtextextended('1', 0) %% %d) + %d) %% %d || '}'",
                         LANES_N, LANES_N, LANES_N);
  const char *copy[6];
  memcpy(copy, values, sizeof copy);
  free(rds_xadd(scene.redis, stream, "*", 6, names, copy, NULL)); /* right */
  copy[0] = "00000000-0000-4000-8000-000000000002";
  free(rds_xadd(scene.redis, stream, "*", 6, swapped, copy, NULL));
  copy[0] = "00000000-0000-4000-8000-000000000003";
  free(rds_xadd(scene.redis, stream, "*", 5, names, copy, NULL)); /* one is missing */
  copy[0] = "00000000-0000-4000-8000-000000000004";
  copy[5] = "2026-01-31T10:30:00Z";
  free(rds_xadd(scene.redis, stream, "*", 6, names, copy, NULL)); /* another form of the same time */
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_FIELDS] = 3});
  free(stream);
  end_scene(&scene);
}

static void test_wrong_stream_is_found(void **state) {
  struct scene scene;
  redisReply *page;
  (void)state;
  make_good_scene(&scene);
  const redisReply *entry = entry_at(&scene, STREAM, 5, &page);
  rds_run(scene.redis, "XDEL %s %s", STREAM, entry->element[0]->str);
  add_copy(&scene, "outbox:{2}", entry, "*", NULL, NULL);
  require_found(&scene, (const int64_t[CHECK_KINDS_N]){[CHECK_WRONG_STREAM] = 1});
  require_named(&scene, CHECK_WRONG_STREAM, message_id_of(entry));
  freeReplyObject(page);
  end_scene(&scene);
}

static void test_pending_and_dead_are_counted(void **state) {
  struct scene scene;
  (void)state;
  make_good_scene(&scene);
  db_exec(
      scene.conn,
      "INSERT INTO %s (message_id, aggregate_type, aggregate_id, event_type, payload, attempts) SELECT "
      "gen_random_uuid(), 'order', 'x', 'y', '{}', CASE WHEN i <= 3 THEN 10 ELSE 9 END FROM generate_series(1, 8) i",
      TABLE);
  db_exec(scene.conn, "UPDATE %s SET published_at = NULL WHERE id = 5", TABLE); /* written, not yet marked */
  REQUIRE(!check_run(&scene.options, &scene.report), "dead and pending messages go unnoticed");
  REQUIRE(scene.report.dead_n == 3 && scene.report.pending_n == 6 && scene.report.pending_in_stream_n == 1,
          "dead %" PRId64 ", pending %" PRId64, scene.report.dead_n, scene.report.pending_n);
  scene.options.is_dead_ok = true;
  REQUIRE(!check_run(&scene.options, &scene.report), "pending messages go unnoticed");
  scene.options.expect_pending = 6;
  REQUIRE(check_run(&scene.options, &scene.report), "what was expected is reported");
  scene.options.is_dead_ok = false;
  REQUIRE(!check_run(&scene.options, &scene.report), "dead messages go unnoticed");
  end_scene(&scene);
}

/* -------------------------------------------------------------------------------------------------- as a command */

/* Runs outbox-check of the same build on the scene's database and Redis (or other ones); its exit status, and all it said; caller frees. */
static int run_command(const char *redis_url, const char *option, char **out) {
  char program[STACK_PATH_BYTES * 2], path[STACK_PATH_BYTES + 32];
  ssize_t n = readlink("/proc/self/exe", program, STACK_PATH_BYTES);
  REQUIRE(n > 0 && n < STACK_PATH_BYTES, "where am I?");
  program[n] = '\0';
  for (int i = 0; i < 2; i++) {
    *strrchr(program, '/') = '\0';
  }
  snprintf(program + strlen(program), STACK_PATH_BYTES, "/tools/outbox-check");
  snprintf(path, sizeof path, "%s/outbox-check.out", stack->dir);
  unlink(path);
  int status = proc_run(&(struct proc_spec){.name = "outbox-check",
                                            .argv = (const char *[]){program, "--database", stack->conninfo, "--redis",
                                                                     redis_url, "--lanes", "4", option, NULL},
                                            .stdout_path = path},
                        60000);
  FILE *file = fopen(path, "re");
  size_t cap = 0;
  *out = NULL;
  REQUIRE(file != NULL, "it has said nothing");
  if (getdelim(out, &cap, '\0', file) < 0) {
    free(*out);
    *out = strdup("");
  }
  fclose(file);
  return status;
}

static int64_t number_in(const json_t *report, const char *name) {
  const json_t *value = json_object_get(report, name);
  REQUIRE(json_is_integer(value), "no number %s", name);
  return json_integer_value(value);
}

/* Exit status, the messages' ids for people, the same counts for programs. */
static void test_command_reports_damage(void **state) {
  struct scene scene;
  redisReply *page;
  char *out;
  (void)state;
  make_good_scene(&scene);
  REQUIRE(run_command(stack->redis_url, "--quiet", &out) == 0, "good streams are reported: %s", out);
  REQUIRE(out[0] == '\0', "--quiet says: %s", out);
  free(out);

  /* One lost, one twice. */
  const redisReply *lost = entry_at(&scene, STREAM, 5, &page), *twice = page->element[7];
  rds_run(scene.redis, "XDEL %s %s", STREAM, lost->element[0]->str);
  add_copy(&scene, STREAM, twice, "*", NULL, NULL);
  REQUIRE(run_command(stack->redis_url, "--quiet", &out) == 1, "the exit status is not 1: %s", out);
  REQUIRE(strstr(out, message_id_of(lost)) != NULL && strstr(out, message_id_of(twice)) != NULL &&
              strstr(out, "lost") != NULL && strstr(out, "duplicate") != NULL,
          "it does not name what is wrong: %s", out);
  free(out);
  REQUIRE(run_command(stack->redis_url, "--json", &out) == 1, "the exit status is not 1: %s", out);
  json_t *report = json_loads(out, 0, NULL);
  REQUIRE(report != NULL, "no JSON: %s", out);
  assert_int_equal(number_in(report, "messages"), MESSAGES_N);
  assert_int_equal(number_in(report, "entries"), MESSAGES_N);
  assert_int_equal(number_in(report, "lost"), 1);
  assert_int_equal(number_in(report, "duplicate"), 1);
  assert_int_equal(number_in(report, "out_of_order"), 0);
  assert_int_equal(number_in(report, "phantom"), 0);
  json_decref(report);
  free(out);

  /* What cannot be checked is not called good, nor wrong. */
  REQUIRE(run_command("redis://127.0.0.1:1", "--json", &out) == 2, "the exit status is not 2: %s", out);
  free(out);
  freeReplyObject(page);
  end_scene(&scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_good_streams_pass),
      HARNESS_TEST(test_good_stream_an_aggregate_passes),
      HARNESS_TEST(test_deleted_entry_is_lost),
      HARNESS_TEST(test_deleted_stream_is_lost),
      HARNESS_TEST(test_entry_added_twice_is_duplicate),
      HARNESS_TEST(test_swapped_entries_are_out_of_order),
      HARNESS_TEST(test_order_of_different_aggregates_is_free),
      HARNESS_TEST(test_entry_without_row_is_phantom),
      HARNESS_TEST(test_rolled_back_message_is_phantom),
      HARNESS_TEST(test_altered_payload_is_found),
      HARNESS_TEST(test_wrong_field_names_and_order_are_found),
      HARNESS_TEST(test_wrong_stream_is_found),
      HARNESS_TEST(test_pending_and_dead_are_counted),
      HARNESS_TEST(test_command_reports_damage),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
