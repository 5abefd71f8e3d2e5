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
#include "outboxd/option_parse.h"

/* The table, for tests and for whoever prints it. */
const struct option_row *options_table(void);
/* The program that they belong to. */
const struct option_program *options_program(void);

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
