/*
 * batch: rows become runs, one a lane, in id order; what breaks the order is refused; lanes of negative hashes.
 */
#include <libpq-fe.h>
#include <stdlib.h>

#include "outboxd/batch.h"
#include "unit.h"

static void put64(char out[8], int64_t value) {
  for (int i = 0; i < 8; i++) {
    out[i] = (char)((uint64_t)value >> (56 - 8 * i));
  }
}

/* A claim's result; the texts but the payload, and is_revived but in the first row, are NULL. */
static PGresult *result_of(const int64_t ids[], const int64_t hashes[], int n) {
  static PGresAttDesc columns[COL_HEADERS];
  PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
  char name[] = "c";
  char bytes[8];
  for (int c = 0; c < COL_HEADERS; c++) {
    columns[c] = (PGresAttDesc){.name = name, .format = 1};
  }
  assert_int_equal(PQsetResultAttrs(result, COL_HEADERS, columns), 1);
  for (int row = 0; row < n; row++) {
    char payload[] = "{\"a\": 1}";
    char leaf[] = {0, 0, 1, (char)row};
    char ctid[] = {0, 0, 0, 2, 0, (char)row};
    char compressed[] = {0, 0, 0, (char)(row == 1 ? 2 : 0)};
    assert_int_equal(PQsetvalue(result, row, COL_LEAF, leaf, 4), 1);
    assert_int_equal(PQsetvalue(result, row, COL_CTID, ctid, 6), 1);
    assert_int_equal(PQsetvalue(result, row, COL_COMPRESSED, compressed, 4), 1);
    assert_int_equal(PQsetvalue(result, row, COL_PAYLOAD, payload, 8), 1);
    if (row == 0) {
      assert_int_equal(PQsetvalue(result, row, COL_REVIVED, leaf, 4), 1);
    }
    put64(bytes, ids[row]);
    assert_int_equal(PQsetvalue(result, row, COL_ID, bytes, 8), 1);
    put64(bytes, hashes[row]);
    assert_int_equal(PQsetvalue(result, row, COL_LANE_HASH, bytes, 8), 1);
    assert_int_equal(PQsetvalue(result, row, COL_AGGREGATE_KEY, bytes, 8), 1);
    put64(bytes, 0);
    assert_int_equal(PQsetvalue(result, row, COL_NOW, bytes, 8), 1);
    assert_int_equal(PQsetvalue(result, row, COL_CREATED_AT, bytes, 8), 1);
  }
  return result;
}

static void a_lane_is_never_negative(void **state) {
  (void)state;
  assert_int_equal(batch_lane_of(-1, 16), 15);
  assert_int_equal(batch_lane_of(-16, 16), 0);
  assert_int_equal(batch_lane_of(INT64_MIN, 16), 0);
  assert_int_equal(batch_lane_of(INT64_MAX, 16), 15);
  assert_int_equal(batch_lane_of(INT64_MIN, 3), 1); /* PostgreSQL: (((-9223372036854775808) % 3) + 3) % 3 */
  assert_int_equal(batch_lane_of(12345, 1), 0);
}

static void rows_become_runs_in_id_order(void **state) {
  (void)state;
  const int64_t ids[] = {3, 5, 8, 9, 12};
  const int64_t hashes[] = {2, 0, 2, 1, 2};
  PGresult *result = result_of(ids, hashes, 5);
  struct batch *batch = NULL;
  assert_int_equal(batch_new(&result, 4, &batch, NULL), 0);
  assert_null(result);
  assert_int_equal(batch->n, 5);
  assert_int_equal(batch->runs_n, 3);
  static const struct {
    int lane, n;
    int64_t ids[3];
  } want[] = {{0, 1, {5}}, {1, 1, {9}}, {2, 3, {3, 8, 12}}};
  for (int r = 0; r < 3; r++) {
    assert_int_equal(batch->runs[r].lane, want[r].lane);
    assert_int_equal(batch->runs[r].n, want[r].n);
    for (int i = 0; i < want[r].n; i++) {
      assert_true(batch->runs[r].msgs[i].id == want[r].ids[i]);
      assert_int_equal(batch->runs[r].msgs[i].lane, want[r].lane);
      assert_int_equal(batch->runs[r].msgs[i].outcome, OUTCOME_NONE);
      const struct msg *msg = &batch->runs[r].msgs[i];
      assert_true(batch_int64(batch, msg, COL_ID) == want[r].ids[i]);
      assert_int_equal(msg->leaf, 256 + msg->row);
      assert_memory_equal(msg->ctid, "\0\0\0\2\0", 5);
      assert_int_equal(msg->ctid[5], msg->row);
      assert_int_equal(msg->bytes, 8);
      assert_int_equal(msg->is_revived, msg->row == 0);
      assert_true(msg->has_created_at);
    }
  }
  assert_true(batch->db_now_us == INT64_C(946684800000000));
  assert_false(batch_has_headers(batch));
  assert_true(batch->last.id == 12);
  assert_int_equal(batch->growth, 5); /* 8 bytes of text for 2 stored */
  assert_true(batch_is_null(batch, &batch->msgs[0], COL_EVENT_TYPE));
  batch_set_outcome(&batch->msgs[0], OUTCOME_FAILED, "why");
  assert_string_equal(batch->msgs[0].error, "why");
  batch_ref(batch);
  struct batch *other = batch;
  batch_unref(&batch);
  assert_null(batch);
  assert_int_equal(other->n, 5);
  batch_unref(&other);
}

static void rows_out_of_order_are_refused(void **state) {
  (void)state;
  const int64_t ids[] = {3, 5, 4};
  const int64_t hashes[] = {0, 0, 0};
  PGresult *result = result_of(ids, hashes, 3);
  struct batch *batch = NULL;
  struct err err = ERR_INIT;
  assert_int_equal(batch_new(&result, 4, &batch, &err), -1);
  assert_null(batch);
  assert_int_equal(err.class, ERR_BUG);
  assert_contains(err.text, "4 after 5");
}

static void an_empty_claim_is_an_empty_batch(void **state) {
  (void)state;
  PGresult *result = result_of(NULL, NULL, 0);
  struct batch *batch = NULL;
  assert_int_equal(batch_new(&result, 16, &batch, NULL), 0);
  assert_int_equal(batch->n, 0);
  assert_int_equal(batch->runs_n, 0);
  batch_unref(&batch);
  batch_unref(&batch); /* NULL is fine */
}

/* PostgreSQL's last timestamps are later than microseconds since 1970 can say. */
static void the_last_times_are_infinity(void **state) {
  static const struct {
    int64_t postgres_us, us;
  } cases[] = {
      {0, INT64_C(946684800000000)},
      {INT64_C(-211813488000000000), INT64_C(-210866803200000000)}, /* 4714-11-24 BC */
      {INT64_MAX - INT64_C(946684800000000) - 1, INT64_MAX - 1},
      {INT64_MAX - INT64_C(946684800000000) + 1, INT64_MAX},
      {INT64_C(9223371331199999999), INT64_MAX}, /* 294276-12-31 23:59:59.999999 */
      {INT64_MAX, INT64_MAX},
      {INT64_MIN, INT64_MIN},
  };
  const int64_t zeros[] = {0};
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    char bytes[8];
    PGresult *result = result_of(zeros, zeros, 1);
    struct batch *batch = NULL;
    put64(bytes, cases[i].postgres_us);
    assert_int_equal(PQsetvalue(result, 0, COL_CREATED_AT, bytes, 8), 1);
    assert_int_equal(batch_new(&result, 1, &batch, NULL), 0);
    assert_true(batch->msgs[0].created_us == cases[i].us);
    batch_unref(&batch);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lane_is_never_negative),      cmocka_unit_test(rows_become_runs_in_id_order),
      cmocka_unit_test(rows_out_of_order_are_refused), cmocka_unit_test(an_empty_claim_is_an_empty_batch),
      cmocka_unit_test(the_last_times_are_infinity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
