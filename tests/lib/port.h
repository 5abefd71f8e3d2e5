/*
 * A TCP port of 127.0.0.1 for a server under test, and a claim on it that other test programs respect.
 */
#ifndef TEST_PORT_H
#define TEST_PORT_H

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

#endif
