/*
 * `outboxd run`: ties the parts together.
 *
 * Owns: everything that lives as long as the relay.  Run by: the main thread, which takes the signals, prints the statistics and watches the
 * shutdown's deadline.  Never: relays anything itself.
 */
#include "outboxd/relay.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outboxd/alert.h"
#include "outboxd/backoff.h"
#include "outboxd/cleanup.h"
#include "outboxd/clock.h"
#include "outboxd/coordinator.h"
#include "outboxd/fleet.h"
#include "outboxd/log.h"
#include "outboxd/pg.h"
#include "outboxd/publisher.h"
#include "outboxd/queue.h"
#include "outboxd/relay_progress.h"
#include "outboxd/service.h"
#include "outboxd/stats.h"
#include "outboxd/stop.h"
#include "outboxd/table.h"
#include "outboxd/template.h"
#include "outboxd/trimmer.h"
#include "outboxd/url.h"

#define ABORT_GRACE_US 2000000 /* after that the process ends without its threads */

/* Freed memory that the heap of a thread keeps for the next batch, and the size from which a piece is the kernel's own, so that it goes back at once. */
#define HEAP_KEPT_BYTES (8 << 20)
#define MMAP_FROM_BYTES (256 << 10)

struct relay {
  const struct cfg *cfg;
  struct stop *drain;
  struct stop *abort;
  struct stop *finished;
  struct stop *quiet; /* nothing is in flight any more: there is nothing left to alert of */
  struct template *template;
  struct url url;
  struct table *table;
  struct cloudevent_form form;
  char *fleet; /* what all processes have to agree on */
  struct queue *notes;
  struct publisher **publishers;
  struct coordinator *coordinator;
  struct cleanup *cleanup;
  struct alert *alert;
  struct trim_rule trim;
  struct trimmer *trimmer; /* NULL: nothing to trim */
  struct stats *stats;
  struct relay_progress *progress; /* NULL: not shown */
  struct service *service;         /* NULL: systemd is not to be told */
};

/* The signal handler's view: the tokens of the one relay of this process. */
static struct stop *_Atomic signal_drain;
static struct stop *_Atomic signal_abort;

/* The first signal drains, the second ends at once.  stop_set is async-signal-safe. */
static void on_signal(int number) {
  (void)number;
  struct stop *drain = atomic_load(&signal_drain);
  struct stop *abort = atomic_load(&signal_abort);
  if (drain != NULL && !stop_is_set(drain)) {
    stop_set(drain);
  } else if (abort != NULL) {
    stop_set(abort);
  }
}

static void take_signals(struct relay *relay) {
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&action.sa_mask);
  atomic_store(&signal_drain, relay->drain);
  atomic_store(&signal_abort, relay->abort);
  (void)sigaction(SIGTERM, &action, NULL);
  (void)sigaction(SIGINT, &action, NULL);
  action.sa_handler = SIG_IGN;
  (void)sigaction(SIGPIPE, &action, NULL);
}

static void leave_signals(void) {
  struct sigaction action = {.sa_handler = SIG_IGN};
  (void)sigaction(SIGTERM, &action, NULL);
  (void)sigaction(SIGINT, &action, NULL);
  atomic_store(&signal_drain, NULL);
  atomic_store(&signal_abort, NULL);
}

/* Only the main thread takes signals: threads inherit the mask. */
static void block_signals(bool is_blocked) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  (void)pthread_sigmask(is_blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* -------------------------------------------------------------------------------------------------- starting */

static void pause_until(const struct stop *stop, int64_t wait_us) {
  struct pollfd fd = {.fd = stop_fd(stop), .events = POLLIN};
  (void)poll(&fd, 1, (int)(wait_us / 1000));
}

/* Connects and reads the table's layout; waits for a server that is not there yet. */
static int load_table(struct relay *relay, struct err *err) {
  struct backoff backoff = {.first_ms = 100, .max_ms = 5000};
  struct pg *pg = NULL;
  int rc = -1;
  int64_t down_us = 0;
  struct alert_state unreachable = {0};
  if (pg_new(relay->cfg->database, "start", relay->cfg->session_timeout_ms, &pg, err) != 0) {
    return -1;
  }
  while (!stop_is_set(relay->drain)) {
    err_clear(err);
    if (pg_connect(pg, relay->drain, err) == 0 && table_load(pg, relay->cfg, relay->drain, &relay->table, err) == 0) {
      rc = 0;
      break;
    }
    pg_close(pg);
    if (err->class != ERR_RETRY || stop_is_set(relay->drain)) {
      break;
    }
    if (down_us == 0) {
      down_us = clock_now_us();
      log_event(LOG_ERROR, "postgres_down", err->text, LOG_STR("session", "start"), LOG_STR("code", err->code));
    }
    alert_before_start(relay->cfg, &unreachable, err);
    service_waits(relay->service, err);
    pause_until(relay->drain, backoff_next_us(&backoff));
  }
  if (rc == 0 && down_us != 0) {
    alert_before_start(relay->cfg, &unreachable, NULL);
    log_event(LOG_INFO, "postgres_up", "PostgreSQL answers",
              LOG_REAL("down_seconds", (double)(clock_now_us() - down_us) / 1e6));
  }
  pg_free(pg);
  return rc;
}

static int start_publishers(struct relay *relay, struct err *err) {
  const struct cloudevent_form *form = relay->cfg->format == CFG_FORMAT_CLOUDEVENTS ? &relay->form : NULL;
  size_t n = (size_t)relay->cfg->publishers_n;
  relay->publishers = calloc(n, sizeof *relay->publishers);
  if (relay->publishers == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %zu publishers", n);
  }
  for (size_t i = 0; i < n; i++) {
    if (publisher_start(relay->cfg, &relay->url, relay->template, form, relay->fleet, (int)i, relay->notes,
                        relay->abort, &relay->publishers[i], err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int start(struct relay *relay, struct err *err) {
  const struct cfg *cfg = relay->cfg;
  if (stop_new(&relay->drain, err) != 0 || stop_new(&relay->abort, err) != 0 || stop_new(&relay->finished, err) != 0 ||
      stop_new(&relay->quiet, err) != 0) {
    return -1;
  }
  take_signals(relay);
  relay->service = service_open(cfg);
  if (template_parse(cfg->stream, &relay->template, err) != 0 || url_parse(cfg->redis, &relay->url, err) != 0 ||
      trim_rule_read(cfg, relay->template, &relay->trim, err) != 0) {
    err->class = ERR_FATAL; /* the option is there and has a value: what it says can never work */
    return -1;
  }
  if (load_table(relay, err) != 0 ||
      fleet_describe(cfg->lanes_n, relay->table->name, relay->table->database, &relay->fleet, err) != 0 ||
      queue_new(&relay->notes, true, err) != 0) {
    return -1;
  }
  if (cloudevent_form_init(&relay->form, cfg->cloudevents_source, relay->table->name, relay->table->is_payload_text,
                           err) != 0) {
    err->class = err->class == ERR_USAGE ? ERR_FATAL : err->class;
    return -1;
  }
  block_signals(true);
  int rc = start_publishers(relay, err);
  if (rc == 0) {
    rc = coordinator_start(cfg, relay->table, relay->publishers, relay->notes, relay->drain, relay->abort,
                           relay->finished, &relay->coordinator, err);
  }
  if (rc == 0 && !cfg->has_no_cleanup) {
    rc = cleanup_start(cfg, relay->drain, &relay->cleanup, err);
  }
  if (rc == 0) {
    rc = alert_start(cfg, &relay->url, relay->table, relay->quiet, &relay->alert, err);
  }
  if (rc == 0) {
    rc = trimmer_start(cfg, &relay->url, relay->template, &relay->trim, relay->publishers, relay->drain,
                       &relay->trimmer, err);
  }
  if (rc == 0) {
    rc = relay_progress_start(cfg, relay->table, relay->coordinator, &relay->progress, err);
  }
  block_signals(false);
  if (rc != 0) {
    return -1;
  }
  return stats_new(cfg, relay->coordinator, relay->publishers, relay->alert, relay->trimmer, &relay->stats, err);
}

static void log_start(const struct relay *relay) {
  const struct cfg *cfg = relay->cfg;
  char redis[256];
  url_describe(&relay->url, redis, sizeof redis);
  log_event(LOG_INFO, "relay_started", "the relay runs", LOG_STR("version", OUTBOXD_VERSION), LOG_INT("pid", getpid()),
            LOG_STR("database", relay->table->database), LOG_STR("table", relay->table->name),
            LOG_BOOL("is_partitioned", relay->table->is_partitioned), LOG_STR("redis", redis),
            LOG_STR("stream", cfg->stream), LOG_INT("lanes", cfg->lanes_n), LOG_INT("claimers", cfg->claimers_n),
            LOG_INT("publishers", cfg->publishers_n), LOG_INT("batch", cfg->batch_n),
            LOG_INT("max_attempts", cfg->max_attempts_n));
}

/* -------------------------------------------------------------------------------------------------- running */

static void watch(struct relay *relay) {
  const struct cfg *cfg = relay->cfg;
  int64_t next_stats_us = clock_now_us() + cfg->stats_every_ms * 1000;
  int64_t shutdown_us = INT64_MAX;
  int64_t give_up_us = INT64_MAX;
  while (!stop_is_set(relay->finished)) {
    int64_t now_us = clock_now_us();
    if (cfg->stats_every_ms > 0 && now_us >= next_stats_us) {
      stats_log(relay->stats);
      next_stats_us = now_us + cfg->stats_every_ms * 1000;
    }
    if (shutdown_us == INT64_MAX && stop_is_set(relay->drain)) {
      shutdown_us = now_us + cfg->shutdown_timeout_ms * 1000;
      service_stopping(relay->service);
      log_event(LOG_INFO, "relay_stopping", "no new claims; what is in flight is being settled",
                LOG_REAL("timeout_seconds", (double)cfg->shutdown_timeout_ms / 1e3));
    }
    if (now_us >= shutdown_us && !stop_is_set(relay->abort)) {
      log_event(LOG_ERROR, "shutdown_timeout", "what was in flight could not be settled in time and is given back",
                LOG_REAL("timeout_seconds", (double)cfg->shutdown_timeout_ms / 1e3));
      stop_set(relay->abort);
    }
    if (stop_is_set(relay->abort) && give_up_us == INT64_MAX) {
      give_up_us = now_us + ABORT_GRACE_US;
    }
    if (now_us >= give_up_us) {
      log_event(LOG_CRITICAL, "relay_killed", "a thread does not end; the process ends without it",
                LOG_INT("pid", getpid()));
      _exit(1);
    }
    int64_t until_us = cfg->stats_every_ms > 0 ? next_stats_us : INT64_MAX;
    until_us = shutdown_us < until_us && !stop_is_set(relay->abort) ? shutdown_us : until_us;
    until_us = give_up_us < until_us ? give_up_us : until_us;
    int64_t service_us = service_step(relay->service, relay->coordinator, relay->publishers, relay->stats, now_us);
    until_us = service_us < until_us ? service_us : until_us;
    struct pollfd fds[] = {
        {.fd = stop_fd(relay->finished), .events = POLLIN},
        {.fd = stop_is_set(relay->drain) ? -1 : stop_fd(relay->drain), .events = POLLIN},
        {.fd = stop_is_set(relay->abort) ? -1 : stop_fd(relay->abort), .events = POLLIN},
    };
    (void)poll(fds, 3, clock_poll_timeout_ms(until_us, now_us));
  }
}

/* -------------------------------------------------------------------------------------------------- stopping */

static void drop_note(struct note *note) {
  journal_names_free(note->names);
  free(note);
}

/* The mirror of start; returns the coordinator's verdict. */
static int stop_all(struct relay *relay, int status, struct err *err) {
  service_stopping(relay->service);
  stats_free(relay->stats);
  relay_progress_stop(relay->progress);
  if (relay->drain != NULL) {
    stop_set(relay->drain);
  }
  cleanup_stop(relay->cleanup);
  trimmer_stop(relay->trimmer);
  if (relay->coordinator != NULL) {
    struct err why = ERR_INIT;
    status = coordinator_join(relay->coordinator, &why);
    if (why.class != ERR_NONE) {
      *err = why;
    }
  }
  if (relay->quiet != NULL) {
    stop_set(relay->quiet);
  }
  alert_stop(relay->alert); /* it has gone on while what was in flight was settled */
  stop_set(relay->abort);   /* nothing is in flight any more: publishers need not wait for Redis */
  for (int i = 0; relay->publishers != NULL && i < relay->cfg->publishers_n; i++) {
    publisher_stop(relay->publishers[i]);
  }
  free(relay->publishers);
  coordinator_free(relay->coordinator);
  if (relay->notes != NULL) {
    struct queue_item *item = NULL;
    queue_close(relay->notes);
    if (queue_take(relay->notes, 0, &item) == QUEUE_ITEMS) {
      while (item != NULL) {
        struct queue_item *next = item->next;
        drop_note((struct note *)item);
        item = next;
      }
    }
  }
  queue_free(relay->notes);
  free(relay->fleet);
  cloudevent_form_fini(&relay->form);
  table_free(relay->table);
  url_fini(&relay->url);
  template_free(relay->template);
  if (err->class != ERR_NONE) {
    service_failed(relay->service, err);
  }
  service_close(relay->service);
  leave_signals();
  stop_free(relay->quiet);
  stop_free(relay->finished);
  stop_free(relay->abort);
  stop_free(relay->drain);
  return status;
}

/* A batch comes and goes a hundred times a second.  Giving its pages back each time costs a sixth of the relay's CPU: page faults, and an interrupt to every
 * core that runs another of its threads. */
static void keep_heap(void) {
#ifdef __GLIBC__
  (void)mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_BYTES);
  (void)mallopt(M_MMAP_THRESHOLD, MMAP_FROM_BYTES);
#endif
}

int relay_run(const struct cfg *cfg, struct err *err) {
  struct relay relay = {.cfg = cfg};
  int status = 1;
  bool is_stopped_early = false;
  keep_heap();
  if (start(&relay, err) == 0) {
    log_start(&relay);
    watch(&relay);
    stats_log(relay.stats);
    status = 0;
  } else if (relay.drain != NULL && stop_is_set(relay.drain)) {
    is_stopped_early = true; /* by a signal, while it waited for a server */
    err_clear(err);
    status = 0;
  }
  status = stop_all(&relay, status, err);
  if (err->class == ERR_NONE) {
    log_event(LOG_INFO, "relay_stopped",
              is_stopped_early ? "stopped before anything was relayed" : "the relay has ended",
              LOG_INT("status", status));
  }
  return status;
}
