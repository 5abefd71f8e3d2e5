/*
 * The command line: one table from which parsing, validation, --help and the environment names all come.
 *
 * Runs on the main thread before any other exists.
 */
#ifndef OUTBOXD_OPTIONS_H
#define OUTBOXD_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"

enum option_type {
  OPTION_STRING,
  OPTION_LIST, /* strings; each time it is given adds one.  The environment gives one, which the command line replaces */
  OPTION_INT,
  OPTION_DURATION,
  OPTION_SIZE,
  OPTION_FLAG,
  OPTION_CHOICE
};

/* One row of the table; the table ends with name == NULL. */
struct option_row {
  const char *
      name; /* "max-attempts": the option is --max-attempts, the environment name OUTBOXD_MAX_ATTEMPTS.  Two rows may share it when no
                     * command takes both; the second has an own_env */
  enum option_type type;
  const char *argument;     /* "N", "URL", "5m" as shown in --help; NULL for a flag */
  const char *default_text; /* parsed like a given value; NULL: none */
  int64_t min,
      max; /* inclusive, in base units (ms, bytes); for OPTION_STRING and LIST min is the least length, max unused */
  const char *const *choices; /* OPTION_CHOICE: NULL-terminated, index = enum value */
  size_t offset;              /* of the field in struct cfg */
  unsigned commands;          /* bit set of 1u << enum cfg_command that take it */
  const char *fallback_env;   /* "DATABASE_URL": looked at after OUTBOXD_...; NULL: none */
  const char *help;           /* one sentence */
  const char *own_env;        /* instead of the environment name that follows from name; NULL: none */
};

/* The table, for tests and for whoever prints it. */
const struct option_row *options_table(void);

/* One command; the list ends with name == NULL. */
struct command_row {
  const char *name;
  enum cfg_command command;
  const char *help; /* a few words */
};

const struct command_row *options_commands(void);

bool options_takes(const struct option_row *row, enum cfg_command command);

/* What the row takes, as in an error: "a whole number from 1 to 64". */
void options_describe_range(const struct option_row *row, char *out, size_t n);

/* The environment name: "OUTBOXD_MAX_ATTEMPTS". */
void options_env_name(const struct option_row *row, char *out, size_t n);

/* Fills *cfg (zeroed by the callee) from argv, then environment, then defaults: argv wins.
 * ERR_USAGE with a text that names the option and what it takes, and points to --help.  Caller: options_free. */
must_check int options_parse(int argc, char *const argv[], struct cfg *cfg, struct err *err);
void options_free(struct cfg *cfg);

/* Writes the help text: for CFG_HELP the overview, else one command's. */
void options_help(FILE *out, enum cfg_command command);

#endif
