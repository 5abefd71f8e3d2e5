/*
 * outboxd init: what it makes, what it finds, what it refuses, and that no writer waits for it.
 */
#include "harness.h"

#include <string.h>
#include <unistd.h>

#include "db.h"
#include "proc.h"
#include "wait.h"

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- helpers */

/* Runs init with further arguments to its end and returns its exit status; *out and *err_text (may be NULL) are the caller's to free. */
static int init(const char *const *more, char **out, char **err_text) {
  const char *args[32] = {"init"};
  for (int n = 1; *more != NULL; more++) {
    args[n++] = *more;
  }
  struct relay *relay = relay_run_plain(stack, args, 60000);
  if (out != NULL) {
    *out = relay_stdout(relay);
  }
  if (err_text != NULL) {
    *err_text = relay_text(relay);
  }
  return relay_wait(relay, 1000);
}

#define INIT(out, ...) init((const char *const[]){__VA_ARGS__, NULL}, (out), NULL)
#define INIT_ONLY(out) init((const char *const[]){NULL}, (out), NULL)

static void require_refused(int status, const char *says, const char *const *args) {
  char *out = NULL;
  char *text = NULL;
  int got = init(args, &out, &text);
  REQUIRE(got == status, "exit status %d, not %d; it said: %s", got, status, text);
  REQUIRE(strncmp(text, "outboxd: ", 9) == 0 && strchr(text, '\n') == text + strlen(text) - 1, "not one plain line: %s",
          text);
  REQUIRE(strstr(text, says) != NULL, "\"%s\" is not in: %s", says, text);
  REQUIRE(out[0] == '\0', "it said on stdout: %s", out);
  free(out);
  free(text);
}

#define REQUIRE_REFUSED(status, says, ...) require_refused((status), (says), (const char *const[]){__VA_ARGS__, NULL})

static void require_line(const char *text, const char *line) {
  REQUIRE(strstr(text, line) != NULL, "\"%s\" is not in:\n%s", line, text);
}

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *p = strstr(text, part); p != NULL; p = strstr(p + 1, part)) {
    n++;
  }
  return n;
}

/* pg_dump's view of a database's schema, without the lines that differ from run to run. */
static char *dump(const char *database) {
  char conninfo[STACK_URL_BYTES];
  char path[STACK_PATH_BYTES + 16];
  char program[STACK_PATH_BYTES + 16];
  (void)stack_conninfo(stack, STACK_PG_USER, database, conninfo);
  (void)snprintf(path, sizeof path, "%s/dump.sql", stack->dir);
  (void)snprintf(program, sizeof program, "%s/pg_dump", stack->pg_bin);
  (void)unlink(path);
  const char *const argv[] = {program, "--schema-only", conninfo, NULL};
  REQUIRE(proc_run(&(struct proc_spec){.name = "pg_dump", .argv = argv, .stdout_path = path}, 30000) == 0,
          "pg_dump failed");
  char *text = proc_output(path);
  char *to = text;
  for (char *line = text; *line != '\0';) {
    size_t n = strcspn(line, "\n");
    size_t whole = n + (line[n] == '\n');
    if (strncmp(line, "\\restrict", 9) != 0 && strncmp(line, "\\unrestrict", 11) != 0) {
      memmove(to, line, whole);
      to += whole;
    }
    line += whole;
  }
  *to = '\0';
  return text;
}

/* Feeds a file to psql, which stops at the first error. */
static int psql(const char *database, const char *sql) {
  char conninfo[STACK_URL_BYTES];
  char path[STACK_PATH_BYTES + 16];
  char program[STACK_PATH_BYTES + 16];
  (void)stack_conninfo(stack, STACK_PG_USER, database, conninfo);
  (void)snprintf(path, sizeof path, "%s/input.sql", stack->dir);
  (void)snprintf(program, sizeof program, "%s/psql", stack->pg_bin);
  FILE *file = fopen(path, "we");
  REQUIRE(file != NULL && fputs(sql, file) >= 0 && fclose(file) == 0, "cannot write %s", path);
  const char *const argv[] = {program, "-qX", "-v", "ON_ERROR_STOP=1", "-f", path, conninfo, NULL};
  return proc_run(&(struct proc_spec){.name = "psql", .argv = argv}, 30000);
}

static void add_message(PGconn *conn, const char *table, const char *created_at) {
  db_exec(conn,
          "INSERT INTO %s (message_id, aggregate_type, aggregate_id, event_type, payload, created_at)"
          " VALUES (gen_random_uuid(), 'account', 'a', 'made', '{}', %s)",
          table, created_at);
}

/* A partitioned table as somebody else would make it, without a pending index. */
static void make_foreign(PGconn *conn) {
  db_exec(conn, "CREATE TABLE outbox_messages (id bigserial, message_id uuid NOT NULL, aggregate_type text NOT NULL,"
                " aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, attempts smallint "
                "DEFAULT 0 NOT NULL,"
                " last_error text, created_at timestamptz DEFAULT now() NOT NULL, published_at timestamptz)"
                " PARTITION BY RANGE (created_at)");
}

/* -------------------------------------------------------------------------------------------------- tests */

static void makes_a_table_that_takes_messages(void **state) {
  char *out = NULL;
  (void)state;
  assert_int_equal(INIT_ONLY(&out), 0);
  PGconn *conn = db_open(stack->conninfo);
  require_line(out, "created  table      public.outbox_messages (partitioned");
  require_line(out, "created  index      public.outbox_messages_pending_idx");
  require_line(out, "(16)\n");
  require_line(out, "created  table      public.processed_messages");
  free(out);
  /* Yesterday to fourteen days from now, UTC days, though the server's own time zone is another. */
  db_exec(conn, "SET TimeZone = 'UTC'");
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass"), 16);
  add_message(conn, "outbox_messages", "date_trunc('day', now()) - interval '1 day'");
  add_message(conn, "outbox_messages", "date_trunc('day', now()) + interval '15 days' - interval '1 microsecond'");
  char *names = db_text(conn, "SELECT string_agg(tableoid::regclass::text, ' ' ORDER BY id) FROM outbox_messages");
  char *expected = db_text(conn, "SELECT to_char(now() - interval '1 day', '\"outbox_messages_y\"YYYY\"m\"MM\"d\"DD')"
                                 " || to_char(now() + interval '14 days', '\" outbox_messages_y\"YYYY\"m\"MM\"d\"DD')");
  assert_string_equal(names, expected);
  free(names);
  free(expected);
  assert_int_equal(db_int(conn, "SELECT seqcache FROM pg_sequence WHERE seqrelid = "
                                "pg_get_serial_sequence('outbox_messages', 'id')::regclass"),
                   1);
  assert_int_equal(
      db_int(
          conn,
          "SELECT count(*) FROM pg_index WHERE indrelid IN (SELECT relid FROM pg_partition_tree('outbox_messages'))"),
      17);
  db_exec(conn, "INSERT INTO processed_messages (message_id, consumer) SELECT message_id, 'mail' FROM outbox_messages");
  assert_int_equal(
      db_affected(conn,
                  "INSERT INTO processed_messages (message_id, consumer) SELECT message_id, 'mail' FROM outbox_messages"
                  " ON CONFLICT DO NOTHING"),
      0);
  /* Each consumer has its own. */
  assert_int_equal(
      db_affected(
          conn,
          "INSERT INTO processed_messages (message_id, consumer) SELECT message_id, 'audit' FROM outbox_messages"),
      2);
  PQfinish(conn);
}

static void a_second_run_changes_nothing(void **state) {
  static const char *const forms[] = {"--log-level=info", "--plain"};
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    char *out = NULL;
    stack_reset(stack);
    assert_int_equal(INIT(NULL, forms[i]), 0);
    char *before = dump(STACK_DATABASE);
    assert_int_equal(INIT(&out, forms[i]), 0);
    char *after = dump(STACK_DATABASE);
    assert_string_equal(before, after);
    REQUIRE(strstr(out, "created") == NULL, "it made something:\n%s", out);
    /* The table, its index, processed_messages, three functions; the partitions too. */
    assert_int_equal(count_of(out, "found "), i == 0 ? 7 : 6);
    free(before);
    free(after);
    free(out);
  }
}

static void many_at_once_make_one(void **state) {
  enum { N = 6 };
  struct relay *relays[N];
  char *all = strdup("");
  (void)state;
  for (int i = 0; i < N; i++) {
    relays[i] = relay_start_plain(stack, NULL, ARGS("init", "--database", stack->conninfo));
  }
  for (int i = 0; i < N; i++) {
    int status = relay_wait(relays[i], 60000);
    char *text = relay_text(relays[i]);
    char *out = relay_stdout(relays[i]);
    char *joined = NULL;
    REQUIRE(status == 0, "one of them ended with %d: %s", status, text);
    REQUIRE(asprintf(&joined, "%s%s", all, out) > 0, "out of memory");
    free(all);
    all = joined;
    free(text);
    free(out);
  }
  assert_int_equal(count_of(all, "created  table      public.outbox_messages "), 1);
  assert_int_equal(count_of(all, "found    table      public.outbox_messages "), N - 1);
  assert_int_equal(count_of(all, "created  partitions"), 1);
  free(all);
}

static void completes_a_plain_table_of_somebody_else(void **state) {
  char *out = NULL;
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "CREATE TABLE outbox_messages (id bigserial PRIMARY KEY, message_id uuid NOT NULL UNIQUE, "
                "aggregate_type varchar(255) NOT NULL,"
                " aggregate_id varchar(255) NOT NULL, event_type varchar(255) NOT NULL, payload jsonb NOT NULL, "
                "attempts smallint DEFAULT 0,"
                " last_error text, created_at timestamptz DEFAULT now(), published_at timestamptz, tenant int)");
  add_message(conn, "outbox_messages", "now()");
  char *columns = db_text(conn, "SELECT array_agg(a.*::text ORDER BY attnum)::text FROM pg_attribute a WHERE attrelid "
                                "= 'outbox_messages'::regclass");
  assert_int_equal(INIT_ONLY(&out), 0);
  require_line(out, "found    table      public.outbox_messages (plain");
  require_line(out, "created  index");
  free(out);
  char *after = db_text(conn, "SELECT array_agg(a.*::text ORDER BY attnum)::text FROM pg_attribute a WHERE attrelid = "
                              "'outbox_messages'::regclass");
  assert_string_equal(columns, after);
  free(columns);
  free(after);
  assert_int_equal(db_int(conn,
                          "SELECT count(*) FROM pg_index WHERE indrelid = 'outbox_messages'::regclass AND indisvalid"
                          " AND pg_get_expr(indpred, indrelid) = '(published_at IS NULL)'"),
                   1);
  PQfinish(conn);
}

/* Monthly partitions, settings and a DEFAULT partition of its owner's: new ones are made alike. */
static void follows_the_partitions_it_finds(void **state) {
  char *out = NULL;
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "SET TimeZone = 'UTC'");
  make_foreign(conn);
  db_exec(
      conn,
      "DO $$ BEGIN EXECUTE format('CREATE TABLE this_month PARTITION OF outbox_messages FOR VALUES FROM (%%L) TO (%%L)"
      " WITH (fillfactor = 77)', date_trunc('month', now()) - interval '1 month', date_trunc('month', now()) + "
      "interval '1 month'); END $$");
  db_exec(conn, "CREATE TABLE others PARTITION OF outbox_messages DEFAULT");
  add_message(conn, "outbox_messages", "now()");
  assert_int_equal(INIT(&out, "--partitions-ahead", "40d"), 0);
  require_line(out, "DEFAULT");
  free(out);
  /* Two months long, as the newest is; then as often as 40 days need. */
  assert_int_equal(
      db_int(conn,
             "SELECT count(*) FROM pg_class WHERE relname = to_char(date_trunc('month', now()) + interval '1 month',"
             " '\"outbox_messages_y\"YYYY\"m\"MM\"d01\"') AND reloptions = '{fillfactor=77}'"
             " AND pg_get_expr(relpartbound, oid) = format('FOR VALUES FROM (%%L) TO (%%L)',"
             " date_trunc('month', now()) + interval '1 month', date_trunc('month', now()) + interval '3 months')"),
      1);
  /* The index came to every partition, also those that held rows, and is whole. */
  assert_int_equal(
      db_int(conn,
             "SELECT count(*) FROM pg_partition_tree('outbox_messages') t WHERE NOT EXISTS (SELECT FROM pg_index i"
             " WHERE i.indrelid = t.relid AND i.indisvalid AND pg_get_expr(indpred, indrelid) = '(published_at IS "
             "NULL)')"),
      0);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_partition_tree('outbox_messages_pending_idx')"),
                   db_int(conn, "SELECT count(*) FROM pg_partition_tree('outbox_messages')"));
  PQfinish(conn);
}

static void leaves_other_partitioning_alone(void **state) {
  char *out = NULL;
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  make_foreign(conn);
  db_exec(conn, "ALTER TABLE outbox_messages RENAME TO template_of_it");
  db_exec(conn,
          "CREATE TABLE outbox_messages (LIKE template_of_it INCLUDING DEFAULTS) PARTITION BY LIST (aggregate_type)");
  db_exec(conn, "CREATE TABLE accounts_box PARTITION OF outbox_messages FOR VALUES IN ('account')");
  assert_int_equal(INIT_ONLY(&out), 0);
  require_line(out, "partitioned by LIST (aggregate_type)");
  free(out);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass"), 1);
  PQfinish(conn);
}

static void finishes_an_index_that_was_left_unfinished(void **state) {
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  make_foreign(conn);
  db_exec(conn, "CREATE TABLE p PARTITION OF outbox_messages FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')");
  db_exec(conn, "CREATE INDEX ON p (id) WHERE published_at IS NULL");
  db_exec(conn, "UPDATE pg_index SET indisvalid = false, indisready = false WHERE indrelid = 'p'::regclass");
  db_exec(conn, "CREATE INDEX mine ON ONLY outbox_messages (id) WHERE published_at IS NULL");
  assert_int_equal(INIT_ONLY(NULL), 0);
  assert_int_equal(
      db_int(conn, "SELECT count(*) FROM pg_index WHERE indrelid IN ('p'::regclass, 'outbox_messages'::regclass)"), 2);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_index WHERE indrelid IN ('p'::regclass, "
                                "'outbox_messages'::regclass) AND indisvalid"),
                   2);
  PQfinish(conn);
}

/* A transaction that has written holds up what init wants to do; others go on writing beside it meanwhile. */
static void no_writer_waits_for_it(void **state) {
  int64_t longest_ms = 0;
  (void)state;
  PGconn *holder = db_open(stack->conninfo);
  PGconn *conn = db_open(stack->conninfo);
  make_foreign(conn);
  db_exec(conn, "CREATE TABLE p PARTITION OF outbox_messages FOR VALUES FROM ('2020-01-01') TO ('2100-01-01')");
  db_exec(holder, "BEGIN");
  add_message(holder, "outbox_messages", "now()");
  struct relay *relay = relay_start_plain(stack, NULL, ARGS("init", "--database", stack->conninfo));
  for (struct wait wait = wait_begin(4000); wait_next(&wait);) {
    int64_t began_ms = wait_now_ms();
    add_message(conn, "outbox_messages", "now()");
    int64_t took_ms = wait_now_ms() - began_ms;
    longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
  }
  print_message("the longest insert took %d ms\n", (int)longest_ms);
  REQUIRE(relay_is_running(relay), "init was to be held up until the transaction ended");
  db_exec(holder, "COMMIT");
  assert_int_equal(relay_wait(relay, 60000), 0);
  REQUIRE(longest_ms > 100, "no insert was queued behind init: the test shows nothing");
  REQUIRE(longest_ms < wait_scaled_ms(1500), "an insert waited for %d ms", (int)longest_ms);
  PQfinish(holder);
  PQfinish(conn);
}

/* The relay's role is granted the table; its updates go to the partitions. */
static void passes_grants_and_the_owner_on(void **state) {
  char conninfo[STACK_URL_BYTES];
  char *out = NULL;
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "DROP ROLE IF EXISTS relay_role");
  db_exec(conn, "DROP ROLE IF EXISTS owner_role");
  db_exec(conn, "CREATE ROLE relay_role LOGIN");
  db_exec(conn, "CREATE ROLE owner_role LOGIN");
  db_exec(conn, "GRANT CREATE, USAGE ON SCHEMA public TO owner_role");
  assert_int_equal(INIT(NULL, "--partitions-ahead", "0"), 0);
  db_exec(conn, "ALTER TABLE outbox_messages OWNER TO owner_role");
  db_exec(conn, "GRANT SELECT, UPDATE (attempts, last_error, published_at) ON outbox_messages TO relay_role");
  assert_int_equal(INIT(&out, "--partitions-ahead", "2d"), 0);
  require_line(out, "granted  partitions");
  free(out);
  assert_int_equal(INIT(&out, "--partitions-ahead", "2d"), 0);
  REQUIRE(strstr(out, "granted") == NULL, "granted again:\n%s", out);
  free(out);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_partition_tree('outbox_messages') WHERE isleaf"
                                " AND has_table_privilege('relay_role', relid, 'SELECT') AND NOT "
                                "has_table_privilege('relay_role', relid, 'UPDATE')"
                                " AND has_column_privilege('relay_role', relid, 'published_at', 'UPDATE')"),
                   4);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_partition_tree('outbox_messages') JOIN pg_class ON oid = relid"
                                " WHERE isleaf AND relowner = 'owner_role'::regrole"),
                   2);
  /* Somebody who may create nothing hears it from PostgreSQL, with a name to it. */
  const char *const args[] = {"--table", "elsewhere", "--database",
                              stack_conninfo(stack, "relay_role", STACK_DATABASE, conninfo), NULL};
  require_refused(1, "cannot create table elsewhere: permission denied for schema public", args);
  db_exec(conn, "DROP OWNED BY relay_role, owner_role");
  db_exec(conn, "DROP ROLE relay_role");
  db_exec(conn, "DROP ROLE owner_role");
  PQfinish(conn);
}

/* PostgreSQL refuses updates of a published table that has neither a key nor a replica identity. */
static void a_publication_of_all_tables_does_no_harm(void **state) {
  (void)state;
  assert_int_equal(INIT_ONLY(NULL), 0);
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "CREATE PUBLICATION everything FOR ALL TABLES");
  add_message(conn, "outbox_messages", "now()");
  assert_int_equal(db_affected(conn, "UPDATE outbox_messages SET published_at = clock_timestamp()"), 1);
  PQfinish(conn);
}

/* What psql makes of --print is what init makes. */
static void printed_sql_makes_the_same(void **state) {
  static const char *const forms[][5] = {
      {"--table", "outbox_messages", NULL},
      {"--table", "\"My \"\"App\"\"\".\"Out Box\"", NULL},
      {"--plain", "--table", "\"My \"\"App\"\"\".\"order\"", NULL},
      {"--payload-type", "json", NULL},
      {"--payload-type", "text", "--plain", NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    char *days[2] = {NULL, NULL};
    char *printed = NULL;
    char *by_init = NULL;
    char *by_psql = NULL;
    do {
      PGconn *conn = db_open(stack->conninfo);
      free(printed);
      free(by_init);
      free(by_psql);
      free(days[0]);
      free(days[1]);
      db_exec(conn, "DROP DATABASE IF EXISTS printed");
      db_exec(conn, "CREATE DATABASE printed");
      PQfinish(conn);
      stack_reset(stack);
      conn = db_open(stack->conninfo);
      days[0] = db_text(conn, "SELECT (now() AT TIME ZONE 'UTC')::date");
      db_exec(conn, "CREATE SCHEMA \"My \"\"App\"\"\"");
      assert_int_equal(psql("printed", "CREATE SCHEMA \"My \"\"App\"\"\";\n"), 0);
      assert_int_equal(init(forms[i], NULL, NULL), 0);
      const char *args[] = {"--print",   "--database", "host=nowhere.invalid", forms[i][0], forms[i][1], forms[i][2],
                            forms[i][3], NULL};
      assert_int_equal(init(args, &printed, NULL), 0);
      assert_int_equal(psql("printed", printed), 0);
      assert_int_equal(psql("printed", printed), 0);
      by_init = dump(STACK_DATABASE);
      by_psql = dump("printed");
      days[1] = db_text(conn, "SELECT (now() AT TIME ZONE 'UTC')::date");
      PQfinish(conn);
    } while (strcmp(days[0], days[1]) != 0); /* both sides of a midnight: once more */
    assert_string_equal(by_init, by_psql);
    free(printed);
    free(by_init);
    free(by_psql);
    free(days[0]);
    free(days[1]);
  }
}

/* The type asked for, in the table and its partitions, compressed by lz4 where the server has it; outbox_record writes into it. */
static void makes_the_payload_of_the_type_asked_for(void **state) {
  static const char *const types[] = {"jsonb", "json", "text"};
  (void)state;
  for (size_t i = 0; i < 2 * sizeof types / sizeof types[0]; i++) {
    const char *type = types[i / 2];
    const char *plain = i % 2 == 0 ? "--plain" : "--log-level=info";
    char *out = NULL;
    stack_reset(stack);
    assert_int_equal(INIT(NULL, plain, "--payload-type", type), 0);
    PGconn *conn = db_open(stack->conninfo);
    char *found = db_text(
        conn, "SELECT string_agg(DISTINCT format_type(atttypid, atttypmod) || ' ' || attcompression::text, ', ') "
              "FROM pg_attribute WHERE attname = 'payload' "
              "AND attrelid IN (SELECT 'outbox_messages'::regclass UNION ALL SELECT inhrelid FROM pg_inherits)");
    char *expected = db_text(conn,
                             "SELECT '%s ' || CASE WHEN 'lz4' = ANY (enumvals) THEN 'l' ELSE '' END FROM pg_settings "
                             "WHERE name = 'default_toast_compression'",
                             type);
    assert_string_equal(found, expected);
    db_exec(conn, "CREATE TABLE business (i int); BEGIN; INSERT INTO business VALUES (1)");
    db_exec(conn, "SELECT outbox_record('order', '7', 'made', '{\"a\": 1.50}'); COMMIT");
    char *payload = db_text(conn, "SELECT payload::text FROM outbox_messages");
    assert_string_equal(payload, "{\"a\": 1.50}");
    PQfinish(conn);
    /* Another run leaves the type alone, and says so. */
    assert_int_equal(INIT(&out, "--payload-type", i / 2 == 1 ? "text" : "json"), 0);
    require_line(out, "note: --payload-type changes nothing about a table that exists");
    free(payload);
    free(found);
    free(expected);
    free(out);
  }
}

static void refuses_what_cannot_be_an_outbox(void **state) {
  char conninfo[STACK_URL_BYTES];
  (void)state;
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "CREATE VIEW a_view AS SELECT 1");
  db_exec(conn, "CREATE TABLE other (id bigserial, attempts smallint, last_error text, published_at timestamptz)");
  make_foreign(conn);
  db_exec(conn, "ALTER TABLE outbox_messages DROP COLUMN published_at");
  db_exec(conn, "CREATE TABLE wrong (id bigserial, message_id uuid, aggregate_type text, aggregate_id text, event_type "
                "int, payload jsonb,"
                " attempts smallint, last_error text, created_at timestamptz, published_at timestamptz)");
  char *before = dump(STACK_DATABASE);
  REQUIRE_REFUSED(1, "public.a_view exists and is a view", "--table", "a_view");
  REQUIRE_REFUSED(1, "message_id", "--table", "other");
  REQUIRE_REFUSED(1, "published_at", "--table", "outbox_messages");
  REQUIRE_REFUSED(1, "event_type", "--table", "wrong");
  REQUIRE_REFUSED(1, "schema \"nowhere\" does not exist", "--table", "nowhere.outbox");
  REQUIRE_REFUSED(2, "at most 51", "--table", "a23456789012345678901234567890123456789012345678901x");
  REQUIRE_REFUSED(2, "at most 51", "--print", "--table", "a23456789012345678901234567890123456789012345678901x");
  REQUIRE_REFUSED(2, "has to be quoted", "--table", "my table");
  REQUIRE_REFUSED(2, "has to be quoted", "--table", "x; DROP TABLE other");
  REQUIRE_REFUSED(1, "does not exist", "--database",
                  stack_conninfo(stack, STACK_PG_USER, "no_such_database", conninfo));
  char *after = dump(STACK_DATABASE);
  assert_string_equal(before, after);
  free(before);
  free(after);
  PQfinish(conn);
}

/* A name that is taken by something else is said, and what was made before it stays. */
static void says_whose_name_is_in_the_way(void **state) {
  char *text = NULL;
  (void)state;
  assert_int_equal(INIT(NULL, "--partitions-ahead", "0"), 0);
  PGconn *conn = db_open(stack->conninfo);
  char *name = db_text(
      conn, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '2 days', '\"outbox_messages_y\"YYYY\"m\"MM\"d\"DD')");
  db_exec(conn, "CREATE TABLE %s ()", name);
  const char *const args[] = {"--partitions-ahead", "3d", NULL};
  assert_int_equal(init(args, NULL, &text), 1);
  require_line(text, name);
  require_line(text, "already exists");
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass"), 3);
  free(text);
  free(name);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(makes_a_table_that_takes_messages),
      HARNESS_TEST(a_second_run_changes_nothing),
      HARNESS_TEST(many_at_once_make_one),
      HARNESS_TEST(completes_a_plain_table_of_somebody_else),
      HARNESS_TEST(follows_the_partitions_it_finds),
      HARNESS_TEST(leaves_other_partitioning_alone),
      HARNESS_TEST(finishes_an_index_that_was_left_unfinished),
      HARNESS_TEST(no_writer_waits_for_it),
      HARNESS_TEST(passes_grants_and_the_owner_on),
      HARNESS_TEST(a_publication_of_all_tables_does_no_harm),
      HARNESS_TEST(printed_sql_makes_the_same),
      HARNESS_TEST(makes_the_payload_of_the_type_asked_for),
      HARNESS_TEST(refuses_what_cannot_be_an_outbox),
      HARNESS_TEST(says_whose_name_is_in_the_way),
  };
  return HARNESS_RUN(tests, &stack, &((struct stack_options){.has_no_redis = true}));
}
