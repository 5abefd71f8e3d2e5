/*
 * What the tests of outboxd check share: runs it, and requires what it finds.
 *
 * A header only, for the programs beside it.
 */
#ifndef TEST_CHECK_CMD_H
#define TEST_CHECK_CMD_H

#include <inttypes.h>
#include <string.h>

#include "db.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define RUN_MS 60000

/* Settings of Redis outlive a FLUSHALL. */
static inline int setup(void **state) {
  int rc = harness_setup(state);
  redisContext *redis = rds_open(harness_stack->redis_url);
  rds_run(redis, "CONFIG SET maxmemory 0");
  rds_run(redis, "CONFIG SET maxmemory-policy noeviction");
  rds_run(redis, "CONFIG SET appendfsync always");
  rds_run(redis, "ACL DELUSER relay");
  redisFree(redis);
  return rc;
}

#define CHECK_TEST(function) cmocka_unit_test_setup_teardown(function, setup, harness_teardown)

/* Runs check --json with further arguments; the report is the caller's to decref. */
static inline json_t *run_check(const char *const *more, int *status) {
  const char *args[48] = {"check", "--json"};
  json_error_t error;
  for (int n = 2; *more != NULL; more++) {
    args[n++] = *more;
  }
  struct relay *relay = relay_run_plain(harness_stack, args, RUN_MS);
  *status = relay_wait(relay, 0);
  char *out = relay_stdout(relay);
  char *said = relay_text(relay);
  REQUIRE(said[0] == '\0', "it said on stderr: %s", said);
  json_t *report = json_loads(out, JSON_REJECT_DUPLICATES, &error);
  REQUIRE(report != NULL, "no JSON (%s): %s", error.text, out);
  relay_forget(&relay);
  free(said);
  free(out);
  return report;
}

static inline const char *text(const json_t *object, const char *name) {
  const char *value = json_string_value(json_object_get(object, name));
  return value != NULL ? value : "";
}

/* Prints what is not ok, for whoever reads the failure, and counts it. */
static inline int count_bad(const json_t *report) {
  size_t i;
  json_t *found;
  int n = 0;
  json_array_foreach(json_object_get(report, "checks"), i, found) {
    if (strcmp(text(found, "level"), "ok") != 0 && strcmp(text(found, "level"), "skipped") != 0) {
      printf("# %s %s: %s -> %s\n", text(found, "level"), text(found, "check"), text(found, "message"),
             text(found, "fix"));
      n++;
    }
  }
  return n;
}

/* The one finding that is a warning or an error. */
static inline void require_only(const char *const *args, const char *level, const char *name, const char *says,
                                const char *fix) {
  int status;
  size_t i;
  json_t *found;
  json_t *report = run_check(args, &status);
  int bad_n = count_bad(report);
  REQUIRE(bad_n == 1, "%d findings, not 1 (%s)", bad_n, name);
  REQUIRE(status == (strcmp(level, "error") == 0), "exit status %d", status);
  REQUIRE(json_is_true(json_object_get(report, "is_ok")) == (status == 0), "is_ok is wrong");
  json_array_foreach(json_object_get(report, "checks"), i, found) {
    if (strcmp(text(found, "level"), "ok") == 0 || strcmp(text(found, "level"), "skipped") == 0) {
      continue;
    }
    REQUIRE(strcmp(text(found, "level"), level) == 0 && strcmp(text(found, "check"), name) == 0, "not %s %s", level,
            name);
    REQUIRE(strstr(text(found, "message"), says) != NULL, "the message does not say \"%s\"", says);
    REQUIRE(strstr(text(found, "fix"), fix) != NULL, "what to do does not say \"%s\"", fix);
  }
  json_decref(report);
}

#define REQUIRE_ONLY(level, name, says, fix, ...) \
  require_only((const char *const[]){__VA_ARGS__, NULL}, (level), (name), (says), (fix))

static inline void require_fine(const char *const *args) {
  int status;
  json_t *report = run_check(args, &status);
  int bad_n = count_bad(report);
  REQUIRE(bad_n == 0 && status == 0, "%d findings, exit status %d", bad_n, status);
  REQUIRE(json_is_true(json_object_get(report, "is_ok")) &&
              json_integer_value(json_object_get(report, "errors")) == 0 &&
              json_integer_value(json_object_get(report, "warnings")) == 0,
          "the sums are wrong");
  json_decref(report);
}

#define REQUIRE_FINE(...) require_fine((const char *const[]){__VA_ARGS__, NULL})
#define REQUIRE_ALL_FINE() require_fine((const char *const[]){NULL})

/* The level of a finding by this name; "" when there is none. */
static inline void require_level(const json_t *report, const char *name, const char *level) {
  size_t i;
  json_t *found;
  json_array_foreach(json_object_get(report, "checks"), i, found) {
    if (strcmp(text(found, "check"), name) == 0 && strcmp(text(found, "level"), level) == 0) {
      return;
    }
  }
  FAIL("no %s with level %s", name, level);
}

#endif
