/*
 * Table names: read as PostgreSQL reads them, quoted, shown.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "outboxd/schema.h"

#define X60 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void reads_names(void **state) {
  static const struct {
    const char *in, *schema, *table, *quoted, *shown;
  } cases[] = {
      {"outbox", "", "outbox", "\"outbox\"", "outbox"},
      {"Outbox", "", "outbox", "\"outbox\"", "outbox"},
      {"App.OutBox_1$", "app", "outbox_1$", "\"app\".\"outbox_1$\"", "app.outbox_1$"},
      {"\"App\".outbox", "App", "outbox", "\"App\".\"outbox\"", "\"App\".outbox"},
      {"app.\"Out.Box\"", "app", "Out.Box", "\"app\".\"Out.Box\"", "app.\"Out.Box\""},
      {"\"a\"\"b\".\"\"\"\"", "a\"b", "\"", "\"a\"\"b\".\"\"\"\"", "\"a\"\"b\".\"\"\"\""},
      {"\"1 a\"", "", "1 a", "\"1 a\"", "\"1 a\""},
      {"\"1\"", "", "1", "\"1\"", "\"1\""},
      {"_\xc3\xa9", "", "_\xc3\xa9", "\"_\xc3\xa9\"", "_\xc3\xa9"},
      {X60 "xxx", "", X60 "xxx", "\"" X60 "xxx\"", X60 "xxx"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct err err = ERR_INIT;
    struct schema_name name;
    char text[SCHEMA_FULL_NAME_BYTES];
    assert_int_equal(schema_parse_name(cases[i].in, &name, &err), 0);
    assert_string_equal(name.schema, cases[i].schema);
    assert_string_equal(name.table, cases[i].table);
    schema_quote_name(&name, text);
    assert_string_equal(text, cases[i].quoted);
    schema_show_name(&name, text);
    assert_string_equal(text, cases[i].shown);
  }
}

static void refuses_what_is_no_name(void **state) {
  static const struct {
    const char *in, *says;
  } cases[] = {
      {"", "starts with a letter"},    {"1a", "starts with a letter"},
      {".a", "starts with a letter"},  {"a.", "starts with a letter"},
      {"a b", "has to be quoted"},     {"a;b", "has to be quoted"},
      {"a\"b\"", "has to be quoted"},  {"\"a", "not closed"},
      {"a.\"b\"\"", "not closed"},     {"\"\"", "empty"},
      {"a.b.c", "two parts"},          {X60 "xxxx", "63 bytes"},
      {"\"" X60 "xxxx\"", "63 bytes"}, {"a.\"b\"c", "has to be quoted"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct err err = ERR_INIT;
    struct schema_name name;
    assert_int_equal(schema_parse_name(cases[i].in, &name, &err), -1);
    assert_int_equal(err.class, ERR_USAGE);
    assert_non_null(strstr(err.text, cases[i].says));
  }
}

/* The longest name there can be, all quotes. */
static void the_longest_name_fits(void **state) {
  struct schema_name name;
  char text[SCHEMA_FULL_NAME_BYTES];
  (void)state;
  memset(&name, 0, sizeof name);
  memset(name.schema, '"', sizeof name.schema - 1);
  memset(name.table, '"', sizeof name.table - 1);
  schema_quote_name(&name, text);
  assert_int_equal(strlen(text), 2 * (2 * 63 + 2) + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_names),
      cmocka_unit_test(refuses_what_is_no_name),
      cmocka_unit_test(the_longest_name_fits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
