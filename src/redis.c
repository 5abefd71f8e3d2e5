/*
 * Connection, pipeline and replies.
 *
 * Owns the socket, the reply reader and the replies.  Runs on the thread that has the connection.  Never logs, never retries by itself.
 */
#include "outboxd/redis.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "outboxd/buf.h"
#include "outboxd/redis_error.h"

#define READ_BYTES (64 * 1024)
#define CLIENT_NAME "outboxd"

/* What bytes go through: plain sockets now, TLS later.  Both calls behave as recv and send on a non-blocking socket: -1 with EAGAIN means
 * "wait for *events first". */
struct transport {
  ssize_t (*read)(struct redis *redis, void *bytes, size_t n, short *events);
  ssize_t (*write)(struct redis *redis, const void *bytes, size_t n, short *events);
};

struct redis {
  const struct url *url;
  const struct transport *transport;
  int64_t idle_ms;
  int fd;                /* -1: closed */
  int64_t connection_no; /* counts redis_open, so that a pipeline notices a new one */
  bool has_been_open;
  redisReader *reader;
  char read_buf[READ_BYTES];
};

struct redis_pipeline {
  struct buf buf;
  int n;
  int size;
  struct command {
    size_t from; /* offset of its first byte */
    redisReply *reply;
  } * commands;
  int replied_n;
  size_t sent_bytes;
  int64_t connection_no; /* the connection that sent_bytes is about */
};

/* ---- transport */

static ssize_t plain_read(struct redis *redis, void *bytes, size_t n, short *events) {
  *events = POLLIN;
  return recv(redis->fd, bytes, n, 0);
}

static ssize_t plain_write(struct redis *redis, const void *bytes, size_t n, short *events) {
  *events = POLLOUT;
  return send(redis->fd, bytes, n, MSG_NOSIGNAL);
}

static const struct transport plain_transport = {plain_read, plain_write};

/* ---- connection */

int redis_new(const struct url *url, int64_t idle_ms, struct redis **out, struct err *err) {
  struct redis *redis = calloc(1, sizeof *redis);
  if (redis == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "redis connection");
  }
  redis->url = url;
  redis->transport = &plain_transport;
  redis->idle_ms = idle_ms;
  redis->fd = -1;
  *out = redis;
  return 0;
}

void redis_free(struct redis *redis) {
  if (redis == NULL) {
    return;
  }
  redis_close(redis);
  free(redis);
}

bool redis_is_open(const struct redis *redis) {
  return redis->fd >= 0;
}

void redis_close(struct redis *redis) {
  if (redis->fd >= 0) {
    (void)close(redis->fd);
    redis->fd = -1;
  }
  if (redis->reader != NULL) {
    redisReaderFree(redis->reader);
    redis->reader = NULL;
  }
}

/* The errors of one reply of the handshake. */
static int check_greeting(const struct redis *redis, const struct redis_reply *reply, const char *what,
                          struct err *err) {
  unsigned effects = 0;
  if (!redis_reply_is_error(reply, &effects, err)) {
    return 0;
  }
  bool is_access = (effects & REDIS_EFFECT_ACCESS) != 0 || err->class == ERR_REJECT;
  err->class = is_access && !redis->has_been_open ? ERR_FATAL : ERR_RETRY;
  return err_wrap(err, "%s", what);
}

static int greet(struct redis *redis, const struct net_wait *wait, struct err *err) {
  const struct url *url = redis->url;
  struct redis_pipeline *pipeline = NULL;
  int rc = -1;
  int auth = -1;
  int select = -1;
  int name = -1;
  if (redis_pipeline_new(&pipeline, err) != 0) {
    goto out;
  }
  if (url->password != NULL || url->user != NULL) {
    const char *password = url->password != NULL ? url->password : "";
    auth = redis_pipeline_n(pipeline);
    int sent = url->user != NULL ? redis_pipeline_command(pipeline, err, "AUTH", url->user, password, NULL)
                                 : redis_pipeline_command(pipeline, err, "AUTH", password, NULL);
    if (sent != 0) {
      goto out;
    }
  }
  select = redis_pipeline_n(pipeline);
  if (redis_pipeline_begin(pipeline, 2, err) != 0 || redis_pipeline_arg(pipeline, "SELECT", 6, err) != 0 ||
      redis_pipeline_arg_int(pipeline, url->db, err) != 0) {
    goto out;
  }
  name = redis_pipeline_n(pipeline);
  if (redis_pipeline_command(pipeline, err, "CLIENT", "SETNAME", CLIENT_NAME, NULL) != 0 ||
      redis_exchange(redis, pipeline, wait, err) != 0) {
    goto out;
  }
  if (auth >= 0 && check_greeting(redis, redis_pipeline_reply(pipeline, auth), "AUTH", err) != 0) {
    goto out;
  }
  /* Database 0 needs no SELECT, and then an ACL need not allow it; but NOAUTH and its like show here. */
  const struct redis_reply *selected = redis_pipeline_reply(pipeline, select);
  if (check_greeting(redis, selected, "SELECT", err) != 0) {
    if (url->db != 0 || strcmp(err->code, "NOPERM") != 0) {
      goto out;
    }
  }
  /* A name is a convenience: what an ACL says about it does not matter. */
  if (check_greeting(redis, redis_pipeline_reply(pipeline, name), "CLIENT SETNAME", err) != 0 &&
      strcmp(err->code, "NOPERM") != 0 && strcmp(err->code, "ERR") != 0) {
    goto out;
  }
  err_clear(err);
  rc = 0;
out:
  redis_pipeline_free(pipeline);
  return rc;
}

int redis_open(struct redis *redis, const struct net_wait *wait, struct err *err) {
  redis_close(redis);
  if (net_connect(redis->url->host, redis->url->port, redis->url->path, redis->idle_ms, wait, &redis->fd, err) != 0) {
    return -1;
  }
  redis->connection_no++;
  redis->reader = redisReaderCreate();
  if (redis->reader == NULL) {
    (void)err_errno(err, ERR_RETRY, ENOMEM, "reply reader");
    goto fail;
  }
  if (greet(redis, wait, err) != 0) {
    goto fail;
  }
  redis->has_been_open = true;
  return 0;
fail:
  redis_close(redis);
  return -1;
}

/* ---- pipeline */

int redis_pipeline_new(struct redis_pipeline **out, struct err *err) {
  struct redis_pipeline *pipeline = calloc(1, sizeof *pipeline);
  if (pipeline == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "pipeline");
  }
  *out = pipeline;
  return 0;
}

void redis_pipeline_free(struct redis_pipeline *pipeline) {
  if (pipeline == NULL) {
    return;
  }
  redis_pipeline_reset(pipeline, 0);
  buf_free(&pipeline->buf);
  free(pipeline->commands);
  free(pipeline);
}

void redis_pipeline_reset(struct redis_pipeline *pipeline, size_t keep_bytes) {
  for (int i = 0; i < pipeline->n; i++) {
    if (pipeline->commands[i].reply != NULL) {
      freeReplyObject(pipeline->commands[i].reply);
    }
  }
  pipeline->n = 0;
  pipeline->replied_n = 0;
  pipeline->sent_bytes = 0;
  pipeline->connection_no = 0;
  if (pipeline->buf.size > keep_bytes) {
    buf_free(&pipeline->buf);
  } else {
    buf_reset(&pipeline->buf);
  }
}

int redis_pipeline_n(const struct redis_pipeline *pipeline) {
  return pipeline->n;
}

int redis_pipeline_replied_n(const struct redis_pipeline *pipeline) {
  return pipeline->replied_n;
}

size_t redis_pipeline_bytes(const struct redis_pipeline *pipeline) {
  return pipeline->buf.len;
}

#define HEAD_BYTES 24 /* a type byte, 20 digits, CR LF */

/* Writes "<type><value>\r\n" and returns its length.  By hand: this runs for every field of every message. */
static size_t write_head(char out[HEAD_BYTES], char type, size_t value) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  size_t digits_n = sizeof digits - at;
  out[0] = type;
  memcpy(out + 1, digits + at, digits_n);
  out[1 + digits_n] = '\r';
  out[2 + digits_n] = '\n';
  return digits_n + 3;
}

int redis_pipeline_begin(struct redis_pipeline *pipeline, int args_n, struct err *err) {
  if (pipeline->n == pipeline->size) {
    int size = pipeline->size == 0 ? 32 : pipeline->size * 2;
    struct command *commands = realloc(pipeline->commands, (size_t)size * sizeof *commands);
    if (commands == NULL) {
      return err_errno(err, ERR_RETRY, ENOMEM, "pipeline");
    }
    pipeline->commands = commands;
    pipeline->size = size;
  }
  char head[HEAD_BYTES];
  size_t head_bytes = write_head(head, '*', (size_t)args_n);
  size_t from = pipeline->buf.len;
  if (buf_append(&pipeline->buf, head, head_bytes, err) != 0) {
    return -1;
  }
  pipeline->commands[pipeline->n++] = (struct command){.from = from, .reply = NULL};
  return 0;
}

int redis_pipeline_arg(struct redis_pipeline *pipeline, const void *bytes, size_t n, struct err *err) {
  struct buf *buf = &pipeline->buf;
  if (n > SIZE_MAX / 4 || buf_reserve(buf, n + HEAD_BYTES + 2, err) != 0) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a command");
  }
  char *at = buf->data + buf->len;
  at += write_head(at, '$', n);
  if (n > 0) {
    memcpy(at, bytes, n);
    at += n;
  }
  *at++ = '\r';
  *at++ = '\n';
  *at = '\0';
  buf->len = (size_t)(at - buf->data);
  return 0;
}

int redis_pipeline_arg_int(struct redis_pipeline *pipeline, int64_t value, struct err *err) {
  char bytes[32];
  char *at = bytes + sizeof bytes;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    *--at = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (value < 0) {
    *--at = '-';
  }
  return redis_pipeline_arg(pipeline, at, (size_t)(bytes + sizeof bytes - at), err);
}

int redis_pipeline_command(struct redis_pipeline *pipeline, struct err *err, const char *word, ...) {
  int args_n = 0;
  va_list args;
  va_start(args, word);
  for (const char *w = word; w != NULL; w = va_arg(args, const char *)) {
    args_n++;
  }
  va_end(args);
  int rc = redis_pipeline_begin(pipeline, args_n, err);
  va_start(args, word);
  for (const char *w = word; w != NULL && rc == 0; w = va_arg(args, const char *)) {
    rc = redis_pipeline_arg(pipeline, w, strlen(w), err);
  }
  va_end(args);
  return rc;
}

/* Offset behind the head at `at`; *value gets its number.  The bytes are our own, so they are well-formed. */
static size_t skip_head(const struct buf *buf, size_t at, size_t *value) {
  *value = 0;
  for (at++; buf->data[at] != '\r'; at++) {
    *value = *value * 10 + (size_t)(buf->data[at] - '0');
  }
  return at + 2;
}

int redis_pipeline_again(struct redis_pipeline *pipeline, const struct redis_pipeline *from, int index,
                         const char *const *words, const size_t *word_bytes, int replaced_n, struct err *err) {
  size_t end = index + 1 < from->n ? from->commands[index + 1].from : from->buf.len;
  size_t args_n;
  size_t at = skip_head(&from->buf, from->commands[index].from, &args_n);
  if (redis_pipeline_begin(pipeline, (int)args_n, err) != 0) {
    return -1;
  }
  for (int i = 0; i < replaced_n; i++) {
    size_t bytes;
    at = skip_head(&from->buf, at, &bytes) + bytes + 2;
    if (redis_pipeline_arg(pipeline, words[i], word_bytes[i], err) != 0) {
      return -1;
    }
  }
  return buf_append(&pipeline->buf, from->buf.data + at, end - at, err);
}

/* ---- exchange */

/* Sends what it can without waiting.  *events gets what to wait for when something is left. */
static int send_some(struct redis *redis, struct redis_pipeline *pipeline, short *events, struct err *err) {
  while (pipeline->sent_bytes < pipeline->buf.len) {
    ssize_t n = redis->transport->write(redis, pipeline->buf.data + pipeline->sent_bytes,
                                        pipeline->buf.len - pipeline->sent_bytes, events);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : err_errno(err, ERR_RETRY, errno, "writing to Redis");
    }
    pipeline->sent_bytes += (size_t)n;
  }
  return 0;
}

/* Takes the replies that are complete in the reader. */
static int take_replies(struct redis *redis, struct redis_pipeline *pipeline, struct err *err) {
  for (;;) {
    void *reply = NULL;
    if (redisReaderGetReply(redis->reader, &reply) != REDIS_OK) {
      return err_set(err, ERR_RETRY, "EPROTO", "Redis answered something that is not its protocol: %s",
                     redis->reader->errstr);
    }
    if (reply == NULL) {
      return 0;
    }
    if (pipeline->replied_n == pipeline->n) {
      freeReplyObject(reply);
      return err_set(err, ERR_RETRY, "EPROTO", "Redis answered more than it was asked");
    }
    pipeline->commands[pipeline->replied_n++].reply = reply;
  }
}

/* Reads what is there without waiting. */
static int read_some(struct redis *redis, struct redis_pipeline *pipeline, short *events, struct err *err) {
  while (pipeline->replied_n < pipeline->n) {
    ssize_t n = redis->transport->read(redis, redis->read_buf, sizeof redis->read_buf, events);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : err_errno(err, ERR_RETRY, errno, "reading from Redis");
    }
    if (n == 0) {
      return err_set(err, ERR_RETRY, "ECONNRESET", "Redis closed the connection");
    }
    if (redisReaderFeed(redis->reader, redis->read_buf, (size_t)n) != REDIS_OK) {
      return err_set(err, ERR_RETRY, "ENOMEM", "reply reader: %s", redis->reader->errstr);
    }
    if (take_replies(redis, pipeline, err) != 0) {
      return -1;
    }
  }
  return 0;
}

int redis_exchange(struct redis *redis, struct redis_pipeline *pipeline, const struct net_wait *wait, struct err *err) {
  if (pipeline->replied_n == pipeline->n) {
    return 0;
  }
  if (redis->fd < 0) {
    return err_set(err, ERR_RETRY, "ENOTCONN", "no connection to Redis");
  }
  if (pipeline->connection_no != redis->connection_no) {
    pipeline->connection_no = redis->connection_no;
    pipeline->sent_bytes = pipeline->commands[pipeline->replied_n].from;
  }
  for (;;) {
    short write_events = 0;
    short read_events = 0;
    /* A server that closes with a last word (too many clients, a protocol error) is heard although writing failed. */
    int sent = send_some(redis, pipeline, &write_events, err);
    struct err read_err = ERR_INIT;
    if (read_some(redis, pipeline, &read_events, &read_err) != 0) {
      if (sent == 0) {
        *err = read_err;
      }
      break;
    }
    if (pipeline->replied_n == pipeline->n) {
      return 0;
    }
    if (sent != 0) {
      break;
    }
    short events = (short)(read_events | (pipeline->sent_bytes < pipeline->buf.len ? write_events : 0));
    if (net_poll(redis->fd, events, wait, err) != 0) {
      break;
    }
  }
  redis_close(redis);
  return -1;
}

/* ---- replies: struct redis_reply is hiredis's under another name */

static const redisReply *raw(const struct redis_reply *reply) {
  return (const void *)reply;
}

const struct redis_reply *redis_pipeline_reply(const struct redis_pipeline *pipeline, int index) {
  return (const void *)pipeline->commands[index].reply;
}

enum redis_kind redis_reply_kind(const struct redis_reply *reply) {
  switch (raw(reply)->type) {
  case REDIS_REPLY_STRING:
    return REDIS_TEXT;
  case REDIS_REPLY_ARRAY:
    return REDIS_LIST;
  case REDIS_REPLY_INTEGER:
    return REDIS_INT;
  case REDIS_REPLY_STATUS:
    return REDIS_STATUS;
  case REDIS_REPLY_ERROR:
    return REDIS_ERROR;
  default:
    return REDIS_NIL;
  }
}

const char *redis_reply_text(const struct redis_reply *reply, size_t *bytes) {
  const redisReply *r = raw(reply);
  bool has_text = r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS || r->type == REDIS_REPLY_ERROR;
  *bytes = has_text ? (size_t)r->len : 0;
  return has_text ? r->str : "";
}

int64_t redis_reply_int(const struct redis_reply *reply) {
  return raw(reply)->type == REDIS_REPLY_INTEGER ? raw(reply)->integer : 0;
}

size_t redis_reply_n(const struct redis_reply *reply) {
  return raw(reply)->type == REDIS_REPLY_ARRAY ? (size_t)raw(reply)->elements : 0;
}

const struct redis_reply *redis_reply_at(const struct redis_reply *reply, size_t index) {
  return (const void *)raw(reply)->element[index];
}

bool redis_reply_is_error(const struct redis_reply *reply, unsigned *effects, struct err *err) {
  if (redis_reply_kind(reply) != REDIS_ERROR) {
    return false;
  }
  size_t bytes;
  const char *text = redis_reply_text(reply, &bytes);
  unsigned found = redis_error_classify(text, bytes, err);
  if (effects != NULL) {
    *effects = found;
  }
  return true;
}
