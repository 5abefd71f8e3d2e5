/*
 * The datagrams of sd_notify(3): how a service tells systemd that it is ready, how it is, and that it is alive.
 *
 * Knows the socket and the form of a message, not what there is to say (service.h).  A struct belongs to one thread.
 * Never: blocks.
 */
#ifndef OUTBOXD_SYSTEMD_H
#define OUTBOXD_SYSTEMD_H

#include <stddef.h>
#include <stdint.h>

#include "outboxd/err.h"

#define SYSTEMD_MESSAGE_BYTES 2048 /* longest message, with its terminating zero */

struct systemd;

/* Takes $NOTIFY_SOCKET (a path, or an abstract name that begins with @), $WATCHDOG_USEC and $WATCHDOG_PID and removes them from the environment.  *out is
 * NULL, with 0, when nobody is to be told.  ERR_RETRY: the socket named cannot be used.  Before other threads exist.  Caller: systemd_free. */
must_check int systemd_open(struct systemd **out, struct err *err);
void systemd_free(struct systemd *systemd);

/* Within how many microseconds systemd wants WATCHDOG=1, again and again; 0: it does not. */
int64_t systemd_watchdog_us(const struct systemd *systemd);

/* Sends lines ("READY=1\nSTATUS=...", see systemd_line).  ERR_RETRY: not sent; EAGAIN when systemd is behind with reading, any other code when
 * nobody listens there. */
must_check int systemd_send(const struct systemd *systemd, const char *lines, struct err *err);

/* Adds "name=value" as a line to the message in lines (n bytes), with control characters in value made into spaces.  A value that does not fit is cut at a
 * character's (UTF-8) end; a line whose name does not fit is left out. */
void systemd_line(char *lines, size_t n, const char *name, const char *value);

#endif
