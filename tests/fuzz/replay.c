/*
 * A fuzzer without libFuzzer: runs its function over inputs that are kept, as a test program with one test.
 *
 *   fuzz_NAME                 all of tests/fuzz/corpus/NAME below the current directory
 *   fuzz_NAME FILE|DIR...     these
 *
 * Prints the name of each input before it is run, so that the last one printed is the one that failed.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "fuzz.h"

#define PREFIX "fuzz_"

static void complain(const char *path) {
  (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
  exit(1);
}

static void run_file(const char *path) {
  FILE *file = fopen(path, "rb");
  struct stat status;
  if (file == NULL || fstat(fileno(file), &status) != 0) {
    complain(path);
  }
  size_t n = (size_t)status.st_size;
  uint8_t *data = malloc(n > 0 ? n : 1);
  FUZZ_REQUIRE(data != NULL);
  if (fread(data, 1, n, file) != n) {
    complain(path);
  }
  (void)fclose(file);
  (void)printf("# %s\n", path);
  (void)fflush(stdout);
  (void)LLVMFuzzerTestOneInput(data, n);
  free(data);
}

/* Runs a file, or the files of a directory in the order of their names; returns how many. */
static int run_path(const char *path) {
  struct stat status;
  if (stat(path, &status) != 0) {
    complain(path);
  }
  if (!S_ISDIR(status.st_mode)) {
    run_file(path);
    return 1;
  }
  struct dirent **entries = NULL;
  int entries_n = scandir(path, &entries, NULL, alphasort);
  if (entries_n < 0) {
    complain(path);
  }
  int n = 0;
  for (int i = 0; i < entries_n; i++) {
    if (entries[i]->d_name[0] != '.') {
      char inner[PATH_MAX];
      (void)snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
      run_file(inner);
      n++;
    }
    free(entries[i]);
  }
  free(entries);
  return n;
}

int main(int argc, char **argv) {
  const char *slash = strrchr(argv[0], '/');
  const char *name = slash != NULL ? slash + 1 : argv[0];
  name += strncmp(name, PREFIX, strlen(PREFIX)) == 0 ? strlen(PREFIX) : 0;
  char corpus[PATH_MAX];
  (void)snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s", name);
  int n = 0;
  (void)printf("1..1\n");
  for (int i = 1; i < argc; i++) {
    n += run_path(argv[i]);
  }
  if (argc < 2) {
    n = run_path(corpus);
  }
  (void)printf("%s 1 - %d inputs\n", n > 0 ? "ok" : "not ok", n);
  return n > 0 ? 0 : 1;
}
