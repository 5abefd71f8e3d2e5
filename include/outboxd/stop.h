/*
 * The stop token: how a thread that waits for a socket or a queue hears that it should end.
 *
 * Shared by all threads; set once, never cleared.  No lock: an atomic and an eventfd.
 */
#ifndef OUTBOXD_STOP_H
#define OUTBOXD_STOP_H

#include <stdbool.h>

#include "outboxd/err.h"

struct stop;

must_check int stop_new(struct stop **out, struct err *err);
void stop_free(struct stop *stop);
/* Any thread, also from a signal handler. */
void stop_set(struct stop *stop);
bool stop_is_set(const struct stop *stop);
/* Readable (POLLIN) from stop_set on; for poll(2) only, never read it. */
int stop_fd(const struct stop *stop);

#endif
