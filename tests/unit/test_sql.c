/*
 * sql_expand: what is replaced, what is left alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "outboxd/sql.h"

static const struct sql_var vars[] = {
    {"table", "\"app\".\"outbox\""},
    {"n", "7"},
    {"empty", ""},
    {NULL, NULL},
};

static void expands(void **state) {
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"", ""},
      {"SELECT 1", "SELECT 1"},
      {"FROM :table WHERE id>:n", "FROM \"app\".\"outbox\" WHERE id>7"},
      {":n:n", "77"},
      {":n::int", "7::int"},
      {"$1::int[]", "$1::int[]"},
      {"a[1:2]", "a[1:2]"},
      {":=", ":="},
      {":", ":"},
      {"a:empty b", "a b"},
      {"':n' \":n\"", "':n' \":n\""},
      {"'it''s :n' :n", "'it''s :n' 7"},
      {"\"a\"\":n\" :n", "\"a\"\":n\" 7"},
      {"'back\\' :n", "'back\\' 7"},
      {"E'back\\' :n' :n", "E'back\\' :n' 7"},
      {"typE':n' :n", "typE':n' 7"},
      {"typE'\\' :n", "typE'\\' 7"}, /* a word that ends in e is no E-string */
      {"a -- :nothing\n:n", "a \n7"},
      {"a --", "a "},
      {"-- first\n-- second\na\n--third\nb", "a\nb"}, /* lines of nothing but a comment go whole */
      {"a/* :x /* :y */ :z */b", "a b"},
      {"a - :n / :n", "a - 7 / 7"},
      {"'--' :n '/*' :n '*/'", "'--' 7 '/*' 7 '*/'"},
      {"$$ :n $$ :n", "$$ :n $$ 7"},
      {"$x$ :n $$ $y$ $x$ :n", "$x$ :n $$ $y$ $x$ 7"},
      {"$1 $2 :n", "$1 $2 7"},
      {"a$b$ :n", "a$b$ 7"}, /* a name may hold dollars */
      {"'open :n", "'open :n"},
      {"/* open :n", " "},
      {"\xc3\xa9:n", "\xc3\xa9"
                     "7"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct err err = ERR_INIT;
    char *out = NULL;
    assert_int_equal(sql_expand(cases[i].in, vars, &out, &err), 0);
    assert_string_equal(out, cases[i].out);
    free(out);
  }
}

static void names_a_variable_without_value(void **state) {
  static const char *const cases[] = {"SELECT :nope", ":table2", ":tabl", ":N"};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct err err = ERR_INIT;
    char *out = NULL;
    assert_int_equal(sql_expand(cases[i], vars, &out, &err), -1);
    assert_null(out);
    assert_int_equal(err.class, ERR_BUG);
  }
  struct err err = ERR_INIT;
  char *out = NULL;
  assert_int_equal(sql_expand("SELECT :nope", vars, &out, &err), -1);
  assert_string_equal(err.text, "no value for the SQL variable :nope");
}

static void works_without_variables(void **state) {
  struct err err = ERR_INIT;
  char *out = NULL;
  (void)state;
  assert_int_equal(sql_expand("SELECT a::b -- c", NULL, &out, &err), 0);
  assert_string_equal(out, "SELECT a::b ");
  free(out);
}

static void grows(void **state) {
  struct err err = ERR_INIT;
  char text[3000], *out = NULL;
  (void)state;
  for (size_t i = 0; i + 3 <= sizeof text - 1; i += 3) {
    text[i] = ':';
    text[i + 1] = 'n';
    text[i + 2] = ' ';
  }
  text[sizeof text - 1] = '\0';
  text[sizeof text - 2] = ' ';
  text[sizeof text - 3] = ' ';
  assert_int_equal(sql_expand(text, vars, &out, &err), 0);
  assert_memory_equal(out, "7 7 7 ", 6);
  free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(expands),
      cmocka_unit_test(names_a_variable_without_value),
      cmocka_unit_test(works_without_variables),
      cmocka_unit_test(grows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
