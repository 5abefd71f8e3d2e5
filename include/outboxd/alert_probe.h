/*
 * What the alert thread looks at: the table, the fleet's locks, the partitions, the transactions, Redis.
 *
 * Belongs to the alert's thread; blocks, for at most some seconds a question, and ends early at the stop token.
 * Never: writes anything, keeps a transaction open, logs, decides what is worth an alert.
 */
#ifndef OUTBOXD_ALERT_PROBE_H
#define OUTBOXD_ALERT_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/alert_rules.h"
#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/stop.h"
#include "outboxd/table.h"
#include "outboxd/url.h"

/* 200 characters of UTF-8 (sql/alert_oldest.sql), or a name. */
#define ALERT_TEXT_BYTES 804

/* One part of a look.  A part that fails leaves the others alone, unless the connection is gone. */
enum alert_part {
  ALERT_PART_OLDEST,
  ALERT_PART_COUNTS,
  ALERT_PART_LANES,
  ALERT_PART_PARTITIONS,
  ALERT_PART_DEFAULT,
  ALERT_PART_TRANSACTIONS,
  ALERT_PART_REDIS_MEMORY
};
#define ALERT_PARTS_N 7

enum alert_seen {
  ALERT_NOT_SEEN, /* not asked: there is nothing to ask, or no connection */
  ALERT_SEEN,
  ALERT_FAILED /* refused or given up; errs[part] says why */
};

/* What one look saw.  The figures of a part count when it is ALERT_SEEN. */
struct alert_view {
  bool is_postgres_up;
  struct err postgres_err;
  char role[ALERT_TEXT_BYTES]; /* ours, quoted; "" before the first connection */
  bool is_redis_up;
  struct err redis_err;
  enum alert_seen seen[ALERT_PARTS_N];
  struct err errs[ALERT_PARTS_N];

  /* ALERT_PART_OLDEST */
  bool is_pending;   /* a message is; the rest is about the oldest one */
  int64_t oldest_us; /* its age; 0 when it has no created_at */
  int64_t oldest_id;
  int attempts;
  bool is_dead;
  int lane;
  char aggregate_type[ALERT_TEXT_BYTES];
  char aggregate_id[ALERT_TEXT_BYTES];
  char event_type[ALERT_TEXT_BYTES];

  /* ALERT_PART_COUNTS */
  int64_t pending_n;
  int64_t dead_n;
  bool is_at_least; /* there are more than were counted */
  int64_t first_dead_id;
  bool is_waiting;    /* a message is pending that is not dead */
  int64_t waiting_us; /* the oldest such one's age */

  /* ALERT_PART_LANES */
  const bool *is_owned; /* per lane; the probe's */
  int members_n;

  /* ALERT_PART_PARTITIONS */
  int64_t covered_us; /* how far ahead of now there is a partition for every moment */

  /* ALERT_PART_DEFAULT */
  char default_name[ALERT_TEXT_BYTES];
  int64_t default_rows_n; /* up to 1,001 */

  /* ALERT_PART_TRANSACTIONS */
  bool sees_all;          /* also other roles' */
  int64_t transaction_us; /* age of the oldest; 0: there is none */
  int transaction_pid;    /* 0: a prepared one */
  char transaction_role[ALERT_TEXT_BYTES];
  char transaction_name[ALERT_TEXT_BYTES]; /* application_name, or the prepared transaction's gid */
  char transaction_state[32];

  /* ALERT_PART_REDIS_MEMORY */
  struct alert_memory memory;
};

struct alert_probe;

/* cfg, url and stop are borrowed for the probe's life, table for the call.  url may be NULL: then Redis is not looked at.  stop may be NULL.  Caller:
 * alert_probe_free. */
must_check int alert_probe_new(const struct cfg *cfg, const struct url *url, const struct table *table,
                               const struct stop *stop, struct alert_probe **out, struct err *err);
void alert_probe_free(struct alert_probe *probe);

/* Connects where there is no connection, one attempt each, and looks at everything.  Counting is what costs (as much as there are pending messages, up
 * to 100,000): it is done only when the oldest message is older than count_from_us, or when that is 0.  When *stop was set meanwhile the view means
 * nothing. */
void alert_probe_look(struct alert_probe *probe, int64_t count_from_us, struct alert_view *view);

/* "oldest", "counts", ... for logs. */
const char *alert_part_name(enum alert_part part);

#endif
