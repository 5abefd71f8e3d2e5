/*
 * What comes along when a plain table becomes partitioned, and what is refused because it would be left behind.
 */
#include "test_upgrade.h"

#include "check.h"
#include "table.h"

/* -------------------------------------------------------------------------------------------------- what comes along */

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
                       "WHERE relkind = 'r' AND relname ~ '^" TABLE "_y'") == 1,
          "partitions differ");
  init = relay_run_plain(stack, ARGS("init", "--table", "fresh"), WAIT_MS);
  REQUIRE(relay_wait(init, 0) == 0, "init fails");
  REQUIRE(db_int(conn, "SELECT count(DISTINCT coalesce(reloptions::text, '') || relreplident::text) FROM pg_class "
                       "WHERE relkind = 'r' AND relname ~ "
                       "'^(" TABLE "|fresh)_y.*d[0-9]+$'") == 1,
          "partitions differ from those of outboxd init");
  free(acl);
  free(before);
  drain(TABLE);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- what is in the way */

struct obstacle {
  const char *make, *unmake, *says;
};

/* Each of them has to be named in the one refusal, and nothing may have been changed. */
static void require_refused(PGconn *conn, const struct obstacle *obstacles, int n) {
  static struct run run;
  for (int i = 0; i < n; i++) {
    db_exec(conn, "%s", obstacles[i].make);
  }
  start_script(&run, TABLE, "--apply", NULL);
  wait_script(&run, 1);
  const char *text = said(&run);
  for (int i = 0; i < n; i++) {
    REQUIRE(strstr(text, obstacles[i].says) != NULL, "it does not say \"%s\": %s", obstacles[i].says, text);
  }
  REQUIRE(db_int(conn, HAS_BOUND) == 0 && db_int(conn, IS_PARTITIONED) == 0, "something has been changed");
  for (int i = n - 1; i >= 0; i--) {
    db_exec(conn, "%s", obstacles[i].unmake);
  }
}

static void test_refused_with_the_reason(void **state) {
  static const struct obstacle together[] = {
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
      {"ALTER INDEX " TABLE "_pending_idx RENAME TO p; DROP INDEX p",
       "CREATE INDEX " TABLE "_pending_idx ON " TABLE " (id) WHERE published_at IS NULL", "it has no index on (id)"},
  };
  static const struct obstacle alone[] = {
      {"ALTER TABLE " TABLE " SET UNLOGGED", "ALTER TABLE " TABLE " SET LOGGED", "temporary or unlogged"},
      {"UPDATE " TABLE " SET created_at = now() + interval '1 year' WHERE id = 3",
       "UPDATE " TABLE " SET created_at = now()", "more than 31 days ahead"},
      {"ALTER TABLE " TABLE " ALTER created_at DROP NOT NULL; UPDATE " TABLE " SET created_at = NULL WHERE id = 3",
       "UPDATE " TABLE " SET created_at = now() WHERE id = 3", "rows without a created_at"},
  };
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT_PLAIN, TABLE);
  table_fill(conn, TABLE_INIT_PLAIN, TABLE, 10, 2, 10);
  require_refused(conn, together, (int)(sizeof together / sizeof together[0]));
  for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
    require_refused(conn, &alone[i], 1);
  }
  run_script("nothing", "--apply", 1, "there is no table nothing");
  run_script(TABLE, "--aply", 2, "there is no option --aply");
  run_script(TABLE, "--apply", 0, "is partitioned");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_what_comes_along),
      HARNESS_TEST(test_refused_with_the_reason),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
