/*
 * The command line's entry: reads it, runs the command, turns its end into an exit status.
 *
 * 0: done, or stopped after a clean drain; 1: failed; 2: the command line is wrong.
 */
#include <stdio.h>

#include "outboxd/cmd_check.h"
#include "outboxd/cmd_dead.h"
#include "outboxd/cmd_init.h"
#include "outboxd/cmd_replay.h"
#include "outboxd/cmd_status.h"
#include "outboxd/log.h"
#include "outboxd/options.h"
#include "outboxd/relay.h"

#define EXIT_USAGE 2

static int status_of(const struct err *err) {
  return err->class == ERR_USAGE ? EXIT_USAGE : 1;
}

static int fail_plainly(const struct err *err) {
  (void)fprintf(stderr, "outboxd: %s\n", err->text);
  return status_of(err);
}

static int init(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  /* init tells its story on stdout; what the shared parts would log is for a relay's log. */
  log_setup(cfg->log_level > LOG_ERROR ? cfg->log_level : LOG_ERROR, cfg->log_format);
  return cmd_init(cfg, &err) == 0 ? 0 : fail_plainly(&err);
}

static int check(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  int status = 0;
  log_setup(cfg->log_level > LOG_ERROR ? cfg->log_level : LOG_ERROR, cfg->log_format);
  return cmd_check(cfg, &status, &err) == 0 ? status : fail_plainly(&err);
}

static int change_dead(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  int status = 0;
  return cmd_dead_change(cfg, &status, &err) == 0 ? status : fail_plainly(&err);
}

static int list_dead(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  return cmd_dead(cfg, &err) == 0 ? 0 : fail_plainly(&err);
}

static int replay(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  return cmd_replay(cfg, &err) == 0 ? 0 : fail_plainly(&err);
}

static int tell_status(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  int status = 0;
  return cmd_status(cfg, &status, &err) == 0 ? status : fail_plainly(&err);
}

static int run(const struct cfg *cfg) {
  struct err err = ERR_INIT;
  log_setup(cfg->log_level, cfg->log_format);
  int status = relay_run(cfg, &err);
  if (err.class == ERR_NONE) {
    return status;
  }
  log_event(LOG_CRITICAL, "relay_failed", err.text, LOG_STR("class", err_class_name(err.class)),
            LOG_STR("code", err.code));
  return err.class == ERR_USAGE ? EXIT_USAGE : status != 0 ? status : 1;
}

int main(int argc, char *argv[]) {
  struct cfg cfg;
  struct err err = ERR_INIT;
  int status = 0;
  if (options_parse(argc, argv, &cfg, &err) != 0) {
    return fail_plainly(&err);
  }
  switch (cfg.command) {
  case CFG_RUN:
    status = run(&cfg);
    break;
  case CFG_INIT:
    status = init(&cfg);
    break;
  case CFG_CHECK:
    status = check(&cfg);
    break;
  case CFG_STATUS:
    status = tell_status(&cfg);
    break;
  case CFG_DEAD:
    status = list_dead(&cfg);
    break;
  case CFG_RETRY:
  case CFG_DISCARD:
    status = change_dead(&cfg);
    break;
  case CFG_REPLAY:
    status = replay(&cfg);
    break;
  case CFG_HELP:
    options_help(stdout, cfg.help_for);
    break;
  case CFG_VERSION:
    (void)puts("outboxd " OUTBOXD_VERSION);
    break;
  }
  options_free(&cfg);
  if (fflush(stdout) != 0 && status == 0) {
    (void)fprintf(stderr, "outboxd: cannot write to the standard output\n");
    status = 1;
  }
  return status;
}
