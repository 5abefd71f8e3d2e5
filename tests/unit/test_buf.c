/*
 * buf: appending, growing, failing whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "outboxd/buf.h"
#include "unit.h"

static void bytes_of_any_value_are_kept(void **state) {
  (void)state;
  struct buf buf = BUF_INIT;
  assert_int_equal(buf_append(&buf, "a\0b", 3, NULL), 0);
  assert_int_equal(buf_append(&buf, NULL, 0, NULL), 0);
  assert_int_equal(buf_append_str(&buf, "c", NULL), 0);
  assert_int_equal(buf.len, 4);
  assert_memory_equal(buf.data, "a\0bc", 5); /* with the NUL behind */
  buf_free(&buf);
  assert_null(buf.data);
  buf_free(&buf);
}

static void integers_print_as_printf_does(void **state) {
  (void)state;
  static const int64_t values[] = {0, 1, -1, 9, 10, -10, 99, 100, 12345678, INT32_MIN, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < COUNT(values); i++) {
    struct buf buf = BUF_INIT;
    char want[32];
    (void)snprintf(want, sizeof want, "%" PRId64, values[i]);
    assert_int_equal(buf_append_int(&buf, values[i], NULL), 0);
    assert_string_equal(buf.data, want);
    assert_int_equal(buf.len, strlen(want));
    buf_free(&buf);
  }
}

/* Appends of 1..700 bytes, over every border of the memory, must read as one text. */
static void growing_keeps_what_is_there(void **state) {
  (void)state;
  struct buf buf = BUF_INIT;
  char chunk[701];
  size_t want_len = 0;
  for (size_t n = 1; n <= 700; n++) {
    memset(chunk, 'a' + (int)(n % 26), n);
    chunk[n] = '\0';
    int rc = n % 2 == 0 ? buf_append(&buf, chunk, n, NULL) : buf_printf(&buf, NULL, "%s", chunk);
    assert_int_equal(rc, 0);
    want_len += n;
    assert_int_equal(buf.len, want_len);
    assert_int_equal(buf.data[buf.len], '\0');
  }
  const char *p = buf.data;
  for (size_t n = 1; n <= 700; n++) {
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(*p++, 'a' + (int)(n % 26));
    }
  }
  buf_free(&buf);
}

static void the_nul_is_always_inside_the_memory(void **state) {
  (void)state;
  struct buf buf = BUF_INIT;
  for (size_t n = 1; n <= 5000; n++) {
    assert_int_equal(buf_append(&buf, "z", 1, NULL), 0);
    assert_int_equal(buf.len, n);
    assert_true(buf.len < buf.size);
    assert_int_equal(buf.data[n], 0);
  }
  buf_free(&buf);
}

static void printf_fills_the_room_exactly(void **state) {
  (void)state;
  /* The text that just fits, and those a byte shorter and longer. */
  for (size_t extra = 0; extra < 3; extra++) {
    struct buf buf = BUF_INIT;
    assert_int_equal(buf_append_str(&buf, "x", NULL), 0);
    size_t n = buf.size - buf.len - 2 + extra;
    assert_int_equal(buf_printf(&buf, NULL, "%0*d", (int)n, 7), 0);
    assert_int_equal(buf.len, n + 1);
    assert_int_equal(strlen(buf.data), n + 1);
    assert_int_equal(buf.data[buf.len - 1], '7');
    buf_free(&buf);
  }
}

static void reset_keeps_the_memory(void **state) {
  (void)state;
  struct buf buf = BUF_INIT;
  buf_reset(&buf);
  assert_null(buf.data);
  assert_int_equal(buf_printf(&buf, NULL, "%1000d", 1), 0);
  const char *data = buf.data;
  size_t size = buf.size;
  buf_reset(&buf);
  assert_int_equal(buf.len, 0);
  assert_string_equal(buf.data, "");
  assert_int_equal(buf_printf(&buf, NULL, "%1000d", 2), 0);
  assert_ptr_equal(buf.data, data);
  assert_int_equal(buf.size, size);
  buf_free(&buf);
}

static void reserved_room_needs_no_more_memory(void **state) {
  (void)state;
  struct buf buf = BUF_INIT;
  assert_int_equal(buf_reserve(&buf, 5000, NULL), 0);
  const char *data = buf.data;
  for (int i = 0; i < 5000; i++) {
    assert_int_equal(buf_append(&buf, "y", 1, NULL), 0);
  }
  assert_ptr_equal(buf.data, data);
  buf_free(&buf);
}

static void too_much_is_refused_and_changes_nothing(void **state) {
  (void)state;
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2};
  struct buf buf = BUF_INIT;
  assert_int_equal(buf_append_str(&buf, "kept", NULL), 0);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    struct err err = ERR_INIT;
    assert_int_equal(buf_reserve(&buf, sizes[i], &err), -1);
    assert_int_equal(err.class, ERR_RETRY);
    assert_string_equal(err.code, "ENOMEM");
    assert_string_equal(buf.data, "kept");
    assert_int_equal(buf.len, 4);
  }
  buf_free(&buf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_of_any_value_are_kept),        cmocka_unit_test(integers_print_as_printf_does),
      cmocka_unit_test(growing_keeps_what_is_there),        cmocka_unit_test(the_nul_is_always_inside_the_memory),
      cmocka_unit_test(printf_fills_the_room_exactly),      cmocka_unit_test(reset_keeps_the_memory),
      cmocka_unit_test(reserved_room_needs_no_more_memory), cmocka_unit_test(too_much_is_refused_and_changes_nothing),
  };
  return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
