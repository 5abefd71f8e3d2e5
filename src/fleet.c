/*
 * The fleet's record: made and compared.
 *
 * Owns nothing.  Any thread.
 */
#include "outboxd/fleet.h"

#include <jansson.h>
#include <string.h>

#define SHOWN_BYTES 200

int fleet_describe(int lanes_n, const char *table, const char *database, char **out, struct err *err) {
  json_t *fleet = json_pack("{s:i, s:s, s:s}", "lanes", lanes_n, "table", table, "database", database);
  *out = fleet != NULL ? json_dumps(fleet, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
  json_decref(fleet);
  return *out != NULL ? 0 : err_set(err, ERR_RETRY, "ENOMEM", "no memory to describe the fleet");
}

int fleet_compare(const char *key, const char *found, size_t bytes, const char *ours, struct err *err) {
  if (bytes == strlen(ours) && memcmp(found, ours, bytes) == 0) {
    return 0;
  }
  return err_set(
      err, ERR_FATAL, "fleet",
      "the relays of these streams run with %.*s (key \"%s\" in Redis), this one with %s: all processes must agree. "
      "To change --lanes stop all relays with SIGTERM, so that they settle what is in flight, delete the key, and "
      "start them with "
      "the new number. For another table or database choose another --stream prefix",
      (int)(bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES), found, key, ours);
}
