/*
 * The journal's text: what is written is read back, and what is not a journal is never taken for one.
 */
#include "unit.h"

#include <stdlib.h>

#include "outboxd/journal.h"

static void test_round_trip(void **state) {
  static const struct {
    int64_t id;
    const char *message_id;
    size_t bytes;
    const char *line;
  } cases[] = {
      {1, "0190f0c4-8f2a-7c3e-9d1b-2f4a5b6c7d8e", 36, "1 0190f0c4-8f2a-7c3e-9d1b-2f4a5b6c7d8e\n"},
      {INT64_MAX, "a_b.c:d-E9", 10, "9223372036854775807 a_b.c:d-E9\n"},
      {INT64_MIN, "x", 1, "-9223372036854775808 x\n"},
      {0, "", 0, "0 \n"},
      {7, "a b\n%41", 7, "7 a%20b%0A%2541\n"},
      {8, "\xf0\x9f\x98\x80/\0\x7f", 7, "8 %F0%9F%98%80%2F%00%7F\n"},
      {9, "%", 1, "9 %25\n"},
  };
  struct buf buf = BUF_INIT;
  struct err err = ERR_INIT;
  struct journal_names *names = NULL;
  (void)state;

  assert_int_equal(buf_append_str(&buf, "deadbeef-1\n", &err), 0);
  for (size_t i = 0; i < COUNT(cases); i++) {
    size_t from = buf.len;
    assert_int_equal(journal_append_name(&buf, cases[i].id, cases[i].message_id, cases[i].bytes, &err), 0);
    assert_string_equal(buf.data + from, cases[i].line);
  }
  assert_int_equal(journal_parse(buf.data, buf.len, &names, &err), 0);
  assert_string_equal(names->token, "deadbeef-1");
  assert_int_equal(names->n, COUNT(cases));
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_true(names->v[i].id == cases[i].id);
    assert_int_equal(names->v[i].message_id_bytes, cases[i].bytes);
    assert_memory_equal(names->v[i].message_id, cases[i].message_id, cases[i].bytes + 1);
  }
  journal_names_free(names);
  buf_free(&buf);
}

static void test_no_journal_and_empty_journal(void **state) {
  struct err err = ERR_INIT;
  struct journal_names *names = NULL;
  (void)state;
  assert_int_equal(journal_parse("", 0, &names, &err), 0);
  assert_string_equal(names->token, "");
  assert_int_equal(names->n, 0);
  journal_names_free(names);
  assert_int_equal(journal_parse("t\n", 2, &names, &err), 0);
  assert_string_equal(names->token, "t");
  assert_int_equal(names->n, 0);
  journal_names_free(names);
  journal_names_free(NULL);
}

static void test_what_is_no_journal(void **state) {
  static const struct {
    const char *value;
    size_t bytes;
    const char *says;
  } cases[] = {
      {"t", 1, "line break"},
      {"t\n1 a", 5, "line break"},
      {"\n", 1, "line 1"},
      {"1 a\n", 4, "line 1"},
      {"a\0b\n", 4, "line 1"},
      {"0123456789012345678901234567890123456789\n", 41, "line 1"},
      {"t\n\n", 3, "line 2"},
      {"t\n1\n", 4, "line 2"},
      {"t\nx a\n", 6, "line 2"},
      {"t\n1 a\n- a\n", 10, "line 3"},
      {"t\n9223372036854775808 a\n", 24, "line 2"},
      {"t\n-9223372036854775809 a\n", 25, "line 2"},
      {"t\n99999999999999999999 a\n", 25, "line 2"},
      {"t\n1  a\n", 7, "percent-encoding"},
      {"t\n1 a b\n", 8, "percent-encoding"},
      {"t\n1 %\n", 6, "percent-encoding"},
      {"t\n1 %2\n", 7, "percent-encoding"},
      {"t\n1 %2G\n", 8, "percent-encoding"},
      {"t\n1 a\0b\n", 8, "percent-encoding"},
      {"{\"json\": 1}", 11, "no journal of outboxd"},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct err err = ERR_INIT;
    struct journal_names *names = NULL;
    if (journal_parse(cases[i].value, cases[i].bytes, &names, &err) == 0) {
      fail_msg("case %zu was taken for a journal", i);
    }
    assert_int_equal(err.class, ERR_RETRY);
    assert_contains(err.text, cases[i].says);
  }
}

static int compare(const void *a, const void *b) {
  return strcmp(a, b);
}

static void test_tokens_differ(void **state) {
  enum { N = 2000 };
  static char tokens[N][JOURNAL_TOKEN_BYTES];
  (void)state;
  for (size_t i = 0; i < N; i++) {
    journal_new_token(tokens[i]);
    assert_in_range(strlen(tokens[i]), 10, JOURNAL_TOKEN_BYTES - 1);
    assert_int_equal(strspn(tokens[i], "0123456789abcdef-"), strlen(tokens[i]));
  }
  qsort(tokens, N, sizeof tokens[0], compare);
  for (size_t i = 1; i < N; i++) {
    assert_string_not_equal(tokens[i - 1], tokens[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_no_journal_and_empty_journal),
      cmocka_unit_test(test_what_is_no_journal),
      cmocka_unit_test(test_tokens_differ),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
