/*
 * Changes to the table's schema: names, transactions that make no writer wait, partitions made ahead.
 *
 * Owns nothing beyond a call; run by the main thread (init) and the cleanup thread, each with a session of its own.
 * Never: waits for a table lock longer than LOCK_WAIT_MS at a time, drops anything, alters a table it did not make but by attaching a partition.
 */
#include "outboxd/schema.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/backoff.h"

/* A lock that is waited for makes those queue who come later, so the wait is short and is begun anew. */
#define LOCK_WAIT "1s"
#define TRIES_MAX 20
/* Where the attachment itself keeps writers out, of the DEFAULT partition that is. */
#define TRIES_BESIDE_DEFAULT 3
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 1000
/* For the reply of a whole script: far above what its lock waits can take together. */
#define REPLY_MS INT64_C(60000)

/* One lock for all schema work in a database: shared by every instance, whatever its table. */
#define LOCK_KEY "hashtextextended('outboxd schema', 0)"

/* -------------------------------------------------------------------------------------------------- names */

static bool is_ident_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_ident_part(char c) {
  return is_ident_start(c) || (c >= '0' && c <= '9') || c == '$';
}

/* Appends one byte to a part; false when it is full. */
static bool put(char part[SCHEMA_NAME_BYTES], size_t *n, char c) {
  if (*n + 1 >= SCHEMA_NAME_BYTES) {
    return false;
  }
  part[(*n)++] = c;
  part[*n] = '\0';
  return true;
}

static int refuse_name(const char *text, const char *why, struct err *err) {
  return err_set(err, ERR_USAGE, "table_name",
                 "--table %s: %s; write table, schema.table, or \"Quoted Schema\".\"Quoted Table\"", text, why);
}

/* Reads one part at *p and moves *p behind it. */
static int read_part(const char *text, const char **p, char part[SCHEMA_NAME_BYTES], struct err *err) {
  size_t n = 0;
  bool has_room = true;
  const char *q = *p;
  part[0] = '\0';
  if (*q == '"') {
    for (q++; *q != '\0' && (*q != '"' || q[1] == '"'); q++) {
      has_room = put(part, &n, *q) && has_room;
      q += *q == '"';
    }
    if (*q != '"') {
      return refuse_name(text, "a double quote is not closed", err);
    }
    q++;
    if (n == 0) {
      return refuse_name(text, "a quoted name is empty", err);
    }
  } else {
    if (!is_ident_start(*q)) {
      return refuse_name(text, "a name without quotes starts with a letter or an underscore", err);
    }
    for (; is_ident_part(*q); q++) {
      has_room = put(part, &n, (char)(*q >= 'A' && *q <= 'Z' ? *q - 'A' + 'a' : *q)) && has_room;
    }
  }
  if (!has_room) {
    return refuse_name(text, "a name has more than PostgreSQL's 63 bytes", err);
  }
  *p = q;
  return 0;
}

int schema_parse_name(const char *text, struct schema_name *name, struct err *err) {
  const char *p = text;
  memset(name, 0, sizeof *name);
  if (read_part(text, &p, name->table, err) != 0) {
    return -1;
  }
  if (*p == '.') {
    p++;
    memcpy(name->schema, name->table, sizeof name->schema);
    if (read_part(text, &p, name->table, err) != 0) {
      return -1;
    }
  }
  if (*p == '.') {
    return refuse_name(text, "there are more than two parts", err);
  }
  if (*p != '\0') {
    return refuse_name(text, "a name with anything but letters, digits, _ and $ has to be quoted", err);
  }
  return 0;
}

static char *quote_part(const char *part, char *out) {
  *out++ = '"';
  for (; *part != '\0'; part++) {
    if (*part == '"') {
      *out++ = '"';
    }
    *out++ = *part;
  }
  *out++ = '"';
  *out = '\0';
  return out;
}

void schema_quote_name(const struct schema_name *name, char out[SCHEMA_FULL_NAME_BYTES]) {
  if (name->schema[0] != '\0') {
    out = quote_part(name->schema, out);
    *out++ = '.';
  }
  (void)quote_part(name->table, out);
}

static char *show_part(const char *part, char *out) {
  bool is_plain = !(*part >= '0' && *part <= '9');
  for (const char *p = part; *p != '\0'; p++) {
    is_plain = is_plain && is_ident_part(*p) && !(*p >= 'A' && *p <= 'Z');
  }
  if (!is_plain) {
    return quote_part(part, out);
  }
  size_t n = strlen(part);
  memcpy(out, part, n + 1);
  return out + n;
}

void schema_show_name(const struct schema_name *name, char out[SCHEMA_FULL_NAME_BYTES]) {
  if (name->schema[0] != '\0') {
    out = show_part(name->schema, out);
    *out++ = '.';
  }
  (void)show_part(name->table, out);
}

int schema_settings(char **out, struct err *err) {
  if (sql_expand(embed_init_settings_sql, NULL, out, err) != 0) {
    return -1;
  }
  (*out)[strcspn(*out, "\n")] = '\0';
  return 0;
}

/* -------------------------------------------------------------------------------------------------- transactions */

int schema_script_add(struct schema_script *script, const char *text, const struct sql_var *vars, struct err *err) {
  if (script->n == SCHEMA_SCRIPT_MAX) {
    return err_set(err, ERR_BUG, "script", "more than %d statements in one script", SCHEMA_SCRIPT_MAX);
  }
  if (sql_expand(text, vars, &script->statements[script->n], err) != 0) {
    return -1;
  }
  script->n++;
  return 0;
}

void schema_script_fini(struct schema_script *script) {
  for (int i = 0; i < script->n; i++) {
    free(script->statements[i]);
  }
  memset(script, 0, sizeof *script);
}

/* Waits us microseconds, or less when *stop is set. */
static void pause_us(int64_t us, const struct stop *stop) {
  struct pollfd fd = {.fd = stop != NULL ? stop_fd(stop) : -1, .events = POLLIN};
  (void)poll(&fd, 1, (int)(us / 1000));
}

/* One attempt.  After a failed statement the transaction is ended, so that the session can be used again. */
static int run_once(const struct schema_script *script, struct pg *pg, const struct stop *stop, struct err *err) {
  struct pg_step steps[SCHEMA_SCRIPT_MAX + 4];
  int n = 0;
  steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = "BEGIN"};
  steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = "SET LOCAL lock_timeout = '" LOCK_WAIT "'"};
  steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = "SELECT pg_advisory_xact_lock(" LOCK_KEY ")"};
  for (int i = 0; i < script->n; i++) {
    steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = script->statements[i]};
  }
  steps[n++] = (struct pg_step){.kind = PG_QUERY, .sql = "COMMIT"};
  if (pg_call(pg, steps, n, REPLY_MS, stop, err) == 0) {
    return 0;
  }
  if (pg_state(pg) == PG_IDLE) {
    const struct pg_step rollback = {.kind = PG_QUERY, .sql = "ROLLBACK"};
    struct err ignored = ERR_INIT;
    if (pg_call(pg, &rollback, 1, REPLY_MS, stop, &ignored) != 0) {
      pg_close(pg);
    }
  }
  return -1;
}

int schema_script_run(const struct schema_script *script, struct pg *pg, const struct stop *stop, struct err *err) {
  struct backoff backoff = {.first_ms = FIRST_PAUSE_MS, .max_ms = LONGEST_PAUSE_MS};
  for (int tries = 1;; tries++) {
    if (run_once(script, pg, stop, err) == 0) {
      return 0;
    }
    /* A session that is still there had its lock refused, or lost a deadlock; one that is gone is the caller's matter. */
    if (err->class != ERR_RETRY || pg_state(pg) != PG_IDLE ||
        tries >= (script->tries_n > 0 ? script->tries_n : TRIES_MAX)) {
      return -1;
    }
    pause_us(backoff_next_us(&backoff), stop);
    if (stop != NULL && stop_is_set(stop)) {
      return -1;
    }
  }
}

int schema_try_lock(struct pg *pg, const struct stop *stop, bool *is_taken, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "SELECT pg_try_advisory_lock(" LOCK_KEY ")"};
  if (pg_call(pg, &step, 1, REPLY_MS, stop, err) != 0) {
    return -1;
  }
  *is_taken = PQgetvalue(pg_reply(pg)->results[0], 0, 0)[0] == 't';
  return 0;
}

/* -------------------------------------------------------------------------------------------------- the table */

static void copy(char *out, size_t n, const char *text) {
  (void)snprintf(out, n, "%s", text);
}

int schema_find(struct pg *pg, const struct schema_name *name, const struct stop *stop, struct schema_relation *out,
                struct err *err) {
  char quoted[SCHEMA_FULL_NAME_BYTES];
  const char *values[] = {quoted};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_init_relation_sql, .params_n = 1, .values = values};
  memset(out, 0, sizeof *out);
  schema_quote_name(name, quoted);
  if (pg_call(pg, &step, 1, REPLY_MS, stop, err) != 0) {
    return err_wrap(err, "cannot look up table %s", name->table);
  }
  const PGresult *row = pg_reply(pg)->results[0];
  if (PQntuples(row) == 0) {
    return 0;
  }
  out->oid = (uint32_t)strtoul(PQgetvalue(row, 0, 0), NULL, 10);
  out->kind = PQgetvalue(row, 0, 1)[0];
  copy(out->name.schema, sizeof out->name.schema, PQgetvalue(row, 0, 2));
  copy(out->name.table, sizeof out->name.table, PQgetvalue(row, 0, 3));
  copy(out->partition_key, sizeof out->partition_key, PQgetvalue(row, 0, 4));
  out->is_by_created_at = strcmp(out->partition_key, "RANGE (created_at)") == 0;
  copy(out->foreign_owner, sizeof out->foreign_owner, PQgetvalue(row, 0, 5));
  copy(out->message_id_type, sizeof out->message_id_type, PQgetvalue(row, 0, 6));
  out->sequence_cache = pg_parse_int64(row, 0, 7);
  return 0;
}

int schema_find_table(struct pg *pg, const struct schema_name *name, const char *given, const struct stop *stop,
                      struct schema_relation *out, struct err *err) {
  if (schema_find(pg, name, stop, out, err) != 0) {
    return -1;
  }
  if (out->kind != 'r' && out->kind != 'p') {
    return err_set(err, ERR_FATAL, "unknown_table",
                   "there is no table %s in this database (or not in the search_path); name it with --table", given);
  }
  return 0;
}

/* What a new partition is made with: the newest one's settings, or ours when it is the first. */
static int fill_settings(const PGresult *rows, int newest, struct schema_partitions *out, struct err *err) {
  char *ours = NULL;
  const char *settings = newest >= 0 ? PQgetvalue(rows, newest, 6) : NULL;
  const char *tablespace = newest >= 0 ? PQgetvalue(rows, newest, 8) : "";
  size_t with_n;
  int rc = -1;
  if (settings == NULL) {
    if (schema_settings(&ours, err) != 0) {
      return -1;
    }
    settings = ours;
  }
  with_n = strlen(settings) + sizeof "WITH ()";
  out->with = malloc(with_n);
  out->tablespace = malloc(strlen(tablespace) + sizeof "TABLESPACE ");
  if (out->with == NULL || out->tablespace == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for a partition's settings");
    goto out;
  }
  (void)snprintf(out->with, with_n, settings[0] != '\0' ? "WITH (%s)" : "%s", settings);
  (void)snprintf(out->tablespace, strlen(tablespace) + sizeof "TABLESPACE ",
                 tablespace[0] != '\0' ? "TABLESPACE %s" : "%s", tablespace);
  rc = 0;
out:
  free(ours);
  return rc;
}

static int64_t bound_or(const PGresult *rows, int row, int column, int64_t none) {
  return PQgetisnull(rows, row, column) ? none : pg_parse_int64(rows, row, column);
}

int schema_load_partitions(struct pg *pg, const struct schema_relation *table, const struct stop *stop,
                           struct schema_partitions *out, struct err *err) {
  char oid[16];
  const char *values[] = {oid};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = embed_init_partitions_sql, .params_n = 1, .values = values},
      {.kind = PG_QUERY,
       .sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, relreplident FROM pg_class WHERE oid "
              "= $1",
       .params_n = 1,
       .values = values},
  };
  (void)snprintf(oid, sizeof oid, "%u", table->oid);
  schema_partitions_fini(out);
  if (pg_call(pg, steps, 2, REPLY_MS, stop, err) != 0) {
    return err_wrap(err, "cannot read the partitions of %s", table->name.table);
  }
  const PGresult *rows = pg_reply(pg)->results[0];
  const PGresult *more = pg_reply(pg)->results[1];
  if (PQntuples(more) != 1) {
    return err_set(err, ERR_FATAL, "unknown_table", "table %s has been dropped meanwhile", table->name.table);
  }
  int n = PQntuples(rows);
  int newest = -1;
  out->items = calloc((size_t)n + 1, sizeof *out->items);
  if (out->items == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a list of %d partitions", n);
  }
  for (int row = 0; row < n; row++) {
    struct schema_partition *item = &out->items[row];
    item->oid = (uint32_t)strtoul(PQgetvalue(rows, row, 0), NULL, 10);
    copy(item->name.schema, sizeof item->name.schema, PQgetvalue(rows, row, 1));
    copy(item->name.table, sizeof item->name.table, PQgetvalue(rows, row, 2));
    item->is_default = PQgetvalue(rows, row, 3)[0] == 't';
    item->bounds.from_us = bound_or(rows, row, 4, INT64_MIN);
    item->bounds.to_us = bound_or(rows, row, 5, INT64_MAX);
    item->kind = PQgetvalue(rows, row, 9)[0];
    item->is_detach_pending = PQgetvalue(rows, row, 10)[0] == 't';
    copy(item->bounds_text, sizeof item->bounds_text, PQgetvalue(rows, row, 11));
    out->has_default = out->has_default || item->is_default;
    newest = item->is_default ? newest : row;
  }
  out->n = n;
  out->db_now_us = pg_parse_int64(more, 0, 0);
  out->replica_identity = PQgetvalue(more, 0, 1)[0];
  if (newest >= 0) {
    out->replica_identity = PQgetvalue(rows, newest, 7)[0];
  }
  return fill_settings(rows, newest, out, err);
}

void schema_partitions_fini(struct schema_partitions *partitions) {
  free(partitions->items);
  free(partitions->with);
  free(partitions->tablespace);
  memset(partitions, 0, sizeof *partitions);
}

/* The statements that make one partition. */
static int write_partition(struct schema_script *script, const struct schema_relation *table,
                           const struct schema_partitions *beside, const struct schema_partition *new,
                           struct err *err) {
  char parent[SCHEMA_FULL_NAME_BYTES];
  char partition[SCHEMA_FULL_NAME_BYTES];
  char from[PARTITION_BOUND_BYTES];
  char to[PARTITION_BOUND_BYTES];
  const char *identity = beside->replica_identity == 'f' ? "FULL" : beside->replica_identity == 'n' ? "NOTHING" : NULL;
  schema_quote_name(&table->name, parent);
  schema_quote_name(&new->name, partition);
  partition_format_bound(new->bounds.from_us, from);
  partition_format_bound(new->bounds.to_us, to);
  const struct sql_var vars[] = {
      {"table", parent},
      {"partition", partition},
      {"with", beside->with},
      {"tablespace", beside->tablespace},
      {"from", from},
      {"to", to},
      {"owner", table->foreign_owner},
      {NULL, NULL},
  };
  const struct sql_var identity_vars[] = {{"table", partition}, {"identity", identity}, {NULL, NULL}};
  if (schema_script_add(script, embed_init_partition_sql, vars, err) != 0) {
    return -1;
  }
  if (identity != NULL && schema_script_add(script, embed_init_replica_identity_sql, identity_vars, err) != 0) {
    return -1;
  }
  if (table->foreign_owner[0] != '\0' &&
      schema_script_add(script, "ALTER TABLE :partition OWNER TO :owner", vars, err) != 0) {
    return -1;
  }
  /* With a DEFAULT partition the attachment locks and scans that one: not for longer than a lock may be waited for. */
  if (beside->has_default) {
    script->tries_n = TRIES_BESIDE_DEFAULT;
    if (schema_script_add(script, "SET LOCAL statement_timeout = '" LOCK_WAIT "'", NULL, err) != 0) {
      return -1;
    }
  }
  return schema_script_add(script, embed_init_attach_sql, vars, err);
}

static int make_partition(struct pg *pg, const struct schema_relation *table, const struct schema_partitions *beside,
                          const struct schema_partition *new, const struct stop *stop, struct err *err) {
  struct schema_script script = {0};
  int rc = write_partition(&script, table, beside, new, err);
  if (rc == 0) {
    rc = schema_script_run(&script, pg, stop, err);
  }
  schema_script_fini(&script);
  return rc;
}

/* What is missing now.  *out is the caller's to free. */
static int plan_ahead(struct pg *pg, const struct schema_relation *table, int64_t ahead_ms, const struct stop *stop,
                      struct schema_partitions *partitions, struct partition_bounds **out, int *out_n,
                      struct err *err) {
  *out = NULL;
  *out_n = 0;
  if (schema_load_partitions(pg, table, stop, partitions, err) != 0) {
    return -1;
  }
  struct partition_bounds *existing = calloc((size_t)partitions->n + 1, sizeof *existing);
  if (existing == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the bounds of %d partitions", partitions->n);
  }
  int n = 0;
  for (int i = 0; i < partitions->n; i++) {
    if (!partitions->items[i].is_default) {
      existing[n++] = partitions->items[i].bounds;
    }
  }
  int64_t today_us = partition_day_start(partitions->db_now_us);
  int64_t last_us = partition_day_start(partitions->db_now_us + ahead_ms * 1000);
  int rc = partition_plan(existing, n, today_us - PARTITION_DAY_US, last_us + PARTITION_DAY_US, out, out_n, err);
  free(existing);
  return rc;
}

int schema_create_ahead(struct pg *pg, const struct schema_relation *table, int64_t ahead_ms, const struct stop *stop,
                        void (*made)(void *arg, const struct schema_partition *p), void *arg, struct err *err) {
  struct schema_partitions partitions = {0};
  struct partition_bounds *plan = NULL;
  int64_t failed_us = INT64_MIN; /* lower bound of the one that could not be made last */
  int n = 0;
  int rc = -1;

  while (plan_ahead(pg, table, ahead_ms, stop, &partitions, &plan, &n, err) == 0) {
    int i = 0;
    if (n == 0) {
      rc = 0;
      goto out;
    }
    for (; i < n; i++) {
      struct schema_partition new = {.name = table->name, .bounds = plan[i]};
      if (partition_name(table->name.table, plan[i].from_us, new.name.table, err) != 0) {
        goto out;
      }
      if (make_partition(pg, table, &partitions, &new, stop, err) != 0) {
        (void)err_wrap(err, "cannot make partition %s of %s", new.name.table, table->name.table);
        break;
      }
      if (made != NULL) {
        made(arg, &new);
      }
    }
    /* Another process may have made it first: then the next look at the catalog finds it there. */
    if (i < n && (plan[i].from_us == failed_us || pg_state(pg) != PG_IDLE || (stop != NULL && stop_is_set(stop)))) {
      goto out;
    }
    failed_us = i < n ? plan[i].from_us : INT64_MIN;
    free(plan);
    plan = NULL;
  }
out:
  free(plan);
  schema_partitions_fini(&partitions);
  return rc;
}

int schema_pass_grants(struct pg *pg, const struct schema_relation *table, const struct stop *stop, int *granted_n,
                       struct err *err) {
  char oid[16];
  const char *values[] = {oid};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_init_grants_sql, .params_n = 1, .values = values};
  struct schema_script script = {0};
  PGresult *rows = NULL;
  int rc = -1;
  *granted_n = 0;
  (void)snprintf(oid, sizeof oid, "%u", table->oid);
  if (pg_call(pg, &step, 1, REPLY_MS, stop, err) != 0) {
    return err_wrap(err, "cannot read the privileges on %s", table->name.table);
  }
  rows = pg_take_result(pg, 0);
  for (int row = 0; row < PQntuples(rows); row++) {
    if (schema_script_add(&script, PQgetvalue(rows, row, 0), NULL, err) != 0) {
      goto out;
    }
    if (script.n == SCHEMA_SCRIPT_MAX || row + 1 == PQntuples(rows)) {
      if (schema_script_run(&script, pg, stop, err) != 0) {
        (void)err_wrap(err, "cannot grant on the partitions of %s what is granted on the table", table->name.table);
        goto out;
      }
      *granted_n += script.n;
      schema_script_fini(&script);
    }
  }
  rc = 0;
out:
  schema_script_fini(&script);
  PQclear(rows);
  return rc;
}
