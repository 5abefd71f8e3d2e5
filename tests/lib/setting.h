/*
 * Settings of a test program that come from the environment.
 */
#ifndef TEST_SETTING_H
#define TEST_SETTING_H

#include <stdint.h>

/* The variable's value, or otherwise when it is unset or empty. */
const char *setting(const char *name, const char *otherwise);

/* A $DURATION such as 30m or 1.5h in milliseconds; anything else ends the program with what it takes. */
int64_t setting_duration_ms(const char *text);

#endif
