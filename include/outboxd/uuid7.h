/*
 * Version 7 uuids (RFC 9562, section 5.7): time-ordered, strictly ascending within the process.
 *
 * Any thread; the state is one atomic number.
 */
#ifndef OUTBOXD_UUID7_H
#define OUTBOXD_UUID7_H

#include "outboxd/err.h"

#define UUID7_TEXT_BYTES 37

/* Writes one in canonical form.  The 48 bits of milliseconds are followed by 12 bits of the millisecond's fraction, as PostgreSQL 18's uuidv7()
 * has it, and 62 random ones.  ERR_RETRY when the system gives no random numbers. */
must_check int uuid7_make(char out[UUID7_TEXT_BYTES], struct err *err);

#endif
