/*
 * histogram: quantiles beside exact ones.
 */
#include <stdlib.h>

#include "outboxd/histogram.h"
#include "unit.h"

#define VALUES_N 20000

static uint64_t prng = 88172645463325252u;

static uint64_t next_random(void) {
  prng ^= prng << 13;
  prng ^= prng >> 7;
  prng ^= prng << 17;
  return prng;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a;
  int64_t y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int setup(void **state) {
  *state = calloc(2, sizeof(struct histogram));
  return *state != NULL ? 0 : -1;
}

static int teardown(void **state) {
  free(*state);
  return 0;
}

static void assert_close(int64_t got, int64_t exact) {
  if (got < exact || got - exact > exact / 64) {
    fail_msg("%lld is not within 1/64 above %lld", (long long)got, (long long)exact);
  }
}

static void empty_gives_zero(void **state) {
  const struct histogram *histogram = *state;
  assert_int_equal(histogram->count, 0);
  assert_int_equal(histogram_quantile_us(histogram, 0), 0);
  assert_int_equal(histogram_quantile_us(histogram, 0.5), 0);
  assert_int_equal(histogram_quantile_us(histogram, 1), 0);
}

/* Each power of two, its neighbours, and both ends of the range. */
static void one_value_is_read_back(void **state) {
  struct histogram *histogram = *state;
  for (int bit = 0; bit < 63; bit++) {
    for (int64_t off = -2; off <= 2; off++) {
      int64_t value = (INT64_C(1) << bit) + off;
      if (value < 0) {
        continue;
      }
      histogram_reset(histogram);
      histogram_record(histogram, value);
      /* A larger value in a slot of its own, so that the maximum does not give the first away. */
      histogram_record(histogram, INT64_MAX);
      assert_close(histogram_quantile_us(histogram, 0.5), value);
      assert_int_equal(histogram_quantile_us(histogram, 1), INT64_MAX);
      assert_int_equal(histogram->count, 2);
    }
  }
}

static void below_128_us_it_is_exact(void **state) {
  struct histogram *histogram = *state;
  for (int64_t value = 0; value < 128; value++) {
    histogram_record(histogram, value);
  }
  for (int rank = 1; rank <= 128; rank++) {
    assert_int_equal(histogram_quantile_us(histogram, rank / 128.0), rank - 1);
  }
}

static void a_rank_between_two_values_takes_the_upper(void **state) {
  struct histogram *histogram = *state;
  for (int64_t value = 1; value <= 3; value++) {
    histogram_record(histogram, value);
  }
  assert_int_equal(histogram_quantile_us(histogram, 0.33), 1);
  assert_int_equal(histogram_quantile_us(histogram, 0.34), 2);
  assert_int_equal(histogram_quantile_us(histogram, 0.5), 2);
  assert_int_equal(histogram_quantile_us(histogram, 0.67), 3);
}

static void negative_counts_as_zero(void **state) {
  struct histogram *histogram = *state;
  histogram_record(histogram, -1);
  histogram_record(histogram, INT64_MIN);
  assert_int_equal(histogram->count, 2);
  assert_int_equal(histogram->max, 0);
  assert_int_equal(histogram_quantile_us(histogram, 1), 0);
}

static void quantiles_are_close_to_exact_ones(void **state) {
  struct histogram *histogram = *state;
  static const double qs[] = {0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1};
  int64_t *values = calloc(VALUES_N, sizeof *values);
  assert_non_null(values);
  /* Values of very different sizes: each as likely to have few bits as many. */
  for (int i = 0; i < VALUES_N; i++) {
    values[i] = (int64_t)(next_random() >> (1 + next_random() % 62));
    histogram_record(histogram, values[i]);
  }
  qsort(values, VALUES_N, sizeof *values, compare);
  for (size_t i = 0; i < COUNT(qs); i++) {
    double exact_rank = qs[i] * VALUES_N;
    size_t rank = (size_t)exact_rank;
    if ((double)rank < exact_rank || rank == 0) {
      rank++;
    }
    assert_close(histogram_quantile_us(histogram, qs[i]), values[rank - 1]);
  }
  assert_int_equal(histogram->max, values[VALUES_N - 1]);
  assert_int_equal(histogram_quantile_us(histogram, 1), values[VALUES_N - 1]);
  free(values);
}

static void merging_equals_recording_in_one(void **state) {
  struct histogram *a = *state;
  struct histogram *b = a + 1;
  struct histogram *whole = calloc(1, sizeof *whole);
  assert_non_null(whole);
  for (int i = 0; i < 1000; i++) {
    int64_t value = (int64_t)(next_random() % 1000000);
    histogram_record(i % 3 == 0 ? a : b, value);
    histogram_record(whole, value);
  }
  histogram_merge(a, b);
  assert_memory_equal(a, whole, sizeof *whole);
  histogram_reset(whole);
  assert_int_equal(whole->count, 0);
  histogram_merge(a, whole);
  assert_int_equal(a->count, 1000);
  free(whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(empty_gives_zero, setup, teardown),
      cmocka_unit_test_setup_teardown(one_value_is_read_back, setup, teardown),
      cmocka_unit_test_setup_teardown(below_128_us_it_is_exact, setup, teardown),
      cmocka_unit_test_setup_teardown(a_rank_between_two_values_takes_the_upper, setup, teardown),
      cmocka_unit_test_setup_teardown(negative_counts_as_zero, setup, teardown),
      cmocka_unit_test_setup_teardown(quantiles_are_close_to_exact_ones, setup, teardown),
      cmocka_unit_test_setup_teardown(merging_equals_recording_in_one, setup, teardown),
  };
  return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
