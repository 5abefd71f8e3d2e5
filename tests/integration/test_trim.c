/*
 * src/trim.lua by itself, on a real Redis: what some group has not acknowledged is never removed by acked, whatever the groups do in between, and
 * maxlen and age tell exactly how much they have removed unread.  Random operations, seeded; a script with a mistake in it is caught.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"
#include "harness.h"
#include "prng.h"
#include "rds.h"
#include "wait.h"

#define STREAM "s:{0}:a"
#define INDEX "s:{0}:streams"
#define GROUPS_MAX 4
#define ENTRIES_MAX 4096
#define ID_BYTES 48

static struct stack *stack;

struct trimmed {
  long long removed, unread;
  bool is_more;
  char state[16];
};

static struct trimmed trim_with(redisContext *redis, const char *script, const char *mode, long long value,
                                const char *group) {
  struct trimmed trimmed = {0};
  redisReply *reply = group == NULL
                          ? rds_cmd(redis, "EVAL %s 2 %s %s %s %lld 100", script, STREAM, INDEX, mode, value)
                          : rds_cmd(redis, "EVAL %s 2 %s %s %s %lld 100 %s", script, STREAM, INDEX, mode, value, group);
  REQUIRE(reply->elements == 4, "an unexpected reply");
  trimmed.removed = reply->element[0]->integer;
  trimmed.unread = reply->element[1]->integer;
  trimmed.is_more = reply->element[2]->integer != 0;
  snprintf(trimmed.state, sizeof trimmed.state, "%s", reply->element[3]->str);
  freeReplyObject(reply);
  return trimmed;
}

static struct trimmed trim(redisContext *redis, const char *mode, long long value) {
  return trim_with(redis, embed_trim_lua, mode, value, NULL);
}

/* ---- the model: what a group has not acknowledged, asked of Redis in another way than the script does */

struct id {
  unsigned long long ms, seq;
};

static struct id id_of(const char *text) {
  struct id id = {0, 0};
  char *end;
  id.ms = strtoull(text, &end, 10);
  id.seq = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
  return id;
}

static int compare(struct id a, struct id b) {
  return a.ms != b.ms ? (a.ms < b.ms ? -1 : 1) : a.seq != b.seq ? (a.seq < b.seq ? -1 : 1) : 0;
}

struct view {
  int n;
  struct id ids[ENTRIES_MAX];
  bool is_needed[ENTRIES_MAX]; /* some group has not read or not acknowledged it, or one before it */
  int groups_n;
};

static void note_pending(redisContext *redis, const char *group, struct view *view) {
  redisReply *pending = rds_cmd(redis, "XPENDING %s %s - + 100000", STREAM, group);
  for (size_t p = 0; p < pending->elements; p++) {
    struct id id = id_of(pending->element[p]->element[0]->str);
    for (int i = 0; i < view->n; i++) {
      view->is_needed[i] |= compare(view->ids[i], id) == 0;
    }
  }
  freeReplyObject(pending);
}

static void look(redisContext *redis, struct view *view) {
  memset(view, 0, sizeof *view);
  redisReply *entries = rds_cmd(redis, "XRANGE %s - +", STREAM);
  REQUIRE(entries->elements <= ENTRIES_MAX, "too many entries for this test");
  view->n = (int)entries->elements;
  for (int i = 0; i < view->n; i++) {
    view->ids[i] = id_of(entries->element[i]->element[0]->str);
  }
  freeReplyObject(entries);
  redisReply *groups = rds_cmd(redis, "XINFO GROUPS %s", STREAM);
  view->groups_n = (int)groups->elements;
  for (size_t g = 0; g < groups->elements; g++) {
    const redisReply *fields = groups->element[g];
    struct id last = {0, 0};
    const char *name = "";
    for (size_t f = 0; f + 1 < fields->elements; f += 2) {
      if (strcmp(fields->element[f]->str, "last-delivered-id") == 0) {
        last = id_of(fields->element[f + 1]->str);
      } else if (strcmp(fields->element[f]->str, "name") == 0) {
        name = fields->element[f + 1]->str;
      }
    }
    for (int i = 0; i < view->n; i++) {
      view->is_needed[i] |= compare(view->ids[i], last) > 0;
    }
    note_pending(redis, name, view);
  }
  for (int i = 1; i < view->n; i++) {
    view->is_needed[i] |= view->is_needed[i - 1];
  }
  freeReplyObject(groups);
}

/* Entries of before that are gone, and how many of these were needed. */
static void compare_views(const struct view *before, const struct view *after, long long *removed, long long *needed) {
  *removed = *needed = 0;
  int at = 0;
  for (int i = 0; i < before->n; i++) {
    if (at < after->n && compare(before->ids[i], after->ids[at]) == 0) {
      at++;
      continue;
    }
    (*removed)++;
    *needed += before->is_needed[i];
  }
  REQUIRE(at == after->n, "entries that were not there before");
}

/* ---- what consumers and operators do */

static void discard(redisContext *redis, redisReply *reply) {
  REQUIRE(reply != NULL, "%s", redis->errstr);
  freeReplyObject(reply); /* an error (no such group) is one of the things that happen */
}

/* Reads, and acknowledges some of it, sometimes out of order. */
static void consume(redisContext *redis, struct prng *prng, const char *group) {
  redisReply *reply = redisCommand(redis, "XREADGROUP GROUP %s c%d COUNT %d STREAMS %s >", group,
                                   (int)prng_below(prng, 2), (int)prng_between(prng, 1, 40), STREAM);
  REQUIRE(reply != NULL, "%s", redis->errstr);
  if (reply->type == REDIS_REPLY_ARRAY) {
    const redisReply *entries = reply->element[0]->element[1];
    for (size_t i = 0; i < entries->elements; i++) {
      if (prng_below(prng, 10) < 7) {
        discard(redis, redisCommand(redis, "XACK %s %s %s", STREAM, group, entries->element[i]->element[0]->str));
      }
    }
  }
  freeReplyObject(reply);
}

/* Acknowledges the oldest of what is pending. */
static void catch_up(redisContext *redis, struct prng *prng, const char *group) {
  redisReply *reply = redisCommand(redis, "XPENDING %s %s - + %d", STREAM, group, (int)prng_between(prng, 1, 60));
  REQUIRE(reply != NULL, "%s", redis->errstr);
  for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
    discard(redis, redisCommand(redis, "XACK %s %s %s", STREAM, group, reply->element[i]->element[0]->str));
  }
  freeReplyObject(reply);
}

static void act(redisContext *redis, struct prng *prng) {
  char group[8];
  snprintf(group, sizeof group, "g%d", (int)prng_below(prng, GROUPS_MAX));
  switch (prng_below(prng, 12)) {
  case 0:
  case 1:
  case 2:
    for (int64_t i = prng_between(prng, 1, 30); i > 0; i--) {
      rds_run(redis, "XADD %s * f v%d", STREAM, (int)i);
    }
    break;
  case 3:
  case 4:
  case 5:
  case 6:
    consume(redis, prng, group);
    break;
  case 7:
  case 8:
  case 9:
    catch_up(redis, prng, group);
    break;
  case 10:
    discard(redis, redisCommand(redis, "XGROUP CREATE %s %s %s MKSTREAM", STREAM, group,
                                prng_below(prng, 3) == 0 ? "$" : "0"));
    break;
  default:
    if (prng_below(prng, 4) == 0) {
      discard(redis, redisCommand(redis, "XGROUP SETID %s %s 0", STREAM, group)); /* reads all of it again */
    } else if (prng_below(prng, 4) == 0) {
      discard(redis, redisCommand(redis, "XGROUP DESTROY %s %s", STREAM, group));
    } else {
      discard(redis, redisCommand(redis, "XAUTOCLAIM %s %s c2 0 0", STREAM, group));
    }
  }
}

#define STEPS_N 600
#define ROUNDS_MAX 20 /* some seeds remove little, or do not come by a mistake */

/* Random operations, a trim after each with nodes of a few entries.  Returns how many needed entries were removed without being told of. */
static long long run_random(redisContext *redis, const char *script, const char *mode, long long value, uint64_t seed,
                            long long *removed_n) {
  static struct view before, after;
  struct prng prng = {.state = seed};
  long long wrong = 0;
  *removed_n = 0;
  rds_run(redis, "DEL " STREAM);
  rds_run(redis, "XGROUP CREATE " STREAM " g0 0 MKSTREAM");
  for (int64_t i = 0; i < STEPS_N; i++) {
    act(redis, &prng);
    if (rds_int(redis, "EXISTS " STREAM) == 0) {
      continue;
    }
    look(redis, &before);
    struct trimmed trimmed = trim_with(redis, script, mode, value, NULL);
    look(redis, &after);
    long long removed, needed;
    compare_views(&before, &after, &removed, &needed);
    REQUIRE(removed == trimmed.removed, "step %" PRId64 ": %lld are gone, it says %lld", i, removed, trimmed.removed);
    REQUIRE(before.groups_n > 0 || strcmp(mode, "acked") != 0 || removed == 0, "a stream without groups was trimmed");
    *removed_n += removed;
    /* Without groups there is nobody who could have read. */
    wrong += llabs(needed - trimmed.unread);
  }
  return wrong;
}

static char *mutant(const char *from, const char *to) {
  const char *at = strstr(embed_trim_lua, from);
  REQUIRE(at != NULL, "the script has no \"%s\"", from);
  size_t bytes = embed_trim_lua_bytes + strlen(to) + 1;
  char *script = malloc(bytes);
  REQUIRE(script != NULL, "no memory");
  snprintf(script, bytes, "%.*s%s%s", (int)(at - embed_trim_lua), embed_trim_lua, to, at + strlen(from));
  return script;
}

static void test_acked_removes_nothing_that_is_needed(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  uint64_t seed = prng_seed();
  long long removed_n;
  (void)state;
  rds_run(redis, "CONFIG SET stream-node-max-entries 7");
  long long removed_all_n = 0;
  for (int rounds_n = 0; rounds_n < ROUNDS_MAX && (rounds_n < 2 || removed_all_n <= 100); rounds_n++) {
    REQUIRE(run_random(redis, embed_trim_lua, "acked", 0, seed + (uint64_t)rounds_n, &removed_n) == 0,
            "needed entries were removed");
    removed_all_n += removed_n;
  }
  REQUIRE(removed_all_n > 100, "only %lld removed: this says nothing", removed_all_n);

  /* The same operations show each of these mistakes. */
  static const char *const mistakes[][2] = {
      {"upto = is_before(oldest[1], upto) and oldest[1] or upto", "upto = upto"}, /* pending entries are forgotten */
      {"(not safe or is_before(upto, safe))", "(not safe or is_before(safe, upto))"}, /* the first group decides */
      {"is_before(safe, bound) and safe or bound", "bound"},                          /* what is old goes */
  };
  for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
    char *script = mutant(mistakes[i][0], mistakes[i][1]);
    long long wrong = 0;
    for (uint64_t round = 0; round < ROUNDS_MAX && wrong == 0; round++) {
      wrong = run_random(redis, script, "acked", 0, seed + round, &removed_n);
    }
    REQUIRE(wrong > 0, "mistake %zu is not found", i);
    free(script);
  }
  rds_run(redis, "CONFIG SET stream-node-max-entries 100");
  redisFree(redis);
}

static void test_maxlen_and_age_tell_what_was_unread(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  uint64_t seed = prng_seed();
  long long removed_n;
  (void)state;
  rds_run(redis, "CONFIG SET stream-node-max-entries 7");
  REQUIRE(run_random(redis, embed_trim_lua, "maxlen", 50, seed, &removed_n) == 0, "miscounted");
  REQUIRE(removed_n > 100, "only %lld removed", removed_n);
  REQUIRE(run_random(redis, embed_trim_lua, "age", 20, seed, &removed_n) == 0, "miscounted");
  REQUIRE(removed_n > 100, "only %lld removed", removed_n);
  rds_run(redis, "CONFIG SET stream-node-max-entries 100");
  redisFree(redis);
}

static void add(redisContext *redis, int n) {
  for (int i = 0; i < n; i++) {
    rds_run(redis, "XADD %s * f v", STREAM);
  }
  rds_run(redis, "ZADD %s 1 %s", INDEX, STREAM);
}

/* Reads and acknowledges everything. */
static void finish(redisContext *redis, const char *group) {
  redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP %s c NOACK COUNT 100000 STREAMS %s >", group, STREAM);
  freeReplyObject(reply);
}

static long long trim_all(redisContext *redis, const char *mode, long long value) {
  long long removed = 0;
  struct trimmed trimmed;
  do {
    trimmed = trim(redis, mode, value);
    removed += trimmed.removed;
  } while (trimmed.is_more);
  return removed;
}

static void test_acked_goes_as_far_as_it_may(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  REQUIRE(strcmp(trim(redis, "acked", 0).state, "gone") == 0, "a stream that is not there");
  add(redis, 2500);
  /* Nobody has said who reads it. */
  REQUIRE(trim_all(redis, "acked", 0) == 0 && strcmp(trim(redis, "acked", 0).state, "waits") == 0, "no group");
  rds_run(redis, "XGROUP CREATE %s a 0", STREAM);
  REQUIRE(trim_all(redis, "acked", 0) == 0 && strcmp(trim(redis, "acked", 0).state, "present") == 0, "nothing is read");
  finish(redis, "a");
  /* A group that is wanted and not there yet holds everything. */
  struct trimmed trimmed = trim_with(redis, embed_trim_lua, "acked", 0, "b");
  REQUIRE(trimmed.removed == 0 && strcmp(trimmed.state, "waits") == 0, "b is not there");
  /* As long as --trim-keep, too. */
  REQUIRE(trim_all(redis, "acked", 3600000) == 0, "younger than an hour");
  /* A call is bounded: 100 entries, and the rest of a node. */
  trimmed = trim(redis, "acked", 0);
  REQUIRE(trimmed.removed > 0 && trimmed.removed <= 200 && trimmed.is_more, "%lld in one call", trimmed.removed);
  WAIT_FOR(10000, (trim_all(redis, "acked", 0), rds_int(redis, "XLEN %s", STREAM) == 0), "it is not emptied");
  REQUIRE(rds_int(redis, "ZCARD %s", INDEX) == 0, "an empty stream stays in the index");
  redisFree(redis);
}

static void test_index_forgets_what_is_gone_only(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  add(redis, 3);
  rds_run(redis, "XGROUP CREATE %s a 0", STREAM);
  REQUIRE(strcmp(trim(redis, "none", 0).state, "present") == 0 && rds_int(redis, "ZCARD %s", INDEX) == 1, "forgotten");
  rds_run(redis, "XREADGROUP GROUP a c STREAMS %s >", STREAM);
  rds_run(redis, "XTRIM %s MAXLEN 0", STREAM);
  /* Empty, and something is pending: consumers have to find it. */
  REQUIRE(strcmp(trim(redis, "none", 0).state, "present") == 0 && rds_int(redis, "ZCARD %s", INDEX) == 1,
          "forgotten with something pending");
  redisReply *pending = rds_cmd(redis, "XPENDING %s a - + 10", STREAM);
  for (size_t i = 0; i < pending->elements; i++) {
    rds_run(redis, "XACK %s a %s", STREAM, pending->element[i]->element[0]->str);
  }
  freeReplyObject(pending);
  REQUIRE(strcmp(trim(redis, "none", 0).state, "empty") == 0 && rds_int(redis, "ZCARD %s", INDEX) == 0,
          "not forgotten");
  add(redis, 1);
  rds_run(redis, "DEL %s", STREAM);
  REQUIRE(strcmp(trim(redis, "none", 0).state, "gone") == 0 && rds_int(redis, "ZCARD %s", INDEX) == 0, "not forgotten");
  rds_run(redis, "SET %s x", STREAM);
  redisReply *reply = redisCommand(redis, "EVAL %s 1 %s none 0 100", embed_trim_lua, STREAM);
  REQUIRE(reply != NULL && reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "WRONGTYPE") != NULL, "no error");
  freeReplyObject(reply);
  redisFree(redis);
}

/* Where a node holds more than a call is to remove, it goes alone: not everything at once. */
static void test_nodes_larger_than_a_step(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  rds_run(redis, "CONFIG SET stream-node-max-entries 1000");
  rds_run(redis, "CONFIG SET stream-node-max-bytes 0");
  add(redis, 5000);
  rds_run(redis, "XGROUP CREATE %s a 0", STREAM);
  finish(redis, "a");
  struct trimmed trimmed = trim(redis, "acked", 0);
  REQUIRE(trimmed.removed == 1000 && trimmed.is_more, "%lld in one call", trimmed.removed);
  WAIT_FOR(10000, (trim_all(redis, "acked", 0), rds_int(redis, "XLEN %s", STREAM) == 0), "it is not emptied");
  /* Unread and larger than what is looked at: counted, rather too many than too few. */
  add(redis, 5000);
  redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP a c NOACK COUNT 10 STREAMS %s >", STREAM);
  freeReplyObject(reply);
  trimmed = trim(redis, "maxlen", 10);
  REQUIRE(trimmed.removed >= 1000 && trimmed.removed <= 2000 && trimmed.unread >= trimmed.removed - 10 &&
              trimmed.unread <= trimmed.removed,
          "%lld removed, %lld unread", trimmed.removed, trimmed.unread);
  rds_run(redis, "CONFIG SET stream-node-max-entries 100");
  rds_run(redis, "CONFIG SET stream-node-max-bytes 4096");
  redisFree(redis);
}

/* Ids beyond what Lua's numbers tell apart. */
static void test_ids_of_any_size(void **state) {
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  static const char *const ids[] = {"99-99999999999999998", "99-99999999999999999", "100-0"};
  for (size_t i = 0; i < 3; i++) {
    rds_run(redis, "XADD %s %s f v", STREAM, ids[i]);
  }
  rds_run(redis, "XGROUP CREATE %s a 0", STREAM);
  redisReply *reply = rds_cmd(redis, "XREADGROUP GROUP a c COUNT 2 STREAMS %s >", STREAM);
  freeReplyObject(reply);
  rds_run(redis, "XACK %s a %s", STREAM, ids[0]);
  REQUIRE(trim_all(redis, "acked", 0) == 1 && rds_int(redis, "XLEN %s", STREAM) == 2, "the pending one is the next");
  rds_run(redis, "XACK %s a %s", STREAM, ids[1]);
  /* The last one delivered stays where its successor cannot be told: one entry more, never one too few. */
  REQUIRE(trim_all(redis, "acked", 0) == 0 && rds_int(redis, "XLEN %s", STREAM) == 2, "too much");
  redisFree(redis);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_acked_removes_nothing_that_is_needed),
      HARNESS_TEST(test_maxlen_and_age_tell_what_was_unread),
      HARNESS_TEST(test_acked_goes_as_far_as_it_may),
      HARNESS_TEST(test_index_forgets_what_is_gone_only),
      HARNESS_TEST(test_nodes_larger_than_a_step),
      HARNESS_TEST(test_ids_of_any_size),
  };
  const struct stack_options options = {.has_no_pg = true};
  return HARNESS_RUN(tests, &stack, &options);
}
