/*
 * The cutting proxy: see proxy.h.
 */
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

#define PAIRS_MAX 64 /* those gone dark stay until both ends have closed */
#define CHUNK_BYTES 65536

struct pair {
  int client, server; /* both -1: free */
  bool is_dark;       /* whatever is sent vanishes, for ever */
};

struct proxy {
  int listen_fd;
  int port;
  int server_port;
  struct sockaddr_un path, server_path; /* instead of ports; sun_family 0: TCP */
  int wake_pipe[2];                     /* "x": end, "m": look at the mode again */
  pthread_t thread;
  struct pair pairs[PAIRS_MAX];
  atomic_int_fast64_t bytes[2], pieces[2];
  atomic_int_fast64_t left[2]; /* until the cut; -1: none is wanted */
  atomic_bool has_cut, is_stall_on_cut;
  atomic_int mode;
  atomic_int chunk_bytes[2];
  atomic_int delay_ms[2];
};

static int listen_somewhere(int *port) {
  struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t addr_bytes = sizeof addr;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof addr) != 0 || listen(fd, PAIRS_MAX) != 0 ||
      getsockname(fd, (struct sockaddr *)&addr, &addr_bytes) != 0)
    FAIL("proxy: %s", strerror(errno));
  *port = ntohs(addr.sin_port);
  return fd;
}

static int listen_at(const struct sockaddr_un *path) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (const struct sockaddr *)path, sizeof *path) != 0 || listen(fd, PAIRS_MAX) != 0)
    FAIL("proxy: %s: %s", path->sun_path, strerror(errno));
  return fd;
}

static int connect_server(const struct proxy *proxy, int fd) {
  struct sockaddr_in addr = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)proxy->server_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  return proxy->path.sun_family == AF_UNIX
             ? connect(fd, (const struct sockaddr *)&proxy->server_path, sizeof proxy->server_path)
             : connect(fd, (struct sockaddr *)&addr, sizeof addr);
}

static void close_pair(struct pair *pair) {
  if (pair->client >= 0)
    close(pair->client);
  if (pair->server >= 0)
    close(pair->server);
  pair->client = pair->server = -1;
}

static void accept_one(struct proxy *proxy) {
  int one = 1;
  int client = accept(proxy->listen_fd, NULL, NULL);
  int server = socket(proxy->path.sun_family == AF_UNIX ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct pair pair = {client, server, atomic_load(&proxy->mode) == PROXY_DARK};
  /* In the dark nobody answers: the connection is made as far as the client can see, and that is all. */
  if (client >= 0 && server >= 0 && (pair.is_dark || connect_server(proxy, server) == 0)) {
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 0; i < PAIRS_MAX; i++) {
      if (proxy->pairs[i].client < 0 && proxy->pairs[i].server < 0) {
        if (pair.is_dark) {
          close(pair.server);
          pair.server = -1;
        }
        proxy->pairs[i] = pair;
        return;
      }
    }
  }
  close_pair(&pair);
}

/* A unix socket counts what its receiver has not read yet. */
static void wait_until_read(const struct proxy *proxy, int fd) {
  int unread = 0;
  while (proxy->path.sun_family == AF_UNIX && ioctl(fd, SIOCOUTQ, &unread) == 0 && unread > 0)
    sched_yield();
}

static void hold_up(const struct proxy *proxy, enum proxy_direction direction) {
  int ms = atomic_load(&proxy->delay_ms[direction]);
  struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  if (ms > 0)
    nanosleep(&pause, NULL);
}

/* Passes on what is there; false when the connection is over. */
static bool pass(struct proxy *proxy, int from, int to, enum proxy_direction direction) {
  char chunk[CHUNK_BYTES];
  int64_t left = atomic_load(&proxy->left[direction]);
  ssize_t n = recv(from, chunk, (size_t)atomic_load(&proxy->chunk_bytes[direction]), 0);
  bool is_cut;
  if (n <= 0)
    return false;
  is_cut = left >= 0 && n >= left;
  if (is_cut)
    n = (ssize_t)left;
  hold_up(proxy, direction);
  for (ssize_t sent = 0; sent < n;) {
    ssize_t m = send(to, chunk + sent, (size_t)(n - sent), MSG_NOSIGNAL);
    if (m <= 0)
      return false;
    sent += m;
  }
  wait_until_read(proxy, to);
  atomic_fetch_add(&proxy->bytes[direction], n);
  atomic_fetch_add(&proxy->pieces[direction], 1);
  if (is_cut) {
    atomic_store(&proxy->left[direction], -1);
    if (atomic_load(&proxy->is_stall_on_cut))
      atomic_store(&proxy->mode, PROXY_STALL);
    atomic_store(&proxy->has_cut, true);
    return false;
  }
  if (left >= 0)
    atomic_store(&proxy->left[direction], left - n);
  return true;
}

/* Throws away what one end sent; when that end has closed, closes it and leaves the other as it is. */
static void swallow(int *fd) {
  char chunk[CHUNK_BYTES];
  if (recv(*fd, chunk, sizeof chunk, 0) <= 0) {
    close(*fd);
    *fd = -1;
  }
}

static void serve_pair(struct proxy *proxy, struct pair *pair, bool has_client, bool has_server) {
  if (pair->is_dark) {
    if (has_client)
      swallow(&pair->client);
    if (has_server)
      swallow(&pair->server);
  } else if ((has_client && !pass(proxy, pair->client, pair->server, PROXY_TO_SERVER)) ||
             (has_server && !pass(proxy, pair->server, pair->client, PROXY_TO_CLIENT))) {
    close_pair(pair);
  }
}

/* False: end. */
static bool read_wake(struct proxy *proxy) {
  char what;
  if (read(proxy->wake_pipe[0], &what, 1) != 1 || what == 'x')
    return false;
  for (int i = 0; i < PAIRS_MAX && atomic_load(&proxy->mode) == PROXY_DARK; i++)
    proxy->pairs[i].is_dark = true;
  return true;
}

static void *run(void *arg) {
  struct proxy *proxy = arg;
  for (;;) {
    bool is_stalled = atomic_load(&proxy->mode) == PROXY_STALL;
    struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = proxy->wake_pipe[0], .events = POLLIN},
                                            {.fd = is_stalled ? -1 : proxy->listen_fd, .events = POLLIN}};
    for (int i = 0; i < PAIRS_MAX; i++) {
      fds[2 + 2 * i] = (struct pollfd){.fd = is_stalled ? -1 : proxy->pairs[i].client, .events = POLLIN};
      fds[3 + 2 * i] = (struct pollfd){.fd = is_stalled ? -1 : proxy->pairs[i].server, .events = POLLIN};
    }
    if (poll(fds, 2 + 2 * PAIRS_MAX, -1) < 0 && errno != EINTR)
      break;
    if (fds[0].revents != 0) {
      if (!read_wake(proxy))
        break;
      continue;
    }
    for (int i = 0; i < PAIRS_MAX; i++)
      serve_pair(proxy, &proxy->pairs[i], fds[2 + 2 * i].revents != 0, fds[3 + 2 * i].revents != 0);
    if (fds[1].revents != 0)
      accept_one(proxy);
  }
  for (int i = 0; i < PAIRS_MAX; i++)
    close_pair(&proxy->pairs[i]);
  return NULL;
}

static void wake(struct proxy *proxy, char what) {
  if (write(proxy->wake_pipe[1], &what, 1) != 1)
    FAIL("proxy: %s", strerror(errno));
}

static struct proxy *new_proxy(void) {
  struct proxy *proxy = calloc(1, sizeof *proxy);
  if (proxy == NULL)
    FAIL("out of memory");
  return proxy;
}

static struct proxy *start(struct proxy *proxy) {
  for (int i = 0; i < PAIRS_MAX; i++)
    proxy->pairs[i] = (struct pair){-1, -1, false};
  atomic_init(&proxy->left[0], -1);
  atomic_init(&proxy->left[1], -1);
  atomic_init(&proxy->mode, PROXY_PASS);
  atomic_init(&proxy->chunk_bytes[0], CHUNK_BYTES);
  atomic_init(&proxy->chunk_bytes[1], CHUNK_BYTES);
  if (pipe2(proxy->wake_pipe, O_CLOEXEC) != 0 || pthread_create(&proxy->thread, NULL, run, proxy) != 0)
    FAIL("proxy: %s", strerror(errno));
  return proxy;
}

struct proxy *proxy_start(int server_port) {
  struct proxy *proxy = new_proxy();
  proxy->server_port = server_port;
  proxy->listen_fd = listen_somewhere(&proxy->port);
  return start(proxy);
}

static struct sockaddr_un address_of(const char *path) {
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  REQUIRE(strlen(path) < sizeof addr.sun_path, "proxy: %s is too long for a socket's path", path);
  snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
  return addr;
}

struct proxy *proxy_start_unix(const char *path, const char *server_path) {
  struct proxy *proxy = new_proxy();
  proxy->path = address_of(path);
  proxy->server_path = address_of(server_path);
  proxy->listen_fd = listen_at(&proxy->path);
  return start(proxy);
}

void proxy_stop(struct proxy *proxy) {
  wake(proxy, 'x');
  pthread_join(proxy->thread, NULL);
  close(proxy->wake_pipe[0]);
  close(proxy->wake_pipe[1]);
  close(proxy->listen_fd);
  if (proxy->path.sun_family == AF_UNIX)
    unlink(proxy->path.sun_path);
  free(proxy);
}

int proxy_port(const struct proxy *proxy) {
  return proxy->port;
}

int64_t proxy_bytes(struct proxy *proxy, enum proxy_direction direction) {
  return atomic_load(&proxy->bytes[direction]);
}

int64_t proxy_pieces(struct proxy *proxy, enum proxy_direction direction) {
  return atomic_load(&proxy->pieces[direction]);
}

void proxy_cut_after(struct proxy *proxy, enum proxy_direction direction, int64_t n) {
  atomic_store(&proxy->has_cut, false);
  atomic_store(&proxy->left[direction], n);
}

bool proxy_has_cut(struct proxy *proxy) {
  return atomic_load(&proxy->has_cut);
}

void proxy_stall_on_cut(struct proxy *proxy, bool is_wanted) {
  atomic_store(&proxy->is_stall_on_cut, is_wanted);
}

void proxy_set_mode(struct proxy *proxy, enum proxy_mode mode) {
  atomic_store(&proxy->mode, mode);
  wake(proxy, 'm');
}

void proxy_set_chunk(struct proxy *proxy, int bytes) {
  for (int i = 0; i < 2; i++)
    atomic_store(&proxy->chunk_bytes[i], bytes > 0 ? bytes : CHUNK_BYTES);
}

void proxy_set_delay(struct proxy *proxy, int ms) {
  for (int i = 0; i < 2; i++)
    atomic_store(&proxy->delay_ms[i], ms);
}

void proxy_set_trickle(struct proxy *proxy, enum proxy_direction direction, int ms) {
  atomic_store(&proxy->chunk_bytes[direction], ms > 0 ? 1 : CHUNK_BYTES);
  atomic_store(&proxy->delay_ms[direction], ms);
}
