/*
 * Prints the shots of a recording while it is written, until the recorder ends.
 *
 *     cc -o follow_run follow_run.c $(pkg-config --cflags --libs shotline)
 *     ./follow_run run.h5
 *
 * Valid as C11 and as C++17.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#endif

#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *const STATES[] = {"lost", "partial", "complete"};

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const struct timespec interval = {0, 50000000}; /* 50 ms */
    shotline_run run;
    shotline_run_info info;
    uint64_t seen = 0, rows;
    if (argc != 2) {
        fprintf(stderr, "usage: follow_run FILE\n");
        return 2;
    }
    check(shotline_run_open(argv[1], &run));
    do {
        /* Before the refresh, which then sees all shots up to the end. */
        check(shotline_run_get_info(run, &info));
        check(shotline_run_refresh(run, &rows));
        for (; seen < rows; seen++) {
            shotline_shot shot;
            check(shotline_run_read_shots(run, 0, seen, 1, &shot));
            printf("shot %" PRIu64 ": %s\n", shot.number, STATES[shot.state]);
        }
        fflush(stdout);
        if (!info.finished)
            nanosleep(&interval, NULL);
    } while (!info.finished);
    check(shotline_run_close(run));
    return 0;
}
