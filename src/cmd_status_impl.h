/*
 * The inside of `outboxd status`: the command (cmd_status.c), what PostgreSQL knows (cmd_status_postgres.c), what Redis knows (cmd_status_redis.c), how
 * it is told (cmd_status_print.c, which knows neither).
 *
 * Main thread, no other exists.
 */
#ifndef OUTBOXD_CMD_STATUS_IMPL_H
#define OUTBOXD_CMD_STATUS_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/redis.h"
#include "outboxd/schema.h"
#include "outboxd/stop.h"
#include "outboxd/template.h"
#include "outboxd/url.h"

#define STATUS_COUNTED_MAX 100000          /* sql/status_pending.sql */
#define STATUS_PARTITION_COUNTED_MAX 10000 /* sql/status_partition.sql */
#define STATUS_NEWEST_N 200                /* entries of a stream that are looked at for the rate */
#define STATUS_MINUTE_MS 60000
#define STATUS_NAME_BYTES 128
#define STATUS_NOT_KNOWN INT64_C(-1)

/* A consumer group of a lane's stream. */
struct status_group {
  int lane;
  char name[STATUS_NAME_BYTES]; /* cut to size */
  int64_t consumers_n;
  int64_t unacked_n;
  int64_t lag_n; /* entries not delivered yet; STATUS_NOT_KNOWN */
};

struct status_lane {
  int64_t pending_n; /* dead ones included */
  int64_t dead_n;
  int64_t oldest_us; /* age of the one that waits longest, dead ones aside; STATUS_NOT_KNOWN: none waits */
  int64_t oldest_id;
  int64_t oldest_dead_us;

  bool is_owned;
  int owner_pid;
  bool is_owner_hidden;               /* PostgreSQL does not show us where it is */
  char owner_host[STATUS_NAME_BYTES]; /* "": a unix socket, or hidden */
  char owner_application[STATUS_NAME_BYTES];
  int64_t owner_us; /* age of its session */

  bool is_stream_seen;
  char key_type[16]; /* "none", "stream", or what is in its way */
  int64_t length_n;
  int64_t minute_n; /* added within the last minute, as far as looked at */
  bool is_minute_estimated;
  bool is_minute_at_least;
};

struct status_partition {
  char name[STATUS_NAME_BYTES];
  int64_t bytes;
  int64_t pending_n; /* dead ones included; STATUS_NOT_KNOWN */
  int64_t dead_n;
};

/* What one look saw. */
struct status {
  bool is_postgres_seen; /* all of it */
  struct err postgres_err;
  bool is_pending_seen, is_owners_seen, is_partitions_seen;
  bool is_pending_at_least; /* there are more than were counted */
  bool is_partitioned;
  int lanes_n;
  struct status_lane *lanes;
  int partitions_n;
  struct status_partition *partitions;
  int64_t oldest_us; /* over all lanes; STATUS_NOT_KNOWN: none waits */
  int64_t oldest_id;

  bool is_redis_seen;
  struct err redis_err;
  bool is_per_lane;         /* a lane has one stream */
  int64_t recorded_lanes_n; /* --lanes of the fleet as it is recorded; 0: nothing is */
  int groups_n;
  struct status_group *groups;
};

/* What looks. */
struct status_look {
  const struct cfg *cfg;
  const struct stop *stop;
  struct schema_name name;
  struct schema_relation table;
  bool is_found; /* table is filled */
  struct pg *pg;
  struct url url;
  struct template *template;
  struct redis *redis;
  struct redis_pipeline *pipeline;
};

must_check int status_new(int lanes_n, struct status *status, struct err *err);
void status_fini(struct status *status);

/* Fills PostgreSQL's half; what goes wrong is in status->postgres_err.  ERR_FATAL only where the table is none.  is_quick: the oldest message only. */
must_check int status_look_postgres(struct status_look *look, bool is_quick, struct status *status, struct err *err);
/* Fills Redis' half; what goes wrong is in status->redis_err. */
void status_look_redis(struct status_look *look, struct status *status);

/* A group's lag where Redis (before 7) does not tell it: 0 when it has been given the stream's last entry, else not known. */
int64_t status_lag(int64_t told_n, const char *last_delivered, const char *last_id);

/* Messages a minute from a stream's newest entries: minute_n of looked_n are less than a minute old, the oldest of them oldest_ms.  Sets the lane's
 * figures. */
void status_rate(struct status_lane *lane, int64_t minute_n, int64_t looked_n, int64_t oldest_ms, int64_t added_n);

void status_print(const struct status *status, const struct cfg *cfg, FILE *out);
must_check int status_print_json(const struct status *status, const struct cfg *cfg, FILE *out, struct err *err);
/* Is a message older than --max-age? */
bool status_is_too_old(const struct status *status, const struct cfg *cfg);
/* The line of --max-age. */
void status_print_age(const struct status *status, const struct cfg *cfg, FILE *out);

#endif
