/*
 * A load of real transactions: see writer.h.
 *
 * Owns: the worker threads and what they remember.  A worker's fields are its thread's until it was joined; shared are only the atomics.
 */
#include "writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "db.h"
#include "fail.h"
#include "prng.h"
#include "wait.h"

#define THREADS_MAX 64
#define WRITERS_MAX 16
#define ERROR_BYTES 1024
#define RECONNECT_MS 60000

/* A growing list of message ids in canonical form, one after the other with their NULs. */
struct ids {
  char (*v)[PRNG_UUID_BYTES];
  size_t n, cap;
};

struct worker {
  struct writer *writer;
  pthread_t thread;
  int index;
  int64_t messages_n; /* to commit; 0: until stopped */
  struct prng prng;
  int64_t sequence;
  struct ids committed, rolled_back, in_doubt;
  struct ids open; /* of the transaction under way */
  char error[ERROR_BYTES];
};

struct writer {
  struct writer_options options;
  struct worker workers[THREADS_MAX];
  int64_t started_ms;
  bool is_joined;
  struct writer_result result;
  atomic_bool is_stopped;
  atomic_int running_n;
  atomic_llong committed_n;
};

static struct writer *writers[WRITERS_MAX];
static int writers_n;

static void ids_add(struct ids *ids, const char *id) {
  if (ids->n == ids->cap) {
    size_t cap = ids->cap * 2 + 1024;
    void *grown = realloc(ids->v, cap * sizeof *ids->v);
    if (grown == NULL) {
      abort();
    }
    ids->v = grown;
    ids->cap = cap;
  }
  memcpy(ids->v[ids->n++], id, PRNG_UUID_BYTES);
}

static void ids_move(struct ids *from, struct ids *to) {
  for (size_t i = 0; i < from->n; i++) {
    ids_add(to, from->v[i]);
  }
  from->n = 0;
}

static void write_payload(struct worker *worker, FILE *out) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz 0123456789 ABCDEF";
  const struct writer_options *options = &worker->writer->options;
  int64_t pad_bytes = prng_between(&worker->prng, options->payload_min_bytes, options->payload_max_bytes);

  fprintf(out,
          "{\"worker\": %d, \"n\": %" PRId64 ", \"amount\": %" PRIu64 ".%02" PRIu64
          "0, \"note\": \"caf\u00e9 \\\"%" PRIu64 "\\\" \\u2713\", \"pad\": \"",
          worker->index, worker->sequence++, prng_below(&worker->prng, 10000), prng_below(&worker->prng, 100),
          prng_below(&worker->prng, 1000));
  for (int64_t left = pad_bytes; left > 0;) {
    uint64_t bits = prng_next(&worker->prng);
    for (int i = 0; i < 8 && left > 0; i++, left--, bits >>= 8) {
      fputc(letters[(bits & 0xff) % (sizeof letters - 1)], out);
    }
  }
  fputs("\"}", out);
}

/* One row of VALUES.  The text has no quote of SQL's in it, so nothing needs escaping. */
static void write_row(struct worker *worker, FILE *out) {
  static const char *const types[] = {"order", "payment", "customer"};
  static const char *const events[] = {"created", "changed", "closed"};
  const struct writer_options *options = &worker->writer->options;
  int mine_n = (options->aggregates_n - worker->index + options->threads_n - 1) / options->threads_n;
  int aggregate = worker->index + options->threads_n * (int)prng_below(&worker->prng, (uint64_t)mine_n);
  const char *type = types[aggregate % 3];
  char id[PRNG_UUID_BYTES];

  prng_uuid(&worker->prng, id);
  ids_add(&worker->open, id);
  fprintf(out, "('%s','%s','%d','%s.%s','", id, type, aggregate / 3, type, events[prng_below(&worker->prng, 3)]);
  write_payload(worker, out);
  fputs("')", out);
}

static char *transaction_text(struct worker *worker, int64_t messages_n) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);

  if (out == NULL) {
    abort();
  }
  fprintf(out, "BEGIN; INSERT INTO %s (message_id, aggregate_type, aggregate_id, event_type, payload) VALUES ",
          worker->writer->options.table);
  for (int64_t i = 0; i < messages_n; i++) {
    if (i > 0) {
      fputc(',', out);
    }
    write_row(worker, out);
  }
  fclose(out);
  return text;
}

static bool run(PGconn *conn, const char *sql) {
  PGresult *result = PQexec(conn, sql);
  bool is_ok = PQresultStatus(result) == PGRES_COMMAND_OK;
  PQclear(result);
  return is_ok;
}

/* Opens or re-opens; NULL with the worker's error set when it cannot be had. */
static PGconn *connect_worker(struct worker *worker) {
  struct wait wait = wait_begin(RECONNECT_MS);
  for (;;) {
    PGconn *conn = PQconnectdb(worker->writer->options.conninfo);
    if (PQstatus(conn) == CONNECTION_OK) {
      return conn;
    }
    bool is_stopped = atomic_load(&worker->writer->is_stopped);
    bool is_over = is_stopped || !worker->writer->options.can_reconnect || !wait_next(&wait);
    if (is_over && !is_stopped) {
      snprintf(worker->error, sizeof worker->error, "%s", PQerrorMessage(conn));
    }
    PQfinish(conn);
    if (is_over) {
      return NULL;
    }
  }
}

/* What became of one transaction: its ids go to the list they belong to.  False: give up. */
static bool run_transaction(struct worker *worker, PGconn **conn, int64_t messages_n) {
  struct writer *writer = worker->writer;
  bool is_rollback = prng_below(&worker->prng, 100) < (uint64_t)writer->options.rollback_percent;
  char *text = transaction_text(worker, messages_n);
  bool is_sent = run(*conn, text);
  bool is_done = is_sent && run(*conn, is_rollback ? "ROLLBACK" : "COMMIT");

  free(text);
  if (is_done && !is_rollback) {
    atomic_fetch_add(&writer->committed_n, (long long)worker->open.n);
    ids_move(&worker->open, &worker->committed);
    return true;
  }
  /* Whatever goes wrong before COMMIT is sent rolls back. */
  if (is_done || !is_sent || is_rollback) {
    ids_move(&worker->open, &worker->rolled_back);
  } else {
    ids_move(&worker->open, &worker->in_doubt);
  }
  if (is_done) {
    return true;
  }
  snprintf(worker->error, sizeof worker->error, "%s", PQerrorMessage(*conn));
  if (!writer->options.can_reconnect) {
    return false;
  }
  worker->error[0] = '\0';
  PQfinish(*conn);
  *conn = connect_worker(worker);
  return *conn != NULL;
}

/* Keeps the rate: waits until the worker's share of it allows what has been written. */
static void keep_rate(const struct worker *worker, int64_t written_n) {
  const struct writer *writer = worker->writer;
  int64_t due_ms;

  if (writer->options.rate == 0) {
    return;
  }
  due_ms = writer->started_ms + written_n * 1000 * writer->options.threads_n / writer->options.rate;
  for (int64_t now_ms = wait_now_ms(); now_ms < due_ms && !atomic_load(&writer->is_stopped); now_ms = wait_now_ms()) {
    int64_t span_ms = due_ms - now_ms < 50 ? due_ms - now_ms : 50;
    nanosleep(&(struct timespec){.tv_nsec = span_ms * 1000000}, NULL);
  }
}

static void *work(void *arg) {
  struct worker *worker = arg;
  struct writer *writer = worker->writer;
  PGconn *conn = connect_worker(worker);

  while (conn != NULL && !atomic_load(&writer->is_stopped)) {
    int64_t left = worker->messages_n > 0 ? worker->messages_n - (int64_t)worker->committed.n : INT64_MAX;
    int64_t n = prng_between(&worker->prng, 1, writer->options.per_transaction_max);
    if (left <= 0) {
      break;
    }
    if (!run_transaction(worker, &conn, n < left ? n : left)) {
      break;
    }
    keep_rate(worker, (int64_t)worker->committed.n);
  }
  PQfinish(conn);
  atomic_fetch_sub(&writer->running_n, 1);
  return NULL;
}

static void set_defaults(struct writer_options *options) {
  if (options->threads_n == 0) {
    options->threads_n = 8;
  }
  if (options->aggregates_n == 0) {
    options->aggregates_n = 1000;
  }
  if (options->per_transaction_max == 0) {
    options->per_transaction_max = 10;
  }
  if (options->payload_max_bytes == 0) {
    options->payload_max_bytes = 400;
  }
  REQUIRE(options->threads_n <= THREADS_MAX, "at most %d threads", THREADS_MAX);
  REQUIRE(options->aggregates_n >= options->threads_n, "fewer aggregates than threads");
}

struct writer *writer_start(const struct writer_options *options) {
  struct writer *writer = calloc(1, sizeof *writer);
  int n;

  if (writer == NULL) {
    FAIL("out of memory");
  }
  REQUIRE(writers_n < WRITERS_MAX, "more than %d writers", WRITERS_MAX);
  writer->options = *options;
  set_defaults(&writer->options);
  writer->started_ms = wait_now_ms();
  writers[writers_n++] = writer;
  n = writer->options.threads_n;
  atomic_store(&writer->running_n, n);
  for (int i = 0; i < n; i++) {
    struct worker *worker = &writer->workers[i];
    worker->writer = writer;
    worker->index = i;
    worker->prng.state = writer->options.seed * 1000003 + (uint64_t)i;
    worker->messages_n = writer->options.messages_n / n + (i < writer->options.messages_n % n ? 1 : 0);
    if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
      abort();
    }
  }
  return writer;
}

int64_t writer_committed(const struct writer *writer) {
  return atomic_load(&writer->committed_n);
}

void writer_stop(struct writer *writer) {
  atomic_store(&writer->is_stopped, true);
}

static void join(struct writer *writer) {
  if (writer->is_joined) {
    return;
  }
  writer->is_joined = true;
  for (int i = 0; i < writer->options.threads_n; i++) {
    pthread_join(writer->workers[i].thread, NULL);
  }
  writer->result.seconds = (double)(wait_now_ms() - writer->started_ms) / 1000;
  for (int i = 0; i < writer->options.threads_n; i++) {
    writer->result.committed_n += (int64_t)writer->workers[i].committed.n;
    writer->result.rolled_back_n += (int64_t)writer->workers[i].rolled_back.n;
    writer->result.in_doubt_n += (int64_t)writer->workers[i].in_doubt.n;
  }
}

struct writer_result writer_wait(struct writer *writer, int64_t timeout_ms) {
  WAIT_FOR(timeout_ms, atomic_load(&writer->running_n) == 0,
           "the load is not done after %" PRId64 " ms: %" PRId64 " messages committed", wait_scaled_ms(timeout_ms),
           writer_committed(writer));
  join(writer);
  for (int i = 0; i < writer->options.threads_n; i++) {
    const struct worker *worker = &writer->workers[i];
    REQUIRE(worker->error[0] == '\0', "writer %d: %s", i, worker->error);
  }
  return writer->result;
}

/* Sends ids to the temporary table of writer_verify. */
static void copy_ids(PGconn *conn, const struct ids *ids, const char *kind) {
  char line[PRNG_UUID_BYTES + 16];
  for (size_t i = 0; i < ids->n; i++) {
    int bytes = snprintf(line, sizeof line, "%s\t%s\n", ids->v[i], kind);
    REQUIRE(PQputCopyData(conn, line, bytes) == 1, "COPY: %s", PQerrorMessage(conn));
  }
}

/* Fails when a message of this kind is (EXISTS) or is not (NOT EXISTS) in the table. */
static void require_none(PGconn *conn, const char *kind, const char *exists, const char *table) {
  PGresult *rows = db_rows(conn,
                           "SELECT message_id FROM written w WHERE kind = '%s' AND %s "
                           "(SELECT FROM %s t WHERE t.message_id::text = w.message_id) LIMIT 10",
                           kind, exists, table);
  if (PQntuples(rows) > 0) {
    FAIL("%d or more messages that were %s: %s in the table, such as %s", PQntuples(rows), kind, exists,
         PQgetvalue(rows, 0, 0));
  }
  PQclear(rows);
}

void writer_verify(const struct writer *writer, PGconn *conn) {
  PGresult *result;

  REQUIRE(writer->is_joined, "the load still runs");
  db_exec(conn, "CREATE TEMP TABLE written (message_id text, kind text)");
  result = PQexec(conn, "COPY written FROM STDIN");
  REQUIRE(PQresultStatus(result) == PGRES_COPY_IN, "COPY: %s", PQerrorMessage(conn));
  PQclear(result);
  for (int i = 0; i < writer->options.threads_n; i++) {
    copy_ids(conn, &writer->workers[i].committed, "committed");
    copy_ids(conn, &writer->workers[i].rolled_back, "rolled back");
  }
  REQUIRE(PQputCopyEnd(conn, NULL) == 1, "COPY: %s", PQerrorMessage(conn));
  for (result = PQgetResult(conn); result != NULL; result = PQgetResult(conn)) {
    REQUIRE(PQresultStatus(result) == PGRES_COMMAND_OK, "COPY: %s", PQerrorMessage(conn));
    PQclear(result);
  }
  db_exec(conn, "ANALYZE written");
  require_none(conn, "committed", "NOT EXISTS", writer->options.table);
  require_none(conn, "rolled back", "EXISTS", writer->options.table);
  db_exec(conn, "DROP TABLE written");
}

void writer_end_all(void) {
  while (writers_n > 0) {
    struct writer *writer = writers[--writers_n];
    writer_stop(writer);
    join(writer);
    for (int i = 0; i < writer->options.threads_n; i++) {
      struct worker *worker = &writer->workers[i];
      free(worker->committed.v);
      free(worker->rolled_back.v);
      free(worker->in_doubt.v);
      free(worker->open.v);
    }
    free(writer);
  }
}
