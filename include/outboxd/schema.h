/*
 * Changes to the table's schema: names as PostgreSQL reads them, transactions that make no writer wait, partitions made ahead.
 *
 * What `outboxd init` and the cleanup thread share.  Names are pure (any thread); what takes a session blocks, for threads with nothing
 * else to do.
 */
#ifndef OUTBOXD_SCHEMA_H
#define OUTBOXD_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/err.h"
#include "outboxd/partition.h"
#include "outboxd/pg.h"
#include "outboxd/sql.h"
#include "outboxd/stop.h"

/* -------------------------------------------------------------------------------------------------- names */

#define SCHEMA_NAME_BYTES PARTITION_NAME_BYTES
#define SCHEMA_QUOTED_BYTES (2 * SCHEMA_NAME_BYTES + 2)
#define SCHEMA_FULL_NAME_BYTES (2 * SCHEMA_QUOTED_BYTES)

/* A name taken apart: without quotes, folded to lower case where it had none. */
struct schema_name {
  char schema[SCHEMA_NAME_BYTES]; /* "": wherever the search_path finds it */
  char table[SCHEMA_NAME_BYTES];
};

/* Reads table, schema.table, "Quoted ""table""" and their mixtures.  ERR_USAGE says what is wrong with it. */
must_check int schema_parse_name(const char *text, struct schema_name *name, struct err *err);

/* Writes "schema"."table" (or "table"), always quoted. */
void schema_quote_name(const struct schema_name *name, char out[SCHEMA_FULL_NAME_BYTES]);

/* The same for people: quoted only where it has to be. */
void schema_show_name(const struct schema_name *name, char out[SCHEMA_FULL_NAME_BYTES]);

/* The storage settings of a new partition or plain table: what stands between WITH's parentheses.  *out is the caller's to free. */
must_check int schema_settings(char **out, struct err *err);

/* -------------------------------------------------------------------------------------------------- transactions */

#define SCHEMA_SCRIPT_MAX 24

/* Statements to be run in one transaction. */
struct schema_script {
  int n;
  int tries_n;                         /* how often a lock that is refused is tried for; 0: for about half a minute */
  char *statements[SCHEMA_SCRIPT_MAX]; /* owned */
};

/* Adds one statement of sql/, its variables replaced (see sql_expand). */
must_check int schema_script_add(struct schema_script *script, const char *text, const struct sql_var *vars,
                                 struct err *err);
void schema_script_fini(struct schema_script *script);

/* Runs the statements in one transaction that waits for no lock longer than a second, so that nobody queues behind it for longer, and
 * holds the schema lock.  A lock that is refused is tried for again.  ERR_RETRY: the database is away or the lock is still
 * held; anything else: a statement failed for good.  Nothing has changed then.  Returns early at *stop (may be NULL). */
must_check int schema_script_run(const struct schema_script *script, struct pg *pg, const struct stop *stop,
                                 struct err *err);

/* Tries for the schema lock, one in a database, for the whole session; *is_taken tells.  For what cannot run in one transaction. */
must_check int schema_try_lock(struct pg *pg, const struct stop *stop, bool *is_taken, struct err *err);

/* -------------------------------------------------------------------------------------------------- the table */

#define SCHEMA_TYPE_BYTES 128

/* What stands under a name. */
struct schema_relation {
  char kind; /* pg_class.relkind; 0: nothing has this name */
  uint32_t oid;
  struct schema_name name;                 /* both parts */
  bool is_by_created_at;                   /* partitioned by RANGE (created_at) and nothing else */
  char partition_key[256];                 /* as PostgreSQL prints it; "" when not partitioned */
  char foreign_owner[SCHEMA_QUOTED_BYTES]; /* quoted; "" when the session's user owns it */
  char message_id_type[SCHEMA_TYPE_BYTES];
  int64_t sequence_cache; /* of id's sequence; 0: it has none */
};

must_check int schema_find(struct pg *pg, const struct schema_name *name, const struct stop *stop,
                           struct schema_relation *out, struct err *err);

/* The same for --table, given as it stands there: ERR_FATAL "unknown_table" where there is no table. */
must_check int schema_find_table(struct pg *pg, const struct schema_name *name, const char *given,
                                 const struct stop *stop, struct schema_relation *out, struct err *err);

#define SCHEMA_BOUNDS_BYTES 160

struct schema_partition {
  uint32_t oid;
  char kind; /* pg_class.relkind */
  struct schema_name name;
  bool is_default;        /* then bounds mean nothing */
  bool is_detach_pending; /* a DETACH CONCURRENTLY was interrupted, or is under way */
  struct partition_bounds bounds;
  char bounds_text[SCHEMA_BOUNDS_BYTES]; /* as ATTACH PARTITION takes them; not of those just made */
};

struct schema_partitions {
  int n;
  struct schema_partition *items; /* lowest bound first, the default one last */
  bool has_default;
  int64_t db_now_us;     /* the database's clock */
  char *with;            /* "WITH (...)" for a new one: as the newest has it, else sql/init_settings.sql */
  char *tablespace;      /* "TABLESPACE ..." or "" */
  char replica_identity; /* pg_class.relreplident for a new one */
};

/* Reads the direct partitions of a partitioned table.  Caller: schema_partitions_fini (also after an error; zero it before). */
must_check int schema_load_partitions(struct pg *pg, const struct schema_relation *table, const struct stop *stop,
                                      struct schema_partitions *out, struct err *err);
void schema_partitions_fini(struct schema_partitions *partitions);

/* Makes the partitions from yesterday's up to the one ahead_ms from now (database's clock, whole UTC days): each as a table of its own that is then
 * attached, in a transaction of its own.  Calls made (may be NULL) for each.  The table has to be is_by_created_at.  Safe beside another
 * process that does the same.  Errors as schema_script_run; what was made before stays. */
must_check int schema_create_ahead(struct pg *pg, const struct schema_relation *table, int64_t ahead_ms,
                                   const struct stop *stop, void (*made)(void *arg, const struct schema_partition *p),
                                   void *arg, struct err *err);

/* Passes what is granted on a partitioned table on to its partitions; *granted_n gets the number of statements that took. */
must_check int schema_pass_grants(struct pg *pg, const struct schema_relation *table, const struct stop *stop,
                                  int *granted_n, struct err *err);

#endif
