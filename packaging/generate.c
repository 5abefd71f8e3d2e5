/*
 * Writes the manual page and the completions, from the same table that reads the command line.
 *
 *   generate PROGRAM man TEMPLATE    TEMPLATE with its lines @COMMANDS@, @OPTIONS@ and @ENVIRONMENT@ replaced, and @VERSION@ within lines
 *   generate PROGRAM bash            a completion for bash
 *   generate PROGRAM zsh             a completion for zsh
 *
 * PROGRAM is outboxd or outbox-consume.
 *
 * Runs at build time, on the machine that builds.  To the standard output; exit status 1 when that or the template fails.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/consume_cfg.h"
#include "outboxd/options.h"

#define LINE_BYTES 1024

/* The program that is written about. */
static const struct option_program *program;

/* Has it commands?  outbox-consume has none. */
static bool has_commands(void) {
  return program->commands[0].name[0] != '\0';
}

static bool is_path(const struct option_row *row) {
  return row->argument != NULL && strcmp(row->argument, "PATH") == 0;
}

/* -------------------------------------------------------------------------------------------------- the manual page */

/* Text as mdoc(7) has it: no backslash escapes, no control line; a sentence's words are not macros because each such line begins with \&. */
static void put_roff(const char *text) {
  (void)fputs("\\&", stdout);
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '\\') {
      (void)fputs("\\e", stdout);
    } else if (*at == '-') {
      (void)fputs("\\-", stdout);
    } else if (at[0] == ';' && at[1] == ' ') {
      (void)fputs(";\n\\&", stdout); /* lines of a readable length in the source */
      at++;
    } else {
      (void)putchar(*at);
    }
  }
}

/* The same with a capital at its beginning. */
static void put_sentence(const char *text) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line, "%s", text);
  line[0] = (char)toupper((unsigned char)line[0]);
  put_roff(line);
}

static void man_commands(void) {
  (void)puts(".Bl -tag -width retention");
  for (const struct command_row *command = program->commands; command->name != NULL; command++) {
    (void)printf(".It Cm %s\n", command->name);
    put_sentence(command->help);
    (void)puts(".");
  }
  (void)puts(".El");
}

static void man_option(const struct option_row *row) {
  (void)printf(".It Fl \\-%s", row->name);
  if (row->argument != NULL) {
    (void)printf(" Ar %s", row->argument);
  }
  (void)putchar('\n');
  put_sentence(row->help);
  (void)puts(".");
  if (row->type != OPTION_STRING) {
    char text[512];
    option_describe_range(row, text, sizeof text);
    (void)fputs("Takes ", stdout);
    put_roff(text);
    (void)puts(".");
  }
  if (row->default_text != NULL && row->default_text[0] != '\0') {
    (void)fputs("The default is\n.Ql ", stdout);
    put_roff(row->default_text);
    (void)puts(" .");
  }
  if (!has_commands()) {
    return;
  }
  (void)fputs("For", stdout);
  const char *separator = "";
  for (const struct command_row *command = program->commands; command->name != NULL; command++) {
    if (option_takes(row, command->command)) {
      (void)printf("%s\n.Cm %s", separator, command->name);
      separator = " ,";
    }
  }
  (void)puts(" .");
}

static void man_options(void) {
  (void)puts(".Bl -tag -width Ds");
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    man_option(row);
  }
  (void)puts(".El");
}

static void man_environment(void) {
  (void)puts(".Bl -tag -width Ds");
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    char name[64];
    option_env_name(program, row, name, sizeof name);
    (void)printf(".It Ev %s\n", name);
    if (row->fallback_env != NULL) {
      (void)printf("then\n.Ev %s :\n", row->fallback_env);
    }
    (void)printf(".Fl \\-%s\n", row->name);
  }
  (void)puts(".El");
}

/* One line of the template, with the version put in. */
static void put_line(char *line) {
  static const char mark[] = "@VERSION@";
  char *at = strstr(line, mark);
  if (at == NULL) {
    (void)fputs(line, stdout);
    return;
  }
  *at = '\0';
  (void)printf("%s%s", line, OUTBOXD_VERSION);
  put_line(at + sizeof mark - 1);
}

static int write_man(const char *path) {
  char line[LINE_BYTES];
  FILE *template = fopen(path, "re");
  if (template == NULL) {
    perror(path);
    return 1;
  }
  while (fgets(line, sizeof line, template) != NULL) {
    if (strcmp(line, "@COMMANDS@\n") == 0) {
      man_commands();
    } else if (strcmp(line, "@OPTIONS@\n") == 0) {
      man_options();
    } else if (strcmp(line, "@ENVIRONMENT@\n") == 0) {
      man_environment();
    } else {
      put_line(line);
    }
  }
  int status = ferror(template) != 0;
  (void)fclose(template);
  return status;
}

/* -------------------------------------------------------------------------------------------------- bash */

static void bash_options_of(const struct command_row *command) {
  (void)printf("    %s) options='", command->name);
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    if (option_takes(row, command->command)) {
      (void)printf("--%s ", row->name);
    }
  }
  (void)puts("--help' ;;");
}

/* What may follow "--name", as a list of words; OPTION_FLAG's only behind "=". */
static void bash_values_of(const struct option_row *row) {
  switch (row->type) {
  case OPTION_CHOICE:
    (void)printf("    --%s) values='", row->name);
    for (size_t i = 0; row->choices[i] != NULL; i++) {
      (void)printf("%s%s", i > 0 ? " " : "", row->choices[i]);
    }
    (void)puts("' ;;");
    return;
  case OPTION_FLAG:
    (void)printf("    --%s) values='yes no' kind=flag ;;\n", row->name);
    return;
  case OPTION_DURATION:
    (void)printf("    --%s) units='ms s m h d' ;;\n", row->name);
    return;
  case OPTION_SIZE:
    (void)printf("    --%s) units='B KiB MiB GiB' ;;\n", row->name);
    return;
  case OPTION_INT:
  case OPTION_STRING:
  case OPTION_LIST:
    if (is_path(row)) {
      (void)printf("    --%s) kind=path ;;\n", row->name);
    }
    return;
  }
}

static const char bash_head[] =
    "  local cur=${COMP_WORDS[COMP_CWORD]} option='' commands='' options='' values='' units='' kind=''\n"
    "  COMPREPLY=()\n";

/* "=" is a word of its own to bash: --name=value comes as three words. */
static const char bash_option[] = "  if [[ $cur == '=' ]]; then\n"
                                  "    option=${COMP_WORDS[COMP_CWORD - 1]} cur=''\n"
                                  "  elif [[ $COMP_CWORD -gt 2 && ${COMP_WORDS[COMP_CWORD - 1]} == '=' ]]; then\n"
                                  "    option=${COMP_WORDS[COMP_CWORD - 2]}\n"
                                  "  else\n"
                                  "    option=${COMP_WORDS[COMP_CWORD - 1]}\n"
                                  "  fi\n"
                                  "  case $option in\n";

static const char bash_tail[] =
    "  esac\n"
    "  if [[ $kind == flag && ${COMP_WORDS[COMP_CWORD]} != '=' && ${COMP_WORDS[COMP_CWORD - 1]} != '=' ]]; then\n"
    "    values=''\n"
    "  elif [[ $kind == path ]]; then\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "    return\n"
    "  elif [[ -n $units && $cur =~ ^[0-9]+ ]]; then\n"
    "    local number=${BASH_REMATCH[0]} unit\n"
    "    for unit in $units; do values+=\"$number$unit \"; done\n"
    "  fi\n"
    "  if [[ -n $values ]]; then\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$cur\")\n"
    "  elif [[ $option == --* && $kind != flag && $option != --help && $option != --version ]]; then\n"
    "    return # a value that nobody can guess\n"
    "  else\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
    "  fi\n"
    "}\n";

/* The completion's function: "_outbox_consume" for outbox-consume. */
static void put_function(void) {
  (void)putchar('_');
  for (const char *at = program->name; *at != '\0'; at++) {
    (void)putchar(*at == '-' ? '_' : *at);
  }
}

static void bash_commands(void) {
  (void)fputs("  commands='", stdout);
  for (const struct command_row *command = program->commands; command->name != NULL; command++) {
    (void)printf("%s ", command->name);
  }
  (void)fputs("--help --version'\n"
              "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
              "    mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n"
              "    return\n"
              "  fi\n"
              "  case ${COMP_WORDS[1]} in\n",
              stdout);
  for (const struct command_row *command = program->commands; command->name != NULL; command++) {
    bash_options_of(command);
  }
  (void)fputs("    *) return ;;\n  esac\n", stdout);
}

static void write_bash(void) {
  (void)printf("# bash completion for %s(1), made from its option table.\n", program->name);
  put_function();
  (void)fputs("() {\n", stdout);
  (void)fputs(bash_head, stdout);
  if (has_commands()) {
    bash_commands();
  } else {
    (void)fputs("  options='", stdout);
    for (const struct option_row *row = program->rows; row->name != NULL; row++) {
      (void)printf("--%s ", row->name);
    }
    (void)puts("--help --version'");
  }
  (void)fputs(bash_option, stdout);
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    bash_values_of(row);
  }
  (void)fputs(bash_tail, stdout);
  (void)fputs("complete -F ", stdout);
  put_function();
  (void)printf(" %s\n", program->name);
}

/* -------------------------------------------------------------------------------------------------- zsh */

/* Text within '...[text]:...' of _arguments: quotes, brackets and colons mean something there. */
static void put_zsh(const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '\'') {
      (void)fputs("'\\''", stdout);
    } else if (strchr("[]:\\", *text) != NULL) {
      (void)printf("\\%c", *text);
    } else {
      (void)putchar(*text);
    }
  }
}

static void zsh_option(const struct option_row *row) {
  /* "*": may be given several times. */
  (void)printf("        '%s--%s%s[", row->type == OPTION_LIST ? "*" : "", row->name,
               row->type == OPTION_FLAG ? "" : "=");
  put_zsh(row->help);
  (void)putchar(']');
  switch (row->type) {
  case OPTION_FLAG:
    break;
  case OPTION_CHOICE:
    (void)printf(":%s:(", row->argument);
    for (size_t i = 0; row->choices[i] != NULL; i++) {
      (void)printf("%s%s", i > 0 ? " " : "", row->choices[i]);
    }
    (void)putchar(')');
    break;
  case OPTION_DURATION:
    (void)printf(":%s:_outboxd_units ms s m h d", row->argument);
    break;
  case OPTION_SIZE:
    (void)printf(":%s:_outboxd_units B KiB MiB GiB", row->argument);
    break;
  case OPTION_INT:
  case OPTION_STRING:
  case OPTION_LIST:
    (void)printf(":%s:%s", row->argument, is_path(row) ? "_files" : "");
    break;
  }
  (void)puts("' \\");
}

static void zsh_head(void) {
  (void)printf("#compdef %s\n# zsh completion for %s(1), made from its option table.\n\n", program->name,
               program->name);
  (void)fputs("# A number that has been typed, with each unit.\n"
              "_outboxd_units() {\n"
              "  local number=${PREFIX%%[^0-9]*} units=()\n"
              "  local unit\n"
              "  while [[ $1 == -* ]]; do shift; done\n"
              "  for unit in \"$@\"; do units+=(\"$number$unit\"); done\n"
              "  [[ -n $number ]] && compadd -a units || _message 'a number with one of the units '\"$*\"\n"
              "}\n\n",
              stdout);
}

static void zsh_commands(void) {
  (void)fputs("_outboxd() {\n"
              "  local -a commands=(\n",
              stdout);
  for (const struct command_row *command = program->commands; command->name != NULL; command++) {
    (void)printf("    '%s:", command->name);
    put_zsh(command->help);
    (void)puts("'");
  }
  (void)fputs("  )\n"
              "  if (( CURRENT == 2 )); then\n"
              "    _describe -t commands command commands\n"
              "    compadd -- --help --version\n"
              "    return\n"
              "  fi\n"
              "  local command=$words[2]\n"
              "  shift words\n"
              "  (( CURRENT-- ))\n"
              "  case $command in\n",
              stdout);
  for (const struct command_row *command = program->commands; command->name != NULL; command++) {
    (void)printf("    %s)\n      _arguments \\\n", command->name);
    for (const struct option_row *row = program->rows; row->name != NULL; row++) {
      if (option_takes(row, command->command)) {
        zsh_option(row);
      }
    }
    (void)fputs("        '(- *)'{-h,--help}'[show the options of this command]' ;;\n", stdout);
  }
  (void)fputs("  esac\n}\n\n_outboxd \"$@\"\n", stdout);
}

static void write_zsh(void) {
  zsh_head();
  if (has_commands()) {
    zsh_commands();
    return;
  }
  put_function();
  (void)fputs("() {\n  _arguments \\\n", stdout);
  for (const struct option_row *row = program->rows; row->name != NULL; row++) {
    zsh_option(row);
  }
  (void)fputs("        '(- *)--version[show the version]' \\\n"
              "        '(- *)'{-h,--help}'[show the options]'\n}\n\n",
              stdout);
  put_function();
  (void)puts(" \"$@\"");
}

int main(int argc, char *argv[]) {
  int status = 0;
  const char *what = argc > 2 ? argv[2] : "";
  const char *of = argc > 1 ? argv[1] : "";
  if (strcmp(of, "outboxd") == 0) {
    program = options_program();
  } else if (strcmp(of, "outbox-consume") == 0) {
    program = consume_program();
  }
  if (program != NULL && argc == 4 && strcmp(what, "man") == 0) {
    status = write_man(argv[3]);
  } else if (program != NULL && argc == 3 && strcmp(what, "bash") == 0) {
    write_bash();
  } else if (program != NULL && argc == 3 && strcmp(what, "zsh") == 0) {
    write_zsh();
  } else {
    (void)fprintf(stderr, "generate: PROGRAM man TEMPLATE, PROGRAM bash or PROGRAM zsh\n");
    return 2;
  }
  return fflush(stdout) != 0 || ferror(stdout) != 0 ? 1 : status;
}
