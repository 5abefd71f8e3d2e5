/*
 * The outbox table as the catalog describes it, and the SQL made for it.
 *
 * Owns: the statements' texts and the names of the partitions.  Loaded on the main thread; the list of partitions is the coordinator's.
 * Never: changes anything in the database.
 */
#include "outboxd/table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/buf.h"
#include "outboxd/log.h"
#include "outboxd/schema.h"
#include "outboxd/sql.h"

/* A payload stored compressed in at least so many bytes is measured exactly before a careful claim, but only so many of them at a time; the size of
 * the others is estimated. */
#define EXACT_FROM_BYTES "8192"
#define LARGE_MAX "64"
/* What an uncompressed payload may grow by when it is printed: numbers and escapes of jsonb. */
#define PRINTED_PER_STORED "2"
/* What is kept of a message's error. */
#define ERROR_CHARS 1000

enum { WANT_INT, WANT_TEXT, WANT_ID, WANT_PAYLOAD, WANT_TIME };

/* The columns of the pattern. */
static const struct {
  const char *name;
  int want;
  bool is_optional;
} wanted[] = {
    {"id", WANT_INT, false},
    {"message_id", WANT_ID, false},
    {"aggregate_type", WANT_TEXT, false},
    {"aggregate_id", WANT_ID, false},
    {"event_type", WANT_TEXT, false},
    {"payload", WANT_PAYLOAD, false},
    {"attempts", WANT_INT, false},
    {"last_error", WANT_TEXT, false},
    {"created_at", WANT_TIME, false},
    {"published_at", WANT_TIME, false},
    {"headers", WANT_PAYLOAD, true},
};

/* Types each kind of column may have, as format_type prints them without a modifier. */
static const char *const types_of[] = {
    [WANT_INT] = " smallint integer bigint ",
    [WANT_TEXT] = " text character varying character ",
    [WANT_ID] = " text character varying character uuid smallint integer bigint ",
    [WANT_PAYLOAD] = " json jsonb text character varying ",
    [WANT_TIME] = " timestamp with time zone timestamp without time zone ",
};

/* "character varying(255)" is of type "character varying". */
static bool is_type_allowed(const char *type, int want) {
  char padded[128];
  const char *paren = strchr(type, '(');
  int head = paren != NULL ? (int)(paren - type) : (int)strlen(type);
  const char *tail = paren != NULL && strchr(paren, ')') != NULL ? strchr(paren, ')') + 1 : "";
  (void)snprintf(padded, sizeof padded, " %.*s%s ", head, type, tail);
  return strstr(types_of[want], padded) != NULL;
}

static void list_types(int want, char *out, size_t n) {
  static const char *const readable[] = {
      [WANT_INT] = "smallint, integer or bigint",
      [WANT_TEXT] = "text or varchar",
      [WANT_ID] = "text, varchar, uuid, integer or bigint",
      [WANT_PAYLOAD] = "jsonb, json or text",
      [WANT_TIME] = "timestamptz or timestamp",
  };
  (void)snprintf(out, n, "%s", readable[want]);
}

/* Checks the columns; fills has_headers and which of the texts may be NULL. */
static int check_columns(const PGresult *columns, struct table *table, bool is_nullable[], struct err *err) {
  for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++) {
    int row = 0;
    while (row < PQntuples(columns) && strcmp(PQgetvalue(columns, row, 0), wanted[w].name) != 0) {
      row++;
    }
    if (row == PQntuples(columns)) {
      if (wanted[w].is_optional) {
        continue;
      }
      return err_set(err, ERR_FATAL, "missing_column",
                     "table %s has no column %s; docs/schema.md shows the columns an outbox table needs, "
                     "`outboxd init` creates such a table",
                     table->name, wanted[w].name);
    }
    const char *type = PQgetvalue(columns, row, 1);
    if (!is_type_allowed(type, wanted[w].want)) {
      char allowed[64];
      list_types(wanted[w].want, allowed, sizeof allowed);
      return err_set(err, ERR_FATAL, "column_type", "column %s of table %s is of type %s; it has to be %s",
                     wanted[w].name, table->name, type, allowed);
    }
    is_nullable[w] = PQgetvalue(columns, row, 2)[0] == 't';
    if (wanted[w].is_optional) {
      table->has_headers = true;
    }
    if (strcmp(wanted[w].name, "payload") == 0) {
      table->is_payload_text = strncmp(type, "json", strlen("json")) != 0;
    }
    if (strcmp(wanted[w].name, "last_error") == 0) {
      long modifier = strtol(PQgetvalue(columns, row, 3), NULL, 10);
      table->error_chars = modifier > 4 && modifier - 4 < ERROR_CHARS ? (int)modifier - 4 : ERROR_CHARS;
    }
  }
  return 0;
}

static bool may_be_null(const bool is_nullable[], const char *name) {
  for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++) {
    if (strcmp(wanted[w].name, name) == 0) {
      return is_nullable[w];
    }
  }
  return true;
}

/* "m.name::text", or with an empty text for NULL when the column allows it. */
static void text_of(const bool is_nullable[], const char *name, char *out, size_t n) {
  (void)snprintf(out, n, may_be_null(is_nullable, name) ? "coalesce(m.%s::text, '')" : "m.%s::text", name);
}

#define VARS_MAX 20

/* Expands a statement with the parts of the lists in form (CLAIM_IN_LANES and so on); vars: what they and the statement are made of. */
static int make_form(const char *text, const struct sql_var *vars, unsigned form, char **out, struct err *err) {
  enum { IN_LANES, NOT_HELD_BACK, NOT_IN_FLIGHT, BOUNDS, CLAIMABLE, OF_FORM_N };
  struct sql_var all[OF_FORM_N + VARS_MAX + 1] = {
      {"in_lanes", NULL}, {"not_held_back", NULL}, {"not_in_flight", NULL}, {"bounds", NULL}, {"claimable", NULL}};
  char *parts[OF_FORM_N] = {NULL};
  int rc = -1;
  int n = OF_FORM_N;
  for (const struct sql_var *var = vars; var->name != NULL; var++) {
    assert(n < OF_FORM_N + VARS_MAX);
    all[n++] = *var;
  }
  if (sql_expand((form & CLAIM_IN_LANES) != 0 ? embed_claimable_lanes_sql : "", vars, &parts[IN_LANES], err) != 0 ||
      sql_expand((form & CLAIM_NOT_HELD_BACK) != 0 ? embed_claimable_held_back_sql : "", vars, &parts[NOT_HELD_BACK],
                 err) != 0 ||
      sql_expand((form & CLAIM_NOT_AMONG_MANY) != 0  ? embed_claim_not_among_many_sql
                 : (form & CLAIM_NOT_AMONG_FEW) != 0 ? embed_claim_not_among_few_sql
                                                     : "",
                 vars, &parts[NOT_IN_FLIGHT], err) != 0 ||
      sql_expand(embed_claim_bounds_sql, vars, &parts[BOUNDS], err) != 0) {
    goto out;
  }
  for (int part = IN_LANES; part < CLAIMABLE; part++) {
    all[part].value = parts[part];
  }
  if (sql_expand(embed_claimable_sql, all, &parts[CLAIMABLE], err) != 0) {
    goto out;
  }
  all[CLAIMABLE].value = parts[CLAIMABLE];
  rc = sql_expand(text, all, out, err);
out:
  for (int part = IN_LANES; part < OF_FORM_N; part++) {
    free(parts[part]);
  }
  return rc;
}

/* What is asked of a column: a bound of its size before it is read, whether that is too rough, and the exact size, which costs printing it. */
#define ESTIMATED_BYTES                                                                                              \
  "CASE WHEN pg_column_compression(:column) IS NULL THEN coalesce(pg_column_size(:column), 0) * " PRINTED_PER_STORED \
  " ELSE pg_column_size(:column) * $7::int4 END"
#define IS_LARGE \
  "coalesce(pg_column_size(:column) >= " EXACT_FROM_BYTES " AND pg_column_compression(:column) IS NOT NULL, false)"
#define EXACT_BYTES "coalesce(octet_length(:column::text), 0)"

/* The text for the payload, and joined to it for the headers, in parentheses. */
static int for_columns(const char *text, const char *joint, bool has_headers, char *out, size_t n, struct err *err) {
  const struct sql_var payload_var[] = {{"column", "m.payload"}, {NULL, NULL}};
  const struct sql_var headers_var[] = {{"column", "m.headers"}, {NULL, NULL}};
  char *payload = NULL;
  char *headers = NULL;
  int rc = sql_expand(text, payload_var, &payload, err);
  if (rc == 0 && has_headers) {
    rc = sql_expand(text, headers_var, &headers, err);
  }
  if (rc == 0) {
    int used = snprintf(out, n, "(%s%s%s)", payload, has_headers ? joint : "", has_headers ? headers : "");
    assert((size_t)used < n);
  }
  free(payload);
  free(headers);
  return rc;
}

/* The statements' variable parts.  Two sizes of a payload: a bound before it is read, and what it takes compressed. */
static int make_statements(struct table *table, const struct cfg *cfg, const bool is_nullable[], struct err *err) {
  char type[64];
  char id[64];
  char hash[160];
  char key[320];
  char lane[256];
  text_of(is_nullable, "aggregate_type", type, sizeof type);
  text_of(is_nullable, "aggregate_id", id, sizeof id);
  /* "C" makes equal what is equal byte for byte; for the usual collations it changes nothing. */
  (void)snprintf(hash, sizeof hash, "hashtextextended(%s COLLATE \"C\", 0)", id);
  (void)snprintf(key, sizeof key, "hashtextextended(%s COLLATE \"C\", %s)", type, hash);
  (void)snprintf(lane, sizeof lane, "((%s %% %d + %d) %% %d)::int4", hash, cfg->lanes_n, cfg->lanes_n, cfg->lanes_n);
  char estimated[512];
  char large[512];
  char exact[160];
  char fits[600];
  char fitting_headers[700] = "";
  if (for_columns(ESTIMATED_BYTES, " + ", table->has_headers, estimated, sizeof estimated, err) != 0 ||
      for_columns(IS_LARGE, " OR ", table->has_headers, large, sizeof large, err) != 0 ||
      for_columns(EXACT_BYTES, " + ", table->has_headers, exact, sizeof exact, err) != 0) {
    return -1;
  }
  (void)snprintf(fits, sizeof fits, "(%s <= $6::int8 / $5::int8)", estimated);
  if (table->has_headers) {
    (void)snprintf(fitting_headers, sizeof fitting_headers, ", CASE WHEN %s THEN m.headers::text END", fits);
  }

  const char *attempts = may_be_null(is_nullable, "attempts") ? "coalesce(m.attempts, 0)::int4" : "m.attempts::int4";
  char revived[128];
  (void)snprintf(revived, sizeof revived, "CASE WHEN %s = 0 AND m.last_error IS NOT NULL THEN m.xmin::text::int8 END",
                 attempts);
  enum { LOCKING };
  struct sql_var vars[] = {
      {"locking", ""},
      {"table", table->name},
      {"attempts", attempts},
      {"revived", revived},
      {"lane", lane},
      {"lane_hash", hash},
      {"aggregate_key", key},
      {"estimated_bytes", estimated},
      {"is_large", large},
      {"exact_bytes", exact},
      {"large_max", LARGE_MAX},
      {"fits", fits},
      {"stored_headers", table->has_headers ? ", m.headers" : ""},
      {"fitting_headers", fitting_headers},
      {"compressed_bytes",
       "(CASE WHEN pg_column_compression(m.payload) IS NULL THEN 0 ELSE pg_column_size(m.payload) END)"},
      {"headers", table->has_headers ? ", m.headers::text" : ""},
      {NULL, NULL},
  };
  for (int kind = 0; kind < CLAIM_KINDS_N; kind++) {
    const char *text = kind == CLAIM_CAREFUL ? embed_claim_sql : embed_claim_simple_sql;
    vars[LOCKING].value = kind == CLAIM_LOCKING ? "FOR UPDATE OF m NOWAIT" : "";
    for (unsigned form = 0; form < CLAIM_FORMS_N; form++) {
      if (make_form(text, vars, form, &table->claim[kind][form], err) != 0) {
        return -1;
      }
    }
  }
  for (unsigned form = 0; form < PROBE_FORMS_N; form++) {
    if (make_form(embed_probe_sql, vars, form, &table->probe[form], err) != 0) {
      return -1;
    }
  }
  const struct {
    const char *from;
    char **to;
  } statements[] = {
      {embed_passed_sql, &table->passed},
      {embed_still_pending_sql, &table->still_pending},
      {embed_dead_keys_sql, &table->dead_keys},
      {embed_locked_sql, &table->locked},
  };
  for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
    if (make_form(statements[i].from, vars, CLAIM_IN_LANES | CLAIM_NOT_HELD_BACK, statements[i].to, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Fills oid, name, database from the first query's row, or says why the relation cannot be an outbox. */
static int check_relation(const PGresult *rows, const struct cfg *cfg, struct table *table, struct err *err) {
  if (PQntuples(rows) == 0) {
    return err_set(err, ERR_FATAL, "unknown_table",
                   "there is no table %s in this database (or not in the search_path); `outboxd init` creates it",
                   cfg->table);
  }
  const char *kind = PQgetvalue(rows, 0, 1);
  table->oid = (uint32_t)strtoul(PQgetvalue(rows, 0, 0), NULL, 10);
  table->name = strdup(PQgetvalue(rows, 0, 2));
  table->database = strdup(PQgetvalue(rows, 0, 3));
  if (table->name == NULL || table->database == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a table's name");
  }
  if (kind[0] != 'r' && kind[0] != 'p') {
    return err_set(
        err, ERR_FATAL, "not_a_table",
        "%s is not a table or a partitioned table but a relation of kind \"%s\"; name the outbox table itself",
        table->name, kind);
  }
  table->is_partitioned = kind[0] == 'p';
  const char *user = PQgetvalue(rows, 0, 4);
  if (PQgetvalue(rows, 0, 5)[0] != 't' || PQgetvalue(rows, 0, 6)[0] != 't') {
    return err_set(err, ERR_FATAL, "missing_privilege",
                   "user %s may not %s table %s; GRANT SELECT, UPDATE (attempts, last_error, published_at) ON %s TO %s",
                   user, PQgetvalue(rows, 0, 5)[0] != 't' ? "read" : "update", table->name, table->name, user);
  }
  return 0;
}

static int check_leaves(const PGresult *rows, struct table *table, struct err *err) {
  for (int row = 0; row < PQntuples(rows); row++) {
    const char *name = PQgetvalue(rows, row, 1);
    if (PQgetvalue(rows, row, 2)[0] != 't') {
      return err_set(err, ERR_FATAL, "missing_privilege",
                     "missing privileges on %s: outboxd settles in the partition itself; "
                     "GRANT SELECT, UPDATE (attempts, last_error, published_at) ON %s to its role",
                     name, name);
    }
    if (PQgetvalue(rows, row, 3)[0] != 't') {
      log_event(LOG_WARNING, "no_pending_index",
                "no index on (id) WHERE published_at IS NULL: claiming will be slow; `outboxd init` adds it",
                LOG_STR("table", name));
    }
    if (table_add_leaf(table, (uint32_t)strtoul(PQgetvalue(rows, row, 0), NULL, 10), name, err) != 0) {
      return -1;
    }
  }
  return 0;
}

int table_load(struct pg *pg, const struct cfg *cfg, const struct stop *stop, struct table **out, struct err *err) {
  bool is_nullable[sizeof wanted / sizeof wanted[0]] = {false};
  const char *values[] = {cfg->table};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = embed_layout_table_sql, .params_n = 1, .values = values},
      {.kind = PG_QUERY, .sql = embed_layout_columns_sql, .params_n = 1, .values = values},
      {.kind = PG_QUERY, .sql = embed_layout_leaves_sql, .params_n = 1, .values = values},
  };
  *out = NULL;
  struct schema_name name; /* PostgreSQL takes the whole name below; what it takes for one is told more plainly here */
  if (schema_parse_name(cfg->table, &name, err) != 0) {
    return -1;
  }
  struct table *table = calloc(1, sizeof *table);
  if (table == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the table's description");
  }
  if (pg_call(pg, steps, 2, cfg->session_timeout_ms, stop, err) != 0) {
    (void)err_wrap(err, "looking up table %s", cfg->table);
    goto fail;
  }
  const struct pg_reply *reply = pg_reply(pg);
  if (check_relation(reply->results[0], cfg, table, err) != 0 ||
      check_columns(reply->results[1], table, is_nullable, err) != 0 ||
      make_statements(table, cfg, is_nullable, err) != 0) {
    goto fail;
  }
  /* Only now: it asks for privileges on columns that have to be there. */
  if (pg_call(pg, &steps[2], 1, cfg->session_timeout_ms, stop, err) != 0) {
    (void)err_wrap(err, "looking up the partitions of %s", table->name);
    goto fail;
  }
  if (check_leaves(pg_reply(pg)->results[0], table, err) != 0) {
    goto fail;
  }
  *out = table;
  return 0;
fail:
  table_free(table);
  return -1;
}

static void free_leaf(struct leaf *leaf) {
  if (leaf != NULL) {
    free(leaf->name);
    free(leaf->settle_published);
    free(leaf->settle_failed);
    free(leaf->settle_withheld);
    free(leaf);
  }
}

void table_forget_leaves(struct table *table) {
  for (int i = 0; i < table->leaves_n; i++) {
    table->leaves[i]->is_forgotten = true;
  }
}

void table_free(struct table *table) {
  if (table == NULL) {
    return;
  }
  for (int i = 0; i < table->leaves_n; i++) {
    free_leaf(table->leaves[i]);
  }
  free(table->leaves);
  free(table->name);
  free(table->database);
  for (int kind = 0; kind < CLAIM_KINDS_N; kind++) {
    for (int form = 0; form < CLAIM_FORMS_N; form++) {
      free(table->claim[kind][form]);
    }
  }
  for (int form = 0; form < PROBE_FORMS_N; form++) {
    free(table->probe[form]);
  }
  free(table->passed);
  free(table->locked);
  free(table->still_pending);
  free(table->dead_keys);
  free(table);
}

static struct leaf *find(const struct table *table, uint32_t oid) {
  for (int i = 0; i < table->leaves_n; i++) {
    if (table->leaves[i]->oid == oid && !table->leaves[i]->is_forgotten) {
      return table->leaves[i];
    }
  }
  return NULL;
}

const struct leaf *table_find_leaf(const struct table *table, uint32_t oid) {
  return find(table, oid);
}

int table_add_leaf(struct table *table, uint32_t oid, const char *name, struct err *err) {
  char error_chars[16];
  (void)snprintf(error_chars, sizeof error_chars, "%d", table->error_chars);
  const struct sql_var vars[] = {{"leaf", name}, {"error_chars", error_chars}, {NULL, NULL}};
  struct leaf *leaf = calloc(1, sizeof *leaf);
  struct leaf **grown = realloc(table->leaves, ((size_t)table->leaves_n + 1) * sizeof *grown);
  if (grown != NULL) {
    table->leaves = grown;
  }
  if (leaf == NULL || grown == NULL || (leaf->name = strdup(name)) == NULL) {
    free_leaf(leaf);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a partition");
  }
  leaf->oid = oid;
  if (sql_expand(embed_settle_published_sql, vars, &leaf->settle_published, err) != 0 ||
      sql_expand(embed_settle_failed_sql, vars, &leaf->settle_failed, err) != 0 ||
      sql_expand(embed_settle_withheld_sql, vars, &leaf->settle_withheld, err) != 0) {
    free_leaf(leaf);
    return -1;
  }
  struct leaf *known = find(table, oid);
  if (known != NULL) {
    known->is_forgotten = true;
  }
  table->leaves[table->leaves_n++] = leaf;
  return 0;
}
