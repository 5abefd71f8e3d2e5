/*
 * The outbox table as the catalog describes it, and the statements made for it.
 *
 * Read once at start, immutable from then on but for the names of partitions, which the coordinator's thread adds as it meets them.
 */
#ifndef OUTBOXD_TABLE_H
#define OUTBOXD_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/stop.h"

/* Lists that a claim may have to filter by; the last two are the open batches' ids, many or few.  Each combination is a statement of its own; a probe
 * knows the first two. */
enum { CLAIM_IN_LANES = 1, CLAIM_NOT_HELD_BACK = 2, CLAIM_NOT_AMONG_MANY = 4, CLAIM_NOT_AMONG_FEW = 8 };
#define CLAIM_FORMS_N 12
#define PROBE_FORMS_N 4

/* How a claim keeps its rows from others until its batch is settled: docs/architecture.md "The route of a message". */
enum claim_kind {
  CLAIM_CAREFUL, /* sql/claim.sql: locks them, and passes over those that others hold */
  CLAIM_LOCKING, /* sql/claim_simple.sql: locks them, or fails */
  CLAIM_MARKING, /* the same without locks: the claimer marks the rows before they are published */
  CLAIM_KINDS_N
};

/* A table that holds rows: a partition, or the plain table itself.  Lives, unchanged, as long as the table's description: settles under way point
 * to it. */
struct leaf {
  uint32_t oid;
  bool is_forgotten;      /* not found any more */
  char *name;             /* quoted, with its schema */
  char *settle_published; /* SQL */
  char *settle_failed;
  char *settle_withheld;
};

struct table {
  uint32_t oid;
  char *name;     /* quoted, with its schema */
  char *database; /* its name */
  bool is_partitioned;
  bool has_headers;
  bool is_payload_text;                      /* the payload is text, which need not be JSON */
  int error_chars;                           /* what last_error takes, at most 1,000 */
  char *claim[CLAIM_KINDS_N][CLAIM_FORMS_N]; /* SQL of sql/claim.sql and so on */
  char *probe[PROBE_FORMS_N];
  char *passed;
  char *locked;
  char *still_pending;
  char *dead_keys;
  int leaves_n;
  struct leaf **leaves;
};

/* Looks the table up on an open session and makes its statements.  ERR_FATAL with a text that names what is missing and what to do:
 * no such table, not a table, a missing column or a type that cannot be used, a missing privilege with the GRANT, no pending index
 * (that one only as a log line).  Blocks up to cfg's session timeout a statement.  Caller: table_free. */
must_check int table_load(struct pg *pg, const struct cfg *cfg, const struct stop *stop, struct table **out,
                          struct err *err);
void table_free(struct table *table);

/* The leaf, or NULL when it is not known (yet).  Coordinator thread. */
const struct leaf *table_find_leaf(const struct table *table, uint32_t oid);
/* Adds a leaf; one of the same oid is forgotten.  Coordinator thread. */
must_check int table_add_leaf(struct table *table, uint32_t oid, const char *name, struct err *err);
/* Forgets all leaves: after an error that may come from a renamed partition.  Coordinator thread. */
void table_forget_leaves(struct table *table);

#endif
