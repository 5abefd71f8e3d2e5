/*
 * systemd: what the environment says, the form of a message, a socket of a file and an abstract one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "outboxd/systemd.h"
#include "unit.h"

static int clear_environment(void **state) {
  (void)state;
  (void)unsetenv("NOTIFY_SOCKET");
  (void)unsetenv("WATCHDOG_USEC");
  (void)unsetenv("WATCHDOG_PID");
  return 0;
}

static void set_environment(const char *socket, const char *usec, const char *pid) {
  (void)clear_environment(NULL);
  assert_int_equal(setenv("NOTIFY_SOCKET", socket, 1), 0);
  assert_int_equal(usec != NULL ? setenv("WATCHDOG_USEC", usec, 1) : 0, 0);
  assert_int_equal(pid != NULL ? setenv("WATCHDOG_PID", pid, 1) : 0, 0);
}

static void nobody_is_to_be_told(void **state) {
  (void)state;
  struct err err = ERR_INIT;
  struct systemd *systemd = NULL;
  assert_int_equal(systemd_open(&systemd, &err), 0);
  assert_null(systemd);
  set_environment("", NULL, NULL);
  assert_int_equal(systemd_open(&systemd, &err), 0);
  assert_null(systemd);
  systemd_free(NULL);
}

static void sockets_that_cannot_be_used(void **state) {
  (void)state;
  char longest[200];
  memset(longest, 'x', sizeof longest - 1);
  longest[0] = '/';
  longest[sizeof longest - 1] = '\0';
  const char *const names[] = {"notify", "/", "@", "vsock:2:9", longest};
  for (size_t i = 0; i < COUNT(names); i++) {
    struct err err = ERR_INIT;
    struct systemd *systemd = NULL;
    set_environment(names[i], NULL, NULL);
    assert_int_equal(systemd_open(&systemd, &err), -1);
    assert_null(systemd);
    assert_int_equal(err.class, ERR_RETRY);
    assert_contains(err.text, "$NOTIFY_SOCKET");
    assert_null(getenv("NOTIFY_SOCKET"));
  }
}

static void watchdog_of_the_environment(void **state) {
  (void)state;
  char own[32];
  (void)snprintf(own, sizeof own, "%d", (int)getpid());
  const struct {
    const char *usec, *pid;
    int64_t want_us;
  } cases[] = {
      {NULL, NULL, 0},
      {"30000000", NULL, 30000000},
      {"30000000", own, 30000000},
      {"30000000", "1", 0},
      {"30000000", "", 0},
      {"0", own, 0},
      {"-5", own, 0},
      {"soon", own, 0},
      {"30000000 ", own, 0},
      {"", own, 0},
      {"99999999999999999999", own, 0},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct systemd *systemd = NULL;
    set_environment("@outboxd-unit", cases[i].usec, cases[i].pid);
    assert_int_equal(systemd_open(&systemd, NULL), 0);
    assert_non_null(systemd);
    assert_int_equal(systemd_watchdog_us(systemd), cases[i].want_us);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    systemd_free(systemd);
  }
}

static void a_message_is_made_of_lines(void **state) {
  (void)state;
  char lines[SYSTEMD_MESSAGE_BYTES] = "";
  systemd_line(lines, sizeof lines, "READY", "1");
  systemd_line(lines, sizeof lines, "STATUS", "one\nREADY=2\ttwo\x7f");
  assert_string_equal(lines, "READY=1\nSTATUS=one READY=2 two ");
}

static void what_does_not_fit_is_cut(void **state) {
  (void)state;
  /* The euro sign has three bytes. */
  static const struct {
    size_t n;
    const char *want;
  } cases[] = {{16, "A=1\nST=\xe2\x82\xac\xe2\x82\xac"},
               {14, "A=1\nST=\xe2\x82\xac\xe2\x82\xac"},
               {13, "A=1\nST=\xe2\x82\xac"},
               {12, "A=1\nST=\xe2\x82\xac"},
               {11, "A=1\nST=\xe2\x82\xac"},
               {10, "A=1\nST="},
               {8, "A=1\nST="},
               {7, "A=1"},
               {4, "A=1"}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    char lines[16] = "A=1";
    systemd_line(lines, cases[i].n, "ST", "\xe2\x82\xac\xe2\x82\xac");
    assert_string_equal(lines, cases[i].want);
  }
}

/* Binds a socket, tells it something by its name in the environment, and reads it. */
static void tell(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct systemd *systemd = NULL;
  struct err err = ERR_INIT;
  char heard[64] = "";
  memcpy(address.sun_path, name, strlen(name));
  if (name[0] == '@') {
    address.sun_path[0] = '\0';
  }
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(
      bind(fd, (const struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
      0);
  set_environment(name, NULL, NULL);
  assert_int_equal(systemd_open(&systemd, &err), 0);
  assert_int_equal(systemd_send(systemd, "READY=1\nSTATUS=well", &err), 0);
  assert_int_equal(recv(fd, heard, sizeof heard - 1, MSG_DONTWAIT), 19);
  assert_string_equal(heard, "READY=1\nSTATUS=well");

  /* A reader that is behind is not waited for. */
  int rc = 0;
  for (int i = 0; i < 100000 && rc == 0; i++) {
    rc = systemd_send(systemd, "WATCHDOG=1", &err);
  }
  assert_int_equal(rc, -1);
  assert_string_equal(err.code, "EAGAIN");
  (void)close(fd);
  assert_int_equal(systemd_send(systemd, "WATCHDOG=1", &err), -1);
  assert_string_equal(err.code, "ECONNREFUSED");
  systemd_free(systemd);
}

static void both_kinds_of_socket(void **state) {
  (void)state;
  char name[64];
  char path[] = "/tmp/outboxd-unit-XXXXXX";
  (void)snprintf(name, sizeof name, "@outboxd-unit-%d", (int)getpid());
  tell(name);
  assert_non_null(mkdtemp(path));
  (void)snprintf(name, sizeof name, "%s/notify", path);
  tell(name);
  assert_int_equal(unlink(name), 0);
  assert_int_equal(rmdir(path), 0);
}

int main(void) {
#define TEST(function_) cmocka_unit_test_setup_teardown(function_, clear_environment, clear_environment)
  const struct CMUnitTest tests[] = {
      TEST(nobody_is_to_be_told),       TEST(sockets_that_cannot_be_used), TEST(watchdog_of_the_environment),
      TEST(a_message_is_made_of_lines), TEST(what_does_not_fit_is_cut),    TEST(both_kinds_of_socket),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
