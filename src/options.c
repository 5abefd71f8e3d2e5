/*
 * outboxd's command line, environment and help text, all from one table; src/option_parse.c reads by it.
 *
 * Owns the table and the strings of struct cfg.  Main thread only, before any other exists.
 */
#include "outboxd/options.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RUN (1u << CFG_RUN | 1u << CFG_CHECK) /* check takes all that run takes, to say whether it would work */
#define CHECK (1u << CFG_CHECK)
#define INIT (1u << CFG_INIT)
#define STATUS (1u << CFG_STATUS)
#define DEAD (1u << CFG_DEAD)
#define CHANGE ((1u << CFG_RETRY) | (1u << CFG_DISCARD))
#define DISCARD (1u << CFG_DISCARD)
#define REPLAY (1u << CFG_REPLAY)
#define ALL_COMMANDS (RUN | INIT | STATUS | DEAD | CHANGE | REPLAY)

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)
#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static const char *const on_dead_choices[] = {"skip", "block", NULL};
static const char *const format_choices[] = {"fields", "cloudevents", NULL};
static const char *const payload_choices[] = {"jsonb", "json", "text", NULL};
static const char *const log_level_choices[] = {"debug", "info", "warning", "error", "critical", NULL};
static const char *const log_format_choices[] = {"json", "text", NULL};

/* What set_value relies on. */
static_assert(sizeof(enum cfg_on_dead) == sizeof(unsigned), "enum cfg_on_dead");
static_assert(sizeof(enum cfg_format) == sizeof(unsigned), "enum cfg_format");
static_assert(sizeof(enum cfg_payload) == sizeof(unsigned), "enum cfg_payload");
static_assert(sizeof(enum log_level) == sizeof(unsigned), "enum log_level");
static_assert(sizeof(enum log_format) == sizeof(unsigned), "enum log_format");
static_assert(LOG_DEBUG == 0 && LOG_CRITICAL == 4 && LOG_JSON == 0 && LOG_TEXT == 1, "order of the choices");
static_assert(CFG_ON_DEAD_SKIP == 0 && CFG_ON_DEAD_BLOCK == 1, "order of the choices");
static_assert(CFG_FORMAT_FIELDS == 0 && CFG_FORMAT_CLOUDEVENTS == 1, "order of the choices");
static_assert(CFG_PAYLOAD_JSONB == 0 && CFG_PAYLOAD_JSON == 1 && CFG_PAYLOAD_TEXT == 2, "order of the choices");

/* The offset of a field, which must have the type the row stores. */
#define AT(type_, member_) (offsetof(struct cfg, member_) + 0 * sizeof(&((struct cfg *)0)->member_ == (type_ *)0))

#define STRING(name_, argument_, default_, min_, field_, commands_, env_, help_) \
  { name_, OPTION_STRING, argument_, default_, min_, 0, NULL, AT(char *, field_), commands_, env_, help_, NULL }
/* One whose name another row has too. */
#define SECOND_STRING(name_, argument_, default_, min_, field_, commands_, own_env_, help_) \
  { name_, OPTION_STRING, argument_, default_, min_, 0, NULL, AT(char *, field_), commands_, NULL, help_, own_env_ }
#define LIST(name_, argument_, field_, commands_, help_) \
  { name_, OPTION_LIST, argument_, NULL, 1, 0, NULL, AT(struct option_list, field_), commands_, NULL, help_, NULL }
#define INT(name_, default_, min_, max_, field_, commands_, help_) \
  { name_, OPTION_INT, "N", default_, min_, max_, NULL, AT(int, field_), commands_, NULL, help_, NULL }
#define TIME(name_, default_, min_, max_, field_, commands_, help_) \
  { name_, OPTION_DURATION, "TIME", default_, min_, max_, NULL, AT(int64_t, field_), commands_, NULL, help_, NULL }
#define SIZE(name_, default_, min_, max_, field_, commands_, help_) \
  { name_, OPTION_SIZE, "SIZE", default_, min_, max_, NULL, AT(int64_t, field_), commands_, NULL, help_, NULL }
#define FLAG(name_, field_, commands_, help_) \
  { name_, OPTION_FLAG, NULL, NULL, 0, 0, NULL, AT(bool, field_), commands_, NULL, help_, NULL }
#define CHOICE(name_, argument_, default_, choices_, type_, field_, commands_, help_) \
  { name_, OPTION_CHOICE, argument_, default_, 0, 0, choices_, AT(type_, field_), commands_, NULL, help_, NULL }

static const struct option_row table[] = {
    STRING("database", "CONNINFO", "", 0, database, ALL_COMMANDS, "DATABASE_URL",
           "PostgreSQL, as a libpq connection string or URI; without it libpq's PG* variables hold"),
    STRING("redis", "URL", "redis://127.0.0.1:6379", 1, redis, RUN | STATUS | REPLAY, "REDIS_URL",
           "Redis, as redis://[user:password@]host[:port][/db] or unix:///path"),
    STRING("table", "NAME", "outbox_messages", 1, table, ALL_COMMANDS, NULL,
           "the outbox table; may be schema-qualified and quoted"),
    STRING("stream", "TEMPLATE", "outbox:{%l}", 1, stream, RUN | STATUS, NULL,
           "name of the streams: %l lane, %t aggregate_type, %i aggregate_id, %e event_type, %% percent; "
           "outbox:{%l}:%t:%i gives every aggregate a stream of its own"),
    SECOND_STRING(
        "stream", "TEMPLATE", "replay:{%l}", 1, replay_stream, REPLAY, "OUTBOXD_REPLAY_STREAM",
        "name of the streams that the messages are published to once more, made as run's; its own prefix keeps "
        "them apart from a relay's"),
    FLAG("into-relay-streams", is_into_relay, REPLAY,
         "let --stream be a relay's: WARNING, its consumers see these events again"),
    INT("lanes", "16", 1, 1024, lanes_n, RUN | STATUS | REPLAY,
        "slices of the order space; the same in all processes of a fleet"),
    INT("claimers", "3", 1, 64, claimers_n, RUN, "PostgreSQL sessions that claim and settle in turns"),
    INT("publishers", "2", 1, 64, publishers_n, RUN, "threads that write to Redis"),
    INT("batch", "2000", 1, 100000, batch_n, RUN, "most messages of one claim"),
    INT("max-attempts", "10", 1, 32767, max_attempts_n, RUN | STATUS | DEAD | CHANGE,
        "attempts after which a refused message is dead"),
    CHOICE("on-dead", "skip|block", "skip", on_dead_choices, enum cfg_on_dead, on_dead, RUN,
           "after a dead message, let later ones of its aggregate flow (skip) or wait for an operator (block)"),
    TIME("poll-interval", "100ms", 1, HOUR_MS, poll_interval_ms, RUN, "pause between looks at an idle table"),
    TIME("stale-after", "5m", 1, 3650 * DAY_MS, stale_after_ms, RUN,
         "age of the oldest pending message that raises the alert outbox_stale"),
    TIME("stale-check-every", "1m", 100, DAY_MS, stale_check_every_ms, RUN, "pause between two looks at that age"),
    TIME("alert-repeat", "15m", SECOND_MS, 30 * DAY_MS, alert_repeat_ms, RUN,
         "pause between two lines of an alert that lasts, but for outbox_stale"),
    TIME("retention", "15d", HOUR_MS, 36500 * DAY_MS, retention_ms, RUN,
         "how long published messages are kept in the table"),
    TIME("partitions-ahead", "14d", 0, 3650 * DAY_MS, partitions_ahead_ms, RUN | INIT,
         "how far ahead daily partitions are made; 0 makes today's only"),
    TIME("cleanup-every", "1h", SECOND_MS, 30 * DAY_MS, cleanup_every_ms, RUN, "pause between two cleanups"),
    TIME("processed-retention", "0", 0, 36500 * DAY_MS, processed_retention_ms, RUN,
         "age at which rows of processed_messages are deleted; 0 keeps them"),
    FLAG("no-cleanup", has_no_cleanup, RUN, "neither make nor drop partitions, nor delete rows"),
    SIZE("max-batch-bytes", "32MiB", 64 * KIB, GIB, max_batch_bytes, RUN | REPLAY,
         "most bytes of one claim, or of what replay reads at a time; a larger message goes alone"),
    SIZE("max-write-bytes", "8MiB", 64 * KIB, 256 * MIB, max_write_bytes, RUN | REPLAY,
         "most bytes of one call to Redis; a larger message goes alone"),
    INT("wait-replicas", "0", 0, 100, wait_replicas_n, RUN,
        "Redis replicas that must acknowledge a write before it counts"),
    TIME("redis-timeout", "5s", 100, HOUR_MS, redis_timeout_ms, RUN | STATUS | REPLAY,
         "longest wait for an answer of Redis"),
    TIME("session-timeout", "30s", SECOND_MS, DAY_MS, session_timeout_ms, RUN,
         "PostgreSQL ends the sessions of a relay that hangs for longer, and its lanes go to others"),
    TIME("shutdown-timeout", "30s", 100, HOUR_MS, shutdown_timeout_ms, RUN,
         "longest time to settle what is in flight after SIGTERM or SIGINT"),
    TIME("stats-every", "60s", 100, DAY_MS, stats_every_ms, RUN, "pause between two stats lines in the log"),
    STRING("metrics-file", "PATH", "", 0, metrics_file, RUN, NULL,
           "file for counters in Prometheus' text format, written anew with each stats line"),
    CHOICE("format", "fields|cloudevents", "fields", format_choices, enum cfg_format, format, RUN,
           "form of the entries: a field for each column, or one field cloudevent with a CloudEvents 1.0 envelope in "
           "JSON"),
    STRING(
        "cloudevents-source", "URI", "", 0, cloudevents_source, RUN, NULL,
        "source of the events with --format cloudevents, a URI reference; without it /outboxd/ and the table's name"),
    LIST(
        "ensure-group", "NAME", ensure_groups, RUN,
        "make this consumer group, from the start of each stream, before the stream's first message; several times for "
        "several"),
    STRING("trim", "RULE", "", 0, trim, RUN, NULL,
           "what to remove from streams: acked, what every consumer group has acknowledged; maxlen=N or age=TIME, what "
           "is beyond "
           "that, read or not; without it nothing"),
    TIME("trim-keep", "1h", 0, 3650 * DAY_MS, trim_keep_ms, RUN,
         "how long an entry stays at least with --trim acked, for a group that is made later"),
    TIME("trim-every", "10s", 100, DAY_MS, trim_every_ms, RUN, "pause between two rounds of --trim"),
    TIME(
        "stream-ttl", "0", 0, 3650 * DAY_MS, stream_ttl_ms, RUN,
        "streams expire, read or not, when nothing was added for so long; for templates with %t, %i or %e; 0 is never"),
    FLAG("until-empty", is_until_empty, RUN, "exit with 0 when nothing is pending, dead messages aside"),
    FLAG("plain", is_init_plain, INIT, "make the plain table instead of the partitioned one"),
    CHOICE("payload-type", "jsonb|json|text", "jsonb", payload_choices, enum cfg_payload, payload_type, INIT,
           "type of the new table's column payload; json and text keep what was written byte for byte and are read "
           "several times as fast"),
    FLAG("notify", is_init_notify, INIT,
         "add a trigger that wakes the relays as soon as rows are committed; see docs/schema.md for what it costs "
         "writers"),
    FLAG("print", is_init_print, INIT, "print the SQL and change nothing"),
    LIST("id", "N", ids, DEAD | CHANGE | REPLAY, "the message with this id; several times for several"),
    LIST("aggregate", "TYPE:ID", aggregates, DEAD | CHANGE | REPLAY,
         "messages of this aggregate; several times for several"),
    LIST("event", "TYPE", events, DEAD | CHANGE | REPLAY, "messages of this event_type; several times for several"),
    STRING("from", "TIME", NULL, 1, from, REPLAY, NULL,
           "messages whose created_at is not before this: 2026-01-31T23:59:59Z, or a day, 2026-01-31, which begins at "
           "midnight UTC"),
    STRING("to", "TIME", NULL, 1, to, REPLAY, NULL,
           "messages whose created_at is before this, given likewise; of a day none"),
    STRING("after-id", "N", NULL, 1, after_id, REPLAY, NULL,
           "messages with a greater id: where a replay that ended early is to go on"),
    INT("rate", "1000", 0, 1000000, rate_n, REPLAY, "most messages a second; 0 is as fast as it goes"),
    FLAG("all", is_all, CHANGE | REPLAY, "every dead message; for replay every published one"),
    STRING("reason", "TEXT", NULL, 1, reason, DISCARD, NULL, "why they are given up; is kept in last_error"),
    FLAG("dry-run", is_dry_run, CHANGE | REPLAY, "list (replay: count) what would be done and change nothing"),
    FLAG("discarded", is_discarded, DEAD,
         "list what was discarded instead; no index helps there, the whole table is read"),
    INT("limit", "100", 1, 1000000, limit_n, DEAD, "most messages to list"),
    TIME("max-age", "0", 0, 3650 * DAY_MS, max_age_ms, STATUS,
         "end with status 1 when a message has been pending for longer, dead ones aside; without --json and --watch "
         "only this is looked at; 0 is none"),
    TIME("watch", "0", 0, DAY_MS, watch_ms, STATUS, "look again and again, with this pause; 0 looks once"),
    FLAG("json", is_json, CHECK | STATUS | DEAD | CHANGE, "print JSON instead of lines for people"),
    CHOICE("log-level", "LEVEL", "info", log_level_choices, enum log_level, log_level, RUN | INIT,
           "least level that is logged: debug, info, warning, error or critical"),
    CHOICE("log-format", "json|text", "json", log_format_choices, enum log_format, log_format, RUN | INIT,
           "form of the log lines on stderr"),
    {NULL, OPTION_STRING, NULL, NULL, 0, 0, NULL, 0, 0, NULL, NULL, NULL},
};

/* The commands there are. */
static const struct command_row commands[] = {
    {"run", CFG_RUN, "relay messages until told to stop"},
    {"init", CFG_INIT, "create or upgrade the schema"},
    {"check", CFG_CHECK, "say whether run would work, and what is in the way; takes run's options and changes nothing"},
    {"status", CFG_STATUS, "tell what is pending and dead, and who relays it"},
    {"dead", CFG_DEAD, "list dead messages, with the reason"},
    {"retry", CFG_RETRY, "give dead messages new attempts"},
    {"discard", CFG_DISCARD, "give dead messages up, for a reason that is kept"},
    {"replay", CFG_REPLAY,
     "publish messages that are published already once more, to other streams; the table stays as it is"},
    {NULL, CFG_HELP, NULL},
};
#define COMMANDS_N (sizeof commands / sizeof commands[0] - 1)

const struct option_row *options_table(void) {
  return table;
}

const struct command_row *options_commands(void) {
  return commands;
}

static const struct option_program program = {"outboxd", "OUTBOXD_", table, commands};

const struct option_program *options_program(void) {
  return &program;
}

bool options_takes(const struct option_row *row, enum cfg_command command) {
  return option_takes(row, (int)command);
}

void options_describe_range(const struct option_row *row, char *out, size_t n) {
  option_describe_range(row, out, n);
}

void options_env_name(const struct option_row *row, char *out, size_t n) {
  option_env_name(&program, row, out, n);
}

void options_free(struct cfg *cfg) {
  option_free(&program, cfg);
}

/* The first argument: a command, --help or --version. */
static int take_command(int argc, char *const argv[], enum cfg_command *command, struct err *err) {
  char names[128] = "";
  size_t used = 0;
  for (size_t i = 0; i < COMMANDS_N; i++) {
    if (argc > 1 && strcmp(argv[1], commands[i].name) == 0) {
      *command = (enum cfg_command)commands[i].command;
      return 0;
    }
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", commands[i].name);
  }
  if (argc > 1 && (option_is_help(argv[1]) || strcmp(argv[1], "help") == 0)) {
    *command = CFG_HELP;
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    *command = CFG_VERSION;
    return 0;
  }
  char what[256];
  (void)snprintf(what, sizeof what, "%s; the commands are %s",
                 argc > 1 ? "the first argument is not a command" : "no command given", names);
  return option_usage(&program, CFG_HELP, what, err);
}

int options_parse(int argc, char *const argv[], struct cfg *cfg, struct err *err) {
  memset(cfg, 0, sizeof *cfg);
  cfg->help_for = CFG_HELP;
  if (take_command(argc, argv, &cfg->command, err) != 0) {
    return -1;
  }
  enum cfg_command command = cfg->command;
  if (command == CFG_HELP || command == CFG_VERSION) {
    return 0;
  }
  for (int i = 2; i < argc; i++) {
    if (option_is_help(argv[i])) {
      cfg->command = CFG_HELP;
      cfg->help_for = command;
      return 0;
    }
  }
  if (option_take_environment(&program, (int)command, cfg, err) != 0 ||
      option_take_arguments(&program, (int)command, argc, argv, 2, cfg, err) != 0) {
    goto fail;
  }
  return 0;

fail:
  options_free(cfg);
  return -1;
}

void options_help(FILE *out, enum cfg_command command) {
  const char *name = option_command_name(&program, (int)command);
  if (name == NULL) {
    (void)fprintf(out, "outboxd relays messages from a PostgreSQL outbox table to Redis Streams.\n\n"
                       "Usage: outboxd COMMAND [--OPTION VALUE | --OPTION=VALUE]...\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS_N; i++) {
      (void)fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    }
    (void)fprintf(out, "\n  outboxd COMMAND --help   the command's options\n  outboxd --version        the version\n");
    return;
  }
  (void)fprintf(out, "Usage: outboxd %s [--OPTION VALUE | --OPTION=VALUE]...\n\n", name);
  for (size_t i = 0; i < COMMANDS_N; i++) {
    if (commands[i].command == (int)command) {
      (void)fprintf(out, "outboxd %s: %s\n\nOptions:\n", name, commands[i].help);
    }
  }
  option_print(&program, (int)command, out);
}
