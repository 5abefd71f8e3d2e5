/*
 * A byte buffer that grows: where a Redis write, a parameter array or a line of text is put together.
 *
 * A struct buf belongs to one thread.  The bytes may hold NULs; data[len] is a NUL that len does not count, once something
 * was appended.  Appending never leaves half of it: on failure the buffer is as it was.
 */
#ifndef OUTBOXD_BUF_H
#define OUTBOXD_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"

struct buf {
  char *data;  /* owned; NULL until the first append */
  size_t len;  /* bytes in use */
  size_t size; /* bytes allocated */
};

/* An empty buffer without memory; nothing to check. */
#define BUF_INIT \
  { NULL, 0, 0 }

/* Makes room for n more bytes, so that appending them cannot fail.  ERR_RETRY (ENOMEM) when there is no memory, or when the
 * length would not fit into a size_t.  The same holds for all that follow.  None of them may be given bytes of the buffer itself. */
must_check int buf_reserve(struct buf *buf, size_t n, struct err *err);

/* Appends n bytes; bytes may be NULL when n is 0. */
must_check int buf_append(struct buf *buf, const void *bytes, size_t n, struct err *err);

/* Appends a string without its NUL. */
must_check int buf_append_str(struct buf *buf, const char *text, struct err *err);

/* Appends value in decimal; several times faster than buf_printf. */
must_check int buf_append_int(struct buf *buf, int64_t value, struct err *err);

/* Appends formatted text. */
must_check int buf_printf(struct buf *buf, struct err *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Empties the buffer and keeps its memory for the next use. */
void buf_reset(struct buf *buf);

/* Gives the memory back; the buffer is as BUF_INIT makes it.  An empty one is fine. */
void buf_free(struct buf *buf);

#endif
