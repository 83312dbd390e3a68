/*
 * Prints the links, shots and losses of a recording, and the range of the samples of each link.
 *
 *     cc -o read_run read_run.c $(pkg-config --cflags --libs shotline)
 *     ./read_run run.h5
 *
 * Valid as C11 and as C++17.
 */
#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>

/* Rows that are read at a time: a long run needs no more memory than a short one. */
#define BLOCK_ROWS 64u

static const char *const STATES[] = {"lost", "partial", "complete"};

/* Ends the program if a function has failed. */
static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static void print_link(shotline_run run, uint32_t index, const shotline_link *link)
{
    char name[256], packing[32];
    check(shotline_run_get_link_text(run, index, "name", name, sizeof name, NULL));
    check(shotline_run_get_link_text(run, index, "packing", packing, sizeof packing, NULL));
    printf("link %" PRIu32 " (%s): stream %" PRIu32 ", %" PRIu32 " channels x %" PRIu32 " samples, %" PRIu32
           " bit %s, %" PRIu32 " samples/s\n",
           index, name, link->stream, link->channels, link->samples, link->bits, packing, link->sample_rate_hz);
}

static void print_incomplete_shot(const shotline_shot *shot, uint64_t row)
{
    printf("  row %" PRIu64 ": shot %" PRIu64 " is %s, %" PRIu32 " of %" PRIu32 " packets", row, shot->number,
           STATES[shot->state], shot->placed, shot->packets);
    for (uint32_t cause = 0; cause < shotline_cause_count(); cause++) {
        if (shot->drops[cause])
            printf(", %" PRIu32 " %s", shot->drops[cause], shotline_cause_name(cause));
    }
    printf("\n");
}

/* Reads the rows block by block. Zeros of shots that are not complete are not samples, so those shots are skipped. */
static void print_shots(shotline_run run, uint32_t index, const shotline_link *link, uint64_t rows)
{
    const size_t shot_elements = (size_t)link->samples * link->channels;
    shotline_shot *shots = (shotline_shot *)allocate(BLOCK_ROWS, sizeof *shots);
    int16_t *samples = (int16_t *)allocate(BLOCK_ROWS * shot_elements, sizeof *samples);
    int lowest = INT16_MAX, highest = INT16_MIN;
    uint64_t complete = 0;
    for (uint64_t first = 0; first < rows; first += BLOCK_ROWS) {
        uint64_t count = rows - first < BLOCK_ROWS ? rows - first : BLOCK_ROWS;
        shotline_selection selection = SHOTLINE_ZERO;
        selection.link = index;
        selection.rows.first = first;
        selection.rows.count = count;
        check(shotline_run_read_shots(run, index, first, count, shots));
        check(shotline_run_read_int16(run, &selection, samples, BLOCK_ROWS * shot_elements));
        for (uint64_t row = 0; row < count; row++) {
            if (shots[row].state != SHOTLINE_STATE_COMPLETE) {
                print_incomplete_shot(&shots[row], first + row);
                continue;
            }
            complete++;
            for (size_t at = row * shot_elements; at < (row + 1) * shot_elements; at++) {
                lowest = samples[at] < lowest ? samples[at] : lowest;
                highest = samples[at] > highest ? samples[at] : highest;
            }
        }
    }
    printf("  %" PRIu64 " of %" PRIu64 " shots complete", complete, rows);
    if (complete)
        printf(", their samples are %d to %d", lowest, highest);
    printf("\n");
    free(samples);
    free(shots);
}

/* While a run is in progress, it may have more losses at the second call than at the first one. */
static void print_losses(shotline_run run)
{
    shotline_loss *losses = NULL;
    size_t count = 0;
    shotline_status status = shotline_run_read_losses(run, NULL, 0, &count);
    while (status == SHOTLINE_OK && !losses) {
        losses = (shotline_loss *)allocate(count, sizeof *losses);
        status = shotline_run_read_losses(run, losses, count, &count);
        if (status == SHOTLINE_ERROR_BUFFER_TOO_SMALL) {
            free(losses);
            losses = NULL;
            status = SHOTLINE_OK;
        }
    }
    check(status);
    for (size_t at = 0; at < count; at++) {
        printf("lost: %" PRIu64 " shots of stream %" PRIu32 " from %" PRIu64 " on, %s\n", losses[at].count,
               losses[at].stream, losses[at].first, shotline_cause_name(losses[at].cause));
    }
    free(losses);
}

int main(int argc, char **argv)
{
    shotline_run run;
    shotline_run_info info;
    if (argc != 2) {
        fprintf(stderr, "usage: read_run FILE\n");
        return 2;
    }
    if (shotline_abi_version() != SHOTLINE_ABI_VERSION) {
        fprintf(stderr, "libshotline %s has ABI version %" PRIu32 ", this program needs %d\n", shotline_version(),
                shotline_abi_version(), SHOTLINE_ABI_VERSION);
        return 2;
    }
    check(shotline_run_open(argv[1], &run));
    check(shotline_run_get_info(run, &info));
    printf("%s: %" PRIu64 " rows, %" PRIu32 " links, %s\n", argv[1], info.rows, info.links,
           info.finished ? "finished" : "in progress or interrupted");
    for (uint32_t index = 0; index < info.links; index++) {
        shotline_link link;
        check(shotline_run_get_link(run, index, &link));
        print_link(run, index, &link);
        if (link.element_bytes == 2)
            print_shots(run, index, &link, info.rows);
    }
    print_losses(run);
    check(shotline_run_close(run));
    return 0;
}
