/*
 * Memory for the small things without which a thread cannot keep its word: a note that must be sent, a name that must be carried.
 *
 * A few dozen bytes are refused by the system only when the process is lost anyway; then it ends at once, which is safe: the
 * journal and the row locks see to it (docs/architecture.md "The journal").  Everything of a size that data decides is allocated with
 * an error return instead.
 */
#ifndef OUTBOXD_ALLOC_H
#define OUTBOXD_ALLOC_H

#include <stddef.h>

/* Zeroed memory, never NULL; logs `out_of_memory` and aborts instead.  Caller: free. */
void *alloc_zeroed(size_t bytes);

/* What alloc_zeroed does on failure. */
_Noreturn void alloc_failed(size_t bytes);

#endif
