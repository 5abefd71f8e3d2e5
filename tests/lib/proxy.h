/*
 * A TCP proxy before a server, which can cut a connection after any number of bytes.
 *
 * A thread of its own; one connection at a time is enough for one publisher, but more are served.
 */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stdbool.h>
#include <stdint.h>

struct proxy;

enum proxy_direction { PROXY_TO_SERVER, PROXY_TO_CLIENT };

/* Listens on a free port of 127.0.0.1 and passes everything on to server_port.  Caller: proxy_stop. */
struct proxy *proxy_start(int server_port);
void proxy_stop(struct proxy *proxy);
int proxy_port(const struct proxy *proxy);

/* Bytes passed on so far, over all connections. */
int64_t proxy_bytes(struct proxy *proxy, enum proxy_direction direction);

/* Passes on n more bytes in that direction, then cuts the connection (both sides, once): bytes beyond are lost. */
void proxy_cut_after(struct proxy *proxy, enum proxy_direction direction, int64_t n);

/* True when that has happened. */
bool proxy_has_cut(struct proxy *proxy);

#endif
