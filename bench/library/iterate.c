/*
 * Takes shots of a probe in C until the time is over, looks at each, and prints the run's figures as JSON.
 *
 * Arguments: address of the probe, samples per shot, seconds, pool, processor of the receive thread, Gbit/s (0:
 * free-running).
 */
#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int main(int count, char **words)
{
    if (count != 7)
        return 2;
    char settings[1024], pace[64] = "";
    if (atof(words[6]) > 0)
        snprintf(pace, sizeof pace, ", \"gbps\": %s", words[6]);
    snprintf(settings, sizeof settings,
             "{\"probe\": \"%s\", \"samples\": %s, \"seconds\": %s, \"pool\": \"%s\", \"cpu\": %s%s}", words[1], words[2],
             words[3], words[4], words[5], pace);
    shotline_recorder recorder;
    const double began = now_ms();
    check(shotline_recorder_start(settings, &recorder));
    check(shotline_recorder_wait_started(recorder, SHOTLINE_FOREVER));
    const double opened = now_ms();
    double first = 0;
    uint64_t taken = 0, incomplete = 0, bytes = 0;
    for (;;) {
        shotline_shots shots;
        shotline_shots_info info;
        const void *data;
        size_t length;
        shotline_status status = shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots);
        if (status == SHOTLINE_ERROR_ENDED)
            break;
        check(status);
        if (taken++ == 0)
            first = now_ms();
        check(shotline_shots_get_info(shots, &info));
        incomplete += info.state != SHOTLINE_STATE_COMPLETE;
        check(shotline_shots_data(shots, 0, &data, &length));
        bytes += length;
        check(shotline_shots_release(shots));
    }
    const double ended = now_ms();
    static char report[1 << 16];
    check(shotline_recorder_get_text(recorder, "report", report, sizeof report, NULL));
    check(shotline_recorder_close(recorder));
    printf("{\"taken\": %" PRIu64 ", \"incomplete\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"open_ms\": %.3f, \"first_shot_ms\": %.3f, \"close_ms\": %.3f, \"report\": %s}\n",
           taken, incomplete, bytes, opened - began, first - opened, now_ms() - ended, report);
    return 0;
}
