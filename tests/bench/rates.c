/*
 * The drain rates over the baselines, and what else the same drains show: CPU, memory, WAL.
 */
#include <inttypes.h>

#include "baselines.h"
#include "bench.h"

#define ROUNDS_N 3
#define MESSAGES_N 300000
#define PLAIN_MESSAGES_N 150000
#define PLAIN_ROUNDS_N 2
#define BARE_MESSAGES_N 100000

struct rounds {
  double sql[ROUNDS_N], sql_wal[ROUNDS_N], relay[ROUNDS_N], cpu_us[ROUNDS_N], pg_us[ROUNDS_N], redis_us[ROUNDS_N],
      wal[ROUNDS_N];
  int64_t peak_kib;
};

/* One side and then the other on the same table, so that what changes on the machine changes for both. */
static void run_round(struct bench *bench, struct rounds *rounds, int i, const char *name, int64_t messages_n) {
  const struct fill fill = {.messages_n = bench_scaled(bench, messages_n)};

  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &fill);
  struct sql_limit limit = baseline_sql(bench, first_id, false);
  rounds->sql[i] = limit.rate;
  rounds->sql_wal[i] = limit.wal_bytes;
  bench_clear(bench);
  first_id = bench_fill(bench, &fill);
  struct drain drain = bench_drain(bench, &(struct drain_spec){.name = name, .first_id = first_id});
  rounds->relay[i] = drain.rate;
  rounds->cpu_us[i] = drain.relay_cpu_us;
  rounds->pg_us[i] = drain.pg_cpu_us;
  rounds->redis_us[i] = drain.redis_cpu_us;
  rounds->wal[i] = drain.wal_bytes;
  rounds->peak_kib = drain.peak_kib > rounds->peak_kib ? drain.peak_kib : rounds->peak_kib;
}

static void add_main_figures(struct bench *bench, struct rounds *rounds, double redis[ROUNDS_N]) {
  double sql = bench_median(rounds->sql, ROUNDS_N), relay = bench_median(rounds->relay, ROUNDS_N);
  double cpu_us = bench_median(rounds->cpu_us, ROUNDS_N);
  struct figure *figure = figures_add(&bench->figures, "drain_partitioned", relay / sql, "", 0.8, false);
  figure_label(figure, "drain rate, %d partitions, 300-byte payloads, over the SQL limit", BENCH_PARTITIONS_N);
  figure_how(figure, "%.0f/s over %.0f/s; Redis limit %.0f/s", relay, sql, bench_median(redis, ROUNDS_N));

  figure = figures_add(&bench->figures, "relay_cpu", cpu_us, "us", 2.5, true);
  figure_label(figure, "the relay's own CPU for a message");
  figure_how(figure, "beside it PostgreSQL %.1f us, Redis %.1f us", bench_median(rounds->pg_us, ROUNDS_N),
             bench_median(rounds->redis_us, ROUNDS_N));

  figure = figures_add(&bench->figures, "memory_small", (double)rounds->peak_kib / 1024, "MiB", 48, true);
  figure_label(figure, "resident memory at most, defaults, 300-byte payloads");
  figure_how(figure, "VmHWM, the largest of %d drains", ROUNDS_N);
}

static void add_wal_figure(struct bench *bench, struct rounds *rounds) {
  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = bench_scaled(bench, BARE_MESSAGES_N)});
  struct sql_limit bare = baseline_sql(bench, first_id, true);
  double wal = bench_median(rounds->wal, ROUNDS_N);
  struct figure *figure = figures_add(&bench->figures, "wal", wal / bare.wal_bytes, "", 1.1, true);
  figure_label(figure, "WAL bytes of relaying a message over those of the bare UPDATE");
  figure_how(figure, "%.0f over %.0f bytes; the SQL limit, which locks the rows too, %.0f", wal, bare.wal_bytes,
             bench_median(rounds->sql_wal, ROUNDS_N));
}

void bench_rates_main(struct bench *bench) {
  struct rounds rounds = {0};
  double redis[ROUNDS_N];

  bench_table_partitioned(bench);
  for (int i = 0; i < ROUNDS_N; i++) {
    run_round(bench, &rounds, i, "drain, 20 partitions", MESSAGES_N);
    redis[i] = baseline_redis(bench).rate;
  }
  add_main_figures(bench, &rounds, redis);
  add_wal_figure(bench, &rounds);
}

void bench_rates_plain(struct bench *bench) {
  struct rounds rounds = {0};

  bench_table_plain(bench);
  for (int i = 0; i < PLAIN_ROUNDS_N; i++) {
    run_round(bench, &rounds, i, "drain, plain table", PLAIN_MESSAGES_N);
  }
  double sql = bench_median(rounds.sql, PLAIN_ROUNDS_N);
  double relay = bench_median(rounds.relay, PLAIN_ROUNDS_N);
  struct figure *figure = figures_add(&bench->figures, "drain_plain", relay / sql, "", 0.8, false);
  figure_label(figure, "drain rate on the plain table over the SQL limit on it");
  figure_how(figure, "%.0f/s over %.0f/s", relay, sql);
}
