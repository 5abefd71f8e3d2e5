/*
 * Child processes: see proc.h.
 *
 * Owns: the registry of running children.
 */
#include "proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail.h"
#include "wait.h"

#define RUNNING_MAX 64
#define ENV_MAX 1024

static struct proc *running[RUNNING_MAX];
static int running_n;

static void forget(const struct proc *proc) {
  for (int i = 0; i < running_n; i++) {
    if (running[i] == proc) {
      memmove(&running[i], &running[i + 1], (size_t)(running_n - i - 1) * sizeof running[0]);
      running_n--;
      return;
    }
  }
}

static void remember(struct proc *proc) {
  static bool is_registered;
  if (!is_registered) {
    is_registered = true;
    atexit(proc_stop_all);
  }
  forget(proc);
  REQUIRE(running_n < RUNNING_MAX, "more than %d children", RUNNING_MAX);
  running[running_n++] = proc;
}

/* True for variables that would leak settings of the developer's shell into a test. */
static bool is_foreign_variable(const char *entry) {
  return strncmp(entry, "OUTBOXD_", 8) == 0 || strncmp(entry, "PG", 2) == 0 ||
         strncmp(entry, "DATABASE_URL=", 13) == 0 || strncmp(entry, "REDIS_URL=", 10) == 0;
}

/* The strings are borrowed. */
static void build_env(const char *const *added, const char **out) {
  int n = 0;
  for (char **entry = environ; *entry != NULL && n < ENV_MAX - 1; entry++) {
    if (!is_foreign_variable(*entry)) {
      out[n++] = *entry;
    }
  }
  for (; added != NULL && *added != NULL && n < ENV_MAX - 1; added++) {
    out[n++] = *added;
  }
  out[n] = NULL;
}

/* The program's full path, since the child may call execve only. */
static void find_program(const char *name, char *out, size_t n) {
  const char *path = getenv("PATH");

  if (strchr(name, '/') != NULL) {
    snprintf(out, n, "%s", name);
    if (access(out, X_OK) == 0) {
      return;
    }
  }
  while (strchr(name, '/') == NULL && path != NULL && *path != '\0') {
    size_t length = strcspn(path, ":");
    snprintf(out, n, "%.*s/%s", (int)length, path, name);
    if (access(out, X_OK) == 0) {
      return;
    }
    path += length;
    if (*path == ':') {
      path++;
    }
  }
  FAIL("there is no program %s", name);
}

static int open_output(const char *path) {
  int fd = open(path != NULL ? path : "/dev/null", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  if (fd < 0) {
    FAIL("cannot open %s: %s", path, strerror(errno));
  }
  return fd;
}

/* What the child needs, made before the fork: afterwards only async-signal-safe calls are allowed. */
struct launch {
  char program[4096];
  char **argv;
  const char *env[ENV_MAX];
  int stdin_fd, stdout_fd, stderr_fd;
  bool has_user;
  uid_t uid;
  gid_t gid;
  int death_signal;
  pid_t parent;
};

_Noreturn static void become(const struct launch *launch) {
  sigset_t none;

  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (launch->has_user && (setgroups(0, NULL) != 0 || setgid(launch->gid) != 0 || setuid(launch->uid) != 0)) {
    _exit(126);
  }
  /* After setuid, which clears it. */
  if (prctl(PR_SET_PDEATHSIG, launch->death_signal) != 0) {
    _exit(126);
  }
  if (getppid() != launch->parent) {
    _exit(126);
  }
  if (dup2(launch->stdin_fd, 0) < 0 || dup2(launch->stdout_fd, 1) < 0 || dup2(launch->stderr_fd, 2) < 0) {
    _exit(126);
  }
  close_range(3, ~0U, 0);
  execve(launch->program, launch->argv, (char **)(uintptr_t)launch->env);
  _exit(127);
}

void proc_start(struct proc *proc, const struct proc_spec *spec) {
  static struct launch launch;

  REQUIRE(!proc->is_running, "%s runs already", spec->name);
  memset(&launch, 0, sizeof launch);
  find_program(spec->argv[0], launch.program, sizeof launch.program);
  launch.argv = (char **)(uintptr_t)spec->argv;
  build_env(spec->env, launch.env);
  launch.stdin_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  launch.stdout_fd = open_output(spec->stdout_path);
  launch.stderr_fd =
      spec->stderr_path != NULL ? open_output(spec->stderr_path) : fcntl(launch.stdout_fd, F_DUPFD_CLOEXEC, 3);
  launch.parent = getpid();
  launch.death_signal = spec->stop_signal != 0 ? spec->stop_signal : SIGKILL;
  if (spec->user != NULL && geteuid() == 0) {
    const struct passwd *user = getpwnam(spec->user);
    if (user == NULL) {
      FAIL("there is no user %s to run %s as", spec->user, spec->name);
    }
    launch.has_user = true;
    launch.uid = user->pw_uid;
    launch.gid = user->pw_gid;
  }

  memset(proc, 0, sizeof *proc);
  snprintf(proc->name, sizeof proc->name, "%s", spec->name);
  proc->stop_signal = launch.death_signal;
  fflush(NULL);
  proc->pid = fork();
  if (proc->pid == 0) {
    become(&launch);
  }
  close(launch.stdin_fd);
  close(launch.stdout_fd);
  close(launch.stderr_fd);
  if (proc->pid < 0) {
    FAIL("cannot fork: %s", strerror(errno));
  }
  proc->is_running = true;
  remember(proc);
}

bool proc_is_running(struct proc *proc) {
  int status;
  pid_t pid;

  if (!proc->is_running) {
    return false;
  }
  pid = waitpid(proc->pid, &status, WNOHANG);
  if (pid == 0) {
    return true;
  }
  proc->is_running = false;
  if (pid == proc->pid) {
    proc->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  forget(proc);
  return false;
}

bool proc_wait(struct proc *proc, int64_t timeout_ms) {
  struct wait wait = wait_begin(timeout_ms);
  while (proc_is_running(proc)) {
    if (!wait_next(&wait)) {
      return false;
    }
  }
  return true;
}

void proc_signal(const struct proc *proc, int signum) {
  REQUIRE(proc->is_running, "%s does not run", proc->name);
  if (kill(proc->pid, signum) != 0) {
    FAIL("cannot signal %s: %s", proc->name, strerror(errno));
  }
}

void proc_stop(struct proc *proc) {
  if (!proc_is_running(proc)) {
    return;
  }
  kill(proc->pid, proc->stop_signal);
  kill(proc->pid, SIGCONT);
  if (proc_wait(proc, 10000)) {
    return;
  }
  kill(proc->pid, SIGKILL);
  proc_wait(proc, 10000);
}

void proc_stop_all(void) {
  while (running_n > 0) {
    struct proc *proc = running[running_n - 1];
    proc_stop(proc);
    forget(proc);
  }
}

int proc_run(const struct proc_spec *spec, int64_t timeout_ms) {
  struct proc proc = {0};
  proc_start(&proc, spec);
  if (!proc_wait(&proc, timeout_ms)) {
    proc_stop(&proc);
    FAIL("%s did not end within %lld ms", spec->name, (long long)wait_scaled_ms(timeout_ms));
  }
  return proc.exit_status;
}

char *proc_output(const char *path) {
  FILE *file = fopen(path, "re");
  char *text = NULL;
  size_t size = 0;
  REQUIRE(file != NULL, "cannot open %s", path);
  if (getdelim(&text, &size, '\0', file) < 0) {
    free(text);
    text = strdup("");
  }
  (void)fclose(file);
  REQUIRE(text != NULL, "no memory");
  return text;
}

/* Reads a file of /proc into buf; false when the process is gone. */
static bool read_proc_file(pid_t pid, const char *name, char *buf, size_t n) {
  char path[64];
  ssize_t got;
  int fd;

  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  got = read(fd, buf, n - 1);
  close(fd);
  if (got <= 0) {
    return false;
  }
  buf[got] = '\0';
  return true;
}

/* What stands after "pid (name) " in /proc/pid/stat; NULL when the process is gone. */
static const char *stat_fields(pid_t pid, char *buf, size_t n) {
  if (!read_proc_file(pid, "stat", buf, n)) {
    return NULL;
  }
  const char *end = strrchr(buf, ')');
  return end != NULL && end[1] == ' ' ? end + 2 : NULL;
}

int proc_children(pid_t pid, pid_t *out, int max) {
  DIR *dir = opendir("/proc");
  int n = 0;

  if (dir == NULL) {
    FAIL("cannot read /proc");
  }
  for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
    char buf[1024];
    char state;
    int parent;
    if (!isdigit((unsigned char)entry->d_name[0])) {
      continue;
    }
    pid_t child = (pid_t)strtol(entry->d_name, NULL, 10);
    const char *fields = stat_fields(child, buf, sizeof buf);
    if (fields == NULL || sscanf(fields, "%c %d", &state, &parent) != 2 || parent != pid || state == 'Z') {
      continue;
    }
    if (n < max) {
      out[n] = child;
    }
    n++;
  }
  closedir(dir);
  return n;
}

int proc_threads_n(pid_t pid) {
  char buf[1024];
  long threads_n = 0;
  const char *fields = stat_fields(pid, buf, sizeof buf);
  /* proc(5): num_threads is the 20th field, the state the 3rd. */
  for (int field = 3; fields != NULL && field < 20; field++) {
    fields = strchr(fields, ' ');
    if (fields != NULL) {
      fields++;
    }
  }
  if (fields != NULL) {
    threads_n = strtol(fields, NULL, 10);
  }
  return (int)threads_n;
}

int64_t proc_cpu_ms(pid_t pid) {
  char buf[1024];
  unsigned long user_ticks = 0, system_ticks = 0;
  const char *fields = stat_fields(pid, buf, sizeof buf);
  if (fields == NULL) {
    return 0;
  }
  if (sscanf(fields, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user_ticks, &system_ticks) != 2) {
    return 0;
  }
  return (int64_t)(user_ticks + system_ticks) * 1000 / sysconf(_SC_CLK_TCK);
}
