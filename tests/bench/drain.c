/*
 * One drain by the relay, measured and checked: see bench.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "db.h"
#include "fail.h"
#include "fleet.h"
#include "rds.h"
#include "relay.h"
#include "usage.h"
#include "wait.h"

#define ARGS_MAX 32
#define DRAIN_MS 180000
#define PROCESSES_MAX 4

int64_t bench_entries(struct bench *bench) {
  int64_t entries_n = 0;
  for (int lane = 0; lane < BENCH_LANES_N; lane++) {
    redisReply *reply = rds_cmd(bench->redis, "TYPE outbox:{%d}", lane);
    bool is_stream = strcmp(reply->str, "stream") == 0;
    freeReplyObject(reply);
    if (is_stream) {
      entries_n += rds_int(bench->redis, "XLEN outbox:{%d}", lane);
    }
  }
  return entries_n;
}

void bench_wait_entries(struct bench *bench, int64_t entries_n, int64_t timeout_ms) {
  int64_t end_ms = wait_now_ms() + wait_scaled_ms(timeout_ms);
  while (bench_entries(bench) < entries_n) {
    REQUIRE(wait_now_ms() < end_ms, "the streams do not get %" PRId64 " entries within %" PRId64 " ms", entries_n,
            timeout_ms);
    wait_out(50);
  }
}

/* ---- the checker */

static void check_table(struct bench *bench, const struct check_options *options) {
  static struct check_report report;
  struct check_options filled = *options;

  filled.conninfo = bench->stack->conninfo;
  filled.redis_url = bench->stack->redis_url;
  bool is_good = check_run(&filled, &report);
  bench->checks_n++;
  bench->checked_n += report.published_n;
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    bench->found_n[kind] += report.found_n[kind];
  }
  if (report.is_pending_wrong) {
    bench->unexpected_n += report.pending_n;
  }
  if (report.is_dead_wrong) {
    bench->unexpected_n += report.dead_n;
  }
  if (!is_good) {
    check_print(&filled, &report, stdout);
  }
}

void bench_check(struct bench *bench, const struct check_options *options) {
  check_table(bench, options != NULL ? options : &(struct check_options){0});
}

void bench_check_published(struct bench *bench, const struct check_options *options) {
  struct check_options filled = options != NULL ? *options : (struct check_options){0};
  filled.table = "bench_published";
  check_table(bench, &filled);
}

bool bench_is_violated(const struct bench *bench) {
  bool is_violated = bench->unexpected_n > 0;
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    is_violated = is_violated || bench->found_n[kind] > 0;
  }
  return is_violated;
}

/* ---- the drain */

static struct relay *start(const struct bench *bench, const char *const *more_args, bool is_until_empty) {
  const char *args[ARGS_MAX] = {"run", "--no-cleanup"};
  int n = 2;

  if (is_until_empty) {
    args[n++] = "--until-empty";
  }
  for (const char *const *more = more_args; more != NULL && *more != NULL; more++) {
    REQUIRE(n < ARGS_MAX - 1, "too many arguments");
    args[n++] = *more;
  }
  args[n] = NULL;
  return relay_start(bench->stack, args);
}

/* Until it ends, or its time is over, which begins with the first entry in a stream; returns its memory at most.  VmHWM only grows, so its last value
 * counts: the first may have been read before the new process was the relay, and tell of this one. */
static int64_t watch(struct bench *bench, struct relay *relay, int64_t window_ms) {
  int64_t end_ms = wait_now_ms() + wait_scaled_ms(DRAIN_MS);
  int64_t peak_kib = 0;
  bool has_begun = window_ms == 0;
  while (relay_is_running(relay) && wait_now_ms() < end_ms) {
    int64_t kib = usage_memory_kib(relay_pid(relay), "VmHWM");
    peak_kib = kib > 0 ? kib : peak_kib;
    if (!has_begun && bench_entries(bench) > 0) {
      has_begun = true;
      end_ms = wait_now_ms() + window_ms;
    }
    wait_out(20);
  }
  if (window_ms > 0) {
    relay_stop(relay);
    return peak_kib;
  }
  int status = relay_wait(relay, 1000);
  REQUIRE(status == 0, "the relay ended with %d", status);
  return peak_kib;
}

/* WAL written so far. */
static int64_t wal_bytes(struct bench *bench) {
  return db_int(bench->conn, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint");
}

static void note(struct bench *bench, const struct drain_spec *spec, const struct drain *drain) {
  json_t *args = json_array();
  for (const char *const *more = spec->args; more != NULL && *more != NULL; more++) {
    json_array_append_new(args, json_string(*more));
  }
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:o, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "name", spec->name, "args", args,
                                  "messages", (json_int_t)drain->messages_n, "rate_per_second", drain->rate,
                                  "relay_cpu_us", drain->relay_cpu_us, "postgres_cpu_us", drain->pg_cpu_us,
                                  "redis_cpu_us", drain->redis_cpu_us, "wal_bytes", drain->wal_bytes, "peak_memory_kib",
                                  (json_int_t)drain->peak_kib));
  bench_say("%-26s %8" PRId64 " messages  %7.0f/s   CPU us a message: relay %.2f, PostgreSQL %.2f, Redis %.2f",
            spec->name, drain->messages_n, drain->rate, drain->relay_cpu_us, drain->pg_cpu_us, drain->redis_cpu_us);
}

struct drain bench_drain(struct bench *bench, const struct drain_spec *spec) {
  struct drain drain = {0};
  struct check_options check = {.stream = spec->stream, .lanes_n = spec->lanes_n};
  int64_t wal_before = wal_bytes(bench);
  struct usage before = usage_now(bench->stack);
  struct relay *relay = start(bench, spec->args, spec->window_ms == 0);

  drain.peak_kib = watch(bench, relay, spec->window_ms);
  struct usage after = usage_now(bench->stack);
  int64_t wal_after = wal_bytes(bench);
  relay_forget(&relay);
  drain.rate = bench_rate(bench, spec->first_id, NULL, &drain.messages_n);
  REQUIRE(drain.messages_n > 0, "%s: nothing was published", spec->name);
  double n = (double)drain.messages_n;
  drain.relay_cpu_us = (after.ended_children_s - before.ended_children_s) * 1e6 / n;
  drain.pg_cpu_us = (after.pg_s - before.pg_s) * 1e6 / n;
  drain.redis_cpu_us = (after.redis_s - before.redis_s) * 1e6 / n;
  drain.wal_bytes = (double)(wal_after - wal_before) / n;
  if (spec->window_ms > 0) {
    bench_check_published(bench, &check);
  } else {
    bench_check(bench, &check);
  }
  note(bench, spec, &drain);
  return drain;
}

double bench_fleet(struct bench *bench, int processes_n, const char *const *args, int64_t messages_n) {
  struct relay *relays[PROCESSES_MAX];

  REQUIRE(processes_n <= PROCESSES_MAX, "more than %d processes", PROCESSES_MAX);
  bench_clear(bench);
  for (int i = 0; i < processes_n; i++) {
    relays[i] = start(bench, args, false);
  }
  fleet_wait_even(bench->conn, BENCH_TABLE, BENCH_LANES_N, processes_n, 30000);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = messages_n});
  bench_wait_entries(bench, messages_n, DRAIN_MS);
  wait_no_pending(bench->conn, BENCH_TABLE, 10, 60000);
  for (int i = 0; i < processes_n; i++) {
    relay_stop(relays[i]);
    relay_forget(&relays[i]);
  }
  double rate = bench_rate(bench, first_id, NULL, NULL);
  bench_check(bench, NULL);
  bench_say("%d process%s %8" PRId64 " messages  %7.0f/s", processes_n,
            processes_n > 1 ? "es               " : "                 ", messages_n, rate);
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:I, s:I, s:f}", "name", "fleet", "processes", (json_int_t)processes_n,
                                  "messages", (json_int_t)messages_n, "rate_per_second", rate));
  return rate;
}
