/*
 * service: when the relay counts as ready, and what its status says.
 */
#include "outboxd/alert_rules.h"
#include "outboxd/service.h"
#include "unit.h"

static void ready_and_status(void **state) {
  (void)state;
  static const struct {
    struct coordinator_health health;
    bool is_redis_down;
    bool was_ready;
    bool is_ready;
    const char *status;
  } cases[] = {
      {{0}, false, false, false, "taking lanes over"},
      {{.is_postgres_down = true}, false, false, false, "waiting for PostgreSQL"},
      {{.is_postgres_down = true}, true, false, false, "waiting for PostgreSQL"},
      {{0}, true, false, false, "waiting for Redis"},
      {{.lanes_active_n = 1}, false, false, true, "1 of 16 lanes"},
      {{.is_standby = true}, false, false, true, "standby: others relay all 16 lanes"},
      {{.is_standby = true, .lanes_active_n = 2}, false, true, true, "2 of 16 lanes"},
      /* Once ready it stays so: an outage is the status' matter. */
      {{0}, false, true, true, "0 of 16 lanes"},
      {{.is_postgres_down = true, .lanes_active_n = 16},
       false,
       true,
       true,
       "PostgreSQL does not answer; 16 of 16 lanes"},
      {{.is_postgres_down = true},
       true,
       true,
       true,
       "PostgreSQL does not answer; Redis does not answer; 0 of 16 lanes"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    static const struct stats_figures none;
    char status[SERVICE_STATUS_BYTES];
    const struct service_view view = {.is_ready = cases[i].was_ready,
                                      .lanes_n = 16,
                                      .health = &cases[i].health,
                                      .is_redis_down = cases[i].is_redis_down,
                                      .figures = &none};
    assert_int_equal(service_is_ready(&view), cases[i].is_ready);
    service_describe(&view, status);
    assert_string_equal(status, cases[i].status);
  }
}

static void figures_when_there_are_some(void **state) {
  (void)state;
  const struct coordinator_health health = {.lanes_active_n = 16, .is_postgres_down = true};
  struct stats_figures figures = {.interval_seconds = 2, .fresh.published_n = 2469, .in_flight_n = 1000};
  const struct service_view view = {.lanes_n = 16, .health = &health, .is_redis_down = true, .figures = &figures};
  char status[SERVICE_STATUS_BYTES];
  service_describe(&view, status);
  assert_contains(status, "16 of 16 lanes, 1234.5 published/s, 1000 in flight");
  assert_lacks(status, "pending");

  figures.table = (struct alert_reading){
      .has_counts = true, .pending_n = ALERT_PENDING_MAX - 1, .oldest_pending_us = 3250000, .dead_n = 2};
  service_describe(&view, status);
  assert_contains(status, ", 99999 pending, oldest 3.2 s, 2 dead");
  figures.table.pending_n = ALERT_PENDING_MAX;
  service_describe(&view, status);
  assert_contains(status, ", 100000 or more pending, oldest ");
  assert_contains(status, "Redis does not answer; 16 of 16");

  /* The largest there can be still fit. */
  const struct stats_figures largest = {.interval_seconds = 0.1,
                                        .fresh.published_n = 100000000,
                                        .in_flight_n = 6400000,
                                        .table = {.has_counts = true,
                                                  .pending_n = ALERT_PENDING_MAX,
                                                  .oldest_pending_us = INT64_C(36500) * 86400 * 1000000,
                                                  .dead_n = ALERT_PENDING_MAX}};
  const struct service_view largest_view = {
      .lanes_n = 16, .health = &health, .is_redis_down = true, .figures = &largest};
  service_describe(&largest_view, status);
  assert_contains(status, " 100000 dead");
}

static void nobody_is_to_be_told(void **state) {
  (void)state;
  assert_int_equal(service_step(NULL, NULL, NULL, NULL, 0), INT64_MAX);
  service_waits(NULL, NULL);
  service_stopping(NULL);
  service_failed(NULL, NULL);
  service_close(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ready_and_status),
      cmocka_unit_test(figures_when_there_are_some),
      cmocka_unit_test(nobody_is_to_be_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
