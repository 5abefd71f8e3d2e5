/*
 * url: taking a Redis URL apart, and never telling its password.
 */
#include <stdio.h>

#include "outboxd/url.h"
#include "unit.h"

static void assert_text(const char *got, const char *want) {
  if (want == NULL) {
    assert_null(got);
  } else {
    assert_non_null(got);
    assert_string_equal(got, want);
  }
}

static void good_urls(void **state) {
  (void)state;
  static const struct {
    const char *text;
    struct {
      const char *host, *path, *user, *password;
    } want;
    int port, db;
    const char *described;
  } cases[] = {
      {"redis://h", {"h", NULL, NULL, NULL}, 6379, 0, "redis://h:6379/0"},
      {"redis://h/", {"h", NULL, NULL, NULL}, 6379, 0, "redis://h:6379/0"},
      {"REDIS://cache_1.example-2.org:1",
       {"cache_1.example-2.org", NULL, NULL, NULL},
       1,
       0,
       "redis://cache_1.example-2.org:1/0"},
      {"redis://10.0.0.1:65535/15", {"10.0.0.1", NULL, NULL, NULL}, 65535, 15, "redis://10.0.0.1:65535/15"},
      {"redis://:pw@h", {"h", NULL, NULL, "pw"}, 6379, 0, "redis://h:6379/0"},
      {"redis://u:pw@h:7/2", {"h", NULL, "u", "pw"}, 7, 2, "redis://h:7/2"},
      {"redis://u:@h", {"h", NULL, "u", ""}, 6379, 0, "redis://h:6379/0"},
      {"redis://:@h", {"h", NULL, NULL, NULL}, 6379, 0, "redis://h:6379/0"},
      {"redis://u%40x:p%3A%2F%40%25%0a%FF@h", {"h", NULL, "u@x", "p:/@%\n\xFF"}, 6379, 0, "redis://h:6379/0"},
      {"redis://u:p@a:s@h", {"h", NULL, "u", "p@a:s"}, 6379, 0, "redis://h:6379/0"},
      {"redis://[::1]", {"::1", NULL, NULL, NULL}, 6379, 0, "redis://[::1]:6379/0"},
      {"redis://:pw@[fe80::1%eth0]:7/1", {"fe80::1%eth0", NULL, NULL, "pw"}, 7, 1, "redis://[fe80::1%eth0]:7/1"},
      {"h", {"h", NULL, NULL, NULL}, 6379, 0, "redis://h:6379/0"},
      {"h:7", {"h", NULL, NULL, NULL}, 7, 0, "redis://h:7/0"},
      {"[::1]:7", {"::1", NULL, NULL, NULL}, 7, 0, "redis://[::1]:7/0"},
      {"unix:///run/redis.sock", {NULL, "/run/redis.sock", NULL, NULL}, 6379, 0, "unix:///run/redis.sock"},
      {"unix:///a@b%20c?db=3", {NULL, "/a@b c", NULL, NULL}, 6379, 3, "unix:///a@b c?db=3"},
      {"unix://:pw@/s", {NULL, "/s", NULL, "pw"}, 6379, 0, "unix:///s"},
      {"unix://u:p%2Fw@/s?db=0", {NULL, "/s", "u", "p/w"}, 6379, 0, "unix:///s"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct url url;
    struct err err = ERR_INIT;
    if (url_parse(cases[i].text, &url, &err) != 0) {
      fail_msg("%s was refused: %s", cases[i].text, err.text);
    }
    assert_text(url.host, cases[i].want.host);
    assert_text(url.path, cases[i].want.path);
    assert_text(url.user, cases[i].want.user);
    assert_text(url.password, cases[i].want.password);
    assert_int_equal(url.port, cases[i].port);
    assert_int_equal(url.db, cases[i].db);
    char described[128];
    url_describe(&url, described, sizeof described);
    assert_string_equal(described, cases[i].described);
    url_fini(&url);
    assert_null(url.host);
    url_fini(&url);
  }
}

#define LONG_PATH                                                                     \
  "/23456789012345678901234567890123456789012345678901234567890123456789012345678901" \
  "234567890123456789012345678"

static void bad_urls(void **state) {
  (void)state;
  /* Each with s3cret where a password may have got to. */
  static const struct {
    const char *text;
    const char *why;
  } cases[] = {
      {"", "names no host"},
      {"redis://", "names no host"},
      {"redis:///1", "names no host"},
      {"redis://:7", "names no host"},
      {"redis://u:s3cret@", "names no host"},
      {"redis://[]:7", "names no host"},
      {"redis://[::1", "[ without ]"},
      {"redis://[::1]s3cret", "port"},
      {"redis://[s3cret]", "no IPv6 address"},
      {"[s3c%25ret]:7", "no IPv6 address"},
      {"redis://s3cret@h", "one word before the @"},
      {"redis://u:s3cret/x@h", "port"},
      {"redis://:s3cret#x@h", "port"},
      {"redis://u:s3cret%zz@h", "percent sign"},
      {"redis://u:s3cret%4@h", "percent sign"},
      {"redis://u:s3cret%@h", "percent sign"},
      {"redis://u:s3cret%00@h", "percent sign"},
      {"redis://h:", "port"},
      {"redis://h:0", "port"},
      {"redis://h:65536", "port"},
      {"redis://h:99999999999999999999", "port"},
      {"redis://h:-1", "port"},
      {"redis://h:s3cret", "port"},
      {"redis://::1", "names no host"},
      {"redis://fe80::1", "port"},
      {"redis://h/s3cret", "database"},
      {"redis://h/-1", "database"},
      {"redis://h/1/2", "database"},
      {"redis://h/1?s3cret", "? or #"},
      {"redis://h#s3cret", "? or #"},
      {"redis://h s3cret", "character in its host"},
      {"redis://h\n", "character in its host"},
      {"rediss://u:s3cret@h", "TLS"},
      {"http://u:s3cret@h", "neither redis:// nor unix://"},
      {"u:s3cret@h", "neither redis:// nor unix://"},
      {"h/s3cret", "neither redis:// nor unix://"},
      {"unix://s3cret", "absolute path"},
      {"unix://", "absolute path"},
      {"unix://:s3c/ret@/p", "absolute path"},
      {"unix:///p?s3cret=1", "but ?db=N"},
      {"unix:///p?db=", "without a number"},
      {"unix:///p?db=s3cret", "without a number"},
      {"unix:///p?db=1&s3cret", "but ?db=N"},
      {"unix:///p%00", "percent sign"},
      {"unix://" LONG_PATH, "longer"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct url url;
    struct err err = ERR_INIT;
    if (url_parse(cases[i].text, &url, &err) != -1) {
      fail_msg("\"%s\" was taken", cases[i].text);
    }
    assert_int_equal(err.class, ERR_USAGE);
    assert_contains(err.text, cases[i].why);
    assert_lacks(err.text, "s3c");
    assert_null(url.host);
    assert_null(url.password);
  }
}

static void description_is_cut_and_has_no_password(void **state) {
  (void)state;
  struct url url;
  assert_int_equal(url_parse("redis://u:s3cret@host.example:1234/5", &url, NULL), 0);
  char described[10];
  url_describe(&url, described, sizeof described);
  assert_string_equal(described, "redis://h");
  url_fini(&url);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good_urls),
      cmocka_unit_test(bad_urls),
      cmocka_unit_test(description_is_cut_and_has_no_password),
  };
  return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
