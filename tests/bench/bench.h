/*
 * The benchmark: what the parts of it share.
 *
 * One private stack, one table at a time, one measurement after the other; every drain ends with the checker.  What each figure means and how
 * it is measured: docs/benchmarks.md.  Main thread, but for load.h and consumer.h, which have threads of their own.
 */
#ifndef BENCH_H
#define BENCH_H

#include <hiredis/hiredis.h>
#include <jansson.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "figures.h"
#include "stack.h"
#include "table.h"

#define BENCH_TABLE "outbox_messages"
#define BENCH_PARTITIONS_N 20
#define BENCH_AGGREGATES_N 10000
#define BENCH_AGGREGATE "(i * 7919 % 10000)::text" /* of message number i: each of BENCH_AGGREGATES_N, in no order */
#define BENCH_PAYLOAD_BYTES 300
#define BENCH_LANES_N 16
#define BENCH_DIR "build"

struct bench {
  struct stack *stack;
  PGconn *conn; /* the driver's own session */
  redisContext *redis;
  bool is_quick;
  double scale;      /* numbers of messages, times this */
  const char *only;  /* a part of the names of the groups to run; NULL: all */
  const char *plots; /* directory of the plots */
  json_t *machine;
  json_t *drains; /* every measurement, in order */
  struct figures figures;
  /* What the checker found, over all runs. */
  int64_t checked_n, checks_n, found_n[CHECK_KINDS_N],
      unexpected_n; /* unexpected: pending or dead messages where there must be none */
};

/* Starts the stack, opens the sessions, describes the machine.  Caller: bench_end. */
void bench_begin(struct bench *bench);
/* Ends the stack, frees. */
void bench_end(struct bench *bench);

/* messages_n times the scale, in thousands, at least a thousand. */
int64_t bench_scaled(const struct bench *bench, int64_t messages_n);

/* A line with the time since the start, for whoever waits. */
void bench_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

double bench_now_s(void);
/* Sorts v. */
double bench_median(double *v, int n);

/* ---- tables */

/* The table anew, empty: of 20 partitions as outboxd init makes them, or the plain one as an application's migration would. */
void bench_table_partitioned(struct bench *bench);
void bench_table_partitioned_of(struct bench *bench, const char *payload_type); /* of init's --payload-type */
void bench_table_plain(struct bench *bench);
/* Empties table and Redis, and writes a checkpoint, so that none falls into what is measured next. */
void bench_clear(struct bench *bench);

enum fill_shape {
  FILL_UNIFORM, /* over 10,000 aggregates */
  FILL_SKEWED,  /* nine of ten messages in one aggregate */
  FILL_LANE     /* a message for each of as many aggregates, all in lane BENCH_REFUSED_LANE */
};
#define BENCH_REFUSED_LANE 3

struct fill {
  int64_t messages_n;
  int payload_bytes; /* as PostgreSQL prints it, about; 0: 300 */
  enum fill_shape shape;
};

/* Adds messages on the server, in one transaction or, if they are many, in two at once; created ten seconds ago: a backlog.  Returns the id behind which theirs begin. */
int64_t bench_fill(struct bench *bench, const struct fill *fill);
/* The last id that was given out. */
int64_t bench_last_id(struct bench *bench);

/* Published messages a second with an id above first_id, by published_at; the first second is left out, or a fifth of a short run.  where:
 * a further condition, NULL: none.  *messages_n (NULL: not wanted): how many were published in all. */
double bench_rate(struct bench *bench, int64_t first_id, const char *where, int64_t *messages_n);

/* ---- drains */

struct drain_spec {
  const char *name;        /* in bench.json */
  const char *const *args; /* further arguments of "outboxd run", NULL at the end; NULL: none */
  const char *stream;      /* of the checker; NULL: the default */
  int lanes_n;             /* 0: 16 */
  int64_t window_ms;       /* stop so long after the first entry; 0: when nothing is pending */
  int64_t first_id;        /* messages with a greater id count */
};

struct drain {
  int64_t messages_n;
  double rate;                                  /* messages a second */
  double relay_cpu_us, pg_cpu_us, redis_cpu_us; /* a message */
  double wal_bytes;                             /* a message */
  int64_t peak_kib;                             /* resident memory of the relay at most */
};

/* Runs a relay over what is pending, measures it, checks everything, notes it all in bench.json. */
struct drain bench_drain(struct bench *bench, const struct drain_spec *spec);

/* Waits until the streams of the default template hold entries_n entries; cheap for both servers.  Fails after timeout_ms. */
void bench_wait_entries(struct bench *bench, int64_t entries_n, int64_t timeout_ms);
int64_t bench_entries(struct bench *bench);

/* The rate of a backlog that appears at once, processes_n (1 to 4) relays with these further arguments (NULL: none) being up and sharing the
 * lanes; checked and noted. */
double bench_fleet(struct bench *bench, int processes_n, const char *const *args, int64_t messages_n);

/* Compares table and streams; options NULL: the defaults.  Adds to the counts of bench. */
void bench_check(struct bench *bench, const struct check_options *options);
/* The same for what was published so far, where a run was stopped before the table was empty. */
void bench_check_published(struct bench *bench, const struct check_options *options);
/* True when any check found anything. */
bool bench_is_violated(const struct bench *bench);

/* ---- what is measured: each adds its figures */

void bench_rates_main(struct bench *bench);      /* drains over the baselines, CPU, memory, WAL */
void bench_rates_plain(struct bench *bench);     /* the plain table */
void bench_dead_rows(struct bench *bench);       /* a held horizon */
void bench_many_pending(struct bench *bench);    /* 5 million */
void bench_shapes(struct bench *bench);          /* one aggregate has nine of ten; a stream for each aggregate */
void bench_refused_lane(struct bench *bench);    /* one lane's stream refuses */
void bench_waiting_retries(struct bench *bench); /* 50,000 aggregates wait */
void bench_two_processes(struct bench *bench);   /* two by two claimers */
void bench_real_events(struct bench *bench);     /* 7.7 KB */
void bench_latency(struct bench *bench);         /* commit to stream */
void bench_idle(struct bench *bench);            /* nothing to do */
void bench_large_payloads(struct bench *bench);  /* 1 MB each */
void bench_pgq(struct bench *bench);             /* beside a PgQ consumer */

/* ---- other programs of this directory */

void bench_sweep(struct bench *bench);
/* rate: messages a second; 0: half the drain rate, at most 15,000. */
void bench_soak(struct bench *bench, int64_t duration_ms, int rate);

#endif
