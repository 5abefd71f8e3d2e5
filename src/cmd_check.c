/*
 * `outboxd check`: the order of things and the report.
 *
 * Owns: the findings, what it says on stdout.  Run by: the main thread.  Never: changes anything on either server, stops at the first error.
 */
#include "outboxd/cmd_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd_check_impl.h"
#include "outboxd/trim_rule.h"

static const char *const level_names[CHECK_LEVELS_N] = {
    [CHECK_OK] = "ok", [CHECK_SKIPPED] = "skipped", [CHECK_WARNING] = "warning", [CHECK_ERROR] = "error"};

/* ---- the report */

/* One line of printable text: names of keys may hold anything. */
static void clean(char *text, bool is_ascii) {
  for (char *p = text; *p != '\0'; p++) {
    unsigned char c = (unsigned char)*p;
    if (c == '\t' || c == '\n' || c == '\r') {
      *p = ' ';
    } else if (c < 0x20 || c == 0x7f || (is_ascii && c >= 0x80)) {
      *p = '?';
    }
  }
}

/* A JSON string, whatever the bytes. */
static json_t *string_of(const char *text) {
  json_t *string = json_string(text);
  if (string == NULL) {
    char copy[CHECK_TEXT_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", text);
    clean(copy, true);
    string = json_string(copy);
  }
  return string;
}

static void add_json(struct check *check, enum check_level level, const char *name, const char *text, const char *fix) {
  json_t *finding = json_pack("{s:s, s:s, s:o, s:o}", "level", level_names[level], "check", name, "message",
                              string_of(text), "fix", fix != NULL ? string_of(fix) : json_null());
  if (finding == NULL || json_array_append_new(check->findings, finding) != 0) {
    check->is_out_of_memory = true;
  }
}

void check_say(struct check *check, enum check_level level, const char *name, const char *fix, const char *fmt, ...) {
  char text[CHECK_TEXT_BYTES];
  char cleaned_fix[CHECK_TEXT_BYTES] = "";
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  clean(text, false);
  if (fix != NULL) {
    (void)snprintf(cleaned_fix, sizeof cleaned_fix, "%s", fix);
    clean(cleaned_fix, false);
  }
  check->counts[level]++;
  if (check->findings != NULL) {
    add_json(check, level, name, text, fix != NULL ? cleaned_fix : NULL);
    return;
  }
  (void)printf("%-8s %-18s %s%s%s\n", level_names[level], name, text, fix != NULL ? " -> " : "", cleaned_fix);
  (void)fflush(stdout); /* a question may take a while */
}

static void end_report(struct check *check) {
  int errors_n = check->counts[CHECK_ERROR];
  int warnings_n = check->counts[CHECK_WARNING];
  int skipped_n = check->counts[CHECK_SKIPPED];
  if (check->findings == NULL) {
    (void)printf("%d error%s, %d warning%s, %d skipped, %d ok\n", errors_n, errors_n == 1 ? "" : "s", warnings_n,
                 warnings_n == 1 ? "" : "s", skipped_n, check->counts[CHECK_OK]);
    return;
  }
  json_t *report =
      json_pack("{s:s, s:b, s:i, s:i, s:i, s:O}", "version", OUTBOXD_VERSION, "is_ok", errors_n == 0, "errors",
                errors_n, "warnings", warnings_n, "skipped", skipped_n, "checks", check->findings);
  if (report == NULL || json_dumpf(report, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) != 0) {
    check->is_out_of_memory = true;
  }
  (void)putchar('\n');
  json_decref(report);
}

/* ---- options that run would read first */

static void check_options(struct check *check) {
  const struct cfg *cfg = check->cfg;
  struct err err = ERR_INIT;
  if (template_parse(cfg->stream, &check->template, &err) != 0) {
    check_say(check, CHECK_ERROR, "stream", "correct --stream", "%s", err.text);
  } else {
    struct trim_rule rule;
    if (trim_rule_read(cfg, check->template, &rule, &err) != 0) {
      check_say(check, CHECK_ERROR, "trim", "correct --trim or --stream-ttl", "%s", err.text);
    }
  }
  err_clear(&err);
  if (url_parse(cfg->redis, &check->url, &err) != 0) {
    check_say(check, CHECK_ERROR, "redis", "correct --redis", "%s", err.text);
  } else {
    check->has_url = true;
  }
  if (cfg->metrics_file[0] == '\0') {
    return;
  }
  /* It is written beside itself and renamed: what counts is the directory. */
  char directory[CHECK_TEXT_BYTES];
  (void)snprintf(directory, sizeof directory, "%s", cfg->metrics_file);
  char *slash = strrchr(directory, '/');
  if (slash == NULL) {
    (void)snprintf(directory, sizeof directory, ".");
  } else {
    slash[slash == directory] = '\0';
  }
  if (access(directory, W_OK | X_OK) != 0) {
    check_say(check, CHECK_WARNING, "metrics_file", "make it, writable for the user the relay runs as",
              "no metrics can be written: directory %s: %s", directory, strerror(errno));
  } else {
    check_say(check, CHECK_OK, "metrics_file", NULL, "its directory can be written to by the user of this check");
  }
}

/* ---- all of it */

static void free_all(struct check *check) {
  for (int i = 0; i < check->keys_n; i++) {
    free(check->keys[i].name);
  }
  free(check->keys);
  redis_pipeline_free(check->pipeline);
  redis_free(check->redis);
  free(check->fleet);
  table_free(check->table);
  pg_free(check->pg);
  if (check->has_url) {
    url_fini(&check->url);
  }
  template_free(check->template);
  json_decref(check->findings);
}

int cmd_check(const struct cfg *cfg, int *status, struct err *err) {
  struct check check = {.cfg = cfg};
  int rc = 0;
  if (cfg->is_json && (check.findings = json_array()) == NULL) {
    return err_set(err, ERR_FATAL, "ENOMEM", "no memory for the report");
  }
  check_options(&check);
  check_postgres(&check);
  check_redis(&check);
  end_report(&check);
  *status = check.counts[CHECK_ERROR] > 0;
  if (check.is_out_of_memory) {
    rc = err_set(err, ERR_FATAL, "ENOMEM", "no memory for the report, or it cannot be written");
  }
  free_all(&check);
  return rc;
}
