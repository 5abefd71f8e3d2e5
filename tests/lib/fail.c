/*
 * Giving up: see fail.h.
 *
 * Owns: the handler, the context printers, the flag that something failed.  Main thread only.
 */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CONTEXTS_MAX 8

static void (*the_handler)(const char *file, int line);
static void (*contexts[CONTEXTS_MAX])(void);
static int contexts_n;
static bool is_failed;
static bool is_printing;

void fail_set_handler(void (*handler)(const char *file, int line)) {
  the_handler = handler;
}

void fail_add_context(void (*print)(void)) {
  for (int i = 0; i < contexts_n; i++) {
    if (contexts[i] == print) {
      return;
    }
  }
  if (contexts_n < CONTEXTS_MAX) {
    contexts[contexts_n++] = print;
  }
}

bool fail_happened(void) {
  return is_failed;
}

void fail_now(const char *file, int line, const char *fmt, ...) {
  va_list args;

  is_failed = true;
  fprintf(stderr, "%s:%d: ", file, line);
  va_start(args, fmt);
  vfprintf(stderr, fmt, args);
  va_end(args);
  fputc('\n', stderr);
  /* A printer that fails itself must not start all over. */
  if (!is_printing) {
    is_printing = true;
    for (int i = 0; i < contexts_n; i++) {
      contexts[i]();
    }
    is_printing = false;
  }
  if (the_handler != NULL) {
    the_handler(file, line);
  }
  exit(2);
}
