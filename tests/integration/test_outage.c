/*
 * A server that is away or hangs for a while: what the relay does meanwhile, and how soon it is back.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "db.h"
#include "fleet.h"
#include "harness.h"
#include "proc.h"
#include "proxy.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000
#define BACK_MS 6000 /* after a server's return everything flows again */

static struct stack *stack;

/* Once a sweep (a look from the very beginning) that met a hanging server was taken for a dear one, and the next not made for nine times as long:
 * PostgreSQL hung for 3 s, and the relay for 27 more. */
static void test_flows_at_once_after_postgres_hung(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--poll-interval", "20ms", "--session-timeout", "30s"));
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  for (int i = 0; i < 3; i++) {
    /* Idle: whatever it asks next is a sweep. */
    wait_out(200);
    stack_pg_freeze(stack);
    wait_out(3000);
    stack_pg_thaw(stack);
    table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
    int64_t thawed_ms = wait_now_ms();
    wait_no_pending(conn, TABLE, 10, BACK_MS);
    printf("published %" PRId64 " ms after it\n", wait_now_ms() - thawed_ms);
  }
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* The same for a claim that ended by a timeout (here lock_timeout, half of --session-timeout; once it was statement_timeout on a busy machine: a try every
 * 20 s instead of every few). */
static void test_flows_at_once_after_claims_timed_out(void **state) {
  PGconn *conn = db_open(stack->conninfo), *locker = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--poll-interval", "20ms", "--session-timeout", "4s"));
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  for (int i = 1; i <= 3; i++) {
    db_exec(locker, "BEGIN; LOCK TABLE " TABLE " IN ACCESS EXCLUSIVE MODE");
    table_fill(locker, TABLE_PLAIN, TABLE, 10, 5, 10);
    WAIT_FOR(DRAIN_MS, relay_count(relay, "session_lost") + relay_count(relay, "postgres_down") >= i,
             "no statement has timed out");
    db_exec(locker, "COMMIT");
    int64_t free_ms = wait_now_ms();
    wait_no_pending(conn, TABLE, 10, BACK_MS);
    printf("published %" PRId64 " ms after it\n", wait_now_ms() - free_ms);
  }
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(locker);
  PQfinish(conn);
}

/* ---- Redis away for a minute */

#define OUTAGE_MS 60000 /* times TEST_SCALE */
#define SAMPLE_MS 100
#define REDIS_TIMEOUT "5s"
#define REDIS_TIMEOUT_MS 5000
#define LOG_LINES_MAX 30
#define CPU_PERCENT_MAX 2

/* What an outage cost. */
struct outage {
  int64_t length_ms, cpu_ms, lines_n;
  int64_t longest_ms; /* transaction of the relay */
};

static int64_t lines_n(struct relay *relay) {
  return (int64_t)json_array_size(relay_lines(relay));
}

static struct outage sit_out(PGconn *conn, struct relay *relay) {
  struct outage outage = {.length_ms = harness_scaled(OUTAGE_MS)};
  int64_t before_cpu_ms = proc_cpu_ms(relay_pid(relay)), before_n = lines_n(relay);
  int64_t began_ms = wait_now_ms();
  while (wait_now_ms() - began_ms < outage.length_ms) {
    table_fill(conn, TABLE_PLAIN, TABLE, 2, 5, 10);
    int64_t open_ms =
        db_int(conn, "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)) * 1000, 0)::bigint "
                     "FROM pg_stat_activity WHERE application_name LIKE 'outboxd%%'");
    outage.longest_ms = open_ms > outage.longest_ms ? open_ms : outage.longest_ms;
    wait_out(SAMPLE_MS);
  }
  outage.cpu_ms = proc_cpu_ms(relay_pid(relay)) - before_cpu_ms;
  outage.lines_n = lines_n(relay) - before_n;
  outage.length_ms = wait_now_ms() - began_ms;
  return outage;
}

/* An outage burns no attempt, holds no transaction open, and costs next to nothing. */
static void redis_away(void (*take)(struct stack *), void (*bring)(struct stack *)) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--redis-timeout", REDIS_TIMEOUT));
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  take(stack);
  struct outage outage = sit_out(conn, relay);
  bring(stack);
  int64_t back_ms = wait_now_ms();
  wait_no_pending(conn, TABLE, 10, BACK_MS);
  double cpu_percent = (double)outage.cpu_ms * 100 / (double)outage.length_ms;
  printf("%.1f s without Redis: longest transaction %" PRId64 " ms, CPU %.2f %%, %" PRId64
         " log lines; all published %" PRId64 " ms after its return\n",
         (double)outage.length_ms / 1000, outage.longest_ms, cpu_percent, outage.lines_n, wait_now_ms() - back_ms);
  REQUIRE(outage.longest_ms <= wait_scaled_ms(REDIS_TIMEOUT_MS + 1000), "a transaction was open for %" PRId64 " ms",
          outage.longest_ms);
  REQUIRE(outage.cpu_ms * 100 < wait_scaled_ms(CPU_PERCENT_MAX) * outage.length_ms, "the relay used %.2f %% of a CPU",
          cpu_percent);
  REQUIRE(outage.lines_n < LOG_LINES_MAX, "%" PRId64 " log lines", outage.lines_n);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts <> 0") == 0, "the outage has burnt attempts");
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_redis_killed_for_a_minute(void **state) {
  (void)state;
  redis_away(stack_redis_kill, stack_redis_restart);
}

static void test_redis_frozen_for_a_minute(void **state) {
  (void)state;
  redis_away(stack_redis_freeze, stack_redis_thaw);
}

/* ---- PostgreSQL away */

#define PG_OUTAGE_MS 10000 /* times TEST_SCALE */
#define PG_SESSION_TIMEOUT "2s"

/* The relay has nothing to do but to try again: no busy loop, no flood of lines, and everything flows when the server is back. */
static void postgres_away(void (*take)(struct stack *), void (*bring)(struct stack *)) {
  PGconn *conn = db_open(stack->conninfo);
  struct outage outage = {.length_ms = harness_scaled(PG_OUTAGE_MS)};
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--session-timeout", PG_SESSION_TIMEOUT));
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  PQfinish(conn);
  int64_t before_cpu_ms = proc_cpu_ms(relay_pid(relay)), before_n = lines_n(relay), began_ms = wait_now_ms();
  take(stack);
  WAIT_FOR(DRAIN_MS, relay_count(relay, "postgres_down") > 0, "the relay has not noticed");
  wait_out(outage.length_ms);
  outage.cpu_ms = proc_cpu_ms(relay_pid(relay)) - before_cpu_ms;
  outage.lines_n = lines_n(relay) - before_n;
  outage.length_ms = wait_now_ms() - began_ms;
  REQUIRE(relay_is_running(relay), "the relay has ended");
  bring(stack);
  int64_t back_ms = wait_now_ms();
  conn = db_open(stack->conninfo);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
  wait_no_pending(conn, TABLE, 10, BACK_MS);
  printf("%.1f s without PostgreSQL: CPU %" PRId64 " ms, %" PRId64 " log lines; all published %" PRId64
         " ms after its return\n",
         (double)outage.length_ms / 1000, outage.cpu_ms, outage.lines_n, wait_now_ms() - back_ms);
  REQUIRE(outage.cpu_ms * 100 < wait_scaled_ms(CPU_PERCENT_MAX) * outage.length_ms,
          "the relay used %" PRId64 " ms of CPU", outage.cpu_ms);
  REQUIRE(outage.lines_n < LOG_LINES_MAX, "%" PRId64 " log lines", outage.lines_n);
  relay_stop(relay);
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static void test_postgres_killed_for_a_while(void **state) {
  (void)state;
  postgres_away(stack_pg_kill, stack_pg_restart);
}

static void test_postgres_frozen_for_a_while(void **state) {
  (void)state;
  postgres_away(stack_pg_freeze, stack_pg_thaw);
}

/* ---- the server's own idle timeouts */

#define CLAIMED_N 40

static int64_t pending_n(PGconn *conn) {
  return db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL");
}

/* Whatever the server says: the relay's sessions have timeouts of their own, and are touched in time for these (every 1.3 s, which the server's 1 s
 * would not live to see).  Redis hangs, so that a claim's transaction is open for longer than either. */
static void test_idle_timeouts_of_the_server_do_not_hit_the_relay(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "SET idle_session_timeout = 0");
  db_exec(conn, "ALTER SYSTEM SET idle_in_transaction_session_timeout = '1s'");
  db_exec(conn, "ALTER SYSTEM SET idle_session_timeout = '1s'");
  db_exec(conn, "ALTER ROLE " STACK_PG_USER " SET idle_in_transaction_session_timeout = '1s'");
  db_exec(conn, "SELECT pg_reload_conf()");
  struct relay *relay = relay_start(stack, ARGS("run", "--session-timeout", "4s", "--redis-timeout", "30s"));
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);
  stack_redis_freeze(stack);
  table_fill(conn, TABLE_PLAIN, TABLE, CLAIMED_N, 5, 10);
  WAIT_FOR(DRAIN_MS, fleet_locked_rows(conn, TABLE) == CLAIMED_N, "the relay has not claimed the messages");
  int64_t until_ms = wait_now_ms() + 6000;
  while (wait_now_ms() < until_ms) {
    REQUIRE(fleet_locked_rows(conn, TABLE) == CLAIMED_N, "the claim's session is lost");
    wait_out(50);
  }
  stack_redis_thaw(stack);
  wait_no_pending(conn, TABLE, 10, BACK_MS);
  wait_out(2500); /* idle for longer than both */
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, BACK_MS);
  REQUIRE(relay_count(relay, "session_lost") == 0, "a session was lost");
  relay_stop(relay);
  db_exec(conn, "ALTER SYSTEM RESET idle_in_transaction_session_timeout");
  db_exec(conn, "ALTER SYSTEM RESET idle_session_timeout");
  db_exec(conn, "ALTER ROLE " STACK_PG_USER " RESET idle_in_transaction_session_timeout");
  db_exec(conn, "SELECT pg_reload_conf()");
  check_require_good(stack, NULL);
  PQfinish(conn);
}

static bool is_in_postgres_log(const char *text) {
  char path[STACK_PATH_BYTES + 16], line[1024];
  bool is_found = false;
  snprintf(path, sizeof path, "%s/postgres.log", stack->dir);
  FILE *log = fopen(path, "re");
  REQUIRE(log != NULL, "cannot read %s", path);
  while (!is_found && fgets(line, sizeof line, log) != NULL)
    is_found = strstr(line, text) != NULL;
  fclose(log);
  return is_found;
}

/* idle_in_transaction_session_timeout does hit: the relay hangs with a claim open and a write sent.  PostgreSQL gives the rows back, Redis applies the write, and
 * the relay wakes up with a batch that is in the streams and belongs to nobody. */
static void test_claim_ended_by_idle_in_transaction_timeout(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis;
  char url[64];
  (void)state;
  struct proxy *proxy = proxy_start(stack->redis_port.number);
  snprintf(url, sizeof url, "redis://127.0.0.1:%d", proxy_port(proxy));
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(
      stack, ARGS("run", "--redis", url, "--lanes", "1", "--session-timeout", "1s", "--redis-timeout", "30s"));
  table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
  wait_no_pending(conn, TABLE, 10, DRAIN_MS);

  stack_redis_freeze(stack);
  int64_t before_bytes = proxy_bytes(proxy, PROXY_TO_SERVER);
  table_fill(conn, TABLE_PLAIN, TABLE, CLAIMED_N, 5, 10);
  WAIT_FOR(DRAIN_MS, fleet_locked_rows(conn, TABLE) == CLAIMED_N, "the relay has not claimed the messages");
  WAIT_FOR(DRAIN_MS, proxy_bytes(proxy, PROXY_TO_SERVER) > before_bytes + (int64_t)CLAIMED_N * 50,
           "nothing is written");
  port_wait_stuck(stack->redis_port.number, (int64_t)CLAIMED_N * 50, DRAIN_MS);
  relay_signal(relay, SIGSTOP);
  WAIT_FOR(DRAIN_MS, fleet_locked_rows(conn, TABLE) == 0, "PostgreSQL does not give the rows back");
  REQUIRE(is_in_postgres_log("terminating connection due to idle-in-transaction timeout"), "it was something else");
  stack_redis_thaw(stack);
  redis = rds_open(stack->redis_url);
  WAIT_FOR(DRAIN_MS, rds_int(redis, "XLEN outbox:{0}") == 10 + CLAIMED_N, "the write is not applied");
  REQUIRE(pending_n(conn) == CLAIMED_N, "somebody has settled what the frozen relay had claimed");
  relay_signal(relay, SIGCONT);
  wait_no_pending(conn, TABLE, 10, BACK_MS);
  REQUIRE(rds_int(redis, "XLEN outbox:{0}") == 10 + CLAIMED_N, "messages were added again");
  relay_stop(relay);
  check_require_good(stack, &(struct check_options){.lanes_n = 1});
  redisFree(redis);
  proxy_stop(proxy);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_flows_at_once_after_postgres_hung),
      HARNESS_TEST(test_flows_at_once_after_claims_timed_out),
      HARNESS_TEST(test_idle_timeouts_of_the_server_do_not_hit_the_relay),
      HARNESS_TEST(test_claim_ended_by_idle_in_transaction_timeout),
      HARNESS_TEST(test_postgres_killed_for_a_while),
      HARNESS_TEST(test_postgres_frozen_for_a_while),
      HARNESS_TEST(test_redis_killed_for_a_minute),
      HARNESS_TEST(test_redis_frozen_for_a_minute),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
