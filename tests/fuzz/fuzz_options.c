/*
 * The command line: whatever is taken lies within the option table's bounds, anything else is a usage error that says where help is.
 *
 * Input: the arguments, a line each.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/options.h"

#define ARGS_MAX 24

static void check_row(const struct cfg *cfg, const struct option_row *row) {
  const void *field = (const char *)cfg + row->offset;
  int64_t number = 0;
  unsigned choices_n = 0;
  switch (row->type) {
  case OPTION_STRING: {
    const char *const *text = field;
    FUZZ_REQUIRE(*text == NULL || (int64_t)strlen(*text) >= row->min);
    return;
  }
  case OPTION_LIST: {
    const struct option_list *list = field;
    for (int i = 0; i < list->n; i++) {
      FUZZ_REQUIRE((int64_t)strlen(list->values[i]) >= row->min);
    }
    return;
  }
  case OPTION_INT:
    number = *(const int *)field;
    break;
  case OPTION_DURATION:
  case OPTION_SIZE:
    number = *(const int64_t *)field;
    break;
  case OPTION_FLAG:
    return;
  case OPTION_CHOICE:
    while (row->choices[choices_n] != NULL) {
      choices_n++;
    }
    FUZZ_REQUIRE(*(const unsigned *)field < choices_n);
    return;
  }
  FUZZ_REQUIRE(number >= row->min && number <= row->max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  char program[] = "outboxd";
  char *argv[ARGS_MAX + 2] = {program};
  int argc = 1;
  size_t bytes;
  (void)clearenv(); /* whoever runs this may have OUTBOXD_... set */
  char *text = fuzz_rest(&input, &bytes);
  for (char *at = text; argc <= ARGS_MAX && at != NULL;) {
    char *end = strchr(at, '\n');
    argv[argc++] = at;
    if (end != NULL) {
      *end++ = '\0';
    }
    at = end;
  }
  struct cfg cfg;
  struct err err = ERR_INIT;
  if (options_parse(argc, argv, &cfg, &err) == 0) {
    if (cfg.command != CFG_HELP && cfg.command != CFG_VERSION) {
      for (const struct option_row *row = options_table(); row->name != NULL; row++) {
        check_row(&cfg, row);
      }
    }
  } else {
    FUZZ_REQUIRE(err.class == ERR_USAGE && strstr(err.text, "--help") != NULL);
    FUZZ_REQUIRE(strpbrk(err.text, "\r\n") == NULL);
  }
  options_free(&cfg);
  free(text);
  return 0;
}
