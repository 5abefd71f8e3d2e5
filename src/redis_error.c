/*
 * The table of Redis error replies.
 *
 * Owns the table; no state.  Any thread.
 */
#include "outboxd/redis_error.h"

#include <ctype.h>
#include <string.h>

struct row {
  const char *word;   /* the first word */
  const char *within; /* also contained in the text; NULL: anything */
  enum err_class class;
  unsigned effects;
};

/* The first row that fits counts.  What is in no row is a message's fault (ERR_REJECT) and logged whole. */
static const struct row rows[] = {
    /* The server as a whole cannot take writes now. */
    {"OOM", NULL, ERR_RETRY, 0},
    {"MISCONF", NULL, ERR_RETRY, 0},
    {"LOADING", NULL, ERR_RETRY, 0},
    {"NOREPLICAS", NULL, ERR_RETRY, 0},
    {"BUSY", NULL, ERR_RETRY, 0},
    {"UNKILLABLE", NULL, ERR_RETRY, 0},
    {"NOTBUSY", NULL, ERR_RETRY, 0},
    {"NOGOODSLAVE", NULL, ERR_RETRY, 0},
    {"UNBLOCKED", NULL, ERR_RETRY, 0}, /* a WAIT cut short by a change of role */
    {"ERR", "max number of clients", ERR_RETRY, REDIS_EFFECT_DROP},
    {"ERR", "WAIT cannot be used with replica", ERR_RETRY, REDIS_EFFECT_DROP},
    {"ERR", "DISABLED", ERR_RETRY, 0},
    /* Another server is the right one by now. */
    {"READONLY", NULL, ERR_RETRY, REDIS_EFFECT_DROP},
    {"MASTERDOWN", NULL, ERR_RETRY, REDIS_EFFECT_DROP},
    {"CLUSTERDOWN", NULL, ERR_RETRY, 0},
    {"TRYAGAIN", NULL, ERR_RETRY, 0},
    {"MOVED", NULL, ERR_RETRY, REDIS_EFFECT_DROP},
    {"ASK", NULL, ERR_RETRY, REDIS_EFFECT_DROP},
    {"CROSSSLOT", NULL, ERR_RETRY, 0},
    /* Who we are and what we may. */
    {"NOAUTH", NULL, ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"WRONGPASS", NULL, ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"DENIED", NULL, ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS}, /* protected mode */
    {"ERR", "invalid password", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"ERR", "AUTH <password> called without any password", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"ERR", "Client sent AUTH, but no password is set", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"ERR", "DB index is out of range", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"ERR", "invalid DB index", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"ERR", "SELECT is not allowed in cluster mode", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS},
    {"ERR", "unknown command", ERR_RETRY, REDIS_EFFECT_ACCESS}, /* renamed away, or no Redis */
    {"NOPERM", " key", ERR_REJECT, REDIS_EFFECT_SINGLE | REDIS_EFFECT_ACCESS},
    {"NOPERM", NULL, ERR_RETRY, REDIS_EFFECT_ACCESS},
    /* The script. */
    {"NOSCRIPT", NULL, ERR_RETRY, REDIS_EFFECT_EVAL},
    /* A message. */
    {"WRONGTYPE", NULL, ERR_REJECT, 0},
    {"ERR", "Protocol error", ERR_REJECT,
     REDIS_EFFECT_SINGLE | REDIS_EFFECT_DROP}, /* a value above proto-max-bulk-len */
    {"ERR", "Elements are too large to be stored", ERR_REJECT, 0},
    {"ERR", "string exceeds maximum allowed size", ERR_REJECT, 0},
    {"ERR", "stream has exhausted the last possible ID", ERR_REJECT, 0},
    {"ERR", "The ID specified in XADD", ERR_REJECT, 0},
};

static bool starts_with(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Steps over what scripting engines put before an error: "ERR Error running script (call to f_<sha>): ", "@user_script:12: " or
 * "@user_script: 12: ", the protocol's '-'. */
static const char *skip_prefixes(const char *text) {
  if (starts_with(text, "ERR Error running script") || starts_with(text, "ERR Error compiling script")) {
    const char *at = strstr(text, "@user_script");
    text = at != NULL ? at : text;
  }
  while (starts_with(text, "@user_script:")) {
    const char *at = text + strlen("@user_script:");
    at += strspn(at, " 0123456789");
    if (*at != ':') {
      break;
    }
    text = at + 1 + strspn(at + 1, " ");
  }
  return *text == '-' ? text + 1 : text;
}

/* Redis before 7.2 reports what an ACL forbids within a script as a common error. */
static bool is_script_acl(const char *text) {
  if (starts_with(text, "ERR ")) {
    text += strlen("ERR ");
  }
  return starts_with(text, "ACL failure in script") || starts_with(text, "The user executing the script can't");
}

unsigned redis_error_classify(const char *text, size_t bytes, struct err *err) {
  char copy[ERR_TEXT_BYTES];
  size_t n = bytes < sizeof copy - 1 ? bytes : sizeof copy - 1;
  memcpy(copy, text, n);
  copy[n] = '\0';
  while (n > 0 && isspace((unsigned char)copy[n - 1])) {
    copy[--n] = '\0';
  }
  const char *clean = skip_prefixes(copy);

  char word[ERR_CODE_BYTES];
  size_t word_bytes = strcspn(clean, " ");
  word_bytes = word_bytes < sizeof word - 1 ? word_bytes : sizeof word - 1;
  memcpy(word, clean, word_bytes);
  word[word_bytes] = '\0';
  if (is_script_acl(clean)) {
    memcpy(word, "NOPERM", sizeof "NOPERM");
  }

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct row *row = &rows[i];
    if (strcmp(word, row->word) == 0 && (row->within == NULL || strstr(clean, row->within) != NULL)) {
      (void)err_set(err, row->class, word, "%s", clean);
      return row->effects;
    }
  }
  (void)err_set(err, ERR_REJECT, word, "%s", clean);
  return REDIS_EFFECT_UNKNOWN;
}

enum redis_dry_run redis_error_dry_run(const char *text) {
  if (strstr(text, "no permissions to run") != NULL) {
    return REDIS_DRY_RUN_DENIED_COMMAND;
  }
  return strstr(text, "no permissions to access") != NULL ? REDIS_DRY_RUN_DENIED_KEY : REDIS_DRY_RUN_UNKNOWN;
}
