/*
 * options: the table against itself, argv, environment, help, and what errors say.
 */
#include <stdio.h>
#include <stdlib.h>

#include "outboxd/options.h"
#include "unit.h"

#define SECRET "s3cret"
#define ARGV_MAX 16

/* "max-attempts" to "OUTBOXD_MAX_ATTEMPTS": on purpose not the code's own way. */
static void env_name(const char *option, char *out, size_t n) {
  (void)snprintf(out, n, "OUTBOXD_%s", option);
  for (char *p = out; *p != '\0'; p++) {
    const char *lower = "abcdefghijklmnopqrstuvwxyz-";
    const char *upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    const char *at = strchr(lower, *p);
    if (at != NULL) {
      *p = upper[at - lower];
    }
  }
}

static int clear_environment(void **state) {
  (void)state;
  for (const struct option_row *row = options_table(); row->name != NULL; row++) {
    char name[64];
    env_name(row->name, name, sizeof name);
    (void)unsetenv(name);
    if (row->fallback_env != NULL) {
      (void)unsetenv(row->fallback_env);
    }
  }
  return 0;
}

/* Parses "outboxd" and the words of line, which single spaces part. */
static int parse(const char *line, struct cfg *cfg, struct err *err) {
  char copy[512];
  char *argv[ARGV_MAX];
  int argc = 0;
  char *save = NULL;
  static char program[] = "outboxd";
  argv[argc++] = program;
  (void)snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
    assert_true(argc < ARGV_MAX - 1);
    argv[argc++] = word;
  }
  argv[argc] = NULL;
  return options_parse(argc, argv, cfg, err);
}

static void parse_well(const char *line, struct cfg *cfg) {
  struct err err = ERR_INIT;
  if (parse(line, cfg, &err) != 0) {
    fail_msg("\"%s\" was refused: %s", line, err.text);
  }
}

static void assert_refused(const char *line, const char *why) {
  struct cfg cfg;
  struct err err = ERR_INIT;
  if (parse(line, &cfg, &err) != -1) {
    options_free(&cfg);
    fail_msg("\"%s\" was taken", line);
  }
  assert_int_equal(err.class, ERR_USAGE);
  assert_contains(err.text, why);
  assert_contains(err.text, "--help");
  assert_lacks(err.text, SECRET);
  assert_null(cfg.database);
  assert_null(cfg.redis);
}

static void defaults_are_those_of_the_design(void **state) {
  (void)state;
  struct cfg cfg;
  parse_well("run", &cfg);
  assert_int_equal(cfg.command, CFG_RUN);
  assert_string_equal(cfg.database, "");
  assert_string_equal(cfg.redis, "redis://127.0.0.1:6379");
  assert_string_equal(cfg.table, "outbox_messages");
  assert_string_equal(cfg.stream, "outbox:{%l}");
  assert_int_equal(cfg.lanes_n, 16);
  assert_int_equal(cfg.claimers_n, 3);
  assert_int_equal(cfg.publishers_n, 2);
  assert_int_equal(cfg.batch_n, 2000);
  assert_int_equal(cfg.max_attempts_n, 10);
  assert_int_equal(cfg.on_dead, CFG_ON_DEAD_SKIP);
  assert_int_equal(cfg.poll_interval_ms, 100);
  assert_int_equal(cfg.stale_after_ms, 5 * 60 * 1000);
  assert_int_equal(cfg.stale_check_every_ms, 60 * 1000);
  assert_int_equal(cfg.retention_ms, INT64_C(15) * 86400 * 1000);
  assert_int_equal(cfg.partitions_ahead_ms, INT64_C(14) * 86400 * 1000);
  assert_int_equal(cfg.cleanup_every_ms, 3600 * 1000);
  assert_false(cfg.has_no_cleanup);
  assert_int_equal(cfg.max_batch_bytes, 32 << 20);
  assert_int_equal(cfg.max_write_bytes, 8 << 20);
  assert_int_equal(cfg.wait_replicas_n, 0);
  assert_int_equal(cfg.redis_timeout_ms, 5000);
  assert_int_equal(cfg.session_timeout_ms, 30000);
  assert_int_equal(cfg.shutdown_timeout_ms, 30000);
  assert_int_equal(cfg.stats_every_ms, 60000);
  assert_false(cfg.is_until_empty);
  assert_int_equal(cfg.log_level, LOG_INFO);
  assert_int_equal(cfg.log_format, LOG_JSON);
  options_free(&cfg);
  assert_null(cfg.table);
  options_free(&cfg);
}

static void both_forms_set_the_fields(void **state) {
  (void)state;
  static const char *const lines[] = {
      "run --database dbname=x --lanes 7 --on-dead block --max-write-bytes 1MiB --poll-interval 2s --until-empty "
      "--log-level debug",
      "run --database=dbname=x --lanes=7 --on-dead=block --max-write-bytes=1MiB --poll-interval=2s --until-empty=yes "
      "--log-level=debug",
  };
  for (size_t i = 0; i < COUNT(lines); i++) {
    struct cfg cfg;
    parse_well(lines[i], &cfg);
    assert_string_equal(cfg.database, "dbname=x");
    assert_int_equal(cfg.lanes_n, 7);
    assert_int_equal(cfg.on_dead, CFG_ON_DEAD_BLOCK);
    assert_int_equal(cfg.max_write_bytes, 1 << 20);
    assert_int_equal(cfg.poll_interval_ms, 2000);
    assert_true(cfg.is_until_empty);
    assert_int_equal(cfg.log_level, LOG_DEBUG);
    options_free(&cfg);
  }
}

static void init_takes_its_own(void **state) {
  (void)state;
  struct cfg cfg;
  parse_well("init --plain --print --partitions-ahead 3d --table audit.events", &cfg);
  assert_int_equal(cfg.command, CFG_INIT);
  assert_true(cfg.is_init_plain);
  assert_true(cfg.is_init_print);
  assert_int_equal(cfg.partitions_ahead_ms, INT64_C(3) * 86400 * 1000);
  assert_string_equal(cfg.table, "audit.events");
  options_free(&cfg);
  assert_refused("init --lanes 3", "--lanes is not an option of init");
  assert_refused("run --plain", "--plain is not an option of run");
}

static void the_last_one_wins(void **state) {
  (void)state;
  struct cfg cfg;
  parse_well("run --table a --table b --until-empty --until-empty=no", &cfg);
  assert_string_equal(cfg.table, "b");
  assert_false(cfg.is_until_empty);
  options_free(&cfg);
}

static void help_and_version_come_first(void **state) {
  (void)state;
  static const struct {
    const char *line;
    enum cfg_command command, help_for;
  } cases[] = {
      {"--help", CFG_HELP, CFG_HELP},    {"-h", CFG_HELP, CFG_HELP},
      {"help", CFG_HELP, CFG_HELP},      {"--version", CFG_VERSION, CFG_HELP},
      {"run --help", CFG_HELP, CFG_RUN}, {"run --lanes nonsense -h", CFG_HELP, CFG_RUN},
      {"init -h", CFG_HELP, CFG_INIT},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct cfg cfg;
    parse_well(cases[i].line, &cfg);
    assert_int_equal(cfg.command, cases[i].command);
    assert_int_equal(cfg.help_for, cases[i].help_for);
    options_free(&cfg);
  }
}

static void wrong_lines_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *line, *why;
  } cases[] = {
      {"", "the commands are run, init"},
      {"stats", "the commands are run, init, check, status, dead, retry, discard, replay"},
      {SECRET, "the commands are run, init"},
      {"--lanes 3 run", "the commands are run, init"},
      {"Run", "the commands are run, init"},
      {"run postgres://u:" SECRET "@h/db", "argument 1 of run is not an option"},
      {"run --lanes 3 " SECRET, "argument 3 of run is not an option"},
      {"run -p" SECRET, "argument 1 of run is not an option"},
      {"run --", "argument 1 of run is not an option"},
      {"run --databse=" SECRET, "there is no option --databse"},
      {"run --lane 3", "there is no option --lane;"},
      {"run --=3", "there is no option --;"},
      {"run --lanes", "--lanes needs a value: --lanes N"},
      {"run --lanes --batch 3", "--lanes needs a value"},
      {"run --lanes=", "--lanes takes a whole number from 1 to 1024, not \"\""},
      {"run --lanes 0", "from 1 to 1024"},
      {"run --lanes 1025", "from 1 to 1024"},
      {"run --lanes -1", "from 1 to 1024"},
      {"run --lanes +1", "a whole number"},
      {"run --lanes 1.0", "a whole number"},
      {"run --lanes 0x10", "a whole number"},
      {"run --lanes 99999999999999999999", "a whole number"},
      {"run --lanes 4294967297", "a whole number"},
      {"run --poll-interval 0", "a time from 1ms to 1h"},
      {"run --poll-interval 61m", "a time from 1ms to 1h"},
      {"run --poll-interval 5", "not \"5\""},
      {"run --session-timeout 999ms", "--session-timeout takes a time from 1s"},
      {"run --redis-timeout 99ms", "--redis-timeout takes a time from 100ms"},
      {"run --max-write-bytes 65535", "a size from 64KiB to 256MiB"},
      {"run --max-write-bytes 257MiB", "a size from 64KiB to 256MiB"},
      {"run --max-batch-bytes 1025MiB", "a size from 64KiB to 1GiB"},
      {"run --max-batch-bytes 8MB", "not \"8MB\""},
      {"run --on-dead stop", "--on-dead takes one of skip, block, not \"stop\""},
      {"run --log-level warn", "one of debug, info, warning, error, critical"},
      {"run --until-empty=maybe", "--until-empty takes 1, true, yes or on"},
      {"run --redis=", "--redis takes a text that is not empty"},
      {"run --table=", "--table takes a text that is not empty"},
      {"run --database " SECRET " --lanes x", "--lanes takes"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_refused(cases[i].line, cases[i].why);
  }
}

static void limits_are_inclusive(void **state) {
  (void)state;
  struct cfg cfg;
  parse_well("run --lanes 1024 --max-write-bytes 256MiB --session-timeout 1s --redis-timeout 100ms --poll-interval 1h",
             &cfg);
  assert_int_equal(cfg.lanes_n, 1024);
  assert_int_equal(cfg.max_write_bytes, 256 << 20);
  options_free(&cfg);
  parse_well("run --lanes 1 --max-write-bytes 64KiB --poll-interval 1ms", &cfg);
  assert_int_equal(cfg.lanes_n, 1);
  options_free(&cfg);
}

static void environment_fills_what_argv_leaves(void **state) {
  (void)state;
  struct cfg cfg;
  assert_int_equal(setenv("OUTBOXD_LANES", "5", 1), 0);
  assert_int_equal(setenv("OUTBOXD_MAX_ATTEMPTS", "4", 1), 0);
  assert_int_equal(setenv("OUTBOXD_TABLE", "from_env", 1), 0);
  parse_well("run --lanes 6", &cfg);
  assert_int_equal(cfg.lanes_n, 6);
  assert_int_equal(cfg.max_attempts_n, 4);
  assert_string_equal(cfg.table, "from_env");
  options_free(&cfg);

  /* Set and empty is as good as not set. */
  assert_int_equal(setenv("OUTBOXD_TABLE", "", 1), 0);
  assert_int_equal(setenv("OUTBOXD_LANES", "", 1), 0);
  parse_well("run", &cfg);
  assert_string_equal(cfg.table, "outbox_messages");
  assert_int_equal(cfg.lanes_n, 16);
  options_free(&cfg);
}

static void lists_grow(void **state) {
  (void)state;
  struct cfg cfg;
  parse_well("retry --id 1 --id=2 --aggregate a:b --event x", &cfg);
  assert_int_equal(cfg.command, CFG_RETRY);
  assert_int_equal(cfg.ids.n, 2);
  assert_string_equal(cfg.ids.values[0], "1");
  assert_string_equal(cfg.ids.values[1], "2");
  assert_int_equal(cfg.aggregates.n, 1);
  assert_string_equal(cfg.events.values[0], "x");
  options_free(&cfg);
  assert_int_equal(cfg.ids.n, 0);
  assert_null(cfg.ids.values);

  /* The environment gives one, which the command line replaces. */
  assert_int_equal(setenv("OUTBOXD_ID", "7", 1), 0);
  parse_well("dead", &cfg);
  assert_int_equal(cfg.ids.n, 1);
  assert_string_equal(cfg.ids.values[0], "7");
  options_free(&cfg);
  parse_well("dead --id 8 --id 9", &cfg);
  assert_int_equal(cfg.ids.n, 2);
  assert_string_equal(cfg.ids.values[0], "8");
  options_free(&cfg);

  assert_refused("retry --id=", "--id takes a text that is not empty");
  assert_refused("retry --id", "--id needs a value: --id N");
  assert_refused("run --id 7", "--id is not an option of run");
  assert_refused("dead --all", "--all is not an option of dead");
  assert_refused("discard --reason=", "--reason takes a text that is not empty");
}

/* The relay's variable must not send a replay into the relay's streams. */
static void replay_has_a_stream_of_its_own(void **state) {
  (void)state;
  struct cfg cfg;
  assert_int_equal(setenv("OUTBOXD_STREAM", "mine:{%l}", 1), 0);
  parse_well("replay --all", &cfg);
  assert_int_equal(cfg.command, CFG_REPLAY);
  assert_string_equal(cfg.replay_stream, "replay:{%l}");
  assert_int_equal(cfg.rate_n, 1000);
  assert_null(cfg.from);
  assert_null(cfg.after_id);
  options_free(&cfg);
  assert_int_equal(setenv("OUTBOXD_REPLAY_STREAM", "again:{%l}", 1), 0);
  parse_well("replay --all", &cfg);
  assert_string_equal(cfg.replay_stream, "again:{%l}");
  options_free(&cfg);
  parse_well("replay --stream third:{%l} --from 2026-01-31 --rate 0", &cfg);
  assert_string_equal(cfg.replay_stream, "third:{%l}");
  assert_string_equal(cfg.from, "2026-01-31");
  assert_int_equal(cfg.rate_n, 0);
  options_free(&cfg);
  parse_well("run", &cfg);
  assert_string_equal(cfg.stream, "mine:{%l}");
  options_free(&cfg);
  parse_well("run --stream=other:{%l}", &cfg);
  assert_string_equal(cfg.stream, "other:{%l}");
  options_free(&cfg);
  assert_int_equal(unsetenv("OUTBOXD_REPLAY_STREAM"), 0);
  assert_refused("init --stream x:{%l}", "--stream is not an option of init");
  assert_refused("run --rate 3", "--rate is not an option of run");
  assert_refused("replay --rate -1", "--rate takes a whole number from 0 to 1000000");
}

static void flags_in_the_environment_take_words(void **state) {
  (void)state;
  static const struct {
    const char *word;
    bool want;
  } cases[] = {{"1", true},  {"true", true},   {"yes", true}, {"on", true},
               {"0", false}, {"false", false}, {"no", false}, {"off", false}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct cfg cfg;
    assert_int_equal(setenv("OUTBOXD_UNTIL_EMPTY", cases[i].word, 1), 0);
    parse_well("run", &cfg);
    assert_int_equal(cfg.is_until_empty, cases[i].want);
    options_free(&cfg);
  }
  assert_int_equal(setenv("OUTBOXD_UNTIL_EMPTY", "0", 1), 0);
  struct cfg cfg;
  parse_well("run --until-empty", &cfg);
  assert_true(cfg.is_until_empty);
  options_free(&cfg);
}

static void urls_fall_back_to_the_usual_names(void **state) {
  (void)state;
  struct cfg cfg;
  assert_int_equal(setenv("DATABASE_URL", "postgres://a", 1), 0);
  assert_int_equal(setenv("REDIS_URL", "redis://b", 1), 0);
  parse_well("run", &cfg);
  assert_string_equal(cfg.database, "postgres://a");
  assert_string_equal(cfg.redis, "redis://b");
  options_free(&cfg);

  assert_int_equal(setenv("OUTBOXD_DATABASE", "postgres://c", 1), 0);
  parse_well("run --redis redis://d", &cfg);
  assert_string_equal(cfg.database, "postgres://c");
  assert_string_equal(cfg.redis, "redis://d");
  options_free(&cfg);

  /* An empty --database is an answer: libpq's own variables. */
  char program[] = "outboxd";
  char run[] = "run";
  char database[] = "--database";
  char nothing[] = "";
  char *argv[] = {program, run, database, nothing, NULL};
  assert_int_equal(options_parse(4, argv, &cfg, NULL), 0);
  assert_string_equal(cfg.database, "");
  options_free(&cfg);
}

static void errors_name_the_variable(void **state) {
  (void)state;
  assert_int_equal(setenv("OUTBOXD_DATABASE", "password=" SECRET, 1), 0);
  assert_int_equal(setenv("OUTBOXD_STATS_EVERY", "often", 1), 0);
  assert_refused("run", "OUTBOXD_STATS_EVERY takes a time");
  /* Of another command: nothing to do with this one. */
  struct cfg cfg;
  parse_well("init", &cfg);
  assert_int_equal(cfg.stats_every_ms, 60000);
  options_free(&cfg);
  assert_int_equal(setenv("OUTBOXD_PLAIN", "perhaps", 1), 0);
  assert_refused("init", "OUTBOXD_PLAIN takes 1, true, yes or on; or 0, false, no or off, not \"perhaps\"");
}

/* The text options_help writes; caller frees. */
static char *help_text(enum cfg_command command) {
  char *text = NULL;
  size_t n = 0;
  FILE *out = open_memstream(&text, &n);
  assert_non_null(out);
  options_help(out, command);
  assert_int_equal(fclose(out), 0);
  return text;
}

/* So that "outboxd check" in place of "outboxd run" asks about just that relay. */
static void check_takes_what_run_takes(void **state) {
  (void)state;
  struct cfg cfg;
  struct err err = ERR_INIT;
  for (const struct option_row *row = options_table(); row->name != NULL; row++) {
    if ((row->commands & (1u << CFG_RUN)) != 0) {
      assert_true((row->commands & (1u << CFG_CHECK)) != 0);
    }
  }
  parse_well("check --json --lanes 7 --claimers 2", &cfg);
  assert_int_equal(cfg.command, CFG_CHECK);
  assert_true(cfg.is_json);
  assert_int_equal(cfg.lanes_n, 7);
  options_free(&cfg);
  assert_int_equal(parse("run --json", &cfg, &err), -1);
}

/* Does the command take another row of the same name? */
static bool shares_its_name(const struct option_row *row, enum cfg_command command) {
  for (const struct option_row *other = options_table(); other->name != NULL; other++) {
    if (other != row && strcmp(other->name, row->name) == 0 && options_takes(other, command)) {
      return true;
    }
  }
  return false;
}

static void help_mentions_every_row_of_its_command(void **state) {
  (void)state;
  for (const struct command_row *command = options_commands(); command->name != NULL; command++) {
    char *text = help_text((enum cfg_command)command->command);
    for (const struct option_row *row = options_table(); row->name != NULL; row++) {
      char option[64];
      char variable[64];
      (void)snprintf(option, sizeof option, "\n  --%s%s%s\n", row->name, row->argument != NULL ? " " : "",
                     row->argument != NULL ? row->argument : "");
      if (row->own_env != NULL) {
        (void)snprintf(variable, sizeof variable, "%s", row->own_env);
      } else {
        env_name(row->name, variable, sizeof variable);
      }
      if ((row->commands & (1u << command->command)) == 0) {
        if (!shares_its_name(row, (enum cfg_command)command->command)) {
          assert_lacks(text, option);
        }
        continue;
      }
      assert_contains(text, option);
      assert_contains(text, row->help);
      assert_contains(text, variable);
      if (row->fallback_env != NULL) {
        assert_contains(text, row->fallback_env);
      }
      if (row->default_text != NULL && row->default_text[0] != '\0') {
        char value[128];
        (void)snprintf(value, sizeof value, "default %s,", row->default_text);
        assert_contains(text, value);
      }
    }
    free(text);
  }
  char *overview = help_text(CFG_HELP);
  assert_contains(overview, "  run ");
  assert_contains(overview, "  init ");
  assert_contains(overview, "--version");
  free(overview);
}

static void the_table_is_sound(void **state) {
  (void)state;
  for (const struct option_row *row = options_table(); row->name != NULL; row++) {
    assert_true(strlen(row->name) < 40);
    assert_int_equal(strspn(row->name, "abcdefghijklmnopqrstuvwxyz-"), strlen(row->name));
    assert_true(row->commands != 0);
    assert_true(row->offset < sizeof(struct cfg));
    assert_non_null(row->help);
    assert_int_equal(row->argument == NULL, row->type == OPTION_FLAG);
    assert_int_equal(row->choices != NULL, row->type == OPTION_CHOICE);
    for (const struct option_row *other = options_table(); other != row; other++) {
      if (strcmp(row->name, other->name) == 0) {
        /* Of no command both, and not the same variable. */
        assert_int_equal(row->commands & other->commands, 0);
        assert_non_null(row->own_env);
      }
      assert_true(row->offset != other->offset);
    }
  }
}

int main(void) {
#define TEST(function_) cmocka_unit_test_setup_teardown(function_, clear_environment, clear_environment)
  const struct CMUnitTest tests[] = {
      TEST(defaults_are_those_of_the_design),
      TEST(both_forms_set_the_fields),
      TEST(init_takes_its_own),
      TEST(the_last_one_wins),
      TEST(help_and_version_come_first),
      TEST(wrong_lines_are_refused),
      TEST(limits_are_inclusive),
      TEST(environment_fills_what_argv_leaves),
      TEST(lists_grow),
      TEST(replay_has_a_stream_of_its_own),
      TEST(flags_in_the_environment_take_words),
      TEST(urls_fall_back_to_the_usual_names),
      TEST(errors_name_the_variable),
      TEST(check_takes_what_run_takes),
      TEST(help_mentions_every_row_of_its_command),
      TEST(the_table_is_sound),
  };
#undef TEST
  return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
