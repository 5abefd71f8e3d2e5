/*
 * outbox-check: the checker as a command.
 *
 * Exit status: 0 everything is as it should be, 1 something is wrong, 2 usage, or the check could not be made.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const char usage[] =
    "outbox-check: compares an outbox table with its Redis streams.\n"
    "\n"
    "  --database CONNINFO  libpq string or URI (default: $DATABASE_URL, else libpq's variables)\n"
    "  --redis URL          default: $REDIS_URL, else redis://127.0.0.1:6379\n"
    "  --table NAME         outbox_messages\n"
    "  --stream TEMPLATE    outbox:{%l}\n"
    "  --lanes N            16\n"
    "  --max-attempts N     10: from here on a pending message is dead\n"
    "  --expect-pending N   0: so many messages may still be pending; any: do not care\n"
    "  --ignore-dead        dead messages are no fault\n"
    "  --quiet              print only when something is wrong\n"
    "  --json               print one JSON object\n";

enum {
  OPT_DATABASE = 256,
  OPT_REDIS,
  OPT_TABLE,
  OPT_STREAM,
  OPT_LANES,
  OPT_MAX_ATTEMPTS,
  OPT_PENDING,
  OPT_DEAD,
  OPT_QUIET,
  OPT_JSON,
  OPT_HELP
};

static const struct option long_options[] = {{"database", required_argument, NULL, OPT_DATABASE},
                                             {"redis", required_argument, NULL, OPT_REDIS},
                                             {"table", required_argument, NULL, OPT_TABLE},
                                             {"stream", required_argument, NULL, OPT_STREAM},
                                             {"lanes", required_argument, NULL, OPT_LANES},
                                             {"max-attempts", required_argument, NULL, OPT_MAX_ATTEMPTS},
                                             {"expect-pending", required_argument, NULL, OPT_PENDING},
                                             {"ignore-dead", no_argument, NULL, OPT_DEAD},
                                             {"quiet", no_argument, NULL, OPT_QUIET},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

static const char *from_env(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : otherwise;
}

/* A whole number of at least min; ends the program otherwise. */
static long long number(const char *option, const char *text, long long min) {
  char *end;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < min) {
    fprintf(stderr, "outbox-check: --%s takes a number of at least %lld, not \"%s\"\n", option, min, text);
    exit(2);
  }
  return value;
}

int main(int argc, char *argv[]) {
  struct check_options options = {.conninfo = from_env("DATABASE_URL", ""),
                                  .redis_url = from_env("REDIS_URL", "redis://127.0.0.1:6379")};
  static struct check_report report;
  bool is_quiet = false, is_json = false, is_good;
  int option;

  while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
    switch (option) {
    case OPT_DATABASE:
      options.conninfo = optarg;
      break;
    case OPT_REDIS:
      options.redis_url = optarg;
      break;
    case OPT_TABLE:
      options.table = optarg;
      break;
    case OPT_STREAM:
      options.stream = optarg;
      break;
    case OPT_LANES:
      options.lanes_n = (int)number("lanes", optarg, 1);
      break;
    case OPT_MAX_ATTEMPTS:
      options.max_attempts = (int)number("max-attempts", optarg, 1);
      break;
    case OPT_PENDING:
      options.expect_pending = strcmp(optarg, "any") == 0 ? -1 : number("expect-pending", optarg, 0);
      break;
    case OPT_DEAD:
      options.is_dead_ok = true;
      break;
    case OPT_QUIET:
      is_quiet = true;
      break;
    case OPT_JSON:
      is_json = true;
      break;
    case OPT_HELP:
    case 'h':
      fputs(usage, stdout);
      return 0;
    default:
      fputs(usage, stderr);
      return 2;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "outbox-check: what is \"%s\"?\n", argv[optind]);
    return 2;
  }
  is_good = check_run(&options, &report);
  if (is_json) {
    check_print_json(&report, stdout);
  } else if (!is_quiet || !is_good) {
    check_print(&options, &report, stdout);
  }
  return is_good ? 0 : 1;
}
