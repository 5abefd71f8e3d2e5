/*
 * bench: what the relay does on this machine, over what the machine does without it (make bench, bench-quick, bench-sweep, bench-soak).
 *
 * bench all|quick|sweep|soak.  Environment: BENCH_ONLY   a part of the names of the groups to run (all, quick)
 *                                           BENCH_SCALE  numbers of messages, times this (1; quick: 0.5)
 *                                           BENCH_FSYNC  on: PostgreSQL with fsync
 *                                           BENCH_PLOTS  directory of the plots (docs/benchmarks; quick: build/bench)
 *                                           DURATION     of the soak (30m; s, m, h)
 *                                           RATE         of the soak, messages a second
 * Exit status: 0 measured, whether the targets are met or not; 1 a message was lost, doubled, reordered or made up; 2 it could not be done.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "fail.h"
#include "plot.h"
#include "report.h"
#include "setting.h"

struct group {
  const char *name;
  void (*run)(struct bench *bench);
  bool is_quick;
  bool is_extra; /* only when BENCH_ONLY names it */
};

static const struct group groups[] = {
    {.name = "rates", .run = bench_rates_main, .is_quick = true},
    {.name = "plain", .run = bench_rates_plain, .is_quick = true},
    {.name = "latency", .run = bench_latency, .is_quick = true},
    {.name = "idle", .run = bench_idle},
    {.name = "dead_rows", .run = bench_dead_rows},
    {.name = "many_pending", .run = bench_many_pending},
    {.name = "shapes", .run = bench_shapes},
    {.name = "refused", .run = bench_refused_lane},
    {.name = "waiting", .run = bench_waiting_retries},
    {.name = "processes", .run = bench_two_processes},
    {.name = "real", .run = bench_real_events},
    {.name = "large", .run = bench_large_payloads},
    {.name = "pgq", .run = bench_pgq, .is_extra = true},
};

/* Each figure as its share of the target, so that one axis does for all. */
static void draw_figures(const struct bench *bench) {
  FILE *out = plot_open("figures.csv");
  for (int i = 0; i < bench->figures.n; i++) {
    const struct figure *figure = &bench->figures.v[i];
    double share =
        figure->is_most ? figure->target / (figure->value > 0 ? figure->value : 1e-9) : figure->value / figure->target;
    fprintf(out, "%d,%s,%.3f\n", i, figure->name, share < 3 ? share : 3);
  }
  fclose(out);
  plot_draw(
      bench, "figures",
      "set title 'Figures over their targets (1: just met; cut at 3)'\nset style fill solid 0.6\nset boxwidth 0.7\n"
      "set yrange [0:*]\nset xtics rotate by -40 noenhanced\nset arrow from graph 0, first 1 to graph 1, first 1 "
      "nohead lw 2\n"
      "unset key\nplot '" BENCH_DIR "/bench/figures.csv' using 1:3:xtic(2) with boxes\n");
}

static void run_groups(struct bench *bench) {
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    const struct group *group = &groups[i];
    bool is_usual = bench->is_quick ? group->is_quick : !group->is_extra;
    bool is_wanted = bench->only != NULL ? strstr(group->name, bench->only) != NULL : is_usual;
    if (is_wanted) {
      group->run(bench);
    }
  }
  draw_figures(bench);
}

int main(int argc, char *argv[]) {
  const char *mode = argc == 2 ? argv[1] : "";
  bool is_quick = strcmp(mode, "quick") == 0, is_sweep = strcmp(mode, "sweep") == 0,
       is_soak = strcmp(mode, "soak") == 0;
  struct bench bench = {.is_quick = is_quick,
                        .scale = strtod(setting("BENCH_SCALE", is_quick ? "0.5" : "1"), NULL),
                        .only = is_soak ? "soak" : setting("BENCH_ONLY", NULL),
                        .plots = setting("BENCH_PLOTS", is_quick ? BENCH_DIR "/bench" : "docs/benchmarks")};
  char name[32] = "bench";

  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(mode, "all") != 0 && !is_quick && !is_sweep && !is_soak) {
    fputs("bench: all, quick, sweep or soak\n", stderr);
    return 2;
  }
  if (strcmp(mode, "all") != 0) {
    snprintf(name, sizeof name, "bench-%s", mode);
  }
  double began_s = bench_now_s();
  bench_begin(&bench);
  if (is_sweep) {
    bench_sweep(&bench);
  } else if (is_soak) {
    bench_soak(&bench, setting_duration_ms(setting("DURATION", "30m")), atoi(setting("RATE", "0")));
  } else {
    run_groups(&bench);
  }
  report_write(&bench, name, bench_now_s() - began_s);
  bool is_violated = bench_is_violated(&bench);
  bench_end(&bench);
  return is_violated ? 1 : 0;
}
