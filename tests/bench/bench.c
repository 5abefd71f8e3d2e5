/*
 * The benchmark's stack, tables and small parts: see bench.h.
 */
#include "bench.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "db.h"
#include "fail.h"
#include "rds.h"
#include "relay.h"
#include "report.h"

#define POOL_N 64
#define TWO_SESSIONS_BYTES 300000000 /* a fill from this size on is made by two sessions at once */
#define SHARED_BYTES 65536           /* from this size of a payload on, */
#define SHARED_N 1000000             /* and from this number of messages on, messages share payloads */

/* A quarter of the memory, as PostgreSQL's documentation advises; set at the start. */
static char shared_buffers[48];

/* Realistic but for fsync, so that no figure depends on this machine's disk; no checkpoint and no autovacuum falls into a run that is a few
 * seconds long.  docs/benchmarks.md says what that means. */
static const char *pg_settings[] = {
    shared_buffers,   "max_wal_size=16GB",     "min_wal_size=2GB",   "checkpoint_timeout=1h",
    "autovacuum=off", "synchronous_commit=on", "max_connections=60", NULL};
/* The soak is long: there both happen. */
static const char *soak_pg_settings[] = {shared_buffers,
                                         "max_wal_size=4GB",
                                         "checkpoint_timeout=5min",
                                         "autovacuum_naptime=15s",
                                         "synchronous_commit=on",
                                         "max_connections=60",
                                         NULL};

double bench_now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void bench_say(const char *fmt, ...) {
  static double started_s;
  va_list args;

  if (started_s == 0) {
    started_s = bench_now_s();
  }
  printf("%6.1f s  ", bench_now_s() - started_s);
  va_start(args, fmt);
  vprintf(fmt, args);
  va_end(args);
  putchar('\n');
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_median(double *v, int n) {
  qsort(v, (size_t)n, sizeof v[0], compare);
  return n % 2 != 0 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int64_t bench_scaled(const struct bench *bench, int64_t messages_n) {
  int64_t thousands = (int64_t)((double)messages_n * bench->scale / 1000);
  return thousands < 1 ? 1000 : thousands * 1000;
}

static char kept[STACK_PATH_BYTES + 16]; /* "kept: <directory>", ready for the signal handler */
static size_t kept_bytes;

/* A signal ends the program, and the servers with it; what they have written stays. */
static void name_dir(int signum) {
  if (write(STDOUT_FILENO, kept, kept_bytes) < 0) {
    _exit(1);
  }
  (void)signal(signum, SIG_DFL);
  (void)raise(signum);
}

void bench_begin(struct bench *bench) {
  const char *fsync = getenv("BENCH_FSYNC");
  bool is_soak = bench->only != NULL && strcmp(bench->only, "soak") == 0;
  int64_t quarter_mib = (int64_t)sysconf(_SC_PHYS_PAGES) / 4 * sysconf(_SC_PAGESIZE) / (1024 * 1024);
  (void)snprintf(shared_buffers, sizeof shared_buffers, "shared_buffers=%" PRId64 "MB", quarter_mib);
  struct stack_options options = {.pg_settings = is_soak ? soak_pg_settings : pg_settings,
                                  .has_fsync = fsync != NULL && strcmp(fsync, "on") == 0};

  bench_say("starting PostgreSQL and Redis");
  bench->stack = stack_start(&options);
  kept_bytes = (size_t)snprintf(kept, sizeof kept, "kept: %s\n", bench->stack->dir);
  (void)signal(SIGTERM, name_dir);
  (void)signal(SIGINT, name_dir);
  bench->conn = db_open(bench->stack->conninfo);
  bench->redis = rds_open(bench->stack->redis_url);
  bench->drains = json_array();
  bench->machine = report_machine(bench);
}

void bench_end(struct bench *bench) {
  PQfinish(bench->conn);
  redisFree(bench->redis);
  json_decref(bench->drains);
  json_decref(bench->machine);
  relay_end_all();
  stack_stop(bench->stack, bench_is_violated(bench));
}

/* ---- tables */

static void drop_table(struct bench *bench) {
  db_exec(bench->conn, "SET client_min_messages = warning; DROP TABLE IF EXISTS " BENCH_TABLE " CASCADE");
  rds_run(bench->redis, "FLUSHALL");
}

static void add_views(struct bench *bench) {
  db_exec(bench->conn, "CREATE VIEW bench_published AS SELECT * FROM " BENCH_TABLE " WHERE published_at IS NOT NULL");
}

void bench_table_partitioned(struct bench *bench) {
  bench_table_partitioned_of(bench, "jsonb");
}

void bench_table_partitioned_of(struct bench *bench, const char *payload_type) {
  drop_table(bench);
  /* Yesterday's, today's, and 18 ahead. */
  struct relay *init =
      relay_start(bench->stack, ARGS("init", "--partitions-ahead", "18d", "--payload-type", payload_type));
  int status = relay_wait(init, 60000);
  REQUIRE(status == 0, "outboxd init ended with %d", status);
  relay_forget(&init);
  int64_t partitions_n =
      db_int(bench->conn, "SELECT count(*) FROM pg_inherits WHERE inhparent = '" BENCH_TABLE "'::regclass");
  REQUIRE(partitions_n == BENCH_PARTITIONS_N, "%" PRId64 " partitions, not %d", partitions_n, BENCH_PARTITIONS_N);
  add_views(bench);
}

void bench_table_plain(struct bench *bench) {
  drop_table(bench);
  table_create(bench->stack, bench->conn, TABLE_PLAIN, BENCH_TABLE);
  add_views(bench);
}

void bench_clear(struct bench *bench) {
  rds_run(bench->redis, "FLUSHALL");
  db_exec(bench->conn, "TRUNCATE " BENCH_TABLE);
  db_exec(bench->conn, "CHECKPOINT");
}

/* Texts of this length that look random; a row takes one of them. */
static void make_pool(struct bench *bench, int bytes) {
  db_exec(bench->conn, "SET client_min_messages = warning; DROP TABLE IF EXISTS bench_pool");
  db_exec(
      bench->conn,
      "CREATE UNLOGGED TABLE bench_pool AS SELECT p, note, jsonb_build_object('n', p, 'note', note) AS payload FROM "
      "(SELECT p, left(string_agg(md5(p || ' ' || j), ''), %d) AS note "
      "FROM generate_series(0, %d) p, generate_series(0, %d) j GROUP BY p) s",
      bytes, POOL_N - 1, bytes / 32);
}

int64_t bench_last_id(struct bench *bench) {
  return db_int(bench->conn, "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('" BENCH_TABLE
                             "', 'id')::regclass), 0)");
}

#define FILL_SQL                                                                                            \
  "INSERT INTO " BENCH_TABLE                                                                                \
  " (message_id, aggregate_type, aggregate_id, event_type, payload, created_at) SELECT gen_random_uuid(), " \
  "'account', %s, 'money.sent', %s, now() - interval '10 seconds' FROM %s "                                 \
  "JOIN bench_pool ON p = i %% %d WHERE %s"

int64_t bench_fill(struct bench *bench, const struct fill *fill) {
  int payload_bytes = fill->payload_bytes > 0 ? fill->payload_bytes : BENCH_PAYLOAD_BYTES;
  int64_t first_id = bench_last_id(bench);
  const char *aggregate = BENCH_AGGREGATE;
  char source[256];

  /* {"n": 123456, "note": ""} */
  make_pool(bench, payload_bytes > 27 ? payload_bytes - 25 : 2);
  snprintf(source, sizeof source, "generate_series(1, %" PRId64 "::bigint) i", fill->messages_n);
  if (fill->shape == FILL_SKEWED) {
    aggregate = "CASE WHEN i % 10 > 0 THEN 'one' ELSE (i * 7919 % 10000)::text END";
  }
  if (fill->shape == FILL_LANE) {
    aggregate = "'refused ' || i";
    snprintf(source, sizeof source,
             "(SELECT i FROM generate_series(1, 20 * %" PRId64
             "::bigint) i WHERE mod(mod(hashtextextended('refused ' || i, 0), 16) + 16, 16) = %d LIMIT %" PRId64 ") s",
             fill->messages_n, BENCH_REFUSED_LANE, fill->messages_n);
  }
  /* Where the filling takes long, the payloads are taken from the pool as they are stored there. */
  bool is_shared = payload_bytes >= SHARED_BYTES || fill->messages_n >= SHARED_N;
  const char *payload = is_shared ? "payload" : "jsonb_build_object('n', i, 'note', note)";
  int64_t added_n;
  if (fill->messages_n * payload_bytes < TWO_SESSIONS_BYTES) {
    added_n = db_affected(bench->conn, FILL_SQL, aggregate, payload, source, POOL_N, "true");
  } else {
    char text[1024];
    PGconn *other = db_open(bench->stack->conninfo);
    snprintf(text, sizeof text, FILL_SQL, aggregate, payload, source, POOL_N, "i % 2 = 1");
    REQUIRE(PQsendQuery(other, text) == 1, "%s", PQerrorMessage(other));
    added_n = db_affected(bench->conn, FILL_SQL, aggregate, payload, source, POOL_N, "i % 2 = 0");
    PGresult *result = PQgetResult(other);
    REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(other));
    added_n += strtoll(PQcmdTuples(result), NULL, 10);
    PQclear(result);
    PQfinish(other);
  }
  REQUIRE(added_n == fill->messages_n, "%" PRId64 " messages were added, not %" PRId64, added_n, fill->messages_n);
  return first_id;
}

double bench_rate(struct bench *bench, int64_t first_id, const char *where, int64_t *messages_n) {
  const char *condition = where != NULL ? where : "true";
  PGresult *all = db_rows(bench->conn,
                          "SELECT count(published_at), extract(epoch FROM max(published_at) - min(published_at)), "
                          "min(published_at) FROM " BENCH_TABLE " WHERE id > %" PRId64 " AND %s",
                          first_id, condition);
  int64_t n = strtoll(PQgetvalue(all, 0, 0), NULL, 10);
  double seconds = strtod(PQgetvalue(all, 0, 1), NULL);
  double left_out_s = seconds > 3 ? 1 : seconds / 5;
  double rate = 0;

  if (n > 0 && seconds > 0) {
    int64_t counted_n = db_int(bench->conn,
                               "SELECT count(*) FROM " BENCH_TABLE " WHERE id > %" PRId64 " AND %s AND published_at > "
                               "'%s'::timestamptz + make_interval(secs => %f)",
                               first_id, condition, PQgetvalue(all, 0, 2), left_out_s);
    rate = (double)counted_n / (seconds - left_out_s);
  }
  PQclear(all);
  if (messages_n != NULL) {
    *messages_n = n;
  }
  return rate;
}
