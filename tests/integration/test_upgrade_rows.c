/*
 * A plain table of whatever form becomes partitioned with its rows, and these go when their time has come.
 */
#include "test_upgrade.h"

#include <inttypes.h>

#include "check.h"
#include "rds.h"
#include "table.h"

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

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_every_plain_form),
      HARNESS_TEST(test_the_rows_of_before_are_dropped_in_the_end),
  };
  return HARNESS_RUN(tests, &stack, &((struct stack_options){.has_clock = true}));
}
