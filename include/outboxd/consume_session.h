/*
 * A worker's PostgreSQL session: it holds the advisory locks of the worker's lanes, and its transactions run the handler.
 *
 * So whoever loses the session loses the lanes and the open transaction with it.  Blocking, one thread; every wait ends at --session-timeout or
 * when the abort token is set.  Any error closes the session, unless it says otherwise.
 */
#ifndef OUTBOXD_CONSUME_SESSION_H
#define OUTBOXD_CONSUME_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "outboxd/consume_cfg.h"
#include "outboxd/err.h"
#include "outboxd/pg.h"
#include "outboxd/stop.h"

struct consume_session {
  struct pg *pg;
  const struct consume_cfg *cfg;
  const struct stop *abort;
  char *process; /* SQL that marks a message */
  char key[24];  /* what a lane is added to for its lock's key: of the group and the streams */
  bool is_proven;
  int members_n; /* as seen by session_look: workers of the group, and the place of this one among them */
  int rank;
  bool *is_taken; /* per lane: somebody has its lock */
};

must_check int session_init(struct consume_session *session, const struct consume_cfg *cfg, const struct stop *abort,
                            struct err *err);
void session_fini(struct consume_session *session);

bool session_is_open(const struct consume_session *session);
void session_close(struct consume_session *session);
/* Connects, joins the group's workers, prepares.  ERR_FATAL when it can never work and never did. */
must_check int session_open(struct consume_session *session, struct err *err);

/* The server still has the session, and so its locks. */
must_check int session_prove(struct consume_session *session, struct err *err);
/* Who is there, and which lanes are taken. */
must_check int session_look(struct consume_session *session, struct err *err);
/* Tries the locks of the lanes that are marked; unmarks those that others have. */
must_check int session_take(struct consume_session *session, bool *lanes, struct err *err);
must_check int session_release(struct consume_session *session, int lane, struct err *err);

/* Begins a transaction and marks the message in it; *is_first as outbox_process_once has it.  ERR_REJECT: this message cannot be marked, the
 * session is open and in no transaction. */
must_check int session_begin(struct consume_session *session, const char *message_id, bool *is_first, struct err *err);
/* ERR_REJECT: refused (a deferred constraint), rolled back, the session is open. */
must_check int session_commit(struct consume_session *session, struct err *err);
must_check int session_rollback(struct consume_session *session, struct err *err);

/* The connection for the handler, and back.  session_take_back: ERR_REJECT when the handler left it unfit for a COMMIT, the session may be
 * closed then. */
PGconn *session_lend(struct consume_session *session, struct err *err);
must_check int session_take_back(struct consume_session *session, struct err *err);

#endif
