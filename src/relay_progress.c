/*
 * How far `run --until-empty` is.
 *
 * Owns: the thread, its session, what it draws.  The thread runs relay_progress_main; it reads the coordinator's statistics through their lock.
 * Never: holds anything up; a terminal that takes nothing is given nothing, a count that fails is left out.
 */
#include "outboxd/relay_progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"
#include "outboxd/pg.h"
#include "outboxd/pgtick.h"
#include "outboxd/progress.h"
#include "outboxd/sql.h"
#include "outboxd/stop.h"

#define DRAW_MS 200
#define COUNT_EVERY_US \
  INT64_C(15000000) /* and never more than a twentieth of the time: others may add messages meanwhile */
#define COUNT_SHARE 20

struct relay_progress {
  const struct cfg *cfg;
  struct coordinator *coordinator;
  struct stop *quit;
  pthread_t thread;
  int fd;
  char *sql;

  /* The thread's own. */
  struct pg *pg;
  struct progress progress;
  int64_t total_n; /* published and pending when it was counted; PROGRESS_UNKNOWN */
};

static int64_t published_n(const struct relay_progress *progress) {
  struct coordinator_stats stats;
  coordinator_read_stats(progress->coordinator, &stats, NULL, NULL);
  return stats.published_n;
}

static void draw(void *arg) {
  struct relay_progress *progress = arg;
  int64_t done_n = published_n(progress);
  bool has_more = progress->total_n != PROGRESS_UNKNOWN && done_n > progress->total_n;
  progress_note(&progress->progress, done_n, has_more ? done_n : progress->total_n, clock_now_us());
}

static void count(struct relay_progress *progress) {
  char attempts[16];
  const char *values[] = {attempts};
  const struct pg_step step = {.kind = PG_QUERY, .sql = progress->sql, .params_n = 1, .values = values};
  struct err ignored = ERR_INIT;
  int64_t before_n = published_n(progress);
  (void)snprintf(attempts, sizeof attempts, "%d", progress->cfg->max_attempts_n);
  if (pg_state(progress->pg) != PG_IDLE && pg_connect(progress->pg, progress->quit, &ignored) != 0) {
    return;
  }
  if (pgtick_call(progress->pg, &step, 1, progress->cfg->session_timeout_ms, progress->quit, DRAW_MS, draw, progress,
                  &ignored) == 0) {
    progress->total_n = before_n + pg_parse_int64(pg_reply(progress->pg)->results[0], 0, 0);
  }
  pg_close(progress->pg); /* seldom enough */
}

static void *relay_progress_main(void *arg) {
  struct relay_progress *progress = arg;
  int64_t count_us = 0;
  while (!stop_is_set(progress->quit)) {
    int64_t now_us = clock_now_us();
    if (now_us >= count_us) {
      count(progress);
      int64_t took_us = clock_now_us() - now_us;
      count_us = clock_now_us() + (took_us * COUNT_SHARE > COUNT_EVERY_US ? took_us * COUNT_SHARE : COUNT_EVERY_US);
    }
    draw(progress);
    struct pollfd fd = {.fd = stop_fd(progress->quit), .events = POLLIN};
    (void)poll(&fd, 1, DRAW_MS);
  }
  progress_wipe(&progress->progress);
  return NULL;
}

static void free_progress(struct relay_progress *progress) {
  pg_free(progress->pg);
  stop_free(progress->quit);
  free(progress->sql);
  if (progress->fd >= 0) {
    (void)close(progress->fd);
  }
  free(progress);
}

int relay_progress_start(const struct cfg *cfg, const struct table *table, struct coordinator *coordinator,
                         struct relay_progress **out, struct err *err) {
  const struct sql_var vars[] = {{"table", table->name}, {NULL, NULL}};
  *out = NULL;
  if (!cfg->is_until_empty || !progress_is_terminal(STDERR_FILENO)) {
    return 0;
  }
  /* A descriptor of our own: to make the shared one non-blocking would make it so for the shell too. */
  int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) {
    return 0;
  }
  struct relay_progress *progress = calloc(1, sizeof *progress);
  if (progress == NULL) {
    (void)close(fd);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory to show the progress");
  }
  progress->cfg = cfg;
  progress->coordinator = coordinator;
  progress->fd = fd;
  progress->total_n = PROGRESS_UNKNOWN;
  if (stop_new(&progress->quit, err) != 0 || sql_expand(embed_relay_pending_sql, vars, &progress->sql, err) != 0 ||
      pg_new(cfg->database, "progress", cfg->session_timeout_ms, &progress->pg, err) != 0) {
    goto fail;
  }
  progress_begin(&progress->progress, "until empty", fd, true, clock_now_us());
  log_set_over_line(true);
  int errnum = pthread_create(&progress->thread, NULL, relay_progress_main, progress);
  if (errnum != 0) {
    log_set_over_line(false);
    (void)err_errno(err, ERR_RETRY, errnum, "progress");
    goto fail;
  }
  (void)pthread_setname_np(progress->thread, "progress");
  *out = progress;
  return 0;
fail:
  free_progress(progress);
  return -1;
}

void relay_progress_stop(struct relay_progress *progress) {
  if (progress == NULL) {
    return;
  }
  stop_set(progress->quit);
  (void)pthread_join(progress->thread, NULL);
  log_set_over_line(false);
  free_progress(progress);
}
