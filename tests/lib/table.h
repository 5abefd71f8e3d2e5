/*
 * The tables under test: every form the relay claims to work on, and a quick way to fill each.
 */
#ifndef TEST_TABLE_H
#define TEST_TABLE_H

#include <libpq-fe.h>
#include <stdint.h>

#include "stack.h"

enum table_form {
  TABLE_PLAIN, /* as any application would have made it: bigserial, uuid unique, varchar(255), smallint, jsonb, timestamptz */
  TABLE_TEXT_IDS,     /* message_id and aggregate_id of type text, ids that are no uuids */
  TABLE_UUID_IDS,     /* aggregate_id of type uuid */
  TABLE_BIGINT_IDS,   /* aggregate_id and message_id of type bigint */
  TABLE_JSON,         /* payload json: every space and duplicate key is kept */
  TABLE_TEXT_PAYLOAD, /* payload text: need not be JSON at all */
  TABLE_HEADERS,      /* headers jsonb, null in some rows */
  TABLE_LOOSE,        /* created_at timestamp without time zone; all but the key may be null; integer attempts */
  TABLE_50,           /* made by hand: 50 partitions by day, the last 50 days */
  TABLE_INIT,         /* made by outboxd init: partitions by day, ahead of now */
  TABLE_INIT_PLAIN    /* made by outboxd init --plain */
};
#define TABLE_FORMS_N 11

/* "plain", "text ids", ... */
const char *table_form_name(enum table_form form);

/* Makes the table in the stack's database.  name may be schema-qualified and quoted; the schema must exist.  The _INIT forms run outboxd. */
void table_create(struct stack *stack, PGconn *conn, enum table_form form, const char *name);

/* Adds messages_n messages over aggregates_n aggregates in one transaction, on the server: fast.  payload_bytes of padding each. */
void table_fill(PGconn *conn, enum table_form form, const char *name, int64_t messages_n, int64_t aggregates_n,
                int payload_bytes);

/* The file of real events ($OUTBOXD_SHARED, else ../shared, then real/webhooks.jsonl); NULL when it is not there. */
const char *table_real_path(void);

/* Adds every event of such a file, in its order, times over; returns the number of messages.  A plain, partitioned or headers table. */
int64_t table_fill_real(PGconn *conn, const char *name, const char *path, int times);

#endif
