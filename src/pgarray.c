/*
 * PostgreSQL arrays in binary form.
 *
 * Owns nothing.  Any thread.
 */
#include "outboxd/pgarray.h"

static void put32(unsigned char *out, uint32_t value) {
  out[0] = (unsigned char)(value >> 24);
  out[1] = (unsigned char)(value >> 16);
  out[2] = (unsigned char)(value >> 8);
  out[3] = (unsigned char)value;
}

int pgarray_begin(struct buf *buf, enum pgarray_type type, int n, struct err *err) {
  unsigned char head[20];
  put32(head, n > 0 ? 1 : 0); /* dimensions */
  put32(head + 4, 0);         /* no NULLs */
  put32(head + 8, (uint32_t)type);
  put32(head + 12, (uint32_t)n);
  put32(head + 16, 1); /* lower bound */
  return buf_append(buf, head, n > 0 ? sizeof head : 12, err);
}

int pgarray_int4(struct buf *buf, int32_t value, struct err *err) {
  unsigned char element[8];
  put32(element, 4);
  put32(element + 4, (uint32_t)value);
  return buf_append(buf, element, sizeof element, err);
}

int pgarray_int8(struct buf *buf, int64_t value, struct err *err) {
  unsigned char element[12];
  put32(element, 8);
  put32(element + 4, (uint32_t)((uint64_t)value >> 32));
  put32(element + 8, (uint32_t)value);
  return buf_append(buf, element, sizeof element, err);
}

int pgarray_bytes(struct buf *buf, const void *bytes, size_t n, struct err *err) {
  unsigned char length[4];
  if (n > INT32_MAX || buf_reserve(buf, n + sizeof length, err) != 0) {
    return n > INT32_MAX ? err_set(err, ERR_BUG, "array", "an array element of %zu bytes", n) : -1;
  }
  put32(length, (uint32_t)n);
  if (buf_append(buf, length, sizeof length, err) != 0) {
    return -1;
  }
  return buf_append(buf, bytes, n, err);
}
