/*
 * The history of one message, for whoever has to find out what happened: its row, its entries, the journal, the logs around.
 */
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "db.h"
#include "faults.h"
#include "rds.h"

#define ID_BYTES PRNG_UUID_BYTES
#define MOMENTS_MAX 16
#define AROUND_MS 400
#define LINES_MAX 80

struct moments {
  int n;
  int64_t ms[MOMENTS_MAX]; /* since 1970: when something happened to the message */
};

/* The first uuid in the text. */
static bool find_id(const char *text, char id[ID_BYTES]) {
  for (; strlen(text) >= ID_BYTES - 1; text++) {
    if (strspn(text, "0123456789abcdef-") >= ID_BYTES - 1 && text[8] == '-' && text[13] == '-') {
      memcpy(id, text, ID_BYTES - 1);
      id[ID_BYTES - 1] = '\0';
      return true;
    }
  }
  return false;
}

static void note(struct moments *moments, int64_t ms) {
  if (moments->n < MOMENTS_MAX)
    moments->ms[moments->n++] = ms;
}

static void print_row(PGconn *conn, const char *id, struct moments *moments, FILE *out) {
  PGresult *rows =
      db_rows(conn,
              "SELECT (to_jsonb(t) - 'payload')::text, (extract(epoch FROM published_at) * 1000)::bigint, "
              "(extract(epoch FROM created_at) * 1000)::bigint, xmin::text, xmax::text, ctid::text FROM " FAULTS_TABLE
              " t WHERE message_id = '%s'",
              id);
  for (int i = 0; i < PQntuples(rows); i++) {
    fprintf(out, "row: %s xmin %s xmax %s ctid %s\n", PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 3),
            PQgetvalue(rows, i, 4), PQgetvalue(rows, i, 5));
    if (!PQgetisnull(rows, i, 1))
      note(moments, strtoll(PQgetvalue(rows, i, 1), NULL, 10));
    note(moments, strtoll(PQgetvalue(rows, i, 2), NULL, 10));
  }
  if (PQntuples(rows) == 0)
    fputs("row: none\n", out);
  PQclear(rows);
}

static void print_rows_of_aggregate(PGconn *conn, const char *id, FILE *out) {
  PGresult *rows = db_rows(conn,
                           "SELECT a.id, a.message_id, a.attempts, a.created_at, a.published_at FROM " FAULTS_TABLE
                           " t JOIN " FAULTS_TABLE " a USING (aggregate_type, aggregate_id) WHERE t.message_id = '%s' "
                           "AND abs(a.id - t.id) < 5000 ORDER BY a.id",
                           id);
  fputs("its aggregate (id, message_id, attempts, created_at, published_at):\n", out);
  for (int i = 0; i < PQntuples(rows); i++)
    fprintf(out, "  %s %s %s %s %s\n", PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1), PQgetvalue(rows, i, 2),
            PQgetvalue(rows, i, 3), PQgetvalue(rows, i, 4));
  PQclear(rows);
}

static void print_entries(redisContext *redis, int lane, const char *id, struct moments *moments, FILE *out) {
  char from[64] = "-";
  bool is_here = false;
  for (;;) {
    redisReply *page = rds_cmd(redis, "XRANGE outbox:{%d} %s + COUNT 2000", lane, from);
    size_t n = page->elements;
    for (size_t i = 0; i < n; i++) {
      const redisReply *entry = page->element[i], *fields = entry->element[1];
      if (strcmp(fields->element[1]->str, id) == 0) {
        fprintf(out, "entry: outbox:{%d} %s %s/%s\n", lane, entry->element[0]->str, fields->element[3]->str,
                fields->element[5]->str);
        note(moments, strtoll(entry->element[0]->str, NULL, 10));
        is_here = true;
      }
    }
    if (n > 0)
      snprintf(from, sizeof from, "(%s", page->element[n - 1]->element[0]->str);
    freeReplyObject(page);
    if (n == 0)
      break;
  }
  if (is_here) {
    redisReply *journal = rds_cmd(redis, "GET outbox:{%d}:journal", lane);
    fprintf(out, "journal of lane %d: %.400s\n", lane, journal->str != NULL ? journal->str : "(none)");
    freeReplyObject(journal);
  }
}

/* A log line begins {"ts": "2026-01-31T12:00:00.123456Z", ...; 0: it does not. */
static int64_t line_ms(const char *line) {
  const char *at = strstr(line, "\"ts\"");
  struct tm tm = {0};
  at = at != NULL ? strchr(at, '2') : NULL;
  const char *rest = at != NULL ? strptime(at, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
  if (rest == NULL)
    return 0;
  return (int64_t)timegm(&tm) * 1000 + (*rest == '.' ? (int64_t)(strtod(rest, NULL) * 1000) : 0);
}

static bool is_near(const struct moments *moments, int64_t ms) {
  for (int i = 0; i < moments->n; i++) {
    if (ms >= moments->ms[i] - AROUND_MS && ms <= moments->ms[i] + AROUND_MS)
      return true;
  }
  return false;
}

static void print_log(const char *path, const char *id, const struct moments *moments, FILE *out) {
  FILE *log = fopen(path, "re");
  char *line = NULL;
  size_t bytes = 0;
  int n = 0;
  if (log == NULL)
    return;
  while (n < LINES_MAX && getline(&line, &bytes, log) >= 0) {
    if (strstr(line, id) == NULL && !is_near(moments, line_ms(line)))
      continue;
    if (n++ == 0)
      fprintf(out, "%s:\n", path);
    fprintf(out, "  %s", line);
  }
  free(line);
  fclose(log);
}

void faults_print_history(struct faults *faults, const char *text, FILE *out) {
  char id[ID_BYTES], pattern[STACK_PATH_BYTES + 16];
  struct moments moments = {0};
  glob_t logs;
  fprintf(out, "---- history of: %s\n", text);
  if (!find_id(text, id)) {
    fputs("(no message is named)\n", out);
    return;
  }
  PGconn *conn = db_open(faults->conninfo);
  redisContext *redis = rds_open(faults->stack->redis_url);
  print_row(conn, id, &moments, out);
  for (int lane = 0; lane < FAULTS_LANES_N; lane++)
    print_entries(redis, lane, id, &moments, out);
  print_rows_of_aggregate(conn, id, out);
  snprintf(pattern, sizeof pattern, "%s/relay-*.log", faults->stack->dir);
  if (glob(pattern, 0, NULL, &logs) == 0) {
    for (size_t i = 0; i < logs.gl_pathc; i++)
      print_log(logs.gl_pathv[i], id, &moments, out);
    globfree(&logs);
  }
  redisFree(redis);
  PQfinish(conn);
  fputs("----\n", out);
  fflush(out);
}
