/*
 * One PostgreSQL session over libpq's non-blocking pipeline mode.
 *
 * Owns: the PGconn and the last reply.  Run by: whichever single thread owns the session.
 * Never: waits without a deadline, retries, logs.  The only file that looks at SQLSTATE or libpq's texts.
 */
#include "outboxd/pg.h"

#include <endian.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "embed.h"
#include "outboxd/clock.h"

#define ROLE_BYTES 64
#define OLDEST_SERVER_VERSION 140000 /* idle_session_timeout */
#define GATHER_US 500                /* the server sends 8 KB at a time, every 100 to 200 us */

struct pg {
  PGconn *conn;
  enum pg_state state;
  PostgresPollingStatusType polling; /* PG_CONNECTING: what PQconnectPoll waits for */
  int64_t deadline_us;               /* of connecting or of the request under way */
  int steps_n;                       /* of the request under way */
  int step;                          /* whose result comes next */
  struct pg_reply reply;
  struct err last_notice; /* the server's parting words reach libpq as a notice when no request is under way */
  int64_t timeout_ms;
  char timeout_text[24]; /* the same for the server */
  const char *setup_values[1];
  char role[ROLE_BYTES];
  char *conninfo;
  bool is_notified;
  bool is_polled; /* pg_polled was called since the last pg_drive: */
  short revents;
  int64_t gather_until_us; /* PG_BUSY, in the midst of a reply: not read before */
};

/* -------------------------------------------------------------------------------------------------- errors */

/* What a SQLSTATE means for the one who meets it: docs/architecture.md "Two kinds of failure". */
static enum err_class classify(const char *sqlstate) {
  static const struct {
    const char *prefix;
    enum err_class class;
  } table[] = {
      {"08", ERR_RETRY},    /* connection exception */
      {"25006", ERR_RETRY}, /* read-only transaction: a standby, or a promotion elsewhere */
      {"25P03", ERR_RETRY}, /* idle_in_transaction_session_timeout */
      {"25", ERR_BUG},      /* invalid transaction state */
      {"28", ERR_FATAL},    /* invalid authorization: role, password, pg_hba.conf */
      {"3D", ERR_FATAL},    /* no such database */
      {"3F", ERR_FATAL},    /* no such schema */
      {"40", ERR_RETRY},    /* serialization failure, deadlock */
      {"42501", ERR_FATAL}, /* insufficient privilege */
      {"42", ERR_FATAL},    /* undefined table, column, function, wrong type */
      {"0A", ERR_FATAL},    /* feature not supported */
      {"53", ERR_RETRY},    /* out of connections, memory, disk */
      {"55", ERR_RETRY},    /* lock not available, object in use */
      {"57", ERR_RETRY},    /* cancelled, shutting down, starting up */
      {"58", ERR_RETRY},    /* system error */
      {"XX", ERR_RETRY},    /* internal error, data corruption: an operator's matter, nothing of ours to burn */
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0) {
      return table[i].class;
    }
  }
  return ERR_BUG;
}

static void fill_from_result(const PGresult *result, struct err *err) {
  const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
  const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
  if (sqlstate == NULL || primary == NULL) {
    err_set(err, ERR_RETRY, "connection", "%s", PQresultErrorMessage(result));
    return;
  }
  /* DETAIL may quote a row's values: only those of class 55, 57 and 42 speak of objects alone. */
  bool is_detail_safe = strncmp(sqlstate, "55", 2) == 0 || strncmp(sqlstate, "57", 2) == 0 || sqlstate[0] == '4';
  err_set(err, classify(sqlstate), sqlstate, "%s%s%s%s%s", primary, detail != NULL && is_detail_safe ? " - " : "",
          detail != NULL && is_detail_safe ? detail : "", hint != NULL ? " - " : "", hint != NULL ? hint : "");
}

bool pg_is_lock_refused(const struct err *err) {
  return strcmp(err->code, "55P03") == 0;
}

bool pg_is_row_changed(const struct err *err) {
  return strcmp(err->code, "40001") == 0;
}

/* A failed connection has no PGresult: the SQLSTATE is in the verbose text, "FATAL:  28P01: password ...".  The word before it is
 * translated by the server, the form is not. */
static bool find_sqlstate(const char *text, char out[6]) {
  bool is_found = false;
  for (const char *p = strchr(text, ':'); p != NULL; p = strchr(p + 1, ':')) {
    const char *q = p + 1;
    while (*q == ' ') {
      q++;
    }
    if (q - p >= 2 && strspn(q, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && q[5] == ':') {
      memcpy(out, q, 5);
      out[5] = '\0';
      is_found = true; /* the last one counts: libpq appends the errors of each host and each attempt */
    }
  }
  return is_found;
}

/* Copies text without the "LOCATION:" line that the verbose form adds. */
static void strip_location(const char *text, char *out, size_t n) {
  size_t used = 0;
  while (*text != '\0' && used + 1 < n) {
    size_t line = strcspn(text, "\n");
    if (strncmp(text, "LOCATION:", 9) != 0) {
      size_t take = line < n - used - 2 ? line : n - used - 2;
      memcpy(out + used, text, take);
      used += take;
      out[used++] = ' ';
    }
    text += line + (text[line] == '\n');
  }
  while (used > 0 && out[used - 1] == ' ') {
    used--;
  }
  out[used] = '\0';
}

static void fill_from_connection(const PGconn *conn, struct err *err) {
  char text[ERR_TEXT_BYTES];
  char sqlstate[6];
  strip_location(PQerrorMessage(conn), text, sizeof text);
  if (find_sqlstate(text, sqlstate)) {
    err_set(err, classify(sqlstate), sqlstate, "%s", text);
  } else if (PQconnectionNeedsPassword(conn)) {
    err_set(err, ERR_FATAL, "28P01", "%s", text);
  } else {
    err_set(err, ERR_RETRY, "connection", "%s", text[0] != '\0' ? text : "the connection was lost");
  }
}

int pg_describe(const PGconn *conn, const PGresult *result, struct err *err) {
  if (result != NULL && PQresultErrorField(result, PG_DIAG_SQLSTATE) != NULL) {
    fill_from_result(result, err);
  } else {
    fill_from_connection(conn, err);
  }
  return -1;
}

static void keep_notice(void *arg, const PGresult *result) {
  struct pg *pg = arg;
  const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
  if (severity != NULL && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0)) {
    fill_from_result(result, &pg->last_notice);
  }
}

/* -------------------------------------------------------------------------------------------------- life */

/* libpq's parse errors quote what they could not parse, which may be a password: the quoted part is left out. */
static int check_conninfo(const char *conninfo, struct err *err) {
  char *message = NULL;
  PQconninfoOption *options = NULL;
  int rc = 0;
  bool is_meant_as_uri = strncmp(conninfo, "postgres:", 9) == 0 || strncmp(conninfo, "postgresql:", 11) == 0;
  bool is_uri = strstr(conninfo, "://") != NULL;
  if (is_meant_as_uri && !is_uri) {
    return err_set(
        err, ERR_FATAL, "conninfo",
        "--database begins like a URI, but without \"//\" libpq takes it for something else; write for example "
        "postgresql://relay@db/app");
  }
  if (!is_uri && strchr(conninfo, '=') == NULL) {
    return 0; /* a database's name, or nothing */
  }
  options = PQconninfoParse(conninfo, &message);
  if (options == NULL) {
    /* The name of an option is no secret; anything else that is quoted may be. */
    bool is_name = message != NULL && (strncmp(message, "invalid connection option ", 26) == 0 ||
                                       strncmp(message, "invalid URI query parameter", 27) == 0);
    char *end = message != NULL ? strpbrk(message, is_name ? "\n" : "\"\n") : NULL;
    if (end != NULL) {
      *end = '\0';
    }
    rc = err_set(err, ERR_FATAL, "conninfo",
                 "--database is neither a libpq connection string nor a URI (%s); write for example "
                 "\"host=db dbname=app user=relay\" or postgresql://relay@db/app",
                 message != NULL ? message : "out of memory");
  }
  PQconninfoFree(options);
  PQfreemem(message);
  return rc;
}

int pg_new(const char *conninfo, const char *role, int64_t timeout_ms, struct pg **out, struct err *err) {
  *out = NULL;
  if (check_conninfo(conninfo, err) != 0) {
    return -1;
  }
  struct pg *pg = calloc(1, sizeof *pg);
  if (pg == NULL || (pg->conninfo = strdup(conninfo)) == NULL) {
    free(pg);
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a PostgreSQL session");
  }
  pg->state = PG_CLOSED;
  pg->deadline_us = INT64_MAX;
  pg->timeout_ms = timeout_ms;
  (void)snprintf(pg->role, sizeof pg->role, "outboxd %s", role);
  (void)snprintf(pg->timeout_text, sizeof pg->timeout_text, "%lld", (long long)timeout_ms);
  pg->setup_values[0] = pg->timeout_text;
  *out = pg;
  return 0;
}

static void clear_reply(struct pg *pg) {
  for (int i = 0; i < pg->reply.n; i++) {
    PQclear(pg->reply.results[i]);
  }
  memset(&pg->reply, 0, sizeof pg->reply);
}

void pg_close(struct pg *pg) {
  clear_reply(pg);
  PQfinish(pg->conn);
  pg->conn = NULL;
  pg->state = PG_CLOSED;
  pg->deadline_us = INT64_MAX;
  err_clear(&pg->last_notice);
}

void pg_free(struct pg *pg) {
  if (pg == NULL) {
    return;
  }
  pg_close(pg);
  free(pg->conninfo);
  free(pg);
}

int pg_open(struct pg *pg, int64_t now_us, struct err *err) {
  const char *const keywords[] = {"dbname",     "application_name", "client_encoding",     "tcp_user_timeout",
                                  "keepalives", "keepalives_idle",  "keepalives_interval", "keepalives_count",
                                  NULL};
  const char *const values[] = {pg->conninfo, pg->role, "UTF8", pg->timeout_text, "1", "5", "5", "3", NULL};
  pg_close(pg);
  pg->conn = PQconnectStartParams(keywords, values, 1);
  if (pg->conn == NULL) {
    return err_set(err, ERR_RETRY, "ENOMEM", "no memory for a PostgreSQL connection");
  }
  if (PQstatus(pg->conn) == CONNECTION_BAD) {
    fill_from_connection(pg->conn, err);
    pg_close(pg);
    return -1;
  }
  PQsetErrorVerbosity(pg->conn, PQERRORS_VERBOSE);
  PQsetNoticeReceiver(pg->conn, keep_notice, pg);
  pg->polling = PGRES_POLLING_WRITING;
  pg->state = PG_CONNECTING;
  pg->deadline_us = now_us + pg->timeout_ms * 1000;
  return 0;
}

enum pg_state pg_state(const struct pg *pg) {
  return pg->state;
}

int pg_fd(const struct pg *pg) {
  return pg->conn != NULL ? PQsocket(pg->conn) : -1;
}

short pg_poll_events(const struct pg *pg) {
  switch (pg->state) {
  case PG_CLOSED:
    return 0;
  case PG_CONNECTING:
    return pg->polling == PGRES_POLLING_WRITING ? POLLOUT : POLLIN;
  case PG_IDLE:
    return POLLIN;
  case PG_BUSY:
    return (short)(PQflush(pg->conn) == 1 ? POLLIN | POLLOUT : POLLIN);
  }
  return 0;
}

int64_t pg_deadline_us(const struct pg *pg) {
  return pg->deadline_us;
}

int64_t pg_gather_until_us(const struct pg *pg) {
  return pg->gather_until_us;
}

void pg_polled(struct pg *pg, short revents) {
  pg->is_polled = true;
  pg->revents = revents;
}

int pg_pid(const struct pg *pg) {
  return pg->conn != NULL ? PQbackendPID(pg->conn) : 0;
}

/* -------------------------------------------------------------------------------------------------- driving */

/* Closes and says why: the server's parting words when there were any, else libpq's. */
static enum pg_event lose(struct pg *pg, struct err *err) {
  if (pg->last_notice.class != ERR_NONE) {
    *err = pg->last_notice;
  } else {
    fill_from_connection(pg->conn, err);
  }
  pg_close(pg);
  return PG_EV_LOST;
}

/* What poll(2) says of the session now. */
static short ask_poll(const struct pg *pg) {
  struct pollfd fd = {.fd = pg_fd(pg), .events = pg_poll_events(pg)};
  return (short)(fd.fd >= 0 && poll(&fd, 1, 0) > 0 ? fd.revents : 0);
}

static enum pg_event drive_connecting(struct pg *pg, int64_t now_us, struct err *err) {
  /* PQconnectPoll may only be called when the socket is ready for what it asked for. */
  while (ask_poll(pg) != 0) {
    pg->polling = PQconnectPoll(pg->conn);
    if (pg->polling == PGRES_POLLING_FAILED) {
      return lose(pg, err);
    }
    if (pg->polling == PGRES_POLLING_OK) {
      PQsetErrorVerbosity(pg->conn, PQERRORS_DEFAULT);
      if (PQsetnonblocking(pg->conn, 1) != 0 || PQenterPipelineMode(pg->conn) != 1) {
        return lose(pg, err);
      }
      pg->state = PG_IDLE;
      pg->deadline_us = INT64_MAX;
      return PG_EV_OPEN;
    }
  }
  if (now_us >= pg->deadline_us) {
    (void)err_set(err, ERR_RETRY, "timeout", "no answer to the connection attempt within %lld ms",
                  (long long)pg->timeout_ms);
    pg_close(pg);
    return PG_EV_LOST;
  }
  return PG_EV_NONE;
}

/* Sorts one PGresult into the reply; true when the request is complete. */
static bool take_result(struct pg *pg, PGresult *result) {
  struct pg_reply *reply = &pg->reply;
  switch (PQresultStatus(result)) {
  case PGRES_PIPELINE_SYNC:
    PQclear(result);
    reply->n = pg->steps_n;
    return true;
  case PGRES_PIPELINE_ABORTED:
    PQclear(result);
    return false;
  case PGRES_COMMAND_OK:
  case PGRES_TUPLES_OK:
  case PGRES_EMPTY_QUERY:
    break;
  case PGRES_COPY_OUT:
  case PGRES_COPY_IN:
  case PGRES_COPY_BOTH:
  case PGRES_BAD_RESPONSE:
  case PGRES_NONFATAL_ERROR:
  case PGRES_FATAL_ERROR:
  case PGRES_SINGLE_TUPLE:
    if (!reply->is_failed) {
      reply->is_failed = true;
      reply->failed_step = pg->step;
      fill_from_result(result, &reply->err);
    }
    break;
  }
  if (pg->step < pg->steps_n) {
    PQclear(reply->results[pg->step]);
    reply->results[pg->step] = result;
    reply->n = pg->step + 1;
  } else {
    PQclear(result);
  }
  return false;
}

static void take_notifications(struct pg *pg) {
  PGnotify *notify = NULL;
  while ((notify = PQnotifies(pg->conn)) != NULL) {
    pg->is_notified = true;
    PQfreemem(notify);
  }
}

bool pg_take_notified(struct pg *pg) {
  bool is_notified = pg->is_notified;
  pg->is_notified = false;
  return is_notified;
}

/* Takes what has been read; PG_EV_NONE when there is more to come. */
static enum pg_event take_results(struct pg *pg, struct err *err) {
  while (PQisBusy(pg->conn) == 0) {
    PGresult *result = PQgetResult(pg->conn);
    if (result == NULL) {
      if (PQstatus(pg->conn) == CONNECTION_BAD) {
        return lose(pg, err);
      }
      pg->step++; /* the end of one step's results */
      if (pg->step > pg->steps_n + 1) {
        break; /* nothing more has arrived */
      }
      continue;
    }
    if (take_result(pg, result)) {
      take_notifications(pg);
      pg->state = PG_IDLE;
      pg->deadline_us = INT64_MAX;
      return PG_EV_REPLY;
    }
    if (pg->reply.is_failed && PQstatus(pg->conn) == CONNECTION_BAD) {
      *err = pg->reply.err;
      pg_close(pg);
      return PG_EV_LOST;
    }
  }
  return PG_EV_NONE;
}

static bool is_more_waiting(const struct pg *pg) {
  int bytes = 0;
  return ioctl(pg_fd(pg), FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Reads a reply as far as it has come. */
static enum pg_event read_reply(struct pg *pg, struct err *err) {
  do {
    if (PQconsumeInput(pg->conn) == 0) {
      return lose(pg, err);
    }
    enum pg_event event = take_results(pg, err);
    if (event != PG_EV_NONE) {
      return event;
    }
  } while (is_more_waiting(pg));
  return PG_EV_NONE;
}

static enum pg_event drive_busy(struct pg *pg, bool is_polled, short revents, int64_t now_us, struct err *err) {
  if (revents != 0 && now_us >= pg->gather_until_us) {
    if (PQflush(pg->conn) < 0) {
      return lose(pg, err);
    }
    enum pg_event event = read_reply(pg, err);
    if (event != PG_EV_NONE) {
      return event;
    }
    if (is_polled && revents == POLLIN) {
      pg->gather_until_us = now_us + GATHER_US;
    }
  }
  if (now_us >= pg->deadline_us) {
    (void)err_set(err, ERR_RETRY, "timeout", "no answer from the server in time; the session is given up");
    pg_close(pg);
    return PG_EV_LOST;
  }
  return PG_EV_NONE;
}

static enum pg_event drive_idle(struct pg *pg, short revents, struct err *err) {
  if (revents == 0) {
    return PG_EV_NONE;
  }
  /* PQisBusy parses what has come, so that a farewell is seen; PQgetResult is not called: nothing is expected. */
  if (PQconsumeInput(pg->conn) == 0 || PQstatus(pg->conn) == CONNECTION_BAD) {
    return lose(pg, err);
  }
  (void)PQisBusy(pg->conn);
  take_notifications(pg);
  return PQstatus(pg->conn) == CONNECTION_BAD ? lose(pg, err) : PG_EV_NONE;
}

enum pg_event pg_drive(struct pg *pg, int64_t now_us, struct err *err) {
  bool is_polled = pg->is_polled;
  pg->is_polled = false;
  switch (pg->state) {
  case PG_CLOSED:
    return PG_EV_NONE;
  case PG_CONNECTING:
    return drive_connecting(pg, now_us, err);
  case PG_IDLE:
    return drive_idle(pg, is_polled ? pg->revents : ask_poll(pg), err);
  case PG_BUSY:
    return drive_busy(pg, is_polled, is_polled ? pg->revents : ask_poll(pg), now_us, err);
  }
  return PG_EV_NONE;
}

static int send_step(PGconn *conn, const struct pg_step *step) {
  switch (step->kind) {
  case PG_QUERY:
    return PQsendQueryParams(conn, step->sql, step->params_n, step->types, step->values, step->lengths, step->formats,
                             step->is_binary_result);
  case PG_PREPARE:
    return PQsendPrepare(conn, step->name, step->sql, step->params_n, step->types);
  case PG_EXECUTE:
    return PQsendQueryPrepared(conn, step->name, step->params_n, step->values, step->lengths, step->formats,
                               step->is_binary_result);
  }
  return 0;
}

int pg_send(struct pg *pg, const struct pg_step *steps, int n, int64_t deadline_us, struct err *err) {
  if (pg->state != PG_IDLE || n < 1 || n > PG_STEPS_MAX) {
    return err_set(err, ERR_BUG, "state", "a request of %d steps in session state %d", n, (int)pg->state);
  }
  clear_reply(pg);
  for (int i = 0; i < n; i++) {
    if (send_step(pg->conn, &steps[i]) != 1) {
      (void)lose(pg, err);
      return -1;
    }
  }
  if (PQpipelineSync(pg->conn) != 1 || PQflush(pg->conn) < 0) {
    (void)lose(pg, err);
    return -1;
  }
  pg->steps_n = n;
  pg->step = 0;
  pg->state = PG_BUSY;
  pg->deadline_us = deadline_us;
  pg->gather_until_us = INT64_MIN;
  pg->is_polled = false;
  return 0;
}

const struct pg_reply *pg_reply(const struct pg *pg) {
  return &pg->reply;
}

PGresult *pg_take_result(struct pg *pg, int step) {
  PGresult *result = pg->reply.results[step];
  pg->reply.results[step] = NULL;
  return result;
}

/* -------------------------------------------------------------------------------------------------- set-up */

struct pg_step pg_setup_step(const struct pg *pg) {
  return (struct pg_step){.kind = PG_QUERY, .sql = embed_session_sql, .params_n = 1, .values = pg->setup_values};
}

static int check_version(const struct pg *pg, struct err *err) {
  if (PQserverVersion(pg->conn) < OLDEST_SERVER_VERSION) {
    return err_set(err, ERR_FATAL, "server_version", "PostgreSQL %d is too old: outboxd needs 14 or newer",
                   PQserverVersion(pg->conn) / 10000);
  }
  return 0;
}

int pg_setup_check(const struct pg *pg, const PGresult *result, struct err *err) {
  if (check_version(pg, err) != 0) {
    return -1;
  }
  if (result == NULL || PQntuples(result) != 1 || PQnfields(result) < 1) {
    return err_set(err, ERR_BUG, "session", "the session set-up returned no row");
  }
  int seen = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
  if (seen != PQbackendPID(pg->conn)) {
    return err_set(
        err, ERR_FATAL, "pooling_proxy",
        "a pooling proxy is between outboxd and PostgreSQL (the connection says server process %d, the server "
        "says %d): where transactions are pooled, the session locks that lanes are owned by do not hold, and how it "
        "pools cannot be seen from here; connect to PostgreSQL itself",
        PQbackendPID(pg->conn), seen);
  }
  return 0;
}

/* Polls one session and the stop token until it has an event, the deadline of the session being the only other end. */
static enum pg_event wait_event(struct pg *pg, const struct stop *stop, struct err *err) {
  for (;;) {
    int64_t now_us = clock_now_us();
    enum pg_event event = pg_drive(pg, now_us, err);
    if (event != PG_EV_NONE) {
      return event;
    }
    if (stop != NULL && stop_is_set(stop)) {
      (void)err_set(err, ERR_RETRY, "stopped", "stopped while waiting for PostgreSQL");
      pg_close(pg);
      return PG_EV_LOST;
    }
    struct pollfd fds[2] = {{.fd = pg_fd(pg), .events = pg_poll_events(pg)},
                            {.fd = stop != NULL ? stop_fd(stop) : -1, .events = POLLIN}};
    (void)poll(fds, 2, clock_poll_timeout_ms(pg_deadline_us(pg), now_us));
  }
}

int pg_call(struct pg *pg, const struct pg_step *steps, int n, int64_t timeout_ms, const struct stop *stop,
            struct err *err) {
  if (pg_send(pg, steps, n, clock_now_us() + timeout_ms * 1000, err) != 0) {
    return -1;
  }
  if (wait_event(pg, stop, err) != PG_EV_REPLY) {
    return -1;
  }
  if (pg->reply.is_failed) {
    *err = pg->reply.err;
    return -1;
  }
  return 0;
}

int pg_connect(struct pg *pg, const struct stop *stop, struct err *err) {
  if (pg_open(pg, clock_now_us(), err) != 0 || wait_event(pg, stop, err) != PG_EV_OPEN) {
    return -1;
  }
  struct pg_step step = pg_setup_step(pg);
  /* An old server would choke on the settings; its version says it better. */
  if (check_version(pg, err) == 0 && pg_call(pg, &step, 1, pg->timeout_ms, stop, err) == 0 &&
      pg_setup_check(pg, pg->reply.results[0], err) == 0) {
    return 0;
  }
  pg_close(pg);
  return -1;
}

/* -------------------------------------------------------------------------------------------------- lending */

PGconn *pg_lend(struct pg *pg, struct err *err) {
  clear_reply(pg);
  if (pg->state != PG_IDLE || PQexitPipelineMode(pg->conn) != 1 || PQsetnonblocking(pg->conn, 0) != 0) {
    (void)lose(pg, err);
    return NULL;
  }
  return pg->conn;
}

int pg_take_back(struct pg *pg, PGTransactionStatusType *status, struct err *err) {
  *status = PQtransactionStatus(pg->conn);
  if (*status == PQTRANS_UNKNOWN) {
    (void)lose(pg, err);
    return -1;
  }
  if (*status == PQTRANS_ACTIVE || PQpipelineStatus(pg->conn) != PQ_PIPELINE_OFF) {
    *status = PQTRANS_ACTIVE;
    return 0;
  }
  if (PQsetnonblocking(pg->conn, 1) != 0 || PQenterPipelineMode(pg->conn) != 1) {
    (void)lose(pg, err);
    return -1;
  }
  return 0;
}

/* -------------------------------------------------------------------------------------------------- values */

int64_t pg_parse_int64(const PGresult *result, int row, int column) {
  return strtoll(PQgetvalue(result, row, column), NULL, 10); /* NULL is "" */
}

int64_t pg_get_int64(const PGresult *result, int row, int column) {
  uint64_t value;
  memcpy(&value, PQgetvalue(result, row, column), sizeof value);
  return (int64_t)be64toh(value);
}

int32_t pg_get_int32(const PGresult *result, int row, int column) {
  uint32_t value;
  memcpy(&value, PQgetvalue(result, row, column), sizeof value);
  return (int32_t)be32toh(value);
}
