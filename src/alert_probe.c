/*
 * What the alert thread looks at.
 *
 * Owns: the session "outboxd alert" and a connection to Redis.  Run by: the alert's thread.
 * Never: writes, keeps a transaction open (each question is a statement of its own), logs.
 */
#include "outboxd/alert_probe.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/locks.h"
#include "outboxd/net.h"
#include "outboxd/pg.h"
#include "outboxd/redis.h"
#include "outboxd/schema.h"
#include "outboxd/sql.h"

/* How long a question may take: as long as a check, within these. */
#define TIMEOUT_MIN_MS 1000
#define TIMEOUT_MAX_MS 10000
/* Beyond the server's own timeout, so that its error arrives. */
#define SLACK_MS 500
#define NUMBER_BYTES 24

struct alert_probe {
  const struct cfg *cfg;
  const struct stop *stop;
  int64_t timeout_ms;
  struct pg *pg;
  struct redis *redis;
  struct redis_pipeline *pipeline;
  char *oldest; /* SQL */
  char *counts;
  bool is_partitioned;
  bool is_by_created_at; /* as the session's set-up found it */
  uint32_t table_oid;
  char role[ALERT_TEXT_BYTES]; /* ours, quoted */
  bool *is_owned;              /* per lane */
  char lanes[NUMBER_BYTES];
  char attempts[NUMBER_BYTES];
  char oid[NUMBER_BYTES];
};

const char *alert_part_name(enum alert_part part) {
  static const char *const names[ALERT_PARTS_N] = {[ALERT_PART_OLDEST] = "oldest",
                                                   [ALERT_PART_COUNTS] = "counts",
                                                   [ALERT_PART_LANES] = "lanes",
                                                   [ALERT_PART_PARTITIONS] = "partitions",
                                                   [ALERT_PART_DEFAULT] = "default_partition",
                                                   [ALERT_PART_TRANSACTIONS] = "transactions",
                                                   [ALERT_PART_REDIS_MEMORY] = "redis_memory"};
  return names[part];
}

/* -------------------------------------------------------------------------------------------------- life */

static int64_t limit_ms(int64_t ms, int64_t longest_ms) {
  ms = ms < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : ms > TIMEOUT_MAX_MS ? TIMEOUT_MAX_MS : ms;
  return ms < longest_ms ? ms : longest_ms;
}

int alert_probe_new(const struct cfg *cfg, const struct url *url, const struct table *table, const struct stop *stop,
                    struct alert_probe **out, struct err *err) {
  *out = NULL;
  struct alert_probe *probe = calloc(1, sizeof *probe);
  if (probe == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the alert");
  }
  probe->cfg = cfg;
  probe->stop = stop;
  probe->timeout_ms = limit_ms(cfg->stale_check_every_ms, cfg->session_timeout_ms);
  probe->is_partitioned = table->is_partitioned;
  probe->table_oid = table->oid;
  (void)snprintf(probe->lanes, sizeof probe->lanes, "%d", cfg->lanes_n);
  (void)snprintf(probe->attempts, sizeof probe->attempts, "%d", cfg->max_attempts_n);
  (void)snprintf(probe->oid, sizeof probe->oid, "%u", table->oid);
  const struct sql_var vars[] = {{"table", table->name}, {NULL, NULL}};
  probe->is_owned = calloc((size_t)cfg->lanes_n, sizeof *probe->is_owned);
  if (probe->is_owned == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for the alert's lanes");
    goto fail;
  }
  if (sql_expand(embed_alert_oldest_sql, vars, &probe->oldest, err) != 0 ||
      sql_expand(embed_alert_counts_sql, vars, &probe->counts, err) != 0 ||
      pg_new(cfg->database, "alert", probe->timeout_ms, &probe->pg, err) != 0 ||
      (url != NULL && redis_new(url, cfg->redis_timeout_ms, &probe->redis, err) != 0) ||
      redis_pipeline_new(&probe->pipeline, err) != 0) {
    goto fail;
  }
  *out = probe;
  return 0;
fail:
  alert_probe_free(probe);
  return -1;
}

void alert_probe_free(struct alert_probe *probe) {
  if (probe == NULL) {
    return;
  }
  redis_pipeline_free(probe->pipeline);
  redis_free(probe->redis);
  pg_free(probe->pg);
  free(probe->counts);
  free(probe->oldest);
  free(probe->is_owned);
  free(probe);
}

/* -------------------------------------------------------------------------------------------------- PostgreSQL */

static void text_at(const PGresult *rows, int column, char *out, size_t n) {
  (void)snprintf(out, n, "%s", PQgetvalue(rows, 0, column));
}

static int connect_postgres(struct alert_probe *probe, struct err *err) {
  if (pg_state(probe->pg) == PG_IDLE) {
    return 0;
  }
  if (pg_connect(probe->pg, probe->stop, err) != 0) {
    return -1;
  }
  int64_t idle_ms = probe->cfg->stale_check_every_ms + probe->cfg->session_timeout_ms;
  char idle[NUMBER_BYTES];
  (void)snprintf(idle, sizeof idle, "%lld", (long long)(idle_ms < INT_MAX ? idle_ms : INT_MAX));
  const char *values[] = {idle, probe->oid};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = embed_session_plan_sql},
      {.kind = PG_QUERY, .sql = embed_alert_session_sql, .params_n = 2, .values = values},
  };
  if (pg_call(probe->pg, steps, 2, probe->timeout_ms + SLACK_MS, probe->stop, err) != 0) {
    pg_close(probe->pg);
    return -1;
  }
  const PGresult *row = pg_reply(probe->pg)->results[1];
  probe->is_by_created_at = PQgetvalue(row, 0, 2)[0] == 't';
  text_at(row, 3, probe->role, sizeof probe->role);
  return 0;
}

/* Enters how a part went; -1 when it failed.  A statement that was refused leaves the session open. */
static int finish_part(struct alert_probe *probe, struct alert_view *view, enum alert_part part, int rc) {
  if (rc == 0) {
    view->seen[part] = ALERT_SEEN;
    return 0;
  }
  view->seen[part] = ALERT_FAILED;
  if (pg_state(probe->pg) != PG_IDLE) {
    view->is_postgres_up = false;
    view->postgres_err = view->errs[part];
    view->seen[part] = ALERT_NOT_SEEN;
  }
  return -1;
}

/* Asks one question; the rows, valid until the next one, or NULL. */
static const PGresult *ask(struct alert_probe *probe, struct alert_view *view, enum alert_part part, const char *sql,
                           int params_n, const char *const *values) {
  if (!view->is_postgres_up) {
    return NULL;
  }
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql, .params_n = params_n, .values = values};
  int rc = pg_call(probe->pg, &step, 1, probe->timeout_ms + SLACK_MS, probe->stop, &view->errs[part]);
  return finish_part(probe, view, part, rc) == 0 ? pg_reply(probe->pg)->results[0] : NULL;
}

/* Returns the smallest pending id: INT64_MIN when it could not be seen, INT64_MAX when nothing is pending. */
static int64_t look_at_oldest(struct alert_probe *probe, struct alert_view *view) {
  const char *values[] = {probe->attempts, probe->lanes};
  const PGresult *rows = ask(probe, view, ALERT_PART_OLDEST, probe->oldest, 2, values);
  if (rows == NULL) {
    return INT64_MIN;
  }
  if (PQntuples(rows) == 0) {
    return INT64_MAX;
  }
  view->is_pending = true;
  view->oldest_us = pg_parse_int64(rows, 0, 0);
  view->oldest_id = pg_parse_int64(rows, 0, 1);
  text_at(rows, 2, view->aggregate_type, sizeof view->aggregate_type);
  text_at(rows, 3, view->aggregate_id, sizeof view->aggregate_id);
  text_at(rows, 4, view->event_type, sizeof view->event_type);
  view->attempts = (int)pg_parse_int64(rows, 0, 5);
  view->is_dead = PQgetvalue(rows, 0, 6)[0] == 't';
  view->lane = (int)pg_parse_int64(rows, 0, 7);
  return pg_parse_int64(rows, 0, 8);
}

/* No pending message had a smaller id than first_id when look_at_oldest asked. */
static void look_at_counts(struct alert_probe *probe, struct alert_view *view, int64_t first_id) {
  char first[NUMBER_BYTES];
  (void)snprintf(first, sizeof first, "%lld", (long long)first_id);
  const char *values[] = {probe->attempts, first};
  const PGresult *rows = ask(probe, view, ALERT_PART_COUNTS, probe->counts, 2, values);
  if (rows == NULL) {
    return;
  }
  view->pending_n = pg_parse_int64(rows, 0, 0);
  view->dead_n = pg_parse_int64(rows, 0, 1);
  view->first_dead_id = pg_parse_int64(rows, 0, 2);
  view->is_waiting = !PQgetisnull(rows, 0, 3);
  view->waiting_us = pg_parse_int64(rows, 0, 3);
  view->is_at_least = view->pending_n > ALERT_PENDING_MAX;
  view->pending_n = view->is_at_least ? ALERT_PENDING_MAX : view->pending_n;
}

static void look_at_lanes(struct alert_probe *probe, struct alert_view *view) {
  char first[NUMBER_BYTES];
  char last[NUMBER_BYTES];
  char member[NUMBER_BYTES];
  (void)snprintf(first, sizeof first, "%d", LOCKS_GATE);
  (void)snprintf(last, sizeof last, "%d", LOCKS_GATE + probe->cfg->lanes_n - 1);
  (void)snprintf(member, sizeof member, "%d", LOCKS_MEMBER);
  const char *values[] = {probe->oid, first, last, member};
  const PGresult *rows = ask(probe, view, ALERT_PART_LANES, embed_lane_locks_sql, 4, values);
  if (rows == NULL) {
    return;
  }
  memset(probe->is_owned, 0, (size_t)probe->cfg->lanes_n * sizeof *probe->is_owned);
  for (int row = 0; row < PQntuples(rows); row++) {
    int64_t key = pg_parse_int64(rows, row, 0);
    if (key == LOCKS_MEMBER) {
      view->members_n++;
    } else if (key >= LOCKS_GATE && key < LOCKS_GATE + probe->cfg->lanes_n) {
      probe->is_owned[key - LOCKS_GATE] = true;
    }
  }
  view->is_owned = probe->is_owned;
}

static void look_at_default(struct alert_probe *probe, struct alert_view *view, const struct schema_partition *item) {
  char name[SCHEMA_FULL_NAME_BYTES];
  char *sql = NULL;
  schema_quote_name(&item->name, name);
  const struct sql_var vars[] = {{"partition", name}, {NULL, NULL}};
  (void)snprintf(view->default_name, sizeof view->default_name, "%s", name);
  if (sql_expand(embed_alert_default_sql, vars, &sql, &view->errs[ALERT_PART_DEFAULT]) != 0) {
    view->seen[ALERT_PART_DEFAULT] = ALERT_FAILED;
    return;
  }
  const PGresult *rows = ask(probe, view, ALERT_PART_DEFAULT, sql, 0, NULL);
  view->default_rows_n = rows != NULL ? pg_parse_int64(rows, 0, 0) : 0;
  free(sql);
}

static void look_at_partitions(struct alert_probe *probe, struct alert_view *view) {
  const struct schema_relation relation = {.oid = probe->table_oid};
  struct schema_partitions partitions = {0};
  struct partition_bounds *bounds = NULL;
  int n = 0;
  int rc = schema_load_partitions(probe->pg, &relation, probe->stop, &partitions, &view->errs[ALERT_PART_PARTITIONS]);
  if (finish_part(probe, view, ALERT_PART_PARTITIONS, rc) != 0) {
    goto out;
  }
  bounds = calloc((size_t)partitions.n + 1, sizeof *bounds);
  if (bounds == NULL) {
    (void)err_set(&view->errs[ALERT_PART_PARTITIONS], ERR_RETRY, "ENOMEM", "no memory for the partitions' bounds");
    view->seen[ALERT_PART_PARTITIONS] = ALERT_FAILED;
    goto out;
  }
  for (int i = 0; i < partitions.n; i++) {
    if (!partitions.items[i].is_default) {
      bounds[n++] = partitions.items[i].bounds;
    }
  }
  view->covered_us = alert_covered_until_us(bounds, n, partitions.db_now_us) - partitions.db_now_us;
  if (partitions.has_default) {
    look_at_default(probe, view, &partitions.items[partitions.n - 1]); /* the last one */
  }
out:
  free(bounds);
  schema_partitions_fini(&partitions);
}

static void look_at_transactions(struct alert_probe *probe, struct alert_view *view) {
  const PGresult *rows = ask(probe, view, ALERT_PART_TRANSACTIONS, embed_alert_transactions_sql, 0, NULL);
  if (rows == NULL) {
    return;
  }
  view->sees_all = PQgetvalue(rows, 0, 0)[0] == 't';
  view->transaction_us = pg_parse_int64(rows, 0, 1);
  view->transaction_pid = (int)pg_parse_int64(rows, 0, 2);
  text_at(rows, 3, view->transaction_role, sizeof view->transaction_role);
  text_at(rows, 4, view->transaction_name, sizeof view->transaction_name);
  text_at(rows, 5, view->transaction_state, sizeof view->transaction_state);
}

static void look_at_postgres(struct alert_probe *probe, struct alert_view *view, int64_t count_from_us) {
  view->is_postgres_up = connect_postgres(probe, &view->postgres_err) == 0;
  (void)snprintf(view->role, sizeof view->role, "%s", probe->role);
  int64_t first_id = look_at_oldest(probe, view);
  if (count_from_us == 0 || view->oldest_us > count_from_us) {
    look_at_counts(probe, view, first_id);
  }
  look_at_lanes(probe, view);
  if (view->is_postgres_up && probe->is_partitioned && probe->is_by_created_at) {
    look_at_partitions(probe, view);
  }
  look_at_transactions(probe, view);
}

/* -------------------------------------------------------------------------------------------------- Redis */

/* What an ACL forbids is no outage: only a PING that Redis refuses for its own state is. */
static void read_redis(struct alert_probe *probe, struct alert_view *view) {
  const struct redis_reply *ping = redis_pipeline_reply(probe->pipeline, 0);
  const struct redis_reply *info = redis_pipeline_reply(probe->pipeline, 1);
  view->is_redis_up =
      !redis_reply_is_error(ping, NULL, &view->redis_err) || strcmp(view->redis_err.code, "NOPERM") == 0;
  if (!view->is_redis_up) {
    return;
  }
  struct err *err = &view->errs[ALERT_PART_REDIS_MEMORY];
  view->seen[ALERT_PART_REDIS_MEMORY] = ALERT_FAILED;
  if (redis_reply_is_error(info, NULL, err)) {
    return;
  }
  size_t bytes;
  if (redis_reply_kind(info) != REDIS_TEXT || !alert_read_memory(redis_reply_text(info, &bytes), &view->memory)) {
    (void)err_set(err, ERR_RETRY, "info", "INFO memory does not tell used_memory, maxmemory and maxmemory_policy");
    return;
  }
  view->seen[ALERT_PART_REDIS_MEMORY] = ALERT_SEEN;
}

static void look_at_redis(struct alert_probe *probe, struct alert_view *view) {
  int64_t timeout_ms = limit_ms(probe->cfg->stale_check_every_ms, probe->cfg->redis_timeout_ms);
  const struct net_wait wait = {.deadline_us = clock_now_us() + timeout_ms * 1000, .stops = {probe->stop, NULL}};
  struct err *err = &view->redis_err;
  redis_pipeline_reset(probe->pipeline, 0);
  if ((!redis_is_open(probe->redis) && redis_open(probe->redis, &wait, err) != 0) ||
      redis_pipeline_command(probe->pipeline, err, "PING", NULL) != 0 ||
      redis_pipeline_command(probe->pipeline, err, "INFO", "memory", NULL) != 0 ||
      redis_exchange(probe->redis, probe->pipeline, &wait, err) != 0) {
    return;
  }
  read_redis(probe, view);
}

void alert_probe_look(struct alert_probe *probe, int64_t count_from_us, struct alert_view *view) {
  memset(view, 0, sizeof *view);
  look_at_postgres(probe, view, count_from_us);
  if (probe->redis != NULL) {
    look_at_redis(probe, view);
  }
}
