/*
 * A Redis URL taken apart.  Pure, any thread.
 */
#ifndef OUTBOXD_URL_H
#define OUTBOXD_URL_H

#include <stddef.h>

#include "outboxd/err.h"

struct url {
  char *host;     /* NULL for a unix socket; IPv6 without its brackets */
  int port;       /* 6379 unless said */
  char *path;     /* unix socket path; else NULL */
  char *user;     /* NULL: none */
  char *password; /* NULL: none; percent-decoded, may hold any byte but NUL */
  int db;         /* 0 unless said */
};

/* redis://[[user]:password@]host[:port][/db] or unix://[[user]:password@]/path[?db=N] (percent-encoding in user, password, path).
 * "host:port" without a scheme is taken as well.  rediss:// is refused with a sentence that says TLS is not built in yet.
 * ERR_USAGE without ever quoting the password.  Caller: url_fini. */
must_check int url_parse(const char *text, struct url *url, struct err *err);
void url_fini(struct url *url);

/* "redis://host:port/db" or "unix:///path": for logs, without user and password.  out is cut to n bytes. */
void url_describe(const struct url *url, char *out, size_t n);

#endif
