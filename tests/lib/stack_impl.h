/*
 * Shared by stack.c, stack_pg.c and stack_redis.c only.
 */
#ifndef TEST_STACK_IMPL_H
#define TEST_STACK_IMPL_H

#include <stddef.h>

#include "stack.h"

/* mkdir below stack->dir for a server that may run as another user; writes the path. */
void stack_make_dir(const struct stack *stack, const char *name, const char *user, char out[STACK_PATH_BYTES]);

/* Writes text to a file, replacing it. */
void stack_write_file(const char *path, const char *text);

/* snprintf that fails the test instead of cutting a path. */
void stack_print_path(char *out, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* First start: port, data directory, server.  Fails the test when it does not come up. */
void stack_pg_init(struct stack *stack);
void stack_redis_init(struct stack *stack);

#endif
