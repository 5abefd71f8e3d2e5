/*
 * Durations and sizes: text to a number of base units and back.
 *
 * Owns two tables of units; pure, any thread.
 */
#include "outboxd/units.h"

#include <stdio.h>
#include <string.h>

/* Cut a wrong value that is quoted in an error at this many bytes. */
#define QUOTED_BYTES 40

struct unit {
  const char *suffix;
  int64_t factor;
};

/* Largest first, as the formatter wants it. */
static const struct unit duration_units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000},
                                             {"s", 1000},     {"ms", 1},      {NULL, 0}};
static const struct unit size_units[] = {
    {"GiB", INT64_C(1) << 30}, {"MiB", INT64_C(1) << 20}, {"KiB", INT64_C(1) << 10}, {"B", 1}, {NULL, 0}};

static int bad(struct err *err, const char *text, const char *wanted) {
  return err_set(err, ERR_USAGE, "bad_value", "\"%.*s\" is not %s", QUOTED_BYTES, text, wanted);
}

/* A whole number and one of units; a number alone takes bare_factor, or is refused when that is 0 and it is not "0". */
static int parse(const char *text, const struct unit *units, int64_t bare_factor, const char *wanted, int64_t *out,
                 struct err *err) {
  int64_t number = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9'; p++) {
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *p - '0', &number)) {
      return err_set(err, ERR_USAGE, "bad_value", "\"%.*s\" is too large", QUOTED_BYTES, text);
    }
  }
  if (p == text) {
    return bad(err, text, wanted);
  }
  int64_t factor = 0;
  if (*p == '\0') {
    factor = number == 0 ? 1 : bare_factor;
  }
  for (const struct unit *unit = units; factor == 0 && unit->suffix != NULL; unit++) {
    if (strcmp(p, unit->suffix) == 0) {
      factor = unit->factor;
    }
  }
  if (factor == 0) {
    return bad(err, text, wanted);
  }
  if (__builtin_mul_overflow(number, factor, out)) {
    return err_set(err, ERR_USAGE, "bad_value", "\"%.*s\" is too large", QUOTED_BYTES, text);
  }
  return 0;
}

static void format(int64_t value, const struct unit *units, char *out, size_t n) {
  const struct unit *unit = units;
  while (unit[1].suffix != NULL && value % unit->factor != 0) {
    unit++;
  }
  (void)snprintf(out, n, "%lld%s", (long long)(value / unit->factor), unit->suffix);
}

int units_parse_duration_ms(const char *text, int64_t *out_ms, struct err *err) {
  return parse(text, duration_units, 0,
               "a duration: a whole number with ms, s, m, h or d behind it, such as 500ms or 15d", out_ms, err);
}

int units_parse_size_bytes(const char *text, int64_t *out_bytes, struct err *err) {
  return parse(text, size_units, 1, "a size: a whole number, with B, KiB, MiB or GiB behind it, such as 64KiB or 8MiB",
               out_bytes, err);
}

void units_format_duration(int64_t ms, char *out, size_t n) {
  if (ms == 0) {
    (void)snprintf(out, n, "0");
    return;
  }
  format(ms, duration_units, out, n);
}

void units_format_size(int64_t bytes, char *out, size_t n) {
  if (bytes == 0) {
    (void)snprintf(out, n, "0");
    return;
  }
  format(bytes, size_units, out, n);
}
