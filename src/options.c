/*
 * The command line, the environment and the help text, all from one table.
 *
 * Owns the table and the strings of struct cfg.  Main thread only, before any other exists.  A string's value never stands in an
 * error: it may hold a password.  So may an argument that is in the wrong place.
 */
#include "outboxd/options.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/units.h"

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
static const char *const log_level_choices[] = {"debug", "info", "warning", "error", "critical", NULL};
static const char *const log_format_choices[] = {"json", "text", NULL};

/* What set_value relies on. */
static_assert(sizeof(enum cfg_on_dead) == sizeof(unsigned), "enum cfg_on_dead");
static_assert(sizeof(enum cfg_format) == sizeof(unsigned), "enum cfg_format");
static_assert(sizeof(enum log_level) == sizeof(unsigned), "enum log_level");
static_assert(sizeof(enum log_format) == sizeof(unsigned), "enum log_format");
static_assert(LOG_DEBUG == 0 && LOG_CRITICAL == 4 && LOG_JSON == 0 && LOG_TEXT == 1, "order of the choices");
static_assert(CFG_ON_DEAD_SKIP == 0 && CFG_ON_DEAD_BLOCK == 1, "order of the choices");
static_assert(CFG_FORMAT_FIELDS == 0 && CFG_FORMAT_CLOUDEVENTS == 1, "order of the choices");

/* The offset of a field, which must have the type the row stores. */
#define AT(type_, member_) (offsetof(struct cfg, member_) + 0 * sizeof(&((struct cfg *)0)->member_ == (type_ *)0))

#define STRING(name_, argument_, default_, min_, field_, commands_, env_, help_) \
  { name_, OPTION_STRING, argument_, default_, min_, 0, NULL, AT(char *, field_), commands_, env_, help_, NULL }
/* One whose name another row has too. */
#define SECOND_STRING(name_, argument_, default_, min_, field_, commands_, own_env_, help_) \
  { name_, OPTION_STRING, argument_, default_, min_, 0, NULL, AT(char *, field_), commands_, NULL, help_, own_env_ }
#define LIST(name_, argument_, field_, commands_, help_) \
  { name_, OPTION_LIST, argument_, NULL, 1, 0, NULL, AT(struct cfg_list, field_), commands_, NULL, help_, NULL }
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
    INT("batch", "1000", 1, 100000, batch_n, RUN, "most messages of one claim"),
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

static const char *command_name(enum cfg_command command) {
  for (size_t i = 0; i < COMMANDS_N; i++) {
    if (commands[i].command == command) {
      return commands[i].name;
    }
  }
  return NULL;
}

static int usage(struct err *err, enum cfg_command command, const char *what) {
  const char *name = command_name(command);
  return err_set(err, ERR_USAGE, "usage", "%s; see outboxd%s%s --help", what, name != NULL ? " " : "",
                 name != NULL ? name : "");
}

void options_describe_range(const struct option_row *row, char *out, size_t n) {
  char min[32];
  char max[32];
  switch (row->type) {
  case OPTION_STRING:
  case OPTION_LIST:
    (void)snprintf(out, n, "a text that is not empty");
    return;
  case OPTION_INT:
    (void)snprintf(out, n, "a whole number from %lld to %lld", (long long)row->min, (long long)row->max);
    return;
  case OPTION_DURATION:
    units_format_duration(row->min, min, sizeof min);
    units_format_duration(row->max, max, sizeof max);
    (void)snprintf(out, n, "a time from %s to %s, such as 500ms, 30s, 5m, 1h or 15d", min, max);
    return;
  case OPTION_SIZE:
    units_format_size(row->min, min, sizeof min);
    units_format_size(row->max, max, sizeof max);
    (void)snprintf(out, n, "a size from %s to %s, such as 512KiB or 8MiB", min, max);
    return;
  case OPTION_FLAG:
    (void)snprintf(out, n, "1, true, yes or on; or 0, false, no or off");
    return;
  case OPTION_CHOICE: {
    size_t used = (size_t)snprintf(out, n, "one of");
    for (size_t i = 0; row->choices[i] != NULL && used < n; i++) {
      used += (size_t)snprintf(out + used, n - used, "%s %s", i > 0 ? "," : "", row->choices[i]);
    }
    return;
  }
  }
}

static bool parse_int(const char *text, int64_t *out) {
  char *end;
  /* strtoll would take spaces and a plus sign too. */
  if ((text[0] < '0' || text[0] > '9') && text[0] != '-') {
    return false;
  }
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *end == '\0' && end != text && errno == 0;
}

static bool parse_flag(const char *text, bool *out) {
  static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if (strcmp(text, words[i]) == 0) {
      *out = i % 2 == 1;
      return true;
    }
  }
  return false;
}

static bool parse_choice(const char *text, const char *const *choices, unsigned *out) {
  for (unsigned i = 0; choices[i] != NULL; i++) {
    if (strcmp(text, choices[i]) == 0) {
      *out = i;
      return true;
    }
  }
  return false;
}

/* Reads text as the row has it and stores it; false when it is not what the row takes. */
static bool store_value(struct cfg *cfg, const struct option_row *row, const char *text) {
  void *field = (char *)cfg + row->offset;
  int64_t number = 0;
  switch (row->type) {
  case OPTION_STRING:
  case OPTION_LIST:
    return false; /* store_text */
  case OPTION_INT:
    if (!parse_int(text, &number) || number < row->min || number > row->max) {
      return false;
    }
    *(int *)field = (int)number;
    return true;
  case OPTION_DURATION:
    if (units_parse_duration_ms(text, &number, NULL) != 0 || number < row->min || number > row->max) {
      return false;
    }
    *(int64_t *)field = number;
    return true;
  case OPTION_SIZE:
    if (units_parse_size_bytes(text, &number, NULL) != 0 || number < row->min || number > row->max) {
      return false;
    }
    *(int64_t *)field = number;
    return true;
  case OPTION_FLAG:
    return parse_flag(text, field);
  case OPTION_CHOICE:
    return parse_choice(text, row->choices, field);
  }
  return false;
}

static char **string_field(struct cfg *cfg, const struct option_row *row) {
  void *field = (char *)cfg + row->offset;
  return field;
}

/* Stores a copy of text in place of what was there. */
static int store_string(struct cfg *cfg, const struct option_row *row, const char *text, struct err *err) {
  char **field = string_field(cfg, row);
  char *copy = strdup(text);
  if (copy == NULL) {
    return err_set(err, ERR_FATAL, "ENOMEM", "no memory for the options");
  }
  free(*field);
  *field = copy;
  return 0;
}

static struct cfg_list *list_field(struct cfg *cfg, const struct option_row *row) {
  void *field = (char *)cfg + row->offset;
  return field;
}

static void empty_list(struct cfg_list *list) {
  for (int i = 0; i < list->n; i++) {
    free(list->values[i]);
  }
  free(list->values);
  *list = (struct cfg_list){0};
}

/* Adds a copy of text. */
static int store_item(struct cfg *cfg, const struct option_row *row, const char *text, struct err *err) {
  struct cfg_list *list = list_field(cfg, row);
  char **grown = realloc(list->values, ((size_t)list->n + 1) * sizeof *grown);
  if (grown != NULL) {
    list->values = grown;
    list->values[list->n] = strdup(text);
  }
  if (grown == NULL || list->values[list->n] == NULL) {
    return err_set(err, ERR_FATAL, "ENOMEM", "no memory for the options");
  }
  list->n++;
  return 0;
}

static int store_text(struct cfg *cfg, const struct option_row *row, const char *text, struct err *err) {
  return row->type == OPTION_LIST ? store_item(cfg, row, text, err) : store_string(cfg, row, text, err);
}

/* Stores text, which came from source ("--lanes", "OUTBOXD_LANES"). */
static int store(struct cfg *cfg, const struct option_row *row, const char *source, const char *text,
                 enum cfg_command command, struct err *err) {
  char range[128];
  char what[256];
  bool is_string = row->type == OPTION_STRING || row->type == OPTION_LIST;
  if (is_string ? (int64_t)strlen(text) >= row->min : store_value(cfg, row, text)) {
    return is_string ? store_text(cfg, row, text, err) : 0;
  }
  options_describe_range(row, range, sizeof range);
  if (is_string) {
    (void)snprintf(what, sizeof what, "%s takes %s", source, range);
  } else {
    (void)snprintf(what, sizeof what, "%s takes %s, not \"%.40s\"", source, range, text);
  }
  return usage(err, command, what);
}

bool options_takes(const struct option_row *row, enum cfg_command command) {
  return (row->commands & (1u << command)) != 0;
}

void options_env_name(const struct option_row *row, char *out, size_t n) {
  if (row->own_env != NULL) {
    (void)snprintf(out, n, "%s", row->own_env);
    return;
  }
  size_t used = (size_t)snprintf(out, n, "OUTBOXD_%s", row->name);
  for (size_t i = 0; i < used && i < n; i++) {
    if (out[i] == '-') {
      out[i] = '_';
    } else if (out[i] >= 'a' && out[i] <= 'z') {
      out[i] = (char)(out[i] - 'a' + 'A');
    }
  }
}

/* Defaults for every row, so that no field is ever unset; then the environment for those the command takes.  An empty variable
 * counts as none: that is what ${NAME:-} makes of an unset one in a compose file. */
static int take_environment(struct cfg *cfg, enum cfg_command command, struct err *err) {
  for (const struct option_row *row = table; row->name != NULL; row++) {
    char name[64];
    options_env_name(row, name, sizeof name);
    const char *source = "default";
    const char *text = row->default_text;
    if (options_takes(row, command)) {
      const char *own = getenv(name);
      const char *fallback = row->fallback_env != NULL ? getenv(row->fallback_env) : NULL;
      if (own != NULL && *own != '\0') {
        source = name;
        text = own;
      } else if (fallback != NULL && *fallback != '\0') {
        source = row->fallback_env;
        text = fallback;
      }
    }
    if (text != NULL && store(cfg, row, source, text, command, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* The row of "name" or "name=value": of those with this name the one that the command takes, else any. */
static const struct option_row *find_row(const char *argument, enum cfg_command command) {
  size_t len = strcspn(argument, "=");
  const struct option_row *found = NULL;
  for (const struct option_row *row = table; row->name != NULL; row++) {
    if (strlen(row->name) == len && memcmp(row->name, argument, len) == 0 &&
        (found == NULL || options_takes(row, command))) {
      found = row;
    }
  }
  return found;
}

/* Takes one option from argv[*at], with its value moves *at on to the last argument used. */
static int take_option(struct cfg *cfg, enum cfg_command command, int argc, char *const argv[], int *at,
                       struct err *err) {
  char what[256];
  const char *argument = argv[*at];
  if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0') {
    /* Not quoted: it may be a password that slipped. */
    (void)snprintf(what, sizeof what, "argument %d of %s is not an option; options start with --", *at - 1,
                   command_name(command));
    return usage(err, command, what);
  }
  int name_bytes = (int)strcspn(argument, "=");
  const struct option_row *row = find_row(argument + 2, command);
  if (row == NULL) {
    (void)snprintf(what, sizeof what, "there is no option %.*s", name_bytes < 40 ? name_bytes : 40, argument);
    return usage(err, command, what);
  }
  if (!options_takes(row, command)) {
    (void)snprintf(what, sizeof what, "--%s is not an option of %s", row->name, command_name(command));
    return usage(err, command, what);
  }

  char source[64];
  (void)snprintf(source, sizeof source, "--%s", row->name);
  const char *value;
  if (argument[name_bytes] == '=') {
    value = argument + name_bytes + 1;
  } else if (row->type == OPTION_FLAG) {
    value = "true";
  } else if (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0) {
    value = argv[++*at];
  } else {
    (void)snprintf(what, sizeof what, "%s needs a value: %s %s", source, source, row->argument);
    return usage(err, command, what);
  }
  if (row->type == OPTION_LIST && !list_field(cfg, row)->is_of_argv) {
    empty_list(list_field(cfg, row));
    list_field(cfg, row)->is_of_argv = true;
  }
  return store(cfg, row, source, value, command, err);
}

static bool is_help(const char *argument) {
  return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* The first argument: a command, --help or --version. */
static int take_command(int argc, char *const argv[], enum cfg_command *command, struct err *err) {
  char names[128] = "";
  size_t used = 0;
  for (size_t i = 0; i < COMMANDS_N; i++) {
    if (argc > 1 && strcmp(argv[1], commands[i].name) == 0) {
      *command = commands[i].command;
      return 0;
    }
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", commands[i].name);
  }
  if (argc > 1 && is_help(argv[1])) {
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
  return usage(err, CFG_HELP, what);
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
    if (is_help(argv[i])) {
      cfg->command = CFG_HELP;
      cfg->help_for = command;
      return 0;
    }
  }
  if (take_environment(cfg, command, err) != 0) {
    goto fail;
  }
  for (int i = 2; i < argc; i++) {
    if (take_option(cfg, command, argc, argv, &i, err) != 0) {
      goto fail;
    }
  }
  return 0;

fail:
  options_free(cfg);
  return -1;
}

void options_free(struct cfg *cfg) {
  for (const struct option_row *row = table; row->name != NULL; row++) {
    if (row->type == OPTION_STRING) {
      char **field = string_field(cfg, row);
      free(*field);
      *field = NULL;
    } else if (row->type == OPTION_LIST) {
      empty_list(list_field(cfg, row));
    }
  }
}

static void print_row(FILE *out, const struct option_row *row) {
  char name[64];
  options_env_name(row, name, sizeof name);
  (void)fprintf(out, "  --%s%s%s\n      %s\n      [", row->name, row->argument != NULL ? " " : "",
                row->argument != NULL ? row->argument : "", row->help);
  if (row->default_text != NULL && row->default_text[0] != '\0') {
    (void)fprintf(out, "default %s, ", row->default_text);
  }
  (void)fprintf(out, "environment %s%s%s]\n", name, row->fallback_env != NULL ? ", then " : "",
                row->fallback_env != NULL ? row->fallback_env : "");
}

void options_help(FILE *out, enum cfg_command command) {
  const char *name = command_name(command);
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
    if (commands[i].command == command) {
      (void)fprintf(out, "outboxd %s: %s\n\nOptions:\n", name, commands[i].help);
    }
  }
  for (const struct option_row *row = table; row->name != NULL; row++) {
    if (options_takes(row, command)) {
      print_row(out, row);
    }
  }
  (void)fprintf(
      out,
      "\nTimes take ms, s, m, h, d; sizes B, KiB, MiB, GiB.  An option on the command line wins over the environment;\n"
      "a flag's variable takes 1, true, yes, on or 0, false, no, off.\n");
}
