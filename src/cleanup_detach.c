/*
 * How a partition goes: marked, detached, looked at once more where no writer can add a row, then dropped or attached again.
 *
 * Run by: the cleanup's thread.  Never: drops a table with an unpublished row in it, uses CASCADE, lets anybody wait behind it for more than
 * about half a second.
 *
 * Why no row is lost.  Every committed row of the partition is visible to a look under ACCESS EXCLUSIVE, because a writer, whether through
 * the parent or into the partition itself, holds ROW EXCLUSIVE on the partition until its transaction ends.  The DROP happens in the transaction of
 * that look.  A writer that comes later finds no table and is told so; what it wanted to write was never committed.
 *
 * Who waits.  DETACH CONCURRENTLY commits the intention, then waits, without any lock, for those who use the parent; then it takes ACCESS
 * EXCLUSIVE on the partition alone.  FINALIZE takes that lock first and waits then.  Both may wait for long: a second session looks on, and
 * ends them as soon as somebody waits behind them (sql/cleanup_watch.sql); what has begun is then finished by FINALIZE at a later run.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup_impl.h"
#include "embed.h"
#include "outboxd/clock.h"

#define WATCH_US INT64_C(100000)
#define WATCH_REPLY_MS INT64_C(1000)
/* A detach that has to wait for longer is finished at the next run. */
#define DETACH_MS INT64_C(120000)
#define FINALIZE_MS INT64_C(30000)
/* How long the server may take to end a statement that was cancelled. */
#define CANCEL_US INT64_C(1000000)
#define TRIES_MAX 5
#define TRY_PAUSE_US INT64_C(200000)

#define OID_BYTES 16

static void print_oid(uint32_t oid, char out[OID_BYTES]) {
  (void)snprintf(out, OID_BYTES, "%u", oid);
}

/* Ends an open transaction, or at least the session. */
static void roll_back(struct cleanup *c) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "ROLLBACK"};
  struct err ignored = ERR_INIT;
  if (pg_state(c->pg) == PG_IDLE && pg_call(c->pg, &step, 1, CLEANUP_REPLY_MS, c->stop, &ignored) != 0) {
    pg_close(c->pg);
  }
}

/* A failed statement of ours that leaves the session as it was is a matter of this one partition. */
static bool is_session_well(const struct cleanup *c) {
  return pg_state(c->pg) == PG_IDLE && !stop_is_set(c->stop);
}

int cleanup_run_statement(struct cleanup *c, const char *statement, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = statement};
  return pg_call(c->pg, &step, 1, CLEANUP_REPLY_MS, c->stop, err);
}

int cleanup_look(struct cleanup *c, uint32_t oid, const struct schema_name *name, struct cleanup_look *look,
                 struct err *err) {
  char partition[SCHEMA_FULL_NAME_BYTES];
  char attempts[16];
  char oid_text[OID_BYTES];
  schema_quote_name(name, partition);
  (void)snprintf(attempts, sizeof attempts, "%d", c->cfg->max_attempts_n);
  print_oid(oid, oid_text);
  const struct sql_var vars[] = {{"partition", partition}, {NULL, NULL}};
  const char *values[] = {attempts, oid_text};
  if (cleanup_ask(c, embed_cleanup_look_sql, vars, 2, values, err) != 0) {
    return err_wrap(err, "cannot look into partition %s", name->table);
  }
  const PGresult *row = pg_reply(c->pg)->results[0];
  look->pending_n = pg_parse_int64(row, 0, 0);
  look->dead_n = pg_parse_int64(row, 0, 1);
  look->oldest_s = strtod(PQgetvalue(row, 0, 2), NULL);
  look->size_bytes = pg_parse_int64(row, 0, 3);
  return 0;
}

/* -------------------------------------------------------------------------------------------------- watched statements */

static int restore_settings(struct cleanup *c, struct err *err) {
  char timeout[24];
  const char *values[] = {timeout};
  (void)snprintf(timeout, sizeof timeout, "%lld", (long long)c->cfg->session_timeout_ms);
  return cleanup_ask(c, embed_cleanup_session_sql, NULL, 1, values, err);
}

/* Waits for the session's socket, the stop token or at most us microseconds. */
static void wait_a_little(struct cleanup *c, int64_t us) {
  struct pollfd fds[] = {{.fd = pg_fd(c->pg), .events = pg_poll_events(c->pg)},
                         {.fd = stop_is_set(c->stop) ? -1 : stop_fd(c->stop), .events = POLLIN}};
  (void)poll(fds, 2, (int)(us / 1000));
}

/* The thread is to end: so is the statement, which nobody would watch any more. */
static int end_statement(struct cleanup *c, const char *pid, struct err *err) {
  const char *values[] = {pid};
  const struct pg_step step = {
      .kind = PG_QUERY, .sql = "SELECT pg_cancel_backend($1::int4)", .params_n = 1, .values = values};
  struct err ignored = ERR_INIT;
  if (pg_state(c->watch) == PG_IDLE && pg_call(c->watch, &step, 1, CANCEL_US / 1000, NULL, &ignored) == 0) {
    int64_t until_us = clock_now_us() + CANCEL_US;
    while (clock_now_us() < until_us && pg_drive(c->pg, clock_now_us(), &ignored) == PG_EV_NONE) {
      wait_a_little(c, WATCH_US);
    }
  }
  pg_close(c->pg);
  return err_set(err, ERR_RETRY, "stopped", "stopped while a partition was being detached");
}

/* Waits for the statement's end and cancels it when somebody waits behind it.  A watch that is lost ends the statement by its timeout. */
static int watch_statement(struct cleanup *c, uint32_t oid, struct err *err) {
  char pid[16];
  char table_oid[OID_BYTES];
  char partition_oid[OID_BYTES];
  const char *values[] = {pid, table_oid, partition_oid};
  const struct pg_step look = {.kind = PG_QUERY, .sql = embed_cleanup_watch_sql, .params_n = 3, .values = values};
  int64_t next_look_us = clock_now_us() + WATCH_US;
  (void)snprintf(pid, sizeof pid, "%d", pg_pid(c->pg));
  print_oid(c->table.oid, table_oid);
  print_oid(oid, partition_oid);
  for (;;) {
    int64_t now_us = clock_now_us();
    enum pg_event event = pg_drive(c->pg, now_us, err);
    if (event == PG_EV_LOST) {
      return -1;
    }
    if (event == PG_EV_REPLY) {
      const struct pg_reply *reply = pg_reply(c->pg);
      if (reply->is_failed) {
        *err = reply->err;
        return -1;
      }
      return 0;
    }
    if (stop_is_set(c->stop)) {
      return end_statement(c, pid, err);
    }
    if (now_us >= next_look_us) {
      struct err ignored = ERR_INIT;
      if (pg_state(c->watch) == PG_IDLE) {
        (void)!pg_call(c->watch, &look, 1, WATCH_REPLY_MS, c->stop, &ignored);
      } else if (pg_connect(c->watch, c->stop, &ignored) != 0) {
        pg_close(c->watch);
      }
      next_look_us = clock_now_us() + WATCH_US;
    }
    wait_a_little(c, WATCH_US);
  }
}

/* Runs ALTER TABLE ... DETACH PARTITION ... CONCURRENTLY or FINALIZE, for at most limit_ms. */
static int run_watched(struct cleanup *c, const char *text, uint32_t oid, const struct schema_name *name,
                       int64_t limit_ms, struct err *err) {
  char table[SCHEMA_FULL_NAME_BYTES];
  char partition[SCHEMA_FULL_NAME_BYTES];
  char limit[24];
  const char *values[] = {limit};
  char *sql = NULL;
  int rc = -1;
  schema_quote_name(&c->table.name, table);
  schema_quote_name(name, partition);
  (void)snprintf(limit, sizeof limit, "%lld", (long long)limit_ms);
  const struct sql_var vars[] = {{"table", table}, {"partition", partition}, {NULL, NULL}};
  if (pg_state(c->watch) == PG_CLOSED && pg_connect(c->watch, c->stop, err) != 0) {
    return err_wrap(err, "cannot open a second session to watch over a detach");
  }
  if (sql_expand(text, vars, &sql, err) != 0 || cleanup_ask(c, embed_cleanup_patient_sql, NULL, 1, values, err) != 0) {
    goto out;
  }
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql};
  if (pg_send(c->pg, &step, 1, clock_now_us() + (limit_ms + CLEANUP_REPLY_MS) * 1000, err) == 0) {
    rc = watch_statement(c, oid, err);
  }
  if (pg_state(c->pg) == PG_IDLE) {
    struct err restore_err = ERR_INIT;
    if (restore_settings(c, &restore_err) != 0) {
      pg_close(c->pg);
      *err = restore_err;
      rc = -1;
    }
  }
out:
  free(sql);
  return rc;
}

int cleanup_finalize(struct cleanup *c, uint32_t oid, const struct schema_name *name, struct err *err) {
  if (run_watched(c, "ALTER TABLE :table DETACH PARTITION :partition FINALIZE", oid, name, FINALIZE_MS, err) != 0) {
    return err_wrap(err, "cannot finish the interrupted detach of partition %s", name->table);
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- dropping */

enum state { STATE_GONE, STATE_ATTACHED, STATE_PENDING, STATE_DETACHED };

static int state_of(struct cleanup *c, uint32_t oid, enum state *state, struct err *err) {
  char oid_text[OID_BYTES];
  const char *values[] = {oid_text};
  print_oid(oid, oid_text);
  if (cleanup_ask(c, embed_cleanup_state_sql, NULL, 1, values, err) != 0) {
    return -1;
  }
  const PGresult *row = pg_reply(c->pg)->results[0];
  if (PQntuples(row) == 0) {
    *state = STATE_GONE;
  } else if (PQgetvalue(row, 0, 0)[0] != 't') {
    *state = STATE_DETACHED;
  } else {
    *state = PQgetvalue(row, 0, 1)[0] == 't' ? STATE_PENDING : STATE_ATTACHED;
  }
  return 0;
}

/* Begins a transaction in which others may have to wait for us: everything in it is short. */
#define BEGIN_STEPS                                                                                  \
  {.kind = PG_QUERY, .sql = "BEGIN"}, {.kind = PG_QUERY, .sql = "SET LOCAL lock_timeout = '300ms'"}, \
      {.kind = PG_QUERY, .sql = "SET LOCAL statement_timeout = '" CLEANUP_SHORT "'"}, {              \
    .kind = PG_QUERY, .sql = "SET LOCAL idle_in_transaction_session_timeout = '" CLEANUP_SHORT "'"   \
  }
#define BEGIN_STEPS_N 4

/* The statements of one partition, made for its names. */
struct statements {
  char *lock;
  char *drop;
  char *attach;
  char *detach;
};

static void free_statements(struct statements *s) {
  free(s->lock);
  free(s->drop);
  free(s->attach);
  free(s->detach);
}

static int make_statements(const struct cleanup *c, const struct schema_name *name, const char *bounds_text,
                           struct statements *s, struct err *err) {
  char table[SCHEMA_FULL_NAME_BYTES];
  char partition[SCHEMA_FULL_NAME_BYTES];
  schema_quote_name(&c->table.name, table);
  schema_quote_name(name, partition);
  const struct sql_var vars[] = {{"table", table}, {"partition", partition}, {"bounds", bounds_text}, {NULL, NULL}};
  if (sql_expand("LOCK TABLE ONLY :partition IN ACCESS EXCLUSIVE MODE", vars, &s->lock, err) != 0 ||
      sql_expand("DROP TABLE :partition", vars, &s->drop, err) != 0 ||
      sql_expand("ALTER TABLE :table ATTACH PARTITION :partition :bounds", vars, &s->attach, err) != 0 ||
      sql_expand("ALTER TABLE :table DETACH PARTITION :partition", vars, &s->detach, err) != 0) {
    return -1;
  }
  return 0;
}

static int commit_with(struct cleanup *c, const char *first, const char *second, struct err *err) {
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = first},
      {.kind = PG_QUERY, .sql = second != NULL ? second : "SELECT 1"},
      {.kind = PG_QUERY, .sql = "COMMIT"},
  };
  return pg_call(c->pg, steps, 3, CLEANUP_REPLY_MS, c->stop, err);
}

/* PostgreSQL does not let it go: back it goes. */
static int attach_back(struct cleanup *c, const struct statements *s, const char *unmark, struct err *err) {
  const struct pg_step begin[] = {BEGIN_STEPS};
  if (pg_call(c->pg, begin, BEGIN_STEPS_N, CLEANUP_REPLY_MS, c->stop, err) == 0 &&
      commit_with(c, s->attach, unmark, err) == 0) {
    return 0;
  }
  roll_back(c);
  return -1;
}

/* One attempt at the end of a detached table: locked, looked at, dropped or attached again, all in one transaction.
 * -1 with the session well: nothing has changed; *is_drop_refused tells that it was the DROP. */
static int decide(struct cleanup *c, const struct cleanup_leaving *leaving, const struct statements *s,
                  enum cleanup_fate *fate, struct cleanup_look *look, bool *is_drop_refused, struct err *err) {
  char oid[OID_BYTES];
  char name[SCHEMA_FULL_NAME_BYTES];
  const char *values[] = {oid, name};
  const struct pg_step steps[] = {
      BEGIN_STEPS,
      {.kind = PG_QUERY, .sql = s->lock},
      {.kind = PG_QUERY, .sql = embed_cleanup_final_sql, .params_n = 2, .values = values},
  };
  const int n = BEGIN_STEPS_N + 2;
  int rc = -1;
  print_oid(leaving->oid, oid);
  schema_quote_name(&leaving->name, name);
  *is_drop_refused = false;
  if (pg_call(c->pg, steps, n, CLEANUP_REPLY_MS, c->stop, err) != 0) {
    goto out;
  }
  if (PQgetvalue(pg_reply(c->pg)->results[n - 1], 0, 0)[0] != '1') {
    (void)err_set(err, ERR_RETRY, "renamed", "table %s has been renamed or attached meanwhile", leaving->name.table);
    goto out;
  }
  if (cleanup_look(c, leaving->oid, &leaving->name, look, err) != 0) {
    goto out;
  }
  if (look->pending_n + look->dead_n > 0) {
    *fate = CLEANUP_RETURNED;
    rc = commit_with(c, s->attach, leaving->unmark, err);
  } else {
    *fate = CLEANUP_DROPPED;
    rc = commit_with(c, s->drop, NULL, err);
    *is_drop_refused = rc != 0 && err->class != ERR_RETRY;
  }
out:
  if (rc != 0) {
    roll_back(c);
  }
  return rc;
}

int cleanup_finish(struct cleanup *c, const struct cleanup_leaving *leaving, enum cleanup_fate *fate,
                   struct cleanup_look *look, struct err *why, struct err *err) {
  struct statements s = {NULL, NULL, NULL, NULL};
  bool is_drop_refused = false;
  enum state state;
  int rc = make_statements(c, &leaving->name, leaving->bounds_text, &s, err);
  *fate = CLEANUP_BUSY;
  for (int tries = 1; rc == 0; tries++) {
    rc = state_of(c, leaving->oid, &state, err);
    if (rc != 0) {
      break;
    }
    if (state != STATE_DETACHED) {
      *fate = state == STATE_GONE ? CLEANUP_DROPPED : CLEANUP_BUSY;
      break;
    }
    err_clear(why);
    if (decide(c, leaving, &s, fate, look, &is_drop_refused, why) == 0) {
      break;
    }
    *fate = CLEANUP_BUSY;
    if (is_session_well(c) && is_drop_refused) {
      struct err back_err = ERR_INIT;
      *fate = CLEANUP_REFUSED;
      if (attach_back(c, &s, leaving->unmark, &back_err) != 0) {
        *fate = back_err.class == ERR_RETRY ? CLEANUP_BUSY : CLEANUP_STRANDED;
        *why = back_err;
      }
    }
    if (!is_session_well(c)) {
      *err = *why;
      rc = -1;
    } else if (*fate != CLEANUP_BUSY || tries == TRIES_MAX) {
      break;
    } else if (why->class != ERR_RETRY) {
      *fate = CLEANUP_STRANDED;
      break;
    } else {
      cleanup_pause(c, TRY_PAUSE_US);
    }
  }
  free_statements(&s);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- detaching */

/* Marks the partition; leaving->unmark takes the mark off. */
static int mark(struct cleanup *c, struct cleanup_leaving *leaving, struct err *err) {
  char table_oid[OID_BYTES];
  char oid[OID_BYTES];
  const char *values[] = {table_oid, oid};
  char *statement = NULL;
  int rc = -1;
  print_oid(c->table.oid, table_oid);
  print_oid(leaving->oid, oid);
  if (cleanup_ask(c, embed_cleanup_mark_sql, NULL, 2, values, err) != 0) {
    return -1;
  }
  const PGresult *row = pg_reply(c->pg)->results[0];
  if (PQntuples(row) == 0) {
    return err_set(err, ERR_RETRY, "gone", "partition %s is gone", leaving->name.table);
  }
  statement = strdup(PQgetvalue(row, 0, 0));
  leaving->unmark = strdup(PQgetvalue(row, 0, 1));
  if (statement == NULL || leaving->unmark == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for a statement");
  } else {
    rc = cleanup_run_statement(c, statement, err);
  }
  free(statement);
  return rc;
}

/* The way that blocks nobody. */
static int remove_concurrently(struct cleanup *c, struct cleanup_leaving *leaving, enum cleanup_fate *fate,
                               struct cleanup_look *look, struct err *why, struct err *err) {
  enum state state = STATE_ATTACHED;
  *fate = CLEANUP_BUSY;
  if (mark(c, leaving, why) != 0 || run_watched(c, "ALTER TABLE :table DETACH PARTITION :partition CONCURRENTLY",
                                                leaving->oid, &leaving->name, DETACH_MS, why) != 0) {
    if (!is_session_well(c)) {
      *err = *why;
      return -1;
    }
    if (state_of(c, leaving->oid, &state, err) != 0) {
      return -1;
    }
    if (state == STATE_ATTACHED && leaving->unmark != NULL && cleanup_run_statement(c, leaving->unmark, err) != 0 &&
        (!is_session_well(c) || err->class != ERR_RETRY)) {
      return -1;
    }
    if (state != STATE_DETACHED) {
      *fate = why->class == ERR_RETRY ? CLEANUP_BUSY : CLEANUP_REFUSED;
      (void)err_wrap(why,
                     *fate == CLEANUP_BUSY ? "the detach gave way, or waited for too long" : "the detach was refused");
      return 0;
    }
  }
  return cleanup_finish(c, leaving, fate, look, why, err);
}

/* With a DEFAULT partition there is no other way than one that keeps all writers out: in one transaction, and for moments only. */
static int remove_at_once(struct cleanup *c, const struct cleanup_leaving *leaving, enum cleanup_fate *fate,
                          struct cleanup_look *look, struct err *why, struct err *err) {
  struct statements s = {NULL, NULL, NULL, NULL};
  int rc = make_statements(c, &leaving->name, leaving->bounds_text, &s, err);
  if (rc != 0) {
    goto out;
  }
  const struct pg_step steps[] = {BEGIN_STEPS, {.kind = PG_QUERY, .sql = s.detach}};
  *fate = CLEANUP_BUSY;
  for (int tries = 1; *fate == CLEANUP_BUSY && tries <= TRIES_MAX; tries++) {
    err_clear(why);
    if (pg_call(c->pg, steps, BEGIN_STEPS_N + 1, CLEANUP_REPLY_MS, c->stop, why) == 0 &&
        cleanup_look(c, leaving->oid, &leaving->name, look, why) == 0) {
      if (look->pending_n + look->dead_n > 0) {
        *fate = CLEANUP_RETURNED; /* by the rollback */
      } else if (commit_with(c, s.drop, NULL, why) == 0) {
        *fate = CLEANUP_DROPPED;
        goto out;
      }
    }
    roll_back(c);
    if (!is_session_well(c)) {
      *err = *why;
      rc = -1;
      goto out;
    }
    if (*fate == CLEANUP_BUSY && why->class != ERR_RETRY) {
      *fate = CLEANUP_REFUSED;
    }
    if (*fate == CLEANUP_BUSY) {
      cleanup_pause(c, TRY_PAUSE_US);
    }
  }
out:
  free_statements(&s);
  return rc;
}

int cleanup_remove(struct cleanup *c, const struct schema_partition *partition, bool has_default,
                   enum cleanup_fate *fate, struct cleanup_look *look, struct err *why, struct err *err) {
  struct cleanup_leaving leaving = {.oid = partition->oid, .name = partition->name, .unmark = NULL};
  memcpy(leaving.bounds_text, partition->bounds_text, sizeof leaving.bounds_text);
  int rc = has_default ? remove_at_once(c, &leaving, fate, look, why, err)
                       : remove_concurrently(c, &leaving, fate, look, why, err);
  free(leaving.unmark);
  return rc;
}
