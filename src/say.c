/*
 * Text for people.
 *
 * Owns nothing; any thread.
 */
#include "outboxd/say.h"

#include <string.h>

#define US_PER_S INT64_C(1000000)
#define MINUTE_S 60
#define HOUR_S 3600
#define DAY_S 86400

const char *say_count(int64_t n, char out[SAY_BYTES]) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
  char *to = out;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') {
      *to++ = ',';
    }
    *to++ = digits[i];
  }
  *to = '\0';
  return out;
}

const char *say_age(int64_t us, char out[SAY_BYTES]) {
  int64_t s = us > 0 ? us / US_PER_S : 0;
  if (us <= 0) {
    (void)snprintf(out, SAY_BYTES, "0 s");
  } else if (s < 10) {
    (void)snprintf(out, SAY_BYTES, "%lld.%lld s", (long long)s, (long long)(us % US_PER_S / (US_PER_S / 10)));
  } else if (s < MINUTE_S) {
    (void)snprintf(out, SAY_BYTES, "%lld s", (long long)s);
  } else if (s < HOUR_S) {
    (void)snprintf(out, SAY_BYTES, "%lld m %lld s", (long long)(s / MINUTE_S), (long long)(s % MINUTE_S));
  } else if (s < DAY_S) {
    (void)snprintf(out, SAY_BYTES, "%lld h %lld m", (long long)(s / HOUR_S), (long long)(s % HOUR_S / MINUTE_S));
  } else {
    (void)snprintf(out, SAY_BYTES, "%lld d %lld h", (long long)(s / DAY_S), (long long)(s % DAY_S / HOUR_S));
  }
  return out;
}

const char *say_bytes(int64_t bytes, char out[SAY_BYTES]) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes / 1024;
  size_t unit = 0;
  if (bytes < 1024) {
    (void)snprintf(out, SAY_BYTES, "%lld B", (long long)bytes);
    return out;
  }
  while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
    value /= 1024;
    unit++;
  }
  (void)snprintf(out, SAY_BYTES, "%.1f %s", value, units[unit]);
  return out;
}

void say_clean(FILE *out, const char *text, size_t max) {
  size_t bytes = strlen(text);
  size_t n = bytes <= max ? bytes : max;
  while (n < bytes && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) {
    n--; /* not within a character */
  }
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    /* U+0080 to U+009F are control characters too: 0xc2 and one of these. */
    if (c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0) {
      i++;
      c = '\0';
    }
    (void)fputc(c < 0x20 || c == 0x7f ? '?' : c, out);
  }
  if (n < bytes) {
    (void)fputs("...", out);
  }
}
