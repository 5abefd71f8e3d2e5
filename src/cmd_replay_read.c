/*
 * `outboxd replay`, reading: a cursor over where the messages are, and the messages page by page.
 *
 * Owns nothing of its own: the session is struct replay's.  Main thread.
 * Never: changes anything, keeps a transaction or a lock from one page to the next, has more of the table in memory than --max-batch-bytes (or one message).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_replay_impl.h"
#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/pgtick.h"
#include "outboxd/sql.h"

#define KEYS_N "1000"                         /* a FETCH; also the most messages of a page */
#define SEARCH_MS (INT64_C(7) * 86400 * 1000) /* reading the whole table takes as long as it takes */
#define TICK_MS 200
#define GROWS_STORED "2"
#define GROWS_COMPRESSED "510"

/* The columns of sql/replay_keys.sql. */
enum { KEY_LEAF, KEY_PLACE, KEY_ID, KEY_CREATED_AT, KEY_IS_DISCARDED, KEY_IS_UNNAMED, KEY_WEIGHT };

/* The parameters of sql/replay_page.sql. */
enum { PAGE_LEAVES, PAGE_PLACES, PAGE_IDS, PAGE_TIMES, PAGE_PARAMS_N };

#define WEIGHT_OF(column_)                                                                                 \
  "coalesce(pg_column_size(" column_ "), 0)::int8 * CASE WHEN pg_column_compression(" column_ ") IS NULL " \
  "THEN " GROWS_STORED " ELSE " GROWS_COMPRESSED " END"

/* As in sql/claim.sql, but for columns that may be NULL. */
#define LANE_HASH "hashtextextended(coalesce(m.aggregate_id::text, '') COLLATE \"C\", 0)"
#define AGGREGATE_KEY "hashtextextended(coalesce(m.aggregate_type::text, '') COLLATE \"C\", " LANE_HASH ")"

/* -------------------------------------------------------------------------------------------------- statements */

static int expand(const struct replay *replay, const char *text, const char *span, char **out, struct err *err) {
  char *selected = NULL;
  const struct sql_var none[] = {{NULL, NULL}};
  if (sql_expand(embed_selector_sql, none, &selected, err) != 0) {
    return -1;
  }
  const struct sql_var vars[] = {
      {"table", replay->quoted},
      {"selected", selected},
      {"range", replay->range},
      {"weight", replay->has_headers ? WEIGHT_OF("m.payload") " + " WEIGHT_OF("m.headers") : WEIGHT_OF("m.payload")},
      {"lane_hash", LANE_HASH},
      {"aggregate_key", AGGREGATE_KEY},
      {"headers", replay->has_headers ? ", m.headers::text" : ""},
      {"span", span},
      {NULL, NULL}};
  int rc = sql_expand(text, vars, out, err);
  free(selected);
  return rc;
}

static int expand_pages(struct replay *replay, struct err *err) {
  char *span = NULL;
  const struct sql_var none[] = {{NULL, NULL}};
  if (sql_expand(embed_replay_span_sql, none, &span, err) != 0) {
    return -1;
  }
  int rc = expand(replay, embed_replay_page_sql, "", &replay->page, err);
  if (rc == 0) {
    rc = expand(replay, embed_replay_page_sql, span, &replay->page_in_span, err);
  }
  if (rc == 0) {
    rc = expand(replay, embed_replay_moved_sql, "", &replay->moved, err);
  }
  if (rc == 0) {
    rc = expand(replay, embed_replay_moved_sql, span, &replay->moved_in_span, err);
  }
  free(span);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- finding */

static int open_session(struct replay *replay, struct err *err) {
  struct schema_name name;
  struct schema_relation table;
  char oid[REPLAY_NUMBER_BYTES];
  const char *values[] = {oid};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_replay_session_sql, .params_n = 1, .values = values};
  if (schema_parse_name(replay->cfg->table, &name, err) != 0 ||
      pg_new(replay->cfg->database, "replay", REPLAY_SESSION_MS, &replay->pg, err) != 0) {
    return -1;
  }
  if (pg_connect(replay->pg, replay->stop, err) != 0) {
    return err_wrap(err, "cannot connect to PostgreSQL");
  }
  if (schema_find(replay->pg, &name, replay->stop, &table, err) != 0) {
    return -1;
  }
  if (table.kind != 'r' && table.kind != 'p') {
    return err_set(err, ERR_FATAL, "unknown_table",
                   "there is no table %s in this database (or not in the search_path); name it with --table",
                   replay->cfg->table);
  }
  schema_quote_name(&table.name, replay->quoted);
  (void)snprintf(oid, sizeof oid, "%u", table.oid);
  if (pg_call(replay->pg, &step, 1, REPLAY_SESSION_MS, replay->stop, err) != 0) {
    return err_wrap(err, "cannot set the session up");
  }
  replay->has_headers = PQgetvalue(pg_reply(replay->pg)->results[0], 0, 4)[0] == 't';
  return 0;
}

static void tick(void *arg) {
  struct replay *replay = arg;
  progress_note(&replay->progress, 0, PROGRESS_UNKNOWN, clock_now_us());
}

/* Runs statements that read the whole table. */
static int search(struct replay *replay, const struct pg_step *steps, int n, struct err *err) {
  if (pgtick_call(replay->pg, steps, n, SEARCH_MS, replay->stop, TICK_MS, tick, replay, err) != 0) {
    return strcmp(err->code, "stopped") == 0 ? -1 : err_wrap(err, "cannot read table %s", replay->cfg->table);
  }
  return 0;
}

int replay_find(struct replay *replay, struct err *err) {
  char *keys = NULL;
  char *pending = NULL;
  char *const *selected = replay->selector.values;
  const char *values[] = {selected[0], selected[1], selected[2], replay->after};
  int rc = -1;
  if (open_session(replay, err) != 0 || expand(replay, embed_replay_keys_sql, "", &keys, err) != 0 ||
      expand(replay, embed_replay_pending_sql, "", &pending, err) != 0 || expand_pages(replay, err) != 0) {
    goto out;
  }
  const struct pg_step find = {.kind = PG_QUERY, .sql = keys, .params_n = 4, .values = values};
  const struct pg_step rest[] = {
      {.kind = PG_QUERY, .sql = "MOVE FORWARD ALL IN replay"},
      {.kind = PG_QUERY, .sql = "MOVE ABSOLUTE 0 IN replay"},
      {.kind = PG_QUERY, .sql = pending, .params_n = 4, .values = values},
      {.kind = PG_QUERY, .sql = embed_replay_plan_sql},
  };
  if (search(replay, &find, 1, err) != 0 || search(replay, rest, 4, err) != 0) {
    goto out;
  }
  const struct pg_reply *reply = pg_reply(replay->pg);
  replay->total_n = strtoll(PQcmdTuples(reply->results[0]), NULL, 10);
  replay->pending_n = pg_parse_int64(reply->results[2], 0, 0);
  rc = 0;
out:
  free(keys);
  free(pending);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- keys */

/* Fetches the next keys when all are used; *has_any tells whether there is one. */
static int fetch_keys(struct replay *replay, bool *has_any, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "FETCH FORWARD " KEYS_N " FROM replay"};
  if (replay->keys == NULL || replay->key == PQntuples(replay->keys)) {
    PQclear(replay->keys);
    replay->keys = NULL;
    replay->key = 0;
    if (pg_call(replay->pg, &step, 1, SEARCH_MS, replay->stop, err) != 0) {
      return strcmp(err->code, "stopped") == 0 ? -1 : err_wrap(err, "cannot read on in table %s", replay->cfg->table);
    }
    replay->keys = pg_take_result(replay->pg, 0);
  }
  *has_any = PQntuples(replay->keys) > 0;
  return 0;
}

static const char *key_value(const struct replay *replay, int column) {
  return PQgetvalue(replay->keys, replay->key, column);
}

/* The next key; true when it is to be published.  Counts it otherwise. */
static bool is_wanted(struct replay *replay) {
  bool is_discarded = key_value(replay, KEY_IS_DISCARDED)[0] == 't';
  bool is_unnamed = !is_discarded && key_value(replay, KEY_IS_UNNAMED)[0] == 't';
  replay->discarded_n += is_discarded;
  replay->unnamed_n += is_unnamed;
  return !is_discarded && !is_unnamed;
}

int replay_count(struct replay *replay, struct err *err) {
  bool has_any = false;
  while (fetch_keys(replay, &has_any, err) == 0 && has_any) {
    if (stop_is_set(replay->stop)) {
      return err_set(err, ERR_RETRY, "stopped", "stopped by a signal");
    }
    for (; replay->key < PQntuples(replay->keys); replay->key++) {
      if (is_wanted(replay)) {
        replay->last_id = strtoll(key_value(replay, KEY_ID), NULL, 10);
        replay->first_id = replay->published_n == 0 ? replay->last_id : replay->first_id;
        replay->published_n++;
      }
    }
    replay_note(replay);
  }
  return replay->keys != NULL ? 0 : -1;
}

/* -------------------------------------------------------------------------------------------------- pages */

/* Adds an element to a text array under way; times and places hold commas and spaces, but no quotes. */
static int add_element(struct buf *buf, const char *text, struct err *err) {
  return buf_printf(buf, err, "%s\"%s\"", buf->len == 0 ? "{" : ",", text);
}

/* Takes keys into the page's parameters; *n counts them. */
static int take_keys(struct replay *replay, int *n, bool *has_times, struct err *err) {
  int64_t weight = 0;
  *n = 0;
  *has_times = true;
  for (int i = 0; i < PAGE_PARAMS_N; i++) {
    buf_reset(&replay->params[i]);
  }
  for (; replay->key < PQntuples(replay->keys); replay->key++) {
    int64_t more = strtoll(key_value(replay, KEY_WEIGHT), NULL, 10);
    if (*n > 0 && weight + more > replay->cfg->max_batch_bytes) {
      break;
    }
    if (!is_wanted(replay)) {
      continue;
    }
    weight += more;
    if (PQgetisnull(replay->keys, replay->key, KEY_CREATED_AT)) {
      *has_times = false;
    } else if (add_element(&replay->params[PAGE_TIMES], key_value(replay, KEY_CREATED_AT), err) != 0) {
      return -1;
    }
    if (add_element(&replay->params[PAGE_LEAVES], key_value(replay, KEY_LEAF), err) != 0 ||
        add_element(&replay->params[PAGE_PLACES], key_value(replay, KEY_PLACE), err) != 0 ||
        add_element(&replay->params[PAGE_IDS], key_value(replay, KEY_ID), err) != 0) {
      return -1;
    }
    ++*n;
  }
  for (int i = 0; i<PAGE_PARAMS_N && * n> 0; i++) {
    if (replay->params[i].len > 0 && buf_append(&replay->params[i], "}", 1, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* A statement about the page whose keys are in the parameters. */
static int ask(struct replay *replay, const char *sql, bool has_times, bool is_binary, struct err *err) {
  const char *values[PAGE_PARAMS_N];
  for (int i = 0; i < PAGE_PARAMS_N; i++) {
    values[i] = replay->params[i].data;
  }
  const struct pg_step step = {.kind = PG_QUERY,
                               .sql = sql,
                               .params_n = has_times ? PAGE_PARAMS_N : PAGE_TIMES,
                               .values = values,
                               .is_binary_result = is_binary};
  if (pg_call(replay->pg, &step, 1, SEARCH_MS, replay->stop, err) != 0) {
    return strcmp(err->code, "stopped") == 0 ? -1 : err_wrap(err, "cannot read on in table %s", replay->cfg->table);
  }
  return 0;
}

/* Rows that are gone are left out; rows that are elsewhere now have to be found again, which only a new search does. */
static int check_moved(struct replay *replay, bool has_times, struct err *err) {
  if (ask(replay, has_times ? replay->moved_in_span : replay->moved, has_times, false, err) != 0) {
    return -1;
  }
  int64_t moved_n = pg_parse_int64(pg_reply(replay->pg)->results[0], 0, 0);
  if (moved_n > 0) {
    return err_set(
        err, ERR_FATAL, "moved",
        "%lld of the next messages are no longer where they were found: an UPDATE, VACUUM FULL or CLUSTER of "
        "table %s has moved them meanwhile",
        (long long)moved_n, replay->cfg->table);
  }
  return 0;
}

static int read_page(struct replay *replay, int keys_n, bool has_times, struct batch **out, struct err *err) {
  if (ask(replay, has_times ? replay->page_in_span : replay->page, has_times, true, err) != 0) {
    return -1;
  }
  PGresult *result = pg_take_result(replay->pg, 0);
  if (batch_new(&result, replay->cfg->lanes_n, out, err) != 0) {
    return -1;
  }
  int gone_n = keys_n - (*out)->n;
  replay->gone_n += gone_n;
  return gone_n > 0 ? check_moved(replay, has_times, err) : 0;
}

int replay_read(struct replay *replay, struct batch **out, struct err *err) {
  bool has_any = false;
  *out = NULL;
  for (;;) {
    int n = 0;
    bool has_times = false;
    if (fetch_keys(replay, &has_any, err) != 0) {
      return -1;
    }
    if (!has_any) {
      return 0;
    }
    if (take_keys(replay, &n, &has_times, err) != 0) {
      return -1;
    }
    if (n > 0 && read_page(replay, n, has_times, out, err) != 0) {
      return -1;
    }
    if (*out != NULL && (*out)->n > 0) {
      return 0;
    }
    batch_unref(out);
  }
}
