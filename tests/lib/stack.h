/*
 * A private PostgreSQL and a private Redis for one test program, on free ports of 127.0.0.1, in a fresh temporary directory.
 *
 * They are real servers: they can be killed with -9, stopped and restarted on the same port with the same data.  When the program ends in
 * whatever way they end with it; the directory is removed unless something failed or $KEEP is 1 (then its place is printed).
 * Servers: $TEST_PG_BIN (a directory) and $TEST_REDIS_SERVER, else the newest PostgreSQL below /usr/lib/postgresql, else what PATH has.
 * Main thread only.
 */
#ifndef TEST_STACK_H
#define TEST_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "port.h"
#include "proc.h"

#define STACK_PATH_BYTES 256
#define STACK_URL_BYTES 512
#define STACK_PG_USER "postgres"
#define STACK_DATABASE "work"

struct stack_options {
  const char *const *pg_settings;    /* "max_connections=20", ..., NULL; added to the defaults below */
  const char *pg_hba;                /* the whole pg_hba.conf; NULL: everybody is trusted */
  bool has_fsync;                    /* PostgreSQL with fsync on (slow; a kill -9 of the server does not need it) */
  const char *const *redis_settings; /* lines of redis.conf, NULL at the end */
  const char *redis_password;        /* requirepass */
  bool has_aof;                      /* appendonly yes, appendfsync always: what survives a kill -9 */
  bool has_clock;                    /* PostgreSQL's clock can be moved: stack_pg_set_clock */
  bool has_no_pg, has_no_redis;
};

struct stack {
  char dir[STACK_PATH_BYTES];
  struct stack_options options; /* the pointers in it are borrowed until stack_stop */

  struct port pg_port;
  struct proc pg;
  bool is_pg_frozen;
  char pg_dir[STACK_PATH_BYTES]; /* holds data/, the log, and the unix socket */
  char pg_bin[STACK_PATH_BYTES];
  char conninfo[STACK_URL_BYTES]; /* of the database STACK_DATABASE, as superuser */

  struct port redis_port;
  struct proc redis;
  bool is_redis_frozen;
  char redis_dir[STACK_PATH_BYTES];
  char redis_socket[STACK_PATH_BYTES + 16];
  char redis_url[STACK_URL_BYTES]; /* with password */
};

/* Starts both and makes the database STACK_DATABASE.  options NULL: defaults.  PostgreSQL runs with fsync off and a time zone far from UTC,
 * Redis without any persistence.  Fails the test when a server does not come up.  Caller: stack_stop. */
struct stack *stack_start(const struct stack_options *options);

/* Ends both, removes the directory (or not: see above), frees.  NULL is fine. */
void stack_stop(struct stack *stack, bool is_failed);

/* A clean state for the next test of a program: both servers up (whatever the last one did to them), the database made anew, Redis flushed. */
void stack_reset(struct stack *stack);

/* The program that is Redis here. */
const char *stack_redis_server(void);

/* A conninfo for another user or database, into buf (STACK_URL_BYTES), which is returned. */
const char *stack_conninfo(const struct stack *stack, const char *user, const char *database, char *buf);

/* SIGKILL for the server and all its backends; returns when all of them are gone. */
void stack_pg_kill(struct stack *stack);
/* A fast shutdown, waited for. */
void stack_pg_shutdown(struct stack *stack);
/* Starts it again: same port, same data, crash recovery included; returns when it takes connections. */
void stack_pg_restart(struct stack *stack);
/* SIGSTOP and SIGCONT for the server and all its backends. */
void stack_pg_freeze(struct stack *stack);
void stack_pg_thaw(struct stack *stack);

/* Moves the clock of a server with has_clock: from now on it is so many seconds ahead of the machine's, for all its client sessions at once, and runs on
 * from there.  stack_reset sets it right. */
void stack_pg_set_clock(struct stack *stack, double ahead_seconds);

void stack_redis_kill(struct stack *stack);
void stack_redis_shutdown(struct stack *stack);
/* Returns when it answers PING again, with the AOF loaded when there is one. */
void stack_redis_restart(struct stack *stack);
/* Without what docs/guarantees.md asks for after a crash: that an AOF whose end was cut off is rewritten. */
void stack_redis_restart_only(struct stack *stack);
void stack_redis_freeze(struct stack *stack);
void stack_redis_thaw(struct stack *stack);

#endif
