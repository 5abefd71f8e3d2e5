/*
 * A load at a rate whose every message can be judged by a reader that sees it once: numbered within its aggregate, and with the time at which
 * its commit was acknowledged.
 *
 * An aggregate belongs to one of the threads.  A message's payload names its thread (w), its transaction within the thread (t), its aggregate
 * (a) and its number within the aggregate (n, from 1, without gaps: a transaction that failed would end the load).
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_THREADS_MAX 8

struct load;

struct load_options {
  const char *conninfo;
  int threads_n;
  int rate;              /* messages a second over all threads */
  int per_transaction_n; /* messages in each */
  int aggregates_n;
  int payload_bytes; /* of the padding */
};

struct load *load_start(const struct load_options *options);
/* Ends after the transactions under way; fails when a thread has met an error.  The load stays readable until load_free. */
void load_stop(struct load *load);
void load_free(struct load *load);

/* Any thread: messages committed so far. */
int64_t load_committed(const struct load *load);
/* Any thread: microseconds of the monotonic clock when this transaction's commit was acknowledged; 0 when that has not been seen yet, or is
 * too long ago to be known. */
int64_t load_commit_us(const struct load *load, int thread, int64_t transaction);
/* After load_stop: the last number given out in an aggregate. */
int64_t load_last_of(const struct load *load, int aggregate);

int64_t load_now_us(void);

#endif
