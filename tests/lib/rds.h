/*
 * Small Redis helpers for tests: every one fails the test on an error, and says which command it was.  Blocking.
 */
#ifndef TEST_RDS_H
#define TEST_RDS_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* Opens a URL (as outboxd takes it: redis://..., unix://...), authenticates, selects.  Caller: redisFree. */
redisContext *rds_open(const char *url_text);

/* The same, but returns NULL when nothing usable answers yet (refused, loading). */
redisContext *rds_try_open(const char *url_text);

/* One command in hiredis's format (%s, %b, %d, %lld); an error reply fails the test.  Caller: freeReplyObject. */
redisReply *rds_cmd(redisContext *redis, const char *fmt, ...);

/* The same for an integer reply, and for one whose content does not matter. */
long long rds_int(redisContext *redis, const char *fmt, ...);
void rds_run(redisContext *redis, const char *fmt, ...);

/* Appends all fields of an entry to stream, "*" for an id of the server's; argv form, for any bytes.  Returns the id; caller frees. */
char *rds_xadd(redisContext *redis, const char *stream, const char *id, int fields_n, const char *const *names,
               const char *const *values, const size_t *value_bytes);

#endif
