/*
 * fleet: the record, and what a different one is refused with.
 */
#include <stdlib.h>

#include "outboxd/fleet.h"
#include "unit.h"

static void record_is_the_same_bytes_each_time(void **state) {
  struct err err = ERR_INIT;
  char *text = NULL;
  (void)state;
  assert_int_equal(fleet_describe(16, "public.\"Out\"\"box\"", "app", &text, &err), 0);
  assert_string_equal(text, "{\"lanes\":16,\"table\":\"public.\\\"Out\\\"\\\"box\\\"\",\"database\":\"app\"}");
  assert_int_equal(fleet_compare("k", text, strlen(text), text, &err), 0);
  free(text);
}

static void another_one_is_refused_with_both(void **state) {
  struct err err = ERR_INIT;
  char found[1000];
  (void)state;
  assert_int_equal(fleet_compare("outbox:lanes", "{\"lanes\":4}", 11, "{\"lanes\":5}", &err), -1);
  assert_int_equal(err.class, ERR_FATAL);
  assert_string_equal(err.code, "fleet");
  assert_contains(err.text, "{\"lanes\":4} (key \"outbox:lanes\" in Redis), this one with {\"lanes\":5}");
  /* Only as far as it is long, and not more than fits into a line. */
  assert_int_equal(fleet_compare("k", "{}x", 2, "{}", &err), 0);
  memset(found, 'x', sizeof found);
  assert_int_equal(fleet_compare("k", found, sizeof found, "{}", &err), -1);
  assert_contains(err.text, "--stream prefix");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(record_is_the_same_bytes_each_time),
      cmocka_unit_test(another_one_is_refused_with_both),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
