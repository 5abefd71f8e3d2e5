/*
 * What an error reply of Redis means for the relay.  The only place that looks at such texts.
 *
 * Pure functions, any thread.  See docs/redis.md "Error replies".
 */
#ifndef OUTBOXD_REDIS_ERROR_H
#define OUTBOXD_REDIS_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#include "outboxd/err.h"

/* What is to be done beyond the class. */
enum redis_effect {
  REDIS_EFFECT_NONE = 0,
  REDIS_EFFECT_EVAL = 1 << 0,   /* the script is not loaded: send the same call as EVAL */
  REDIS_EFFECT_DROP = 1 << 1,   /* the connection leads to the wrong server: drop it */
  REDIS_EFFECT_SINGLE = 1 << 2, /* one message of a call can have caused it: write them one by one to find out which */
  REDIS_EFFECT_ACCESS = 1 << 3, /* credentials, database or permissions: somebody has to change something */
  REDIS_EFFECT_UNKNOWN = 1 << 4 /* in no table: log it whole */
};

/* Reads an error reply's text (with or without the prefixes that the scripting engines of different versions put before it) into *err:
 * class ERR_RETRY or ERR_REJECT, its first word as code, the cleaned text.  Returns a set of enum redis_effect. */
unsigned redis_error_classify(const char *text, size_t bytes, struct err *err);

enum redis_dry_run {
  REDIS_DRY_RUN_DENIED_COMMAND, /* the user may not run the command at all */
  REDIS_DRY_RUN_DENIED_KEY,     /* it may, but not on this key */
  REDIS_DRY_RUN_UNKNOWN         /* some other text */
};

/* Reads what ACL DRYRUN says, where that is not OK. */
enum redis_dry_run redis_error_dry_run(const char *text);

#endif
