/*
 * The stream name's template, compiled once: outbox:{%l}:%t:%i and its like.
 *
 * A template is a prefix without braces, then the hash tag {%l}, then anything: so that a lane's streams and its
 * journal lie in one Redis hash slot whatever stands in the data.  Immutable after template_parse; any thread.
 */
#ifndef OUTBOXD_TEMPLATE_H
#define OUTBOXD_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "outboxd/err.h"

struct template;

struct template_values {
  int lane;
  const char *aggregate_type;
  size_t aggregate_type_bytes;
  const char *aggregate_id;
  size_t aggregate_id_bytes;
  const char *event_type;
  size_t event_type_bytes;
};

/* %l lane, %t aggregate_type, %i aggregate_id, %e event_type, %% percent.  ERR_USAGE says what is wrong and gives a right example:
 * no {%l}; a brace or another placeholder before it; an unknown %x; a lone % at the end.  Caller: template_free. */
must_check int template_parse(const char *text, struct template **out, struct err *err);
void template_free(struct template *template);

/* True when a lane has one stream only (no placeholder but %l and %%). */
bool template_is_per_lane(const struct template *template);

/* Renders into buf (cap bytes, no NUL added); returns the full length even when it did not fit, as snprintf does. */
size_t template_render(const struct template *template, const struct template_values *values, char *buf, size_t cap);

/* "<prefix>{<lane>}:journal"; same convention. */
size_t template_journal_key(const struct template *template, int lane, char *buf, size_t cap);

/* "<prefix>{<lane>}:streams": the index of the names of a lane's streams, for templates with more than one stream a lane; same convention. */
size_t template_index_key(const struct template *template, int lane, char *buf, size_t cap);

/* What names the index, for template_lane_key. */
#define TEMPLATE_INDEX_TAIL "streams"

/* "<prefix>{<lane>}:<tail>": other keys of a lane, in the same hash slot; same convention. */
size_t template_lane_key(const struct template *template, int lane, const char *tail, char *buf, size_t cap);

/* "<prefix>lanes": where the fleet's number of lanes is recorded. */
size_t template_lanes_key(const struct template *template, char *buf, size_t cap);

/* Patterns for Redis' ACL (~pattern, glob style) that fit all streams, all journals, all indexes, the key of the number of lanes; same convention. */
size_t template_stream_pattern(const struct template *template, char *buf, size_t cap);
size_t template_journal_pattern(const struct template *template, char *buf, size_t cap);
size_t template_index_pattern(const struct template *template, char *buf, size_t cap);
size_t template_lanes_pattern(const struct template *template, char *buf, size_t cap);

#endif
