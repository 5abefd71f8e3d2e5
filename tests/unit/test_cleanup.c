/*
 * The cleanup's pure parts: what is expired when, how often a warning is said, and both over two days and a month's end.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/cleanup_impl.h"
#include "outboxd/partition.h"

#define HOUR_US (INT64_C(3600) * 1000000)
#define DAY_MS (INT64_C(86400) * 1000)
#define MINUTE_US (INT64_C(60) * 1000000)

/* "2026-01-31 23:59" to microseconds. */
static int64_t at(const char *text) {
  struct tm tm;
  memset(&tm, 0, sizeof tm);
  const char *end = strptime(text, "%Y-%m-%d %H:%M", &tm);
  assert_true(end != NULL && *end == '\0');
  return (int64_t)timegm(&tm) * 1000000;
}

static void the_cut_follows_the_retention(void **state) {
  static const struct {
    const char *now, *cut;
    int64_t retention_ms;
  } cases[] = {
      {"2026-02-15 12:00", "2026-01-31 12:00", 15 * DAY_MS},
      {"2026-03-01 00:00", "2026-02-14 00:00", 15 * DAY_MS},
      {"2028-03-01 00:00", "2028-02-29 00:00", DAY_MS},
      /* Never yesterday's, which would be made anew. */
      {"2026-03-01 23:59", "2026-02-28 00:00", DAY_MS},
      {"2026-03-01 00:00", "2026-02-28 00:00", 1},
      {"2026-03-02 00:00", "2026-03-01 00:00", DAY_MS / 24},
      {"2026-03-02 01:00", "2026-02-28 01:00", 2 * DAY_MS},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_int_equal(partition_cut(at(cases[i].now), cases[i].retention_ms), at(cases[i].cut));
  }
}

#define DAYS_MAX 64

/* The partitions of a table that is cleaned up every hour. */
struct world {
  struct partition_bounds items[DAYS_MAX];
  int n;
  int made_n, gone_n;
};

static void clean_up(struct world *world, int64_t now_us, int64_t retention_ms, int64_t ahead_ms) {
  struct partition_bounds *plan = NULL;
  struct err err = ERR_INIT;
  int n = 0;
  int kept_n = 0;
  int64_t to_us = partition_day_start(now_us + ahead_ms * 1000) + PARTITION_DAY_US;
  assert_int_equal(
      partition_plan(world->items, world->n, partition_day_start(now_us) - PARTITION_DAY_US, to_us, &plan, &n, &err),
      0);
  for (int i = 0; i < n; i++) {
    assert_true(world->n < DAYS_MAX);
    world->items[world->n++] = plan[i];
  }
  free(plan);
  world->made_n += n;
  for (int i = 0; i < world->n; i++) {
    if (world->items[i].to_us > partition_cut(now_us, retention_ms)) {
      world->items[kept_n++] = world->items[i];
    }
  }
  world->gone_n += world->n - kept_n;
  world->n = kept_n;
}

/* Hour by hour over midnight, a month's end and a leap day: what is needed is there, what is expired is gone, nothing comes and goes. */
static void two_days_go_by(void **state) {
  static const struct {
    const char *from;
    int64_t retention_ms, ahead_ms;
  } cases[] = {
      {"2026-01-30 22:00", 3 * DAY_MS, 2 * DAY_MS},
      {"2028-02-28 00:00", 15 * DAY_MS, 14 * DAY_MS},
      {"2026-12-30 23:59", 1, 0},
      {"2027-02-28 13:37", DAY_MS, DAY_MS / 2},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct world world = {.n = 0};
    int64_t begin_us = at(cases[i].from);
    clean_up(&world, begin_us, cases[i].retention_ms, cases[i].ahead_ms);
    world.made_n = 0;
    for (int hour = 1; hour <= 48; hour++) {
      int64_t now_us = begin_us + hour * HOUR_US;
      clean_up(&world, now_us, cases[i].retention_ms, cases[i].ahead_ms);
      assert_true(world.items[0].from_us <= partition_day_start(now_us) - PARTITION_DAY_US);
      assert_true(world.items[0].to_us > partition_cut(now_us, cases[i].retention_ms));
      assert_true(world.items[world.n - 1].to_us > now_us + cases[i].ahead_ms * 1000);
      for (int k = 1; k < world.n; k++) {
        assert_int_equal(world.items[k - 1].to_us, world.items[k].from_us);
      }
    }
    assert_int_equal(world.made_n, 2);
    assert_in_range(world.gone_n, 0, 2);
  }
}

static void a_warning_is_said_on_change_and_now_and_then(void **state) {
  struct cleanup_said said = {NULL, 0};
  (void)state;
  assert_true(cleanup_is_due(&said, "kept a", "1", 15 * MINUTE_US, 0));
  assert_false(cleanup_is_due(&said, "kept a", "1", 15 * MINUTE_US, 14 * MINUTE_US));
  assert_true(cleanup_is_due(&said, "kept b", "1", 15 * MINUTE_US, 14 * MINUTE_US));
  assert_true(cleanup_is_due(&said, "kept a", "2", 15 * MINUTE_US, 14 * MINUTE_US));
  assert_false(cleanup_is_due(&said, "kept a", "2", 15 * MINUTE_US, 28 * MINUTE_US));
  assert_true(cleanup_is_due(&said, "kept a", "2", 15 * MINUTE_US, 29 * MINUTE_US));
  assert_true(cleanup_is_due(&said, "off", "x", INT64_MAX, 0));
  assert_false(cleanup_is_due(&said, "off", "x", INT64_MAX, INT64_MAX));
  cleanup_said_fini(&said);
}

static void what_went_away_is_news_when_it_comes_back(void **state) {
  struct cleanup_said said = {NULL, 0};
  (void)state;
  assert_true(cleanup_is_due(&said, "a", "1", INT64_MAX, 0));
  assert_true(cleanup_is_due(&said, "b", "1", INT64_MAX, 0));
  cleanup_said_sweep(&said);
  assert_false(cleanup_is_due(&said, "b", "1", INT64_MAX, 0));
  cleanup_said_sweep(&said);
  assert_true(cleanup_is_due(&said, "a", "1", INT64_MAX, 0));
  assert_false(cleanup_is_due(&said, "b", "1", INT64_MAX, 0));
  cleanup_said_fini(&said);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_cut_follows_the_retention),
      cmocka_unit_test(two_days_go_by),
      cmocka_unit_test(a_warning_is_said_on_change_and_now_and_then),
      cmocka_unit_test(what_went_away_is_news_when_it_comes_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
