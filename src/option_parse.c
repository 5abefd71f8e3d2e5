/*
 * Command lines and environments, read by a table of options.
 *
 * Owns nothing but the strings it puts into the caller's struct.  Main thread only, before any other exists.
 */
#include "outboxd/option_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/units.h"

const char *option_command_name(const struct option_program *program, int command) {
  for (const struct command_row *row = program->commands; row->name != NULL; row++) {
    if (row->command == command) {
      return row->name;
    }
  }
  return NULL;
}

int option_usage(const struct option_program *program, int command, const char *what, struct err *err) {
  const char *name = option_command_name(program, command);
  bool is_below = name != NULL && name[0] != '\0';
  return err_set(err, ERR_USAGE, "usage", "%s; see %s%s%s --help", what, program->name, is_below ? " " : "",
                 is_below ? name : "");
}

void option_describe_range(const struct option_row *row, char *out, size_t n) {
  char min[32];
  char max[32];
  switch (row->type) {
  case OPTION_STRING:
  case OPTION_LIST:
    (void)snprintf(out, n, "a text that is not empty");
    return;
  case OPTION_INT:
    (void)snprintf(out, n, "a whole number from %lld to %lld", (long long)row->min, (long long)row->max);
    return;
  case OPTION_DURATION:
    units_format_duration(row->min, min, sizeof min);
    units_format_duration(row->max, max, sizeof max);
    (void)snprintf(out, n, "a time from %s to %s, such as 500ms, 30s, 5m, 1h or 15d", min, max);
    return;
  case OPTION_SIZE:
    units_format_size(row->min, min, sizeof min);
    units_format_size(row->max, max, sizeof max);
    (void)snprintf(out, n, "a size from %s to %s, such as 512KiB or 8MiB", min, max);
    return;
  case OPTION_FLAG:
    (void)snprintf(out, n, "1, true, yes or on; or 0, false, no or off");
    return;
  case OPTION_CHOICE: {
    size_t used = (size_t)snprintf(out, n, "one of");
    for (size_t i = 0; row->choices[i] != NULL && used < n; i++) {
      used += (size_t)snprintf(out + used, n - used, "%s %s", i > 0 ? "," : "", row->choices[i]);
    }
    return;
  }
  }
}

static bool parse_int(const char *text, int64_t *out) {
  char *end;
  /* strtoll would take spaces and a plus sign too. */
  if ((text[0] < '0' || text[0] > '9') && text[0] != '-') {
    return false;
  }
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *end == '\0' && end != text && errno == 0;
}

static bool parse_flag(const char *text, bool *out) {
  static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if (strcmp(text, words[i]) == 0) {
      *out = i % 2 == 1;
      return true;
    }
  }
  return false;
}

static bool parse_choice(const char *text, const char *const *choices, unsigned *out) {
  for (unsigned i = 0; choices[i] != NULL; i++) {
    if (strcmp(text, choices[i]) == 0) {
      *out = i;
      return true;
    }
  }
  return false;
}

/* Reads text as the row has it and stores it; false when it is not what the row takes. */
static bool store_value(void *cfg, const struct option_row *row, const char *text) {
  void *field = (char *)cfg + row->offset;
  int64_t number = 0;
  switch (row->type) {
  case OPTION_STRING:
  case OPTION_LIST:
    return false; /* store_text */
  case OPTION_INT:
    if (!parse_int(text, &number) || number < row->min || number > row->max) {
      return false;
    }
    *(int *)field = (int)number;
    return true;
  case OPTION_DURATION:
    if (units_parse_duration_ms(text, &number, NULL) != 0 || number < row->min || number > row->max) {
      return false;
    }
    *(int64_t *)field = number;
    return true;
  case OPTION_SIZE:
    if (units_parse_size_bytes(text, &number, NULL) != 0 || number < row->min || number > row->max) {
      return false;
    }
    *(int64_t *)field = number;
    return true;
  case OPTION_FLAG:
    return parse_flag(text, field);
  case OPTION_CHOICE:
    return parse_choice(text, row->choices, field);
  }
  return false;
}

static char **string_field(void *cfg, const struct option_row *row) {
  void *field = (char *)cfg + row->offset;
  return field;
}

/* Stores a copy of text in place of what was there. */
static int store_string(void *cfg, const struct option_row *row, const char *text, struct err *err) {
  char **field = string_field(cfg, row);
  char *copy = strdup(text);
  if (copy == NULL) {
    return err_set(err, ERR_FATAL, "ENOMEM", "no memory for the options");
  }
  free(*field);
  *field = copy;
  return 0;
}

static struct option_list *list_field(void *cfg, const struct option_row *row) {
  void *field = (char *)cfg + row->offset;
  return field;
}

static void empty_list(struct option_list *list) {
  for (int i = 0; i < list->n; i++) {
    free(list->values[i]);
  }
  free(list->values);
  *list = (struct option_list){0};
}

/* Adds a copy of text. */
static int store_item(void *cfg, const struct option_row *row, const char *text, struct err *err) {
  struct option_list *list = list_field(cfg, row);
  char **grown = realloc(list->values, ((size_t)list->n + 1) * sizeof *grown);
  if (grown != NULL) {
    list->values = grown;
    list->values[list->n] = strdup(text);
  }
  if (grown == NULL || list->values[list->n] == NULL) {
    return err_set(err, ERR_FATAL, "ENOMEM", "no memory for the options");
  }
  list->n++;
  return 0;
}

static int store_text(void *cfg, const struct option_row *row, const char *text, struct err *err) {
  return row->type == OPTION_LIST ? store_item(cfg, row, text, err) : store_string(cfg, row, text, err);
}

/* Stores text, which came from source ("--lanes", "OUTBOXD_LANES"). */
static int store(const struct option_program *program, void *cfg, const struct option_row *row, const char *source,
                 const char *text, int command, struct err *err) {
  char range[128];
  char what[256];
  bool is_string = row->type == OPTION_STRING || row->type == OPTION_LIST;
  if (is_string ? (int64_t)strlen(text) >= row->min : store_value(cfg, row, text)) {
    return is_string ? store_text(cfg, row, text, err) : 0;
  }
  option_describe_range(row, range, sizeof range);
  if (is_string) {
    (void)snprintf(what, sizeof what, "%s takes %s", source, range);
  } else {
    (void)snprintf(what, sizeof what, "%s takes %s, not \"%.40s\"", source, range, text);
  }
  return option_usage(program, command, what, err);
}

bool option_takes(const struct option_row *row, int command) {
  return (row->commands & (1u << command)) != 0;
}

void option_env_name(const struct option_program *program, const struct option_row *row, char *out, size_t n) {
  if (row->own_env != NULL) {
    (void)snprintf(out, n, "%s", row->own_env);
    return;
  }
  size_t used = (size_t)snprintf(out, n, "%s%s", program->env_prefix, row->name);
  for (size_t i = 0; i < used && i < n; i++) {
    if (out[i] == '-') {
      out[i] = '_';
    } else if (out[i] >= 'a' && out[i] <= 'z') {
      out[i] = (char)(out[i] - 'a' + 'A');
    }
  }
}

/* Defaults for every row, so that no field is ever unset; then the environment for those the command takes.  An empty variable
 * counts as none: that is what ${NAME:-} makes of an unset one in a compose file. */
static int take_values(const struct option_program *program, int command, bool has_environment, void *cfg,
                       struct err *err) {
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    char name[64];
    option_env_name(program, row, name, sizeof name);
    const char *source = "default";
    const char *text = row->default_text;
    if (has_environment && option_takes(row, command)) {
      const char *own = getenv(name);
      const char *fallback = row->fallback_env != NULL ? getenv(row->fallback_env) : NULL;
      if (own != NULL && *own != '\0') {
        source = name;
        text = own;
      } else if (fallback != NULL && *fallback != '\0') {
        source = row->fallback_env;
        text = fallback;
      }
    }
    if (text != NULL && store(program, cfg, row, source, text, command, err) != 0) {
      return -1;
    }
  }
  return 0;
}

/* The row of "name" or "name=value": of those with this name the one that the command takes, else any. */
static const struct option_row *find_row(const struct option_program *program, const char *argument, int command) {
  size_t len = strcspn(argument, "=");
  const struct option_row *found = NULL;
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    if (strlen(row->name) == len && memcmp(row->name, argument, len) == 0 &&
        (found == NULL || option_takes(row, command))) {
      found = row;
    }
  }
  return found;
}

/* Takes one option from argv[*at], with its value moves *at on to the last argument used. */
static int take_option(const struct option_program *program, void *cfg, int command, int argc, char *const argv[],
                       int *at, struct err *err) {
  char what[256];
  const char *argument = argv[*at];
  const char *name = option_command_name(program, command);
  bool is_below = name != NULL && name[0] != '\0'; /* argv[1] is the command */
  if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0') {
    /* Not quoted: it may be a password that slipped. */
    (void)snprintf(what, sizeof what, "argument %d of %s is not an option; options start with --", *at - is_below,
                   is_below ? name : program->name);
    return option_usage(program, command, what, err);
  }
  int name_bytes = (int)strcspn(argument, "=");
  const struct option_row *row = find_row(program, argument + 2, command);
  if (row == NULL) {
    (void)snprintf(what, sizeof what, "there is no option %.*s", name_bytes < 40 ? name_bytes : 40, argument);
    return option_usage(program, command, what, err);
  }
  if (!option_takes(row, command)) {
    (void)snprintf(what, sizeof what, "--%s is not an option of %s", row->name, is_below ? name : program->name);
    return option_usage(program, command, what, err);
  }

  char source[64];
  (void)snprintf(source, sizeof source, "--%s", row->name);
  const char *value;
  if (argument[name_bytes] == '=') {
    value = argument + name_bytes + 1;
  } else if (row->type == OPTION_FLAG) {
    value = "true";
  } else if (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0) {
    value = argv[++*at];
  } else {
    (void)snprintf(what, sizeof what, "%s needs a value: %s %s", source, source, row->argument);
    return option_usage(program, command, what, err);
  }
  if (row->type == OPTION_LIST && !list_field(cfg, row)->is_of_argv) {
    empty_list(list_field(cfg, row));
    list_field(cfg, row)->is_of_argv = true;
  }
  return store(program, cfg, row, source, value, command, err);
}

bool option_is_help(const char *argument) {
  return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

int option_take_environment(const struct option_program *program, int command, void *values, struct err *err) {
  return take_values(program, command, true, values, err);
}

int option_take_defaults(const struct option_program *program, int command, void *values, struct err *err) {
  return take_values(program, command, false, values, err);
}

int option_take_arguments(const struct option_program *program, int command, int argc, char *const argv[], int from,
                          void *values, struct err *err) {
  for (int i = from; i < argc; i++) {
    if (take_option(program, values, command, argc, argv, &i, err) != 0) {
      return -1;
    }
  }
  return 0;
}

int option_set(const struct option_program *program, int command, const char *name, const char *value, void *values,
               struct err *err) {
  char what[128];
  const struct option_row *row = find_row(program, name, command);
  if (row == NULL || strchr(name, '=') != NULL || !option_takes(row, command)) {
    return err_set(err, ERR_USAGE, "option", "there is no option \"%.40s\"", name);
  }
  (void)snprintf(what, sizeof what, "the option \"%s\"", row->name);
  return store(program, values, row, what, value, command, err);
}

void option_free(const struct option_program *program, void *values) {
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    if (row->type == OPTION_STRING) {
      char **field = string_field(values, row);
      free(*field);
      *field = NULL;
    } else if (row->type == OPTION_LIST) {
      empty_list(list_field(values, row));
    }
  }
}

static void print_row(const struct option_program *program, FILE *out, const struct option_row *row) {
  char name[64];
  option_env_name(program, row, name, sizeof name);
  (void)fprintf(out, "  --%s%s%s\n      %s\n      [", row->name, row->argument != NULL ? " " : "",
                row->argument != NULL ? row->argument : "", row->help);
  if (row->default_text != NULL && row->default_text[0] != '\0') {
    (void)fprintf(out, "default %s, ", row->default_text);
  }
  (void)fprintf(out, "environment %s%s%s]\n", name, row->fallback_env != NULL ? ", then " : "",
                row->fallback_env != NULL ? row->fallback_env : "");
}

void option_print(const struct option_program *program, int command, FILE *out) {
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    if (option_takes(row, command)) {
      print_row(program, out, row);
    }
  }
  (void)fprintf(
      out,
      "\nTimes take ms, s, m, h, d; sizes B, KiB, MiB, GiB.  An option on the command line wins over the environment;\n"
      "a flag's variable takes 1, true, yes, on or 0, false, no, off.\n");
}
