/*
 * What is left of a run: the table on the terminal, build/bench.md, build/bench.json.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench.h"

/* Processor, memory, kernel, versions of servers and compiler, load average: at the start. */
json_t *report_machine(struct bench *bench);

/* mode: "bench", "bench-quick", ...  Prints, and writes both files. */
void report_write(const struct bench *bench, const char *mode, double seconds);

#endif
