/*
 * Takes the shots of an emulated probe, for comparison with other readers.
 *
 *     take CONFIG SAMPLES SETTINGS OUT
 *
 * CONFIG is that of the emulator. SAMPLES is a file of 16-bit samples for it to send, of 3 shots, 50 samples and 8 channels; or
 * "-". SETTINGS are those of the run, with PROBE for the address. OUT.slots and OUT.samples receive the slots and the samples of
 * each link of each event. Prints events, losses, counters and texts as one JSON object.
 */
#include "check.h"

#include <inttypes.h>

enum { GIVEN_SHOTS = 3, GIVEN_SAMPLES = 50, GIVEN_CHANNELS = 8, TEXT = 1 << 16 };

static shotline_recorder recorder;
static shotline_link properties;
static unsigned char *memory;
static FILE *slots, *samples;

static FILE *open_out(const char *base, const char *end)
{
    char path[4096];
    FILE *file;
    snprintf(path, sizeof path, "%s%s", base, end);
    file = fopen(path, "wb");
    CHECK(file);
    return file;
}

static shotline_emulator start_emulator(const char *config, const char *path)
{
    static int16_t values[GIVEN_SHOTS * GIVEN_SAMPLES * GIVEN_CHANNELS];
    shotline_given_shots given = SHOTLINE_ZERO;
    shotline_emulator emulator;
    if (strcmp(path, "-")) {
        FILE *file = fopen(path, "rb");
        CHECK(file && fread(values, sizeof values, 1, file) == 1);
        fclose(file);
        given.samples = values;
        given.shots = GIVEN_SHOTS;
        given.samples_per_channel = GIVEN_SAMPLES;
        given.channels = GIVEN_CHANNELS;
    }
    SUCCEEDS(shotline_emulator_start(config, NULL, given.samples ? &given : NULL, &emulator));
    return emulator;
}

static void start_recorder(shotline_emulator emulator, const char *settings)
{
    char address[64], text[4096];
    const char *at = strstr(settings, "PROBE");
    CHECK(at);
    SUCCEEDS(shotline_emulator_get_text(emulator, "address", address, sizeof address, NULL));
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - settings), settings, address, at + strlen("PROBE"));
    SUCCEEDS(shotline_recorder_start(text, &recorder));
    SUCCEEDS(shotline_recorder_wait_started(recorder, SHOTLINE_FOREVER));
    SUCCEEDS(shotline_recorder_get_link(recorder, 0, &properties));
    memory = (unsigned char *)calloc(1, properties.slot_bytes * 4u);
    CHECK(memory);
}

/* Writes the slot where it is; zeros if there is none. */
static void write_slot(shotline_shots shots, uint32_t link, uint32_t state)
{
    const void *data;
    size_t length;
    if (state == SHOTLINE_STATE_LOST) {
        FAILS(NOT_FOUND, "no packet of link", shotline_shots_data(shots, link, &data, &length));
        length = properties.slot_bytes;
        data = memset(memory, 0, length);
    } else {
        SUCCEEDS(shotline_shots_data(shots, link, &data, &length));
    }
    CHECK(length == properties.slot_bytes && fwrite(data, length, 1, slots) == 1);
}

static void write_samples(shotline_shots shots, uint32_t link)
{
    size_t elements = (size_t)properties.samples * properties.channels;
    if (properties.element_bytes == 1)
        SUCCEEDS(shotline_shots_read_uint8(shots, link, memory, elements));
    else
        SUCCEEDS(shotline_shots_read_int16(shots, link, (int16_t *)(void *)memory, elements));
    CHECK(fwrite(memory, elements * properties.element_bytes, 1, samples) == 1);
}

static void print_link(shotline_shots shots, uint32_t link)
{
    shotline_shot shot;
    SUCCEEDS(shotline_shots_get_shot(shots, link, &shot));
    printf("{\"number\": %" PRIu64 ", \"stamp_tai_ns\": %" PRIu64 ", \"arrived_tai_ns\": %" PRIu64
           ", \"completed_tai_ns\": %" PRIu64 ", \"state\": %" PRIu32 ", \"valid_bytes\": %" PRIu32
           ", \"packets\": %" PRIu32 ", \"placed\": %" PRIu32 ", \"flags\": %" PRIu32 ", \"record_good\": %" PRIu32
           ", \"row_good\": %" PRIu32 ", \"drops\": [",
           shot.number, shot.stamp_tai_ns, shot.arrived_tai_ns, shot.completed_tai_ns, shot.state, shot.valid_bytes,
           shot.packets, shot.placed, shot.flags, shot.record_good, shot.row_good);
    for (uint32_t cause = 0; cause < SHOTLINE_MAX_CAUSES; cause++)
        printf("%s%" PRIu32, cause ? ", " : "", shot.drops[cause]);
    SUCCEEDS(shotline_shots_get_presence(shots, link, memory, properties.presence_bytes));
    printf("], \"presence\": \"");
    for (uint32_t at = 0; at < properties.presence_bytes; at++)
        printf("%02x", memory[at]);
    printf("\"}");
    write_slot(shots, link, shot.state);
    write_samples(shots, link);
}

static int32_t print_event(shotline_shots shots, void *user)
{
    int *count = (int *)user;
    shotline_shots_info info;
    SUCCEEDS(shotline_shots_get_info(shots, &info));
    printf("%s{\"number\": %" PRIu64 ", \"state\": %" PRIu32 ", \"links\": [", (*count)++ ? ",\n" : "", info.number,
           info.state);
    for (uint32_t link = 0; link < info.links; link++) {
        printf("%s", link ? ", " : "");
        print_link(shots, link);
    }
    printf("]}");
    return 0;
}

static void print_text(const char *name)
{
    static char text[TEXT];
    SUCCEEDS(shotline_recorder_get_text(recorder, name, text, sizeof text, NULL));
    printf(", \"%s\": %s", name, text);
}

static void print_losses_and_counters(void)
{
    static shotline_loss losses[4096];
    shotline_recorder_counters counters;
    size_t count;
    SUCCEEDS(shotline_recorder_read_losses(recorder, losses, sizeof losses / sizeof *losses, &count));
    printf("], \"losses\": [");
    for (size_t at = 0; at < count; at++)
        printf("%s[%" PRIu32 ", %" PRIu32 ", %" PRIu64 ", %" PRIu64 "]", at ? ", " : "", losses[at].stream,
               losses[at].cause, losses[at].first, losses[at].count);
    SUCCEEDS(shotline_recorder_get_counters(recorder, &counters));
    printf("], \"counters\": {\"packets\": %" PRIu64 ", \"shots_complete\": %" PRIu64 ", \"shots_partial\": %" PRIu64
           ", \"rows\": %" PRIu64 ", \"taken\": %" PRIu64 ", \"held\": %" PRIu64 ", \"lost\": %" PRIu64 "}",
           counters.packets, counters.shots_complete, counters.shots_partial, counters.rows, counters.taken,
           counters.held, counters.lost);
}

int main(int argc, char **argv)
{
    shotline_emulator emulator;
    int count = 0;
    CHECK(argc == 5);
    emulator = start_emulator(argv[1], argv[2]);
    slots = open_out(argv[4], ".slots");
    samples = open_out(argv[4], ".samples");
    start_recorder(emulator, argv[3]);
    printf("{\"events\": [");
    SUCCEEDS(shotline_recorder_run(recorder, print_event, &count));
    SUCCEEDS(shotline_recorder_wait_ended(recorder, SHOTLINE_FOREVER));
    print_losses_and_counters();
    print_text("about");
    print_text("report");
    printf("}\n");
    SUCCEEDS(shotline_recorder_close(recorder));
    SUCCEEDS(shotline_emulator_close(emulator));
    free(memory);
    CHECK(!fclose(slots) && !fclose(samples));
    return 0;
}
