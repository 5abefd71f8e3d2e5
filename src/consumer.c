/*
 * liboutbox: a consumer, its options and its workers' threads.
 *
 * Owns the options, the tokens and the threads.  outbox_consumer_run is the caller's thread: it writes the figures and watches the shutdown's deadline.
 * The workers share what struct consume_shared has, and nothing else.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outboxd/clock.h"
#include "outboxd/consume_impl.h"
#include "outboxd/consumer.h"
#include "outboxd/log.h"
#include "outboxd/record.h"

struct outbox_consumer {
  struct consume_cfg cfg;
  struct consume_shared shared;
  struct consume_worker *workers;
  pthread_t *threads;
  int threads_n; /* that run */
  _Atomic int ended_n;
  struct stop *ended; /* set by the last worker */
};

/* -------------------------------------------------------------------------------------------------- life */

int outbox_consumer_new(struct outbox_consumer **out, struct outbox_error *error) {
  struct err err = ERR_INIT;
  *out = NULL;
  struct outbox_consumer *consumer = calloc(1, sizeof *consumer);
  if (consumer == NULL) {
    (void)err_set(&err, ERR_RETRY, "ENOMEM", "no memory for a consumer");
    return record_refuse(&err, error);
  }
  consumer->shared.cfg = &consumer->cfg;
  if (option_take_defaults(consume_program(), CONSUME_LIBRARY, &consumer->cfg, &err) != 0 ||
      stop_new(&consumer->shared.drain, &err) != 0 || stop_new(&consumer->shared.abort, &err) != 0 ||
      stop_new(&consumer->ended, &err) != 0) {
    outbox_consumer_free(consumer);
    return record_refuse(&err, error);
  }
  *out = consumer;
  return 0;
}

void outbox_consumer_free(struct outbox_consumer *consumer) {
  if (consumer == NULL) {
    return;
  }
  for (int i = 0; consumer->workers != NULL && i < consumer->cfg.threads_n; i++) {
    worker_fini(&consumer->workers[i]);
  }
  free(consumer->workers);
  free(consumer->threads);
  template_free(consumer->shared.template);
  url_fini(&consumer->shared.url);
  stop_free(consumer->shared.drain);
  stop_free(consumer->shared.abort);
  stop_free(consumer->ended);
  option_free(consume_program(), &consumer->cfg);
  free(consumer);
}

int outbox_consumer_set(struct outbox_consumer *consumer, const char *name, const char *value,
                        struct outbox_error *error) {
  struct err err = ERR_INIT;
  if (name == NULL || value == NULL || consumer->workers != NULL) {
    (void)err_set(&err, ERR_USAGE, "option",
                  consumer->workers != NULL ? "options are set before outbox_consumer_run"
                                            : "an option needs a name and a value");
    return record_refuse(&err, error);
  }
  return option_set(consume_program(), CONSUME_LIBRARY, name, value, &consumer->cfg, &err) == 0
             ? 0
             : record_refuse(&err, error);
}

void consumer_take_cfg(struct outbox_consumer *consumer, struct consume_cfg *cfg) {
  option_free(consume_program(), &consumer->cfg);
  consumer->cfg = *cfg;
  *cfg = (struct consume_cfg){0};
}

const struct stop *consumer_abort(const struct outbox_consumer *consumer) {
  return consumer->shared.abort;
}

void outbox_consumer_stop(struct outbox_consumer *consumer) {
  stop_set(consumer->shared.drain);
}

void outbox_consumer_counts(const struct outbox_consumer *consumer, struct outbox_counts *out) {
  const struct consume_shared *shared = &consumer->shared;
  *out = (struct outbox_counts){.handled_n = atomic_load(&shared->handled_n),
                                .repeated_n = atomic_load(&shared->repeated_n),
                                .failed_n = atomic_load(&shared->failed_n),
                                .parked_n = atomic_load(&shared->parked_n),
                                .lost_n = atomic_load(&shared->lost_n)};
}

struct sink {
  outbox_log_writer *write;
  void *ctx;
};

static struct sink sink; /* before any thread */

static void write_line(void *ctx, enum log_level level, const char *line, size_t bytes) {
  const struct sink *to = ctx;
  to->write(to->ctx, (enum outbox_log_level)level, line, bytes);
}

void outbox_set_log(enum outbox_log_level least, outbox_log_writer *write, void *ctx) {
  sink = (struct sink){write, ctx};
  log_set_sink((enum log_level)least, write != NULL ? write_line : NULL, &sink);
}

/* -------------------------------------------------------------------------------------------------- running */

static void log_counts(const struct outbox_consumer *consumer, struct outbox_counts *before, double seconds) {
  struct outbox_counts now;
  outbox_consumer_counts(consumer, &now);
  log_event(LOG_INFO, "consumer_stats", "figures", LOG_STR("group", consumer->cfg.group),
            LOG_REAL("interval_seconds", seconds), LOG_INT("handled", now.handled_n - before->handled_n),
            LOG_REAL("rate_per_second", seconds > 0 ? (double)(now.handled_n - before->handled_n) / seconds : 0),
            LOG_INT("repeated", now.repeated_n - before->repeated_n),
            LOG_INT("failed", now.failed_n - before->failed_n), LOG_INT("parked", now.parked_n - before->parked_n),
            LOG_INT("lost", now.lost_n - before->lost_n), LOG_INT("waiting", atomic_load(&consumer->shared.waiting_n)),
            LOG_INT("handled_total", now.handled_n));
  *before = now;
}

struct start {
  struct outbox_consumer *consumer;
  struct consume_worker *worker;
};

static void *run_worker(void *arg) {
  struct start *start = arg;
  struct outbox_consumer *consumer = start->consumer;
  char name[16];
  (void)snprintf(name, sizeof name, "consumer %d", start->worker->number);
  (void)pthread_setname_np(pthread_self(), name);
  worker_run(start->worker);
  free(start);
  if (atomic_fetch_add(&consumer->ended_n, 1) + 1 == consumer->cfg.threads_n) {
    stop_set(consumer->ended);
  }
  return NULL;
}

/* Signals stay with the caller's thread. */
static int start_threads(struct outbox_consumer *consumer, struct err *err) {
  sigset_t all;
  sigset_t before;
  int rc = 0;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < consumer->cfg.threads_n && rc == 0; i++) {
    struct start *start = calloc(1, sizeof *start);
    int errnum = ENOMEM;
    if (start != NULL) {
      *start = (struct start){consumer, &consumer->workers[i]};
      errnum = pthread_create(&consumer->threads[i], NULL, run_worker, start);
    }
    if (errnum != 0) {
      free(start);
      rc = err_errno(err, ERR_RETRY, errnum, "worker %d cannot be started", i);
    } else {
      consumer->threads_n++;
    }
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return rc;
}

/* Waits for a token until deadline_us; true when it is set. */
static bool wait_for(const struct stop *stop, int64_t deadline_us) {
  while (!stop_is_set(stop)) {
    int64_t now_us = clock_now_us();
    if (now_us >= deadline_us) {
      return false;
    }
    struct pollfd fd = {.fd = stop_fd(stop), .events = POLLIN};
    (void)poll(&fd, 1, clock_poll_timeout_ms(deadline_us, now_us));
  }
  return true;
}

static int prepare(struct outbox_consumer *consumer, outbox_handler *handle, void *ctx, struct err *err) {
  struct consume_shared *shared = &consumer->shared;
  if (consumer->workers != NULL) {
    return err_set(err, ERR_USAGE, "usage", "a consumer is run once");
  }
  shared->handle = handle;
  shared->ctx = ctx;
  if (consume_check(&consumer->cfg, err) != 0 || template_parse(consumer->cfg.stream, &shared->template, err) != 0 ||
      url_parse(consumer->cfg.redis, &shared->url, err) != 0) {
    return -1;
  }
  consumer->threads = calloc((size_t)consumer->cfg.threads_n, sizeof *consumer->threads);
  consumer->workers = calloc((size_t)consumer->cfg.threads_n, sizeof *consumer->workers);
  if (consumer->threads == NULL || consumer->workers == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the workers");
  }
  for (int i = 0; i < consumer->cfg.threads_n; i++) {
    if (worker_init(&consumer->workers[i], shared, i, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static void log_started(const struct outbox_consumer *consumer) {
  char redis[300];
  url_describe(&consumer->shared.url, redis, sizeof redis);
  log_event(LOG_INFO, "consumer_started", "the consumer runs", LOG_STR("version", OUTBOXD_VERSION),
            LOG_INT("pid", getpid()), LOG_STR("group", consumer->cfg.group), LOG_STR("redis", redis),
            LOG_STR("stream", consumer->cfg.stream), LOG_INT("lanes", consumer->cfg.lanes_n),
            LOG_INT("threads", consumer->cfg.threads_n));
}

int outbox_consumer_run(struct outbox_consumer *consumer, outbox_handler *handle, void *ctx,
                        struct outbox_error *error) {
  struct err err = ERR_INIT;
  struct consume_shared *shared = &consumer->shared;
  struct outbox_counts before = {0};
  if (!log_is_set_up()) {
    log_set_sink(LOG_CRITICAL, NULL, NULL);
  }
  if (prepare(consumer, handle, ctx, &err) != 0) {
    return record_refuse(&err, error);
  }
  log_started(consumer);
  if (start_threads(consumer, &err) != 0) {
    stop_set(shared->drain);
  }
  int64_t began_us = clock_now_us();
  int64_t stats_us = began_us;
  while (!wait_for(shared->drain, stats_us + consumer->cfg.stats_every_ms * 1000)) {
    int64_t now_us = clock_now_us();
    log_counts(consumer, &before, (double)(now_us - stats_us) / 1e6);
    stats_us = now_us;
  }
  if (consumer->threads_n == consumer->cfg.threads_n &&
      !wait_for(consumer->ended, clock_now_us() + consumer->cfg.shutdown_timeout_ms * 1000)) {
    (void)err_set(&err, ERR_RETRY, "shutdown_timeout",
                  "messages in hand were not finished within %lld s and are given up; nothing is lost",
                  (long long)(consumer->cfg.shutdown_timeout_ms / 1000));
    stop_set(shared->abort);
  }
  for (int i = 0; i < consumer->threads_n; i++) {
    (void)pthread_join(consumer->threads[i], NULL);
  }
  log_counts(consumer, &before, (double)(clock_now_us() - stats_us) / 1e6);
  if (atomic_load(&shared->has_failed)) {
    err = shared->failure;
  }
  log_event(LOG_INFO, "consumer_stopped", "the consumer has ended", LOG_STR("group", consumer->cfg.group),
            LOG_INT("status", err.class == ERR_NONE ? 0 : 1));
  return err.class == ERR_NONE ? 0 : record_refuse(&err, error);
}
