/*
 * Records the shots of a probe and prints each while it is received, then the counters and the losses.
 *
 *     cc -o record record.c $(pkg-config --cflags --libs shotline)
 *     ./record                             100 shots of an emulated probe in this program
 *     ./record '[::1]:47910'               100 shots of a probe
 *     ./record '[::1]:47910' run.h5        also into a file; `emulated` as address for the emulated probe
 *
 * Valid as C11 and as C++17.
 */
#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const STATES[] = {"lost", "partial", "complete"};

/* What the callback needs. */
struct printer {
    shotline_link link;
    int16_t *samples;
};

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1); /* closes the run: its file is complete up to here */
    }
}

/* Starts an emulated probe that loses a packet now and then, and stores its address. */
static shotline_emulator start_emulator(char *address, size_t capacity)
{
    shotline_emulator emulator;
    const char *config = "{\"links\": 2, \"channels\": 8, \"samples\": 2000, \"packing\": \"int16_le\", "
                         "\"free_running\": {\"rate\": 1000}, \"faults\": {\"loss\": 0.01}, \"seed\": 1}";
    check(shotline_emulator_start(config, NULL, NULL, &emulator));
    check(shotline_emulator_get_text(emulator, "address", address, capacity, NULL));
    return emulator;
}

static shotline_recorder start_recorder(const char *address, const char *file)
{
    char settings[4096];
    shotline_recorder recorder;
    const char *bind = strstr(address, "[::1]") ? "\"bind\": \"[::1]:0\", " : ""; /* any free port of this machine */
    int length = snprintf(settings, sizeof settings, "{\"probe\": \"%s\", %s\"samples\": 2000, \"shots\": 100%s%s%s}",
                          address, bind, file ? ", \"out\": \"" : "", file ? file : "", file ? "\"" : "");
    if (length < 0 || (size_t)length >= sizeof settings) {
        fprintf(stderr, "the address or the path is too long\n");
        exit(2);
    }
    check(shotline_recorder_start(settings, &recorder));
    check(shotline_recorder_wait_started(recorder, SHOTLINE_FOREVER));
    return recorder;
}

/* Prints the shots of all links with one number. They are released when this function returns. */
static int32_t print_shots(shotline_shots shots, void *user)
{
    struct printer *printer = (struct printer *)user;
    const size_t elements = (size_t)printer->link.samples * printer->link.channels;
    shotline_shots_info info;
    check(shotline_shots_get_info(shots, &info));
    printf("shot %" PRIu64 ": %s", info.number, STATES[info.state]);
    for (uint32_t link = 0; link < info.links; link++) {
        shotline_shot shot;
        int highest = 0;
        check(shotline_shots_get_shot(shots, link, &shot));
        /* shotline_shots_data() has the bytes as they were on the wire, without this copy. */
        check(shotline_shots_read_int16(shots, link, printer->samples, elements));
        for (size_t at = 0; at < elements; at++)
            highest = printer->samples[at] > highest ? printer->samples[at] : highest;
        printf(", link %" PRIu32 ": %" PRIu32 " of %" PRIu32 " packets, highest sample %d", link, shot.placed,
               shot.packets, highest);
    }
    printf("\n");
    return 0; /* another value ends the loop */
}

static void print_counters(shotline_recorder recorder)
{
    shotline_recorder_counters counters;
    check(shotline_recorder_get_counters(recorder, &counters));
    printf("%" PRIu64 " packets, %" PRIu64 " shots complete, %" PRIu64 " partial, %" PRIu64 " dropped; %" PRIu64
           " events taken, %" PRIu64 " shots lost\n",
           counters.packets, counters.shots_complete, counters.shots_partial, counters.shots_dropped, counters.taken,
           counters.lost);
}

static void print_losses(shotline_recorder recorder)
{
    size_t count;
    shotline_loss *losses;
    check(shotline_recorder_read_losses(recorder, NULL, 0, &count)); /* the run is over: it stays what it is */
    losses = (shotline_loss *)calloc(count ? count : 1, sizeof *losses);
    if (!losses) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    check(shotline_recorder_read_losses(recorder, losses, count, &count));
    for (size_t at = 0; at < count; at++)
        printf("lost: %" PRIu64 " shots of stream %" PRIu32 " from %" PRIu64 " on, %s\n", losses[at].count,
               losses[at].stream, losses[at].first, shotline_cause_name(losses[at].cause));
    free(losses);
}

int main(int argc, char **argv)
{
    char address[64];
    struct printer printer;
    shotline_emulator emulator = SHOTLINE_ZERO;
    shotline_recorder recorder;
    int is_emulated = argc < 2 || !strcmp(argv[1], "emulated");
    if (argc > 3) {
        fprintf(stderr, "usage: record [ADDRESS | emulated] [FILE]\n");
        return 2;
    }
    if (is_emulated)
        emulator = start_emulator(address, sizeof address);
    recorder = start_recorder(is_emulated ? address : argv[1], argc > 2 ? argv[2] : NULL);
    check(shotline_recorder_get_link(recorder, 0, &printer.link));
    printer.samples = (int16_t *)malloc((size_t)printer.link.samples * printer.link.channels * sizeof(int16_t));
    if (!printer.samples) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    check(shotline_recorder_run(recorder, print_shots, &printer));
    check(shotline_recorder_wait_ended(recorder, SHOTLINE_FOREVER)); /* the counters are final, the file is complete */
    print_counters(recorder);
    print_losses(recorder);
    check(shotline_recorder_close(recorder));
    if (is_emulated)
        check(shotline_emulator_close(emulator));
    free(printer.samples);
    return 0;
}
