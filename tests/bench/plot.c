/*
 * Plots: see plot.h.
 */
#include "plot.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fail.h"
#include "proc.h"

#define DATA_DIR BENCH_DIR "/bench"

FILE *plot_open(const char *name) {
  char path[256];

  (void)mkdir(BENCH_DIR, 0755);
  (void)mkdir(DATA_DIR, 0755);
  snprintf(path, sizeof path, DATA_DIR "/%s", name);
  FILE *out = fopen(path, "we");
  REQUIRE(out != NULL, "cannot write %s", path);
  return out;
}

void plot_draw(const struct bench *bench, const char *name, const char *commands, ...) {
  char script[256], script_name[64];
  va_list args;

  (void)mkdir(bench->plots, 0755);
  snprintf(script_name, sizeof script_name, "%s.gnuplot", name);
  FILE *out = plot_open(script_name);
  fprintf(out,
          "set terminal svg size 800,480 background 'white' font 'sans,13'\nset output '%s/%s.svg'\n"
          "set datafile separator ','\nset grid\nset key outside bottom center horizontal\n",
          bench->plots, name);
  va_start(args, commands);
  vfprintf(out, commands, args);
  va_end(args);
  fclose(out);
  snprintf(script, sizeof script, DATA_DIR "/%s", script_name);
  int status = proc_run(&(struct proc_spec){.name = "gnuplot",
                                            .argv = (const char *[]){"gnuplot", script, NULL},
                                            .stdout_path = DATA_DIR "/gnuplot.log"},
                        30000);
  REQUIRE(status == 0, "gnuplot ended with %d, see " DATA_DIR "/gnuplot.log", status);
}
