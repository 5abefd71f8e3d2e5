/*
 * `outboxd retry` and `outboxd discard`.
 *
 * Owns: the transactions in which dead messages change; runs on the main thread, no other exists.
 * Never: changes a row that is not dead when its lock is held; lets a later message of an aggregate come to life in an earlier transaction than a
 * previous one; waits for a lock longer than two seconds at a time.
 */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_dead_impl.h"
#include "embed.h"
#include "outboxd/buf.h"
#include "outboxd/cmd_dead.h"
#include "outboxd/pgarray.h"
#include "outboxd/say.h"

#define PAGE_TEXT "1000" /* messages of a transaction, and what else their aggregates have */
#define TRIES_N 12       /* at 2 s of waiting each, and the pauses between: half a minute */
#define RETRY_PAUSE_MS 300
#define DISCARDED "discarded: "

/* A message named by --id. */
struct named {
  int64_t id;
  bool is_changed;
  const char *why; /* not changed */
  int64_t attempts_n;
};

struct change {
  struct dead dead;
  bool is_discard;
  char *page; /* SQL */
  char *lock;
  char *update;
  struct buf ids; /* int8[]: those locked */
  int64_t changed_n;
  int named_n;
  struct named *named;
};

static const char *verb(const struct change *change) {
  return change->is_discard ? "discarded" : "given new attempts";
}

/* -------------------------------------------------------------------------------------------------- one transaction */

static void note_named(struct change *change, int64_t id) {
  for (int i = 0; i < change->named_n; i++) {
    change->named[i].is_changed = change->named[i].is_changed || change->named[i].id == id;
  }
}

static int take_ids(struct change *change, const PGresult *rows, struct err *err) {
  buf_reset(&change->ids);
  if (pgarray_begin(&change->ids, PGARRAY_INT8, PQntuples(rows), err) != 0) {
    return -1;
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    if (pgarray_int8(&change->ids, pg_parse_int64(rows, row, 0), err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Updates what is locked and commits. */
static int update(struct change *change, int locked_n, struct err *err) {
  const struct dead *dead = &change->dead;
  const char *values[] = {dead->selector.values[0], dead->selector.values[1], dead->selector.values[2],
                          dead->attempts,           change->ids.data,         dead->cfg->reason};
  const int lengths[] = {0, 0, 0, 0, (int)change->ids.len, 0};
  const int formats[] = {0, 0, 0, 0, 1, 0};
  const struct pg_step step = {.kind = PG_QUERY,
                               .sql = change->update,
                               .params_n = change->is_discard ? 6 : 5,
                               .values = values,
                               .lengths = lengths,
                               .formats = formats};
  const struct pg_step commit = {.kind = PG_QUERY, .sql = "COMMIT"};
  if (pg_call(dead->pg, &step, 1, DEAD_REPLY_MS, NULL, err) != 0) {
    return -1;
  }
  long updated_n = strtol(PQcmdTuples(pg_reply(dead->pg)->results[0]), NULL, 10);
  if (updated_n != locked_n) {
    return err_set(
        err, ERR_FATAL, "change_count",
        "%ld of %d locked rows of %s could be changed, so none was; does a trigger, a rule or row security on "
        "the table keep updates of published_at, attempts or last_error from happening?",
        updated_n, locked_n, dead->cfg->table);
  }
  return pg_call(dead->pg, &commit, 1, DEAD_REPLY_MS, NULL, err);
}

/* Locks the dead messages from after to until, and what else their aggregates have; changes them and commits. */
static int change_until(struct change *change, const char *after, const char *until, struct err *err) {
  struct dead *dead = &change->dead;
  char *const *selected = dead->selector.values;
  const char *values[] = {selected[0], selected[1], selected[2], dead->attempts, after, until};
  const struct pg_step step = {.kind = PG_QUERY, .sql = change->lock, .params_n = 6, .values = values};
  if (pg_call(dead->pg, &step, 1, DEAD_REPLY_MS, NULL, err) != 0) {
    return -1;
  }
  PGresult *locked = pg_take_result(dead->pg, 0);
  int locked_n = PQntuples(locked);
  int rc = take_ids(change, locked, err);
  if (rc == 0) {
    rc = update(change, locked_n, err);
  }
  for (int row = 0; rc == 0 && row < locked_n; row++) {
    change->changed_n++;
    note_named(change, pg_parse_int64(locked, row, 0));
  }
  PQclear(locked);
  return rc;
}

/* One attempt at one transaction; *after moves on, *is_done when nothing is left. */
static int try_page(struct change *change, char after[DEAD_NUMBER_BYTES], bool *is_done, struct err *err) {
  struct dead *dead = &change->dead;
  char *const *selected = dead->selector.values;
  char until[DEAD_NUMBER_BYTES];
  const char *values[] = {selected[0], selected[1], selected[2], dead->attempts, after, PAGE_TEXT};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = "BEGIN"},
      {.kind = PG_QUERY, .sql = "SET LOCAL lock_timeout = '2s'"},
      {.kind = PG_QUERY, .sql = change->page, .params_n = 6, .values = values},
  };
  const struct pg_step commit = {.kind = PG_QUERY, .sql = "COMMIT"};
  if (pg_call(dead->pg, steps, 3, DEAD_REPLY_MS, NULL, err) != 0) {
    return -1;
  }
  const PGresult *page = pg_reply(dead->pg)->results[2];
  *is_done = PQgetisnull(page, 0, 0);
  if (*is_done) {
    return pg_call(dead->pg, &commit, 1, DEAD_REPLY_MS, NULL, err);
  }
  (void)snprintf(until, sizeof until, "%s", PQgetvalue(page, 0, 0));
  if (change_until(change, after, until, err) != 0) {
    return -1;
  }
  (void)snprintf(after, DEAD_NUMBER_BYTES, "%s", until);
  return 0;
}

/* A lock that is held, a deadlock, a cancelled statement: the session is still there, and the same may work in a moment. */
static int change_page(struct change *change, char after[DEAD_NUMBER_BYTES], bool *is_done, struct err *err) {
  const struct pg_step rollback = {.kind = PG_QUERY, .sql = "ROLLBACK"};
  for (int tries = 1; try_page(change, after, is_done, err) != 0; tries++) {
    struct err lost = ERR_INIT;
    bool is_open = pg_state(change->dead.pg) == PG_IDLE &&
                   pg_call(change->dead.pg, &rollback, 1, DEAD_SESSION_MS, NULL, &lost) == 0;
    if (!is_open || err->class != ERR_RETRY || tries == TRIES_N) {
      return -1;
    }
    if (tries == 1) {
      (void)fprintf(stderr, "outboxd: another session holds a row (%s); trying again\n", err->text);
    }
    (void)poll(NULL, 0, RETRY_PAUSE_MS);
    err_clear(err);
  }
  return 0;
}

static int change_all(struct change *change, struct err *err) {
  char after[DEAD_NUMBER_BYTES] = "-9223372036854775808";
  char count[SAY_BYTES];
  bool is_done = false;
  while (!is_done) {
    if (change_page(change, after, &is_done, err) != 0) {
      return err_wrap(err, "%s messages were %s, then it ended; run it again for the rest",
                      say_count(change->changed_n, count), verb(change));
    }
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- what was not changed */

static int ask_named(struct change *change, const char *text, PGresult **out, struct err *err) {
  char *sql = NULL;
  const char *values[] = {change->dead.selector.values[0]};
  if (dead_expand(&change->dead, text, &sql, err) != 0) {
    return -1;
  }
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql, .params_n = 1, .values = values};
  int rc = pg_call(change->dead.pg, &step, 1, DEAD_REPLY_MS, NULL, err);
  *out = rc == 0 ? pg_take_result(change->dead.pg, 0) : NULL;
  free(sql);
  return rc;
}

static struct named *find_named(struct change *change, const char *id) {
  for (int i = 0; i < change->named_n; i++) {
    if (!change->named[i].is_changed && change->named[i].id == strtoll(id, NULL, 10)) {
      return &change->named[i];
    }
  }
  return NULL;
}

static int explain(struct change *change, struct err *err) {
  PGresult *rows = NULL;
  for (int i = 0; i < change->named_n; i++) {
    change->named[i].attempts_n = -1;
    change->named[i].why = change->dead.has_id_index
                               ? "there is no such message"
                               : "it is not pending: published, discarded, or there is no such message";
  }
  if (ask_named(change, embed_dead_pending_sql, &rows, err) != 0) {
    return -1;
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    struct named *named = find_named(change, PQgetvalue(rows, row, 0));
    if (named != NULL) {
      named->attempts_n = pg_parse_int64(rows, row, 1);
      named->why = named->attempts_n < change->dead.cfg->max_attempts_n ? "it is not dead, the relay tries it"
                                                                        : "the other selectors leave it out";
    }
  }
  PQclear(rows);
  if (!change->dead.has_id_index) {
    return 0;
  }
  if (ask_named(change, embed_dead_done_sql, &rows, err) != 0) {
    return -1;
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    struct named *named = find_named(change, PQgetvalue(rows, row, 0));
    if (named != NULL) {
      named->why = PQgetvalue(rows, row, 1)[0] == 't' ? "it is discarded already" : "it is published";
    }
  }
  PQclear(rows);
  return 0;
}

static int unchanged_n(const struct change *change) {
  int n = 0;
  for (int i = 0; i < change->named_n; i++) {
    n += !change->named[i].is_changed;
  }
  return n;
}

static void tell(const struct change *change) {
  char count[SAY_BYTES];
  (void)printf("%s %s %s\n", say_count(change->changed_n, count), change->changed_n == 1 ? "message" : "messages",
               verb(change));
  for (int i = 0; i < change->named_n; i++) {
    const struct named *named = &change->named[i];
    if (named->is_changed) {
      continue;
    }
    (void)printf("not changed: id %lld: %s", (long long)named->id, named->why);
    if (named->attempts_n >= 0) {
      (void)printf(" (%lld of %d attempts)", (long long)named->attempts_n, change->dead.cfg->max_attempts_n);
    }
    (void)fputc('\n', stdout);
  }
}

static int tell_json(const struct change *change, struct err *err) {
  json_t *unchanged = json_array();
  for (int i = 0; i < change->named_n; i++) {
    if (!change->named[i].is_changed) {
      (void)json_array_append_new(
          unchanged, json_pack("{s:I, s:s}", "id", (json_int_t)change->named[i].id, "why", change->named[i].why));
    }
  }
  json_t *line = json_pack("{s:s, s:I, s:o}", "command", change->is_discard ? "discard" : "retry", "changed",
                           (json_int_t)change->changed_n, "unchanged", unchanged);
  if (line == NULL || json_dumpf(line, stdout, JSON_COMPACT) != 0) {
    json_decref(line);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the report; what was asked for is done");
  }
  json_decref(line);
  (void)fputc('\n', stdout);
  return 0;
}

/* -------------------------------------------------------------------------------------------------- the command */

static int check_usage(const struct cfg *cfg, struct err *err) {
  const char *name = cfg->command == CFG_DISCARD ? "discard" : "retry";
  bool is_any = selector_is_any(cfg);
  if (!is_any && !cfg->is_all) {
    return err_set(err, ERR_USAGE, "usage",
                   "%s needs to be told which messages: --id, --aggregate, --event, or --all; see outboxd %s --help",
                   name, name);
  }
  if (is_any && cfg->is_all) {
    return err_set(err, ERR_USAGE, "usage", "--all goes with no other selector; see outboxd %s --help", name);
  }
  if (cfg->command == CFG_DISCARD && cfg->reason == NULL && !cfg->is_dry_run) {
    return err_set(err, ERR_USAGE, "usage",
                   "discard needs --reason TEXT: why these messages are given up; see outboxd discard --help");
  }
  return 0;
}

/* A reason that last_error could not hold would be cut. */
static int check_reason(const struct dead *dead, struct err *err) {
  int room_n = dead->error_chars - (int)strlen(DISCARDED);
  int chars_n = 0;
  for (const char *p = dead->cfg->reason; p != NULL && *p != '\0'; p++) {
    chars_n += ((unsigned char)*p & 0xc0) != 0x80;
  }
  if (chars_n > room_n) {
    return err_set(err, ERR_USAGE, "usage", "--reason has %d characters; last_error of table %s holds %d of it",
                   chars_n, dead->cfg->table, room_n);
  }
  return 0;
}

static int take_named(struct change *change, struct err *err) {
  const struct option_list *ids = &change->dead.cfg->ids;
  change->named = calloc((size_t)ids->n + 1, sizeof *change->named);
  if (change->named == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d ids", ids->n);
  }
  for (; change->named_n < ids->n; change->named_n++) {
    if (selector_parse_id(ids->values[change->named_n], &change->named[change->named_n].id, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int list_only(struct change *change, struct err *err) {
  int64_t listed_n = 0;
  bool has_more = false;
  if (dead_list(&change->dead, INT64_MAX, &listed_n, &has_more, err) != 0) {
    return -1;
  }
  if (!change->dead.cfg->is_json) {
    char count[SAY_BYTES];
    (void)printf("%s %s would be %s; nothing was changed\n", say_count(listed_n, count),
                 listed_n == 1 ? "message" : "messages", verb(change));
  }
  return 0;
}

static int change_and_tell(struct change *change, int *status, struct err *err) {
  struct dead *dead = &change->dead;
  if (dead_expand(dead, embed_dead_page_sql, &change->page, err) != 0 ||
      dead_expand(dead, embed_dead_lock_sql, &change->lock, err) != 0 ||
      dead_expand(dead, change->is_discard ? embed_dead_discard_sql : embed_dead_retry_sql, &change->update, err) !=
          0 ||
      take_named(change, err) != 0 || change_all(change, err) != 0) {
    return -1;
  }
  if (unchanged_n(change) > 0) {
    *status = 1;
    if (explain(change, err) != 0) {
      return err_wrap(err, "cannot look up what was not changed");
    }
  }
  if (dead->cfg->is_json) {
    return tell_json(change, err);
  }
  tell(change);
  return 0;
}

int cmd_dead_change(const struct cfg *cfg, int *status, struct err *err) {
  struct change change = {.is_discard = cfg->command == CFG_DISCARD};
  *status = 0;
  if (check_usage(cfg, err) != 0) {
    return -1;
  }
  int rc = dead_init(&change.dead, cfg, err);
  if (rc == 0) {
    rc = check_reason(&change.dead, err);
  }
  if (rc == 0) {
    rc = cfg->is_dry_run ? list_only(&change, err) : change_and_tell(&change, status, err);
  }
  dead_fini(&change.dead);
  free(change.page);
  free(change.lock);
  free(change.update);
  free(change.named);
  buf_free(&change.ids);
  return rc;
}
