/*
 * Version 7 uuids: form, bits, order, also from several threads at once.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "outboxd/uuid7.h"
#include "unit.h"

#define THREADS_N 4
#define EACH_N 20000

static void make(char out[UUID7_TEXT_BYTES]) {
  struct err err = ERR_INIT;
  if (uuid7_make(out, &err) != 0) {
    fail_msg("%s", err.text);
  }
}

static uint64_t hex(const char *text, int n) {
  char digits[17] = "";
  memcpy(digits, text, (size_t)n);
  return strtoull(digits, NULL, 16);
}

static uint64_t milliseconds(const char *uuid) {
  return hex(uuid, 8) << 16 | hex(uuid + 9, 4);
}

static uint64_t wall_ms(void) {
  struct timespec now;
  assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void have_the_form(void **state) {
  (void)state;
  for (int n = 0; n < 1000; n++) {
    char uuid[UUID7_TEXT_BYTES];
    make(uuid);
    assert_int_equal(strlen(uuid), 36);
    for (int i = 0; i < 36; i++) {
      if (i == 8 || i == 13 || i == 18 || i == 23) {
        assert_int_equal(uuid[i], '-');
      } else {
        assert_non_null(strchr("0123456789abcdef", uuid[i]));
      }
    }
    assert_int_equal(uuid[14], '7');
    assert_non_null(strchr("89ab", uuid[19]));
  }
}

static void carry_the_time(void **state) {
  (void)state;
  char uuid[UUID7_TEXT_BYTES];
  uint64_t before = wall_ms();
  make(uuid);
  uint64_t after = wall_ms();
  assert_in_range(milliseconds(uuid), before, after);
}

static void random_bits_differ(void **state) {
  (void)state;
  /* Every bit of the random part is seen as 0 and as 1. */
  uint64_t ones = 0;
  uint64_t zeros = 0;
  for (int n = 0; n < 200; n++) {
    char uuid[UUID7_TEXT_BYTES];
    make(uuid);
    uint64_t bits = hex(uuid + 19, 4) << 48 | hex(uuid + 24, 12);
    ones |= bits;
    zeros |= ~bits;
  }
  assert_int_equal(ones & zeros, UINT64_C(0x3fffffffffffffff));
}

struct list {
  char (*uuids)[UUID7_TEXT_BYTES];
};

static void *make_many(void *arg) {
  struct list *list = arg;
  for (int i = 0; i < EACH_N; i++) {
    if (uuid7_make(list->uuids[i], NULL) != 0) {
      list->uuids[i][0] = '\0';
    }
  }
  return NULL;
}

static int compare(const void *a, const void *b) {
  return strcmp(a, b);
}

static void ascend_in_every_thread_and_differ_over_all(void **state) {
  (void)state;
  pthread_t threads[THREADS_N];
  struct list lists[THREADS_N];
  char(*all)[UUID7_TEXT_BYTES] = calloc((size_t)THREADS_N * EACH_N, sizeof *all);
  assert_non_null(all);
  for (int t = 0; t < THREADS_N; t++) {
    lists[t].uuids = all + (size_t)t * EACH_N;
    assert_int_equal(pthread_create(&threads[t], NULL, make_many, &lists[t]), 0);
  }
  for (int t = 0; t < THREADS_N; t++) {
    assert_int_equal(pthread_join(threads[t], NULL), 0);
    for (int i = 1; i < EACH_N; i++) {
      assert_true(strcmp(lists[t].uuids[i - 1], lists[t].uuids[i]) < 0);
    }
  }
  /* Time and its fraction alone differ over all threads, whatever the random bits are. */
  qsort(all, (size_t)THREADS_N * EACH_N, sizeof *all, compare);
  for (size_t i = 1; i < (size_t)THREADS_N * EACH_N; i++) {
    assert_true(strncmp(all[i - 1], all[i], 18) < 0);
  }
  free(all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(have_the_form),
      cmocka_unit_test(carry_the_time),
      cmocka_unit_test(random_bits_differ),
      cmocka_unit_test(ascend_in_every_thread_and_differ_over_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
