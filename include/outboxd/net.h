/*
 * A stream socket that never blocks longer than its wait allows.
 *
 * Knows TCP and unix sockets and nothing of what is spoken over them.  A socket belongs to one thread.
 */
#ifndef OUTBOXD_NET_H
#define OUTBOXD_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"
#include "outboxd/stop.h"

/* How long a blocking call may take, and what ends it early (code "stopped"): NULL elements are none. */
struct net_wait {
  int64_t deadline_us; /* clock_now_us */
  const struct stop *stops[2];
};

/* True when one of the wait's stop tokens is set. */
bool net_is_stopped(const struct net_wait *wait);

/* Waits until fd (may be -1: only time passes) has one of events (poll(2)) or an error.  ERR_RETRY "ETIMEDOUT" at the deadline, "stopped" when
 * a stop token is set. */
must_check int net_poll(int fd, short events, const struct net_wait *wait, struct err *err);

/* Connects to host:port, each address of the name in turn with a fair share of the time, or to the unix socket path unless that is NULL.
 * The socket is non-blocking and close-on-exec; TCP gets TCP_NODELAY, keepalive and TCP_USER_TIMEOUT (idle_ms: unanswered bytes for that
 * long break the connection).  ERR_RETRY.  A name is resolved by a thread of its own, so that a dead resolver holds nothing up. */
must_check int net_connect(const char *host, int port, const char *path, int64_t idle_ms, const struct net_wait *wait,
                           int *out_fd, struct err *err);

#endif
