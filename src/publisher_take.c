/*
 * A publisher takes lanes over: reads their journals, makes the consumer groups that their streams are to have.
 *
 * Runs on the publisher's thread.  Never: adds to a lane's stream, writes its journal.
 */
#include <stdlib.h>
#include <string.h>

#include "outboxd/alloc.h"
#include "outboxd/clock.h"
#include "outboxd/publisher_impl.h"
#include "outboxd/redis_error.h"

#define TAKE_CONNECTS_MAX 1
#define KEY_BYTES 512

void publisher_fail_take(struct publisher *pub, struct lane *lane, const struct err *err) {
  lane->has_take = false;
  publisher_send_note(pub, (struct note){.kind = NOTE_TAKE_FAILED, .lane = lane->no, .err = *err});
}

void publisher_fail_takes(struct publisher *pub, const struct err *err) {
  for (int i = 0; i < pub->lanes_n; i++) {
    if (pub->lanes[i].has_take) {
      publisher_fail_take(pub, &pub->lanes[i], err);
    }
  }
}

static int ask_journal(struct publisher *pub, const struct lane *lane, struct err *err) {
  char key[KEY_BYTES];
  char *name = key;
  size_t bytes = template_journal_key(pub->template, lane->no, key, sizeof key);
  if (bytes > sizeof key) {
    name = alloc_zeroed(bytes);
    (void)template_journal_key(pub->template, lane->no, name, bytes);
  }
  int rc = redis_pipeline_begin(pub->pipeline, 2, err) != 0 || redis_pipeline_arg(pub->pipeline, "GET", 3, err) != 0 ||
                   redis_pipeline_arg(pub->pipeline, name, bytes, err) != 0
               ? -1
               : 0;
  if (name != key) {
    free(name);
  }
  return rc;
}

/* Makes --ensure-group's groups where a lane has one stream, which is known before it has a message; the others' are made by src/publish.lua. */
static int ask_groups(struct publisher *pub, const struct lane *lane, struct err *err) {
  const struct option_list *groups = &pub->cfg->ensure_groups;
  if (groups->n == 0 || !template_is_per_lane(pub->template)) {
    return 0;
  }
  const struct template_values values = {.lane = lane->no};
  size_t bytes = template_render(pub->template, &values, NULL, 0);
  char *name = alloc_zeroed(bytes + 1);
  (void)template_render(pub->template, &values, name, bytes);
  int rc = 0;
  for (int i = 0; i < groups->n && rc == 0; i++) {
    rc = redis_pipeline_command(pub->pipeline, err, "XGROUP", "CREATE", name, groups->values[i], "0", "MKSTREAM", NULL);
  }
  free(name);
  return rc;
}

/* What the answers say, from command number first on.  -1 when the same may work in a moment: then the lane is taken over again. */
static int read_groups(struct publisher *pub, const struct lane *lane, int first, struct err *err) {
  for (int i = 0; i < pub->cfg->ensure_groups.n; i++) {
    unsigned effects = 0;
    if (!redis_reply_is_error(redis_pipeline_reply(pub->pipeline, first + i), &effects, err) ||
        strcmp(err->code, "BUSYGROUP") == 0) {
      continue;
    }
    if (err->class == ERR_RETRY && (effects & REDIS_EFFECT_ACCESS) == 0) {
      return err_wrap(err, "making consumer groups of lane %d", lane->no);
    }
    round_log_upkeep(lane->no, err->text);
  }
  return 0;
}

static void read_journal(struct publisher *pub, struct lane *lane, const struct redis_reply *reply) {
  struct err err = ERR_INIT;
  struct journal_names *names = NULL;
  if (redis_reply_is_error(reply, NULL, &err)) {
    err.class = ERR_RETRY;
    (void)err_wrap(&err, "reading the journal of lane %d", lane->no);
    publisher_fail_take(pub, lane, &err);
    return;
  }
  size_t bytes;
  const char *value = redis_reply_text(reply, &bytes);
  if (journal_parse(value, bytes, &names, &err) != 0) {
    (void)err_wrap(&err, "reading the journal of lane %d", lane->no);
    publisher_fail_take(pub, lane, &err);
    return;
  }
  lane_forget(lane);
  memcpy(lane->token, names->token, sizeof lane->token);
  lane->has_take = false;
  lane_set_state(lane, LANE_READ);
  publisher_send_note(pub, (struct note){.kind = NOTE_JOURNAL, .lane = lane->no, .names = names});
}

/* Reads the journals that somebody waits for, in one round trip. */
void publisher_take_lanes(struct publisher *pub) {
  struct err err = ERR_INIT;
  const struct net_wait wait = {.deadline_us = clock_now_us() + pub->cfg->redis_timeout_ms * 1000,
                                .stops = {pub->abort, pub->quit}};
  redis_pipeline_reset(pub->pipeline, (size_t)pub->cfg->max_write_bytes);
  for (int i = 0; i < pub->lanes_n; i++) {
    if (pub->lanes[i].has_take &&
        (ask_journal(pub, &pub->lanes[i], &err) != 0 || ask_groups(pub, &pub->lanes[i], &err) != 0)) {
      publisher_fail_takes(pub, &err);
      return;
    }
  }
  if (link_exchange(&pub->link, pub->pipeline, TAKE_CONNECTS_MAX, &wait, &err) != 0) {
    link_down(&pub->link, &err);
    publisher_fail_takes(pub, &err);
    publisher_tell_fatal(pub, &err);
    return;
  }
  int groups_n = template_is_per_lane(pub->template) ? pub->cfg->ensure_groups.n : 0;
  int command = 0;
  for (int i = 0; i < pub->lanes_n; i++) {
    struct lane *lane = &pub->lanes[i];
    if (!lane->has_take) {
      continue;
    }
    if (groups_n > 0 && read_groups(pub, lane, command + 1, &err) != 0) {
      publisher_fail_take(pub, lane, &err);
    } else {
      read_journal(pub, lane, redis_pipeline_reply(pub->pipeline, command));
    }
    command += 1 + groups_n;
  }
}
