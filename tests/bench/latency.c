/*
 * Commit to stream, and what a relay costs that has nothing to do.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "consumer.h"
#include "fail.h"
#include "load.h"
#include "plot.h"
#include "relay.h"
#include "usage.h"
#include "wait.h"

#define RATE 2000
#define WRITERS_N 4
#define POLL_MS 100.0 /* the default of --poll-interval */
#define WARM_MS 3000
#define MEASURED_MS 12000
#define MEASURED_QUICK_MS 8000
#define IDLE_MS 20000
#define IDLE_SETTLE_MS 5000
#define AGGREGATES_N 1000

static void write_distribution(struct latencies *latencies, const char *name) {
  FILE *out = plot_open(name);
  for (int i = 0; i <= 1000; i++) {
    fprintf(out, "%.3f,%.3f\n", latencies_quantile_ms(latencies, i / 1000.0), i / 10.0);
  }
  fclose(out);
}

/* Latencies of the load's messages, the first seconds left out; the table has been made. */
static struct latencies measure(struct bench *bench, const char *name) {
  struct latencies latencies;

  bench_clear(bench);
  struct relay *relay = relay_start(bench->stack, ARGS("run", "--no-cleanup"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, 20000);
  struct consumer *consumer = consumer_start(&(struct consumer_options){
      .redis_url = bench->stack->redis_url, .lanes_n = BENCH_LANES_N, .aggregates_n = AGGREGATES_N});
  struct load *load = load_start(&(struct load_options){.conninfo = bench->stack->conninfo,
                                                        .threads_n = WRITERS_N,
                                                        .rate = RATE,
                                                        .per_transaction_n = 1,
                                                        .aggregates_n = AGGREGATES_N,
                                                        .payload_bytes = BENCH_PAYLOAD_BYTES - 50});
  consumer_attach(consumer, load);
  wait_out(WARM_MS);
  consumer_take(consumer, &latencies);
  free(latencies.v);
  wait_out(bench->is_quick ? MEASURED_QUICK_MS : MEASURED_MS);
  consumer_take(consumer, &latencies);
  load_stop(load);
  WAIT_FOR(30000, consumer_read(consumer) >= load_committed(load), "%" PRId64 " messages do not arrive",
           load_committed(load) - consumer_read(consumer));
  wait_no_pending(bench->conn, BENCH_TABLE, 10, 30000);
  (void)consumer_stop(consumer); /* the checker sees more than it does */
  load_free(load);
  relay_stop(relay);
  relay_forget(&relay);
  bench_check(bench, NULL);
  double p50 = latencies_quantile_ms(&latencies, 0.5), p99 = latencies_quantile_ms(&latencies, 0.99);
  bench_say("%-26s %8" PRId64 " messages  p50 %.1f ms, p99 %.1f ms", name, latencies.n, p50, p99);
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", name, "messages", (json_int_t)latencies.n,
                                  "p50_ms", p50, "p99_ms", p99, "max_ms", latencies_quantile_ms(&latencies, 1)));
  return latencies;
}

static void add_figure(struct bench *bench, const char *name, const char *what, double value, const char *unit,
                       double target, double ms) {
  struct figure *figure = figures_add(&bench->figures, name, value, unit, target, true);
  figure_label(figure, "commit to stream at %d messages/s, 4 writers, %s", RATE, what);
  figure_how(figure, "%.1f ms", ms);
}

static void measure_polling(struct bench *bench) {
  bench_table_partitioned(bench);
  struct latencies latencies = measure(bench, "latency, polling");
  double p50 = latencies_quantile_ms(&latencies, 0.5), p99 = latencies_quantile_ms(&latencies, 0.99);
  add_figure(bench, "latency_polling_p50", "polling: p50", p50 / POLL_MS, "intervals", 0.6, p50);
  add_figure(bench, "latency_polling_p99", "polling: p99", p99 / POLL_MS, "intervals", 1.5, p99);
  write_distribution(&latencies, "latency-polling.csv");
  free(latencies.v);
}

static bool has_notify(struct bench *bench) {
  struct relay *help = relay_run_plain(bench->stack, ARGS("init", "--help"), 20000);
  char *text = relay_stdout(help);
  bool has = strstr(text, "--notify") != NULL;
  free(text);
  relay_forget(&help);
  return has;
}

static void measure_notified(struct bench *bench) {
  bench_table_partitioned(bench);
  struct relay *init = relay_start(bench->stack, ARGS("init", "--notify"));
  int status = relay_wait(init, 30000);
  REQUIRE(status == 0, "outboxd init --notify ended with %d", status);
  relay_forget(&init);
  struct latencies latencies = measure(bench, "latency, notified");
  double p50 = latencies_quantile_ms(&latencies, 0.5), p99 = latencies_quantile_ms(&latencies, 0.99);
  add_figure(bench, "latency_notify_p50", "with init --notify: p50", p50, "ms", 2, p50);
  add_figure(bench, "latency_notify_p99", "with init --notify: p99", p99, "ms", 10, p99);
  write_distribution(&latencies, "latency-notify.csv");
  free(latencies.v);
}

void bench_latency(struct bench *bench) {
  bool is_notified = has_notify(bench);
  measure_polling(bench);
  if (is_notified) {
    measure_notified(bench);
  }
  plot_draw(
      bench, "latency",
      "set title 'Commit to stream at %d messages/s'\nset xlabel 'ms'\nset ylabel '%% of the messages'\n"
      "set logscale x\nplot '" BENCH_DIR "/bench/latency-polling.csv' with lines lw 2 title 'polling every 100 ms'%s\n",
      RATE, is_notified ? ", '" BENCH_DIR "/bench/latency-notify.csv' with lines lw 2 title 'init --notify'" : "");
}

void bench_idle(struct bench *bench) {
  int64_t span_ms = bench->is_quick ? IDLE_MS / 3 : IDLE_MS;
  bench_table_partitioned(bench);
  bench_clear(bench);
  struct relay *relay = relay_start(bench->stack, ARGS("run"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, 20000);
  wait_out(IDLE_SETTLE_MS); /* the first clean-up */
  struct usage before = usage_now(bench->stack);
  double relay_before_s = usage_cpu_s(relay_pid(relay)), began_s = bench_now_s();
  wait_out(span_ms);
  double relay_s = usage_cpu_s(relay_pid(relay)) - relay_before_s;
  struct usage after = usage_now(bench->stack);
  double seconds = bench_now_s() - began_s, pg_s = after.pg_s - before.pg_s;
  relay_stop(relay);
  relay_forget(&relay);
  bench_check(bench, NULL);
  bench_say("idle: relay %.2f %%, PostgreSQL %.2f %% of a core", relay_s / seconds * 100, pg_s / seconds * 100);
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", "idle", "seconds", seconds, "relay_cpu_s",
                                  relay_s, "postgres_cpu_s", pg_s, "redis_cpu_s", after.redis_s - before.redis_s));
  struct figure *figure =
      figures_add(&bench->figures, "idle", (relay_s + pg_s) / seconds * 100, "% of a core", 1, true);
  figure_label(figure, "relay and PostgreSQL with nothing pending, defaults, for %.0f s", seconds);
  figure_how(figure, "relay %.2f %%, PostgreSQL %.2f %%", relay_s / seconds * 100, pg_s / seconds * 100);
}
