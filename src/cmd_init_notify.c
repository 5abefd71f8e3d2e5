/*
 * The trigger of `outboxd init --notify`, which wakes the relays as soon as rows are committed.
 *
 * Owns nothing beyond a call; main thread.
 */
#include <stdio.h>
#include <string.h>

#include "cmd_init_impl.h"
#include "embed.h"

/* The function is a sibling of the table. */
static void function_of(const struct schema_name *table, char out[SCHEMA_FULL_NAME_BYTES]) {
  struct schema_name name = *table;
  (void)snprintf(name.table, sizeof name.table, "%.*s_notify", PARTITION_TABLE_BYTES_MAX, table->table);
  schema_quote_name(&name, out);
}

int init_add_notify(struct schema_script *script, const struct schema_name *table, struct err *err) {
  char quoted[SCHEMA_FULL_NAME_BYTES];
  char function[SCHEMA_FULL_NAME_BYTES];
  schema_quote_name(table, quoted);
  function_of(table, function);
  const struct sql_var vars[] = {{"table", quoted}, {"function", function}, {NULL, NULL}};
  if (schema_script_add(script, embed_init_notify_function_sql, vars, err) != 0) {
    return -1;
  }
  return schema_script_add(script, embed_init_notify_trigger_sql, vars, err);
}

int init_ensure_notify(struct init *init, struct err *err) {
  struct schema_script script = {0};
  PGresult *found = init_ask(init, embed_notify_trigger_sql, "triggers", err);
  if (found == NULL) {
    return -1;
  }
  bool is_there = PQgetvalue(found, 0, 0)[0] == 't';
  PQclear(found);
  if (is_there) {
    init_tell("found", "trigger", "outboxd_notify", "wakes the relays");
    return 0;
  }
  int rc = init_add_notify(&script, &init->table.name, err);
  if (rc == 0) {
    rc = schema_script_run(&script, init->pg, NULL, err);
  }
  schema_script_fini(&script);
  if (rc != 0) {
    return err_wrap(err, "cannot create the trigger of --notify");
  }
  init_tell("created", "trigger", "outboxd_notify", "wakes the relays");
  return 0;
}
