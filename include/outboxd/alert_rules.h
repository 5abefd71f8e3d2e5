/*
 * When an alert is said, said again and cleared, and what the figures it is about mean.
 *
 * Pure: no clock, no I/O; any thread.
 */
#ifndef OUTBOXD_ALERT_RULES_H
#define OUTBOXD_ALERT_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/partition.h"

/* -------------------------------------------------------------------------------------------------- one alert */

enum alert_say {
  ALERT_QUIET,  /* nothing to log */
  ALERT_RAISE,  /* it has just begun, or become more severe */
  ALERT_REPEAT, /* it lasts */
  ALERT_CLEAR   /* it is over */
};

/* One condition over time; zero-initialised.  A struct belongs to one thread. */
struct alert_state {
  bool is_on;       /* the condition held when it was looked at last */
  bool is_raised;   /* and has been logged */
  int severity;     /* as logged */
  int64_t since_us; /* is_on: from when */
  int64_t said_us;  /* is_raised: when it was logged last */
};

/* Enters what was seen at now_us: severity 0 is fine, anything above is not, and more is worse.  Raises once it has lasted after_us, repeats
 * every repeat_us (INT64_MAX: never; 0: each time).  After ALERT_CLEAR since_us still tells when it had begun. */
enum alert_say alert_state_step(struct alert_state *state, int severity, int64_t after_us, int64_t repeat_us,
                                int64_t now_us);

/* It could not be looked at: what is raised stays so, a condition that has not lasted long enough yet begins anew. */
void alert_state_unknown(struct alert_state *state);

/* True while the condition holds but has not lasted long enough. */
bool alert_state_is_pending(const struct alert_state *state);

/* -------------------------------------------------------------------------------------------------- figures */

/* Which lanes have had no owner for longer than grace_us: their numbers to missing[] (lanes_n at most), their count is returned.  since_us[] is the
 * memory from look to look (0: had an owner), is_waiting[0] gets whether a lane is within its grace. */
int alert_lanes_missing(const bool *is_owned, int lanes_n, int64_t grace_us, int64_t now_us, int64_t *since_us,
                        int64_t *missing, bool *is_waiting);

/* Until when there is a partition for every moment from now_us on; now_us when there is none for now.  bounds are sorted. */
int64_t alert_covered_until_us(const struct partition_bounds *bounds, int n, int64_t now_us);

/* How little may be left of the partitions ahead: two days, or half of what the cleanup thread is told to keep when that is less. */
int64_t alert_partitions_min_us(int64_t partitions_ahead_ms);

#define ALERT_PENDING_MAX 100000 /* pending messages are counted up to here: sql/alert_counts.sql */

/* What INFO memory says. */
struct alert_memory {
  int64_t used_bytes;
  int64_t max_bytes; /* 0: no limit */
  char policy[32];
};

/* The value of a figure ("role") in the text of an INFO reply, cut to n bytes; false when it is missing. */
bool alert_read_info(const char *text, const char *name, char *out, size_t n);

/* Reads the reply's text; false when a figure is missing. */
bool alert_read_memory(const char *text, struct alert_memory *memory);

/* May Redis throw streams away for want of memory?  The volatile-* policies take keys with a time to live only, and streams have none. */
bool alert_may_evict(const struct alert_memory *memory);

/* Is Redis nearly full (90 % of its limit)?  was_full: it was, and is until it falls below 85 %. */
bool alert_is_nearly_full(const struct alert_memory *memory, bool was_full);

#endif
