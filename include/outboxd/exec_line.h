/*
 * The lines between outbox-consume and a handler: docs/consuming.md "The handler's protocol".
 *
 * Pure, any thread.
 */
#ifndef OUTBOXD_EXEC_LINE_H
#define OUTBOXD_EXEC_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "outbox.h"
#include "outboxd/buf.h"
#include "outboxd/err.h"

/* Appends the message as one line of JSON with its line break.  payload, headers and cloudevent stand in it as they are, line breaks between their parts
 * made spaces; what is no JSON stands as a string under payload_text instead.  has_place: stream and entry_id too.  ERR_RETRY on no memory. */
must_check int exec_line_write(struct buf *line, const struct outbox_message *message, bool has_place, struct err *err);

/* Reads an answer (without its line break): {"ok":true}, {"ok":false,"error":TEXT[,"park":true|"later":true][,"retry_after_ms":N]}, or ok, retry TEXT, park TEXT,
 * later TEXT.  ERR_REJECT: it is none of these. */
must_check int exec_line_read(const char *line, size_t bytes, enum outbox_verdict *verdict,
                              struct outbox_failure *failure, struct err *err);

/* Is it one JSON value, by the grammar of RFC 8259? */
bool exec_line_is_json(const char *bytes, size_t n);

#endif
