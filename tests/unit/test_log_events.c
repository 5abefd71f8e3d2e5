/*
 * The log's contract: docs/logging.md and docs/alerting.md say what the sources do (scripts/check-log-events.sh), and the check sees it when
 * they do not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static char dir[] = "/tmp/outboxd-events-XXXXXX";
static char said[1 << 16]; /* what the last run wrote */

static int make_dir(void **state) {
  (void)state;
  return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state) {
  char command[100];
  (void)state;
  (void)snprintf(command, sizeof command, "rm -r %s", dir);
  return system(command);
}

/* Runs the check and returns its exit status. */
static int check(const char *arguments) {
  char command[300];
  (void)snprintf(command, sizeof command, "scripts/check-log-events.sh %s 2>&1", arguments);
  FILE *out = popen(command, "r");
  assert_non_null(out);
  size_t n = fread(said, 1, sizeof said - 1, out);
  said[n] = '\0';
  int status = pclose(out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void pages_say_what_the_sources_do(void **state) {
  (void)state;
  if (check("") != 0) {
    fail_msg("\n%s", said);
  }
}

static void write_file(const char *name, const char *text) {
  char path[100];
  (void)snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

/* The check of a source and two pages. */
static int check_these(const char *source, const char *logging, const char *alerting) {
  char arguments[200];
  write_file("a.c", source);
  write_file("logging.md", logging);
  write_file("alerting.md", alerting);
  (void)snprintf(arguments, sizeof arguments, "%s %s/logging.md %s/alerting.md", dir, dir, dir);
  return check(arguments);
}

#define SOURCE                                                                                                         \
  "/* log_event(LOG_INFO, \"in_a_comment\", LOG_INT(\"x\", 1)); */\n"                                                  \
  "static const struct { const char *event; int n; } names[2] = {[A] = {\"b_over\", 1}, [B] = {\"c_over\", 2}};\n"     \
  "void f(void) {\n"                                                                                                   \
  "  log_event(LOG_WARNING, \"a\",\n            is_x ? \"one, (\\\"two\\\")\" : \"three\", LOG_INT(\"n\", g(1, 2)),\n" \
  "            LOG_STR(\"s\", p[1]));\n"                                                                               \
  "  log_event(is_x ? LOG_ERROR : LOG_INFO, is_x ? \"b\" : \"c\", err.text, LOG_REAL(\"t_seconds\", 1.0));\n"          \
  "  log_event(LOG_INFO, names[i].event, names[i].message, LOG_BOOL(\"is_x\", is_x));\n"                               \
  "  log_event(x ? LOG_CRITICAL : LOG_ERROR, \"d\", \"m\", figure(\"n\", 1));\n"                                       \
  "}\n"

#define EVENTS                                                                         \
  "| event | level | alert | fields | when |\n| --- | --- | --- | --- | --- |\n"       \
  "| `a` | warning | ticket | `n`, `s` | x |\n| `b` | error | - | `t_seconds` | x |\n" \
  "| `c` | info | - | `t_seconds` | x |\n| `b_over` | info | - | `is_x` | x |\n| `c_over` | info | - | `is_x` | x |\n"
#define EVENT_D "| `d` | error, critical | page | `n` | x |\n"
#define FIELDS "\n| field | meaning |\n| --- | --- |\n| `n`, `s` | x |\n| `t_seconds` | x |\n| `is_x` | x |\n"
#define RULES "rule: event=~\"a|d\"\n"

static void every_form_of_call_is_read(void **state) {
  (void)state;
  if (check_these(SOURCE, EVENTS EVENT_D FIELDS, RULES) != 0) {
    fail_msg("\n%s", said);
  }
}

static void every_difference_is_found(void **state) {
  (void)state;
  static const struct {
    const char *source, *logging, *alerting, *want;
  } cases[] = {
      {SOURCE, EVENTS FIELDS, RULES, "in the sources, not in "},
      {SOURCE, EVENTS "| `d` | error | page | `n` | x |\n" FIELDS, RULES, "d level critical"},
      {SOURCE, EVENTS "| `d` | error, critical, info | page | `n` | x |\n" FIELDS, RULES, "d level info"},
      {SOURCE, EVENTS "| `d` | error, critical | page | | x |\n" FIELDS, RULES, "d field n"},
      {SOURCE, EVENTS "| `d` | error, critical | page | `n`, `m` | x |\n" FIELDS, RULES, "d field m"},
      {SOURCE, EVENTS EVENT_D "| `e` | info | - | `n` | x |\n" FIELDS, RULES, "not in the sources: e level info"},
      {SOURCE, EVENTS EVENT_D FIELDS "| `u` | x |\n", RULES, "no event has: u"},
      {SOURCE, EVENTS EVENT_D "\n| field | meaning |\n| `n`, `s` | x |\n| `is_x` | x |\n", RULES, "explain: t_seconds"},
      {SOURCE, EVENTS EVENT_D FIELDS, "rule: event=~\"a\"\n", "for the event: d"},
      {SOURCE, EVENTS EVENT_D FIELDS, RULES "{ $.event = \"gone\" }\n", "there is not: gone"},
      {SOURCE "void g(void) { log_event(level_of(x), \"f\", \"m\", LOG_INT(\"n\", 1)); }\n", EVENTS EVENT_D FIELDS,
       RULES, "cannot be read"},
      {SOURCE "void g(void) { log_event(LOG_INFO, name, \"m\", LOG_INT(\"n\", 1)); }\n", EVENTS EVENT_D FIELDS, RULES,
       "cannot be read"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    if (check_these(cases[i].source, cases[i].logging, cases[i].alerting) != 1) {
      fail_msg("case %zu (%s) is not found: %s", i, cases[i].want, said);
    }
    assert_contains(said, cases[i].want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pages_say_what_the_sources_do),
      cmocka_unit_test(every_form_of_call_is_read),
      cmocka_unit_test(every_difference_is_found),
  };
  return cmocka_run_group_tests_name("log events", tests, make_dir, remove_dir);
}
