/*
 * The reply to a script call: rows as a claim brings them become a call, and any bytes at all are read as its reply.  What is published,
 * carried, failed or left undecided is compared with a second reading of the reply.
 *
 * Input: the lane's situation and the rows (read_setup, read_row), then RESP.  The call's new token is NEW_TOKEN, the journal's OLD_TOKEN.
 */
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdbool.h>

#include "embed.h"
#include "fuzz.h"
#include "outboxd/lane.h"
#include "outboxd/round.h"

#define ROWS_MAX 8
#define BATCHES_N 2
#define LANE_NO 3
#define LANES_N 4
#define OLD_TOKEN "old-1"
#define NEW_TOKEN "new-1"
#define CARRIED_SEQ 1
#define FIRST_SEQ 2
#define REPLY_US 2000000
/* What a timestamptz can hold, in microseconds since 2000 (MIN_TIMESTAMP, END_TIMESTAMP in PostgreSQL's datatype/timestamp.h). */
#define TIME_MIN INT64_C(-211813488000000000)
#define TIME_END INT64_C(9223371331200000000)

/* hiredis 0.14 allocates what the head of an array promises: longer ones say something about the allocator only. */
#define ARRAY_DIGITS_MAX 4

struct row {
  int64_t id;
  char *message_id; /* NULL: SQL NULL */
  size_t message_id_bytes;
  char *aggregate_id;
  size_t aggregate_id_bytes;
  int64_t created_at; /* microseconds since 2000 */
  bool has_created_at;
  bool is_inherited;
};

struct setup {
  unsigned flags;
  int rows_n;
  int split; /* rows of the first batch */
  int carried_n;
  struct row rows[ROWS_MAX];
};

enum { HAS_WAIT = 1, IS_SINGLE = 2, WANTS_PROBE = 4, BY_AGGREGATE = 8, HAS_HEADERS = 16, IS_TIGHT = 32 };
enum {
  ROW_ODD_ID = 1,
  ROW_NO_ID = 2,
  ROW_TIME = 4,
  ROW_NO_TIME = 8,
  ROW_INFINITY = 16,
  ROW_INHERITED = 32,
  ROW_AGGREGATE = 64
};

/* ---- the input's front */

static void read_row(struct fuzz_input *input, struct row *row, int i) {
  unsigned flags = fuzz_u8(input);
  *row = (struct row){.id = 10 + i, .has_created_at = (flags & ROW_NO_TIME) == 0};
  row->is_inherited = (flags & ROW_INHERITED) != 0;
  if ((flags & ROW_ODD_ID) != 0) {
    row->message_id = fuzz_bytes(input, 24, &row->message_id_bytes);
  } else if ((flags & ROW_NO_ID) == 0) {
    row->message_id = malloc(8);
    FUZZ_REQUIRE(row->message_id != NULL);
    row->message_id_bytes = (size_t)snprintf(row->message_id, 8, "m%d", i);
  }
  if ((flags & ROW_AGGREGATE) != 0) {
    row->aggregate_id = fuzz_bytes(input, 24, &row->aggregate_id_bytes);
  }
  if ((flags & ROW_TIME) != 0) {
    row->created_at = (int64_t)(fuzz_u64(input) % ((uint64_t)TIME_END - (uint64_t)TIME_MIN) + (uint64_t)TIME_MIN);
  }
  if ((flags & ROW_INFINITY) != 0) {
    row->created_at = (flags & ROW_TIME) != 0 ? INT64_MAX : INT64_MIN;
  }
}

static void read_setup(struct fuzz_input *input, struct setup *setup) {
  *setup = (struct setup){.flags = fuzz_u8(input)};
  unsigned numbers = fuzz_u8(input);
  setup->rows_n = (int)(numbers % (ROWS_MAX + 1));
  setup->carried_n = (int)(numbers / (ROWS_MAX + 1) % 4);
  setup->split = (int)(fuzz_u8(input) % (unsigned)(setup->rows_n + 1));
  for (int i = 0; i < setup->rows_n; i++) {
    read_row(input, &setup->rows[i], i);
  }
}

/* ---- rows and the lane */

static void set_bytes(PGresult *result, int row, enum batch_column column, char *bytes, size_t n) {
  FUZZ_REQUIRE(PQsetvalue(result, row, (int)column, bytes, bytes != NULL ? (int)n : -1) == 1);
}

static void set_int64(PGresult *result, int row, enum batch_column column, int64_t value) {
  char bytes[8];
  for (int i = 0; i < 8; i++) {
    bytes[i] = (char)((uint64_t)value >> (56 - 8 * i));
  }
  set_bytes(result, row, column, bytes, sizeof bytes);
}

static struct batch *batch_of(const struct row *rows, int n, bool has_headers, int64_t seq) {
  static char name[] = "c";
  static char text[] = "text";
  PGresAttDesc columns[COL_HEADERS + 1];
  PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
  int columns_n = has_headers ? COL_HEADERS + 1 : COL_HEADERS;
  FUZZ_REQUIRE(result != NULL);
  for (int c = 0; c < columns_n; c++) {
    columns[c] = (PGresAttDesc){.name = name, .format = 1};
  }
  FUZZ_REQUIRE(PQsetResultAttrs(result, columns_n, columns) == 1);
  for (int i = 0; i < n; i++) {
    const struct row *row = &rows[i];
    char zeros[6] = {0};
    set_bytes(result, i, COL_LEAF, zeros, 4);
    set_bytes(result, i, COL_CTID, zeros, 6);
    set_bytes(result, i, COL_COMPRESSED, zeros, 4);
    set_int64(result, i, COL_ID, row->id);
    set_int64(result, i, COL_LANE_HASH, LANE_NO);
    /* Equal aggregates have equal keys; with the ones of one letter a few rows share theirs. */
    set_int64(result, i, COL_AGGREGATE_KEY, row->aggregate_id_bytes > 0 ? row->aggregate_id[0] : 0);
    set_int64(result, i, COL_NOW, INT64_C(800000000) * 1000000);
    set_bytes(result, i, COL_MESSAGE_ID, row->message_id, row->message_id_bytes);
    set_bytes(result, i, COL_AGGREGATE_ID, row->aggregate_id, row->aggregate_id_bytes);
    set_bytes(result, i, COL_AGGREGATE_TYPE, text, 4);
    set_bytes(result, i, COL_EVENT_TYPE, text, 4);
    set_bytes(result, i, COL_PAYLOAD, text, 4);
    if (row->has_created_at) {
      set_int64(result, i, COL_CREATED_AT, row->created_at);
    }
  }
  struct batch *batch = NULL;
  FUZZ_REQUIRE(batch_new(&result, LANES_N, &batch, NULL) == 0);
  batch->seq = seq;
  batch->claimed_us = 1000000;
  return batch;
}

static void prepare_lane(struct lane *lane, struct lane_counts *counts, const struct setup *setup) {
  lane_init(lane, LANE_NO, counts);
  for (int i = 0; i < setup->rows_n; i++) {
    const struct row *row = &setup->rows[i];
    if (row->is_inherited && row->message_id_bytes > 0) {
      struct journal_name name = {row->id, row->message_id, row->message_id_bytes};
      struct journal_names names = {.n = 1, .v = &name};
      lane_inherit(lane, &names);
    }
  }
  static const char carried[] = "1 c1\n2 c2\n3 c3\n";
  lane_carry(lane, CARRIED_SEQ, carried, (size_t)setup->carried_n * 5, setup->carried_n);
  (void)strcpy(lane->token, OLD_TOKEN);
  lane->is_single = (setup->flags & IS_SINGLE) != 0;
  lane->wants_probe = (setup->flags & WANTS_PROBE) != 0;
  lane_set_state(lane, LANE_READ);
  lane_set_state(lane, LANE_OPEN);
}

/* ---- what is true before and after */

/* The names that would travel with the next write. */
static struct journal_names *names_of(struct lane *lane) {
  struct buf value = BUF_INIT;
  struct journal_names *names = NULL;
  int n = -1;
  FUZZ_REQUIRE(buf_append_str(&value, "t\n", NULL) == 0 && lane_append_names(lane, &value, &n, NULL) == 0);
  FUZZ_REQUIRE(journal_parse(value.data, value.len, &names, NULL) == 0);
  FUZZ_REQUIRE(names->n == n);
  buf_free(&value);
  return names;
}

static bool is_name_of(const struct journal_name *name, const struct item *item) {
  size_t n;
  const char *id = batch_text(item->batch, item->msg, COL_MESSAGE_ID, &n);
  return name->id == item->msg->id && name->message_id_bytes == n && memcmp(name->message_id, id, n) == 0;
}

/* The names of before, and behind them those of the published messages that were not there already. */
static void check_names(const struct round *round, const struct call *call, struct lane *lane,
                        const struct journal_names *before) {
  struct journal_names *names = names_of(lane);
  int at = before->n;
  FUZZ_REQUIRE(names->n >= before->n);
  for (int i = 0; i < before->n; i++) {
    FUZZ_REQUIRE(names->v[i].id == before->v[i].id && strcmp(names->v[i].message_id, before->v[i].message_id) == 0);
  }
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    if (!item->is_inherited && item->msg->outcome == OUTCOME_PUBLISHED) {
      FUZZ_REQUIRE(at < names->n && is_name_of(&names->v[at], item));
      at++;
    }
  }
  FUZZ_REQUIRE(at == names->n);
  journal_names_free(names);
}

/* A call's own lines name what it adds. */
static void check_call(const struct round *round, const struct call *call, const struct journal_names *before) {
  struct buf value = BUF_INIT;
  struct journal_names *names = NULL;
  int at = 0;
  FUZZ_REQUIRE(call->carried_n == before->n && call->first + call->n == round->items_n);
  FUZZ_REQUIRE(buf_append_str(&value, "t\n", NULL) == 0);
  if (call->lines_bytes > 0) {
    FUZZ_REQUIRE(buf_append(&value, round->lines.data + call->lines_from, call->lines_bytes, NULL) == 0);
  }
  FUZZ_REQUIRE(journal_parse(value.data, value.len, &names, NULL) == 0 && names->n == call->adds_n);
  for (int i = call->first; i < call->first + call->n; i++) {
    FUZZ_REQUIRE(round->items[i].msg->outcome == OUTCOME_NONE);
    if (!round->items[i].is_inherited) {
      FUZZ_REQUIRE(is_name_of(&names->v[at], &round->items[i]));
      at++;
    }
  }
  journal_names_free(names);
  buf_free(&value);

  /* Sent again as EVAL it differs in its first two words only, "$4 EVAL" and the script for "$7 EVALSHA" and "$40 ...". */
  struct redis_pipeline *again = NULL;
  FUZZ_REQUIRE(redis_pipeline_new(&again, NULL) == 0 && round_append_eval(round, 0, again, NULL) == 0);
  char digits[24];
  size_t digits_n = (size_t)snprintf(digits, sizeof digits, "%zu", (size_t)embed_publish_lua_bytes);
  FUZZ_REQUIRE(redis_pipeline_bytes(again) + strlen("EVALSHA") - strlen("EVAL") + strlen("40") + 40 ==
               redis_pipeline_bytes(round->pipeline) + digits_n + embed_publish_lua_bytes);
  redis_pipeline_free(again);
}

static void require_untouched(const struct round *round, const struct call *call, const struct lane *lane) {
  FUZZ_REQUIRE(strcmp(lane->token, OLD_TOKEN) == 0);
  for (int i = call->first; i < call->first + call->n; i++) {
    FUZZ_REQUIRE(round->items[i].msg->outcome == OUTCOME_NONE);
  }
}

static void check_error(const struct round *round, const struct call *call, const struct lane *lane,
                        enum call_result result) {
  FUZZ_REQUIRE(result != CALL_FENCED);
  if (result == CALL_DONE) {
    FUZZ_REQUIRE(lane->is_single && call->n == 1 && call->adds_n == 1 && strcmp(lane->token, OLD_TOKEN) == 0);
    FUZZ_REQUIRE(round->items[call->first].msg->outcome == OUTCOME_FAILED);
    return;
  }
  FUZZ_REQUIRE(result != CALL_AGAIN || (lane->wants_probe && (call->adds_n > 0 || call->has_index)));
  require_untouched(round, call, lane);
}

/* outcomes has a letter for each message that was to be added. */
static void check_written(const struct round *round, const struct call *call, const struct lane *lane,
                          const redisReply *outcomes, enum call_result result) {
  size_t at = 0;
  bool is_withheld = false;
  FUZZ_REQUIRE(outcomes != NULL || call->adds_n == 0);
  FUZZ_REQUIRE(result == CALL_DONE || result == CALL_LINK_FAILED);
  FUZZ_REQUIRE(strcmp(lane->token, NEW_TOKEN) == 0 && !lane->wants_probe);
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    char letter = 'a';
    if (outcomes != NULL && !item->is_inherited) {
      letter = outcomes->str[at++];
    }
    enum outcome outcome = item->msg->outcome;
    FUZZ_REQUIRE((outcome == OUTCOME_PUBLISHED) == (letter == 'a'));
    FUZZ_REQUIRE(outcome != OUTCOME_NONE && (outcome != OUTCOME_FAILED || letter == 'r'));
    is_withheld |= outcome == OUTCOME_WITHHELD && letter == 'r';
  }
  FUZZ_REQUIRE(result == CALL_DONE || is_withheld);
}

static void check_fenced(const struct round *round, const struct call *call, const struct lane *lane,
                         const redisReply *value, enum call_result result) {
  struct journal_names *names = NULL;
  bool is_ours = value != NULL && journal_parse(value->str, (size_t)value->len, &names, NULL) == 0 &&
                 strcmp(names->token, NEW_TOKEN) == 0;
  FUZZ_REQUIRE(result == CALL_DONE || result == CALL_FENCED || result == CALL_LANE_FAILED);
  FUZZ_REQUIRE(is_ours || result == CALL_FENCED);
  if (result != CALL_DONE) {
    require_untouched(round, call, lane);
    journal_names_free(names);
    return;
  }
  FUZZ_REQUIRE(is_ours && !round->has_wait && strcmp(lane->token, NEW_TOKEN) == 0);
  int at = call->carried_n;
  for (int i = call->first; i < call->first + call->n; i++) {
    const struct item *item = &round->items[i];
    FUZZ_REQUIRE(item->msg->outcome == OUTCOME_PUBLISHED || item->msg->outcome == OUTCOME_WITHHELD);
    if (!item->is_inherited && item->msg->outcome == OUTCOME_PUBLISHED) {
      FUZZ_REQUIRE(at < names->n && is_name_of(&names->v[at], item));
      at++;
    }
  }
  FUZZ_REQUIRE(at == names->n);
  journal_names_free(names);
}

static bool has_text(const redisReply *reply) {
  return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_ERROR;
}

static void check_reply(const struct round *round, const struct call *call, const struct lane *lane,
                        const redisReply *reply, enum call_result result, const struct err *err) {
  bool is_list = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && has_text(reply->element[0]);
  const char *word = is_list ? reply->element[0]->str : "";
  const redisReply *second = is_list && reply->elements > 1 && has_text(reply->element[1]) ? reply->element[1] : NULL;
  size_t second_bytes = second != NULL ? (size_t)second->len : 0;
  if (reply->type == REDIS_REPLY_ERROR) {
    check_error(round, call, lane, result);
  } else if (strcmp(word, "WRITTEN") == 0 && second_bytes == (size_t)call->adds_n) {
    check_written(round, call, lane, second, result);
  } else if (strcmp(word, "FENCED") == 0) {
    check_fenced(round, call, lane, second, result);
  } else {
    FUZZ_REQUIRE(result == CALL_LANE_FAILED);
    require_untouched(round, call, lane);
  }
  if (result == CALL_FENCED || result == CALL_LANE_FAILED || result == CALL_LINK_FAILED) {
    FUZZ_REQUIRE(err->class == ERR_RETRY && err->text[0] != '\0');
  }
  FUZZ_REQUIRE(round->lags_n <= call->adds_n);
  for (int i = 0; i < round->lags_n; i++) {
    FUZZ_REQUIRE(round->lags_us[i] >= 0);
  }
}

static void check_counts(const struct batch *const *batches, const struct lane *lane) {
  int64_t outcomes_n[OUTCOME_WITHHELD + 1] = {0};
  for (int b = 0; b < BATCHES_N; b++) {
    for (int i = 0; i < batches[b]->n; i++) {
      const struct msg *msg = &batches[b]->msgs[i];
      outcomes_n[msg->outcome]++;
      FUZZ_REQUIRE((msg->outcome == OUTCOME_FAILED) == (msg->error != NULL));
      if (msg->outcome == OUTCOME_FAILED) {
        FUZZ_REQUIRE(msg->error[0] != '\0' && lane_is_stopped(lane, msg->key));
      }
    }
  }
  FUZZ_REQUIRE(outcomes_n[OUTCOME_PUBLISHED] == lane->counts->published_n + lane->counts->inherited_n);
  FUZZ_REQUIRE(outcomes_n[OUTCOME_FAILED] == lane->counts->failed_n);
  FUZZ_REQUIRE(outcomes_n[OUTCOME_WITHHELD] == lane->counts->withheld_n);
}

/* ---- RESP */

static bool has_long_array(const char *resp, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t digits_n = 0;
    for (size_t j = i + 1; resp[i] == '*' && j < n && resp[j] != '\r'; j++) {
      digits_n++;
    }
    if (digits_n > ARRAY_DIGITS_MAX) {
      return true;
    }
  }
  return false;
}

/* The first reply in the bytes; NULL when there is none. */
static redisReply *read_resp(const char *resp, size_t n) {
  redisReader *reader = redisReaderCreate();
  void *reply = NULL;
  FUZZ_REQUIRE(reader != NULL);
  if (n > 0 && !has_long_array(resp, n) && redisReaderFeed(reader, resp, n) == REDIS_OK &&
      redisReaderGetReply(reader, &reply) != REDIS_OK) {
    reply = NULL;
  }
  redisReaderFree(reader);
  return reply;
}

static void exchange(struct round *round, struct lane *lane, const struct journal_names *before,
                     struct fuzz_input *input) {
  struct call *call = &round->calls[0];
  size_t n;
  check_call(round, call, before);
  (void)strcpy(call->token, NEW_TOKEN);
  char *resp = fuzz_rest(input, &n);
  redisReply *reply = read_resp(resp, n);
  if (reply != NULL) {
    struct err err = ERR_INIT;
    enum call_result result = round_read_reply(round, call, (const void *)reply, REPLY_US, &err);
    check_reply(round, call, lane, reply, result, &err);
    check_names(round, call, lane, before);
    freeReplyObject(reply);
  }
  free(resp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  struct setup setup;
  read_setup(&input, &setup);
  struct template *template = NULL;
  FUZZ_REQUIRE(template_parse((setup.flags & BY_AGGREGATE) != 0 ? "s:{%l}:%i" : "s:{%l}", &template, NULL) == 0);
  struct lane_counts counts = {0};
  struct lane lane;
  prepare_lane(&lane, &counts, &setup);
  bool has_headers = (setup.flags & HAS_HEADERS) != 0;
  struct batch *batches[BATCHES_N] = {
      batch_of(setup.rows, setup.split, has_headers, FIRST_SEQ),
      batch_of(setup.rows + setup.split, setup.rows_n - setup.split, has_headers, FIRST_SEQ + 1)};
  struct part parts[BATCHES_N] = {{.batch = batches[0]}, {.batch = batches[1]}};
  for (int b = 0; b < BATCHES_N; b++) {
    for (int r = 0; r < batches[b]->runs_n; r++) {
      lane_queue(&lane, &parts[b], &batches[b]->runs[r]);
    }
  }
  struct journal_names *before = names_of(&lane);

  struct round round;
  struct err err = ERR_INIT;
  const struct cfg cfg = {.max_write_bytes = (setup.flags & IS_TIGHT) != 0 ? 400 : 1 << 20,
                          .wait_replicas_n = (setup.flags & HAS_WAIT) != 0};
  FUZZ_REQUIRE(round_init(&round, &cfg, template, NULL, &err) == 0);
  round_begin(&round);
  FUZZ_REQUIRE(round_add(&round, &lane, &err) == 0);
  FUZZ_REQUIRE(round.calls_n <= 1);
  if (round.calls_n == 1) {
    exchange(&round, &lane, before, &input);
  }
  check_counts((const struct batch *const *)batches, &lane);

  lane_withhold_all(&lane, false);
  while (lane_take_finished(&lane) != NULL) {
  }
  FUZZ_REQUIRE(lane.head == NULL);
  journal_names_free(before);
  round_fini(&round);
  lane_fini(&lane);
  for (int b = 0; b < BATCHES_N; b++) {
    batch_unref(&batches[b]);
  }
  template_free(template);
  for (int i = 0; i < setup.rows_n; i++) {
    free(setup.rows[i].message_id);
    free(setup.rows[i].aggregate_id);
  }
  return 0;
}
