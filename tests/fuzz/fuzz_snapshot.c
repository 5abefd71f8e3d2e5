/*
 * A snapshot's text in the horizon: every transaction of a well-formed one is remembered, none is made up, and a text that is none changes
 * nothing.
 *
 * Input: claims, each: flags, ids and times, the snapshot's text with its length before it.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/horizon.h"

#define CLAIMS_MAX 24

static uint64_t read_number(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) {
    value = value << 8 | at[i];
  }
  return value;
}

/* Elements of a binary array of 8-byte elements (array_recv); -1 when it is none. */
static int elements_of(const struct buf *array, uint32_t type) {
  const unsigned char *at = (const unsigned char *)array->data;
  if (array->len < 20 || read_number(at, 4) != 1 || read_number(at + 4, 4) != 0 || read_number(at + 8, 4) != type) {
    return -1;
  }
  int n = (int)read_number(at + 12, 4);
  return array->len == 20 + 12 * (size_t)n ? n : -1;
}

/* Does the number stand in the list between the second colon and the third? */
static bool is_listed(const char *snapshot, uint64_t xid) {
  char digits[32];
  size_t n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)xid);
  const char *at = strchr(snapshot, ':');
  at = at != NULL ? strchr(at + 1, ':') : NULL;
  if (at == NULL) {
    return false;
  }
  while (*at != '\0') {
    at++;
    const char *digit = at + strspn(at, "0");
    if (strncmp(digit, digits, n) == 0 && strcspn(digit + n, ",:") == 0) {
      return true;
    }
    at += strcspn(at, ",:");
    if (*at == ':') {
      break;
    }
  }
  return false;
}

static void check_params(const struct horizon *horizon, char *const *snapshots, int n) {
  const struct buf *xids = horizon_xids(horizon);
  const struct buf *lows = horizon_lows(horizon);
  FUZZ_REQUIRE((xids == NULL) == (lows == NULL));
  FUZZ_REQUIRE(horizon_far(horizon) <= horizon_near(horizon));
  FUZZ_REQUIRE(horizon_near(horizon) <= horizon_cursor(horizon));
  if (xids == NULL) {
    return;
  }
  int open_n = elements_of(xids, 5069);
  FUZZ_REQUIRE(open_n > 0 && open_n == elements_of(lows, 20));
  int64_t far = horizon_near(horizon);
  for (int i = 0; i < open_n; i++) {
    uint64_t xid = read_number((const unsigned char *)xids->data + 20 + 12 * i + 4, 8);
    int64_t low = (int64_t)read_number((const unsigned char *)lows->data + 20 + 12 * i + 4, 8);
    bool is_known = false;
    for (int s = 0; s < n && !is_known; s++) {
      is_known = snapshots[s] != NULL && is_listed(snapshots[s], xid);
    }
    FUZZ_REQUIRE(is_known);
    far = low < far ? low : far;
  }
  FUZZ_REQUIRE(far == horizon_far(horizon));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  struct horizon *horizon = NULL;
  char *snapshots[CLAIMS_MAX];
  int snapshots_n = 0;
  struct horizon_claim claim = {.now_us = 1000000};
  FUZZ_REQUIRE(horizon_new(&horizon, NULL) == 0);
  while (input.n > 0 && snapshots_n < CLAIMS_MAX) {
    unsigned flags = fuzz_u8(&input);
    size_t bytes;
    claim.is_cut = (flags & 1) != 0;
    claim.is_old = (flags & 2) != 0;
    claim.now_us += (int64_t)fuzz_u8(&input) * 10000;
    claim.last_id = (flags & 4) != 0 ? (int64_t)fuzz_u64(&input) : (int64_t)fuzz_u8(&input);
    char *snapshot = fuzz_bytes(&input, 255, &bytes);
    snapshots[snapshots_n++] = snapshot;
    claim.snapshot = (flags & 8) != 0 ? NULL : snapshot;
    int64_t near = horizon_near(horizon);
    FUZZ_REQUIRE(horizon_note(horizon, &claim, NULL) == 0);
    FUZZ_REQUIRE(horizon_near(horizon) >= near);
    FUZZ_REQUIRE(horizon_cursor(horizon) >= claim.last_id);
    /* A text that is no snapshot says nothing about who is writing. */
    if (claim.snapshot == NULL || strspn(snapshot, "0123456789:,") != strlen(snapshot)) {
      FUZZ_REQUIRE(horizon_near(horizon) == near);
    }
    check_params(horizon, snapshots, snapshots_n);
    if ((flags & 16) != 0) {
      horizon_reset(horizon);
      FUZZ_REQUIRE(horizon_near(horizon) == INT64_MIN && horizon_xids(horizon) == NULL);
    }
  }
  horizon_free(horizon);
  while (snapshots_n > 0) {
    free(snapshots[--snapshots_n]);
  }
  return 0;
}
