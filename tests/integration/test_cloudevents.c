/*
 * --format cloudevents: every entry holds one envelope that keeps the rules of CloudEvents 1.0 and its JSON schema, with the payload byte for byte, for
 * every form of the table; what has no envelope is refused by itself.
 *
 * The rules are those of cloudevents.json (https://github.com/cloudevents/spec, v1.0.2) and of the specification's "Context Attributes".
 */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "harness.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define TABLE "outbox_messages"
#define DRAIN_MS 60000

static struct stack *stack;

/* ---- the rules */

static const char *string_at(const json_t *event, const char *name) {
  const json_t *value = json_object_get(event, name);
  REQUIRE(value == NULL || json_is_string(value), "%s is no string", name);
  REQUIRE(value == NULL || json_string_length(value) > 0, "%s is empty", name);
  return value != NULL ? json_string_value(value) : NULL;
}

static void require_time(const char *text) {
  static const char form[] = "dddd-dd-ddTdd:dd:dd.ddddddZ";
  REQUIRE(strlen(text) == strlen(form), "time %s", text);
  for (size_t i = 0; form[i] != '\0'; i++) {
    REQUIRE(form[i] == 'd' ? isdigit((unsigned char)text[i]) : text[i] == form[i], "time %s", text);
  }
}

static void require_attribute(const char *name, const json_t *value) {
  if (strcmp(name, "data") == 0) {
    return;
  }
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
  REQUIRE(n > 0 && name[n] == '\0', "an attribute is named \"%s\"", name);
  REQUIRE(json_is_string(value) || json_is_boolean(value) || json_is_integer(value), "%s has a type of its own", name);
  if (json_is_integer(value)) {
    REQUIRE(json_integer_value(value) >= INT32_MIN && json_integer_value(value) <= INT32_MAX, "%s is too large", name);
  }
}

/* Parses an envelope that keeps the rules.  Caller: json_decref. */
static json_t *require_cloudevent(const char *text, size_t bytes) {
  json_error_t error;
  json_t *event = json_loadb(text, bytes, 0, &error);
  REQUIRE(event != NULL && json_is_object(event), "no JSON object: %s: %.*s", error.text, (int)bytes, text);
  /* No attribute twice.  Data, which is the application's, comes last. */
  const char *data_at = strstr(text, ",\"data\":");
  char *attributes = strdup(text);
  REQUIRE(attributes != NULL, "no memory");
  if (data_at != NULL) {
    memcpy(attributes + (data_at - text), "}", 2);
  }
  json_t *alone = json_loads(attributes, JSON_REJECT_DUPLICATES, &error);
  REQUIRE(alone != NULL, "%s: %s", error.text, attributes);
  json_decref(alone);
  free(attributes);
  const char *required[] = {"id", "source", "type", "specversion"};
  for (size_t i = 0; i < 4; i++) {
    REQUIRE(string_at(event, required[i]) != NULL, "no %s: %.*s", required[i], (int)bytes, text);
  }
  REQUIRE(strcmp(string_at(event, "specversion"), "1.0") == 0, "specversion");
  const char *time = string_at(event, "time");
  if (time != NULL) {
    require_time(time);
  }
  (void)string_at(event, "subject");
  const char *type = string_at(event, "datacontenttype");
  const json_t *data = json_object_get(event, "data");
  REQUIRE((type != NULL) == (data != NULL), "datacontenttype without data, or the other way round");
  REQUIRE(type == NULL || strcmp(type, "application/json") == 0 || json_is_string(data), "data of %s is no string",
          type);
  const char *name;
  json_t *value;
  json_object_foreach(event, name, value) {
    require_attribute(name, value);
  }
  return event;
}

/* ---- the streams */

/* All envelopes of all lanes by message_id; the text as a JSON string, to compare bytes. */
static json_t *read_events(redisContext *redis) {
  json_t *events = json_object();
  for (int lane = 0; lane < 16; lane++) {
    redisReply *entries = rds_cmd(redis, "XRANGE outbox:{%d} - +", lane);
    for (size_t i = 0; i < entries->elements; i++) {
      const redisReply *fields = entries->element[i]->element[1];
      REQUIRE(fields->elements == 2 && strcmp(fields->element[0]->str, "cloudevent") == 0, "an entry of another form");
      json_t *event = require_cloudevent(fields->element[1]->str, fields->element[1]->len);
      const char *id = string_at(event, "id");
      REQUIRE(json_object_get(events, id) == NULL, "%s twice", id);
      json_t *text = json_stringn(fields->element[1]->str, fields->element[1]->len);
      REQUIRE(text != NULL, "the envelope is not UTF-8");
      REQUIRE(json_object_set_new(events, id, text) == 0, "no memory");
      json_decref(event);
    }
    freeReplyObject(entries);
  }
  return events;
}

/* Every published row against its envelope. */
static size_t require_rows(PGconn *conn, const json_t *events, bool is_text, const char *source) {
  PGresult *rows =
      db_rows(conn, "SELECT message_id::text, aggregate_type, aggregate_id::text, event_type, payload::text, "
                    "to_char(created_at::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') "
                    "FROM " TABLE " WHERE published_at IS NOT NULL");
  size_t n = (size_t)PQntuples(rows);
  REQUIRE(n == json_object_size(events), "%zu rows, %zu events", n, json_object_size(events));
  for (int row = 0; row < PQntuples(rows); row++) {
    const json_t *text = json_object_get(events, PQgetvalue(rows, row, 0));
    REQUIRE(text != NULL, "no event of message %s", PQgetvalue(rows, row, 0));
    const char *envelope = json_string_value(text);
    json_t *event = require_cloudevent(envelope, json_string_length(text));
    REQUIRE(strcmp(string_at(event, "source"), source) == 0, "source %s", string_at(event, "source"));
    REQUIRE(strcmp(string_at(event, "aggregatetype"), PQgetvalue(rows, row, 1)) == 0, "aggregatetype");
    REQUIRE(strcmp(string_at(event, "subject"), PQgetvalue(rows, row, 2)) == 0, "subject");
    REQUIRE(strcmp(string_at(event, "type"), PQgetvalue(rows, row, 3)) == 0, "type");
    REQUIRE(strcmp(string_at(event, "time"), PQgetvalue(rows, row, 5)) == 0, "time");
    const char *payload = PQgetvalue(rows, row, 4);
    if (is_text) {
      REQUIRE(strcmp(string_at(event, "datacontenttype"), "text/plain") == 0, "datacontenttype");
      REQUIRE(strcmp(json_string_value(json_object_get(event, "data")), payload) == 0, "data");
    } else {
      /* Byte for byte: it is what stands at the end. */
      size_t tail = strlen(",\"data\":") + strlen(payload) + 1;
      const char *at = envelope + json_string_length(text) - tail;
      REQUIRE(json_string_length(text) > tail && strncmp(at, ",\"data\":", 8) == 0 &&
                  strncmp(at + 8, payload, strlen(payload)) == 0,
              "the payload is %s, the envelope ends with %s", payload, at);
    }
    json_decref(event);
  }
  PQclear(rows);
  return n;
}

static void run(const char *const *args) {
  struct relay *relay = relay_start(stack, args);
  REQUIRE(relay_wait(relay, DRAIN_MS) == 0, "the relay does not end");
}

static void test_every_form_of_the_table(void **state) {
  static const enum table_form forms[] = {TABLE_PLAIN,        TABLE_TEXT_IDS, TABLE_BIGINT_IDS, TABLE_JSON,
                                          TABLE_TEXT_PAYLOAD, TABLE_HEADERS,  TABLE_INIT};
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    stack_reset(stack);
    PGconn *conn = db_open(stack->conninfo);
    redisContext *redis = rds_open(stack->redis_url);
    table_create(stack, conn, forms[i], TABLE);
    table_fill(conn, forms[i], TABLE, 500, 50, 50);
    run(ARGS("run", "--until-empty", "--format", "cloudevents"));
    json_t *events = read_events(redis);
    REQUIRE(require_rows(conn, events, forms[i] == TABLE_TEXT_PAYLOAD, "/outboxd/public." TABLE) == 500, "%s",
            table_form_name(forms[i]));
    json_decref(events);
    redisFree(redis);
    PQfinish(conn);
  }
}

static json_t *event_of(const json_t *events, const char *id) {
  const json_t *text = json_object_get(events, id);
  REQUIRE(text != NULL, "no event %s", id);
  return require_cloudevent(json_string_value(text), json_string_length(text));
}

static void test_odd_values(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  db_exec(conn,
          "CREATE TABLE " TABLE " (id bigserial PRIMARY KEY, message_id text, aggregate_type text, aggregate_id text, "
          "event_type text, payload json, headers jsonb, attempts int DEFAULT 0, last_error text, "
          "created_at timestamptz DEFAULT now(), published_at timestamptz);"
          "CREATE INDEX ON " TABLE " (id) WHERE published_at IS NULL;"
          "INSERT INTO " TABLE
          " (message_id, aggregate_type, aggregate_id, event_type, payload, headers, created_at) VALUES "
          /* Numbers, spaces, escapes and double keys of the payload stay. */
          "('m1', 't', 'q\"uo\\te', 'e/\xC3\xBC', "
          "'{\"n\": 1.10000000000000000000000000001,  \"a\":\"\\u00e9\", \"a\" : 1e4}', NULL, '2026-01-31T00:00:00Z'),"
          "('m2', 't', '2', 'e', '[]', '{\"traceparent\": \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\", "
          "\"tracestate\": \"a=1\", \"data\": \"x\", \"id\": \"x\", \"Upper\": \"x\", \"with-dash\": \"x\", \"flag\": "
          "true, "
          "\"n\": 7, \"big\": 3000000000, \"huge\": 123456789012345678901234567890, \"real\": 1.5, \"list\": [1], "
          "\"control\": \"a\\nb\", \"empty\": \"\"}', '2026-01-31T00:00:00Z'),"
          "('m3', '', '', 'e', NULL, '[1]', 'infinity'),"
          "('m4', 't', '4', 'e', 'null', '\"text\"', '12026-01-01T00:00:00Z'),"
          "('m5', 't', '5', '', '{}', NULL, now())"); /* no type: no envelope */
  run(ARGS("run", "--until-empty", "--format", "cloudevents", "--max-attempts", "1", "--cloudevents-source",
           "https://example.com/pay?a=%20"));
  json_t *events = read_events(redis);
  REQUIRE(json_object_size(events) == 4, "%zu events", json_object_size(events));

  json_t *event = event_of(events, "m2");
  REQUIRE(strcmp(string_at(event, "traceparent"), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") == 0 &&
              strcmp(string_at(event, "tracestate"), "a=1") == 0,
          "the trace is lost");
  REQUIRE(json_is_true(json_object_get(event, "flag")), "flag");
  static const char *const left_out[] = {"Upper", "with-dash", "big", "huge", "real", "list", "control", "empty"};
  for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
    REQUIRE(json_object_get(event, left_out[i]) == NULL, "%s is an attribute", left_out[i]);
  }
  REQUIRE(strcmp(string_at(event, "source"), "https://example.com/pay?a=%20") == 0, "source");
  json_decref(event);

  event = event_of(events, "m3");
  REQUIRE(json_object_get(event, "time") == NULL && json_object_get(event, "subject") == NULL &&
              json_object_get(event, "data") == NULL && json_object_get(event, "aggregatetype") == NULL,
          "what is not there is in the envelope");
  json_decref(event);
  event = event_of(events, "m4");
  REQUIRE(json_object_get(event, "time") == NULL && json_is_null(json_object_get(event, "data")), "m4");
  json_decref(event);

  const char *first = json_string_value(json_object_get(events, "m1"));
  REQUIRE(strstr(first, ",\"data\":{\"n\": 1.10000000000000000000000000001,  \"a\":\"\\u00e9\", \"a\" : 1e4}}") != NULL,
          "the payload has changed: %s", first);
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE message_id = 'm5' AND attempts = 1 "
                       "AND last_error LIKE 'event_type is empty%%'") == 1,
          "m5 is not refused with its reason");
  json_decref(events);
  redisFree(redis);
  PQfinish(conn);
}

/* A refused message holds back its own aggregate, as in the other format. */
static void test_order_behind_a_refused_message(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) "
                "SELECT gen_random_uuid(), 'order', (i %% 2)::text, CASE WHEN i = 3 THEN '' ELSE 'e' || i END, '{}' "
                "FROM generate_series(1, 20) i");
  struct relay *relay = relay_start(stack, ARGS("run", "--format", "cloudevents", "--max-attempts", "2"));
  wait_sql_int(conn, 0, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE published_at IS NULL AND aggregate_id = '0'");
  wait_sql_int(conn, 1, DRAIN_MS, "SELECT count(*) FROM " TABLE " WHERE attempts > 0");
  REQUIRE(db_int(conn, "SELECT count(*) FROM " TABLE " WHERE published_at IS NOT NULL AND aggregate_id = '1'") <= 1 ||
              db_int(conn, "SELECT count(*) FROM " TABLE " WHERE attempts = 2") == 1,
          "later messages have overtaken");
  wait_no_pending(conn, TABLE, 2, DRAIN_MS);
  relay_stop(relay);
  json_t *events = read_events(redis);
  REQUIRE(json_object_size(events) == 19, "%zu events", json_object_size(events));
  json_decref(events);
  redisFree(redis);
  PQfinish(conn);
}

static void test_bad_source_is_refused(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  relay_require_says(stack, 1, "URI reference", ARGS("run", "--format", "cloudevents", "--cloudevents-source", "a b"),
                     DRAIN_MS);
  relay_require_says(stack, 2, "fields, cloudevents", ARGS("run", "--format", "xml"), DRAIN_MS);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      HARNESS_TEST(test_every_form_of_the_table),
      HARNESS_TEST(test_odd_values),
      HARNESS_TEST(test_order_behind_a_refused_message),
      HARNESS_TEST(test_bad_source_is_refused),
  };
  return HARNESS_RUN(tests, &stack, NULL);
}
