/*
 * The datagrams of sd_notify(3).
 *
 * Owns: the socket.  Run by: the main thread.  Never: blocks, or fails in a way that the relay would have to end for.
 */
#include "outboxd/systemd.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct systemd {
  int fd;
  struct sockaddr_un address;
  socklen_t address_bytes;
  int64_t watchdog_us;
};

static int set_address(struct systemd *systemd, const char *name, struct err *err) {
  size_t bytes = strlen(name);
  if (name[0] != '/' && name[0] != '@') {
    return err_set(err, ERR_RETRY, "address", "$NOTIFY_SOCKET is neither a path nor an abstract socket's name (@...)");
  }
  if (bytes < 2 || bytes >= sizeof systemd->address.sun_path) {
    return err_set(err, ERR_RETRY, "address", "$NOTIFY_SOCKET has %zu characters; a socket's name has from 2 to %zu",
                   bytes, sizeof systemd->address.sun_path - 1);
  }
  systemd->address.sun_family = AF_UNIX;
  memcpy(systemd->address.sun_path, name, bytes);
  systemd->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
  if (name[0] == '@') {
    systemd->address.sun_path[0] = '\0'; /* such a name is all bytes given: no zero at its end */
  } else {
    systemd->address_bytes++;
  }
  return 0;
}

/* A whole number that is not negative; -1: it is none. */
static int64_t read_number(const char *text) {
  char *end = NULL;
  if (text == NULL || text[0] < '0' || text[0] > '9') {
    return -1;
  }
  errno = 0;
  long long number = strtoll(text, &end, 10);
  return *end == '\0' && errno == 0 ? number : -1;
}

/* $WATCHDOG_PID says whom the watchdog is for: a process started by ours inherits the variables, but is not meant. */
static int64_t read_watchdog_us(void) {
  const char *pid = getenv("WATCHDOG_PID");
  int64_t usec = read_number(getenv("WATCHDOG_USEC"));
  return usec > 0 && (pid == NULL || read_number(pid) == getpid()) ? usec : 0;
}

static int open_socket(struct systemd *systemd, const char *name, struct err *err) {
  if (set_address(systemd, name, err) != 0) {
    return -1;
  }
  systemd->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return systemd->fd >= 0 ? 0 : err_errno(err, ERR_RETRY, errno, "a socket for $NOTIFY_SOCKET");
}

int systemd_open(struct systemd **out, struct err *err) {
  const char *name = getenv("NOTIFY_SOCKET");
  struct systemd *systemd = NULL;
  int rc = 0;
  *out = NULL;
  if (name != NULL && name[0] != '\0') {
    systemd = calloc(1, sizeof *systemd);
    if (systemd == NULL) {
      rc = err_errno(err, ERR_RETRY, ENOMEM, "$NOTIFY_SOCKET");
    } else {
      systemd->fd = -1;
      systemd->watchdog_us = read_watchdog_us();
      rc = open_socket(systemd, name, err);
    }
  }
  (void)unsetenv("NOTIFY_SOCKET");
  (void)unsetenv("WATCHDOG_USEC");
  (void)unsetenv("WATCHDOG_PID");
  if (rc != 0) {
    systemd_free(systemd);
    return -1;
  }
  *out = systemd;
  return 0;
}

void systemd_free(struct systemd *systemd) {
  if (systemd == NULL) {
    return;
  }
  if (systemd->fd >= 0) {
    (void)close(systemd->fd);
  }
  free(systemd);
}

int64_t systemd_watchdog_us(const struct systemd *systemd) {
  return systemd->watchdog_us;
}

int systemd_send(const struct systemd *systemd, const char *lines, struct err *err) {
  ssize_t sent;
  do {
    sent = sendto(systemd->fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&systemd->address,
                  systemd->address_bytes);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0 ? 0 : err_errno(err, ERR_RETRY, errno, "telling systemd by $NOTIFY_SOCKET");
}

void systemd_line(char *lines, size_t n, const char *name, const char *value) {
  size_t used = strlen(lines);
  int head = snprintf(lines + used, n - used, "%s%s=", used > 0 ? "\n" : "", name);
  if (head < 0 || (size_t)head >= n - used) {
    lines[used] = '\0';
    return;
  }
  size_t from = used + (size_t)head;
  size_t bytes = strlen(value);
  if (bytes > n - 1 - from) {
    bytes = n - 1 - from;
    while (bytes > 0 && ((unsigned char)value[bytes] & 0xC0) == 0x80) {
      bytes--;
    }
  }
  for (size_t i = 0; i < bytes; i++) {
    lines[from + i] = (unsigned char)value[i] < ' ' || value[i] == '\x7f' ? ' ' : value[i];
  }
  lines[from + bytes] = '\0';
}
