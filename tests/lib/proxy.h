/*
 * A TCP proxy before a server: a network that cuts a connection after any number of bytes, holds it up, or loses all that is sent.
 *
 * A thread of its own, for up to 64 connections.
 */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stdbool.h>
#include <stdint.h>

struct proxy;

enum proxy_direction { PROXY_TO_SERVER, PROXY_TO_CLIENT };

enum proxy_mode {
  PROXY_PASS, /* everything is passed on */
  PROXY_STALL, /* nothing is passed on, nor accepted; what waits is passed on later, also when its sender has closed by then */
  PROXY_DARK /* half-open: what is sent on the connections there are, and on new ones, vanishes, and neither end is told.  They stay
                  so; after PROXY_PASS new ones work */
};

/* Listens on a free port of 127.0.0.1 and passes everything on to server_port.  Caller: proxy_stop. */
struct proxy *proxy_start(int server_port);
/* The same between two unix sockets, the first of which it makes.  Here a piece (proxy_set_chunk) goes only when the one before has been
 * read, so that its receiver gets it alone. */
struct proxy *proxy_start_unix(const char *path, const char *server_path);
void proxy_stop(struct proxy *proxy);
int proxy_port(const struct proxy *proxy);

/* Bytes passed on so far, over all connections, and in how many pieces. */
int64_t proxy_bytes(struct proxy *proxy, enum proxy_direction direction);
int64_t proxy_pieces(struct proxy *proxy, enum proxy_direction direction);

/* Passes on n more bytes in that direction, then cuts the connection (both sides, once): bytes beyond are lost.  -1: no cut after all. */
void proxy_cut_after(struct proxy *proxy, enum proxy_direction direction, int64_t n);

/* True when that has happened. */
bool proxy_has_cut(struct proxy *proxy);

/* From that moment on the mode is PROXY_STALL: whoever connects again gets nowhere. */
void proxy_stall_on_cut(struct proxy *proxy, bool is_wanted);

void proxy_set_mode(struct proxy *proxy, enum proxy_mode mode);

/* Passes on at most so many bytes at a time, 0: as they come.  With 1 a reply arrives in single bytes. */
void proxy_set_chunk(struct proxy *proxy, int bytes);

/* Holds up each piece for so long, 0: not at all. */
void proxy_set_delay(struct proxy *proxy, int ms);

/* Both for one direction only: single bytes, each held up for so long; 0: as they come. */
void proxy_set_trickle(struct proxy *proxy, enum proxy_direction direction, int ms);

#endif
