/*
 * What error replies of Redis 6.2 to 8 and Valkey mean: whose fault, and what to do about it.
 */
#include "unit.h"

#include "outboxd/redis_error.h"

static void test_table(void **state) {
  static const struct {
    const char *text;
    enum err_class class;
    unsigned effects;
    const char *code;
  } cases[] = {
      /* of the infrastructure */
      {"OOM command not allowed when used memory > 'maxmemory'.", ERR_RETRY, 0, "OOM"},
      {"@user_script: 20: -OOM command not allowed when used memory > 'maxmemory'.\r\n", ERR_RETRY, 0, "OOM"},
      {"-OOM command not allowed when used memory > 'maxmemory'. script: 0a1b, on @user_script:5.", ERR_RETRY, 0,
       "OOM"},
      {"ERR Error running script (call to f_0a1b): @user_script:5: @user_script: 5: -OOM command not allowed",
       ERR_RETRY, 0, "OOM"},
      {"MISCONF Redis is configured to save RDB snapshots, but ...", ERR_RETRY, 0, "MISCONF"},
      {"LOADING Redis is loading the dataset in memory", ERR_RETRY, 0, "LOADING"},
      {"NOREPLICAS Not enough good replicas to write.", ERR_RETRY, 0, "NOREPLICAS"},
      {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ERR_RETRY, 0, "BUSY"},
      {"UNKILLABLE Sorry the script already executed write commands", ERR_RETRY, 0, "UNKILLABLE"},
      {"CLUSTERDOWN Hash slot not served", ERR_RETRY, 0, "CLUSTERDOWN"},
      {"TRYAGAIN Multiple keys request during rehashing of slot", ERR_RETRY, 0, "TRYAGAIN"},
      {"ERR max number of clients reached", ERR_RETRY, REDIS_EFFECT_DROP, "ERR"},
      {"ERR max number of clients + cluster connections reached", ERR_RETRY, REDIS_EFFECT_DROP, "ERR"},
      {"READONLY You can't write against a read only replica.", ERR_RETRY, REDIS_EFFECT_DROP, "READONLY"},
      {"@user_script: 9: -READONLY You can't write against a read only replica.", ERR_RETRY, REDIS_EFFECT_DROP,
       "READONLY"},
      {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ERR_RETRY, REDIS_EFFECT_DROP,
       "MASTERDOWN"},
      {"MOVED 3999 127.0.0.1:6381", ERR_RETRY, REDIS_EFFECT_DROP, "MOVED"},
      {"NOAUTH Authentication required.", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS, "NOAUTH"},
      {"WRONGPASS invalid username-password pair or user is disabled.", ERR_RETRY,
       REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS, "WRONGPASS"},
      {"ERR DB index is out of range", ERR_RETRY, REDIS_EFFECT_DROP | REDIS_EFFECT_ACCESS, "ERR"},
      {"NOPERM this user has no permissions to run the 'evalsha' command", ERR_RETRY, REDIS_EFFECT_ACCESS, "NOPERM"},
      {"NOPERM User relay has no permissions to run the 'eval' command", ERR_RETRY, REDIS_EFFECT_ACCESS, "NOPERM"},
      {"ERR ACL failure in script: User relay has no permissions to run the 'xadd' command", ERR_RETRY,
       REDIS_EFFECT_ACCESS, "NOPERM"},
      {"ERR The user executing the script can't run this command or subcommand", ERR_RETRY, REDIS_EFFECT_ACCESS,
       "NOPERM"},
      {"NOSCRIPT No matching script. Please use EVAL.", ERR_RETRY, REDIS_EFFECT_EVAL, "NOSCRIPT"},
      {"NOSCRIPT No matching script.", ERR_RETRY, REDIS_EFFECT_EVAL, "NOSCRIPT"},
      /* of a message */
      {"WRONGTYPE Operation against a key holding the wrong kind of value", ERR_REJECT, 0, "WRONGTYPE"},
      {"ERR The stream has exhausted the last possible ID, unable to add more items", ERR_REJECT, 0, "ERR"},
      {"ERR Elements are too large to be stored", ERR_REJECT, 0, "ERR"},
      {"NOPERM No permissions to access a key", ERR_REJECT, REDIS_EFFECT_SINGLE | REDIS_EFFECT_ACCESS, "NOPERM"},
      {"NOPERM this user has no permissions to access one of the keys used as arguments", ERR_REJECT,
       REDIS_EFFECT_SINGLE | REDIS_EFFECT_ACCESS, "NOPERM"},
      {"ERR ACL failure in script: User relay has no permissions to access the 'a' key", ERR_REJECT,
       REDIS_EFFECT_SINGLE | REDIS_EFFECT_ACCESS, "NOPERM"},
      {"@user_script: 44: The user executing the script can't access at least one of the keys mentioned in the command "
       "arguments",
       ERR_REJECT, REDIS_EFFECT_SINGLE | REDIS_EFFECT_ACCESS, "NOPERM"},
      {"ERR Protocol error: invalid bulk length", ERR_REJECT, REDIS_EFFECT_SINGLE | REDIS_EFFECT_DROP, "ERR"},
      /* not known: of a message, and logged */
      {"ERR something nobody has seen", ERR_REJECT, REDIS_EFFECT_UNKNOWN, "ERR"},
      {"NEWWORD of a later version", ERR_REJECT, REDIS_EFFECT_UNKNOWN, "NEWWORD"},
      {"OOMPH is not OOM", ERR_REJECT, REDIS_EFFECT_UNKNOWN, "OOMPH"},
      {"", ERR_REJECT, REDIS_EFFECT_UNKNOWN, ""},
      {"-", ERR_REJECT, REDIS_EFFECT_UNKNOWN, ""},
      {"@user_script:", ERR_REJECT, REDIS_EFFECT_UNKNOWN, "@user_script:"},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct err err = ERR_INIT;
    unsigned effects = redis_error_classify(cases[i].text, strlen(cases[i].text), &err);
    if (err.class != cases[i].class || effects != cases[i].effects || strcmp(err.code, cases[i].code) != 0) {
      fail_msg("\"%s\": class %s, effects %u, code \"%s\"", cases[i].text, err_class_name(err.class), effects,
               err.code);
    }
  }
}

static void test_text_is_cleaned_and_bounded(void **state) {
  struct err err = ERR_INIT;
  static char text[4096];
  (void)state;
  (void)redis_error_classify("@user_script: 20: -OOM command not allowed.\r\n", 45, &err);
  assert_string_equal(err.text, "OOM command not allowed.");
  memset(text, 'x', sizeof text);
  assert_int_equal(redis_error_classify(text, sizeof text, &err), REDIS_EFFECT_UNKNOWN);
  assert_int_equal(strlen(err.text), ERR_TEXT_BYTES - 1);
}

static void test_dry_run(void **state) {
  (void)state;
  /* Redis 7.0; 7.2 and Valkey. */
  assert_int_equal(redis_error_dry_run("This user has no permissions to run the 'xadd' command"),
                   REDIS_DRY_RUN_DENIED_COMMAND);
  assert_int_equal(redis_error_dry_run("User relay has no permissions to run the 'xadd' command"),
                   REDIS_DRY_RUN_DENIED_COMMAND);
  assert_int_equal(redis_error_dry_run("This user has no permissions to access the 'a' key"), REDIS_DRY_RUN_DENIED_KEY);
  assert_int_equal(redis_error_dry_run("User relay has no permissions to access the 'a' key"),
                   REDIS_DRY_RUN_DENIED_KEY);
  assert_int_equal(redis_error_dry_run("something new"), REDIS_DRY_RUN_UNKNOWN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_dry_run),
      cmocka_unit_test(test_text_is_cleaned_and_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
