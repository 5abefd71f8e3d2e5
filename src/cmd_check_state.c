/*
 * `outboxd check`: the table's and the fleet's state, by the alert thread's own look.
 *
 * Owns nothing beyond a call, in which there is a session "outboxd alert"; main thread.
 */
#include <inttypes.h>

#include "cmd_check_impl.h"
#include "outboxd/alert.h"
#include "outboxd/alert_probe.h"
#include "outboxd/alert_rules.h"
#include "outboxd/units.h"

#define HOUR_S 3600.0

static void say_part_failed(struct check *check, const char *name, const struct err *err) {
  check_say(check, CHECK_WARNING, name, "run the check again; the relay's alert is off as long as this stays",
            "it could not be looked at: %s", err->text);
}

/* False when there is nothing to judge. */
static bool is_seen(struct check *check, const struct alert_view *view, enum alert_part part, const char *name) {
  if (view->seen[part] == ALERT_FAILED) {
    say_part_failed(check, name, &view->errs[part]);
  }
  return view->seen[part] == ALERT_SEEN;
}

static void judge_messages(struct check *check, const struct alert_view *view) {
  char stale[32];
  if (!is_seen(check, view, ALERT_PART_OLDEST, "messages") || !is_seen(check, view, ALERT_PART_COUNTS, "messages")) {
    return;
  }
  const char *at_least = view->is_at_least ? "at least " : "";
  units_format_duration(check->cfg->stale_after_ms, stale, sizeof stale);
  if (view->dead_n > 0) {
    check_say(check, CHECK_WARNING, "messages", "look at their last_error, then retry or discard them",
              "%s%" PRId64 " pending, %" PRId64 " of them dead (--max-attempts %d), the first with id %" PRId64,
              at_least, view->pending_n, view->dead_n, check->cfg->max_attempts_n, view->first_dead_id);
  } else if (view->is_pending && view->oldest_us > check->cfg->stale_after_ms * 1000) {
    check_say(check, CHECK_WARNING, "messages", "start a relay, or look into the relays' logs for what holds them up",
              "%s%" PRId64 " pending, the oldest for %.1f h, longer than --stale-after %s", at_least, view->pending_n,
              (double)view->oldest_us / 1e6 / HOUR_S, stale);
  } else {
    check_say(check, CHECK_OK, "messages", NULL, "%s%" PRId64 " pending, none dead", at_least, view->pending_n);
  }
}

static void judge_lanes(struct check *check, const struct alert_view *view) {
  int owned_n = 0;
  if (!is_seen(check, view, ALERT_PART_LANES, "lanes")) {
    return;
  }
  for (int lane = 0; lane < check->cfg->lanes_n; lane++) {
    owned_n += view->is_owned[lane];
  }
  if (view->members_n == 0) {
    check_say(check, CHECK_OK, "lanes", NULL, "no relay runs on this table now");
  } else {
    check_say(check, CHECK_OK, "lanes", NULL, "%d of %d lanes have an owner, among %d relays", owned_n,
              check->cfg->lanes_n, view->members_n);
  }
}

static void judge_partitions(struct check *check, const struct alert_view *view) {
  bool has_default = view->default_name[0] != '\0';
  if (!is_seen(check, view, ALERT_PART_PARTITIONS, "partitions")) {
    return;
  }
  double days = (double)view->covered_us / 86400e6;
  if (view->covered_us <= 0 && !has_default) {
    check_say(check, CHECK_ERROR, "partitions", "run outboxd init as the owner now",
              "there is no partition for now: inserts fail");
  } else if (view->covered_us <= 0) {
    check_say(check, CHECK_WARNING, "partitions", "run outboxd init as the owner",
              "there is no partition for now: rows go to the DEFAULT partition");
  } else if (view->covered_us < alert_partitions_min_us(check->cfg->partitions_ahead_ms)) {
    check_say(check, CHECK_WARNING, "partitions", "run outboxd init as the owner, and see why the cleanup does not",
              "partitions reach %.1f days ahead only; then %s", days,
              has_default ? "rows go to the DEFAULT partition" : "inserts fail");
  } else {
    check_say(check, CHECK_OK, "partitions", NULL, "they reach %.1f days ahead", days);
  }
  if (has_default && is_seen(check, view, ALERT_PART_DEFAULT, "default_partition") && view->default_rows_n > 0) {
    check_say(check, CHECK_WARNING, "default_partition",
              "move its rows to partitions of their days, or drop those that are published",
              "%s holds rows: they are not removed with their day, and no partition can be made for their days",
              view->default_name);
  }
}

static void judge_transactions(struct check *check, const struct alert_view *view) {
  char fix[CHECK_TEXT_BYTES];
  if (!is_seen(check, view, ALERT_PART_TRANSACTIONS, "transactions")) {
    return;
  }
  if (!view->sees_all) {
    (void)snprintf(fix, sizeof fix, "GRANT pg_read_all_stats TO %s", check->role);
    check_say(check, CHECK_WARNING, "alert_rights", fix,
              "%s cannot see other roles' transactions: an old one is not reported", check->role);
  } else {
    check_say(check, CHECK_OK, "alert_rights", NULL, "%s may see all transactions", check->role);
  }
  if (view->transaction_us > ALERT_LIMITS.transaction_us) {
    if (view->transaction_pid != 0) {
      (void)snprintf(fix, sizeof fix, "end it, if need be by SELECT pg_terminate_backend(%d)", view->transaction_pid);
    } else {
      (void)snprintf(fix, sizeof fix, "COMMIT PREPARED or ROLLBACK PREPARED it");
    }
    check_say(check, CHECK_WARNING, "transactions", fix,
              "one has been open for %.1f h (%s, role %s, pid %d, %s): vacuum keeps what was updated since, and claims "
              "get slower",
              (double)view->transaction_us / 1e6 / HOUR_S, view->transaction_name, view->transaction_role,
              view->transaction_pid, view->transaction_state);
  } else {
    check_say(check, CHECK_OK, "transactions", NULL, "none %s is older than 10 minutes",
              view->sees_all ? "of this database" : "that can be seen");
  }
}

void check_state(struct check *check) {
  static struct alert_view view; /* several kilobytes; zeroed by each look */
  struct alert_probe *probe = NULL;
  struct err err = ERR_INIT;
  if (alert_probe_new(check->cfg, NULL, check->table, NULL, &probe, &err) != 0) {
    check->is_out_of_memory = true;
    return;
  }
  alert_probe_look(probe, 0, &view);
  if (!view.is_postgres_up) {
    check_say(check, CHECK_WARNING, "messages", "run the check again", "a second session was refused or lost: %s",
              view.postgres_err.text);
  } else {
    judge_messages(check, &view);
    judge_lanes(check, &view);
    judge_partitions(check, &view);
    judge_transactions(check, &view);
  }
  alert_probe_free(probe);
}
