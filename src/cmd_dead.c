/*
 * `outboxd dead`: the dead messages, with the reason; and the session that retry and discard share with it.
 *
 * Owns: one PostgreSQL session and what it says on stdout; runs on the main thread, no other exists.
 * Never: changes anything, prints a payload, lets data move the terminal's cursor.
 */
#include "outboxd/cmd_dead.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_dead_impl.h"
#include "embed.h"
#include "outboxd/say.h"
#include "outboxd/sql.h"

#define PAGE_N 1000
#define ERROR_CHARS 1000
#define SHOWN_BYTES 300

/* The columns of sql/dead_list.sql. */
enum {
  ID,
  MESSAGE_ID,
  AGGREGATE_TYPE,
  AGGREGATE_ID,
  EVENT_TYPE,
  ATTEMPTS,
  LAST_ERROR,
  AGE_US,
  CREATED_AT,
  PUBLISHED_AT
};

/* -------------------------------------------------------------------------------------------------- session */

/* As in sql/claim.sql, but for columns that may be NULL. */
#define ID_HASH "hashtextextended(coalesce(m.aggregate_id::text, '') COLLATE \"C\", 0)"
#define AGGREGATE_KEY "hashtextextended(coalesce(m.aggregate_type::text, '') COLLATE \"C\", " ID_HASH ")"

int dead_expand(const struct dead *dead, const char *text, char **out, struct err *err) {
  char error_chars[DEAD_NUMBER_BYTES];
  (void)snprintf(error_chars, sizeof error_chars, "%d", dead->error_chars);
  const struct sql_var vars[] = {{"table", dead->quoted},
                                 {"is_dead", dead->is_dead},
                                 {"aggregate_key", AGGREGATE_KEY},
                                 {"error_chars", error_chars},
                                 {NULL, NULL}};
  return sql_expand(text, vars, out, err);
}

static int make_condition(struct dead *dead, struct err *err) {
  char *selected = NULL;
  const struct sql_var none[] = {{NULL, NULL}};
  if (sql_expand(embed_selector_sql, none, &selected, err) != 0) {
    return -1;
  }
  const struct sql_var vars[] = {{"selected", selected}, {NULL, NULL}};
  int rc = sql_expand(dead->cfg->is_discarded ? embed_dead_discarded_sql : embed_dead_sql, vars, &dead->is_dead, err);
  free(selected);
  return rc;
}

static int set_up_session(struct dead *dead, struct err *err) {
  char oid[DEAD_NUMBER_BYTES];
  const char *values[] = {oid};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_dead_session_sql, .params_n = 1, .values = values};
  (void)snprintf(oid, sizeof oid, "%u", dead->table.oid);
  if (pg_call(dead->pg, &step, 1, DEAD_SESSION_MS, NULL, err) != 0) {
    return err_wrap(err, "cannot set the session up");
  }
  const PGresult *row = pg_reply(dead->pg)->results[0];
  long modifier = strtol(PQgetvalue(row, 0, 4), NULL, 10);
  dead->error_chars = modifier > 4 && modifier - 4 < ERROR_CHARS ? (int)modifier - 4 : ERROR_CHARS;
  dead->has_id_index = PQgetvalue(row, 0, 5)[0] == 't';
  return 0;
}

int dead_init(struct dead *dead, const struct cfg *cfg, struct err *err) {
  struct schema_name name;
  memset(dead, 0, sizeof *dead);
  dead->cfg = cfg;
  (void)snprintf(dead->attempts, sizeof dead->attempts, "%d", cfg->max_attempts_n);
  if (selector_init(&dead->selector, cfg, err) != 0 || schema_parse_name(cfg->table, &name, err) != 0 ||
      make_condition(dead, err) != 0 || pg_new(cfg->database, "dead", DEAD_SESSION_MS, &dead->pg, err) != 0) {
    return -1;
  }
  if (pg_connect(dead->pg, NULL, err) != 0) {
    return err_wrap(err, "cannot connect to PostgreSQL");
  }
  if (schema_find_table(dead->pg, &name, cfg->table, NULL, &dead->table, err) != 0) {
    return -1;
  }
  schema_quote_name(&dead->table.name, dead->quoted);
  return set_up_session(dead, err);
}

void dead_fini(struct dead *dead) {
  pg_free(dead->pg);
  selector_fini(&dead->selector);
  free(dead->is_dead);
}

/* -------------------------------------------------------------------------------------------------- the list */

static json_t *text_or_null(const PGresult *rows, int row, int column) {
  if (PQgetisnull(rows, row, column)) {
    return json_null();
  }
  return json_string(PQgetvalue(rows, row, column));
}

static int print_json(const PGresult *rows, int row, struct err *err) {
  json_t *line = json_pack(
      "{s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "id", (json_int_t)pg_parse_int64(rows, row, ID), "message_id",
      text_or_null(rows, row, MESSAGE_ID), "aggregate_type", text_or_null(rows, row, AGGREGATE_TYPE), "aggregate_id",
      text_or_null(rows, row, AGGREGATE_ID), "event_type", text_or_null(rows, row, EVENT_TYPE), "attempts",
      (json_int_t)pg_parse_int64(rows, row, ATTEMPTS), "last_error", text_or_null(rows, row, LAST_ERROR), "created_at",
      text_or_null(rows, row, CREATED_AT), "discarded_at", text_or_null(rows, row, PUBLISHED_AT));
  if (line == NULL || json_dumpf(line, stdout, JSON_COMPACT) != 0) {
    json_decref(line);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory to print a message");
  }
  json_decref(line);
  (void)fputc('\n', stdout);
  return 0;
}

static void print_text(const PGresult *rows, int row) {
  char age[SAY_BYTES] = "of unknown age";
  if (!PQgetisnull(rows, row, AGE_US)) {
    (void)say_age(pg_parse_int64(rows, row, AGE_US), age);
  }
  (void)printf("%s  ", PQgetvalue(rows, row, ID));
  say_clean(stdout, PQgetvalue(rows, row, AGGREGATE_TYPE), SHOWN_BYTES);
  (void)fputc(':', stdout);
  say_clean(stdout, PQgetvalue(rows, row, AGGREGATE_ID), SHOWN_BYTES);
  (void)fputs("  ", stdout);
  say_clean(stdout, PQgetvalue(rows, row, EVENT_TYPE), SHOWN_BYTES);
  (void)printf("\n    %s %s, %s%s\n    ", PQgetvalue(rows, row, ATTEMPTS),
               strcmp(PQgetvalue(rows, row, ATTEMPTS), "1") == 0 ? "attempt" : "attempts", age,
               PQgetisnull(rows, row, AGE_US) ? "" : " old");
  say_clean(stdout, PQgetisnull(rows, row, LAST_ERROR) ? "(no last_error)" : PQgetvalue(rows, row, LAST_ERROR),
            SHOWN_BYTES);
  (void)fputc('\n', stdout);
}

int dead_list(struct dead *dead, int64_t limit_n, int64_t *listed_n, bool *more, struct err *err) {
  char *sql = NULL;
  char after[DEAD_NUMBER_BYTES] = "-9223372036854775808";
  char page[DEAD_NUMBER_BYTES];
  char *const *selected = dead->selector.values;
  const char *values[] = {selected[0], selected[1], selected[2], dead->attempts, after, page};
  int rc = -1;
  *listed_n = 0;
  *more = false;
  if (dead_expand(dead, embed_dead_list_sql, &sql, err) != 0) {
    return -1;
  }
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql, .params_n = 6, .values = values};
  for (int n = 1; n > 0 && !*more;) {
    /* One more than may be shown: is there any? */
    int64_t wanted_n = limit_n - *listed_n < PAGE_N ? limit_n - *listed_n + 1 : PAGE_N;
    (void)snprintf(page, sizeof page, "%lld", (long long)wanted_n);
    if (pg_call(dead->pg, &step, 1, DEAD_REPLY_MS, NULL, err) != 0) {
      (void)err_wrap(err, "cannot read table %s", dead->cfg->table);
      goto out;
    }
    const PGresult *rows = pg_reply(dead->pg)->results[0];
    n = PQntuples(rows);
    for (int row = 0; row < n && !*more; row++) {
      if (*listed_n == limit_n) {
        *more = true;
      } else if (dead->cfg->is_json) {
        if (print_json(rows, row, err) != 0) {
          goto out;
        }
        ++*listed_n;
      } else {
        print_text(rows, row);
        ++*listed_n;
      }
    }
    if (n > 0) {
      (void)snprintf(after, sizeof after, "%s", PQgetvalue(rows, n - 1, ID));
    }
  }
  rc = 0;
out:
  free(sql);
  return rc;
}

int cmd_dead(const struct cfg *cfg, struct err *err) {
  struct dead dead;
  int64_t listed_n = 0;
  bool has_more = false;
  int rc = dead_init(&dead, cfg, err);
  if (rc == 0) {
    rc = dead_list(&dead, cfg->limit_n, &listed_n, &has_more, err);
  }
  if (rc == 0 && !cfg->is_json) {
    const char *what = cfg->is_discarded ? "discarded" : "dead";
    if (listed_n == 0 && cfg->is_discarded) {
      (void)printf("no message is %s\n", what);
    } else if (listed_n == 0) {
      (void)printf("no message is %s: none has %d attempts (--max-attempts, as the relays have it)\n", what,
                   cfg->max_attempts_n);
    } else {
      char count[SAY_BYTES];
      (void)printf("%s %s%s\n", say_count(listed_n, count), what,
                   has_more ? ", and there are more: --limit shows them" : "");
    }
  }
  dead_fini(&dead);
  return rc;
}
