/*
 * The table of figures: see figures.h.
 */
#include "figures.h"

#include <stdarg.h>
#include <string.h>

#include "fail.h"

struct figure *figures_add(struct figures *figures, const char *name, double value, const char *unit, double target,
                           bool is_most) {
  REQUIRE(figures->n < FIGURES_MAX, "more than %d figures", FIGURES_MAX);
  struct figure *figure = &figures->v[figures->n++];
  *figure = (struct figure){.name = name, .value = value, .unit = unit, .target = target, .is_most = is_most};
  return figure;
}

void figure_label(struct figure *figure, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(figure->label, sizeof figure->label, fmt, args);
  va_end(args);
}

void figure_how(struct figure *figure, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(figure->how, sizeof figure->how, fmt, args);
  va_end(args);
}

bool figure_is_met(const struct figure *figure) {
  return figure->is_most ? figure->value <= figure->target : figure->value >= figure->target;
}

static void write_number(char *out, size_t n, double value, const char *unit) {
  snprintf(out, n, "%.*f%s%s", value < 100 ? 2 : 0, value, unit[0] != '\0' ? " " : "", unit);
}

static void write_cells(const struct figure *figure, char measured[48], char target[48]) {
  char number[40];
  write_number(measured, 48, figure->value, figure->unit);
  write_number(number, sizeof number, figure->target, figure->unit);
  snprintf(target, 48, "%s %s", figure->is_most ? "<=" : ">=", number);
}

void figures_print(const struct figures *figures, FILE *out) {
  char measured[48], target[48];
  fprintf(out, "%-76s %12s %14s\n", "figure", "measured", "target");
  for (int i = 0; i < figures->n; i++) {
    const struct figure *figure = &figures->v[i];
    write_cells(figure, measured, target);
    fprintf(out, "%-76s %12s %14s  %-7s  %s\n", figure->label, measured, target,
            figure_is_met(figure) ? "met" : "missed", figure->how);
  }
}

void figures_print_markdown(const struct figures *figures, FILE *out) {
  char measured[48], target[48];
  fputs("| figure | measured | target | | behind it |\n| --- | --- | --- | --- | --- |\n", out);
  for (int i = 0; i < figures->n; i++) {
    const struct figure *figure = &figures->v[i];
    write_cells(figure, measured, target);
    fprintf(out, "| %s | %s | %s | %s | %s |\n", figure->label, measured, target,
            figure_is_met(figure) ? "met" : "**missed**", figure->how);
  }
}
