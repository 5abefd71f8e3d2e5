/*
 * How far something is that takes long, for whoever waits: on a terminal one line that is drawn again, with bar, rate and what remains; elsewhere a
 * plain line now and then.
 *
 * A struct progress belongs to one thread.  Nothing is written before PROGRESS_QUIET_US have passed: what is quick needs no progress.
 */
#ifndef OUTBOXD_PROGRESS_H
#define OUTBOXD_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_QUIET_US INT64_C(500000) /* on a terminal; elsewhere PROGRESS_LINE_US */
#define PROGRESS_DRAW_US INT64_C(200000)  /* between two drawings on a terminal */
#define PROGRESS_LINE_US INT64_C(5000000) /* between two plain lines */
#define PROGRESS_UNKNOWN INT64_C(-1)      /* a total that is not known (yet) */
#define PROGRESS_LINE_BYTES 512           /* enough for any line of PROGRESS_WIDTH_MAX columns */
#define PROGRESS_WIDTH_MAX 200

/* What a line says. */
struct progress_view {
  const char
      *what; /* "replay", "index on public.outbox_messages: scanning table"; ASCII is counted as a column a byte */
  int64_t done_n;
  int64_t total_n;    /* PROGRESS_UNKNOWN: none is shown, nor a bar, nor what remains */
  int64_t elapsed_us; /* since the beginning */
  double rate;        /* done a second, lately; 0: nothing moves */
};

/* The line for a terminal of width columns (10..PROGRESS_WIDTH_MAX; it stays one column shorter, so that no terminal breaks it).  Where there is no room
 * the bar goes first, then what stands at the end.  Returns its length.  Pure. */
size_t progress_format(const struct progress_view *view, int width, char out[PROGRESS_LINE_BYTES]);

/* The plain line, without its end.  Pure. */
size_t progress_format_plain(const struct progress_view *view, char out[PROGRESS_LINE_BYTES]);

struct progress {
  int fd;
  bool is_terminal;
  bool is_drawn; /* a line of ours stands on the terminal */
  char what[160];
  int64_t began_us;
  int64_t next_us; /* not drawn before */
  /* The rate: over the last few seconds, older ones count less and less. */
  int64_t noted_us;
  int64_t noted_n;
  double rate;
  int64_t rated_us; /* since when */
};

/* True when fd is a terminal that can go back within a line ($TERM is set, and not "dumb"). */
bool progress_is_terminal(int fd);

/* Begins; what is copied.  fd is borrowed, 2 as a rule; is_terminal as progress_is_terminal has it.  now_us: clock_now_us, here and below. */
void progress_begin(struct progress *progress, const char *what, int fd, bool is_terminal, int64_t now_us);

/* Another part of the work: a new text, a new count, a new rate; the clock of PROGRESS_QUIET_US goes on. */
void progress_go_on(struct progress *progress, const char *what, int64_t now_us);

/* Notes how far it is and writes when that is due.  Writing may block as long as nobody reads the terminal. */
void progress_note(struct progress *progress, int64_t done_n, int64_t total_n, int64_t now_us);

/* Wipes the line, so that something else may be written; the next progress_note draws it again. */
void progress_wipe(struct progress *progress);

#endif
