/*
 * What systemd hears from a relay: ready, status, stopping.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "test_systemd.h"

static void require_not_ready(void) {
  REQUIRE(manager_count(manager, "READY=1") == 0, "ready too early");
}

/* From the start without Redis to the end: one READY, after Redis answers; figures; one STOPPING. */
static void test_ready_when_redis_answers(void **state) {
  PGconn *conn = open_table();
  (void)state;
  stack_redis_shutdown(stack);
  manager = manager_start(socket_path(), 0);
  struct relay *relay = relay_start(stack, ARGS("run", "--stats-every", "200ms", "--stale-check-every", "200ms"));
  manager_wait_status(manager, "waiting for Redis", WAIT_MS);
  /* More time is asked for as long as it takes. */
  manager_wait(manager, "EXTEND_TIMEOUT_USEC=", 2, WAIT_MS);
  require_not_ready();

  stack_redis_restart(stack);
  manager_wait(manager, "READY=1", 1, WAIT_MS);
  manager_wait_status(manager, "16 of 16 lanes", WAIT_MS);
  table_fill(conn, TABLE_PLAIN, TABLE, 1000, 50, 100);
  wait_no_pending(conn, TABLE, 10, WAIT_MS);
  manager_wait_status(manager, "16 of 16 lanes, 0.0 published/s, 0 in flight, 0 pending, oldest 0.0 s, 0 dead",
                      WAIT_MS);

  REQUIRE(manager_count(manager, "STOPPING=1") == 0, "stopping too early");
  relay_stop(relay);
  manager_wait(manager, "STOPPING=1", 1, WAIT_MS);
  REQUIRE(manager_count(manager, "STOPPING=1") == 1, "stopping more than once");
  REQUIRE(manager_count(manager, "READY=1") == 1, "ready more than once");
  REQUIRE(manager_count(manager, "WATCHDOG=1") == 0, "nobody has asked for a watchdog");
  check_require_good(stack, NULL);
  PQfinish(conn);
}

/* The same with an abstract socket and without PostgreSQL. */
static void test_ready_when_postgres_answers(void **state) {
  PQfinish(open_table());
  char name[64];
  (void)state;
  stack_pg_shutdown(stack);
  snprintf(name, sizeof name, "@outboxd-test-%d", (int)getpid());
  manager = manager_start(name, 0);
  struct relay *relay = relay_start(stack, ARGS("run"));
  manager_wait_status(manager, "waiting for PostgreSQL: ", WAIT_MS);
  manager_wait(manager, "EXTEND_TIMEOUT_USEC=", 2, WAIT_MS);
  require_not_ready();
  stack_pg_restart(stack);
  manager_wait(manager, "READY=1", 1, WAIT_MS);
  relay_stop(relay);
  manager_wait(manager, "STOPPING=1", 1, WAIT_MS);
}

static void test_stopped_while_it_waits(void **state) {
  PQfinish(open_table());
  (void)state;
  stack_pg_shutdown(stack);
  manager = manager_start(socket_path(), 0);
  struct relay *relay = relay_start(stack, ARGS("run"));
  manager_wait_status(manager, "waiting for PostgreSQL: ", WAIT_MS);
  relay_stop(relay);
  manager_wait(manager, "STOPPING=1", 1, WAIT_MS);
  require_not_ready();
}

/* More processes than lanes: the surplus one is ready to step in. */
static void test_standby_is_ready(void **state) {
  PGconn *conn = open_table();
  (void)state;
  struct relay *first = relay_start(stack, ARGS("run", "--lanes", "1"));
  relay_wait_log(first, "lanes_changed", NULL, NULL, WAIT_MS);
  manager = manager_start(socket_path(), 0);
  struct relay *second = relay_start(stack, ARGS("run", "--lanes", "1"));
  manager_wait(manager, "READY=1", 1, WAIT_MS);
  manager_wait_status(manager, "standby: others relay all 1 lanes", WAIT_MS);
  relay_kill(first);
  manager_wait_status(manager, "1 of 1 lanes", WAIT_MS);
  relay_stop(second);
  REQUIRE(manager_count(manager, "READY=1") == 1, "ready more than once");
  PQfinish(conn);
}

static void test_failure_is_the_status(void **state) {
  (void)state;
  manager = manager_start(socket_path(), 0);
  struct relay *relay = relay_start(stack, ARGS("run", "--table", "no_such_table"));
  REQUIRE(relay_wait(relay, WAIT_MS) == 1, "no failure");
  manager_wait_status(manager, "no_such_table", WAIT_MS);
  require_not_ready();
}

/* A relay that nobody hears relays none the worse. */
static void test_socket_that_leads_nowhere(void **state) {
  static const char *const names[] = {"/nonexistent/notify", "nonsense"};
  PGconn *conn = open_table();
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    setenv("NOTIFY_SOCKET", names[i], 1);
    struct relay *relay = relay_start(stack, ARGS("run"));
    relay_wait_log(relay, "systemd_unreachable", NULL, NULL, WAIT_MS);
    table_fill(conn, TABLE_PLAIN, TABLE, 10, 5, 10);
    wait_no_pending(conn, TABLE, 10, WAIT_MS);
    relay_stop(relay);
    REQUIRE(relay_count(relay, "systemd_unreachable") == 1, "it is said again and again");
  }
  check_require_good(stack, NULL);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SYSTEMD_TEST(test_ready_when_redis_answers), SYSTEMD_TEST(test_ready_when_postgres_answers),
      SYSTEMD_TEST(test_stopped_while_it_waits),   SYSTEMD_TEST(test_standby_is_ready),
      SYSTEMD_TEST(test_failure_is_the_status),    SYSTEMD_TEST(test_socket_that_leads_nowhere),
  };
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true}));
}
