/*
 * A TCP port of 127.0.0.1 for a server under test, and a claim on it that other test programs respect.
 */
#ifndef TEST_PORT_H
#define TEST_PORT_H

#include <stdint.h>

struct port {
  int number;
  int claim_fd; /* holds the claim; -1: none */
};

#define PORT_INIT \
  { 0, -1 }

/* Takes a port that nothing listens on now and that no other program of this harness holds.  It lies below the range the kernel gives to
 * outgoing connections: there, a client that tries a server which is down could be given that very port and connect to itself. */
void port_take(struct port *port);

void port_release(struct port *port);

/* Bytes sent to the server on this port that it has not read, in either side's socket buffers. */
int64_t port_unread_bytes(int number);
/* Until at least min_bytes are unread and no more come: what the sender had to say, or what the buffers hold, is under way. */
void port_wait_stuck(int number, int64_t min_bytes, int64_t timeout_ms);

#endif
