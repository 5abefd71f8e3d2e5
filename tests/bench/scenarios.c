/*
 * The drain rate when the table or the load is not so kind, over the rate of the plain case.
 */
#include <inttypes.h>
#include <libpq-fe.h>

#include "baselines.h"
#include "bench.h"
#include "db.h"
#include "fail.h"
#include "rds.h"
#include "relay.h"
#include "wait.h"

#define MESSAGES_N 200000
#define DEAD_ROWS_N 2000000
/* Long enough for what is done once at the start, the walks past all dead rows among it, to lie in the fifth that is left out. */
#define BEHIND_DEAD_N 400000
#define PENDING_N 5000000
#define PENDING_WINDOW_MS 8000
#define BURST_N 50000
#define BURSTS_N 3
#define REAL_BYTES 150000000
#define MADE_UP_BYTES 7700
#define LARGE_N 2000
#define LARGE_BYTES 1000000
#define LARGE_WINDOW_MS 8000

/* A machine's speed changes from one minute to the next: what a figure is compared with is measured before and after it. */
static double mean(double before, double after) {
  return (before + after) / 2;
}

/* A drain of a fresh table by the defaults. */
static double drain_fresh(struct bench *bench, const char *name, enum fill_shape shape, int64_t messages_n) {
  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = bench_scaled(bench, messages_n), .shape = shape});
  return bench_drain(bench, &(struct drain_spec){.name = name, .first_id = first_id}).rate;
}

void bench_dead_rows(struct bench *bench) {
  int64_t dead_n = bench_scaled(bench, DEAD_ROWS_N);

  bench_table_partitioned(bench);
  double before = drain_fresh(bench, "fresh table", FILL_UNIFORM, BEHIND_DEAD_N);
  bench_clear(bench);
  bench_fill(bench, &(struct fill){.messages_n = dead_n});
  PGconn *holder = db_open(bench->stack->conninfo);
  db_exec(holder, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class");
  db_exec(bench->conn, "DELETE FROM " BENCH_TABLE);
  double rates[2];
  for (int i = 0; i < 2; i++) {
    /* As bench_clear does before the fresh ones: the dead rows' pages are not to be written while others are measured. */
    db_exec(bench->conn, "CHECKPOINT");
    int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = bench_scaled(bench, BEHIND_DEAD_N)});
    rates[i] = bench_drain(bench, &(struct drain_spec){.name = "behind dead rows", .first_id = first_id}).rate;
  }
  double rate = mean(rates[0], rates[1]);
  db_exec(holder, "ROLLBACK");
  PQfinish(holder);
  double fresh = mean(before, drain_fresh(bench, "fresh table", FILL_UNIFORM, BEHIND_DEAD_N));
  struct figure *figure = figures_add(&bench->figures, "dead_rows", rate / fresh, "", 0.9, false);
  figure_label(figure, "drain rate with %.1f million dead rows that cannot be removed, over a fresh table",
               (double)dead_n / 1e6);
  figure_how(figure, "%.0f/s over %.0f/s", rate, fresh);
}

/* The rate of 50,000 messages that appear at once in a table that is else empty, the relay being up: the median of some. */
static double measure_bursts(struct bench *bench) {
  double rates[BURSTS_N];
  int64_t burst_n = bench_scaled(bench, BURST_N);
  int64_t entries_n = 0;

  bench_clear(bench);
  struct relay *relay = relay_start(bench->stack, ARGS("run", "--no-cleanup"));
  relay_wait_log(relay, "lanes_changed", NULL, NULL, 20000);
  for (int i = 0; i < BURSTS_N; i++) {
    int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = burst_n});
    entries_n += burst_n;
    bench_wait_entries(bench, entries_n, 60000);
    wait_no_pending(bench->conn, BENCH_TABLE, 10, 60000);
    rates[i] = bench_rate(bench, first_id, NULL, NULL);
  }
  relay_stop(relay);
  relay_forget(&relay);
  bench_check(bench, NULL);
  double rate = bench_median(rates, BURSTS_N);
  bench_say("%-26s %8" PRId64 " messages  %7.0f/s", "bursts", burst_n, rate);
  json_array_append_new(bench->drains, json_pack("{s:s, s:I, s:f}", "name", "bursts", "messages", (json_int_t)burst_n,
                                                 "rate_per_second", rate));
  return rate;
}

void bench_many_pending(struct bench *bench) {
  int64_t pending_n = bench_scaled(bench, PENDING_N);

  bench_table_partitioned(bench);
  double before = measure_bursts(bench);
  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = pending_n});
  struct drain drain = bench_drain(
      bench, &(struct drain_spec){.name = "millions pending", .first_id = first_id, .window_ms = PENDING_WINDOW_MS});
  double few = mean(before, measure_bursts(bench));
  struct figure *figure = figures_add(&bench->figures, "many_pending", drain.rate / few, "", 0.9, false);
  figure_label(figure, "drain rate with %.1f million pending over %.0f thousand", (double)pending_n / 1e6,
               (double)bench_scaled(bench, BURST_N) / 1e3);
  figure_how(figure, "%.0f/s over %.0f/s", drain.rate, few);
}

void bench_shapes(struct bench *bench) {
  static const char stream[] = "outbox:{%l}:%t:%i";
  bench_table_partitioned(bench);
  double first = drain_fresh(bench, "uniform", FILL_UNIFORM, MESSAGES_N);
  double skewed = drain_fresh(bench, "90 % in one aggregate", FILL_SKEWED, MESSAGES_N);
  double second = drain_fresh(bench, "uniform", FILL_UNIFORM, MESSAGES_N);
  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = bench_scaled(bench, MESSAGES_N)});
  double by_aggregate = bench_drain(bench, &(struct drain_spec){.name = "a stream an aggregate",
                                                                .args = (const char *const[]){"--stream", stream, NULL},
                                                                .stream = stream,
                                                                .first_id = first_id})
                            .rate;
  double third = drain_fresh(bench, "uniform", FILL_UNIFORM, MESSAGES_N);
  double uniform = mean(first, second);
  struct figure *figure = figures_add(&bench->figures, "skewed", skewed / uniform, "", 0.6, false);
  figure_label(figure, "drain rate with 90 %% of the messages in one aggregate over uniform");
  figure_how(figure, "%.0f/s over %.0f/s", skewed, uniform);
  double by_lane = mean(second, third);
  figure = figures_add(&bench->figures, "streams", by_aggregate / by_lane, "", 0.8, false);
  figure_label(figure, "drain rate with a stream for each of 10,000 aggregates over one for each lane");
  figure_how(figure, "%.0f/s over %.0f/s", by_aggregate, by_lane);
}

void bench_two_processes(struct bench *bench) {
  int64_t messages_n = bench_scaled(bench, MESSAGES_N);
  bench_table_partitioned(bench);
  double before = bench_fleet(bench, 1, ARGS("--claimers", "4"), messages_n);
  double two = bench_fleet(bench, 2, ARGS("--claimers", "2"), messages_n);
  double one = mean(before, bench_fleet(bench, 1, ARGS("--claimers", "4"), messages_n));
  struct figure *figure = figures_add(&bench->figures, "two_processes", two / one, "", 0.8, false);
  figure_label(figure, "drain rate of two processes with 2 claimers each over one with 4");
  figure_how(figure, "%.0f/s over %.0f/s", two, one);
}

/* What a round of real events has found; bytes are those of payloads. */
struct real_events {
  double messages_rate;
  double bytes_rate;
  double limit_bytes_rate;
};

static void real_events_round(struct bench *bench, const char *payload_type, struct real_events *out) {
  const char *path = table_real_path();
  char name[64];

  bench_table_partitioned_of(bench, payload_type);
  bench_clear(bench);
  int64_t first_id = bench_last_id(bench);
  int64_t bytes = (int64_t)((double)REAL_BYTES * bench->scale);
  if (path != NULL) {
    table_fill_real(bench->conn, BENCH_TABLE, path, bytes > 6500000 ? (int)(bytes / 3250000) : 2);
  } else {
    bench_fill(bench, &(struct fill){.messages_n = bytes / MADE_UP_BYTES, .payload_bytes = MADE_UP_BYTES});
  }
  (void)snprintf(name, sizeof name, "events of 7.7 KB, %s", payload_type);
  struct drain drain = bench_drain(bench, &(struct drain_spec){.name = name, .first_id = first_id});
  double payload_bytes = (double)db_int(bench->conn, "SELECT avg(length(payload::text))::bigint FROM " BENCH_TABLE);
  struct redis_limit limit = baseline_redis(bench);
  *out = (struct real_events){drain.rate, drain.rate * payload_bytes, limit.payload_bytes};
}

void bench_real_events(struct bench *bench) {
  static const char *const types[] = {"jsonb", "json"};
  static const char *const names[] = {"real_events", "real_events_json"};
  struct real_events rounds[2][2];

  for (int round = 0; round < 2; round++) {
    for (int type = 0; type < 2; type++) {
      real_events_round(bench, types[type], &rounds[type][round]);
    }
  }
  for (int type = 0; type < 2; type++) {
    const struct real_events *r = rounds[type];
    double rate = mean(r[0].bytes_rate, r[1].bytes_rate);
    double limit = mean(r[0].limit_bytes_rate, r[1].limit_bytes_rate);
    struct figure *figure = figures_add(&bench->figures, names[type], rate / limit, "", 0.5, false);
    figure_label(figure, "MB/s with %s in a column of type %s over the Redis limit's",
                 table_real_path() != NULL ? "real events (median 7.7 KB)"
                                           : "made-up payloads of 7.7 KB (no real events here)",
                 types[type]);
    figure_how(figure, "%.0f MB/s (%.0f messages/s) over %.0f MB/s", rate / 1e6,
               mean(r[0].messages_rate, r[1].messages_rate), limit / 1e6);
  }
}

void bench_large_payloads(struct bench *bench) {
  int64_t messages_n = (int64_t)((double)LARGE_N * bench->scale);
  bench_table_partitioned(bench);
  bench_clear(bench);
  int64_t first_id = bench_fill(
      bench, &(struct fill){.messages_n = messages_n < 100 ? 100 : messages_n, .payload_bytes = LARGE_BYTES});
  struct drain drain = bench_drain(
      bench, &(struct drain_spec){.name = "payloads of 1 MB", .first_id = first_id, .window_ms = LARGE_WINDOW_MS});
  struct figure *figure = figures_add(&bench->figures, "memory_large", (double)drain.peak_kib / 1024, "MiB", 200, true);
  figure_label(figure, "resident memory at most, a backlog of %.1f GB in payloads of 1 MB", (double)messages_n / 1000);
  figure_how(figure, "VmHWM; %" PRId64 " messages relayed, %.0f/s", drain.messages_n, drain.rate);
}
