/*
 * Allocation that does not fail.
 *
 * Owns nothing; any thread.
 */
#include "outboxd/alloc.h"

#include <stdlib.h>

#include "outboxd/log.h"

void alloc_failed(size_t bytes) {
  log_event(LOG_CRITICAL, "out_of_memory", "no memory; the process ends, nothing is lost", LOG_INT("bytes", bytes));
  abort();
}

void *alloc_zeroed(size_t bytes) {
  void *p = calloc(1, bytes);
  if (p == NULL) {
    alloc_failed(bytes);
  }
  return p;
}
