/*
 * `outboxd replay`: the command line, the order of things, what it says at the end.
 *
 * Owns: one session, one connection, what it says; runs on the main thread, no other exists.
 * Never: changes anything in the database; says of a message that it is in its stream before Redis has.
 */
#include "outboxd/cmd_replay.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd_replay_impl.h"
#include "outboxd/clock.h"
#include "outboxd/partition.h"
#include "outboxd/say.h"

#define RANGE_BYTES 256

static struct stop *stop_of_signals; /* for the handler */

static void on_signal(int signum) {
  (void)signum;
  stop_set(stop_of_signals);
}

/* The first signal ends it between two writes, the second at once. */
static void catch_signals(struct stop *stop) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
  stop_of_signals = stop;
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGINT, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
}

/* -------------------------------------------------------------------------------------------------- the command line */

static int check_usage(const struct cfg *cfg, struct err *err) {
  bool is_any = cfg->ids.n > 0 || cfg->aggregates.n > 0 || cfg->events.n > 0 || cfg->from != NULL || cfg->to != NULL;
  if (!is_any && !cfg->is_all) {
    return err_set(
        err, ERR_USAGE, "usage",
        "replay needs to be told which messages: --from, --to, --aggregate, --event, --id, or --all; see outboxd "
        "replay --help");
  }
  if (is_any && cfg->is_all) {
    return err_set(err, ERR_USAGE, "usage", "--all goes with no other selector; see outboxd replay --help");
  }
  return 0;
}

/* Appends "AND m.created_at >= '...'": as constants, so that the planner leaves out the partitions that do not matter. */
static int add_bound(const char *option, const char *text, const char *operator, char range[RANGE_BYTES], int64_t *us,
                     struct err *err) {
  char bound[PARTITION_BOUND_BYTES];
  if (text == NULL) {
    return 0;
  }
  if (clock_parse_time(text, us, err) != 0) {
    return err_wrap(err, "%s", option);
  }
  partition_format_bound(*us, bound);
  size_t used = strlen(range);
  (void)snprintf(range + used, RANGE_BYTES - used, "AND m.created_at %s %s::timestamptz ", operator, bound);
  return 0;
}

static int make_range(struct replay *replay, struct err *err) {
  char range[RANGE_BYTES] = "";
  int64_t from_us = INT64_MIN;
  int64_t to_us = INT64_MAX;
  if (add_bound("--from", replay->cfg->from, ">=", range, &from_us, err) != 0 ||
      add_bound("--to", replay->cfg->to, "<", range, &to_us, err) != 0) {
    return -1;
  }
  if (from_us >= to_us) {
    return err_set(err, ERR_USAGE, "usage", "--from %s is not before --to %s: no message can be between",
                   replay->cfg->from, replay->cfg->to);
  }
  replay->range = strdup(range);
  return replay->range != NULL ? 0 : err_set(err, ERR_RETRY, "ENOMEM", "no memory for a condition");
}

static int read_after(struct replay *replay, struct err *err) {
  int64_t id = INT64_MIN;
  if (replay->cfg->after_id != NULL && selector_parse_id(replay->cfg->after_id, &id, NULL) != 0) {
    return err_set(err, ERR_USAGE, "usage", "--after-id takes the number in the column id, not \"%.40s\"",
                   replay->cfg->after_id);
  }
  (void)snprintf(replay->after, sizeof replay->after, "%lld", (long long)id);
  return 0;
}

/* -------------------------------------------------------------------------------------------------- what it says */

static const char *messages(int64_t n) {
  return n == 1 ? "message" : "messages";
}

static void tell_left_out(int64_t n, const char *what, const char **separator) {
  if (n > 0) {
    char count[SAY_BYTES];
    (void)printf("%s%s %s", *separator, say_count(n, count), what);
    *separator = ", ";
  }
}

static void tell(const struct replay *replay) {
  char count[SAY_BYTES];
  const char *separator = "left out: ";
  if (replay->published_n == 0) {
    (void)printf("none of these messages is published\n");
  } else {
    (void)printf("%s %s %s once more to streams %s: ids %lld to %lld%s\n", say_count(replay->published_n, count),
                 messages(replay->published_n), replay->cfg->is_dry_run ? "would be published" : "published",
                 replay->cfg->replay_stream, (long long)replay->first_id, (long long)replay->last_id,
                 replay->cfg->is_dry_run ? "; nothing was" : "");
  }
  if (replay->pending_n > REPLAY_PENDING_MAX) {
    (void)printf("left out: more than %s pending", say_count(REPLAY_PENDING_MAX, count));
    separator = ", ";
  } else {
    tell_left_out(replay->pending_n, "pending", &separator);
  }
  tell_left_out(replay->discarded_n, "discarded", &separator);
  tell_left_out(replay->unnamed_n, "without message_id, which the relay never publishes", &separator);
  tell_left_out(replay->gone_n, "gone meanwhile (dropped, deleted, or no longer published)", &separator);
  if (strcmp(separator, ", ") == 0) {
    (void)fputc('\n', stdout);
  }
}

/* How far it came, before the cause. */
static void add_position(const struct replay *replay, struct err *err) {
  char doubt[160] = "";
  if (err->class == ERR_USAGE || replay->cfg->is_dry_run) {
    return;
  }
  if (replay->has_doubt) {
    (void)snprintf(doubt, sizeof doubt, "; of ids %lld to %lld it is not known, they may come twice then",
                   (long long)replay->doubt_from_id, (long long)replay->doubt_to_id);
  }
  if (replay->published_n > 0) {
    char count[SAY_BYTES];
    char total[SAY_BYTES];
    (void)err_wrap(err,
                   "%s of %s messages were published, the last confirmed id is %lld; go on with the same command and "
                   "--after-id %lld%s",
                   say_count(replay->published_n, count), say_count(replay->total_n, total), (long long)replay->last_id,
                   (long long)replay->last_id, doubt);
  } else if (replay->has_doubt) {
    (void)err_wrap(err, "no message is confirmed; run it again%s", doubt);
  } else {
    (void)err_wrap(err, "nothing was published");
  }
}

/* -------------------------------------------------------------------------------------------------- the command */

static void warn(const struct replay *replay) {
  if (replay->cfg->is_into_relay && replay->total_n > 0) {
    char count[SAY_BYTES];
    (void)fprintf(stderr, "outboxd: warning: with --into-relay-streams consumers of %s see up to %s events again\n",
                  replay->cfg->replay_stream, say_count(replay->total_n, count));
  }
}

static int publish(struct replay *replay, struct err *err) {
  struct batch *batch = NULL;
  int rc = replay_read(replay, &batch, err);
  while (rc == 0 && batch != NULL) {
    rc = replay_write(replay, batch, err);
    batch_unref(&batch);
    if (rc == 0) {
      rc = replay_read(replay, &batch, err);
    }
  }
  batch_unref(&batch);
  return rc;
}

static int run(struct replay *replay, struct err *err) {
  const struct cfg *cfg = replay->cfg;
  if (check_usage(cfg, err) != 0 || selector_init(&replay->selector, cfg, err) != 0 || make_range(replay, err) != 0 ||
      read_after(replay, err) != 0 || template_parse(cfg->replay_stream, &replay->template, err) != 0 ||
      url_parse(cfg->redis, &replay->url, err) != 0) {
    return -1;
  }
  progress_begin(&replay->progress, "replay: finding the messages", STDERR_FILENO, progress_is_terminal(STDERR_FILENO),
                 clock_now_us());
  if (replay_open(replay, err) != 0 || replay_find(replay, err) != 0) {
    return -1;
  }
  progress_wipe(&replay->progress);
  warn(replay);
  progress_go_on(&replay->progress, "replay", clock_now_us());
  return cfg->is_dry_run ? replay_count(replay, err) : publish(replay, err);
}

static void fini(struct replay *replay) {
  PQclear(replay->keys);
  pg_free(replay->pg);
  redis_pipeline_free(replay->pipeline);
  redis_free(replay->redis);
  keyset_free(&replay->streams);
  buf_free(&replay->stream);
  for (size_t i = 0; i < sizeof replay->params / sizeof replay->params[0]; i++) {
    buf_free(&replay->params[i]);
  }
  free(replay->items);
  free(replay->page);
  free(replay->page_in_span);
  free(replay->moved);
  free(replay->moved_in_span);
  free(replay->range);
  template_free(replay->template);
  url_fini(&replay->url);
  selector_fini(&replay->selector);
}

int cmd_replay(const struct cfg *cfg, struct err *err) {
  struct replay replay = {.cfg = cfg, .streams = KEYSET_INIT, .day = ENTRY_DAY_INIT};
  struct stop *stop = NULL;
  if (stop_new(&stop, err) != 0) {
    return -1;
  }
  replay.stop = stop;
  catch_signals(stop); /* the token lives until the process ends: a signal may still come */
  int rc = run(&replay, err);
  progress_wipe(&replay.progress);
  if (rc == 0) {
    tell(&replay);
  } else {
    add_position(&replay, err);
  }
  fini(&replay);
  return rc;
}
