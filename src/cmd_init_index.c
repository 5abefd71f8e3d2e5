/*
 * The pending index of `outboxd init`: found, built beside writers, or finished where it was left unfinished.
 *
 * Owns nothing beyond a call; main thread.  Never: drops anything but an index of its own that was left unfinished.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd_init_impl.h"
#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/pgtick.h"
#include "outboxd/progress.h"

/* Building an index takes as long as it takes. */
#define BUILD_MS (INT64_C(7) * 86400 * 1000)
#define TICK_MS 250
#define WATCH_MS 5000

/* A statement that is under way, for whoever waits. */
struct building {
  struct pg *watch; /* a second session: the first one is busy */
  const char *table;
  char pid[16];
  char phase[64];
  struct progress progress;
};

/* Asks the second session how far the first one is.  That it cannot tell is none of the index' business: then the time is all there is to show. */
static void tell_progress(void *arg) {
  struct building *building = arg;
  const char *values[] = {building->pid};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_init_progress_sql, .params_n = 1, .values = values};
  struct err ignored = ERR_INIT;
  int64_t done_n = 0;
  int64_t total_n = 0;
  if (pg_state(building->watch) == PG_IDLE && pg_call(building->watch, &step, 1, WATCH_MS, NULL, &ignored) == 0 &&
      PQntuples(pg_reply(building->watch)->results[0]) == 1) {
    const PGresult *row = pg_reply(building->watch)->results[0];
    if (strcmp(building->phase, PQgetvalue(row, 0, 0)) != 0) {
      char what[sizeof building->progress.what];
      (void)snprintf(building->phase, sizeof building->phase, "%s", PQgetvalue(row, 0, 0));
      (void)snprintf(what, sizeof what, "index on %.60s: %.60s", building->table, building->phase);
      progress_go_on(&building->progress, what, clock_now_us());
    }
    done_n = pg_parse_int64(row, 0, 1);
    total_n = pg_parse_int64(row, 0, 2);
  }
  progress_note(&building->progress, done_n, total_n > 0 ? total_n : PROGRESS_UNKNOWN, clock_now_us());
}

/* One statement about table's index outside of a transaction, without a limit of time. */
static int run_long(struct init *init, const char *table, const char *text, const struct sql_var *vars,
                    struct err *err) {
  char *sql = NULL;
  struct building building = {.table = table};
  struct err ignored = ERR_INIT;
  if (sql_expand(text, vars, &sql, err) != 0) {
    return -1;
  }
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql};
  int rc = pg_new(init->cfg->database, "init progress", INIT_SESSION_MS, &building.watch, err);
  if (rc == 0) {
    char what[sizeof building.progress.what];
    (void)snprintf(building.pid, sizeof building.pid, "%d", pg_pid(init->pg));
    (void)snprintf(what, sizeof what, "index on %.60s", table);
    progress_begin(&building.progress, what, STDERR_FILENO, progress_is_terminal(STDERR_FILENO), clock_now_us());
    if (pg_connect(building.watch, NULL, &ignored) != 0) {
      pg_close(building.watch);
    }
    rc = pgtick_call(init->pg, &step, 1, BUILD_MS, NULL, TICK_MS, tell_progress, &building, err);
    progress_wipe(&building.progress);
  }
  pg_free(building.watch);
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
  if (!PQgetisnull(rows, row, INDEX_NAME) &&
      run_long(init, PQgetvalue(rows, row, INDEX_TABLE), "DROP INDEX CONCURRENTLY :index", vars, err) != 0) {
    return err_wrap(err, "cannot drop the unfinished index %s", PQgetvalue(rows, row, INDEX_NAME));
  }
  if (run_long(init, PQgetvalue(rows, row, INDEX_TABLE), embed_init_index_sql, vars, err) != 0) {
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
