/*
 * `outboxd check`: privileges in PostgreSQL, each by itself with the statement that gives it.
 *
 * Owns nothing beyond a call; main thread.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd_check_impl.h"
#include "embed.h"

#define PROCESSED "processed_messages"

/* ---- relaying */

/* A privilege that is missing on some of the tables: a row of sql/check_rights.sql. */
static void say_missing(struct check *check, const PGresult *rows, int row) {
  char fix[CHECK_TEXT_BYTES];
  const char *privilege = PQgetvalue(rows, row, 0);
  long n = strtol(PQgetvalue(rows, row, 1), NULL, 10);
  const char *name = PQgetvalue(rows, row, 2);
  bool is_root = PQgetvalue(rows, row, 3)[0] == 't';
  bool is_schema = strncmp(name, "SCHEMA ", strlen("SCHEMA ")) == 0;
  int used = is_root || n == 1 ? snprintf(fix, sizeof fix, "GRANT %s ON %s TO %s", privilege, name, check->role)
                               : snprintf(fix, sizeof fix,
                                          "run outboxd init as the owner: it passes on what is granted on the table");
  if (is_root && n > 1 && !is_schema && used > 0 && (size_t)used < sizeof fix) {
    (void)snprintf(fix + used, sizeof fix - (size_t)used,
                   "; then outboxd init as the owner, which passes it on to the partitions");
  }
  if (n > 1) {
    check_say(check, CHECK_ERROR, "table_rights", fix, "%s lacks %s on %s and %ld more", check->role, privilege, name,
              n - 1);
  } else {
    check_say(check, CHECK_ERROR, "table_rights", fix, "%s lacks %s on %s", check->role, privilege, name);
  }
}

bool check_relay_rights(struct check *check) {
  const PGresult *rows = check_ask_of(check, "table_rights", embed_check_rights_sql, check->relation.oid);
  if (rows == NULL) {
    return false;
  }
  for (int row = 0; row < PQntuples(rows); row++) {
    say_missing(check, rows, row);
  }
  if (PQntuples(rows) > 0) {
    return false;
  }
  check_say(check, CHECK_OK, "table_rights", NULL, "%s may read the table and mark messages%s", check->role,
            check->relation.kind == 'p' ? ", in each of its partitions too" : "");
  return true;
}

/* ---- cleaning up */

/* The columns of sql/cleanup_rights.sql. */
enum { RIGHTS_OWNER = 1, RIGHTS_SCHEMA = 2, RIGHTS_IS_OWNER = 3, RIGHTS_CAN_CREATE = 4, RIGHTS_CAN_DELETE = 5 };

static const PGresult *load_rights(struct check *check, uint32_t oid) {
  const PGresult *rows = check_ask_of(check, "cleanup_rights", embed_cleanup_rights_sql, oid);
  return rows != NULL && PQntuples(rows) > 0 ? rows : NULL;
}

static bool may(const PGresult *rights, int column) {
  return PQgetvalue(rights, 0, column)[0] == 't';
}

static void check_partition_rights(struct check *check, const PGresult *rights) {
  char fix[CHECK_TEXT_BYTES];
  if (!may(rights, RIGHTS_IS_OWNER)) {
    (void)snprintf(
        fix, sizeof fix,
        "GRANT %s TO %s; or --no-cleanup here, and a process with these rights elsewhere (docs/privileges.md)",
        PQgetvalue(rights, 0, RIGHTS_OWNER), check->role);
    check_say(check, CHECK_WARNING, "cleanup_rights", fix,
              "%s is not a member of the table's owner %s: partitions are neither made nor dropped", check->role,
              PQgetvalue(rights, 0, RIGHTS_OWNER));
  }
  if (!may(rights, RIGHTS_CAN_CREATE)) {
    (void)snprintf(fix, sizeof fix, "GRANT CREATE ON SCHEMA %s TO %s; or --no-cleanup",
                   PQgetvalue(rights, 0, RIGHTS_SCHEMA), check->role);
    check_say(check, CHECK_WARNING, "cleanup_rights", fix,
              "%s may not make tables in schema %s: no partitions are made ahead", check->role,
              PQgetvalue(rights, 0, RIGHTS_SCHEMA));
  }
  if (may(rights, RIGHTS_IS_OWNER) && may(rights, RIGHTS_CAN_CREATE)) {
    check_say(check, CHECK_OK, "cleanup_rights", NULL, "%s may make and drop partitions", check->role);
  }
}

static void check_delete_rights(struct check *check, const PGresult *rights, const char *shown, const char *grant) {
  char fix[CHECK_TEXT_BYTES];
  if (may(rights, RIGHTS_CAN_DELETE)) {
    check_say(check, CHECK_OK, "cleanup_rights", NULL, "%s may delete from %s", check->role, shown);
    return;
  }
  (void)snprintf(fix, sizeof fix, "GRANT %s ON %s TO %s; or --no-cleanup", grant, shown, check->role);
  check_say(check, CHECK_WARNING, "cleanup_rights", fix, "%s may not delete from %s: old rows stay", check->role,
            shown);
}

static void check_processed_rights(struct check *check) {
  struct schema_relation found;
  struct schema_name name = check->relation.name;
  struct err err = ERR_INIT;
  char shown[SCHEMA_FULL_NAME_BYTES];
  (void)snprintf(name.table, sizeof name.table, PROCESSED);
  schema_show_name(&name, shown);
  if (schema_find(check->pg, &name, NULL, &found, &err) != 0) {
    check_say(check, CHECK_ERROR, "cleanup_rights", "run the check again", "%s", err.text);
  } else if (found.oid == 0) {
    check_say(check, CHECK_WARNING, "cleanup_rights", "outboxd init makes it; or leave --processed-retention out",
              "--processed-retention is given, but there is no table %s", shown);
  } else {
    const PGresult *rights = load_rights(check, found.oid);
    if (rights != NULL) {
      check_delete_rights(check, rights, shown, "SELECT, DELETE");
    }
  }
}

void check_cleanup_rights(struct check *check) {
  if (check->cfg->has_no_cleanup) {
    check_say(check, CHECK_OK, "cleanup_rights", NULL, "none are needed: --no-cleanup");
    return;
  }
  const PGresult *rights = load_rights(check, check->relation.oid);
  if (rights == NULL) {
    return;
  }
  if (check->relation.kind != 'p') {
    check_delete_rights(check, rights, check->shown, "SELECT, DELETE");
  } else if (check->relation.is_by_created_at) {
    check_partition_rights(check, rights);
  } else {
    check_say(check, CHECK_OK, "cleanup_rights", NULL,
              "none are needed: the table is partitioned by %s, so its partitions are left to you",
              check->relation.partition_key);
  }
  if (check->cfg->processed_retention_ms > 0) {
    check_processed_rights(check);
  }
}
