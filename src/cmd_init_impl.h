/*
 * The inside of `outboxd init`, shared by the files it is made of: cmd_init.c (the order of things, the table), cmd_init_index.c (the pending index),
 * cmd_init_functions.c (what applications call), cmd_init_notify.c (the trigger of --notify).
 *
 * Main thread, no other exists.
 */
#ifndef OUTBOXD_CMD_INIT_IMPL_H
#define OUTBOXD_CMD_INIT_IMPL_H

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/schema.h"

#define INIT_SESSION_MS INT64_C(30000)

/* What a run works with. */
struct init {
  const struct cfg *cfg;
  struct schema_name given; /* --table, taken apart */
  struct pg *pg;
  struct schema_relation table;
  int made_n; /* partitions */
  struct schema_partition first_made;
  struct schema_partition last_made;
};

/* One line of what was done: "created  index      outbox_messages_pending_idx (of what is pending)". */
void init_tell(const char *verb, const char *what, const char *name, const char *more);

/* Runs one statement in a transaction that makes no writer wait. */
must_check int init_run(struct init *init, const char *text, const struct sql_var *vars, struct err *err);

/* Asks a question whose one parameter is the table's oid; what: "indexes", for an error.  The answer is the caller's to PQclear; NULL on an error. */
PGresult *init_ask(struct init *init, const char *sql, const char *what, struct err *err);

/* The name of the table's pending index; and the same for CREATE INDEX, which puts an index into its table's schema and takes no other. */
void init_index_of(const struct schema_name *table, struct schema_name *out);
void init_index_name(const struct schema_name *table, char out[SCHEMA_FULL_NAME_BYTES]);
/* Adds the pending index where an existing table has none. */
must_check int init_ensure_index(struct init *init, struct err *err);

/* Adds the statements that make outbox_record and its companions beside a table whose payload is of this type; their names always carry its schema. */
must_check int init_add_functions(struct schema_script *script, const struct schema_name *table,
                                  const char *payload_type, struct err *err);
/* The same in the database, as the table's columns ask for it; says what it did.  What is there and is not ours stays, with a note. */
must_check int init_ensure_functions(struct init *init, struct err *err);

/* --notify: adds the statements that make the trigger of this table. */
must_check int init_add_notify(struct schema_script *script, const struct schema_name *table, struct err *err);
/* The same on the table itself; says what it did. */
must_check int init_ensure_notify(struct init *init, struct err *err);

#endif
