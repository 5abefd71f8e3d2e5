/*
 * A run of the fault driver: see faults.h.
 *
 * Owns: the relays' places, the load, the schedule's file (schedule.txt in the stack's directory).
 */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "fail.h"
#include "faults.h"
#include "fleet.h"
#include "rds.h"
#include "table.h"
#include "wait.h"

#define RECOVERY_MS 60000 /* from here on it counts as never; a refused message may wait for its retry */
#define DRAIN_MS 120000
#define START_MS 20000
#define MAX_ATTEMPTS "50"
#define MAX_ATTEMPTS_N 50
#define MIXED_MAX 3

/* The permissions of docs/redis.md, no more. */
static const char *const redis_settings[] = {"enable-debug-command yes",
                                             "user " FAULTS_USER " on >" FAULTS_PASSWORD
                                             " resetchannels -@all ~outbox:* +set +get +getrange +xadd +eval +evalsha "
                                             "+select +client|setname +wait",
                                             NULL};
const struct stack_options faults_stack_options = {.has_aof = true, .redis_settings = redis_settings};

static struct faults *current; /* for the failure's context */

static void say(struct faults *faults, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct faults *faults, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  double seconds = (double)(wait_now_ms() - faults->started_ms) / 1000;
  printf("%8.3f %s\n", seconds, text);
  fprintf(faults->schedule, "%8.3f %s\n", seconds, text);
  fflush(faults->schedule);
}

static void print_context(void) {
  if (current != NULL)
    fprintf(stderr, "faults: SEED=%" PRIu64 ", %d steps, schedule, logs and data in %s\n", current->options.seed,
            current->steps_n, current->stack->dir);
}

/* ---- the servers, as the driver reaches them */

bool faults_pg_is_up(struct faults *faults) {
  return proc_is_running(&faults->stack->pg) && !faults->stack->is_pg_frozen;
}

bool faults_redis_is_up(struct faults *faults) {
  return proc_is_running(&faults->stack->redis) && !faults->stack->is_redis_frozen;
}

/* "PID ... is not a PostgreSQL backend process": it has ended by itself meanwhile. */
static void drop_notice(void *arg, const char *text) {
  (void)arg;
  (void)text;
}

bool faults_sql(struct faults *faults, const char *sql) {
  bool is_ok = false;
  if (!faults_pg_is_up(faults))
    return false;
  PGconn *conn = PQconnectdb(faults->conninfo);
  if (PQstatus(conn) == CONNECTION_OK) {
    PQsetNoticeProcessor(conn, drop_notice, NULL);
    PGresult *result = PQexec(conn, sql);
    is_ok = PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
    PQclear(result);
  }
  PQfinish(conn);
  return is_ok;
}

bool faults_redis(struct faults *faults, const char *fmt, ...) {
  redisContext *redis = faults_redis_is_up(faults) ? rds_try_open(faults->stack->redis_url) : NULL;
  va_list args;
  if (redis == NULL)
    return false;
  va_start(args, fmt);
  redisReply *reply = redisvCommand(redis, fmt, args);
  va_end(args);
  bool is_ok = reply != NULL && reply->type != REDIS_REPLY_ERROR;
  freeReplyObject(reply);
  redisFree(redis);
  return is_ok;
}

/* ---- relays */

/* A process that has ended: forgotten, with its end judged.  True when it may be started again. */
static void judge_end(struct faults *faults, int index) {
  struct faults_slot *slot = &faults->slots[index];
  int status = relay_wait(slot->relay, 30000);
  bool has_begun = relay_count(slot->relay, "lanes_changed") > 0;
  /* Told to end while a server was away it cannot settle what is in flight, and says so by 1; and what is wrong at the very start ends
   * a relay, for whoever started it to see.  A process that has only just begun does not catch signals yet. */
  bool is_fine = slot->is_ending ? status == 0 || status == -SIGKILL || (status == 1 && faults->is_servers_touched) ||
                                       (status == -SIGTERM && !has_begun)
                                 : status == 1 && !has_begun;
  REQUIRE(is_fine, "the relay in place %d ended with %d%s", index, status, slot->is_ending ? " when told to" : "");
  relay_forget(&slot->relay);
  slot->is_ending = false;
}

void faults_start_relay(struct faults *faults, int index) {
  struct faults_slot *slot = &faults->slots[index];
  if (slot->relay != NULL)
    judge_end(faults, index);
  faults->restarts_n += faults->loads_n > 0 && index < faults->options.relays_n;
  slot->relay = relay_start(
      faults->stack, ARGS("run", "--database", slot->conninfo, "--redis", slot->redis_url, "--session-timeout", "3s",
                          "--redis-timeout", "1s", "--shutdown-timeout", "10s", "--poll-interval", "20ms", "--batch",
                          "300", "--max-attempts", MAX_ATTEMPTS, "--no-cleanup", "--log-level", "debug"));
}

/* What a supervisor does: those that have ended although nobody told them to are started again. */
static void supervise(struct faults *faults) {
  for (int i = 0; i < FAULTS_SLOTS_N; i++) {
    struct faults_slot *slot = &faults->slots[i];
    if (slot->relay == NULL || relay_is_running(slot->relay))
      continue;
    bool is_wanted = i < faults->options.relays_n && !slot->is_ending;
    judge_end(faults, i);
    if (is_wanted)
      faults_start_relay(faults, i);
  }
}

/* ---- recovery */

static int64_t max_id(PGconn *conn) {
  return db_int(conn, "SELECT coalesce(max(id), 0) FROM " FAULTS_TABLE);
}

int64_t faults_wait_recovery(struct faults *faults, int64_t *first_ms) {
  int64_t healed_ms = wait_now_ms();
  PGconn *conn = db_open(faults->conninfo);
  int64_t id = max_id(conn);
  struct wait wait = wait_begin(RECOVERY_MS);
  int64_t all_ms = -1;
  *first_ms = -1;
  while (*first_ms < 0 || all_ms < 0) {
    supervise(faults);
    if (*first_ms < 0 &&
        db_int(conn, "SELECT EXISTS (SELECT FROM " FAULTS_TABLE " WHERE id > %" PRId64 " AND published_at IS NOT NULL)",
               id) != 0)
      *first_ms = wait_now_ms() - healed_ms;
    if (all_ms < 0 &&
        db_int(conn,
               "SELECT NOT EXISTS (SELECT FROM " FAULTS_TABLE " WHERE id <= %" PRId64 " AND published_at IS NULL)",
               id) != 0)
      all_ms = wait_now_ms() - healed_ms;
    if (!wait_next(&wait)) {
      char *who = db_text(conn,
                          "SELECT string_agg(id || ' ' || message_id || ' attempts ' || attempts || coalesce(' ' || "
                          "last_error, ''), E'\\n') "
                          "FROM (SELECT * FROM " FAULTS_TABLE " WHERE published_at IS NULL AND id <= %" PRId64
                          " ORDER BY id LIMIT 5) p",
                          id);
      FAIL("no recovery after %d ms: first new message %s, still pending of old ones:\n%s", RECOVERY_MS,
           *first_ms < 0 ? "not published" : "published", who);
    }
  }
  PQfinish(conn);
  return all_ms;
}

static void note_recovery(struct faults_recoveries *recoveries, int64_t first_ms, int64_t all_ms) {
  if (recoveries->n < FAULTS_RECOVERIES_MAX) {
    recoveries->first_ms[recoveries->n] = (int32_t)first_ms;
    recoveries->all_ms[recoveries->n++] = (int32_t)all_ms;
  }
}

/* ---- a run */

static void open_nets(struct faults *faults) {
  for (int i = 0; i < FAULTS_SLOTS_N; i++) {
    struct faults_slot *slot = &faults->slots[i];
    slot->redis_net = proxy_start(faults->stack->redis_port.number);
    slot->pg_net = proxy_start(faults->stack->pg_port.number);
    snprintf(slot->redis_url, sizeof slot->redis_url, "redis://" FAULTS_USER ":" FAULTS_PASSWORD "@127.0.0.1:%d",
             proxy_port(slot->redis_net));
    snprintf(slot->conninfo, sizeof slot->conninfo,
             "host=127.0.0.1 port=%d user=" FAULTS_USER " dbname=" STACK_DATABASE, proxy_port(slot->pg_net));
  }
}

/* The table, the relay's user, and everything an earlier run of the program may have changed. */
static void prepare(struct faults *faults) {
  PGconn *conn = db_open(faults->conninfo);
  db_exec(conn, "ALTER SYSTEM RESET ALL");
  db_exec(conn, "SELECT pg_reload_conf()");
  if (db_int(conn, "SELECT count(*) FROM pg_roles WHERE rolname = '" FAULTS_USER "'") == 0)
    db_exec(conn, "CREATE ROLE " FAULTS_USER " LOGIN");
  db_exec(conn, "ALTER ROLE " FAULTS_USER " RESET ALL");
  db_exec(conn, "ALTER ROLE " FAULTS_USER " CONNECTION LIMIT -1");
  table_create(faults->stack, conn, TABLE_PLAIN, FAULTS_TABLE);
  db_exec(conn, "GRANT SELECT, UPDATE ON " FAULTS_TABLE " TO " FAULTS_USER);
  PQfinish(conn);
}

void faults_load(struct faults *faults) {
  faults->writer = writer_start(&(struct writer_options){.conninfo = faults->conninfo,
                                                         .table = FAULTS_TABLE,
                                                         .threads_n = 4,
                                                         .aggregates_n = 300,
                                                         .rollback_percent = 10,
                                                         .rate = faults->options.rate,
                                                         .seed = faults->options.seed + (uint64_t)faults->loads_n++,
                                                         .can_reconnect = true});
}

struct faults *faults_begin(struct stack *stack, const struct faults_options *options) {
  struct faults *faults = calloc(1, sizeof *faults);
  char path[STACK_PATH_BYTES + 16];
  REQUIRE(faults != NULL, "out of memory");
  faults->stack = stack;
  faults->options = *options;
  faults->options.relays_n = options->relays_n > 0 ? options->relays_n : 2;
  faults->options.rate = options->rate > 0 ? options->rate : 1000;
  REQUIRE(faults->options.relays_n < FAULTS_SLOTS_N, "at most %d relays", FAULTS_SLOTS_N - 1);
  snprintf(faults->conninfo, sizeof faults->conninfo, "%s options='-c default_transaction_read_only=off'",
           stack->conninfo);
  snprintf(path, sizeof path, "%s/schedule.txt", stack->dir);
  faults->schedule = fopen(path, "ae");
  REQUIRE(faults->schedule != NULL, "cannot write %s", path);
  faults->started_ms = wait_now_ms();
  current = faults;
  fail_add_context(print_context);
  say(faults, "SEED=%" PRIu64 ", %d relays, %d messages a second, %s", faults->options.seed, faults->options.relays_n,
      faults->options.rate, stack->dir);
  prepare(faults);
  open_nets(faults);
  for (int i = 0; i < faults->options.relays_n; i++)
    faults_start_relay(faults, i);
  PGconn *conn = db_open(faults->conninfo);
  fleet_wait_even(conn, FAULTS_TABLE, FAULTS_LANES_N, faults->options.relays_n, START_MS);
  faults_load(faults);
  WAIT_FOR(START_MS, db_int(conn, "SELECT EXISTS (SELECT FROM " FAULTS_TABLE " WHERE published_at IS NOT NULL)") != 0,
           "nothing is published");
  PQfinish(conn);
  return faults;
}

/* A fault of a step, and whom it was done to. */
struct done {
  const struct fault *fault;
  bool is_applied;
  int victim, lane;
};

static void heal(struct faults *faults, const struct done *done, int n) {
  for (int order = HEAL_SERVER; order <= HEAL_RELAY; order++) {
    for (int i = 0; i < n; i++) {
      faults->victim = done[i].victim;
      faults->lane = done[i].lane;
      if (done[i].is_applied && done[i].fault->heal != NULL && (int)done[i].fault->order == order)
        done[i].fault->heal(faults);
    }
  }
}

/* Does one and holds it.  All that is random in it follows from own. */
static struct done apply(struct faults *faults, const struct fault *fault, uint64_t own) {
  faults->prng = (struct prng){.state = own};
  struct done done = {.fault = fault};
  done.victim = faults->victim = (int)prng_below(&faults->prng, (uint64_t)faults->options.relays_n);
  done.lane = faults->lane = (int)prng_below(&faults->prng, FAULTS_LANES_N);
  int64_t hold_ms = prng_between(&faults->prng, fault->hold_min_ms, fault->hold_max_ms);
  if (faults->options.is_short)
    hold_ms = fault->hold_min_ms + (hold_ms - fault->hold_min_ms) / 4;
  done.is_applied = fault->apply(faults);
  (done.is_applied ? faults->applied_n : faults->missed_n)[fault - faults_kinds]++;
  faults->is_servers_touched = faults->is_servers_touched || fault->order != HEAL_RELAY;
  faults->can_refuse = faults->can_refuse || (done.is_applied && fault->can_refuse);
  say(faults, "  %s%s, place %d, lane %d, held %" PRId64 " ms", fault->name, done.is_applied ? "" : " (not possible)",
      done.victim, done.lane, hold_ms);
  wait_out(hold_ms);
  return done;
}

void faults_step(struct faults *faults, const struct fault *const *kinds, int n, uint64_t step_seed, bool is_waited) {
  struct done done[FAULTS_KINDS_MAX];
  struct prng prng = {.state = step_seed};
  char names[256] = "";
  REQUIRE(n <= FAULTS_KINDS_MAX, "too many faults");
  faults->is_servers_touched = false;
  for (int i = 0; i < n; i++) {
    done[i] = apply(faults, kinds[i], prng_next(&prng));
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? "+" : "", kinds[i]->name);
  }
  heal(faults, done, n);
  faults->steps_n++;
  if (!is_waited) {
    say(faults, "%s: healed", names);
    return;
  }
  int64_t first_ms;
  int64_t all_ms = faults_wait_recovery(faults, &first_ms);
  say(faults, "%s: healed; first new message after %" PRId64 " ms, all old ones after %" PRId64 " ms", names, first_ms,
      all_ms);
  note_recovery(n == 1 ? &faults->alone[kinds[0] - faults_kinds] : &faults->mixed, first_ms, all_ms);
}

struct faults_recovery faults_last_recovery(const struct faults *faults, const struct fault *fault) {
  const struct faults_recoveries *alone = &faults->alone[fault - faults_kinds];
  REQUIRE(alone->n > 0, "no recovery after %s was measured", fault->name);
  return (struct faults_recovery){alone->first_ms[alone->n - 1], alone->all_ms[alone->n - 1]};
}

void faults_random_step(struct faults *faults, uint64_t step_seed) {
  struct prng prng = {.state = step_seed};
  const struct fault *kinds[MIXED_MAX];
  int n = (int)prng_between(&prng, 1, MIXED_MAX);
  for (int i = 0; i < n; i++) {
    bool is_known;
    do {
      kinds[i] = &faults_kinds[prng_below(&prng, (uint64_t)faults_kinds_n)];
      is_known = false;
      for (int j = 0; j < i; j++)
        is_known = is_known || kinds[j] == kinds[i];
    } while (kinds[i]->is_alone || is_known);
  }
  bool is_waited = prng_below(&prng, 4) != 0;
  faults_step(faults, kinds, n, prng_next(&prng), is_waited);
}

/* ---- the end */

static int compare(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* A row of the table in docs/guarantees.md. */
static void print_recoveries(const char *name, struct faults_recoveries *recoveries) {
  int n = recoveries->n;
  if (n == 0)
    return;
  qsort(recoveries->first_ms, (size_t)n, sizeof recoveries->first_ms[0], compare);
  qsort(recoveries->all_ms, (size_t)n, sizeof recoveries->all_ms[0], compare);
  printf("| %s | %d | %d | %d | %d | %d |\n", name, n, recoveries->first_ms[n / 2], recoveries->first_ms[n - 1],
         recoveries->all_ms[n / 2], recoveries->all_ms[n - 1]);
}

static void print_summary(struct faults *faults) {
  const struct writer_result *written = &faults->written;
  int applied_n = 0;
  for (int i = 0; i < faults_kinds_n; i++)
    applied_n += faults->applied_n[i];
  printf("SEED=%" PRIu64 ": %.0f s, %d steps, %d faults; %" PRId64 " messages committed, %" PRId64
         " rolled back, %" PRId64 " in doubt\n",
         faults->options.seed, (double)(wait_now_ms() - faults->started_ms) / 1000, faults->steps_n, applied_n,
         written->committed_n, written->rolled_back_n, written->in_doubt_n);
  printf("restarts: %d of relays, %d of PostgreSQL, %d of Redis\n", faults->restarts_n, faults->pg_restarts_n,
         faults->redis_restarts_n);
  printf("of %" PRId64 " messages:", faults->checked_n);
  for (int kind = 0; kind < CHECK_KINDS_N; kind++)
    printf("%s %" PRId64 " %s", kind > 0 ? "," : "", faults->found_n[kind], check_kind_name((enum check_kind)kind));
  puts("\nfaults by kind (done, not possible):");
  for (int i = 0; i < faults_kinds_n; i++) {
    if (faults->applied_n[i] + faults->missed_n[i] > 0)
      printf("  %-24s %5d %5d\n", faults_kinds[i].name, faults->applied_n[i], faults->missed_n[i]);
  }
  puts("recovery in ms, from healed to the first message published that was written after (new), and to the last of "
       "those pending then (old); each fault by itself:\n\n"
       "| fault | n | new, median | max | old, median | max |\n| --- | ---: | ---: | ---: | ---: | ---: |");
  for (int i = 0; i < faults_kinds_n; i++) {
    char name[64];
    snprintf(name, sizeof name, "`%s`", faults_kinds[i].name);
    print_recoveries(name, &faults->alone[i]);
  }
  print_recoveries("several at once", &faults->mixed);
}

static void require_no_attempts(struct faults *faults, PGconn *conn) {
  if (faults->can_refuse || db_int(conn, "SELECT count(*) FROM " FAULTS_TABLE " WHERE attempts <> 0") == 0)
    return;
  char *who =
      db_text(conn, "SELECT message_id || ': ' || attempts || ', ' || coalesce(last_error, '') FROM " FAULTS_TABLE
                    " WHERE attempts <> 0 ORDER BY id LIMIT 1");
  faults_print_history(faults, who, stdout);
  FAIL("an outage has burnt attempts: %s", who);
}

static void close_nets(struct faults *faults) {
  for (int i = 0; i < FAULTS_SLOTS_N; i++) {
    proxy_stop(faults->slots[i].redis_net);
    proxy_stop(faults->slots[i].pg_net);
  }
}

static void run_empty(struct faults *faults) {
  PGconn *conn = db_open(faults->conninfo);
  struct wait wait = wait_begin(DRAIN_MS);
  while (db_int(conn, "SELECT count(*) FROM " FAULTS_TABLE " WHERE published_at IS NULL") > 0) {
    supervise(faults);
    REQUIRE(wait_next(&wait), "the relays do not run empty");
  }
  PQfinish(conn);
}

struct check_report faults_check(struct faults *faults) {
  static struct check_report report;
  struct check_options options = {
      .conninfo = faults->conninfo, .redis_url = faults->stack->redis_url, .max_attempts = MAX_ATTEMPTS_N};
  writer_stop(faults->writer);
  struct writer_result written = writer_wait(faults->writer, DRAIN_MS);
  faults->written.committed_n += written.committed_n;
  faults->written.rolled_back_n += written.rolled_back_n;
  faults->written.in_doubt_n += written.in_doubt_n;
  run_empty(faults);
  bool is_good = check_run(&options, &report);
  faults->checked_n += report.rows_n;
  for (int kind = 0; kind < CHECK_KINDS_N; kind++)
    faults->found_n[kind] += report.found_n[kind];
  if (!is_good) {
    print_summary(faults);
    check_print(&options, &report, stdout);
    for (int kind = 0; kind < CHECK_KINDS_N; kind++) {
      if (report.found_n[kind] > 0) {
        faults_print_history(faults, report.first[kind][0], stdout);
        break;
      }
    }
    FAIL("the checker found something wrong: see above");
  }
  PGconn *conn = db_open(faults->conninfo);
  require_no_attempts(faults, conn);
  writer_verify(faults->writer, conn);
  /* The next check looks at what is new only.  All is settled, so that the journals name nothing that matters. */
  db_exec(conn, "TRUNCATE " FAULTS_TABLE);
  for (int lane = 0; lane < FAULTS_LANES_N; lane++)
    REQUIRE(faults_redis(faults, "DEL outbox:{%d}", lane), "cannot delete a stream");
  PQfinish(conn);
  faults->writer = NULL;
  writer_end_all();
  say(faults, "checked: %" PRId64 " messages, all as they should be", report.rows_n);
  return report;
}

void faults_end(struct faults *faults) {
  if (faults->writer != NULL)
    (void)faults_check(faults);
  for (int i = 0; i < FAULTS_SLOTS_N; i++) {
    struct faults_slot *slot = &faults->slots[i];
    if (slot->relay != NULL && slot->is_ending)
      judge_end(faults, i);
    if (slot->relay != NULL)
      relay_stop(slot->relay);
  }
  print_summary(faults);
  close_nets(faults);
  fclose(faults->schedule);
  current = NULL;
  free(faults);
}
