/* Expectations of the tests in C and C++. */
#ifndef PUNCTUAL_TESTS_EXPECT_H
#define PUNCTUAL_TESTS_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#include <punctual.h>

/* Fails with the line, unless the call says what it should. */
#define EXPECT(wanted, call)                                                                                    \
    do {                                                                                                        \
        punctual_error said = (call);                                                                           \
        if (said != (wanted)) {                                                                                 \
            fprintf(stderr, "line %d: %s, not %s: %s\n", __LINE__, punctual_error_name(said), #wanted,          \
                punctual_last_error());                                                                         \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

/* Fails with the line, unless it is so. */
#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);  \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

#endif
