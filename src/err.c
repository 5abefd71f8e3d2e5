/*
 * Filling and wrapping struct err.
 *
 * Owns nothing; any thread, on the caller's own struct.  Never allocates, so that "out of memory" can be reported.
 */
#include "outboxd/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef err_set
#undef err_errno
#undef err_wrap

/* One line: a log reader must not meet half an event. */
static void flatten(char *text) {
  for (char *p = text; *p != '\0'; p++) {
    if (*p == '\n' || *p == '\r') {
      *p = ' ';
    }
  }
}

/* A text that was cut to size must not end inside a UTF-8 sequence. */
static void trim_partial_utf8(char *text) {
  size_t len = strlen(text);
  size_t start = len;
  while (start > 0 && len - start < 3 && ((unsigned char)text[start - 1] & 0xC0u) == 0x80u) {
    start--;
  }
  if (start == 0) {
    return;
  }
  unsigned char lead = (unsigned char)text[start - 1];
  size_t want = lead >= 0xF0u ? 4 : lead >= 0xE0u ? 3 : lead >= 0xC0u ? 2 : 1;
  if (want > 1 && len - start + 1 < want) {
    text[start - 1] = '\0';
  }
}

/* Formats into out; the result is one line, cut to n bytes at a character's end. */
static void __attribute__((format(printf, 3, 0))) format_text(char *out, size_t n, const char *fmt, va_list args) {
  int len = vsnprintf(out, n, fmt, args);
  if (len < 0) {
    out[0] = '\0';
  } else if ((size_t)len >= n) {
    trim_partial_utf8(out);
  }
  flatten(out);
}

int err_set(struct err *err, enum err_class class, const char *code, const char *fmt, ...) {
  if (err == NULL) {
    return -1;
  }
  /* fmt's arguments may point into *err: format beside it first. */
  char text[ERR_TEXT_BYTES];
  va_list args;
  va_start(args, fmt);
  format_text(text, sizeof text, fmt, args);
  va_end(args);
  char code_copy[ERR_CODE_BYTES];
  (void)snprintf(code_copy, sizeof code_copy, "%s", code);

  err->class = class;
  memcpy(err->code, code_copy, sizeof err->code);
  memcpy(err->text, text, sizeof err->text);
  return -1;
}

/* strerrorname_np is glibc's alone, so the names that a relay meets are listed. */
static const char *errno_name(int errnum) {
  static const struct {
    int errnum;
    const char *name;
  } names[] = {
      {EACCES, "EACCES"},
      {EADDRNOTAVAIL, "EADDRNOTAVAIL"},
      {EAGAIN, "EAGAIN"},
      {EBADF, "EBADF"},
      {ECONNABORTED, "ECONNABORTED"},
      {ECONNREFUSED, "ECONNREFUSED"},
      {ECONNRESET, "ECONNRESET"},
      {EEXIST, "EEXIST"},
      {EHOSTUNREACH, "EHOSTUNREACH"},
      {EINTR, "EINTR"},
      {EINVAL, "EINVAL"},
      {EIO, "EIO"},
      {EMFILE, "EMFILE"},
      {ENAMETOOLONG, "ENAMETOOLONG"},
      {ENETDOWN, "ENETDOWN"},
      {ENETUNREACH, "ENETUNREACH"},
      {ENFILE, "ENFILE"},
      {ENOENT, "ENOENT"},
      {ENOMEM, "ENOMEM"},
      {ENOSPC, "ENOSPC"},
      {ENOTCONN, "ENOTCONN"},
      {ENOTSOCK, "ENOTSOCK"},
      {EPERM, "EPERM"},
      {EPIPE, "EPIPE"},
      {EPROTO, "EPROTO"},
      {ERANGE, "ERANGE"},
      {ETIMEDOUT, "ETIMEDOUT"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (names[i].errnum == errnum) {
      return names[i].name;
    }
  }
  return NULL;
}

int err_errno(struct err *err, enum err_class class, int errnum, const char *fmt, ...) {
  if (err == NULL) {
    return -1;
  }
  char text[ERR_TEXT_BYTES];
  va_list args;
  va_start(args, fmt);
  format_text(text, sizeof text, fmt, args);
  va_end(args);

  char reason[128];
#ifdef __GLIBC__
  const char *reason_text = strerror_r(errnum, reason, sizeof reason);
#else
  const char *reason_text = strerror_r(errnum, reason, sizeof reason) == 0 ? reason : "unknown error";
#endif
  char code[ERR_CODE_BYTES];
  const char *name = errno_name(errnum);
  if (name != NULL) {
    (void)snprintf(code, sizeof code, "%s", name);
  } else {
    (void)snprintf(code, sizeof code, "E%d", errnum);
  }
  return err_set(err, class, code, "%s: %s", text, reason_text);
}

int err_wrap(struct err *err, const char *fmt, ...) {
  if (err == NULL) {
    return -1;
  }
  char context[ERR_TEXT_BYTES];
  va_list args;
  va_start(args, fmt);
  format_text(context, sizeof context, fmt, args);
  va_end(args);

  char text[ERR_TEXT_BYTES];
  int len = snprintf(text, sizeof text, "%s: %s", context, err->text);
  if (len >= (int)sizeof text) {
    trim_partial_utf8(text);
  }
  memcpy(err->text, text, sizeof err->text);
  return -1;
}

void err_clear(struct err *err) {
  err->class = ERR_NONE;
  err->code[0] = '\0';
  err->text[0] = '\0';
}

const char *err_class_name(enum err_class class) {
  switch (class) {
  case ERR_NONE:
    return "none";
  case ERR_RETRY:
    return "retry";
  case ERR_REJECT:
    return "reject";
  case ERR_FATAL:
    return "fatal";
  case ERR_USAGE:
    return "usage";
  case ERR_BUG:
    return "bug";
  }
  return "unknown";
}
