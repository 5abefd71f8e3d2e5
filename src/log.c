/*
 * Writing events, one a line, to stderr.
 *
 * Owns the level, the format and the way to stderr, which are set before threads start.  Any thread may log; there is no lock: a line goes
 * out in one write of at most PIPE_BUF bytes, which the system does not mix with another's.  A longer event has its strings cut.
 * Never fails towards the caller: with no memory left a line goes out without its fields.  Never waits longer than STDERR_WAIT_MS for
 * whoever reads the log: what he does not take is lost, counted, and told when he reads again (docs/logging.md, "When nobody reads").
 */
#include "outboxd/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "outboxd/buf.h"
#include "outboxd/clock.h"

/* A line that does not fit is rendered again with strings (bytes) and lists (elements) cut to the next of these. */
static const size_t cuts[] = {SIZE_MAX, 512, 64};

/* How long a line waits for a stderr that is full.  After a line was lost the next ones do not wait, until one gets through. */
#define STDERR_WAIT_MS 1000

static enum log_level min_level = LOG_INFO;
static enum log_format format = LOG_JSON;

static int out_fd = STDERR_FILENO;
static bool is_socket;
static _Atomic bool is_over_line; /* a line of progress is on the terminal */
static bool has_priority;         /* lines begin with the syslog priority, for the journal */

static bool is_set_up; /* by log_setup */
static bool is_sunk;   /* by log_set_sink: lines go to sink and nowhere else */
static log_sink *sink;
static void *sink_ctx;

static _Atomic bool is_stuck;  /* the last line did not get through */
static _Atomic bool is_torn;   /* and had begun: the next one starts on a line of its own */
static _Atomic int64_t lost_n; /* lines, since the last that got through */

/* A standard descriptor that was closed at start would be given to the first socket, and the log would go to a server. */
static void fill_standard_fds(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      (void)open("/dev/null", O_RDWR); /* takes the lowest number that is free: this one */
    }
  }
}

/* Is stderr the stream that systemd has connected to the journal for this process?  See sd-daemon(3), $JOURNAL_STREAM. */
static bool is_journal(const struct stat *stat) {
  const char *text = getenv("JOURNAL_STREAM");
  char *end;
  if (text == NULL) {
    return false;
  }
  uintmax_t device = strtoumax(text, &end, 10);
  if (end == text || *end != ':') {
    return false;
  }
  const char *inode_text = end + 1;
  uintmax_t inode = strtoumax(inode_text, &end, 10);
  return end != inode_text && *end == '\0' && device == stat->st_dev && inode == stat->st_ino;
}

/* Opens the way to stderr.  A pipe or a terminal may be full for ever, and to make the descriptor itself non-blocking would make it so for all who
 * share it (the shell, for one): so it is opened a second time.  A file has to be written through the descriptor given, whose
 * position is shared, and never blocks; a socket cannot be opened, but takes a flag with each write. */
static void open_stderr(void) {
  struct stat stat;
  if (out_fd != STDERR_FILENO) {
    (void)close(out_fd);
    out_fd = STDERR_FILENO;
  }
  is_socket = false;
  has_priority = false;
  if (fstat(STDERR_FILENO, &stat) != 0) {
    return;
  }
  is_socket = S_ISSOCK(stat.st_mode);
  has_priority = is_journal(&stat);
  if (S_ISFIFO(stat.st_mode) || S_ISCHR(stat.st_mode)) {
    out_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (out_fd < 0) {
      out_fd = STDERR_FILENO; /* not ours to open: poll(2) before each write must do */
    }
  }
}

void log_set_over_line(bool is_over) {
  atomic_store(&is_over_line, is_over);
}

void log_set_sink(enum log_level level, log_sink *line_sink, void *ctx) {
  min_level = level;
  format = LOG_JSON;
  sink = line_sink;
  sink_ctx = ctx;
  is_sunk = true;
}

bool log_is_set_up(void) {
  return is_set_up || is_sunk;
}

void log_setup(enum log_level level, enum log_format line_format) {
  is_set_up = true;
  min_level = level;
  format = line_format;
  fill_standard_fds();
  open_stderr();
}

const char *log_level_name(enum log_level level) {
  switch (level) {
  case LOG_DEBUG:
    return "debug";
  case LOG_INFO:
    return "info";
  case LOG_WARNING:
    return "warning";
  case LOG_ERROR:
    return "error";
  case LOG_CRITICAL:
    return "critical";
  }
  return "unknown";
}

/* Length of the valid UTF-8 sequence at p, 0 when there is none (Unicode 15, table 3-7: no overlong form, no surrogate). */
static size_t utf8_len(const unsigned char *p) {
  if (p[0] < 0x80) {
    return 1;
  }
  size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4) {
    return 0;
  }
  unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
  unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
  if (p[1] < low || p[1] > high) {
    return 0;
  }
  for (size_t i = 2; i < n; i++) {
    if (p[i] < 0x80 || p[i] > 0xBF) {
      return 0;
    }
  }
  return n;
}

/* Appends text as valid UTF-8, at most cut bytes of it; what was invalid becomes U+FFFD, what was cut an ellipsis. */
static int append_utf8(struct buf *buf, const char *text, size_t cut) {
  const unsigned char *p = (const unsigned char *)text;
  size_t used = 0;
  while (*p != '\0') {
    size_t n = utf8_len(p);
    if (used + (n > 0 ? n : 1) > cut) {
      return buf_append_str(buf, "\xE2\x80\xA6", NULL);
    }
    used += n > 0 ? n : 1;
    if ((n > 0 ? buf_append(buf, p, n, NULL) : buf_append_str(buf, "\xEF\xBF\xBD", NULL)) != 0) {
      return -1;
    }
    p += n > 0 ? n : 1;
  }
  return 0;
}

static json_t *json_text(const char *text, size_t cut) {
  if (text == NULL) {
    return json_null();
  }
  struct buf buf = BUF_INIT;
  json_t *json = NULL;
  if (append_utf8(&buf, text, cut) == 0) {
    json = json_stringn(buf.data != NULL ? buf.data : "", buf.len);
  }
  buf_free(&buf);
  return json;
}

static json_t *json_value(const struct log_field *field, size_t cut) {
  switch (field->kind) {
  case LOG_F_STR:
    return json_text(field->u.str, cut);
  case LOG_F_INT:
    return json_integer(field->u.i);
  case LOG_F_REAL:
    /* JSON has no infinity and no NaN. */
    return isfinite(field->u.real) ? json_real(field->u.real) : json_null();
  case LOG_F_BOOL:
    return json_boolean(field->u.is_true);
  case LOG_F_INTS: {
    json_t *array = json_array();
    for (int i = 0; i < field->u.ints.n && (size_t)i < cut; i++) {
      if (json_array_append_new(array, json_integer(field->u.ints.v[i])) != 0) {
        json_decref(array);
        return NULL;
      }
    }
    return array;
  }
  case LOG_F_END:
    break;
  }
  return NULL;
}

/* Appends the event as one JSON object. */
static int render_json(struct buf *line, const char *ts, enum log_level level, const char *event, const char *message,
                       const struct log_field *fields, size_t cut) {
  int rc = -1;
  char *text = NULL;
  json_t *root = json_object();
  /* json_object_set_new takes the value over, and refuses NULL. */
  if (json_object_set_new(root, "ts", json_string(ts)) != 0 ||
      json_object_set_new(root, "level", json_string(log_level_name(level))) != 0 ||
      json_object_set_new(root, "event", json_text(event, cut)) != 0 ||
      json_object_set_new(root, "message", json_text(message, cut)) != 0) {
    goto out;
  }
  for (const struct log_field *field = fields; field != NULL && field->kind != LOG_F_END; field++) {
    if (json_object_set_new(root, field->name, json_value(field, cut)) != 0) {
      goto out;
    }
  }
  text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
  if (text == NULL) {
    goto out;
  }
  rc = buf_append_str(line, text, NULL);

out:
  free(text);
  json_decref(root);
  return rc;
}

/* Appends text in its valid form; with is_quoted between quotes, and always with control characters escaped. */
static int append_escaped(struct buf *line, const char *text, bool is_quoted, size_t cut) {
  struct buf valid = BUF_INIT;
  int rc = append_utf8(&valid, text, cut);
  if (rc == 0 && is_quoted) {
    rc = buf_append(line, "\"", 1, NULL);
  }
  for (size_t i = 0; rc == 0 && i < valid.len; i++) {
    unsigned char c = (unsigned char)valid.data[i];
    if (c == '\n') {
      rc = buf_append_str(line, "\\n", NULL);
    } else if (c < 0x20 || c == 0x7F) {
      rc = buf_printf(line, NULL, "\\u%04x", (unsigned)c);
    } else if (is_quoted && (c == '"' || c == '\\')) {
      rc = buf_printf(line, NULL, "\\%c", c);
    } else {
      rc = buf_append(line, &valid.data[i], 1, NULL);
    }
  }
  if (rc == 0 && is_quoted) {
    rc = buf_append(line, "\"", 1, NULL);
  }
  buf_free(&valid);
  return rc;
}

/* A value that a reader could not tell from what stands beside it. */
static bool needs_quotes(const char *text) {
  if (*text == '\0') {
    return true;
  }
  for (const char *p = text; *p != '\0'; p++) {
    if ((unsigned char)*p <= ' ' || *p == '"' || *p == '\\' || *p == '=' || *p == 0x7F) {
      return true;
    }
  }
  return false;
}

static int render_text_value(struct buf *line, const struct log_field *field, size_t cut) {
  switch (field->kind) {
  case LOG_F_STR:
    if (field->u.str == NULL) {
      return buf_append_str(line, "null", NULL);
    }
    return append_escaped(line, field->u.str, needs_quotes(field->u.str), cut);
  case LOG_F_INT:
    return buf_append_int(line, field->u.i, NULL);
  case LOG_F_REAL:
    return buf_printf(line, NULL, "%.9g", field->u.real);
  case LOG_F_BOOL:
    return buf_append_str(line, field->u.is_true ? "true" : "false", NULL);
  case LOG_F_INTS:
    for (int i = 0; i < field->u.ints.n && (size_t)i < cut; i++) {
      if ((i > 0 && buf_append(line, ",", 1, NULL) != 0) || buf_append_int(line, field->u.ints.v[i], NULL) != 0) {
        return -1;
      }
    }
    return 0;
  case LOG_F_END:
    break;
  }
  return -1;
}

/* Appends "TS LEVEL event message key=value ...". */
static int render_text(struct buf *line, const char *ts, enum log_level level, const char *event, const char *message,
                       const struct log_field *fields, size_t cut) {
  static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"};
  if (buf_printf(line, NULL, "%s %s %s ", ts, names[level], event) != 0 ||
      append_escaped(line, message, false, cut) != 0) {
    return -1;
  }
  for (const struct log_field *field = fields; field != NULL && field->kind != LOG_F_END; field++) {
    if (buf_printf(line, NULL, " %s=", field->name) != 0 || render_text_value(line, field, cut) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Waits until stderr takes bytes.  False when it does not in time. */
static bool wait_writable(int64_t deadline_us) {
  for (;;) {
    struct pollfd pollfd = {.fd = out_fd, .events = POLLOUT};
    int n = poll(&pollfd, 1, clock_poll_timeout_ms(deadline_us, clock_now_us()));
    if (n >= 0 || errno != EINTR) {
      return n != 0; /* an error shows at the write */
    }
  }
}

/* Writes the bytes of one line; false when they did not all get through. */
static bool write_line(const char *bytes, size_t n) {
  int64_t deadline_us = atomic_load(&is_stuck) ? 0 : clock_now_us() + STDERR_WAIT_MS * INT64_C(1000);
  size_t done = 0;
  while (done < n && wait_writable(deadline_us)) {
    ssize_t written = is_socket ? send(out_fd, bytes + done, n - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : write(out_fd, bytes + done, n - done);
    if (written > 0) {
      done += (size_t)written;
    } else if (written == 0 || (errno != EAGAIN && errno != EINTR)) {
      break; /* nobody is there, or the disk is full */
    }
  }
  atomic_store(&is_stuck, done < n);
  if (done > 0 && done < n) {
    atomic_store(&is_torn, true);
  }
  return done == n;
}

#define START_BYTES 16

/* What stands before a line. */
static void format_start(char out[START_BYTES], enum log_level level, bool has_newline) {
  static const int priorities[] = {7, 6, 4, 3,
                                   2}; /* LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERR, LOG_CRIT of syslog(3) */
  (void)snprintf(out, START_BYTES, has_priority ? "%s%s<%d>" : "%s%s", has_newline ? "\n" : "",
                 atomic_load(&is_over_line) ? "\r\033[K" : "", priorities[level]);
}

/* Renders and writes one event; false when it did not get through. */
static bool write_event(enum log_level level, const char *event, const char *message, const struct log_field *fields) {
  char ts[CLOCK_RFC3339_BYTES];
  struct buf line = BUF_INIT;
  char start[START_BYTES];
  bool is_written = false;
  if (is_sunk && sink == NULL) {
    return true;
  }
  format_start(start, level, atomic_exchange(&is_torn, false));
  (void)clock_format_rfc3339(clock_wall_us(), ts);
  for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
    buf_reset(&line);
    int rc = buf_append_str(&line, start, NULL);
    if (rc == 0) {
      rc = format == LOG_JSON ? render_json(&line, ts, level, event, message, fields, cuts[i])
                              : render_text(&line, ts, level, event, message, fields, cuts[i]);
    }
    if (rc == 0 && line.len < PIPE_BUF && is_sunk) {
      sink(sink_ctx, level, line.data, line.len);
      is_written = true;
      goto out;
    }
    if (rc == 0 && line.len < PIPE_BUF && buf_append(&line, "\n", 1, NULL) == 0) {
      is_written = write_line(line.data, line.len);
      goto out;
    }
  }

  /* Out of memory, or more fields than fit: the event at least.  Its name is ours and needs no escaping. */
  char bare[256];
  int len = snprintf(bare, sizeof bare,
                     format == LOG_JSON
                         ? "%s{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"%.80s\",\"message\":\"fields left out\"}\n"
                         : "%s%s %s %.80s fields left out\n",
                     start, ts, log_level_name(level), event);
  if (is_sunk) {
    sink(sink_ctx, level, bare, (size_t)len - 1);
  } else {
    is_written = write_line(bare, (size_t)len);
  }

out:
  buf_free(&line);
  return is_written;
}

void log_write(enum log_level level, const char *event, const char *message, const struct log_field *fields) {
  if (level < min_level) {
    return;
  }
  int errnum = errno; /* callers log between a failed call and the use of its errno */
  if (!write_event(level, event, message, fields)) {
    atomic_fetch_add(&lost_n, 1);
  } else if (atomic_load(&lost_n) > 0 && min_level <= LOG_WARNING) {
    int64_t lost = atomic_exchange(&lost_n, 0);
    if (lost > 0 && !write_event(LOG_WARNING, "log_lines_lost", "log lines were lost because stderr did not take them",
                                 (const struct log_field[]){LOG_INT("lines", lost), {.kind = LOG_F_END}})) {
      atomic_fetch_add(&lost_n, lost);
    }
  }
  errno = errnum;
}

bool log_limit_pass(struct log_limit *limit, int64_t *held_back) {
  int64_t now_us = clock_now_us();
  int64_t next_us = atomic_load(&limit->next_us);
  /* Of several threads that find the time come, the one that moves it on may write. */
  if (now_us < next_us || !atomic_compare_exchange_strong(&limit->next_us, &next_us, now_us + limit->interval_us)) {
    atomic_fetch_add(&limit->held_back, 1);
    return false;
  }
  *held_back = atomic_exchange(&limit->held_back, 0);
  return true;
}
