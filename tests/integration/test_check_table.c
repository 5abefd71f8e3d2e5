/*
 * outboxd check: what it finds of the table, each thing provoked on a real server and gone when it is mended.
 */
#include "test_check.h"

static struct stack *stack;

static void names_that_lead_nowhere(void **state) {
  char conninfo[STACK_URL_BYTES];
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  db_exec(conn, "CREATE SCHEMA shop; DROP ROLE IF EXISTS bare; CREATE ROLE bare LOGIN");
  table_create(stack, conn, TABLE_PLAIN, "shop.outbox_messages");
  stack_conninfo(stack, "bare", STACK_DATABASE, conninfo);
  REQUIRE_ONLY("error", "table", "search_path", "--table shop.outbox_messages", NULL);
  REQUIRE_ONLY("error", "table_rights", "schema shop", "GRANT USAGE ON SCHEMA shop TO bare", "--database", conninfo);
  REQUIRE_ONLY("error", "table_rights", "schema shop", "GRANT USAGE ON SCHEMA shop TO bare", "--database", conninfo,
               "--table", "shop.outbox_messages");
  REQUIRE_ONLY("error", "table", "quoted", "correct --table", "--table", "shop.x-y");
  db_exec(conn, "CREATE VIEW seen AS SELECT * FROM shop.outbox_messages");
  REQUIRE_ONLY("error", "table", "not a table", "docs/schema.md", "--table", "seen", "--no-cleanup");
  db_exec(conn, "DROP ROLE bare");
  PQfinish(conn);
}

static void columns_and_types(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "ALTER TABLE " TABLE " RENAME last_error TO error");
  REQUIRE_ONLY("error", "table", "no column last_error", "docs/schema.md", NULL);
  db_exec(conn, "ALTER TABLE " TABLE " RENAME error TO last_error");
  db_exec(conn, "ALTER TABLE " TABLE " ALTER payload TYPE bytea USING '\\x00'");
  REQUIRE_ONLY("error", "table", "bytea", "docs/schema.md", NULL);
  db_exec(conn, "ALTER TABLE " TABLE " ALTER payload TYPE jsonb USING '{}'");
  REQUIRE_ALL_FINE();
  PQfinish(conn);
}

static void pending_index_and_plan(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "DROP INDEX " TABLE "_id_idx");
  REQUIRE_ONLY("error", "pending_index", TABLE, "outboxd init", NULL);
  /* The catalog cannot tell: right columns and condition, but not in order. */
  db_exec(conn, "CREATE INDEX unordered ON " TABLE " USING hash (id) WHERE published_at IS NULL");
  REQUIRE_ONLY("error", "claim_plan", "outbox_messages_pkey", "USING btree", NULL);
  db_exec(conn, "CREATE INDEX ON " TABLE " (id) WHERE published_at IS NULL");
  REQUIRE_ALL_FINE();
  db_exec(conn, "DROP TABLE " TABLE);
  table_create(stack, conn, TABLE_50, TABLE);
  table_fill(conn, TABLE_50, TABLE, 5000, 100, 20);
  db_exec(conn, "ANALYZE " TABLE);
  db_exec(conn, "CREATE TABLE mine PARTITION OF " TABLE " FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')");
  db_exec(conn, "UPDATE pg_index SET indisvalid = false WHERE indrelid = 'mine'::regclass");
  REQUIRE_ONLY("error", "pending_index", "public.mine has no index", "outboxd init", "--stale-after", "100d",
               "--partitions-ahead", "0");
  db_exec(conn, "UPDATE pg_index SET indisvalid = true WHERE indrelid = 'mine'::regclass");
  REQUIRE_FINE("--stale-after", "100d", "--partitions-ahead", "0");
  PQfinish(conn);
}

static void ids_handed_out_in_advance(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "ALTER SEQUENCE " TABLE "_id_seq CACHE 20");
  REQUIRE_ONLY("error", "id_sequence", "20 ids", "ALTER SEQUENCE public." TABLE "_id_seq CACHE 1", NULL);
  db_exec(conn, "ALTER SEQUENCE " TABLE "_id_seq CACHE 1");
  REQUIRE_ALL_FINE();
  /* One that the table does not own. */
  db_exec(conn, "CREATE SEQUENCE shared CACHE 5");
  db_exec(conn, "ALTER TABLE " TABLE " ALTER id SET DEFAULT nextval('shared')");
  REQUIRE_ONLY("error", "id_sequence", "public.shared hands out 5", "ALTER SEQUENCE public.shared CACHE 1", NULL);
  db_exec(conn, "ALTER SEQUENCE shared CACHE 1");
  REQUIRE_ALL_FINE();
  PQfinish(conn);
}

static void publication_without_identity(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_50, TABLE);
  db_exec(conn, "CREATE PUBLICATION everything FOR ALL TABLES");
  REQUIRE_ONLY("error", "replica_identity", "refuses to mark", "REPLICA IDENTITY FULL", "--partitions-ahead", "0");
  db_exec(conn, "ALTER PUBLICATION everything SET (publish = 'insert')");
  REQUIRE_FINE("--partitions-ahead", "0");
  db_exec(conn, "DROP PUBLICATION everything");
  db_exec(conn, "CREATE PUBLICATION one FOR TABLE " TABLE " WITH (publish_via_partition_root)");
  REQUIRE_ONLY("error", "replica_identity", "refuses to mark", "REPLICA IDENTITY FULL", "--partitions-ahead", "0");
  db_exec(conn, "DO $do$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = '" TABLE
                "'::regclass LOOP EXECUTE 'ALTER TABLE ' || p || ' REPLICA IDENTITY FULL'; END LOOP; END $do$");
  REQUIRE_FINE("--partitions-ahead", "0");
  PQfinish(conn);
}

static void partitions_ahead(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_INIT, TABLE);
  db_exec(conn,
          "DO $do$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits JOIN pg_class c ON c.oid = "
          "inhrelid WHERE inhparent = '" TABLE
          "'::regclass AND right(c.relname, 11) > to_char((now() + interval '1 day') AT TIME ZONE "
          "'UTC', '\"y\"YYYY\"m\"MM\"d\"DD') LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $do$");
  REQUIRE_ONLY("warning", "partitions", "days ahead only", "outboxd init", NULL);
  db_exec(conn, "CREATE TABLE rest PARTITION OF " TABLE " DEFAULT");
  db_exec(conn, "INSERT INTO " TABLE " (aggregate_type, aggregate_id, event_type, payload, created_at, published_at) "
                "VALUES ('a', 'b', 'c', '{}', now() + interval '1 year', now())");
  REQUIRE_ONLY("warning", "default_partition", "rest", "partitions", "--partitions-ahead", "0");
  db_exec(conn, "DROP TABLE rest");
  db_exec(conn, "DO $do$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = '" TABLE
                "'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $do$");
  REQUIRE_ONLY("error", "partitions", "inserts fail", "outboxd init", NULL);
  struct relay *init = relay_start(stack, ARGS("init"));
  REQUIRE(relay_wait(init, 30000) == 0, "outboxd init fails");
  REQUIRE_ALL_FINE();
  PQfinish(conn);
}

static void messages_that_wait(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  db_exec(conn, "UPDATE " TABLE " SET attempts = 10 WHERE id = 4");
  REQUIRE_ONLY("warning", "messages", "the first with id 4", "retry or discard", NULL);
  REQUIRE_FINE("--max-attempts", "11");
  db_exec(conn, "UPDATE " TABLE " SET attempts = 0, created_at = now() - interval '2 hours'");
  REQUIRE_ONLY("warning", "messages", "2.0 h", "start a relay", NULL);
  REQUIRE_FINE("--stale-after", "3h");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CHECK_TEST(names_that_lead_nowhere),      CHECK_TEST(columns_and_types),
      CHECK_TEST(pending_index_and_plan),       CHECK_TEST(ids_handed_out_in_advance),
      CHECK_TEST(publication_without_identity), CHECK_TEST(partitions_ahead),
      CHECK_TEST(messages_that_wait),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
