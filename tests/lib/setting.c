/*
 * Settings from the environment: see setting.h.
 */
#include "setting.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"

const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : otherwise;
}

int64_t setting_duration_ms(const char *text) {
  char *end;
  double value = strtod(text, &end);
  double factor = strcmp(end, "h") == 0 ? 3600 : strcmp(end, "m") == 0 ? 60 : strcmp(end, "s") == 0 ? 1 : 0;
  REQUIRE(end != text && factor > 0 && value > 0, "DURATION is \"%s\": it takes a number and s, m or h", text);
  return (int64_t)(value * factor * 1000);
}
