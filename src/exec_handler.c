/*
 * A handler that is a program of its own.
 *
 * Owns the child, which leads a process group, and the pipes to it.  Runs on the worker's thread.
 */
#include "outboxd/exec_handler.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "outboxd/backoff.h"
#include "outboxd/clock.h"
#include "outboxd/exec_line.h"
#include "outboxd/log.h"
#include "outboxd/net.h"

#define ANSWER_BYTES ((size_t)64 * 1024)
#define LEAVE_US INT64_C(3000000) /* between the end of its input and SIGTERM, and between that and SIGKILL */
#define START_FIRST_MS 200
#define START_MAX_MS 5000
#define WHAT_BYTES 128
#define EXIT_NOT_RUN 126 /* of a shell: found and cannot be run; 127: not found */

void exec_handler_init(struct exec_handler *handler, const char *command, int64_t timeout_ms, const struct stop *abort,
                       int number) {
  *handler = (struct exec_handler){
      .command = command, .timeout_ms = timeout_ms, .abort = abort, .number = number, .to_fd = -1, .from_fd = -1};
}

/* -------------------------------------------------------------------------------------------------- the child */

static void close_fd(int *fd) {
  if (*fd >= 0) {
    (void)close(*fd);
    *fd = -1;
  }
}

/* "exit status 3", "signal 9". */
static void describe_end(int status, char what[WHAT_BYTES]) {
  if (WIFSIGNALED(status)) {
    (void)snprintf(what, WHAT_BYTES, "signal %d", WTERMSIG(status));
  } else {
    (void)snprintf(what, WHAT_BYTES, "exit status %d", WEXITSTATUS(status));
  }
}

/* Waits for the child until deadline_us; true when it has ended.  Then what it leaves of its group is ended too, before its number is given up. */
static bool reap(struct exec_handler *handler, int64_t deadline_us, int *status) {
  for (;;) {
    siginfo_t info = {0};
    int rc = waitid(P_PID, (id_t)handler->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if ((rc == 0 && info.si_pid == handler->pid) || (rc != 0 && errno != EINTR)) {
      (void)kill(-handler->pid, SIGKILL);
      (void)waitpid(handler->pid, status, 0);
      handler->pid = 0;
      return true;
    }
    if (clock_now_us() >= deadline_us) {
      return false;
    }
    (void)poll(NULL, 0, 2);
  }
}

/* Ends the child and its group at once; *status is how it ended. */
static void kill_child(struct exec_handler *handler, int *status) {
  *status = 0;
  close_fd(&handler->to_fd);
  close_fd(&handler->from_fd);
  if (handler->pid > 0) {
    (void)kill(-handler->pid, SIGKILL);
    (void)reap(handler, INT64_MAX, status);
  }
}

/* The child has a process group of its own, no signal blocked or ignored, and no descriptor of ours but these. */
static int spawn(struct exec_handler *handler, int in_fd, int out_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigset_t defaults;
  char command[] = "sh";
  char option[] = "-c";
  char *text = strdup(handler->command);
  char *argv[] = {command, option, text, NULL};
  if (text == NULL) {
    return ENOMEM;
  }
  (void)sigemptyset(&none);
  (void)sigemptyset(&defaults);
  (void)sigaddset(&defaults, SIGPIPE);
  (void)sigaddset(&defaults, SIGTERM);
  (void)sigaddset(&defaults, SIGINT);
  (void)posix_spawn_file_actions_init(&actions);
  (void)posix_spawnattr_init(&attributes);
  (void)posix_spawn_file_actions_adddup2(&actions, in_fd, STDIN_FILENO);
  (void)posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
  (void)posix_spawnattr_setsigmask(&attributes, &none);
  (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
  (void)posix_spawnattr_setpgroup(&attributes, 0);
  (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  int errnum = posix_spawn(&handler->pid, "/bin/sh", &actions, &attributes, argv, environ);
  (void)posix_spawn_file_actions_destroy(&actions);
  (void)posix_spawnattr_destroy(&attributes);
  free(text);
  return errnum;
}

static int start(struct exec_handler *handler, struct err *err) {
  int to[2] = {-1, -1};
  int from[2] = {-1, -1};
  int errnum = 0;
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    errnum = errno;
  } else {
    errnum = spawn(handler, to[0], from[1]);
  }
  close_fd(&to[0]);
  close_fd(&from[1]);
  if (errnum != 0) {
    close_fd(&to[1]);
    close_fd(&from[0]);
    handler->pid = 0;
    return err_errno(err, ERR_RETRY, errnum, "the handler cannot be started");
  }
  handler->to_fd = to[1];
  handler->from_fd = from[0];
  (void)fcntl(handler->to_fd, F_SETFL, O_NONBLOCK);
  (void)fcntl(handler->from_fd, F_SETFL, O_NONBLOCK);
  log_event(LOG_INFO, "handler_started", "the handler was started", LOG_INT("worker", handler->number),
            LOG_INT("pid", handler->pid));
  return 0;
}

void exec_handler_fini(struct exec_handler *handler) {
  int status = 0;
  close_fd(&handler->to_fd);
  if (handler->pid > 0 && !reap(handler, clock_now_us() + LEAVE_US, &status)) {
    (void)kill(-handler->pid, SIGTERM);
    (void)reap(handler, clock_now_us() + LEAVE_US, &status);
  }
  kill_child(handler, &status);
  buf_free(&handler->line);
  buf_free(&handler->answer);
}

/* -------------------------------------------------------------------------------------------------- talking */

enum talk { TALK_DONE, TALK_ENDED, TALK_LATE, TALK_STOPPED, TALK_TOO_LONG };

/* Reads what is there; true when the line is complete, or *talk says why there will be none. */
static bool hear(struct exec_handler *handler, enum talk *talk) {
  char bytes[4096];
  for (;;) {
    ssize_t n = read(handler->from_fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      return false;
    }
    if (n <= 0 || buf_append(&handler->answer, bytes, (size_t)n, NULL) != 0) {
      *talk = TALK_ENDED;
      return true;
    }
    if (memchr(bytes, '\n', (size_t)n) != NULL) {
      *talk = TALK_DONE;
      return true;
    }
    if (handler->answer.len > ANSWER_BYTES) {
      *talk = TALK_TOO_LONG;
      return true;
    }
  }
}

/* Writes the line and waits for a line.  A handler that answers before it has read everything is heard. */
static enum talk converse(struct exec_handler *handler, int64_t deadline_us) {
  enum talk talk = TALK_DONE;
  size_t sent = 0;
  bool is_closed = false; /* it reads no more */
  for (;;) {
    while (sent < handler->line.len && !is_closed) {
      ssize_t n = write(handler->to_fd, handler->line.data + sent, handler->line.len - sent);
      if (n < 0 && errno != EINTR) {
        is_closed = errno != EAGAIN;
        break;
      }
      sent += n > 0 ? (size_t)n : 0;
    }
    if (hear(handler, &talk)) {
      return talk;
    }
    int64_t now_us = clock_now_us();
    if (now_us >= deadline_us) {
      return TALK_LATE;
    }
    struct pollfd fds[3] = {{.fd = handler->from_fd, .events = POLLIN},
                            {.fd = stop_fd(handler->abort), .events = POLLIN},
                            {.fd = sent < handler->line.len && !is_closed ? handler->to_fd : -1, .events = POLLOUT}};
    (void)poll(fds, 3, clock_poll_timeout_ms(deadline_us, now_us));
    if (stop_is_set(handler->abort)) {
      return TALK_STOPPED;
    }
  }
}

/* It has ended, with this status, and is started anew; *failure says why. */
static void end_with(struct exec_handler *handler, struct outbox_failure *failure, const char *why, int status) {
  char what[WHAT_BYTES];
  int ignored = 0;
  kill_child(handler, &ignored);
  describe_end(status, what);
  (void)snprintf(failure->text, sizeof failure->text, "%.600s (%s)", why, what);
  log_event(LOG_WARNING, "handler_ended", "the handler is started anew with the next message",
            LOG_INT("worker", handler->number), LOG_STR("error", failure->text));
}

/* The same for one that still runs. */
static void end_now(struct exec_handler *handler, struct outbox_failure *failure, const char *why) {
  int status = 0;
  kill_child(handler, &status);
  end_with(handler, failure, why, status);
}

/* Starts it unless it runs; false: not now. */
static bool keep_running(struct exec_handler *handler, struct outbox_failure *failure) {
  struct err err = ERR_INIT;
  int64_t now_us = clock_now_us();
  if (handler->pid > 0) {
    return true;
  }
  if (now_us < handler->next_start_us) {
    (void)snprintf(failure->text, sizeof failure->text, "the handler cannot be run; it is tried again");
    failure->retry_after_ms = (handler->next_start_us - now_us) / 1000 + 1;
    return false;
  }
  handler->starts_n++;
  handler->next_start_us = now_us + backoff_nth_us(START_FIRST_MS, START_MAX_MS, handler->starts_n);
  if (start(handler, &err) != 0) {
    (void)snprintf(failure->text, sizeof failure->text, "%s", err.text);
    return false;
  }
  return true;
}

enum outbox_verdict exec_handler_handle(struct exec_handler *handler, const struct outbox_message *message,
                                        struct outbox_failure *failure) {
  struct err err = ERR_INIT;
  enum outbox_verdict verdict = OUTBOX_RETRY;
  enum talk talk = TALK_DONE;
  int status = 0;
  buf_reset(&handler->line);
  buf_reset(&handler->answer);
  if (exec_line_write(&handler->line, message, false, &err) != 0) {
    (void)snprintf(failure->text, sizeof failure->text, "%s", err.text);
    return OUTBOX_LATER;
  }
  /* Between messages it has nothing to say; one that ended meanwhile has failed no message. */
  if (handler->pid > 0 && (hear(handler, &talk) || handler->answer.len > 0)) {
    end_now(handler, failure, talk == TALK_ENDED ? "the handler ended" : "the handler spoke without being asked");
    buf_reset(&handler->answer);
  }
  if (!keep_running(handler, failure)) {
    return OUTBOX_LATER;
  }
  talk = converse(handler, clock_now_us() + handler->timeout_ms * 1000);
  switch (talk) {
  case TALK_DONE: {
    const char *end = memchr(handler->answer.data, '\n', handler->answer.len);
    size_t n = (size_t)(end - handler->answer.data);
    if (n + 1 == handler->answer.len && exec_line_read(handler->answer.data, n, &verdict, failure, &err) == 0) {
      handler->starts_n = 0;
      handler->next_start_us = 0;
      return verdict;
    }
    end_now(handler, failure, n + 1 < handler->answer.len ? "the handler answered with more than one line" : err.text);
    return OUTBOX_RETRY;
  }
  case TALK_ENDED:
    /* It may be about to end by itself: its status tells more than a SIGKILL. */
    if (!reap(handler, clock_now_us() + LEAVE_US, &status)) {
      kill_child(handler, &status);
    }
    end_with(handler, failure, "the handler ended without an answer", status);
    return WIFEXITED(status) && WEXITSTATUS(status) >= EXIT_NOT_RUN && WEXITSTATUS(status) <= EXIT_NOT_RUN + 1
               ? OUTBOX_LATER
               : OUTBOX_RETRY;
  case TALK_LATE:
    end_now(handler, failure, "the handler did not answer within --handler-timeout");
    return OUTBOX_RETRY;
  case TALK_TOO_LONG:
    end_now(handler, failure, "the handler's answer has no end");
    return OUTBOX_RETRY;
  case TALK_STOPPED:
    end_now(handler, failure, "stopped while the handler had the message");
    return OUTBOX_LATER;
  }
  return verdict;
}
