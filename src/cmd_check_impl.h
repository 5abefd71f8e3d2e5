/*
 * The inside of `outboxd check`, shared by the files it is made of: cmd_check.c (the order, the report), cmd_check_postgres.c (the server, the table),
 * cmd_check_rights.c (privileges), cmd_check_plan.c (the claim's plan), cmd_check_state.c (what the alert thread looks at), cmd_check_redis.c (the server, the
 * keys), cmd_check_acl.c (Redis' ACL).
 *
 * Main thread, no other exists.
 */
#ifndef OUTBOXD_CMD_CHECK_IMPL_H
#define OUTBOXD_CMD_CHECK_IMPL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "outboxd/cfg.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/redis.h"
#include "outboxd/schema.h"
#include "outboxd/table.h"
#include "outboxd/template.h"
#include "outboxd/url.h"

#define CHECK_TEXT_BYTES 2048

enum check_level {
  CHECK_OK,
  CHECK_SKIPPED, /* could not be looked at; no verdict */
  CHECK_WARNING, /* run works, but something is worse than it should be */
  CHECK_ERROR    /* run would not work, or not keep its promises */
};
#define CHECK_LEVELS_N 4

/* A key of Redis that a relay uses. */
enum check_key_kind { CHECK_KEY_LANES, CHECK_KEY_JOURNAL, CHECK_KEY_STREAM, CHECK_KEY_INDEX };
#define CHECK_KEY_KINDS_N 4
struct check_key {
  enum check_key_kind kind;
  bool is_sample; /* made up to ask for permissions, not a stream that will be written */
  char *name;
  size_t bytes;
};

struct check {
  const struct cfg *cfg;
  json_t *findings; /* with --json; else NULL */
  bool is_out_of_memory;
  int counts[CHECK_LEVELS_N];

  struct template *template; /* NULL: refused, said */
  struct url url;
  bool has_url; /* false: refused, said */

  /* PostgreSQL */
  struct pg *pg;
  struct schema_relation relation;
  char shown[SCHEMA_FULL_NAME_BYTES]; /* the table's name for people */
  char role[SCHEMA_QUOTED_BYTES];     /* ours, quoted */
  struct table *table;                /* NULL: it cannot be worked on, said */
  char *fleet;                        /* what run would record in Redis; NULL: not known */

  /* Redis */
  struct redis *redis;
  struct redis_pipeline *pipeline;
  struct check_key *keys;
  int keys_n;
};

/* One finding: its level, its name in the report, what to do (NULL: nothing), what was seen. */
void check_say(struct check *check, enum check_level level, const char *name, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- PostgreSQL */

/* Asks one statement of sql/; its rows, valid until the next question, or NULL: then the finding `name` says why. */
const PGresult *check_ask(struct check *check, const char *name, const char *sql, int params_n,
                          const char *const *values);

/* The same for a statement whose one parameter is a table's oid. */
const PGresult *check_ask_of(struct check *check, const char *name, const char *sql, uint32_t oid);

/* Everything that is about PostgreSQL.  Fills table and fleet where the table can be worked on. */
void check_postgres(struct check *check);
/* What the relay needs in order to relay; true when it has it.  The relation has been found. */
bool check_relay_rights(struct check *check);
/* What the cleanup needs. */
void check_cleanup_rights(struct check *check);
/* The pending index, and that the claim goes by it. */
void check_plan(struct check *check);
/* Messages, lanes, partitions, transactions. */
void check_state(struct check *check);

/* ---- Redis */

/* Adds the key to check->keys. */
typedef size_t check_render(const struct check *check, const void *arg, char *buf, size_t cap);
void check_add_key(struct check *check, enum check_key_kind kind, bool is_sample, check_render *render,
                   const void *arg);

/* Everything that is about Redis. */
void check_redis(struct check *check);
/* Sends check->pipeline; -1 when the connection is lost, which is said as `name`. */
must_check int check_exchange(struct check *check, const char *name);
/* The ACL user we are. */
const char *check_redis_user(const struct check *check);
/* What this user may do. */
void check_acl(struct check *check);

#endif
