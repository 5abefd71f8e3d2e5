/*
 * How far something is.
 *
 * Owns nothing but the line it has drawn.  Never: fails; a terminal that does not take its line is none of the work's business.
 */
#include "outboxd/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "outboxd/say.h"

#define US_PER_S INT64_C(1000000)
#define WIDTH_DEFAULT 80
#define WIDTH_MIN 10
#define BAR_MIN 10
#define BAR_MAX 40
#define PARTS_MAX 5
#define PART_BYTES 160
#define RATE_SPAN_S 5.0    /* what is older counts for little */
#define RATE_MIN_US 100000 /* from one noting of the rate to the next */
#define WIPE "\r\033[K"

/* -------------------------------------------------------------------------------------------------- formatting */

static int percent_of(const struct progress_view *view) {
  if (view->total_n <= 0 || view->done_n >= view->total_n) {
    return 100;
  }
  double share = view->done_n > 0 ? (double)view->done_n / (double)view->total_n : 0;
  return (int)(share * 100); /* rounded down: 100 % is for the end */
}

/* Microseconds; -1 when nobody can say. */
static int64_t remaining_us(const struct progress_view *view) {
  if (view->total_n < 0 || view->rate <= 0) {
    return -1;
  }
  if (view->done_n >= view->total_n) {
    return 0;
  }
  double us = (double)(view->total_n - view->done_n) / view->rate * US_PER_S;
  return us < (double)(INT64_MAX / 2) ? (int64_t)us : -1;
}

static void say_rate(double rate, char out[SAY_BYTES]) {
  if (rate > 0 && rate < 10) {
    (void)snprintf(out, SAY_BYTES, "%.1f/s", rate);
  } else {
    char count[SAY_BYTES];
    (void)snprintf(out, SAY_BYTES, "%.30s/s", say_count(rate < 1e15 ? (int64_t)(rate + 0.5) : 0, count));
  }
}

/* The parts behind the bar, the most telling first; returns how many there are. */
static int make_parts(const struct progress_view *view, char parts[PARTS_MAX][PART_BYTES]) {
  char done[SAY_BYTES];
  int n = 0;
  if (view->total_n >= 0) {
    char total[SAY_BYTES];
    (void)snprintf(parts[n++], PART_BYTES, "%d %%", percent_of(view));
    (void)snprintf(parts[n++], PART_BYTES, "%s of %s", say_count(view->done_n, done), say_count(view->total_n, total));
  } else if (view->done_n > 0) {
    (void)snprintf(parts[n++], PART_BYTES, "%s", say_count(view->done_n, done));
  }
  if (view->total_n >= 0 || view->done_n > 0) {
    say_rate(view->rate, parts[n++]);
  }
  int64_t left_us = remaining_us(view);
  if (left_us >= 0) {
    (void)snprintf(parts[n++], PART_BYTES, "%s left", say_age(left_us, done));
  } else {
    (void)snprintf(parts[n++], PART_BYTES, "for %s", say_age(view->elapsed_us, done));
  }
  return n;
}

/* "[=====>    ]", width columns with its brackets. */
static size_t put_bar(const struct progress_view *view, size_t width, char *out) {
  size_t inner = width - 2;
  size_t filled = inner * (size_t)percent_of(view) / 100;
  out[0] = '[';
  memset(out + 1, '=', filled);
  memset(out + 1 + filled, ' ', inner - filled);
  if (filled < inner) {
    out[1 + filled] = '>';
  }
  out[width - 1] = ']';
  return width;
}

size_t progress_format(const struct progress_view *view, int width, char out[PROGRESS_LINE_BYTES]) {
  char parts[PARTS_MAX][PART_BYTES];
  int n = make_parts(view, parts);
  width = width < WIDTH_MIN ? WIDTH_MIN : width > PROGRESS_WIDTH_MAX ? PROGRESS_WIDTH_MAX : width;
  size_t room = (size_t)width - 1;
  size_t used = strlen(view->what) < room ? strlen(view->what) : room;
  memcpy(out, view->what, used);
  size_t parts_bytes = 0;
  for (int i = 0; i < n; i++) {
    parts_bytes += 2 + strlen(parts[i]);
  }
  if (view->total_n >= 0 && used + 2 + BAR_MIN + parts_bytes <= room) {
    size_t bar = room - used - 2 - parts_bytes;
    memset(out + used, ' ', 2);
    used += 2 + put_bar(view, bar < BAR_MAX ? bar : BAR_MAX, out + used + 2);
  }
  for (int i = 0; i < n && used + 2 + strlen(parts[i]) <= room; i++) {
    memset(out + used, ' ', 2);
    memcpy(out + used + 2, parts[i], strlen(parts[i]));
    used += 2 + strlen(parts[i]);
  }
  out[used] = '\0';
  return used;
}

size_t progress_format_plain(const struct progress_view *view, char out[PROGRESS_LINE_BYTES]) {
  char parts[PARTS_MAX][PART_BYTES];
  int n = make_parts(view, parts);
  size_t used = (size_t)snprintf(out, PROGRESS_LINE_BYTES / 2, "%s", view->what);
  used = used < PROGRESS_LINE_BYTES / 2 ? used : PROGRESS_LINE_BYTES / 2 - 1;
  for (int i = 0; i < n; i++) {
    used += (size_t)snprintf(out + used, PROGRESS_LINE_BYTES - used, "%s %s", i == 0 ? ":" : ",", parts[i]);
    used = used < PROGRESS_LINE_BYTES ? used : PROGRESS_LINE_BYTES - 1;
  }
  return used;
}

/* -------------------------------------------------------------------------------------------------- writing */

bool progress_is_terminal(int fd) {
  const char *term = getenv("TERM");
  return isatty(fd) == 1 && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

static int width_of(int fd) {
  struct winsize size = {0};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : WIDTH_DEFAULT;
}

/* One write(2), so that nothing of another process comes between. */
static void put(int fd, const char *bytes, size_t n) {
  while (n > 0) {
    ssize_t written = write(fd, bytes, n);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return;
    }
    bytes += written;
    n -= (size_t)written;
  }
}

void progress_begin(struct progress *progress, const char *what, int fd, bool is_terminal, int64_t now_us) {
  *progress = (struct progress){.fd = fd, .is_terminal = is_terminal, .began_us = now_us};
  progress->next_us = now_us + (is_terminal ? PROGRESS_QUIET_US : PROGRESS_LINE_US);
  progress_go_on(progress, what, now_us);
}

void progress_go_on(struct progress *progress, const char *what, int64_t now_us) {
  (void)snprintf(progress->what, sizeof progress->what, "%s", what);
  for (char *p = progress->what; *p != '\0'; p++) {
    *p = (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p; /* a table's name may hold anything */
  }
  progress->noted_us = now_us;
  progress->noted_n = 0;
  progress->rate = 0;
  progress->rated_us = now_us;
}

/* The average of all there was in the first seconds, then one that forgets: a stretch of dt seconds counts for dt / (dt + RATE_SPAN_S). */
static void note_rate(struct progress *progress, int64_t done_n, int64_t now_us) {
  if (now_us - progress->noted_us < RATE_MIN_US) {
    return;
  }
  double seconds = (double)(now_us - progress->noted_us) / US_PER_S;
  double rate = (double)(done_n - progress->noted_n) / seconds;
  double all_seconds = (double)(now_us - progress->rated_us) / US_PER_S;
  double weight = seconds / (all_seconds < seconds + RATE_SPAN_S ? all_seconds : seconds + RATE_SPAN_S);
  rate = rate > 0 ? rate : 0;
  progress->rate += (rate - progress->rate) * weight;
  progress->noted_us = now_us;
  progress->noted_n = done_n;
}

void progress_note(struct progress *progress, int64_t done_n, int64_t total_n, int64_t now_us) {
  char line[PROGRESS_LINE_BYTES];
  char bytes[sizeof WIPE + PROGRESS_LINE_BYTES + 16];
  note_rate(progress, done_n, now_us);
  if (now_us < progress->next_us) {
    return;
  }
  const struct progress_view view = {.what = progress->what,
                                     .done_n = done_n,
                                     .total_n = total_n,
                                     .elapsed_us = now_us - progress->began_us,
                                     .rate = progress->rate};
  int n;
  if (progress->is_terminal) {
    (void)progress_format(&view, width_of(progress->fd), line);
    n = snprintf(bytes, sizeof bytes, WIPE "%s", line);
    progress->next_us = now_us + PROGRESS_DRAW_US;
    progress->is_drawn = true;
  } else {
    (void)progress_format_plain(&view, line);
    n = snprintf(bytes, sizeof bytes, "outboxd: %s\n", line);
    progress->next_us = now_us + PROGRESS_LINE_US;
  }
  put(progress->fd, bytes, (size_t)n);
}

void progress_wipe(struct progress *progress) {
  if (progress->is_drawn) {
    put(progress->fd, WIPE, strlen(WIPE));
    progress->is_drawn = false;
    progress->next_us = 0;
  }
}
