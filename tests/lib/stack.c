/*
 * A private PostgreSQL and Redis: see stack.h.
 *
 * Owns: the temporary directory.
 */
#include "stack.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db.h"
#include "fail.h"
#include "rds.h"
#include "stack_impl.h"

void stack_print_path(char *out, size_t n, const char *fmt, ...) {
  va_list args;
  int length;

  va_start(args, fmt);
  length = vsnprintf(out, n, fmt, args);
  va_end(args);
  REQUIRE(length >= 0 && (size_t)length < n, "too long: %s...", out);
}

void stack_make_dir(const struct stack *stack, const char *name, const char *user, char out[STACK_PATH_BYTES]) {
  stack_print_path(out, STACK_PATH_BYTES, "%s/%s", stack->dir, name);
  if (mkdir(out, 0700) != 0) {
    FAIL("cannot make %s: %s", out, strerror(errno));
  }
  if (user != NULL && geteuid() == 0) {
    const struct passwd *entry = getpwnam(user);
    if (entry == NULL) {
      FAIL("there is no user %s", user);
    }
    if (chown(out, entry->pw_uid, entry->pw_gid) != 0) {
      FAIL("cannot chown %s: %s", out, strerror(errno));
    }
  }
}

void stack_write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "we");
  if (file == NULL) {
    FAIL("cannot write %s: %s", path, strerror(errno));
  }
  fputs(text, file);
  if (fclose(file) != 0) {
    FAIL("cannot write %s: %s", path, strerror(errno));
  }
}

/* The directory of a stack that is on its way up: after that, whoever ends the stack tells. */
static const char *starting_dir;

static void print_starting_dir(void) {
  if (starting_dir != NULL) {
    fprintf(stderr, "kept: %s\n", starting_dir);
  }
}

struct stack *stack_start(const struct stack_options *options) {
  const char *base = getenv("TMPDIR");
  struct stack *stack = calloc(1, sizeof *stack);

  if (stack == NULL) {
    FAIL("out of memory");
  }
  stack->pg_port = (struct port)PORT_INIT;
  stack->redis_port = (struct port)PORT_INIT;
  if (options != NULL) {
    stack->options = *options;
  }
  stack_print_path(stack->dir, sizeof stack->dir, "%s/outboxd-test-XXXXXX",
                   base != NULL && base[0] != '\0' ? base : "/tmp");
  if (mkdtemp(stack->dir) == NULL) {
    FAIL("cannot make %s: %s", stack->dir, strerror(errno));
  }
  starting_dir = stack->dir;
  fail_add_context(print_starting_dir);
  /* The database server runs as another user and has to pass through. */
  if (chmod(stack->dir, 0755) != 0) {
    FAIL("cannot chmod %s: %s", stack->dir, strerror(errno));
  }
  if (!stack->options.has_no_redis) {
    stack_redis_init(stack);
  }
  if (!stack->options.has_no_pg) {
    stack_pg_init(stack);
    stack_reset(stack);
  }
  starting_dir = NULL;
  return stack;
}

static void remove_dir(const char *dir) {
  proc_run(&(struct proc_spec){.name = "rm", .argv = (const char *[]){"rm", "-rf", dir, NULL}}, 60000);
}

void stack_stop(struct stack *stack, bool is_failed) {
  const char *keep = getenv("KEEP");

  if (stack == NULL) {
    return;
  }
  if (stack->is_pg_frozen) {
    stack_pg_thaw(stack);
  }
  proc_stop(&stack->pg);
  proc_stop(&stack->redis);
  port_release(&stack->pg_port);
  port_release(&stack->redis_port);
  if (is_failed || (keep != NULL && strcmp(keep, "1") == 0)) {
    printf("kept: %s\n", stack->dir);
  } else {
    remove_dir(stack->dir);
  }
  free(stack);
}

void stack_reset(struct stack *stack) {
  if (!stack->options.has_no_pg) {
    char admin[STACK_URL_BYTES];
    if (stack->is_pg_frozen) {
      stack_pg_thaw(stack);
    }
    if (!proc_is_running(&stack->pg)) {
      stack_pg_restart(stack);
    }
    if (stack->options.has_clock) {
      stack_pg_set_clock(stack, 0);
    }
    PGconn *conn = db_open(stack_conninfo(stack, STACK_PG_USER, "postgres", admin));
    db_exec(conn, "DROP DATABASE IF EXISTS " STACK_DATABASE " WITH (FORCE)");
    db_exec(conn, "CREATE DATABASE " STACK_DATABASE);
    PQfinish(conn);
  }
  if (!stack->options.has_no_redis) {
    if (stack->is_redis_frozen) {
      stack_redis_thaw(stack);
    }
    if (!proc_is_running(&stack->redis)) {
      stack_redis_restart(stack);
    }
    redisContext *redis = rds_open(stack->redis_url);
    rds_run(redis, "FLUSHALL");
    redisFree(redis);
  }
}

const char *stack_conninfo(const struct stack *stack, const char *user, const char *database, char *buf) {
  stack_print_path(buf, STACK_URL_BYTES, "host=127.0.0.1 port=%d user=%s dbname=%s", stack->pg_port.number, user,
                   database);
  return buf;
}
