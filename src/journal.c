/*
 * Writing and reading a journal's text.
 *
 * Owns nothing but the process's token counter.  Any thread.  Never takes what it does not understand for an empty journal.
 */
#include "outboxd/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "outboxd/clock.h"

#define TOKEN_RANDOM_DIGITS 16
#define SHOWN_BYTES 60 /* of a bad line */

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static char process_prefix[TOKEN_RANDOM_DIGITS + 1];
static atomic_uint_fast64_t token_counter;

static void choose_prefix(void) {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
    /* Only before Linux 3.17.  Unique is enough; secret it need not be. */
    bits = ((uint64_t)clock_wall_us() << 16) ^ ((uint64_t)getpid() << 48) ^ (uint64_t)clock_now_us();
  }
  (void)snprintf(process_prefix, sizeof process_prefix, "%016" PRIx64, bits);
}

void journal_new_token(char out[JOURNAL_TOKEN_BYTES]) {
  (void)pthread_once(&process_once, choose_prefix);
  uint64_t count = atomic_fetch_add(&token_counter, 1) + 1;
  (void)snprintf(out, JOURNAL_TOKEN_BYTES, "%s-%" PRIx64, process_prefix, count);
}

/* Bytes that stand for themselves; everything else is percent-encoded. */
static bool is_plain(unsigned char c) {
  static const bool plain[256] = {
      ['0'] = true, ['1'] = true, ['2'] = true, ['3'] = true, ['4'] = true, ['5'] = true, ['6'] = true, ['7'] = true,
      ['8'] = true, ['9'] = true, ['a'] = true, ['b'] = true, ['c'] = true, ['d'] = true, ['e'] = true, ['f'] = true,
      ['g'] = true, ['h'] = true, ['i'] = true, ['j'] = true, ['k'] = true, ['l'] = true, ['m'] = true, ['n'] = true,
      ['o'] = true, ['p'] = true, ['q'] = true, ['r'] = true, ['s'] = true, ['t'] = true, ['u'] = true, ['v'] = true,
      ['w'] = true, ['x'] = true, ['y'] = true, ['z'] = true, ['A'] = true, ['B'] = true, ['C'] = true, ['D'] = true,
      ['E'] = true, ['F'] = true, ['G'] = true, ['H'] = true, ['I'] = true, ['J'] = true, ['K'] = true, ['L'] = true,
      ['M'] = true, ['N'] = true, ['O'] = true, ['P'] = true, ['Q'] = true, ['R'] = true, ['S'] = true, ['T'] = true,
      ['U'] = true, ['V'] = true, ['W'] = true, ['X'] = true, ['Y'] = true, ['Z'] = true, ['_'] = true, ['.'] = true,
      [':'] = true, ['-'] = true,
  };
  return plain[c];
}

int journal_append_name(struct buf *buf, int64_t id, const char *message_id, size_t bytes, struct err *err) {
  static const char hex[] = "0123456789ABCDEF";
  if (bytes > SIZE_MAX / 8 || buf_reserve(buf, 24 + 3 * bytes, err) != 0) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a journal");
  }
  if (buf_append_int(buf, id, err) != 0) {
    return -1;
  }
  char *at = buf->data + buf->len;
  *at++ = ' ';
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)message_id[i];
    if (is_plain(c)) {
      *at++ = (char)c;
    } else {
      *at++ = '%';
      *at++ = hex[c >> 4];
      *at++ = hex[c & 15];
    }
  }
  *at++ = '\n';
  *at = '\0';
  buf->len = (size_t)(at - buf->data);
  return 0;
}

/* A line that is no journal's, shown in part. */
static int bad_line(struct err *err, int line, const char *text, size_t bytes, const char *why) {
  char shown[SHOWN_BYTES + 1];
  size_t n = 0;
  for (; n < SHOWN_BYTES && n < bytes; n++) {
    shown[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
  }
  shown[n] = '\0';
  return err_set(err, ERR_RETRY, "journal", "this is no journal of outboxd: line %d (\"%s\"): %s", line, shown, why);
}

/* Reads a decimal number with an optional minus from text[0..bytes); the number of bytes it takes, 0 when there is none that fits. */
static size_t parse_id(const char *text, size_t bytes, int64_t *out) {
  bool is_negative = bytes > 0 && text[0] == '-';
  size_t at = is_negative ? 1 : 0;
  size_t first = at;
  uint64_t value = 0;
  const uint64_t max = is_negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
  for (; at < bytes && text[at] >= '0' && text[at] <= '9'; at++) {
    uint64_t digit = (uint64_t)(text[at] - '0');
    if (value > (max - digit) / 10) {
      return 0;
    }
    value = value * 10 + digit;
  }
  if (at == first) {
    return 0;
  }
  *out = is_negative ? (int64_t)(0 - value) : (int64_t)value;
  return at;
}

static int hex_value(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                : -1;
}

/* Decodes into a new string; NULL when the text is not one that journal_append_name writes (errno EINVAL) or on no memory. */
static char *decode(const char *text, size_t bytes, size_t *out_bytes) {
  char *out = malloc(bytes + 1);
  if (out == NULL) {
    return NULL;
  }
  size_t n = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == '%') {
      bool has_digits = bytes - i > 2;
      int high = has_digits ? hex_value(text[i + 1]) : -1;
      int low = has_digits ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        goto invalid;
      }
      out[n++] = (char)(high * 16 + low);
      i += 2;
    } else if (is_plain((unsigned char)text[i])) {
      out[n++] = text[i];
    } else {
      goto invalid;
    }
  }
  out[n] = '\0';
  *out_bytes = n;
  return out;
invalid:
  free(out);
  errno = EINVAL;
  return NULL;
}

static int parse_name(const char *text, size_t bytes, int line, struct journal_name *name, struct err *err) {
  size_t id_bytes = parse_id(text, bytes, &name->id);
  if (id_bytes == 0 || id_bytes == bytes || text[id_bytes] != ' ') {
    return bad_line(err, line, text, bytes, "expected an id, a space and a message_id");
  }
  errno = 0;
  name->message_id = decode(text + id_bytes + 1, bytes - id_bytes - 1, &name->message_id_bytes);
  if (name->message_id != NULL) {
    return 0;
  }
  if (errno == EINVAL) {
    return bad_line(err, line, text, bytes, "bad percent-encoding");
  }
  return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a journal");
}

int journal_parse(const char *value, size_t bytes, struct journal_names **out, struct err *err) {
  struct journal_names *names = calloc(1, sizeof *names);
  if (names == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a journal");
  }
  if (bytes == 0) {
    *out = names;
    return 0;
  }
  size_t lines_n = 0;
  for (size_t i = 0; i < bytes; i++) {
    lines_n += value[i] == '\n';
  }
  if (value[bytes - 1] != '\n' || lines_n > INT32_MAX) {
    (void)err_set(err, ERR_RETRY, "journal", "this is no journal of outboxd: it does not end with a line break");
    goto fail;
  }
  names->v = calloc(lines_n, sizeof *names->v);
  if (names->v == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory for a journal");
    goto fail;
  }
  const char *at = value;
  for (int line = 1; line <= (int)lines_n; line++) {
    const char *end = memchr(at, '\n', (size_t)(value + bytes - at));
    size_t line_bytes = (size_t)(end - at);
    if (line == 1) {
      if (line_bytes == 0 || line_bytes >= sizeof names->token || memchr(at, ' ', line_bytes) != NULL ||
          memchr(at, '\0', line_bytes) != NULL) {
        (void)bad_line(err, line, at, line_bytes, "expected a token");
        goto fail;
      }
      memcpy(names->token, at, line_bytes);
    } else {
      if (parse_name(at, line_bytes, line, &names->v[names->n], err) != 0) {
        goto fail;
      }
      names->n++;
    }
    at = end + 1;
  }
  *out = names;
  return 0;
fail:
  journal_names_free(names);
  return -1;
}

void journal_names_free(struct journal_names *names) {
  if (names == NULL) {
    return;
  }
  for (int i = 0; i < names->n; i++) {
    free(names->v[i].message_id);
  }
  free(names->v);
  free(names);
}
