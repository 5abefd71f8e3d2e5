/*
 * The queue between two threads.
 *
 * Owns its items while they are in it.  Producers run queue_push and queue_close, one consumer runs queue_take.  Under the
 * mutex nothing happens but pointer work and the condition's signal: no I/O, no allocation, no callback.
 *
 * The eventfd is written after the mutex was released, so it may become readable a moment after the item is there, and
 * once in a while when the item is gone already.  It is never missed: queue_take empties it before it looks at the list, and a
 * push that the look did not see writes it later.
 */
#include "outboxd/queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "outboxd/clock.h"

struct queue {
  int fd;              /* -1: none */
  atomic_size_t depth; /* written under the mutex, read by anybody */
  pthread_cond_t changed;
  pthread_mutex_t mutex;
  /* Under the mutex: */
  struct queue_item *head;
  struct queue_item **tail; /* where the next item is linked in */
  bool is_closed;
};

int queue_new(struct queue **out, bool has_fd, struct err *err) {
  struct queue *queue = malloc(sizeof *queue);
  if (queue == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "queue");
  }
  queue->fd = -1;
  if (has_fd) {
    queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->fd < 0) {
      int errnum = errno;
      free(queue);
      return err_errno(err, ERR_RETRY, errnum, "eventfd of a queue");
    }
  }
  atomic_init(&queue->depth, 0);
  clock_cond_init(&queue->changed);
  (void)pthread_mutex_init(&queue->mutex, NULL);
  queue->head = NULL;
  queue->tail = &queue->head;
  queue->is_closed = false;
  *out = queue;
  return 0;
}

void queue_free(struct queue *queue) {
  if (queue == NULL) {
    return;
  }
  assert(queue->head == NULL);
  if (queue->fd >= 0) {
    (void)close(queue->fd);
  }
  (void)pthread_cond_destroy(&queue->changed);
  (void)pthread_mutex_destroy(&queue->mutex);
  free(queue);
}

static void fd_raise(const struct queue *queue) {
  if (queue->fd >= 0) {
    /* Fails only when the counter is full, and then the descriptor is readable already. */
    const uint64_t one = 1;
    ssize_t written = write(queue->fd, &one, sizeof one);
    (void)written;
  }
}

static void fd_lower(const struct queue *queue) {
  if (queue->fd >= 0) {
    /* Fails only when there is nothing to read. */
    uint64_t count;
    ssize_t n = read(queue->fd, &count, sizeof count);
    (void)n;
  }
}

bool queue_push(struct queue *queue, struct queue_item **item) {
  struct queue_item *pushed = *item;
  bool is_taken = false;
  bool was_empty = false;
  pushed->next = NULL;

  (void)pthread_mutex_lock(&queue->mutex);
  if (!queue->is_closed) {
    was_empty = queue->head == NULL;
    *queue->tail = pushed;
    queue->tail = &pushed->next;
    atomic_fetch_add(&queue->depth, 1);
    is_taken = true;
    if (was_empty) {
      (void)pthread_cond_signal(&queue->changed);
    }
  }
  (void)pthread_mutex_unlock(&queue->mutex);

  if (!is_taken) {
    return false;
  }
  *item = NULL;
  if (was_empty) {
    fd_raise(queue);
  }
  return true;
}

enum queue_result queue_take(struct queue *queue, int64_t deadline_us, struct queue_item **out) {
  enum queue_result result = QUEUE_TIMEOUT;
  fd_lower(queue);

  (void)pthread_mutex_lock(&queue->mutex);
  while (queue->head == NULL && !queue->is_closed) {
    if (clock_cond_wait(&queue->changed, &queue->mutex, deadline_us) == ETIMEDOUT) {
      break;
    }
  }
  bool is_closed = queue->is_closed;
  *out = queue->head;
  if (queue->head != NULL) {
    queue->head = NULL;
    queue->tail = &queue->head;
    atomic_store(&queue->depth, 0);
    result = QUEUE_ITEMS;
  } else if (is_closed) {
    result = QUEUE_CLOSED;
  }
  (void)pthread_mutex_unlock(&queue->mutex);

  if (is_closed) {
    fd_raise(queue);
  }
  return result;
}

void queue_close(struct queue *queue) {
  (void)pthread_mutex_lock(&queue->mutex);
  queue->is_closed = true;
  (void)pthread_cond_broadcast(&queue->changed);
  (void)pthread_mutex_unlock(&queue->mutex);
  fd_raise(queue);
}

size_t queue_depth(const struct queue *queue) {
  return atomic_load(&queue->depth);
}

int queue_fd(const struct queue *queue) {
  return queue->fd;
}
