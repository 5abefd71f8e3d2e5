/*
 * Connecting and waiting with deadlines.
 *
 * Owns nothing between calls but resolver threads that outlived their caller; each frees what it has when the system's resolver lets go.
 * Any thread.  Never waits but in poll(2), which sees the stop tokens.
 */
#include "outboxd/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "outboxd/clock.h"

#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES_N 3
#define PORT_TEXT_BYTES 12

bool net_is_stopped(const struct net_wait *wait) {
  return (wait->stops[0] != NULL && stop_is_set(wait->stops[0])) ||
         (wait->stops[1] != NULL && stop_is_set(wait->stops[1]));
}

int net_poll(int fd, short events, const struct net_wait *wait, struct err *err) {
  struct pollfd fds[3] = {{.fd = fd, .events = events}, {.fd = -1}, {.fd = -1}};
  for (int i = 0; i < 2; i++) {
    if (wait->stops[i] != NULL) {
      fds[1 + i] = (struct pollfd){.fd = stop_fd(wait->stops[i]), .events = POLLIN};
    }
  }
  for (;;) {
    int64_t now_us = clock_now_us();
    int n = poll(fds, 3, clock_poll_timeout_ms(wait->deadline_us, now_us));
    if (n < 0 && errno != EINTR) {
      return err_errno(err, ERR_RETRY, errno, "poll");
    }
    if (net_is_stopped(wait)) {
      return err_set(err, ERR_RETRY, "stopped", "stopped while waiting");
    }
    if (n > 0 && fds[0].revents != 0) {
      return 0;
    }
    if (clock_now_us() >= wait->deadline_us) {
      return err_set(err, ERR_RETRY, "ETIMEDOUT", "no answer in time");
    }
  }
}

/* ---- names: getaddrinfo cannot be given a deadline, so it runs in a thread that its caller may leave behind */

struct lookup {
  atomic_int refs_n;
  int done_fd; /* readable when result and code are there */
  int code;
  struct addrinfo *result;
  char port[PORT_TEXT_BYTES];
  char host[];
};

static void lookup_unref(struct lookup *lookup) {
  if (atomic_fetch_sub(&lookup->refs_n, 1) == 1) {
    if (lookup->result != NULL) {
      freeaddrinfo(lookup->result);
    }
    (void)close(lookup->done_fd);
    free(lookup);
  }
}

static int resolve(const char *host, const char *port, int flags, struct addrinfo **out) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
  *out = NULL;
  return getaddrinfo(host, port, &hints, out);
}

static void *lookup_main(void *arg) {
  struct lookup *lookup = arg;
  lookup->code = resolve(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->result);
  const uint64_t one = 1;
  ssize_t written = write(lookup->done_fd, &one, sizeof one);
  (void)written;
  lookup_unref(lookup);
  return NULL;
}

/* On success *out is the caller's (freeaddrinfo). */
static int look_up(const char *host, int port, const struct net_wait *wait, struct addrinfo **out, struct err *err) {
  char port_text[PORT_TEXT_BYTES];
  (void)snprintf(port_text, sizeof port_text, "%d", port);
  if (resolve(host, port_text, AI_NUMERICHOST, out) == 0) {
    return 0;
  }
  size_t host_bytes = strlen(host) + 1;
  struct lookup *lookup = calloc(1, sizeof *lookup + host_bytes);
  if (lookup == NULL) {
    return err_errno(err, ERR_RETRY, ENOMEM, "resolving %s", host);
  }
  memcpy(lookup->host, host, host_bytes);
  memcpy(lookup->port, port_text, sizeof port_text);
  atomic_init(&lookup->refs_n, 2);
  lookup->done_fd = eventfd(0, EFD_CLOEXEC);
  if (lookup->done_fd < 0) {
    int errnum = errno;
    free(lookup);
    return err_errno(err, ERR_RETRY, errnum, "resolving %s", host);
  }
  pthread_t thread;
  int errnum = pthread_create(&thread, NULL, lookup_main, lookup);
  if (errnum != 0) {
    atomic_store(&lookup->refs_n, 1);
    lookup_unref(lookup);
    return err_errno(err, ERR_RETRY, errnum, "resolving %s", host);
  }
  (void)pthread_detach(thread);

  int rc = -1;
  if (net_poll(lookup->done_fd, POLLIN, wait, err) != 0) {
    (void)err_wrap(err, "resolving %s", host);
    goto out;
  }
  uint64_t count; /* reading orders the thread's writes before ours */
  ssize_t got = read(lookup->done_fd, &count, sizeof count);
  (void)got;
  if (lookup->code != 0) {
    (void)err_set(err, ERR_RETRY, "resolve", "cannot resolve %s: %s", host, gai_strerror(lookup->code));
    goto out;
  }
  *out = lookup->result;
  lookup->result = NULL;
  rc = 0;
out:
  lookup_unref(lookup);
  return rc;
}

/* ---- sockets */

static int set_option(int fd, int level, int name, int value, const char *what, struct err *err) {
  if (setsockopt(fd, level, name, &value, sizeof value) != 0) {
    return err_errno(err, ERR_RETRY, errno, "%s", what);
  }
  return 0;
}

static int set_tcp_options(int fd, int64_t idle_ms, struct err *err) {
  if (set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY", err) != 0 ||
      set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE", err) != 0 ||
      set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S, "TCP_KEEPIDLE", err) != 0 ||
      set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S, "TCP_KEEPINTVL", err) != 0 ||
      set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES_N, "TCP_KEEPCNT", err) != 0) {
    return -1;
  }
  int user_timeout_ms = idle_ms > INT32_MAX ? INT32_MAX : (int)idle_ms;
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms, "TCP_USER_TIMEOUT", err);
}

/* Connects one address. */
static int connect_one(int family, const struct sockaddr *addr, socklen_t addr_bytes, int64_t idle_ms,
                       const struct net_wait *wait, int *out_fd, struct err *err) {
  int rc = -1;
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return err_errno(err, ERR_RETRY, errno, "socket");
  }
  if (family != AF_UNIX && set_tcp_options(fd, idle_ms, err) != 0) {
    goto out;
  }
  if (connect(fd, addr, addr_bytes) != 0) {
    if (errno != EINPROGRESS) {
      (void)err_errno(err, ERR_RETRY, errno, "connect");
      goto out;
    }
    if (net_poll(fd, POLLOUT, wait, err) != 0) {
      goto out;
    }
    int errnum = 0;
    socklen_t errnum_bytes = sizeof errnum;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &errnum_bytes) != 0) {
      errnum = errno;
    }
    if (errnum != 0) {
      (void)err_errno(err, ERR_RETRY, errnum, "connect");
      goto out;
    }
  }
  *out_fd = fd;
  fd = -1;
  rc = 0;
out:
  if (fd >= 0) {
    (void)close(fd);
  }
  return rc;
}

static int connect_unix(const char *path, const struct net_wait *wait, int *out_fd, struct err *err) {
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  size_t path_bytes = strlen(path);
  if (path_bytes >= sizeof addr.sun_path) {
    return err_set(err, ERR_FATAL, "ENAMETOOLONG", "the socket's path is longer than %zu bytes: %s",
                   sizeof addr.sun_path - 1, path);
  }
  memcpy(addr.sun_path, path, path_bytes);
  return connect_one(AF_UNIX, (const struct sockaddr *)&addr, sizeof addr, 0, wait, out_fd, err);
}

int net_connect(const char *host, int port, const char *path, int64_t idle_ms, const struct net_wait *wait, int *out_fd,
                struct err *err) {
  if (path != NULL) {
    return connect_unix(path, wait, out_fd, err);
  }
  struct addrinfo *addresses = NULL;
  if (look_up(host, port, wait, &addresses, err) != 0) {
    return -1;
  }
  int left_n = 0;
  for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
    left_n++;
  }
  int rc = -1;
  for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next, left_n--) {
    struct net_wait share = *wait;
    int64_t now_us = clock_now_us();
    share.deadline_us = now_us + (wait->deadline_us - now_us) / left_n;
    rc = connect_one(a->ai_family, a->ai_addr, a->ai_addrlen, idle_ms, &share, out_fd, err);
    if (rc == 0 || net_is_stopped(wait)) {
      break;
    }
  }
  freeaddrinfo(addresses);
  return rc;
}
