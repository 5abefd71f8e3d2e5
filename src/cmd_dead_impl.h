/*
 * The inside of `outboxd dead`, `retry` and `discard`: the session and the list (cmd_dead.c), the changes (cmd_dead_change.c).
 *
 * Main thread, no other exists.
 */
#ifndef OUTBOXD_CMD_DEAD_IMPL_H
#define OUTBOXD_CMD_DEAD_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/schema.h"
#include "outboxd/selector.h"

#define DEAD_SESSION_MS INT64_C(30000)
/* Of one statement: a backlog of tens of millions is walked in that. */
#define DEAD_REPLY_MS INT64_C(600500)
#define DEAD_NUMBER_BYTES 24

struct dead {
  const struct cfg *cfg;
  struct selector selector;
  struct pg *pg;
  struct schema_relation table;
  char quoted[SCHEMA_FULL_NAME_BYTES]; /* its name for SQL */
  int error_chars;                     /* what last_error takes, at most 1,000 */
  bool has_id_index;                   /* of all rows, not of pending ones only */
  char attempts[DEAD_NUMBER_BYTES];
  char *is_dead; /* SQL: the condition */
};

/* Reads the selectors, connects, looks the table up.  Caller: dead_fini, also after an error. */
must_check int dead_init(struct dead *dead, const struct cfg *cfg, struct err *err);
void dead_fini(struct dead *dead);

/* A statement of sql/ for this table; the caller's to free. */
must_check int dead_expand(const struct dead *dead, const char *text, char **out, struct err *err);

/* Prints the messages in id order, limit_n at most, as lines of JSON or for people; *listed_n counts them, *more gets whether there are more. */
must_check int dead_list(struct dead *dead, int64_t limit_n, int64_t *listed_n, bool *more, struct err *err);

#endif
