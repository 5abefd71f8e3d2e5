/*
 * Which messages a command is about: --id, --aggregate, --event.
 *
 * As parameters of sql/selector.sql: NULL where nothing was asked for.  Several of one kind are any of them, several kinds narrow each other.
 * Pure, any thread.
 */
#ifndef OUTBOXD_SELECTOR_H
#define OUTBOXD_SELECTOR_H

#include <stdbool.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"

#define SELECTOR_PARAMS_N 3

struct selector {
  char *values[SELECTOR_PARAMS_N]; /* owned: int8[] and twice text[] in their text form */
};

/* Reads what the command line says.  ERR_USAGE: an id that is no number, an aggregate without its colon; ERR_FATAL on no memory.
 * Caller: selector_fini, also after an error. */
must_check int selector_init(struct selector *selector, const struct cfg *cfg, struct err *err);
void selector_fini(struct selector *selector);

/* Was anything asked for? */
bool selector_is_any(const struct cfg *cfg);

/* One --id; ERR_USAGE. */
must_check int selector_parse_id(const char *text, int64_t *out, struct err *err);

#endif
