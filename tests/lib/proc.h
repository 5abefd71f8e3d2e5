/*
 * Child processes that never outlive the test.
 *
 * Each child gets a death signal from the kernel for the case that the test program is killed, and is in a registry for the case that it
 * exits without a teardown.  Main thread only: the kernel's death signal belongs to the thread that forked.
 */
#ifndef TEST_PROC_H
#define TEST_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_NAME_BYTES 32

struct proc {
  char name[PROC_NAME_BYTES]; /* for messages */
  pid_t pid;                  /* 0: never started */
  bool is_running;            /* as of the last look */
  int exit_status;            /* once ended: exit status, or minus the signal that killed it */
  int stop_signal;            /* what ends it at teardown */
};

struct proc_spec {
  const char *name;
  const char *const *argv; /* argv[0] is a path, or looked up in PATH */
  const char *const *env;  /* NAME=value, added to the environment; NULL: none */
  const char *stdout_path; /* appended to; NULL: /dev/null */
  const char *stderr_path; /* appended to; NULL: where stdout goes */
  const char *user;        /* run as this user when the test runs as root; NULL: unchanged */
  int stop_signal;         /* 0: SIGKILL */
};

/* Starts a child and registers it.  The environment loses OUTBOXD_*, PG*, DATABASE_URL and REDIS_URL, so that a test sees only what it sets.
 * Fails the test when there is no such program. */
void proc_start(struct proc *proc, const struct proc_spec *spec);

/* Looks without waiting; false once the child has ended (then exit_status is set). */
bool proc_is_running(struct proc *proc);

/* Waits until it ends; false when it still runs after timeout_ms (scaled). */
bool proc_wait(struct proc *proc, int64_t timeout_ms);

/* Sends a signal to a running child. */
void proc_signal(const struct proc *proc, int signum);

/* Sends its stop signal (and SIGCONT), waits, at last SIGKILL.  Fine when it has ended. */
void proc_stop(struct proc *proc);

/* The same for all that still run, last started first.  Called at exit too. */
void proc_stop_all(void);

/* Runs a program to its end and returns the exit status; fails the test after timeout_ms (scaled). */
int proc_run(const struct proc_spec *spec, int64_t timeout_ms);

/* What a child has written to its stdout_path or stderr_path so far; the caller's, freed with free(). */
char *proc_output(const char *path);

/* Pids of the direct children of pid; returns how many there are (at most max are written). */
int proc_children(pid_t pid, pid_t *out, int max);

/* Number of threads of a process; 0 when it is gone. */
int proc_threads_n(pid_t pid);

/* CPU time used so far by all its threads, in milliseconds; 0 when it is gone. */
int64_t proc_cpu_ms(pid_t pid);

#endif
