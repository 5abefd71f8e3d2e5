/*
 * The mark of a batch and its outcomes as statements, partition by partition.
 *
 * Owns: the parameters while they are sent.  Run by: the coordinator's thread.
 * Never: touches a row by anything but the ctid that the claim's row lock or its snapshot keeps in place.
 */
#include "outboxd/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboxd/buf.h"
#include "outboxd/pgarray.h"

#define STEPS_PER_LEAF 5   /* three PREPAREs, two UPDATEs */
#define STEPS_OF_ALL_MAX 2 /* one before those of the partitions, one behind */
#define LEAVES_MAX ((PG_STEPS_MAX - STEPS_OF_ALL_MAX) / STEPS_PER_LEAF)
#define NAME_BYTES 16

/* Where another session holds a row the mark gives up soon; PostgreSQL has no NOWAIT for an UPDATE.  It is also for how long a session may have to wait
 * until another one has made the partition's file longer, which takes a lock too. */
#define MARK_WAIT "SET LOCAL lock_timeout = '50ms'"
/* What is in Redis already must be settled; the rows are this transaction's own. */
#define SETTLE_WAIT "SET LOCAL lock_timeout = 0"

/* What is written to rows of a partition. */
enum change { CHANGE_NONE, CHANGE_PUBLISHED, CHANGE_FAILED, CHANGE_WITHHELD, CHANGES_N };

struct update {
  int n;
  struct buf places; /* tid[] */
  struct buf errors; /* text[]: CHANGE_FAILED */
  char name[NAME_BYTES];
  const char *values[2];
  int lengths[2];
};

struct group {
  const struct leaf *leaf;
  struct update updates[CHANGES_N]; /* CHANGE_NONE: not used */
};

/* Where the rows of a partition are since they were marked: place and id of each. */
struct marked {
  uint32_t leaf;
  PGresult *rows;
};

struct settle {
  bool is_mark;
  bool is_marked; /* the same transaction has marked the batch */
  /* Where the batch's messages are since they were marked, in the mark's results; NULL for one that was not, and altogether where rows are locked. */
  const unsigned char **places;
  int groups_n;
  struct group *groups;
  int next;                    /* group to hand out next */
  bool is_ended;               /* everything was handed out */
  int steps_n;                 /* of those handed out last */
  long expected[PG_STEPS_MAX]; /* affected rows of each; -1: not checked */
  const struct leaf *leaves[PG_STEPS_MAX];
  struct marked *marked; /* of a mark, once it is there */
  int marked_n;
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
    for (int change = 0; change < CHANGES_N; change++) {
      buf_free(&settle->groups[i].updates[change].places);
      buf_free(&settle->groups[i].updates[change].errors);
    }
  }
  for (int i = 0; i < settle->marked_n; i++) {
    PQclear(settle->marked[i].rows);
  }
  free(settle->marked);
  free(settle->places);
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
  for (int change = 0; change < CHANGES_N; change++) {
    (void)snprintf(group->updates[change].name, NAME_BYTES, "%c%u", "-pfw"[change], oid);
  }
  return group;
}

/* What is to be written to the row of the batch's message. */
static enum change change_of(const struct settle *settle, const struct batch *batch, int index) {
  bool is_marked = settle->places != NULL && settle->places[index] != NULL;
  switch (batch->msgs[index].outcome) {
  case OUTCOME_NONE:
    return settle->is_mark ? CHANGE_PUBLISHED : CHANGE_NONE;
  case OUTCOME_PUBLISHED:
    return is_marked ? CHANGE_NONE : CHANGE_PUBLISHED;
  case OUTCOME_FAILED:
    return CHANGE_FAILED;
  case OUTCOME_WITHHELD:
    return is_marked ? CHANGE_WITHHELD : CHANGE_NONE;
  }
  return CHANGE_NONE;
}

static int count(struct settle *settle, const struct batch *batch, const struct table *table, struct err *err) {
  struct group *group = NULL;
  for (int i = 0; i < batch->n; i++) {
    enum change change = change_of(settle, batch, i);
    if (change == CHANGE_NONE) {
      continue;
    }
    if (group == NULL || group->leaf->oid != batch->msgs[i].leaf) {
      group = group_of(settle, table, batch->msgs[i].leaf, err);
      if (group == NULL) {
        return -1;
      }
    }
    group->updates[change].n++;
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

static int begin_arrays(struct settle *settle, struct err *err) {
  for (int i = 0; i < settle->groups_n; i++) {
    for (int change = 0; change < CHANGES_N; change++) {
      struct update *update = &settle->groups[i].updates[change];
      if (update->n > 0 && (pgarray_begin(&update->places, PGARRAY_TID, update->n, err) != 0 ||
                            pgarray_begin(&update->errors, PGARRAY_TEXT, update->n, err) != 0)) {
        return -1;
      }
    }
  }
  return 0;
}

static void end_arrays(struct settle *settle) {
  for (int i = 0; i < settle->groups_n; i++) {
    for (int change = 0; change < CHANGES_N; change++) {
      struct update *update = &settle->groups[i].updates[change];
      update->values[0] = update->places.data;
      update->lengths[0] = (int)update->places.len;
      update->values[1] = update->errors.data;
      update->lengths[1] = (int)update->errors.len;
    }
  }
}

static int fill(struct settle *settle, const struct batch *batch, struct err *err) {
  struct group *group = NULL;
  if (begin_arrays(settle, err) != 0) {
    return -1;
  }
  for (int i = 0; i < batch->n; i++) {
    const struct msg *msg = &batch->msgs[i];
    enum change change = change_of(settle, batch, i);
    if (change == CHANGE_NONE) {
      continue;
    }
    for (int g = 0; group == NULL || group->leaf->oid != msg->leaf; g++) {
      group = &settle->groups[g]; /* count() made one for every leaf */
    }
    struct update *update = &group->updates[change];
    const unsigned char *place = settle->places != NULL ? settle->places[i] : msg->ctid;
    if (pgarray_bytes(&update->places, place, BATCH_CTID_BYTES, err) != 0 ||
        (change == CHANGE_FAILED &&
         append_error(&update->errors, msg->error != NULL ? msg->error : "refused", err) != 0)) {
      return -1;
    }
  }
  end_arrays(settle);
  return 0;
}

/* Orders messages by partition and id, through pointers. */
static int compare_msgs(const void *a, const void *b) {
  const struct msg *x = *(const struct msg *const *)a;
  const struct msg *y = *(const struct msg *const *)b;
  if (x->leaf != y->leaf) {
    return x->leaf < y->leaf ? -1 : 1;
  }
  return (x->id > y->id) - (x->id < y->id);
}

/* Where the messages of a marked batch are now. */
static int find_places(struct settle *settle, const struct batch *batch, const struct settle *mark, struct err *err) {
  settle->places = calloc((size_t)batch->n, sizeof *settle->places);
  const struct msg **order = malloc((size_t)batch->n * sizeof *order);
  if (settle->places == NULL || order == NULL) {
    free(order);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory to settle a batch");
  }
  for (int i = 0; i < batch->n; i++) {
    order[i] = &batch->msgs[i];
  }
  qsort(order, (size_t)batch->n, sizeof *order, compare_msgs);
  for (int i = 1; i < batch->n; i++) {
    if (compare_msgs(&order[i - 1], &order[i]) == 0) {
      int64_t id = order[i]->id;
      free(order);
      return err_set(err, ERR_RETRY, "same_id",
                     "two pending rows of one partition have the id %lld: which of them was marked where cannot be "
                     "told, the batch is claimed again with its rows locked",
                     (long long)id);
    }
  }
  for (int m = 0; m < mark->marked_n; m++) {
    PGresult *rows = mark->marked[m].rows;
    for (int row = 0; row < PQntuples(rows); row++) {
      const struct msg key = {.id = pg_get_int64(rows, row, 1), .leaf = mark->marked[m].leaf};
      const struct msg *wanted = &key;
      const struct msg *const *found = bsearch(&wanted, order, (size_t)batch->n, sizeof *order, compare_msgs);
      if (found != NULL) {
        settle->places[*found - batch->msgs] = (const unsigned char *)PQgetvalue(rows, row, 0);
      }
    }
  }
  free(order);
  return 0;
}

static int make(struct settle *settle, const struct batch *batch, const struct table *table, struct settle **out,
                struct err *err) {
  if (count(settle, batch, table, err) != 0 || fill(settle, batch, err) != 0) {
    settle_free(settle);
    return -1;
  }
  *out = settle;
  return 0;
}

static struct settle *new_settle(struct err *err) {
  struct settle *settle = calloc(1, sizeof *settle);
  if (settle == NULL) {
    (void)err_set(err, ERR_RETRY, "ENOMEM", "no memory to settle a batch");
  }
  return settle;
}

int settle_new_mark(const struct batch *batch, const struct table *table, struct settle **out, struct err *err) {
  *out = NULL;
  struct settle *settle = new_settle(err);
  if (settle == NULL) {
    return -1;
  }
  settle->is_mark = true;
  return make(settle, batch, table, out, err);
}

int settle_new(const struct batch *batch, const struct table *table, const struct settle *mark, struct settle **out,
               struct err *err) {
  *out = NULL;
  struct settle *settle = new_settle(err);
  if (settle == NULL) {
    return -1;
  }
  settle->is_marked = mark != NULL;
  if (mark != NULL && batch_is_all_published(batch)) {
    *out = settle; /* there is nothing to write but the COMMIT */
    return 0;
  }
  if (mark != NULL && find_places(settle, batch, mark, err) != 0) {
    settle_free(settle);
    return -1;
  }
  return make(settle, batch, table, out, err);
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
                     const struct leaf *leaf) {
  steps[settle->steps_n] = step;
  settle->expected[settle->steps_n] = expected;
  settle->leaves[settle->steps_n] = leaf;
  settle->steps_n++;
}

static void add_query(struct settle *settle, struct pg_step *steps, const char *sql) {
  add_step(settle, steps, (struct pg_step){.kind = PG_QUERY, .sql = sql}, -1, NULL);
}

static int prepare(struct settle *settle, const struct group *group, struct settle_prepared *prepared,
                   struct pg_step *steps, struct err *err) {
  const struct leaf *leaf = group->leaf;
  const char *const sql[CHANGES_N] = {NULL, leaf->settle_published, leaf->settle_failed, leaf->settle_withheld};
  if (is_prepared(prepared, leaf->oid)) {
    return 0;
  }
  if (remember_prepared(prepared, leaf->oid, err) != 0) {
    return -1;
  }
  for (int change = CHANGE_PUBLISHED; change < CHANGES_N; change++) {
    add_step(settle, steps,
             (struct pg_step){.kind = PG_PREPARE, .name = group->updates[change].name, .sql = sql[change]}, -1, leaf);
  }
  return 0;
}

static void execute(struct settle *settle, const struct group *group, struct pg_step *steps) {
  for (int change = CHANGE_PUBLISHED; change < CHANGES_N; change++) {
    const struct update *update = &group->updates[change];
    if (update->n == 0) {
      continue;
    }
    add_step(settle, steps,
             (struct pg_step){.kind = PG_EXECUTE,
                              .name = update->name,
                              .params_n = change == CHANGE_FAILED ? 2 : 1,
                              .values = update->values,
                              .lengths = update->lengths,
                              .formats = binary_formats,
                              .is_binary_result = true},
             update->n, group->leaf);
  }
}

int settle_next(struct settle *settle, struct settle_prepared *prepared, struct pg_step *steps, struct err *err) {
  settle->steps_n = 0;
  if (settle->is_ended) {
    return 0;
  }
  if (settle->next == 0 && settle->groups_n > 0 && (settle->is_mark || settle->is_marked)) {
    add_query(settle, steps, settle->is_mark ? MARK_WAIT : SETTLE_WAIT);
  }
  int left_n = settle->groups_n - settle->next;
  int end = settle->next + (left_n < LEAVES_MAX ? left_n : LEAVES_MAX);
  /* First, so that all are prepared when an UPDATE fails: a mark may, and the session goes on. */
  for (int i = settle->next; i < end; i++) {
    if (prepare(settle, &settle->groups[i], prepared, steps, err) != 0) {
      return -1;
    }
  }
  for (; settle->next < end; settle->next++) {
    execute(settle, &settle->groups[settle->next], steps);
  }
  settle->is_ended = settle->next == settle->groups_n;
  if (settle->is_ended && !settle->is_mark) {
    add_query(settle, steps, "COMMIT");
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
          "%ld of %ld claimed rows of %s could be marked; does a trigger, a rule or row security on the table "
          "keep updates of published_at, attempts or last_error from happening?",
          affected, settle->expected[i], settle->leaves[i]->name);
    }
  }
  return 0;
}

int settle_keep_places(struct settle *settle, struct pg *pg, struct err *err) {
  for (int i = 0; i < settle->steps_n; i++) {
    if (settle->expected[i] < 0) {
      continue;
    }
    struct marked *grown = realloc(settle->marked, ((size_t)settle->marked_n + 1) * sizeof *grown);
    if (grown == NULL) {
      return err_set(err, ERR_RETRY, "ENOMEM", "no memory for the places of marked rows");
    }
    settle->marked = grown;
    settle->marked[settle->marked_n++] = (struct marked){.leaf = settle->leaves[i]->oid, .rows = pg_take_result(pg, i)};
  }
  return 0;
}
