/*
 * The table of figures: what was measured, against its target.
 */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <stdbool.h>
#include <stdio.h>

#define FIGURES_MAX 40
#define FIGURE_TEXT_BYTES 160

struct figure {
  const char *name; /* in bench.json */
  char label[FIGURE_TEXT_BYTES];
  double value;
  const char *unit; /* "" for a ratio */
  double target;
  bool is_most;                /* the target is an upper bound, else a lower one */
  char how[FIGURE_TEXT_BYTES]; /* the numbers behind it */
};

struct figures {
  struct figure v[FIGURES_MAX];
  int n;
};

/* Adds a figure with an empty label and explanation, for the caller to fill in by figure_label and figure_how. */
struct figure *figures_add(struct figures *figures, const char *name, double value, const char *unit, double target,
                           bool is_most);
void figure_label(struct figure *figure, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void figure_how(struct figure *figure, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool figure_is_met(const struct figure *figure);

/* For people, and as a table of Markdown. */
void figures_print(const struct figures *figures, FILE *out);
void figures_print_markdown(const struct figures *figures, FILE *out);

#endif
