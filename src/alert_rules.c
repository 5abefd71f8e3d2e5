/*
 * When an alert is said, said again and cleared; what the figures mean.
 *
 * Pure; any thread.
 */
#include "outboxd/alert_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTITIONS_MIN_US (2 * PARTITION_DAY_US)
#define FULL_PERCENT 90
#define NOT_FULL_PERCENT 85

/* -------------------------------------------------------------------------------------------------- one alert */

enum alert_say alert_state_step(struct alert_state *state, int severity, int64_t after_us, int64_t repeat_us,
                                int64_t now_us) {
  if (severity == 0) {
    bool was_raised = state->is_raised;
    state->is_on = false;
    state->is_raised = false;
    state->severity = 0;
    return was_raised ? ALERT_CLEAR : ALERT_QUIET;
  }
  if (!state->is_on) {
    state->is_on = true;
    state->since_us = now_us;
  }
  if (!state->is_raised && now_us - state->since_us < after_us) {
    return ALERT_QUIET;
  }
  enum alert_say say = ALERT_QUIET;
  if (!state->is_raised || severity > state->severity) {
    say = ALERT_RAISE;
  } else if (now_us - state->said_us >= repeat_us) {
    say = ALERT_REPEAT;
  }
  state->is_raised = true;
  state->severity = severity;
  if (say != ALERT_QUIET) {
    state->said_us = now_us;
  }
  return say;
}

void alert_state_unknown(struct alert_state *state) {
  if (!state->is_raised) {
    state->is_on = false;
  }
}

bool alert_state_is_pending(const struct alert_state *state) {
  return state->is_on && !state->is_raised;
}

/* -------------------------------------------------------------------------------------------------- figures */

int alert_lanes_missing(const bool *is_owned, int lanes_n, int64_t grace_us, int64_t now_us, int64_t *since_us,
                        int64_t *missing, bool *is_waiting) {
  int n = 0;
  *is_waiting = false;
  for (int lane = 0; lane < lanes_n; lane++) {
    if (is_owned[lane]) {
      since_us[lane] = 0;
      continue;
    }
    if (since_us[lane] == 0) {
      since_us[lane] = now_us;
    }
    if (now_us - since_us[lane] >= grace_us) {
      missing[n++] = lane;
    } else {
      *is_waiting = true;
    }
  }
  return n;
}

int64_t alert_covered_until_us(const struct partition_bounds *bounds, int n, int64_t now_us) {
  int64_t until_us = now_us;
  for (int i = 0; i < n; i++) {
    if (bounds[i].from_us <= until_us && bounds[i].to_us > until_us) {
      until_us = bounds[i].to_us;
    }
  }
  return until_us;
}

int64_t alert_partitions_min_us(int64_t partitions_ahead_ms) {
  int64_t half_us = partitions_ahead_ms * 1000 / 2;
  return half_us < PARTITIONS_MIN_US ? half_us : PARTITIONS_MIN_US;
}

/* The value behind "name:" at the beginning of a line; NULL when there is none. */
static const char *value_of(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + (strchr(line, '\n') != NULL)) {
    if (strncmp(line, name, n) == 0 && line[n] == ':') {
      return line + n + 1;
    }
  }
  return NULL;
}

bool alert_read_info(const char *text, const char *name, char *out, size_t n) {
  const char *value = value_of(text, name);
  if (value == NULL) {
    return false;
  }
  (void)snprintf(out, n, "%.*s", (int)strcspn(value, "\r\n"), value);
  return true;
}

bool alert_read_memory(const char *text, struct alert_memory *memory) {
  const char *used = value_of(text, "used_memory");
  const char *max = value_of(text, "maxmemory");
  const char *policy = value_of(text, "maxmemory_policy");
  if (used == NULL || max == NULL || policy == NULL) {
    return false;
  }
  memory->used_bytes = strtoll(used, NULL, 10);
  memory->max_bytes = strtoll(max, NULL, 10);
  (void)snprintf(memory->policy, sizeof memory->policy, "%.*s", (int)strcspn(policy, "\r\n"), policy);
  return true;
}

bool alert_may_evict(const struct alert_memory *memory) {
  return memory->max_bytes > 0 && strncmp(memory->policy, "allkeys-", strlen("allkeys-")) == 0;
}

bool alert_is_nearly_full(const struct alert_memory *memory, bool was_full) {
  double percent = was_full ? NOT_FULL_PERCENT : FULL_PERCENT;
  return memory->max_bytes > 0 && (double)memory->used_bytes * 100 > (double)memory->max_bytes * percent;
}
