/*
 * When alerts are said: raised after their grace, repeated, made worse, cleared; and the figures behind them.
 */
#include "unit.h"

#include "outboxd/alert_rules.h"

#define S INT64_C(1000000)

static void test_raised_repeated_cleared(void **state) {
  struct alert_state alert = {0};
  (void)state;
  assert_int_equal(alert_state_step(&alert, 0, 0, 10 * S, 1 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 2 * S), ALERT_RAISE);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 3 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 12 * S - 1), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 12 * S), ALERT_REPEAT);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 21 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 22 * S), ALERT_REPEAT);
  assert_int_equal(alert_state_step(&alert, 0, 0, 10 * S, 23 * S), ALERT_CLEAR);
  assert_true(alert.since_us == 2 * S);
  assert_int_equal(alert_state_step(&alert, 0, 0, 10 * S, 24 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 0, 10 * S, 25 * S), ALERT_RAISE);
  assert_true(alert.since_us == 25 * S);
}

static void test_grace(void **state) {
  struct alert_state alert = {0};
  (void)state;
  assert_int_equal(alert_state_step(&alert, 1, 30 * S, 100 * S, 0), ALERT_QUIET);
  assert_true(alert_state_is_pending(&alert));
  assert_int_equal(alert_state_step(&alert, 1, 30 * S, 100 * S, 30 * S - 1), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 30 * S, 100 * S, 30 * S), ALERT_RAISE);
  assert_false(alert_state_is_pending(&alert));
  assert_int_equal(alert_state_step(&alert, 0, 30 * S, 100 * S, 31 * S), ALERT_CLEAR);
  /* What was over within its grace was never said, so that its end is not either. */
  assert_int_equal(alert_state_step(&alert, 1, 30 * S, 100 * S, 40 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 0, 30 * S, 100 * S, 50 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 30 * S, 100 * S, 71 * S), ALERT_QUIET);
}

static void test_worse_is_said_at_once(void **state) {
  struct alert_state alert = {0};
  (void)state;
  assert_int_equal(alert_state_step(&alert, 1, 0, 100 * S, 0), ALERT_RAISE);
  assert_int_equal(alert_state_step(&alert, 2, 0, 100 * S, 1 * S), ALERT_RAISE);
  assert_int_equal(alert_state_step(&alert, 2, 0, 100 * S, 2 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 1, 0, 100 * S, 3 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&alert, 0, 0, 100 * S, 4 * S), ALERT_CLEAR);
}

static void test_each_time_or_never_again(void **state) {
  struct alert_state alert = {0};
  (void)state;
  assert_int_equal(alert_state_step(&alert, 1, 0, 0, 5 * S), ALERT_RAISE);
  assert_int_equal(alert_state_step(&alert, 1, 0, 0, 5 * S), ALERT_REPEAT);
  assert_int_equal(alert_state_step(&alert, 1, 0, INT64_MAX, INT64_MAX), ALERT_QUIET);
}

static void test_unknown(void **state) {
  struct alert_state raised = {0};
  struct alert_state pending = {0};
  (void)state;
  assert_int_equal(alert_state_step(&raised, 1, 0, 10 * S, 0), ALERT_RAISE);
  alert_state_unknown(&raised);
  assert_int_equal(alert_state_step(&raised, 1, 0, 10 * S, 5 * S), ALERT_QUIET);
  alert_state_unknown(&raised);
  assert_int_equal(alert_state_step(&raised, 0, 0, 10 * S, 6 * S), ALERT_CLEAR);
  /* A grace is of what was seen, not of what could not be. */
  assert_int_equal(alert_state_step(&pending, 1, 30 * S, 100 * S, 0), ALERT_QUIET);
  alert_state_unknown(&pending);
  assert_int_equal(alert_state_step(&pending, 1, 30 * S, 100 * S, 60 * S), ALERT_QUIET);
  assert_int_equal(alert_state_step(&pending, 1, 30 * S, 100 * S, 90 * S), ALERT_RAISE);
}

static void test_lanes(void **state) {
  bool is_owned[4] = {true, false, true, false};
  int64_t since_us[4] = {0};
  int64_t missing[4];
  bool is_waiting;
  (void)state;
  assert_int_equal(alert_lanes_missing(is_owned, 4, 10 * S, 100 * S, since_us, missing, &is_waiting), 0);
  assert_true(is_waiting);
  /* Lane 1 is handed on; lane 3 is not. */
  is_owned[1] = true;
  assert_int_equal(alert_lanes_missing(is_owned, 4, 10 * S, 105 * S, since_us, missing, &is_waiting), 0);
  is_owned[1] = false;
  assert_int_equal(alert_lanes_missing(is_owned, 4, 10 * S, 110 * S, since_us, missing, &is_waiting), 1);
  assert_true(missing[0] == 3);
  assert_true(is_waiting);
  assert_int_equal(alert_lanes_missing(is_owned, 4, 10 * S, 120 * S, since_us, missing, &is_waiting), 2);
  assert_true(missing[0] == 1 && missing[1] == 3);
  assert_false(is_waiting);
  is_owned[1] = is_owned[3] = true;
  assert_int_equal(alert_lanes_missing(is_owned, 4, 10 * S, 121 * S, since_us, missing, &is_waiting), 0);
  assert_false(is_waiting);
}

static void test_covered_until(void **state) {
  static const struct partition_bounds bounds[] = {{INT64_MIN, 0}, {0, 10}, {10, 20}, {30, 40}, {40, INT64_MAX}};
  static const struct {
    int n;
    int64_t now_us, until_us;
  } cases[] = {
      {4, 5, 20},  {4, 19, 20}, {4, 20, 20},        {4, 25, 25}, {4, 30, 40},
      {4, 40, 40}, {4, -7, 20}, {5, 35, INT64_MAX}, {0, 5, 5},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_true(alert_covered_until_us(bounds, cases[i].n, cases[i].now_us) == cases[i].until_us);
  }
}

static void test_partitions_min(void **state) {
  const int64_t day_ms = INT64_C(86400000);
  (void)state;
  assert_true(alert_partitions_min_us(14 * day_ms) == 2 * PARTITION_DAY_US);
  assert_true(alert_partitions_min_us(4 * day_ms) == 2 * PARTITION_DAY_US);
  assert_true(alert_partitions_min_us(2 * day_ms) == PARTITION_DAY_US);
  assert_true(alert_partitions_min_us(0) == 0);
}

static void test_read_memory(void **state) {
  struct alert_memory memory;
  (void)state;
  assert_true(
      alert_read_memory("# Memory\r\nused_memory:900\r\nused_memory_human:900B\r\nmaxmemory:1000\r\nmaxmemory_human:"
                        "1000B\r\nmaxmemory_policy:allkeys-lru\r\n",
                        &memory));
  assert_true(memory.used_bytes == 900 && memory.max_bytes == 1000);
  assert_string_equal(memory.policy, "allkeys-lru");
  assert_true(alert_read_memory("maxmemory_policy:noeviction\nmaxmemory:0\nused_memory:12345678901", &memory));
  assert_true(memory.used_bytes == INT64_C(12345678901) && memory.max_bytes == 0);
  assert_string_equal(memory.policy, "noeviction");
  assert_false(alert_read_memory("", &memory));
  char value[8];
  assert_true(alert_read_info("# Replication\r\nmaster_role:x\r\nrole:master\r\n", "role", value, sizeof value));
  assert_string_equal(value, "master");
  assert_true(alert_read_info("a:1234567890", "a", value, sizeof value));
  assert_string_equal(value, "1234567");
  assert_false(alert_read_info("roles:x\nxrole:y", "role", value, sizeof value));
  assert_false(alert_read_memory("used_memory:1\r\nxmaxmemory:5\r\nmaxmemory_policy:noeviction", &memory));
}

static void test_memory_limits(void **state) {
  static const struct {
    const char *policy;
    int64_t max_bytes;
    bool may_evict;
  } cases[] = {
      {"noeviction", 100, false},   {"allkeys-lru", 100, true},    {"allkeys-lfu", 100, true},
      {"allkeys-random", 1, true},  {"allkeys-lru", 0, false},     {"volatile-lru", 100, false},
      {"volatile-ttl", 100, false}, {"volatile-random", 1, false},
  };
  struct alert_memory memory = {.max_bytes = 1000};
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct alert_memory one = {.max_bytes = cases[i].max_bytes};
    strcpy(one.policy, cases[i].policy);
    assert_int_equal(alert_may_evict(&one), cases[i].may_evict);
  }
  memory.used_bytes = 900;
  assert_false(alert_is_nearly_full(&memory, false));
  memory.used_bytes = 901;
  assert_true(alert_is_nearly_full(&memory, false));
  memory.used_bytes = 851;
  assert_true(alert_is_nearly_full(&memory, true));
  assert_false(alert_is_nearly_full(&memory, false));
  memory.used_bytes = 850;
  assert_false(alert_is_nearly_full(&memory, true));
  memory.max_bytes = 0;
  assert_false(alert_is_nearly_full(&memory, true));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_raised_repeated_cleared),
      cmocka_unit_test(test_grace),
      cmocka_unit_test(test_worse_is_said_at_once),
      cmocka_unit_test(test_each_time_or_never_again),
      cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_lanes),
      cmocka_unit_test(test_covered_until),
      cmocka_unit_test(test_partitions_min),
      cmocka_unit_test(test_read_memory),
      cmocka_unit_test(test_memory_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
