/*
 * What the tests of systemd share: a manager's ear for each test, at a socket in the stack's directory.
 *
 * A header only, for the programs beside it.
 */
#ifndef TEST_SYSTEMD_H
#define TEST_SYSTEMD_H

#include <stdio.h>

#include "db.h"
#include "harness.h"
#include "manager.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define WAIT_MS 60000

static struct stack *stack;
static struct manager *manager;

static inline int tear_down(void **state) {
  manager_stop(manager);
  manager = NULL;
  return harness_teardown(state);
}
#define SYSTEMD_TEST(function) cmocka_unit_test_setup_teardown(function, harness_setup, tear_down)

static inline const char *socket_path(void) {
  static char path[STACK_PATH_BYTES + 16];
  snprintf(path, sizeof path, "%s/notify", stack->dir);
  return path;
}

static inline PGconn *open_table(void) {
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  return conn;
}

#endif
