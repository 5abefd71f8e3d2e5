/*
 * template: what is right, what is refused and why, what is rendered.
 */
#include <stdio.h>
#include <stdlib.h>

#include "outboxd/template.h"
#include "unit.h"

/* Values with everything in them that a template or Redis might take for its own. */
#define TYPE "or{d}er %l"
#define ID "a:\0b\n\xF0\x9F\x98\x80"
#define EVENT ""

static const struct template_values values = {.lane = 7,
                                              .aggregate_type = TYPE,
                                              .aggregate_type_bytes = sizeof TYPE - 1,
                                              .aggregate_id = ID,
                                              .aggregate_id_bytes = sizeof ID - 1,
                                              .event_type = EVENT,
                                              .event_type_bytes = 0};

static void good_templates_render(void **state) {
  (void)state;
#define CASE(text_, stream_, is_per_lane_, journal_, lanes_) \
  { text_, stream_, sizeof(stream_) - 1, is_per_lane_, journal_, lanes_ }
  static const struct {
    const char *text;
    const char *stream;
    size_t stream_bytes;
    bool is_per_lane;
    const char *journal;
    const char *lanes;
  } cases[] = {
      CASE("outbox:{%l}", "outbox:{7}", true, "outbox:{7}:journal", "outbox:lanes"),
      CASE("outbox:{%l}:%t:%i", "outbox:{7}:" TYPE ":" ID, false, "outbox:{7}:journal", "outbox:lanes"),
      CASE("{%l}", "{7}", true, "{7}:journal", "lanes"),
      CASE("100%%{%l}%%%l%%", "100%{7}%7%", true, "100%{7}:journal", "100%lanes"),
      CASE("%%l{%l}", "%l{7}", true, "%l{7}:journal", "%llanes"),
      CASE("a{%l}%e", "a{7}", false, "a{7}:journal", "alanes"),
      CASE("a{%l}}{%t%i%e{", "a{7}}{" TYPE ID "{", false, "a{7}:journal", "alanes"),
      CASE("a{%l}:journals", "a{7}:journals", true, "a{7}:journal", "alanes"),
      CASE("\xC3\xA9 \n{%l}", "\xC3\xA9 \n{7}", true, "\xC3\xA9 \n{7}:journal", "\xC3\xA9 \nlanes"),
  };
#undef CASE
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct template *template = NULL;
    struct err err = ERR_INIT;
    if (template_parse(cases[i].text, &template, &err) != 0) {
      fail_msg("\"%s\" was refused: %s", cases[i].text, err.text);
    }
    char buf[256];
    size_t n = template_render(template, &values, buf, sizeof buf);
    assert_int_equal(n, cases[i].stream_bytes);
    assert_memory_equal(buf, cases[i].stream, n);
    assert_int_equal(template_is_per_lane(template), cases[i].is_per_lane);

    n = template_journal_key(template, 7, buf, sizeof buf);
    assert_int_equal(n, strlen(cases[i].journal));
    assert_memory_equal(buf, cases[i].journal, n);
    n = template_lanes_key(template, buf, sizeof buf);
    assert_int_equal(n, strlen(cases[i].lanes));
    assert_memory_equal(buf, cases[i].lanes, n);
    template_free(template);
  }
}

static void bad_templates_are_refused_with_a_reason(void **state) {
  (void)state;
  static const struct {
    const char *text;
    const char *why;
  } cases[] = {
      {"", "has no {%l}"},
      {"outbox", "has no {%l}"},
      {"outbox:%%{", "a { before {%l}"},
      {"outbox:%l", "no {%l}"},
      {"%l", "placeholder before {%l}"},
      {"%t{%l}", "placeholder before {%l}"},
      {"a%i{%l}", "placeholder before {%l}"},
      {"a%lb{%l}", "placeholder before {%l}"},
      {"a{b}{%l}", "a { before {%l}"},
      {"a{}{%l}", "a { before {%l}"},
      {"a{{%l}}", "a { before {%l}"},
      {"a}{%l}", "a } before {%l}"},
      {"a{%t}{%l}", "a { before {%l}"},
      {"a{%l", "between its braces"},
      {"a{%lx}", "between its braces"},
      {"a{x%l}", "between its braces"},
      {"a{%l%t}", "between its braces"},
      {"a{%%l}", "between its braces"},
      {"a{%l}%", "lone %"},
      {"%", "lone %"},
      {"a{%l}%x", "stands for nothing"},
      {"a{%l}%L", "stands for nothing"},
      {"a{%l}% t", "stands for nothing"},
      {"a{%l}:journal", "relay's own"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct template *template = NULL;
    struct err err = ERR_INIT;
    if (template_parse(cases[i].text, &template, &err) != -1) {
      fail_msg("\"%s\" was taken", cases[i].text);
    }
    assert_int_equal(err.class, ERR_USAGE);
    assert_contains(err.text, cases[i].why);
    assert_contains(err.text, "outbox:{%l}:%t:%i");
    assert_null(template);
  }
}

static void a_small_buffer_gets_what_fits_and_the_full_length(void **state) {
  (void)state;
  struct template *template = NULL;
  assert_int_equal(template_parse("outbox:{%l}:%t:%i", &template, NULL), 0);
  char whole[128];
  size_t len = template_render(template, &values, whole, sizeof whole);
  assert_in_range(len, 20, sizeof whole);
  for (size_t cap = 0; cap <= len; cap++) {
    char *buf = malloc(cap + 1); /* of its exact size, so that the sanitizer sees a byte too many */
    assert_non_null(buf);
    buf[cap] = '#';
    assert_int_equal(template_render(template, &values, buf, cap), len);
    assert_memory_equal(buf, whole, cap);
    assert_int_equal(buf[cap], '#');
    free(buf);
  }
  assert_int_equal(template_render(template, &values, NULL, 0), len);
  assert_int_equal(template_journal_key(template, 1023, NULL, 0), strlen("outbox:{1023}:journal"));
  template_free(template);
  template_free(NULL);
}

static void patterns_fit_every_key(void **state) {
  (void)state;
  static const struct {
    const char *text;
    const char *stream;
    const char *journal;
    const char *lanes;
  } cases[] = {
      {"outbox:{%l}", "outbox:{*}", "outbox:{*}:journal", "outbox:lanes"},
      {"outbox:{%l}:%t:%i", "outbox:{*}:*:*", "outbox:{*}:journal", "outbox:lanes"},
      {"a*[b]?\\{%l}%%*", "a\\*\\[b\\]\\?\\\\{*}%\\*", "a\\*\\[b\\]\\?\\\\{*}:journal", "a\\*\\[b\\]\\?\\\\lanes"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct template *template = NULL;
    struct err err = ERR_INIT;
    char buf[128] = "";
    assert_int_equal(template_parse(cases[i].text, &template, &err), 0);
    buf[template_stream_pattern(template, buf, sizeof buf - 1)] = '\0';
    assert_string_equal(buf, cases[i].stream);
    buf[template_journal_pattern(template, buf, sizeof buf - 1)] = '\0';
    assert_string_equal(buf, cases[i].journal);
    buf[template_lanes_pattern(template, buf, sizeof buf - 1)] = '\0';
    assert_string_equal(buf, cases[i].lanes);
    /* A small buffer gets the full length. */
    assert_int_equal(template_stream_pattern(template, buf, 3), strlen(cases[i].stream));
    template_free(template);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good_templates_render),
      cmocka_unit_test(bad_templates_are_refused_with_a_reason),
      cmocka_unit_test(patterns_fit_every_key),
      cmocka_unit_test(a_small_buffer_gets_what_fits_and_the_full_length),
  };
  return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
