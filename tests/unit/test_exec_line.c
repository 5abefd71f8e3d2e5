/*
 * The lines between outbox-consume and a handler.
 */
#include <jansson.h>
#include <stdlib.h>

#include "outboxd/exec_line.h"
#include "unit.h"

static const struct outbox_message sample = {.message_id = "018f4d5e-0000-7000-8000-000000000001",
                                             .aggregate_type = "account",
                                             .aggregate_id = "O\"Brien\\\n\x01",
                                             .event_type = "money.sent",
                                             .payload = "{\"amount\": 10.50, \"n\": 12345678901234567890.10}",
                                             .payload_bytes = 47,
                                             .created_at = "2026-01-31T23:59:59.000001Z",
                                             .stream = "outbox:{3}",
                                             .entry_id = "1-0",
                                             .lane = 3,
                                             .attempt = 2};

static char *write_line(const struct outbox_message *message, bool has_place) {
  struct buf line = BUF_INIT;
  struct err err = ERR_INIT;
  assert_int_equal(exec_line_write(&line, message, has_place, &err), 0);
  return line.data;
}

static void a_message_is_one_line(void **state) {
  (void)state;
  char *line = write_line(&sample, false);
  assert_string_equal(line,
                      "{\"message_id\":\"018f4d5e-0000-7000-8000-000000000001\",\"aggregate_type\":\"account\","
                      "\"aggregate_id\":\"O\\\"Brien\\\\\\u000a\\u0001\",\"event_type\":\"money.sent\","
                      "\"payload\":{\"amount\": 10.50, \"n\": 12345678901234567890.10},"
                      "\"created_at\":\"2026-01-31T23:59:59.000001Z\",\"headers\":null,\"lane\":3,\"attempt\":2}\n");
  free(line);
  struct outbox_message message = sample;
  message.headers = "{\"a\":1}";
  message.headers_bytes = 7;
  message.payload = "[1,\n\r 2]";
  message.payload_bytes = 8;
  line = write_line(&message, true);
  assert_contains(line, "\"payload\":[1,   2],");
  assert_contains(line, "\"headers\":{\"a\":1},\"stream\":\"outbox:{3}\",\"entry_id\":\"1-0\",");
  json_t *json = json_loads(line, 0, NULL);
  assert_non_null(json);
  json_decref(json);
  free(line);
}

static void what_is_no_json_is_a_string(void **state) {
  (void)state;
  struct outbox_message message = sample;
  message.payload = "say \"hi\"\n";
  message.payload_bytes = 9;
  char *line = write_line(&message, false);
  assert_contains(line, ",\"payload_text\":\"say \\\"hi\\\"\\u000a\",");
  assert_lacks(line, "\"payload\":");
  free(line);
}

static void an_envelope_stands_as_it_is(void **state) {
  (void)state;
  struct outbox_message message = sample;
  message.payload = NULL;
  message.cloudevent = "{\"specversion\":\"1.0\", \"id\":\"x\"}";
  message.cloudevent_bytes = strlen(message.cloudevent);
  char *line = write_line(&message, false);
  assert_contains(line, ",\"cloudevent\":{\"specversion\":\"1.0\", \"id\":\"x\"},");
  free(line);
}

static void answers_are_read(void **state) {
  (void)state;
  static const struct {
    const char *line;
    enum outbox_verdict verdict;
    const char *text;
    int64_t after_ms;
  } cases[] = {
      {"ok", OUTBOX_DONE, "", 0},
      {"ok\r", OUTBOX_DONE, "", 0},
      {"ok   ", OUTBOX_DONE, "", 0},
      {"{\"ok\":true}", OUTBOX_DONE, "", 0},
      {"{\"ok\":false}", OUTBOX_RETRY, "the handler did not say why", 0},
      {"{\"ok\":false,\"error\":\"no \\u00fc\"}", OUTBOX_RETRY, "no \xc3\xbc", 0},
      {"{\"ok\":false,\"error\":\"x\",\"park\":true}", OUTBOX_PARK, "x", 0},
      {"{\"ok\":false,\"error\":\"x\",\"later\":true,\"retry_after_ms\":250}", OUTBOX_LATER, "x", 250},
      {"{\"ok\":false,\"retry_after_ms\":-5,\"error\":\"x\"}", OUTBOX_RETRY, "x", 0},
      {"retry", OUTBOX_RETRY, "the handler did not say why", 0},
      {"retry the mail server is away", OUTBOX_RETRY, "the mail server is away", 0},
      {"park no such account", OUTBOX_PARK, "no such account", 0},
      {"later x", OUTBOX_LATER, "x", 0},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    enum outbox_verdict verdict = OUTBOX_RETRY;
    struct outbox_failure failure;
    struct err err = ERR_INIT;
    if (exec_line_read(cases[i].line, strlen(cases[i].line), &verdict, &failure, &err) != 0) {
      fail_msg("%s: %s", cases[i].line, err.text);
    }
    assert_int_equal(verdict, cases[i].verdict);
    assert_string_equal(failure.text, cases[i].text);
    assert_int_equal(failure.retry_after_ms, cases[i].after_ms);
  }
}

static void rubbish_is_refused(void **state) {
  (void)state;
  static const char *const lines[] = {
      "",     "OK",  "okay", "done",          "{\"ok\":1}",     "{}",     "{\"ok\":true",     "[{\"ok\":true}]",
      "true", " ok", "\x01", "{\"OK\":true}", "PHP Warning: x", "retryx", "{\"ok\":\"true\"}"};
  for (size_t i = 0; i < COUNT(lines); i++) {
    enum outbox_verdict verdict = OUTBOX_RETRY;
    struct outbox_failure failure;
    struct err err = ERR_INIT;
    if (exec_line_read(lines[i], strlen(lines[i]), &verdict, &failure, &err) == 0) {
      fail_msg("\"%s\" is taken", lines[i]);
    }
    assert_int_equal(err.class, ERR_REJECT);
    assert_contains(err.text, "right is {\"ok\":true}");
  }
}

static void json_is_told_from_other_texts(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool is_json;
  } cases[] = {
      {"{}", true},        {"[]", true},       {" [ ] ", true},
      {"null", true},      {"true", true},     {"-0.5e+10", true},
      {"0", true},         {"1e999", true},    {"\"\\u0000\"", true},
      {"\"a\\n\"", true},  {"[[[1]]]", true},  {"{\"a\":[1,{}]}", true},
      {"", false},         {" ", false},       {"{", false},
      {"[1,]", false},     {"[1 2]", false},   {"{\"a\"}", false},
      {"{a:1}", false},    {"01", false},      {"1.", false},
      {"-", false},        {"+1", false},      {"nul", false},
      {"\"a\nb\"", false}, {"\"\\x\"", false}, {"\"\\u12g4\"", false},
      {"\"", false},       {"[}", false},      {"{\"a\":1,}", false},
      {"{}{}", false},     {"[1]]", false},    {"{\"a\":1]", false},
      {"1 1", false},      {"NaN", false},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    if (exec_line_is_json(cases[i].text, strlen(cases[i].text)) != cases[i].is_json) {
      fail_msg("\"%s\" is taken for the other kind", cases[i].text);
    }
  }
  /* Deeper than any stack. */
  enum { DEPTH = 200000 };
  char *deep = malloc(2 * (size_t)DEPTH);
  assert_non_null(deep);
  memset(deep, '[', DEPTH);
  memset(deep + DEPTH, ']', DEPTH);
  assert_true(exec_line_is_json(deep, 2 * (size_t)DEPTH));
  assert_false(exec_line_is_json(deep, 2 * (size_t)DEPTH - 1));
  free(deep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_message_is_one_line),       cmocka_unit_test(what_is_no_json_is_a_string),
      cmocka_unit_test(an_envelope_stands_as_it_is), cmocka_unit_test(answers_are_read),
      cmocka_unit_test(rubbish_is_refused),          cmocka_unit_test(json_is_told_from_other_texts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
