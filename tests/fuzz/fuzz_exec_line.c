/*
 * A handler's answers and the payloads it is given: an answer is taken or refused with a reason; whatever a payload is, the message is one line of JSON that
 * holds it.
 *
 * Input: a byte that says what, then the text.
 */
#include <stdbool.h>

#include <jansson.h>

#include "fuzz.h"
#include "outboxd/exec_line.h"

static void check_answer(const char *text, size_t n) {
  enum outbox_verdict verdict = OUTBOX_RETRY;
  struct outbox_failure failure;
  struct err err = ERR_INIT;
  if (exec_line_read(text, n, &verdict, &failure, &err) == 0) {
    FUZZ_REQUIRE(text[0] != '{' || memchr(text, '\0', n) == NULL);
    FUZZ_REQUIRE(verdict == OUTBOX_DONE || failure.text[0] != '\0' || n > 2);
    FUZZ_REQUIRE(failure.retry_after_ms >= 0);
  } else {
    FUZZ_REQUIRE(err.class == ERR_REJECT && strpbrk(err.text, "\r\n") == NULL);
  }
}

static void check_payload(const char *text, size_t n) {
  struct buf line = BUF_INIT;
  struct err err = ERR_INIT;
  const struct outbox_message message = {.message_id = "m",
                                         .aggregate_type = "t",
                                         .aggregate_id = "i",
                                         .event_type = "e",
                                         .payload = text,
                                         .payload_bytes = n};
  bool is_json = exec_line_is_json(text, n);
  FUZZ_REQUIRE(exec_line_write(&line, &message, true, &err) == 0);
  FUZZ_REQUIRE(memchr(line.data, '\n', line.len) == line.data + line.len - 1);
  FUZZ_REQUIRE((strstr(line.data, ",\"payload\":") != NULL) == is_json);
  /* jansson refuses more than the grammar does (depth, range, encoding), but takes nothing that the grammar does not; only a zero byte is the end to it,
   * whatever follows. */
  bool has_zero = memchr(text, '\0', n) != NULL;
  json_t *json = has_zero ? NULL : json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  FUZZ_REQUIRE(!has_zero || !is_json);
  FUZZ_REQUIRE(json == NULL || is_json);
  json_decref(json);
  buf_free(&line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  unsigned what = fuzz_u8(&input);
  size_t bytes;
  char *text = fuzz_rest(&input, &bytes);
  if (what % 2 == 0) {
    check_answer(text, bytes);
  } else {
    check_payload(text, bytes);
  }
  free(text);
  return 0;
}
