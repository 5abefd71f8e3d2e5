/*
 * What every unit test includes: cmocka with the headers it wants before it, and two helpers.
 */
#ifndef OUTBOXD_TESTS_UNIT_H
#define OUTBOXD_TESTS_UNIT_H

/* cmocka.h needs the others before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <string.h>

#define COUNT(array_) (sizeof(array_) / sizeof((array_)[0]))

/* Fails with both texts when part does not stand in text. */
#define assert_contains(text_, part_)                               \
  do {                                                              \
    if (strstr((text_), (part_)) == NULL) {                         \
      fail_msg("\"%s\" does not contain \"%s\"", (text_), (part_)); \
    }                                                               \
  } while (0)

#define assert_lacks(text_, part_)                          \
  do {                                                      \
    if (strstr((text_), (part_)) != NULL) {                 \
      fail_msg("\"%s\" contains \"%s\"", (text_), (part_)); \
    }                                                       \
  } while (0)

#endif
