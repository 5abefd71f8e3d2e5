/*
 * Redis helpers for tests: see rds.h.
 */
#include "rds.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "outboxd/err.h"
#include "outboxd/url.h"

static redisContext *connect_url(const struct url *url) {
  struct timeval timeout = {.tv_sec = 60, .tv_usec = 0};
  return url->path != NULL ? redisConnectUnixWithTimeout(url->path, timeout)
                           : redisConnectWithTimeout(url->host, url->port, timeout);
}

/* Runs one command of the login; false on any error. */
static bool login_step(redisContext *redis, int argc, const char **argv) {
  redisReply *reply = redisCommandArgv(redis, argc, argv, NULL);
  bool is_ok = reply != NULL && reply->type != REDIS_REPLY_ERROR;
  if (reply != NULL) {
    freeReplyObject(reply);
  }
  return is_ok;
}

static bool login(redisContext *redis, const struct url *url) {
  char db[16];

  if (url->user != NULL && url->password != NULL) {
    if (!login_step(redis, 3, (const char *[]){"AUTH", url->user, url->password})) {
      return false;
    }
  } else if (url->password != NULL) {
    if (!login_step(redis, 2, (const char *[]){"AUTH", url->password})) {
      return false;
    }
  }
  snprintf(db, sizeof db, "%d", url->db);
  if (url->db != 0 && !login_step(redis, 2, (const char *[]){"SELECT", db})) {
    return false;
  }
  return login_step(redis, 1, (const char *[]){"PING"});
}

redisContext *rds_try_open(const char *url_text) {
  struct err err = ERR_INIT;
  struct url url = {0};
  redisContext *redis;

  if (url_parse(url_text, &url, &err) != 0) {
    FAIL("%s", err.text);
  }
  redis = connect_url(&url);
  if (redis != NULL && (redis->err != 0 || !login(redis, &url))) {
    redisFree(redis);
    redis = NULL;
  }
  url_fini(&url);
  /* The default keeps the read buffer small and allocates it anew for every large reply. */
  if (redis != NULL) {
    redis->reader->maxbuf = 0;
  }
  return redis;
}

redisContext *rds_open(const char *url_text) {
  redisContext *redis = rds_try_open(url_text);
  if (redis == NULL) {
    FAIL("cannot connect to Redis");
  }
  return redis;
}

static redisReply *vcmd(redisContext *redis, const char *fmt, va_list args) {
  redisReply *reply = redisvCommand(redis, fmt, args);
  if (reply == NULL) {
    FAIL("Redis, %s: %s", fmt, redis->errstr);
  }
  if (reply->type == REDIS_REPLY_ERROR) {
    FAIL("Redis, %s: %s", fmt, reply->str);
  }
  return reply;
}

redisReply *rds_cmd(redisContext *redis, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  redisReply *reply = vcmd(redis, fmt, args);
  va_end(args);
  return reply;
}

long long rds_int(redisContext *redis, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  redisReply *reply = vcmd(redis, fmt, args);
  va_end(args);
  REQUIRE(reply->type == REDIS_REPLY_INTEGER, "Redis, %s: the reply is no integer", fmt);
  long long value = reply->integer;
  freeReplyObject(reply);
  return value;
}

void rds_run(redisContext *redis, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  redisReply *reply = vcmd(redis, fmt, args);
  va_end(args);
  freeReplyObject(reply);
}

#define XADD_FIELDS_MAX 16

char *rds_xadd(redisContext *redis, const char *stream, const char *id, int fields_n, const char *const *names,
               const char *const *values, const size_t *value_bytes) {
  const char *argv[3 + 2 * XADD_FIELDS_MAX] = {"XADD", stream, id};
  size_t bytes[3 + 2 * XADD_FIELDS_MAX] = {4, strlen(stream), strlen(id)};
  redisReply *reply;
  char *added;
  int n = 3;

  REQUIRE(fields_n <= XADD_FIELDS_MAX, "too many fields");
  for (int i = 0; i < fields_n; i++) {
    argv[n] = names[i];
    bytes[n++] = strlen(names[i]);
    argv[n] = values[i];
    bytes[n++] = value_bytes != NULL ? value_bytes[i] : strlen(values[i]);
  }
  reply = redisCommandArgv(redis, n, argv, bytes);
  if (reply == NULL) {
    FAIL("Redis, XADD: %s", redis->errstr);
  }
  if (reply->type == REDIS_REPLY_ERROR) {
    FAIL("Redis, XADD: %s", reply->str);
  }
  added = strdup(reply->str);
  freeReplyObject(reply);
  REQUIRE(added != NULL, "out of memory");
  return added;
}
