/*
 * Prints everything that the C library reads of a recording, for comparison with other readers.
 *
 *     dump FILE                          properties, shots, presence, losses and counters as one JSON object
 *     dump FILE slots OUT                all slots of all links
 *     dump FILE LINK THREADS AXES OUT    the samples of a selection; AXES are first, count, step of rows, samples, channels
 */
#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shotline_run run;

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

static void *allocate(size_t count, size_t size)
{
    void *memory = malloc(count * size + 1);
    if (!memory)
        exit(1);
    /* What the library leaves unwritten differs from what it reads. */
    memset(memory, 0xA5, count * size + 1);
    return memory;
}

static void print_link(uint32_t index, const shotline_link *link)
{
    char name[256], packing[64], trailer[64];
    check(shotline_run_get_link_text(run, index, "name", name, sizeof name, NULL));
    check(shotline_run_get_link_text(run, index, "packing", packing, sizeof packing, NULL));
    check(shotline_run_get_link_text(run, index, "trailer", trailer, sizeof trailer, NULL));
    printf("{\"name\": \"%s\", \"packing\": \"%s\", \"trailer\": \"%s\", ", name, packing, trailer);
    printf("\"stream\": %u, \"channels\": %u, \"samples\": %u, \"bits\": %u, ", link->stream, link->channels,
           link->samples, link->bits);
    printf("\"sample_rate_hz\": %u, \"packets\": %u, \"sample_bytes\": %u, ", link->sample_rate_hz, link->packets,
           link->sample_bytes);
    printf("\"trailer_offset\": %u, \"shot_bytes\": %u, \"slot_bytes\": %u, ", link->trailer_offset, link->shot_bytes,
           link->slot_bytes);
    printf("\"packing_number\": %u, \"element_bytes\": %u, \"shots\": [", link->packing, link->element_bytes);
}

static void print_shots(uint32_t index, const shotline_link *link, uint64_t rows)
{
    size_t map = link->presence_bytes;
    shotline_shot *shots = (shotline_shot *)allocate(rows, sizeof *shots);
    uint8_t *presence = (uint8_t *)allocate(rows, map);
    check(shotline_run_read_shots(run, index, 0, rows, shots));
    check(shotline_run_read_presence(run, index, 0, rows, presence, rows * map));
    for (uint64_t row = 0; row < rows; row++) {
        const shotline_shot *shot = &shots[row];
        uint64_t found;
        check(shotline_run_find_row(run, index, shot->number, &found));
        printf("%s{\"number\": %" PRIu64 ", \"stamp_tai_ns\": %" PRIu64 ", \"arrived_tai_ns\": %" PRIu64, row ? ", " : "",
               shot->number, shot->stamp_tai_ns, shot->arrived_tai_ns);
        printf(", \"completed_tai_ns\": %" PRIu64 ", \"state\": %u, \"valid_bytes\": %u, \"packets\": %u",
               shot->completed_tai_ns, shot->state, shot->valid_bytes, shot->packets);
        printf(", \"placed\": %u, \"flags\": %u, \"record_good\": %u, \"slot_crc32\": %u, \"row_good\": %u", shot->placed,
               shot->flags, shot->record_good, shot->slot_crc32, shot->row_good);
        printf(", \"found\": %" PRIu64 ", \"presence\": \"", found);
        for (size_t byte = 0; byte < map; byte++)
            printf("%02x", presence[row * map + byte]);
        printf("\", \"drops\": [");
        for (uint32_t cause = 0; cause < SHOTLINE_MAX_CAUSES; cause++)
            printf("%s%u", cause ? ", " : "", shot->drops[cause]);
        printf("]}");
    }
    printf("]}");
    free(presence);
    free(shots);
}

static void print_losses(void)
{
    size_t count, again;
    check(shotline_run_read_losses(run, NULL, 0, &count));
    shotline_loss *losses = (shotline_loss *)allocate(count, sizeof *losses);
    check(shotline_run_read_losses(run, losses, count, &again));
    printf("], \"losses\": [");
    for (size_t at = 0; at < again; at++) {
        printf("%s[%u, \"%s\", %" PRIu64 ", %" PRIu64 "]", at ? ", " : "", losses[at].stream,
               shotline_cause_name(losses[at].cause), losses[at].first, losses[at].count);
    }
    free(losses);
}

static void print_counters(void)
{
    size_t count, again;
    check(shotline_run_read_counters(run, NULL, 0, &count));
    shotline_counter *counters = (shotline_counter *)allocate(count, sizeof *counters);
    check(shotline_run_read_counters(run, counters, count, &again));
    printf("], \"counters\": [");
    for (size_t at = 0; at < again; at++) {
        uint64_t value;
        check(shotline_run_read_counter(run, counters[at].stream, counters[at].name, &value));
        if (value != counters[at].value)
            exit(1);
        printf("%s[%u, \"%s\", %" PRIu64 "]", at ? ", " : "", counters[at].stream, counters[at].name, value);
    }
    free(counters);
}

static void print_all(void)
{
    shotline_run_info info;
    size_t length;
    check(shotline_run_get_info(run, &info));
    check(shotline_run_get_text(run, "json", NULL, 0, &length));
    char *json = (char *)allocate(length + 1, 1);
    check(shotline_run_get_text(run, "json", json, length + 1, &length));
    printf("{\"about\": %s, \"rows\": %" PRIu64 ", \"allocated_rows\": %" PRIu64, json, info.rows, info.allocated_rows);
    printf(", \"start_tai_ns\": %" PRIu64 ", \"start_utc_ns\": %" PRIu64, info.start_tai_ns, info.start_utc_ns);
    printf(", \"joined\": %u, \"finished\": %u, \"aligned_by_stamp\": %u, \"links\": [", info.joined, info.finished,
           info.aligned_by_stamp);
    free(json);
    for (uint32_t index = 0; index < info.links; index++) {
        shotline_link link;
        check(shotline_run_get_link(run, index, &link));
        printf(index ? ", " : "");
        print_link(index, &link);
        print_shots(index, &link, info.rows);
    }
    print_losses();
    if (info.finished)
        print_counters();
    printf("]}\n");
}

static void write_slots(const char *path)
{
    FILE *out = fopen(path, "wb");
    shotline_run_info info;
    check(shotline_run_get_info(run, &info));
    for (uint32_t index = 0; index < info.links; index++) {
        shotline_link link;
        check(shotline_run_get_link(run, index, &link));
        void *slot = allocate(link.slot_bytes, 1);
        for (uint64_t row = 0; row < info.rows; row++) {
            check(shotline_run_read_slot(run, index, row, slot, link.slot_bytes));
            fwrite(slot, 1, link.slot_bytes, out);
        }
        free(slot);
    }
    fclose(out);
}

static shotline_axis axis(char **words)
{
    shotline_axis found;
    found.first = strtoull(words[0], NULL, 10);
    found.count = strtoull(words[1], NULL, 10);
    found.step = strtoll(words[2], NULL, 10);
    return found;
}

/* Writes the samples, and prints their shape and the size of an element. */
static void write_samples(char **words)
{
    shotline_selection selection = SHOTLINE_ZERO;
    shotline_shape shape;
    shotline_link link;
    selection.link = (uint32_t)strtoul(words[0], NULL, 10);
    selection.threads = (uint32_t)strtoul(words[1], NULL, 10);
    selection.rows = axis(words + 2);
    selection.samples = axis(words + 5);
    selection.channels = axis(words + 8);
    check(shotline_run_get_shape(run, &selection, &shape));
    check(shotline_run_get_link(run, selection.link == SHOTLINE_ALL_LINKS ? 0 : selection.link, &link));
    void *samples = allocate(shape.elements, link.element_bytes);
    if (link.element_bytes == 2)
        check(shotline_run_read_int16(run, &selection, (int16_t *)samples, shape.elements));
    else
        check(shotline_run_read_uint8(run, &selection, (uint8_t *)samples, shape.elements));
    FILE *out = fopen(words[11], "wb");
    fwrite(samples, link.element_bytes, shape.elements, out);
    fclose(out);
    free(samples);
    printf("[%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %u]\n", shape.rows, shape.samples, shape.channels,
           link.element_bytes);
}

int main(int argc, char **argv)
{
    check(shotline_run_open(argv[1], &run));
    if (argc == 14)
        write_samples(argv + 2);
    else if (argc == 4)
        write_slots(argv[3]);
    else
        print_all();
    check(shotline_run_close(run));
    return 0;
}
