/*
 * How a partition is dropped: no row is lost whoever writes when, nobody waits for long, what was interrupted is finished.
 */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "db.h"
#include "maintainer.h"
#include "prng.h"
#include "wait.h"

static struct stack *stack;

#define DONE_MS 60000

/* -------------------------------------------------------------------------------------------------- helpers */

/* A table with today's partition and one, "old", that ended weeks ago, with a published message in it. */
static PGconn *make_table(int old_n) {
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "SET TimeZone = 'UTC'");
  db_exec(conn, "CREATE TABLE outbox_messages (id bigserial, message_id uuid NOT NULL DEFAULT gen_random_uuid(), "
                "aggregate_type text NOT NULL DEFAULT 'account', aggregate_id text NOT NULL DEFAULT 'a', event_type "
                "text NOT NULL DEFAULT 'made', payload jsonb NOT NULL DEFAULT '{}', attempts smallint DEFAULT 0 NOT "
                "NULL, last_error text, created_at timestamptz DEFAULT now() NOT NULL, published_at timestamptz) "
                "PARTITION BY RANGE (created_at)");
  db_exec(conn, "CREATE INDEX ON outbox_messages (id) WHERE published_at IS NULL");
  db_exec(conn, "CREATE TABLE today PARTITION OF outbox_messages FOR VALUES FROM ('2025-06-01') TO ('2125-06-01')");
  db_exec(conn,
          "DO $$ DECLARE d timestamptz := '2020-01-01'; BEGIN FOR i IN 1..%d LOOP EXECUTE format('CREATE TABLE %%I "
          "PARTITION OF outbox_messages FOR VALUES FROM (%%L) TO (%%L)', CASE i WHEN 1 THEN 'old' ELSE 'old_' || i "
          "END, d + i * interval '1 day', d + (i + 1) * interval '1 day'); END LOOP; END $$",
          old_n);
  db_exec(conn,
          "INSERT INTO outbox_messages (created_at, published_at) SELECT timestamptz '2020-01-01 12:00' + i * "
          "interval '1 day', now() FROM generate_series(1, %d) i",
          old_n);
  return conn;
}

#define ADD_PENDING "INSERT INTO old (id, created_at) VALUES (nextval('outbox_messages_id_seq'), '2020-01-02 13:00')"

static const json_t *wait_about(struct relay *maintainer, const char *event) {
  return relay_wait_log(maintainer, event, NULL, NULL, DONE_MS);
}

/* Jansson's own macros look at their argument twice. */
static bool is_ours(struct relay *maintainer) {
  const json_t *line = wait_about(maintainer, "partition_detach_finished");
  return json_is_true(json_object_get(line, "is_ours"));
}

static bool is_partition(PGconn *conn, const char *table) {
  return db_int(conn, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('%s') AND relispartition", table) == 1;
}

static bool exists(PGconn *conn, const char *table) {
  return db_int(conn, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('%s')", table) == 1;
}

/* Until the partition is on its way out. */
static void wait_pending(PGconn *conn) {
  wait_sql_int(conn, 1, DONE_MS, "SELECT count(*) FROM pg_inherits WHERE inhdetachpending");
}

/* A session that uses the table in an open transaction: a detach waits for it. */
static PGconn *hold_parent(void) {
  PGconn *conn = db_open(stack->conninfo);
  db_exec(conn, "BEGIN");
  db_exec(conn, "LOCK TABLE ONLY outbox_messages IN ACCESS SHARE MODE");
  return conn;
}

static void release(PGconn *conn) {
  db_exec(conn, "COMMIT");
  PQfinish(conn);
}

/* No partition is lost sight of: what was given back is whole, with its index attached. */
static void require_whole(PGconn *conn) {
  assert_true(is_partition(conn, "old"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_description WHERE description LIKE 'outboxd is removing%%'"),
                   0);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE "
                                "x.indrelid = 'old'::regclass AND i.relispartition AND x.indisvalid"),
                   1);
}

/* -------------------------------------------------------------------------------------------------- rows that come late */

/* While the detach waits: into the partition itself, committed. */
static void a_row_that_comes_during_the_detach_stays(void **state) {
  (void)state;
  PGconn *conn = make_table(1);
  PGconn *holder = hold_parent();
  db_exec(conn, "COMMENT ON TABLE old IS 'precious: it''s \\ mine'");
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  wait_pending(conn);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE created_at < '2021-01-01'"), 0);
  db_exec(conn, ADD_PENDING);
  release(holder);
  wait_about(maintainer, "partition_returned");
  wait_about(maintainer, "partition_kept");
  require_whole(conn);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE published_at IS NULL"), 1);
  char *comment = db_text(conn, "SELECT obj_description('old'::regclass, 'pg_class')");
  assert_string_equal(comment, "precious: it's \\ mine");
  free(comment);
  db_exec(conn, "UPDATE outbox_messages SET published_at = now()");
  wait_about(maintainer, "partition_dropped");
  assert_false(exists(conn, "old"));
  PQfinish(conn);
}

/* In a transaction that is open while the detach ends, and commits late. */
static void a_row_that_is_committed_late_stays(void **state) {
  (void)state;
  PGconn *conn = make_table(1);
  PGconn *holder = hold_parent();
  PGconn *writer = db_open(stack->conninfo);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  wait_pending(conn);
  db_exec(writer, "BEGIN");
  db_exec(writer, ADD_PENDING);
  release(holder);
  /* Now the detach waits for the writer alone. */
  wait_sql_int(conn, 1, DONE_MS, "SELECT count(*) FROM pg_locks WHERE relation = 'old'::regclass AND NOT granted");
  release(writer);
  wait_about(maintainer, "partition_returned");
  require_whole(conn);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE published_at IS NULL"), 1);
  PQfinish(conn);
}

/* Through the parent, begun before the detach. */
static void a_row_through_the_table_stays(void **state) {
  (void)state;
  PGconn *conn = make_table(1);
  PGconn *writer = db_open(stack->conninfo);
  db_exec(writer, "BEGIN");
  db_exec(writer, "INSERT INTO outbox_messages (created_at) VALUES ('2020-01-02 14:00')");
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  wait_pending(conn);
  release(writer);
  wait_about(maintainer, "partition_returned");
  require_whole(conn);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE published_at IS NULL"), 1);
  PQfinish(conn);
}

#define LATE_PARTITIONS 60
#define LATE_WRITERS 3

struct late {
  pthread_t thread;
  struct prng prng;
  atomic_bool *is_over;
  bool is_publisher;
  int64_t committed_n;
  int64_t refused_n;
  char error[256]; /* what should not have happened */
};

/* One statement or transaction; false when it was refused, which is all right when the partition is gone. */
static bool try_exec(PGconn *conn, const char *sql, struct late *late) {
  PGresult *result = PQexec(conn, sql);
  ExecStatusType status = PQresultStatus(result);
  const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  bool is_done = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
  /* 42P01: no such table; 23514: no partition for the row; XX000: it went while the statement began; 40P01: a deadlock. */
  if (!is_done && (sqlstate == NULL || strstr("42P01 23514 XX000 40P01", sqlstate) == NULL)) {
    (void)snprintf(late->error, sizeof late->error, "%s", PQresultErrorMessage(result));
  }
  PQclear(result);
  return is_done;
}

/* Writes a message into an old partition, by its name or by its date, and a note of it in the same transaction. */
static bool write_late(PGconn *conn, struct late *late) {
  char sql[1024];
  int number = (int)prng_below(&late->prng, LATE_PARTITIONS) + 1;
  bool is_direct = prng_below(&late->prng, 2) == 0;
  char name[32];
  (void)snprintf(name, sizeof name, number == 1 ? "old" : "old_%d", number);
  (void)snprintf(sql, sizeof sql,
                 "BEGIN; WITH w AS (INSERT INTO %s (id, created_at) VALUES (nextval('outbox_messages_id_seq'), "
                 "timestamptz '2020-01-01 15:00' + %d * interval '1 day') RETURNING id) INSERT INTO written SELECT id "
                 "FROM w; SELECT pg_sleep(%d / 1000.0); COMMIT",
                 is_direct ? name : "outbox_messages", number, (int)prng_below(&late->prng, 40));
  bool is_done = try_exec(conn, sql, late);
  if (!is_done) {
    PQclear(PQexec(conn, "ROLLBACK"));
  }
  return is_done;
}

/* What a relay would do, with a note of it in the same transaction. */
static bool publish_late(PGconn *conn, struct late *late) {
  return try_exec(conn,
                  "WITH p AS (UPDATE outbox_messages SET published_at = clock_timestamp() WHERE published_at IS NULL "
                  "RETURNING id) INSERT INTO published SELECT id FROM p; SELECT pg_sleep(0.05)",
                  late);
}

static void *late_main(void *arg) {
  struct late *late = arg;
  PGconn *conn = PQconnectdb(stack->conninfo);
  PQclear(PQexec(conn, "SET TimeZone = 'UTC'"));
  while (!atomic_load(late->is_over) && late->error[0] == '\0') {
    if (late->is_publisher ? publish_late(conn, late) : write_late(conn, late)) {
      late->committed_n++;
    } else {
      late->refused_n++;
    }
  }
  PQfinish(conn);
  return NULL;
}

/* Sixty partitions go while three writers write into them and one publishes: what was committed is there or was published. */
static void no_committed_row_is_ever_lost(void **state) {
  struct late late[LATE_WRITERS + 1];
  atomic_bool is_over = false;
  int64_t committed_n = 0;
  int64_t refused_n = 0;
  uint64_t seed = prng_seed();
  (void)state;
  PGconn *conn = make_table(LATE_PARTITIONS);
  db_exec(conn, "CREATE TABLE written (id bigint)");
  db_exec(conn, "CREATE TABLE published (id bigint)");
  memset(late, 0, sizeof late);
  for (int i = 0; i <= LATE_WRITERS; i++) {
    late[i].prng.state = seed + (uint64_t)i;
    late[i].is_over = &is_over;
    late[i].is_publisher = i == LATE_WRITERS;
    REQUIRE(pthread_create(&late[i].thread, NULL, late_main, &late[i]) == 0, "no thread");
  }
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s", "--partitions-ahead", "0");
  struct wait wait = wait_begin(harness_scaled(20000));
  while (wait_next(&wait) && relay_count(maintainer, "partition_dropped") < LATE_PARTITIONS) {
    wait.pause_ms = 100;
  }
  atomic_store(&is_over, true);
  for (int i = 0; i <= LATE_WRITERS; i++) {
    REQUIRE(pthread_join(late[i].thread, NULL) == 0, "no join");
    REQUIRE(late[i].error[0] == '\0', "a writer failed: %s", late[i].error);
    committed_n += late[i].is_publisher ? 0 : late[i].committed_n;
    refused_n += late[i].is_publisher ? 0 : late[i].refused_n;
  }
  /* Those that are detached just now come back or go, so that all there is can be seen through the table. */
  wait_about(maintainer, "cleanup_done");
  int64_t last_n = relay_count(maintainer, "cleanup_done");
  WAIT_FOR(DONE_MS, relay_count(maintainer, "cleanup_done") > last_n, "no run any more");
  print_message("%d written, %d refused, %d dropped, %d returned, %d busy\n", (int)committed_n, (int)refused_n,
                relay_count(maintainer, "partition_dropped"), relay_count(maintainer, "partition_returned"),
                relay_count(maintainer, "partition_busy"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM (SELECT id FROM written EXCEPT SELECT id FROM published EXCEPT "
                                "SELECT id FROM outbox_messages) lost"),
                   0);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM written"), committed_n);
  REQUIRE(relay_count(maintainer, "partition_dropped") > 5, "too few partitions went: the test shows nothing");
  REQUIRE(committed_n > 20, "too few rows were written: the test shows nothing");
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- who waits */

/* The longest of inserts through the table and, as long as it is there, into the old partition, until it has been gone for a while. */
static int64_t longest_insert_ms(PGconn *conn, PGconn *holder, int64_t held_ms, struct relay *maintainer) {
  int64_t began_ms = wait_now_ms();
  int64_t longest_ms = 0;
  bool is_held = true;
  for (struct wait wait = wait_begin(held_ms + DONE_MS);
       wait_next(&wait) && relay_count(maintainer, "partition_dropped") == 0;) {
    const char *const inserts[] = {
        "INSERT INTO outbox_messages DEFAULT VALUES",
        "INSERT INTO old (id, created_at, published_at) VALUES (0, '2020-01-02 13:00', now())"};
    for (int i = 0; i < 2; i++) {
      int64_t insert_ms = wait_now_ms();
      PGresult *result = PQexec(conn, inserts[i]);
      int64_t took_ms = wait_now_ms() - insert_ms;
      REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK || i == 1, "%s", PQresultErrorMessage(result));
      PQclear(result);
      longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
    }
    if (is_held && wait_now_ms() - began_ms > held_ms) {
      REQUIRE(relay_count(maintainer, "partition_dropped") == 0 && exists(conn, "old"), "the reader held nothing up");
      release(holder);
      is_held = false;
    }
  }
  REQUIRE(!is_held && relay_count(maintainer, "partition_dropped") == 1, "the partition was not dropped in the end");
  return longest_ms;
}

#define HELD_MS 6000

static void no_insert_waits_for_long(void **state) {
  static const struct {
    const char *reader, *name;
    bool has_default;
  } cases[] = {
      {"SELECT count(*) FROM outbox_messages", "a reader of the table", false},
      {"SELECT count(*) FROM old", "a reader of the partition", false},
      {"SELECT count(*) FROM outbox_messages", "a reader of the table, DEFAULT partition", true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    PGconn *conn = make_table(1);
    PGconn *holder = db_open(stack->conninfo);
    if (cases[i].has_default) {
      db_exec(conn, "CREATE TABLE others PARTITION OF outbox_messages DEFAULT");
    }
    db_exec(holder, "BEGIN");
    db_exec(holder, "%s", cases[i].reader);
    struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s", "--partitions-ahead", "0");
    int64_t longest_ms = longest_insert_ms(conn, holder, HELD_MS, maintainer);
    print_message("beside %s of 6 s, the longest insert took %d ms\n", cases[i].name, (int)longest_ms);
    REQUIRE(longest_ms <= wait_scaled_ms(1250), "an insert waited for %d ms beside %s", (int)longest_ms, cases[i].name);
    relay_stop(maintainer);
    db_exec(conn, "DROP TABLE outbox_messages");
    PQfinish(conn);
  }
}

/* What is in use is tried again, and that is said. */
static void says_what_is_in_use(void **state) {
  (void)state;
  PGconn *conn = make_table(1);
  db_exec(conn, "CREATE TABLE others PARTITION OF outbox_messages DEFAULT"); /* then nothing waits for long */
  PGconn *holder = hold_parent();
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s", "--partitions-ahead", "0");
  const json_t *line = wait_about(maintainer, "partition_busy");
  assert_string_equal(json_string_value(json_object_get(line, "partition")), "public.old");
  assert_string_equal(json_string_value(json_object_get(line, "level")), "info");
  assert_non_null(json_string_value(json_object_get(line, "reason")));
  assert_true(is_partition(conn, "old"));
  release(holder);
  wait_about(maintainer, "partition_dropped");
  relay_stop(maintainer);
  PQfinish(conn);
}

/* A detach that waits is given up at SIGTERM, in the server too, and finished by the next process. */
static void ends_promptly_while_it_waits(void **state) {
  (void)state;
  PGconn *conn = make_table(1);
  PGconn *holder = hold_parent();
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1h");
  wait_pending(conn);
  int64_t began_ms = wait_now_ms();
  relay_stop(maintainer);
  REQUIRE(wait_now_ms() - began_ms < wait_scaled_ms(3000), "it took %d ms to end", (int)(wait_now_ms() - began_ms));
  wait_sql_int(conn, 0, 3000, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outboxd%'");
  release(holder);
  maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  assert_true(is_ours(maintainer));
  wait_about(maintainer, "partition_dropped");
  assert_false(exists(conn, "old"));
  PQfinish(conn);
}

/* -------------------------------------------------------------------------------------------------- what was interrupted */

/* Leaves old marked and detached, or only half detached: what a kill at that moment leaves. */
static void interrupt(PGconn *conn, bool is_detached) {
  PGconn *holder = hold_parent();
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  wait_pending(conn);
  relay_kill(maintainer);
  /* The server notices by itself that nobody is there any more. */
  wait_sql_int(conn, 0, DONE_MS, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outboxd%'");
  release(holder);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM pg_inherits WHERE inhdetachpending"), 1);
  if (is_detached) {
    db_exec(conn, "ALTER TABLE outbox_messages DETACH PARTITION old FINALIZE");
    assert_false(is_partition(conn, "old"));
  }
}

static void finishes_what_a_kill_interrupted(void **state) {
  (void)state;
  for (int is_detached = 0; is_detached < 2; is_detached++) {
    for (int is_pending = 0; is_pending < 2; is_pending++) {
      PGconn *conn = make_table(1);
      interrupt(conn, is_detached != 0);
      if (is_pending) {
        db_exec(conn, ADD_PENDING);
      }
      struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
      if (!is_detached) {
        assert_true(is_ours(maintainer));
      }
      if (is_pending) {
        wait_about(maintainer, "partition_returned");
        require_whole(conn);
        assert_int_equal(db_int(conn, "SELECT count(*) FROM outbox_messages WHERE published_at IS NULL"), 1);
      } else {
        wait_about(maintainer, "partition_dropped");
        assert_false(exists(conn, "old"));
      }
      relay_stop(maintainer);
      db_exec(conn, "DROP TABLE outbox_messages");
      PQfinish(conn);
    }
  }
}

/* A detach that an operator began is ended; the table is his, and so is one that looks like a leftover. */
static void touches_no_table_of_others(void **state) {
  (void)state;
  PGconn *conn = make_table(3);
  /* Copies of a marked partition, as a dump and restore would make them. */
  interrupt(conn, true);
  char *mark = db_text(conn, "SELECT obj_description('old'::regclass, 'pg_class')");
  db_exec(conn, "CREATE TABLE copy_of_old AS SELECT * FROM old");
  db_exec(conn, "DO $$ BEGIN EXECUTE format('COMMENT ON TABLE copy_of_old IS %%L', obj_description('old'::regclass, "
                "'pg_class')); END $$");
  REQUIRE(strstr(mark, "outboxd is removing") == mark, "there is no mark: %s", mark);
  free(mark);
  /* An operator's archive, and his detach that was cancelled. */
  db_exec(conn, "ALTER TABLE outbox_messages DETACH PARTITION old_2");
  db_exec(conn, "INSERT INTO outbox_messages (created_at) VALUES ('2020-01-04 12:00')");
  PGconn *holder = hold_parent();
  PGresult *result = PQexec(conn, "SET statement_timeout = '300ms'");
  PQclear(result);
  result = PQexec(conn, "ALTER TABLE outbox_messages DETACH PARTITION old_3 CONCURRENTLY");
  REQUIRE(PQresultStatus(result) == PGRES_FATAL_ERROR, "the detach was not cancelled");
  PQclear(result);
  db_exec(conn, "RESET statement_timeout");
  wait_pending(conn);
  release(holder);
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  const json_t *line = wait_about(maintainer, "partition_detach_finished");
  assert_true(json_is_false(json_object_get(line, "is_ours")));
  assert_string_equal(json_string_value(json_object_get(line, "level")), "warning");
  assert_int_equal(json_integer_value(json_object_get(line, "pending")), 1);
  wait_about(maintainer, "partition_dropped");
  wait_about(maintainer, "cleanup_done");
  wait_about(maintainer, "cleanup_done");
  assert_false(exists(conn, "old"));
  assert_int_equal(db_int(conn, "SELECT count(*) FROM copy_of_old"), 1);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM old_2"), 1);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM old_3"), 2);
  assert_false(is_partition(conn, "old_3"));
  PQfinish(conn);
}

/* Messages in a table that cannot come back are shouted about, and come back when they can. */
static void says_what_is_stranded(void **state) {
  (void)state;
  PGconn *conn = make_table(1);
  interrupt(conn, true);
  db_exec(conn, ADD_PENDING);
  db_exec(conn,
          "CREATE TABLE in_the_way PARTITION OF outbox_messages FOR VALUES FROM ('2020-01-02') TO ('2020-01-04')");
  db_exec(conn, "CREATE VIEW keeps_it AS SELECT * FROM in_the_way");
  struct relay *maintainer = MAINTAIN(stack, "--cleanup-every", "1s");
  const json_t *line = wait_about(maintainer, "partition_stranded");
  assert_string_equal(json_string_value(json_object_get(line, "level")), "error");
  assert_int_equal(json_integer_value(json_object_get(line, "pending")), 1);
  wait_about(maintainer, "cleanup_done");
  wait_about(maintainer, "cleanup_done");
  assert_int_equal(relay_count(maintainer, "partition_stranded"), 1);
  assert_int_equal(db_int(conn, "SELECT count(*) FROM old WHERE published_at IS NULL"), 1);
  db_exec(conn, "DROP VIEW keeps_it");
  db_exec(conn, "DROP TABLE IF EXISTS in_the_way");
  wait_about(maintainer, "partition_returned");
  require_whole(conn);
  PQfinish(conn);
}

int main(int argc, char *argv[]) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(a_row_that_comes_during_the_detach_stays),
      HARNESS_TEST(a_row_that_is_committed_late_stays),
      HARNESS_TEST(a_row_through_the_table_stays),
      HARNESS_TEST(no_committed_row_is_ever_lost),
      HARNESS_TEST(no_insert_waits_for_long),
      HARNESS_TEST(says_what_is_in_use),
      HARNESS_TEST(ends_promptly_while_it_waits),
      HARNESS_TEST(finishes_what_a_kill_interrupted),
      HARNESS_TEST(touches_no_table_of_others),
      HARNESS_TEST(says_what_is_stranded),
  };
  maintainer_become(argc, argv);
  return HARNESS_RUN(tests, &stack, &((struct stack_options){.has_no_redis = true}));
}
