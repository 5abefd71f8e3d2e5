/*
 * selector: what --id, --aggregate and --event become as parameters, and what is refused.
 */
#include "outboxd/selector.h"
#include "unit.h"

static char one[] = "1";
static char minus[] = "-9223372036854775808";
static char order[] = "Shop::Order:4\"2\\";
static char event[] = "paid";

static void nothing_asked_for_is_null(void **state) {
  (void)state;
  struct selector selector;
  const struct cfg cfg = {0};
  assert_int_equal(selector_init(&selector, &cfg, NULL), 0);
  assert_false(selector_is_any(&cfg));
  for (int i = 0; i < SELECTOR_PARAMS_N; i++) {
    assert_null(selector.values[i]);
  }
  selector_fini(&selector);
}

static void values_become_arrays(void **state) {
  (void)state;
  struct selector selector;
  char *ids[] = {one, minus};
  char *aggregates[] = {order};
  char *events[] = {event, event};
  const struct cfg cfg = {.ids = {.n = 2, .values = ids},
                          .aggregates = {.n = 1, .values = aggregates},
                          .events = {.n = 2, .values = events}};
  assert_int_equal(selector_init(&selector, &cfg, NULL), 0);
  assert_true(selector_is_any(&cfg));
  assert_string_equal(selector.values[0], "{\"1\",\"-9223372036854775808\"}");
  assert_string_equal(selector.values[1], "{\"Shop::Order:4\\\"2\\\\\"}");
  assert_string_equal(selector.values[2], "{\"paid\",\"paid\"}");
  selector_fini(&selector);
  selector_fini(&selector);
}

static void wrong_ids_are_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"", " 1", "+1", "1 ", "1x", "-", "9223372036854775808", "1.0", "0x10"};
  for (size_t i = 0; i < COUNT(wrong); i++) {
    struct err err = ERR_INIT;
    int64_t id = 0;
    assert_int_equal(selector_parse_id(wrong[i], &id, &err), -1);
    assert_int_equal(err.class, ERR_USAGE);
    assert_contains(err.text, "--id takes the number");
  }
  int64_t id = 0;
  assert_int_equal(selector_parse_id("9223372036854775807", &id, NULL), 0);
  assert_true(id == INT64_MAX);
}

static void an_aggregate_has_a_colon(void **state) {
  (void)state;
  struct selector selector;
  struct err err = ERR_INIT;
  char *aggregates[] = {event};
  const struct cfg cfg = {.aggregates = {.n = 1, .values = aggregates}};
  assert_int_equal(selector_init(&selector, &cfg, &err), -1);
  assert_int_equal(err.class, ERR_USAGE);
  assert_contains(err.text, "order:42");
  selector_fini(&selector);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_asked_for_is_null),
      cmocka_unit_test(values_become_arrays),
      cmocka_unit_test(wrong_ids_are_refused),
      cmocka_unit_test(an_aggregate_has_a_colon),
  };
  return cmocka_run_group_tests_name("selector", tests, NULL, NULL);
}
