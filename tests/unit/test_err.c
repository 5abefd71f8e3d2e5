/*
 * err: filling, cutting to size, wrapping.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "outboxd/err.h"
#include "unit.h"

static void set_fills_all_and_returns_minus_one(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  assert_int_equal(err.class, ERR_NONE);
  assert_int_equal(err_set(&err, ERR_RETRY, "57P01", "the session of %s ended", "claimer 2"), -1);
  assert_int_equal(err.class, ERR_RETRY);
  assert_string_equal(err.code, "57P01");
  assert_string_equal(err.text, "the session of claimer 2 ended");

  err_clear(&err);
  assert_int_equal(err.class, ERR_NONE);
  assert_string_equal(err.code, "");
  assert_string_equal(err.text, "");
}

static void nobody_has_to_listen(void **state) {
  (void)state;
  assert_int_equal(err_set(NULL, ERR_BUG, "x", "y"), -1);
  assert_int_equal(err_errno(NULL, ERR_BUG, EIO, "y"), -1);
  assert_int_equal(err_wrap(NULL, "y"), -1);
}

static void line_breaks_become_spaces(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  (void)err_set(&err, ERR_REJECT, "WRONGTYPE", "one\ntwo\r\nthree");
  assert_string_equal(err.text, "one two  three");
  (void)err_wrap(&err, "at\nfour");
  assert_string_equal(err.text, "at four: one two  three");
}

static void long_texts_are_cut_at_the_end_of_a_character(void **state) {
  (void)state;
  /* Characters of 1 to 4 bytes, behind every number of bytes that makes the cut fall into another place of one. */
  static const char *const characters[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
  for (size_t c = 0; c < COUNT(characters); c++) {
    for (size_t shift = 0; shift < 4; shift++) {
      char text[3 * ERR_TEXT_BYTES] = "";
      size_t len = shift;
      memset(text, 'x', shift);
      while (len + 5 < sizeof text) {
        strcpy(text + len, characters[c]);
        len += strlen(characters[c]);
      }
      struct err err = ERR_INIT;
      (void)err_set(&err, ERR_REJECT, "A_CODE_THAT_IS_MUCH_LONGER_THAN_ANY_CODE_SHOULD_BE", "%s", text);
      size_t cut = strlen(err.text);
      assert_in_range(cut, ERR_TEXT_BYTES - 4, ERR_TEXT_BYTES - 1);
      assert_int_equal((cut - shift) % strlen(characters[c]), 0);
      assert_memory_equal(err.text, text, cut);
      assert_int_equal(strlen(err.code), ERR_CODE_BYTES - 1);

      (void)err_wrap(&err, "context");
      cut = strlen(err.text);
      assert_int_equal((cut - strlen("context: ") - shift) % strlen(characters[c]), 0);
    }
  }
}

static void an_argument_may_come_from_the_error_itself(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  (void)err_set(&err, ERR_RETRY, "08006", "gone");
  (void)err_set(&err, ERR_FATAL, err.code, "once more: %s", err.text);
  assert_string_equal(err.code, "08006");
  assert_string_equal(err.text, "once more: gone");
}

static void errno_gives_name_and_text(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  assert_int_equal(err_errno(&err, ERR_RETRY, ECONNREFUSED, "connect to %s", "redis://h:1/0"), -1);
  assert_string_equal(err.code, "ECONNREFUSED");
  assert_string_equal(err.text, "connect to redis://h:1/0: Connection refused");
  (void)err_errno(&err, ERR_RETRY, 9999, "what");
  assert_string_equal(err.code, "E9999");
}

static void wrap_keeps_class_and_code(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  (void)err_set(&err, ERR_FATAL, "42P01", "no such table");
  assert_int_equal(err_wrap(&err, "claimer %d", 3), -1);
  (void)err_wrap(&err, "start");
  assert_int_equal(err.class, ERR_FATAL);
  assert_string_equal(err.code, "42P01");
  assert_string_equal(err.text, "start: claimer 3: no such table");
}

static void every_class_has_a_name_of_its_own(void **state) {
  (void)state;
  for (int a = ERR_NONE; a <= ERR_BUG; a++) {
    assert_string_not_equal(err_class_name((enum err_class)a), "unknown");
    for (int b = ERR_NONE; b < a; b++) {
      assert_string_not_equal(err_class_name((enum err_class)a), err_class_name((enum err_class)b));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(set_fills_all_and_returns_minus_one),
      cmocka_unit_test(nobody_has_to_listen),
      cmocka_unit_test(line_breaks_become_spaces),
      cmocka_unit_test(long_texts_are_cut_at_the_end_of_a_character),
      cmocka_unit_test(an_argument_may_come_from_the_error_itself),
      cmocka_unit_test(errno_gives_name_and_text),
      cmocka_unit_test(wrap_keeps_class_and_code),
      cmocka_unit_test(every_class_has_a_name_of_its_own),
  };
  return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
