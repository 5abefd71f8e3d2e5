/*
 * The pending index of `outboxd init`: found, built beside writers, or finished where it was left unfinished.
 *
 * Owns nothing beyond a call; main thread.  Never: drops anything but an index of its own that was left unfinished.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_init_impl.h"
#include "embed.h"

/* Building an index takes as long as it takes. */
#define BUILD_MS (INT64_C(7) * 86400 * 1000)

/* One statement outside of a transaction, without a limit of time. */
static int run_long(struct init *init, const char *text, const struct sql_var *vars, struct err *err) {
  char *sql = NULL;
  if (sql_expand(text, vars, &sql, err) != 0) {
    return -1;
  }
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql};
  int rc = pg_call(init->pg, &step, 1, BUILD_MS, NULL, err);
  free(sql);
  return rc;
}

enum index_column { INDEX_KIND, INDEX_TABLE, INDEX_NAME, INDEX_VALID, INDEX_ATTACHED, INDEX_LEVEL };

static bool is_true(const PGresult *rows, int row, enum index_column column) {
  return PQgetvalue(rows, row, (int)column)[0] == 't';
}

/* The table's index and its partitions': see sql/init_indexes.sql.  NULL on an error. */
static PGresult *load_indexes(struct init *init, struct err *err) {
  return init_ask(init, embed_init_indexes_sql, "indexes", err);
}

/* Builds the index on a table that holds rows, beside writers.  One that was left unfinished goes first. */
static int build_index(struct init *init, const PGresult *rows, int row, const char *name, struct err *err) {
  const struct sql_var vars[] = {{"how", " CONCURRENTLY"},
                                 {"name", name},
                                 {"only", ""},
                                 {"table", PQgetvalue(rows, row, INDEX_TABLE)},
                                 {"index", PQgetvalue(rows, row, INDEX_NAME)},
                                 {NULL, NULL}};
  init_tell("building", "index", PQgetvalue(rows, row, INDEX_TABLE), "beside the writers; this may take a while");
  (void)fflush(stdout);
  if (!PQgetisnull(rows, row, INDEX_NAME) && run_long(init, "DROP INDEX CONCURRENTLY :index", vars, err) != 0) {
    return err_wrap(err, "cannot drop the unfinished index %s", PQgetvalue(rows, row, INDEX_NAME));
  }
  if (run_long(init, embed_init_index_sql, vars, err) != 0) {
    return err_wrap(err, "cannot build the pending index on %s (run outboxd init again to finish it)",
                    PQgetvalue(rows, row, INDEX_TABLE));
  }
  return 0;
}

/* Gives every partition an index attached to the parent's, building the ones that lack it. */
static int complete_partitions(struct init *init, struct err *err) {
  PGresult *rows = load_indexes(init, err);
  PGresult *again = NULL;
  int rc = -1;
  if (rows == NULL) {
    return -1;
  }
  for (int row = 1; row < PQntuples(rows); row++) {
    if (PQgetvalue(rows, row, INDEX_KIND)[0] != 'r' || strcmp(PQgetvalue(rows, row, INDEX_LEVEL), "1") != 0) {
      (void)err_set(err, ERR_FATAL, "nested_partitions",
                    "partition %s is itself partitioned, or no ordinary table: create its index on (id) WHERE "
                    "published_at IS NULL "
                    "by hand",
                    PQgetvalue(rows, row, INDEX_TABLE));
      goto out;
    }
    if (!is_true(rows, row, INDEX_VALID) && build_index(init, rows, row, "", err) != 0) {
      goto out;
    }
  }
  again = load_indexes(init, err);
  for (int row = 1; again != NULL && row < PQntuples(again); row++) {
    const struct sql_var vars[] = {
        {"parent", PQgetvalue(again, 0, INDEX_NAME)}, {"index", PQgetvalue(again, row, INDEX_NAME)}, {NULL, NULL}};
    if (is_true(again, row, INDEX_VALID) && !is_true(again, row, INDEX_ATTACHED) &&
        init_run(init, "ALTER INDEX :parent ATTACH PARTITION :index", vars, err) != 0) {
      (void)err_wrap(err, "cannot attach index %s", PQgetvalue(again, row, INDEX_NAME));
      goto out;
    }
  }
  rc = again != NULL ? 0 : -1;
out:
  PQclear(again);
  PQclear(rows);
  return rc;
}

int init_ensure_index(struct init *init, struct err *err) {
  const struct pg_step patient[] = {
      {.kind = PG_QUERY, .sql = "SET lock_timeout = 0"},
      {.kind = PG_QUERY, .sql = "SET statement_timeout = 0"},
  };
  char name[SCHEMA_FULL_NAME_BYTES];
  PGresult *rows = load_indexes(init, err);
  int rc = -1;
  if (rows == NULL) {
    return -1;
  }
  if (is_true(rows, 0, INDEX_VALID)) {
    init_tell("found", "index", PQgetvalue(rows, 0, INDEX_NAME), "of what is pending");
    rc = 0;
    goto out;
  }
  init_index_name(&init->table.name, name);
  if (pg_call(init->pg, patient, 2, INIT_SESSION_MS, NULL, err) != 0) {
    goto out;
  }
  if (init->table.kind == 'p') {
    /* On the parent alone it is an entry in the catalog; the partitions follow one by one. */
    const struct sql_var vars[] = {
        {"how", ""}, {"name", name}, {"only", " ONLY"}, {"table", PQgetvalue(rows, 0, INDEX_TABLE)}, {NULL, NULL}};
    if (PQgetisnull(rows, 0, INDEX_NAME) && init_run(init, embed_init_index_sql, vars, err) != 0) {
      (void)err_wrap(err, "cannot create the pending index on %s", PQgetvalue(rows, 0, INDEX_TABLE));
      goto out;
    }
    rc = complete_partitions(init, err);
  } else {
    rc = build_index(init, rows, 0, name, err);
  }
  if (rc == 0) {
    init_tell("created", "index", PQgetisnull(rows, 0, INDEX_NAME) ? name : PQgetvalue(rows, 0, INDEX_NAME),
              "of what is pending");
  }
out:
  PQclear(rows);
  return rc;
}
