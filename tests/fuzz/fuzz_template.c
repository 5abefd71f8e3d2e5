/*
 * The stream template: expanded as a second reading of it says, in the lane's hash slot whatever the data is.
 *
 * Input: the lane, then template, aggregate_type, aggregate_id (each with its length before it), event_type.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/buf.h"
#include "outboxd/template.h"

#define LANE_MAX 1023

static void add(struct buf *buf, const char *bytes, size_t n) {
  FUZZ_REQUIRE(buf_append(buf, bytes, n, NULL) == 0);
}

/* What the template says, read anew. */
static void expand(const char *text, const struct template_values *values, struct buf *out, bool *is_per_lane) {
  *is_per_lane = true;
  for (; *text != '\0'; text++) {
    if (*text != '%') {
      add(out, text, 1);
      continue;
    }
    text++;
    switch (*text) {
    case '%':
      add(out, "%", 1);
      break;
    case 'l':
      FUZZ_REQUIRE(buf_append_int(out, values->lane, NULL) == 0);
      break;
    case 't':
      add(out, values->aggregate_type, values->aggregate_type_bytes);
      *is_per_lane = false;
      break;
    case 'i':
      add(out, values->aggregate_id, values->aggregate_id_bytes);
      *is_per_lane = false;
      break;
    case 'e':
      add(out, values->event_type, values->event_type_bytes);
      *is_per_lane = false;
      break;
    default:
      FUZZ_REQUIRE(!"a placeholder that should have been refused");
    }
  }
}

/* What Redis Cluster hashes of a key (keyHashSlot in its cluster.c): between the first { and the next }, unless that is empty. */
static void require_tag(const char *key, size_t n, int lane) {
  char digits[16];
  size_t digits_n = (size_t)snprintf(digits, sizeof digits, "%d", lane);
  const char *open = memchr(key, '{', n);
  FUZZ_REQUIRE(open != NULL);
  const char *close = memchr(open, '}', (size_t)(key + n - open));
  FUZZ_REQUIRE(close != NULL);
  FUZZ_REQUIRE((size_t)(close - open - 1) == digits_n && memcmp(open + 1, digits, digits_n) == 0);
}

/* Both renderings end where they are told to. */
static void check_cut(const struct template *template, const struct template_values *values, const struct buf *want) {
  size_t caps[] = {0, 1, want->len / 2, want->len > 0 ? want->len - 1 : 0, want->len};
  for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
    char *out = malloc(caps[i] > 0 ? caps[i] : 1);
    FUZZ_REQUIRE(out != NULL);
    FUZZ_REQUIRE(template_render(template, values, out, caps[i]) == want->len);
    FUZZ_REQUIRE(caps[i] == 0 || memcmp(out, want->data, caps[i]) == 0);
    free(out);
  }
}

static void check_good(const char *text, const struct template *template, const struct template_values *values) {
  struct buf want = BUF_INIT;
  bool is_per_lane;
  expand(text, values, &want, &is_per_lane);
  FUZZ_REQUIRE(want.data != NULL);
  FUZZ_REQUIRE(template_is_per_lane(template) == is_per_lane);
  require_tag(want.data, want.len, values->lane);
  check_cut(template, values, &want);

  /* The relay's own keys: the journal in the same slot, beside it the number of lanes, whose name no stream can have. */
  char own[4096];
  size_t n = template_journal_key(template, values->lane, own, sizeof own);
  FUZZ_REQUIRE(n <= sizeof own);
  require_tag(own, n, values->lane);
  FUZZ_REQUIRE(!is_per_lane || n != want.len || memcmp(own, want.data, n) != 0);
  char *cut = malloc(n - 1);
  FUZZ_REQUIRE(cut != NULL);
  FUZZ_REQUIRE(template_journal_key(template, values->lane, cut, n - 1) == n && memcmp(cut, own, n - 1) == 0);
  free(cut);
  size_t prefix_bytes = (size_t)((char *)memchr(own, '{', n) - own);
  FUZZ_REQUIRE(memcmp(own, want.data, prefix_bytes) == 0);
  n = template_lanes_key(template, own, sizeof own);
  FUZZ_REQUIRE(n == prefix_bytes + strlen("lanes") && memchr(own, '{', n) == NULL);
  FUZZ_REQUIRE(memcmp(own, want.data, prefix_bytes) == 0);
  buf_free(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  struct template_values values = {0};
  values.lane = (int)((fuzz_u8(&input) << 8 | fuzz_u8(&input)) & LANE_MAX);
  size_t bytes;
  char *text = fuzz_bytes(&input, 255, &bytes);
  char *type = fuzz_bytes(&input, 255, &values.aggregate_type_bytes);
  char *id = fuzz_bytes(&input, 255, &values.aggregate_id_bytes);
  char *event = fuzz_rest(&input, &values.event_type_bytes);
  values.aggregate_type = type;
  values.aggregate_id = id;
  values.event_type = event;
  struct template *template = NULL;
  struct err err = ERR_INIT;
  if (template_parse(text, &template, &err) == 0) {
    check_good(text, template, &values);
    template_free(template);
  } else {
    FUZZ_REQUIRE(err.class == ERR_USAGE && err.text[0] != '\0');
  }
  free(text);
  free(type);
  free(id);
  free(event);
  return 0;
}
