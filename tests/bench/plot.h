/*
 * Plots by gnuplot, SVG.
 */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include "bench.h"

/* Writes text to build/bench/NAME.  Caller: fclose; fails the run when it cannot. */
FILE *plot_open(const char *name);

/* Runs a gnuplot script: bench->plots/NAME.svg.  commands follow the lines that set terminal and output; data is in build/bench. */
void plot_draw(const struct bench *bench, const char *name, const char *commands, ...)
    __attribute__((format(printf, 3, 4)));

#endif
