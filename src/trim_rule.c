/*
 * Reads --trim.
 *
 * Owns nothing.  Any thread.
 */
#include "outboxd/trim_rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/units.h"

#define MAXLEN_MIN 1
#define MAXLEN_MAX INT64_C(1000000000000)
#define AGE_MIN_MS INT64_C(1000)
#define AGE_MAX_MS (INT64_C(3650) * 24 * 3600 * 1000)

const char *trim_mode_name(enum trim_mode mode) {
  static const char *const names[] = {
      [TRIM_NOTHING] = "none", [TRIM_ACKED] = "acked", [TRIM_MAXLEN] = "maxlen", [TRIM_AGE] = "age"};
  return names[mode];
}

static int bad(struct err *err, const char *text, const char *what) {
  return err_set(err, ERR_USAGE, "bad_trim", "--trim takes %s, not \"%.40s\"", what, text);
}

static int read_maxlen(const char *text, const char *number, int64_t *out, struct err *err) {
  char *end = NULL;
  errno = 0;
  int64_t n = number[0] >= '0' && number[0] <= '9' ? strtoll(number, &end, 10) : 0;
  if (end == NULL || *end != '\0' || errno != 0 || n < MAXLEN_MIN || n > MAXLEN_MAX) {
    return bad(err, text, "maxlen=N with N from 1 to 1000000000000, such as maxlen=100000");
  }
  *out = n;
  return 0;
}

static int read_age(const char *text, const char *age, int64_t *out, struct err *err) {
  if (units_parse_duration_ms(age, out, NULL) != 0 || *out < AGE_MIN_MS || *out > AGE_MAX_MS) {
    return bad(err, text, "age=TIME with a time from 1s to 3650d, such as age=7d");
  }
  return 0;
}

static int read_rule(const struct cfg *cfg, struct trim_rule *out, struct err *err) {
  static const char maxlen[] = "maxlen=";
  static const char age[] = "age=";
  const char *text = cfg->trim;
  if (strcmp(text, "acked") == 0) {
    *out = (struct trim_rule){TRIM_ACKED, cfg->trim_keep_ms};
    return 0;
  }
  if (strncmp(text, maxlen, strlen(maxlen)) == 0) {
    out->mode = TRIM_MAXLEN;
    return read_maxlen(text, text + strlen(maxlen), &out->value, err);
  }
  if (strncmp(text, age, strlen(age)) == 0) {
    out->mode = TRIM_AGE;
    return read_age(text, text + strlen(age), &out->value, err);
  }
  return bad(err, text, "acked, maxlen=N or age=TIME, such as acked, maxlen=100000 or age=7d");
}

int trim_rule_read(const struct cfg *cfg, const struct template *template, struct trim_rule *out, struct err *err) {
  *out = (struct trim_rule){TRIM_NOTHING, 0};
  if (cfg->stream_ttl_ms > 0 && template_is_per_lane(template)) {
    return err_set(err, ERR_USAGE, "bad_stream_ttl",
                   "--stream-ttl is for streams that are one of many: --stream needs %%t, %%i or %%e for it, such as "
                   "outbox:{%%l}:%%t:%%i.  A lane's only stream would be gone with its consumer groups after a quiet "
                   "night; --trim acked or --trim age=TIME keep it small");
  }
  return cfg->trim[0] == '\0' ? 0 : read_rule(cfg, out, err);
}
