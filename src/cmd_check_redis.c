/*
 * `outboxd check`: the Redis server, the fleet's record, the keys that a relay uses.
 *
 * Owns: one connection and the list of keys.  Run by: the main thread.  Never: writes, not even a key of its own.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_check_impl.h"
#include "outboxd/alert_rules.h"
#include "outboxd/clock.h"
#include "outboxd/fleet.h"

#define FIGURE_BYTES 64
#define OLDEST_MAJOR 6
#define OLDEST_MINOR 2

static struct net_wait wait_of(const struct check *check) {
  return (struct net_wait){.deadline_us = clock_now_us() + check->cfg->redis_timeout_ms * 1000};
}

int check_exchange(struct check *check, const char *name) {
  struct err err = ERR_INIT;
  const struct net_wait wait = wait_of(check);
  if (redis_exchange(check->redis, check->pipeline, &wait, &err) == 0) {
    return 0;
  }
  check_say(check, CHECK_ERROR, name, "run the check again; if it stays, look into Redis' log",
            "the question was not answered: %s", err.text);
  return -1;
}

const char *check_redis_user(const struct check *check) {
  return check->url.user != NULL ? check->url.user : "default";
}

/* ---- keys */

void check_add_key(struct check *check, enum check_key_kind kind, bool is_sample, check_render *render,
                   const void *arg) {
  size_t bytes = render(check, arg, NULL, 0);
  char *name = calloc(1, bytes + 1);
  struct check_key *grown = realloc(check->keys, ((size_t)check->keys_n + 1) * sizeof *grown);
  if (grown != NULL) {
    check->keys = grown;
  }
  if (name == NULL || grown == NULL) {
    free(name);
    check->is_out_of_memory = true;
    return;
  }
  (void)render(check, arg, name, bytes);
  check->keys[check->keys_n++] = (struct check_key){kind, is_sample, name, bytes};
}

static size_t render_lanes(const struct check *check, const void *arg, char *buf, size_t cap) {
  (void)arg;
  return template_lanes_key(check->template, buf, cap);
}

static size_t render_journal(const struct check *check, const void *arg, char *buf, size_t cap) {
  const int *lane = arg;
  return template_journal_key(check->template, *lane, buf, cap);
}

static size_t render_index(const struct check *check, const void *arg, char *buf, size_t cap) {
  const int *lane = arg;
  return template_index_key(check->template, *lane, buf, cap);
}

static size_t render_stream(const struct check *check, const void *arg, char *buf, size_t cap) {
  const int *lane = arg;
  const struct template_values values = {.lane = *lane,
                                         .aggregate_type = "type",
                                         .aggregate_type_bytes = 4,
                                         .aggregate_id = "1",
                                         .aggregate_id_bytes = 1,
                                         .event_type = "event",
                                         .event_type_bytes = 5};
  return template_render(check->template, &values, buf, cap);
}

/* The fleet's record, each lane's journal and its stream, or where it has many one as they might be called, and their index. */
static void add_keys(struct check *check) {
  bool is_sample = !template_is_per_lane(check->template);
  check_add_key(check, CHECK_KEY_LANES, false, render_lanes, NULL);
  for (int lane = 0; lane < check->cfg->lanes_n; lane++) {
    check_add_key(check, CHECK_KEY_JOURNAL, false, render_journal, &lane);
    check_add_key(check, CHECK_KEY_STREAM, is_sample, render_stream, &lane);
    if (is_sample) {
      check_add_key(check, CHECK_KEY_INDEX, false, render_index, &lane);
    }
  }
}

/* ---- INFO */

static bool is_figure(const char *info, const char *name, const char *value) {
  char found[FIGURE_BYTES];
  return alert_read_info(info, name, found, sizeof found) && strcmp(found, value) == 0;
}

static void judge_version(struct check *check, const char *info) {
  char version[FIGURE_BYTES];
  char *end;
  if (alert_read_info(info, "valkey_version", version, sizeof version)) {
    check_say(check, CHECK_OK, "redis_version", NULL, "Valkey %s", version);
    return;
  }
  if (!alert_read_info(info, "redis_version", version, sizeof version)) {
    check_say(check, CHECK_SKIPPED, "redis_version", NULL, "the server does not tell its version");
    return;
  }
  long major = strtol(version, &end, 10);
  long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
  if (major < OLDEST_MAJOR || (major == OLDEST_MAJOR && minor < OLDEST_MINOR)) {
    check_say(check, CHECK_ERROR, "redis_version", "upgrade it", "Redis %s is too old: 6.2 or newer is needed",
              version);
  } else {
    check_say(check, CHECK_OK, "redis_version", NULL, "Redis %s (6.2 or newer is needed)", version);
  }
}

static void judge_role(struct check *check, const char *info) {
  if (is_figure(info, "cluster_enabled", "1")) {
    check_say(check, CHECK_ERROR, "redis_role", "use a server that is not in cluster mode",
              "the server is a node of a Redis Cluster: lanes whose hash slots are on other nodes are never published");
  } else if (!is_figure(info, "role", "master")) {
    check_say(check, CHECK_ERROR, "redis_role", "let --redis lead to the primary",
              "the server is a replica: it takes no writes");
  } else if (is_figure(info, "loading", "1")) {
    check_say(check, CHECK_WARNING, "redis_role", "wait until it has loaded its data",
              "the server is a primary, but still loads its data");
  } else {
    check_say(check, CHECK_OK, "redis_role", NULL, "the server is a primary");
  }
}

static void judge_persistence(struct check *check, const char *info) {
  if (is_figure(info, "aof_last_write_status", "err")) {
    check_say(check, CHECK_ERROR, "redis_persistence", "look at the disk and Redis' log",
              "the last write to the append-only file failed: Redis refuses writes");
  } else if (is_figure(info, "rdb_last_bgsave_status", "err")) {
    check_say(check, CHECK_ERROR, "redis_persistence", "look at the disk and Redis' log",
              "the last snapshot failed: with stop-writes-on-bgsave-error Redis refuses writes");
  } else if (!is_figure(info, "aof_enabled", "1")) {
    check_say(check, CHECK_WARNING, "redis_persistence",
              "appendonly yes, appendfsync always in redis.conf (docs/guarantees.md)",
              "there is no append-only file: what Redis has acknowledged is lost when it ends");
  } else {
    check_say(check, CHECK_OK, "redis_persistence", NULL, "with an append-only file");
  }
}

/* Not in INFO; CONFIG may be denied, and on hosted servers mostly is.  Asked for first: what is denied goes to Redis' ACL LOG.  *out is NULL where it cannot be
 * had, valid until the pipeline is reset. */
static int ask_fsync(struct check *check, const char **out) {
  struct err err = ERR_INIT;
  size_t bytes;
  *out = NULL;
  redis_pipeline_reset(check->pipeline, 0);
  if (redis_pipeline_command(check->pipeline, &err, "ACL", "DRYRUN", check_redis_user(check), "CONFIG", "GET",
                             "appendfsync", NULL) != 0) {
    check->is_out_of_memory = true;
    return -1;
  }
  if (check_exchange(check, "redis_appendfsync") != 0) {
    return -1;
  }
  if (redis_reply_kind(redis_pipeline_reply(check->pipeline, 0)) == REDIS_TEXT) {
    return 0;
  }
  redis_pipeline_reset(check->pipeline, 0);
  if (redis_pipeline_command(check->pipeline, &err, "CONFIG", "GET", "appendfsync", NULL) != 0) {
    check->is_out_of_memory = true;
    return -1;
  }
  if (check_exchange(check, "redis_appendfsync") != 0) {
    return -1;
  }
  const struct redis_reply *reply = redis_pipeline_reply(check->pipeline, 0);
  if (redis_reply_n(reply) == 2) {
    *out = redis_reply_text(redis_reply_at(reply, 1), &bytes);
  }
  return 0;
}

static int check_fsync(struct check *check) {
  const char *value = NULL;
  if (ask_fsync(check, &value) != 0) {
    return -1;
  }
  if (value == NULL) {
    check_say(check, CHECK_SKIPPED, "redis_appendfsync", NULL,
              "not checked: user %s may not CONFIG GET appendfsync; whoever may, should see \"always\"",
              check_redis_user(check));
  } else if (strcmp(value, "always") == 0) {
    check_say(check, CHECK_OK, "redis_appendfsync", NULL, "always");
  } else {
    check_say(check, CHECK_WARNING, "redis_appendfsync", "CONFIG SET appendfsync always (docs/guarantees.md)",
              "%s: %s of acknowledged entries is lost when the machine crashes", value,
              strcmp(value, "everysec") == 0 ? "up to a second or two" : "whatever the kernel had not written");
  }
  return 0;
}

static void judge_memory(struct check *check, const char *info) {
  struct alert_memory memory;
  if (!alert_read_memory(info, &memory)) {
    check_say(check, CHECK_SKIPPED, "redis_memory", NULL,
              "not checked: INFO does not tell used_memory, maxmemory and maxmemory_policy");
  } else if (alert_may_evict(&memory)) {
    check_say(check, CHECK_ERROR, "redis_memory", "CONFIG SET maxmemory-policy noeviction",
              "maxmemory-policy is %s: when memory is used up, streams and journals are deleted", memory.policy);
  } else if (strncmp(memory.policy, "allkeys-", strlen("allkeys-")) == 0) {
    check_say(check, CHECK_WARNING, "redis_memory", "CONFIG SET maxmemory-policy noeviction",
              "maxmemory-policy is %s: as soon as maxmemory is set, streams and journals may be deleted",
              memory.policy);
  } else if (alert_is_nearly_full(&memory, false)) {
    check_say(check, CHECK_WARNING, "redis_memory", "trim streams, or raise maxmemory",
              "%" PRId64 " of %" PRId64 " bytes are used: at the limit writes are refused", memory.used_bytes,
              memory.max_bytes);
  } else {
    check_say(check, CHECK_OK, "redis_memory", NULL, "maxmemory-policy %s, %s", memory.policy,
              memory.max_bytes > 0 ? "below 90 % of maxmemory" : "no limit (maxmemory 0)");
  }
}

/* "slave0:ip=...,port=...,state=online,offset=...,lag=0" */
static void judge_replicas(struct check *check, const char *info) {
  char name[FIGURE_BYTES];
  char line[256];
  int online_n = 0;
  if (check->cfg->wait_replicas_n == 0) {
    return;
  }
  (void)snprintf(name, sizeof name, "slave0");
  for (int i = 0; alert_read_info(info, name, line, sizeof line); i++) {
    online_n += strstr(line, "state=online") != NULL;
    (void)snprintf(name, sizeof name, "slave%d", i + 1);
  }
  if (online_n < check->cfg->wait_replicas_n) {
    check_say(check, CHECK_ERROR, "redis_replicas", "start replicas, or lower --wait-replicas",
              "--wait-replicas %d, but %d are online: nothing would be published", check->cfg->wait_replicas_n,
              online_n);
  } else {
    check_say(check, CHECK_OK, "redis_replicas", NULL, "%d online, --wait-replicas %d", online_n,
              check->cfg->wait_replicas_n);
  }
}

static int check_info(struct check *check) {
  struct err err = ERR_INIT;
  size_t bytes;
  redis_pipeline_reset(check->pipeline, 0);
  if (redis_pipeline_command(check->pipeline, &err, "INFO", NULL) != 0) {
    check->is_out_of_memory = true;
    return -1;
  }
  if (check_exchange(check, "redis_version") != 0) {
    return -1;
  }
  const struct redis_reply *reply = redis_pipeline_reply(check->pipeline, 0);
  if (redis_reply_is_error(reply, NULL, &err)) {
    char fix[CHECK_TEXT_BYTES];
    (void)snprintf(fix, sizeof fix, "ACL SETUSER %s +info", check_redis_user(check));
    check_say(check, CHECK_WARNING, "redis_rights", fix,
              "user %s may not run INFO: the alerts do not see Redis' memory (%s)", check_redis_user(check), err.text);
    check_say(check, CHECK_SKIPPED, "redis_version", NULL,
              "version, role, persistence, memory and replicas are not checked without INFO");
    return 0;
  }
  const char *info = redis_reply_text(reply, &bytes);
  judge_version(check, info);
  judge_role(check, info);
  judge_persistence(check, info);
  judge_memory(check, info);
  judge_replicas(check, info);
  return is_figure(info, "aof_enabled", "1") ? check_fsync(check) : 0;
}

/* ---- the fleet's record */

static void judge_record(struct check *check, const struct check_key *key, const struct redis_reply *reply) {
  struct err err = ERR_INIT;
  size_t bytes;
  if (redis_reply_is_error(reply, NULL, &err)) {
    if (strcmp(err.code, "WRONGTYPE") == 0) {
      check_say(check, CHECK_ERROR, "lanes_record", "rename the key, or choose another --stream prefix",
                "key %s is not outboxd's: it is no string", key->name);
    } else { /* permissions are told below */
      check_say(check, CHECK_SKIPPED, "lanes_record", NULL, "key %s could not be read: %s", key->name, err.text);
    }
    return;
  }
  if (redis_reply_kind(reply) == REDIS_NIL) {
    check_say(check, CHECK_OK, "lanes_record", NULL, "not there yet: the first relay records --lanes %d in key %s",
              check->cfg->lanes_n, key->name);
    return;
  }
  const char *found = redis_reply_text(reply, &bytes);
  if (check->fleet == NULL) {
    check_say(check, CHECK_SKIPPED, "lanes_record", NULL, "%.200s; not compared, since the table is not known", found);
  } else if (fleet_compare(key->name, found, bytes, check->fleet, &err) != 0) {
    check_say(check, CHECK_ERROR, "lanes_record", "correct --lanes, --table, --database or --stream", "%s", err.text);
  } else {
    check_say(check, CHECK_OK, "lanes_record", NULL, "%.200s", found);
  }
}

/* ---- types */

/* The record's type shows when it is read. */
static bool is_type_asked(const struct check_key *key) {
  return !key->is_sample && key->kind != CHECK_KEY_LANES;
}

static const char *right_type(const struct check_key *key) {
  return key->kind == CHECK_KEY_STREAM ? "stream" : key->kind == CHECK_KEY_INDEX ? "zset" : "string";
}

static bool is_type_right(const struct check_key *key, const char *type) {
  return strcmp(type, "none") == 0 || strcmp(type, right_type(key)) == 0;
}

static void judge_types(struct check *check, int first) {
  struct err err = ERR_INIT;
  char fix[CHECK_TEXT_BYTES];
  int wrong_n = 0;
  int read_n = 0;
  const struct check_key *wrong = NULL;
  const char *wrong_type = "";
  size_t bytes;
  for (int i = 0, reply_n = first; i < check->keys_n; i++) {
    if (!is_type_asked(&check->keys[i])) {
      continue;
    }
    const struct redis_reply *reply = redis_pipeline_reply(check->pipeline, reply_n++);
    if (redis_reply_is_error(reply, NULL, &err)) {
      continue;
    }
    const char *type = redis_reply_text(reply, &bytes);
    read_n++;
    if (!is_type_right(&check->keys[i], type) && wrong_n++ == 0) {
      wrong = &check->keys[i];
      wrong_type = type;
    }
  }
  if (wrong != NULL) {
    check_say(check, CHECK_ERROR, "redis_keys", "rename the key, or choose another --stream",
              "key %s%s is a %s, not a %s: Redis refuses what a relay writes there", wrong->name,
              wrong_n > 1 ? ", and others," : "", wrong_type, right_type(wrong));
  } else if (read_n > 0) {
    check_say(check, CHECK_OK, "redis_keys", NULL, "streams are streams, journals are strings (%d looked at)", read_n);
  } else {
    (void)snprintf(fix, sizeof fix, "ACL SETUSER %s +type", check_redis_user(check));
    check_say(check, CHECK_SKIPPED, "redis_keys", fix, "the keys' types are not checked: %s", err.text);
  }
}

/* Adds the command with this key as its one argument. */
static int add_command(struct check *check, const char *command, const struct check_key *key, struct err *err) {
  if (redis_pipeline_begin(check->pipeline, 2, err) != 0 ||
      redis_pipeline_arg(check->pipeline, command, strlen(command), err) != 0) {
    return -1;
  }
  return redis_pipeline_arg(check->pipeline, key->name, key->bytes, err);
}

static int check_keys(struct check *check) {
  struct err err = ERR_INIT;
  const struct check_key *record = NULL;
  for (int i = 0; i < check->keys_n && record == NULL; i++) {
    record = check->keys[i].kind == CHECK_KEY_LANES ? &check->keys[i] : NULL;
  }
  redis_pipeline_reset(check->pipeline, 0);
  int rc = record != NULL ? add_command(check, "GET", record, &err) : -1;
  for (int i = 0; i < check->keys_n && rc == 0; i++) {
    rc = is_type_asked(&check->keys[i]) ? add_command(check, "TYPE", &check->keys[i], &err) : 0;
  }
  if (rc != 0 || record == NULL) {
    check->is_out_of_memory = true;
    return -1;
  }
  if (check_exchange(check, "redis_keys") != 0) {
    return -1;
  }
  judge_record(check, record, redis_pipeline_reply(check->pipeline, 0));
  judge_types(check, 1);
  return 0;
}

/* ---- all of it */

void check_redis(struct check *check) {
  struct err err = ERR_INIT;
  char where[256];
  if (!check->has_url) {
    check_say(check, CHECK_SKIPPED, "redis_keys", NULL, "nothing about Redis could be looked at");
    return;
  }
  const struct net_wait wait = wait_of(check);
  url_describe(&check->url, where, sizeof where);
  if (redis_new(&check->url, check->cfg->redis_timeout_ms, &check->redis, &err) != 0 ||
      redis_pipeline_new(&check->pipeline, &err) != 0) {
    check->is_out_of_memory = true;
    return;
  }
  if (redis_open(check->redis, &wait, &err) != 0) {
    check_say(check, CHECK_ERROR, "redis",
              err.class == ERR_FATAL ? "correct user, password or database in --redis, or the server's ACL"
                                     : "start Redis, or correct --redis",
              "%s: %s", where, err.text);
    check_say(check, CHECK_SKIPPED, "redis_keys", NULL, "nothing else about Redis could be looked at");
    return;
  }
  check_say(check, CHECK_OK, "redis", NULL, "connected to %s, as user %s", where, check_redis_user(check));
  if (check_info(check) != 0 || check->template == NULL) {
    return;
  }
  add_keys(check);
  if (check_keys(check) == 0) {
    check_acl(check);
  }
}
