/*
 * An error on its way up: what kind it is, a stable code, a sentence for a person.
 *
 * Lives on the caller's stack; owns no memory.  Filled where the failure is seen, given context
 * on the way up, logged once, where it is decided what to do about it.
 */
#ifndef OUTBOXD_ERR_H
#define OUTBOXD_ERR_H

/* What the one who meets the error can do about it. */
enum err_class {
  ERR_NONE = 0, /* no error */
  ERR_RETRY,    /* infrastructure: the same thing may work later; burns no attempt */
  ERR_REJECT,   /* of one message: counts as an attempt of that message */
  ERR_FATAL,    /* can never work without somebody's doing: end with status 1 */
  ERR_USAGE,    /* the command line is wrong: end with status 2 */
  ERR_BUG       /* an invariant of our own does not hold */
};

#define ERR_CODE_BYTES 32
#define ERR_TEXT_BYTES 1024

struct err {
  enum err_class class;
  char code[ERR_CODE_BYTES]; /* SQLSTATE, first word of a Redis error, errno name or a name of ours */
  char text[ERR_TEXT_BYTES]; /* one line of UTF-8, no secrets, no payloads */
};

#define ERR_INIT \
  { .class = ERR_NONE }
#define must_check __attribute__((warn_unused_result))

/* Fills *err; always returns -1, so that `return err_set(...)` ends a fallible function.
 * code and the formatted text are copied and cut to size; line breaks become spaces.  err may be NULL. */
int err_set(struct err *err, enum err_class class, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with the text of errno and its name as code. */
int err_errno(struct err *err, enum err_class class, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "context: " before the text; class and code stay.  Always returns -1. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__
/* The analyser looks at one file at a time and would not know that these return -1. */
#define err_set(...) ((void)err_set(__VA_ARGS__), -1)
#define err_errno(...) ((void)err_errno(__VA_ARGS__), -1)
#define err_wrap(...) ((void)err_wrap(__VA_ARGS__), -1)
#endif

/* Empties *err. */
void err_clear(struct err *err);

/* "retry", "reject", ... for logs. */
const char *err_class_name(enum err_class class);

#endif
