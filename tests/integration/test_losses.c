/*
 * What lies outside of the promises: somebody deletes a journal, Redis forgets what it has acknowledged.  docs/guarantees.md says what happens
 * then; it is exactly that, and nothing worse.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "prng.h"
#include "proxy.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000
#define SETTLED_N 10
#define CLAIMED_N 40

#define MARKED_MS 2000 /* messages whose reply has come are marked within it */

static struct stack *stack;

/* A relay of one lane whose write of CLAIMED_N messages has reached a frozen Redis, all messages before being settled. */
struct scene {
  PGconn *conn;
  redisContext *redis;
  struct proxy *proxy;
  struct relay *relay;
  char url[64];
};

/* One publisher: a second one, without a lane, might connect only now, and its answer be taken for the writer's. */
static struct relay *start_relay(const struct scene *scene) {
  return relay_start(stack,
                     ARGS("run", "--redis", scene->url, "--lanes", "1", "--publishers", "1", "--redis-timeout", "30s"));
}

/* Whether the alert thread has looked at Redis since CONFIG RESETSTAT; the next time is a minute later, and nobody else uses the proxy then. */
static bool is_looked_at(redisContext *redis) {
  return rds_int(redis, "EVAL %s 0",
                 "return tonumber(string.match(redis.call('INFO', 'commandstats'), 'cmdstat_ping:calls=(%d+)') or 0)") >
         0;
}

static struct scene begin(void) {
  struct scene scene = {.conn = db_open(stack->conninfo), .redis = rds_open(stack->redis_url)};
  scene.proxy = proxy_start(stack->redis_port.number);
  snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%d", proxy_port(scene.proxy));
  table_create(stack, scene.conn, TABLE_PLAIN, TABLE);
  rds_run(scene.redis, "CONFIG RESETSTAT");
  scene.relay = start_relay(&scene);
  table_fill(scene.conn, TABLE_PLAIN, TABLE, SETTLED_N, 5, 10);
  wait_no_pending(scene.conn, TABLE, 10, DRAIN_MS);
  WAIT_FOR(DRAIN_MS, is_looked_at(scene.redis), "the alert thread does not look at Redis");
  stack_redis_freeze(stack);
  int64_t before_bytes = proxy_bytes(scene.proxy, PROXY_TO_SERVER);
  table_fill(scene.conn, TABLE_PLAIN, TABLE, CLAIMED_N, 5, 10);
  WAIT_FOR(DRAIN_MS, fleet_locked_rows(scene.conn, TABLE) == CLAIMED_N, "the relay has not claimed the messages");
  WAIT_FOR(DRAIN_MS, proxy_bytes(scene.proxy, PROXY_TO_SERVER) > before_bytes + (int64_t)CLAIMED_N * 50,
           "nothing is written");
  port_wait_stuck(stack->redis_port.number, (int64_t)CLAIMED_N * 50, DRAIN_MS);
  return scene;
}

static void end(struct scene *scene) {
  relay_stop(scene->relay);
  proxy_stop(scene->proxy);
  redisFree(scene->redis);
  PQfinish(scene->conn);
}

static void delete_journal(struct scene *scene) {
  WAIT_FOR(DRAIN_MS, rds_int(scene->redis, "XLEN outbox:{0}") == SETTLED_N + CLAIMED_N, "the write is not applied");
  REQUIRE(rds_int(scene->redis, "DEL outbox:{0}:journal") == 1, "there is no journal");
}

/* What was written and not marked is in the stream once more; nothing else is wrong. */
static void require_written_twice(struct scene *scene) {
  static struct check_report report;
  const struct check_options options = {.conninfo = stack->conninfo, .redis_url = stack->redis_url, .lanes_n = 1};
  wait_no_pending(scene->conn, TABLE, 10, DRAIN_MS);
  REQUIRE(!check_run(&options, &report), "nothing is twice in the stream");
  check_print(&options, &report, stdout);
  for (int kind = 0; kind < CHECK_KINDS_N; kind++)
    assert_int_equal(report.found_n[kind], kind == CHECK_DUPLICATE ? CLAIMED_N : 0);
  assert_int_equal(report.entries_n, SETTLED_N + 2 * CLAIMED_N);
}

/* Killed between its write and its mark, the journal gone before it starts again. */
static void test_journal_deleted_while_the_relay_is_down(void **state) {
  (void)state;
  struct scene scene = begin();
  relay_kill(scene.relay);
  stack_redis_thaw(stack);
  delete_journal(&scene);
  scene.relay = start_relay(&scene);
  require_written_twice(&scene);
  end(&scene);
}

/* Cuts the next reply of Redis.  False when it was another one than the writer's (the alert thread's, on a slow machine): then the messages are marked. */
static bool lose_reply(struct scene *scene) {
  proxy_stall_on_cut(scene->proxy, true);
  proxy_cut_after(scene->proxy, PROXY_TO_CLIENT, 0);
  stack_redis_thaw(stack);
  WAIT_FOR(DRAIN_MS, proxy_has_cut(scene->proxy), "no reply");
  bool is_marked = false;
  struct wait wait = wait_begin(MARKED_MS);
  do {
    is_marked = db_int(scene->conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL") == 0;
  } while (!is_marked && wait_next(&wait));
  return !is_marked;
}

/* The relay goes on running, but does not hear that its write was applied; before it can ask, the journal is gone. */
static void test_journal_deleted_when_a_reply_is_lost(void **state) {
  (void)state;
  struct scene scene = begin();
  for (int i = 0; !lose_reply(&scene); i++) {
    REQUIRE(i < 10, "the writer's reply is never the one that is lost");
    proxy_set_mode(scene.proxy, PROXY_PASS);
    end(&scene);
    stack_reset(stack);
    scene = begin();
  }
  delete_journal(&scene);
  proxy_set_mode(scene.proxy, PROXY_PASS);
  require_written_twice(&scene);
  end(&scene);
}

/* The journal gone from under a relay that runs and hears everything: the next write is refused, the lane taken over afresh, nothing twice. */
static void test_journal_deleted_while_the_relay_runs(void **state) {
  (void)state;
  struct scene scene = begin();
  stack_redis_thaw(stack);
  wait_no_pending(scene.conn, TABLE, 10, DRAIN_MS);
  delete_journal(&scene);
  table_fill(scene.conn, TABLE_PLAIN, TABLE, CLAIMED_N, 5, 10);
  wait_no_pending(scene.conn, TABLE, 10, DRAIN_MS);
  REQUIRE(relay_count(scene.relay, "lane_fenced") == 1, "the write without its journal was not refused");
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  end(&scene);
}

/* A Redis that keeps nothing is killed under load and comes back empty: what was marked before is gone, everything else is there once, in order,
 * and the relay goes on by itself. */
static void test_redis_without_aof_killed(void **state) {
  static struct check_report report;
  const struct check_options options = {
      .conninfo = stack->conninfo, .redis_url = stack->redis_url, .expect_pending = 0};
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  redisContext *redis = rds_open(stack->redis_url);
  rds_run(redis, "CONFIG SET appendonly no"); /* what was in the AOF before is deleted already */
  redisFree(redis);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run"));
  struct writer *writer = writer_start(&(struct writer_options){
      .conninfo = stack->conninfo, .table = TABLE, .threads_n = 4, .rate = 1000, .seed = prng_seed()});
  WAIT_FOR(DRAIN_MS, db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL") > 500,
           "nothing is published");
  int64_t settled_n = db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL");
  stack_redis_kill(stack);
  int64_t killed_id = db_int(conn, "SELECT max(id) FROM " TABLE);
  stack_redis_restart(stack);
  WAIT_FOR(DRAIN_MS,
           db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL AND id > %" PRId64, killed_id) >
               500,
           "the relay does not go on");
  writer_stop(writer);
  writer_wait(writer, DRAIN_MS);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  relay_stop(relay);
  REQUIRE(!check_run(&options, &report), "Redis has lost nothing");
  check_print(&options, &report, stdout);
  int64_t later_n = db_int(conn, "SELECT count(*) FROM " TABLE " WHERE id > %" PRId64, killed_id);
  REQUIRE(report.found_n[CHECK_LOST] >= settled_n, "more is in the streams than can be");
  REQUIRE(report.entries_n >= later_n, "messages that were written afterwards are missing");
  REQUIRE(report.found_n[CHECK_LOST] + report.entries_n == report.rows_n, "a message is neither gone nor in a stream");
  for (int kind = 0; kind < CHECK_KINDS_N; kind++)
    REQUIRE(kind == CHECK_LOST || report.found_n[kind] == 0, "something is %s", check_kind_name((enum check_kind)kind));
  PQfinish(conn);
}

/* Cuts n bytes off the end of the AOF: of the last file that the manifest names. */
static void cut_aof(int64_t n) {
  char path[STACK_PATH_BYTES + 256], line[256], name[128] = "";
  struct stat stat_of;
  snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.manifest", stack->redis_dir);
  FILE *manifest = fopen(path, "r");
  REQUIRE(manifest != NULL, "cannot read %s", path);
  while (fgets(line, sizeof line, manifest) != NULL) {
    (void)sscanf(line, "file %127s", name);
  }
  fclose(manifest);
  snprintf(path, sizeof path, "%s/appendonlydir/%s", stack->redis_dir, name);
  REQUIRE(stat(path, &stat_of) == 0 && truncate(path, stat_of.st_size - n) == 0, "cannot cut %s", path);
}

/* Redis dies while it writes a script's effects into its AOF: the end of the transaction is missing, so none of it is there after the start.  The
 * relay, which has heard nothing, sends it again.  Then Redis dies once more. */
static int64_t die_within_a_write(struct scene *scene, void (*restart)(struct stack *)) {
  relay_kill(scene->relay);
  stack_redis_thaw(stack);
  WAIT_FOR(DRAIN_MS, rds_int(scene->redis, "XLEN outbox:{0}") == SETTLED_N + CLAIMED_N, "the write is not applied");
  redisFree(scene->redis);
  stack_redis_kill(stack);
  cut_aof(100); /* EXEC and a part of the last XADD */
  restart(stack);
  scene->redis = rds_open(stack->redis_url);
  assert_int_equal(rds_int(scene->redis, "XLEN outbox:{0}"), SETTLED_N);
  scene->relay = start_relay(scene);
  wait_no_pending(scene->conn, TABLE, 10, DRAIN_MS);
  assert_int_equal(rds_int(scene->redis, "XLEN outbox:{0}"), SETTLED_N + CLAIMED_N);
  redisFree(scene->redis);
  stack_redis_kill(stack);
  restart(stack);
  scene->redis = rds_open(stack->redis_url);
  return rds_int(scene->redis, "XLEN outbox:{0}");
}

static void test_redis_dies_within_a_write_and_its_aof_is_rewritten(void **state) {
  (void)state;
  struct scene scene = begin();
  assert_int_equal(die_within_a_write(&scene, stack_redis_restart), SETTLED_N + CLAIMED_N);
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  end(&scene);
}

/* Redis up to 7.0 at least leaves the cut transaction in its AOF, but for the command that was cut itself, and runs it at the next start.  A Redis
 * without that mistake does not. */
static void test_redis_dies_within_a_write_and_its_aof_is_not_rewritten(void **state) {
  static struct check_report report;
  const struct check_options options = {.conninfo = stack->conninfo, .redis_url = stack->redis_url, .lanes_n = 1};
  (void)state;
  struct scene scene = begin();
  int64_t entries_n = die_within_a_write(&scene, stack_redis_restart_only);
  bool is_good = check_run(&options, &report);
  check_print(&options, &report, stdout);
  assert_int_equal(is_good, entries_n == SETTLED_N + CLAIMED_N);
  for (int kind = 0; kind < CHECK_KINDS_N; kind++)
    assert_int_equal(report.found_n[kind], kind == CHECK_DUPLICATE ? entries_n - SETTLED_N - CLAIMED_N : 0);
  end(&scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_journal_deleted_while_the_relay_is_down),
      HARNESS_TEST(test_journal_deleted_when_a_reply_is_lost),
      HARNESS_TEST(test_journal_deleted_while_the_relay_runs),
      HARNESS_TEST(test_redis_without_aof_killed),
      HARNESS_TEST(test_redis_dies_within_a_write_and_its_aof_is_rewritten),
      HARNESS_TEST(test_redis_dies_within_a_write_and_its_aof_is_not_rewritten),
  };
  return HARNESS_RUN(tests, &stack, &(struct stack_options){.has_aof = true});
}
