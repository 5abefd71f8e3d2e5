/*
 * `outboxd init`: the outbox table, its pending index, its partitions, the consumers' table, the functions for applications.
 *
 * Owns: one PostgreSQL session and what it says on stdout; runs on the main thread, no other exists.
 * Never: changes a column, drops anything but an index of its own that was left unfinished or a function of its own whose arguments have changed, makes
 * a writer wait for longer than a second.
 */
#include "cmd_init_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/cmd_init.h"
#include "outboxd/table.h"

#define LOCK_POLL_MS 200
#define PROCESSED "processed_messages"

void init_tell(const char *verb, const char *what, const char *name, const char *more) {
  (void)printf("%-8s %-10s %s%s%s%s\n", verb, what, name, more[0] != '\0' ? " (" : "", more,
               more[0] != '\0' ? ")" : "");
}

static int check_length(const struct schema_name *name, struct err *err) {
  if (strlen(name->table) > PARTITION_TABLE_BYTES_MAX) {
    return err_set(
        err, ERR_USAGE, "name_too_long",
        "--table: \"%s\" has %zu bytes; at most %d, so that the names made from it (%s_y2026m01d31) fit into "
        "PostgreSQL's 63",
        name->table, strlen(name->table), PARTITION_TABLE_BYTES_MAX, name->table);
  }
  return 0;
}

static void sibling(const struct schema_name *table, const char *name, struct schema_name *out) {
  *out = *table;
  (void)snprintf(out->table, sizeof out->table, "%s", name);
}

void init_index_of(const struct schema_name *table, struct schema_name *out) {
  *out = *table;
  (void)snprintf(out->table, sizeof out->table, "%.*s_pending_idx", PARTITION_TABLE_BYTES_MAX, table->table);
}

void init_index_name(const struct schema_name *table, char out[SCHEMA_FULL_NAME_BYTES]) {
  struct schema_name name;
  init_index_of(table, &name);
  name.schema[0] = '\0';
  schema_quote_name(&name, out);
}

static void tell_name(const char *verb, const char *what, const struct schema_name *name, const char *more) {
  char shown[SCHEMA_FULL_NAME_BYTES];
  schema_show_name(name, shown);
  init_tell(verb, what, shown, more);
}

/* -------------------------------------------------------------------------------------------------- statements */

static const char *const payload_types[] = {
    [CFG_PAYLOAD_JSONB] = "jsonb", [CFG_PAYLOAD_JSON] = "json", [CFG_PAYLOAD_TEXT] = "text"};

/* The table itself, with what makes it complete but for its partitions.  has_lz4: the server can compress with it. */
static int add_table(struct schema_script *script, const struct schema_name *name, const struct cfg *cfg, bool has_lz4,
                     struct err *err) {
  char table[SCHEMA_FULL_NAME_BYTES];
  char index[SCHEMA_FULL_NAME_BYTES];
  char payload[32];
  char *settings = NULL;
  int rc = -1;
  (void)snprintf(payload, sizeof payload, "%s%s", payload_types[cfg->payload_type], has_lz4 ? " COMPRESSION lz4" : "");
  schema_quote_name(name, table);
  init_index_name(name, index);
  if (schema_settings(&settings, err) != 0) {
    return -1;
  }
  const struct sql_var vars[] = {{"table", table},
                                 {"payload", payload},
                                 {"settings", settings},
                                 {"identity", "FULL"},
                                 {"only", ""},
                                 {"name", index},
                                 {"how", cfg->is_init_print ? " IF NOT EXISTS" : ""},
                                 {NULL, NULL}};
  if (schema_script_add(script, cfg->is_init_plain ? embed_init_plain_sql : embed_init_table_sql, vars, err) != 0) {
    goto out;
  }
  if (!cfg->is_init_plain && schema_script_add(script, embed_init_replica_identity_sql, vars, err) != 0) {
    goto out;
  }
  rc = schema_script_add(script, embed_init_index_sql, vars, err);
out:
  free(settings);
  return rc;
}

static int add_processed(struct schema_script *script, const struct schema_name *table, const char *type,
                         struct err *err) {
  char quoted[SCHEMA_FULL_NAME_BYTES];
  struct schema_name name;
  sibling(table, PROCESSED, &name);
  schema_quote_name(&name, quoted);
  const struct sql_var vars[] = {{"processed", quoted}, {"message_id_type", type}, {NULL, NULL}};
  return schema_script_add(script, embed_init_processed_sql, vars, err);
}

/* -------------------------------------------------------------------------------------------------- --print */

/* Writes a statement without the blank lines that removed comments leave. */
static void print_statement(const char *statement) {
  const char *end = statement + strlen(statement);
  while (*statement == '\n' || *statement == ' ') {
    statement++;
  }
  while (end > statement && (end[-1] == '\n' || end[-1] == ' ')) {
    end--;
  }
  (void)printf("%.*s;\n", (int)(end - statement), statement);
}

static int print_script(struct schema_script *script, int rc) {
  for (int i = 0; i < script->n && rc == 0; i++) {
    print_statement(script->statements[i]);
  }
  schema_script_fini(script);
  return rc;
}

static int print_partition(const struct schema_name *name, const struct partition_bounds *bounds, const char *settings,
                           struct err *err) {
  struct schema_script script = {0};
  struct schema_name part = *name;
  char table[SCHEMA_FULL_NAME_BYTES];
  char partition[SCHEMA_FULL_NAME_BYTES];
  char from[PARTITION_BOUND_BYTES];
  char to[PARTITION_BOUND_BYTES];
  if (partition_name(name->table, bounds->from_us, part.table, err) != 0) {
    return -1;
  }
  schema_quote_name(name, table);
  schema_quote_name(&part, partition);
  partition_format_bound(bounds->from_us, from);
  partition_format_bound(bounds->to_us, to);
  const struct sql_var vars[] = {{"table", table}, {"partition", partition}, {"from", from},
                                 {"to", to},       {"settings", settings},   {NULL, NULL}};
  const struct sql_var identity[] = {{"table", partition}, {"identity", "FULL"}, {NULL, NULL}};
  int rc = schema_script_add(&script, embed_init_partition_of_sql, vars, err);
  if (rc == 0) {
    rc = schema_script_add(&script, embed_init_replica_identity_sql, identity, err);
  }
  return print_script(&script, rc);
}

static int print_partitions(const struct init *init, struct err *err) {
  struct partition_bounds *plan = NULL;
  char *settings = NULL;
  int n = 0;
  int64_t today_us = partition_day_start(clock_wall_us());
  int64_t last_us = partition_day_start(clock_wall_us() + init->cfg->partitions_ahead_ms * 1000);
  int rc = schema_settings(&settings, err);
  if (rc == 0) {
    rc = partition_plan(NULL, 0, today_us - PARTITION_DAY_US, last_us + PARTITION_DAY_US, &plan, &n, err);
  }
  for (int i = 0; i < n && rc == 0; i++) {
    rc = print_partition(&init->given, &plan[i], settings, err);
  }
  free(plan);
  free(settings);
  return rc;
}

static int print_sql(const struct init *init, struct err *err) {
  struct schema_script script = {0};
  (void)printf("-- outboxd init --print: for psql -v ON_ERROR_STOP=1, or for a migration; may be run again.\n"
               "-- A tool that opens the transaction itself does without BEGIN and COMMIT.\n"
               "-- COMPRESSION lz4: leave it out where PostgreSQL was built without lz4.\n"
               "BEGIN;\nSET LOCAL lock_timeout = '1s';\n");
  int rc = print_script(&script, add_table(&script, &init->given, init->cfg, true, err));
  if (rc == 0 && !init->cfg->is_init_plain) {
    rc = print_partitions(init, err);
  }
  if (rc == 0) {
    rc = print_script(&script, add_processed(&script, &init->given, "uuid", err));
  }
  if (rc == 0) {
    rc = print_script(&script, init_add_functions(&script, &init->given, payload_types[init->cfg->payload_type], err));
  }
  if (rc == 0 && init->cfg->is_init_notify) {
    rc = print_script(&script, init_add_notify(&script, &init->given, err));
  }
  (void)printf("COMMIT;\n");
  return rc;
}

/* -------------------------------------------------------------------------------------------------- the table */

PGresult *init_ask(struct init *init, const char *sql, const char *what, struct err *err) {
  char oid[16];
  const char *values[] = {oid};
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql, .params_n = 1, .values = values};
  (void)snprintf(oid, sizeof oid, "%u", init->table.oid);
  if (pg_call(init->pg, &step, 1, INIT_SESSION_MS, NULL, err) != 0) {
    (void)err_wrap(err, "cannot read the %s of %s", what, init->table.name.table);
    return NULL;
  }
  return pg_take_result(init->pg, 0);
}

int init_run(struct init *init, const char *text, const struct sql_var *vars, struct err *err) {
  struct schema_script script = {0};
  int rc = schema_script_add(&script, text, vars, err);
  if (rc == 0) {
    rc = schema_script_run(&script, init->pg, NULL, err);
  }
  schema_script_fini(&script);
  return rc;
}

/* Waits until no other init is at work in this database.  Asked for again and again rather than waited for: a session that waits inside a
 * statement would hold up the other's CREATE INDEX CONCURRENTLY. */
static int take_lock(struct init *init, struct err *err) {
  bool is_taken = false;
  for (int tries = 0; !is_taken; tries++) {
    if (schema_try_lock(init->pg, NULL, &is_taken, err) != 0) {
      return -1;
    }
    if (!is_taken) {
      if (tries == 2000 / LOCK_POLL_MS) {
        (void)fprintf(stderr, "outboxd: another outboxd changes the schema of this database; waiting for it\n");
      }
      (void)poll(NULL, 0, LOCK_POLL_MS);
    }
  }
  return 0;
}

static const char *kind_name(char kind) {
  switch (kind) {
  case 'v':
    return "a view";
  case 'm':
    return "a materialized view";
  case 'f':
    return "a foreign table";
  case 'S':
    return "a sequence";
  case 'i':
  case 'I':
    return "an index";
  case 'c':
    return "a type";
  default:
    return "no table";
  }
}

static int find_lz4(struct init *init, bool *has_lz4, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_init_compression_sql};
  if (pg_call(init->pg, &step, 1, INIT_SESSION_MS, NULL, err) != 0) {
    return err_wrap(err, "cannot read what the server can compress with");
  }
  PGresult *found = pg_take_result(init->pg, 0);
  *has_lz4 = PQgetvalue(found, 0, 0)[0] == 't';
  PQclear(found);
  return 0;
}

static int create_table(struct init *init, struct err *err) {
  struct schema_script script = {0};
  struct schema_name index;
  char shown[SCHEMA_FULL_NAME_BYTES];
  bool has_lz4 = false;
  int rc = check_length(&init->given, err);
  schema_show_name(&init->given, shown);
  if (rc == 0) {
    rc = find_lz4(init, &has_lz4, err);
  }
  if (rc == 0) {
    rc = add_table(&script, &init->given, init->cfg, has_lz4, err);
  }
  if (rc == 0) {
    rc = schema_script_run(&script, init->pg, NULL, err);
    if (rc != 0) {
      (void)err_wrap(err, "cannot create table %s", shown);
    }
  }
  schema_script_fini(&script);
  if (rc != 0 || schema_find(init->pg, &init->given, NULL, &init->table, err) != 0) {
    return -1;
  }
  init_index_of(&init->table.name, &index);
  tell_name("created", "table", &init->table.name,
            init->table.kind == 'p' ? "partitioned by created_at, a partition for each UTC day" : "plain");
  tell_name("created", "index", &index, "of what is pending");
  return 0;
}

/* Refuses what cannot be an outbox, with the relay's own checks, before anything is added to it. */
static int check_table(struct init *init, struct err *err) {
  char shown[SCHEMA_FULL_NAME_BYTES];
  struct cfg cfg = *init->cfg;
  struct table *table = NULL;
  const char *more = "plain";
  schema_show_name(&init->table.name, shown);
  if (init->table.kind != 'r' && init->table.kind != 'p') {
    return err_set(err, ERR_FATAL, "not_a_table", "%s exists and is %s, not a table; choose another name with --table",
                   shown, kind_name(init->table.kind));
  }
  cfg.session_timeout_ms = INIT_SESSION_MS;
  cfg.lanes_n = 1;
  if (table_load(init->pg, &cfg, NULL, &table, err) != 0) {
    return -1;
  }
  table_free(table);
  if (init->table.kind == 'p') {
    more = init->cfg->is_init_plain ? "partitioned; --plain changes nothing about it" : "partitioned";
  } else if (!init->cfg->is_init_plain) {
    more = "plain; docs/schema.md says how to change to the partitioned form";
  }
  init_tell("found", "table", shown, more);
  if (init->cfg->payload_type != CFG_PAYLOAD_JSONB) {
    (void)printf("note: --payload-type changes nothing about a table that exists\n");
  }
  return 0;
}

static void note_made(void *arg, const struct schema_partition *made) {
  struct init *init = arg;
  if (init->made_n == 0) {
    init->first_made = *made;
  }
  init->last_made = *made;
  init->made_n++;
}

static int tell_partitions(struct init *init, int found_n, const struct schema_partitions *partitions) {
  char text[2 * SCHEMA_NAME_BYTES + 32];
  if (found_n > 0) {
    (void)snprintf(text, sizeof text, "%d", found_n);
    init_tell("found", "partitions", text, partitions->has_default ? "one of them is the DEFAULT one" : "");
  }
  if (init->made_n == 1) {
    init_tell("created", "partition", init->last_made.name.table, "");
  } else if (init->made_n > 1) {
    (void)snprintf(text, sizeof text, "%s .. %s", init->first_made.name.table, init->last_made.name.table);
    char n[16];
    (void)snprintf(n, sizeof n, "%d", init->made_n);
    init_tell("created", "partitions", text, n);
  }
  return 0;
}

static int ensure_partitions(struct init *init, struct err *err) {
  struct schema_partitions partitions = {0};
  int granted_n = 0;
  int rc = -1;
  if (schema_load_partitions(init->pg, &init->table, NULL, &partitions, err) != 0) {
    goto out;
  }
  if (init->table.is_by_created_at) {
    rc = schema_create_ahead(init->pg, &init->table, init->cfg->partitions_ahead_ms, NULL, note_made, init, err);
    (void)tell_partitions(init, partitions.n, &partitions);
    if (rc != 0) {
      goto out;
    }
  } else {
    (void)tell_partitions(init, partitions.n, &partitions);
    (void)printf("note: the table is partitioned by %s, not by RANGE (created_at): its partitions are left to you\n",
                 init->table.partition_key);
  }
  rc = schema_pass_grants(init->pg, &init->table, NULL, &granted_n, err);
  if (rc == 0 && granted_n > 0) {
    init_tell("granted", "partitions", "what is granted on the table", "");
  }
out:
  schema_partitions_fini(&partitions);
  return rc;
}

static int ensure_processed(struct init *init, struct err *err) {
  struct schema_script script = {0};
  struct schema_relation found;
  struct schema_name name;
  sibling(&init->table.name, PROCESSED, &name);
  if (schema_find(init->pg, &name, NULL, &found, err) != 0) {
    return -1;
  }
  if (found.kind != 0) {
    tell_name("found", "table", &name, "of consumers");
    return 0;
  }
  int rc = add_processed(&script, &init->table.name, init->table.message_id_type, err);
  if (rc == 0) {
    rc = schema_script_run(&script, init->pg, NULL, err);
  }
  if (rc != 0) {
    (void)err_wrap(err, "cannot create table %s", name.table);
  } else {
    tell_name("created", "table", &name, "for consumers");
  }
  schema_script_fini(&script);
  return rc;
}

static int run(struct init *init, struct err *err) {
  if (pg_new(init->cfg->database, "init", INIT_SESSION_MS, &init->pg, err) != 0) {
    return -1;
  }
  if (pg_connect(init->pg, NULL, err) != 0) {
    return err_wrap(err, "cannot connect to PostgreSQL");
  }
  if (take_lock(init, err) != 0 || schema_find(init->pg, &init->given, NULL, &init->table, err) != 0) {
    return -1;
  }
  bool is_new = init->table.kind == 0;
  if ((is_new ? create_table(init, err) : check_table(init, err)) != 0) {
    return -1;
  }
  if (!is_new && init_ensure_index(init, err) != 0) {
    return -1;
  }
  if (init->table.kind == 'p' && ensure_partitions(init, err) != 0) {
    return -1;
  }
  if (ensure_processed(init, err) != 0 || init_ensure_functions(init, err) != 0) {
    return -1;
  }
  if (init->cfg->is_init_notify && init_ensure_notify(init, err) != 0) {
    return -1;
  }
  if (init->table.sequence_cache > 1) {
    (void)printf("note: the sequence of id hands out %lld ids at a time to each session, so ids do not follow the "
                 "order of the inserts; "
                 "the order within an aggregate needs ALTER SEQUENCE ... CACHE 1\n",
                 (long long)init->table.sequence_cache);
  }
  return 0;
}

int cmd_init(const struct cfg *cfg, struct err *err) {
  struct init init = {.cfg = cfg};
  int rc = schema_parse_name(cfg->table, &init.given, err);
  if (rc == 0 && cfg->is_init_print) {
    rc = check_length(&init.given, err);
    rc = rc == 0 ? print_sql(&init, err) : rc;
  } else if (rc == 0) {
    rc = run(&init, err);
  }
  pg_free(init.pg);
  if (fflush(stdout) != 0 && rc == 0) {
    return err_errno(err, ERR_FATAL, errno, "cannot write to the standard output");
  }
  return rc;
}
