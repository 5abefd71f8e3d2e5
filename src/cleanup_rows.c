/*
 * Deleting old rows where there are no partitions to drop: the plain table, and processed_messages.
 *
 * Run by: the cleanup's thread.  Never: deletes an unpublished row, reads the whole table for one batch, works without pausing in between.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup_impl.h"
#include "embed.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"

#define PROCESSED "processed_messages"
#define BATCH_ROWS 5000
/* 1 MiB of a table at a time: some thousand rows. */
#define BATCH_BLOCKS 128
/* The pause after a batch, in times that the batch took: what relays and applications have for themselves. */
#define PAUSE_TIMES 9
#define PAUSE_MAX_US INT64_C(2000000)
/* A walk over all blocks of processed_messages comes no more often than in so many parts of its retention. */
#define PROCESSED_PARTS 10

static void pause_after(const struct cleanup *c, int64_t began_us) {
  int64_t pause_us = (clock_now_us() - began_us) * PAUSE_TIMES;
  cleanup_pause(c, pause_us < PAUSE_MAX_US ? pause_us : PAUSE_MAX_US);
}

static int load_now(struct cleanup *c, int64_t *now_us, struct err *err) {
  if (cleanup_ask(c, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", NULL, 0, NULL, err) != 0) {
    return -1;
  }
  *now_us = pg_parse_int64(pg_reply(c->pg)->results[0], 0, 0);
  return 0;
}

static void say_off(struct cleanup *c, const char *part, const char *table, const char *text) {
  if (cleanup_is_due(&c->said, part, text, INT64_MAX, clock_now_us())) {
    log_event(LOG_WARNING, "cleanup_off", text, LOG_STR("part", part), LOG_STR("table", table));
  }
}

/* From the lowest id on, 5,000 rows at a time, until a batch has no old row in it. */
static int walk_ids(struct cleanup *c, const char *table, int64_t cut_us, struct err *err) {
  char from[24] = "-9223372036854775808";
  char cut[24];
  const char *values[] = {from, cut};
  const struct sql_var vars[] = {{"table", table}, {NULL, NULL}};
  (void)snprintf(cut, sizeof cut, "%" PRId64, cut_us);
  while (!stop_is_set(c->stop)) {
    int64_t began_us = clock_now_us();
    if (cleanup_ask(c, embed_cleanup_delete_sql, vars, 2, values, err) != 0) {
      return -1;
    }
    const PGresult *row = pg_reply(c->pg)->results[0];
    int64_t old_n = pg_parse_int64(row, 0, 2);
    int64_t gone_n = pg_parse_int64(row, 0, 3);
    c->counts.deleted_n += gone_n;
    if (old_n == 0 || pg_parse_int64(row, 0, 1) < BATCH_ROWS) {
      break;
    }
    (void)snprintf(from, sizeof from, "%s", PQgetvalue(row, 0, 0));
    pause_after(c, began_us);
  }
  return 0;
}

/* Over all blocks that there are now, once: for tables without an index that leads to what is old. */
static int walk_blocks(struct cleanup *c, uint32_t oid, const struct sql_var *vars, int64_t cut_us, int64_t *deleted_n,
                       struct err *err) {
  char oid_text[16];
  char from[40];
  char to[40];
  char cut[24];
  const char *oid_values[] = {oid_text};
  const char *values[] = {from, to, cut};
  (void)snprintf(oid_text, sizeof oid_text, "%u", oid);
  (void)snprintf(cut, sizeof cut, "%" PRId64, cut_us);
  if (cleanup_ask(c, embed_cleanup_blocks_sql, NULL, 1, oid_values, err) != 0) {
    return -1;
  }
  int64_t blocks_n = pg_parse_int64(pg_reply(c->pg)->results[0], 0, 0);
  for (int64_t block = 0; block < blocks_n && !stop_is_set(c->stop); block += BATCH_BLOCKS) {
    int64_t began_us = clock_now_us();
    int64_t end = block + BATCH_BLOCKS < blocks_n ? block + BATCH_BLOCKS : blocks_n;
    (void)snprintf(from, sizeof from, "(%" PRId64 ",0)", block);
    (void)snprintf(to, sizeof to, "(%" PRId64 ",0)", end);
    if (cleanup_ask(c, embed_cleanup_delete_blocks_sql, vars, 3, values, err) != 0) {
      return -1;
    }
    *deleted_n += strtoll(PQcmdTuples(pg_reply(c->pg)->results[0]), NULL, 10);
    pause_after(c, began_us);
  }
  return 0;
}

int cleanup_rows(struct cleanup *c, const struct cleanup_rights *rights, struct err *err) {
  char table[SCHEMA_FULL_NAME_BYTES];
  int64_t now_us = 0;
  schema_quote_name(&c->table.name, table);
  if (!rights->can_delete) {
    char text[4 * SCHEMA_FULL_NAME_BYTES];
    (void)snprintf(text, sizeof text, "%s may not delete from %s, so nothing is cleaned up: GRANT DELETE ON %s TO %s",
                   rights->user, c->shown, c->shown, rights->user);
    say_off(c, "delete", c->shown, text);
    return 0;
  }
  if (load_now(c, &now_us, err) != 0) {
    return -1;
  }
  int64_t cut_us = now_us - c->cfg->retention_ms * 1000;
  const struct sql_var vars[] = {
      {"table", table}, {"age", "m.created_at"}, {"condition", "m.published_at IS NOT NULL"}, {NULL, NULL}};
  int rc = rights->has_id_index ? walk_ids(c, table, cut_us, err)
                                : walk_blocks(c, c->table.oid, vars, cut_us, &c->counts.deleted_n, err);
  return rc == 0 ? 0 : err_wrap(err, "cannot delete old rows of %s", c->shown);
}

/* What is wrong with processed_messages, if anything; text gets it. */
static bool can_walk_processed(const struct cleanup_rights *rights, const char *shown, char *text, size_t n) {
  if (!rights->is_found) {
    (void)snprintf(text, n, "--processed-retention is given, but there is no table %s: outboxd init makes it", shown);
  } else if (rights->kind != 'r' || !rights->has_processed_at) {
    (void)snprintf(text, n, "%s is left alone: it is no plain table with a column processed_at", shown);
  } else if (!rights->can_delete) {
    (void)snprintf(text, n, "%s may not delete from %s: GRANT SELECT, DELETE ON %s TO %s", rights->user, shown, shown,
                   rights->user);
  } else {
    return true;
  }
  return false;
}

int cleanup_processed(struct cleanup *c, struct err *err) {
  char table[SCHEMA_FULL_NAME_BYTES];
  char shown[SCHEMA_FULL_NAME_BYTES];
  char text[4 * SCHEMA_FULL_NAME_BYTES];
  struct schema_name name = c->table.name;
  struct schema_relation found;
  struct cleanup_rights rights = {.is_found = false};
  int64_t began_us = clock_now_us();
  int64_t now_us = 0;
  if (c->cfg->processed_retention_ms == 0) {
    return 0;
  }
  (void)snprintf(name.table, sizeof name.table, PROCESSED);
  schema_quote_name(&name, table);
  schema_show_name(&name, shown);
  if (schema_find(c->pg, &name, c->stop, &found, err) != 0 ||
      (found.oid != 0 && cleanup_load_rights(c, found.oid, &rights, err) != 0)) {
    return -1;
  }
  if (!can_walk_processed(&rights, shown, text, sizeof text)) {
    say_off(c, "processed", shown, text);
    return 0;
  }
  if (began_us < c->next_processed_us) {
    return 0;
  }
  if (load_now(c, &now_us, err) != 0) {
    return -1;
  }
  const struct sql_var vars[] = {{"table", table}, {"age", "m.processed_at"}, {"condition", "true"}, {NULL, NULL}};
  if (walk_blocks(c, found.oid, vars, now_us - c->cfg->processed_retention_ms * 1000, &c->counts.processed_deleted_n,
                  err) != 0) {
    return err_wrap(err, "cannot delete old rows of %s", shown);
  }
  c->next_processed_us = began_us + c->cfg->processed_retention_ms * 1000 / PROCESSED_PARTS;
  return 0;
}
