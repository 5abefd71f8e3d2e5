/*
 * Waiting for a statement that takes long.
 *
 * Owns nothing; runs on its caller's thread.
 */
#include "outboxd/pgtick.h"

#include <poll.h>

#include "outboxd/clock.h"

int pgtick_call(struct pg *pg, const struct pg_step *steps, int n, int64_t timeout_ms, const struct stop *stop,
                int64_t every_ms, void (*tick)(void *arg), void *arg, struct err *err) {
  int64_t now_us = clock_now_us();
  int64_t tick_us = now_us + every_ms * 1000;
  if (pg_send(pg, steps, n, now_us + timeout_ms * 1000, err) != 0) {
    return -1;
  }
  for (;;) {
    now_us = clock_now_us();
    enum pg_event event = pg_drive(pg, now_us, err);
    if (event == PG_EV_LOST) {
      return -1;
    }
    if (event == PG_EV_REPLY) {
      break;
    }
    if (stop != NULL && stop_is_set(stop)) {
      pg_close(pg);
      return err_set(err, ERR_RETRY, "stopped", "stopped while waiting for PostgreSQL");
    }
    if (now_us >= tick_us) {
      tick(arg);
      now_us = clock_now_us();
      tick_us = now_us + every_ms * 1000;
    }
    int64_t until_us = pg_deadline_us(pg) < tick_us ? pg_deadline_us(pg) : tick_us;
    struct pollfd fds[2] = {{.fd = pg_fd(pg), .events = pg_poll_events(pg)},
                            {.fd = stop != NULL ? stop_fd(stop) : -1, .events = POLLIN}};
    (void)poll(fds, 2, clock_poll_timeout_ms(until_us, now_us));
  }
  if (pg_reply(pg)->is_failed) {
    *err = pg_reply(pg)->err;
    return -1;
  }
  return 0;
}
