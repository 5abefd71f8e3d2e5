/*
 * --trim and --stream-ttl: what is read, what is refused and why.
 */
#include "outboxd/trim_rule.h"

#include <stdio.h>

#include "unit.h"

static int rule_of(const char *text, const char *stream, int64_t ttl_ms, struct trim_rule *rule, struct err *err) {
  char copy[64];
  struct template *template = NULL;
  (void)snprintf(copy, sizeof copy, "%s", text);
  const struct cfg cfg = {.trim = copy, .trim_keep_ms = 3600000, .stream_ttl_ms = ttl_ms};
  assert_int_equal(template_parse(stream, &template, NULL), 0);
  *err = (struct err)ERR_INIT;
  int rc = trim_rule_read(&cfg, template, rule, err);
  template_free(template);
  return rc;
}

static void rules_are_read(void **state) {
  static const struct {
    const char *text;
    enum trim_mode mode;
    int64_t value;
    const char *name;
  } cases[] = {
      {"", TRIM_NOTHING, 0, "none"},          {"acked", TRIM_ACKED, 3600000, "acked"},
      {"maxlen=1", TRIM_MAXLEN, 1, "maxlen"}, {"maxlen=1000000000000", TRIM_MAXLEN, 1000000000000, "maxlen"},
      {"age=7d", TRIM_AGE, 604800000, "age"}, {"age=1s", TRIM_AGE, 1000, "age"},
  };
  struct trim_rule rule;
  struct err err;
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_int_equal(rule_of(cases[i].text, "outbox:{%l}", 0, &rule, &err), 0);
    assert_int_equal(rule.mode, cases[i].mode);
    assert_int_equal(rule.value, cases[i].value);
    assert_string_equal(trim_mode_name(rule.mode), cases[i].name);
  }
}

static void others_are_refused_with_an_example(void **state) {
  static const struct {
    const char *text;
    const char *part;
  } cases[] = {
      {"ack", "such as acked, maxlen=100000 or age=7d, not \"ack\""},
      {"Acked", "such as acked"},
      {"acked=1h", "such as acked"},
      {"maxlen", "such as acked"},
      {"maxlen=", "such as maxlen=100000, not \"maxlen=\""},
      {"maxlen=0", "maxlen=100000"},
      {"maxlen=-5", "maxlen=100000"},
      {"maxlen=+5", "maxlen=100000"},
      {"maxlen=5x", "maxlen=100000"},
      {"maxlen=1000000000001", "maxlen=100000"},
      {"maxlen=99999999999999999999", "maxlen=100000"},
      {"age=", "such as age=7d"},
      {"age=7", "such as age=7d"},
      {"age=10ms", "such as age=7d"},
      {"age=3651d", "such as age=7d"},
  };
  struct trim_rule rule;
  struct err err;
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_int_equal(rule_of(cases[i].text, "outbox:{%l}", 0, &rule, &err), -1);
    assert_int_equal(err.class, ERR_USAGE);
    assert_contains(err.text, cases[i].part);
  }
}

static void ttl_is_for_streams_among_many(void **state) {
  struct trim_rule rule;
  struct err err;
  (void)state;
  assert_int_equal(rule_of("acked", "outbox:{%l}:%t:%i", 1000, &rule, &err), 0);
  assert_int_equal(rule_of("", "outbox:{%l}:%e", 1000, &rule, &err), 0);
  assert_int_equal(rule_of("", "outbox:{%l}", 1000, &rule, &err), -1);
  assert_int_equal(err.class, ERR_USAGE);
  assert_contains(err.text, "outbox:{%l}:%t:%i");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules_are_read),
      cmocka_unit_test(others_are_refused_with_an_example),
      cmocka_unit_test(ttl_is_for_streams_among_many),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
