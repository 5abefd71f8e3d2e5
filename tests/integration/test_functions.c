/*
 * What outboxd init makes for applications: outbox_record, outbox_process_once, outbox_uuid_v7.
 */
#include "harness.h"

#include <string.h>

#include "check.h"
#include "db.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define RUN_MS 60000
#define WAIT_MS 30000

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- helpers */

/* Runs init on the table; its exit status has to be 0, and its output to hold says. */
static void init_says(const char *table, const char *says) {
  relay_require_says(stack, 0, says, ARGS("init", "--table", table), RUN_MS);
}

static void require_failed(PGresult *result, const char *sqlstate, const char *says, const char *what) {
  const char *got = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  REQUIRE(got != NULL, "not refused: %s", what);
  REQUIRE(strcmp(got, sqlstate) == 0 && strstr(text, says) != NULL, "%s: %s %s, not %s %s", what, got, text, sqlstate,
          says);
  PQclear(result);
}

/* A statement that has to fail, and to say what to do. */
static void require_refused(PGconn *conn, const char *sqlstate, const char *says, const char *sql) {
  PGresult *result = PQexec(conn, sql);
  REQUIRE(PQresultErrorField(result, PG_DIAG_MESSAGE_HINT) != NULL, "no hint (or no error): %s", sql);
  require_failed(result, sqlstate, says, sql);
}

static void prepare(PGconn *conn, const char *name, const char *sql) {
  PGresult *result = PQprepare(conn, name, sql, 0, NULL);
  REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", sql, PQerrorMessage(conn));
  PQclear(result);
}

static void execute(PGconn *conn, const char *name, int n, const char *const *values) {
  PGresult *result = PQexecPrepared(conn, name, n, values, NULL, NULL, 0);
  REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", name,
          PQerrorMessage(conn));
  PQclear(result);
}

static PGconn *open_with(enum table_form form) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, form, TABLE);
  return conn;
}

#define OUTSIDE "25P01"
#define CALL "SELECT outbox_record('order', '7', 'order.paid', '{\"amount\": 10}')"

/* -------------------------------------------------------------------------------------------------- outbox_record */

/* In every form of table the relay works on, and what it wrote is relayed. */
static void writes_into_every_form(void **state) {
  (void)state;
  for (int form = 0; form < TABLE_FORMS_N; form++) {
    const char *name = table_form_name((enum table_form)form);
    PGconn *conn = open_with((enum table_form)form);
    if (form == TABLE_BIGINT_IDS) {
      init_says(TABLE, "note: function outbox_record is not made: message_id is a number");
      REQUIRE(db_int(conn, "SELECT count(*) FROM pg_proc WHERE proname = 'outbox_record'") == 0, "%s: made", name);
      REQUIRE(db_int(conn, "SELECT outbox_process_once(9000000000000000001, 'c')::int") == 1, "%s: not new", name);
    } else {
      const char *id = form == TABLE_UUID_IDS ? "0190a7c2-5c1e-7000-8000-00000000002a" : "it''s \"7\"";
      init_says(TABLE, "function   outbox_record");
      db_exec(conn, "BEGIN");
      char *mine = db_text(conn, "SELECT outbox_record('order', '%s', 'order.paid', '{\"amount\": 1.50}')", id);
      char *given = db_text(conn,
                            "SELECT outbox_record(message_id => 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', payload => "
                            "'[1]', event_type => 'e', aggregate_id => '%s', aggregate_type => 'order')",
                            id);
      db_exec(conn, "COMMIT");
      REQUIRE(strcmp(given, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11") == 0, "%s: %s", name, given);
      REQUIRE(db_int(conn,
                     "SELECT count(*) FROM " TABLE " WHERE message_id::text = '%s' AND aggregate_type = 'order' AND "
                     "aggregate_id::text = '%s' AND event_type = 'order.paid' AND payload::text = '{\"amount\": 1.50}' "
                     "AND coalesce(attempts, 0) = 0 AND published_at IS NULL AND created_at IS NOT NULL",
                     mine, id) == 1,
              "%s: not the row that was to be written", name);
      struct relay *relay = relay_start(stack, ARGS("run", "--until-empty", "--no-cleanup", "--stale-after", "100d"));
      int status = relay_wait(relay, RUN_MS);
      REQUIRE(status == 0, "%s: the relay ends with %d", name, status);
      REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") == 2, "%s: not relayed",
              name);
      relay_forget(&relay);
      free(mine);
      free(given);
    }
    PQfinish(conn);
    stack_reset(stack);
  }
}

/* A table without a default for created_at; lengths that are exceeded are refused, not cut off. */
static void columns_of_somebody_else(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  db_exec(conn, "CREATE TABLE " TABLE
                " (id bigserial PRIMARY KEY, message_id varchar(36) NOT NULL UNIQUE, aggregate_type varchar(10) NOT "
                "NULL, aggregate_id varchar(5) NOT NULL, event_type varchar(20) NOT NULL, payload text NOT NULL, "
                "headers json, attempts int NOT NULL DEFAULT 0, last_error text, created_at timestamp, published_at "
                "timestamp)");
  init_says(TABLE, "created  function   outbox_record");
  db_exec(conn, "SET TimeZone = 'Asia/Kolkata'");
  db_exec(conn, "BEGIN; UPDATE " TABLE " SET attempts = 0");
  db_exec(conn, "SELECT outbox_record('a', '12345', 'e', '{\"b\":1}', NULL, '{\"trace\":\"x\"}')");
  db_exec(conn, "COMMIT");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE abs(extract(epoch FROM created_at - now() AT TIME ZONE "
                       "'UTC')) < 3600 AND headers->>'trace' = 'x' AND payload = '{\"b\": 1}'") == 1,
          "not what was given");
  db_exec(conn, "BEGIN");
  require_failed(PQexec(conn, "SELECT outbox_record('a', '123456', 'e', '{}')"), "22001", "too long", "a long id");
  db_exec(conn, "ROLLBACK");
  PQfinish(conn);
}

static void refuses_a_lone_call(void **state) {
  PGconn *conn = open_with(TABLE_INIT);
  (void)state;
  require_refused(conn, OUTSIDE, "outside of a transaction", CALL);
  require_refused(conn, OUTSIDE, "outside of a transaction",
                  "SELECT outbox_record('o', i::text, 'e', '{}') FROM generate_series(1, 3) i");
  /* As a driver sends it that prepares first: with parameters, the statement alone. */
  prepare(conn, "p", "SELECT outbox_record($1, $2, $3, $4)");
  const char *const values[] = {"order", "7", "e", "{}"};
  /* The plan is made at each of the first five, and kept from then on. */
  for (int i = 0; i < 10; i++) {
    require_failed(PQexecPrepared(conn, "p", 4, values, NULL, NULL, 0), OUTSIDE, "outside", "a prepared lone call");
  }
  /* A function or block that only records. */
  db_exec(conn, "CREATE FUNCTION emit() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM outbox_record(''o'', ''1'', "
                "''e'', ''{}''); END'");
  require_refused(conn, OUTSIDE, "outside of a transaction", "SELECT emit()");
  /* The change does not come first: a WITH that nothing reads runs last. */
  db_exec(conn, "CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 0)");
  require_refused(conn, OUTSIDE, "outside of a transaction",
                  "WITH u AS (UPDATE accounts SET balance = 1) SELECT outbox_record('a', '1', 'e', '{}')");
  require_refused(conn, OUTSIDE, "outside of a transaction", "BEGIN; " CALL "; COMMIT");
  db_exec(conn, "ROLLBACK");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 0, "something was written");
  REQUIRE(db_int(conn, "SELECT balance FROM accounts") == 0, "the change was kept");
  PQfinish(conn);
}

static void accepts_what_also_writes(void **state) {
  PGconn *conn = open_with(TABLE_INIT);
  (void)state;
  db_exec(conn, "CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 0), (2, 0)");
  /* 1: a transaction, though nothing is written before. */
  db_exec(conn, "BEGIN");
  db_exec(conn, CALL);
  db_exec(conn, "COMMIT");
  /* 2: the same in a block with an error handled before. */
  db_exec(conn, "BEGIN; SAVEPOINT s");
  db_exec(conn, "ROLLBACK TO s");
  db_exec(conn, CALL);
  db_exec(conn, "COMMIT");
  /* 3, 4: single statements that write first. */
  db_exec(conn, "WITH u AS (UPDATE accounts SET balance = 5 WHERE id = 1 RETURNING id) "
                "SELECT outbox_record('account', id::text, 'credited', '{}') FROM u");
  db_exec(conn, "WITH l AS MATERIALIZED (SELECT id FROM accounts WHERE id = 2 FOR UPDATE) "
                "SELECT outbox_record('account', id::text, 'seen', '{}') FROM l");
  /* 5: several statements in one message, the change first. */
  db_exec(conn, "UPDATE accounts SET balance = 6 WHERE id = 1; " CALL);
  /* 6, 7: a function, a block, each of which writes first. */
  db_exec(conn,
          "CREATE FUNCTION pay() RETURNS uuid LANGUAGE plpgsql AS 'BEGIN UPDATE accounts SET balance = 7 WHERE id "
          "= 1; RETURN outbox_record(''account'', ''1'', ''paid'', ''{}''); END'");
  db_exec(conn, "SELECT pay()");
  db_exec(conn, "DO 'BEGIN PERFORM pay(); END'");
  /* 8, 9: triggers, before the row and after it. */
  db_exec(conn,
          "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM outbox_record(TG_TABLE_NAME, "
          "NEW.id::text, TG_WHEN, to_jsonb(NEW)); RETURN NEW; END'");
  db_exec(conn, "CREATE TRIGGER b BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION tell()");
  db_exec(conn, "CREATE TRIGGER a AFTER INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION tell()");
  db_exec(conn, "INSERT INTO accounts VALUES (3, 3)");
  /* 10, 11: prepared, behind a BEGIN that was prepared too. */
  const char *const values[] = {"order", "7", "e", "{}"};
  prepare(conn, "b", "BEGIN");
  prepare(conn, "p", "SELECT outbox_record($1, $2, $3, $4)");
  execute(conn, "b", 0, NULL);
  execute(conn, "p", 4, values);
  db_exec(conn, "COMMIT");
  execute(conn, "b", 0, NULL);
  db_exec(conn, CALL);
  db_exec(conn, "COMMIT");
  /* 12: one message with Parse, Bind and Execute; docs/writing.md says that this is not told from a transaction. */
  db_exec_params(conn, "SELECT outbox_record($1, $2, $3, $4)", 4, values);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 12, "%d events, not 12",
          (int)db_int(conn, "SELECT count(*) FROM " TABLE));
  /* What is rolled back is no event. */
  db_exec(conn, "BEGIN");
  db_exec(conn, CALL);
  db_exec(conn, "ROLLBACK");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE) == 12, "an event of a transaction that was rolled back");
  PQfinish(conn);
}

static void says_what_is_wrong_with_an_argument(void **state) {
  static const struct {
    const char *arguments;
    const char *sqlstate;
    const char *says;
  } cases[] = {
      {"NULL, '7', 'e', '{}'", "22023", "aggregate_type is NULL"},
      {"'', '7', 'e', '{}'", "22023", "aggregate_type is empty"},
      {"'o', NULL, 'e', '{}'", "22023", "aggregate_id is NULL"},
      {"'o', '', 'e', '{}'", "22023", "aggregate_id is empty"},
      {"'o', '7', NULL, '{}'", "22023", "event_type is NULL"},
      {"'o', '7', '', '{}'", "22023", "event_type is empty"},
      {"'o', '7', 'e', NULL", "22023", "payload is NULL"},
      {"'', NULL, NULL, NULL", "22023", "aggregate_type is empty"},
      {"'o', '7', 'e', '{}', NULL, '{\"a\": 1}'", "42703",
       "table \"public\".\"outbox_messages\" has no column headers"},
  };
  PGconn *conn = open_with(TABLE_INIT);
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char sql[256];
    (void)snprintf(sql, sizeof sql, "SELECT outbox_record(%s)", cases[i].arguments);
    db_exec(conn, "BEGIN");
    require_refused(conn, cases[i].sqlstate, cases[i].says, sql);
    db_exec(conn, "ROLLBACK");
  }
  db_exec(conn, "ALTER TABLE " TABLE " ADD COLUMN headers jsonb");
  init_says(TABLE, "replaced function   outbox_record");
  init_says(TABLE, "found    function   outbox_record");
  db_exec(conn, "BEGIN");
  require_refused(conn, "22023", "headers is a JSON array", "SELECT outbox_record('o', '7', 'e', '{}', NULL, '[]')");
  db_exec(conn, "ROLLBACK; BEGIN");
  db_exec(conn, "SELECT outbox_record('o', '7', 'e', 'null', NULL, '{\"a\": 1}')");
  db_exec(conn, "SELECT outbox_record('o', '7', 'e', '{}')");
  db_exec(conn, "COMMIT");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE headers = '{\"a\": 1}' OR headers IS NULL") == 2,
          "headers");
  PQfinish(conn);
}

/* The caller's search_path decides nothing. */
static void does_not_go_by_the_search_path(void **state) {
  PGconn *conn = open_with(TABLE_INIT);
  (void)state;
  db_exec(conn, "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere." TABLE " (LIKE public." TABLE "); "
                "CREATE FUNCTION elsewhere.outbox_uuid_v7() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'");
  db_exec(conn, "BEGIN; SET search_path = elsewhere");
  db_exec(conn, "SELECT public.outbox_record('o', '7', 'e', '{}'), public.outbox_process_once(gen_random_uuid(), 'c')");
  db_exec(conn, "SET search_path = ''");
  db_exec(conn, "SELECT public.outbox_record('o', '7', 'e', '{}')");
  db_exec(conn, "COMMIT");
  REQUIRE(db_int(conn, "SELECT count(*) FROM public." TABLE " WHERE message_id IS NOT NULL") == 2, "written elsewhere");
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- outbox_uuid_v7 */

static void uuids_follow_the_clock(void **state) {
  PGconn *conn = open_with(TABLE_INIT);
  (void)state;
  db_exec(
      conn,
      "CREATE TABLE u AS SELECT i, (extract(epoch FROM before) * 1000000)::bigint AS before, id, (extract(epoch FROM "
      "after) * 1000000)::bigint AS after FROM (SELECT i, clock_timestamp() AS before, outbox_uuid_v7() AS id, "
      "clock_timestamp() AS after FROM generate_series(1, 100000) i OFFSET 0) x");
  REQUIRE(db_int(conn, "SELECT count(DISTINCT id) FROM u") == 100000, "not unique");
  REQUIRE(db_int(conn, "SELECT count(*) FROM u WHERE substr(id::text, 15, 1) <> '7'") == 0, "the version");
  REQUIRE(db_int(conn, "SELECT count(*) FROM u WHERE substr(id::text, 20, 1) !~ '[89ab]'") == 0, "the variant");
  REQUIRE(db_int(conn, "SELECT count(DISTINCT substr(id::text, 20)) FROM u") == 100000, "the random part repeats");
  /* Made before and after it as the id itself has it, to the microsecond (of 1/4096 ms, rounded down). */
  REQUIRE(db_int(conn, "SELECT count(*) FROM u, LATERAL (SELECT replace(id::text, '-', '') AS hex) h, LATERAL (SELECT "
                       "('x' || substr(hex, 1, 12))::bit(48)::bigint * 1000 + ceil(('x' || substr(hex, 14, "
                       "3))::bit(12)::int * 1000 / 4096.0) AS us) t WHERE us NOT BETWEEN before AND after AND after >= "
                       "before") == 0,
          "the time in an id is not that of its making");
  REQUIRE(db_int(conn,
                 "SELECT count(*) FROM (SELECT id, before, lag(id) OVER w AS id0, lag(after) OVER w AS after0 FROM "
                 "u WINDOW w AS (ORDER BY i)) x WHERE after0 < before AND id0 >= id") == 0,
          "an id that was made later is not greater");
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- outbox_process_once */

#define ONCE "SELECT outbox_process_once('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'mailer')::int"

static void is_true_the_first_time_only(void **state) {
  PGconn *conn = open_with(TABLE_INIT);
  (void)state;
  db_exec(conn, "BEGIN");
  REQUIRE(db_int(conn, ONCE) == 1, "the first time");
  REQUIRE(db_int(conn, ONCE) == 0, "the second time, in the same transaction");
  db_exec(conn, "ROLLBACK; BEGIN");
  REQUIRE(db_int(conn, ONCE) == 1, "after it was rolled back");
  db_exec(conn, "COMMIT; BEGIN");
  REQUIRE(db_int(conn, ONCE) == 0, "after it was committed");
  REQUIRE(db_int(conn, "SELECT outbox_process_once('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'auditor')::int") == 1,
          "another consumer");
  db_exec(conn, "COMMIT");
  require_refused(conn, "22004", "message_id is NULL", "SELECT outbox_process_once(NULL, 'c')");
  require_refused(conn, "22023", "consumer is NULL", "SELECT outbox_process_once(gen_random_uuid(), NULL)");
  require_refused(conn, "22023", "consumer is empty", "SELECT outbox_process_once(gen_random_uuid(), '')");
  /* Without the key there is nothing that could tell: an error rather than true each time. */
  db_exec(conn, "ALTER TABLE processed_messages DROP CONSTRAINT processed_messages_pkey");
  require_failed(PQexec(conn, ONCE), "42P10", "no unique or exclusion constraint", "without a key");
  PQfinish(conn);
}

/* Two at once: the second waits for the first, and gets what its end says. */
static void the_second_waits_for_the_first(void **state) {
  static const struct {
    const char *end;
    const char *second;
  } cases[] = {{"ROLLBACK", "1"}, {"COMMIT", "0"}};
  PGconn *first = open_with(TABLE_INIT);
  PGconn *second = db_open(stack->conninfo);
  PGconn *watch = db_open(stack->conninfo);
  char waits[160];
  (void)state;
  (void)snprintf(waits, sizeof waits, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %d",
                 PQbackendPID(second));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    db_exec(first, "BEGIN");
    REQUIRE(db_int(first, ONCE) == 1, "the first time");
    db_exec(second, "BEGIN");
    REQUIRE(PQsendQuery(second, ONCE) == 1, "%s", PQerrorMessage(second));
    wait_sql_int(watch, 1, WAIT_MS, waits);
    db_exec(first, "%s", cases[i].end);
    PGresult *result = PQgetResult(second);
    REQUIRE(PQresultStatus(result) == PGRES_TUPLES_OK && strcmp(PQgetvalue(result, 0, 0), cases[i].second) == 0,
            "after %s: %s", cases[i].end, PQresultErrorMessage(result));
    PQclear(result);
    REQUIRE(PQgetResult(second) == NULL, "one more result");
    db_exec(second, "ROLLBACK");
  }
  PQfinish(first);
  PQfinish(second);
  PQfinish(watch);
}

/* -------------------------------------------------------------------------------------------------- init */

static void leaves_what_is_not_its_own(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  db_exec(conn, "CREATE FUNCTION outbox_record(text, text) RETURNS int LANGUAGE sql AS 'SELECT 42'");
  init_says(TABLE, "note: function outbox_record is not made: outbox_record(text, text) is there already and is not "
                   "outboxd's; it is left alone");
  REQUIRE(db_int(conn, "SELECT outbox_record('a', 'b')") == 42, "changed");
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox\\_%%'") == 3, "not the others");
  relay_require_says(stack, 0, "missing: outbox_record (outboxd init adds", ARGS("check"), RUN_MS);
  db_exec(conn, "DROP FUNCTION outbox_record(text, text)");
  init_says(TABLE, "created  function   outbox_record");
  relay_require_says(stack, 0, "applications can call outbox_record and outbox_process_once", ARGS("check"), RUN_MS);
  /* A second outbox in the schema; then one that takes the first one's place. */
  init_says("other", "note: function outbox_record is not made: the one that is there writes events to "
                     "\"public\".\"outbox_messages\"; a second outbox wants a schema of its own");
  db_exec(conn, "DROP TABLE " TABLE);
  init_says("other", "replaced function   outbox_record");
  db_exec(conn, "BEGIN");
  db_exec(conn, CALL);
  db_exec(conn, "COMMIT");
  REQUIRE(db_int(conn, "SELECT count(*) FROM other") == 1, "not into the other one");
  /* processed_messages of another type: the function follows, and the old one goes. */
  db_exec(conn,
          "DROP TABLE processed_messages; CREATE TABLE processed_messages (message_id varchar(80), consumer text, "
          "processed_at timestamptz DEFAULT now(), PRIMARY KEY (message_id, consumer))");
  init_says("other", "replaced function   outbox_process_once");
  init_says("other", "found    function   outbox_process_once");
  REQUIRE(db_int(conn, "SELECT outbox_process_once('no uuid', 'c')::int + outbox_process_once('no uuid', 'c')::int") ==
              1,
          "not once");
  REQUIRE(db_int(conn, "SELECT count(*) FROM pg_proc WHERE proname = 'outbox_process_once'") == 1, "the old one");
  PQfinish(conn);
}

static void goes_on_without_the_right(void **state) {
  char conninfo[STACK_URL_BYTES];
  PGconn *conn = open_with(TABLE_PLAIN);
  (void)state;
  db_exec(conn, "DO $$ BEGIN CREATE ROLE owner_of_table LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
  db_exec(conn,
          "CREATE TABLE processed_messages (message_id uuid, consumer text, processed_at timestamptz DEFAULT now(), "
          "PRIMARY KEY (message_id, consumer))");
  db_exec(conn, "ALTER TABLE " TABLE " OWNER TO owner_of_table");
  (void)stack_conninfo(stack, "owner_of_table", STACK_DATABASE, conninfo);
  relay_require_says(stack, 0, "note: function outbox_record is not made: it takes CREATE on the table's schema",
                     ARGS("init", "--database", conninfo), RUN_MS);
  init_says(TABLE, "created  function   outbox_record");
  relay_require_says(stack, 0, "found    function   outbox_record", ARGS("init", "--database", conninfo), RUN_MS);
  db_exec(conn, "ALTER TABLE " TABLE " ADD COLUMN headers jsonb; GRANT CREATE ON SCHEMA public TO owner_of_table");
  relay_require_says(stack, 0, "is of another form and belongs to " STACK_PG_USER ": run outboxd init as that role",
                     ARGS("init", "--database", conninfo), RUN_MS);
  db_exec(conn, "DROP OWNED BY owner_of_table");
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(writes_into_every_form),
      HARNESS_TEST(columns_of_somebody_else),
      HARNESS_TEST(refuses_a_lone_call),
      HARNESS_TEST(accepts_what_also_writes),
      HARNESS_TEST(says_what_is_wrong_with_an_argument),
      HARNESS_TEST(does_not_go_by_the_search_path),
      HARNESS_TEST(uuids_follow_the_clock),
      HARNESS_TEST(is_true_the_first_time_only),
      HARNESS_TEST(the_second_waits_for_the_first),
      HARNESS_TEST(leaves_what_is_not_its_own),
      HARNESS_TEST(goes_on_without_the_right),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
