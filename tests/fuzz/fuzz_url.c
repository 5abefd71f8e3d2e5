/*
 * The Redis URL: whatever is taken is within its bounds and means the same when it is written anew; no error tells a password.
 *
 * Input: a byte that says where a marked password is put in for the second look, then the URL.
 */
#include <stdbool.h>
#include <sys/un.h>

#include "fuzz.h"
#include "outboxd/url.h"

#define MARK "Zq7Marked"

static bool is_same(const char *a, const char *b) {
  return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Appends text with every byte percent-encoded. */
static void encode(char *out, const char *text) {
  for (out += strlen(out); *text != '\0'; text++, out += 3) {
    (void)sprintf(out, "%%%02x", (unsigned)(unsigned char)*text);
  }
}

/* The same URL in another spelling. */
static char *respell(const struct url *url) {
  size_t n = 128;
  const char *const parts[] = {url->host, url->path, url->user, url->password};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    n += parts[i] != NULL ? 3 * strlen(parts[i]) : 0;
  }
  char *out = calloc(1, n);
  FUZZ_REQUIRE(out != NULL);
  (void)strcpy(out, url->path != NULL ? "unix://" : "redis://");
  if (url->user != NULL || url->password != NULL) {
    encode(out, url->user != NULL ? url->user : "");
    (void)strcat(out, ":");
    encode(out, url->password != NULL ? url->password : "");
    (void)strcat(out, "@");
  }
  if (url->path != NULL) {
    FUZZ_REQUIRE(url->path[0] == '/');
    (void)strcat(out, "/");
    encode(out, url->path + 1);
    (void)sprintf(out + strlen(out), "?db=%d", url->db);
  } else {
    bool is_ipv6 = strchr(url->host, ':') != NULL;
    (void)sprintf(out + strlen(out), "%s%s%s:%d/%d", is_ipv6 ? "[" : "", url->host, is_ipv6 ? "]" : "", url->port,
                  url->db);
  }
  return out;
}

static void check_good(const struct url *url) {
  FUZZ_REQUIRE((url->host == NULL) != (url->path == NULL));
  FUZZ_REQUIRE(url->port >= 1 && url->port <= 65535);
  FUZZ_REQUIRE(url->db >= 0 && url->db <= 999999999);
  FUZZ_REQUIRE(url->user == NULL || (url->user[0] != '\0' && url->password != NULL));
  if (url->path != NULL) {
    FUZZ_REQUIRE(strlen(url->path) < sizeof((struct sockaddr_un *)NULL)->sun_path);
  } else {
    FUZZ_REQUIRE(url->host[0] != '\0' && strpbrk(url->host, "/?#@[] \n") == NULL);
  }

  char *text = respell(url);
  struct url again;
  struct err err = ERR_INIT;
  FUZZ_REQUIRE(url_parse(text, &again, &err) == 0);
  FUZZ_REQUIRE(is_same(url->host, again.host) && is_same(url->path, again.path) && is_same(url->user, again.user) &&
               is_same(url->password, again.password) && url->port == again.port && url->db == again.db);
  url_fini(&again);
  free(text);

  /* What is shown in logs leads to the same place, and is cut where it was told to. */
  char shown[4096];
  url_describe(url, shown, sizeof shown);
  if (url->host != NULL && strlen(shown) + 1 < sizeof shown) {
    FUZZ_REQUIRE(url_parse(shown, &again, &err) == 0);
    FUZZ_REQUIRE(is_same(url->host, again.host) && url->port == again.port && url->db == again.db);
    FUZZ_REQUIRE(again.user == NULL && again.password == NULL);
    url_fini(&again);
  }
  for (size_t n = 1; n < 16; n += 7) {
    char *cut = malloc(n);
    FUZZ_REQUIRE(cut != NULL);
    url_describe(url, cut, n);
    FUZZ_REQUIRE(strlen(cut) < n && strncmp(cut, shown, strlen(cut)) == 0);
    free(cut);
  }
}

/* Parses text; the mark may be shown only when it stands in the host or the path. */
static void look_at(const char *text) {
  struct url url;
  struct err err = ERR_INIT;
  if (url_parse(text, &url, &err) != 0) {
    FUZZ_REQUIRE(err.class == ERR_USAGE && err.text[0] != '\0');
    FUZZ_REQUIRE(strstr(err.text, MARK) == NULL);
    FUZZ_REQUIRE(url.host == NULL && url.path == NULL && url.user == NULL && url.password == NULL);
    url_fini(&url);
    return;
  }
  check_good(&url);
  char shown[4096];
  url_describe(&url, shown, sizeof shown);
  if (strstr(shown, MARK) != NULL) {
    FUZZ_REQUIRE((url.host != NULL && strstr(url.host, MARK) != NULL) ||
                 (url.path != NULL && strstr(url.path, MARK) != NULL));
  }
  url_fini(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct fuzz_input input = {data, n};
  size_t at = fuzz_u8(&input);
  size_t bytes;
  char *text = fuzz_rest(&input, &bytes);
  look_at(text);

  size_t len = strlen(text);
  at = at < len ? at : len;
  char *marked = malloc(len + sizeof MARK);
  FUZZ_REQUIRE(marked != NULL);
  memcpy(marked, text, at);
  memcpy(marked + at, MARK, sizeof MARK - 1);
  memcpy(marked + at + sizeof MARK - 1, text + at, len - at + 1);
  look_at(marked);
  free(marked);
  free(text);
  return 0;
}
