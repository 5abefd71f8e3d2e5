/*
 * Free ports: see port.h.
 */
#include "port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "prng.h"
#include "wait.h"

#define PORT_MIN 15000
#define PORT_MAX 31999
#define STEADY_MS 300

/* An abstract unix socket as lock: gone with the process, leaves no file. */
static int claim(int number) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int length;

  if (fd < 0) {
    return -1;
  }
  length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "outboxd-test-port-%d", number);
  if (bind(fd, (const struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

static bool is_free(int number) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((in_port_t)number)};
  int one = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool is_bound;

  if (fd < 0) {
    return false;
  }
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  is_bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
  close(fd);
  return is_bound;
}

void port_take(struct port *port) {
  struct timespec now;
  struct prng prng;

  clock_gettime(CLOCK_MONOTONIC, &now);
  prng.state = (uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 32);
  for (int attempt = 0; attempt < 1000; attempt++) {
    int number = (int)prng_between(&prng, PORT_MIN, PORT_MAX);
    int fd = claim(number);
    if (fd < 0) {
      continue;
    }
    if (is_free(number)) {
      port->number = number;
      port->claim_fd = fd;
      return;
    }
    close(fd);
  }
  FAIL("no free port between %d and %d", PORT_MIN, PORT_MAX);
}

void port_release(struct port *port) {
  if (port->claim_fd >= 0) {
    close(port->claim_fd);
  }
  *port = (struct port)PORT_INIT;
}

int64_t port_unread_bytes(int number) {
  FILE *file = fopen("/proc/net/tcp", "re");
  char line[512];
  int64_t bytes = 0;

  if (file == NULL) {
    FAIL("cannot read /proc/net/tcp");
  }
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned local, remote, state, unsent, unread;
    /* A listening socket's queues count connections. */
    if (sscanf(line, " %*d: %*8x:%x %*8x:%x %x %x:%x", &local, &remote, &state, &unsent, &unread) == 5 &&
        state != TCP_LISTEN) {
      bytes += local == (unsigned)number ? unread : 0;
      bytes += remote == (unsigned)number ? unsent : 0;
    }
  }
  fclose(file);
  return bytes;
}

void port_wait_stuck(int number, int64_t min_bytes, int64_t timeout_ms) {
  struct wait wait = wait_begin(timeout_ms);
  int64_t before = -1;

  for (int64_t bytes = port_unread_bytes(number); bytes < min_bytes || bytes != before;
       bytes = port_unread_bytes(number)) {
    before = bytes;
    if (!wait_next(&wait)) {
      FAIL("%lld bytes are unread on port %d", (long long)bytes, number);
    }
    wait_out(STEADY_MS);
  }
}
