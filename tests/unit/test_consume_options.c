/*
 * A consumer's options: the table, what a library takes and what the program, what does not fit together.
 */
#include <stdlib.h>

#include "outboxd/consume_cfg.h"
#include "unit.h"

static const struct option_program *program(void) {
  return consume_program();
}

static int parse(int n, char *const *arguments, struct consume_cfg *cfg, struct err *err) {
  *cfg = (struct consume_cfg){0};
  return option_take_environment(program(), CONSUME_PROGRAM, cfg, err) == 0 &&
                 option_take_arguments(program(), CONSUME_PROGRAM, n, arguments, 0, cfg, err) == 0
             ? 0
             : -1;
}

static void defaults_are_in_range(void **state) {
  (void)state;
  struct consume_cfg cfg = {0};
  struct err err = ERR_INIT;
  assert_int_equal(option_take_defaults(program(), CONSUME_LIBRARY, &cfg, &err), 0);
  assert_null(cfg.group);
  assert_string_equal(cfg.stream, "outbox:{%l}");
  assert_int_equal(cfg.lanes_n, 16);
  assert_int_equal(cfg.threads_n, 1);
  assert_int_equal(cfg.max_attempts_n, 10);
  assert_int_equal(cfg.on_parked, CONSUME_ON_PARKED_SKIP);
  assert_int_equal(cfg.session_timeout_ms, 60000);
  assert_true(cfg.handler_timeout_ms < cfg.session_timeout_ms);
  assert_int_equal(consume_check(&cfg, &err), -1);
  assert_contains(err.text, "--group");
  option_free(program(), &cfg);
  option_free(program(), &cfg);
}

static void arguments_and_environment_are_read(void **state) {
  (void)state;
  char group[] = "--group=notify";
  char exec[] = "--exec";
  char command[] = "php notify.php";
  char threads[] = "--threads";
  char four[] = "4";
  char print[] = "--print";
  char *arguments[] = {group, exec, command, threads, four, print};
  struct consume_cfg cfg;
  struct err err = ERR_INIT;
  assert_int_equal(setenv("OUTBOXD_GROUP", "other", 1), 0);
  assert_int_equal(setenv("OUTBOXD_HANDLER_TIMEOUT", "5s", 1), 0);
  assert_int_equal(setenv("REDIS_URL", "redis://r:1", 1), 0);
  assert_int_equal(parse(6, arguments, &cfg, &err), 0);
  assert_string_equal(cfg.group, "notify");
  assert_string_equal(cfg.exec, "php notify.php");
  assert_int_equal(cfg.threads_n, 4);
  assert_int_equal(cfg.handler_timeout_ms, 5000);
  assert_string_equal(cfg.redis, "redis://r:1");
  assert_true(cfg.is_print);
  assert_int_equal(consume_check(&cfg, &err), 0);
  option_free(program(), &cfg);
  assert_int_equal(unsetenv("OUTBOXD_GROUP"), 0);
  assert_int_equal(unsetenv("OUTBOXD_HANDLER_TIMEOUT"), 0);
  assert_int_equal(unsetenv("REDIS_URL"), 0);
}

static void wrong_ones_are_told(void **state) {
  (void)state;
  static const struct {
    const char *argument, *says;
  } cases[] = {
      {"--threads=0", "--threads takes a whole number from 1 to 64, not \"0\"; see outbox-consume --help"},
      {"--group=", "--group takes a text that is not empty"},
      {"--on-parked=stop", "one of skip, block"},
      {"--batch", "--batch needs a value: --batch N"},
      {"--claimers=3", "there is no option --claimers"},
      {"secret", "is not an option; options start with --"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct consume_cfg cfg;
    struct err err = ERR_INIT;
    char argument[64];
    char *arguments[] = {argument};
    (void)snprintf(argument, sizeof argument, "%s", cases[i].argument);
    assert_int_equal(parse(1, arguments, &cfg, &err), -1);
    assert_int_equal(err.class, ERR_USAGE);
    assert_contains(err.text, cases[i].says);
    assert_lacks(err.text, "secret");
    option_free(program(), &cfg);
  }
}

static void a_library_takes_its_own_only(void **state) {
  (void)state;
  struct consume_cfg cfg = {0};
  struct err err = ERR_INIT;
  assert_int_equal(option_take_defaults(program(), CONSUME_LIBRARY, &cfg, &err), 0);
  assert_int_equal(option_set(program(), CONSUME_LIBRARY, "group", "g", &cfg, &err), 0);
  assert_int_equal(option_set(program(), CONSUME_LIBRARY, "retry-after", "2m", &cfg, &err), 0);
  assert_int_equal(consume_check(&cfg, &err), -1);
  assert_contains(err.text, "--retry-after is longer than --retry-max");
  assert_int_equal(option_set(program(), CONSUME_LIBRARY, "exec", "x", &cfg, &err), -1);
  assert_contains(err.text, "no option \"exec\"");
  assert_int_equal(option_set(program(), CONSUME_LIBRARY, "nothing", "x", &cfg, &err), -1);
  assert_int_equal(option_set(program(), CONSUME_LIBRARY, "group=x", "x", &cfg, &err), -1);
  option_free(program(), &cfg);
}

/* Each row is taken by somebody, says what it does, and is the only one of its name. */
static void rows_are_whole(void **state) {
  (void)state;
  for (const struct option_row *row = program()->rows; row->name != NULL; row++) {
    char name[64];
    option_env_name(program(), row, name, sizeof name);
    assert_memory_equal(name, "OUTBOXD_", 8);
    assert_true(option_takes(row, CONSUME_PROGRAM));
    assert_true(strlen(row->help) > 10);
    for (const struct option_row *other = row + 1; other->name != NULL; other++) {
      assert_string_not_equal(row->name, other->name);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_are_in_range), cmocka_unit_test(arguments_and_environment_are_read),
      cmocka_unit_test(wrong_ones_are_told),   cmocka_unit_test(a_library_takes_its_own_only),
      cmocka_unit_test(rows_are_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
