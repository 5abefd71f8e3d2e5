/*
 * The Redis limit: see baselines.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "baselines.h"
#include "db.h"
#include "fail.h"
#include "rds.h"
#include "usage.h"

#define PIPELINE_N 1000
#define FIELDS_N 6

static const char *const names[FIELDS_N] = {"message_id", "aggregate_type", "aggregate_id",
                                            "event_type", "payload",        "created_at"};

/* Commands ready to be sent, up to 1,000 in each. */
struct chunk {
  char *text;
  size_t bytes;
  int commands_n;
};

struct commands {
  struct chunk *v;
  int n;
  int64_t entries_n;
  int64_t payload_bytes;
};

static void write_bulk(FILE *out, const char *text, size_t bytes) {
  fprintf(out, "$%zu\r\n", bytes);
  fwrite(text, 1, bytes, out);
  fputs("\r\n", out);
}

/* The columns of a row: the lane, then the fields. */
static void write_command(FILE *out, const PGresult *row) {
  char stream[32];
  int bytes = snprintf(stream, sizeof stream, "limit:{%s}", PQgetvalue(row, 0, 0));

  fprintf(out, "*%d\r\n$4\r\nXADD\r\n", 3 + 2 * FIELDS_N);
  write_bulk(out, stream, (size_t)bytes);
  write_bulk(out, "*", 1);
  for (int i = 0; i < FIELDS_N; i++) {
    write_bulk(out, names[i], strlen(names[i]));
    write_bulk(out, PQgetvalue(row, 0, 1 + i), (size_t)PQgetlength(row, 0, 1 + i));
  }
}

static struct chunk *add_chunk(struct commands *commands) {
  commands->v = realloc(commands->v, ((size_t)commands->n + 1) * sizeof *commands->v);
  REQUIRE(commands->v != NULL, "out of memory");
  commands->v[commands->n] = (struct chunk){0};
  return &commands->v[commands->n++];
}

static struct commands format_rows(struct bench *bench) {
  struct commands commands = {0};
  PGconn *conn = db_open(bench->stack->conninfo);
  FILE *out = NULL;

  db_exec(conn, "SET timezone = 'UTC'");
  REQUIRE(PQsendQuery(conn,
                      "SELECT (hashtextextended(aggregate_id::text, 0) % 16 + 16) % 16, message_id, aggregate_type, "
                      "aggregate_id, event_type, payload, to_char(created_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') "
                      "FROM " BENCH_TABLE) == 1 &&
              PQsetSingleRowMode(conn) == 1,
          "%s", PQerrorMessage(conn));
  for (PGresult *row = PQgetResult(conn); row != NULL; row = PQgetResult(conn)) {
    if (PQresultStatus(row) == PGRES_SINGLE_TUPLE) {
      if (out == NULL) {
        struct chunk *chunk = add_chunk(&commands);
        /* The address of the chunk may change with the next one; it is closed by then, and its bytes are known. */
        out = open_memstream(&chunk->text, &chunk->bytes);
        REQUIRE(out != NULL, "out of memory");
      }
      write_command(out, row);
      commands.entries_n++;
      commands.payload_bytes += PQgetlength(row, 0, 5);
      if (++commands.v[commands.n - 1].commands_n == PIPELINE_N) {
        fclose(out);
        out = NULL;
      }
    } else {
      REQUIRE(PQresultStatus(row) == PGRES_TUPLES_OK, "%s", PQerrorMessage(conn));
    }
    PQclear(row);
  }
  if (out != NULL) {
    fclose(out);
  }
  PQfinish(conn);
  return commands;
}

static void read_replies(redisContext *redis, int n) {
  for (int i = 0; i < n; i++) {
    void *reply = NULL;
    REQUIRE(redisGetReply(redis, &reply) == REDIS_OK && ((redisReply *)reply)->type == REDIS_REPLY_STRING,
            "the Redis limit: an XADD was refused");
    freeReplyObject(reply);
  }
}

static void send_all(redisContext *redis, const struct chunk *chunk) {
  int is_done = 0;
  REQUIRE(redisAppendFormattedCommand(redis, chunk->text, chunk->bytes) == REDIS_OK, "out of memory");
  while (is_done == 0) {
    REQUIRE(redisBufferWrite(redis, &is_done) == REDIS_OK, "the Redis limit: %s", redis->errstr);
  }
}

struct redis_limit baseline_redis(struct bench *bench) {
  struct redis_limit limit = {0};
  struct commands commands = format_rows(bench);
  redisContext *redis = rds_open(bench->stack->redis_url);

  rds_run(redis, "FLUSHALL SYNC");
  struct usage before = usage_now(bench->stack);
  double began_s = bench_now_s();
  for (int i = 0; i < commands.n; i++) {
    send_all(redis, &commands.v[i]);
    if (i > 0) {
      read_replies(redis, commands.v[i - 1].commands_n);
    }
  }
  if (commands.n > 0) {
    read_replies(redis, commands.v[commands.n - 1].commands_n);
  }
  double seconds = bench_now_s() - began_s;
  struct usage after = usage_now(bench->stack);
  rds_run(redis, "FLUSHALL SYNC");
  redisFree(redis);
  for (int i = 0; i < commands.n; i++) {
    free(commands.v[i].text);
  }
  free(commands.v);
  limit.messages_n = commands.entries_n;
  limit.rate = (double)commands.entries_n / seconds;
  limit.payload_bytes = (double)commands.payload_bytes / seconds;
  limit.redis_cpu_us = (after.redis_s - before.redis_s) * 1e6 / (double)commands.entries_n;
  json_array_append_new(bench->drains,
                        json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", "Redis limit", "messages",
                                  (json_int_t)limit.messages_n, "rate_per_second", limit.rate,
                                  "payload_bytes_per_second", limit.payload_bytes, "redis_cpu_us", limit.redis_cpu_us));
  bench_say("%-26s %8" PRId64 " messages  %7.0f/s   %.0f MB/s, CPU us a message: Redis %.2f", "Redis limit",
            limit.messages_n, limit.rate, limit.payload_bytes / 1e6, limit.redis_cpu_us);
  return limit;
}
