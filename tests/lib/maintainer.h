/*
 * The cleanup thread alone, as a process of its own: takes the relay's options, logs as the relay does, ends at SIGTERM.
 *
 * The process is the test program itself, so that it can be killed and its log waited for by relay.h without a relay that would publish what
 * the test wants to stay pending.
 */
#ifndef TEST_MAINTAINER_H
#define TEST_MAINTAINER_H

#include "relay.h"

/* What main does first: in such a process, works until SIGTERM and ends the program; else returns. */
void maintainer_become(int argc, char *const argv[]);

/* Starts one.  args are options of outboxd run, which it is told before them; --database and --redis are added. */
struct relay *maintainer_start(const struct stack *stack, const char *const *args);

#define MAINTAIN(stack_, ...) maintainer_start((stack_), ((const char *const[]){__VA_ARGS__, NULL}))

#endif
