/*
 * A load that can be judged: see load.h.
 *
 * Owns: the writing threads.  numbers and transactions_n of a thread are its own until load_stop; the acknowledgements are atomics.
 */
#include "load.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "db.h"
#include "fail.h"
#include "prng.h"

#define ACKS_N (1 << 18) /* transactions that are remembered, a power of two */
#define PAD_BYTES_MAX 4096
#define ERROR_BYTES 512

struct ack {
  atomic_llong transaction; /* from 1; 0: none */
  atomic_llong us;
};

struct thread {
  struct load *load;
  pthread_t thread;
  int index;
  struct prng prng;
  struct ack *acks; /* ACKS_N; the slot of transaction t is t mod ACKS_N */
  char error[ERROR_BYTES];
};

struct load {
  struct load_options options;
  struct thread threads[LOAD_THREADS_MAX];
  int64_t *numbers; /* by aggregate: the last that was given out; each is its thread's */
  int64_t started_us;
  bool is_joined;
  atomic_bool is_stopped;
  atomic_llong committed_n;
};

int64_t load_now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static char *statement(struct thread *thread, int64_t transaction) {
  static const char pad[] = "abcdefghijklmnopqrstuvwxyz 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ ";
  struct load *load = thread->load;
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  int threads_n = load->options.threads_n;
  int mine_n = (load->options.aggregates_n - thread->index + threads_n - 1) / threads_n;

  if (out == NULL) {
    abort();
  }
  fputs("INSERT INTO " BENCH_TABLE " (aggregate_type, aggregate_id, event_type, payload) VALUES ", out);
  for (int i = 0; i < load->options.per_transaction_n; i++) {
    int aggregate = thread->index + threads_n * (int)prng_below(&thread->prng, (uint64_t)mine_n);
    fprintf(out,
            "%s('account','%d','money.sent','{\"a\": %d, \"n\": %" PRId64 ", \"t\": %" PRId64
            ", \"w\": %d, \"pad\": \"",
            i > 0 ? "," : "", aggregate, aggregate, ++load->numbers[aggregate], transaction, thread->index);
    for (int left = load->options.payload_bytes; left > 0; left -= (int)sizeof pad - 1) {
      fwrite(pad, 1, left < (int)sizeof pad - 1 ? (size_t)left : sizeof pad - 1, out);
    }
    fputs("\"}')", out);
  }
  fclose(out);
  return text;
}

/* Waits until the thread's share of the rate allows its next transaction. */
static void keep_rate(const struct load *load, int64_t transactions_n) {
  const struct load_options *options = &load->options;
  int64_t due_us =
      load->started_us + transactions_n * options->per_transaction_n * options->threads_n * 1000000 / options->rate;
  for (int64_t left_us = due_us - load_now_us(); left_us > 0 && !atomic_load(&load->is_stopped);
       left_us = due_us - load_now_us()) {
    int64_t span_us = left_us < 100000 ? left_us : 100000;
    nanosleep(&(struct timespec){.tv_nsec = span_us * 1000}, NULL);
  }
}

static void *work(void *arg) {
  struct thread *thread = arg;
  struct load *load = thread->load;
  PGconn *conn = PQconnectdb(load->options.conninfo);
  bool is_ok = PQstatus(conn) == CONNECTION_OK;

  for (int64_t transaction = 1; is_ok && !atomic_load(&load->is_stopped); transaction++) {
    char *text = statement(thread, transaction);
    PGresult *result = PQexec(conn, text);
    struct ack *ack = &thread->acks[transaction & (ACKS_N - 1)];
    atomic_store(&ack->us, load_now_us());
    atomic_store(&ack->transaction, transaction);
    is_ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    free(text);
    atomic_fetch_add(&load->committed_n, load->options.per_transaction_n);
    keep_rate(load, transaction);
  }
  if (!is_ok) {
    snprintf(thread->error, sizeof thread->error, "%s", PQerrorMessage(conn));
  }
  PQfinish(conn);
  return NULL;
}

struct load *load_start(const struct load_options *options) {
  struct load *load = calloc(1, sizeof *load);
  REQUIRE(load != NULL, "out of memory");
  REQUIRE(options->threads_n >= 1 && options->threads_n <= LOAD_THREADS_MAX, "1 to %d threads", LOAD_THREADS_MAX);
  load->options = *options;
  load->numbers = calloc((size_t)options->aggregates_n, sizeof *load->numbers);
  REQUIRE(load->numbers != NULL, "out of memory");
  load->started_us = load_now_us();
  for (int i = 0; i < options->threads_n; i++) {
    struct thread *thread = &load->threads[i];
    thread->load = load;
    thread->index = i;
    thread->prng.state = (uint64_t)i * 7919 + 1;
    thread->acks = calloc(ACKS_N, sizeof *thread->acks);
    REQUIRE(thread->acks != NULL, "out of memory");
  }
  for (int i = 0; i < options->threads_n; i++) {
    REQUIRE(pthread_create(&load->threads[i].thread, NULL, work, &load->threads[i]) == 0, "no thread");
  }
  return load;
}

void load_stop(struct load *load) {
  atomic_store(&load->is_stopped, true);
  for (int i = 0; i < load->options.threads_n && !load->is_joined; i++) {
    pthread_join(load->threads[i].thread, NULL);
  }
  load->is_joined = true;
  for (int i = 0; i < load->options.threads_n; i++) {
    REQUIRE(load->threads[i].error[0] == '\0', "writer %d: %s", i, load->threads[i].error);
  }
}

void load_free(struct load *load) {
  for (int i = 0; i < load->options.threads_n; i++) {
    free(load->threads[i].acks);
  }
  free(load->numbers);
  free(load);
}

int64_t load_committed(const struct load *load) {
  return atomic_load(&load->committed_n);
}

int64_t load_commit_us(const struct load *load, int thread, int64_t transaction) {
  const struct ack *ack = &load->threads[thread].acks[transaction & (ACKS_N - 1)];
  int64_t us = atomic_load(&ack->us);
  return atomic_load(&ack->transaction) == transaction ? us : 0;
}

int64_t load_last_of(const struct load *load, int aggregate) {
  return load->numbers[aggregate];
}
