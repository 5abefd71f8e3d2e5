/*
 * `outboxd check`: what the user of --redis may do, command by command and key by key.
 *
 * Asked of ACL DRYRUN, which executes nothing.  Where the server does not have it, or we may not use it, only what reads is tried.
 * Owns nothing beyond a call; main thread.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_check_impl.h"
#include "outboxd/redis_error.h"

#define WORDS_MAX 8
#define ANY_KEY CHECK_KEY_KINDS_N
#define SHA "0000000000000000000000000000000000000000"

/* With which options a command is used. */
enum use {
  USE_ALWAYS,
  USE_REPLICAS, /* --wait-replicas */
  USE_GROUPS,   /* --ensure-group */
  USE_TTL,      /* --stream-ttl */
  USE_TRIM,     /* --trim */
  USE_WALK      /* --trim, or an index of stream names to look after */
};

/* The commands of docs/redis.md: on which keys, and with which arguments.  KEY stands for the key. */
#define KEY "\1"
static const struct {
  const char *words[WORDS_MAX];
  unsigned kind; /* asked for every key of this kind; ANY_KEY: once */
  enum use use;
  bool is_once; /* for the first key of the kind only: whether the keys are allowed shows with the others */
} commands[] = {
    {{"SET", KEY, "x", "NX"}, CHECK_KEY_LANES, USE_ALWAYS, false},
    {{"GET", KEY}, CHECK_KEY_LANES, USE_ALWAYS, false},
    {{"GET", KEY}, CHECK_KEY_JOURNAL, USE_ALWAYS, false},
    {{"GETRANGE", KEY, "0", "0"}, CHECK_KEY_JOURNAL, USE_ALWAYS, false},
    {{"SET", KEY, "x"}, CHECK_KEY_JOURNAL, USE_ALWAYS, false},
    {{"XADD", KEY, "*", "f", "v"}, CHECK_KEY_STREAM, USE_ALWAYS, false},
    {{"EVALSHA", SHA, "1", KEY}, CHECK_KEY_JOURNAL, USE_ALWAYS, true},
    {{"EVAL", "return 0", "1", KEY}, CHECK_KEY_JOURNAL, USE_ALWAYS, true},
    {{"ZADD", KEY, "0", "x"}, CHECK_KEY_INDEX, USE_ALWAYS, false},
    {{"ZREM", KEY, "x"}, CHECK_KEY_INDEX, USE_ALWAYS, true},
    {{"ZSCAN", KEY, "0"}, CHECK_KEY_INDEX, USE_ALWAYS, true},
    {{"XGROUP", "CREATE", KEY, "g", "0", "MKSTREAM"}, CHECK_KEY_STREAM, USE_GROUPS, true},
    {{"XLEN", KEY}, CHECK_KEY_STREAM, USE_GROUPS, true},
    {{"PEXPIRE", KEY, "1"}, CHECK_KEY_STREAM, USE_TTL, true},
    {{"XINFO", "GROUPS", KEY}, CHECK_KEY_STREAM, USE_WALK, true},
    {{"EXISTS", KEY}, CHECK_KEY_STREAM, USE_WALK, true},
    {{"XPENDING", KEY, "g"}, CHECK_KEY_STREAM, USE_TRIM, true},
    {{"XLEN", KEY}, CHECK_KEY_STREAM, USE_WALK, true},
    {{"XTRIM", KEY, "MAXLEN", "1"}, CHECK_KEY_STREAM, USE_TRIM, true},
    {{"XRANGE", KEY, "-", "+", "COUNT", "1"}, CHECK_KEY_STREAM, USE_TRIM, true},
    {{"TIME"}, ANY_KEY, USE_TRIM, false},
    {{"WAIT", "1", "1"}, ANY_KEY, USE_REPLICAS, false},
};
#define COMMANDS_N (sizeof commands / sizeof commands[0])

static const char *const kind_names[CHECK_KEY_KINDS_N] = {[CHECK_KEY_LANES] = "the fleet's record",
                                                          [CHECK_KEY_JOURNAL] = "journals",
                                                          [CHECK_KEY_STREAM] = "streams",
                                                          [CHECK_KEY_INDEX] = "indexes of stream names"};

/* What was denied. */
struct denials {
  bool is_command_denied[COMMANDS_N];
  const struct check_key *first[CHECK_KEY_KINDS_N]; /* NULL: none of the kind */
  bool has_more[CHECK_KEY_KINDS_N];
  const char *command[CHECK_KEY_KINDS_N]; /* which was asked for the first one */
};

/* ---- asking */

static int words_n(size_t command) {
  int n = 0;
  while (n < WORDS_MAX && commands[command].words[n] != NULL) {
    n++;
  }
  return n;
}

static int add_words(struct check *check, size_t command, const struct check_key *key, struct err *err) {
  for (int i = 0; i < words_n(command); i++) {
    const char *word = commands[command].words[i];
    bool is_key = key != NULL && strcmp(word, KEY) == 0;
    if (redis_pipeline_arg(check->pipeline, is_key ? key->name : word, is_key ? key->bytes : strlen(word), err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int add_dry_run(struct check *check, size_t command, const struct check_key *key, struct err *err) {
  const char *user = check_redis_user(check);
  if (redis_pipeline_begin(check->pipeline, 3 + words_n(command), err) != 0 ||
      redis_pipeline_arg(check->pipeline, "ACL", 3, err) != 0 ||
      redis_pipeline_arg(check->pipeline, "DRYRUN", 6, err) != 0 ||
      redis_pipeline_arg(check->pipeline, user, strlen(user), err) != 0) {
    return -1;
  }
  return add_words(check, command, key, err);
}

/* A question: a command, and the key it is about (-1: none). */
struct question {
  size_t command;
  int key;
};

static bool is_used(const struct check *check, enum use use) {
  const struct cfg *cfg = check->cfg;
  switch (use) {
  case USE_ALWAYS:
    return true;
  case USE_REPLICAS:
    return cfg->wait_replicas_n > 0;
  case USE_GROUPS:
    return cfg->ensure_groups.n > 0;
  case USE_TTL:
    return cfg->stream_ttl_ms > 0;
  case USE_TRIM:
    return cfg->trim[0] != '\0';
  case USE_WALK:
    return cfg->trim[0] != '\0' || !template_is_per_lane(check->template);
  }
  return true;
}

/* All questions in order; *out is the caller's to free.  -1 on no memory. */
static int list_questions(const struct check *check, struct question **out) {
  int n = 0;
  struct question *questions = calloc((size_t)check->keys_n * COMMANDS_N + COMMANDS_N, sizeof *questions);
  *out = questions;
  if (questions == NULL) {
    return -1;
  }
  for (size_t command = 0; command < COMMANDS_N; command++) {
    bool is_asked = false;
    if (!is_used(check, commands[command].use)) {
      continue;
    }
    if (commands[command].kind == ANY_KEY) {
      questions[n++] = (struct question){command, -1};
      continue;
    }
    for (int key = 0; key < check->keys_n; key++) {
      if (check->keys[key].kind == commands[command].kind && !(commands[command].is_once && is_asked)) {
        questions[n++] = (struct question){command, key};
        is_asked = true;
      }
    }
  }
  return n;
}

/* ---- judging */

static void note_denial(struct check *check, const struct question *question, const char *text,
                        struct denials *denials) {
  const struct check_key *key = question->key >= 0 ? &check->keys[question->key] : NULL;
  switch (redis_error_dry_run(text)) {
  case REDIS_DRY_RUN_DENIED_KEY:
    if (key == NULL || commands[question->command].is_once) {
      return;
    }
    if (denials->first[key->kind] == NULL) {
      denials->first[key->kind] = key;
      denials->command[key->kind] = commands[question->command].words[0];
    }
    denials->has_more[key->kind] = denials->has_more[key->kind] || key != denials->first[key->kind];
    return;
  case REDIS_DRY_RUN_DENIED_COMMAND:
  case REDIS_DRY_RUN_UNKNOWN:
    denials->is_command_denied[question->command] = true;
    return;
  }
}

static void say_command(struct check *check, size_t command) {
  char fix[CHECK_TEXT_BYTES];
  char name[32];
  size_t n = 0;
  for (const char *p = commands[command].words[0]; *p != '\0' && n + 1 < sizeof name; p++) {
    name[n++] = (char)tolower((unsigned char)*p);
  }
  name[n] = '\0';
  (void)snprintf(fix, sizeof fix, "ACL SETUSER %s +%s", check_redis_user(check), name);
  check_say(check, CHECK_ERROR, "redis_rights", fix, "user %s may not run %s", check_redis_user(check),
            commands[command].words[0]);
}

static void write_pattern(const struct check *check, enum check_key_kind kind, char *out, size_t n) {
  size_t bytes = 0;
  switch (kind) {
  case CHECK_KEY_LANES:
    bytes = template_lanes_pattern(check->template, out, n - 1);
    break;
  case CHECK_KEY_JOURNAL:
    bytes = template_journal_pattern(check->template, out, n - 1);
    break;
  case CHECK_KEY_STREAM:
    bytes = template_stream_pattern(check->template, out, n - 1);
    break;
  case CHECK_KEY_INDEX:
    bytes = template_index_pattern(check->template, out, n - 1);
    break;
  }
  out[bytes < n ? bytes : n - 1] = '\0';
}

static void say_keys(struct check *check, enum check_key_kind kind, const struct denials *denials) {
  char fix[CHECK_TEXT_BYTES];
  char pattern[CHECK_TEXT_BYTES / 2];
  write_pattern(check, kind, pattern, sizeof pattern);
  (void)snprintf(fix, sizeof fix, "ACL SETUSER %s '~%s'", check_redis_user(check), pattern);
  check_say(check, CHECK_ERROR, "redis_rights", fix, "user %s may not %s key %s (%s)%s", check_redis_user(check),
            denials->command[kind], denials->first[kind]->name, kind_names[kind],
            denials->has_more[kind] ? ", nor others" : "");
}

static bool is_denied_before(const struct denials *denials, size_t command) {
  for (size_t i = 0; i < command; i++) {
    if (denials->is_command_denied[i] && strcmp(commands[i].words[0], commands[command].words[0]) == 0) {
      return true;
    }
  }
  return false;
}

static void say_denials(struct check *check, const struct denials *denials) {
  int said_n = check->counts[CHECK_ERROR];
  for (size_t command = 0; command < COMMANDS_N; command++) {
    if (denials->is_command_denied[command] && !is_denied_before(denials, command)) {
      say_command(check, command);
    }
  }
  for (int kind = 0; kind < CHECK_KEY_KINDS_N; kind++) {
    if (denials->first[kind] != NULL) {
      say_keys(check, (enum check_key_kind)kind, denials);
    }
  }
  if (check->counts[CHECK_ERROR] == said_n) {
    check_say(check, CHECK_OK, "redis_rights", NULL, "user %s may run every command on every key that a relay needs",
              check_redis_user(check));
  }
}

/* ---- without ACL DRYRUN */

/* A script that does nothing but read a journal's first byte, which takes the rights to EVAL, GETRANGE and the key. */
static void try_reading(struct check *check, const char *why) {
  struct err err = ERR_INIT;
  const struct check_key *key = NULL;
  for (int i = 0; i < check->keys_n && key == NULL; i++) {
    key = check->keys[i].kind == CHECK_KEY_JOURNAL ? &check->keys[i] : NULL;
  }
  redis_pipeline_reset(check->pipeline, 0);
  if (key == NULL || redis_pipeline_begin(check->pipeline, 4, &err) != 0 ||
      redis_pipeline_arg(check->pipeline, "EVAL", 4, &err) != 0 ||
      redis_pipeline_arg(check->pipeline, "return redis.call('GETRANGE', KEYS[1], 0, 0)", 44, &err) != 0 ||
      redis_pipeline_arg(check->pipeline, "1", 1, &err) != 0 ||
      redis_pipeline_arg(check->pipeline, key->name, key->bytes, &err) != 0) {
    check->is_out_of_memory = true;
    return;
  }
  if (check_exchange(check, "redis_rights") != 0) {
    return;
  }
  if (redis_reply_is_error(redis_pipeline_reply(check->pipeline, 0), NULL, &err)) {
    check_say(check, CHECK_ERROR, "redis_rights", "docs/privileges.md has the commands and keys a relay needs",
              "user %s cannot EVAL a script that reads key %s: %s", check_redis_user(check), key->name, err.text);
    return;
  }
  check_say(check, CHECK_SKIPPED, "redis_rights", NULL,
            "not checked beyond a script that reads, since %s; docs/privileges.md has the commands and keys a relay "
            "needs",
            why);
}

/* ---- all of it */

static void judge(struct check *check, const struct question *questions, int n) {
  struct denials denials = {.first = {NULL}};
  struct err err = ERR_INIT;
  size_t bytes;
  for (int i = 0; i < n; i++) {
    const struct redis_reply *reply = redis_pipeline_reply(check->pipeline, i);
    if (redis_reply_is_error(reply, NULL, &err)) {
      char why[CHECK_TEXT_BYTES];
      bool is_denied = strcmp(err.code, "NOPERM") == 0;
      if (strstr(err.text, "Command '") != NULL) { /* renamed away */
        denials.is_command_denied[questions[i].command] = true;
        continue;
      }
      (void)snprintf(why, sizeof why,
                     is_denied ? "user %s may not run ACL DRYRUN (ACL SETUSER %s +acl|dryrun)"
                               : "user %s cannot be asked about by ACL DRYRUN, which Redis has since 7.0 (%s)",
                     check_redis_user(check), is_denied ? check_redis_user(check) : err.text);
      try_reading(check, why);
      return;
    }
    if (redis_reply_kind(reply) != REDIS_STATUS) {
      note_denial(check, &questions[i], redis_reply_text(reply, &bytes), &denials);
    }
  }
  say_denials(check, &denials);
}

void check_acl(struct check *check) {
  struct question *questions = NULL;
  struct err err = ERR_INIT;
  int n = list_questions(check, &questions);
  int rc = n < 0 ? -1 : 0;
  redis_pipeline_reset(check->pipeline, 0);
  for (int i = 0; i < n && rc == 0; i++) {
    const struct check_key *key = questions[i].key >= 0 ? &check->keys[questions[i].key] : NULL;
    rc = add_dry_run(check, questions[i].command, key, &err);
  }
  if (rc != 0) {
    check->is_out_of_memory = true;
  } else if (check_exchange(check, "redis_rights") == 0) {
    judge(check, questions, n);
  }
  free(questions);
}
