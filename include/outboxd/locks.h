/*
 * The advisory locks of the fleet: two int4 keys, the first the table's oid, the second one of these.
 *
 * See docs/architecture.md "Who owns which lane".
 */
#ifndef OUTBOXD_LOCKS_H
#define OUTBOXD_LOCKS_H

#include <stdint.h>

#define LOCKS_GATE 0x10000 /* + lane: exclusive, the owner's lease session */
#define LOCKS_USE \
  0x20000 /* + lane: shared, each claimer of the owner; exclusive for an instant while the lane is taken */
#define LOCKS_MEMBER 0x30000      /* shared, every process's lease session */
#define LOCKS_MAINTENANCE 0x50000 /* exclusive, the cleanup session of the one process that maintains the table */
#define LOCKS_LANE_MASK 0xffff

/* The table's oid as an advisory lock key: the same 32 bits. */
static inline int32_t locks_table_key(uint32_t oid) {
  return (int32_t)oid;
}

#endif
