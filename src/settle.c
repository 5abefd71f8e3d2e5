/*
 * The outcomes of a batch as statements, partition by partition.
 *
 * Owns: the parameters while they are sent.  Run by: the coordinator's thread.
 * Never: touches a row by anything but the ctid that the claim's row lock keeps in place.
 */
#include "outboxd/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/buf.h"
#include "outboxd/pgarray.h"

#define STEPS_PER_LEAF 4 /* two PREPAREs, two UPDATEs */
#define NAME_BYTES 16

struct group {
  const struct leaf *leaf;
  int published_n;
  int failed_n;
  struct buf published; /* tid[] */
  struct buf failed;    /* tid[] */
  struct buf errors;    /* text[] */
  char published_name[NAME_BYTES];
  char failed_name[NAME_BYTES];
  const char *published_values[1];
  int published_lengths[1];
  const char *failed_values[2];
  int failed_lengths[2];
};

struct settle {
  int groups_n;
  struct group *groups;
  int next;                    /* group to hand out next */
  bool is_committed;           /* the COMMIT was handed out */
  int steps_n;                 /* of those handed out last */
  long expected[PG_STEPS_MAX]; /* affected rows of each; -1: not checked */
  const char *names[PG_STEPS_MAX];
};

static const int binary_formats[2] = {1, 1};

void settle_prepared_clear(struct settle_prepared *prepared) {
  free(prepared->oids);
  prepared->oids = NULL;
  prepared->n = 0;
}

void settle_free(struct settle *settle) {
  if (settle == NULL) {
    return;
  }
  for (int i = 0; i < settle->groups_n; i++) {
    buf_free(&settle->groups[i].published);
    buf_free(&settle->groups[i].failed);
    buf_free(&settle->groups[i].errors);
  }
  free(settle->groups);
  free(settle);
}

/* The group of a leaf, made when it is new.  A batch rarely touches more than two partitions. */
static struct group *group_of(struct settle *settle, const struct table *table, uint32_t oid, struct err *err) {
  for (int i = settle->groups_n - 1; i >= 0; i--) {
    if (settle->groups[i].leaf->oid == oid) {
      return &settle->groups[i];
    }
  }
  const struct leaf *leaf = table_find_leaf(table, oid);
  if (leaf == NULL) {
    (void)err_set(err, ERR_BUG, "leaf", "partition %u was claimed from but never looked up", oid);
    return NULL;
  }
  struct group *grown = realloc(settle->groups, ((size_t)settle->groups_n + 1) * sizeof *grown);
  if (grown == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory to settle a batch");
    return NULL;
  }
  settle->groups = grown;
  struct group *group = &grown[settle->groups_n++];
  memset(group, 0, sizeof *group);
  group->leaf = leaf;
  (void)snprintf(group->published_name, NAME_BYTES, "p%u", oid);
  (void)snprintf(group->failed_name, NAME_BYTES, "f%u", oid);
  return group;
}

static int count(struct settle *settle, const struct batch *batch, const struct table *table, struct err *err) {
  struct group *group = NULL;
  for (int i = 0; i < batch->n; i++) {
    const struct msg *msg = &batch->msgs[i];
    if (msg->outcome != OUTCOME_PUBLISHED && msg->outcome != OUTCOME_FAILED) {
      continue;
    }
    if (group == NULL || group->leaf->oid != msg->leaf) {
      group = group_of(settle, table, msg->leaf, err);
      if (group == NULL) {
        return -1;
      }
    }
    if (msg->outcome == OUTCOME_PUBLISHED) {
      group->published_n++;
    } else {
      group->failed_n++;
    }
  }
  return 0;
}

/* Redis' words may quote keys: bytes that are no ASCII text are shown as '?', so that the text fits any database encoding. */
static int append_error(struct buf *errors, const char *text, struct err *err) {
  char clean[1001];
  size_t n = 0;
  for (; text[n] != '\0' && n + 1 < sizeof clean; n++) {
    clean[n] = (char)(text[n] >= ' ' && text[n] < 0x7f ? text[n] : '?');
  }
  return pgarray_bytes(errors, clean, n, err);
}

static int fill(struct settle *settle, const struct batch *batch, struct err *err) {
  for (int i = 0; i < settle->groups_n; i++) {
    struct group *group = &settle->groups[i];
    if (pgarray_begin(&group->published, PGARRAY_TID, group->published_n, err) != 0 ||
        pgarray_begin(&group->failed, PGARRAY_TID, group->failed_n, err) != 0 ||
        pgarray_begin(&group->errors, PGARRAY_TEXT, group->failed_n, err) != 0) {
      return -1;
    }
  }
  struct group *group = NULL;
  for (int i = 0; i < batch->n; i++) {
    const struct msg *msg = &batch->msgs[i];
    if (msg->outcome != OUTCOME_PUBLISHED && msg->outcome != OUTCOME_FAILED) {
      continue;
    }
    for (int g = 0; group == NULL || group->leaf->oid != msg->leaf; g++) {
      group = &settle->groups[g]; /* count() made one for every leaf */
    }
    bool is_published = msg->outcome == OUTCOME_PUBLISHED;
    if (pgarray_bytes(is_published ? &group->published : &group->failed, msg->ctid, sizeof msg->ctid, err) != 0 ||
        (!is_published && append_error(&group->errors, msg->error != NULL ? msg->error : "refused", err) != 0)) {
      return -1;
    }
  }
  for (int i = 0; i < settle->groups_n; i++) {
    group = &settle->groups[i];
    group->published_values[0] = group->published.data;
    group->published_lengths[0] = (int)group->published.len;
    group->failed_values[0] = group->failed.data;
    group->failed_lengths[0] = (int)group->failed.len;
    group->failed_values[1] = group->errors.data;
    group->failed_lengths[1] = (int)group->errors.len;
  }
  return 0;
}

int settle_new(const struct batch *batch, const struct table *table, struct settle **out, struct err *err) {
  *out = NULL;
  struct settle *settle = calloc(1, sizeof *settle);
  if (settle == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory to settle a batch");
  }
  if (count(settle, batch, table, err) != 0 || fill(settle, batch, err) != 0) {
    settle_free(settle);
    return -1;
  }
  *out = settle;
  return 0;
}

static bool is_prepared(const struct settle_prepared *prepared, uint32_t oid) {
  for (int i = 0; i < prepared->n; i++) {
    if (prepared->oids[i] == oid) {
      return true;
    }
  }
  return false;
}

static int remember_prepared(struct settle_prepared *prepared, uint32_t oid, struct err *err) {
  uint32_t *grown = realloc(prepared->oids, ((size_t)prepared->n + 1) * sizeof *grown);
  if (grown == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory to remember a prepared statement");
  }
  prepared->oids = grown;
  prepared->oids[prepared->n++] = oid;
  return 0;
}

static void add_step(struct settle *settle, struct pg_step *steps, struct pg_step step, long expected,
                     const char *leaf) {
  steps[settle->steps_n] = step;
  settle->expected[settle->steps_n] = expected;
  settle->names[settle->steps_n] = leaf;
  settle->steps_n++;
}

static void add_update(struct settle *settle, struct pg_step *steps, const char *name, int params_n,
                       const char *const *values, const int *lengths, long expected, const char *leaf) {
  add_step(settle, steps,
           (struct pg_step){.kind = PG_EXECUTE,
                            .name = name,
                            .params_n = params_n,
                            .values = values,
                            .lengths = lengths,
                            .formats = binary_formats},
           expected, leaf);
}

int settle_next(struct settle *settle, struct settle_prepared *prepared, struct pg_step *steps, struct err *err) {
  settle->steps_n = 0;
  if (settle->is_committed) {
    return 0;
  }
  for (; settle->next < settle->groups_n && settle->steps_n + STEPS_PER_LEAF < PG_STEPS_MAX; settle->next++) {
    const struct group *group = &settle->groups[settle->next];
    const struct leaf *leaf = group->leaf;
    if (!is_prepared(prepared, leaf->oid)) {
      if (remember_prepared(prepared, leaf->oid, err) != 0) {
        return -1;
      }
      add_step(settle, steps,
               (struct pg_step){.kind = PG_PREPARE, .name = group->published_name, .sql = leaf->settle_published}, -1,
               leaf->name);
      add_step(settle, steps,
               (struct pg_step){.kind = PG_PREPARE, .name = group->failed_name, .sql = leaf->settle_failed}, -1,
               leaf->name);
    }
    if (group->published_n > 0) {
      add_update(settle, steps, group->published_name, 1, group->published_values, group->published_lengths,
                 group->published_n, leaf->name);
    }
    if (group->failed_n > 0) {
      add_update(settle, steps, group->failed_name, 2, group->failed_values, group->failed_lengths, group->failed_n,
                 leaf->name);
    }
  }
  if (settle->next == settle->groups_n) {
    add_step(settle, steps, (struct pg_step){.kind = PG_QUERY, .sql = "COMMIT"}, -1, "");
    settle->is_committed = true;
  }
  return settle->steps_n;
}

int settle_check(const struct settle *settle, const struct pg_reply *reply, struct err *err) {
  for (int i = 0; i < settle->steps_n; i++) {
    if (settle->expected[i] < 0) {
      continue;
    }
    long affected = reply->results[i] != NULL ? strtol(PQcmdTuples(reply->results[i]), NULL, 10) : 0;
    if (affected != settle->expected[i]) {
      return err_set(
          err, ERR_BUG, "settle_count",
          "%ld of %ld locked rows of %s could be marked; does a trigger, a rule or row security on the table "
          "keep updates of published_at, attempts or last_error from happening?",
          affected, settle->expected[i], settle->names[i]);
    }
  }
  return 0;
}
