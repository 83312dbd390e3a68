/*
 * Ends with a run, its emulated probe and shots open, and with another thread that waits for shots.
 *
 *     open_at_exit FILE HOW      HOW: "return" from main, "exit" in a callback
 */
#include "check.h"

#include <pthread.h>

static shotline_recorder recorder;

static int32_t keep_three(shotline_shots shots, void *user)
{
    shotline_shots kept; /* never released */
    SUCCEEDS(shotline_shots_share(shots, &kept));
    return ++*(int *)user == 3;
}

static int32_t end_process(shotline_shots shots, void *user)
{
    (void)shots;
    (void)user;
    exit(0);
}

static void *take_until_closed(void *unused)
{
    shotline_shots shots;
    while (shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots) == SHOTLINE_OK)
        SUCCEEDS(shotline_shots_release(shots));
    return unused;
}

int main(int argc, char **argv)
{
    const char *config = "{\"links\": 1, \"channels\": 8, \"samples\": 64}";
    char address[64], settings[4096];
    shotline_emulator emulator;
    pthread_t thread;
    int calls = 0;
    CHECK(argc == 3);
    SUCCEEDS(shotline_emulator_start(config, NULL, NULL, &emulator));
    SUCCEEDS(shotline_emulator_get_text(emulator, "address", address, sizeof address, NULL));
    snprintf(settings, sizeof settings,
             "probe = '%s'\nbind = '[::1]:0'\nsamples = 64\nrate_hz = 2000.0\npool = '8MiB'\nout = '%s'\n", address,
             argv[1]);
    SUCCEEDS(shotline_recorder_start(settings, &recorder));
    SUCCEEDS(shotline_recorder_run(recorder, keep_three, &calls));
    CHECK(!pthread_create(&thread, NULL, take_until_closed, NULL));
    CHECK(!pthread_detach(thread));
    if (!strcmp(argv[2], "exit"))
        CHECK(shotline_recorder_run(recorder, end_process, NULL) == SHOTLINE_OK);
    return 0;
}
