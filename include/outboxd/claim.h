/*
 * What a claim asks, as the parameters of its prepared statements, and what its answers say about rows held by others.
 *
 * Pure functions, any thread; used by the claimer.  The statements are sql/claim.sql, claim_simple.sql, probe.sql, passed.sql and locked.sql.
 */
#ifndef OUTBOXD_CLAIM_H
#define OUTBOXD_CLAIM_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "outboxd/batch.h"
#include "outboxd/buf.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/table.h"

/* A pending message that another session holds locked. */
struct held {
  int64_t id;
  int64_t key; /* its aggregate */
};

/* What to claim.  The arrays are in PostgreSQL's binary form (pgarray.h), borrowed until the claim's event; NULL: all lanes, or none of the others. */
struct claim {
  int64_t near;                /* look at ids above it, ... */
  int64_t far;                 /* ... or down to this one where a transaction has ended: see horizon.h */
  const struct buf *lanes;     /* int4[] */
  const struct buf *held_back; /* int8[]: aggregate keys */
  const struct buf *xids;      /* xid8[] and int8[]: see horizon.h */
  const struct buf *lows;
  const struct buf *in_flight; /* int8[]: ids of the open batches */
  int in_flight_n;
  int max_attempts_n;
  int rows_n;
  int64_t bytes;
  int printed_per_stored; /* text bytes expected of one stored byte of a compressed payload */
  enum claim_kind kind;   /* any but the careful one is made again with that where it does not do */
  bool is_probed;         /* something was seen pending: if nothing can be locked, find out what is held by others */
};

#define CLAIM_PARAMS_MAX 10
#define PROBE_PARAMS_N 4

/* The parameters in libpq's form; a step made from them points here and into the claim's arrays. */
struct claim_params {
  char texts[CLAIM_PARAMS_MAX][24];
  const char *values[CLAIM_PARAMS_MAX];
  int lengths[CLAIM_PARAMS_MAX];
  int formats[CLAIM_PARAMS_MAX];
  int n;
};

/* The types of the parameters that not every form of the statements uses; 0: as the statement says. */
extern const Oid claim_param_types[CLAIM_PARAMS_MAX];

/* The lists it needs: an index of table->claim[kind], and masked of table->probe. */
unsigned claim_form(const struct claim *claim);

/* Prepares a form of the claim or the probe. */
struct pg_step claim_step_prepare_claim(const struct table *table, unsigned form, enum claim_kind kind);
struct pg_step claim_step_prepare_probe(const struct table *table, unsigned form);

/* Each fills *params and returns the step that executes the statement, which the session has prepared. */
struct pg_step claim_step_probe(const struct claim *claim, struct claim_params *params);
struct pg_step claim_step_claim(const struct claim *claim, struct claim_params *params);
/* What is pending up to last_id, though the claim did not return it. */
struct pg_step claim_step_passed(const struct claim *claim, int64_t last_id, struct claim_params *params);
/* What cannot be locked, where the claim returned nothing. */
struct pg_step claim_step_locked(const struct claim *claim, struct claim_params *params);

/* Those rows of passed (id, aggregate key; in id order) that are not in the batch: *held (grown with realloc, the caller's) and *n.  ERR_RETRY on no
 * memory. */
must_check int claim_find_held(const struct batch *batch, const PGresult *passed, struct held **held, int *n,
                               struct err *err);

#endif
