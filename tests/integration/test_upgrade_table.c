/*
 * Which plain tables become partitioned, what comes along with them, and what is refused because something would be left behind.
 */
#include "test_upgrade.h"

#include <inttypes.h>

#include "check.h"
#include "rds.h"
#include "table.h"

/* -------------------------------------------------------------------------------------------------- what comes along */

static void drain(const char *table) {
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--table", table));
  REQUIRE(relay_wait(relay, WAIT_MS) == 0, "the relay fails");
}

static void upgrade_form(PGconn *conn, enum table_form form, const char *name) {
  printf("%s\n", table_form_name(form));
  table_create(stack, conn, form, name);
  table_fill(conn, form, name, 200, 20, 50);
  if (db_int(conn, "SELECT count(*) FROM pg_index WHERE indrelid = '%s'::regclass AND indpred IS NOT NULL", name) ==
      0) {
    db_exec(conn, "CREATE INDEX ON %s (id) WHERE published_at IS NULL", name);
  }
  drain(name);
  table_fill(conn, form, name, 200, 20, 50);
  int64_t last = db_int(conn, "SELECT max(id) FROM %s", name);
  run_script(name, "--apply", 0, "is partitioned");
  table_fill(conn, form, name, 200, 20, 50);
  REQUIRE(db_int(conn, "SELECT count(*) FROM %s", name) == 600, "rows are missing");
  REQUIRE(db_int(conn, "SELECT count(*) FROM %s WHERE id > %" PRId64, name, last) == 200, "ids do not go on");
  drain(name);
  check_require_good(stack, &(struct check_options){.table = name});
  db_exec(conn, "DROP TABLE %s", name);
}

static void test_every_plain_form(void **state) {
  static const enum table_form forms[] = {TABLE_TEXT_IDS, TABLE_UUID_IDS, TABLE_TEXT_PAYLOAD, TABLE_HEADERS,
                                          TABLE_LOOSE};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  db_exec(conn, "CREATE SCHEMA \"Odd one\"");
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    redisContext *redis = rds_open(stack->redis_url);
    rds_run(redis, "FLUSHALL");
    redisFree(redis);
    upgrade_form(conn, forms[i], i % 2 == 0 ? "\"Odd one\".\"Out.Box\"" : TABLE);
  }
  PQfinish(conn);
}

/* Privileges, trigger, comment, identity, settings. */
static void test_what_comes_along(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT_PLAIN, TABLE);
  db_exec(conn,
          "DROP ROLE IF EXISTS reader, owner_of_it; CREATE ROLE reader; CREATE ROLE owner_of_it;"
          "GRANT CREATE, USAGE ON SCHEMA public TO owner_of_it;"
          "ALTER TABLE " TABLE " ALTER id DROP DEFAULT; DROP SEQUENCE " TABLE "_id_seq;"
          "ALTER TABLE " TABLE " ALTER id ADD GENERATED ALWAYS AS IDENTITY (START WITH 5000000000 INCREMENT BY 2);"
          "ALTER TABLE " TABLE " OWNER TO owner_of_it;"
          "GRANT SELECT, INSERT ON " TABLE " TO reader WITH GRANT OPTION; GRANT UPDATE (attempts) ON " TABLE
          " TO reader; GRANT SELECT ON " TABLE " TO PUBLIC;"
          "ALTER DEFAULT PRIVILEGES GRANT TRUNCATE ON TABLES TO reader;"
          "COMMENT ON TABLE " TABLE " IS 'it''s the outbox'");
  struct relay *init = relay_run_plain(stack, ARGS("init", "--notify"), WAIT_MS);
  REQUIRE(relay_wait(init, 0) == 0, "init fails");
  db_exec(conn,
          "INSERT INTO " TABLE " (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '1', 'e', '{}')");
  run_script(TABLE, "--apply", 0, "is partitioned");
  db_exec(conn, "ALTER DEFAULT PRIVILEGES REVOKE TRUNCATE ON TABLES FROM reader");
#define OWN                                                                                                     \
  "SELECT (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(relacl) a) || obj_description(oid) || " \
  "pg_get_userbyid(relowner) FROM pg_class WHERE oid = '%s'::regclass"
  char *acl = db_text(conn, OWN, TABLE);
  char *before = db_text(conn, OWN, TABLE "_plain");
  REQUIRE(strcmp(acl, before) == 0, "%s became %s", before, acl);
  REQUIRE(db_int(conn, "SELECT has_column_privilege('reader', '" TABLE "', 'attempts', 'UPDATE')::int") == 1,
          "a column's privilege is gone");
  db_exec(conn, "LISTEN nothing; INSERT INTO " TABLE
                " (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '1', 'e', '{}')");
  REQUIRE(db_int(conn, "SELECT max(id) FROM " TABLE) == INT64_C(5000000002), "the identity does not go on");
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_trigger WHERE tgname = 'outboxd_notify' AND tgrelid = '" TABLE
                       "'::regclass") == 1,
          "the trigger is gone");
  REQUIRE(db_int(conn, "SELECT count(DISTINCT coalesce(reloptions::text, '') || relreplident::text) FROM pg_class "
                       "WHERE relname ~ '^" TABLE "_y'") == 1,
          "partitions differ");
  init = relay_run_plain(stack, ARGS("init", "--table", "fresh"), WAIT_MS);
  REQUIRE(relay_wait(init, 0) == 0, "init fails");
  REQUIRE(
      db_int(
          conn,
          "SELECT count(DISTINCT coalesce(reloptions::text, '') || relreplident::text) FROM pg_class WHERE relname ~ "
          "'^(" TABLE "|fresh)_y.*d[0-9]+$'") == 1,
      "partitions differ from those of outboxd init");
  free(acl);
  free(before);
  drain(TABLE);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* The partition of before goes like any other once its time has come, and the sequence stays. */
static void test_the_rows_of_before_are_dropped_in_the_end(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 100, 10, 10);
  run_script(TABLE, "--apply", 0, "is partitioned");
  drain(TABLE);
  stack_pg_set_clock(stack, 8.0 * 86400);
  struct relay *relay = relay_start(stack, ARGS("run", "--retention", "2d"));
  WAIT_FOR(WAIT_MS, db_int(conn, "SELECT count(*) FROM pg_class WHERE relname = '" TABLE "_plain'") == 0,
           "the partition of before stays");
  relay_stop(relay);
  table_fill(conn, TABLE_PLAIN, TABLE, 1, 1, 10);
  REQUIRE(db_int(conn, "SELECT max(id) FROM " TABLE) == 101, "the sequence does not go on");
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- what is in the way */

static void test_refused_with_the_reason(void **state) {
  static const struct {
    const char *make, *unmake, *says;
  } obstacles[] = {
      {"CREATE VIEW seen AS SELECT id FROM " TABLE, "DROP VIEW seen", "view seen depends on it"},
      {"CREATE FUNCTION f(" TABLE ") RETURNS int LANGUAGE sql AS 'SELECT 1'", "DROP FUNCTION f", "function f("},
      {"CREATE TRIGGER mine BEFORE UPDATE ON " TABLE
       " FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
       "DROP TRIGGER mine ON " TABLE, "trigger mine"},
      {"CREATE TABLE child (m bigint REFERENCES " TABLE " (id))", "DROP TABLE child",
       "foreign key child_m_fkey of child"},
      {"CREATE TABLE kind (t text PRIMARY KEY); INSERT INTO kind VALUES ('thing.changed'); ALTER TABLE " TABLE
       " ADD CONSTRAINT kinds FOREIGN KEY (event_type) REFERENCES kind",
       "ALTER TABLE " TABLE " DROP CONSTRAINT kinds; DROP TABLE kind", "foreign key kinds of " TABLE},
      {"CREATE PUBLICATION feed FOR ALL TABLES", "DROP PUBLICATION feed", "publication feed includes it"},
      {"ALTER TABLE " TABLE " ENABLE ROW LEVEL SECURITY", "ALTER TABLE " TABLE " DISABLE ROW LEVEL SECURITY",
       "row level security"},
      {"CREATE RULE r AS ON DELETE TO " TABLE " DO INSTEAD NOTHING", "DROP RULE r ON " TABLE, "rule r: drop it"},
      {"CREATE TABLE " TABLE "_plain ()", "DROP TABLE " TABLE "_plain", "is taken"},
      {"CREATE TABLE sub () INHERITS (" TABLE ")", "DROP TABLE sub", "inheritance with sub"},
      {"ALTER TABLE " TABLE " SET UNLOGGED", "ALTER TABLE " TABLE " SET LOGGED", "temporary or unlogged"},
      {"ALTER INDEX " TABLE "_pending_idx RENAME TO p; DROP INDEX p",
       "CREATE INDEX " TABLE "_pending_idx ON " TABLE " (id) WHERE published_at IS NULL", "it has no index on (id)"},
      {"UPDATE " TABLE " SET created_at = now() + interval '1 year' WHERE id = 3",
       "UPDATE " TABLE " SET created_at = now()", "more than 31 days ahead"},
      {"ALTER TABLE " TABLE " ALTER created_at DROP NOT NULL; UPDATE " TABLE " SET created_at = NULL WHERE id = 3",
       "UPDATE " TABLE " SET created_at = now() WHERE id = 3", "rows without a created_at"},
  };
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT_PLAIN, TABLE);
  table_fill(conn, TABLE_INIT_PLAIN, TABLE, 10, 2, 10);
  for (size_t i = 0; i < sizeof obstacles / sizeof obstacles[0]; i++) {
    db_exec(conn, "%s", obstacles[i].make);
    run_script(TABLE, "--apply", 1, obstacles[i].says);
    REQUIRE(db_int(conn, HAS_BOUND) == 0 && db_int(conn, IS_PARTITIONED) == 0, "something has been changed");
    db_exec(conn, "%s", obstacles[i].unmake);
  }
  run_script("nothing", "--apply", 1, "there is no table nothing");
  run_script(TABLE, "--aply", 2, "there is no option --aply");
  run_script(TABLE, "--apply", 0, "is partitioned");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_every_plain_form),
      HARNESS_TEST(test_what_comes_along),
      HARNESS_TEST(test_the_rows_of_before_are_dropped_in_the_end),
      HARNESS_TEST(test_refused_with_the_reason),
  };
  return HARNESS_RUN(tests, &stack, &((struct stack_options){.has_clock = true}));
}
