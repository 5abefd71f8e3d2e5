/*
 * A reader that judges what arrives: see consumer.h.
 *
 * Owns: the reading thread.  reached and the counts are its own until consumer_stop; the latencies are guarded by the mutex.
 */
#include "consumer.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "rds.h"

#define LANES_MAX 64
#define PAGE_ENTRIES "1000"
#define BLOCK_MS "100"
#define ID_BYTES 48
#define STREAM_BYTES 32
#define ERROR_BYTES 256

struct consumer {
  struct consumer_options options;
  redisContext *redis;
  pthread_t thread;
  char streams[LANES_MAX][STREAM_BYTES];
  char ids[LANES_MAX][ID_BYTES]; /* the last entry read of each */
  int64_t *reached;              /* by aggregate: the last number in order */
  int64_t *skipped;              /* by aggregate: numbers below reached that have not come */
  struct consumer_verdict verdict;
  char error[ERROR_BYTES];
  _Atomic(const struct load *) load;
  atomic_bool is_stopped;
  atomic_llong read_n;
  pthread_mutex_t mutex;
  struct latencies latencies;
};

/* The number behind "key": in the payload; -1 when there is none. */
static int64_t number_of(const char *payload, const char *key) {
  const char *at = strstr(payload, key);
  return at != NULL ? strtoll(at + strlen(key), NULL, 10) : -1;
}

static void judge_number(struct consumer *consumer, int64_t aggregate, int64_t number) {
  int64_t *reached = &consumer->reached[aggregate];
  if (number == *reached + 1) {
    *reached = number;
  } else if (number > *reached) {
    consumer->skipped[aggregate] += number - *reached - 1;
    *reached = number;
  } else if (consumer->skipped[aggregate] > 0) {
    /* One of the skipped, or one that was there: told apart no further. */
    consumer->skipped[aggregate]--;
    consumer->verdict.out_of_order_n++;
  } else {
    consumer->verdict.duplicate_n++;
  }
}

static void note_latency(struct consumer *consumer, int64_t us) {
  pthread_mutex_lock(&consumer->mutex);
  struct latencies *latencies = &consumer->latencies;
  if (latencies->n == latencies->cap) {
    int64_t cap = latencies->cap * 2 + 4096;
    int64_t *grown = realloc(latencies->v, (size_t)cap * sizeof *grown);
    if (grown == NULL) {
      abort();
    }
    latencies->v = grown;
    latencies->cap = cap;
  }
  latencies->v[latencies->n++] = us > 0 ? us : 0;
  pthread_mutex_unlock(&consumer->mutex);
}

static void judge_entry(struct consumer *consumer, const redisReply *entry, int64_t arrived_us) {
  const struct load *load = atomic_load(&consumer->load);
  const redisReply *fields = entry->element[1];
  /* message_id, aggregate_type, aggregate_id, event_type, payload, created_at */
  if (fields->elements < 12 || load == NULL) {
    consumer->verdict.phantom_n++;
    return;
  }
  const char *payload = fields->element[9]->str;
  int64_t aggregate = number_of(payload, "\"a\": "), number = number_of(payload, "\"n\": ");
  int64_t transaction = number_of(payload, "\"t\": "), thread = number_of(payload, "\"w\": ");
  if (aggregate < 0 || aggregate >= consumer->options.aggregates_n || number < 1 || thread < 0 ||
      thread >= LOAD_THREADS_MAX) {
    consumer->verdict.phantom_n++;
    return;
  }
  judge_number(consumer, aggregate, number);
  int64_t committed_us = load_commit_us(load, (int)thread, transaction);
  /* Not seen as acknowledged yet: it has arrived before its writer was told. */
  note_latency(consumer, committed_us > 0 ? arrived_us - committed_us : 0);
}

static int stream_of(const struct consumer *consumer, const char *name) {
  for (int i = 0; i < consumer->options.lanes_n; i++) {
    if (strcmp(consumer->streams[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

static bool trim(struct consumer *consumer, int stream) {
  redisReply *reply =
      redisCommand(consumer->redis, "XTRIM %s MINID %s", consumer->streams[stream], consumer->ids[stream]);
  bool is_ok = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
  freeReplyObject(reply);
  return is_ok;
}

static bool judge_reply(struct consumer *consumer, const redisReply *reply) {
  int64_t arrived_us = load_now_us();
  for (size_t i = 0; i < reply->elements; i++) {
    const redisReply *entries = reply->element[i]->element[1];
    int stream = stream_of(consumer, reply->element[i]->element[0]->str);
    if (stream < 0 || entries->elements == 0) {
      continue;
    }
    for (size_t j = 0; j < entries->elements; j++) {
      judge_entry(consumer, entries->element[j], arrived_us);
    }
    snprintf(consumer->ids[stream], ID_BYTES, "%s", entries->element[entries->elements - 1]->element[0]->str);
    atomic_fetch_add(&consumer->read_n, (long long)entries->elements);
    if (consumer->options.is_trimming && !trim(consumer, stream)) {
      return false;
    }
  }
  return true;
}

static redisReply *read_page(struct consumer *consumer) {
  const char *argv[6 + 2 * LANES_MAX] = {"XREAD", "COUNT", PAGE_ENTRIES, "BLOCK", BLOCK_MS, "STREAMS"};
  int n = 6;
  for (int i = 0; i < consumer->options.lanes_n; i++) {
    argv[n++] = consumer->streams[i];
  }
  for (int i = 0; i < consumer->options.lanes_n; i++) {
    argv[n++] = consumer->ids[i];
  }
  return redisCommandArgv(consumer->redis, n, argv, NULL);
}

static void *work(void *arg) {
  struct consumer *consumer = arg;
  for (bool is_stopped = false, is_ok = true; is_ok;) {
    /* Looked at before the reading: what was written before the stop is read. */
    is_stopped = atomic_load(&consumer->is_stopped);
    redisReply *reply = read_page(consumer);
    is_ok = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    bool is_empty = is_ok && reply->type != REDIS_REPLY_ARRAY;
    if (is_ok && !is_empty) {
      is_ok = judge_reply(consumer, reply);
    }
    if (!is_ok) {
      snprintf(consumer->error, sizeof consumer->error, "%s", reply != NULL ? reply->str : consumer->redis->errstr);
    }
    freeReplyObject(reply);
    if (is_stopped && is_empty) {
      break;
    }
  }
  return NULL;
}

struct consumer *consumer_start(const struct consumer_options *options) {
  struct consumer *consumer = calloc(1, sizeof *consumer);
  REQUIRE(consumer != NULL && options->lanes_n <= LANES_MAX, "out of memory, or more than %d lanes", LANES_MAX);
  consumer->options = *options;
  consumer->redis = rds_open(options->redis_url);
  consumer->reached = calloc((size_t)options->aggregates_n, sizeof *consumer->reached);
  consumer->skipped = calloc((size_t)options->aggregates_n, sizeof *consumer->skipped);
  REQUIRE(consumer->reached != NULL && consumer->skipped != NULL, "out of memory");
  for (int i = 0; i < options->lanes_n; i++) {
    snprintf(consumer->streams[i], STREAM_BYTES, "outbox:{%d}", i);
    snprintf(consumer->ids[i], ID_BYTES, "0");
  }
  pthread_mutex_init(&consumer->mutex, NULL);
  REQUIRE(pthread_create(&consumer->thread, NULL, work, consumer) == 0, "no thread");
  return consumer;
}

void consumer_attach(struct consumer *consumer, const struct load *load) {
  atomic_store(&consumer->load, load);
}

int64_t consumer_read(const struct consumer *consumer) {
  return atomic_load(&consumer->read_n);
}

void consumer_take(struct consumer *consumer, struct latencies *out) {
  pthread_mutex_lock(&consumer->mutex);
  *out = consumer->latencies;
  consumer->latencies = (struct latencies){0};
  pthread_mutex_unlock(&consumer->mutex);
}

struct consumer_verdict consumer_stop(struct consumer *consumer) {
  const struct load *load = atomic_load(&consumer->load);
  atomic_store(&consumer->is_stopped, true);
  pthread_join(consumer->thread, NULL);
  REQUIRE(consumer->error[0] == '\0', "the consumer: %s", consumer->error);
  struct consumer_verdict verdict = consumer->verdict;
  for (int i = 0; load != NULL && i < consumer->options.aggregates_n; i++) {
    int64_t last = load_last_of(load, i);
    verdict.lost_n += consumer->skipped[i];
    if (consumer->reached[i] < last) {
      verdict.lost_n += last - consumer->reached[i];
    }
    if (consumer->reached[i] > last) {
      verdict.phantom_n += consumer->reached[i] - last;
    }
  }
  pthread_mutex_destroy(&consumer->mutex);
  redisFree(consumer->redis);
  free(consumer->latencies.v);
  free(consumer->reached);
  free(consumer->skipped);
  free(consumer);
  return verdict;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

double latencies_quantile_ms(struct latencies *latencies, double share) {
  if (latencies->n == 0) {
    return 0;
  }
  qsort(latencies->v, (size_t)latencies->n, sizeof latencies->v[0], compare);
  int64_t at = (int64_t)(share * (double)(latencies->n - 1) + 0.5);
  return (double)latencies->v[at] / 1000;
}
