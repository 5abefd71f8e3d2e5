/*
 * queue: order, deadlines, the close protocol, the descriptor; with real threads.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "outboxd/clock.h"
#include "outboxd/queue.h"
#include "unit.h"

#define PRODUCERS_N 4
#define ITEMS_N 20000
#define LONG_US INT64_C(20000000) /* a deadline that only a broken queue meets */

struct item {
  struct queue_item link; /* first */
  int producer;
  int number;
};

static struct queue_item *new_item(int producer, int number) {
  struct item *item = malloc(sizeof *item);
  assert_non_null(item);
  *item = (struct item){.producer = producer, .number = number};
  return &item->link;
}

static void push(struct queue *queue, int number) {
  struct queue_item *item = new_item(0, number);
  assert_true(queue_push(queue, &item));
  assert_null(item);
}

static bool is_readable(const struct queue *queue) {
  struct pollfd pollfd = {.fd = queue_fd(queue), .events = POLLIN};
  return poll(&pollfd, 1, 0) == 1;
}

/* Frees a chain whose numbers must be first, first + 1, ...; returns their count. */
static int check_chain(struct queue_item *chain, int first) {
  int n = 0;
  while (chain != NULL) {
    struct queue_item *next = chain->next;
    assert_int_equal(((struct item *)chain)->number, first + n);
    free(chain);
    chain = next;
    n++;
  }
  return n;
}

static void takes_all_in_order(void **state) {
  (void)state;
  struct queue *queue = NULL;
  struct queue_item *chain = NULL;
  assert_int_equal(queue_new(&queue, false, NULL), 0);
  assert_int_equal(queue_fd(queue), -1);
  assert_int_equal(queue_take(queue, 0, &chain), QUEUE_TIMEOUT);
  assert_null(chain);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 5; i++) {
      assert_int_equal(queue_depth(queue), i);
      push(queue, i);
    }
    assert_int_equal(queue_take(queue, 0, &chain), QUEUE_ITEMS);
    assert_int_equal(check_chain(chain, 0), 5);
    assert_int_equal(queue_depth(queue), 0);
  }
  queue_free(queue);
  queue_free(NULL);
}

static void close_strands_nothing(void **state) {
  (void)state;
  struct queue *queue = NULL;
  struct queue_item *chain = NULL;
  assert_int_equal(queue_new(&queue, true, NULL), 0);
  push(queue, 1);
  push(queue, 2);
  queue_close(queue);
  queue_close(queue);

  struct queue_item *late = new_item(0, 3);
  struct queue_item *kept = late;
  assert_false(queue_push(queue, &late));
  assert_ptr_equal(late, kept);
  free(late);

  assert_int_equal(queue_take(queue, clock_now_us() + LONG_US, &chain), QUEUE_ITEMS);
  assert_int_equal(check_chain(chain, 1), 2);
  for (int i = 0; i < 3; i++) {
    assert_true(is_readable(queue));
    assert_int_equal(queue_take(queue, clock_now_us() + LONG_US, &chain), QUEUE_CLOSED);
    assert_null(chain);
  }
  queue_free(queue);
}

static void a_deadline_ends_the_wait(void **state) {
  (void)state;
  struct queue *queue = NULL;
  struct queue_item *chain = NULL;
  assert_int_equal(queue_new(&queue, false, NULL), 0);
  int64_t deadline_us = clock_now_us() + 20000;
  assert_int_equal(queue_take(queue, deadline_us, &chain), QUEUE_TIMEOUT);
  assert_true(clock_now_us() >= deadline_us);
  queue_free(queue);
}

static void the_descriptor_follows_the_content(void **state) {
  (void)state;
  struct queue *queue = NULL;
  struct queue_item *chain = NULL;
  assert_int_equal(queue_new(&queue, true, NULL), 0);
  assert_false(is_readable(queue));
  for (int round = 0; round < 3; round++) {
    push(queue, 0);
    push(queue, 1);
    assert_true(is_readable(queue));
    assert_int_equal(queue_take(queue, 0, &chain), QUEUE_ITEMS);
    assert_int_equal(check_chain(chain, 0), 2);
    assert_false(is_readable(queue));
  }
  queue_close(queue);
  assert_true(is_readable(queue));
  queue_free(queue);
}

static void *close_it(void *arg) {
  struct queue *queue = arg;
  queue_close(queue);
  return NULL;
}

static void close_wakes_a_sleeper(void **state) {
  (void)state;
  struct queue *queue = NULL;
  struct queue_item *chain = NULL;
  pthread_t thread;
  assert_int_equal(queue_new(&queue, false, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, close_it, queue), 0);
  assert_int_equal(queue_take(queue, clock_now_us() + LONG_US, &chain), QUEUE_CLOSED);
  assert_int_equal(pthread_join(thread, NULL), 0);
  queue_free(queue);
}

struct pair {
  struct queue *to, *back;
};

static void *echo_back(void *arg) {
  const struct pair *pair = arg;
  struct queue_item *item = NULL;
  while (queue_take(pair->to, clock_now_us() + LONG_US, &item) == QUEUE_ITEMS) {
    if (!queue_push(pair->back, &item)) {
      free(item);
      break;
    }
  }
  queue_close(pair->back);
  return NULL;
}

/* One item goes to and fro: each side sleeps until the other pushes. */
static void a_push_wakes_a_sleeper(void **state) {
  (void)state;
  struct pair pair = {NULL, NULL};
  struct queue_item *item = new_item(0, 0);
  pthread_t thread;
  assert_int_equal(queue_new(&pair.to, false, NULL), 0);
  assert_int_equal(queue_new(&pair.back, false, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, echo_back, &pair), 0);
  for (int i = 0; i < 1000; i++) {
    assert_true(queue_push(pair.to, &item));
    assert_int_equal(queue_take(pair.back, clock_now_us() + LONG_US, &item), QUEUE_ITEMS);
    assert_null(item->next);
  }
  free(item);
  queue_close(pair.to);
  assert_int_equal(pthread_join(thread, NULL), 0);
  queue_free(pair.to);
  queue_free(pair.back);
}

/* Many producers, one consumer that sleeps either in queue_take or in poll. */
struct crowd {
  struct queue *queue;
  atomic_int refused_n;
};

struct producer {
  struct crowd *crowd;
  int number;
};

static void *produce(void *arg) {
  const struct producer *producer = arg;
  for (int i = 0; i < ITEMS_N; i++) {
    struct queue_item *item = new_item(producer->number, i);
    if (!queue_push(producer->crowd->queue, &item)) {
      atomic_fetch_add(&producer->crowd->refused_n, 1);
      free(item);
    }
    if (i % 1000 == 0) {
      (void)sched_yield(); /* lets the consumer run dry, so that it sleeps and must be woken */
    }
  }
  return NULL;
}

/* Takes until closed; counts into got_n and checks that each producer's items come in its order. */
static void consume(struct queue *queue, bool with_poll, int close_after, int got_n[PRODUCERS_N]) {
  int total = 0;
  bool is_closed = false;
  for (;;) {
    struct queue_item *chain = NULL;
    if (with_poll) {
      struct pollfd pollfd = {.fd = queue_fd(queue), .events = POLLIN};
      assert_int_equal(poll(&pollfd, 1, (int)(LONG_US / 1000)), 1);
    }
    enum queue_result result = queue_take(queue, with_poll ? 0 : clock_now_us() + LONG_US, &chain);
    if (result == QUEUE_CLOSED) {
      return;
    }
    /* With poll the descriptor may be readable once more after its item is gone. */
    assert_true(result == QUEUE_ITEMS || with_poll);
    while (chain != NULL) {
      struct queue_item *next = chain->next;
      const struct item *item = (const struct item *)chain;
      assert_int_equal(item->number, got_n[item->producer]);
      got_n[item->producer]++;
      total++;
      free(chain);
      chain = next;
    }
    if (total >= close_after && !is_closed) {
      queue_close(queue);
      is_closed = true;
    }
  }
}

static void run_crowd(bool with_poll, int close_after) {
  struct crowd crowd = {.queue = NULL};
  struct producer producers[PRODUCERS_N];
  pthread_t threads[PRODUCERS_N];
  int got_n[PRODUCERS_N] = {0};
  atomic_init(&crowd.refused_n, 0);
  assert_int_equal(queue_new(&crowd.queue, with_poll, NULL), 0);
  for (int i = 0; i < PRODUCERS_N; i++) {
    producers[i] = (struct producer){&crowd, i};
    assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
  }
  consume(crowd.queue, with_poll, close_after, got_n);
  int got_total = 0;
  for (int i = 0; i < PRODUCERS_N; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    got_total += got_n[i];
  }
  /* Nothing is stranded: what was not refused was taken. */
  assert_int_equal(got_total + atomic_load(&crowd.refused_n), PRODUCERS_N * ITEMS_N);
  assert_int_equal(queue_depth(crowd.queue), 0);
  assert_true(got_total >= close_after);
  queue_free(crowd.queue);
}

static void threads_lose_nothing(void **state) {
  (void)state;
  run_crowd(false, PRODUCERS_N * ITEMS_N);
}

static void threads_lose_nothing_with_poll(void **state) {
  (void)state;
  run_crowd(true, PRODUCERS_N * ITEMS_N);
}

static void closing_in_the_middle_strands_nothing(void **state) {
  (void)state;
  run_crowd(false, ITEMS_N / 2);
  run_crowd(true, ITEMS_N / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(takes_all_in_order),
      cmocka_unit_test(close_strands_nothing),
      cmocka_unit_test(a_deadline_ends_the_wait),
      cmocka_unit_test(the_descriptor_follows_the_content),
      cmocka_unit_test(close_wakes_a_sleeper),
      cmocka_unit_test(a_push_wakes_a_sleeper),
      cmocka_unit_test(threads_lose_nothing),
      cmocka_unit_test(threads_lose_nothing_with_poll),
      cmocka_unit_test(closing_in_the_middle_strands_nothing),
  };
  return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
