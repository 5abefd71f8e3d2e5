/*
 * The publisher thread: jobs in, lanes taken over (src/publisher_take.c), writes to Redis (src/publisher_write.c), notes out.
 *
 * Owns: its link to Redis, its lanes, the round it builds.  The thread publisher_main runs everything but the functions of the header, which the
 * coordinator (and, for statistics, anybody) calls.  Lock: stats_mutex; no I/O, allocation or logging under it.
 * Never: see include/outboxd/publisher.h.
 */
#include "outboxd/publisher.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/alloc.h"
#include "outboxd/clock.h"
#include "outboxd/publisher_impl.h"

/* ---- notes */

void publisher_send_note(struct publisher *pub, struct note note) {
  struct note *copy = alloc_zeroed(sizeof *copy);
  *copy = note;
  copy->publisher = pub->index;
  struct queue_item *item = &copy->item;
  if (!queue_push(pub->notes, &item)) {
    /* The coordinator has ended; nobody waits for it. */
    journal_names_free(copy->names);
    free(copy);
  }
}

void publisher_report_finished(struct publisher *pub, struct lane *lane) {
  struct part *part;
  while ((part = lane_take_finished(lane)) != NULL) {
    if (part->runs_n == 0) {
      publisher_send_note(pub,
                          (struct note){.kind = NOTE_DONE, .batch = part->batch, .is_give_back = part->is_give_back});
      free(part);
    }
  }
}

void publisher_tell_fatal(struct publisher *pub, const struct err *err) {
  if (err->class == ERR_FATAL && !pub->is_fatal_told) {
    pub->is_fatal_told = true;
    publisher_send_note(pub, (struct note){.kind = NOTE_FATAL, .err = *err});
  }
}

/* ---- losing lanes */

void publisher_lose_lane(struct publisher *pub, struct lane *lane, const struct err *err, bool is_fenced) {
  lane_set_state(lane, LANE_CLOSED);
  lane->lost_epoch = pub->epoch;
  lane_forget(lane);
  lane_withhold_all(lane, is_fenced);
  publisher_send_note(pub,
                      (struct note){.kind = NOTE_LANE_LOST, .lane = lane->no, .is_fenced = is_fenced, .err = *err});
  publisher_report_finished(pub, lane);
}

void publisher_lose_all(struct publisher *pub, const struct err *err) {
  for (int i = 0; i < pub->lanes_n; i++) {
    if (pub->lanes[i].state == LANE_OPEN) {
      publisher_lose_lane(pub, &pub->lanes[i], err, false);
    }
  }
}

/* ---- jobs */

static struct lane *lane_of(const struct publisher *pub, int no) {
  assert(no >= 0 && no % pub->cfg->publishers_n == pub->index && no / pub->cfg->publishers_n < pub->lanes_n);
  return &pub->lanes[no / pub->cfg->publishers_n];
}

static bool is_ending(const struct publisher *pub) {
  return stop_is_set(pub->abort) || stop_is_set(pub->quit);
}

static void begin_epoch(struct publisher *pub, int64_t epoch) {
  if (epoch <= pub->epoch) {
    return;
  }
  pub->epoch = epoch;
  for (int i = 0; i < pub->lanes_n; i++) {
    assert(pub->lanes[i].head == NULL); /* an epoch begins with nothing open */
    lane_begin_epoch(&pub->lanes[i]);
  }
}

static void accept_batch(struct publisher *pub, struct batch *batch) {
  struct part *part = alloc_zeroed(sizeof *part);
  part->batch = batch;
  part->runs_n = 1; /* ours, until all runs are in their queues */
  begin_epoch(pub, batch->epoch);
  for (int i = 0; i < batch->runs_n; i++) {
    struct run *run = &batch->runs[i];
    if (run->lane % pub->cfg->publishers_n != pub->index) {
      continue;
    }
    struct lane *lane = lane_of(pub, run->lane);
    for (int m = 0; m < run->n; m++) {
      pub->accepted_n += run->msgs[m].outcome == OUTCOME_NONE; /* the coordinator may have withheld some already */
    }
    lane_queue(lane, part, run);
    if (lane->state != LANE_OPEN || batch->epoch <= lane->lost_epoch || batch->epoch < pub->epoch) {
      lane_withhold_all(lane, false);
      publisher_report_finished(pub, lane);
    }
  }
  part->runs_n--;
  if (part->runs_n == 0) {
    publisher_send_note(pub, (struct note){.kind = NOTE_DONE, .batch = part->batch});
    free(part);
  }
}

static void drop_lane(struct publisher *pub, struct lane *lane) {
  struct err err = ERR_INIT;
  if (lane->has_take) {
    (void)err_set(&err, ERR_RETRY, "dropped", "lane %d was dropped before its journal was read", lane->no);
    publisher_fail_take(pub, lane, &err);
  }
  lane_set_state(lane, LANE_CLOSED);
  lane_forget(lane);
  lane_withhold_all(lane, false);
  publisher_report_finished(pub, lane);
}

static void open_lane(struct publisher *pub, struct lane *lane, const struct journal_names *names) {
  struct err err = ERR_INIT;
  if (lane->state != LANE_READ || (names != NULL && strcmp(names->token, lane->token) != 0)) {
    (void)err_set(&err, ERR_RETRY, "outdated", "lane %d was opened with another journal than was read last", lane->no);
    publisher_lose_lane(pub, lane, &err, false);
    return;
  }
  if (names != NULL) {
    lane_inherit(lane, names);
  }
  lane_set_state(lane, LANE_OPEN);
}

static void do_job(struct publisher *pub, struct job *job) {
  switch (job->kind) {
  case JOB_PUBLISH:
    accept_batch(pub, job->batch);
    break;
  case JOB_TAKE:
    drop_lane(pub, lane_of(pub, job->lane));
    lane_of(pub, job->lane)->has_take = true;
    break;
  case JOB_OPEN:
    open_lane(pub, lane_of(pub, job->lane), job->names);
    break;
  case JOB_SETTLED:
    for (int i = 0; i < job->batch->runs_n; i++) {
      int no = job->batch->runs[i].lane;
      if (no % pub->cfg->publishers_n == pub->index) {
        lane_settled(lane_of(pub, no), job->batch->seq);
      }
    }
    batch_unref(&job->batch);
    break;
  case JOB_DROP:
    drop_lane(pub, lane_of(pub, job->lane));
    break;
  case JOB_EPOCH:
    begin_epoch(pub, job->epoch);
    break;
  }
  journal_names_free(job->names);
  free(job);
}

static bool has_takes(const struct publisher *pub) {
  for (int i = 0; i < pub->lanes_n; i++) {
    if (pub->lanes[i].has_take) {
      return true;
    }
  }
  return false;
}

/* ---- the thread */

static bool has_work(const struct publisher *pub) {
  for (int i = 0; i < pub->lanes_n; i++) {
    if (pub->lanes[i].head != NULL) {
      return true;
    }
  }
  return false;
}

static void store_stats(struct publisher *pub) {
  (void)pthread_mutex_lock(&pub->stats_mutex);
  pub->stats = (struct publisher_stats){.published_n = pub->counts.published_n,
                                        .inherited_n = pub->counts.inherited_n,
                                        .failed_n = pub->counts.failed_n,
                                        .withheld_n = pub->counts.withheld_n,
                                        .fenced_n = pub->fenced_n,
                                        .connects_n = pub->link.connects_n,
                                        .writes_n = pub->writes_n,
                                        .calls_n = pub->calls_n,
                                        .bytes_n = pub->link.bytes_n,
                                        .is_connected = link_is_open(&pub->link),
                                        .is_down = pub->link.down_since_us != 0};
  for (int i = 0; i < pub->lanes_n; i++) {
    pub->is_open[i] = pub->lanes[i].state == LANE_OPEN;
  }
  (void)pthread_mutex_unlock(&pub->stats_mutex);
}

/* Everything that waits is answered without Redis. */
static void answer_all(struct publisher *pub) {
  struct err err = ERR_INIT;
  (void)err_set(&err, ERR_RETRY, "stopped", "the publisher is ending");
  publisher_fail_takes(pub, &err);
  publisher_lose_all(pub, &err);
}

/* When to look up from the queue although no job has come. */
static int64_t next_wake_us(const struct publisher *pub) {
  if (has_work(pub)) {
    return 0;
  }
  if (has_takes(pub)) {
    return link_is_open(&pub->link) ? 0 : pub->link.next_attempt_us;
  }
  return INT64_MAX;
}

static void *publisher_main(void *arg) {
  struct publisher *pub = arg;
  for (;;) {
    struct queue_item *item = NULL;
    enum queue_result result = queue_take(pub->jobs, next_wake_us(pub), &item);
    while (item != NULL) {
      struct queue_item *next = item->next;
      do_job(pub, (struct job *)item);
      item = next;
    }
    if (is_ending(pub) || result == QUEUE_CLOSED) {
      answer_all(pub);
    }
    if (result == QUEUE_CLOSED) {
      break;
    }
    if (has_takes(pub) && (link_is_open(&pub->link) || clock_now_us() >= pub->link.next_attempt_us)) {
      publisher_take_lanes(pub);
    }
    if (has_work(pub)) {
      publisher_write(pub);
    }
    store_stats(pub);
  }
  store_stats(pub);
  return NULL;
}

static void free_publisher(struct publisher *pub) {
  for (int i = 0; i < pub->lanes_n; i++) {
    lane_fini(&pub->lanes[i]);
  }
  free(pub->lanes);
  free(pub->is_open);
  redis_pipeline_free(pub->pipeline);
  round_fini(&pub->round);
  link_fini(&pub->link);
  stop_free(pub->quit);
  queue_free(pub->jobs);
  (void)pthread_mutex_destroy(&pub->stats_mutex);
  free(pub);
}

int publisher_start(const struct cfg *cfg, const struct url *url, const struct template *template,
                    const struct cloudevent_form *form, const char *fleet, int index, struct queue *notes,
                    const struct stop *abort, struct publisher **out, struct err *err) {
  struct publisher *pub = calloc(1, sizeof *pub);
  if (pub == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "publisher");
  }
  pub->cfg = cfg;
  pub->template = template;
  pub->abort = abort;
  pub->notes = notes;
  pub->index = index;
  (void)pthread_mutex_init(&pub->stats_mutex, NULL);
  if (queue_new(&pub->jobs, false, err) != 0 || stop_new(&pub->quit, err) != 0 ||
      link_init(&pub->link, cfg, url, template, fleet, index, err) != 0 ||
      round_init(&pub->round, cfg, template, form, err) != 0 || redis_pipeline_new(&pub->pipeline, err) != 0) {
    goto fail;
  }
  /* Lanes index, index + publishers, ...; at least one place, since a publisher may have none. */
  int lanes_n = (cfg->lanes_n - index + cfg->publishers_n - 1) / cfg->publishers_n;
  pub->lanes = calloc((size_t)(lanes_n > 0 ? lanes_n : 1), sizeof *pub->lanes);
  pub->is_open = calloc((size_t)(lanes_n > 0 ? lanes_n : 1), sizeof *pub->is_open);
  if (pub->lanes == NULL || pub->is_open == NULL) {
    (void)err_errno(err, ERR_RETRY, ENOMEM, "publisher");
    goto fail;
  }
  pub->lanes_n = lanes_n > 0 ? lanes_n : 0;
  for (int i = 0; i < pub->lanes_n; i++) {
    lane_init(&pub->lanes[i], index + i * cfg->publishers_n, &pub->counts);
  }
  int errnum = pthread_create(&pub->thread, NULL, publisher_main, pub);
  if (errnum != 0) {
    (void)err_errno(err, ERR_RETRY, errnum, "publisher");
    goto fail;
  }
  char name[16];
  (void)snprintf(name, sizeof name, "publisher-%d", index % 1000);
  (void)pthread_setname_np(pub->thread, name);
  *out = pub;
  return 0;
fail:
  free_publisher(pub);
  return -1;
}

void publisher_stop(struct publisher *pub) {
  if (pub == NULL) {
    return;
  }
  stop_set(pub->quit);
  queue_close(pub->jobs);
  (void)pthread_join(pub->thread, NULL);
  const struct lane_counts *counts = &pub->counts;
  assert(pub->accepted_n == counts->published_n + counts->inherited_n + counts->failed_n + counts->withheld_n);
  free_publisher(pub);
}

void publisher_push(struct publisher *pub, struct job **job) {
  struct queue_item *item = &(*job)->item;
  *job = NULL;
  bool is_pushed = queue_push(pub->jobs, &item);
  assert(is_pushed);
  (void)is_pushed;
}

void publisher_read_stats(struct publisher *pub, struct publisher_stats *out, struct histogram *round_trip,
                          struct histogram *lag) {
  size_t depth = queue_depth(pub->jobs);
  (void)pthread_mutex_lock(&pub->stats_mutex);
  *out = pub->stats;
  if (round_trip != NULL) {
    histogram_merge(round_trip, &pub->round_trip);
  }
  if (lag != NULL) {
    histogram_merge(lag, &pub->lag);
  }
  histogram_reset(&pub->round_trip);
  histogram_reset(&pub->lag);
  (void)pthread_mutex_unlock(&pub->stats_mutex);
  out->queue_depth = depth;
}

bool publisher_has_lane(struct publisher *pub, int lane) {
  assert(lane % pub->cfg->publishers_n == pub->index && lane / pub->cfg->publishers_n < pub->lanes_n);
  (void)pthread_mutex_lock(&pub->stats_mutex);
  bool is_open = pub->is_open[lane / pub->cfg->publishers_n];
  (void)pthread_mutex_unlock(&pub->stats_mutex);
  return is_open;
}

bool publisher_is_down(struct publisher *pub) {
  (void)pthread_mutex_lock(&pub->stats_mutex);
  bool is_down = pub->stats.is_down;
  (void)pthread_mutex_unlock(&pub->stats_mutex);
  return is_down;
}
