/*
 * outboxd check: what it finds of Redis, each thing provoked on a real server and gone when it is mended.
 */
#include "test_check.h"

#include <sys/stat.h>

static struct stack *stack;

static void settings_of_redis(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  rds_run(redis, "CONFIG SET appendfsync everysec");
  REQUIRE_ONLY("warning", "redis_appendfsync", "everysec", "appendfsync always", NULL);
  rds_run(redis, "CONFIG SET appendfsync always");
  rds_run(redis, "CONFIG SET appendonly no");
  REQUIRE_ONLY("warning", "redis_persistence", "append-only", "appendonly yes", NULL);
  rds_run(redis, "CONFIG SET appendonly yes");
  rds_run(redis, "CONFIG SET maxmemory-policy allkeys-lru");
  REQUIRE_ONLY("warning", "redis_memory", "allkeys-lru", "noeviction", NULL);
  rds_run(redis, "CONFIG SET maxmemory 1gb");
  REQUIRE_ONLY("error", "redis_memory", "deleted", "noeviction", NULL);
  rds_run(redis, "CONFIG SET maxmemory-policy volatile-lru");
  REQUIRE_ALL_FINE();
  rds_run(redis, "SET filler %s", "x");
  rds_run(redis, "SETRANGE filler 4000000 x");
  rds_run(redis, "CONFIG SET maxmemory-policy noeviction");
  rds_run(redis, "CONFIG SET maxmemory 4mb");
  REQUIRE_ONLY("warning", "redis_memory", "refused", "raise maxmemory", NULL);
  rds_run(redis, "CONFIG SET maxmemory 0");
  REQUIRE_ONLY("error", "redis_replicas", "0 are online", "--wait-replicas", "--wait-replicas", "1");
  rds_run(redis, "REPLICAOF 127.0.0.1 1");
  REQUIRE_ONLY("error", "redis_role", "replica", "primary", NULL);
  rds_run(redis, "REPLICAOF NO ONE");
  REQUIRE_ALL_FINE();
  redisFree(redis);
  PQfinish(conn);
}

/* Another Redis for a while, with these settings; its URL.  A server of a cluster listens on a second port, by itself on the first plus 10,000,
 * which somebody else may have. */
static struct port other_port = PORT_INIT;
static struct port other_bus_port = PORT_INIT;
static struct proc other_redis;
static char other_url[64];

static void start_other(const char *setting, const char *value) {
  char port[16];
  char bus_port[16];
  char dir[STACK_PATH_BYTES + 32];
  char log[sizeof dir + 16];
  port_take(&other_port);
  port_take(&other_bus_port);
  (void)snprintf(port, sizeof port, "%d", other_port.number);
  (void)snprintf(bus_port, sizeof bus_port, "%d", other_bus_port.number);
  (void)snprintf(dir, sizeof dir, "%s/other-%d", stack->dir, other_port.number);
  (void)snprintf(other_url, sizeof other_url, "redis://127.0.0.1:%d", other_port.number);
  (void)snprintf(log, sizeof log, "%s/redis.log", dir);
  REQUIRE(mkdir(dir, 0700) == 0, "cannot make %s", dir);
  const char *const argv[] = {stack_redis_server(),
                              "--port",
                              port,
                              "--cluster-port",
                              bus_port,
                              "--dir",
                              dir,
                              "--save",
                              "",
                              "--appendonly",
                              "yes",
                              "--appendfsync",
                              "always",
                              setting,
                              value,
                              NULL};
  proc_start(&other_redis, &(struct proc_spec){.name = "redis-server", .argv = argv, .stdout_path = log});
  redisContext *redis = NULL;
  WAIT_FOR(30000, !proc_is_running(&other_redis) || (redis = rds_try_open(other_url)) != NULL,
           "the other Redis does not come up");
  REQUIRE(redis != NULL, "the other Redis does not come up: %s", proc_output(log));
  redisFree(redis);
}

static void stop_other(void) {
  proc_stop(&other_redis);
  port_release(&other_port);
  port_release(&other_bus_port);
}

static bool info_says(redisContext *redis, const char *section, const char *what) {
  redisReply *reply = rds_cmd(redis, "INFO %s", section);
  bool is_there = strstr(reply->str, what) != NULL;
  freeReplyObject(reply);
  return is_there;
}

static void replicas_and_clusters(void **state) {
  char primary[64];
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  (void)snprintf(primary, sizeof primary, "127.0.0.1 %d", stack->redis_port.number);
  start_other("--replicaof", primary);
  WAIT_FOR(60000, info_says(redis, "replication", "state=online"), "the replica is not online");
  REQUIRE_FINE("--wait-replicas", "1");
  REQUIRE_ONLY("error", "redis_replicas", "1 are online", "start replicas", "--wait-replicas", "2");
  REQUIRE_ONLY("error", "redis_role", "replica", "primary", "--redis", other_url);
  stop_other();
  start_other("--cluster-enabled", "yes");
  REQUIRE_ONLY("error", "redis_role", "Redis Cluster", "not in cluster mode", "--redis", other_url);
  stop_other();
  /* A disk that takes no snapshot. */
  redisReply *dir = rds_cmd(redis, "CONFIG GET dir");
  rds_run(redis, "CONFIG SET dir /proc");
  rds_run(redis, "BGSAVE");
  WAIT_FOR(30000, info_says(redis, "persistence", "rdb_last_bgsave_status:err"), "a snapshot can be written to /proc");
  REQUIRE_ONLY("error", "redis_persistence", "snapshot failed", "disk", NULL);
  rds_run(redis, "CONFIG SET dir %s", dir->element[1]->str);
  rds_run(redis, "BGSAVE");
  WAIT_FOR(30000, info_says(redis, "persistence", "rdb_last_bgsave_status:ok"), "no snapshot is written");
  REQUIRE_ALL_FINE();
  freeReplyObject(dir);
  redisFree(redis);
  PQfinish(conn);
}

static void keys_of_others(void **state) {
  PGconn *conn = db_open(stack->conninfo);
  redisContext *redis = rds_open(stack->redis_url);
  (void)state;
  table_create(stack, conn, TABLE_PLAIN, TABLE);
  struct relay *relay = relay_start(stack, ARGS("run", "--lanes", "4", "--until-empty"));
  REQUIRE(relay_wait(relay, 60000) == 0, "the relay fails");
  REQUIRE_FINE("--lanes", "4");
  REQUIRE_ONLY("error", "lanes_record", "\"lanes\":4", "--lanes", "--lanes", "5");
  rds_run(redis, "DEL outbox:lanes");
  rds_run(redis, "LPUSH outbox:lanes x");
  REQUIRE_ONLY("error", "lanes_record", "outbox:lanes is not outboxd's", "rename", NULL);
  rds_run(redis, "DEL outbox:lanes");
  rds_run(redis, "SET outbox:{3} x");
  REQUIRE_ONLY("error", "redis_keys", "outbox:{3} is a string, not a stream", "rename", NULL);
  REQUIRE_FINE("--lanes", "2");
  rds_run(redis, "DEL outbox:{3}");
  rds_run(redis, "LPUSH outbox:{1}:journal x");
  REQUIRE_ONLY("error", "redis_keys", "outbox:{1}:journal is a list, not a string", "rename", NULL);
  rds_run(redis, "DEL outbox:{1}:journal");
  /* One that only a pending message leads to. */
  db_exec(conn, "INSERT INTO " TABLE " (message_id, aggregate_type, aggregate_id, event_type, payload) VALUES "
                "(gen_random_uuid(), 'order', '7', 'x', '{}')");
  int64_t lane = db_int(conn, "SELECT mod(mod(hashtextextended('7', 0), 16) + 16, 16)");
  rds_run(redis, "SET outbox:{%lld}:order:7 x", (long long)lane);
  REQUIRE_ONLY("error", "redis_keys", ":order:7 is a string", "rename", "--stream", "outbox:{%l}:%t:%i");
  REQUIRE_ALL_FINE();
  redisFree(redis);
  PQfinish(conn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CHECK_TEST(settings_of_redis),
      CHECK_TEST(replicas_and_clusters),
      CHECK_TEST(keys_of_others),
  };
  static const char *const settings[] = {"enable-protected-configs yes", NULL};
  return HARNESS_RUN(tests, &stack, (&(struct stack_options){.has_aof = true, .redis_settings = settings}));
}
