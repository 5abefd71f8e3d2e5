/*
 * Runs outboxd with no more rights than it needs, in whatever test: $TEST_ROLES is "relay" or "maintenance" (docs/privileges.md).
 *
 * The roles and the Redis user are made by the very scripts that users run.  What the tests themselves do, they do as superuser.  "init" always is
 * maintenance; a relay that is not gets --no-cleanup.  Main thread only.
 */
#ifndef TEST_ROLES_H
#define TEST_ROLES_H

#include <stdbool.h>

#include "stack.h"

#define ROLES_REDIS_USER "outboxd"
#define ROLES_REDIS_PASSWORD "relay-word"

/* Is $TEST_ROLES set? */
bool roles_are_on(void);

/* Would a relay with these arguments run as role "outboxd_relay", which cannot clean up? */
bool roles_is_relay(const char *const *args);

/* Gives the roles and the user what they need for the table and streams that args name, and writes how to connect with them. */
void roles_prepare(const struct stack *stack, const char *const *args, char conninfo[STACK_URL_BYTES],
                   char redis_url[STACK_URL_BYTES]);

#define ROLES_PATH_BYTES 8192
/* "PATH=...", with the stack's own psql first: for whoever runs the script. */
void roles_path(const struct stack *stack, char out[ROLES_PATH_BYTES]);

/* scripts/postgres-roles.sh --apply and scripts/redis-user.sh --apply with further arguments; both fail the test when the script fails. */
void roles_apply_postgres(const struct stack *stack, const char *table, const char *option);
void roles_apply_redis(const struct stack *stack, const char *template);

/* The line of redis.conf that makes the user; caller frees. */
char *roles_redis_line(const char *dir);

#endif
