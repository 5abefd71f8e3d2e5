/*
 * What the programs that test `outboxd replay` share.
 */
#ifndef TEST_REPLAY_H
#define TEST_REPLAY_H

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "harness.h"
#include "rds.h"
#include "roles.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define REPLAY_STREAM "replay:{%l}"
#define COMMAND_MS 60000

static struct stack *stack;

/* Runs a command to its end; *out gets what it said on stdout and then on stderr; caller frees. */
static inline int run(const char *const *args, char **out) {
  struct relay *relay = relay_run_plain(stack, args, COMMAND_MS);
  int status = relay_wait(relay, 1000);
  char *said = relay_stdout(relay);
  char *complained = relay_text(relay);
  REQUIRE(asprintf(out, "%s%s", said, complained) >= 0, "out of memory");
  free(said);
  free(complained);
  relay_forget(&relay);
  return status;
}

static inline void require_says(int wanted, const char *says, const char *const *args) {
  char *out = NULL;
  int status = run(args, &out);
  REQUIRE(status == wanted, "exit status %d, not %d; it said: %s", status, wanted, out);
  REQUIRE(strstr(out, says) != NULL, "\"%s\" is not in: %s", says, out);
  free(out);
}

#define SAYS(status, says, ...) require_says((status), (says), ARGS(__VA_ARGS__))

static inline struct relay *start_replay(const char *const *args) {
  static char database[STACK_URL_BYTES + 16];
  static char redis[STACK_URL_BYTES + 16];
  snprintf(database, sizeof database, "DATABASE_URL=%s", stack->conninfo);
  snprintf(redis, sizeof redis, "REDIS_URL=%s", stack->redis_url);
  const char *const env[] = {database, redis, NULL};
  return relay_start_plain(stack, env, args);
}

/* All of the table, with what any UPDATE would change; caller frees. */
static inline char *fingerprint(PGconn *conn) {
  return db_text(conn, "SELECT count(*) || ' ' || md5(string_agg(m.tableoid || m.ctid::text || m.xmin || m::text, ',' "
                       "ORDER BY m.id)) FROM " TABLE " m");
}

/* Number of entries below a prefix. */
static inline long long entries_n(redisContext *redis, const char *prefix) {
  return rds_int(redis, "EVAL %s 0 %s",
                 "local n = 0 for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do "
                 "if redis.call('TYPE', key).ok == 'stream' then n = n + redis.call('XLEN', key) end end return n",
                 prefix);
}

/* The number behind "--after-id " in what a replay said; 0. */
static inline long long after_id_of(const char *said) {
  const char *at = strstr(said, "--after-id ");
  return at != NULL ? strtoll(at + strlen("--after-id "), NULL, 10) : 0;
}

static inline void fill_published(PGconn *conn, enum table_form form, int64_t n, int64_t aggregates_n, int bytes) {
  table_create(stack, conn, form, TABLE);
  table_fill(conn, form, TABLE, n, aggregates_n, bytes);
  db_exec(conn, "UPDATE " TABLE " SET published_at = now()");
}

static inline struct check_report check_replayed(const char *stream) {
  return check_require_good(stack, &(struct check_options){.stream = stream, .expect_pending = -1, .is_dead_ok = true});
}

#endif
