/*
 * The baselines: what PostgreSQL and Redis do by themselves, each measured by a plain client in C.
 */
#ifndef BENCH_BASELINES_H
#define BENCH_BASELINES_H

#include <stdint.h>

#include "bench.h"

struct sql_limit {
  int64_t messages_n;
  double rate;
  double pg_cpu_us; /* a message */
  double wal_bytes; /* a message */
};

/* One session claims 1,000 pending rows (FOR UPDATE SKIP LOCKED), reads them, marks them by their places, commits, and so on until none is
 * left.  With is_bare it takes no row locks: the UPDATE alone. */
struct sql_limit baseline_sql(struct bench *bench, int64_t first_id, bool is_bare);

struct redis_limit {
  int64_t messages_n;
  double rate;          /* entries a second */
  double payload_bytes; /* a second */
  double redis_cpu_us;  /* an entry */
};

/* Adds all rows of the table to as many streams as there are lanes, by XADD in pipelines of 1,000 with one more under way; the commands are
 * formatted before.  Redis is emptied before and after. */
struct redis_limit baseline_redis(struct bench *bench);

#endif
