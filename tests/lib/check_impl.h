/*
 * What the parts of the checker share: check.c, check_table.c, check_streams.c, check_report.c.  Nobody else includes this.
 */
#ifndef TEST_CHECK_IMPL_H
#define TEST_CHECK_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "check.h"

/* Fields of an entry after message_id, in their order. */
enum check_field { FIELD_TYPE, FIELD_ID, FIELD_EVENT, FIELD_PAYLOAD, FIELD_CREATED_AT, FIELD_HEADERS };
#define CHECK_FIELDS_N 6

enum check_row_state { ROW_PENDING, ROW_PUBLISHED, ROW_DEAD, ROW_DISCARDED };

struct check_stream {
  UT_hash_handle hh;        /* in check.streams by name */
  int number;               /* in order of appearance, from 1 */
  bool is_there;            /* Redis has it */
  size_t largest_row_bytes; /* of the rows that belong here: how large a page may get */
  size_t name_bytes;
  char name[];
};

struct check_aggregate {
  UT_hash_handle hh; /* in check.aggregates by its key: type bytes, NUL, id bytes */
  int stream_number; /* that last_id belongs to */
  int64_t last_id;
};

struct check_row {
  UT_hash_handle hh; /* in check.rows by message_id */
  int64_t id;
  struct check_aggregate *aggregate;
  struct check_stream *stream; /* where it belongs */
  uint64_t hashes[CHECK_FIELDS_N];
  int64_t seen_n;
  enum check_row_state state;
  size_t message_id_bytes;
  char message_id[];
};

struct check {
  const struct check_options *options; /* defaults filled in */
  struct check_report *report;
  bool has_headers;
  struct check_row *rows;
  struct check_aggregate *aggregates;
  struct check_stream *streams;
};

/* A string that need not end with NUL. */
struct check_text {
  const char *v;
  size_t bytes;
};

/* Counts one finding and keeps its words when it is among the first of its kind. */
void check_note(struct check *check, enum check_kind kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* 64 bits over bytes; for telling apart, not for secrecy. */
uint64_t check_hash(const char *v, size_t bytes);

/* The stream of this name, made when it is new. */
struct check_stream *check_stream_of(struct check *check, const char *name, size_t bytes);

/* Reads all rows. */
void check_read_table(struct check *check);
/* Reads all streams, judging each entry; then what is missing. */
void check_read_streams(struct check *check);

#endif
