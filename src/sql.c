/*
 * Owns: the reading of SQL text far enough to replace psql's :name variables and to leave comments out.
 *
 * Pure: any thread, no state.  Must never touch what stands in a quoted string, a quoted identifier or a $tag$ body:
 * psql leaves these alone too, so that a file under sql/ means the same in both.
 */
#include "outboxd/sql.h"

#include <stdbool.h>
#include <string.h>

#include "outboxd/buf.h"

/* Bytes above 127 belong to letters of UTF-8, as in PostgreSQL's own lexer. */
static bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_name_part(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9');
}

/* The end of the quoted run that starts at p; a doubled quote is part of it, and in E'' strings a backslashed one. */
static const char *quoted_end(const char *p, bool has_escapes) {
  char quote = *p++;
  while (*p != '\0') {
    if ((has_escapes && *p == '\\' && p[1] != '\0') || (*p == quote && p[1] == quote)) {
      p += 2;
    } else if (*p == quote) {
      return p + 1;
    } else {
      p++;
    }
  }
  return p;
}

/* Block comments nest in PostgreSQL. */
static const char *block_comment_end(const char *p) {
  int depth = 0;
  while (*p != '\0') {
    if (p[0] == '/' && p[1] == '*') {
      depth++;
      p += 2;
    } else if (p[0] == '*' && p[1] == '/') {
      p += 2;
      depth--;
      if (depth == 0) {
        return p;
      }
    } else {
      p++;
    }
  }
  return p;
}

/* The end of the $tag$ body that starts at p, or NULL when p starts none ("$1" is a parameter). */
static const char *dollar_end(const char *p) {
  const char *tag_end = p + 1;
  if (is_name_start(*tag_end)) {
    while (is_name_part(*tag_end)) {
      tag_end++;
    }
  }
  if (*tag_end != '$') {
    return NULL;
  }
  size_t tag_n = (size_t)(tag_end + 1 - p);
  for (const char *q = tag_end + 1; *q != '\0'; q++) {
    if (strncmp(q, p, tag_n) == 0) {
      return q + tag_n;
    }
  }
  return p + strlen(p);
}

static const char *value_of(const struct sql_var *vars, const char *name, size_t n) {
  for (; vars != NULL && vars->name != NULL; vars++) {
    if (strlen(vars->name) == n && memcmp(vars->name, name, n) == 0) {
      return vars->value;
    }
  }
  return NULL;
}

/* A name or keyword at p, whole, so that its last letter is never taken for the E of a string, nor a $ inside it for a
 * body's tag. */
static const char *word_end(const char *p) {
  if ((*p == 'e' || *p == 'E') && p[1] == '\'') {
    return quoted_end(p + 1, true);
  }
  while (is_name_part(*p) || *p == '$') {
    p++;
  }
  return p;
}

int sql_expand(const char *text, const struct sql_var *vars, char **out, struct err *err) {
  struct buf result = BUF_INIT;
  const char *p = text;

  *out = NULL;
  if (buf_reserve(&result, strlen(text), err) != 0) {
    return -1;
  }
  while (*p != '\0') {
    const char *end = p + 1;
    const char *value = NULL;
    if (is_name_start(*p)) {
      end = word_end(p);
    } else if (*p == '\'' || *p == '"') {
      end = quoted_end(p, false);
    } else if (*p == '$') {
      const char *body_end = dollar_end(p);
      end = body_end != NULL ? body_end : p + 1;
    } else if (p[0] == '-' && p[1] == '-') {
      end = p + strcspn(p, "\n");
      value = "";
      /* A line that was nothing but a comment goes with its line break. */
      end += *end == '\n' && (result.len == 0 || result.data[result.len - 1] == '\n');
    } else if (p[0] == '/' && p[1] == '*') {
      end = block_comment_end(p);
      value = " ";
    } else if (p[0] == ':' && p[1] == ':') {
      end = p + 2;
    } else if (p[0] == ':' && is_name_start(p[1])) {
      end = p + 2;
      while (is_name_part(*end)) {
        end++;
      }
      value = value_of(vars, p + 1, (size_t)(end - p - 1));
      if (value == NULL) {
        (void)err_set(err, ERR_BUG, "sql_variable", "no value for the SQL variable %.*s", (int)(end - p), p);
        goto fail;
      }
    }
    if (value != NULL ? buf_append_str(&result, value, err) != 0
                      : buf_append(&result, p, (size_t)(end - p), err) != 0) {
      goto fail;
    }
    p = end;
  }
  *out = result.data;
  return 0;
fail:
  buf_free(&result);
  return -1;
}
