/*
 * metrics: the text as Prometheus reads it, and the file as a reader finds it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outboxd/metrics.h"
#include "unit.h"

static struct histogram times[STATS_TIMES_N];
static const struct stats_publisher publishers[] = {{.queue_depth = 7, .is_connected = true},
                                                    {.queue_depth = 0, .is_connected = false}};

static struct stats_figures some_figures(void) {
  memset(times, 0, sizeof times);
  return (struct stats_figures){.total = {.claimed_n = 100,
                                          .published_n = 90,
                                          .failed_n = 3,
                                          .withheld_n = 2,
                                          .given_back_n = 1,
                                          .dead_n = 1,
                                          .batches_n = 12,
                                          .lanes_active_n = 5,
                                          .held_back_n = 4},
                                .publishers_total = {.bytes_n = INT64_C(12345678901234), .connects_n = 2},
                                .table = {.seen_us = 1, .has_counts = true},
                                .in_flight_n = 4,
                                .publishers_n = 2,
                                .lanes_n = 16,
                                .publishers = publishers,
                                .times_total = times,
                                .times_fresh = times};
}

/* The text for this path; caller frees. */
static char *render(char *path, const struct stats_figures *figures) {
  struct cfg cfg = {.metrics_file = path, .table = (char[]){"t"}, .stream = (char[]){"a\"b\\c\nd"}};
  struct metrics *metrics = NULL;
  struct buf text = BUF_INIT;
  assert_int_equal(metrics_new(&cfg, &metrics, NULL), 0);
  assert_int_equal(metrics_render(metrics, figures, &text, NULL), 0);
  metrics_free(metrics);
  return text.data;
}

/* The number behind a series, which begins a line. */
static double value_of(const char *text, const char *series) {
  char line[300];
  (void)snprintf(line, sizeof line, "\n%s ", series);
  const char *found = strstr(text, line);
  if (found == NULL) {
    fail_msg("no series %s in\n%s", series, text);
    return 0;
  }
  return strtod(found + strlen(line), NULL);
}

static void counters_and_levels_are_the_figures(void **state) {
  (void)state;
  struct stats_figures figures = some_figures();
  char *text = render((char[]){"/var/lib/node/relay-1.prom"}, &figures);
  assert_true(value_of(text, "outboxd_messages_claimed_total{relay=\"relay-1\",table=\"t\"}") == 100);
  assert_true(value_of(text, "outboxd_messages_published_total{relay=\"relay-1\",table=\"t\"}") == 90);
  assert_true(value_of(text, "outboxd_messages_in_flight{relay=\"relay-1\",table=\"t\"}") == 4);
  assert_true(value_of(text, "outboxd_lanes_active{relay=\"relay-1\",table=\"t\"}") == 5);
  assert_true(value_of(text, "outboxd_redis_sent_bytes_total{relay=\"relay-1\",table=\"t\"}") == 12345678901234);
  assert_true(value_of(text, "outboxd_queue_depth{relay=\"relay-1\",table=\"t\",publisher=\"0\"}") == 7);
  assert_true(value_of(text, "outboxd_redis_connected{relay=\"relay-1\",table=\"t\",publisher=\"1\"}") == 0);
  assert_true(value_of(text, "outboxd_start_time_seconds{relay=\"relay-1\",table=\"t\"}") > 1.7e9);
  assert_contains(text, "stream=\"a\\\"b\\\\c\\nd\"} 1\n");
  free(text);
}

/* What is not known has no series, rather than a zero that would be good news. */
static void what_was_not_seen_is_not_told(void **state) {
  (void)state;
  struct stats_figures figures = some_figures();
  figures.table = (struct alert_reading){0};
  char *text = render((char[]){"x"}, &figures);
  assert_null(strstr(text, "outboxd_table_"));
  free(text);
  figures.table = (struct alert_reading){.seen_us = INT64_C(1790000000250000), .oldest_pending_us = 61500000};
  text = render((char[]){"x"}, &figures);
  assert_true(value_of(text, "outboxd_table_seen_timestamp_seconds{relay=\"x\",table=\"t\"}") == 1790000000.25);
  assert_true(value_of(text, "outboxd_table_oldest_pending_seconds{relay=\"x\",table=\"t\"}") == 61.5);
  assert_null(strstr(text, "outboxd_table_pending_messages"));
  assert_null(strstr(text, "outboxd_table_dead_messages"));
  free(text);
  figures.table.has_counts = true;
  figures.table.pending_n = 100000;
  figures.table.dead_n = 3;
  text = render((char[]){"x"}, &figures);
  assert_true(value_of(text, "outboxd_table_pending_messages{relay=\"x\",table=\"t\"}") == 100000);
  assert_true(value_of(text, "outboxd_table_dead_messages{relay=\"x\",table=\"t\"}") == 3);
  free(text);
}

static void relay_label_is_the_files_name(void **state) {
  (void)state;
  static const struct {
    const char *path, *label;
  } cases[] = {{"x.prom", "x"},
               {"/a.prom/b", "b"},
               {"dir/.prom", ".prom"},
               {"a.prom.prom", "a.prom"},
               {"./we\"ird\\.prom", "we\\\"ird\\\\"}};
  struct stats_figures figures = some_figures();
  for (size_t i = 0; i < COUNT(cases); i++) {
    char copy[64];
    char want[80];
    (void)snprintf(copy, sizeof copy, "%s", cases[i].path);
    (void)snprintf(want, sizeof want, "outboxd_lanes{relay=\"%s\",table=\"t\"} 16\n", cases[i].label);
    char *text = render(copy, &figures);
    assert_contains(text, want);
    free(text);
  }
}

/* Every bucket against the values themselves. */
static void buckets_count_what_lies_below(void **state) {
  (void)state;
  static const double bounds[] = {0.00025, 0.001, 0.0025, 0.01, 0.1, 1, 10, 60, 900, 3600};
  struct stats_figures figures = some_figures();
  enum { VALUES_N = 20000 };
  static int64_t values[VALUES_N];
  double sum = 0;
  uint64_t random = 1;
  for (int i = 0; i < VALUES_N; i++) {
    random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
    values[i] = (int64_t)(random >> (24 + i % 40)); /* from 0 up to 2^40 us, all magnitudes */
    histogram_record(&times[STATS_LAG], values[i]);
    sum += (double)values[i] / 1e6;
  }
  char *text = render((char[]){"x"}, &figures);
  for (size_t b = 0; b < COUNT(bounds); b++) {
    char series[100];
    int surely_n = 0;
    int perhaps_n = 0;
    for (int i = 0; i < VALUES_N; i++) {
      double seconds = (double)values[i] / 1e6;
      surely_n += seconds <= bounds[b] * (1 - 1.0 / 64);
      perhaps_n += seconds <= bounds[b];
    }
    (void)snprintf(series, sizeof series, "outboxd_lag_seconds_bucket{relay=\"x\",table=\"t\",le=\"%g\"}", bounds[b]);
    assert_in_range((int)value_of(text, series), surely_n, perhaps_n);
  }
  assert_true(value_of(text, "outboxd_lag_seconds_bucket{relay=\"x\",table=\"t\",le=\"+Inf\"}") == VALUES_N);
  assert_true(value_of(text, "outboxd_lag_seconds_count{relay=\"x\",table=\"t\"}") == VALUES_N);
  double got = value_of(text, "outboxd_lag_seconds_sum{relay=\"x\",table=\"t\"}");
  assert_true(got > sum * 0.99 && got < sum * 1.01);
  assert_true(value_of(text, "outboxd_claim_seconds_count{relay=\"x\",table=\"t\"}") == 0);
  free(text);
}

/* docs/logging.md has a table of them. */
static void names_and_types_are_those_of_the_page(void **state) {
  (void)state;
  struct stats_figures figures = some_figures();
  char *text = render((char[]){"x"}, &figures);
  FILE *page = fopen("docs/logging.md", "r");
  char line[4096];
  int described_n = 0;
  int exported_n = 0;
  assert_non_null(page);
  while (fgets(line, sizeof line, page) != NULL) {
    char name[100];
    char type[100];
    if (sscanf(line, "| `%99[a-z_]` | %99[a-z] |", name, type) == 2 && strncmp(name, "outboxd_", 8) == 0) {
      char head[240];
      (void)snprintf(head, sizeof head, "\n# TYPE %s %s\n", name, type);
      assert_contains(text, head);
      described_n++;
    }
  }
  (void)fclose(page);
  for (const char *at = strstr(text, "# TYPE "); at != NULL; at = strstr(at + 1, "# TYPE ")) {
    exported_n++;
  }
  assert_int_equal(described_n, exported_n);
  free(text);
}

/* -------------------------------------------------------------------------------------------------- file */

static char dir[] = "/tmp/outboxd-metrics-XXXXXX";
static char path[64];

static int make_dir(void **state) {
  (void)state;
  if (mkdtemp(dir) == NULL) {
    return -1;
  }
  (void)snprintf(path, sizeof path, "%s/a.prom", dir);
  return 0;
}

static int remove_dir(void **state) {
  (void)state;
  (void)unlink(path);
  return rmdir(dir); /* fails when something else was left in it */
}

static int write_to(const char *to, struct err *err) {
  char copy[128];
  (void)snprintf(copy, sizeof copy, "%s", to);
  struct cfg cfg = {.metrics_file = copy, .table = (char[]){"t"}, .stream = (char[]){"s"}};
  struct stats_figures figures = some_figures();
  struct metrics *metrics = NULL;
  assert_int_equal(metrics_new(&cfg, &metrics, err), 0);
  int rc = metrics_write(metrics, &figures, err);
  metrics_free(metrics);
  return rc;
}

static void paths_that_cannot_be_written_say_why(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  char missing[100];
  (void)snprintf(missing, sizeof missing, "%s/no/such.prom", dir);
  assert_int_equal(write_to(missing, &err), -1);
  assert_string_equal(err.code, "ENOENT");
  assert_contains(err.text, "--metrics-file");
  assert_contains(err.text, missing);
  err_clear(&err);
  assert_int_equal(write_to(dir, &err), -1); /* a directory; the temporary file beside it goes again */
  assert_contains(err.text, "Is a directory");
}

static void failed_write_leaves_the_old_file(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  struct rlimit before;
  struct stat stat_before;
  struct stat stat_after;
  assert_int_equal(write_to(path, &err), 0);
  assert_int_equal(stat(path, &stat_before), 0);
  assert_int_equal(stat_before.st_mode & 0444, 0444); /* node_exporter runs as another user */
  void (*on_limit)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit limit = {.rlim_cur = 100, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  int rc = write_to(path, &err);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)signal(SIGXFSZ, on_limit);
  assert_int_equal(rc, -1);
  assert_int_equal(stat(path, &stat_after), 0);
  assert_int_equal(stat_after.st_size, stat_before.st_size);
  assert_int_equal(stat_after.st_ino, stat_before.st_ino);
}

static atomic_bool is_done;
static atomic_int torn_n;
static atomic_int read_n;

static void *read_again_and_again(void *arg) {
  static char text[65536];
  (void)arg;
  while (!atomic_load(&is_done) || atomic_load(&read_n) == 0) {
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
      (void)close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    if (strncmp(text, "# HELP outboxd_info", 19) != 0 ||
        strstr(text, "\noutboxd_redis_round_trip_seconds_count{relay=\"a\",table=\"t\"} 0\n") == NULL) {
      atomic_fetch_add(&torn_n, 1);
    }
    atomic_fetch_add(&read_n, 1);
  }
  return NULL;
}

static void reader_never_finds_half_a_file(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  pthread_t thread;
  assert_int_equal(write_to(path, &err), 0);
  assert_int_equal(pthread_create(&thread, NULL, read_again_and_again, NULL), 0);
  int rc = 0;
  for (int i = 0; i < 300 && rc == 0; i++) {
    rc = write_to(path, &err);
  }
  atomic_store(&is_done, true);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(rc, 0);
  assert_int_equal(atomic_load(&torn_n), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counters_and_levels_are_the_figures),   cmocka_unit_test(what_was_not_seen_is_not_told),
      cmocka_unit_test(relay_label_is_the_files_name),         cmocka_unit_test(buckets_count_what_lies_below),
      cmocka_unit_test(names_and_types_are_those_of_the_page), cmocka_unit_test(paths_that_cannot_be_written_say_why),
      cmocka_unit_test(failed_write_leaves_the_old_file),      cmocka_unit_test(reader_never_finds_half_a_file),
  };
  return cmocka_run_group_tests_name("metrics", tests, make_dir, remove_dir);
}
