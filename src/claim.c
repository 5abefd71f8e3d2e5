/*
 * What a claim asks and what its answers say about rows held by others.
 *
 * Owns nothing.  Any thread.
 */
#include "outboxd/claim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* PostgreSQL's own numbers of int4[], int8[]. */
#define INT4_ARRAY 1007
#define INT8_ARRAY 1016

const Oid claim_param_types[CLAIM_PARAMS_MAX] = {[2] = INT4_ARRAY, [3] = INT8_ARRAY, [9] = INT8_ARRAY};

#define FEW_N 64 /* so many ids are compared one by one; of more, PostgreSQL makes a hash table in each partition */

#define NAMES(kind)                                                                                               \
  {                                                                                                               \
    kind "_0", kind "_1", kind "_2", kind "_3", kind "_4", kind "_5", kind "_6", kind "_7", kind "_8", kind "_9", \
        kind "_10", kind "_11"                                                                                    \
  }
static const char *const claim_names[CLAIM_KINDS_N][CLAIM_FORMS_N] = {
    [CLAIM_CAREFUL] = NAMES("careful"), [CLAIM_LOCKING] = NAMES("locking"), [CLAIM_MARKING] = NAMES("marking")};
static const char *const probe_names[PROBE_FORMS_N] = {"probe_0", "probe_1", "probe_2", "probe_3"};

unsigned claim_form(const struct claim *claim) {
  unsigned of_in_flight = claim->in_flight_n <= FEW_N ? CLAIM_NOT_AMONG_FEW : CLAIM_NOT_AMONG_MANY;
  return (claim->lanes != NULL ? CLAIM_IN_LANES : 0U) | (claim->held_back != NULL ? CLAIM_NOT_HELD_BACK : 0U) |
         (claim->in_flight != NULL ? of_in_flight : 0U);
}

static void add_int(struct claim_params *params, int64_t value) {
  (void)snprintf(params->texts[params->n], sizeof params->texts[0], "%lld", (long long)value);
  params->values[params->n] = params->texts[params->n];
  params->lengths[params->n] = 0;
  params->formats[params->n] = 0;
  params->n++;
}

static void add_array(struct claim_params *params, const struct buf *array) {
  params->values[params->n] = array != NULL ? array->data : NULL;
  params->lengths[params->n] = array != NULL ? (int)array->len : 0;
  params->formats[params->n] = 1;
  params->n++;
}

/* Those all of them begin with. */
static void begin(const struct claim *claim, int64_t start, struct claim_params *params) {
  params->n = 0;
  add_int(params, start);
  add_int(params, claim->max_attempts_n);
  add_array(params, claim->lanes);
  add_array(params, claim->held_back);
}

static struct pg_step step_of(const char *name, const struct claim_params *params) {
  assert(params->n <= CLAIM_PARAMS_MAX);
  return (struct pg_step){.kind = PG_EXECUTE,
                          .name = name,
                          .params_n = params->n,
                          .values = params->values,
                          .lengths = params->lengths,
                          .formats = params->formats,
                          .is_binary_result = true};
}

struct pg_step claim_step_prepare_claim(const struct table *table, unsigned form, enum claim_kind kind) {
  return (struct pg_step){.kind = PG_PREPARE,
                          .name = claim_names[kind][form],
                          .sql = table->claim[kind][form],
                          .params_n = CLAIM_PARAMS_MAX,
                          .types = claim_param_types};
}

struct pg_step claim_step_prepare_probe(const struct table *table, unsigned form) {
  return (struct pg_step){.kind = PG_PREPARE,
                          .name = probe_names[form],
                          .sql = table->probe[form],
                          .params_n = PROBE_PARAMS_N,
                          .types = claim_param_types};
}

struct pg_step claim_step_probe(const struct claim *claim, struct claim_params *params) {
  begin(claim, claim->near, params);
  return step_of(probe_names[claim_form(claim) % PROBE_FORMS_N], params);
}

struct pg_step claim_step_claim(const struct claim *claim, struct claim_params *params) {
  begin(claim, claim->near, params);
  add_int(params, claim->rows_n);
  add_int(params, claim->bytes);
  add_int(params, claim->printed_per_stored);
  add_array(params, claim->xids);
  add_array(params, claim->lows);
  add_array(params, claim->in_flight);
  return step_of(claim_names[claim->kind][claim_form(claim)], params);
}

struct pg_step claim_step_passed(const struct claim *claim, int64_t last_id, struct claim_params *params) {
  begin(claim, claim->far, params);
  add_int(params, claim->rows_n);
  add_int(params, last_id);
  add_array(params, claim->in_flight);
  return step_of("passed", params);
}

struct pg_step claim_step_locked(const struct claim *claim, struct claim_params *params) {
  begin(claim, claim->far, params);
  add_int(params, claim->rows_n);
  add_array(params, claim->in_flight);
  return step_of("locked", params);
}

/* Both lists are in id order. */
int claim_find_held(const struct batch *batch, const PGresult *passed, struct held **held, int *n, struct err *err) {
  struct held *grown = realloc(*held, ((size_t)PQntuples(passed) + 1) * sizeof *grown);
  if (grown == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the rows held by others");
  }
  *held = grown;
  *n = 0;
  int c = 0;
  for (int p = 0; p < PQntuples(passed); p++) {
    int64_t id = pg_get_int64(passed, p, 0);
    while (c < batch->n && pg_get_int64(batch->result, c, COL_ID) < id) {
      c++;
    }
    if (c == batch->n || pg_get_int64(batch->result, c, COL_ID) != id) {
      grown[(*n)++] = (struct held){.id = id, .key = pg_get_int64(passed, p, 1)};
    }
  }
  return 0;
}
