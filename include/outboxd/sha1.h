/*
 * SHA-1, for naming a script as EVALSHA wants it; for nothing that must be secure.  Pure, any thread.
 */
#ifndef OUTBOXD_SHA1_H
#define OUTBOXD_SHA1_H

#include <stddef.h>

#define SHA1_HEX_BYTES 41 /* with the NUL */

/* The digest of bytes[0..n) in lower-case hex (FIPS 180-4, section 6.1). */
void sha1_hex(const void *bytes, size_t n, char out[SHA1_HEX_BYTES]);

#endif
