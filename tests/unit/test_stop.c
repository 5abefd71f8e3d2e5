/*
 * stop: seen by those who run and those who poll, set from anywhere.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "outboxd/stop.h"
#include "unit.h"

static bool is_readable(const struct stop *stop, int timeout_ms) {
  struct pollfd pollfd = {.fd = stop_fd(stop), .events = POLLIN};
  return poll(&pollfd, 1, timeout_ms) == 1 && (pollfd.revents & POLLIN) != 0;
}

static void set_once_seen_for_ever(void **state) {
  (void)state;
  struct stop *stop = NULL;
  assert_int_equal(stop_new(&stop, NULL), 0);
  assert_false(stop_is_set(stop));
  assert_false(is_readable(stop, 0));
  for (int i = 0; i < 3; i++) {
    stop_set(stop);
    assert_true(stop_is_set(stop));
    assert_true(is_readable(stop, 0));
    assert_true(is_readable(stop, 0));
  }
  stop_free(stop);
  stop_free(NULL);
}

/* A counter that is full: write(2) fails, and neither the caller nor those who poll notice. */
static void a_full_counter_does_no_harm(void **state) {
  (void)state;
  struct stop *stop = NULL;
  const uint64_t most = UINT64_MAX - 1;
  assert_int_equal(stop_new(&stop, NULL), 0);
  assert_int_equal(write(stop_fd(stop), &most, sizeof most), sizeof most);
  errno = ENOTTY;
  stop_set(stop);
  assert_int_equal(errno, ENOTTY);
  assert_true(stop_is_set(stop));
  assert_true(is_readable(stop, 0));
  stop_free(stop);
}

static struct stop *handler_stop;

static void handler(int signum) {
  (void)signum;
  stop_set(handler_stop);
}

static void a_signal_handler_sets_it_and_keeps_errno(void **state) {
  (void)state;
  struct sigaction action = {.sa_handler = handler};
  struct sigaction before;
  assert_int_equal(stop_new(&handler_stop, NULL), 0);
  assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
  errno = ENOTTY;
  assert_int_equal(raise(SIGUSR1), 0);
  assert_int_equal(errno, ENOTTY);
  assert_true(stop_is_set(handler_stop));
  assert_true(is_readable(handler_stop, 0));
  assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
  stop_free(handler_stop);
}

static void *set_it(void *arg) {
  struct stop *stop = arg;
  stop_set(stop);
  return NULL;
}

static void wakes_a_thread_that_polls(void **state) {
  (void)state;
  struct stop *stop = NULL;
  pthread_t thread;
  assert_int_equal(stop_new(&stop, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, set_it, stop), 0);
  assert_true(is_readable(stop, 10000));
  assert_true(stop_is_set(stop));
  assert_int_equal(pthread_join(thread, NULL), 0);
  stop_free(stop);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(set_once_seen_for_ever),
      cmocka_unit_test(a_full_counter_does_no_harm),
      cmocka_unit_test(a_signal_handler_sets_it_and_keeps_errno),
      cmocka_unit_test(wakes_a_thread_that_polls),
  };
  return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
