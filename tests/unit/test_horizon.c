/*
 * horizon: a late commit is never out of the next claim's reach.
 *
 * The last test plays a database: sessions draw ids and commit in any order, claims start where the horizon says, and no row may be claimed
 * while an earlier one of its aggregate is visible.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "outboxd/horizon.h"
#include "unit.h"

static int64_t array_int8(const struct buf *buf, int i) {
  uint64_t value = 0;
  for (int b = 0; b < 8; b++) {
    value = value << 8 | (unsigned char)buf->data[20 + i * 12 + 4 + b];
  }
  return (int64_t)value;
}

static int array_n(const struct buf *buf) {
  return buf == NULL ? 0 : (int)((buf->len - 20) / 12);
}

static void note(struct horizon *horizon, int64_t now_us, int64_t last_id, const char *snapshot, bool is_old) {
  const struct horizon_claim claim = {
      .now_us = now_us, .last_id = last_id, .snapshot = snapshot, .is_cut = true, .is_old = is_old};
  assert_int_equal(horizon_note(horizon, &claim, NULL), 0);
}

static void near_follows_after_its_delay(void **state) {
  (void)state;
  struct horizon *horizon = NULL;
  assert_int_equal(horizon_new(&horizon, NULL), 0);
  assert_true(horizon_near(horizon) == INT64_MIN);
  note(horizon, 0, 1000, "50:50:", false);
  note(horizon, 100000, 2000, "60:60:", false);
  assert_true(horizon_near(horizon) == INT64_MIN);
  note(horizon, 250000, 3000, "70:70:", false);
  assert_true(horizon_near(horizon) == 1000);
  assert_true(horizon_cursor(horizon) == 3000);
  assert_null(horizon_xids(horizon));
  horizon_reset(horizon);
  assert_true(horizon_near(horizon) == INT64_MIN);
  assert_true(horizon_cursor(horizon) == INT64_MIN);
  horizon_free(horizon);
}

static void what_the_first_claim_saw_is_known(void **state) {
  (void)state;
  struct horizon *horizon = NULL;
  assert_int_equal(horizon_new(&horizon, NULL), 0);
  assert_false(horizon_has_ended(horizon, 40));
  note(horizon, 0, 1000, "50:60:50,55", true);
  /* Later claims see more, but not what lies behind them. */
  note(horizon, 1, 2000, "90:90:", true);
  assert_true(horizon_has_ended(horizon, 49));
  assert_false(horizon_has_ended(horizon, 50));
  assert_true(horizon_has_ended(horizon, 51));
  assert_false(horizon_has_ended(horizon, 55));
  assert_true(horizon_has_ended(horizon, 59));
  assert_false(horizon_has_ended(horizon, 60));
  assert_false(horizon_has_ended(horizon, 89));
  horizon_reset(horizon);
  assert_false(horizon_has_ended(horizon, 49));
  /* A claim whose snapshot is not known: neither is this. */
  note(horizon, 2, 1000, NULL, true);
  assert_false(horizon_has_ended(horizon, 49));
  horizon_reset(horizon);
  /* The counter has turned round: 2^32 + 10, and what was drawn before it did. */
  note(horizon, 3, 1000, "4294967306:4294967306:", true);
  assert_true(horizon_has_ended(horizon, 9));
  assert_false(horizon_has_ended(horizon, 10));
  assert_true(horizon_has_ended(horizon, UINT32_MAX));
  horizon_free(horizon);
}

static void old_rows_need_no_delay(void **state) {
  (void)state;
  struct horizon *horizon = NULL;
  assert_int_equal(horizon_new(&horizon, NULL), 0);
  note(horizon, 0, 1000, "50:52:51", true);
  assert_true(horizon_near(horizon) == 1000);
  assert_int_equal(array_n(horizon_xids(horizon)), 1);
  assert_true(array_int8(horizon_xids(horizon), 0) == 51);
  assert_true(array_int8(horizon_lows(horizon), 0) == INT64_MIN);
  note(horizon, 1, 2000, "51:80:51,77", true);
  assert_true(horizon_near(horizon) == 2000);
  assert_int_equal(array_n(horizon_xids(horizon)), 2);
  assert_true(array_int8(horizon_lows(horizon), 1) == 1000); /* 77 began behind the claim that ended at 1000 */
  assert_true(horizon_far(horizon) == INT64_MIN);
  note(horizon, 2, 3000, "77:90:77", true); /* 51 has ended, and this claim has looked */
  assert_int_equal(array_n(horizon_xids(horizon)), 1);
  assert_true(horizon_far(horizon) == 1000);
  horizon_free(horizon);
}

static void a_claim_that_was_cut_short_proves_nothing(void **state) {
  (void)state;
  struct horizon *horizon = NULL;
  assert_int_equal(horizon_new(&horizon, NULL), 0);
  note(horizon, 0, 5000, "50:52:51", true);
  note(horizon, 1, 900, "60:60:", true); /* 51 had many late rows: the batch was full before it reached near */
  assert_true(horizon_near(horizon) == 5000);
  assert_int_equal(array_n(horizon_xids(horizon)), 1);
  note(horizon, 2, 6000, "61:61:", true);
  assert_null(horizon_xids(horizon));
  horizon_free(horizon);
}

static void transactions_of_our_own_bring_nothing(void **state) {
  (void)state;
  struct horizon *horizon = NULL;
  assert_int_equal(horizon_new(&horizon, NULL), 0);
  note(horizon, 0, 1000, "50:52:51:60", true);
  note(horizon, 1, 2000, "51:70:51,60:71", true);
  note(horizon, 2, 3000, "51:80:51,60,71:81", true);
  assert_int_equal(array_n(horizon_xids(horizon)), 1);
  assert_true(array_int8(horizon_xids(horizon), 0) == 51);
  horizon_reset(horizon); /* what was our own stays so: a batch may be open still */
  note(horizon, 3, 4000, "71:90:71,88:91", true);
  assert_int_equal(array_n(horizon_xids(horizon)), 1);
  assert_true(array_int8(horizon_xids(horizon), 0) == 88);
  horizon_free(horizon);
}

static void an_unknown_snapshot_changes_nothing(void **state) {
  (void)state;
  static const char *const snapshots[] = {NULL, "", "12", "12:13"};
  for (size_t i = 0; i < COUNT(snapshots); i++) {
    struct horizon *horizon = NULL;
    assert_int_equal(horizon_new(&horizon, NULL), 0);
    note(horizon, 0, 1000, snapshots[i], true);
    assert_true(horizon_near(horizon) == INT64_MIN);
    assert_true(horizon_cursor(horizon) == 1000);
    horizon_free(horizon);
  }
}

/* ---- a database to play with */

#define ROWS 4000
#define SESSIONS 6
#define AGGREGATES 9
#define LIMIT 40

enum row_state { ROW_OPEN, ROW_PENDING, ROW_CLAIMED, ROW_ABORTED };

static struct {
  enum row_state state;
  int aggregate;
  uint64_t xid;
} rows[ROWS]; /* by id */
static int rows_n;
static struct {
  uint64_t xid; /* 0: none */
  bool is_long;
} sessions[SESSIONS];
static uint64_t next_xid;

static uint64_t draw(uint64_t *seed, uint64_t n) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (*seed >> 33) % n;
}

static bool is_in_progress(uint64_t xid) {
  for (int s = 0; s < SESSIONS; s++) {
    if (sessions[s].xid == xid) {
      return true;
    }
  }
  return false;
}

/* Aggregates are locked by the transaction that writes them, as a business row would be. */
static bool is_locked(int aggregate, uint64_t by) {
  for (int i = 0; i < rows_n; i++) {
    if (rows[i].state == ROW_OPEN && rows[i].aggregate == aggregate && rows[i].xid != by) {
      return true;
    }
  }
  return false;
}

static void write_something(uint64_t *seed) {
  int s = (int)draw(seed, SESSIONS);
  if (sessions[s].xid == 0) {
    sessions[s].xid = next_xid++;
    sessions[s].is_long = draw(seed, 8) == 0;
  } else if (draw(seed, sessions[s].is_long ? 200 : 6) == 0) {
    enum row_state end = draw(seed, 5) == 0 ? ROW_ABORTED : ROW_PENDING;
    for (int i = 0; i < rows_n; i++) {
      if (rows[i].state == ROW_OPEN && rows[i].xid == sessions[s].xid) {
        rows[i].state = end;
      }
    }
    sessions[s].xid = 0;
  } else {
    int aggregate = (int)draw(seed, AGGREGATES);
    if (rows_n < ROWS && !is_locked(aggregate, sessions[s].xid)) {
      rows[rows_n].state = ROW_OPEN;
      rows[rows_n].aggregate = aggregate;
      rows[rows_n++].xid = sessions[s].xid;
    }
  }
}

/* sql/claim.sql's bounds and look. */
static int claim_from(struct horizon *horizon, int limit, uint64_t now_us, int *behind_near_n) {
  int64_t start = horizon_near(horizon);
  for (int i = 0; i < array_n(horizon_xids(horizon)); i++) {
    int64_t low = array_int8(horizon_lows(horizon), i);
    if (!is_in_progress((uint64_t)array_int8(horizon_xids(horizon), i)) && low < start) {
      start = low;
    }
  }
  char snapshot[256];
  int at = snprintf(snapshot, sizeof snapshot, "1:%" PRIu64 ":", next_xid);
  for (int s = 0; s < SESSIONS; s++) {
    if (sessions[s].xid != 0) {
      at += snprintf(snapshot + at, sizeof snapshot - (size_t)at, "%s%" PRIu64, snapshot[at - 1] == ':' ? "" : ",",
                     sessions[s].xid);
    }
  }
  int claimed_n = 0;
  int64_t last_id = INT64_MIN;
  for (int i = start < 0 ? 0 : (int)start + 1; i < rows_n && claimed_n < limit; i++) {
    if (rows[i].state != ROW_PENDING) {
      continue;
    }
    for (int e = 0; e < i; e++) {
      if (rows[e].aggregate == rows[i].aggregate && rows[e].state == ROW_PENDING) {
        fail_msg("id %d was claimed before id %d of the same aggregate", i, e);
      }
    }
    rows[i].state = ROW_CLAIMED;
    last_id = i;
    claimed_n++;
    *behind_near_n += i <= horizon_near(horizon);
  }
  if (claimed_n > 0) {
    const struct horizon_claim claim = {.now_us = (int64_t)now_us,
                                        .last_id = last_id,
                                        .snapshot = snapshot,
                                        .is_cut = claimed_n == limit,
                                        .is_old = now_us % 3 == 0};
    assert_int_equal(horizon_note(horizon, &claim, NULL), 0);
  }
  return claimed_n;
}

static void no_row_is_claimed_before_an_earlier_one_of_its_aggregate(void **state) {
  (void)state;
  const char *given = getenv("TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  print_message("seed %" PRIu64 "\n", seed);
  int behind_near_n = 0;
  for (int round = 0; round < 30; round++) {
    struct horizon *horizon = NULL;
    assert_int_equal(horizon_new(&horizon, NULL), 0);
    rows_n = 0;
    next_xid = 100;
    memset(sessions, 0, sizeof sessions);
    uint64_t now_us = 0;
    while (rows_n < ROWS) {
      write_something(&seed);
      now_us += draw(&seed, 4000);
      if (draw(&seed, 12) == 0) {
        (void)claim_from(horizon, 1 + (int)draw(&seed, LIMIT), now_us, &behind_near_n);
      }
    }
    horizon_free(horizon);
  }
  assert_true(behind_near_n > 0); /* else the test would have shown nothing */
}

/* Whatever is no snapshot is as good as none: near stays, and nothing is remembered. */
static void what_is_no_snapshot_says_nothing(void **state) {
  static const char *const texts[] = {"",
                                      ":",
                                      "::",
                                      "50",
                                      "50:52",
                                      "50:52:abc",
                                      "50:52:51,",
                                      "50:52:,51",
                                      "a:52:51",
                                      "50::51",
                                      "50:52:51 51 51",
                                      "50:52:-51",
                                      "50:52:51:",
                                      "50:52::x",
                                      "50:52:51x",
                                      "50:52:51:9:",
                                      "50:52:18446744073709551616"};
  (void)state;
  for (size_t i = 0; i < COUNT(texts); i++) {
    struct horizon *horizon = NULL;
    assert_int_equal(horizon_new(&horizon, NULL), 0);
    note(horizon, 0, 1000, texts[i], true);
    if (horizon_near(horizon) != INT64_MIN || horizon_xids(horizon) != NULL) {
      fail_msg("\"%s\" was taken for a snapshot", texts[i]);
    }
    assert_true(horizon_cursor(horizon) == 1000);
    horizon_free(horizon);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(near_follows_after_its_delay),
      cmocka_unit_test(what_is_no_snapshot_says_nothing),
      cmocka_unit_test(old_rows_need_no_delay),
      cmocka_unit_test(what_the_first_claim_saw_is_known),
      cmocka_unit_test(a_claim_that_was_cut_short_proves_nothing),
      cmocka_unit_test(transactions_of_our_own_bring_nothing),
      cmocka_unit_test(an_unknown_snapshot_changes_nothing),
      cmocka_unit_test(no_row_is_claimed_before_an_earlier_one_of_its_aggregate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
