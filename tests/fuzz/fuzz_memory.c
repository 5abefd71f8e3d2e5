/*
 * What Redis says about its memory (INFO memory): figures are taken from the lines that have their names, or it is not understood.
 *
 * Input: the reply's text.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/alert_rules.h"

/* Does a line begin with "name:"?  *value gets what stands behind it. */
static bool has_line(const char *text, const char *name, const char **value) {
  size_t n = strlen(name);
  const char *line = text;
  while (strncmp(line, name, n) != 0 || line[n] != ':') {
    line = strchr(line, '\n');
    if (line == NULL) {
      return false;
    }
    line++;
  }
  *value = line + n + 1;
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  size_t bytes;
  char *text = fuzz_rest(&input, &bytes);
  struct alert_memory memory = {0};
  const char *used = NULL;
  const char *max = NULL;
  const char *policy = NULL;
  bool is_whole = has_line(text, "used_memory", &used) && has_line(text, "maxmemory", &max) &&
                  has_line(text, "maxmemory_policy", &policy);
  FUZZ_REQUIRE(alert_read_memory(text, &memory) == is_whole);
  if (is_whole) {
    FUZZ_REQUIRE(memory.used_bytes == strtoll(used, NULL, 10) && memory.max_bytes == strtoll(max, NULL, 10));
    FUZZ_REQUIRE(strlen(memory.policy) < sizeof memory.policy && strpbrk(memory.policy, "\r\n") == NULL);
    FUZZ_REQUIRE(strncmp(policy, memory.policy, strlen(memory.policy)) == 0);
    FUZZ_REQUIRE(!alert_may_evict(&memory) || (memory.max_bytes > 0 && strncmp(policy, "allkeys-", 8) == 0));
    FUZZ_REQUIRE(!alert_is_nearly_full(&memory, false) || alert_is_nearly_full(&memory, true));
    FUZZ_REQUIRE(memory.max_bytes > 0 || !alert_is_nearly_full(&memory, true));
  }
  free(text);
  return 0;
}
