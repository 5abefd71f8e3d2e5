/*
 * A consumer made from options that are parsed already: for outbox-consume.
 */
#ifndef OUTBOXD_CONSUMER_H
#define OUTBOXD_CONSUMER_H

#include "outbox.h"
#include "outboxd/consume_cfg.h"
#include "outboxd/stop.h"

/* In place of outbox_consumer_set: takes *cfg over, and leaves it empty. */
void consumer_take_cfg(struct outbox_consumer *consumer, struct consume_cfg *cfg);
/* Set once messages in hand are to be given up: for handlers that wait. */
const struct stop *consumer_abort(const struct outbox_consumer *consumer);

#endif
