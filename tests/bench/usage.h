/*
 * What processes use: CPU time, memory, file descriptors, from /proc and getrusage.
 */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

#include <stdint.h>
#include <sys/types.h>

#include "stack.h"

/* CPU seconds so far, user and system. */
struct usage {
  double ended_children_s; /* of children that have been waited for: relays that have ended */
  double pg_s;             /* all of PostgreSQL's processes, ended ones too */
  double redis_s;
};

struct usage usage_now(const struct stack *stack);

/* CPU seconds of one process. */
double usage_cpu_s(pid_t pid);
/* A number of /proc/PID/status in KiB ("VmHWM", "VmRSS"); 0 when the process is gone. */
int64_t usage_memory_kib(pid_t pid, const char *field);
/* Open file descriptors. */
int usage_files_n(pid_t pid);

#endif
