/*
 * Taking a Redis URL apart.
 *
 * Owns the strings of each struct url.  Pure, any thread.  Its errors never quote any part of the text: whatever stands in
 * the wrong place may be the password.
 */
#include "outboxd/url.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define DEFAULT_PORT 6379
#define EXAMPLE "redis://[user:password@]host[:port][/db] or unix:///path"

/* A stretch of the text. */
struct span {
  const char *at;
  size_t len;
};

static int bad(struct err *err, const char *what) {
  return err_set(err, ERR_USAGE, "bad_url", "the Redis URL %s (it takes the form " EXAMPLE ")", what);
}

static int no_memory(struct err *err) {
  return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the Redis URL");
}

/* Cuts text at the first of the characters in stops; what follows, with that character, stays in *text. */
static struct span cut(const char **text, const char *stops) {
  struct span span = {*text, strcspn(*text, stops)};
  *text += span.len;
  return span;
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  if (c >= 'A' && c <= 'F') {
    return c - 'A' + 10;
  }
  return -1;
}

static int percent_decode(struct span span, char **out, struct err *err) {
  char *decoded = malloc(span.len + 1);
  if (decoded == NULL) {
    return no_memory(err);
  }
  size_t n = 0;
  for (size_t i = 0; i < span.len; i++) {
    if (span.at[i] != '%') {
      decoded[n++] = span.at[i];
      continue;
    }
    int high = i + 2 < span.len ? hex_value(span.at[i + 1]) : -1;
    int low = i + 2 < span.len ? hex_value(span.at[i + 2]) : -1;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) {
      free(decoded);
      return bad(
          err, "has a % that two hexadecimal digits other than 00 do not follow; a percent sign itself is written %25");
    }
    decoded[n++] = (char)(high * 16 + low);
    i += 2;
  }
  decoded[n] = '\0';
  *out = decoded;
  return 0;
}

/* Digits only, at most max. */
static bool parse_number(struct span span, int max, int *out) {
  int number = 0;
  if (span.len == 0 || span.len > 9) {
    return false;
  }
  for (size_t i = 0; i < span.len; i++) {
    if (span.at[i] < '0' || span.at[i] > '9') {
      return false;
    }
    number = number * 10 + (span.at[i] - '0');
  }
  *out = number;
  return number <= max;
}

/* Takes "user:password@" or ":password@" off the front of *authority. */
static int parse_userinfo(struct span *authority, struct url *url, struct err *err) {
  const char *at = NULL;
  for (size_t i = 0; i < authority->len; i++) {
    if (authority->at[i] == '@') {
      at = authority->at + i;
    }
  }
  if (at == NULL) {
    return 0;
  }
  struct span userinfo = {authority->at, (size_t)(at - authority->at)};
  authority->at = at + 1;
  authority->len -= userinfo.len + 1;

  const char *colon = memchr(userinfo.at, ':', userinfo.len);
  if (colon == NULL) {
    /* Clients disagree whether this is a user or a password. */
    return bad(err, "has one word before the @: write user:password@, or :password@ for the default user");
  }
  struct span user = {userinfo.at, (size_t)(colon - userinfo.at)};
  struct span password = {colon + 1, userinfo.len - user.len - 1};
  if (user.len > 0 && percent_decode(user, &url->user, err) != 0) {
    return -1;
  }
  if ((user.len > 0 || password.len > 0) && percent_decode(password, &url->password, err) != 0) {
    return -1;
  }
  return 0;
}

static bool is_host_char(char c, bool is_ipv6) {
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.') {
    return true;
  }
  return is_ipv6 ? c == ':' || c == '%' : c == '-' || c == '_';
}

static int parse_host_port(struct span span, struct url *url, struct err *err) {
  bool is_ipv6 = span.len > 0 && span.at[0] == '[';
  const char *end;
  struct span host = span;
  if (is_ipv6) {
    end = memchr(span.at, ']', span.len);
    if (end == NULL) {
      return bad(err, "has a [ without ]");
    }
    host = (struct span){span.at + 1, (size_t)(end - span.at - 1)};
    end++;
  } else {
    end = memchr(span.at, ':', span.len);
    if (end == NULL) {
      end = span.at + span.len;
    }
    host.len = (size_t)(end - span.at);
  }
  if (host.len == 0) {
    return bad(err, "names no host");
  }
  if (is_ipv6 && memchr(host.at, ':', host.len) == NULL) {
    return bad(err, "has no IPv6 address between its [ and ]");
  }
  for (size_t i = 0; i < host.len; i++) {
    if (!is_host_char(host.at[i], is_ipv6)) {
      return bad(err, "has a character in its host that no host name has");
    }
  }
  struct span rest = {end, (size_t)(span.at + span.len - end)};
  if (rest.len > 0) {
    struct span port = {rest.at + 1, rest.len - 1};
    if (rest.at[0] != ':' || !parse_number(port, 65535, &url->port) || url->port == 0) {
      return bad(
          err, "has a port that is not a number from 1 to 65535; an IPv6 address stands in [brackets], and : / @ in a "
               "password are written %3A %2F %40");
    }
  }
  url->host = strndup(host.at, host.len);
  return url->host != NULL ? 0 : no_memory(err);
}

static int parse_db(struct span span, struct url *url, struct err *err) {
  if (span.len > 0 && !parse_number(span, 999999999, &url->db)) {
    return bad(err, "has a database that is not a number; a / in a password is written %2F");
  }
  return 0;
}

static int parse_redis(const char *text, struct url *url, struct err *err) {
  struct span authority = cut(&text, "/?#");
  if (parse_userinfo(&authority, url, err) != 0 || parse_host_port(authority, url, err) != 0) {
    return -1;
  }
  if (*text == '/') {
    text++;
    struct span db = cut(&text, "?#");
    if (parse_db(db, url, err) != 0) {
      return -1;
    }
  }
  return *text == '\0' ? 0 : bad(err, "takes nothing behind ? or #");
}

static int parse_unix(const char *text, struct url *url, struct err *err) {
  struct span authority = cut(&text, "/?#");
  if (parse_userinfo(&authority, url, err) != 0) {
    return -1;
  }
  if (authority.len > 0 || *text != '/') {
    return bad(err, "has no absolute path behind unix://; : / @ in a password are written %3A %2F %40");
  }
  struct span path = cut(&text, "?#");
  if (percent_decode(path, &url->path, err) != 0) {
    return -1;
  }
  struct sockaddr_un address;
  if (strlen(url->path) >= sizeof address.sun_path) {
    return bad(err, "has a path longer than the system allows for a socket");
  }
  if (strncmp(text, "?db=", 4) == 0) {
    text += 4;
    struct span db = cut(&text, "&#");
    if (db.len == 0 || parse_db(db, url, err) != 0) {
      return bad(err, "has a ?db= without a number");
    }
  }
  return *text == '\0' ? 0 : bad(err, "takes nothing behind its path but ?db=N");
}

int url_parse(const char *text, struct url *url, struct err *err) {
  *url = (struct url){.port = DEFAULT_PORT};
  int rc;
  if (strncasecmp(text, "redis://", 8) == 0) {
    rc = parse_redis(text + 8, url, err);
  } else if (strncasecmp(text, "unix://", 7) == 0) {
    rc = parse_unix(text + 7, url, err);
  } else if (strncasecmp(text, "rediss://", 9) == 0) {
    rc = bad(err,
             "asks for TLS (rediss://), which is not built in yet; a TLS tunnel beside the relay can carry redis://");
  } else if (strpbrk(text, "/?#@") != NULL) {
    rc = bad(err, "starts with neither redis:// nor unix://");
  } else {
    rc = parse_host_port((struct span){text, strlen(text)}, url, err);
  }
  if (rc != 0) {
    url_fini(url);
  }
  return rc;
}

void url_fini(struct url *url) {
  free(url->host);
  free(url->path);
  free(url->user);
  free(url->password);
  *url = (struct url){.port = DEFAULT_PORT};
}

void url_describe(const struct url *url, char *out, size_t n) {
  if (url->path != NULL) {
    (void)snprintf(out, n, url->db != 0 ? "unix://%s?db=%d" : "unix://%s", url->path, url->db);
    return;
  }
  bool is_ipv6 = strchr(url->host, ':') != NULL;
  (void)snprintf(out, n, "redis://%s%s%s:%d/%d", is_ipv6 ? "[" : "", url->host, is_ipv6 ? "]" : "", url->port, url->db);
}
