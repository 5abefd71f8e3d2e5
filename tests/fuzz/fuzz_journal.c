/*
 * The journal's value: what is written is read back, what is read is written back, and nothing but a whole journal is taken.
 *
 * Input: how many bytes are for names that are written first; the rest is a value to read.
 */
#include <stdbool.h>

#include "fuzz.h"
#include "outboxd/journal.h"

#define NAMES_MAX 16
#define TOKEN "0123456789abcdef-1f"

static void write_token(struct buf *buf, const char *token) {
  FUZZ_REQUIRE(buf_append_str(buf, token, NULL) == 0 && buf_append(buf, "\n", 1, NULL) == 0);
}

static void require_same(const struct journal_names *a, const struct journal_names *b) {
  FUZZ_REQUIRE(strcmp(a->token, b->token) == 0 && a->n == b->n);
  for (int i = 0; i < a->n; i++) {
    FUZZ_REQUIRE(a->v[i].id == b->v[i].id && a->v[i].message_id_bytes == b->v[i].message_id_bytes);
    FUZZ_REQUIRE(memcmp(a->v[i].message_id, b->v[i].message_id, a->v[i].message_id_bytes + 1) == 0);
  }
}

/* Writes the names anew and reads that. */
static void check_again(const struct journal_names *names, struct buf *buf) {
  struct journal_names *again = NULL;
  struct err err = ERR_INIT;
  buf_reset(buf);
  write_token(buf, names->token);
  for (int i = 0; i < names->n; i++) {
    const struct journal_name *name = &names->v[i];
    FUZZ_REQUIRE(journal_append_name(buf, name->id, name->message_id, name->message_id_bytes, &err) == 0);
  }
  FUZZ_REQUIRE(journal_parse(buf->data, buf->len, &again, &err) == 0);
  require_same(names, again);
  journal_names_free(again);
}

/* Reads a copy of exactly these bytes. */
static int parse_copy(const char *value, size_t bytes, struct journal_names **out, struct err *err) {
  char *copy = malloc(bytes > 0 ? bytes : 1);
  FUZZ_REQUIRE(copy != NULL);
  if (bytes > 0) {
    memcpy(copy, value, bytes);
  }
  int rc = journal_parse(copy, bytes, out, err);
  free(copy);
  return rc;
}

static void check_read(const char *value, size_t bytes) {
  struct journal_names *names = NULL;
  struct err err = ERR_INIT;
  if (parse_copy(value, bytes, &names, &err) != 0) {
    FUZZ_REQUIRE(bytes > 0);
    FUZZ_REQUIRE(err.class == ERR_RETRY && err.text[0] != '\0');
    return;
  }
  if (bytes == 0) {
    FUZZ_REQUIRE(names->token[0] == '\0' && names->n == 0);
  } else {
    int lines_n = 0;
    for (size_t i = 0; i < bytes; i++) {
      lines_n += value[i] == '\n';
    }
    struct buf buf = BUF_INIT;
    FUZZ_REQUIRE(names->token[0] != '\0' && strlen(names->token) < JOURNAL_TOKEN_BYTES);
    FUZZ_REQUIRE(value[bytes - 1] == '\n' && names->n == lines_n - 1);
    FUZZ_REQUIRE(memcmp(value, names->token, strlen(names->token)) == 0);
    check_again(names, &buf);
    buf_free(&buf);
  }
  journal_names_free(names);
}

/* Names as they come from the table, with any bytes. */
static void check_written(struct fuzz_input *input) {
  struct buf buf = BUF_INIT;
  struct journal_names want = {.token = TOKEN};
  struct journal_name v[NAMES_MAX];
  size_t line_ends[NAMES_MAX + 1];
  struct err err = ERR_INIT;
  want.v = v;
  write_token(&buf, TOKEN);
  line_ends[0] = buf.len;
  while (input->n > 0 && want.n < NAMES_MAX) {
    struct journal_name *name = &v[want.n++];
    name->id = (int64_t)fuzz_u64(input);
    name->message_id = fuzz_bytes(input, 255, &name->message_id_bytes);
    FUZZ_REQUIRE(journal_append_name(&buf, name->id, name->message_id, name->message_id_bytes, &err) == 0);
    line_ends[want.n] = buf.len;
  }
  struct journal_names *names = NULL;
  FUZZ_REQUIRE(parse_copy(buf.data, buf.len, &names, &err) == 0);
  require_same(&want, names);
  journal_names_free(names);
  /* A value that was cut is no journal, unless whole lines are missing. */
  for (int i = 0; i <= want.n; i++) {
    FUZZ_REQUIRE(parse_copy(buf.data, line_ends[i] - 1, &names, &err) != 0);
    FUZZ_REQUIRE(i == want.n || parse_copy(buf.data, line_ends[i] + 1, &names, &err) != 0);
    FUZZ_REQUIRE(parse_copy(buf.data, line_ends[i], &names, &err) == 0 && names->n == i);
    journal_names_free(names);
  }
  for (int i = 0; i < want.n; i++) {
    free(v[i].message_id);
  }
  buf_free(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  size_t bytes;
  char *names = fuzz_bytes(&input, 255, &bytes);
  struct fuzz_input written = {(const uint8_t *)names, bytes};
  check_written(&written);
  free(names);
  char *value = fuzz_rest(&input, &bytes);
  check_read(value, bytes);
  free(value);
  return 0;
}
