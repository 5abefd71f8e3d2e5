/*
 * The cleanup's thread: becomes the one maintainer of the table in the fleet, and does a run every --cleanup-every.
 *
 * Owns: its PostgreSQL session (application_name "outboxd cleanup"), a second one during a detach, what was said.
 * Never: touches what belongs to the threads that relay; ends because of an error.
 *
 * Events, with their fields beside event, level and message (docs/logging.md says what to do about each):
 *
 *   cleanup_elected            info     table, backend_pid: this process maintains the table from now on
 *   cleanup_done               info     table, created, dropped, kept, blocked, busy, failed, deleted, processed_deleted, duration_seconds: once a run
 *   cleanup_failed             warning  table, part (session, table, partitions, rows, processed), code: once on change, then every --alert-repeat
 *   cleanup_off                warning  table, part (partitions, create, delete, processed): a privilege or a table is missing; once
 *   cleanup_skipped            info     table, partitioned_by: a layout that is left alone; once
 *   partition_created          info     partition, from, to
 *   partition_dropped          info     partition, bounds, size_bytes
 *   partition_kept             warning  partition, pending, dead, oldest_seconds: on change, then every --alert-repeat
 *   partition_blocked          warning  partition, objects: what depends on it; on change, then every --alert-repeat
 *   partition_held             warning  partition, backend_pid, application_name, transaction_seconds: on change, then every --alert-repeat
 *   partition_busy             info     partition, reason: tried again within a minute
 *   partition_returned         warning  partition, pending, dead: a message came while it was being detached
 *   partition_detach_finished  info     partition, is_ours, pending, dead; warning when somebody else's holds messages
 *   partition_stranded         error    partition, bounds, reason, pending, dead: detached and cannot be attached again
 */
#include "outboxd/cleanup.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup_impl.h"
#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/locks.h"
#include "outboxd/log.h"

#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 5000
/* How often to ask whether the maintainer is gone. */
#define ELECT_US INT64_C(10000000)
/* After a run that could not do all it wanted. */
#define AGAIN_US INT64_C(60000000)

void cleanup_pause(const struct cleanup *c, int64_t us) {
  struct pollfd fd = {.fd = stop_fd(c->stop), .events = POLLIN};
  (void)poll(&fd, 1, us > 0 ? (int)((us + 999) / 1000) : 0);
}

int cleanup_ask(struct cleanup *c, const char *sql, const struct sql_var *vars, int params_n, const char *const *values,
                struct err *err) {
  char *expanded = NULL;
  if (vars != NULL && sql_expand(sql, vars, &expanded, err) != 0) {
    return -1;
  }
  const struct pg_step step = {
      .kind = PG_QUERY, .sql = expanded != NULL ? expanded : sql, .params_n = params_n, .values = values};
  int rc = pg_call(c->pg, &step, 1, CLEANUP_REPLY_MS, c->stop, err);
  free(expanded);
  return rc;
}

static void copy(char *out, size_t n, const PGresult *row, int column) {
  (void)snprintf(out, n, "%s", PQgetvalue(row, 0, column));
}

int cleanup_load_rights(struct cleanup *c, uint32_t oid, struct cleanup_rights *rights, struct err *err) {
  char oid_text[16];
  const char *values[] = {oid_text};
  (void)snprintf(oid_text, sizeof oid_text, "%u", oid);
  memset(rights, 0, sizeof *rights);
  if (cleanup_ask(c, embed_cleanup_rights_sql, NULL, 1, values, err) != 0) {
    return -1;
  }
  const PGresult *row = pg_reply(c->pg)->results[0];
  rights->is_found = PQntuples(row) > 0;
  if (rights->is_found) {
    copy(rights->user, sizeof rights->user, row, 0);
    copy(rights->owner, sizeof rights->owner, row, 1);
    copy(rights->schema, sizeof rights->schema, row, 2);
    rights->is_owner = PQgetvalue(row, 0, 3)[0] == 't';
    rights->can_create = PQgetvalue(row, 0, 4)[0] == 't';
    rights->can_delete = PQgetvalue(row, 0, 5)[0] == 't';
    rights->kind = PQgetvalue(row, 0, 6)[0];
    rights->has_processed_at = PQgetvalue(row, 0, 7)[0] == 't';
    rights->has_id_index = PQgetvalue(row, 0, 8)[0] == 't';
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- a run */

static void say_failed(struct cleanup *c, const char *part, const struct err *err) {
  char key[32];
  if (stop_is_set(c->stop)) {
    return;
  }
  c->counts.failed_n++;
  (void)snprintf(key, sizeof key, "cleanup_failed %s", part);
  if (cleanup_is_due(&c->said, key, err->text, c->cfg->alert_repeat_ms * 1000, clock_now_us())) {
    log_event(LOG_WARNING, "cleanup_failed", err->text, LOG_STR("table", c->shown), LOG_STR("part", part),
              LOG_STR("code", err->code));
  }
}

/* Says what went wrong in a part, if anything; true when the session can go on with the next one. */
static bool end_part(struct cleanup *c, const char *part, int rc, const struct err *err) {
  if (rc != 0) {
    say_failed(c, pg_state(c->pg) == PG_CLOSED ? "session" : part, err);
  }
  return pg_state(c->pg) == PG_IDLE && !stop_is_set(c->stop);
}

/* True when the whole run was gone through. */
static bool run_parts(struct cleanup *c) {
  struct cleanup_rights rights = {.is_found = false};
  struct err err = ERR_INIT;
  int rc = schema_find(c->pg, &c->given, c->stop, &c->table, &err);
  if (rc == 0 && c->table.oid != 0) {
    rc = cleanup_load_rights(c, c->table.oid, &rights, &err);
  }
  if (rc == 0 && (!rights.is_found || c->table.oid != c->elected_oid)) {
    /* Whoever maintains the table that has the name now is to be elected anew. */
    rc = err_set(&err, ERR_RETRY, "table_changed", "table %s has been dropped or made anew", c->cfg->table);
  }
  if (rc != 0) {
    (void)end_part(c, "table", rc, &err);
    pg_close(c->pg);
    return false;
  }
  schema_show_name(&c->table.name, c->shown);
  if (c->table.kind == 'p') {
    rc = cleanup_partitions(c, &rights, &err);
  } else {
    rc = cleanup_rows(c, &rights, &err);
  }
  if (!end_part(c, c->table.kind == 'p' ? "partitions" : "rows", rc, &err)) {
    return false;
  }
  err_clear(&err);
  return end_part(c, "processed", cleanup_processed(c, &err), &err);
}

static void run(struct cleanup *c) {
  int64_t began_us = clock_now_us();
  memset(&c->counts, 0, sizeof c->counts);
  bool is_whole = run_parts(c);
  pg_close(c->watch);
  int64_t every_us = c->cfg->cleanup_every_ms * 1000;
  bool is_again = !is_whole || c->counts.busy_n > 0 || c->counts.failed_n > 0;
  int64_t now_us = clock_now_us();
  c->next_run_us = (is_again ? now_us : began_us) + (is_again && AGAIN_US < every_us ? AGAIN_US : every_us);
  c->next_try_us = now_us;
  if (!is_whole) {
    cleanup_pause(c, backoff_next_us(&c->backoff));
    return;
  }
  backoff_reset(&c->backoff);
  cleanup_said_sweep(&c->said);
  const struct cleanup_counts *counts = &c->counts;
  log_event(LOG_INFO, "cleanup_done", "a cleanup has been gone through", LOG_STR("table", c->shown),
            LOG_INT("created", counts->created_n), LOG_INT("dropped", counts->dropped_n),
            LOG_INT("kept", counts->kept_n), LOG_INT("blocked", counts->blocked_n), LOG_INT("busy", counts->busy_n),
            LOG_INT("failed", counts->failed_n), LOG_INT("deleted", counts->deleted_n),
            LOG_INT("processed_deleted", counts->processed_deleted_n),
            LOG_REAL("duration_seconds", (double)(now_us - began_us) / 1e6));
}

/* -------------------------------------------------------------------------------------------------- the session */

static int set_up(struct cleanup *c, struct err *err) {
  char timeout[24];
  const char *values[] = {timeout};
  struct err ignored = ERR_INIT;
  (void)snprintf(timeout, sizeof timeout, "%lld", (long long)c->cfg->session_timeout_ms);
  if (pg_connect(c->pg, c->stop, err) != 0 || cleanup_ask(c, embed_cleanup_session_sql, NULL, 1, values, err) != 0) {
    return -1;
  }
  /* Not every platform has it: what this process leaves behind when it is killed ends the sooner. */
  if (cleanup_ask(c, "SET client_connection_check_interval = '1s'", NULL, 0, NULL, &ignored) != 0 &&
      pg_state(c->pg) != PG_IDLE) {
    *err = ignored;
    return -1;
  }
  return 0;
}

/* Tries to become the maintainer; no error when another is. */
static int elect(struct cleanup *c, struct err *err) {
  char key[16];
  char lock[16];
  const char *values[] = {key, lock};
  if (schema_find(c->pg, &c->given, c->stop, &c->table, err) != 0) {
    return -1;
  }
  if (c->table.oid == 0) {
    return err_set(err, ERR_RETRY, "unknown_table", "there is no table %s in this database", c->cfg->table);
  }
  (void)snprintf(key, sizeof key, "%d", locks_table_key(c->table.oid));
  (void)snprintf(lock, sizeof lock, "%d", LOCKS_MAINTENANCE);
  if (cleanup_ask(c, embed_cleanup_elect_sql, NULL, 2, values, err) != 0) {
    return -1;
  }
  c->is_maintainer = PQgetvalue(pg_reply(c->pg)->results[0], 0, 0)[0] == 't';
  if (c->is_maintainer) {
    schema_show_name(&c->table.name, c->shown);
    c->elected_oid = c->table.oid;
    c->next_run_us = clock_now_us();
    log_event(LOG_INFO, "cleanup_elected", "this process maintains the table from now on", LOG_STR("table", c->shown),
              LOG_INT("backend_pid", pg_pid(c->pg)));
  }
  return 0;
}

/* Asks for the lock, or shows the server that the session is alive. */
static int attend(struct cleanup *c, struct err *err) {
  int64_t third_us = c->cfg->session_timeout_ms * 1000 / 3;
  c->next_try_us = clock_now_us() + (third_us < ELECT_US ? third_us : ELECT_US);
  if (pg_state(c->pg) == PG_CLOSED) {
    c->is_maintainer = false;
    if (set_up(c, err) != 0) {
      return -1;
    }
  }
  return c->is_maintainer ? cleanup_ask(c, "SELECT 1", NULL, 0, NULL, err) : elect(c, err);
}

static void *cleanup_main(void *arg) {
  struct cleanup *c = arg;
  while (!stop_is_set(c->stop)) {
    int64_t now_us = clock_now_us();
    if (now_us >= c->next_try_us || pg_state(c->pg) == PG_CLOSED) {
      struct err err = ERR_INIT;
      if (attend(c, &err) != 0) {
        pg_close(c->pg);
        say_failed(c, "session", &err);
        cleanup_pause(c, backoff_next_us(&c->backoff));
        continue;
      }
    }
    if (c->is_maintainer && clock_now_us() >= c->next_run_us) {
      run(c);
      continue;
    }
    int64_t until_us = c->is_maintainer && c->next_run_us < c->next_try_us ? c->next_run_us : c->next_try_us;
    cleanup_pause(c, until_us - clock_now_us());
  }
  pg_close(c->watch);
  pg_close(c->pg);
  return NULL;
}

/* -------------------------------------------------------------------------------------------------- life */

static void free_cleanup(struct cleanup *c) {
  pg_free(c->watch);
  pg_free(c->pg);
  cleanup_said_fini(&c->said);
  free(c);
}

int cleanup_start(const struct cfg *cfg, const struct stop *stop, struct cleanup **out, struct err *err) {
  *out = NULL;
  struct cleanup *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the cleanup");
  }
  c->cfg = cfg;
  c->stop = stop;
  c->backoff = (struct backoff){.first_ms = FIRST_PAUSE_MS, .max_ms = LONGEST_PAUSE_MS};
  if (schema_parse_name(cfg->table, &c->given, err) != 0 ||
      pg_new(cfg->database, "cleanup", cfg->session_timeout_ms, &c->pg, err) != 0 ||
      pg_new(cfg->database, "cleanup watch", cfg->session_timeout_ms, &c->watch, err) != 0) {
    goto fail;
  }
  schema_show_name(&c->given, c->shown);
  int errnum = pthread_create(&c->thread, NULL, cleanup_main, c);
  if (errnum != 0) {
    (void)err_errno(err, ERR_RETRY, errnum, "cleanup");
    goto fail;
  }
  (void)pthread_setname_np(c->thread, "cleanup");
  *out = c;
  return 0;
fail:
  free_cleanup(c);
  return -1;
}

void cleanup_stop(struct cleanup *c) {
  if (c == NULL) {
    return;
  }
  (void)pthread_join(c->thread, NULL);
  free_cleanup(c);
}
