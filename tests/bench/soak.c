/*
 * A steady load for long, every message judged as it arrives: does anything grow?
 *
 * Nothing of what has been judged is kept: the consumer trims the streams behind itself, and the table has a partition for every two minutes, which is
 * detached and dropped once all in it is published.  So the run needs the same room whether it takes three minutes or three hours.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "consumer.h"
#include "db.h"
#include "fail.h"
#include "load.h"
#include "plot.h"
#include "rds.h"
#include "relay.h"
#include "usage.h"
#include "wait.h"

#define RATE_MAX 15000
#define PARTITION_S 120
#define SPARE_PARTITIONS_N 6
#define SAMPLE_MS 10000
#define SAMPLES_MAX 20000
#define WARM_SAMPLES_N 3 /* not counted when asking whether something has grown */
#define THREADS_N 4
#define PER_TRANSACTION_N 10
#define PROBE_MESSAGES_N 300000

enum sampled { MEMORY_KIB, FILES_N, DEAD_N, P50_MS, P99_MS };
#define SAMPLED_N 5

struct sample {
  double v[SAMPLED_N];
};

struct soak {
  struct bench *bench;
  int64_t base_s; /* where the first partition begins, Unix time */
  int made_n, dropped_n;
  struct relay *relay;
  struct consumer *consumer;
  struct load *load;
  struct sample *samples;
  int samples_n;
  FILE *csv;
};

/* The partitions of init with its storage settings, but one for every two minutes. */
static void make_table(struct soak *soak, int64_t duration_ms) {
  struct bench *bench = soak->bench;
  bench_table_partitioned(bench);
  char *settings =
      db_text(bench->conn, "SELECT array_to_string(reloptions, ', ') FROM pg_class JOIN pg_inherits ON oid = inhrelid "
                           "WHERE inhparent = '" BENCH_TABLE "'::regclass LIMIT 1");
  db_exec(bench->conn, "DO $$ DECLARE p regclass; BEGIN FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = "
                       "'" BENCH_TABLE "'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$");
  soak->base_s = (int64_t)time(NULL) - PARTITION_S;
  soak->made_n = (int)(duration_ms / 1000 / PARTITION_S) + SPARE_PARTITIONS_N;
  for (int i = 0; i < soak->made_n; i++) {
    db_exec(bench->conn,
            "CREATE TABLE soak_%d PARTITION OF " BENCH_TABLE " FOR VALUES FROM (to_timestamp(%" PRId64
            ")) TO (to_timestamp(%" PRId64 ")) WITH (%s)",
            i, soak->base_s + (int64_t)i * PARTITION_S, soak->base_s + (int64_t)(i + 1) * PARTITION_S, settings);
  }
  free(settings);
}

/* Partitions that are over for a while and have nothing pending. */
static void drop_old(struct soak *soak) {
  PGconn *conn = soak->bench->conn;
  while (soak->base_s + (int64_t)(soak->dropped_n + 1) * PARTITION_S + PARTITION_S / 4 < (int64_t)time(NULL)) {
    if (db_int(conn, "SELECT count(*) FROM (SELECT FROM soak_%d WHERE published_at IS NULL LIMIT 1) p",
               soak->dropped_n) > 0) {
      return;
    }
    db_exec(conn, "ALTER TABLE " BENCH_TABLE " DETACH PARTITION soak_%d CONCURRENTLY", soak->dropped_n);
    db_exec(conn, "DROP TABLE soak_%d", soak->dropped_n);
    soak->dropped_n++;
  }
}

static int64_t redis_memory(struct bench *bench) {
  redisReply *reply = rds_cmd(bench->redis, "INFO memory");
  const char *value = strstr(reply->str, "used_memory:");
  int64_t bytes = value != NULL ? strtoll(value + strlen("used_memory:"), NULL, 10) : 0;
  freeReplyObject(reply);
  return bytes;
}

static void take_sample(struct soak *soak, double elapsed_s) {
  struct latencies latencies;
  struct bench *bench = soak->bench;
  pid_t pid = relay_pid(soak->relay);

  REQUIRE(relay_is_running(soak->relay), "the relay has ended");
  REQUIRE(soak->samples_n < SAMPLES_MAX, "more than %d samples", SAMPLES_MAX);
  struct sample *sample = &soak->samples[soak->samples_n++];
  consumer_take(soak->consumer, &latencies);
  sample->v[MEMORY_KIB] = (double)usage_memory_kib(pid, "VmRSS");
  sample->v[FILES_N] = usage_files_n(pid);
  sample->v[DEAD_N] = (double)db_int(bench->conn, "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables");
  sample->v[P50_MS] = latencies_quantile_ms(&latencies, 0.5);
  sample->v[P99_MS] = latencies_quantile_ms(&latencies, 0.99);
  int64_t committed_n = load_committed(soak->load), read_n = consumer_read(soak->consumer);
  fprintf(soak->csv, "%.0f,%" PRId64 ",%" PRId64 ",%.1f,%.0f,%.0f,%.1f,%.2f,%.2f,%.2f\n", elapsed_s, read_n,
          committed_n - read_n, sample->v[MEMORY_KIB] / 1024, sample->v[FILES_N], sample->v[DEAD_N],
          (double)redis_memory(bench) / 1048576, sample->v[P50_MS], sample->v[P99_MS],
          latencies_quantile_ms(&latencies, 1));
  fflush(soak->csv);
  bench_say("%6.0f s: %10" PRId64 " relayed, %7" PRId64
            " under way, %.1f MiB, %.0f files, %.0f dead rows, p50 %.0f ms, p99 %.0f ms",
            elapsed_s, read_n, committed_n - read_n, sample->v[MEMORY_KIB] / 1024, sample->v[FILES_N],
            sample->v[DEAD_N], sample->v[P50_MS], sample->v[P99_MS]);
  free(latencies.v);
}

static void draw(const struct bench *bench) {
  plot_draw(
      bench, "soak",
      "set terminal svg size 800,900 background 'white' font 'sans,12'\nset multiplot layout 4,1\nset yrange [0:*]\n"
      "set key top right\nf = '" BENCH_DIR "/bench/soak.csv'\n"
      "set ylabel 'MiB'\nplot f using 1:4 with lines lw 2 title 'resident memory of the relay'\n"
      "set ylabel 'files'\nplot f using 1:5 with lines lw 2 title 'open files of the relay'\n"
      "set ylabel 'rows'\nplot f using 1:6 with lines lw 2 title 'dead rows'\n"
      "set ylabel 'ms'\nset xlabel 's'\nplot f using 1:8 with lines lw 2 title 'commit to stream, p50', f using 1:9 "
      "with "
      "lines lw 2 title 'p99'\nunset multiplot\n");
}

/* The last third over the first: medians, but of dead rows, which come and go with autovacuum, the most. */
static double growth(const struct soak *soak, enum sampled what) {
  double first[SAMPLES_MAX], last[SAMPLES_MAX];
  int counted_n = soak->samples_n - WARM_SAMPLES_N, third_n = counted_n / 3;
  if (third_n < 1) {
    return 1;
  }
  for (int i = 0; i < third_n; i++) {
    first[i] = soak->samples[WARM_SAMPLES_N + i].v[what];
    last[i] = soak->samples[soak->samples_n - 1 - i].v[what];
  }
  double before = bench_median(first, third_n), after = bench_median(last, third_n);
  if (what == DEAD_N) {
    before = first[third_n - 1]; /* sorted by now */
    after = last[third_n - 1];
  }
  return before > 0 ? after / before : 1;
}

static void add_figures(struct soak *soak, int rate) {
  static const struct {
    const char *name, *what;
    enum sampled sampled;
    double target;
  } grown[] = {{"soak_memory", "resident memory", MEMORY_KIB, 1.1},
               {"soak_files", "open files", FILES_N, 1.0},
               {"soak_dead_rows", "dead rows", DEAD_N, 1.5},
               {"soak_p50", "latency p50", P50_MS, 1.5},
               {"soak_p99", "latency p99", P99_MS, 2.0}};
  for (size_t i = 0; i < sizeof grown / sizeof grown[0]; i++) {
    struct figure *figure =
        figures_add(&soak->bench->figures, grown[i].name, growth(soak, grown[i].sampled), "", grown[i].target, true);
    figure_label(figure, "soak at %d messages/s: %s, last third over first", rate, grown[i].what);
    figure_how(figure, "%s of samples every %d s", grown[i].sampled == DEAD_N ? "most" : "median", SAMPLE_MS / 1000);
  }
}

static int half_the_drain(struct bench *bench) {
  bench_table_partitioned(bench);
  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = PROBE_MESSAGES_N});
  double rate =
      bench_drain(bench, &(struct drain_spec){.name = "drain before the soak", .first_id = first_id}).rate / 2;
  return rate < RATE_MAX ? (int)rate : RATE_MAX;
}

static void finish(struct soak *soak) {
  struct bench *bench = soak->bench;
  load_stop(soak->load);
  int64_t committed_n = load_committed(soak->load);
  WAIT_FOR(120000, consumer_read(soak->consumer) >= committed_n, "%" PRId64 " messages do not arrive",
           committed_n - consumer_read(soak->consumer));
  wait_no_pending(bench->conn, BENCH_TABLE, 10, 60000);
  struct consumer_verdict verdict = consumer_stop(soak->consumer);
  relay_stop(soak->relay);
  bench->checks_n++;
  bench->checked_n += committed_n;
  bench->found_n[CHECK_LOST] += verdict.lost_n;
  bench->found_n[CHECK_DUPLICATE] += verdict.duplicate_n;
  bench->found_n[CHECK_OUT_OF_ORDER] += verdict.out_of_order_n;
  bench->found_n[CHECK_PHANTOM] += verdict.phantom_n;
}

void bench_soak(struct bench *bench, int64_t duration_ms, int rate) {
  struct soak soak = {.bench = bench};
  if (rate == 0) {
    rate = half_the_drain(bench);
  }
  soak.samples = calloc(SAMPLES_MAX, sizeof *soak.samples);
  REQUIRE(soak.samples != NULL, "out of memory");
  soak.csv = plot_open("soak.csv");
  make_table(&soak, duration_ms);
  soak.relay = relay_start(bench->stack, ARGS("run", "--no-cleanup"));
  relay_wait_log(soak.relay, "lanes_changed", NULL, NULL, 20000);
  soak.consumer = consumer_start(&(struct consumer_options){.redis_url = bench->stack->redis_url,
                                                            .lanes_n = BENCH_LANES_N,
                                                            .aggregates_n = BENCH_AGGREGATES_N,
                                                            .is_trimming = true});
  soak.load = load_start(&(struct load_options){.conninfo = bench->stack->conninfo,
                                                .threads_n = THREADS_N,
                                                .rate = rate,
                                                .per_transaction_n = PER_TRANSACTION_N,
                                                .aggregates_n = BENCH_AGGREGATES_N,
                                                .payload_bytes = BENCH_PAYLOAD_BYTES - 50});
  consumer_attach(soak.consumer, soak.load);
  bench_say("%d messages/s for %.0f s", rate, (double)duration_ms / 1000);
  double began_s = bench_now_s();
  for (int64_t next_ms = SAMPLE_MS; next_ms <= duration_ms; next_ms += SAMPLE_MS) {
    double left_s = began_s + (double)next_ms / 1000 - bench_now_s();
    if (left_s > 0) {
      wait_out((int64_t)(left_s * 1000));
    }
    take_sample(&soak, bench_now_s() - began_s);
    drop_old(&soak);
  }
  finish(&soak);
  fclose(soak.csv);
  draw(bench);
  add_figures(&soak, rate);
  load_free(soak.load);
  free(soak.samples);
}
