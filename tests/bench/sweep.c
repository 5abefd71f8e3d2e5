/*
 * Sweeps: the drain rate over one option at a time, the others at their defaults.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "plot.h"

#define MESSAGES_N 400000
#define BYTES_MAX 300000000 /* of payloads, in one point */
#define WINDOW_MS 5000
#define VALUES_MAX 8

struct sweep {
  const char *name;   /* of the plot */
  const char *option; /* of outboxd run; NULL: the payload's size */
  const char *title;
  int values[VALUES_MAX]; /* 0 ends */
};

static const struct sweep sweeps[] = {
    {"claimers", "--claimers", "claimers", {1, 2, 3, 4, 5, 6, 7, 8}},
    {"publishers", "--publishers", "publishers", {1, 2, 3, 4, 6, 8}},
    {"batch", "--batch", "most messages of a claim", {10, 30, 100, 300, 1000, 2000, 5000}},
    {"lanes", "--lanes", "lanes", {1, 2, 4, 8, 16, 32, 64}},
    {"payload", NULL, "bytes of payload", {100, 300, 1000, 3000, 10000, 30000, 100000}},
};

/* One point: the messages of about five seconds, or as many as are relayed in five. */
static void measure(struct bench *bench, const struct sweep *sweep, int value, FILE *out) {
  char number[16], name[48];
  int payload_bytes = sweep->option == NULL ? value : BENCH_PAYLOAD_BYTES;
  int64_t messages_n = bench_scaled(bench, MESSAGES_N);

  if (messages_n > BYTES_MAX / payload_bytes) {
    messages_n = BYTES_MAX / payload_bytes;
  }
  snprintf(number, sizeof number, "%d", value);
  snprintf(name, sizeof name, "%s %s", sweep->name, number);
  bench_clear(bench);
  int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = messages_n, .payload_bytes = payload_bytes});
  const char *const args[] = {sweep->option, number, NULL};
  struct drain drain = bench_drain(bench, &(struct drain_spec){.name = name,
                                                               .args = sweep->option != NULL ? args : NULL,
                                                               .lanes_n = strcmp(sweep->name, "lanes") == 0 ? value : 0,
                                                               .window_ms = WINDOW_MS,
                                                               .first_id = first_id});
  fprintf(out, "%d,%.0f,%.3f,%.2f,%.2f,%.2f\n", value, drain.rate, drain.rate * payload_bytes / 1e6, drain.relay_cpu_us,
          drain.pg_cpu_us, drain.redis_cpu_us);
}

static void draw(const struct bench *bench, const struct sweep *sweep) {
  bool is_payload = sweep->option == NULL;
  plot_draw(bench, sweep->name,
            "set title 'Drain rate'\nset xlabel '%s'\nset ylabel 'messages/s'\nset yrange [0:*]\nset logscale x\n%s"
            "plot '" BENCH_DIR "/bench/%s.csv' using 1:2:xtic(1) with linespoints lw 2 pt 7 title 'messages/s'%s\n",
            sweep->title, is_payload ? "set ytics nomirror\nset y2tics\nset y2range [0:*]\nset y2label 'MB/s'\n" : "",
            sweep->name, is_payload ? ", '' using 1:3 axes x1y2 with linespoints lw 2 pt 5 title 'MB/s'" : "");
}

static void sweep_processes(struct bench *bench) {
  FILE *out = plot_open("processes.csv");
  for (int n = 1; n <= 4; n++) {
    fprintf(out, "%d,%.0f\n", n, bench_fleet(bench, n, NULL, bench_scaled(bench, MESSAGES_N)));
  }
  fclose(out);
  draw(bench, &(struct sweep){.name = "processes", .option = "", .title = "processes"});
}

void bench_sweep(struct bench *bench) {
  bench_table_partitioned(bench);
  for (size_t i = 0; i < sizeof sweeps / sizeof sweeps[0]; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s.csv", sweeps[i].name);
    FILE *out = plot_open(name);
    for (int j = 0; j < VALUES_MAX && sweeps[i].values[j] != 0; j++) {
      measure(bench, &sweeps[i], sweeps[i].values[j], out);
    }
    fclose(out);
    draw(bench, &sweeps[i]);
  }
  sweep_processes(bench);
}
