/*
 * The checker's frame: see check.h.
 */
#include "check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check_impl.h"
#include "fail.h"
#include "wait.h"

void check_note(struct check *check, enum check_kind kind, const char *fmt, ...) {
  int64_t n = check->report->found_n[kind]++;
  va_list args;

  if (n >= CHECK_FIRST_N) {
    return;
  }
  va_start(args, fmt);
  vsnprintf(check->report->first[kind][n], CHECK_TEXT_BYTES, fmt, args);
  va_end(args);
}

/* Folds 8 bytes at a time with the 128-bit product, as wyhash does. */
uint64_t check_hash(const char *v, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15U ^ bytes;

  for (; bytes > 0; v += 8, bytes -= 8) {
    uint64_t word = 0;
    memcpy(&word, v, bytes < 8 ? bytes : 8);
    __extension__ unsigned __int128 product = (unsigned __int128)(hash ^ word) * 0xd6e8feb86659fd93U;
    hash = (uint64_t)product ^ (uint64_t)(product >> 64) ^ 0xa0761d6478bd642fU;
    if (bytes < 8) {
      break;
    }
  }
  return hash;
}

struct check_stream *check_stream_of(struct check *check, const char *name, size_t bytes) {
  struct check_stream *stream;

  HASH_FIND(hh, check->streams, name, bytes, stream);
  if (stream != NULL) {
    return stream;
  }
  stream = calloc(1, sizeof *stream + bytes + 1);
  if (stream == NULL) {
    FAIL("out of memory");
  }
  memcpy(stream->name, name, bytes);
  stream->name_bytes = bytes;
  stream->number = (int)HASH_COUNT(check->streams) + 1;
  HASH_ADD_KEYPTR(hh, check->streams, stream->name, bytes, stream);
  return stream;
}

/* Deleting one by one would cost more than all the rest: the tables go first, then the chain of what was in them. */
#define FREE_CHAIN(type, head)      \
  do {                              \
    type *item_ = (head);           \
    HASH_CLEAR(hh, head);           \
    while (item_ != NULL) {         \
      type *next_ = item_->hh.next; \
      free(item_);                  \
      item_ = next_;                \
    }                               \
  } while (0)

static void free_all(struct check *check) {
  FREE_CHAIN(struct check_row, check->rows);
  FREE_CHAIN(struct check_aggregate, check->aggregates);
  FREE_CHAIN(struct check_stream, check->streams);
}

bool check_run(const struct check_options *options, struct check_report *report) {
  struct check_options filled = *options;
  struct check check = {.options = &filled, .report = report};
  int64_t started_ms = wait_now_ms();
  bool is_good;

  if (filled.table == NULL) {
    filled.table = "outbox_messages";
  }
  if (filled.stream == NULL) {
    filled.stream = "outbox:{%l}";
  }
  if (filled.lanes_n == 0) {
    filled.lanes_n = 16;
  }
  if (filled.max_attempts == 0) {
    filled.max_attempts = 10;
  }
  memset(report, 0, sizeof *report);
  check_read_table(&check);
  report->aggregates_n = HASH_COUNT(check.aggregates);
  check_read_streams(&check);
  free_all(&check);

  report->is_pending_wrong = filled.expect_pending >= 0 && report->pending_n != filled.expect_pending;
  report->is_dead_wrong = !filled.is_dead_ok && report->dead_n > 0;
  report->seconds = (double)(wait_now_ms() - started_ms) / 1000;
  is_good = !report->is_pending_wrong && !report->is_dead_wrong;
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    is_good = is_good && report->found_n[kind] == 0;
  }
  return is_good;
}

struct check_report check_require_good(const struct stack *stack, const struct check_options *options) {
  struct check_options filled = options != NULL ? *options : (struct check_options){0};
  struct check_report report;
  bool is_good;

  if (filled.conninfo == NULL) {
    filled.conninfo = stack->conninfo;
  }
  if (filled.redis_url == NULL) {
    filled.redis_url = stack->redis_url;
  }
  is_good = check_run(&filled, &report);
  check_print(&filled, &report, stdout);
  REQUIRE(is_good, "the checker found something wrong: see above");
  return report;
}
