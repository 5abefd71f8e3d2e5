/*
 * `outboxd status`, how it is told: at 80 columns, and as JSON.
 *
 * Owns nothing.  Knows neither server; main thread.
 */
#include <jansson.h>
#include <string.h>

#include "cmd_status_impl.h"
#include "outboxd/say.h"
#include "outboxd/units.h"

#define SHOWN_NAME_BYTES 60

/* "100,000+" */
static const char *count_text(int64_t n, bool is_at_least, char out[SAY_BYTES + 2]) {
  char count[SAY_BYTES];
  (void)snprintf(out, SAY_BYTES + 2, "%s%s", say_count(n, count), is_at_least ? "+" : "");
  return out;
}

static int64_t total(const struct status *status, bool is_dead) {
  int64_t n = 0;
  for (int i = 0; i < status->lanes_n; i++) {
    n += is_dead ? status->lanes[i].dead_n : status->lanes[i].pending_n;
  }
  return !is_dead && status->is_pending_at_least ? STATUS_COUNTED_MAX : n;
}

static int64_t oldest_dead_us(const struct status *status) {
  int64_t us = STATUS_NOT_KNOWN;
  for (int i = 0; i < status->lanes_n; i++) {
    us = status->lanes[i].oldest_dead_us > us ? status->lanes[i].oldest_dead_us : us;
  }
  return us;
}

bool status_is_too_old(const struct status *status, const struct cfg *cfg) {
  return cfg->max_age_ms > 0 && status->oldest_us > cfg->max_age_ms * 1000;
}

void status_print_age(const struct status *status, const struct cfg *cfg, FILE *out) {
  char age[SAY_BYTES];
  char limit[SAY_BYTES];
  units_format_duration(cfg->max_age_ms, limit, sizeof limit);
  if (status->oldest_us == STATUS_NOT_KNOWN && !status->is_postgres_seen) {
    (void)fprintf(out, "not known: %s\n", status->postgres_err.text);
  } else if (status->oldest_us == STATUS_NOT_KNOWN) {
    (void)fprintf(out, "ok: nothing waits\n");
  } else if (status_is_too_old(status, cfg)) {
    (void)fprintf(out, "too old: message %lld has waited for %s, longer than --max-age %s\n",
                  (long long)status->oldest_id, say_age(status->oldest_us, age), limit);
  } else {
    (void)fprintf(out, "ok: the oldest message has waited for %s, --max-age is %s\n", say_age(status->oldest_us, age),
                  limit);
  }
}

/* -------------------------------------------------------------------------------------------------- for people */

static void print_pending(const struct status *status, int max_attempts_n, FILE *out) {
  char a[SAY_BYTES + 2];
  char b[SAY_BYTES];
  if (!status->is_pending_seen) {
    (void)fprintf(out, "pending    not known\n");
    return;
  }
  (void)fprintf(out, "pending    %s\n", count_text(total(status, false), status->is_pending_at_least, a));
  if (status->oldest_us == STATUS_NOT_KNOWN) {
    (void)fprintf(out, "oldest     nothing waits\n");
  } else {
    (void)fprintf(out, "oldest     %s (id %lld)\n", say_age(status->oldest_us, b), (long long)status->oldest_id);
  }
  (void)fprintf(out, "dead       %s", count_text(total(status, true), status->is_pending_at_least, a));
  if (oldest_dead_us(status) != STATUS_NOT_KNOWN) {
    (void)fprintf(out, ", the oldest %s old: outboxd dead --max-attempts %d", say_age(oldest_dead_us(status), b),
                  max_attempts_n);
  }
  (void)fputc('\n', out);
}

static int64_t minute(const struct status *status, bool *is_estimated, bool *is_at_least) {
  int64_t n = 0;
  *is_estimated = false;
  *is_at_least = false;
  for (int i = 0; i < status->lanes_n; i++) {
    n += status->lanes[i].minute_n;
    *is_estimated = *is_estimated || status->lanes[i].is_minute_estimated;
    *is_at_least = *is_at_least || status->lanes[i].is_minute_at_least;
  }
  return n;
}

static void print_published(const struct status *status, FILE *out) {
  char a[SAY_BYTES];
  bool is_estimated = false;
  bool is_at_least = false;
  if (!status->is_redis_seen) {
    (void)fprintf(out, "published  not known\n");
  } else if (!status->is_per_lane) {
    (void)fprintf(out, "published  not known: streams that are not one for each lane are not looked at\n");
  } else {
    int64_t n = minute(status, &is_estimated, &is_at_least);
    (void)fprintf(out, "published  %s%s in the last minute\n",
                  is_estimated  ? "about "
                  : is_at_least ? "at least "
                                : "",
                  say_count(n, a));
  }
}

static bool is_same_owner(const struct status_lane *a, const struct status_lane *b) {
  return a->is_owned && b->is_owned && a->owner_pid == b->owner_pid;
}

/* Owners are numbered by their first lane; 0: none. */
static int owner_number(const struct status *status, int lane) {
  int number = 0;
  if (!status->lanes[lane].is_owned) {
    return 0;
  }
  for (int i = 0; i <= lane; i++) {
    bool is_first = status->lanes[i].is_owned;
    for (int k = 0; k < i && is_first; k++) {
      is_first = !is_same_owner(&status->lanes[k], &status->lanes[i]);
    }
    number += is_first;
    if (is_same_owner(&status->lanes[i], &status->lanes[lane])) {
      return number;
    }
  }
  return number;
}

static const char *stream_text(const struct status *status, const struct status_lane *lane, char out[SAY_BYTES]) {
  if (!status->is_redis_seen || !lane->is_stream_seen) {
    return "-";
  }
  if (strcmp(lane->key_type, "none") == 0) {
    return "none yet";
  }
  if (strcmp(lane->key_type, "stream") != 0) {
    (void)snprintf(out, SAY_BYTES, "a %s!", lane->key_type);
    return out;
  }
  return say_count(lane->length_n, out);
}

static void print_lanes(const struct status *status, FILE *out) {
  (void)fprintf(out, "\n%5s %10s %10s %12s %14s  %s\n", "lane", "pending", "dead", "oldest", "stream length", "owner");
  for (int i = 0; i < status->lanes_n; i++) {
    const struct status_lane *lane = &status->lanes[i];
    char pending[SAY_BYTES] = "-";
    char dead[SAY_BYTES] = "-";
    char age[SAY_BYTES] = "-";
    char stream[SAY_BYTES];
    char owner[SAY_BYTES] = "-";
    if (status->is_pending_seen) {
      (void)say_count(lane->pending_n, pending);
      (void)say_count(lane->dead_n, dead);
    }
    if (lane->oldest_us != STATUS_NOT_KNOWN) {
      (void)say_age(lane->oldest_us, age);
    }
    if (status->is_owners_seen) {
      (void)snprintf(owner, sizeof owner, lane->is_owned ? "#%d" : "none", owner_number(status, i));
    }
    (void)fprintf(out, "%5d %10s %10s %12s %14s  %s\n", i, pending, dead, age, stream_text(status, lane, stream),
                  owner);
  }
}

static void print_owners(const struct status *status, FILE *out) {
  int shown_n = 0;
  bool is_hidden = false;
  for (int i = 0; i < status->lanes_n; i++) {
    const struct status_lane *lane = &status->lanes[i];
    int lanes_n = 0;
    if (owner_number(status, i) <= shown_n) {
      continue;
    }
    for (int k = i; k < status->lanes_n; k++) {
      lanes_n += is_same_owner(lane, &status->lanes[k]);
    }
    shown_n++;
    (void)fprintf(out, "%s#%d  ", shown_n == 1 ? "\n" : "", shown_n);
    say_clean(out,
              lane->is_owner_hidden         ? "host not shown"
              : lane->owner_host[0] == '\0' ? "unix socket"
                                            : lane->owner_host,
              SHOWN_NAME_BYTES);
    (void)fprintf(out, ", server process %d, ", lane->owner_pid);
    say_clean(out, lane->owner_application, SHOWN_NAME_BYTES);
    (void)fprintf(out, ", %d %s", lanes_n, lanes_n == 1 ? "lane" : "lanes");
    if (lane->owner_us != STATUS_NOT_KNOWN && !lane->is_owner_hidden) {
      char age[SAY_BYTES];
      (void)fprintf(out, ", for %s", say_age(lane->owner_us, age));
    }
    (void)fputc('\n', out);
    is_hidden = is_hidden || lane->is_owner_hidden;
  }
  if (is_hidden) {
    (void)fprintf(out, "GRANT pg_read_all_stats lets this role see the hosts\n");
  }
  if (status->is_owners_seen && shown_n == 0) {
    (void)fprintf(out, "\nno relay runs: no lane has an owner\n");
  }
}

/* A group of the same name in all lanes is one for its consumers. */
static void print_groups(const struct status *status, FILE *out) {
  bool is_any = false;
  for (int i = 0; i < status->groups_n; i++) {
    const struct status_group *group = &status->groups[i];
    struct status_group sum = {0};
    int lanes_n = 0;
    bool is_first = true;
    bool is_lag_known = true;
    for (int k = 0; k < status->groups_n; k++) {
      const struct status_group *other = &status->groups[k];
      if (strcmp(other->name, group->name) != 0) {
        continue;
      }
      is_first = is_first && k >= i;
      is_lag_known = is_lag_known && other->lag_n != STATUS_NOT_KNOWN;
      sum.lag_n += other->lag_n;
      sum.unacked_n += other->unacked_n;
      sum.consumers_n = other->consumers_n > sum.consumers_n ? other->consumers_n : sum.consumers_n;
      lanes_n++;
    }
    if (!is_first) {
      continue;
    }
    if (!is_any) {
      (void)fprintf(out, "\n%-30s %12s %12s %10s %8s\n", "consumer group", "lag", "unacked", "consumers", "streams");
      is_any = true;
    }
    char name[SAY_BYTES + 1] = "";
    char lag[SAY_BYTES] = "-";
    char unacked[SAY_BYTES];
    FILE *clean = fmemopen(name, sizeof name, "w");
    if (clean != NULL) {
      say_clean(clean, group->name, 27);
      (void)fclose(clean);
    }
    if (is_lag_known) {
      (void)say_count(sum.lag_n, lag);
    }
    (void)fprintf(out, "%-30s %12s %12s %10lld %8d\n", name, lag, say_count(sum.unacked_n, unacked),
                  (long long)sum.consumers_n, lanes_n);
  }
}

static void print_partitions(const struct status *status, FILE *out) {
  if (status->partitions_n == 0) {
    return;
  }
  (void)fprintf(out, "\n%-44s %12s %10s %10s\n", status->is_partitioned ? "partition" : "table", "size", "pending",
                "dead");
  for (int i = 0; i < status->partitions_n; i++) {
    const struct status_partition *partition = &status->partitions[i];
    char size[SAY_BYTES];
    char pending[SAY_BYTES + 2] = "-";
    char dead[SAY_BYTES + 2] = "-";
    if (partition->pending_n != STATUS_NOT_KNOWN) {
      bool is_more = partition->pending_n > STATUS_PARTITION_COUNTED_MAX;
      (void)count_text(is_more ? STATUS_PARTITION_COUNTED_MAX : partition->pending_n, is_more, pending);
      (void)count_text(partition->dead_n, is_more, dead);
    }
    (void)fprintf(out, "%-44s %12s %10s %10s\n", partition->name, say_bytes(partition->bytes, size), pending, dead);
  }
}

void status_print(const struct status *status, const struct cfg *cfg, FILE *out) {
  if (!status->is_postgres_seen) {
    (void)fprintf(out, "PostgreSQL could not be asked: %s\n", status->postgres_err.text);
  }
  if (!status->is_redis_seen) {
    (void)fprintf(out, "Redis could not be asked: %s\n", status->redis_err.text);
  }
  if (status->recorded_lanes_n != 0 && status->recorded_lanes_n != cfg->lanes_n) {
    (void)fprintf(out, "the fleet runs with --lanes %lld, this command with %d: lanes are not shown as they are\n",
                  (long long)status->recorded_lanes_n, cfg->lanes_n);
  }
  print_pending(status, cfg->max_attempts_n, out);
  print_published(status, out);
  if (status->is_pending_seen || status->is_owners_seen || status->is_redis_seen) {
    print_lanes(status, out);
  }
  if (status->is_pending_at_least) {
    (void)fprintf(out, "      of the first %d pending messages\n", STATUS_COUNTED_MAX);
  }
  print_owners(status, out);
  print_groups(status, out);
  print_partitions(status, out);
}

/* -------------------------------------------------------------------------------------------------- JSON */

static json_t *count_json(int64_t n) {
  return n == STATUS_NOT_KNOWN ? json_null() : json_integer(n);
}

static json_t *seconds_json(int64_t us) {
  return us == STATUS_NOT_KNOWN ? json_null() : json_real((double)us / 1e6);
}

/* Names are cut to size and may come from anywhere: what is no UTF-8 is null. */
static json_t *text_json(const char *text) {
  json_t *value = json_string(text);
  return value != NULL ? value : json_null();
}

static json_t *lane_json(const struct status *status, int i) {
  const struct status_lane *lane = &status->lanes[i];
  json_t *object = json_pack("{s:i}", "lane", i);
  if (status->is_pending_seen) {
    (void)json_object_set_new(object, "pending", json_integer(lane->pending_n));
    (void)json_object_set_new(object, "dead", json_integer(lane->dead_n));
    (void)json_object_set_new(object, "oldest_pending_seconds", seconds_json(lane->oldest_us));
  }
  if (status->is_owners_seen) {
    json_t *owner = json_null();
    if (lane->is_owned) {
      owner =
          json_pack("{s:i, s:o, s:o}", "pid", lane->owner_pid, "application_name", text_json(lane->owner_application),
                    "host", lane->owner_host[0] != '\0' ? text_json(lane->owner_host) : json_null());
    }
    (void)json_object_set_new(object, "owner", owner);
  }
  if (status->is_redis_seen && lane->is_stream_seen) {
    bool is_stream = strcmp(lane->key_type, "stream") == 0;
    (void)json_object_set_new(object, "key_type", text_json(lane->key_type));
    (void)json_object_set_new(object, "stream_length", is_stream ? json_integer(lane->length_n) : json_null());
  }
  return object;
}

static json_t *groups_json(const struct status *status) {
  json_t *groups = json_array();
  for (int i = 0; i < status->groups_n; i++) {
    const struct status_group *group = &status->groups[i];
    (void)json_array_append_new(groups,
                                json_pack("{s:i, s:o, s:o, s:o, s:o}", "lane", group->lane, "name",
                                          text_json(group->name), "lag", count_json(group->lag_n), "unacked",
                                          count_json(group->unacked_n), "consumers", count_json(group->consumers_n)));
  }
  return groups;
}

static json_t *partitions_json(const struct status *status) {
  json_t *partitions = json_array();
  for (int i = 0; i < status->partitions_n; i++) {
    const struct status_partition *partition = &status->partitions[i];
    (void)json_array_append_new(
        partitions, json_pack("{s:o, s:I, s:o, s:o, s:b}", "name", text_json(partition->name), "bytes",
                              (json_int_t)partition->bytes, "pending", count_json(partition->pending_n), "dead",
                              partition->pending_n == STATUS_NOT_KNOWN ? json_null() : json_integer(partition->dead_n),
                              "is_at_least", partition->pending_n > STATUS_PARTITION_COUNTED_MAX));
  }
  return partitions;
}

static void add_redis(const struct status *status, json_t *root) {
  bool is_estimated = false;
  bool is_at_least = false;
  if (!status->is_redis_seen) {
    (void)json_object_set_new(root, "redis_error", text_json(status->redis_err.text));
    return;
  }
  if (status->is_per_lane) {
    int64_t n = minute(status, &is_estimated, &is_at_least);
    (void)json_object_set_new(root, "published_last_minute", json_integer(n));
    (void)json_object_set_new(root, "published_is_estimated", json_boolean(is_estimated));
    (void)json_object_set_new(root, "published_is_at_least", json_boolean(is_at_least));
    (void)json_object_set_new(root, "groups", groups_json(status));
  }
  (void)json_object_set_new(root, "lanes_recorded",
                            status->recorded_lanes_n != 0 ? json_integer(status->recorded_lanes_n) : json_null());
}

static void add_postgres(const struct status *status, const struct cfg *cfg, json_t *root) {
  if (!status->is_postgres_seen) {
    (void)json_object_set_new(root, "postgres_error", text_json(status->postgres_err.text));
  }
  if (status->is_pending_seen) {
    (void)json_object_set_new(root, "pending", json_integer(total(status, false)));
    (void)json_object_set_new(root, "dead", json_integer(total(status, true)));
    (void)json_object_set_new(root, "is_at_least", json_boolean(status->is_pending_at_least));
    (void)json_object_set_new(root, "oldest_pending_seconds", seconds_json(status->oldest_us));
    (void)json_object_set_new(root, "oldest_pending_id",
                              status->oldest_us == STATUS_NOT_KNOWN ? json_null() : json_integer(status->oldest_id));
    (void)json_object_set_new(root, "oldest_dead_seconds", seconds_json(oldest_dead_us(status)));
    if (cfg->max_age_ms > 0) {
      (void)json_object_set_new(root, "is_too_old", json_boolean(status_is_too_old(status, cfg)));
    }
  }
  if (status->is_partitions_seen) {
    (void)json_object_set_new(root, "partitions", partitions_json(status));
  }
}

int status_print_json(const struct status *status, const struct cfg *cfg, FILE *out, struct err *err) {
  json_t *root = json_object();
  json_t *lanes = json_array();
  add_postgres(status, cfg, root);
  add_redis(status, root);
  for (int i = 0; i < status->lanes_n; i++) {
    (void)json_array_append_new(lanes, lane_json(status, i));
  }
  (void)json_object_set_new(root, "lanes", lanes);
  int rc = json_dumpf(root, out, JSON_COMPACT);
  json_decref(root);
  if (rc != 0) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the status");
  }
  (void)fputc('\n', out);
  return 0;
}
