/*
 * The fault driver: relays, writers and two servers under a schedule of faults; afterwards everything is healed and checked.
 *
 * One run at a time.  Main thread.  How it is used: docs/testing.md "Faults".
 */
#ifndef TEST_FAULTS_H
#define TEST_FAULTS_H

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "check.h"
#include "prng.h"
#include "proxy.h"
#include "relay.h"
#include "stack.h"
#include "writer.h"

#define FAULTS_TABLE "outbox_messages"
#define FAULTS_SLOTS_N 3 /* processes at most */
#define FAULTS_LANES_N 16
#define FAULTS_USER "relay" /* at both servers: what is done to it does not hit the driver */
#define FAULTS_PASSWORD "secret"
#define FAULTS_KINDS_MAX 48
#define FAULTS_RECOVERIES_MAX 4096

/* What the stack of a run needs. */
extern const struct stack_options faults_stack_options;

struct faults_options {
  int relays_n; /* 1..2; a third may join; 0: 2 */
  int rate;     /* messages a second; 0: 1000 */
  uint64_t seed;
  bool is_short; /* faults are held for little more than their least time */
};

/* A place for one process, with networks of its own. */
struct faults_slot {
  struct relay *relay; /* NULL: none */
  struct proxy *redis_net, *pg_net;
  char conninfo[STACK_URL_BYTES], redis_url[STACK_URL_BYTES];
  bool is_frozen;
  bool is_ending; /* was told to */
};

struct faults_recoveries {
  int n;
  int32_t first_ms[FAULTS_RECOVERIES_MAX]; /* from healed to the first message published that was written after */
  int32_t all_ms[FAULTS_RECOVERIES_MAX];   /* ... to the last one of those pending when healed */
};

struct faults {
  struct stack *stack;
  struct faults_options options;
  char conninfo[STACK_URL_BYTES + 64]; /* of the driver and the writers: read-only defaults do not hit them */
  struct faults_slot slots[FAULTS_SLOTS_N];
  struct writer *writer; /* NULL: no load */
  int loads_n;
  struct writer_result written; /* of the loads that have ended */
  struct prng prng;             /* of the fault that is being done */
  int victim;                   /* slot that what is being done or undone is about */
  int lane;                     /* the same for a lane */
  PGconn *locker;               /* holds foreign locks; NULL: none */
  int64_t pause_end_ms;
  redisContext *loader, *loader_control; /* while Redis loads its AOF again */
  int restarts_n, pg_restarts_n, redis_restarts_n;
  int64_t checked_n, found_n[CHECK_KINDS_N]; /* messages, and what was wrong with them */
  int steps_n;
  bool can_refuse;         /* some fault refused messages: attempts may have been burnt */
  bool is_servers_touched; /* this step has faults of the servers or the network too */
  int64_t started_ms;
  FILE *schedule;
  int applied_n[FAULTS_KINDS_MAX], missed_n[FAULTS_KINDS_MAX];
  struct faults_recoveries alone[FAULTS_KINDS_MAX]; /* steps of this fault only */
  struct faults_recoveries mixed;
};

/* When something is healed: servers first, then what keeps them from answering, their settings, keys and rights, then the relays. */
enum fault_order { HEAL_SERVER, HEAL_LOADING, HEAL_SETTING, HEAL_KEY, HEAL_RELAY };

struct fault {
  const char *name;
  enum fault_order order;
  int hold_min_ms, hold_max_ms;
  bool can_refuse; /* messages are refused meanwhile, and attempts burnt */
  bool is_alone;   /* promises nothing together with others: not in mixtures */
  /* False: not possible now, since another fault has its object, and nothing was done.  What is done by half is to be healed: true. */
  bool (*apply)(struct faults *faults);
  void (*heal)(struct faults *faults); /* NULL: heals by itself */
};

extern const struct fault faults_kinds[];
extern const int faults_kinds_n;

/* NULL: there is none of this name. */
const struct fault *faults_find(const char *name);

/* Table, relays, networks, load.  The stack is clean and was started with faults_stack_options.  Caller: faults_end. */
struct faults *faults_begin(struct stack *stack, const struct faults_options *options);

/* Applies kinds one after the other, holds them, heals all; then, with is_waited, waits for the recovery and measures it.  All that is
 * random in it follows from step_seed. */
void faults_step(struct faults *faults, const struct fault *const *kinds, int n, uint64_t step_seed, bool is_waited);

/* A step of one to three kinds drawn from step_seed. */
void faults_random_step(struct faults *faults, uint64_t step_seed);

/* A load again, after faults_check. */
void faults_load(struct faults *faults);

/* Stops the load, lets the relays run empty, checks everything since the last check and takes it away.  Fails with the first offender's
 * history. */
struct check_report faults_check(struct faults *faults);

/* Checks when there is a load, stops the relays, prints the summary, frees. */
void faults_end(struct faults *faults);

/* How long the last recovery took that was measured after this fault alone. */
struct faults_recovery {
  int64_t first_ms, all_ms;
};
struct faults_recovery faults_last_recovery(const struct faults *faults, const struct fault *fault);

void faults_start_relay(struct faults *faults, int index);
/* Milliseconds until all that is pending now is published, and one more that is written from now on (*first_ms). */
int64_t faults_wait_recovery(struct faults *faults, int64_t *first_ms);
/* Both servers as the driver reaches them: false when the server is down, frozen, or refuses. */
bool faults_sql(struct faults *faults, const char *sql);
bool faults_redis(struct faults *faults, const char *fmt, ...);
bool faults_pg_is_up(struct faults *faults);
bool faults_redis_is_up(struct faults *faults);

/* Prints all that is known about the message that text names: its row, its entries, the journal, the logs around. */
void faults_print_history(struct faults *faults, const char *text, FILE *out);

#endif
