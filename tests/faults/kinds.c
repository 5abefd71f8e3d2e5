/*
 * The faults: how each is done and undone.
 *
 * What happens to one process happens to the fault's victim, what happens to one lane to its lane: each fault of a step draws its own.
 */
#include <signal.h>
#include <string.h>

#include "db.h"
#include "faults.h"
#include "rds.h"
#include "wait.h"

/* A fault that cannot be undone would be taken for the relay's. */
#define HEALED(condition) REQUIRE(condition, "a fault could not be healed: %s", #condition)

static struct faults_slot *victim(struct faults *faults) {
  return &faults->slots[faults->victim];
}

/* ---- processes */

static bool is_victim_healthy(struct faults *faults) {
  struct faults_slot *slot = victim(faults);
  return slot->relay != NULL && !slot->is_frozen && !slot->is_ending && relay_is_running(slot->relay);
}

static bool relay_killed(struct faults *faults) {
  if (!is_victim_healthy(faults))
    return false;
  victim(faults)->is_ending = true;
  relay_signal(victim(faults)->relay, SIGKILL);
  return true;
}

static bool relay_terminated(struct faults *faults) {
  if (!is_victim_healthy(faults))
    return false;
  victim(faults)->is_ending = true;
  relay_signal(victim(faults)->relay, SIGTERM);
  return true;
}

static bool relay_frozen(struct faults *faults) {
  if (!is_victim_healthy(faults))
    return false;
  victim(faults)->is_frozen = true;
  relay_signal(victim(faults)->relay, SIGSTOP);
  return true;
}

static void thaw_relay(struct faults *faults) {
  if (victim(faults)->is_frozen) {
    victim(faults)->is_frozen = false;
    relay_signal(victim(faults)->relay, SIGCONT);
  }
}

static void renew_relay(struct faults *faults) {
  faults_start_relay(faults, faults->victim);
}

static bool fleet_joined(struct faults *faults) {
  int slot = faults->options.relays_n;
  if (faults->slots[slot].relay != NULL)
    return false;
  faults_start_relay(faults, slot);
  return true;
}

static void fleet_left(struct faults *faults) {
  struct faults_slot *slot = &faults->slots[faults->options.relays_n];
  if (slot->relay != NULL && relay_is_running(slot->relay)) {
    slot->is_ending = true;
    relay_signal(slot->relay, SIGTERM);
  }
}

/* ---- PostgreSQL */

static bool pg_killed(struct faults *faults) {
  if (!faults_pg_is_up(faults))
    return false;
  stack_pg_kill(faults->stack);
  return true;
}

static bool pg_shut_down(struct faults *faults) {
  if (!faults_pg_is_up(faults))
    return false;
  stack_pg_shutdown(faults->stack);
  return true;
}

static void start_pg(struct faults *faults) {
  if (!proc_is_running(&faults->stack->pg)) {
    stack_pg_restart(faults->stack);
    faults->pg_restarts_n++;
  }
}

static bool pg_frozen(struct faults *faults) {
  if (!faults_pg_is_up(faults))
    return false;
  stack_pg_freeze(faults->stack);
  return true;
}

static void thaw_pg(struct faults *faults) {
  if (faults->stack->is_pg_frozen)
    stack_pg_thaw(faults->stack);
}

#define SESSIONS "FROM pg_stat_activity WHERE usename = '" FAULTS_USER "'"
#define TERMINATE "SELECT pg_terminate_backend(pid) " SESSIONS

static bool pg_claimer_terminated(struct faults *faults) {
  return faults_sql(faults, TERMINATE " AND application_name LIKE '%claimer%' ORDER BY state_change DESC LIMIT 1");
}

static bool pg_lease_terminated(struct faults *faults) {
  return faults_sql(faults, TERMINATE " AND application_name LIKE '%lease%' ORDER BY pid LIMIT 1");
}

static bool pg_all_terminated(struct faults *faults) {
  return faults_sql(faults, TERMINATE);
}

/* Most of these find no statement under way: many, so that some do. */
static bool pg_cancelled(struct faults *faults) {
  return faults_sql(faults, "DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM pg_stat_clear_snapshot(), pg_sleep(0.002); "
                            "PERFORM pg_cancel_backend(pid) " SESSIONS " AND state = 'active'; END LOOP; END $$");
}

static bool pg_rows_locked(struct faults *faults) {
  if (!faults_pg_is_up(faults) || faults->locker != NULL)
    return false;
  faults->locker = PQconnectdb(faults->conninfo);
  PQclear(PQexec(faults->locker, "BEGIN"));
  /* What is in a claim just now is skipped: the relay gets to see each of these rows as one that another session holds. */
  PQclear(PQexec(faults->locker, "SELECT id FROM " FAULTS_TABLE
                                 " WHERE published_at IS NULL ORDER BY id DESC LIMIT 20 FOR UPDATE SKIP LOCKED"));
  return true;
}

static void unlock_rows(struct faults *faults) {
  PQfinish(faults->locker);
  faults->locker = NULL;
}

/* What the first has done is undone later, whatever becomes of the second. */
static bool sql_both(struct faults *faults, const char *first, const char *second) {
  bool is_begun = faults_sql(faults, first);
  if (is_begun)
    (void)faults_sql(faults, second);
  return is_begun;
}

static bool pg_connections_limited(struct faults *faults) {
  return sql_both(faults, "ALTER ROLE " FAULTS_USER " CONNECTION LIMIT 2", TERMINATE);
}

static void limit_no_connections(struct faults *faults) {
  HEALED(faults_sql(faults, "ALTER ROLE " FAULTS_USER " CONNECTION LIMIT -1"));
}

static bool pg_role_read_only(struct faults *faults) {
  return sql_both(faults, "ALTER ROLE " FAULTS_USER " SET default_transaction_read_only = on", TERMINATE);
}

/* Sessions opened meanwhile stay as they are: the relay has to notice. */
static void make_role_writable(struct faults *faults) {
  HEALED(faults_sql(faults, "ALTER ROLE " FAULTS_USER " RESET default_transaction_read_only"));
}

static bool pg_read_only(struct faults *faults) {
  return sql_both(faults, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()");
}

static void make_writable(struct faults *faults) {
  HEALED(faults_sql(faults, "ALTER SYSTEM RESET default_transaction_read_only"));
  HEALED(faults_sql(faults, "SELECT pg_reload_conf()"));
}

#define IDLE_TIMEOUTS "idle_in_transaction_session_timeout = '1s'"

/* For the server and for the role, and sessions old and new: the relay's own setting counts. */
static bool pg_idle_timeout_short(struct faults *faults) {
  bool is_begun = sql_both(faults, "ALTER SYSTEM SET " IDLE_TIMEOUTS, "SELECT pg_reload_conf()");
  bool is_role_begun = faults_sql(faults, "ALTER ROLE " FAULTS_USER " SET " IDLE_TIMEOUTS);
  if (prng_below(&faults->prng, 2) == 0)
    (void)faults_sql(faults, TERMINATE);
  return is_begun || is_role_begun;
}

static void restore_idle_timeout(struct faults *faults) {
  HEALED(faults_sql(faults, "ALTER SYSTEM RESET idle_in_transaction_session_timeout"));
  HEALED(faults_sql(faults, "SELECT pg_reload_conf()"));
  HEALED(faults_sql(faults, "ALTER ROLE " FAULTS_USER " RESET idle_in_transaction_session_timeout"));
}

/* ---- Redis */

static bool redis_killed(struct faults *faults) {
  if (!faults_redis_is_up(faults))
    return false;
  stack_redis_kill(faults->stack);
  return true;
}

static void start_redis(struct faults *faults) {
  if (!proc_is_running(&faults->stack->redis)) {
    stack_redis_restart(faults->stack);
    faults->redis_restarts_n++;
  }
}

static bool redis_frozen(struct faults *faults) {
  if (!faults_redis_is_up(faults))
    return false;
  stack_redis_freeze(faults->stack);
  return true;
}

static void thaw_redis(struct faults *faults) {
  if (faults->stack->is_redis_frozen)
    stack_redis_thaw(faults->stack);
}

static bool redis_clients_killed(struct faults *faults) {
  return faults_redis(faults, "CLIENT KILL USER " FAULTS_USER);
}

static bool redis_paused(struct faults *faults) {
  int64_t ms = prng_between(&faults->prng, 300, 2500);
  faults->pause_end_ms = wait_now_ms() + ms;
  return faults_redis(faults, "CLIENT PAUSE %lld ALL", (long long)ms);
}

/* The driver's commands are paused as well. */
static void outwait_pause(struct faults *faults) {
  WAIT_FOR(10000, wait_now_ms() > faults->pause_end_ms, "time stands still");
}

static bool redis_full(struct faults *faults) {
  return faults_redis(faults, "CONFIG SET maxmemory 1");
}

static void make_room(struct faults *faults) {
  HEALED(faults_redis(faults, "CONFIG SET maxmemory 0"));
}

/* Of a primary that nobody ever was: what is in it stays. */
static bool redis_demoted(struct faults *faults) {
  return faults_redis(faults, "REPLICAOF 127.0.0.1 1");
}

static void promote_redis(struct faults *faults) {
  HEALED(faults_redis(faults, "REPLICAOF NO ONE"));
}

static bool redis_script_flushed(struct faults *faults) {
  return faults_redis(faults, "SCRIPT FLUSH");
}

/* Every command of the AOF takes some time, until it is healed: LOADING meanwhile. */
static bool redis_loading(struct faults *faults) {
  if (!faults_redis(faults, "CONFIG SET key-load-delay 300"))
    return false;
  faults->loader = rds_open(faults->stack->redis_url);
  faults->loader_control = rds_open(faults->stack->redis_url);
  int is_done = 0;
  redisAppendCommand(faults->loader, "DEBUG LOADAOF");
  while (!is_done && redisBufferWrite(faults->loader, &is_done) == REDIS_OK) {
  }
  return true;
}

/* Redis may have been killed meanwhile. */
static void load_fast(struct faults *faults) {
  void *reply = NULL;
  freeReplyObject(redisCommand(faults->loader_control, "CONFIG SET key-load-delay 0"));
  if (redisGetReply(faults->loader, &reply) == REDIS_OK)
    freeReplyObject(reply);
  redisFree(faults->loader);
  redisFree(faults->loader_control);
}

static bool redis_password_changed(struct faults *faults) {
  bool is_begun = faults_redis(faults, "ACL SETUSER " FAULTS_USER " resetpass >other");
  if (is_begun)
    (void)faults_redis(faults, "CLIENT KILL USER " FAULTS_USER);
  return is_begun;
}

static bool redis_command_denied(struct faults *faults) {
  return faults_redis(faults, prng_below(&faults->prng, 2) == 0 ? "ACL SETUSER " FAULTS_USER " -xadd"
                                                                : "ACL SETUSER " FAULTS_USER " -eval -evalsha");
}

static bool redis_streams_denied(struct faults *faults) {
  return faults_redis(faults, "ACL SETUSER " FAULTS_USER " resetkeys ~outbox:*:journal ~outbox:lanes");
}

static bool redis_keys_denied(struct faults *faults) {
  return faults_redis(faults, "ACL SETUSER " FAULTS_USER " resetkeys ~other:*");
}

static void restore_acl(struct faults *faults) {
  HEALED(faults_redis(faults, "ACL SETUSER " FAULTS_USER " resetpass >" FAULTS_PASSWORD
                              " resetkeys ~outbox:* +xadd +eval +evalsha"));
}

static bool redis_wrong_type(struct faults *faults) {
  return faults_redis(faults, "EVAL %s 2 outbox:{%d} saved:{%d}",
                      "if redis.call('EXISTS', KEYS[2]) == 1 then return redis.error_reply('saved already') end "
                      "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end "
                      "return redis.call('SET', KEYS[1], 'x')",
                      faults->lane, faults->lane);
}

static void restore_type(struct faults *faults) {
  HEALED(faults_redis(faults, "EVAL %s 2 outbox:{%d} saved:{%d}",
                      "if redis.call('TYPE', KEYS[1]).ok == 'string' then redis.call('DEL', KEYS[1]) end "
                      "if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end "
                      "return redis.status_reply('OK')",
                      faults->lane, faults->lane));
}

static bool redis_journal_deleted(struct faults *faults) {
  return faults_redis(faults, "DEL outbox:{%d}:journal", faults->lane);
}

/* ---- networks */

static int64_t cut_at(struct faults *faults) {
  static const int64_t scales[] = {50, 1000, 30000};
  return prng_between(&faults->prng, 1, scales[prng_below(&faults->prng, 3)]);
}

static bool redis_write_cut(struct faults *faults) {
  proxy_cut_after(victim(faults)->redis_net, PROXY_TO_SERVER, cut_at(faults));
  return true;
}

static bool redis_reply_cut(struct faults *faults) {
  proxy_cut_after(victim(faults)->redis_net, PROXY_TO_CLIENT, cut_at(faults));
  return true;
}

static bool pg_write_cut(struct faults *faults) {
  proxy_cut_after(victim(faults)->pg_net, PROXY_TO_SERVER, cut_at(faults));
  return true;
}

static bool pg_reply_cut(struct faults *faults) {
  proxy_cut_after(victim(faults)->pg_net, PROXY_TO_CLIENT, cut_at(faults));
  return true;
}

static bool redis_net_stalled(struct faults *faults) {
  proxy_set_mode(victim(faults)->redis_net, PROXY_STALL);
  return true;
}

static bool pg_net_stalled(struct faults *faults) {
  proxy_set_mode(victim(faults)->pg_net, PROXY_STALL);
  return true;
}

static bool redis_net_dark(struct faults *faults) {
  proxy_set_mode(victim(faults)->redis_net, PROXY_DARK);
  return true;
}

static bool pg_net_dark(struct faults *faults) {
  proxy_set_mode(victim(faults)->pg_net, PROXY_DARK);
  return true;
}

static bool net_in_bits(struct faults *faults) {
  proxy_set_chunk(victim(faults)->redis_net, (int)prng_between(&faults->prng, 1, 16));
  proxy_set_chunk(victim(faults)->pg_net, (int)prng_between(&faults->prng, 1, 16));
  return true;
}

static bool net_delayed(struct faults *faults) {
  proxy_set_delay(victim(faults)->redis_net, (int)prng_between(&faults->prng, 1, 60));
  proxy_set_delay(victim(faults)->pg_net, (int)prng_between(&faults->prng, 1, 15));
  return true;
}

static void heal_nets(struct faults *faults) {
  struct proxy *nets[] = {victim(faults)->redis_net, victim(faults)->pg_net};
  for (int i = 0; i < 2; i++) {
    proxy_cut_after(nets[i], PROXY_TO_SERVER, -1);
    proxy_cut_after(nets[i], PROXY_TO_CLIENT, -1);
    proxy_set_chunk(nets[i], 0);
    proxy_set_delay(nets[i], 0);
    proxy_set_mode(nets[i], PROXY_PASS);
  }
}

/* ---- the table */

/* --session-timeout is 3 s, --redis-timeout 1 s: "longer than every timeout" is more than 3 s. */
const struct fault faults_kinds[] = {
    {"relay_kill", HEAL_RELAY, 0, 1500, false, false, relay_killed, renew_relay},
    {"relay_term", HEAL_RELAY, 0, 1500, false, false, relay_terminated, renew_relay},
    {"relay_freeze", HEAL_RELAY, 3500, 6000, false, false, relay_frozen, thaw_relay},
    {"relay_freeze_short", HEAL_RELAY, 100, 3000, false, false, relay_frozen, thaw_relay},
    {"fleet_join_leave", HEAL_RELAY, 500, 2500, false, false, fleet_joined, fleet_left},
    {"pg_kill", HEAL_SERVER, 0, 1000, false, false, pg_killed, start_pg},
    {"pg_shutdown", HEAL_SERVER, 0, 1500, false, false, pg_shut_down, start_pg},
    {"pg_freeze", HEAL_SERVER, 500, 5000, false, false, pg_frozen, thaw_pg},
    {"pg_terminate_claimer", HEAL_SETTING, 0, 100, false, false, pg_claimer_terminated, NULL},
    {"pg_terminate_lease", HEAL_SETTING, 0, 100, false, false, pg_lease_terminated, NULL},
    {"pg_terminate_all", HEAL_SETTING, 0, 100, false, false, pg_all_terminated, NULL},
    {"pg_cancel", HEAL_SETTING, 0, 100, false, false, pg_cancelled, NULL},
    {"pg_locked_rows", HEAL_SERVER, 200, 2000, false, false, pg_rows_locked, unlock_rows},
    {"pg_connection_limit", HEAL_SETTING, 200, 2000, false, false, pg_connections_limited, limit_no_connections},
    {"pg_read_only_role", HEAL_SETTING, 200, 2000, false, false, pg_role_read_only, make_role_writable},
    {"pg_read_only", HEAL_SETTING, 200, 2000, false, false, pg_read_only, make_writable},
    {"pg_idle_timeout", HEAL_SETTING, 1200, 2500, false, false, pg_idle_timeout_short, restore_idle_timeout},
    {"redis_kill", HEAL_SERVER, 0, 1000, false, false, redis_killed, start_redis},
    {"redis_freeze", HEAL_SERVER, 300, 4000, false, false, redis_frozen, thaw_redis},
    {"redis_client_kill", HEAL_SETTING, 0, 100, false, false, redis_clients_killed, NULL},
    {"redis_pause", HEAL_SERVER, 0, 100, false, false, redis_paused, outwait_pause},
    {"redis_oom", HEAL_SETTING, 200, 2000, false, false, redis_full, make_room},
    {"redis_readonly", HEAL_SETTING, 200, 2000, false, false, redis_demoted, promote_redis},
    {"redis_script_flush", HEAL_SETTING, 0, 100, false, false, redis_script_flushed, NULL},
    {"redis_loading", HEAL_LOADING, 300, 2000, false, false, redis_loading, load_fast},
    {"redis_acl_password", HEAL_KEY, 200, 2000, false, false, redis_password_changed, restore_acl},
    {"redis_acl_command", HEAL_KEY, 200, 2000, false, false, redis_command_denied, restore_acl},
    {"redis_acl_streams", HEAL_KEY, 200, 2000, true, false, redis_streams_denied, restore_acl},
    {"redis_acl_keys", HEAL_KEY, 200, 2000, false, false, redis_keys_denied, restore_acl},
    {"redis_wrong_type", HEAL_KEY, 200, 2500, true, false, redis_wrong_type, restore_type},
    {"redis_journal_deleted", HEAL_KEY, 0, 100, false, true, redis_journal_deleted, NULL},
    {"net_redis_write_cut", HEAL_SERVER, 50, 500, false, false, redis_write_cut, heal_nets},
    {"net_redis_reply_cut", HEAL_SERVER, 50, 500, false, false, redis_reply_cut, heal_nets},
    {"net_pg_write_cut", HEAL_SERVER, 50, 500, false, false, pg_write_cut, heal_nets},
    {"net_pg_reply_cut", HEAL_SERVER, 50, 500, false, false, pg_reply_cut, heal_nets},
    {"net_redis_stall", HEAL_SERVER, 300, 6000, false, false, redis_net_stalled, heal_nets},
    {"net_pg_stall", HEAL_SERVER, 300, 6000, false, false, pg_net_stalled, heal_nets},
    {"net_redis_dark", HEAL_SERVER, 300, 4000, false, false, redis_net_dark, heal_nets},
    {"net_pg_dark", HEAL_SERVER, 300, 6000, false, false, pg_net_dark, heal_nets},
    {"net_delays", HEAL_SERVER, 300, 3000, false, false, net_delayed, heal_nets},
    {"net_bits", HEAL_SERVER, 300, 1500, false, false, net_in_bits, heal_nets},
};
const int faults_kinds_n = sizeof faults_kinds / sizeof faults_kinds[0];

const struct fault *faults_find(const char *name) {
  for (int i = 0; i < faults_kinds_n; i++) {
    if (strcmp(faults_kinds[i].name, name) == 0)
      return &faults_kinds[i];
  }
  return NULL;
}
