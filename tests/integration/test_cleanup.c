/*
 * The cleanup: which partitions it makes, which it drops and which it keeps, what it says, what it leaves alone.
 */
#include "harness.h"

#include <string.h>

#include "db.h"
#include "maintainer.h"
#include "table.h"
#include "wait.h"

static struct stack *stack;

#define DONE_MS 60000

/* -------------------------------------------------------------------------------------------------- helpers */

/* A partitioned table without partitions, as outboxd init would make it, but for its pending index. */
static PGconn *make_table(void) {
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "SET TimeZone = 'UTC'");
  db_exec(conn, "CREATE TABLE outbox_messages (id bigserial, message_id uuid NOT NULL DEFAULT gen_random_uuid(), "
                "aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT "
                "NULL, attempts smallint DEFAULT 0 NOT NULL, last_error text, created_at timestamptz DEFAULT now() NOT "
                "NULL, published_at timestamptz) PARTITION BY RANGE (created_at)");
  db_exec(conn, "CREATE INDEX ON outbox_messages (id) WHERE published_at IS NULL");
  return conn;
}

/* The partition name: days_n days from from_days ago on. */
static void add_partition(PGconn *conn, const char *name, int from_days, int days_n) {
  db_exec(conn,
          "DO $$ DECLARE d timestamptz := date_trunc('day', now()) - interval '%d days'; BEGIN EXECUTE format("
          "'CREATE TABLE %s PARTITION OF outbox_messages FOR VALUES FROM (%%L) TO (%%L)', d, d + interval '%d days'); "
          "END $$",
          from_days, name, days_n);
}

/* Messages of so many days ago, at noon. */
static void add_messages(PGconn *conn, int days, int n, const char *published_at, int attempts) {
  db_exec(conn,
          "INSERT INTO outbox_messages (message_id, aggregate_type, aggregate_id, event_type, payload, created_at, "
          "published_at, "
          "attempts) SELECT gen_random_uuid(), 'account', 'a' || i, 'made', '{}', date_trunc('day', now()) - interval "
          "'%d days' + "
          "interval '12 hours', %s, %d FROM generate_series(1, %d) i",
          days, published_at, attempts, n);
}

static bool exists(PGconn *conn, const char *table) {
  return db_int(conn, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('%s')", table) == 1;
}

static bool is_partition(PGconn *conn, const char *table) {
  return db_int(conn, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('%s') AND relispartition", table) == 1;
}

static const char *text_of(const json_t *line, const char *field) {
  const char *text = json_string_value(json_object_get(line, field));
  REQUIRE(text != NULL, "the line has no text %s: %s", field, json_dumps(line, 0));
  return text;
}

static int64_t number_of(const json_t *line, const char *field) {
  const json_t *value = json_object_get(line, field);
  REQUIRE(json_is_number(value), "the line has no number %s: %s", field, json_dumps(line, 0));
  return (int64_t)json_number_value(value);
}

#define REQUIRE_TEXT(line_, field_, part_)                                                                   \
  REQUIRE(strstr(text_of((line_), (field_)), (part_)) != NULL, "\"%s\" is not in %s: %s", (part_), (field_), \
          text_of((line_), (field_)))

/* The last cleanup_done, after at least one. */
static const json_t *wait_done(struct relay *maintainer) {
  return relay_wait_log(maintainer, "cleanup_done", NULL, NULL, DONE_MS);
}

static const json_t *wait_about(struct relay *maintainer, const char *event) {
  return relay_wait_log(maintainer, event, NULL, NULL, DONE_MS);
}

/* -------------------------------------------------------------------------------------------------- partitions */

static void makes_ahead_and_drops_what_expired(void **state) {
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "old_1", 17, 1);
  add_partition(conn, "old_2", 16, 1); /* ended 15 days and some hours ago */
  add_partition(conn, "edge", 15, 1);  /* ended 14 days and some hours ago */
  add_partition(conn, "today", 0, 1);
  add_messages(conn, 17, 100, "now()", 0);
  add_messages(conn, 16, 100, "now()", 0);
  add_messages(conn, 15, 100, "now()", 0);
  db_exec(conn, "CREATE ROLE reader");
  db_exec(conn, "GRANT SELECT ON outbox_messages TO reader");
  struct relay *maintainer = MAINTAIN(stack, "--partitions-ahead", "3d");
  const json_t *done = wait_done(maintainer);
  assert_int_equal(number_of(done, "created"), 4); /* yesterday's, and three after today's */
  assert_int_equal(number_of(done, "dropped"), 2);
  assert_int_equal(number_of(done, "kept"), 0);
  assert_false(exists(conn, "old_1"));
  assert_false(exists(conn, "old_2"));
  assert_true(is_partition(conn, "edge"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages"), 100);
  assert_int_equal(db_int(conn,
                          "SELECT count(*) FROM pg_partition_tree('outbox_messages') t JOIN pg_class c ON c.oid = "
                          "t.relid WHERE isleaf AND relname ~ '^outbox_messages_y[0-9]{4}m[0-9]{2}d[0-9]{2}$' AND "
                          "has_table_privilege('reader', c.oid, 'SELECT')"),
                   4);
  assert_int_equal(relay_count(maintainer, "partition_created"), 4);
  assert_int_equal(relay_count(maintainer, "partition_dropped"), 2);
  db_exec(conn, "DROP OWNED BY reader");
  db_exec(conn, "DROP ROLE reader");
  PQfinish(conn);
}

static void keeps_what_is_pending_or_dead(void **state) {
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "pending", 40, 1);
  add_partition(conn, "dead", 39, 1);
  add_partition(conn, "today", 0, 1);
  add_messages(conn, 40, 10, "now()", 0);
  add_messages(conn, 40, 1, "NULL", 0);
  add_messages(conn, 39, 2, "NULL", 10);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  const json_t *kept = wait_about(maintainer, "partition_kept");
  assert_string_equal(text_of(kept, "level"), "warning");
  REQUIRE_TEXT(kept, "partition", "public.pending");
  assert_int_equal(number_of(kept, "pending"), 1);
  assert_int_equal(number_of(kept, "dead"), 0);
  assert_in_range(number_of(kept, "oldest_seconds"), 39 * 86400, 41 * 86400);
  kept = wait_about(maintainer, "partition_kept");
  REQUIRE_TEXT(kept, "partition", "public.dead");
  assert_int_equal(number_of(kept, "dead"), 2);
  /* Said once, then again when the numbers change. */
  assert_int_equal(number_of(wait_done(maintainer), "kept"), 2);
  wait_done(maintainer);
  wait_done(maintainer);
  assert_int_equal(relay_count(maintainer, "partition_kept"), 2);
  add_messages(conn, 40, 4, "NULL", 0);
  kept = wait_about(maintainer, "partition_kept");
  assert_int_equal(number_of(kept, "pending"), 5);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages"), 17);
  /* Once all is published, it goes. */
  db_exec(conn, "UPDATE outbox_messages SET published_at = now()");
  wait_about(maintainer, "partition_dropped");
  wait_about(maintainer, "partition_dropped");
  assert_false(exists(conn, "pending"));
  assert_false(exists(conn, "dead"));
  PQfinish(conn);
}

/* Whatever a DEFAULT partition costs, the result is the same. */
static void a_default_partition_is_respected(void **state) {
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "old", 40, 1);
  add_partition(conn, "kept", 39, 1);
  add_partition(conn, "today", 0, 1);
  db_exec(conn, "CREATE TABLE others PARTITION OF outbox_messages DEFAULT");
  add_messages(conn, 40, 10, "now()", 0);
  add_messages(conn, 39, 1, "NULL", 0);
  add_messages(conn, 100, 1, "NULL", 0);
  struct relay *maintainer = MAINTAIN(stack, "--partitions-ahead", "2d");
  const json_t *done = wait_done(maintainer);
  assert_int_equal(number_of(done, "created"), 3);
  assert_int_equal(number_of(done, "dropped"), 1);
  assert_int_equal(number_of(done, "kept"), 1);
  assert_false(exists(conn, "old"));
  assert_true(is_partition(conn, "kept"));
  assert_true(is_partition(conn, "others"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE published_at IS NULL"), 2);
  PQfinish(conn);
}

static void a_view_blocks_and_is_named(void **state) {
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "old", 40, 1);
  add_partition(conn, "free", 39, 1);
  add_partition(conn, "today", 0, 1);
  add_messages(conn, 40, 3, "now()", 0);
  db_exec(conn, "CREATE VIEW report_of_old AS SELECT id FROM old");
  db_exec(conn, "CREATE FUNCTION touches(old) RETURNS int LANGUAGE sql AS 'SELECT 1'");
  /* These go with the partition and are no obstacle. */
  db_exec(conn, "CREATE PUBLICATION everything FOR TABLE free, old WITH (publish = 'insert')");
  db_exec(conn, "ALTER TABLE free ADD CHECK (id > 0)");
  db_exec(conn, "CREATE STATISTICS some_statistics ON id, attempts FROM free");
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  const json_t *blocked = wait_about(maintainer, "partition_blocked");
  assert_string_equal(text_of(blocked, "level"), "warning");
  REQUIRE_TEXT(blocked, "partition", "public.old");
  REQUIRE_TEXT(blocked, "objects", "view report_of_old");
  REQUIRE_TEXT(blocked, "objects", "function touches(old)");
  REQUIRE_TEXT(blocked, "message", "report_of_old");
  const json_t *done = wait_done(maintainer);
  assert_int_equal(number_of(done, "blocked"), 1);
  assert_int_equal(number_of(done, "dropped"), 1);
  assert_true(is_partition(conn, "old"));
  assert_false(exists(conn, "free"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM report_of_old"), 3);
  db_exec(conn, "DROP FUNCTION touches");
  db_exec(conn, "DROP VIEW report_of_old");
  wait_about(maintainer, "partition_dropped");
  wait_about(maintainer, "partition_dropped");
  assert_false(exists(conn, "old"));
  PQfinish(conn);
}

/* Months and weeks of somebody else's, whatever they are called. */
static void follows_weeks_and_months(void **state) {
  (void)state;
  PGconn *conn = make_table();
  db_exec(conn, "DO $$ DECLARE m timestamptz := date_trunc('month', now()); BEGIN FOR i IN -3..0 LOOP EXECUTE "
                "format('CREATE TABLE %%I PARTITION OF outbox_messages FOR VALUES FROM (%%L) TO (%%L)', 'Month ' || "
                "-i, m + i * interval '1 month', m + (i + 1) * interval '1 month'); END LOOP; END $$");
  struct relay *maintainer = MAINTAIN(stack, "--partitions-ahead", "40d", "--retention", "15d");
  const json_t *done = wait_done(maintainer);
  assert_false(exists(conn, "\"Month 3\""));
  assert_false(exists(conn, "\"Month 2\""));
  /* The last month goes in the second half of this one. */
  assert_int_equal(is_partition(conn, "\"Month 1\""),
                   db_int(conn, "SELECT (now() - interval '15 days' < date_trunc('month', now()))::int"));
  assert_true(is_partition(conn, "\"Month 0\""));
  assert_in_range(number_of(done, "created"), 1, 2);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_partition_tree('outbox_messages') t JOIN pg_class c ON c.oid "
                                "= t.relid WHERE isleaf AND relname ~ '^outbox_messages_y[0-9]{4}m[0-9]{2}d01$'"),
                   number_of(done, "created"));
  relay_stop(maintainer);
  db_exec(conn, "DROP TABLE outbox_messages");
  PQfinish(conn);

  conn = make_table();
  add_partition(conn, "week_a", 27, 7); /* ended 20 days ago */
  add_partition(conn, "week_b", 20, 7); /* ended 13 days ago */
  add_partition(conn, "week_c", 13, 7);
  add_partition(conn, "week_d", 6, 7);
  add_messages(conn, 21, 1, "now()", 0);
  maintainer = MAINTAIN(stack, "--partitions-ahead", "14d", "--retention", "15d");
  done = wait_done(maintainer);
  assert_int_equal(number_of(done, "dropped"), 1);
  assert_int_equal(number_of(done, "created"), 2);
  assert_false(exists(conn, "week_a"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_partition_tree('outbox_messages') t JOIN pg_class c ON c.oid "
                                "= t.relid WHERE isleaf AND c.relpartbound IS NOT NULL"),
                   5);
  PQfinish(conn);
}

static void leaves_other_layouts_alone(void **state) {
  (void)state;
  PGconn *conn = make_table();
  db_exec(conn, "CREATE TABLE old PARTITION OF outbox_messages FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')");
  db_exec(conn, "CREATE TABLE nested PARTITION OF outbox_messages FOR VALUES FROM ('2020-01-02') TO ('2020-01-03') "
                "PARTITION BY LIST (aggregate_type)");
  add_partition(conn, "today", 0, 1);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  REQUIRE_TEXT(wait_about(maintainer, "cleanup_skipped"), "partitioned_by", "partitioned themselves");
  assert_int_equal(number_of(wait_done(maintainer), "created"), 0);
  wait_done(maintainer);
  assert_int_equal(relay_count(maintainer, "cleanup_skipped"), 1);
  assert_true(is_partition(conn, "old"));
  relay_stop(maintainer);
  db_exec(conn, "ALTER TABLE outbox_messages RENAME TO template_of_it");
  db_exec(conn,
          "CREATE TABLE outbox_messages (LIKE template_of_it INCLUDING DEFAULTS) PARTITION BY LIST (aggregate_type)");
  db_exec(conn, "CREATE TABLE accounts PARTITION OF outbox_messages FOR VALUES IN ('account')");
  maintainer = MAINTAIN(stack, "--cleanup-every", "1h");
  REQUIRE_TEXT(wait_about(maintainer, "cleanup_skipped"), "partitioned_by", "LIST (aggregate_type)");
  wait_done(maintainer);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass"), 1);
  PQfinish(conn);
}

/* Retention shorter than a day does not drop what would be made again at once. */
static void yesterday_always_stays(void **state) {
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "before", 2, 1);
  add_partition(conn, "yesterday", 1, 1);
  add_partition(conn, "today", 0, 1);
  struct relay *maintainer = MAINTAIN(stack, "--retention", "1h", "--cleanup-every", "1s", "--partitions-ahead", "0");
  assert_int_equal(number_of(wait_done(maintainer), "dropped"), 1);
  assert_int_equal(number_of(wait_done(maintainer), "created"), 0);
  assert_true(is_partition(conn, "yesterday"));
  assert_false(exists(conn, "before"));
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- who may, who does */

static void one_maintainer_at_a_time(void **state) {
  struct relay *both[2];
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "today", 0, 1);
  both[0] = MAINTAIN(stack, "--cleanup-every", "1s", "--session-timeout", "3s");
  wait_about(both[0], "cleanup_elected");
  both[1] = MAINTAIN(stack, "--cleanup-every", "1s", "--session-timeout", "3s");
  for (int i = 0; i < 3; i++) {
    wait_done(both[0]);
  }
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outboxd cleanup'"), 2);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 327680"), 1);
  assert_int_equal(relay_count(both[1], "cleanup_done"), 0);
  relay_kill(both[0]);
  wait_about(both[1], "cleanup_elected");
  wait_done(both[1]);
  relay_stop(both[1]);
  PQfinish(conn);
}

/* Its session goes, the server goes: it comes back, and is the maintainer again. */
static void survives_what_happens_to_its_session(void **state) {
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "today", 0, 1);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  wait_done(maintainer);
  assert_int_equal(db_int(conn, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name "
                                "= 'outboxd cleanup'"),
                   1);
  wait_about(maintainer, "cleanup_elected");
  wait_about(maintainer, "cleanup_elected");
  PQfinish(conn);
  stack_pg_shutdown(stack);
  REQUIRE_TEXT(wait_about(maintainer, "cleanup_failed"), "part", "session");
  stack_pg_restart(stack);
  wait_about(maintainer, "cleanup_elected");
  conn = db_open(stack->conninfo);
  db_exec(conn, "DROP TABLE outbox_messages");
  PQfinish(conn);
  conn = make_table();
  wait_about(maintainer, "cleanup_elected");
  wait_about(maintainer, "partition_created");
  relay_stop(maintainer);
  PQfinish(conn);
}

static void says_which_privilege_is_missing(void **state) {
  char conninfo[STACK_URL_BYTES];
  (void)state;
  PGconn *conn = make_table();
  add_partition(conn, "old", 40, 1);
  add_partition(conn, "today", 0, 1);
  db_exec(conn, "CREATE ROLE relay_role LOGIN");
  db_exec(conn, "CREATE ROLE owner_role");
  db_exec(conn, "ALTER TABLE outbox_messages OWNER TO owner_role");
  db_exec(conn, "ALTER TABLE today OWNER TO owner_role");
  db_exec(conn, "GRANT SELECT, UPDATE ON outbox_messages, today, old TO relay_role");
  (void)stack_conninfo(stack, "relay_role", STACK_DATABASE, conninfo);
  struct relay *maintainer = MAINTAIN(stack, "--database", conninfo, "--cleanup-every", "1s");
  const json_t *off = wait_about(maintainer, "cleanup_off");
  assert_string_equal(text_of(off, "level"), "warning");
  assert_string_equal(text_of(off, "part"), "partitions");
  REQUIRE_TEXT(off, "message", "GRANT owner_role TO relay_role");
  wait_done(maintainer);
  wait_done(maintainer);
  assert_int_equal(relay_count(maintainer, "cleanup_off"), 1);
  assert_int_equal(relay_count(maintainer, "cleanup_failed"), 0);
  /* As a member of the owner it still may not make tables in the schema, nor drop somebody else's. */
  db_exec(conn, "GRANT owner_role TO relay_role");
  off = wait_about(maintainer, "cleanup_off");
  assert_string_equal(text_of(off, "part"), "create");
  REQUIRE_TEXT(off, "message", "GRANT CREATE ON SCHEMA public TO relay_role");
  REQUIRE_TEXT(wait_about(maintainer, "partition_blocked"), "objects", "its owner postgres");
  db_exec(conn, "GRANT CREATE ON SCHEMA public TO relay_role, owner_role");
  wait_about(maintainer, "partition_created");
  db_exec(conn, "ALTER TABLE old OWNER TO owner_role");
  wait_about(maintainer, "partition_dropped");
  relay_stop(maintainer);
  db_exec(conn, "DROP OWNED BY relay_role, owner_role");
  db_exec(conn, "DROP ROLE relay_role");
  db_exec(conn, "DROP ROLE owner_role");
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- rows */

#define MANY 23000

static void deletes_from_a_plain_table(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, "outbox_messages");
  add_messages(conn, 40, MANY, "now()", 0);
  add_messages(conn, 40, 3, "NULL", 0);
  add_messages(conn, 39, 2, "NULL", 10);
  add_messages(conn, 39, MANY, "now()", 0);
  add_messages(conn, 1, 100, "now()", 0);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  const json_t *done = wait_done(maintainer);
  assert_int_equal(number_of(done, "deleted"), 2 * MANY);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages"), 105);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE published_at IS NULL"), 5);
  assert_int_equal(number_of(wait_done(maintainer), "deleted"), 0);
  relay_stop(maintainer);
  /* A table without an index on id is walked by its blocks. */
  db_exec(conn, "ALTER TABLE outbox_messages DROP CONSTRAINT outbox_messages_pkey");
  add_messages(conn, 40, MANY, "now()", 0);
  maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  assert_int_equal(number_of(wait_done(maintainer), "deleted"), MANY);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages"), 105);
  PQfinish(conn);
}

static void names_the_grant_for_deleting(void **state) {
  char conninfo[STACK_URL_BYTES];
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, "outbox_messages");
  db_exec(conn, "CREATE ROLE relay_role LOGIN");
  db_exec(conn, "GRANT SELECT, UPDATE ON outbox_messages TO relay_role");
  add_messages(conn, 40, 3, "now()", 0);
  (void)stack_conninfo(stack, "relay_role", STACK_DATABASE, conninfo);
  struct relay *maintainer = MAINTAIN(stack, "--database", conninfo, "--cleanup-every", "1s");
  REQUIRE_TEXT(wait_about(maintainer, "cleanup_off"), "message",
               "GRANT DELETE ON public.outbox_messages TO relay_role");
  wait_done(maintainer);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages"), 3);
  db_exec(conn, "GRANT DELETE ON outbox_messages TO relay_role");
  wait_sql_int(conn, 0, DONE_MS, "SELECT count(*) FROM outbox_messages");
  relay_stop(maintainer);
  db_exec(conn, "DROP OWNED BY relay_role");
  db_exec(conn, "DROP ROLE relay_role");
  PQfinish(conn);
}

static void keeps_processed_messages_small(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT, "outbox_messages");
  db_exec(conn,
          "INSERT INTO processed_messages SELECT gen_random_uuid(), 'mailer', now() - i * interval '1 second' FROM "
          "generate_series(1, %d) i",
          MANY);
  /* Off by default. */
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1h");
  assert_int_equal(number_of(wait_done(maintainer), "processed_deleted"), 0);
  relay_stop(maintainer);
  maintainer = MAINTAIN(stack, "--processed-retention", "2h");
  int64_t left_n = db_int(conn, "SELECT count(*) FROM processed_messages WHERE processed_at >= now() - interval '2h'");
  int64_t deleted_n = number_of(wait_done(maintainer), "processed_deleted");
  assert_in_range(deleted_n, MANY - left_n, MANY - left_n + 120);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM processed_messages"), MANY - deleted_n);
  relay_stop(maintainer);
  db_exec(conn, "DROP TABLE processed_messages");
  maintainer = MAINTAIN(stack, "--processed-retention", "2h");
  REQUIRE_TEXT(wait_about(maintainer, "cleanup_off"), "message", "no table public.processed_messages");
  wait_done(maintainer);
  PQfinish(conn);
}

int main(int argc, char *argv[]) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(makes_ahead_and_drops_what_expired),
      HARNESS_TEST(keeps_what_is_pending_or_dead),
      HARNESS_TEST(a_default_partition_is_respected),
      HARNESS_TEST(a_view_blocks_and_is_named),
      HARNESS_TEST(follows_weeks_and_months),
      HARNESS_TEST(leaves_other_layouts_alone),
      HARNESS_TEST(yesterday_always_stays),
      HARNESS_TEST(one_maintainer_at_a_time),
      HARNESS_TEST(survives_what_happens_to_its_session),
      HARNESS_TEST(says_which_privilege_is_missing),
      HARNESS_TEST(deletes_from_a_plain_table),
      HARNESS_TEST(names_the_grant_for_deleting),
      HARNESS_TEST(keeps_processed_messages_small),
  };
  maintainer_become(argc, argv);
  return HARNESS_RUN(tests, &stack, &((struct stack_options){.has_no_redis = true}));
}
