/*
 * The stop token: an atomic for those who run, an eventfd for those who sleep in poll(2).
 *
 * Owns the eventfd.  stop_set also runs inside a signal handler: it may do nothing but an atomic store and write(2).
 */
#include "outboxd/stop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct stop {
  atomic_bool is_set;
  int fd;
};

int stop_new(struct stop **out, struct err *err) {
  struct stop *stop = malloc(sizeof *stop);
  if (stop == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "stop token");
  }
  atomic_init(&stop->is_set, false);
  stop->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop->fd < 0) {
    int errnum = errno;
    free(stop);
    return err_errno(err, ERR_RETRY, errnum, "eventfd of the stop token");
  }
  *out = stop;
  return 0;
}

void stop_free(struct stop *stop) {
  if (stop == NULL) {
    return;
  }
  (void)close(stop->fd);
  free(stop);
}

void stop_set(struct stop *stop) {
  int errnum = errno; /* a signal handler must leave it as it was */
  atomic_store(&stop->is_set, true);
  /* Fails only when the counter is full, and then the descriptor is readable already. */
  const uint64_t one = 1;
  ssize_t written = write(stop->fd, &one, sizeof one);
  (void)written;
  errno = errnum;
}

bool stop_is_set(const struct stop *stop) {
  return atomic_load(&stop->is_set);
}

int stop_fd(const struct stop *stop) {
  return stop->fd;
}
