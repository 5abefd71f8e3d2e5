/*
 * Which messages a command is about.
 *
 * Owns: the parameters' texts.  Run by: the main thread.
 */
#include "outboxd/selector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/buf.h"

int selector_parse_id(const char *text, int64_t *out, struct err *err) {
  char *end = NULL;
  bool is_number = (text[0] >= '0' && text[0] <= '9') || (text[0] == '-' && text[1] >= '0' && text[1] <= '9');
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (!is_number || *end != '\0' || errno != 0) {
    return err_set(err, ERR_USAGE, "usage", "--id takes the number in the column id, not \"%.40s\"", text);
  }
  return 0;
}

static int add_quoted(struct buf *buf, const char *text, struct err *err) {
  if (buf_append(buf, "\"", 1, err) != 0) {
    return -1;
  }
  for (; *text != '\0'; text++) {
    if (((*text == '"' || *text == '\\') && buf_append(buf, "\\", 1, err) != 0) || buf_append(buf, text, 1, err) != 0) {
      return -1;
    }
  }
  return buf_append(buf, "\"", 1, err);
}

/* {"a","b"}: an array as PostgreSQL reads it.  Numbers may be quoted too. */
static int make_array(const struct option_list *list, char **out, struct err *err) {
  struct buf buf = BUF_INIT;
  if (list->n == 0) {
    return 0;
  }
  for (int i = 0; i < list->n; i++) {
    if (buf_append(&buf, i == 0 ? "{" : ",", 1, err) != 0 || add_quoted(&buf, list->values[i], err) != 0) {
      goto fail;
    }
  }
  if (buf_append(&buf, "}", 1, err) != 0) {
    goto fail;
  }
  *out = buf.data;
  return 0;
fail:
  buf_free(&buf);
  return -1;
}

int selector_init(struct selector *selector, const struct cfg *cfg, struct err *err) {
  int64_t id = 0;
  memset(selector, 0, sizeof *selector);
  for (int i = 0; i < cfg->ids.n; i++) {
    if (selector_parse_id(cfg->ids.values[i], &id, err) != 0) {
      return -1;
    }
  }
  for (int i = 0; i < cfg->aggregates.n; i++) {
    if (strchr(cfg->aggregates.values[i], ':') == NULL) {
      return err_set(err, ERR_USAGE, "usage",
                     "--aggregate takes aggregate_type and aggregate_id with a colon between, such as order:42, not "
                     "\"%.80s\"",
                     cfg->aggregates.values[i]);
    }
  }
  if (make_array(&cfg->ids, &selector->values[0], err) != 0 ||
      make_array(&cfg->aggregates, &selector->values[1], err) != 0 ||
      make_array(&cfg->events, &selector->values[2], err) != 0) {
    return -1;
  }
  return 0;
}

void selector_fini(struct selector *selector) {
  for (int i = 0; i < SELECTOR_PARAMS_N; i++) {
    free(selector->values[i]);
    selector->values[i] = NULL;
  }
}

bool selector_is_any(const struct cfg *cfg) {
  return cfg->ids.n > 0 || cfg->aggregates.n > 0 || cfg->events.n > 0;
}
