/*
 * The program under test: starts it, reads its log as it grows, signals it, waits for its end.
 *
 * The binary is $OUTBOXD_BIN, else build/outboxd.  Standard error goes to a file in the stack's directory; every line of it must be a JSON
 * object with ts, level, event and message, else the test fails on the spot (unless the relay is one that is to end with plain text).
 * Main thread only.
 */
#ifndef TEST_RELAY_H
#define TEST_RELAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proc.h"
#include "stack.h"

struct relay;

/* An argument list: ARGS("run", "--lanes", "4"). */
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Starts outboxd with args (command first).  --database and --redis of the stack are added unless args name them or has them as "". */
struct relay *relay_start(const struct stack *stack, const char *const *args);

/* The same with another binary beside it, whose name ends with suffix ("-nocas": without the journal's compare-and-set). */
struct relay *relay_start_variant(const struct stack *stack, const char *suffix, const char *const *args);

/* outbox-consume, and tests/tools/consumer-app, in place of the relay: everything else holds for them too. */
struct relay *relay_start_consumer(const struct stack *stack, const char *const *args);
struct relay *relay_start_consumer_app(const struct stack *stack, const char *const *args);
/* Runs outbox-consume to its end with plain text allowed. */
struct relay *relay_run_consumer_plain(const struct stack *stack, const char *const *args, int64_t timeout_ms);

/* The same with environment variables ("NAME=value"), nothing added to args, and a standard error that may hold plain text. */
struct relay *relay_start_plain(const struct stack *stack, const char *const *env, const char *const *args);

/* Runs outboxd to its end with plain text allowed; the relay is kept for relay_text.  timeout_ms is scaled. */
struct relay *relay_run_plain(const struct stack *stack, const char *const *args, int64_t timeout_ms);

pid_t relay_pid(const struct relay *relay);
bool relay_is_running(struct relay *relay);
void relay_signal(struct relay *relay, int signum);

/* Waits for its end and returns the exit status, or minus the signal that ended it; fails the test after timeout_ms (scaled). */
int relay_wait(struct relay *relay, int64_t timeout_ms);

/* SIGTERM; requires exit status 0 within 60 s (scaled). */
void relay_stop(struct relay *relay);

/* SIGKILL, and waits. */
void relay_kill(struct relay *relay);

/* Decides whether a line is the one waited for. */
typedef bool relay_predicate(const json_t *line, const void *arg);

/* Waits for a line with this event (NULL: any) that has not been returned by an earlier call for the same relay, and on which is_match (NULL:
 * any) holds.  Fails the test after timeout_ms (scaled), or when the relay ends without having written it.  Borrowed from the relay. */
const json_t *relay_wait_log(struct relay *relay, const char *event, relay_predicate *is_match, const void *arg,
                             int64_t timeout_ms);

/* Lines with this event so far. */
int relay_count(struct relay *relay, const char *event);

/* All lines so far, a JSON array; borrowed. */
const json_t *relay_lines(struct relay *relay);

/* Sum of an integer field over all lines of an event so far; a line without it counts 0. */
int64_t relay_sum(struct relay *relay, const char *event, const char *field);

/* All of standard error (and output) as text so far; caller frees. */
char *relay_text(struct relay *relay);
char *relay_stdout(struct relay *relay);

/* Runs a command to its end and forgets it; its exit status.  *out (may be NULL) gets what it said on standard output, or if nothing on standard
 * error; caller frees. */
int relay_run_command(const struct stack *stack, const char *const *args, int64_t timeout_ms, char **out);
/* The same, when it has to end with the status `wanted` and its words are to hold `says`. */
void relay_require_says(const struct stack *stack, int wanted, const char *says, const char *const *args,
                        int64_t timeout_ms);

/* Forgets a relay that has ended (its log stays), sets *relay to NULL: for runs with more relays than a test may have at a time. */
void relay_forget(struct relay **relay);

/* Ends all that still run (SIGKILL) and frees them: at the end of each test. */
void relay_end_all(void);

#endif
