/*
 * Command lines and environments, read by a table of options: the machinery that the programs share.
 *
 * Runs on the main thread before any other exists.  A string's value never stands in an error: it may hold a password.  So may an argument that is in
 * the wrong place.
 */
#ifndef OUTBOXD_OPTION_PARSE_H
#define OUTBOXD_OPTION_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
  size_t offset;              /* of the field in the program's struct */
  unsigned commands;          /* bit set of 1u << command, of those that take it */
  const char *fallback_env;   /* "DATABASE_URL": looked at after OUTBOXD_...; NULL: none */
  const char *help;           /* one sentence */
  const char *own_env;        /* instead of the environment name that follows from name; NULL: none */
};

/* The values of an option that may be given several times. */
struct option_list {
  int n;
  bool is_of_argv; /* they stood on the command line: the environment's was dropped */
  char **values;
};

/* One command; the list ends with name == NULL. */
struct command_row {
  const char *name;
  int command;
  const char *help; /* a few words */
};

/* A program: its name, its options, its commands. */
struct option_program {
  const char *name;
  const char *env_prefix; /* "OUTBOXD_": before an option's name in capitals */
  const struct option_row *rows;
  const struct command_row *commands; /* a program without commands has one row with name "" */
};

/* The command's name; "" for a program without commands, NULL for none of its commands. */
const char *option_command_name(const struct option_program *program, int command);
bool option_takes(const struct option_row *row, int command);
/* What the row takes, as in an error: "a whole number from 1 to 64". */
void option_describe_range(const struct option_row *row, char *out, size_t n);
/* The environment name: "OUTBOXD_MAX_ATTEMPTS". */
void option_env_name(const struct option_program *program, const struct option_row *row, char *out, size_t n);
bool option_is_help(const char *argument);
/* ERR_USAGE with the text and where help is to be had; -1. */
int option_usage(const struct option_program *program, int command, const char *what, struct err *err);

/* Fills *values (zeroed by the caller) with each row's default, then what the environment has for rows that the command takes. */
must_check int option_take_environment(const struct option_program *program, int command, void *values,
                                       struct err *err);
/* The same with defaults only: for a library, which reads no environment. */
must_check int option_take_defaults(const struct option_program *program, int command, void *values, struct err *err);
/* Takes argv[from..argc-1]: they win over what is there. */
must_check int option_take_arguments(const struct option_program *program, int command, int argc, char *const argv[],
                                     int from, void *values, struct err *err);
/* Sets one option by its name, as if it stood on a command line. */
must_check int option_set(const struct option_program *program, int command, const char *name, const char *value,
                          void *values, struct err *err);
/* Frees the strings and lists; once more is fine. */
void option_free(const struct option_program *program, void *values);
/* Writes the help of the options that the command takes. */
void option_print(const struct option_program *program, int command, FILE *out);

#endif
