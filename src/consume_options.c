/*
 * The table of a consumer's options.
 *
 * Owns the table.  Main thread only, before any other exists.
 */
#include <assert.h>
#include <stddef.h>

#include "outboxd/consume_cfg.h"

#define BOTH (1u << CONSUME_LIBRARY | 1u << CONSUME_PROGRAM)
#define PROGRAM (1u << CONSUME_PROGRAM)

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)

static const char *const on_parked_choices[] = {"skip", "block", NULL};
static const char *const log_level_choices[] = {"debug", "info", "warning", "error", "critical", NULL};
static const char *const log_format_choices[] = {"json", "text", NULL};

static_assert(sizeof(enum consume_on_parked) == sizeof(unsigned), "enum consume_on_parked");
static_assert(CONSUME_ON_PARKED_SKIP == 0 && CONSUME_ON_PARKED_BLOCK == 1, "order of the choices");

/* The offset of a field, which must have the type the row stores. */
#define AT(type_, member_) \
  (offsetof(struct consume_cfg, member_) + 0 * sizeof(&((struct consume_cfg *)0)->member_ == (type_ *)0))

#define STRING(name_, argument_, default_, min_, field_, for_, env_, help_) \
  { name_, OPTION_STRING, argument_, default_, min_, 0, NULL, AT(char *, field_), for_, env_, help_, NULL }
#define INT(name_, default_, min_, max_, field_, for_, help_) \
  { name_, OPTION_INT, "N", default_, min_, max_, NULL, AT(int, field_), for_, NULL, help_, NULL }
#define TIME(name_, default_, min_, max_, field_, for_, help_) \
  { name_, OPTION_DURATION, "TIME", default_, min_, max_, NULL, AT(int64_t, field_), for_, NULL, help_, NULL }
#define FLAG(name_, field_, for_, help_) \
  { name_, OPTION_FLAG, NULL, NULL, 0, 0, NULL, AT(bool, field_), for_, NULL, help_, NULL }
#define CHOICE(name_, argument_, default_, choices_, type_, field_, for_, help_) \
  { name_, OPTION_CHOICE, argument_, default_, 0, 0, choices_, AT(type_, field_), for_, NULL, help_, NULL }

static const struct option_row rows[] = {
    STRING("database", "CONNINFO", "", 0, database, BOTH, "DATABASE_URL",
           "PostgreSQL, as a libpq connection string or URI; without it libpq's PG* variables hold"),
    STRING("redis", "URL", "redis://127.0.0.1:6379", 1, redis, BOTH, "REDIS_URL",
           "Redis, as redis://[user:password@]host[:port][/db] or unix:///path"),
    STRING("stream", "TEMPLATE", "outbox:{%l}", 1, stream, BOTH, NULL,
           "name of the streams, as the relay has it: %l lane, %t aggregate_type, %i aggregate_id, %e event_type"),
    INT("lanes", "16", 1, 1024, lanes_n, BOTH, "number of lanes, as the relay has it"),
    STRING("group", "NAME", NULL, 1, group, BOTH, NULL,
           "the consumer group, and the name under which processed_messages knows it; each group sees every message"),
    STRING("processed-table", "NAME", "processed_messages", 1, processed_table, BOTH, NULL,
           "table of the messages handled; may be schema-qualified and quoted"),
    INT("threads", "1", 1, 64, threads_n, BOTH,
        "workers: each has a session, a connection and, with --exec, a handler of its own; the lanes are shared among "
        "all workers of the group, wherever they run"),
    INT("batch", "100", 1, 10000, batch_n, BOTH, "most entries of a lane that are read at a time"),
    INT("max-attempts", "10", 1, 32767, max_attempts_n, BOTH, "attempts after which a message is parked"),
    TIME("retry-after", "1s", 1, HOUR_MS, retry_first_ms, BOTH,
         "pause before the second attempt; it doubles with each one more"),
    TIME("retry-max", "1m", 1, DAY_MS, retry_max_ms, BOTH, "longest pause between two attempts"),
    CHOICE("on-parked", "skip|block", "skip", on_parked_choices, enum consume_on_parked, on_parked, BOTH,
           "after a parked message, let later ones of its aggregate be handled (skip) or wait until its entry is "
           "deleted (block)"),
    INT("max-waiting", "5000", 1, 1000000, max_waiting_n, BOTH,
        "messages of a lane that may wait behind failed ones; then no more are read of it"),
    TIME("poll-interval", "100ms", 1, MINUTE_MS, poll_interval_ms, BOTH,
         "pause between looks for new entries, where a lane has more than one stream"),
    TIME("redis-timeout", "5s", 100, HOUR_MS, redis_timeout_ms, BOTH, "longest wait for an answer of Redis"),
    TIME("session-timeout", "1m", SECOND_MS, DAY_MS, session_timeout_ms, BOTH,
         "PostgreSQL ends the session of a worker that hangs for longer, and its lanes go to others"),
    TIME("shutdown-timeout", "30s", 100, HOUR_MS, shutdown_timeout_ms, BOTH,
         "longest time to finish the messages in hand after SIGTERM or SIGINT"),
    TIME("stats-every", "60s", 100, DAY_MS, stats_every_ms, BOTH, "pause between two lines of figures in the log"),
    STRING(
        "exec", "COMMAND", NULL, 1, exec, PROGRAM, NULL,
        "the handler: a command for /bin/sh, kept running, that is given a JSON line a message and answers each with "
        "a line"),
    TIME("handler-timeout", "30s", 10, DAY_MS, handler_timeout_ms, PROGRAM,
         "longest wait for the handler's answer; then it is killed, and the message has failed"),
    FLAG("print", is_print, PROGRAM,
         "print messages instead of giving them to a handler: all that the streams hold, without a group; with --ack "
         "those of the group"),
    FLAG("ack", is_ack, PROGRAM, "with --print: in the group's name, which will not see them again"),
    INT("limit", "0", 0, 1000000000, limit_n, PROGRAM, "end after so many messages; 0 is no limit"),
    CHOICE("log-level", "LEVEL", "info", log_level_choices, enum log_level, log_level, PROGRAM,
           "least level that is logged: debug, info, warning, error or critical"),
    CHOICE("log-format", "json|text", "json", log_format_choices, enum log_format, log_format, PROGRAM,
           "form of the log lines on stderr"),
    {NULL, OPTION_STRING, NULL, NULL, 0, 0, NULL, 0, 0, NULL, NULL, NULL},
};

static const struct command_row commands[] = {
    {"", CONSUME_PROGRAM, "read the outbox's streams as a consumer group and give each message to a handler"},
    {"", CONSUME_LIBRARY, NULL},
    {NULL, 0, NULL},
};

static const struct option_program program = {"outbox-consume", "OUTBOXD_", rows, commands};

const struct option_program *consume_program(void) {
  return &program;
}

int consume_check(const struct consume_cfg *cfg, struct err *err) {
  if (cfg->group == NULL) {
    return option_usage(&program, CONSUME_PROGRAM, "a consumer needs a group: --group NAME", err);
  }
  if (cfg->retry_first_ms > cfg->retry_max_ms) {
    return option_usage(&program, CONSUME_PROGRAM, "--retry-after is longer than --retry-max", err);
  }
  return 0;
}
