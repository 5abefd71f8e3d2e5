/*
 * A reader of all streams that judges each entry as it arrives and, if wanted, trims the streams behind itself: any number of messages in a
 * fixed amount of memory.
 *
 * An aggregate's messages must arrive with the numbers 1, 2, 3, ... (load.h).  A number that was there before is a duplicate, one that is
 * skipped is missing until it comes, and then it is out of order; what is missing at the end is lost.
 */
#ifndef BENCH_CONSUMER_H
#define BENCH_CONSUMER_H

#include <stdbool.h>
#include <stdint.h>

#include "load.h"

struct consumer;

struct consumer_options {
  const char *redis_url;
  int lanes_n;
  int aggregates_n;
  bool is_trimming;
};

struct consumer_verdict {
  int64_t lost_n, duplicate_n, out_of_order_n, phantom_n;
};

/* Latencies in microseconds; the vector grows. */
struct latencies {
  int64_t *v;
  int64_t n, cap;
};

/* The load may start later: consumer_attach. */
struct consumer *consumer_start(const struct consumer_options *options);
/* From now on entries are this load's. */
void consumer_attach(struct consumer *consumer, const struct load *load);
int64_t consumer_read(const struct consumer *consumer);
/* Moves the latencies (arrival less acknowledged commit) seen since the last call to *out; caller frees out->v. */
void consumer_take(struct consumer *consumer, struct latencies *out);
/* Ends the thread and judges, against the load, which has stopped.  Frees. */
struct consumer_verdict consumer_stop(struct consumer *consumer);

/* Sorts; the value below which this share (0..1) lies, in milliseconds; 0 for none. */
double latencies_quantile_ms(struct latencies *latencies, double share);

#endif
