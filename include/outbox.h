/*
 * liboutbox: the application's side of the transactional outbox.
 *
 * Writing: outbox_record and outbox_writer_record put events into the outbox table, in the transaction that changes what they tell of.
 * Handling: outbox_process_once says, in the transaction that acts on a message, whether it was acted on before.
 * Consuming: an outbox_consumer reads the relay's streams and calls a handler for each message, in a transaction, once.
 *
 * All functions block as libpq does.  None of them keeps a global state that a caller could see, writes to a standard stream, or ends the
 * process.  A PGconn is used by one thread at a time, as libpq wants it; different connections may be used by different threads.
 */
#ifndef OUTBOX_H
#define OUTBOX_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OUTBOX_API __attribute__((visibility("default")))
#define OUTBOX_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define OUTBOX_API
#define OUTBOX_CHECKED
#endif

/* -------------------------------------------------------------------------------------------------- errors */

/* What the caller can do about an error. */
enum outbox_error_kind {
  OUTBOX_NONE = 0, /* no error */
  OUTBOX_USAGE, /* the call is wrong as it stands: not in a transaction, a value missing.  Nothing was sent to a server */
  OUTBOX_REFUSED,     /* a server refused it: wrong data, no such table, no permission.  The same call fails again */
  OUTBOX_UNAVAILABLE, /* connection lost, lock not granted, server shutting down, no memory: the same may work later */
  OUTBOX_INTERNAL     /* a mistake in liboutbox */
};

#define OUTBOX_CODE_BYTES 32
#define OUTBOX_TEXT_BYTES 1024

/* Filled by a function that returns -1, wherever a struct outbox_error * is taken; NULL may be given instead.  Owns no memory. */
struct outbox_error {
  enum outbox_error_kind kind;
  char code
      [OUTBOX_CODE_BYTES]; /* SQLSTATE, first word of a Redis error, errno name, or a name of ours ("no_transaction"): stable */
  char text[OUTBOX_TEXT_BYTES]; /* one line of UTF-8 for a person; holds no payload and no password */
};

/* The library's version, as "0.1.0". */
OUTBOX_API const char *outbox_version(void);

/* -------------------------------------------------------------------------------------------------- ids */

/* Room for a message_id with its NUL. */
#define OUTBOX_ID_BYTES 64

/* Makes a version 7 uuid (RFC 9562) in its canonical form: ordered by time, to a quarter of a microsecond, and strictly ascending within the
 * process, also when the clock is set back; 62 bits come from getrandom(2).  Any thread.
 * 0, or -1 (UNAVAILABLE) when the system has no random numbers. */
OUTBOX_CHECKED int outbox_uuid_v7(char out[OUTBOX_ID_BYTES], struct outbox_error *error);

/* -------------------------------------------------------------------------------------------------- writing events */

/* An event to be recorded.  Strings are UTF-8 (or what client_encoding says), end with a NUL and are borrowed for the call. */
struct outbox_event {
  const char
      *aggregate_type; /* what the event is about: events of one (aggregate_type, aggregate_id) keep their order */
  const char *aggregate_id;
  const char *event_type;
  const char *payload; /* JSON */
  const char *headers; /* JSON object, for a table with a column headers; NULL: none */
  const char *
      message_id; /* the consumers' key to recognise a repetition, below OUTBOX_ID_BYTES; NULL: a version 7 uuid is made */
};

/* Writes one event to the outbox table, within the transaction that is open on conn, so that both are committed or neither is.
 *
 * table: NULL for outbox_messages; may be schema-qualified and quoted, as in SQL.  message_id (may be NULL) gets the event's id.
 * Sends one statement and waits for it.  0, or -1:
 * - USAGE, nothing sent: "no_transaction" (conn is in autocommit: the event would not be committed together with anything),
 *   "aborted_transaction", "busy", "pipeline_mode", "no_value" (a member that must not be NULL), "table_name", "message_id" (too long);
 * - UNAVAILABLE, "no_connection", "connection" and the server's codes: the transaction is lost;
 * - REFUSED with the SQLSTATE: the transaction is aborted, ROLLBACK it (or to a savepoint). */
OUTBOX_CHECKED int outbox_record(PGconn *conn, const char *table, const struct outbox_event *event,
                                 char message_id[OUTBOX_ID_BYTES], struct outbox_error *error);

/* Many events over one connection: a prepared statement that takes up to a thousand of them (and 4 MiB) at a time. */
struct outbox_writer;

/* Makes a writer bound to conn, which has to live longer and stay the caller's.  Reads the table's columns (one statement; a
 * transaction need not be open).  table as in outbox_record.  Errors: as there, and REFUSED "unknown_table", "missing_column".
 * Caller: outbox_writer_free. */
OUTBOX_CHECKED int outbox_writer_new(PGconn *conn, const char *table, struct outbox_writer **out,
                                     struct outbox_error *error);

/* Writes events[0..n-1], in this order, within the transaction that is open on the writer's connection; nothing is kept back: when it returns 0
 * all of them are written.  message_ids (may be NULL: not wanted) gets n ids.  n may be 0.
 * Errors: as outbox_record's, and USAGE "no_headers" (an event has headers, the table has no such column).  After an error that is
 * not USAGE a part may have been written, which the ROLLBACK that has to follow takes back. */
OUTBOX_CHECKED int outbox_writer_record(struct outbox_writer *writer, const struct outbox_event *events, size_t n,
                                        char (*message_ids)[OUTBOX_ID_BYTES], struct outbox_error *error);

/* Does not touch the connection, which may be closed by then; the prepared statement lives as long as the session.  NULL is fine. */
OUTBOX_API void outbox_writer_free(struct outbox_writer *writer);

/* -------------------------------------------------------------------------------------------------- handling messages once */

/* Marks the message as handled by this consumer, within the transaction that is open on conn: *is_first is true the first time only.  When it is
 * false the message was handled, and committed, before: do nothing more about it.  A second transaction that asks while the first is still open waits
 * for its end.  (At isolation level REPEATABLE READ or SERIALIZABLE the second one fails with 40001 instead; start it anew.)
 *
 * table: NULL for processed_messages, as `outboxd init` makes it beside the outbox table.  consumer: any name, one for each purpose that
 * a message is to be handled for once.  Errors: as outbox_record's. */
OUTBOX_CHECKED int outbox_process_once(PGconn *conn, const char *table, const char *message_id, const char *consumer,
                                       bool *is_first, struct outbox_error *error);

/* -------------------------------------------------------------------------------------------------- consuming */

/* A message as a handler is given it.  Everything is borrowed for the call; texts end with a NUL that their number of bytes does not count. */
struct outbox_message {
  const char *message_id;
  const char *aggregate_type;
  const char *aggregate_id;
  const char *event_type;
  const char *payload; /* as PostgreSQL printed it; NULL where the relay writes CloudEvents */
  size_t payload_bytes;
  const char *created_at; /* RFC 3339, UTC, microseconds; NULL where the relay writes CloudEvents */
  const char *headers;    /* JSON; NULL: none */
  size_t headers_bytes;
  const char *cloudevent; /* the JSON envelope; NULL where the relay writes fields */
  size_t cloudevent_bytes;
  const char *stream;   /* the key of the stream it stood in */
  const char *entry_id; /* its id there */
  int lane;
  int attempt; /* from 1 */
  int worker;  /* the thread that handles it, 0 to threads - 1 */
};

/* What a handler made of a message. */
enum outbox_verdict {
  OUTBOX_DONE,  /* commit what was done, and acknowledge the message */
  OUTBOX_RETRY, /* roll back; again later, until --max-attempts, then park it */
  OUTBOX_PARK,  /* roll back; park it at once: another attempt has no point */
  OUTBOX_LATER  /* roll back; again later, without counting an attempt: it is not the message's fault */
};

/* A handler's reason for anything but DONE; emptied before each call. */
struct outbox_failure {
  char text[OUTBOX_TEXT_BYTES];
  int64_t retry_after_ms; /* RETRY, LATER: instead of the pause that the options give; 0: that pause */
};

/* Handles one message.  Called by the consumer's worker threads, by several at a time for different lanes, never at a time for messages of one lane.
 *
 * conn is in a transaction (READ COMMITTED) in which the message is marked as handled: what is written over it is committed together with that mark, or
 * not at all.  It must not be ended by the handler, nor left in pipeline mode or with a statement under way.  Session settings hold as the consumer has
 * made them: TimeZone UTC, statement_timeout and idle_in_transaction_session_timeout of the option session-timeout. */
typedef enum outbox_verdict outbox_handler(void *ctx, PGconn *conn, const struct outbox_message *message,
                                           struct outbox_failure *failure);

/* Reads the streams of a relay as a consumer group, and gives each message to a handler, once, in order for each aggregate. */
struct outbox_consumer;

/* A consumer with the defaults of all options.  Caller: outbox_consumer_free. */
OUTBOX_CHECKED int outbox_consumer_new(struct outbox_consumer **out, struct outbox_error *error);

/* Sets an option: "group" (which has no default), "database", "redis", "stream", "lanes", "threads", "batch", "max-attempts", and the others that
 * outbox-consume(1) lists for consumers, as text as they stand there on a command line.  The library reads no environment but libpq's.
 * USAGE "option" or "usage" says what is wrong.  Before outbox_consumer_run. */
OUTBOX_CHECKED int outbox_consumer_set(struct outbox_consumer *consumer, const char *name, const char *value,
                                       struct outbox_error *error);

/* Runs the workers and blocks until outbox_consumer_stop: then the messages in hand are finished, committed and acknowledged, lanes go to other
 * members of the group.  Outages of either server are waited out.  Signals are the caller's: block them, or handle them, before.
 * 0: stopped so.  -1: it can never work (USAGE; REFUSED: wrong password, no processed_messages, another number of lanes), or messages
 * in hand were not finished within shutdown-timeout (UNAVAILABLE "shutdown_timeout"; they are rolled back, nothing is lost).
 * It returns after the last handler has: one that never returns keeps it.  Once for each consumer. */
OUTBOX_CHECKED int outbox_consumer_run(struct outbox_consumer *consumer, outbox_handler *handle, void *ctx,
                                       struct outbox_error *error);

/* Tells it to stop.  Returns at once; any thread, a handler, a signal handler; more than once is fine. */
OUTBOX_API void outbox_consumer_stop(struct outbox_consumer *consumer);

/* Since outbox_consumer_run; all only grow. */
struct outbox_counts {
  int64_t handled_n;  /* committed */
  int64_t repeated_n; /* handled before, and acknowledged only now */
  int64_t failed_n;   /* attempts that failed */
  int64_t parked_n;
  int64_t lost_n; /* trimmed from the stream before they were handled */
};

/* Any thread. */
OUTBOX_API void outbox_consumer_counts(const struct outbox_consumer *consumer, struct outbox_counts *out);

/* After outbox_consumer_run has returned.  NULL is fine. */
OUTBOX_API void outbox_consumer_free(struct outbox_consumer *consumer);

/* -------------------------------------------------------------------------------------------------- log */

enum outbox_log_level { OUTBOX_DEBUG, OUTBOX_INFO, OUTBOX_WARNING, OUTBOX_ERROR, OUTBOX_CRITICAL };

/* One event, as the line of JSON without a line break that docs/logging.md describes.  Called by any thread, several at a time. */
typedef void outbox_log_writer(void *ctx, enum outbox_log_level level, const char *line, size_t bytes);

/* Where consumers' events go, for the whole process: a level and a function, NULL for nowhere, which is the default.  Before
 * the first outbox_consumer_run. */
OUTBOX_API void outbox_set_log(enum outbox_log_level least, outbox_log_writer *write, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
