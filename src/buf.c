/*
 * The growable byte buffer.
 *
 * Owns the memory of each struct buf; no state of its own.  Runs on whichever thread holds the buffer.
 */
#include "outboxd/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 256u

int buf_reserve(struct buf *buf, size_t n, struct err *err) {
  /* One more for the NUL behind the bytes. */
  if (n >= SIZE_MAX / 2 - buf->len) {
    return err_set(err, ERR_RETRY, "ENOMEM", "a buffer of %zu bytes cannot grow by %zu", buf->len, n);
  }
  size_t need = buf->len + n + 1;
  if (need <= buf->size) {
    return 0;
  }
  size_t size = buf->size == 0 ? FIRST_SIZE : buf->size;
  while (size < need) {
    size *= 2;
  }
  char *data = realloc(buf->data, size);
  if (data == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a buffer of %zu bytes", size);
  }
  buf->data = data;
  buf->size = size;
  buf->data[buf->len] = '\0';
  return 0;
}

int buf_append(struct buf *buf, const void *bytes, size_t n, struct err *err) {
  if (buf_reserve(buf, n, err) != 0) {
    return -1;
  }
  if (n > 0) {
    memcpy(buf->data + buf->len, bytes, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
  }
  return 0;
}

int buf_append_str(struct buf *buf, const char *text, struct err *err) {
  return buf_append(buf, text, strlen(text), err);
}

int buf_append_int(struct buf *buf, int64_t value, struct err *err) {
  char digits[20]; /* "-9223372036854775808" */
  size_t at = sizeof digits;
  /* Unsigned, since -INT64_MIN is not an int64_t. */
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (value < 0) {
    digits[--at] = '-';
  }
  return buf_append(buf, digits + at, sizeof digits - at, err);
}

int buf_printf(struct buf *buf, struct err *err, const char *fmt, ...) {
  /* Try in the room there is; only when that was too small is the text formatted a second time. */
  size_t room = buf->size - buf->len;
  va_list args;
  va_start(args, fmt);
  int len = vsnprintf(room > 0 ? buf->data + buf->len : NULL, room, fmt, args);
  va_end(args);
  if (len >= 0 && (size_t)len >= room) {
    if (buf_reserve(buf, (size_t)len, err) != 0) {
      goto fail;
    }
    va_start(args, fmt);
    len = vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, args);
    va_end(args);
  }
  if (len < 0) {
    (void)err_set(err, ERR_BUG, "EINVAL", "the format \"%s\" cannot be printed", fmt);
    goto fail;
  }
  buf->len += (size_t)len;
  return 0;

fail:
  if (buf->data != NULL) {
    buf->data[buf->len] = '\0';
  }
  return -1;
}

void buf_reset(struct buf *buf) {
  buf->len = 0;
  if (buf->data != NULL) {
    buf->data[0] = '\0';
  }
}

void buf_free(struct buf *buf) {
  free(buf->data);
  *buf = (struct buf)BUF_INIT;
}
