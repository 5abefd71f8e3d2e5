/*
 * What every integration test program is made of: one stack for the program, a clean database and Redis for each test, everything ended
 * after each test whatever became of it.
 *
 * A header only, so that the tools, which share the rest of this directory, need no cmocka.  $TEST_ONLY is a pattern of test names.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

/* cmocka wants these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "fail.h"
#include "relay.h"
#include "stack.h"
#include "writer.h"

static struct stack *harness_stack; /* set by harness_main */

static inline int harness_setup(void **state) {
  (void)state;
  stack_reset(harness_stack);
  return 0;
}

static inline int harness_teardown(void **state) {
  (void)state;
  relay_end_all();
  writer_end_all();
  return 0;
}

#define HARNESS_TEST(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

_Noreturn static inline void harness_fail(const char *file, int line) {
  _fail(file, line);
  abort(); /* not reached: _fail jumps */
}

/* Starts the stack, runs the tests, ends the stack; what main returns. */
static inline int harness_main(const char *name, const struct CMUnitTest *tests, size_t tests_n, struct stack **stack,
                               const struct stack_options *options) {
  int failed_n;

  setvbuf(stdout, NULL, _IOLBF, 0);
  harness_stack = stack_start(options); /* a failure here ends the program with status 2 */
  *stack = harness_stack;
  fail_set_handler(harness_fail);
  if (getenv("TEST_ONLY") != NULL) cmocka_set_test_filter(getenv("TEST_ONLY"));
  failed_n = _cmocka_run_group_tests(name, tests, tests_n, NULL, NULL);
  fail_set_handler(NULL);
  stack_stop(harness_stack, failed_n != 0);
  harness_stack = NULL;
  *stack = NULL;
  return failed_n != 0;
}

#define HARNESS_RUN(tests, stack, options) harness_main(__FILE__, (tests), sizeof(tests) / sizeof((tests)[0]), (stack), (options))

#endif
