/*
 * How a test gives up: one message, what the running relays logged last, then the handler.
 *
 * Main thread only.  In a test program the handler is cmocka's (harness.h sets it); in a tool there is none and the program ends with
 * status 2.  Threads of the harness never fail by themselves: they keep their error until the main thread asks for it.
 */
#ifndef TEST_FAIL_H
#define TEST_FAIL_H

#include <stdbool.h>

/* Prints file:line and the message to stderr, runs the context printers, then ends the test. */
_Noreturn void fail_now(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* handler must not return. */
void fail_set_handler(void (*handler)(const char *file, int line));

/* Called before the handler, to show what a person will want to see (the end of a log); at most 8. */
void fail_add_context(void (*print)(void));

/* True once fail_now was called in this process. */
bool fail_happened(void);

#define FAIL(...) fail_now(__FILE__, __LINE__, __VA_ARGS__)
#define REQUIRE(cond, ...) \
  do {                     \
    if (!(cond))           \
      FAIL(__VA_ARGS__);   \
  } while (0)

#endif
