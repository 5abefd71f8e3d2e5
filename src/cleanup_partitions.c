/*
 * Which partitions are made and which may go.
 *
 * Run by: the cleanup's thread.  Never: takes anything for a leftover of its own that does not carry its mark with both oids.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup_impl.h"
#include "embed.h"
#include "outboxd/buf.h"
#include "outboxd/clock.h"
#include "outboxd/log.h"

#define OID_BYTES 16
#define KEY_BYTES (SCHEMA_FULL_NAME_BYTES + 32)

/* Whether a warning about a partition is due. */
static bool is_due(struct cleanup *c, const char *event, const char *name, const char *text, int64_t repeat_us) {
  char key[KEY_BYTES];
  (void)snprintf(key, sizeof key, "%s %s", event, name);
  return cleanup_is_due(&c->said, key, text, repeat_us, clock_now_us());
}

static int64_t repeat_us(const struct cleanup *c) {
  return c->cfg->alert_repeat_ms * 1000;
}

/* -------------------------------------------------------------------------------------------------- making */

static void note_made(void *arg, const struct schema_partition *made) {
  struct cleanup *c = arg;
  char shown[SCHEMA_FULL_NAME_BYTES];
  char from[CLOCK_RFC3339_BYTES];
  char to[CLOCK_RFC3339_BYTES];
  schema_show_name(&made->name, shown);
  (void)clock_format_rfc3339(made->bounds.from_us, from);
  (void)clock_format_rfc3339(made->bounds.to_us, to);
  c->counts.created_n++;
  log_event(LOG_INFO, "partition_created", "a partition has been made ahead", LOG_STR("partition", shown),
            LOG_STR("from", from), LOG_STR("to", to));
}

static int make_ahead(struct cleanup *c, const struct cleanup_rights *rights, struct err *err) {
  int granted_n = 0;
  if (!rights->can_create) {
    char text[4 * SCHEMA_FULL_NAME_BYTES];
    (void)snprintf(
        text, sizeof text,
        "%s may not make tables in schema %s, so no partitions are made ahead: GRANT CREATE ON SCHEMA %s TO %s",
        rights->user, rights->schema, rights->schema, rights->user);
    if (is_due(c, "cleanup_off", "create", text, INT64_MAX)) {
      log_event(LOG_WARNING, "cleanup_off", text, LOG_STR("part", "create"), LOG_STR("table", c->shown));
    }
    return 0;
  }
  int rc = schema_create_ahead(c->pg, &c->table, c->cfg->partitions_ahead_ms, c->stop, note_made, c, err);
  if (rc == 0) {
    rc = schema_pass_grants(c->pg, &c->table, c->stop, &granted_n, err);
  }
  return rc;
}

/* -------------------------------------------------------------------------------------------------- saying */

static void say_kept(struct cleanup *c, const char *shown, const struct cleanup_look *look) {
  char text[256];
  char counts[64];
  (void)snprintf(counts, sizeof counts, "%" PRId64 " %" PRId64, look->pending_n, look->dead_n);
  if (!is_due(c, "partition_kept", shown, counts, repeat_us(c))) {
    return;
  }
  (void)snprintf(text, sizeof text,
                 "an expired partition is kept: it holds %" PRId64 " pending and %" PRId64
                 " dead messages; outboxd retry or outboxd discard settles dead ones",
                 look->pending_n, look->dead_n);
  log_event(LOG_WARNING, "partition_kept", text, LOG_STR("partition", shown), LOG_INT("pending", look->pending_n),
            LOG_INT("dead", look->dead_n), LOG_REAL("oldest_seconds", look->oldest_s));
}

static void say_blocked(struct cleanup *c, const char *shown, const char *objects) {
  char text[ERR_TEXT_BYTES + 128];
  if (!is_due(c, "partition_blocked", shown, objects, repeat_us(c))) {
    return;
  }
  (void)snprintf(text, sizeof text, "an expired partition cannot be dropped because of %s", objects);
  log_event(LOG_WARNING, "partition_blocked", text, LOG_STR("partition", shown), LOG_STR("objects", objects));
}

static void say_dropped(const char *shown, const char *bounds_text, const struct cleanup_look *look) {
  log_event(LOG_INFO, "partition_dropped", "an expired partition with published messages only has been dropped",
            LOG_STR("partition", shown), LOG_STR("bounds", bounds_text), LOG_INT("size_bytes", look->size_bytes));
}

/* Counts and says what has become of an expired partition. */
static void report(struct cleanup *c, const struct schema_name *name, const char *bounds_text, enum cleanup_fate fate,
                   const struct cleanup_look *look, const struct err *why) {
  char shown[SCHEMA_FULL_NAME_BYTES];
  schema_show_name(name, shown);
  switch (fate) {
  case CLEANUP_DROPPED:
    c->counts.dropped_n++;
    say_dropped(shown, bounds_text, look);
    return;
  case CLEANUP_RETURNED:
    c->counts.kept_n++;
    log_event(LOG_WARNING, "partition_returned",
              "a message came into an expired partition while it was being detached: the partition is attached again",
              LOG_STR("partition", shown), LOG_INT("pending", look->pending_n), LOG_INT("dead", look->dead_n));
    say_kept(c, shown, look);
    return;
  case CLEANUP_BUSY:
    c->counts.busy_n++;
    log_event(LOG_INFO, "partition_busy", "an expired partition is in use; dropping it is tried again soon",
              LOG_STR("partition", shown), LOG_STR("reason", why->text));
    return;
  case CLEANUP_REFUSED:
    c->counts.blocked_n++;
    say_blocked(c, shown, why->text);
    return;
  case CLEANUP_STRANDED:
    c->counts.failed_n++;
    if (is_due(c, "partition_stranded", shown, why->text, repeat_us(c))) {
      log_event(LOG_ERROR, "partition_stranded",
                "a detached partition with messages in it cannot be attached again: attach it by hand, or its messages "
                "are not published",
                LOG_STR("partition", shown), LOG_STR("bounds", bounds_text), LOG_STR("reason", why->text),
                LOG_INT("pending", look->pending_n), LOG_INT("dead", look->dead_n));
    }
    return;
  }
}

/* -------------------------------------------------------------------------------------------------- expired ones */

/* Joins what depends on the partition into objects; empty when nothing does. */
static int find_blockers(struct cleanup *c, uint32_t oid, struct buf *objects, struct err *err) {
  char oid_text[OID_BYTES];
  const char *values[] = {oid_text};
  (void)snprintf(oid_text, sizeof oid_text, "%u", oid);
  if (cleanup_ask(c, embed_cleanup_blockers_sql, NULL, 1, values, err) != 0) {
    return -1;
  }
  const PGresult *rows = pg_reply(c->pg)->results[0];
  for (int row = 0; row < PQntuples(rows); row++) {
    if (buf_printf(objects, err, "%s%s", row > 0 ? ", " : "", PQgetvalue(rows, row, 0)) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Does somebody hold the table for so long that a detach would only wait? */
static int find_holder(struct cleanup *c, uint32_t oid, const char *shown, bool *is_held, struct err *err) {
  char table_oid[OID_BYTES];
  char oid_text[OID_BYTES];
  const char *values[] = {table_oid, oid_text};
  (void)snprintf(table_oid, sizeof table_oid, "%u", c->table.oid);
  (void)snprintf(oid_text, sizeof oid_text, "%u", oid);
  if (cleanup_ask(c, embed_cleanup_holder_sql, NULL, 2, values, err) != 0) {
    return -1;
  }
  const PGresult *row = pg_reply(c->pg)->results[0];
  *is_held = PQntuples(row) > 0;
  /* The process id is the text: the same holder is the same matter. */
  if (*is_held && is_due(c, "partition_held", shown, PQgetvalue(row, 0, 0), repeat_us(c))) {
    log_event(LOG_WARNING, "partition_held",
              "an expired partition cannot be dropped while a long transaction holds the table",
              LOG_STR("partition", shown), LOG_INT("backend_pid", pg_parse_int64(row, 0, 0)),
              LOG_STR("application_name", PQgetvalue(row, 0, 1)),
              LOG_REAL("transaction_seconds", strtod(PQgetvalue(row, 0, 2), NULL)));
  }
  return 0;
}

/* Looks cheaply first: most of what stays is seen here, without touching anything. */
static int remove_expired(struct cleanup *c, const struct schema_partition *partition, bool has_default,
                          struct err *err) {
  char shown[SCHEMA_FULL_NAME_BYTES];
  struct cleanup_look look = {0};
  struct buf objects = BUF_INIT;
  struct err why = ERR_INIT;
  enum cleanup_fate fate = CLEANUP_BUSY;
  bool is_held = false;
  int rc = -1;
  schema_show_name(&partition->name, shown);
  if (find_blockers(c, partition->oid, &objects, err) != 0) {
    goto out;
  }
  if (objects.len > 0) {
    c->counts.blocked_n++;
    say_blocked(c, shown, objects.data);
    rc = 0;
    goto out;
  }
  if (cleanup_look(c, partition->oid, &partition->name, &look, err) != 0) {
    goto out;
  }
  if (look.pending_n + look.dead_n > 0) {
    c->counts.kept_n++;
    say_kept(c, shown, &look);
    rc = 0;
    goto out;
  }
  if (find_holder(c, partition->oid, shown, &is_held, err) != 0) {
    goto out;
  }
  if (is_held) {
    c->counts.busy_n++;
    rc = 0;
    goto out;
  }
  rc = cleanup_remove(c, partition, has_default, &fate, &look, &why, err);
  if (rc == 0) {
    report(c, &partition->name, partition->bounds_text, fate, &look, &why);
  }
out:
  buf_free(&objects);
  return rc;
}

/* Of the newest partition others are made alike, so it always stays. */
static int newest_of(const struct schema_partitions *partitions) {
  int newest = -1;
  for (int i = 0; i < partitions->n; i++) {
    newest = partitions->items[i].is_default ? newest : i;
  }
  return newest;
}

static int remove_all_expired(struct cleanup *c, const struct schema_partitions *partitions, struct err *err) {
  int64_t cut_us = partition_cut(partitions->db_now_us, c->cfg->retention_ms);
  int newest = newest_of(partitions);
  for (int i = 0; i < partitions->n && !stop_is_set(c->stop); i++) {
    const struct schema_partition *item = &partitions->items[i];
    if (item->is_default || i == newest || item->kind != 'r' || item->bounds.to_us > cut_us) {
      continue;
    }
    if (remove_expired(c, item, partitions->has_default, err) != 0) {
      if (pg_state(c->pg) != PG_IDLE || err->class != ERR_RETRY) {
        return -1;
      }
      c->counts.busy_n++;
    }
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- what was left unfinished */

static PGresult *load_marked(struct cleanup *c, struct err *err) {
  char oid[OID_BYTES];
  const char *values[] = {oid};
  (void)snprintf(oid, sizeof oid, "%u", c->table.oid);
  if (cleanup_ask(c, embed_cleanup_marked_sql, NULL, 1, values, err) != 0) {
    return NULL;
  }
  return pg_take_result(c->pg, 0);
}

enum marked_column {
  MARKED_OID,
  MARKED_SCHEMA,
  MARKED_TABLE,
  MARKED_BOUNDS,
  MARKED_IS_PARTITION,
  MARKED_IS_PENDING,
  MARKED_UNMARK
};

static bool is_marked(const PGresult *rows, uint32_t oid) {
  for (int row = 0; row < PQntuples(rows); row++) {
    if (strtoul(PQgetvalue(rows, row, MARKED_OID), NULL, 10) == oid) {
      return true;
    }
  }
  return false;
}

/* Finishes what carries our mark: a table that is detached goes or comes back, a partition that never was detached loses the mark. */
static int finish_marked(struct cleanup *c, const PGresult *rows, int row, struct err *err) {
  struct cleanup_leaving leaving = {.oid = (uint32_t)strtoul(PQgetvalue(rows, row, MARKED_OID), NULL, 10),
                                    .unmark = PQgetvalue(rows, row, MARKED_UNMARK)};
  struct cleanup_look look = {0};
  struct err why = ERR_INIT;
  enum cleanup_fate fate = CLEANUP_BUSY;
  if (PQgetvalue(rows, row, MARKED_IS_PENDING)[0] == 't') {
    return 0;
  }
  if (PQgetvalue(rows, row, MARKED_IS_PARTITION)[0] == 't') {
    return cleanup_run_statement(c, leaving.unmark, err);
  }
  (void)snprintf(leaving.name.schema, sizeof leaving.name.schema, "%s", PQgetvalue(rows, row, MARKED_SCHEMA));
  (void)snprintf(leaving.name.table, sizeof leaving.name.table, "%s", PQgetvalue(rows, row, MARKED_TABLE));
  (void)snprintf(leaving.bounds_text, sizeof leaving.bounds_text, "%s", PQgetvalue(rows, row, MARKED_BOUNDS));
  int rc = cleanup_finish(c, &leaving, &fate, &look, &why, err);
  if (rc == 0) {
    report(c, &leaving.name, leaving.bounds_text, fate, &look, &why);
  }
  return rc;
}

/* Finishes an interrupted detach.  One that somebody else began leaves a table that is theirs: it is said, not touched. */
static int finish_pending(struct cleanup *c, const struct schema_partition *partition, bool is_ours, struct err *err) {
  char shown[SCHEMA_FULL_NAME_BYTES];
  struct cleanup_look look = {0};
  schema_show_name(&partition->name, shown);
  if (cleanup_finalize(c, partition->oid, &partition->name, err) != 0) {
    return -1;
  }
  if (!is_ours && cleanup_look(c, partition->oid, &partition->name, &look, err) != 0) {
    return -1;
  }
  bool is_empty = look.pending_n + look.dead_n == 0;
  log_event(is_empty ? LOG_INFO : LOG_WARNING, "partition_detach_finished",
            is_ours    ? "a detach that an earlier cleanup could not end is finished"
            : is_empty ? "a detach that somebody else began has been finished; the table is left alone"
                       : "a detach that somebody else began has been finished; the table holds messages that are not "
                         "published: attach it again",
            LOG_STR("partition", shown), LOG_BOOL("is_ours", is_ours), LOG_INT("pending", look.pending_n),
            LOG_INT("dead", look.dead_n));
  return 0;
}

/* *is_at_work: somebody detaches a partition right now; PostgreSQL takes one at a time. */
static int recover(struct cleanup *c, const struct schema_partitions *partitions, bool *is_at_work, struct err *err) {
  char pid[16];
  const char *values[] = {pid};
  PGresult *marked = load_marked(c, err);
  int rc = -1;
  *is_at_work = false;
  if (marked == NULL) {
    return -1;
  }
  for (int i = 0; i < partitions->n; i++) {
    if (!partitions->items[i].is_detach_pending) {
      continue;
    }
    (void)snprintf(pid, sizeof pid, "%d", pg_pid(c->pg));
    if (cleanup_ask(c, embed_cleanup_detacher_sql, NULL, 1, values, err) != 0) {
      goto out;
    }
    *is_at_work = PQntuples(pg_reply(c->pg)->results[0]) > 0;
    if (*is_at_work) {
      break;
    }
    if (finish_pending(c, &partitions->items[i], is_marked(marked, partitions->items[i].oid), err) != 0) {
      if (pg_state(c->pg) != PG_IDLE || err->class != ERR_RETRY) {
        goto out;
      }
      report(c, &partitions->items[i].name, "", CLEANUP_BUSY, NULL, err);
      *is_at_work = true;
    }
  }
  PQclear(marked);
  marked = load_marked(c, err);
  if (marked == NULL) {
    return -1;
  }
  for (int row = 0; row < PQntuples(marked) && !stop_is_set(c->stop); row++) {
    if (finish_marked(c, marked, row, err) != 0) {
      if (pg_state(c->pg) != PG_IDLE || err->class != ERR_RETRY) {
        goto out;
      }
      c->counts.busy_n++;
    }
  }
  rc = 0;
out:
  PQclear(marked);
  return rc;
}

/* -------------------------------------------------------------------------------------------------- the whole */

/* Is it a layout that this thread understands?  Says once when not. */
static bool is_ours_to_keep(struct cleanup *c, const struct schema_partitions *partitions) {
  const char *what = NULL;
  if (!c->table.is_by_created_at) {
    what = c->table.partition_key;
  }
  for (int i = 0; i < partitions->n && what == NULL; i++) {
    if (partitions->items[i].kind == 'p') {
      what = "RANGE (created_at), with partitions that are partitioned themselves";
    }
  }
  if (what != NULL && is_due(c, "cleanup_skipped", "", what, INT64_MAX)) {
    log_event(LOG_INFO, "cleanup_skipped",
              "the table's partitions are left to you: outboxd keeps days, weeks or months of created_at only",
              LOG_STR("table", c->shown), LOG_STR("partitioned_by", what));
  }
  return what == NULL;
}

static bool is_owner(struct cleanup *c, const struct cleanup_rights *rights) {
  char text[8 * SCHEMA_QUOTED_BYTES + SCHEMA_FULL_NAME_BYTES];
  if (rights->is_owner) {
    return true;
  }
  (void)snprintf(text, sizeof text,
                 "%s may neither make nor drop partitions of %s, which belongs to %s: GRANT %s TO %s (or make them by "
                 "outboxd init from cron, as its owner)",
                 rights->user, c->shown, rights->owner, rights->owner, rights->user);
  if (is_due(c, "cleanup_off", "partitions", text, INT64_MAX)) {
    log_event(LOG_WARNING, "cleanup_off", text, LOG_STR("part", "partitions"), LOG_STR("table", c->shown));
  }
  return false;
}

int cleanup_partitions(struct cleanup *c, const struct cleanup_rights *rights, struct err *err) {
  struct schema_partitions partitions = {0};
  bool is_at_work = false;
  int rc = -1;
  if (schema_load_partitions(c->pg, &c->table, c->stop, &partitions, err) != 0) {
    goto out;
  }
  if (!is_ours_to_keep(c, &partitions) || !is_owner(c, rights)) {
    rc = 0;
    goto out;
  }
  /* Room for new messages comes first: what follows may wait. */
  struct err make_err = ERR_INIT;
  int make_rc = make_ahead(c, rights, &make_err);
  if (make_rc != 0 && pg_state(c->pg) != PG_IDLE) {
    *err = make_err;
    goto out;
  }
  if (recover(c, &partitions, &is_at_work, err) != 0) {
    goto out;
  }
  if (is_at_work) {
    c->counts.busy_n++;
  } else if (schema_load_partitions(c->pg, &c->table, c->stop, &partitions, err) != 0 ||
             remove_all_expired(c, &partitions, err) != 0) {
    goto out;
  }
  rc = make_rc;
  if (rc != 0) {
    *err = make_err;
  }
out:
  schema_partitions_fini(&partitions);
  return rc;
}
