/*
 * Calls the C library with every wrong argument, and from several threads. Each call has a defined outcome.
 *
 *     misuse FILE      a recording of 16-bit samples with several rows
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#endif

#include "check.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

enum { MAX_SHOT = 1 << 16, READERS = 3 };

static shotline_run run;
static uint64_t rows;
static shotline_link properties;
static size_t elements;
static char *file;

static void check_texts(void)
{
    CHECK(shotline_abi_version() == SHOTLINE_ABI_VERSION);
    CHECK(strlen(shotline_version()) >= 5);
    CHECK(!strcmp(shotline_last_error(), "") && shotline_last_errno() == 0);
    CHECK(!strcmp(shotline_status_name(SHOTLINE_ERROR_CLOSED), "SHOTLINE_ERROR_CLOSED"));
    CHECK(!strcmp(shotline_status_name(-1), "unknown status"));
    CHECK(!strcmp(shotline_status_name(1000), "unknown status"));
    CHECK(!strcmp(shotline_cause_name(0), "wire_gap"));
    CHECK(!shotline_cause_name(shotline_cause_count()) && !shotline_cause_meaning(UINT32_MAX));
    for (uint32_t cause = 0; cause < shotline_cause_count(); cause++)
        CHECK(strlen(shotline_cause_meaning(cause)) > 5);
}

static void check_open(const char *path)
{
    shotline_run none;
    FAILS(INVALID_ARGUMENT, "`path`, found NULL", shotline_run_open(NULL, &none));
    CHECK(none.id == 0);
    FAILS(INVALID_ARGUMENT, "`run`, found NULL", shotline_run_open(path, NULL));
    FAILS(NOT_FOUND, "there-is-none.h5", shotline_run_open("there-is-none.h5", &none));
    CHECK(shotline_last_errno() == ENOENT);
    FAILS(IO, "found a folder", shotline_run_open("/", &none));
    CHECK(shotline_last_errno() == EISDIR);
    FAILS(IO, "cannot open", shotline_run_open("/dev/null/run.h5", &none));
    CHECK(shotline_last_errno() == ENOTDIR);
    FAILS(FORMAT, "/dev/null", shotline_run_open("/dev/null", &none));
    CHECK(shotline_last_errno() == 0);
    SUCCEEDS(shotline_run_open(path, &run));
    CHECK(strstr(shotline_last_error(), "/dev/null"));
    SUCCEEDS(shotline_run_rows(run, &rows));
    SUCCEEDS(shotline_run_refresh(run, NULL));
    SUCCEEDS(shotline_run_get_link(run, 0, &properties));
    elements = (size_t)properties.samples * properties.channels;
    CHECK(rows > 2 && properties.element_bytes == 2 && elements <= MAX_SHOT);
}

static void check_null(void)
{
    size_t count;
    uint64_t value;
    FAILS(INVALID_ARGUMENT, "`rows`", shotline_run_rows(run, NULL));
    FAILS(INVALID_ARGUMENT, "`info`", shotline_run_get_info(run, NULL));
    FAILS(INVALID_ARGUMENT, "`properties`", shotline_run_get_link(run, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`name`", shotline_run_get_text(run, NULL, NULL, 0, &count));
    FAILS(INVALID_ARGUMENT, "`text`", shotline_run_get_text(run, "json", NULL, 1, &count));
    FAILS(INVALID_ARGUMENT, "`name`", shotline_run_get_link_text(run, 0, NULL, NULL, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`shots`", shotline_run_read_shots(run, 0, 0, 1, NULL));
    FAILS(INVALID_ARGUMENT, "`presence`", shotline_run_read_presence(run, 0, 0, 1, NULL, 1));
    FAILS(INVALID_ARGUMENT, "`slot`", shotline_run_read_slot(run, 0, 0, NULL, properties.slot_bytes));
    FAILS(INVALID_ARGUMENT, "`row`", shotline_run_find_row(run, 0, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`shape`", shotline_run_get_shape(run, NULL, NULL));
    FAILS(INVALID_ARGUMENT, "`samples`", shotline_run_read_int16(run, NULL, NULL, elements));
    FAILS(INVALID_ARGUMENT, "`losses`", shotline_run_read_losses(run, NULL, 1, &count));
    FAILS(INVALID_ARGUMENT, "`count`", shotline_run_read_losses(run, NULL, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`counters`", shotline_run_read_counters(run, NULL, 1, &count));
    FAILS(INVALID_ARGUMENT, "`count`", shotline_run_read_counters(run, NULL, 0, NULL));
    FAILS(INVALID_ARGUMENT, "`name`", shotline_run_read_counter(run, SHOTLINE_WHOLE_RUN, NULL, &value));
    FAILS(INVALID_ARGUMENT, "`value`", shotline_run_read_counter(run, SHOTLINE_WHOLE_RUN, "rows", NULL));
    SUCCEEDS(shotline_run_read_shots(run, 0, rows, 0, NULL));
    SUCCEEDS(shotline_run_read_presence(run, 0, 0, 0, NULL, 0));
}

static void check_ranges(int16_t *samples, unsigned char *bytes)
{
    shotline_shot shot;
    shotline_shape shape;
    shotline_selection selection = SHOTLINE_ZERO;
    FAILS(INVALID_ARGUMENT, "expected a link below", shotline_run_get_link(run, 99, &properties));
    FAILS(INVALID_ARGUMENT, "expected a link below", shotline_run_get_link(run, UINT32_MAX, &properties));
    FAILS(INVALID_ARGUMENT, "expected a link below", shotline_run_find_row(run, 99, 0, &rows));
    FAILS(INVALID_ARGUMENT, "shotline_run_refresh", shotline_run_read_shots(run, 0, rows, 1, &shot));
    FAILS(INVALID_ARGUMENT, "expected rows below", shotline_run_read_shots(run, 0, 1, UINT64_MAX, &shot));
    FAILS(INVALID_ARGUMENT, "expected rows below", shotline_run_read_slot(run, 0, UINT64_MAX, bytes, MAX_SHOT));
    FAILS(INVALID_ARGUMENT, "expected rows below", shotline_run_read_presence(run, 0, rows - 1, 2, bytes, MAX_SHOT));
    selection.rows.first = rows;
    FAILS(INVALID_ARGUMENT, "expected rows below", shotline_run_get_shape(run, &selection, &shape));
    selection.rows.first = 0;
    selection.rows.count = UINT64_MAX;
    FAILS(INVALID_ARGUMENT, "expected rows below", shotline_run_read_int16(run, &selection, samples, MAX_SHOT));
    selection.rows.count = 1;
    selection.samples.count = properties.samples + 1u;
    FAILS(INVALID_ARGUMENT, "expected samples below", shotline_run_read_int16(run, &selection, samples, MAX_SHOT));
    selection.samples.count = 0;
    selection.channels.first = properties.channels;
    FAILS(INVALID_ARGUMENT, "expected channels below", shotline_run_read_int16(run, &selection, samples, MAX_SHOT));
    selection.channels.first = 0;
    selection.threads = UINT32_MAX;
    FAILS(INVALID_ARGUMENT, "threads", shotline_run_read_int16(run, &selection, samples, MAX_SHOT));
    selection.threads = 0;
    selection.reserved[3] = 1;
    FAILS(INVALID_ARGUMENT, "SHOTLINE_ZERO", shotline_run_read_int16(run, &selection, samples, MAX_SHOT));
    selection.reserved[3] = 0;
    FAILS(INVALID_ARGUMENT, "the other type", shotline_run_read_uint8(run, &selection, bytes, MAX_SHOT));
    FAILS(INVALID_ARGUMENT, "expected a multiple of 2 as address",
          shotline_run_read_int16(run, &selection, (int16_t *)(void *)(bytes + 1), elements));
    SUCCEEDS(shotline_run_read_int16(run, &selection, samples, MAX_SHOT));
}

/* Returns memory that is full of one byte. */
static void *filled(size_t size)
{
    void *memory = malloc(size);
    CHECK(memory);
    return memset(memory, 0x5A, size);
}

static int is_untouched(const void *memory, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)memory;
    for (size_t at = 0; at < size; at++) {
        if (bytes[at] != 0x5A)
            return 0;
    }
    return 1;
}

/* The library itself is not instrumented: the memory is larger than what the library is informed of, and is compared. */
static void check_small_buffers(void)
{
    shotline_selection one = SHOTLINE_ZERO;
    size_t length, count;
    uint64_t value;
    char *text = (char *)filled(64);
    int16_t *samples = (int16_t *)filled(elements * sizeof *samples);
    unsigned char *bytes = (unsigned char *)filled(properties.slot_bytes);
    one.rows.count = 1;
    FAILS(BUFFER_TOO_SMALL, "found one for 4", shotline_run_get_text(run, "run_id", text, 4, &length));
    CHECK(length == 36);
    FAILS(BUFFER_TOO_SMALL, "found one for 0", shotline_run_get_text(run, "run_id", text, 0, NULL));
    FAILS(NOT_FOUND, "run_id, software", shotline_run_get_text(run, "colour", text, 4, &length));
    FAILS(NOT_FOUND, "name, packing", shotline_run_get_link_text(run, 0, "colour", text, 4, &length));
    FAILS(BUFFER_TOO_SMALL, "elements", shotline_run_read_int16(run, &one, samples, elements - 1));
    FAILS(BUFFER_TOO_SMALL, "slot", shotline_run_read_slot(run, 0, 0, bytes, properties.slot_bytes - 1u));
    FAILS(BUFFER_TOO_SMALL, "presence", shotline_run_read_presence(run, 0, 0, 2, bytes, 1));
    SUCCEEDS(shotline_run_read_counters(run, NULL, 0, &count));
    shotline_counter *counters = (shotline_counter *)filled(count * sizeof *counters);
    FAILS(BUFFER_TOO_SMALL, "counters", shotline_run_read_counters(run, counters, count - 1, &length));
    CHECK(length == count);
    FAILS(NOT_FOUND, "of the run", shotline_run_read_counter(run, SHOTLINE_WHOLE_RUN, "colour", &value));
    FAILS(NOT_FOUND, "of stream 77", shotline_run_read_counter(run, 77, "packets_in", &value));
    CHECK(is_untouched(text, 64) && is_untouched(samples, elements * sizeof *samples));
    CHECK(is_untouched(bytes, properties.slot_bytes) && is_untouched(counters, count * sizeof *counters));
    /* One element fits, and nothing behind it is written. */
    one.samples.count = one.channels.count = 1;
    SUCCEEDS(shotline_run_read_int16(run, &one, samples, elements));
    CHECK(is_untouched(samples + 1, (elements - 1) * sizeof *samples));
    SUCCEEDS(shotline_run_get_text(run, "run_id", text, 37, NULL));
    CHECK(strlen(text) == 36 && is_untouched(text + 37, 64 - 37));
    free(counters);
    free(bytes);
    free(samples);
    free(text);
}

/* Reads all rows again and again, until the run is closed by another thread. */
static void *read_until_closed(void *first_read)
{
    shotline_selection selection = SHOTLINE_ZERO;
    size_t all = (size_t)rows * elements;
    int16_t *before = (int16_t *)malloc(all * sizeof *before), *after = (int16_t *)malloc(all * sizeof *after);
    shotline_shot *shots = (shotline_shot *)malloc(rows * sizeof *shots);
    shotline_status status;
    CHECK(before && after && shots);
    selection.threads = 2;
    selection.rows.count = rows;
    SUCCEEDS(shotline_run_read_int16(run, &selection, before, all));
    pthread_barrier_wait((pthread_barrier_t *)first_read);
    while ((status = shotline_run_read_int16(run, &selection, after, all)) == SHOTLINE_OK) {
        CHECK(!memcmp(before, after, all * sizeof *before));
        status = shotline_run_read_shots(run, 0, 0, rows, shots);
        CHECK(status == SHOTLINE_OK || status == SHOTLINE_ERROR_CLOSED);
        status = shotline_run_refresh(run, NULL);
        CHECK(status == SHOTLINE_OK || status == SHOTLINE_ERROR_CLOSED);
    }
    CHECK(status == SHOTLINE_ERROR_CLOSED && strstr(shotline_last_error(), "this run is closed"));
    free(shots);
    free(after);
    free(before);
    return NULL;
}

static void check_threads_and_close(void)
{
    pthread_t readers[READERS];
    pthread_barrier_t first_read;
    uint64_t value;
    pthread_barrier_init(&first_read, NULL, READERS + 1);
    for (int at = 0; at < READERS; at++)
        CHECK(!pthread_create(&readers[at], NULL, read_until_closed, &first_read));
    pthread_barrier_wait(&first_read);
    for (int at = 0; at < 20; at++)
        SUCCEEDS(shotline_run_rows(run, &value));
    SUCCEEDS(shotline_run_close(run));
    FAILS(CLOSED, "this run is closed: open it again", shotline_run_rows(run, &value));
    FAILS(CLOSED, "this run is closed", shotline_run_close(run));
    for (int at = 0; at < READERS; at++)
        CHECK(!pthread_join(readers[at], NULL));
    pthread_barrier_destroy(&first_read);
}

static void check_handles(const char *path)
{
    shotline_run zero = SHOTLINE_ZERO, other, never;
    uint64_t value;
    never.id = UINT64_MAX;
    FAILS(INVALID_ARGUMENT, "which no function returned", shotline_run_rows(zero, &value));
    FAILS(INVALID_ARGUMENT, "which no function returned", shotline_run_close(never));
    SUCCEEDS(shotline_run_open(path, &other));
    CHECK(other.id != run.id);
    FAILS(CLOSED, "closed", shotline_run_refresh(run, &value));
    FAILS(CLOSED, "closed", shotline_run_read_counter(run, 0, "packets_in", &value));
    SUCCEEDS(shotline_run_close(other));
}

int main(int argc, char **argv)
{
    int16_t *samples = (int16_t *)malloc(MAX_SHOT * sizeof *samples);
    unsigned char *bytes = (unsigned char *)malloc(MAX_SHOT);
    CHECK(argc == 2 && samples && bytes);
    file = argv[1];
    check_texts();
    check_open(file);
    check_null();
    check_ranges(samples, bytes);
    check_small_buffers();
    check_threads_and_close();
    check_handles(file);
    free(bytes);
    free(samples);
    puts("every wrong call has failed as documented");
    return 0;
}
