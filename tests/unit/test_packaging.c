/*
 * packaging: make install and uninstall, the manual page, the completions and the units (scripts/test-install.sh).
 */
#include <stdio.h>
#include <sys/wait.h>

#include "unit.h"

static void installs_and_uninstalls(void **state) {
  static char said[1 << 16];
  (void)state;
  FILE *out = popen("scripts/test-install.sh 2>&1", "r");
  assert_non_null(out);
  size_t n = fread(said, 1, sizeof said - 1, out);
  said[n] = '\0';
  int status = pclose(out);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail_msg("\n%s", said);
  }
  assert_contains(said, "test-install: ok");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(installs_and_uninstalls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
