/*
 * What the parts of the cleanup share: cleanup.c (the thread), cleanup_partitions.c (which go), cleanup_detach.c (how they go),
 * cleanup_rows.c (deleting), cleanup_said.c (what was said).  Nobody else includes this.
 *
 * All of it belongs to the cleanup's thread.  Functions that return -1 with the session still open (PG_IDLE) have left no transaction open.
 */
#ifndef OUTBOXD_CLEANUP_IMPL_H
#define OUTBOXD_CLEANUP_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "outboxd/backoff.h"
#include "outboxd/cleanup.h"
#include "outboxd/schema.h"

/* For the reply to a statement that the server itself ends after its statement_timeout. */
#define CLEANUP_REPLY_MS INT64_C(60000)
/* A statement under a lock that keeps writers out. */
#define CLEANUP_SHORT "500ms"

/* -------------------------------------------------------------------------------------------------- what was said */

/* Repeats of a warning: once on change, then every --alert-repeat. */
struct cleanup_said {
  struct said *items;
  int n;
};

/* True when the line of this key is due: new, with another text than last, or last said repeat_us ago (INT64_MAX: never again). */
bool cleanup_is_due(struct cleanup_said *said, const char *key, const char *text, int64_t repeat_us, int64_t now_us);
/* Forgets what was not asked for since the last sweep: its cause is gone, so it is new when it comes back. */
void cleanup_said_sweep(struct cleanup_said *said);
void cleanup_said_fini(struct cleanup_said *said);

/* -------------------------------------------------------------------------------------------------- a run */

/* What a run did: the fields of cleanup_done. */
struct cleanup_counts {
  int created_n;
  int dropped_n;
  int kept_n;    /* expired, but they hold pending or dead rows */
  int blocked_n; /* expired, but something depends on them */
  int busy_n;    /* expired, but others held a lock; tried again soon */
  int failed_n;  /* parts of the run that ended with an error */
  int64_t deleted_n;
  int64_t processed_deleted_n;
};

/* What this session may do about a table, and what the table is. */
struct cleanup_rights {
  char user[SCHEMA_QUOTED_BYTES];
  char owner[SCHEMA_QUOTED_BYTES];
  char schema[SCHEMA_QUOTED_BYTES];
  bool is_found;
  bool is_owner;
  bool can_create;
  bool can_delete;
  char kind; /* pg_class.relkind */
  bool has_processed_at;
  bool has_id_index;
};

struct cleanup {
  const struct cfg *cfg;
  const struct stop *stop;
  pthread_t thread;
  struct pg *pg;
  struct pg *watch; /* open during a detach only: ends it when somebody waits behind it */
  struct schema_name given;
  struct schema_relation table;
  char shown[SCHEMA_FULL_NAME_BYTES]; /* the table's name for people */
  bool is_maintainer;
  uint32_t elected_oid; /* of the table whose maintainer this session is */
  struct backoff backoff;
  int64_t next_try_us; /* when to ask for the maintainer's lock again, or to touch the session */
  int64_t next_run_us;
  int64_t next_processed_us;
  struct cleanup_said said;
  struct cleanup_counts counts;
};

/* Blocks up to us microseconds, less when the thread is to end. */
void cleanup_pause(const struct cleanup *cleanup, int64_t us);
/* One statement of sql/, with its variables replaced (NULL: taken as it is) and parameters. */
must_check int cleanup_ask(struct cleanup *cleanup, const char *sql, const struct sql_var *vars, int params_n,
                           const char *const *values, struct err *err);
must_check int cleanup_load_rights(struct cleanup *cleanup, uint32_t oid, struct cleanup_rights *rights,
                                   struct err *err);

/* Partitions ahead, expired ones, what an earlier run left unfinished. */
must_check int cleanup_partitions(struct cleanup *cleanup, const struct cleanup_rights *rights, struct err *err);

/* Published rows of a plain table, and rows of processed_messages. */
must_check int cleanup_rows(struct cleanup *cleanup, const struct cleanup_rights *rights, struct err *err);
must_check int cleanup_processed(struct cleanup *cleanup, struct err *err);

/* -------------------------------------------------------------------------------------------------- removing one partition */

/* What a partition holds that is not published. */
struct cleanup_look {
  int64_t pending_n;
  int64_t dead_n;
  double oldest_s; /* age of the oldest by created_at */
  int64_t size_bytes;
};
must_check int cleanup_look(struct cleanup *cleanup, uint32_t oid, const struct schema_name *name,
                            struct cleanup_look *look, struct err *err);

/* A partition on its way out. */
struct cleanup_leaving {
  uint32_t oid;
  struct schema_name name;
  char bounds_text[SCHEMA_BOUNDS_BYTES];
  char *unmark; /* the statement that takes the mark off; owned by whoever filled it */
};

enum cleanup_fate {
  CLEANUP_DROPPED,
  CLEANUP_RETURNED, /* an unpublished row was in it after all: attached again, *look says what */
  CLEANUP_BUSY,     /* a lock could not be had: tried again at the next run */
  CLEANUP_REFUSED,  /* PostgreSQL refuses to drop it, *why says why: attached again */
  CLEANUP_STRANDED  /* detached, and can neither be dropped nor attached again, *why says why */
};

/* Detaches a partition that looks as if it could go, and drops it when it can.  -1: the run cannot go on with it. */
must_check int cleanup_remove(struct cleanup *cleanup, const struct schema_partition *partition, bool has_default,
                              enum cleanup_fate *fate, struct cleanup_look *look, struct err *why, struct err *err);
/* The same for one that an earlier run has marked and detached. */
must_check int cleanup_finish(struct cleanup *cleanup, const struct cleanup_leaving *leaving, enum cleanup_fate *fate,
                              struct cleanup_look *look, struct err *why, struct err *err);
/* Finishes a DETACH CONCURRENTLY that was interrupted. */
must_check int cleanup_finalize(struct cleanup *cleanup, uint32_t oid, const struct schema_name *name, struct err *err);
/* Runs one finished statement (a COMMENT) that waits for no lock for long. */
must_check int cleanup_run_statement(struct cleanup *cleanup, const char *statement, struct err *err);

#endif
