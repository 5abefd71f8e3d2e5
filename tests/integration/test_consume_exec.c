/*
 * outbox-consume: a handler of any language, kept running; handlers that die, hang, answer rubbish, or are not there; --print.
 */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "db.h"
#include "harness.h"
#include "rds.h"
#include "stack_impl.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define WAIT_MS 30000

static struct stack *stack;

/* -------------------------------------------------------------------------------------------------- helpers */

static void path_of(const char *name, char out[STACK_PATH_BYTES]) {
  stack_print_path(out, STACK_PATH_BYTES, "%s/%s", stack->dir, name);
}

/* A handler for sh: body with the message in $line; what it was given goes to the file "given" first. */
static void write_handler(const char *name, const char *body) {
  char path[STACK_PATH_BYTES];
  char text[2048];
  path_of(name, path);
  snprintf(text, sizeof text,
           "#!/bin/sh\nwhile IFS= read -r line; do\n  printf '%%s\\n' \"$line\" >>'%s/given'\n  %s\ndone\n", stack->dir,
           body);
  stack_write_file(path, text);
  REQUIRE(chmod(path, 0755) == 0, "chmod %s", path);
}

static int64_t given_n(void) {
  char path[STACK_PATH_BYTES];
  int64_t n = 0;
  path_of("given", path);
  FILE *file = fopen(path, "re");
  for (int c = file != NULL ? fgetc(file) : EOF; c != EOF; c = fgetc(file)) {
    n += c == '\n';
  }
  if (file != NULL) {
    fclose(file);
  }
  return n;
}

static PGconn *make_tables(void) {
  char path[STACK_PATH_BYTES];
  PGconn *conn = db_open(stack->conninfo);
  table_create(stack, conn, TABLE_INIT_PLAIN, TABLE);
  path_of("given", path);
  (void)remove(path);
  return conn;
}

static void add(PGconn *conn, const char *aggregate_id, const char *payload) {
  db_exec_params(
      conn, "INSERT INTO " TABLE " (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', $1, 'e', $2)",
      2, (const char *[]){aggregate_id, payload});
}

static void publish(void) {
  struct relay *relay = relay_start(stack, ARGS("run", "--until-empty"));
  REQUIRE(relay_wait(relay, WAIT_MS) == 0, "the relay failed");
}

static long long sum_over_lanes(redisContext *redis, const char *script) {
  return rds_int(redis, "EVAL %s 0", script);
}

static long long parked_n(redisContext *redis) {
  return sum_over_lanes(
      redis, "local n = 0 for l = 0, 15 do n = n + redis.call('XLEN', 'outbox:{' .. l .. '}:parked:g') end return n");
}

static long long pending_n(redisContext *redis) {
  return sum_over_lanes(redis,
                        "local n = 0 for l = 0, 15 do local p = redis.pcall('XPENDING', 'outbox:{' .. l .. '}', 'g') "
                        "n = n + (p.err and 0 or p[1]) end return n");
}

/* -------------------------------------------------------------------------------------------------- tests */

static void test_a_handler_is_given_each_message(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  char path[STACK_PATH_BYTES];
  (void)state;
  write_handler("ok.sh", "echo ok");
  db_exec(conn,
          "INSERT INTO " TABLE
          " (aggregate_type, aggregate_id, event_type, payload) SELECT 'account', (i %% 7)::text, 'e', "
          "jsonb_build_object('n', i, 'amount', 10.50, 'note', E'two\\nlines \\u00fc') FROM generate_series(1, 200) i");
  publish();
  path_of("ok.sh", path);
  struct relay *consumer = relay_start_consumer(stack, ARGS("--group", "g", "--exec", path, "--threads", "2"));
  wait_sql_int(conn, 200, WAIT_MS, "SELECT count(*) FROM processed_messages WHERE consumer = 'g'");
  relay_stop(consumer);
  REQUIRE(given_n() == 200, "%d lines", (int)given_n());
  /* One worker may be through before the other has lanes. */
  REQUIRE(relay_count(consumer, "handler_started") <= 2, "more than one handler a worker");
  REQUIRE(pending_n(redis) == 0, "entries are pending");
  /* The lines hold what the table does. */
  path_of("given", path);
  db_exec(
      conn,
      "CREATE TABLE given (line text); COPY given FROM PROGRAM 'cat %s' WITH (FORMAT csv, DELIMITER E'\\x01', QUOTE "
      "E'\\x02')",
      path);
  REQUIRE(db_int(conn,
                 "SELECT count(*) FROM " TABLE " m JOIN given g ON (g.line::jsonb->>'message_id')::uuid = m.message_id "
                 "WHERE position('\"payload\":' || m.payload::text IN g.line) > 0 AND g.line::jsonb->>'aggregate_id' = "
                 "m.aggregate_id AND (g.line::jsonb->>'created_at')::timestamptz = m.created_at") == 200,
          "the lines differ from the rows");
  redisFree(redis);
  PQfinish(conn);
}

static void test_handlers_that_misbehave(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  char path[STACK_PATH_BYTES];
  (void)state;
  write_handler(
      "odd.sh",
      "case \"$line\" in *die*) exit 3 ;; *hang*) sleep 1000 ;; *rubbish*) echo hello ;; *twice*) printf 'ok\\nok\\n' "
      ";; "
      "*never*) echo '{\"ok\":false,\"error\":\"no such account\",\"park\":true}' ;; *) echo '{\"ok\":true}' ;; esac");
  add(conn, "1", "\"die\"");
  add(conn, "2", "\"hang\"");
  add(conn, "3", "\"rubbish\"");
  add(conn, "4", "\"never\"");
  add(conn, "5", "\"twice\"");
  for (int i = 0; i < 20; i++) {
    char aggregate[16];
    snprintf(aggregate, sizeof aggregate, "%d", 10 + i);
    add(conn, aggregate, "\"fine\"");
  }
  publish();
  path_of("odd.sh", path);
  struct relay *consumer =
      relay_start_consumer(stack, ARGS("--group", "g", "--exec", path, "--handler-timeout", "2s", "--max-attempts", "2",
                                       "--retry-after", "10ms", "--retry-max", "10ms"));
  WAIT_FOR(WAIT_MS, parked_n(redis) == 5, "%lld are parked", parked_n(redis));
  wait_sql_int(conn, 20, WAIT_MS, "SELECT count(*) FROM processed_messages");
  relay_stop(consumer);
  REQUIRE(relay_count(consumer, "message_parked") == 5, "%d lines", relay_count(consumer, "message_parked"));
  char *text = relay_text(consumer);
  static const char *const says[] = {"ended without an answer (exit status 3)",
                                     "did not answer within --handler-timeout", "answered \\\"hello\\\"",
                                     "no such account", "more than one line"};
  for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
    REQUIRE(strstr(text, says[i]) != NULL, "the log does not say: %s", says[i]);
  }
  free(text);
  redisFree(redis);
  PQfinish(conn);
}

/* A handler that is not there is no fault of the messages. */
static void test_a_handler_that_comes_later(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  char path[STACK_PATH_BYTES];
  char command[STACK_PATH_BYTES + 32];
  (void)state;
  for (int i = 0; i < 5; i++) {
    char aggregate[16];
    snprintf(aggregate, sizeof aggregate, "%d", i);
    add(conn, aggregate, "\"fine\"");
  }
  publish();
  path_of("comes-later.sh", path);
  /* Without what the shell says of it: only lines of JSON are expected on stderr. */
  snprintf(command, sizeof command, "exec 2>/dev/null; exec '%s'", path);
  struct relay *consumer = relay_start_consumer(stack, ARGS("--group", "g", "--exec", command, "--max-attempts", "1",
                                                            "--retry-after", "10ms", "--retry-max", "10ms"));
  for (int i = 0; i < 3; i++) {
    (void)relay_wait_log(consumer, "handler_ended", NULL, NULL, WAIT_MS);
  }
  REQUIRE(parked_n(redis) == 0, "messages were parked for want of a handler");
  write_handler("comes-later.sh", "echo ok");
  wait_sql_int(conn, 5, WAIT_MS, "SELECT count(*) FROM processed_messages");
  relay_stop(consumer);
  redisFree(redis);
  PQfinish(conn);
}

/* Another prefix than the relay's would be waited for in silence. */
static void test_it_tells_that_no_relay_has_been_there(void **state) {
  PGconn *conn = make_tables();
  (void)state;
  write_handler("ok.sh", "echo ok");
  char path[STACK_PATH_BYTES];
  path_of("ok.sh", path);
  add(conn, "1", "\"fine\"");
  publish();
  struct relay *astray =
      relay_start_consumer(stack, ARGS("--group", "g", "--exec", path, "--stream", "other:{%l}", "--threads", "3"));
  const json_t *line = relay_wait_log(astray, "consumer_no_relay", NULL, NULL, WAIT_MS);
  const char *stream = json_string_value(json_object_get(line, "stream"));
  REQUIRE(stream != NULL && strcmp(stream, "other:{%l}") == 0, "it does not name the template");
  relay_stop(astray);
  REQUIRE(relay_count(astray, "consumer_no_relay") == 1, "not said once");
  struct relay *consumer = relay_start_consumer(stack, ARGS("--group", "g", "--exec", path));
  wait_sql_int(conn, 1, WAIT_MS, "SELECT count(*) FROM processed_messages");
  relay_stop(consumer);
  REQUIRE(relay_count(consumer, "consumer_no_relay") == 0, "said although a relay has been there");
  PQfinish(conn);
}

static void test_killed_it_loses_nothing(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  char path[STACK_PATH_BYTES];
  (void)state;
  write_handler("ok.sh", "echo ok");
  db_exec(conn, "INSERT INTO " TABLE
                " (aggregate_type, aggregate_id, event_type, payload) SELECT 'account', (i %% 50)::text, 'e', "
                "'{}' FROM generate_series(1, 2000) i");
  publish();
  path_of("ok.sh", path);
  struct relay *consumer = relay_start_consumer(stack, ARGS("--group", "g", "--exec", path));
  WAIT_FOR(WAIT_MS, given_n() > 100, "nothing is handled");
  relay_kill(consumer);
  REQUIRE(db_int(conn, "SELECT count(*) FROM processed_messages") < 2000, "it was through before it was killed");
  consumer = relay_start_consumer(stack, ARGS("--group", "g", "--exec", path));
  wait_sql_int(conn, 2000, WAIT_MS, "SELECT count(*) FROM processed_messages");
  relay_stop(consumer);
  REQUIRE(pending_n(redis) == 0, "entries are pending");
  /* At least once, and but for what was in hand when it was killed exactly once. */
  REQUIRE(given_n() >= 2000 && given_n() <= 2001, "%d lines", (int)given_n());
  redisFree(redis);
  PQfinish(conn);
}

static int lines_n(const char *text) {
  int n = 0;
  for (; *text != '\0'; text++) {
    n += *text == '\n';
  }
  return n;
}

static void require_printed(int n, const char *const *args) {
  struct relay *consumer = relay_run_consumer_plain(stack, args, WAIT_MS);
  char *text = relay_text(consumer);
  int status = relay_wait(consumer, 1000);
  REQUIRE(status == 0, "status %d: %s", status, text);
  char *out = relay_stdout(consumer);
  REQUIRE(lines_n(out) == n, "%d lines, not %d: %.300s", lines_n(out), n, out);
  REQUIRE(n == 0 || strstr(out, "\"payload\":{\"n\": 1},") != NULL, "not the first message: %.300s", out);
  free(out);
  free(text);
}

static void test_print(void **state) {
  PGconn *conn = make_tables();
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  db_exec(conn, "INSERT INTO " TABLE " (aggregate_type, aggregate_id, event_type, payload) SELECT 'account', '1', 'e', "
                "jsonb_build_object('n', i) FROM generate_series(1, 250) i");
  publish();
  require_printed(250, ARGS("--print"));
  require_printed(250, ARGS("--print"));
  require_printed(3, ARGS("--print", "--limit", "3"));
  REQUIRE(db_int(conn, "SELECT count(*) FROM processed_messages") == 0, "printing marks messages");
  require_printed(100, ARGS("--print", "--ack", "--group", "g", "--limit", "100"));
  REQUIRE(db_int(conn, "SELECT count(*) FROM processed_messages WHERE consumer = 'g'") == 100, "not marked");
  /* The group goes on from there; the first message is not shown again. */
  struct relay *consumer =
      relay_run_consumer_plain(stack, ARGS("--print", "--ack", "--group", "g", "--limit", "150"), WAIT_MS);
  char *out = relay_stdout(consumer);
  REQUIRE(lines_n(out) == 150 && strstr(out, "\"payload\":{\"n\": 101},") != NULL, "%.300s", out);
  free(out);
  REQUIRE(pending_n(redis) == 0, "entries are pending");
  redisFree(redis);
  PQfinish(conn);
}

static void test_wrong_command_lines(void **state) {
  (void)state;
  static const struct {
    const char *args[8];
    const char *says;
  } cases[] = {
      {{"--group", "g"}, "give either --exec COMMAND or --print"},
      {{"--group", "g", "--print", "--exec", "x"}, "give either --exec COMMAND or --print"},
      {{"--exec", "x"}, "a consumer needs a group"},
      {{"--print", "--ack"}, "a consumer needs a group"},
      {{"--group", "g", "--exec", "x", "--ack"}, "--ack belongs to --print"},
      {{"--group", "g", "--exec", "x", "--handler-timeout", "2m"}, "shorter than --session-timeout"},
      {{"--nonsense"}, "there is no option --nonsense; see outbox-consume --help"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct relay *consumer = relay_run_consumer_plain(stack, cases[i].args, WAIT_MS);
    char *text = relay_text(consumer);
    REQUIRE(relay_wait(consumer, 1000) == 2, "another status; it said: %s", text);
    REQUIRE(strstr(text, cases[i].says) != NULL, "\"%s\" is not in: %s", cases[i].says, text);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_a_handler_is_given_each_message),
      HARNESS_TEST(test_handlers_that_misbehave),
      HARNESS_TEST(test_a_handler_that_comes_later),
      HARNESS_TEST(test_it_tells_that_no_relay_has_been_there),
      HARNESS_TEST(test_killed_it_loses_nothing),
      HARNESS_TEST(test_print),
      HARNESS_TEST(test_wrong_command_lines),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
