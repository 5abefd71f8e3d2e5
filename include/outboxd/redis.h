/*
 * One Redis connection and the pipelines sent over it.
 *
 * A connection belongs to one thread, and so does a pipeline.  Every wait is a poll(2) with a deadline that sees the stop tokens.  The
 * connection is closed whenever something went wrong on it, and never reopened by itself.
 * The only files that know hiredis are this one's; it is used to read replies.  Commands are written straight into the pipeline's
 * buffer: hiredis's formatting makes one more allocation and copy of every command (docs/redis.md).
 */
#ifndef OUTBOXD_REDIS_H
#define OUTBOXD_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"
#include "outboxd/net.h"
#include "outboxd/url.h"

struct redis;
struct redis_pipeline;
struct redis_reply;

/* ---- connection */

/* A closed connection to url (borrowed for its life); idle_ms becomes TCP_USER_TIMEOUT.  Caller: redis_free. */
must_check int redis_new(const struct url *url, int64_t idle_ms, struct redis **out, struct err *err);
/* Closes too.  NULL is fine. */
void redis_free(struct redis *redis);

/* Connects, authenticates, selects the database, names the connection "outboxd".  ERR_RETRY; ERR_FATAL when credentials or the database are
 * refused and no redis_open of this object has succeeded yet. */
must_check int redis_open(struct redis *redis, const struct net_wait *wait, struct err *err);
bool redis_is_open(const struct redis *redis);
void redis_close(struct redis *redis);

/* ---- pipeline: commands and their replies */

must_check int redis_pipeline_new(struct redis_pipeline **out, struct err *err);
void redis_pipeline_free(struct redis_pipeline *pipeline);
/* Forgets commands and replies; gives memory back when the buffer has grown beyond keep_bytes. */
void redis_pipeline_reset(struct redis_pipeline *pipeline, size_t keep_bytes);

/* Begins a command of args_n words; each follows by redis_pipeline_arg.  ERR_RETRY on no memory, which leaves the pipeline unusable until
 * it is reset. */
must_check int redis_pipeline_begin(struct redis_pipeline *pipeline, int args_n, struct err *err);
must_check int redis_pipeline_arg(struct redis_pipeline *pipeline, const void *bytes, size_t n, struct err *err);
must_check int redis_pipeline_arg_int(struct redis_pipeline *pipeline, int64_t value, struct err *err);
/* A whole command of strings; the list ends with NULL. */
must_check int redis_pipeline_command(struct redis_pipeline *pipeline, struct err *err, const char *word, ...)
    __attribute__((sentinel));
/* Appends command `index` of from again, with replaced_n new words in place of its first ones. */
must_check int redis_pipeline_again(struct redis_pipeline *pipeline, const struct redis_pipeline *from, int index,
                                    const char *const *words, const size_t *word_bytes, int replaced_n,
                                    struct err *err);

/* Number of commands, of those that are answered, of bytes to send. */
int redis_pipeline_n(const struct redis_pipeline *pipeline);
int redis_pipeline_replied_n(const struct redis_pipeline *pipeline);
size_t redis_pipeline_bytes(const struct redis_pipeline *pipeline);

/* Sends what is not answered yet and collects one reply for each command; sending and reading take turns, so neither side can wait for the
 * other for ever.  On an error (ERR_RETRY: lost, out of time, stopped; no error reply is one) the connection is closed, and the replies that were
 * complete stay: the next exchange, on a new connection, sends the rest again. */
must_check int redis_exchange(struct redis *redis, struct redis_pipeline *pipeline, const struct net_wait *wait,
                              struct err *err);

/* The reply of a command; NULL while it has none.  Valid until the pipeline is reset. */
const struct redis_reply *redis_pipeline_reply(const struct redis_pipeline *pipeline, int index);

/* ---- replies */

enum redis_kind { REDIS_NIL, REDIS_INT, REDIS_TEXT, REDIS_STATUS, REDIS_ERROR, REDIS_LIST };

enum redis_kind redis_reply_kind(const struct redis_reply *reply);
/* Of TEXT, STATUS and ERROR; ends with a NUL that *bytes does not count. */
const char *redis_reply_text(const struct redis_reply *reply, size_t *bytes);
int64_t redis_reply_int(const struct redis_reply *reply);
/* Elements of a LIST; 0 for anything else. */
size_t redis_reply_n(const struct redis_reply *reply);
const struct redis_reply *redis_reply_at(const struct redis_reply *reply, size_t index);
/* Is it an error?  Then *err has it as redis_error_classify reads it, and *effects (NULL: not wanted) what that returns. */
bool redis_reply_is_error(const struct redis_reply *reply, unsigned *effects, struct err *err);

#endif
