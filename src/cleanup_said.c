/*
 * What the cleanup has warned of, so that it says so once on change and then only now and then.
 *
 * Owns: keys and texts of what was said.  Run by: the cleanup's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "cleanup_impl.h"

struct said {
  char *key;
  char *text;
  int64_t said_us;
  bool is_asked; /* since the last sweep */
};

static void clear(struct said *item) {
  free(item->key);
  free(item->text);
}

static struct said *find(const struct cleanup_said *said, const char *key) {
  for (int i = 0; i < said->n; i++) {
    if (strcmp(said->items[i].key, key) == 0) {
      return &said->items[i];
    }
  }
  return NULL;
}

/* NULL when there is no memory: then the line is said once more than it had to be. */
static struct said *add(struct cleanup_said *said, const char *key) {
  struct said *grown = realloc(said->items, ((size_t)said->n + 1) * sizeof *grown);
  if (grown == NULL) {
    return NULL;
  }
  said->items = grown;
  struct said *item = &grown[said->n];
  *item = (struct said){.key = strdup(key)};
  if (item->key == NULL) {
    return NULL;
  }
  said->n++;
  return item;
}

bool cleanup_is_due(struct cleanup_said *said, const char *key, const char *text, int64_t repeat_us, int64_t now_us) {
  struct said *item = find(said, key);
  if (item == NULL) {
    item = add(said, key);
  }
  if (item == NULL) {
    return true;
  }
  item->is_asked = true;
  bool is_same = item->text != NULL && strcmp(item->text, text) == 0;
  if (is_same && (repeat_us == INT64_MAX || now_us - item->said_us < repeat_us)) {
    return false;
  }
  free(item->text);
  item->text = strdup(text);
  item->said_us = now_us;
  return true;
}

void cleanup_said_sweep(struct cleanup_said *said) {
  int kept_n = 0;
  for (int i = 0; i < said->n; i++) {
    if (said->items[i].is_asked) {
      said->items[kept_n] = said->items[i];
      said->items[kept_n++].is_asked = false;
    } else {
      clear(&said->items[i]);
    }
  }
  said->n = kept_n;
}

void cleanup_said_fini(struct cleanup_said *said) {
  for (int i = 0; i < said->n; i++) {
    clear(&said->items[i]);
  }
  free(said->items);
  memset(said, 0, sizeof *said);
}
