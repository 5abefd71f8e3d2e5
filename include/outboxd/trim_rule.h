/*
 * What --trim says, and whether it and its like can hold for a template.
 *
 * Pure functions, any thread.
 */
#ifndef OUTBOXD_TRIM_RULE_H
#define OUTBOXD_TRIM_RULE_H

#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/template.h"

enum trim_mode {
  TRIM_NOTHING,
  TRIM_ACKED,  /* what every consumer group of the stream has acknowledged */
  TRIM_MAXLEN, /* what is beyond the newest n entries, read or not */
  TRIM_AGE     /* what is older, read or not */
};

struct trim_rule {
  enum trim_mode mode;
  int64_t value; /* TRIM_ACKED: --trim-keep, TRIM_AGE: the age, both in milliseconds; TRIM_MAXLEN: entries */
};

/* Reads cfg->trim and cfg->trim_keep_ms.  ERR_USAGE with what is wrong and a right example: another word; a number or a time that is none, or out of
 * range; --stream-ttl with a template of one stream a lane. */
must_check int trim_rule_read(const struct cfg *cfg, const struct template *template, struct trim_rule *out,
                              struct err *err);

/* "acked", "maxlen", "age" or "none": what src/trim.lua is told. */
const char *trim_mode_name(enum trim_mode mode);

#endif
