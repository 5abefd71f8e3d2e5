/*
 * A service manager's ear: a socket like systemd's $NOTIFY_SOCKET that keeps every datagram.
 *
 * Main thread only; one at a time.  The kernel keeps few datagrams that are not read, so look often.
 */
#ifndef TEST_MANAGER_H
#define TEST_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

struct manager;

/* Listens at name (a path, or abstract with @), and puts NOTIFY_SOCKET, and with watchdog_ms > 0 WATCHDOG_USEC, into the environment of what is started
 * from now on.  Fails the test when it cannot. */
struct manager *manager_start(const char *name, int64_t watchdog_ms);

/* Takes the variables out of the environment, closes, frees; NULL is fine. */
void manager_stop(struct manager *manager);

/* Reads what has come. */
void manager_look(struct manager *manager);

/* How many datagrams have had a line that begins with this, so far; looks first. */
int manager_count(struct manager *manager, const char *line);

/* Number of the first datagram with such a line, from 0; -1: none. */
int manager_first(struct manager *manager, const char *line);

/* The status as told last; "" before.  Borrowed until the next call. */
const char *manager_status(struct manager *manager);

/* Waits until that holds a part; fails the test after timeout_ms (scaled). */
void manager_wait_status(struct manager *manager, const char *part, int64_t timeout_ms);

/* Waits until manager_count is at least n; fails the test after timeout_ms (scaled). */
void manager_wait(struct manager *manager, const char *line, int n, int64_t timeout_ms);

#endif
