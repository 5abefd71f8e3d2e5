/*
 * A queue between two threads: intrusive links, one mutex, closes without stranding anything.
 *
 * The queue owns what is in it.  Many producers, one consumer.  An optional eventfd lets a consumer that sits in poll(2) hear of new
 * items.  Lock: the queue's own mutex (see the lock table in docs/architecture.md); nothing is called under it.
 */
#ifndef OUTBOXD_QUEUE_H
#define OUTBOXD_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"

/* First member of whatever is queued. */
struct queue_item {
  struct queue_item *next;
};

struct queue;

enum queue_result {
  QUEUE_ITEMS,   /* something was taken */
  QUEUE_TIMEOUT, /* nothing until the deadline */
  QUEUE_CLOSED   /* closed, and everything that was in it has been taken */
};

/* has_fd: also make an eventfd that is readable while the queue is not empty or is closed. */
must_check int queue_new(struct queue **out, bool has_fd, struct err *err);
/* The queue must be empty. */
void queue_free(struct queue *queue);

/* Appends *item and sets it to NULL; false (item stays the caller's) when the queue is closed. */
must_check bool queue_push(struct queue *queue, struct queue_item **item);

/* Takes all items at once, in order, as a NULL-terminated chain, which is the caller's; waits until deadline_us (clock_now_us; 0 does not wait). */
must_check enum queue_result queue_take(struct queue *queue, int64_t deadline_us, struct queue_item **out);

/* No more pushes; wakes the consumer, who still gets what is in it. */
void queue_close(struct queue *queue);

/* Number of items now, for stats. */
size_t queue_depth(const struct queue *queue);

/* For poll(2) only; -1 without has_fd. */
int queue_fd(const struct queue *queue);

#endif
