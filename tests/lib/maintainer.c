/*
 * The cleanup thread alone: see maintainer.h.
 */
#include "maintainer.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "outboxd/cleanup.h"
#include "outboxd/log.h"
#include "outboxd/options.h"

#define ARGS_MAX 32

static struct stop *stop;

static void on_signal(int number) {
  (void)number;
  stop_set(stop);
}

static int work(int argc, char *const argv[]) {
  struct cfg cfg;
  struct err err = ERR_INIT;
  struct cleanup *cleanup = NULL;
  struct sigaction action = {.sa_handler = on_signal};
  if (options_parse(argc, argv, &cfg, &err) != 0 || stop_new(&stop, &err) != 0) {
    (void)fprintf(stderr, "maintainer: %s\n", err.text);
    return 2;
  }
  (void)sigaction(SIGTERM, &action, NULL);
  log_setup(cfg.log_level, cfg.log_format);
  int rc = cleanup_start(&cfg, stop, &cleanup, &err);
  if (rc != 0) {
    (void)fprintf(stderr, "maintainer: %s\n", err.text);
  }
  while (rc == 0 && !stop_is_set(stop)) {
    (void)poll(&(struct pollfd){.fd = stop_fd(stop), .events = POLLIN}, 1, -1);
  }
  cleanup_stop(cleanup);
  stop_free(stop);
  options_free(&cfg);
  return rc == 0 ? 0 : 1;
}

void maintainer_become(int argc, char *const argv[]) {
  if (argc > 1) {
    exit(work(argc, argv));
  }
}

struct relay *maintainer_start(const struct stack *stack, const char *const *args) {
  const char *before = getenv("OUTBOXD_BIN");
  const char *all[ARGS_MAX] = {"run", "--redis", "redis://127.0.0.1:1"};
  int n = 3;
  for (; *args != NULL; args++) {
    REQUIRE(n + 1 < ARGS_MAX, "too many arguments");
    all[n++] = *args;
  }
  char *kept = before != NULL ? strdup(before) : NULL;
  (void)setenv("OUTBOXD_BIN", "/proc/self/exe", 1);
  struct relay *relay = relay_start(stack, all);
  if (kept != NULL) {
    (void)setenv("OUTBOXD_BIN", kept, 1);
  } else {
    (void)unsetenv("OUTBOXD_BIN");
  }
  free(kept);
  return relay;
}
