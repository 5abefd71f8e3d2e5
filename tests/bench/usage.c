/*
 * CPU time, memory and file descriptors: see usage.h.
 */
#include "usage.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fail.h"

struct process {
  pid_t parent;
  double own_s;   /* user and system time */
  double ended_s; /* of children that it has waited for */
};

/* proc(5).  False when the process is gone. */
static bool read_process(pid_t pid, struct process *process) {
  char path[64], line[1024];
  int parent = 0;
  unsigned long user = 0, system = 0;
  long ended_user = 0, ended_system = 0;

  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return false;
  }
  bool is_read = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  const char *fields = is_read ? strrchr(line, ')') : NULL;
  if (fields == NULL || sscanf(fields + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &parent,
                               &user, &system, &ended_user, &ended_system) != 5) {
    return false;
  }
  double ticks = (double)sysconf(_SC_CLK_TCK);
  process->parent = parent;
  process->own_s = ((double)user + (double)system) / ticks;
  process->ended_s = ((double)ended_user + (double)ended_system) / ticks;
  return true;
}

double usage_cpu_s(pid_t pid) {
  struct process process;
  return read_process(pid, &process) ? process.own_s : 0;
}

/* A process and its children, those included that have ended and not been waited for yet. */
static double family_cpu_s(pid_t pid) {
  struct process process;
  double children_s = 0;
  DIR *dir = opendir("/proc");

  REQUIRE(dir != NULL, "cannot read /proc");
  for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
    pid_t child = (pid_t)strtol(entry->d_name, NULL, 10);
    if (child > 0 && read_process(child, &process) && process.parent == pid) {
      children_s += process.own_s;
    }
  }
  closedir(dir);
  REQUIRE(read_process(pid, &process), "process %d is gone", (int)pid);
  return process.own_s + process.ended_s + children_s;
}

/* What ends while it is looked at may be missed, or counted twice: then once more. */
static double steady_family_cpu_s(pid_t pid) {
  struct process before, after;
  double cpu_s;
  do {
    REQUIRE(read_process(pid, &before), "process %d is gone", (int)pid);
    cpu_s = family_cpu_s(pid);
    REQUIRE(read_process(pid, &after), "process %d is gone", (int)pid);
  } while (before.ended_s != after.ended_s);
  return cpu_s;
}

struct usage usage_now(const struct stack *stack) {
  struct usage usage = {0};
  struct rusage ended;

  REQUIRE(getrusage(RUSAGE_CHILDREN, &ended) == 0, "getrusage");
  usage.ended_children_s = (double)(ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) +
                           (double)(ended.ru_utime.tv_usec + ended.ru_stime.tv_usec) / 1e6;
  usage.pg_s = steady_family_cpu_s(stack->pg.pid);
  usage.redis_s = usage_cpu_s(stack->redis.pid);
  return usage;
}

int64_t usage_memory_kib(pid_t pid, const char *field) {
  char path[64], line[256];
  long long kib = 0;

  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return 0;
  }
  while (fgets(line, sizeof line, file) != NULL) {
    size_t length = strlen(field);
    if (strncmp(line, field, length) == 0 && line[length] == ':') {
      sscanf(line + length + 1, "%lld", &kib);
      break;
    }
  }
  fclose(file);
  return kib;
}

int usage_files_n(pid_t pid) {
  char path[64];
  int n = 0;

  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *dir = opendir(path);
  if (dir == NULL) {
    return 0;
  }
  for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
    n += entry->d_name[0] != '.';
  }
  closedir(dir);
  return n;
}
