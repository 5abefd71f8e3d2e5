/*
 * `outboxd status`: looks, tells, and does so again with --watch.
 *
 * Owns: one session, one connection, what it says on stdout; runs on the main thread, no other exists.
 * Never: changes anything in either server.
 */
#include "outboxd/cmd_status.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd_status_impl.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"

#define SESSION_MS INT64_C(5000)
#define HOME_AND_CLEAR "\033[H\033[J"

static struct stop *stop_of_signals; /* for the handler */

static void on_signal(int signum) {
  (void)signum;
  stop_set(stop_of_signals);
}

/* SIGINT and SIGTERM end --watch, and nothing else: a single look is short. */
static void catch_signals(struct stop *stop) {
  struct sigaction action = {.sa_handler = on_signal};
  stop_of_signals = stop;
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGINT, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
}

static int init_look(struct status_look *look, const struct cfg *cfg, const struct stop *stop, struct err *err) {
  memset(look, 0, sizeof *look);
  look->cfg = cfg;
  look->stop = stop;
  if (schema_parse_name(cfg->table, &look->name, err) != 0 || url_parse(cfg->redis, &look->url, err) != 0 ||
      template_parse(cfg->stream, &look->template, err) != 0 ||
      pg_new(cfg->database, "status", SESSION_MS, &look->pg, err) != 0 ||
      redis_new(&look->url, cfg->redis_timeout_ms, &look->redis, err) != 0) {
    return -1;
  }
  return redis_pipeline_new(&look->pipeline, err);
}

static void fini_look(struct status_look *look) {
  redis_pipeline_free(look->pipeline);
  redis_free(look->redis);
  pg_free(look->pg);
  template_free(look->template);
  url_fini(&look->url);
}

/* One look, and what it says. */
static int look_once(struct status_look *look, bool is_redrawn, int *exit_status, struct err *err) {
  const struct cfg *cfg = look->cfg;
  struct status status;
  bool is_quick = cfg->max_age_ms > 0 && !cfg->is_json && cfg->watch_ms == 0;
  if (status_new(cfg->lanes_n, &status, err) != 0) {
    return -1;
  }
  int rc = status_look_postgres(look, is_quick, &status, err);
  if (rc != 0 || stop_is_set(look->stop)) {
    goto out;
  }
  if (is_quick) {
    status_print_age(&status, cfg, stdout);
    *exit_status = !status.is_postgres_seen || status_is_too_old(&status, cfg);
    goto out;
  }
  status_look_redis(look, &status);
  if (stop_is_set(look->stop)) {
    goto out;
  }
  *exit_status = !status.is_postgres_seen || !status.is_redis_seen || status_is_too_old(&status, cfg);
  if (cfg->is_json) {
    rc = status_print_json(&status, cfg, stdout, err);
    goto out;
  }
  if (is_redrawn) {
    (void)fputs(HOME_AND_CLEAR, stdout);
  }
  status_print(&status, cfg, stdout);
  if (cfg->max_age_ms > 0) {
    status_print_age(&status, cfg, stdout);
  }
out:
  status_fini(&status);
  return rc;
}

static int watch(struct status_look *look, int *exit_status, struct err *err) {
  bool is_terminal = isatty(STDOUT_FILENO) == 1 && !look->cfg->is_json;
  for (bool is_first = true; !stop_is_set(look->stop); is_first = false) {
    if (!is_first && !is_terminal && !look->cfg->is_json) {
      (void)fputc('\n', stdout);
    }
    if (look_once(look, is_terminal, exit_status, err) != 0) {
      return -1;
    }
    if (fflush(stdout) != 0) {
      return err_set(err, ERR_FATAL, "stdout", "cannot write to the standard output");
    }
    int64_t now_us = clock_now_us();
    struct pollfd fd = {.fd = stop_fd(look->stop), .events = POLLIN};
    (void)poll(&fd, 1, clock_poll_timeout_ms(now_us + look->cfg->watch_ms * 1000, now_us));
  }
  *exit_status = 0;
  return 0;
}

int cmd_status(const struct cfg *cfg, int *status, struct err *err) {
  struct status_look look;
  struct stop *stop = NULL;
  *status = 0;
  if (stop_new(&stop, err) != 0) {
    return -1;
  }
  if (cfg->watch_ms > 0) {
    catch_signals(stop);
  }
  int rc = init_look(&look, cfg, stop, err);
  if (rc == 0) {
    rc = cfg->watch_ms > 0 ? watch(&look, status, err) : look_once(&look, false, status, err);
  }
  fini_look(&look);
  if (cfg->watch_ms == 0) {
    stop_free(stop); /* else it lives until the process ends: a signal may still come */
  }
  return rc;
}
