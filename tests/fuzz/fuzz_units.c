/*
 * Durations and sizes: what is taken is what wide arithmetic says, and is formatted and read back to the same.
 *
 * Input: the text.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/units.h"

struct unit {
  const char *suffix;
  int64_t factor;
};

static const struct unit durations[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
static const struct unit sizes[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
#define UNITS_N 5

/* Digits, then a unit, and no more than an int64_t holds. */
static bool expect(const char *text, const struct unit *units, int64_t *out) {
  size_t digits_n = strspn(text, "0123456789");
  const char *digits = text;
  const char *suffix = text + digits_n;
  bool is_nothing = digits_n > 0 && strspn(text, "0") == digits_n;
  if (digits_n == 0) {
    return false;
  }
  while (digits_n > 1 && *digits == '0') {
    digits++;
    digits_n--;
  }
  if (digits_n > 19) {
    return false;
  }
  unsigned long long number = strtoull(digits, NULL, 10);
  for (int i = 0; i < UNITS_N; i++) {
    if (strcmp(suffix, units[i].suffix) == 0 || (is_nothing && *suffix == '\0')) {
      *out = (int64_t)(number * (unsigned long long)units[i].factor);
      return number <= (unsigned long long)(INT64_MAX / units[i].factor);
    }
  }
  return false;
}

static void check(const char *text, const struct unit *units, int (*parse)(const char *, int64_t *, struct err *),
                  void (*format)(int64_t, char *, size_t)) {
  int64_t want = 0;
  int64_t value = -1;
  struct err err = ERR_INIT;
  bool is_good = expect(text, units, &want);
  FUZZ_REQUIRE((parse(text, &value, &err) == 0) == is_good);
  if (!is_good) {
    FUZZ_REQUIRE(err.class == ERR_USAGE && err.text[0] != '\0');
    FUZZ_REQUIRE(strpbrk(err.text, "\r\n") == NULL);
    return;
  }
  FUZZ_REQUIRE(value == want && value >= 0);
  char formatted[32];
  format(value, formatted, sizeof formatted);
  int64_t again = -1;
  FUZZ_REQUIRE(parse(formatted, &again, &err) == 0 && again == value);
  if (text[0] != '0' && units == durations) {
    FUZZ_REQUIRE(strlen(formatted) <= strlen(text));
  }
  char *cut = malloc(3);
  FUZZ_REQUIRE(cut != NULL);
  format(value, cut, 3);
  FUZZ_REQUIRE(strlen(cut) < 3 && strncmp(cut, formatted, strlen(cut)) == 0);
  free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  size_t bytes;
  char *text = fuzz_rest(&input, &bytes);
  check(text, durations, units_parse_duration_ms, units_format_duration);
  check(text, sizes, units_parse_size_bytes, units_format_size);
  free(text);
  return 0;
}
