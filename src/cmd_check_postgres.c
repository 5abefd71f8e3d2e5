/*
 * `outboxd check`: the PostgreSQL server and the table.
 *
 * Owns: the session "outboxd check", which cannot write.  Run by: the main thread.
 * Never: takes an advisory lock, locks a row, writes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_check_impl.h"
#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/fleet.h"

#define NUMBER_BYTES 24
/* Above this the figures that compare both clocks (lag, ages in the log) mislead. */
#define SKEW_MAX_US INT64_C(1000000)
/* What a process has beside its claimers: lease, alert; and with the cleanup its session and the one that looks on during a detach. */
#define SESSIONS_ALWAYS 2
#define SESSIONS_CLEANUP 2
#define SLACK_MS 1000

static bool is_true(const PGresult *rows, int row, int column) {
  return PQgetvalue(rows, row, column)[0] == 't';
}

const PGresult *check_ask(struct check *check, const char *name, const char *sql, int params_n,
                          const char *const *values) {
  struct err err = ERR_INIT;
  const struct pg_step step = {.kind = PG_QUERY, .sql = sql, .params_n = params_n, .values = values};
  if (pg_state(check->pg) != PG_IDLE) {
    return NULL; /* that the session is gone has been said */
  }
  if (pg_call(check->pg, &step, 1, check->cfg->session_timeout_ms + SLACK_MS, NULL, &err) != 0) {
    check_say(check, CHECK_ERROR, name, "run the check again; if it stays, look into PostgreSQL's log",
              "the question was not answered: %s", err.text);
    return NULL;
  }
  return pg_reply(check->pg)->results[0];
}

const PGresult *check_ask_of(struct check *check, const char *name, const char *sql, uint32_t oid) {
  char text[NUMBER_BYTES];
  const char *values[] = {text};
  (void)snprintf(text, sizeof text, "%u", oid);
  return check_ask(check, name, sql, 1, values);
}

/* ---- the server */

static bool connect_session(struct check *check) {
  struct err err = ERR_INIT;
  if (pg_new(check->cfg->database, "check", check->cfg->session_timeout_ms, &check->pg, &err) == 0 &&
      pg_connect(check->pg, NULL, &err) == 0) {
    return true;
  }
  if (strcmp(err.code, "pooling_proxy") == 0) {
    check_say(check, CHECK_ERROR, "pooling_proxy", "let --database lead to PostgreSQL itself", "%s", err.text);
  } else if (strcmp(err.code, "server_version") == 0) {
    check_say(check, CHECK_ERROR, "postgres_version", "upgrade PostgreSQL", "%s", err.text);
  } else {
    check_say(check, CHECK_ERROR, "postgres",
              err.class == ERR_RETRY ? "start PostgreSQL, or correct --database" : "correct --database, or the server",
              "%s", err.text);
  }
  check_say(check, CHECK_SKIPPED, "table", NULL, "the table and all that is about PostgreSQL could not be looked at");
  return false;
}

/* The database's clock against ours, give or take half the time the question took. */
static void compare_clocks(struct check *check, int64_t db_us, int64_t before_us, int64_t after_us) {
  int64_t half_us = (after_us - before_us) / 2;
  int64_t skew_us = db_us - (before_us + half_us);
  int64_t least_us = (skew_us < 0 ? -skew_us : skew_us) - half_us;
  double seconds = (double)skew_us / 1e6;
  if (least_us > SKEW_MAX_US) {
    check_say(check, CHECK_WARNING, "clock", "synchronize both clocks (chrony, systemd-timesyncd)",
              "the database's clock is %.1f s %s this host's: the log's lag is wrong by that",
              seconds < 0 ? -seconds : seconds, seconds < 0 ? "behind" : "ahead of");
  } else {
    check_say(check, CHECK_OK, "clock", NULL, "the database's clock and this host's are less than %.1f s apart",
              (double)(SKEW_MAX_US + half_us) / 1e6);
  }
}

static bool check_server(struct check *check) {
  int64_t before_us = clock_wall_us();
  const PGresult *row = check_ask(check, "postgres", embed_check_server_sql, 0, NULL);
  int64_t after_us = clock_wall_us();
  if (row == NULL) {
    return false;
  }
  (void)snprintf(check->role, sizeof check->role, "%s", PQgetvalue(row, 0, 3));
  check_say(check, CHECK_OK, "postgres", NULL, "connected to %s, database %s, as role %s", PQgetvalue(row, 0, 1),
            PQgetvalue(row, 0, 2), check->role);
  check_say(check, CHECK_OK, "postgres_version", NULL, "PostgreSQL %s (14 or newer is needed)", PQgetvalue(row, 0, 0));
  check_say(check, CHECK_OK, "pooling_proxy", NULL, "none: the session's server process is the one that answers");
  if (is_true(row, 0, 4)) {
    check_say(check, CHECK_ERROR, "primary", "let --database lead to the primary (target_session_attrs=read-write)",
              "the server is a standby: nothing can be marked as published there");
  } else if (is_true(row, 0, 5)) {
    check_say(check, CHECK_ERROR, "primary",
              "set default_transaction_read_only to off for the server, the database and the role",
              "transactions are read-only by default: nothing can be marked as published");
  } else {
    check_say(check, CHECK_OK, "primary", NULL, "the server is a primary and takes writes");
  }
  compare_clocks(check, pg_parse_int64(row, 0, 6), before_us, after_us);
  /* From here on the server itself holds this session to its promise. */
  return check_ask(check, "postgres", "SET default_transaction_read_only = on", 0, NULL) != NULL;
}

/* One limit of sessions and what is left of it. */
static void judge_limit(struct check *check, const char *what, const char *fix, int64_t max_n, int64_t used_n,
                        int64_t needed_n) {
  if (max_n < needed_n) {
    check_say(check, CHECK_ERROR, "sessions", fix,
              "%s allows %" PRId64 " sessions; a relay with --claimers %d has %" PRId64, what, max_n,
              check->cfg->claimers_n, needed_n);
  } else if (max_n - used_n < needed_n) {
    check_say(check, CHECK_WARNING, "sessions", fix,
              "of the %" PRId64 " sessions that %s allows %" PRId64
              " are left; another relay with --claimers %d has %" PRId64,
              max_n, what, max_n > used_n ? max_n - used_n : 0, check->cfg->claimers_n, needed_n);
  }
}

static void check_sessions(struct check *check) {
  const struct cfg *cfg = check->cfg;
  int64_t needed_n = cfg->claimers_n + SESSIONS_ALWAYS + (cfg->has_no_cleanup ? 0 : SESSIONS_CLEANUP);
  const PGresult *row = check_ask(check, "sessions", embed_check_sessions_sql, 0, NULL);
  if (row == NULL || PQntuples(row) == 0) {
    return;
  }
  int said_n = check->counts[CHECK_ERROR] + check->counts[CHECK_WARNING];
  /* This session is among them and ends with the check. */
  judge_limit(check, "the server (max_connections)", "raise max_connections, or lower --claimers",
              pg_parse_int64(row, 0, 0), pg_parse_int64(row, 0, 1) - 1, needed_n);
  if (pg_parse_int64(row, 0, 2) >= 0) {
    judge_limit(check, "the database", "ALTER DATABASE ... CONNECTION LIMIT, or lower --claimers",
                pg_parse_int64(row, 0, 2), pg_parse_int64(row, 0, 3) - 1, needed_n);
  }
  if (pg_parse_int64(row, 0, 4) >= 0) {
    char fix[CHECK_TEXT_BYTES];
    (void)snprintf(fix, sizeof fix, "ALTER ROLE %s CONNECTION LIMIT %" PRId64 ", or lower --claimers", check->role,
                   2 * needed_n);
    judge_limit(check, "the role", fix, pg_parse_int64(row, 0, 4), pg_parse_int64(row, 0, 5) - 1, needed_n);
  }
  if (said_n == check->counts[CHECK_ERROR] + check->counts[CHECK_WARNING]) {
    check_say(check, CHECK_OK, "sessions", NULL, "there is room for the %" PRId64 " sessions of a relay", needed_n);
  }
}

/* ---- the table */

/* Why a name leads nowhere; text: what PostgreSQL said, or "". */
static void explain_missing(struct check *check, const struct schema_name *name, const char *text) {
  const char *values[] = {name->table, name->schema};
  char fix[CHECK_TEXT_BYTES];
  const PGresult *rows = check_ask(check, "table", embed_check_unseen_sql, 2, values);
  if (rows == NULL) {
    return;
  }
  if (PQntuples(rows) == 0) {
    check_say(check, CHECK_ERROR, "table", "outboxd init makes it; or correct --table",
              "there is no table %s in this database", check->cfg->table);
  } else if (!is_true(rows, 0, 2)) {
    (void)snprintf(fix, sizeof fix, "GRANT USAGE ON SCHEMA %s TO %s", PQgetvalue(rows, 0, 0), check->role);
    check_say(check, CHECK_ERROR, "table_rights", fix, "%s may not look into schema %s, in which %s is", check->role,
              PQgetvalue(rows, 0, 0), PQgetvalue(rows, 0, 1));
  } else {
    (void)snprintf(fix, sizeof fix, "--table %s", PQgetvalue(rows, 0, 1));
    check_say(check, CHECK_ERROR, "table", fix, "%s is not in the search_path%s%s", check->cfg->table,
              text[0] != '\0' ? ": " : "", text);
  }
}

static bool find_relation(struct check *check) {
  struct schema_name name;
  struct err err = ERR_INIT;
  if (schema_parse_name(check->cfg->table, &name, &err) != 0) {
    check_say(check, CHECK_ERROR, "table", "correct --table", "%s", err.text);
    return false;
  }
  int rc = schema_find(check->pg, &name, NULL, &check->relation, &err);
  if (rc == 0 && check->relation.oid != 0) {
    schema_show_name(&check->relation.name, check->shown);
    return true;
  }
  if (rc != 0 && pg_state(check->pg) != PG_IDLE) {
    check_say(check, CHECK_ERROR, "table", "run the check again", "%s", err.text);
    return false;
  }
  explain_missing(check, &name, err.text);
  return false;
}

/* The layout as the relay itself reads it. */
static void load_table(struct check *check, bool has_rights) {
  struct err err = ERR_INIT;
  if (table_load(check->pg, check->cfg, NULL, &check->table, &err) != 0) {
    if (has_rights || strcmp(err.code, "missing_privilege") != 0) { /* the rights have been told one by one */
      check_say(check, CHECK_ERROR, "table", "docs/schema.md lists the columns and their types", "%s", err.text);
    } else {
      check_say(check, CHECK_SKIPPED, "table", NULL,
                "columns, indexes, the claim's plan and what is pending are looked at once the rights above are there");
    }
    return;
  }
  if (check->relation.kind == 'p') {
    check_say(check, CHECK_OK, "table", NULL, "%s, partitioned by %s, %d partitions: columns and types are right",
              check->shown, check->relation.partition_key, check->table->leaves_n);
  } else {
    check_say(check, CHECK_OK, "table", NULL, "%s, plain: columns and types are right", check->shown);
  }
  if (fleet_describe(check->cfg->lanes_n, check->table->name, check->table->database, &check->fleet, &err) != 0) {
    check->is_out_of_memory = true;
  }
}

static void check_sequence(struct check *check) {
  char fix[CHECK_TEXT_BYTES];
  const PGresult *rows = check_ask_of(check, "id_sequence", embed_check_sequence_sql, check->relation.oid);
  if (rows == NULL) {
    return;
  }
  if (PQntuples(rows) == 0) {
    check_say(check, CHECK_OK, "id_sequence", NULL,
              "column id draws from no sequence: whoever sets it has to let it rise in the order of the inserts");
  } else if (pg_parse_int64(rows, 0, 1) > 1) {
    (void)snprintf(fix, sizeof fix, "ALTER SEQUENCE %s CACHE 1", PQgetvalue(rows, 0, 0));
    check_say(check, CHECK_ERROR, "id_sequence", fix,
              "%s hands out %s ids at a time to each session: ids do not follow the order of the inserts, so events of "
              "an aggregate are published out of order",
              PQgetvalue(rows, 0, 0), PQgetvalue(rows, 0, 1));
  } else {
    check_say(check, CHECK_OK, "id_sequence", NULL, "%s hands out ids one at a time", PQgetvalue(rows, 0, 0));
  }
}

/* A table without a key that a publication includes takes no updates. */
static void check_identity(struct check *check) {
  const PGresult *rows = check_ask_of(check, "replica_identity", embed_check_identity_sql, check->relation.oid);
  if (rows == NULL) {
    return;
  }
  if (pg_parse_int64(rows, 0, 0) > 0) {
    char fix[CHECK_TEXT_BYTES];
    (void)snprintf(fix, sizeof fix,
                   "ALTER TABLE %s REPLICA IDENTITY FULL%s, or leave the outbox out of the publication",
                   PQgetvalue(rows, 0, 1), pg_parse_int64(rows, 0, 0) > 1 ? ", and the others" : "");
    check_say(check, CHECK_ERROR, "replica_identity", fix,
              "%s%s in a publication without a replica identity: PostgreSQL refuses to mark messages there",
              PQgetvalue(rows, 0, 1), pg_parse_int64(rows, 0, 0) > 1 ? " and other partitions are" : " is");
  } else {
    check_say(check, CHECK_OK, "replica_identity", NULL, "no publication is in the way of updates");
  }
}

static void check_notify(struct check *check) {
  const PGresult *rows = check_ask_of(check, "wake_up", embed_notify_trigger_sql, check->relation.oid);
  if (rows != NULL) {
    check_say(check, CHECK_OK, "wake_up", NULL, "%s",
              is_true(rows, 0, 0) ? "by the trigger outboxd_notify, at each COMMIT"
                                  : "by polling only, every --poll-interval (outboxd init --notify adds a trigger)");
  }
}

/* What applications call.  Never a fault: a relay needs none of it. */
static void check_functions(struct check *check) {
  static const char *const names[] = {"outbox_record", "outbox_process_once", "outbox_uuid_v7"};
  char missing[CHECK_TEXT_BYTES] = "";
  const PGresult *rows = check_ask_of(check, "functions", embed_functions_sql, check->relation.oid);
  if (rows == NULL) {
    return;
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    bool is_there = false;
    for (int row = 0; row < PQntuples(rows) && !is_there; row++) {
      is_there =
          strcmp(PQgetvalue(rows, row, 0), names[i]) == 0 && strncmp(PQgetvalue(rows, row, 5), "outboxd: ", 9) == 0;
    }
    if (!is_there) {
      size_t n = strlen(missing);
      (void)snprintf(missing + n, sizeof missing - n, "%s%s", n > 0 ? ", " : "", names[i]);
    }
  }
  if (missing[0] == '\0') {
    check_say(check, CHECK_OK, "functions", NULL, "applications can call outbox_record and outbox_process_once");
  } else {
    check_say(check, CHECK_OK, "functions", NULL,
              "for applications, missing: %s (outboxd init adds them; run needs none)", missing);
  }
}

/* ---- streams that will be written next */

/* A row of sql/check_pending.sql. */
struct pending_row {
  const PGresult *rows;
  int row;
};

static size_t render_pending(const struct check *check, const void *arg, char *buf, size_t cap) {
  const struct pending_row *at = arg;
  const struct template_values values = {
      .lane = (int)pg_parse_int64(at->rows, at->row, 0),
      .aggregate_type = PQgetvalue(at->rows, at->row, 1),
      .aggregate_type_bytes = (size_t)PQgetlength(at->rows, at->row, 1),
      .aggregate_id = PQgetvalue(at->rows, at->row, 2),
      .aggregate_id_bytes = (size_t)PQgetlength(at->rows, at->row, 2),
      .event_type = PQgetvalue(at->rows, at->row, 3),
      .event_type_bytes = (size_t)PQgetlength(at->rows, at->row, 3),
  };
  return template_render(check->template, &values, buf, cap);
}

/* Where a lane has more than one stream, those of the messages that come next. */
static void note_streams(struct check *check) {
  char lanes[NUMBER_BYTES];
  const char *values[] = {lanes};
  const struct sql_var vars[] = {{"table", check->table->name}, {NULL, NULL}};
  struct err err = ERR_INIT;
  char *sql = NULL;
  if (check->template == NULL || template_is_per_lane(check->template)) {
    return;
  }
  (void)snprintf(lanes, sizeof lanes, "%d", check->cfg->lanes_n);
  if (sql_expand(embed_check_pending_sql, vars, &sql, &err) != 0) {
    check->is_out_of_memory = true;
    return;
  }
  const PGresult *rows = check_ask(check, "redis_keys", sql, 1, values);
  for (int row = 0; rows != NULL && row < PQntuples(rows); row++) {
    const struct pending_row at = {rows, row};
    check_add_key(check, CHECK_KEY_STREAM, false, render_pending, &at);
  }
  free(sql);
}

void check_postgres(struct check *check) {
  if (!connect_session(check) || !check_server(check)) {
    return;
  }
  check_sessions(check);
  if (!find_relation(check)) {
    return;
  }
  bool has_rights = check_relay_rights(check);
  load_table(check, has_rights);
  if (check->table != NULL) {
    check_plan(check);
    check_sequence(check);
    check_identity(check);
    check_notify(check);
    check_functions(check);
    note_streams(check);
  }
  check_cleanup_rights(check);
  if (check->table != NULL) {
    check_state(check);
  }
  pg_close(check->pg);
}
