/*
 * The documents quote the examples as they are: the block below a line "<!-- examples/x/y -->" is that file, and each file is quoted.
 */
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define MARK "<!-- examples/"
#define FILES_MAX 64

/* The whole file with a NUL behind it; the caller's to free. */
static char *read_file(const char *path) {
  FILE *file = fopen(path, "re");
  char *text = NULL;
  size_t size = 0;
  ssize_t n = file != NULL ? getdelim(&text, &size, '\0', file) : -1;
  if (file != NULL) {
    (void)fclose(file);
  }
  if (n < 0) {
    fail_msg("cannot read %s", path);
  }
  return text;
}

/* Compares the block behind a mark with the file it names; returns what follows it. */
static const char *compare(const char *document, const char *mark, char path[128]) {
  const char *name = mark + sizeof "<!-- " - 1;
  size_t name_n = strcspn(name, " ");
  const char *begin = strchr(name, '\n');
  if (name_n >= 128 || begin == NULL) {
    fail_msg("%s: a mark without the name of a file", document);
    return mark; /* not reached */
  }
  (void)snprintf(path, 128, "%.*s", (int)name_n, name);
  if (strncmp(begin, "\n```", 4) != 0 || strchr(begin + 1, '\n') == NULL) {
    fail_msg("%s: no block below the mark of %s", document, path);
  }
  begin = strchr(begin + 1, '\n') + 1;
  const char *end = strstr(begin, "\n```\n");
  if (end == NULL) {
    fail_msg("%s: the block of %s has no end", document, path);
    return mark; /* not reached */
  }
  end++;
  char *file = read_file(path);
  if (strlen(file) != (size_t)(end - begin) || memcmp(file, begin, (size_t)(end - begin)) != 0) {
    size_t same = 0;
    int line = 1;
    for (; file[same] != '\0' && begin + same < end && file[same] == begin[same]; same++) {
      line += file[same] == '\n';
    }
    fail_msg("%s quotes %s otherwise than it is, from line %d on: quote it anew (scripts/quote-examples.sh)", document,
             path, line);
  }
  free(file);
  return end;
}

static void documents_quote_the_files(void **state) {
  glob_t documents;
  glob_t files;
  bool is_quoted[FILES_MAX] = {false};
  (void)state;
  assert_int_equal(glob("docs/*.md", 0, NULL, &documents), 0);
  assert_int_equal(glob("examples/*/*", 0, NULL, &files), 0);
  assert_true(files.gl_pathc <= FILES_MAX);
  for (size_t d = 0; d < documents.gl_pathc; d++) {
    char *text = read_file(documents.gl_pathv[d]);
    for (const char *mark = strstr(text, MARK); mark != NULL; mark = strstr(mark, MARK)) {
      char path[128];
      mark = compare(documents.gl_pathv[d], mark, path);
      for (size_t f = 0; f < files.gl_pathc; f++) {
        is_quoted[f] = is_quoted[f] || strcmp(files.gl_pathv[f], path) == 0;
      }
    }
    free(text);
  }
  for (size_t f = 0; f < files.gl_pathc; f++) {
    if (!is_quoted[f]) {
      fail_msg("no document quotes %s", files.gl_pathv[f]);
    }
  }
  globfree(&documents);
  globfree(&files);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(documents_quote_the_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
