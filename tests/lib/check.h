/*
 * The checker: does what the streams hold follow from what the table holds?
 *
 * Reads the whole table (COPY) and all streams of the template (SCAN, XRANGE in pages) and reports every kind of disagreement with its
 * first offending messages.  It shares no code with the relay on purpose: names of streams, lanes and times are worked out anew, so that a
 * mistake there cannot hide itself here.  Memory: about 250 bytes a message; payloads are hashed as they pass.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "stack.h"

enum check_kind {
  CHECK_LOST,         /* marked published, but in no stream */
  CHECK_DUPLICATE,    /* more than once over all streams */
  CHECK_OUT_OF_ORDER, /* for one aggregate, first appearances in its stream are not in id order */
  CHECK_PHANTOM,      /* in a stream, but no such committed row, or one that was discarded */
  CHECK_FIELDS,       /* names or order of the fields, or the value of one, differ from the row */
  CHECK_WRONG_STREAM  /* in another stream than the template says */
};
#define CHECK_KINDS_N 6

#define CHECK_FIRST_N 10
#define CHECK_TEXT_BYTES 400

struct check_options {
  const char *conninfo;
  const char *redis_url;
  const char *table;      /* NULL: outbox_messages */
  const char *stream;     /* the template; NULL: outbox:{%l} */
  int lanes_n;            /* 0: 16 */
  int max_attempts;       /* from here on a pending message is dead; 0: 10 */
  int64_t expect_pending; /* messages that may still be pending: exactly so many; -1: any number */
  bool is_dead_ok;        /* dead messages are no fault */
};

struct check_report {
  int64_t rows_n, published_n, pending_n, dead_n;
  int64_t discarded_n; /* given up by `outboxd discard`: marked published, in no stream */
  int64_t
      pending_in_stream_n; /* written but not yet marked: what a crash leaves behind; no fault, the relay settles them */
  int64_t aggregates_n;
  int64_t streams_n, entries_n;
  int64_t found_n[CHECK_KINDS_N];
  char first[CHECK_KINDS_N][CHECK_FIRST_N][CHECK_TEXT_BYTES]; /* the first few of each kind, in words */
  bool is_pending_wrong, is_dead_wrong;                       /* against the options */
  double seconds;
};

/* Checks; fills *report.  True when nothing is wrong.  When it cannot read one of the two it ends by fail_now.  The relay may run, but then
 * what it writes meanwhile counts as it happens to be seen. */
bool check_run(const struct check_options *options, struct check_report *report);

/* For people: counts, then the first offenders, then the verdict. */
void check_print(const struct check_options *options, const struct check_report *report, FILE *out);
/* One JSON object on one line. */
void check_print_json(const struct check_report *report, FILE *out);

/* "lost", "out of order", ... */
const char *check_kind_name(enum check_kind kind);

/* Test helper: checks the stack's database and Redis, prints the report and fails the test when anything is wrong. */
struct check_report check_require_good(const struct stack *stack, const struct check_options *options);

#endif
