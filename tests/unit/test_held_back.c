/*
 * held_back: who is held back, until when, and how it reads as a parameter; backoff: its bounds.
 */
#include "outboxd/backoff.h"
#include "outboxd/held_back.h"
#include "unit.h"

static int param_n_above(struct held_back *held_back, int64_t above_id) {
  const struct buf *param = NULL;
  assert_int_equal(held_back_param(held_back, above_id, &param, NULL), 0);
  return param == NULL ? 0 : (int)((param->len - 20) / 12);
}

static int param_n(struct held_back *held_back) {
  return param_n_above(held_back, INT64_MIN);
}

static void what_is_due_leaves_and_nothing_else(void **state) {
  (void)state;
  struct held_back *held_back = NULL;
  assert_int_equal(held_back_new(&held_back, NULL), 0);
  assert_true(held_back_next_due_us(held_back) == INT64_MAX);
  assert_int_equal(held_back_add(held_back, 1, HELD_FAILED, 100, 1, NULL), 0);
  assert_int_equal(held_back_add(held_back, 2, HELD_LOCKED, 200, 1, NULL), 0);
  assert_int_equal(held_back_add(held_back, 3, HELD_DEAD, INT64_MAX, 1, NULL), 0);
  assert_true(held_back_next_due_us(held_back) == 100);
  assert_int_equal(param_n(held_back), 3);
  assert_int_equal(held_back_release_due(held_back, 99), 0);
  assert_int_equal(held_back_release_due(held_back, 150), 1);
  assert_false(held_back_has(held_back, 1));
  assert_true(held_back_has(held_back, 2));
  assert_true(held_back_next_due_us(held_back) == 200);
  assert_int_equal(param_n(held_back), 2);
  assert_int_equal(held_back_release_due(held_back, INT64_MAX - 1), 1);
  assert_true(held_back_has(held_back, 3));
  assert_int_equal(held_back_n(held_back, HELD_DEAD), 1);
  held_back_free(held_back);
}

static void the_later_time_and_the_graver_reason_count(void **state) {
  (void)state;
  struct held_back *held_back = NULL;
  assert_int_equal(held_back_new(&held_back, NULL), 0);
  assert_int_equal(held_back_add(held_back, 7, HELD_FAILED, 500, 1, NULL), 0);
  assert_int_equal(held_back_add(held_back, 7, HELD_LOCKED, 100, 1, NULL), 0);
  assert_int_equal(held_back_release_due(held_back, 100), 0);
  assert_int_equal(held_back_n(held_back, HELD_FAILED), 1);
  assert_int_equal(held_back_n(held_back, HELD_LOCKED), 0);
  assert_int_equal(held_back_add(held_back, 7, HELD_DEAD, INT64_MAX, 1, NULL), 0);
  assert_int_equal(held_back_release_due(held_back, INT64_MAX - 1), 0);
  assert_int_equal(held_back_n(held_back, HELD_DEAD), 1);
  assert_int_equal(held_back_n(held_back, HELD_FAILED), 0);
  held_back_free(held_back);
}

static void the_dead_are_exactly_those_that_are_named(void **state) {
  (void)state;
  struct held_back *held_back = NULL;
  const int64_t first[] = {10, 11, 12};
  const int64_t second[] = {11, 13};
  assert_int_equal(held_back_new(&held_back, NULL), 0);
  assert_int_equal(held_back_add(held_back, 20, HELD_FAILED, 100, 1, NULL), 0);
  assert_int_equal(held_back_keep_dead(held_back, first, 3, NULL), 0);
  assert_int_equal(held_back_n(held_back, HELD_DEAD), 3);
  assert_int_equal(held_back_keep_dead(held_back, second, 2, NULL), 2);
  assert_true(held_back_has(held_back, 11));
  assert_true(held_back_has(held_back, 13));
  assert_false(held_back_has(held_back, 10));
  assert_true(held_back_has(held_back, 20));
  assert_int_equal(held_back_keep_dead(held_back, NULL, 0, NULL), 2);
  assert_int_equal(param_n(held_back), 1);
  held_back_free(held_back);
}

static void the_parameter_has_those_with_messages_ahead(void **state) {
  (void)state;
  struct held_back *held_back = NULL;
  assert_int_equal(held_back_new(&held_back, NULL), 0);
  assert_int_equal(param_n_above(held_back, 0), 0);
  assert_int_equal(held_back_add(held_back, 1, HELD_FAILED, 100, 10, NULL), 0);
  assert_int_equal(held_back_add(held_back, 2, HELD_FAILED, 100, 20, NULL), 0);
  const int64_t dead[] = {3};
  assert_int_equal(held_back_keep_dead(held_back, dead, 1, NULL), 0);
  assert_int_equal(param_n(held_back), 3);
  assert_int_equal(param_n_above(held_back, 9), 3);
  assert_int_equal(param_n_above(held_back, 10), 2);
  assert_int_equal(param_n_above(held_back, 20), 1);
  assert_true(held_back_saw(held_back, 1, 20));
  assert_int_equal(param_n_above(held_back, 20), 1);
  assert_true(held_back_saw(held_back, 1, 21));
  assert_true(held_back_saw(held_back, 2, 15)); /* an earlier one says nothing new */
  assert_false(held_back_saw(held_back, 4, 21));
  assert_int_equal(param_n_above(held_back, 20), 2);
  assert_int_equal(held_back_add(held_back, 2, HELD_FAILED, 100, 30, NULL), 0);
  assert_int_equal(param_n_above(held_back, 20), 3);
  assert_int_equal(param_n_above(held_back, 30), 1);
  assert_int_equal(held_back_release_due(held_back, 100), 2);
  assert_int_equal(param_n_above(held_back, INT64_MIN), 1);
  held_back_free(held_back);
}

static void backoff_doubles_within_its_bounds(void **state) {
  (void)state;
  struct backoff backoff = {.first_ms = 100, .max_ms = 5000};
  int64_t full_us = 100000;
  for (int i = 0; i < 40; i++) {
    int64_t wait_us = backoff_next_us(&backoff);
    assert_in_range((uint64_t)wait_us, (uint64_t)(full_us / 2), (uint64_t)full_us);
    full_us = full_us * 2 > 5000000 ? 5000000 : full_us * 2;
  }
  backoff_reset(&backoff);
  assert_in_range((uint64_t)backoff_next_us(&backoff), 50000, 100000);
  assert_in_range((uint64_t)backoff_nth_us(1000, 60000, 1), 500000, 1000000);
  assert_in_range((uint64_t)backoff_nth_us(1000, 60000, 7), 30000000, 60000000);
  assert_in_range((uint64_t)backoff_nth_us(1000, 60000, 32767), 30000000, 60000000);
  for (int i = 0; i < 1000; i++) {
    assert_in_range(backoff_random(16), 0, 15);
  }
  assert_int_equal(backoff_random(0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_due_leaves_and_nothing_else),
      cmocka_unit_test(the_later_time_and_the_graver_reason_count),
      cmocka_unit_test(the_dead_are_exactly_those_that_are_named),
      cmocka_unit_test(the_parameter_has_those_with_messages_ahead),
      cmocka_unit_test(backoff_doubles_within_its_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
