/*
 * The journal of a lane: the token of the last write and the names of the messages that are in the stream and not known to be settled.
 *
 * The value in Redis is lines: the token, then one "<id> <message_id>" a message; bytes of a message_id outside [A-Za-z0-9_.:-] are
 * percent-encoded.  Pure functions, any thread.  See docs/architecture.md "The journal".
 */
#ifndef OUTBOXD_JOURNAL_H
#define OUTBOXD_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/buf.h"
#include "outboxd/err.h"

#define JOURNAL_TOKEN_BYTES 40 /* with the NUL */

struct journal_name {
  int64_t id;       /* finds the row */
  char *message_id; /* identifies the message; decoded, NUL-terminated, owned */
  size_t message_id_bytes;
};

struct journal_names {
  char token[JOURNAL_TOKEN_BYTES]; /* "" when there is no journal */
  int n;
  struct journal_name *v;
};

/* A token no other write has: 64 random bits of this process and a counter.  Any thread. */
void journal_new_token(char out[JOURNAL_TOKEN_BYTES]);

/* Appends one "<id> <message_id>\n" line. */
must_check int journal_append_name(struct buf *buf, int64_t id, const char *message_id, size_t bytes, struct err *err);

/* Reads a journal's value (bytes of it may be anything).  An empty value is a journal without token and names.  ERR_RETRY with a text that says what
 * is wrong at which line (a value that is no journal of ours must never be taken for an empty one).  Caller: journal_names_free. */
must_check int journal_parse(const char *value, size_t bytes, struct journal_names **out, struct err *err);
void journal_names_free(struct journal_names *names);

#endif
