/*
 * A PgQ consumer beside the relay, at equal batch sizes: see docs/benchmarks.md.
 *
 * PgQ is a queue in PostgreSQL that cuts its events into batches by ticks and updates no row for each.  The consumer here either only reads them, or adds
 * each to a stream by XADD, a batch in one pipeline, before it finishes the batch: a relay without order across lanes, and with duplicates after a crash.
 * Measured where the server has the extension.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "db.h"
#include "fail.h"
#include "rds.h"
#include "relay.h"
#include "usage.h"

#define QUEUE "bench"
#define CONSUMER "reader"
#define MESSAGES_N 300000

/* The table's messages as PgQ's events, batch_n in a transaction and a tick behind each. */
static void fill_queue(struct bench *bench, int64_t first_id, int64_t messages_n, int batch_n) {
  db_exec(bench->conn, "SELECT pgq.create_queue('" QUEUE "')");
  /* There is no tick before so many; fewer than a batch, for the sequence that it goes by counts the first event out. */
  db_exec(bench->conn, "SELECT pgq.set_queue_config('" QUEUE "', 'ticker_max_count', '%d')", batch_n / 2);
  db_exec(bench->conn, "SELECT pgq.ticker('" QUEUE "')");
  db_exec(bench->conn, "SELECT pgq.register_consumer('" QUEUE "', '" CONSUMER "')");
  for (int64_t done_n = 0; done_n < messages_n; done_n += batch_n) {
    int64_t added_n =
        db_int(bench->conn,
               "SELECT count(pgq.insert_event('" QUEUE
               "', event_type, payload::text, aggregate_id, message_id::text, NULL, NULL)) FROM " BENCH_TABLE
               " WHERE id > %" PRId64 " AND id <= %" PRId64,
               first_id + done_n, first_id + done_n + batch_n);
    REQUIRE(added_n == batch_n, "%" PRId64 " events were added, not %d", added_n, batch_n);
    REQUIRE(db_int(bench->conn, "SELECT coalesce(pgq.ticker('" QUEUE "'), 0)") > 0, "there was no tick");
  }
  db_exec(bench->conn, "CHECKPOINT");
}

static void next_result(PGconn *conn, ExecStatusType wanted, PGresult **out) {
  PGresult *result = PQgetResult(conn);
  REQUIRE(PQresultStatus(result) == wanted, "the PgQ consumer: %s", PQerrorMessage(conn));
  if (out != NULL) {
    *out = result;
  } else {
    PQclear(result);
  }
  if (wanted != PGRES_PIPELINE_SYNC) {
    REQUIRE(PQgetResult(conn) == NULL, "the PgQ consumer: one result too many");
  }
}

/* Ends the batch before (0: there is none), commits, and begins the next; 0 when nothing is left.  One round trip. */
static int64_t begin_batch(PGconn *conn, int64_t before) {
  char number[24];
  const char *const values[] = {number};
  PGresult *next;

  snprintf(number, sizeof number, "%" PRId64, before);
  if (before != 0) {
    PQsendQueryParams(conn, "SELECT pgq.finish_batch($1::bigint)", 1, NULL, values, NULL, NULL, 0);
    PQpipelineSync(conn);
  }
  PQsendQueryParams(conn, "SELECT pgq.next_batch('" QUEUE "', '" CONSUMER "')", 0, NULL, NULL, NULL, NULL, 0);
  PQpipelineSync(conn);
  if (before != 0) {
    next_result(conn, PGRES_TUPLES_OK, NULL);
    next_result(conn, PGRES_PIPELINE_SYNC, NULL);
  }
  next_result(conn, PGRES_TUPLES_OK, &next);
  next_result(conn, PGRES_PIPELINE_SYNC, NULL);
  int64_t batch = strtoll(PQgetvalue(next, 0, 0), NULL, 10);
  PQclear(next);
  return batch;
}

enum { EVENT_ID, EVENT_TYPE, EVENT_PAYLOAD, EVENT_AGGREGATE_ID, EVENT_MESSAGE_ID };

/* Adds the events to as many streams as the relay has lanes, one pipeline, and reads the replies. */
static void publish(redisContext *redis, const PGresult *events) {
  int events_n = PQntuples(events);
  for (int row = 0; row < events_n; row++) {
    char stream[32];
    snprintf(stream, sizeof stream, "outbox:{%ld}",
             strtol(PQgetvalue(events, row, EVENT_AGGREGATE_ID), NULL, 10) % BENCH_LANES_N);
    const char *const words[] = {"XADD",
                                 stream,
                                 "*",
                                 "message_id",
                                 PQgetvalue(events, row, EVENT_MESSAGE_ID),
                                 "aggregate_type",
                                 "account",
                                 "aggregate_id",
                                 PQgetvalue(events, row, EVENT_AGGREGATE_ID),
                                 "event_type",
                                 PQgetvalue(events, row, EVENT_TYPE),
                                 "payload",
                                 PQgetvalue(events, row, EVENT_PAYLOAD)};
    int words_n = (int)(sizeof words / sizeof words[0]);
    REQUIRE(redisAppendCommandArgv(redis, words_n, (const char **)(uintptr_t)words, NULL) == REDIS_OK, "no memory");
  }
  for (int row = 0; row < events_n; row++) {
    redisReply *reply = NULL;
    REQUIRE(redisGetReply(redis, (void **)&reply) == REDIS_OK && reply->type == REDIS_REPLY_STRING, "XADD: %s",
            reply != NULL ? reply->str : redis->errstr);
    freeReplyObject(reply);
  }
}

/* redis: where the events go; NULL: they are only read. */
static int read_batch(PGconn *conn, int64_t batch, redisContext *redis, int64_t *bytes) {
  char number[24];
  const char *const values[] = {number};
  PGresult *events;

  snprintf(number, sizeof number, "%" PRId64, batch);
  PQsendQueryParams(conn, "SELECT ev_id, ev_type, ev_data, ev_extra1, ev_extra2 FROM pgq.get_batch_events($1::bigint)",
                    1, NULL, values, NULL, NULL, 0);
  PQpipelineSync(conn);
  next_result(conn, PGRES_TUPLES_OK, &events);
  next_result(conn, PGRES_PIPELINE_SYNC, NULL);
  int events_n = PQntuples(events);
  for (int row = 0; row < events_n; row++) {
    for (int column = 0; column < PQnfields(events); column++) {
      *bytes += PQgetlength(events, row, column);
    }
  }
  if (redis != NULL) {
    publish(redis, events);
  }
  PQclear(events);
  return events_n;
}

/* Events a second. */
static double drain_queue(struct bench *bench, int64_t messages_n, int batch_n, redisContext *redis) {
  PGconn *conn = db_open(bench->stack->conninfo);
  int64_t read_n = 0, bytes = 0;

  REQUIRE(PQenterPipelineMode(conn) == 1, "no pipeline mode");
  struct usage before = usage_now(bench->stack);
  double began_s = bench_now_s();
  for (int64_t batch = begin_batch(conn, 0); batch != 0; batch = begin_batch(conn, batch)) {
    int events_n = read_batch(conn, batch, redis, &bytes);
    REQUIRE(events_n <= batch_n, "a batch of %d events", events_n);
    read_n += events_n;
  }
  double rate = (double)read_n / (bench_now_s() - began_s);
  double pg_cpu_us = (usage_now(bench->stack).pg_s - before.pg_s) * 1e6 / (double)read_n;
  PQfinish(conn);
  REQUIRE(read_n == messages_n && bytes > 0, "PgQ gave %" PRId64 " of %" PRId64 " events", read_n, messages_n);
  db_exec(bench->conn, "SELECT pgq.unregister_consumer('" QUEUE "', '" CONSUMER "'), pgq.drop_queue('" QUEUE "')");
  const char *name = redis != NULL ? "PgQ, XADD" : "PgQ, reading";
  bench_say("%s, batches of %-6d %8" PRId64 " events    %7.0f/s   CPU us an event: PostgreSQL %.2f", name, batch_n,
            read_n, rate, pg_cpu_us);
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:i, s:I, s:f, s:f}", "name", name, "batch", batch_n, "events",
                                  (json_int_t)read_n, "rate_per_second", rate, "postgres_cpu_us", pg_cpu_us));
  return rate;
}

static double drain_relay(struct bench *bench, int64_t first_id, const char *batch) {
  char name[32];
  snprintf(name, sizeof name, "batches of %s", batch);
  return bench_drain(bench, &(struct drain_spec){.name = name, .args = ARGS("--batch", batch), .first_id = first_id})
      .rate;
}

/* The queue filled from the table's messages, and drained. */
static double queue_rate(struct bench *bench, int64_t first_id, int64_t messages_n, int batch_n, redisContext *redis) {
  fill_queue(bench, first_id, messages_n, batch_n);
  double rate = drain_queue(bench, messages_n, batch_n, redis);
  if (redis != NULL) {
    REQUIRE(bench_entries(bench) == messages_n, "the PgQ consumer's entries are not all there");
    rds_run(bench->redis, "FLUSHALL");
  }
  db_exec(bench->conn, "CHECKPOINT");
  return rate;
}

static void measure(struct bench *bench, const char *batch) {
  int batch_n = atoi(batch);
  int64_t messages_n = bench_scaled(bench, MESSAGES_N) / batch_n * batch_n;
  double relay[2], published = 0, read = 0;

  for (int i = 0; i < 2; i++) {
    bench_clear(bench);
    int64_t first_id = bench_fill(bench, &(struct fill){.messages_n = messages_n});
    if (i == 1) {
      published = queue_rate(bench, first_id, messages_n, batch_n, bench->redis);
      read = queue_rate(bench, first_id, messages_n, batch_n, NULL);
    }
    relay[i] = drain_relay(bench, first_id, batch);
  }
  double rate = (relay[0] + relay[1]) / 2;
  struct figure *figure =
      figures_add(&bench->figures, batch_n == 1000 ? "pgq_1000" : "pgq_10000", rate / published, "", 1, false);
  figure_label(figure,
               "drain rate with --batch %s over a PgQ consumer's with as many events in a batch that publishes by XADD",
               batch);
  figure_how(figure, "%.0f/s over %.0f/s; reading without publishing %.0f/s", rate, published, read);
}

void bench_pgq(struct bench *bench) {
  if (db_int(bench->conn, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'") == 0) {
    bench_say("PgQ is not measured: the server has no such extension (Debian: postgresql-15-pgq3)");
    return;
  }
  db_exec(bench->conn, "CREATE EXTENSION IF NOT EXISTS pgq");
  bench_table_partitioned(bench);
  measure(bench, "1000");
  measure(bench, "10000");
}
