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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
  /* A writer that waits for a frozen server would never end. */
  if (harness_stack->is_pg_frozen) {
    stack_pg_thaw(harness_stack);
  }
  writer_end_all();
  return 0;
}

#define HARNESS_TEST(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

_Noreturn static inline void harness_fail(const char *file, int line) {
  _fail(file, line);
  abort(); /* not reached: _fail jumps */
}

/* A number of messages, times $TEST_SCALE (a factor): less for a quick look, more for a long one. */
static inline int64_t harness_scaled(int64_t n) {
  const char *text = getenv("TEST_SCALE");
  double scaled = (double)n * (text != NULL && text[0] != '\0' ? strtod(text, NULL) : 1.0);
  return scaled < 1.0 ? 1 : (int64_t)scaled;
}

static char harness_kept[STACK_PATH_BYTES + 16]; /* "kept: <directory>", ready for the signal handler */
static size_t harness_kept_bytes;

/* A signal ends the program: the directory stays for whoever looks into it, the servers end with this process. */
static inline void harness_name_dir(int signum) {
  if (write(STDOUT_FILENO, harness_kept, harness_kept_bytes) < 0) {
    _exit(1);
  }
  (void)signal(signum, SIG_DFL);
  (void)raise(signum);
}

/* Starts the stack, runs the tests, ends the stack; what main returns. */
static inline int harness_main(const char *name, const struct CMUnitTest *tests, size_t tests_n, struct stack **stack,
                               const struct stack_options *options) {
  int failed_n;

  setvbuf(stdout, NULL, _IOLBF, 0);
  harness_stack = stack_start(options); /* a failure here ends the program with status 2 */
  *stack = harness_stack;
  harness_kept_bytes = (size_t)snprintf(harness_kept, sizeof harness_kept, "kept: %s\n", harness_stack->dir);
  (void)signal(SIGTERM, harness_name_dir);
  (void)signal(SIGINT, harness_name_dir);
  fail_set_handler(harness_fail);
  if (getenv("TEST_ONLY") != NULL) {
    cmocka_set_test_filter(getenv("TEST_ONLY"));
  }
  failed_n = _cmocka_run_group_tests(name, tests, tests_n, NULL, NULL);
  fail_set_handler(NULL);
  stack_stop(harness_stack, failed_n != 0);
  harness_stack = NULL;
  *stack = NULL;
  return failed_n != 0;
}

#define HARNESS_RUN(tests, stack, options) \
  harness_main(__FILE__, (tests), sizeof(tests) / sizeof((tests)[0]), (stack), (options))

#endif
