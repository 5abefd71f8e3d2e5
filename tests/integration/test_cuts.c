/*
 * A publisher's write that is cut after every possible number of bytes, in both directions, torn into single bytes, or trickling.
 *
 * The write is 50 messages on 4 lanes.  After each cut either the publisher goes on by itself (it sends again what was not answered), or
 * it ends on the spot and another one takes the lanes over.  Either way each message must be in its stream once, in order, and each journal must name
 * exactly the messages that are not settled.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "outboxd/log.h"
#include "proxy.h"
#include "pubrig.h"
#include "rds.h"
#include "wait.h"

#define MESSAGES_N 50
#define AGGREGATES_N 20   /* of a lane each */
#define FIRST_ID 10000000 /* so that all ids have the same length */
#define EXPECTED_BYTES 4096
#define NOTE_MS 30000

static struct stack *stack;

enum recovery { RESEND, TAKE_OVER };

/* What the cuts of a sweep had left behind in Redis. */
struct tally {
  int64_t cuts_n, bytes_n;
  int64_t nothing_n, partly_n,
      all_n;      /* lanes whose call had been applied: none, some, all although the reply was lost */
  int64_t late_n; /* takeovers that a late call of the old owner overtook */
};

struct sweep {
  struct rig rig;
  struct proxy *proxy;
  redisContext *redis;
  int64_t first_id;
  struct tally tally;
};

/* ---- the messages */

static struct batch *new_batch(struct sweep *sweep) {
  static char aggregates[AGGREGATES_N][8];
  struct rig_row rows[MESSAGES_N];
  for (int i = 0; i < MESSAGES_N; i++) {
    snprintf(aggregates[i % AGGREGATES_N], sizeof aggregates[0], "a%02d", i % AGGREGATES_N);
    rows[i] = (struct rig_row){
        sweep->first_id + i, i % RIG_LANES_N, "t", aggregates[i % AGGREGATES_N], "{}", "id", "none", 0};
  }
  return rig_batch(&sweep->rig, rows, MESSAGES_N);
}

static bool is_done(const struct batch *batch) {
  char outcomes[MESSAGES_N + 1];
  rig_outcomes(batch, outcomes, sizeof outcomes);
  REQUIRE(strchr(outcomes, 'f') == NULL, "a message is to blame: %s", outcomes);
  return strspn(outcomes, "p") == MESSAGES_N;
}

/* ---- what Redis has */

static void require_text(const char *what, int lane, const char *found, const char *expected) {
  REQUIRE(strcmp(found, expected) == 0, "%s of lane %d:\n%s\nexpected:\n%s", what, lane, found, expected);
}

static const char *stream_text(redisContext *redis, int lane) {
  static char text[EXPECTED_BYTES];
  size_t n = 0;
  redisReply *reply = rds_cmd(redis, "XRANGE outbox:{%d} - +", lane);
  text[0] = '\0';
  for (size_t i = 0; i < reply->elements && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", reply->element[i]->element[1]->element[1]->str);
  freeReplyObject(reply);
  return text;
}

/* Each message of the batch once and in order in its stream, and named by its journal, and nothing else in either. */
static void require_exact(struct sweep *sweep) {
  for (int lane = 0; lane < RIG_LANES_N; lane++) {
    char stream[EXPECTED_BYTES] = "", names[EXPECTED_BYTES] = "";
    size_t stream_n = 0, names_n = 0;
    for (int i = lane; i < MESSAGES_N; i += RIG_LANES_N) {
      int64_t id = sweep->first_id + i;
      stream_n += (size_t)snprintf(stream + stream_n, sizeof stream - stream_n, "m-%" PRId64 "\n", id);
      names_n += (size_t)snprintf(names + names_n, sizeof names - names_n, "%" PRId64 " m-%" PRId64 "\n", id, id);
    }
    require_text("the stream", lane, stream_text(sweep->redis, lane), stream);
    redisReply *journal = rds_cmd(sweep->redis, "GET outbox:{%d}:journal", lane);
    const char *token_end = journal->str != NULL ? strchr(journal->str, '\n') : NULL;
    REQUIRE(token_end != NULL, "lane %d has no journal", lane);
    require_text("the journal", lane, token_end + 1, names);
    freeReplyObject(journal);
  }
}

static void clear_streams(struct sweep *sweep) {
  rds_run(sweep->redis, "DEL outbox:{0} outbox:{1} outbox:{2} outbox:{3}");
}

/* Script calls that Redis has run so far. */
static int64_t calls_n(redisContext *redis) {
  redisReply *reply = rds_cmd(redis, "INFO commandstats");
  const char *at = strstr(reply->str, "cmdstat_evalsha:calls=");
  int64_t n = at != NULL ? strtoll(at + strlen("cmdstat_evalsha:calls="), NULL, 10) : 0;
  freeReplyObject(reply);
  return n;
}

/* ---- one write, cut */

static void start_publisher(struct sweep *sweep) {
  rig_init(&sweep->rig, stack->redis_url);
  sweep->rig.cfg.redis_timeout_ms = 30000;
  snprintf(sweep->rig.url_text, sizeof sweep->rig.url_text, "redis://127.0.0.1:%d", proxy_port(sweep->proxy));
  rig_start(&sweep->rig);
}

/* The publisher itself sends again; true when the connection was cut and something had to be sent again. */
static bool cut_and_resend(struct sweep *sweep, enum proxy_direction direction, int64_t cut) {
  int64_t before_n = calls_n(sweep->redis);
  int lost_n = 0;
  rig_next_epoch(&sweep->rig);
  struct batch *batch = new_batch(sweep);
  proxy_cut_after(sweep->proxy, direction, cut);
  REQUIRE(!rig_publish(&sweep->rig, batch, &lost_n) && lost_n == 0 && is_done(batch),
          "cut after %" PRId64 " bytes: the publisher does not go on by itself", cut);
  require_exact(sweep);
  rig_settle(&sweep->rig, &batch);
  bool has_cut = proxy_has_cut(sweep->proxy);
  int64_t more_n =
      calls_n(sweep->redis) - before_n - RIG_LANES_N; /* each call is answered in the end; those before were lost */
  if (!has_cut || (direction == PROXY_TO_CLIENT && more_n == 0))
    return false;
  /* The write: so many calls had been run.  The reply: all had, and so many answers were lost. */
  struct tally *tally = &sweep->tally;
  *(direction == PROXY_TO_CLIENT || more_n >= RIG_LANES_N ? &tally->all_n
    : more_n == 0                                         ? &tally->nothing_n
                                                          : &tally->partly_n) += 1;
  return true;
}

/* Publishes until nothing is withheld; a late call of the owner before may fence it. */
static void publish_after_takeover(struct sweep *sweep) {
  for (int tries_n = 0; tries_n < 20; tries_n++) {
    bool is_lost[RIG_LANES_N] = {false};
    bool is_answered = false;
    rig_next_epoch(&sweep->rig);
    struct batch *batch = new_batch(sweep);
    rig_push_batch(&sweep->rig, JOB_PUBLISH, batch);
    while (!is_answered) {
      struct note *note = rig_note(&sweep->rig, NOTE_MS);
      REQUIRE(note->kind == NOTE_DONE || (note->kind == NOTE_LANE_LOST && note->is_fenced), "note %d: %s",
              (int)note->kind, note->err.text);
      is_answered = note->kind == NOTE_DONE;
      is_lost[note->lane] |= !is_answered;
      sweep->tally.late_n += !is_answered;
      rig_free_note(note);
    }
    if (is_done(batch)) {
      require_exact(sweep);
      rig_settle(&sweep->rig, &batch);
      return;
    }
    batch_unref(&batch);
    for (int lane = 0; lane < RIG_LANES_N; lane++) {
      if (is_lost[lane])
        (void)rig_take_since(&sweep->rig, lane, sweep->first_id);
    }
  }
  FAIL("not published after 20 tries");
}

/* The publisher ends when the connection is cut, another one takes its lanes over; true when it was cut. */
static bool cut_and_take_over(struct sweep *sweep, enum proxy_direction direction, int64_t cut) {
  int lanes_n = 0;
  rig_next_epoch(&sweep->rig);
  struct batch *batch = new_batch(sweep);
  proxy_stall_on_cut(sweep->proxy, true);
  proxy_cut_after(sweep->proxy, direction, cut);
  rig_push_batch(&sweep->rig, JOB_PUBLISH, batch);
  WAIT_FOR(NOTE_MS, proxy_has_cut(sweep->proxy) || !rig_is_quiet(&sweep->rig), "cut after %" PRId64 ": nothing", cut);
  stop_set(sweep->rig.abort);
  rig_stop(&sweep->rig);
  batch_unref(&batch);
  bool has_cut = proxy_has_cut(sweep->proxy);
  proxy_cut_after(sweep->proxy, direction, -1);
  proxy_set_mode(sweep->proxy, PROXY_PASS);

  start_publisher(sweep);
  for (int lane = 0; lane < RIG_LANES_N; lane++) {
    int names_n = rig_take_since(&sweep->rig, lane, sweep->first_id);
    int all_n = (MESSAGES_N - lane + RIG_LANES_N - 1) / RIG_LANES_N;
    REQUIRE(names_n == 0 || names_n == all_n, "cut after %" PRId64 " bytes: lane %d has %d of its %d messages", cut,
            lane, names_n, all_n);
    lanes_n += names_n > 0;
  }
  publish_after_takeover(sweep);
  struct tally *tally = &sweep->tally;
  *(lanes_n == 0 ? &tally->nothing_n : lanes_n < RIG_LANES_N ? &tally->partly_n : &tally->all_n) += has_cut;
  return has_cut;
}

/* ---- all of them */

/* With TEST_SCALE below 1 not every byte. */
static int64_t step_of(void) {
  int64_t per_hundred = harness_scaled(100);
  return per_hundred >= 100 ? 1 : 100 / per_hundred;
}

static struct tally sweep_all(enum proxy_direction direction, enum recovery recovery) {
  struct sweep sweep = {
      .proxy = proxy_start(stack->redis_port.number), .redis = rds_open(stack->redis_url), .first_id = FIRST_ID};
  int64_t began_ms = wait_now_ms();
  /* A first write, so that Redis has the script and each lane a journal. */
  start_publisher(&sweep);
  for (int lane = 0; lane < RIG_LANES_N; lane++)
    (void)rig_take(&sweep.rig, lane, true);
  (void)cut_and_resend(&sweep, direction, -1);
  sweep.tally = (struct tally){0};

  int64_t step = direction == PROXY_TO_SERVER ? step_of() : 1;
  bool is_cut = true;
  for (int64_t cut = 0; is_cut; cut += step) {
    sweep.first_id += MESSAGES_N;
    clear_streams(&sweep);
    is_cut = recovery == RESEND ? cut_and_resend(&sweep, direction, cut) : cut_and_take_over(&sweep, direction, cut);
    sweep.tally.cuts_n += is_cut;
    sweep.tally.bytes_n = cut;
    /* The last ones, where only the reply is lost, are never left out. */
    if (!is_cut && step > 1) {
      cut -= step;
      step = 1;
      is_cut = true;
    }
  }
  rig_stop(&sweep.rig);
  proxy_stop(sweep.proxy);
  redisFree(sweep.redis);
  const struct tally *tally = &sweep.tally;
  printf("%s of %" PRId64 " bytes, %s: cut %" PRId64 " times (after every %" PRId64
         ". byte): nothing had been applied %" PRId64 " times, some lanes %" PRId64
         ", all of it but the reply was lost %" PRId64 "; %" PRId64 " late calls refused; %" PRId64 " ms\n",
         direction == PROXY_TO_SERVER ? "write" : "reply", tally->bytes_n,
         recovery == RESEND ? "sent again" : "taken over by another", tally->cuts_n, step_of(), tally->nothing_n,
         tally->partly_n, tally->all_n, tally->late_n, wait_now_ms() - began_ms);
  return sweep.tally;
}

static void require_write_outcomes(struct tally tally) {
  REQUIRE(tally.nothing_n > 0 && tally.partly_n > 0 && tally.all_n > 0, "one of the three outcomes did not occur");
  REQUIRE(tally.bytes_n > MESSAGES_N * 50, "the write has %" PRId64 " bytes only", tally.bytes_n);
}

static void require_reply_outcomes(struct tally tally) {
  REQUIRE(tally.all_n == tally.cuts_n, "a write whose reply was cut had not been applied");
  REQUIRE(tally.cuts_n >= MESSAGES_N, "the reply was cut %" PRId64 " times only", tally.cuts_n);
}

static void test_write_cut_after_every_byte_and_sent_again(void **state) {
  (void)state;
  require_write_outcomes(sweep_all(PROXY_TO_SERVER, RESEND));
}

static void test_reply_cut_after_every_byte_and_asked_again(void **state) {
  (void)state;
  require_reply_outcomes(sweep_all(PROXY_TO_CLIENT, RESEND));
}

static void test_write_cut_after_every_byte_and_lanes_taken_over(void **state) {
  (void)state;
  require_write_outcomes(sweep_all(PROXY_TO_SERVER, TAKE_OVER));
}

static void test_reply_cut_after_every_byte_and_lanes_taken_over(void **state) {
  (void)state;
  require_reply_outcomes(sweep_all(PROXY_TO_CLIENT, TAKE_OVER));
}

/* ---- single bytes */

/* Through unix sockets, so that each byte is read before the next one is sent: every prefix of the write and of the reply is seen. */
static void test_write_and_reply_in_single_bytes(void **state) {
  char path[STACK_PATH_BYTES + 16];
  struct sweep sweep = {.redis = rds_open(stack->redis_url), .first_id = FIRST_ID};
  (void)state;
  snprintf(path, sizeof path, "%s/proxy.sock", stack->dir);
  sweep.proxy = proxy_start_unix(path, stack->redis_socket);
  rig_init(&sweep.rig, stack->redis_url);
  sweep.rig.cfg.redis_timeout_ms = 30000;
  snprintf(sweep.rig.url_text, sizeof sweep.rig.url_text, "unix://%s", path);
  proxy_set_chunk(sweep.proxy, 1);
  rig_start(&sweep.rig);
  for (int lane = 0; lane < RIG_LANES_N; lane++)
    (void)rig_take(&sweep.rig, lane, true);
  for (int i = 0; i < 3; i++) {
    clear_streams(&sweep);
    REQUIRE(!cut_and_resend(&sweep, PROXY_TO_SERVER, -1), "cut although nobody asked for it");
    sweep.first_id += MESSAGES_N;
  }
  struct publisher_stats stats = rig_stats(&sweep.rig);
  rig_stop(&sweep.rig);
  static const enum proxy_direction directions[] = {PROXY_TO_SERVER, PROXY_TO_CLIENT};
  for (int i = 0; i < 2; i++) {
    enum proxy_direction direction = directions[i];
    int64_t bytes_n = proxy_bytes(sweep.proxy, direction), pieces_n = proxy_pieces(sweep.proxy, direction);
    printf("%s: %" PRId64 " bytes in %" PRId64 " pieces\n", direction == PROXY_TO_SERVER ? "to Redis" : "to the relay",
           bytes_n, pieces_n);
    REQUIRE(bytes_n == pieces_n && bytes_n > 3 * MESSAGES_N, "not in single bytes");
  }
  assert_int_equal(stats.connects_n, 1);
  proxy_stop(sweep.proxy);
  redisFree(sweep.redis);
}

/* ---- a byte now and then */

#define TRICKLE_TIMEOUT_MS 800
#define TRICKLE_MS 100 /* the 24 bytes of a reply take three times the deadline */

/* The deadline is of the whole exchange: a reply of which a byte comes now and then, none of them late by itself, does not hold a lane up for
 * longer.  What Redis has applied by then is found when the lane is taken again. */
static void test_reply_that_trickles_is_not_waited_for(void **state) {
  struct rig rig;
  redisContext *redis = rds_open(stack->redis_url);
  struct proxy *proxy = proxy_start(stack->redis_port.number);
  char outcomes[16];
  int lost_n = 0;
  (void)state;
  rig_init(&rig, stack->redis_url);
  rig.cfg.redis_timeout_ms = TRICKLE_TIMEOUT_MS;
  snprintf(rig.url_text, sizeof rig.url_text, "redis://127.0.0.1:%d", proxy_port(proxy));
  rig_start(&rig);
  (void)rig_retake(&rig, 0, false);
  struct batch *batch = rig_simple_batch(&rig, 0, 1, 1, 1); /* Redis gets to know the script */
  (void)rig_publish(&rig, batch, NULL);
  rig_settle(&rig, &batch);
  int64_t before = proxy_bytes(proxy, PROXY_TO_CLIENT);
  proxy_set_trickle(proxy, PROXY_TO_CLIENT, TRICKLE_MS);
  batch = rig_simple_batch(&rig, 0, 2, 1, 1);
  REQUIRE(!rig_publish(&rig, batch, &lost_n), "fenced although nobody else writes");
  assert_string_equal(rig_outcomes(batch, outcomes, sizeof outcomes), "w");
  assert_int_equal(lost_n, 1);
  REQUIRE(proxy_bytes(proxy, PROXY_TO_CLIENT) > before, "not a byte has come");
  batch_unref(&batch);
  assert_int_equal(rds_int(redis, "XLEN outbox:{0}"), 2);

  proxy_set_trickle(proxy, PROXY_TO_CLIENT, 0);
  (void)rig_retake(&rig, 0, false);
  rig_next_epoch(&rig);
  batch = rig_simple_batch(&rig, 0, 2, 2, 1);
  REQUIRE(!rig_publish(&rig, batch, NULL), "fenced although nobody else writes");
  assert_string_equal(rig_outcomes(batch, outcomes, sizeof outcomes), "pp");
  assert_int_equal(rds_int(redis, "XLEN outbox:{0}"), 3);
  rig_settle(&rig, &batch);
  rig_stop(&rig);
  proxy_stop(proxy);
  redisFree(redis);
}

int main(void) {
  const struct CMUnitTest tests[] = {HARNESS_TEST(test_write_and_reply_in_single_bytes),
                                     HARNESS_TEST(test_reply_that_trickles_is_not_waited_for),
                                     HARNESS_TEST(test_write_cut_after_every_byte_and_sent_again),
                                     HARNESS_TEST(test_reply_cut_after_every_byte_and_asked_again),
                                     HARNESS_TEST(test_write_cut_after_every_byte_and_lanes_taken_over),
                                     HARNESS_TEST(test_reply_cut_after_every_byte_and_lanes_taken_over)};
  const struct stack_options options = {.has_no_pg = true};
  log_setup(LOG_CRITICAL, LOG_TEXT);
  return HARNESS_RUN(tests, &stack, &options);
}
