/*
 * What every process of a fleet has to agree on, as it stands in Redis beside the streams.
 *
 * Pure functions, any thread.
 */
#ifndef OUTBOXD_FLEET_H
#define OUTBOXD_FLEET_H

#include <stddef.h>

#include "outboxd/err.h"

/* The record: {"lanes":16,"table":"public.outbox_messages","database":"app"}.  table is quoted, with its schema.  *out is the caller's to free.
 * ERR_RETRY on no memory. */
must_check int fleet_describe(int lanes_n, const char *table, const char *database, char **out, struct err *err);

/* Compares what was found (bytes long) under key with ours: ERR_FATAL "fleet" says what differs and how to change it. */
must_check int fleet_compare(const char *key, const char *found, size_t bytes, const char *ours, struct err *err);

#endif
