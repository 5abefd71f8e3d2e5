/*
 * The private Redis of a stack: see stack.h.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "rds.h"
#include "roles.h"
#include "setting.h"
#include "stack.h"
#include "stack_impl.h"
#include "wait.h"

#define READY_MS 60000

static void write_config(const struct stack *stack, const char *path) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);

  if (out == NULL) {
    FAIL("out of memory");
  }
  fprintf(out, "bind 127.0.0.1\nport %d\nunixsocket %s\ndir %s\nsave \"\"\nloglevel notice\n", stack->redis_port.number,
          stack->redis_socket, stack->redis_dir);
  if (stack->options.has_aof) {
    fputs("appendonly yes\nappendfsync always\n", out);
  }
  if (stack->options.redis_password != NULL) {
    fprintf(out, "requirepass \"%s\"\n", stack->options.redis_password);
  }
  if (roles_are_on()) {
    char *line = roles_redis_line(stack->dir);
    fputs(line, out);
    free(line);
  }
  for (const char *const *line = stack->options.redis_settings; line != NULL && *line != NULL; line++) {
    fprintf(out, "%s\n", *line);
  }
  fclose(out);
  stack_write_file(path, text);
  free(text);
}

const char *stack_redis_server(void) {
  return setting("TEST_REDIS_SERVER", "redis-server");
}

static void launch(struct stack *stack) {
  char config[STACK_PATH_BYTES], log_path[STACK_PATH_BYTES];

  stack_print_path(config, sizeof config, "%s/redis.conf", stack->dir);
  stack_print_path(log_path, sizeof log_path, "%s/redis.log", stack->dir);
  write_config(stack, config);
  proc_start(&stack->redis, &(struct proc_spec){.name = "redis-server",
                                                .argv = (const char *[]){stack_redis_server(), config, NULL},
                                                .stdout_path = log_path});
}

/* Waits until it answers PING (not while it loads its AOF); false when it ended instead. */
static bool is_coming_up(struct stack *stack) {
  struct wait wait = wait_begin(READY_MS);
  for (;;) {
    redisContext *redis = rds_try_open(stack->redis_url);
    if (redis != NULL) {
      redisFree(redis);
      return true;
    }
    if (!proc_is_running(&stack->redis)) {
      return false;
    }
    if (!wait_next(&wait)) {
      FAIL("Redis does not come up, see %s/redis.log", stack->dir);
    }
  }
}

void stack_redis_init(struct stack *stack) {
  const char *password = stack->options.redis_password;

  stack_make_dir(stack, "redis", NULL, stack->redis_dir);
  stack_print_path(stack->redis_socket, sizeof stack->redis_socket, "%s/redis.sock", stack->redis_dir);
  for (int attempt = 0; attempt < 5; attempt++) {
    port_take(&stack->redis_port);
    stack_print_path(stack->redis_url, sizeof stack->redis_url, "redis://%s%s%s127.0.0.1:%d",
                     password != NULL ? ":" : "", password != NULL ? password : "", password != NULL ? "@" : "",
                     stack->redis_port.number);
    launch(stack);
    if (is_coming_up(stack)) {
      return;
    }
    port_release(&stack->redis_port);
  }
  FAIL("Redis does not start, see %s/redis.log", stack->dir);
}

void stack_redis_kill(struct stack *stack) {
  proc_signal(&stack->redis, SIGKILL);
  REQUIRE(proc_wait(&stack->redis, 10000), "Redis survives a SIGKILL");
  stack->is_redis_frozen = false;
}

void stack_redis_shutdown(struct stack *stack) {
  proc_signal(&stack->redis, SIGTERM);
  REQUIRE(proc_wait(&stack->redis, 60000), "Redis does not shut down");
}

/* Does the log behind from say that the end of the AOF was cut off? */
static bool has_cut_aof(const struct stack *stack, long from) {
  char log_path[STACK_PATH_BYTES], line[512];
  bool has_cut = false;
  stack_print_path(log_path, sizeof log_path, "%s/redis.log", stack->dir);
  FILE *log = fopen(log_path, "r");
  REQUIRE(log != NULL && fseek(log, from, SEEK_SET) == 0, "cannot read %s", log_path);
  while (fgets(line, sizeof line, log) != NULL) {
    has_cut = has_cut || strstr(line, "Truncating the AOF") != NULL;
  }
  fclose(log);
  return has_cut;
}

static long log_bytes(const struct stack *stack) {
  char log_path[STACK_PATH_BYTES];
  stack_print_path(log_path, sizeof log_path, "%s/redis.log", stack->dir);
  FILE *log = fopen(log_path, "r");
  REQUIRE(log != NULL && fseek(log, 0, SEEK_END) == 0, "cannot read %s", log_path);
  long bytes = ftell(log);
  fclose(log);
  return bytes;
}

/* A new AOF, written from what is in memory. */
static void rewrite_aof(struct stack *stack) {
  struct wait wait = wait_begin(READY_MS);
  redisContext *redis = rds_open(stack->redis_url);
  redisReply *reply =
      redisCommand(redis, "BGREWRITEAOF"); /* one may be under way: then it is scheduled, or this one will do */
  REQUIRE(reply != NULL, "Redis does not answer");
  freeReplyObject(reply);
  bool is_done = false;
  while (!is_done) {
    reply = rds_cmd(redis, "INFO persistence");
    is_done = strstr(reply->str, "aof_rewrite_in_progress:0") != NULL &&
              strstr(reply->str, "aof_rewrite_scheduled:0") != NULL &&
              strstr(reply->str, "aof_last_bgrewrite_status:ok") != NULL;
    freeReplyObject(reply);
    REQUIRE(is_done || wait_next(&wait), "Redis does not rewrite its AOF, see %s/redis.log", stack->dir);
  }
  redisFree(redis);
}

void stack_redis_restart(struct stack *stack) {
  long from = log_bytes(stack);
  stack_redis_restart_only(stack);
  if (has_cut_aof(stack, from)) {
    rewrite_aof(stack);
  }
}

void stack_redis_restart_only(struct stack *stack) {
  struct wait wait = wait_begin(READY_MS);
  do {
    launch(stack);
    if (is_coming_up(stack)) {
      return;
    }
  } while (wait_next(&wait));
  FAIL("Redis does not start again, see %s/redis.log", stack->dir);
}

void stack_redis_freeze(struct stack *stack) {
  proc_signal(&stack->redis, SIGSTOP);
  stack->is_redis_frozen = true;
}

void stack_redis_thaw(struct stack *stack) {
  proc_signal(&stack->redis, SIGCONT);
  stack->is_redis_frozen = false;
}
