/*
 * The log: one event a line, written whole to stderr, JSON or text.
 *
 * Owns: the format and the level (set once before threads start).  Any thread may log.
 * Never: payloads, passwords.  Never called under a mutex.  Never keeps its caller for longer than a second, however long nobody reads the log.
 * Every event is listed in docs/logging.md; scripts/check-log-events.sh compares.
 */
#ifndef OUTBOXD_LOG_H
#define OUTBOXD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR, LOG_CRITICAL };
enum log_format { LOG_JSON, LOG_TEXT };

/* One field of an event.  Made with the macros below; strings are borrowed for the call. */
struct log_field {
  const char *name; /* snake_case with its unit at the end: oldest_pending_seconds */
  enum { LOG_F_END, LOG_F_STR, LOG_F_INT, LOG_F_REAL, LOG_F_BOOL, LOG_F_INTS } kind;
  union {
    const char *str;
    int64_t i;
    double real;
    bool is_true;
    struct {
      const int64_t *v;
      int n;
    } ints;
  } u;
};

#define LOG_STR(n_, v_) ((struct log_field){.name = (n_), .kind = LOG_F_STR, .u.str = (v_)})
#define LOG_INT(n_, v_) ((struct log_field){.name = (n_), .kind = LOG_F_INT, .u.i = (int64_t)(v_)})
#define LOG_REAL(n_, v_) ((struct log_field){.name = (n_), .kind = LOG_F_REAL, .u.real = (v_)})
#define LOG_BOOL(n_, v_) ((struct log_field){.name = (n_), .kind = LOG_F_BOOL, .u.is_true = (v_)})
#define LOG_INTS(n_, v_, count_) ((struct log_field){.name = (n_), .kind = LOG_F_INTS, .u.ints = {(v_), (count_)}})

/* Before the first thread and the first socket: opens the way to stderr, and gives standard descriptors that were closed to /dev/null.  When stderr
 * is the journal ($JOURNAL_STREAM), lines begin with their syslog priority ("<3>"), which the journal takes off. */
void log_setup(enum log_level min_level, enum log_format format);

/* While a line of progress stands on the terminal: log lines wipe it first, in the same write.  Any thread. */
void log_set_over_line(bool is_over_line);

/* Instead of log_setup, in a library: lines of JSON go to sink (NULL: nowhere), without a line break.  log_is_set_up: was either called? */
typedef void log_sink(void *ctx, enum log_level level, const char *line, size_t bytes);
void log_set_sink(enum log_level min_level, log_sink *sink, void *ctx);
bool log_is_set_up(void);

/* Writes one event.  event is the stable name users alert from; message a sentence for a person;
 * fields ends with a LOG_F_END element (or is NULL).  Use the macro log_event.
 * Invalid UTF-8 in a string is replaced, never dropped with the line. */
void log_write(enum log_level level, const char *event, const char *message, const struct log_field *fields);

/* log_event(LOG_INFO, "relay_started", "the relay runs", LOG_INT("lanes", 16)); takes at least one field, no LOG_F_END. */
#define log_event(level_, event_, message_, ...) \
  log_write((level_), (event_), (message_), (const struct log_field[]){__VA_ARGS__, {.kind = LOG_F_END}})

/* Limits repeats of one kind of line: at most one each interval_us.  One per place, zero-initialised with its interval;
 * safe for any thread. */
struct log_limit {
  int64_t interval_us;
  _Atomic int64_t next_us;   /* when the next line may be written */
  _Atomic int64_t held_back; /* lines not written since the last one */
};
/* True when a line may be written now; *held_back then gets the number not written since the last. */
bool log_limit_pass(struct log_limit *limit, int64_t *held_back);

const char *log_level_name(enum log_level level);

#endif
