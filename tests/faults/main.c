/*
 * faults: the long form of the fault tests, as a command (make faults).
 *
 * Environment: DURATION  how long (30m; s, m, h)     SEED   repeat a run          FAULT   only this one, again and again ("each": each alone, in
 *              turn; "list": their names)
 *              RELAYS    1 or 2 (2)                  RATE   messages a second (1000)
 * Exit status: 0 nothing wrong, 2 something is wrong or could not be done; then everything is kept.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "faults.h"
#include "setting.h"
#include "wait.h"

static void list_kinds(void) {
  for (int i = 0; i < faults_kinds_n; i++)
    puts(faults_kinds[i].name);
}

int main(void) {
  const char *name = setting("FAULT", NULL);
  bool is_each = name != NULL && strcmp(name, "each") == 0;
  const struct fault *only = is_each ? faults_kinds : name != NULL ? faults_find(name) : NULL;
  struct faults_options options = {.relays_n = atoi(setting("RELAYS", "2")), .rate = atoi(setting("RATE", "1000"))};

  setvbuf(stdout, NULL, _IOLBF, 0);
  if (name != NULL && strcmp(name, "list") == 0) {
    list_kinds();
    return 0;
  }
  REQUIRE(name == NULL || only != NULL,
          "there is no fault \"%s\"; FAULT=list names them, FAULT=each takes them in turn", name);
  const char *seed = setting("SEED", NULL);
  if (seed != NULL)
    setenv("TEST_SEED", seed, 1);
  options.seed = prng_seed();
  int64_t length_ms = setting_duration_ms(setting("DURATION", "30m"));
  struct stack *stack = stack_start(&faults_stack_options);
  struct faults *faults = faults_begin(stack, &options);
  struct prng prng = {.state = options.seed};
  int64_t end_ms = wait_now_ms() + length_ms;
  while (wait_now_ms() < end_ms) {
    uint64_t step_seed = prng_next(&prng);
    if (only != NULL)
      faults_step(faults, &only, 1, step_seed, true);
    else
      faults_random_step(faults, step_seed);
    if (is_each)
      only = only + 1 < faults_kinds + faults_kinds_n ? only + 1 : faults_kinds;
  }
  faults_end(faults);
  relay_end_all();
  writer_end_all();
  stack_stop(stack, false);
  return 0;
}
