/*
 * Waiting for something to become true, with a deadline: the only way a test waits.
 *
 * Deadlines are generous and grow with $TEST_SLOW (a factor, for sanitizer builds and busy machines).
 */
#ifndef TEST_WAIT_H
#define TEST_WAIT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "fail.h"

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t wait_now_ms(void);

/* ms times $TEST_SLOW. */
int64_t wait_scaled_ms(int64_t ms);

struct wait {
  int64_t deadline_ms;
  int64_t pause_ms; /* grows from 1 to 20 */
};

/* timeout_ms is scaled. */
struct wait wait_begin(int64_t timeout_ms);

/* Pauses a little and returns true, or returns false once the deadline has passed. */
bool wait_next(struct wait *wait);

/* Evaluates cond until it holds; fails the test with the message when it does not within timeout_ms (scaled). */
#define WAIT_FOR(timeout_ms, cond, ...)         \
  do {                                          \
    struct wait wait_ = wait_begin(timeout_ms); \
    while (!(cond)) {                           \
      if (!wait_next(&wait_))                   \
        FAIL(__VA_ARGS__);                      \
    }                                           \
  } while (0)

/* Until the query's single value is expected. */
void wait_sql_int(PGconn *conn, int64_t expected, int64_t timeout_ms, const char *sql);

/* Until no row of table is pending (published_at null), dead ones (attempts >= max_attempts) aside. */
void wait_no_pending(PGconn *conn, const char *table, int max_attempts, int64_t timeout_ms);

/* Lets ms pass, whatever $TEST_SLOW says: it has to fit options that are not scaled.  For tests that show that something does not happen
 * meanwhile, never to synchronise. */
void wait_out(int64_t ms);

#endif
