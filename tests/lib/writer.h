/*
 * A load of real transactions: N threads, each with its own session, write messages over K aggregates; some transactions roll back.
 *
 * An aggregate belongs to one thread (number modulo N), so that for each aggregate commit order is id order: the order a relay can keep.
 * Every third aggregate shares its id with two others of another type.  Threads never fail the test: what went wrong is kept until
 * writer_wait.  All functions: main thread.
 */
#ifndef TEST_WRITER_H
#define TEST_WRITER_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct writer;

struct writer_options {
  const char *conninfo;
  const char *table;
  int threads_n;           /* 1..64; 0: 8 */
  int64_t messages_n;      /* to be committed, over all threads; 0: until writer_stop */
  int aggregates_n;        /* 0: 1000 */
  int per_transaction_max; /* messages in a transaction: 1..this; 0: 10 */
  int rollback_percent;    /* share of transactions that roll back, on top of messages_n */
  int payload_min_bytes;   /* of the padding; 0 */
  int payload_max_bytes;   /* 0: 400 */
  int rate;                /* messages a second over all threads; 0: as fast as it goes */
  uint64_t seed;
  bool can_reconnect; /* a lost session is opened again (for up to 60 s, scaled) instead of ending the load */
};

struct writer_result {
  int64_t committed_n;   /* messages whose COMMIT was acknowledged */
  int64_t rolled_back_n; /* messages that must never appear */
  int64_t in_doubt_n;    /* messages of transactions whose COMMIT was under way when the session was lost */
  double seconds;
};

/* Starts the load; returns at once. */
struct writer *writer_start(const struct writer_options *options);

/* Messages committed so far. */
int64_t writer_committed(const struct writer *writer);

/* Tells the threads to end after the transaction they are in. */
void writer_stop(struct writer *writer);

/* Waits for the end; fails the test on the first error of a thread, or after timeout_ms (scaled). */
struct writer_result writer_wait(struct writer *writer, int64_t timeout_ms);

/* After writer_wait: the table holds every committed message and none that was rolled back.  Fails the test otherwise. */
void writer_verify(const struct writer *writer, PGconn *conn);

/* Stops and frees all that a test has left: at its end. */
void writer_end_all(void);

#endif
