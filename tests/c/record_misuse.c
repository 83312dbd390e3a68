/*
 * Calls recorders, shots, probes and emulators with every wrong argument, from several threads, and after a fork. Each call
 * has a defined outcome.
 *
 *     record_misuse             everything but this:
 *     record_misuse vanish      a probe that vanishes, which takes seconds to notice
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#endif

#include "check.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAKERS = 10, SHOTS = 2000, MAX_HELD = 8192, SLOT = 4096, SAMPLES = 64, CHANNELS = 8 };

static shotline_emulator emulator;
static char address[64];

/* Starts a run of one link on a port of its own, with a small pool; `more` are further settings. */
static shotline_status start(const char *more, shotline_recorder *recorder)
{
    char settings[512];
    const char *pool = strstr(more, "pool") ? "" : ", \"pool\": \"8MiB\"";
    snprintf(settings, sizeof settings, "{\"probe\": \"%s\", \"bind\": \"[::1]:0\", \"samples\": 64%s%s}", address, pool,
             more);
    return shotline_recorder_start(settings, recorder);
}

static shotline_recorder started(const char *more)
{
    shotline_recorder recorder;
    SUCCEEDS(start(more, &recorder));
    SUCCEEDS(shotline_recorder_wait_started(recorder, SHOTLINE_FOREVER));
    return recorder;
}

static shotline_recorder_counters counters_of(shotline_recorder recorder)
{
    shotline_recorder_counters counters;
    SUCCEEDS(shotline_recorder_get_counters(recorder, &counters));
    return counters;
}

static void start_emulator(void)
{
    const char *config = "{\"links\": 1, \"channels\": 8, \"samples\": 64, \"packing\": \"int16_le\"}";
    SUCCEEDS(shotline_emulator_start(config, NULL, NULL, &emulator));
    SUCCEEDS(shotline_emulator_get_text(emulator, "address", address, sizeof address, NULL));
}

static void check_emulators(void)
{
    shotline_emulator none;
    shotline_given_shots given = SHOTLINE_ZERO;
    int16_t samples[2 * 3 * 4] = {0};
    char text[4];
    size_t length;
    FAILS(INVALID_ARGUMENT, "`emulator`, found NULL", shotline_emulator_start(NULL, NULL, NULL, NULL));
    FAILS(INVALID_ARGUMENT, "setting `packing`", shotline_emulator_start("{\"packing\": \"int13\"}", NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "setting `lnks`", shotline_emulator_start("{\"lnks\": 1}", NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "expected", shotline_emulator_start("links = 1", NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "UTF-8", shotline_emulator_start("\xff", NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "found here", shotline_emulator_start(NULL, "here", NULL, &none));
    FAILS(IO, "192.0.2.1", shotline_emulator_start(NULL, "192.0.2.1:9", NULL, &none));
    CHECK(none.id == 0 && shotline_last_errno() != 0);
    FAILS(INVALID_ARGUMENT, "none of them 0", shotline_emulator_start(NULL, NULL, &given, &none));
    given.shots = 2;
    given.samples_per_channel = 3;
    given.channels = 4;
    FAILS(INVALID_ARGUMENT, "`given.samples`, found NULL", shotline_emulator_start(NULL, NULL, &given, &none));
    given.samples = samples;
    samples[5] = 3000;
    FAILS(INVALID_ARGUMENT, "12 bits, found 3000", shotline_emulator_start(NULL, NULL, &given, &none));
    given.shots = given.samples_per_channel = given.channels = UINT32_MAX;
    FAILS(INVALID_ARGUMENT, "found 4294967295", shotline_emulator_start(NULL, NULL, &given, &none));
    given.reserved = 1;
    FAILS(INVALID_ARGUMENT, "SHOTLINE_ZERO", shotline_emulator_start("{\"channels\": 4}", NULL, &given, &none));
    FAILS(BUFFER_TOO_SMALL, "found one for 4", shotline_emulator_get_text(emulator, "address", text, 4, &length));
    CHECK(length == strlen(address));
    FAILS(NOT_FOUND, "address or counters", shotline_emulator_get_text(emulator, "colour", NULL, 0, NULL));
}

static void check_settings(void)
{
    static const char *const WRONG[][2] = {
        {"", "probe"},
        {"{\"sampels\": 3}", "setting `sampels`"},
        {"{\"samples\": \"many\"}", "setting `samples`"},
        {"{\"probe\": \"[::1]:9\", \"transport\": \"carrier-pigeon\"}", "setting `transport`"},
        {"{\"probe\": \"[::1]:9\", \"durable\": true}", "durable"},
        {"probe = \"[::1]:9\"\nsamples = \"many\"", "samples = \"many\""},
        {"{\"samples\"", "EOF"},
        {"\xff", "UTF-8 as argument `settings`"},
    };
    shotline_recorder recorder;
    for (size_t at = 0; at < sizeof WRONG / sizeof *WRONG; at++) {
        FAILS(INVALID_ARGUMENT, WRONG[at][1], shotline_recorder_start(WRONG[at][0], &recorder));
        CHECK(recorder.id == 0 && !strstr(shotline_last_error(), "--"));
    }
    FAILS(INVALID_ARGUMENT, "`settings`, found NULL", shotline_recorder_start(NULL, &recorder));
    FAILS(INVALID_ARGUMENT, "`recorder`, found NULL", shotline_recorder_start("{}", NULL));
    /* What only the sender or the machine refuses. */
    SUCCEEDS(start(", \"pool\": \"4KiB\"", &recorder));
    FAILS(INVALID_ARGUMENT, "use pool", shotline_recorder_wait_started(recorder, SHOTLINE_FOREVER));
    FAILS(CUT_OFF, "use pool", shotline_recorder_wait_ended(recorder, SHOTLINE_FOREVER));
    SUCCEEDS(shotline_recorder_close(recorder));
    SUCCEEDS(start(", \"out\": \"/there/is/none.h5\"", &recorder));
    CHECK(shotline_recorder_wait_started(recorder, SHOTLINE_FOREVER) != SHOTLINE_OK);
    CHECK(strstr(shotline_last_error(), "/there/is/none.h5"));
    SUCCEEDS(shotline_recorder_close(recorder));
}

static void check_null(shotline_recorder recorder, shotline_shots shots)
{
    shotline_probe probe;
    FAILS(INVALID_ARGUMENT, "`shots`", shotline_recorder_take(recorder, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`callback`", shotline_recorder_run(recorder, NULL, NULL));
    FAILS(INVALID_ARGUMENT, "`fd`", shotline_recorder_get_fd(recorder, NULL));
    FAILS(INVALID_ARGUMENT, "`ready`", shotline_recorder_start_waiting(recorder, NULL));
    FAILS(INVALID_ARGUMENT, "`properties`", shotline_recorder_get_link(recorder, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`name`", shotline_recorder_get_text(recorder, NULL, NULL, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`counters`", shotline_recorder_get_counters(recorder, NULL));
    FAILS(INVALID_ARGUMENT, "`count`", shotline_recorder_read_losses(recorder, NULL, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`info`", shotline_shots_get_info(shots, NULL));
    FAILS(INVALID_ARGUMENT, "`shot`", shotline_shots_get_shot(shots, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`presence`", shotline_shots_get_presence(shots, 0, NULL, 8));
    FAILS(INVALID_ARGUMENT, "`data`", shotline_shots_data(shots, 0, NULL, NULL));
    FAILS(INVALID_ARGUMENT, "`samples`", shotline_shots_read_int16(shots, 0, NULL, SAMPLES * CHANNELS));
    FAILS(INVALID_ARGUMENT, "`other`", shotline_shots_share(shots, NULL));
    FAILS(INVALID_ARGUMENT, "`address`", shotline_probe_open(NULL, 0, &probe));
    FAILS(INVALID_ARGUMENT, "`probe`", shotline_probe_open(address, 0, NULL));
    FAILS(INVALID_ARGUMENT, "with a port", shotline_probe_open("here", 0, &probe));
    CHECK(probe.id == 0);
}

static void check_ranges(shotline_recorder recorder, shotline_shots shots)
{
    static int16_t samples[SAMPLES * CHANNELS];
    unsigned char bytes[8] = {0};
    shotline_link link;
    shotline_shot shot;
    const void *data;
    FAILS(INVALID_ARGUMENT, "expected a link below 1", shotline_recorder_get_link(recorder, 1, &link));
    FAILS(NOT_FOUND, "about or report", shotline_recorder_get_text(recorder, "colour", NULL, 0, NULL));
    FAILS(NOT_FOUND, "shotline_recorder_wait_ended", shotline_recorder_get_text(recorder, "report", NULL, 0, NULL));
    FAILS(TIMEOUT, "shotline_recorder_stop", shotline_recorder_wait_ended(recorder, 0));
    FAILS(INVALID_ARGUMENT, "shotline_recorder_start_waiting", shotline_recorder_stop_waiting(recorder));
    FAILS(INVALID_ARGUMENT, "below 1, found 1", shotline_shots_get_shot(shots, 1, &shot));
    FAILS(INVALID_ARGUMENT, "below 1, found 4294967295", shotline_shots_data(shots, UINT32_MAX, &data, NULL));
    FAILS(BUFFER_TOO_SMALL, "presence", shotline_shots_get_presence(shots, 0, bytes, 0));
    FAILS(BUFFER_TOO_SMALL, "elements", shotline_shots_read_int16(shots, 0, samples, SAMPLES * CHANNELS - 1));
    FAILS(INVALID_ARGUMENT, "the other type", shotline_shots_read_uint8(shots, 0, bytes, sizeof bytes));
    SUCCEEDS(shotline_shots_read_int16(shots, 0, samples, SAMPLES * CHANNELS));
    SUCCEEDS(shotline_shots_get_presence(shots, 0, bytes, sizeof bytes));
    SUCCEEDS(shotline_shots_data(shots, 0, &data, NULL));
    CHECK(bytes[0] == 1 && bytes[1] == 0 && (uintptr_t)data % SLOT == 0);
    CHECK(!memcmp(data, samples, sizeof samples)); /* int16_le, on a little-endian machine */
}

/* Handles of shots: shared, released twice, used after release, and after the recorder is closed. */
static void check_shots(void)
{
    shotline_recorder recorder = started(", \"rate_hz\": 2000");
    shotline_recorder as_recorder;
    shotline_shots shots, other, zero = SHOTLINE_ZERO;
    shotline_shots_info info;
    const void *data;
    unsigned char before[SLOT];
    size_t length;
    SUCCEEDS(shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots));
    check_null(recorder, shots);
    check_ranges(recorder, shots);
    CHECK(counters_of(recorder).held == 1 && counters_of(recorder).taken == 1);
    SUCCEEDS(shotline_shots_share(shots, &other));
    SUCCEEDS(shotline_shots_release(shots));
    FAILS(CLOSED, "these shots are released", shotline_shots_release(shots));
    FAILS(CLOSED, "are released", shotline_shots_get_info(shots, &info));
    FAILS(CLOSED, "are released", shotline_shots_data(shots, 0, &data, NULL));
    FAILS(CLOSED, "are released", shotline_shots_share(shots, &shots));
    CHECK(shots.id == 0 && counters_of(recorder).held == 1);
    FAILS(INVALID_ARGUMENT, "which no function returned", shotline_shots_release(zero));
    as_recorder.id = other.id;
    FAILS(CLOSED, "recorder", shotline_recorder_stop(as_recorder));
    SUCCEEDS(shotline_shots_data(other, 0, &data, &length));
    CHECK(length == sizeof before);
    memcpy(before, data, sizeof before);
    SUCCEEDS(shotline_recorder_close(recorder));
    FAILS(CLOSED, "this recorder is closed", shotline_recorder_close(recorder));
    FAILS(CLOSED, "this recorder is closed", shotline_recorder_take(recorder, 0, &shots));
    SUCCEEDS(shotline_shots_get_info(other, &info));
    CHECK(info.links == 1 && info.state == SHOTLINE_STATE_COMPLETE);
    CHECK(!memcmp(before, data, sizeof before));
    SUCCEEDS(shotline_shots_release(other));
}

/* --- ends of a run ----------------------------------------------------------------------------------------------- */

struct waiter {
    shotline_recorder recorder;
    pthread_barrier_t *ready;
    int kind;
};

static int32_t release_early(shotline_shots shots, void *user)
{
    (void)user;
    SUCCEEDS(shotline_shots_release(shots));
    return 0;
}

static void *wait_until_closed(void *user)
{
    struct waiter *waiter = (struct waiter *)user;
    shotline_shots shots;
    pthread_barrier_wait(waiter->ready);
    if (waiter->kind == 0)
        FAILS(CLOSED, "is closed", shotline_recorder_take(waiter->recorder, SHOTLINE_FOREVER, &shots));
    else if (waiter->kind == 1)
        FAILS(CLOSED, "is closed", shotline_recorder_run(waiter->recorder, release_early, NULL));
    else
        FAILS(CLOSED, "is closed", shotline_recorder_wait_ended(waiter->recorder, SHOTLINE_FOREVER));
    return NULL;
}

/* The probe waits for triggers, which do not come: the other threads wait when the run is closed, or begin after it. */
static void check_close_wakes(void)
{
    struct waiter waiters[3];
    pthread_t threads[3];
    pthread_barrier_t ready;
    shotline_recorder recorder = started(", \"external_trigger\": true");
    shotline_shots shots;
    FAILS(TIMEOUT, "no shots of this recorder within the limit", shotline_recorder_take(recorder, 0, &shots));
    FAILS(TIMEOUT, "within the limit", shotline_recorder_take(recorder, 1000000, &shots));
    pthread_barrier_init(&ready, NULL, 4);
    for (int kind = 0; kind < 3; kind++) {
        waiters[kind].recorder = recorder;
        waiters[kind].ready = &ready;
        waiters[kind].kind = kind;
        CHECK(!pthread_create(&threads[kind], NULL, wait_until_closed, &waiters[kind]));
    }
    pthread_barrier_wait(&ready);
    SUCCEEDS(shotline_recorder_close(recorder));
    for (int kind = 0; kind < 3; kind++)
        CHECK(!pthread_join(threads[kind], NULL));
    pthread_barrier_destroy(&ready);
}

static void *take_all(void *user)
{
    shotline_recorder recorder = *(shotline_recorder *)user;
    shotline_shots shots;
    shotline_status status;
    uint64_t *taken = (uint64_t *)calloc(1, sizeof *taken);
    CHECK(taken);
    while ((status = shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots)) == SHOTLINE_OK) {
        SUCCEEDS(shotline_shots_release(shots));
        *taken += 1;
    }
    CHECK(status == SHOTLINE_ERROR_ENDED && strstr(shotline_last_error(), "all of its shots were taken"));
    return taken;
}

static void check_ten_threads(void)
{
    pthread_t threads[TAKERS];
    shotline_recorder recorder = started(", \"rate_hz\": 5000, \"shots\": 2000");
    uint64_t sum = 0;
    void *taken;
    for (int at = 0; at < TAKERS; at++)
        CHECK(!pthread_create(&threads[at], NULL, take_all, &recorder));
    for (int at = 0; at < TAKERS; at++) {
        CHECK(!pthread_join(threads[at], &taken));
        sum += *(uint64_t *)taken;
        free(taken);
    }
    SUCCEEDS(shotline_recorder_wait_ended(recorder, SHOTLINE_FOREVER));
    CHECK(counters_of(recorder).taken == sum && sum + counters_of(recorder).lost == SHOTS);
    SUCCEEDS(shotline_recorder_close(recorder));
}

/* A program that keeps everything loses later shots only, and is notified. */
static void check_keeping_all(void)
{
    static shotline_shots kept[MAX_HELD];
    shotline_recorder recorder = started(", \"rate_hz\": 20000, \"shots\": 5000");
    shotline_recorder_counters counters;
    shotline_loss losses[64];
    shotline_status status;
    size_t count = 0, ranges;
    uint64_t busy = 0;
    int notified = 0;
    for (;;) {
        status = shotline_recorder_take(recorder, notified ? SHOTLINE_FOREVER : 1000000, &kept[count]);
        if (status == SHOTLINE_ERROR_ENDED)
            break;
        CHECK(status == SHOTLINE_OK || status == SHOTLINE_ERROR_TIMEOUT);
        count += status == SHOTLINE_OK;
        notified |= status == SHOTLINE_ERROR_TIMEOUT && strstr(shotline_last_error(), "as many as the pool has buffers for");
        CHECK(count < MAX_HELD);
    }
    counters = counters_of(recorder);
    CHECK(counters.held == count && counters.max_held == count && counters.lost + count == 5000);
    SUCCEEDS(shotline_recorder_read_losses(recorder, losses, 64, &ranges));
    for (size_t at = 0; at < ranges; at++)
        busy += strcmp(shotline_cause_name(losses[at].cause), "sink_busy") ? 0 : losses[at].count;
    CHECK(busy > 0 && ranges > 0);
    FAILS(BUFFER_TOO_SMALL, "losses", shotline_recorder_read_losses(recorder, losses, 0, &ranges));
    SUCCEEDS(shotline_recorder_close(recorder));
    for (size_t at = 0; at < count; at++)
        SUCCEEDS(shotline_shots_release(kept[at]));
}

struct loop {
    shotline_recorder recorder;
    shotline_shots kept;
    int calls;
};

static int32_t stop_after_five(shotline_shots shots, void *user)
{
    struct loop *loop = (struct loop *)user;
    if (loop->calls == 0)
        SUCCEEDS(shotline_shots_share(shots, &loop->kept));
    return ++loop->calls == 5 ? -1 : 0;
}

static int32_t close_at_once(shotline_shots shots, void *user)
{
    shotline_shots_info info;
    SUCCEEDS(shotline_recorder_close(((struct loop *)user)->recorder));
    SUCCEEDS(shotline_shots_get_info(shots, &info));
    return 0;
}

static void check_callbacks(void)
{
    struct loop loop;
    shotline_shots shots;
    shotline_shots_info info;
    loop.recorder = started(", \"rate_hz\": 2000");
    loop.calls = 0;
    SUCCEEDS(shotline_recorder_run(loop.recorder, stop_after_five, &loop));
    CHECK(loop.calls == 5 && counters_of(loop.recorder).taken == 5 && counters_of(loop.recorder).held == 1);
    SUCCEEDS(shotline_shots_get_info(loop.kept, &info));
    SUCCEEDS(shotline_shots_release(loop.kept));
    SUCCEEDS(shotline_recorder_take(loop.recorder, SHOTLINE_FOREVER, &shots));
    SUCCEEDS(shotline_shots_release(shots));
    FAILS(CLOSED, "is closed", shotline_recorder_run(loop.recorder, close_at_once, &loop));
    loop.recorder = started(", \"rate_hz\": 2000, \"shots\": 20");
    SUCCEEDS(shotline_recorder_run(loop.recorder, release_early, NULL));
    SUCCEEDS(shotline_recorder_run(loop.recorder, release_early, NULL));
    CHECK(counters_of(loop.recorder).held == 0);
    SUCCEEDS(shotline_recorder_close(loop.recorder));
}

static void check_event_loop(void)
{
    shotline_recorder recorder = started(", \"rate_hz\": 2000, \"shots\": 200");
    shotline_shots shots;
    shotline_status status;
    uint64_t taken = 0;
    struct pollfd descriptor;
    int32_t ready;
    SUCCEEDS(shotline_recorder_get_fd(recorder, &descriptor.fd));
    descriptor.events = POLLIN;
    while ((status = shotline_recorder_take(recorder, 0, &shots)) != SHOTLINE_ERROR_ENDED) {
        if (status == SHOTLINE_OK) {
            SUCCEEDS(shotline_shots_release(shots));
            taken++;
            continue;
        }
        CHECK(status == SHOTLINE_ERROR_TIMEOUT);
        SUCCEEDS(shotline_recorder_start_waiting(recorder, &ready));
        if (!ready)
            CHECK(poll(&descriptor, 1, -1) == 1);
        SUCCEEDS(shotline_recorder_stop_waiting(recorder));
    }
    CHECK(taken + counters_of(recorder).lost == 200);
    SUCCEEDS(shotline_recorder_close(recorder));
    FAILS(CLOSED, "is closed", shotline_recorder_stop_waiting(recorder));
}

static void check_probe(void)
{
    shotline_probe probe, other;
    shotline_probe_description description;
    shotline_probe_status status;
    shotline_recorder recorder, refused;
    shotline_shots shots;
    shotline_shots_info info;
    uint64_t number;
    SUCCEEDS(shotline_probe_open(address, 0, &probe));
    FAILS(INVALID_ARGUMENT, "`description`", shotline_probe_describe(probe, NULL));
    FAILS(INVALID_ARGUMENT, "`status`", shotline_probe_get_status(probe, 0, NULL));
    SUCCEEDS(shotline_probe_describe(probe, &description));
    CHECK(description.links == 1 && description.channels == CHANNELS && description.bits == 16);
    CHECK(description.packing == SHOTLINE_PACKING_INT16_LE && strstr(description.model, "emulated"));
    FAILS(REFUSED, "link", shotline_probe_get_status(probe, 7, &status));
    FAILS(INVALID_ARGUMENT, "expected a link below", shotline_probe_get_status(probe, 300, &status));
    recorder = started(", \"external_trigger\": true");
    FAILS(REFUSED, "another receiver controls", shotline_probe_trigger(probe, 0, &number));
    FAILS(REFUSED, "another receiver", shotline_probe_stop(probe));
    SUCCEEDS(start("", &refused));
    FAILS(REFUSED, "take_over", shotline_recorder_wait_started(refused, SHOTLINE_FOREVER));
    FAILS(CUT_OFF, "take_over", shotline_recorder_take(refused, SHOTLINE_FOREVER, &shots));
    SUCCEEDS(shotline_recorder_close(refused));
    SUCCEEDS(shotline_probe_open(address, 1, &other));
    SUCCEEDS(shotline_probe_trigger(other, 0, &number));
    SUCCEEDS(shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots));
    SUCCEEDS(shotline_shots_get_info(shots, &info));
    CHECK(info.number == number);
    SUCCEEDS(shotline_shots_release(shots));
    SUCCEEDS(shotline_probe_get_status(other, 0, &status));
    CHECK(status.running && status.shots_sent >= 1 && status.link == 0);
    SUCCEEDS(shotline_probe_stop(other));
    SUCCEEDS(shotline_recorder_close(recorder));
    SUCCEEDS(shotline_probe_close(other));
    SUCCEEDS(shotline_probe_close(probe));
    FAILS(CLOSED, "this probe is closed", shotline_probe_close(probe));
    FAILS(CLOSED, "this probe is closed", shotline_probe_describe(probe, &description));
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static int is_child;

/* A child process has the memory of threads that it does not have: LeakSanitizer would report what they own. */
int __lsan_is_turned_off(void)
{
    return is_child;
}

static void check_fork(void)
{
    shotline_recorder recorder = started(", \"rate_hz\": 2000");
    shotline_recorder own;
    shotline_shots shots, more;
    shotline_shots_info info;
    pid_t child;
    int status;
    SUCCEEDS(shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        is_child = 1;
        FAILS(FORKED, "belongs to the parent process", shotline_recorder_take(recorder, SHOTLINE_FOREVER, &more));
        FAILS(FORKED, "belongs to the parent process", shotline_recorder_close(recorder));
        FAILS(FORKED, "belongs to the parent process", shotline_shots_get_info(shots, &info));
        FAILS(FORKED, "belongs to the parent process", shotline_shots_release(shots));
        FAILS(FORKED, "belongs to the parent process", shotline_emulator_close(emulator));
        FAILS(INVALID_ARGUMENT, "setting", shotline_recorder_start("{\"sampels\": 3}", &own));
        exit(0); /* runs what is registered for the end of the parent, too */
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    SUCCEEDS(shotline_recorder_take(recorder, SHOTLINE_FOREVER, &more));
    SUCCEEDS(shotline_shots_release(more));
    SUCCEEDS(shotline_shots_release(shots));
    SUCCEEDS(shotline_recorder_close(recorder));
}

static void check_probe_that_vanishes(void)
{
    shotline_recorder recorder = started(", \"rate_hz\": 2000");
    shotline_shots shots;
    char counters[4096];
    shotline_status status;
    SUCCEEDS(shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots));
    SUCCEEDS(shotline_shots_release(shots));
    SUCCEEDS(shotline_emulator_stop(emulator));
    SUCCEEDS(shotline_emulator_stop(emulator));
    SUCCEEDS(shotline_emulator_get_text(emulator, "counters", counters, sizeof counters, NULL));
    CHECK(strstr(counters, "\"shots\":"));
    SUCCEEDS(shotline_emulator_close(emulator));
    FAILS(CLOSED, "this emulator is closed", shotline_emulator_close(emulator));
    while ((status = shotline_recorder_take(recorder, SHOTLINE_FOREVER, &shots)) == SHOTLINE_OK)
        SUCCEEDS(shotline_shots_release(shots));
    CHECK(status == SHOTLINE_ERROR_CUT_OFF && strstr(shotline_last_error(), "probe"));
    FAILS(CUT_OFF, "probe", shotline_recorder_wait_ended(recorder, 0));
    FAILS(CUT_OFF, "probe", shotline_recorder_run(recorder, release_early, NULL));
    SUCCEEDS(shotline_recorder_close(recorder));
}

int main(int argc, char **argv)
{
    start_emulator();
    if (argc > 1 && !strcmp(argv[1], "vanish")) {
        check_probe_that_vanishes();
    } else {
        check_emulators();
        check_settings();
        check_shots();
        check_close_wakes();
        check_ten_threads();
        check_keeping_all();
        check_callbacks();
        check_event_loop();
        check_probe();
        check_fork();
        SUCCEEDS(shotline_emulator_close(emulator));
    }
    puts("every wrong call has failed as documented");
    return 0;
}
