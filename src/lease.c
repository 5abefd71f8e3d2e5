/*
 * The lease: the session that stands for the process in the fleet.
 *
 * Owns: its session, the gates, what was last seen of the fleet.  Run by: the coordinator's thread.
 * Never: blocks, logs, decides.
 */
#include "outboxd/lease.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "outboxd/claim.h"
#include "outboxd/locks.h"
#include "outboxd/pgarray.h"

#define SLACK_MS 1000

/* What the request under way asked. */
enum question {
  ASK_NOTHING,
  ASK_TRIGGER,
  ASK_LISTEN,
  ASK_FLEET,
  ASK_TAKE,
  ASK_RELEASE,
  ASK_PENDING,
  ASK_DEAD,
  ASK_LEFT
};

struct lease {
  struct pg *pg;
  enum lease_state state;
  enum question question;
  const struct cfg *cfg;
  const struct table *table;
  bool *lanes; /* gates held */
  int64_t last_sent_us;
  struct fleet fleet;
  struct journal_names *names; /* ASK_PENDING: borrowed */
  struct dead_key *dead;
  int dead_n;
  bool is_anything_left;
  bool is_listening;
  char listen[48]; /* SQL */
  char table_oid[16];
  char table_key[16];
  char attempts[16];
  struct buf params;
};

static void set_state(struct lease *lease, enum lease_state state) {
  assert(state == LEASE_CLOSED || (lease->state == LEASE_CLOSED && state == LEASE_CONNECTING) ||
         (lease->state == LEASE_CONNECTING && state == LEASE_SETTING_UP) ||
         (lease->state == LEASE_SETTING_UP && state == LEASE_READY) ||
         (lease->state == LEASE_READY && state == LEASE_ASKED) ||
         (lease->state == LEASE_ASKED && state == LEASE_READY));
  lease->state = state;
}

int lease_new(const struct cfg *cfg, const struct table *table, struct lease **out, struct err *err) {
  *out = NULL;
  struct lease *lease = calloc(1, sizeof *lease);
  if (lease == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the lease");
  }
  lease->cfg = cfg;
  lease->table = table;
  lease->lanes = calloc((size_t)cfg->lanes_n, sizeof *lease->lanes);
  lease->fleet.is_owned = calloc((size_t)cfg->lanes_n, sizeof *lease->fleet.is_owned);
  (void)snprintf(lease->table_oid, sizeof lease->table_oid, "%u", table->oid);
  (void)snprintf(lease->table_key, sizeof lease->table_key, "%d", locks_table_key(table->oid));
  /* The channel of sql/init_notify_function.sql. */
  (void)snprintf(lease->listen, sizeof lease->listen, "LISTEN outboxd_%u", table->oid);
  (void)snprintf(lease->attempts, sizeof lease->attempts, "%d", cfg->max_attempts_n);
  if (lease->lanes == NULL || lease->fleet.is_owned == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for the lease's lanes");
    goto fail;
  }
  if (pg_new(cfg->database, "lease", cfg->session_timeout_ms, &lease->pg, err) != 0) {
    goto fail;
  }
  *out = lease;
  return 0;
fail:
  lease_free(lease);
  return -1;
}

void lease_close(struct lease *lease) {
  pg_close(lease->pg);
  memset(lease->lanes, 0, (size_t)lease->cfg->lanes_n * sizeof *lease->lanes);
  lease->question = ASK_NOTHING;
  lease->names = NULL;
  lease->is_listening = false;
  set_state(lease, LEASE_CLOSED);
}

void lease_free(struct lease *lease) {
  if (lease == NULL) {
    return;
  }
  pg_free(lease->pg);
  free(lease->lanes);
  free(lease->fleet.is_owned);
  free(lease->dead);
  buf_free(&lease->params);
  free(lease);
}

enum lease_state lease_state(const struct lease *lease) {
  return lease->state;
}

struct pg *lease_pg(struct lease *lease) {
  return lease->pg;
}

int lease_open(struct lease *lease, int64_t now_us, struct err *err) {
  if (pg_open(lease->pg, now_us, err) != 0) {
    return -1;
  }
  set_state(lease, LEASE_CONNECTING);
  return 0;
}

/* -------------------------------------------------------------------------------------------------- requests */

static int request(struct lease *lease, const struct pg_step *steps, int n, int64_t now_us, struct err *err) {
  lease->last_sent_us = now_us;
  if (pg_send(lease->pg, steps, n, now_us + (lease->cfg->session_timeout_ms + SLACK_MS) * 1000, err) != 0) {
    lease_close(lease);
    return -1;
  }
  return 0;
}

static int ask_steps(struct lease *lease, enum question question, const struct pg_step *steps, int n, int64_t now_us,
                     struct err *err) {
  lease->question = question;
  set_state(lease, LEASE_ASKED);
  return request(lease, steps, n, now_us, err);
}

static int ask(struct lease *lease, enum question question, const struct pg_step *step, int64_t now_us,
               struct err *err) {
  return ask_steps(lease, question, step, 1, now_us, err);
}

static int set_up(struct lease *lease, int64_t now_us, struct err *err) {
  char member[16];
  (void)snprintf(member, sizeof member, "%d", LOCKS_MEMBER);
  const char *values[] = {lease->table_key, member};
  const struct pg_step steps[] = {
      pg_setup_step(lease->pg),
      {.kind = PG_QUERY, .sql = embed_session_plan_sql},
      {.kind = PG_QUERY, .sql = embed_member_join_sql, .params_n = 2, .values = values},
  };
  set_state(lease, LEASE_SETTING_UP);
  return request(lease, steps, 3, now_us, err);
}

int lease_ask_fleet(struct lease *lease, int64_t now_us, struct err *err) {
  char first[16];
  char last[16];
  char member[16];
  (void)snprintf(first, sizeof first, "%d", LOCKS_GATE);
  (void)snprintf(last, sizeof last, "%d", LOCKS_GATE + lease->cfg->lanes_n - 1);
  (void)snprintf(member, sizeof member, "%d", LOCKS_MEMBER);
  const char *values[] = {lease->table_oid, first, last, member};
  const char *name[] = {lease->table->name};
  const struct pg_step steps[] = {
      {.kind = PG_QUERY, .sql = embed_lane_locks_sql, .params_n = 4, .values = values},
      {.kind = PG_QUERY, .sql = embed_table_oid_sql, .params_n = 1, .values = name},
  };
  return ask_steps(lease, ASK_FLEET, steps, 2, now_us, err);
}

static int append_lanes(struct lease *lease, const bool *lanes, struct err *err) {
  int n = 0;
  for (int lane = 0; lane < lease->cfg->lanes_n; lane++) {
    n += lanes[lane];
  }
  buf_reset(&lease->params);
  if (pgarray_begin(&lease->params, PGARRAY_INT4, n, err) != 0) {
    return -1;
  }
  for (int lane = 0; lane < lease->cfg->lanes_n; lane++) {
    if (lanes[lane] && pgarray_int4(&lease->params, lane, err) != 0) {
      return -1;
    }
  }
  return 0;
}

static int ask_for_lanes(struct lease *lease, enum question question, const char *sql, int params_n, const bool *lanes,
                         int64_t now_us, struct err *err) {
  char gate[16];
  char use[16];
  (void)snprintf(gate, sizeof gate, "%d", LOCKS_GATE);
  (void)snprintf(use, sizeof use, "%d", LOCKS_USE);
  if (append_lanes(lease, lanes, err) != 0) {
    lease_close(lease);
    return -1;
  }
  const char *values[] = {lease->table_key, lease->params.data, gate, use};
  const int lengths[] = {0, (int)lease->params.len, 0, 0};
  const int formats[] = {0, 1, 0, 0};
  const struct pg_step step = {
      .kind = PG_QUERY, .sql = sql, .params_n = params_n, .values = values, .lengths = lengths, .formats = formats};
  return ask(lease, question, &step, now_us, err);
}

int lease_take(struct lease *lease, const bool *wanted, int64_t now_us, struct err *err) {
  return ask_for_lanes(lease, ASK_TAKE, embed_lane_take_sql, 4, wanted, now_us, err);
}

int lease_release(struct lease *lease, const bool *lanes, int64_t now_us, struct err *err) {
  return ask_for_lanes(lease, ASK_RELEASE, embed_lane_release_sql, 3, lanes, now_us, err);
}

int lease_ask_pending(struct lease *lease, struct journal_names *names, int64_t now_us, struct err *err) {
  struct buf *params = &lease->params;
  buf_reset(params);
  if (pgarray_begin(params, PGARRAY_INT8, names->n, err) != 0) {
    goto fail;
  }
  for (int i = 0; i < names->n; i++) {
    if (pgarray_int8(params, names->v[i].id, err) != 0) {
      goto fail;
    }
  }
  size_t ids_bytes = params->len;
  if (pgarray_begin(params, PGARRAY_TEXT, names->n, err) != 0) {
    goto fail;
  }
  for (int i = 0; i < names->n; i++) {
    if (pgarray_bytes(params, names->v[i].message_id, names->v[i].message_id_bytes, err) != 0) {
      goto fail;
    }
  }
  const char *values[] = {params->data, params->data + ids_bytes};
  const int lengths[] = {(int)ids_bytes, (int)(params->len - ids_bytes)};
  const int formats[] = {1, 1};
  const struct pg_step step = {.kind = PG_QUERY,
                               .sql = lease->table->still_pending,
                               .params_n = 2,
                               .values = values,
                               .lengths = lengths,
                               .formats = formats,
                               .is_binary_result = true};
  lease->names = names;
  return ask(lease, ASK_PENDING, &step, now_us, err);
fail:
  lease_close(lease);
  return -1;
}

int lease_ask_dead(struct lease *lease, int64_t now_us, struct err *err) {
  const char *values[] = {lease->attempts};
  const struct pg_step step = {
      .kind = PG_QUERY, .sql = lease->table->dead_keys, .params_n = 1, .values = values, .is_binary_result = true};
  return ask(lease, ASK_DEAD, &step, now_us, err);
}

int lease_ask_left(struct lease *lease, const struct buf *held_back, int64_t now_us, struct err *err) {
  const char *values[] = {"-9223372036854775808", lease->attempts, NULL, held_back != NULL ? held_back->data : NULL};
  const int lengths[] = {0, 0, 0, held_back != NULL ? (int)held_back->len : 0};
  const int formats[] = {0, 0, 0, 1};
  const struct pg_step step = {.kind = PG_QUERY,
                               .sql = lease->table->probe[held_back != NULL ? CLAIM_NOT_HELD_BACK : 0],
                               .params_n = PROBE_PARAMS_N,
                               .types = claim_param_types,
                               .values = values,
                               .lengths = lengths,
                               .formats = formats};
  return ask(lease, ASK_LEFT, &step, now_us, err);
}

int lease_ask_trigger(struct lease *lease, int64_t now_us, struct err *err) {
  const char *values[] = {lease->table_oid};
  const struct pg_step step = {.kind = PG_QUERY, .sql = embed_notify_trigger_sql, .params_n = 1, .values = values};
  return ask(lease, ASK_TRIGGER, &step, now_us, err);
}

static int ask_listen(struct lease *lease, int64_t now_us, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = lease->listen};
  return ask(lease, ASK_LISTEN, &step, now_us, err);
}

bool lease_is_listening(const struct lease *lease) {
  return lease->is_listening;
}

bool lease_take_woken(struct lease *lease) {
  return pg_take_notified(lease->pg);
}

int lease_touch(struct lease *lease, int64_t now_us, struct err *err) {
  const struct pg_step step = {.kind = PG_QUERY, .sql = "SELECT 1"};
  return ask(lease, ASK_NOTHING, &step, now_us, err);
}

int64_t lease_touch_due_us(const struct lease *lease) {
  return lease->state == LEASE_READY ? lease->last_sent_us + lease->cfg->session_timeout_ms * 1000 / 3 : INT64_MAX;
}

/* -------------------------------------------------------------------------------------------------- replies */

/* Rows are ordered by server process: a member's rank is its place among those that hold the membership lock. */
static void read_fleet(struct lease *lease, const PGresult *rows) {
  struct fleet *fleet = &lease->fleet;
  fleet->members_n = 0;
  fleet->rank = 0;
  memset(fleet->is_owned, 0, (size_t)lease->cfg->lanes_n * sizeof *fleet->is_owned);
  for (int row = 0; row < PQntuples(rows); row++) {
    long key = strtol(PQgetvalue(rows, row, 0), NULL, 10);
    long pid = strtol(PQgetvalue(rows, row, 1), NULL, 10);
    if (key == LOCKS_MEMBER) {
      fleet->rank += pid < pg_pid(lease->pg);
      fleet->members_n++;
    } else if ((key & LOCKS_LANE_MASK) < lease->cfg->lanes_n) {
      fleet->is_owned[key & LOCKS_LANE_MASK] = true;
    }
  }
}

static void read_taken(struct lease *lease, const PGresult *rows, bool is_taking) {
  for (int row = 0; row < PQntuples(rows); row++) {
    long lane = strtol(PQgetvalue(rows, row, 0), NULL, 10);
    bool is_done = PQgetvalue(rows, row, 1)[0] == 't';
    if (is_taking) {
      lease->lanes[lane] = lease->lanes[lane] || is_done;
    } else {
      lease->lanes[lane] = false;
    }
  }
}

/* Keeps the names at the places the rows tell, frees the others. */
static int reduce_names(struct journal_names *names, const PGresult *rows, struct err *err) {
  bool *is_pending = calloc((size_t)names->n + 1, sizeof *is_pending);
  if (is_pending == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d names of a journal", names->n);
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    int64_t place = pg_get_int64(rows, row, 0);
    if (place >= 1 && place <= names->n) {
      is_pending[place - 1] = true;
    }
  }
  int kept_n = 0;
  for (int i = 0; i < names->n; i++) {
    if (is_pending[i]) {
      names->v[kept_n++] = names->v[i];
    } else {
      free(names->v[i].message_id);
    }
  }
  names->n = kept_n;
  free(is_pending);
  return 0;
}

static int read_dead(struct lease *lease, const PGresult *rows, struct err *err) {
  struct dead_key *dead = realloc(lease->dead, ((size_t)PQntuples(rows) + 1) * sizeof *dead);
  if (dead == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for %d aggregates with dead messages", PQntuples(rows));
  }
  lease->dead = dead;
  lease->dead_n = PQntuples(rows);
  for (int row = 0; row < lease->dead_n; row++) {
    dead[row] = (struct dead_key){.key = pg_get_int64(rows, row, 0), .id = pg_get_int64(rows, row, 1)};
  }
  return 0;
}

/* Locks go by the table's oid, statements by its name.  Under another oid other processes may own the lanes, unseen. */
static enum lease_event check_table(const struct lease *lease, const PGresult *row, struct err *err) {
  uint32_t oid = (uint32_t)strtoul(PQgetvalue(row, 0, 0), NULL, 10);
  if (oid == 0 || oid == lease->table->oid) {
    return LEASE_EV_FLEET; /* without any table the claims say so */
  }
  (void)err_set(
      err, ERR_FATAL, "table_replaced",
      "another table is called %s now (oid %u, it was %u): start the relay again, so that it reads the new one",
      lease->table->name, oid, lease->table->oid);
  return LEASE_EV_REPLACED;
}

static enum lease_event on_answer(struct lease *lease, const struct pg_reply *reply, int64_t now_us, struct err *err) {
  const PGresult *rows = reply->results[0];
  switch (lease->question) {
  case ASK_NOTHING:
    return LEASE_EV_NONE;
  case ASK_TRIGGER:
    if (PQgetvalue(rows, 0, 0)[0] == 't' && ask_listen(lease, now_us, err) != 0) {
      return LEASE_EV_LOST;
    }
    return LEASE_EV_NONE;
  case ASK_LISTEN:
    lease->is_listening = true;
    return LEASE_EV_LISTENING;
  case ASK_FLEET:
    read_fleet(lease, rows);
    return check_table(lease, reply->results[1], err);
  case ASK_TAKE:
    read_taken(lease, rows, true);
    return LEASE_EV_TAKEN;
  case ASK_RELEASE:
    read_taken(lease, rows, false);
    return LEASE_EV_RELEASED;
  case ASK_PENDING:
    if (reduce_names(lease->names, rows, err) != 0) {
      break;
    }
    lease->names = NULL;
    return LEASE_EV_PENDING;
  case ASK_DEAD:
    if (read_dead(lease, rows, err) != 0) {
      break;
    }
    return LEASE_EV_DEAD;
  case ASK_LEFT:
    lease->is_anything_left = PQntuples(rows) > 0;
    return LEASE_EV_LEFT;
  }
  lease_close(lease);
  return LEASE_EV_LOST;
}

static enum lease_event on_reply(struct lease *lease, int64_t now_us, struct err *err) {
  const struct pg_reply *reply = pg_reply(lease->pg);
  if (reply->is_failed) {
    *err = reply->err;
    lease_close(lease);
    return LEASE_EV_LOST;
  }
  bool is_set_up = lease->state == LEASE_SETTING_UP;
  if (is_set_up && pg_setup_check(lease->pg, reply->results[0], err) != 0) {
    lease_close(lease);
    return LEASE_EV_LOST;
  }
  if (is_set_up && PQgetvalue(reply->results[2], 0, 0)[0] != 't') {
    (void)err_set(err, ERR_RETRY, "fleet_closed",
                  "no relay may join for the moment: somebody changes table %s and holds its membership lock",
                  lease->table->name);
    lease_close(lease);
    return LEASE_EV_LOST;
  }
  set_state(lease, LEASE_READY);
  return is_set_up ? LEASE_EV_READY : on_answer(lease, reply, now_us, err);
}

enum lease_event lease_drive(struct lease *lease, int64_t now_us, struct err *err) {
  switch (pg_drive(lease->pg, now_us, err)) {
  case PG_EV_NONE:
    return LEASE_EV_NONE;
  case PG_EV_OPEN:
    return set_up(lease, now_us, err) == 0 ? LEASE_EV_NONE : LEASE_EV_LOST;
  case PG_EV_REPLY:
    return on_reply(lease, now_us, err);
  case PG_EV_LOST:
    lease_close(lease);
    return LEASE_EV_LOST;
  }
  return LEASE_EV_NONE;
}

bool lease_owns(const struct lease *lease, int lane) {
  return lease->lanes[lane];
}

const struct fleet *lease_fleet(const struct lease *lease) {
  return &lease->fleet;
}

int lease_dead_keys(const struct lease *lease, const struct dead_key **out) {
  *out = lease->dead;
  return lease->dead_n;
}

bool lease_is_anything_left(const struct lease *lease) {
  return lease->is_anything_left;
}
