/*
 * Waiting with deadlines: see wait.h.
 */
#include "wait.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "db.h"

int64_t wait_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t wait_scaled_ms(int64_t ms) {
  const char *text = getenv("TEST_SLOW");
  double factor = text != NULL && text[0] != '\0' ? strtod(text, NULL) : 1.0;
  if (factor < 1.0) {
    factor = 1.0;
  }
  return (int64_t)((double)ms * factor);
}

static void pause_for(int64_t ms) {
  struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
  nanosleep(&span, NULL);
}

struct wait wait_begin(int64_t timeout_ms) {
  return (struct wait){.deadline_ms = wait_now_ms() + wait_scaled_ms(timeout_ms), .pause_ms = 1};
}

bool wait_next(struct wait *wait) {
  if (wait_now_ms() >= wait->deadline_ms) {
    return false;
  }
  pause_for(wait->pause_ms);
  if (wait->pause_ms < 20) {
    wait->pause_ms += 2;
  }
  return true;
}

void wait_out(int64_t ms) {
  int64_t end_ms = wait_now_ms() + ms;
  for (int64_t now_ms = wait_now_ms(); now_ms < end_ms; now_ms = wait_now_ms()) {
    pause_for(end_ms - now_ms);
  }
}

void wait_sql_int(PGconn *conn, int64_t expected, int64_t timeout_ms, const char *sql) {
  struct wait wait = wait_begin(timeout_ms);
  int64_t value;
  while ((value = db_int(conn, "%s", sql)) != expected) {
    if (!wait_next(&wait)) {
      FAIL("after %" PRId64 " ms: %s gives %" PRId64 ", not %" PRId64, wait_scaled_ms(timeout_ms), sql, value,
           expected);
    }
    wait.pause_ms = 50; /* the query may cost something */
  }
}

void wait_no_pending(PGconn *conn, const char *table, int max_attempts, int64_t timeout_ms) {
  struct wait wait = wait_begin(timeout_ms);
  while (
      db_int(
          conn,
          "SELECT count(*) FROM (SELECT 1 FROM %s WHERE published_at IS NULL AND coalesce(attempts, 0) < %d LIMIT 1) p",
          table, max_attempts) != 0) {
    if (!wait_next(&wait)) {
      FAIL("after %" PRId64 " ms %" PRId64 " messages of %s are still pending", wait_scaled_ms(timeout_ms),
           db_int(conn, "SELECT count(*) FROM %s WHERE published_at IS NULL AND coalesce(attempts, 0) < %d", table,
                  max_attempts),
           table);
    }
    wait.pause_ms = 50;
  }
}
