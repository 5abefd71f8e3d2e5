/*
 * A service manager's ear: see manager.h.
 */
#include "manager.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fail.h"
#include "wait.h"

#define MESSAGE_BYTES 4096

struct manager {
  int fd;
  char path[sizeof((struct sockaddr_un *)0)->sun_path + 1]; /* "" when abstract */
  char **messages;
  int messages_n;
  char status[MESSAGE_BYTES];
};

struct manager *manager_start(const char *name, int64_t watchdog_ms) {
  struct manager *manager = calloc(1, sizeof *manager);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t bytes = strlen(name);

  REQUIRE(manager != NULL, "out of memory");
  REQUIRE(bytes < sizeof address.sun_path, "%s is too long for a socket", name);
  memcpy(address.sun_path, name, bytes);
  if (name[0] == '@') {
    address.sun_path[0] = '\0';
  } else {
    snprintf(manager->path, sizeof manager->path, "%s", name);
    unlink(name);
  }
  manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (manager->fd < 0 || bind(manager->fd, (const struct sockaddr *)&address,
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)) != 0) {
    FAIL("cannot listen at %s: %s", name, strerror(errno));
  }
  setenv("NOTIFY_SOCKET", name, 1);
  if (watchdog_ms > 0) {
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, watchdog_ms * 1000);
    setenv("WATCHDOG_USEC", number, 1);
  }
  return manager;
}

void manager_stop(struct manager *manager) {
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  if (manager == NULL) {
    return;
  }
  close(manager->fd);
  if (manager->path[0] != '\0') {
    unlink(manager->path);
  }
  for (int i = 0; i < manager->messages_n; i++) {
    free(manager->messages[i]);
  }
  free(manager->messages);
  free(manager);
}

/* The line that begins with this, up to the message's end; NULL: there is none. */
static const char *find_line(const char *message, const char *line) {
  size_t bytes = strlen(line);
  for (const char *at = message; at != NULL; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, line, bytes) == 0) {
      return at;
    }
  }
  return NULL;
}

void manager_look(struct manager *manager) {
  char text[MESSAGE_BYTES];
  ssize_t n;
  while ((n = recv(manager->fd, text, sizeof text - 1, 0)) >= 0) {
    text[n] = '\0';
    manager->messages = realloc(manager->messages, (size_t)(manager->messages_n + 1) * sizeof *manager->messages);
    REQUIRE(manager->messages != NULL, "out of memory");
    manager->messages[manager->messages_n++] = strdup(text);
    const char *status = find_line(text, "STATUS=");
    if (status != NULL) {
      status += strlen("STATUS=");
      snprintf(manager->status, sizeof manager->status, "%.*s", (int)strcspn(status, "\n"), status);
      printf("status: %s\n", manager->status);
    }
  }
  REQUIRE(errno == EAGAIN, "reading what the relay tells: %s", strerror(errno));
}

int manager_count(struct manager *manager, const char *line) {
  int n = 0;
  manager_look(manager);
  for (int i = 0; i < manager->messages_n; i++) {
    n += find_line(manager->messages[i], line) != NULL;
  }
  return n;
}

int manager_first(struct manager *manager, const char *line) {
  manager_look(manager);
  for (int i = 0; i < manager->messages_n; i++) {
    if (find_line(manager->messages[i], line) != NULL) {
      return i;
    }
  }
  return -1;
}

const char *manager_status(struct manager *manager) {
  manager_look(manager);
  return manager->status;
}

void manager_wait_status(struct manager *manager, const char *part, int64_t timeout_ms) {
  WAIT_FOR(timeout_ms, strstr(manager_status(manager), part) != NULL, "the status is \"%s\", not \"%s\"",
           manager->status, part);
}

void manager_wait(struct manager *manager, const char *line, int n, int64_t timeout_ms) {
  WAIT_FOR(timeout_ms, manager_count(manager, line) >= n, "%s was told %d times, not %d", line,
           manager_count(manager, line), n);
}
