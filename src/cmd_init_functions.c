/*
 * The functions for applications: outbox_record, outbox_process_once, outbox_uuid_v7, beside the table.
 *
 * Each carries a comment that says it is outboxd's and what it is for; what has such a name without it is somebody else's and is left alone.
 * Owns nothing beyond a call; main thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_init_impl.h"
#include "embed.h"
#include "outboxd/buf.h"

/* Stands for a schema that is known only where the printed SQL runs. */
#define LATER "@schema@"
#define TYPE_BYTES SCHEMA_TYPE_BYTES
#define PARTS_BYTES 512

enum function_kind { UUID_V7, PROCESS_ONCE, RECORD };
#define FUNCTIONS_N 3

static const struct {
  const char *name;
  const char *create;
  const char *body;
  const char *purpose;
} functions[FUNCTIONS_N] = {
    [UUID_V7] = {"outbox_uuid_v7", embed_init_uuid_sql, embed_init_uuid_body_sql, "a uuid that follows the clock"},
    [PROCESS_ONCE] = {"outbox_process_once", embed_init_once_sql, embed_init_once_body_sql, "for consumers"},
    [RECORD] = {"outbox_record", embed_init_record_sql, embed_init_record_body_sql, "writes an event"},
};

/* What the functions are made from; as outboxd's own tables have it unless load_columns says otherwise. */
struct parts {
  struct schema_name table;
  char processed_type[TYPE_BYTES]; /* of processed_messages.message_id, without a length */
  bool can_create;                 /* may we make functions in the schema? */
  bool can_record;                 /* does the table's message_id take a uuid? */
  bool has_headers;
  char message_id_value[PARTS_BYTES];
  char aggregate_id_value[PARTS_BYTES];
  char payload_value[PARTS_BYTES];
  char more_columns[PARTS_BYTES];
  char more_values[PARTS_BYTES];
};

/* A function's statements. */
struct text {
  char signature[2 * TYPE_BYTES]; /* types of the arguments, as the catalog lists them */
  char *comment;
  char *body;
  char *create; /* CREATE OR REPLACE FUNCTION */
  char *remark; /* COMMENT ON FUNCTION */
};

static void text_fini(struct text *text) {
  free(text->comment);
  free(text->body);
  free(text->create);
  free(text->remark);
  memset(text, 0, sizeof *text);
}

/* -------------------------------------------------------------------------------------------------- texts */

/* 'it''s' */
static int quote_literal(const char *value, char **out, struct err *err) {
  struct buf buf = BUF_INIT;
  int rc = buf_append_str(&buf, "'", err);
  for (const char *p = value; rc == 0 && *p != '\0'; p++) {
    rc = buf_append(&buf, *p == '\'' ? "''" : p, *p == '\'' ? 2 : 1, err);
  }
  if (rc != 0 || buf_append_str(&buf, "'", err) != 0) {
    buf_free(&buf);
    return -1;
  }
  *out = buf.data;
  return 0;
}

/* $tag$...$tag$, with a tag that does not stand in it. */
static int quote_dollars(const char *tag, const char *value, char **out, struct err *err) {
  struct buf buf = BUF_INIT;
  char quote[32];
  (void)snprintf(quote, sizeof quote, "$%s$", tag);
  for (int n = 1; strstr(value, quote) != NULL; n++) {
    (void)snprintf(quote, sizeof quote, "$%s%d$", tag, n);
  }
  if (buf_printf(&buf, err, "%s%s%s%s", quote, value[0] == '\n' ? "" : "\n", value, quote) != 0) {
    buf_free(&buf);
    return -1;
  }
  *out = buf.data;
  return 0;
}

static void sibling_of(const struct schema_name *table, const char *name, char out[SCHEMA_FULL_NAME_BYTES]) {
  struct schema_name other = *table;
  (void)snprintf(other.table, sizeof other.table, "%s", name);
  schema_quote_name(&other, out);
}

static int make_comment(enum function_kind kind, const char *table, char **out, struct err *err) {
  struct buf buf = BUF_INIT;
  int rc = kind == RECORD ? buf_printf(&buf, err, "outboxd: writes events to %s", table)
                          : buf_printf(&buf, err, "outboxd: %s", functions[kind].purpose);
  *out = buf.data;
  return rc;
}

static int make_text(const struct parts *parts, enum function_kind kind, struct text *out, struct err *err) {
  char table[SCHEMA_FULL_NAME_BYTES];
  char function[SCHEMA_FULL_NAME_BYTES];
  char processed[SCHEMA_FULL_NAME_BYTES];
  char uuid[SCHEMA_FULL_NAME_BYTES];
  char *table_literal = NULL;
  char *quoted = NULL;
  char *comment_literal = NULL;
  struct buf remark = BUF_INIT;
  int rc = -1;
  memset(out, 0, sizeof *out);
  schema_quote_name(&parts->table, table);
  sibling_of(&parts->table, functions[kind].name, function);
  sibling_of(&parts->table, "processed_messages", processed);
  sibling_of(&parts->table, functions[UUID_V7].name, uuid);
  (void)snprintf(out->signature, sizeof out->signature, kind == PROCESS_ONCE ? "%s, text" : "%s",
                 kind == PROCESS_ONCE ? parts->processed_type
                 : kind == RECORD     ? "text, text, text, jsonb, uuid, jsonb"
                                      : "");
  if (quote_literal(table, &table_literal, err) != 0) {
    goto out;
  }
  struct sql_var vars[] = {
      {"function", function},
      {"table", table},
      {"table_literal", table_literal},
      {"processed", processed},
      {"uuid", uuid},
      {"message_id_type", parts->processed_type},
      {"has_headers", parts->has_headers ? "true" : "false"},
      {"message_id_value", parts->message_id_value},
      {"aggregate_id_value", parts->aggregate_id_value},
      {"payload_value", parts->payload_value},
      {"more_columns", parts->more_columns},
      {"more_values", parts->more_values},
      {"body", NULL},
      {NULL, NULL},
  };
  if (sql_expand(functions[kind].body, vars, &out->body, err) != 0 ||
      quote_dollars("outboxd", out->body, &quoted, err) != 0) {
    goto out;
  }
  vars[sizeof vars / sizeof vars[0] - 2].value = quoted;
  if (sql_expand(functions[kind].create, vars, &out->create, err) != 0 ||
      make_comment(kind, table, &out->comment, err) != 0 || quote_literal(out->comment, &comment_literal, err) != 0 ||
      buf_printf(&remark, err, "COMMENT ON FUNCTION %s(%s) IS %s", function, out->signature, comment_literal) != 0) {
    goto out;
  }
  out->remark = remark.data;
  remark = (struct buf)BUF_INIT;
  rc = 0;
out:
  buf_free(&remark);
  free(table_literal);
  free(quoted);
  free(comment_literal);
  if (rc != 0) {
    text_fini(out);
  }
  return rc;
}

static struct parts parts_of(const struct schema_name *table) {
  return (struct parts){.table = *table,
                        .processed_type = "uuid",
                        .can_create = true,
                        .can_record = true,
                        .message_id_value = "message_id",
                        .aggregate_id_value = "aggregate_id",
                        .payload_value = "payload"};
}

/* -------------------------------------------------------------------------------------------------- --print */

/* Where the table's schema is the first of the search_path, the functions name it all the same: asked for where the SQL runs. */
static int add_later(struct schema_script *script, const struct text *text, struct err *err) {
  struct buf both = BUF_INIT;
  struct buf block = BUF_INIT;
  char *quoted = NULL;
  char *whole = NULL;
  int rc = -1;
  if (buf_printf(&both, err, "%s;\n%s", text->create, text->remark) != 0 ||
      quote_dollars("sql", both.data, &quoted, err) != 0 ||
      buf_printf(&block, err,
                 "BEGIN\n  EXECUTE replace(%s, '\"" LATER
                 "\"', '\"' || replace(current_schema(), '\"', '\"\"') || '\"');\nEND",
                 quoted) != 0 ||
      quote_dollars("do", block.data, &whole, err) != 0) {
    goto out;
  }
  const struct sql_var vars[] = {{"block", whole}, {NULL, NULL}};
  rc = schema_script_add(script, "DO :block", vars, err);
out:
  buf_free(&both);
  buf_free(&block);
  free(quoted);
  free(whole);
  return rc;
}

int init_add_functions(struct schema_script *script, const struct schema_name *table, const char *payload_type,
                       struct err *err) {
  struct parts parts = parts_of(table);
  bool is_later = table->schema[0] == '\0';
  int rc = 0;
  if (is_later) {
    (void)snprintf(parts.table.schema, sizeof parts.table.schema, LATER);
  }
  if (strcmp(payload_type, "jsonb") != 0) {
    (void)snprintf(parts.payload_value, sizeof parts.payload_value, "payload::%s", payload_type);
  }
  for (int kind = 0; kind < FUNCTIONS_N && rc == 0; kind++) {
    struct text text;
    rc = make_text(&parts, (enum function_kind)kind, &text, err);
    if (rc == 0) {
      const struct sql_var vars[] = {{"create", text.create}, {"remark", text.remark}, {NULL, NULL}};
      rc = is_later ? add_later(script, &text, err) : schema_script_add(script, ":create", vars, err);
      if (rc == 0 && !is_later) {
        rc = schema_script_add(script, ":remark", vars, err);
      }
      text_fini(&text);
    }
  }
  return rc;
}

/* -------------------------------------------------------------------------------------------------- what is there */

static const char *value_of(const PGresult *rows, const char *column, int field) {
  for (int row = 0; row < PQntuples(rows); row++) {
    if (strcmp(PQgetvalue(rows, row, 0), column) == 0) {
      return PQgetvalue(rows, row, field);
    }
  }
  return "";
}

/* The text with which a value of type given becomes one of the column's. */
static void convert(const PGresult *columns, const char *column, const char *given, char out[PARTS_BYTES]) {
  const char *type = value_of(columns, column, 1);
  if (strcmp(type, given) == 0 || type[0] == '\0') {
    (void)snprintf(out, PARTS_BYTES, "%s", column);
  } else if (value_of(columns, column, 2)[0] == 'S') {
    /* Not the type itself: a cast to varchar(n) cuts off what an assignment refuses. */
    (void)snprintf(out, PARTS_BYTES, strcmp(given, "text") == 0 ? "%s" : "%s::text", column);
  } else {
    (void)snprintf(out, PARTS_BYTES, "%s::%s", column, type);
  }
}

static void read_columns(const PGresult *columns, struct parts *parts) {
  char headers[PARTS_BYTES];
  const char *created_at = value_of(columns, "created_at", 1);
  bool is_dated = value_of(columns, "created_at", 3)[0] == 't';
  parts->has_headers = value_of(columns, "headers", 1)[0] != '\0';
  parts->can_record = value_of(columns, "message_id", 2)[0] != 'N';
  parts->can_create = value_of(columns, "", 3)[0] == 't';
  convert(columns, "message_id", "uuid", parts->message_id_value);
  convert(columns, "aggregate_id", "text", parts->aggregate_id_value);
  convert(columns, "payload", "jsonb", parts->payload_value);
  convert(columns, "headers", "jsonb", headers);
  (void)snprintf(parts->more_columns, PARTS_BYTES, "%s%s", parts->has_headers ? ", headers" : "",
                 is_dated ? "" : ", created_at");
  (void)snprintf(
      parts->more_values, PARTS_BYTES, "%s%.400s%s", parts->has_headers ? ", " : "", parts->has_headers ? headers : "",
      is_dated                                                 ? ""
      : strcmp(created_at, "timestamp without time zone") == 0 ? ", pg_catalog.timezone('UTC', pg_catalog.now())"
                                                               : ", pg_catalog.now()");
}

static int load_parts(struct init *init, struct parts *parts, struct err *err) {
  struct schema_relation processed;
  struct schema_name name = init->table.name;
  *parts = parts_of(&init->table.name);
  (void)snprintf(name.table, sizeof name.table, "processed_messages");
  PGresult *columns = init_ask(init, embed_init_columns_sql, "columns", err);
  if (columns == NULL) {
    return -1;
  }
  read_columns(columns, parts);
  PQclear(columns);
  if (schema_find(init->pg, &name, NULL, &processed, err) != 0) {
    return -1;
  }
  (void)snprintf(parts->processed_type, sizeof parts->processed_type, "%.*s",
                 (int)strcspn(processed.message_id_type, "("), processed.message_id_type);
  return 0;
}

static void note(const char *name, const char *why) {
  (void)printf("note: function %s is not made: %s\n", name, why);
}

/* A function that is to make room. */
static int add_drop(struct schema_script *script, const PGresult *there, int row, struct err *err) {
  struct buf drop = BUF_INIT;
  int rc = buf_printf(&drop, err, "DROP FUNCTION %s.%s(%s)", PQgetvalue(there, row, 6), PQgetvalue(there, row, 0),
                      PQgetvalue(there, row, 1));
  if (rc == 0) {
    const struct sql_var vars[] = {{"drop", drop.data}, {NULL, NULL}};
    rc = schema_script_add(script, ":drop", vars, err);
  }
  buf_free(&drop);
  return rc;
}

enum verdict { MAKE, REPLACE, FOUND, LEAVE };

/* What to do about one that has the name; LEAVE is said. */
static enum verdict judge(const PGresult *there, int row, const struct text *text) {
  const char *name = PQgetvalue(there, row, 0);
  const char *comment = PQgetvalue(there, row, 5);
  char why[1024];
  if (strncmp(comment, "outboxd: ", 9) != 0) {
    (void)snprintf(why, sizeof why, "%s(%s) is there already and is not outboxd's; it is left alone", name,
                   PQgetvalue(there, row, 1));
  } else if (strcmp(comment, text->comment) != 0 && PQgetvalue(there, row, 7)[0] == 't') {
    (void)snprintf(why, sizeof why, "the one that is there %s; a second outbox wants a schema of its own",
                   comment + sizeof "outboxd: " - 1);
  } else if (strcmp(comment, text->comment) == 0 && strcmp(PQgetvalue(there, row, 1), text->signature) == 0 &&
             strcmp(PQgetvalue(there, row, 2) + (PQgetvalue(there, row, 2)[0] == '\n' && text->body[0] != '\n'),
                    text->body) == 0) {
    return FOUND;
  } else if (PQgetvalue(there, row, 4)[0] != 't') {
    (void)snprintf(why, sizeof why,
                   "the one that is there is of another form and belongs to %s: run outboxd init as that role",
                   PQgetvalue(there, row, 3));
  } else {
    return REPLACE;
  }
  note(name, why);
  return LEAVE;
}

static int ensure_one(struct init *init, const struct parts *parts, enum function_kind kind, const PGresult *there,
                      struct err *err) {
  const char *name = functions[kind].name;
  enum verdict verdict = MAKE;
  struct schema_script script = {0};
  struct text text;
  int rc = make_text(parts, kind, &text, err);
  if (rc != 0) {
    return -1;
  }
  for (int row = 0; row < PQntuples(there) && verdict != LEAVE && rc == 0; row++) {
    if (strcmp(PQgetvalue(there, row, 0), name) == 0) {
      verdict = judge(there, row, &text);
      if (verdict == REPLACE && strcmp(PQgetvalue(there, row, 1), text.signature) != 0) {
        rc = add_drop(&script, there, row, err);
      }
    }
  }
  if (verdict == FOUND) {
    init_tell("found", "function", name, functions[kind].purpose);
  } else if (verdict != LEAVE && !parts->can_create) {
    note(name, "it takes CREATE on the table's schema");
  } else if (rc == 0 && verdict != LEAVE) {
    const struct sql_var vars[] = {{"create", text.create}, {"remark", text.remark}, {NULL, NULL}};
    if ((rc = schema_script_add(&script, ":create", vars, err)) == 0 &&
        (rc = schema_script_add(&script, ":remark", vars, err)) == 0) {
      rc = schema_script_run(&script, init->pg, NULL, err);
    }
    if (rc == 0) {
      init_tell(verdict == MAKE ? "created" : "replaced", "function", name, functions[kind].purpose);
    } else {
      (void)err_wrap(err, "cannot create function %s", name);
    }
  }
  schema_script_fini(&script);
  text_fini(&text);
  return rc;
}

int init_ensure_functions(struct init *init, struct err *err) {
  struct parts parts;
  if (load_parts(init, &parts, err) != 0) {
    return -1;
  }
  PGresult *there = init_ask(init, embed_functions_sql, "functions", err);
  if (there == NULL) {
    return -1;
  }
  int rc = 0;
  for (int kind = 0; kind < FUNCTIONS_N && rc == 0; kind++) {
    if (kind == RECORD && !parts.can_record) {
      note(functions[kind].name, "message_id is a number, and it makes uuids; INSERT does as well");
    } else {
      rc = ensure_one(init, &parts, (enum function_kind)kind, there, err);
    }
  }
  PQclear(there);
  return rc;
}
