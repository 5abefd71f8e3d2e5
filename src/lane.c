/*
 * A lane's state.
 *
 * Owns its names and its queue's entries; the messages are the batches'.  Runs on its publisher's thread.  Never: does I/O; lets go of a
 * name before the batch that settles it is committed.
 */
#include "outboxd/lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/alloc.h"

#define uthash_fatal(msg) alloc_failed(0)
#define HASH_FUNCTION HASH_FNV /* the default falls through between cases, which our warnings forbid */
#include <uthash.h>

struct inherited {
  UT_hash_handle hh;
  int64_t id;
  int64_t batch_seq; /* the batch that will settle it; 0: not claimed yet */
  size_t bytes;
  char message_id[];
};

struct carried {
  struct carried *next;
  int64_t batch_seq;
  int n;
  struct buf lines;
};

struct stopped {
  UT_hash_handle hh;
  int64_t key;
};

void lane_init(struct lane *lane, int no, struct lane_counts *counts) {
  *lane = (struct lane){.no = no, .state = LANE_CLOSED, .lost_epoch = INT64_MIN, .counts = counts};
  lane->tail = &lane->head;
}

static void clear_stopped(struct lane *lane) {
  struct stopped *stopped = lane->stopped;
  HASH_CLEAR(hh, lane->stopped); /* the elements stay linked */
  while (stopped != NULL) {
    struct stopped *next = stopped->hh.next;
    free(stopped);
    stopped = next;
  }
}

void lane_fini(struct lane *lane) {
  assert(lane->head == NULL);
  lane_forget(lane);
  clear_stopped(lane);
  buf_free(&lane->inherited_lines);
}

void lane_set_state(struct lane *lane, enum lane_state state) {
  switch (state) {
  case LANE_CLOSED:
    break;
  case LANE_READ:
    assert(lane->state != LANE_OPEN);
    break;
  case LANE_OPEN:
    assert(lane->state == LANE_READ);
    break;
  }
  lane->state = state;
}

/* ---- names */

static void add_inherited(struct lane *lane, int64_t id, const char *message_id, size_t bytes, int64_t batch_seq) {
  struct inherited *found = NULL;
  HASH_FIND(hh, lane->inherited, message_id, bytes, found);
  if (found != NULL) {
    return;
  }
  struct inherited *name = alloc_zeroed(sizeof *name + bytes + 1);
  name->id = id;
  name->batch_seq = batch_seq;
  name->bytes = bytes;
  memcpy(name->message_id, message_id, bytes);
  HASH_ADD_KEYPTR(hh, lane->inherited, name->message_id, bytes, name);
  lane->inherited_n++;
  lane->is_inherited_stale = true;
}

static void remove_inherited(struct lane *lane, struct inherited *name) {
  /* The analyzer does not see that the table is freed with its last element only. */
  HASH_DEL(lane->inherited, name); /* NOLINT(clang-analyzer-unix.Malloc) */
  free(name);
  lane->inherited_n--;
  lane->is_inherited_stale = true;
}

static void free_carried(struct carried *carried) {
  buf_free(&carried->lines);
  free(carried);
}

void lane_inherit(struct lane *lane, const struct journal_names *names) {
  for (int i = 0; i < names->n; i++) {
    add_inherited(lane, names->v[i].id, names->v[i].message_id, names->v[i].message_id_bytes, 0);
  }
}

static void clear_inherited(struct lane *lane) {
  struct inherited *name = lane->inherited;
  HASH_CLEAR(hh, lane->inherited);
  while (name != NULL) {
    struct inherited *next = name->hh.next;
    free(name);
    name = next;
  }
  lane->inherited_n = 0;
  lane->is_inherited_stale = true;
}

void lane_forget(struct lane *lane) {
  clear_inherited(lane);
  while (lane->carried != NULL) {
    struct carried *carried = lane->carried;
    lane->carried = carried->next;
    free_carried(carried);
  }
  lane->token[0] = '\0';
  lane->wants_probe = false;
  lane->is_single = false;
  lane->index = LANE_INDEX_WRITTEN;
}

/* The carried lines are our own, so that reading them fails for want of memory only. */
static void inherit_carried(struct lane *lane, const struct carried *carried) {
  struct buf value = BUF_INIT;
  struct journal_names *names = NULL;
  if (buf_append_str(&value, "-\n", NULL) != 0 ||
      buf_append(&value, carried->lines.data, carried->lines.len, NULL) != 0 ||
      journal_parse(value.data, value.len, &names, NULL) != 0) {
    alloc_failed(carried->lines.len);
  }
  for (int i = 0; i < names->n; i++) {
    add_inherited(lane, names->v[i].id, names->v[i].message_id, names->v[i].message_id_bytes, carried->batch_seq);
  }
  journal_names_free(names);
  buf_free(&value);
}

void lane_begin_epoch(struct lane *lane) {
  clear_stopped(lane);
  lane->is_single = false;
  lane->wants_probe = false;
  lane->index = LANE_INDEX_WRITTEN;
  while (lane->carried != NULL) {
    struct carried *carried = lane->carried;
    lane->carried = carried->next;
    inherit_carried(lane, carried);
    free_carried(carried);
  }
}

bool lane_claim_inherited(struct lane *lane, const char *message_id, size_t bytes, int64_t batch_seq) {
  struct inherited *name = NULL;
  if (lane->inherited == NULL) {
    return false;
  }
  HASH_FIND(hh, lane->inherited, message_id, bytes, name);
  if (name == NULL) {
    return false;
  }
  name->batch_seq = batch_seq;
  return true;
}

void lane_carry(struct lane *lane, int64_t batch_seq, const char *lines, size_t bytes, int n) {
  if (n == 0) {
    return;
  }
  struct carried **at = &lane->carried;
  while (*at != NULL && (*at)->batch_seq != batch_seq) {
    at = &(*at)->next;
  }
  if (*at == NULL) {
    *at = alloc_zeroed(sizeof **at);
    (*at)->batch_seq = batch_seq;
  }
  if (buf_append(&(*at)->lines, lines, bytes, NULL) != 0) {
    alloc_failed(bytes);
  }
  (*at)->n += n;
}

void lane_settled(struct lane *lane, int64_t batch_seq) {
  for (struct carried **at = &lane->carried; *at != NULL; at = &(*at)->next) {
    if ((*at)->batch_seq == batch_seq) {
      struct carried *carried = *at;
      *at = carried->next;
      free_carried(carried);
      break;
    }
  }
  struct inherited *next;
  for (struct inherited *name = lane->inherited; name != NULL; name = next) {
    next = name->hh.next;
    if (name->batch_seq == batch_seq) {
      remove_inherited(lane, name);
    }
  }
}

int lane_append_names(struct lane *lane, struct buf *buf, int *n, struct err *err) {
  if (lane->is_inherited_stale) {
    buf_reset(&lane->inherited_lines);
    for (const struct inherited *name = lane->inherited; name != NULL; name = name->hh.next) {
      if (journal_append_name(&lane->inherited_lines, name->id, name->message_id, name->bytes, err) != 0) {
        return -1;
      }
    }
    lane->is_inherited_stale = false;
  }
  *n = lane->inherited_n;
  if (buf_append(buf, lane->inherited_lines.data, lane->inherited_lines.len, err) != 0) {
    return -1;
  }
  for (const struct carried *carried = lane->carried; carried != NULL; carried = carried->next) {
    if (buf_append(buf, carried->lines.data, carried->lines.len, err) != 0) {
      return -1;
    }
    *n += carried->n;
  }
  return 0;
}

/* ---- order */

void lane_stop_aggregate(struct lane *lane, int64_t key) {
  if (lane_is_stopped(lane, key)) {
    return;
  }
  struct stopped *stopped = alloc_zeroed(sizeof *stopped);
  stopped->key = key;
  HASH_ADD(hh, lane->stopped, key, sizeof stopped->key, stopped);
}

bool lane_is_stopped(const struct lane *lane, int64_t key) {
  struct stopped *stopped = NULL;
  if (lane->stopped == NULL) {
    return false;
  }
  HASH_FIND(hh, lane->stopped, &key, sizeof key, stopped);
  return stopped != NULL;
}

/* ---- queue and outcomes */

void lane_queue(struct lane *lane, struct part *part, struct run *run) {
  struct entry *entry = alloc_zeroed(sizeof *entry);
  entry->part = part;
  entry->run = run;
  part->runs_n++;
  *lane->tail = entry;
  lane->tail = &entry->next;
}

struct part *lane_take_finished(struct lane *lane) {
  struct entry *entry = lane->head;
  if (entry == NULL) {
    return NULL;
  }
  while (entry->at < entry->run->n && entry->run->msgs[entry->at].outcome != OUTCOME_NONE) {
    entry->at++;
  }
  if (entry->at < entry->run->n) {
    return NULL;
  }
  struct part *part = entry->part;
  lane->head = entry->next;
  if (lane->head == NULL) {
    lane->tail = &lane->head;
  }
  free(entry);
  part->runs_n--;
  return part;
}

void lane_decide(struct lane *lane, struct msg *msg, enum outcome outcome, const char *text) {
  batch_set_outcome(msg, outcome, text);
  switch (outcome) {
  case OUTCOME_PUBLISHED:
    lane->counts->published_n++;
    return;
  case OUTCOME_FAILED:
    lane->counts->failed_n++;
    break;
  case OUTCOME_WITHHELD:
    lane->counts->withheld_n++;
    break;
  case OUTCOME_NONE:
    assert(false);
    return;
  }
  lane_stop_aggregate(lane, msg->key);
}

void lane_decide_inherited(struct lane *lane, struct msg *msg) {
  batch_set_outcome(msg, OUTCOME_PUBLISHED, NULL);
  lane->counts->inherited_n++;
}

void lane_withhold_all(struct lane *lane, bool is_give_back) {
  for (struct entry *entry = lane->head; entry != NULL; entry = entry->next) {
    entry->part->is_give_back |= is_give_back;
    for (int i = entry->at; i < entry->run->n; i++) {
      if (entry->run->msgs[i].outcome == OUTCOME_NONE) {
        /* The lane is closed as a whole, so that no aggregate needs to be remembered. */
        batch_set_outcome(&entry->run->msgs[i], OUTCOME_WITHHELD, NULL);
        lane->counts->withheld_n++;
      }
    }
  }
}
