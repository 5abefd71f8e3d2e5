/*
 * SHA-1 as FIPS 180-4 has it.
 *
 * Owns nothing; any thread.
 */
#include "outboxd/sha1.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 64

static uint32_t rotate(uint32_t x, unsigned n) {
  return (x << n) | (x >> (32 - n));
}

static void add_block(uint32_t h[5], const unsigned char block[BLOCK_BYTES]) {
  uint32_t w[80];
  for (size_t t = 0; t < 16; t++) {
    const unsigned char *p = block + 4 * t;
    w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
  }
  for (size_t t = 16; t < 80; t++) {
    w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  }
  uint32_t a = h[0];
  uint32_t b = h[1];
  uint32_t c = h[2];
  uint32_t d = h[3];
  uint32_t e = h[4];
  for (size_t t = 0; t < 80; t++) {
    uint32_t f = t < 20 ? (b & c) | (~b & d) : t < 40 || t >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
    uint32_t k = t < 20 ? 0x5a827999u : t < 40 ? 0x6ed9eba1u : t < 60 ? 0x8f1bbcdcu : 0xca62c1d6u;
    uint32_t next = rotate(a, 5) + f + e + k + w[t];
    e = d;
    d = c;
    c = rotate(b, 30);
    b = a;
    a = next;
  }
  h[0] += a;
  h[1] += b;
  h[2] += c;
  h[3] += d;
  h[4] += e;
}

void sha1_hex(const void *bytes, size_t n, char out[SHA1_HEX_BYTES]) {
  uint32_t h[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
  const unsigned char *at = bytes;
  size_t left = n;
  for (; left >= BLOCK_BYTES; at += BLOCK_BYTES, left -= BLOCK_BYTES) {
    add_block(h, at);
  }
  /* The rest, a 1 bit, zeros, the length in bits. */
  unsigned char tail[2 * BLOCK_BYTES] = {0};
  if (left > 0) {
    memcpy(tail, at, left);
  }
  tail[left] = 0x80;
  size_t tail_bytes = left + 1 + 8 <= BLOCK_BYTES ? BLOCK_BYTES : 2 * BLOCK_BYTES;
  uint64_t bits = (uint64_t)n * 8;
  for (size_t i = 0; i < 8; i++) {
    tail[tail_bytes - 1 - i] = (unsigned char)(bits >> (8 * i));
  }
  for (size_t i = 0; i < tail_bytes; i += BLOCK_BYTES) {
    add_block(h, tail + i);
  }
  for (size_t i = 0; i < 5; i++) {
    (void)snprintf(out + 8 * i, 9, "%08x", h[i]);
  }
}
