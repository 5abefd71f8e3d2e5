/*
 * PostgreSQL arrays in binary form, as parameters of prepared statements.
 *
 * Pure functions over a buf, any thread.  Layout: array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c.
 */
#ifndef OUTBOXD_PGARRAY_H
#define OUTBOXD_PGARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/err.h"

enum pgarray_type {
  PGARRAY_INT4 = 23,
  PGARRAY_INT8 = 20,
  PGARRAY_TEXT = 25,
  PGARRAY_TID = 27,
  PGARRAY_OID = 26,
  PGARRAY_XID8 = 5069
};

/* Starts a one-dimensional array of n elements at the end of buf; exactly n appends have to follow.  n may be 0.  ERR_RETRY on no memory. */
must_check int pgarray_begin(struct buf *buf, enum pgarray_type type, int n, struct err *err);
must_check int pgarray_int4(struct buf *buf, int32_t value, struct err *err);
must_check int pgarray_int8(struct buf *buf, int64_t value, struct err *err);
/* A text, or any element already in its binary form (a tid: 6 bytes). */
must_check int pgarray_bytes(struct buf *buf, const void *bytes, size_t n, struct err *err);

#endif
