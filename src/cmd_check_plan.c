/*
 * `outboxd check`: the pending index, and that the claim goes by it on every partition.
 *
 * What is explained are the very statements that a claimer prepares, under its settings.  Owns nothing beyond a call; main thread.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd_check_impl.h"
#include "embed.h"
#include "outboxd/claim.h"

/* Every list a claim may have to filter by. */
#define FORM_ALL (CLAIM_IN_LANES | CLAIM_NOT_HELD_BACK | CLAIM_NOT_AMONG_FEW)

/* The columns of sql/check_indexes.sql. */
enum { INDEX_SCHEMA, INDEX_TABLE, INDEX_NAME, INDEX_QUOTED };

struct plan {
  struct check *check;
  const PGresult *indexes;
  int scans_n;      /* of the outbox's tables */
  int elsewhere_n;  /* among these, not by the pending index */
  char first[1024]; /* the first of those, in words */
  char table[SCHEMA_FULL_NAME_BYTES];
};

static const char *text_of(const json_t *node, const char *name) {
  const char *text = json_string_value(json_object_get(node, name));
  return text != NULL ? text : "";
}

static void note_scan(struct plan *plan, const json_t *node) {
  const char *index = text_of(node, "Index Name");
  bool is_by_index = strcmp(text_of(node, "Node Type"), "Index Scan") == 0 ||
                     strcmp(text_of(node, "Node Type"), "Index Only Scan") == 0;
  bool is_pending = false;
  const char *table = NULL;
  for (int row = 0; row < PQntuples(plan->indexes); row++) {
    if (strcmp(PQgetvalue(plan->indexes, row, INDEX_TABLE), text_of(node, "Relation Name")) != 0 ||
        strcmp(PQgetvalue(plan->indexes, row, INDEX_SCHEMA), text_of(node, "Schema")) != 0) {
      continue;
    }
    if (PQgetisnull(plan->indexes, row, INDEX_NAME)) {
      return; /* that it has none has been said */
    }
    table = PQgetvalue(plan->indexes, row, INDEX_QUOTED);
    is_pending = is_pending || strcmp(PQgetvalue(plan->indexes, row, INDEX_NAME), index) == 0;
  }
  if (table == NULL) {
    return;
  }
  plan->scans_n++;
  if (is_by_index && is_pending) {
    return;
  }
  if (plan->elsewhere_n++ == 0) {
    (void)snprintf(plan->first, sizeof plan->first, "%s by %s%s%s", table, text_of(node, "Node Type"),
                   index[0] != '\0' ? " on " : "", index);
    (void)snprintf(plan->table, sizeof plan->table, "%s", table);
  }
}

static void walk(struct plan *plan, const json_t *node) {
  size_t i;
  json_t *child;
  if (json_object_get(node, "Relation Name") != NULL) {
    note_scan(plan, node);
  }
  json_array_foreach(json_object_get(node, "Plans"), i, child) {
    walk(plan, child);
  }
}

/* Prepares one form of the claim as a claimer does and reads its plan.  False when it could not be had, which is said. */
static bool explain(struct plan *plan, unsigned form, enum claim_kind kind) {
  struct check *check = plan->check;
  char sql[256];
  struct err err = ERR_INIT;
  const struct pg_step prepare = claim_step_prepare_claim(check->table, form, kind);
  (void)snprintf(sql, sizeof sql,
                 "EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) EXECUTE %s ('0', '%d', NULL, NULL, '%d', '%lld', '1', "
                 "'{}', '{}', NULL)",
                 prepare.name, check->cfg->max_attempts_n, check->cfg->batch_n, (long long)check->cfg->max_batch_bytes);
  const struct pg_step steps[] = {prepare, {.kind = PG_QUERY, .sql = sql}};
  if (pg_call(check->pg, steps, 2, check->cfg->session_timeout_ms, NULL, &err) != 0) {
    check_say(check, CHECK_ERROR, "claim_plan", "run the check again; if it stays, look into PostgreSQL's log",
              "the claim cannot be prepared: %s", err.text);
    return false;
  }
  json_t *json = json_loads(PQgetvalue(pg_reply(check->pg)->results[1], 0, 0), 0, NULL);
  if (json == NULL) {
    check_say(check, CHECK_SKIPPED, "claim_plan", NULL, "the claim's plan cannot be read");
    return false;
  }
  walk(plan, json_object_get(json_array_get(json, 0), "Plan"));
  json_decref(json);
  return true;
}

/* Says which tables have no pending index; the rows of sql/check_indexes.sql, the caller's to PQclear, or NULL. */
static PGresult *check_indexes(struct check *check) {
  int missing_n = 0;
  const char *first = "";
  if (check_ask_of(check, "pending_index", embed_check_indexes_sql, check->relation.oid) == NULL) {
    return NULL;
  }
  PGresult *rows = pg_take_result(check->pg, 0);
  for (int row = 0; row < PQntuples(rows); row++) {
    if (PQgetisnull(rows, row, INDEX_NAME) && missing_n++ == 0) {
      first = PQgetvalue(rows, row, INDEX_QUOTED);
    }
  }
  if (missing_n > 0) {
    check_say(check, CHECK_ERROR, "pending_index",
              "run outboxd init as the owner: it builds the index beside the writers",
              "%s has no index on (id) WHERE published_at IS NULL%s: each claim reads the whole table", first,
              missing_n > 1 ? ", and others have none either" : "");
  } else {
    check_say(check, CHECK_OK, "pending_index", NULL, "(id) WHERE published_at IS NULL%s",
              check->relation.kind == 'p' ? ", on every partition" : "");
  }
  return rows;
}

void check_plan(struct check *check) {
  static const unsigned forms[] = {0, FORM_ALL};
  struct plan plan = {.check = check};
  PGresult *indexes = check_indexes(check);
  if (indexes == NULL || check_ask(check, "claim_plan", embed_session_plan_sql, 0, NULL) == NULL) {
    PQclear(indexes);
    return;
  }
  plan.indexes = indexes;
  bool is_read = true;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    for (int kind = 0; kind < CLAIM_KINDS_N && is_read; kind++) {
      is_read = explain(&plan, forms[i], (enum claim_kind)kind);
    }
  }
  if (is_read && plan.elsewhere_n > 0) {
    char fix[CHECK_TEXT_BYTES];
    (void)snprintf(fix, sizeof fix,
                   "CREATE INDEX CONCURRENTLY ON %s USING btree (id) WHERE published_at IS NULL, drop the one that is "
                   "not used, ANALYZE",
                   plan.table);
    check_say(check, CHECK_ERROR, "claim_plan", fix, "the claim does not go by the pending index: it reads %s",
              plan.first);
  } else if (is_read && plan.scans_n > 0) {
    check_say(check, CHECK_OK, "claim_plan", NULL, "every scan of the claim goes by the pending index");
  }
  PQclear(indexes);
}
