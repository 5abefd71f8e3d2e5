/*
 * What the command line and the environment said, checked and in base units.
 *
 * Filled once by options_parse before any thread starts, immutable from then on.
 */
#ifndef OUTBOXD_CFG_H
#define OUTBOXD_CFG_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/log.h"
#include "outboxd/option_parse.h"

enum cfg_command {
  CFG_RUN,
  CFG_INIT,
  CFG_CHECK,
  CFG_STATUS,
  CFG_DEAD,
  CFG_RETRY,
  CFG_DISCARD,
  CFG_REPLAY,
  CFG_HELP,
  CFG_VERSION
};
enum cfg_on_dead { CFG_ON_DEAD_SKIP, CFG_ON_DEAD_BLOCK };
enum cfg_format { CFG_FORMAT_FIELDS, CFG_FORMAT_CLOUDEVENTS };
enum cfg_payload { CFG_PAYLOAD_JSONB, CFG_PAYLOAD_JSON, CFG_PAYLOAD_TEXT };

struct cfg {
  enum cfg_command command;
  enum cfg_command help_for; /* with CFG_HELP: which command's options, CFG_HELP for the overview */

  char *database; /* libpq conninfo or URI; "" leaves everything to libpq's PG* variables; may hold a secret */
  char *redis;    /* URL; may hold a secret */
  char *table;    /* as given: may be schema-qualified and quoted */
  char *stream;   /* the stream name's template */

  int lanes_n;        /* 1..1024 */
  int claimers_n;     /* 1..64 */
  int publishers_n;   /* 1..64 */
  int batch_n;        /* messages, 1..100000 */
  int max_attempts_n; /* 1..32767 */
  enum cfg_on_dead on_dead;

  int64_t poll_interval_ms;
  int64_t stale_after_ms;
  int64_t stale_check_every_ms;
  int64_t alert_repeat_ms;
  int64_t retention_ms;
  int64_t processed_retention_ms; /* 0: processed_messages is left alone */
  int64_t partitions_ahead_ms;
  int64_t cleanup_every_ms;
  bool has_no_cleanup;
  int64_t max_batch_bytes;
  int64_t max_write_bytes;
  int wait_replicas_n;
  int64_t redis_timeout_ms;
  int64_t session_timeout_ms;
  int64_t shutdown_timeout_ms;
  int64_t stats_every_ms;
  char *metrics_file; /* "": none */
  bool is_until_empty;
  struct option_list ensure_groups; /* consumer groups that every stream has from its first entry on */
  enum cfg_format format;
  char *cloudevents_source; /* "": made of the table's name */
  char *trim;               /* "": nothing is trimmed; see outboxd/trim_rule.h */
  int64_t trim_keep_ms;
  int64_t trim_every_ms;
  int64_t stream_ttl_ms; /* 0: streams do not expire */

  enum log_level log_level;
  enum log_format log_format;

  bool is_init_plain;            /* init: the plain table instead of the partitioned one */
  bool is_init_notify;           /* init: the trigger that wakes the relays */
  bool is_init_print;            /* init: print the SQL, do nothing */
  enum cfg_payload payload_type; /* init: type of column payload of a new table */

  struct option_list ids; /* dead, retry, discard, replay: which messages; see outboxd/selector.h */
  struct option_list aggregates;
  struct option_list events;
  bool is_all;        /* retry, discard: every dead one; replay: every published one */
  bool is_dry_run;    /* retry, discard: list, change nothing; replay: count, publish nothing */
  char *reason;       /* discard: why; NULL: not said */
  bool is_discarded;  /* dead: the discarded ones instead */
  int limit_n;        /* dead: lines at most */
  int64_t watch_ms;   /* status: pause between two looks; 0: one look */
  int64_t max_age_ms; /* status: an older pending message is a failure; 0: none is */
  bool is_json;

  char *replay_stream; /* replay: the template of the streams it writes to */
  bool is_into_relay;  /* replay: these may be a relay's */
  char *from;          /* replay: times of created_at, as given; NULL: not said */
  char *to;
  char *after_id; /* replay: a number, as given; NULL: not said */
  int rate_n;     /* replay: messages a second; 0: as fast as it goes */
};

#endif
