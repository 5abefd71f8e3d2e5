/*
 * What refused messages cost the others: see docs/benchmarks.md.
 *
 * Lane BENCH_REFUSED_LANE's stream is put aside and a string stands in its place, so that every XADD to it is refused; at the end the stream is put
 * back and everything is relayed and checked.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "bench.h"
#include "db.h"
#include "fail.h"
#include "rds.h"
#include "relay.h"
#include "usage.h"
#include "wait.h"
#include "writer.h"

#define STREAM "outbox:{3}"
#define KEPT "kept:{3}"
#define OTHER_LANES "mod(mod(hashtextextended(aggregate_id, 0), 16) + 16, 16) <> 3"
#define BURST_N 200000
#define LOAD_RATE 5000
#define LOAD_MS 120000
#define WAITING_N 50000
#define MESSAGES_N 400000
#define WAITING_ATTEMPTS 8 /* refused so often, the next retry is 30 to 60 s away: the burst is over before */

static void refuse(struct bench *bench) {
  redisReply *reply = redisCommand(bench->redis, "RENAME " STREAM " " KEPT); /* there may be none yet */
  REQUIRE(reply != NULL, "Redis does not answer");
  freeReplyObject(reply);
  rds_run(bench->redis, "SET " STREAM " refused");
}

static void accept_again(struct bench *bench) {
  rds_run(bench->redis, "DEL " STREAM);
  if (rds_int(bench->redis, "EXISTS " KEPT) == 1) {
    rds_run(bench->redis, "RENAME " KEPT " " STREAM);
  }
}

/* Everything that is left goes, by a relay that knows of no refusal. */
static void relay_rest(struct bench *bench) {
  accept_again(bench);
  struct relay *relay = relay_start(bench->stack, ARGS("run", "--no-cleanup", "--until-empty"));
  int status = relay_wait(relay, 180000);
  REQUIRE(status == 0, "the relay ended with %d", status);
  relay_forget(&relay);
  bench_check(bench, NULL);
}

static int64_t pending_of_others(struct bench *bench) {
  return db_int(bench->conn, "SELECT count(*) FROM " BENCH_TABLE " WHERE published_at IS NULL AND " OTHER_LANES);
}

/* A backlog that appears at once; the rate of the lanes that are not refused. */
static double measure_burst(struct bench *bench, const char *name, int64_t messages_n) {
  int64_t others_n;
  int64_t before_n = bench_entries(bench);
  /* Beforehand: while they are relayed, looking through a table of many more rows would take a core from the relay. */
  int64_t of_others_n = db_int(bench->conn,
                               "SELECT count(*) FROM (SELECT %s AS aggregate_id FROM generate_series(1, %" PRId64
                               "::bigint) i) s WHERE " OTHER_LANES,
                               BENCH_AGGREGATE, messages_n);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = messages_n});
  struct usage before = usage_now(bench->stack);
  bench_wait_entries(bench, before_n + of_others_n, 120000);
  WAIT_FOR(60000, pending_of_others(bench) == 0, "the other lanes do not run empty");
  double pg_cpu_us = (usage_now(bench->stack).pg_s - before.pg_s) * 1e6 / (double)messages_n;
  double rate = bench_rate(bench, first_id, OTHER_LANES, &others_n);
  bench_say("%-26s %8" PRId64 " messages  %7.0f/s   CPU us a message: PostgreSQL %.2f", name, others_n, rate,
            pg_cpu_us);
  json_array_append_new(bench->drains, json_pack("{s:s, s:I, s:f, s:f}", "name", name, "messages", (json_int_t)others_n,
                                                 "rate_per_second", rate, "postgres_cpu_us", pg_cpu_us));
  return rate;
}

/* The same by a relay of its own, on a fresh table in which nothing is refused. */
static double measure_healthy(struct bench *bench, const char *name, int64_t messages_n) {
  bench_clear(bench);
  struct relay *relay = relay_start(bench->stack, ARGS("run", "--no-cleanup"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, 20000);
  double rate = measure_burst(bench, name, messages_n);
  relay_stop(relay);
  relay_forget(&relay);
  bench_check(bench, NULL);
  return rate;
}

/* What the refused lane has come to. */
static void note_refused(struct bench *bench, double kept_up) {
  PGresult *row = db_rows(
      bench->conn, "SELECT count(*), count(*) FILTER (WHERE attempts > 0), coalesce(max(attempts), 0), "
                   "count(DISTINCT (aggregate_type, aggregate_id)) FROM " BENCH_TABLE " WHERE published_at IS NULL");
  long long pending = strtoll(PQgetvalue(row, 0, 0), NULL, 10), tried = strtoll(PQgetvalue(row, 0, 1), NULL, 10),
            attempts = strtoll(PQgetvalue(row, 0, 2), NULL, 10), aggregates = strtoll(PQgetvalue(row, 0, 3), NULL, 10);
  PQclear(row);
  bench_say("refused lane: %lld pending of %lld aggregates, %lld of them tried, at most %lld times", pending,
            aggregates, tried, attempts);
  json_array_append_new(bench->drains, json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "name", "refused lane", "pending",
                                                 (json_int_t)pending, "tried", (json_int_t)tried, "attempts_most",
                                                 (json_int_t)attempts, "aggregates", (json_int_t)aggregates,
                                                 "others_published_of_committed", kept_up));
}

void bench_refused_lane(struct bench *bench) {
  int64_t burst_n = bench_scaled(bench, BURST_N);
  int64_t load_ms = (int64_t)(LOAD_MS * (bench->scale < 1 ? bench->scale : 1));

  bench_table_partitioned(bench);
  double before = measure_healthy(bench, "healthy, 15 lanes", burst_n);
  struct relay *relay = relay_start(bench->stack, ARGS("run", "--no-cleanup"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, 20000);
  refuse(bench);
  struct writer *writer = writer_start(&(struct writer_options){.conninfo = bench->stack->conninfo,
                                                                .table = BENCH_TABLE,
                                                                .threads_n = 4,
                                                                .aggregates_n = BENCH_AGGREGATES_N,
                                                                .payload_min_bytes = 150,
                                                                .payload_max_bytes = 250,
                                                                .rate = LOAD_RATE,
                                                                .seed = 1});
  bench_say("one lane's stream refuses everything, %d messages/s for %" PRId64 " s", LOAD_RATE, load_ms / 1000);
  wait_out(load_ms);
  writer_stop(writer);
  double committed_n = (double)writer_wait(writer, 30000).committed_n;
  /* A second or two of the load may be under way; what is more has not kept up. */
  double kept_up = 1 - (double)pending_of_others(bench) / committed_n;
  WAIT_FOR(120000, pending_of_others(bench) == 0, "the other lanes do not run empty");
  double refused = measure_burst(bench, "15 lanes beside a refused", burst_n);
  note_refused(bench, kept_up);
  relay_stop(relay);
  relay_forget(&relay);
  writer_end_all();
  relay_rest(bench);
  double healthy = (before + measure_healthy(bench, "healthy, 15 lanes", burst_n)) / 2;
  struct figure *figure = figures_add(&bench->figures, "refused_lane", refused / healthy, "", 0.8, false);
  figure_label(figure, "rate of the other 15 lanes after %.0f s of load while one lane's stream refuses, over healthy",
               (double)load_ms / 1000);
  figure_how(figure, "%.0f/s over %.0f/s; %.1f %% of the load's others published when it ended", refused, healthy,
             kept_up * 100);
}

static int64_t refused_n(struct bench *bench) {
  return db_int(bench->conn, "SELECT count(*) FROM " BENCH_TABLE " WHERE published_at IS NULL AND attempts >= %d",
                WAITING_ATTEMPTS);
}

void bench_waiting_retries(struct bench *bench) {
  int64_t waiting_n = bench_scaled(bench, WAITING_N);
  int64_t messages_n = bench_scaled(bench, MESSAGES_N);

  bench_table_partitioned(bench);
  double before = measure_healthy(bench, "no aggregate waits", messages_n);
  refuse(bench);
  bench_fill(bench, &(struct fill){.messages_n = waiting_n, .shape = FILL_LANE});
  /* Once more and they wait long: the refusals before it would only take time. */
  db_exec(bench->conn, "UPDATE " BENCH_TABLE " SET attempts = %d WHERE published_at IS NULL", WAITING_ATTEMPTS - 1);
  struct relay *relay = relay_start(bench->stack, ARGS("run", "--no-cleanup"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, 20000);
  WAIT_FOR(120000, refused_n(bench) == waiting_n, "only %" PRId64 " of %" PRId64 " messages are refused %d times",
           refused_n(bench), waiting_n, WAITING_ATTEMPTS);
  double waiting = measure_burst(bench, "aggregates wait for a retry", messages_n);
  note_refused(bench, 1);
  relay_stop(relay);
  relay_forget(&relay);
  relay_rest(bench);
  double none = (before + measure_healthy(bench, "no aggregate waits", messages_n)) / 2;
  struct figure *figure = figures_add(&bench->figures, "waiting_retries", waiting / none, "", 0.8, false);
  figure_label(figure, "drain rate with %.0f thousand aggregates waiting for a retry over none",
               (double)waiting_n / 1000);
  figure_how(figure, "%.0f/s over %.0f/s, 15 lanes", waiting, none);
}
