/*
 * A handler that is a program of its own: kept running, given a line a message, heard for a line.
 *
 * Belongs to one thread at a time.  Never waits longer than the handler's timeout, or than until the abort token is set.
 */
#ifndef OUTBOXD_EXEC_HANDLER_H
#define OUTBOXD_EXEC_HANDLER_H

#include <stdint.h>
#include <sys/types.h>

#include "outbox.h"
#include "outboxd/buf.h"
#include "outboxd/stop.h"

struct exec_handler {
  const char *command; /* for /bin/sh */
  int64_t timeout_ms;
  const struct stop *abort;
  int number; /* of the worker, for the log */
  pid_t pid;  /* leads a process group; 0: none runs */
  int to_fd, from_fd;
  int starts_n;          /* in a row that brought no answer */
  int64_t next_start_us; /* not before */
  struct buf line, answer;
};

/* Nothing runs before the first message.  command and abort are borrowed. */
void exec_handler_init(struct exec_handler *handler, const char *command, int64_t timeout_ms, const struct stop *abort,
                       int number);
/* Gives it the message and returns what it made of it.  One that dies, is silent for too long or answers something else has failed (RETRY) and is
 * started anew for the next; one that cannot be started at all is no fault of the message (LATER). */
enum outbox_verdict exec_handler_handle(struct exec_handler *handler, const struct outbox_message *message,
                                        struct outbox_failure *failure);
/* Closes its input, waits for it for a while, then ends it. */
void exec_handler_fini(struct exec_handler *handler);

#endif
