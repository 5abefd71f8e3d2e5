/*
 * SQL from sql/, made ready for one table: psql's own :name variables are replaced by fragments.
 *
 * Pure, any thread.
 */
#ifndef OUTBOXD_SQL_H
#define OUTBOXD_SQL_H

#include "outboxd/err.h"

struct sql_var {
  const char *name;  /* without the colon */
  const char *value; /* SQL text, already quoted where it needs to be */
};

/* Replaces every :name outside of '...', "..." and comments by its value ("::" is a cast, left alone); comments are left out.
 * vars ends with name == NULL.  ERR_BUG names a variable that has no value.  *out is the caller's to free. */
must_check int sql_expand(const char *text, const struct sql_var *vars, char **out, struct err *err);

#endif
