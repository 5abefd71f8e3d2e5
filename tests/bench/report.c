/*
 * What is left of a run: see report.h.
 */
#include "report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "db.h"
#include "fail.h"
#include "plot.h"
#include "rds.h"

/* The value of the first line that begins so, behind the separator; "" when there is none. */
static void read_line(const char *path, const char *name, char separator, char *out, size_t n) {
  char line[256];
  FILE *file = fopen(path, "re");

  out[0] = '\0';
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    const char *value = strncmp(line, name, strlen(name)) == 0 ? strchr(line, separator) : NULL;
    if (value == NULL) {
      continue;
    }
    value += 1 + strspn(value + 1, " \t");
    snprintf(out, n, "%.*s", (int)strcspn(value, "\n"), value);
    break;
  }
  if (file != NULL) {
    fclose(file);
  }
}

static char *redis_version(redisContext *redis) {
  redisReply *reply = rds_cmd(redis, "INFO server");
  const char *value = strstr(reply->str, "redis_version:");
  REQUIRE(value != NULL, "INFO server without a version");
  value += strlen("redis_version:");
  char *version = strndup(value, strcspn(value, "\r\n"));
  REQUIRE(version != NULL, "out of memory");
  freeReplyObject(reply);
  return version;
}

static json_t *pg_settings_used(struct bench *bench) {
  PGresult *rows = db_rows(bench->conn, "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('fsync', "
                                        "'synchronous_commit', 'shared_buffers', 'wal_level', 'max_wal_size', "
                                        "'autovacuum', 'full_page_writes', 'checkpoint_timeout') ORDER BY name");
  json_t *settings = json_object();
  for (int i = 0; i < PQntuples(rows); i++) {
    json_object_set_new(settings, PQgetvalue(rows, i, 0), json_string(PQgetvalue(rows, i, 1)));
  }
  PQclear(rows);
  return settings;
}

json_t *report_machine(struct bench *bench) {
  struct utsname kernel;
  double load[3] = {0, 0, 0};
  char cpu[128], memory[64];

  read_line("/proc/cpuinfo", "model name", ':', cpu, sizeof cpu);
  read_line("/proc/meminfo", "MemTotal", ':', memory, sizeof memory);
  REQUIRE(uname(&kernel) == 0 && getloadavg(load, 3) == 3, "the machine does not say what it is");
  char *pg = db_text(bench->conn, "SHOW server_version");
  char *redis = redis_version(bench->redis);
  json_t *machine =
      json_pack("{s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:[f, f, f]}", "cpu", cpu, "cores",
                (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory", memory, "kernel", kernel.release, "compiler",
                __VERSION__, "outboxd", OUTBOXD_VERSION, "postgresql", pg, "redis", redis, "postgresql_settings",
                pg_settings_used(bench), "load_average_at_start", load[0], load[1], load[2]);
  REQUIRE(machine != NULL, "the machine cannot be described");
  free(pg);
  free(redis);
  return machine;
}

static void print_machine(const struct bench *bench, FILE *out) {
  const json_t *m = bench->machine;
  const json_t *load = json_object_get(m, "load_average_at_start");
  const json_t *settings = json_object_get(m, "postgresql_settings");
  fprintf(out,
          "%s, %lld cores, %s; Linux %s; PostgreSQL %s (fsync %s, synchronous_commit %s), Redis %s, outboxd %s. Load "
          "average at "
          "the start: %.2f, %.2f, %.2f.\n",
          json_string_value(json_object_get(m, "cpu")), (long long)json_integer_value(json_object_get(m, "cores")),
          json_string_value(json_object_get(m, "memory")), json_string_value(json_object_get(m, "kernel")),
          json_string_value(json_object_get(m, "postgresql")), json_string_value(json_object_get(settings, "fsync")),
          json_string_value(json_object_get(settings, "synchronous_commit")),
          json_string_value(json_object_get(m, "redis")), json_string_value(json_object_get(m, "outboxd")),
          json_real_value(json_array_get(load, 0)), json_real_value(json_array_get(load, 1)),
          json_real_value(json_array_get(load, 2)));
}

static void print_checker(const struct bench *bench, FILE *out) {
  if (bench->scale != 1) {
    fprintf(out, "Numbers of messages times %g (BENCH_SCALE). ", bench->scale);
  }
  fprintf(out, "Checked %" PRId64 " times, %" PRId64 " messages:", bench->checks_n, bench->checked_n);
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    fprintf(out, " %s %" PRId64 ",", check_kind_name((enum check_kind)kind), bench->found_n[kind]);
  }
  fprintf(out, " left over %" PRId64 ".%s\n", bench->unexpected_n,
          bench_is_violated(bench) ? " A VIOLATION: no figure of this run counts." : "");
}

static json_t *figures_json(const struct bench *bench) {
  json_t *figures = json_array();
  for (int i = 0; i < bench->figures.n; i++) {
    const struct figure *figure = &bench->figures.v[i];
    json_array_append_new(figures, json_pack("{s:s, s:s, s:f, s:s, s:f, s:s, s:b, s:s}", "name", figure->name, "label",
                                             figure->label, "value", figure->value, "unit", figure->unit, "target",
                                             figure->target, "bound", figure->is_most ? "most" : "least", "is_met",
                                             (int)figure_is_met(figure), "how", figure->how));
  }
  return figures;
}

static json_t *checker_json(const struct bench *bench) {
  json_t *checker = json_pack("{s:I, s:I, s:I}", "checks", (json_int_t)bench->checks_n, "messages",
                              (json_int_t)bench->checked_n, "left over", (json_int_t)bench->unexpected_n);
  for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
    json_object_set_new(checker, check_kind_name((enum check_kind)kind), json_integer(bench->found_n[kind]));
  }
  return checker;
}

static FILE *open_file(const char *mode, const char *ending, char path[128]) {
  snprintf(path, 128, BENCH_DIR "/%s.%s", mode, ending);
  FILE *out = fopen(path, "we");
  REQUIRE(out != NULL, "cannot write %s", path);
  return out;
}

void report_write(const struct bench *bench, const char *mode, double seconds) {
  char path[128];

  putchar('\n');
  figures_print(&bench->figures, stdout);
  print_checker(bench, stdout);
  print_machine(bench, stdout);

  FILE *out = open_file(mode, "md", path);
  print_machine(bench, out);
  fputc('\n', out);
  figures_print_markdown(&bench->figures, out);
  fputc('\n', out);
  print_checker(bench, out);
  fclose(out);

  json_t *whole = json_pack("{s:s, s:f, s:f, s:O, s:o, s:o, s:O}", "mode", mode, "seconds", seconds, "scale",
                            bench->scale, "machine", bench->machine, "figures", figures_json(bench), "checker",
                            checker_json(bench), "measurements", bench->drains);
  REQUIRE(whole != NULL, "the report cannot be made");
  out = open_file(mode, "json", path);
  json_dumpf(whole, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  fputc('\n', out);
  fclose(out);
  json_decref(whole);
  printf("%s: %.0f s, " BENCH_DIR "/%s.json, " BENCH_DIR "/%s.md\n", mode, seconds, mode, mode);
}
