/*
 * What a consumer was told, checked and in base units, and the table of options it comes from: those of outbox_consumer_set and of
 * outbox-consume.
 *
 * Filled before any thread starts, immutable from then on.
 */
#ifndef OUTBOXD_CONSUME_CFG_H
#define OUTBOXD_CONSUME_CFG_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/log.h"
#include "outboxd/option_parse.h"

enum consume_on_parked { CONSUME_ON_PARKED_SKIP, CONSUME_ON_PARKED_BLOCK };

/* What takes an option: a consumer of the library, the program, or both. */
enum { CONSUME_LIBRARY, CONSUME_PROGRAM };

struct consume_cfg {
  char *database; /* libpq conninfo or URI; may hold a secret */
  char *redis;    /* URL; may hold a secret */
  char *stream;   /* the stream name's template */
  char *group;    /* NULL: not said */
  char *processed_table;
  int lanes_n;        /* 1..1024 */
  int threads_n;      /* 1..64 */
  int batch_n;        /* entries, 1..10000 */
  int max_attempts_n; /* 1..32767 */
  int64_t retry_first_ms;
  int64_t retry_max_ms;
  enum consume_on_parked on_parked;
  int max_waiting_n; /* messages a lane */
  int64_t poll_interval_ms;
  int64_t redis_timeout_ms;
  int64_t session_timeout_ms;
  int64_t shutdown_timeout_ms;
  int64_t stats_every_ms;

  /* The program's own. */
  char *exec; /* NULL: none */
  int64_t handler_timeout_ms;
  bool is_print;
  bool is_ack;
  int limit_n; /* 0: none */
  enum log_level log_level;
  enum log_format log_format;
};

const struct option_program *consume_program(void);

/* What no single option can tell: a group, times that fit together.  ERR_USAGE. */
must_check int consume_check(const struct consume_cfg *cfg, struct err *err);

#endif
