/*
 * outbox-consume's entry: reads the command line, runs a consumer with a handler of --exec or --print, turns its end into an exit status.
 *
 * 0: done, or stopped after the messages in hand; 1: failed; 2: the command line is wrong.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outbox.h"
#include "outboxd/consume_cfg.h"
#include "outboxd/consume_peek.h"
#include "outboxd/consumer.h"
#include "outboxd/exec_handler.h"
#include "outboxd/exec_line.h"
#include "outboxd/log.h"

#define EXIT_USAGE 2
#define LIMIT_RETRY_MS 100

/* What the handlers of all workers share. */
struct program {
  struct outbox_consumer *consumer;
  struct exec_handler *handlers; /* one a worker; NULL with --print */
  int handlers_n;
  int limit_n;
  _Atomic int64_t begun_n; /* messages given to handlers, less those that were not done */
  _Atomic int64_t done_n;
  _Atomic bool is_broken; /* the standard output */
};

static int fail(const struct err *err) {
  (void)fprintf(stderr, "outbox-consume: %s\n", err->text);
  return err->class == ERR_USAGE ? EXIT_USAGE : 1;
}

/* -------------------------------------------------------------------------------------------------- handlers */

static enum outbox_verdict print(struct program *program, const struct outbox_message *message,
                                 struct outbox_failure *failure) {
  struct err err = ERR_INIT;
  struct buf line = BUF_INIT;
  enum outbox_verdict verdict = OUTBOX_DONE;
  bool is_printed = exec_line_write(&line, message, true, &err) == 0;
  if (is_printed) {
    flockfile(stdout);
    is_printed = fwrite(line.data, 1, line.len, stdout) == line.len && fflush(stdout) == 0;
    funlockfile(stdout);
  }
  if (!is_printed) {
    (void)snprintf(failure->text, sizeof failure->text, "cannot write to the standard output");
    verdict = OUTBOX_LATER;
    atomic_store(&program->is_broken, true);
    outbox_consumer_stop(program->consumer);
  }
  buf_free(&line);
  return verdict;
}

static enum outbox_verdict handle(void *ctx, PGconn *conn, const struct outbox_message *message,
                                  struct outbox_failure *failure) {
  struct program *program = ctx;
  (void)conn;
  if (program->limit_n > 0 && atomic_fetch_add(&program->begun_n, 1) >= program->limit_n) {
    /* Others have the last ones in hand. */
    atomic_fetch_sub(&program->begun_n, 1);
    failure->retry_after_ms = LIMIT_RETRY_MS;
    return OUTBOX_LATER;
  }
  enum outbox_verdict verdict = program->handlers != NULL
                                    ? exec_handler_handle(&program->handlers[message->worker], message, failure)
                                    : print(program, message, failure);
  if (verdict != OUTBOX_DONE) {
    atomic_fetch_sub(&program->begun_n, 1);
  } else if (atomic_fetch_add(&program->done_n, 1) + 1 == program->limit_n) {
    outbox_consumer_stop(program->consumer);
  }
  return verdict;
}

/* -------------------------------------------------------------------------------------------------- signals */

static struct outbox_consumer *_Atomic signalled;
static atomic_int signals_n;

static void on_signal(int signum) {
  if (atomic_fetch_add(&signals_n, 1) > 0) {
    _exit(128 + signum);
  }
  outbox_consumer_stop(atomic_load(&signalled));
}

static void catch_signals(struct outbox_consumer *consumer) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  atomic_store(&signalled, consumer);
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGTERM, &action, NULL);
  (void)sigaction(SIGINT, &action, NULL);
  (void)signal(SIGPIPE, SIG_IGN);
}

/* -------------------------------------------------------------------------------------------------- running */

/* What fits together, beyond what consume_check knows. */
static int check(const struct consume_cfg *cfg, struct err *err) {
  const char *wrong = NULL;
  if ((cfg->exec != NULL) == cfg->is_print) {
    wrong = "give either --exec COMMAND or --print";
  } else if (cfg->is_ack && !cfg->is_print) {
    wrong = "--ack belongs to --print; with --exec the handler's answers acknowledge";
  } else if (cfg->exec != NULL && cfg->handler_timeout_ms >= cfg->session_timeout_ms) {
    wrong = "--handler-timeout has to be shorter than --session-timeout, after which PostgreSQL ends the session";
  }
  if (wrong != NULL) {
    return option_usage(consume_program(), CONSUME_PROGRAM, wrong, err);
  }
  return cfg->is_print && !cfg->is_ack ? 0 : consume_check(cfg, err);
}

static int start_handlers(struct program *program, const struct consume_cfg *cfg, const char *command, int n,
                          struct err *err) {
  if (command == NULL) {
    return 0;
  }
  program->handlers = calloc((size_t)n, sizeof *program->handlers);
  if (program->handlers == NULL) {
    return err_set(err, ERR_FATAL, "ENOMEM", "no memory for the handlers");
  }
  program->handlers_n = n;
  for (int i = 0; i < n; i++) {
    exec_handler_init(&program->handlers[i], command, cfg->handler_timeout_ms, consumer_abort(program->consumer), i);
  }
  return 0;
}

/* Takes cfg over. */
static int run(struct consume_cfg *cfg) {
  struct err err = ERR_INIT;
  struct outbox_error error = {0};
  struct program program = {.limit_n = cfg->limit_n};
  const struct consume_cfg kept = *cfg;
  int status = 1;
  log_setup(cfg->log_level, cfg->log_format);
  if (outbox_consumer_new(&program.consumer, &error) != 0) {
    (void)fprintf(stderr, "outbox-consume: %s\n", error.text);
    return 1;
  }
  consumer_take_cfg(program.consumer, cfg);
  if (start_handlers(&program, &kept, kept.exec, kept.threads_n, &err) != 0) {
    status = fail(&err);
    goto out;
  }
  catch_signals(program.consumer);
  if (outbox_consumer_run(program.consumer, handle, &program, &error) == 0) {
    status = atomic_load(&program.is_broken) ? 1 : 0;
  } else {
    log_event(LOG_CRITICAL, "consumer_failed", error.text, LOG_STR("code", error.code));
    status = error.kind == OUTBOX_USAGE ? EXIT_USAGE : 1;
  }
out:
  for (int i = 0; i < program.handlers_n; i++) {
    exec_handler_fini(&program.handlers[i]);
  }
  free(program.handlers);
  /* No signal may find it any more. */
  (void)signal(SIGTERM, SIG_IGN);
  (void)signal(SIGINT, SIG_IGN);
  outbox_consumer_free(program.consumer);
  return status;
}

static void help(void) {
  const struct option_program *program = consume_program();
  (void)fprintf(stdout,
                "Usage: outbox-consume --group NAME --exec COMMAND [--OPTION VALUE | --OPTION=VALUE]...\n"
                "       outbox-consume --print [--group NAME --ack] [--OPTION VALUE | --OPTION=VALUE]...\n\n"
                "outbox-consume: %s\n\nOptions:\n",
                program->commands[0].help);
  option_print(program, CONSUME_PROGRAM, stdout);
}

int main(int argc, char *argv[]) {
  struct consume_cfg cfg = {0};
  struct err err = ERR_INIT;
  int status = 0;
  for (int i = 1; i < argc; i++) {
    if (option_is_help(argv[i])) {
      help();
      goto out;
    }
  }
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    (void)puts("outbox-consume " OUTBOXD_VERSION);
    goto out;
  }
  if (option_take_environment(consume_program(), CONSUME_PROGRAM, &cfg, &err) != 0 ||
      option_take_arguments(consume_program(), CONSUME_PROGRAM, argc, argv, 1, &cfg, &err) != 0 ||
      check(&cfg, &err) != 0) {
    status = fail(&err);
    goto out;
  }
  if (cfg.is_print && !cfg.is_ack) {
    status = consume_peek(&cfg, &err) == 0 ? 0 : fail(&err);
  } else {
    status = run(&cfg);
  }
out:
  option_free(consume_program(), &cfg);
  if (fflush(stdout) != 0 && status == 0) {
    (void)fprintf(stderr, "outbox-consume: cannot write to the standard output\n");
    status = 1;
  }
  return status;
}
