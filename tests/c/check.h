/* Checks of programs that call the library wrongly. */
#ifndef CHECK_H
#define CHECK_H

#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s; the last error is: %s\n", __LINE__, #condition, shotline_last_error());      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
/* The call fails with this status and a message that contains these words. */
#define FAILS(status, words, call)                                                                                     \
    do {                                                                                                               \
        CHECK((call) == SHOTLINE_ERROR_##status);                                                                      \
        CHECK(strstr(shotline_last_error(), words));                                                                   \
    } while (0)
#define SUCCEEDS(call) CHECK((call) == SHOTLINE_OK)

#endif
