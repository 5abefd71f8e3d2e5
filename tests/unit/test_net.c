/*
 * net: what a connection is made with, how long it may take, and what ends it.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "outboxd/clock.h"
#include "outboxd/net.h"
#include "unit.h"

#define PATIENCE_US INT64_C(60000000)

static struct net_wait patient(void) {
  return (struct net_wait){.deadline_us = clock_now_us() + PATIENCE_US};
}

#define DEAF (-1) /* a port that is taken and not listened on */

static int listen_tcp(int backlog, int *port) {
  struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t addr_bytes = sizeof addr;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
  assert_true(backlog == DEAF || listen(fd, backlog) == 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &addr_bytes), 0);
  *port = ntohs(addr.sin_port);
  return fd;
}

static int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  assert_int_equal(getsockopt(fd, level, name, &value, &bytes), 0);
  return value;
}

static void require_flags(int fd) {
  assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

/* A peer that has vanished is noticed within 25 s when idle, and after idle_ms with bytes under way. */
static void a_tcp_connection_notices_that_its_peer_is_gone(void **state) {
  static const struct {
    int64_t idle_ms;
    int user_timeout_ms;
  } cases[] = {{4321, 4321}, {INT64_MAX, INT32_MAX}};
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct err err = ERR_INIT;
    const struct net_wait wait = patient();
    int port = 0, fd = -1, listener = listen_tcp(4, &port);
    assert_int_equal(net_connect("127.0.0.1", port, NULL, cases[i].idle_ms, &wait, &fd, &err), 0);
    assert_true(option_of(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 10);
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), cases[i].user_timeout_ms);
    assert_true(option_of(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    require_flags(fd);
    close(fd);
    close(listener);
  }
}

static void a_unix_socket_is_connected_by_its_path(void **state) {
  char dir[] = "/tmp/outboxd-test-net-XXXXXX";
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  struct err err = ERR_INIT;
  const struct net_wait wait = patient();
  int fd = -1;
  (void)state;
  assert_non_null(mkdtemp(dir));
  snprintf(addr.sun_path, sizeof addr.sun_path, "%s/socket", dir);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof addr), 0);
  assert_int_equal(listen(listener, 4), 0);
  assert_int_equal(net_connect(NULL, 0, addr.sun_path, 1000, &wait, &fd, &err), 0);
  require_flags(fd);
  close(fd);
  close(listener);
  unlink(addr.sun_path);
  rmdir(dir);
}

static void what_cannot_be_reached_says_why(void **state) {
  struct err err = ERR_INIT;
  const struct net_wait wait = patient();
  char path[300];
  int port = 0, fd = -1, deaf = listen_tcp(DEAF, &port);
  (void)state;
  assert_int_equal(net_connect("127.0.0.1", port, NULL, 1000, &wait, &fd, &err), -1);
  assert_int_equal(err.class, ERR_RETRY);
  assert_string_equal(err.code, "ECONNREFUSED");
  assert_int_equal(net_connect(NULL, 0, "/nonexistent/socket", 1000, &wait, &fd, &err), -1);
  assert_string_equal(err.code, "ENOENT");
  memset(path, 'x', sizeof path - 1);
  path[sizeof path - 1] = '\0';
  assert_int_equal(net_connect(NULL, 0, path, 1000, &wait, &fd, &err), -1);
  assert_int_equal(err.class, ERR_FATAL);
  assert_int_equal(fd, -1);
  close(deaf);
}

/* A listener that takes no more connections: nothing answers. */
static void connecting_ends_at_its_deadline_or_when_stopped(void **state) {
  struct err err = ERR_INIT;
  struct stop *stop = NULL;
  int port = 0, fd = -1, listener = listen_tcp(0, &port);
  int full[8];
  (void)state;
  struct sockaddr_in addr = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (size_t i = 0; i < COUNT(full); i++) {
    full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)connect(full[i], (struct sockaddr *)&addr, sizeof addr);
  }
  struct net_wait wait = {.deadline_us = clock_now_us() + 50000};
  assert_int_equal(net_connect("127.0.0.1", port, NULL, 1000, &wait, &fd, &err), -1);
  assert_string_equal(err.code, "ETIMEDOUT");
  assert_true(clock_now_us() >= wait.deadline_us);

  assert_int_equal(stop_new(&stop, NULL), 0);
  stop_set(stop);
  wait = (struct net_wait){.deadline_us = clock_now_us() + PATIENCE_US, .stops = {NULL, stop}};
  assert_int_equal(net_connect("127.0.0.1", port, NULL, 1000, &wait, &fd, &err), -1);
  assert_string_equal(err.code, "stopped");
  assert_true(clock_now_us() < wait.deadline_us);
  assert_int_equal(fd, -1);
  stop_free(stop);
  for (size_t i = 0; i < COUNT(full); i++)
    close(full[i]);
  close(listener);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tcp_connection_notices_that_its_peer_is_gone),
      cmocka_unit_test(a_unix_socket_is_connected_by_its_path),
      cmocka_unit_test(what_cannot_be_reached_says_why),
      cmocka_unit_test(connecting_ends_at_its_deadline_or_when_stopped),
  };
  return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
