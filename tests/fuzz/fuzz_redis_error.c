/*
 * An error reply's text: always of a class the relay can act on, the same with every scripting engine's prefix before it.
 *
 * Input: the text.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/redis_error.h"

#define EFFECTS_ALL \
  (REDIS_EFFECT_EVAL | REDIS_EFFECT_DROP | REDIS_EFFECT_SINGLE | REDIS_EFFECT_ACCESS | REDIS_EFFECT_UNKNOWN)

/* Classifies a copy without a NUL behind it: replies are given with their length. */
static unsigned classify(const char *text, size_t n, struct err *err) {
  char *copy = malloc(n > 0 ? n : 1);
  FUZZ_REQUIRE(copy != NULL);
  if (n > 0) {
    memcpy(copy, text, n);
  }
  unsigned effects = redis_error_classify(copy, n, err);
  free(copy);
  return effects;
}

static void require_same_with(const char *before, const char *text, size_t n, const char *behind, unsigned effects,
                              const struct err *err) {
  size_t before_n = strlen(before);
  size_t behind_n = strlen(behind);
  struct err other = ERR_INIT;
  if (before_n + n + behind_n >= ERR_TEXT_BYTES) {
    return; /* cut elsewhere */
  }
  char longer[ERR_TEXT_BYTES];
  memcpy(longer, before, before_n);
  memcpy(longer + before_n, text, n);
  memcpy(longer + before_n + n, behind, behind_n);
  FUZZ_REQUIRE(classify(longer, before_n + n + behind_n, &other) == effects);
  FUZZ_REQUIRE(other.class == err->class && strcmp(other.code, err->code) == 0 && strcmp(other.text, err->text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  const char *text = (const char *)data;
  struct err err = ERR_INIT;
  unsigned effects = classify(text, n, &err);
  FUZZ_REQUIRE((effects & ~(unsigned)EFFECTS_ALL) == 0);
  FUZZ_REQUIRE(err.class == ERR_RETRY || err.class == ERR_REJECT);
  /* What nobody knows is a message's fault, so that it cannot hold up all others for ever. */
  FUZZ_REQUIRE((effects & REDIS_EFFECT_UNKNOWN) == 0 || (err.class == ERR_REJECT && effects == REDIS_EFFECT_UNKNOWN));
  FUZZ_REQUIRE((effects & REDIS_EFFECT_SINGLE) == 0 || err.class == ERR_REJECT);
  FUZZ_REQUIRE((effects & REDIS_EFFECT_EVAL) == 0 || err.class == ERR_RETRY);
  FUZZ_REQUIRE(strpbrk(err.text, "\r\n") == NULL && strlen(err.text) <= n);
  FUZZ_REQUIRE(strchr(err.code, ' ') == NULL);
  FUZZ_REQUIRE(strncmp(err.text, err.code, strlen(err.code)) == 0 || strcmp(err.code, "NOPERM") == 0 ||
               strpbrk(err.code, "\r\n") != NULL);

  bool has_own = n == 0 || memchr(text, '\0', n) != NULL || text[0] == '-' || text[0] == '@' || text[0] == ' ' ||
                 (n >= 4 && memcmp(text, "ERR ", 4) == 0);
  if (!has_own) {
    require_same_with("", text, n, "\r\n", effects, &err);
    require_same_with("-", text, n, "", effects, &err);
    require_same_with("@user_script: 44: -", text, n, "", effects, &err);
    require_same_with("@user_script:7: ", text, n, "", effects, &err);
    require_same_with("ERR Error running script (call to f_0123456789abcdef): @user_script:12: ", text, n, "", effects,
                      &err);
    require_same_with("ERR Error running script (call to f_0123456789abcdef): @user_script:12: @user_script: 12: -",
                      text, n, "", effects, &err);
  }
  return 0;
}
