/*
 * shotline.h: the C interface of Shotline, which records every shot of a fast instrument.
 *
 * This file is written by `UPDATE=1 cargo test -p shotline-capi`, from the doc comments in crates/capi/src.
 *
 * Valid as C11 and as C++17. docs/c.md shows how to install the library and how to compile with it:
 *
 *     cc program.c $(pkg-config --cflags --libs shotline)
 *
 * Example: print the state of each shot of a recording, and its first sample.
 *
 *     #include <inttypes.h>
 *     #include <shotline.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     static void check(shotline_status status) {
 *         if (status != SHOTLINE_OK) {
 *             fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
 *             exit(1);
 *         }
 *     }
 *
 *     int main(int argc, char **argv) {
 *         shotline_run run;
 *         uint64_t rows;
 *         check(shotline_run_open(argc > 1 ? argv[1] : "run.h5", &run));
 *         check(shotline_run_rows(run, &rows));
 *         for (uint64_t row = 0; row < rows; row++) {
 *             shotline_shot shot;
 *             shotline_selection first = SHOTLINE_ZERO;
 *             int16_t sample;
 *             first.rows.first = row;
 *             first.rows.count = first.samples.count = first.channels.count = 1;
 *             check(shotline_run_read_shots(run, 0, row, 1, &shot));
 *             check(shotline_run_read_int16(run, &first, &sample, 1));
 *             printf("shot %" PRIu64 ": state %" PRIu32 ", first sample %d\n", shot.number, shot.state, sample);
 *         }
 *         check(shotline_run_close(run));
 *         return 0;
 *     }
 *
 * Errors. A function that can fail returns a shotline_status. If it is not SHOTLINE_OK, shotline_last_error() says on the
 * same thread what was expected, what was found, and what to do, and shotline_last_errno() has the number of the kernel's
 * error. Results are stored only on success, unless the function says otherwise. The comment of each function lists its
 * errors without their prefix SHOTLINE_ERROR_; INTERNAL is possible in each, and is a defect of the library.
 *
 * Handles. shotline_run and the like are numbers, which are never used again. A handle that was closed, also by another
 * thread, is an error (CLOSED) and never undefined behaviour. A handle set to zero bytes is never open: INVALID_ARGUMENT.
 *
 * Pointers. A pointer that is not NULL must point to memory of the type and size that the function documents, which no other
 * thread uses during the call. NULL, addresses that are not aligned for their type, and counts that do not fit are
 * INVALID_ARGUMENT, and buffers that are too small are BUFFER_TOO_SMALL: nothing is written beyond a buffer. The library
 * keeps no pointer of the caller after a function returns, and the caller frees nothing that the library returns.
 *
 * Strings end with a zero byte. Those that the library returns are UTF-8; paths are bytes, as the kernel takes them.
 *
 * Threads. All functions may be called by any thread at any time, also several with one handle. A call of close or refresh
 * waits for the others with the same handle. Only the message of the last error belongs to one thread. After fork(), the
 * child process must open its own handles.
 *
 * HDF5. Opening and refreshing a run uses libhdf5. A program that calls libhdf5 itself in other threads at the same time needs
 * one that was built for threads, as that of Debian is.
 *
 * Binary interface. Programs that were compiled with one SHOTLINE_ABI_VERSION run with every library of the same one; fields
 * named `reserved` are for fields of later versions.
 */

#ifndef SHOTLINE_H
#define SHOTLINE_H

#include <stddef.h>
#include <stdint.h>

/** Initialiser of all zeros, for structures that the caller passes: `shotline_selection selection = SHOTLINE_ZERO;`. */
#ifdef __cplusplus
#define SHOTLINE_ZERO {}
#else
#define SHOTLINE_ZERO {0}
#endif

/**
 * Version of the binary interface of this header: the number in the name libshotline.so.0. Programs that were compiled
 * with one number must not run with a library of another one.
 */
#define SHOTLINE_ABI_VERSION 0

/** Length of arrays with one count for each drop cause. Later versions may use more of their elements. */
#define SHOTLINE_MAX_CAUSES 32

/** Shot number of a row without a shot of this link, in a run that is aligned by timestamps (shotline_run_info). */
#define SHOTLINE_NO_NUMBER UINT64_MAX

/** As shotline_selection.link: the channels of all links side by side, in the order of the links. */
#define SHOTLINE_ALL_LINKS UINT32_MAX

/** As shotline_counter.stream: a counter of the whole run. */
#define SHOTLINE_WHOLE_RUN UINT32_MAX

/** Length of shotline_counter.name in bytes, with at least one zero at its end. */
#define SHOTLINE_COUNTER_NAME_BYTES 52

/** Outcome of a function. Later versions may add codes at the end: treat an unknown one as an error. */
typedef enum {
    /** Success. */
    SHOTLINE_OK = 0,
    /** An argument is NULL, misaligned, out of range or contradicts another one: a defect of the calling program. */
    SHOTLINE_ERROR_INVALID_ARGUMENT = 1,
    /** The kernel refused an operation: shotline_last_errno() has its number. */
    SHOTLINE_ERROR_IO = 2,
    /** There is no such file, counter, name or peer. */
    SHOTLINE_ERROR_NOT_FOUND = 3,
    /** The peer or the policy of the library refuses the request. */
    SHOTLINE_ERROR_REFUSED = 4,
    /** The time limit of the call has passed. */
    SHOTLINE_ERROR_TIMEOUT = 5,
    /** The handle is closed, possibly by another thread during the call. */
    SHOTLINE_ERROR_CLOSED = 6,
    /** The run, the stream or the connection has ended: nothing more follows. */
    SHOTLINE_ERROR_ENDED = 7,
    /** Another user or process has the resource. */
    SHOTLINE_ERROR_BUSY = 8,
    /** This build, machine or peer cannot do it. */
    SHOTLINE_ERROR_UNSUPPORTED = 9,
    /** The buffer of the caller is too small. What the function stores in addition says which size is needed. */
    SHOTLINE_ERROR_BUFFER_TOO_SMALL = 10,
    /** The file is not a recording that this version reads, or it is damaged. */
    SHOTLINE_ERROR_FORMAT = 11,
    /** A defect of the library: a panic was caught. Its handles stay usable; please report it. */
    SHOTLINE_ERROR_INTERNAL = 12,
} shotline_status;

/** Format of the samples in a slot. */
typedef enum {
    /** 16-bit little-endian integers. */
    SHOTLINE_PACKING_INT16_LE = 0,
    /** 12-bit two's complement, most significant bit first: two samples in three bytes. */
    SHOTLINE_PACKING_PACKED12_MSB_FIRST = 1,
    /** Unsigned bytes. */
    SHOTLINE_PACKING_UINT8 = 2,
    /** 16-bit big-endian integers. */
    SHOTLINE_PACKING_INT16_BE = 3,
} shotline_packing;

/** State of a shot in the file. */
typedef enum {
    /** The shot is not in the file: its samples read as zeros. */
    SHOTLINE_STATE_LOST = 0,
    /** Packets are missing and read as zeros, or the end-of-shot record does not verify the rest. */
    SHOTLINE_STATE_PARTIAL = 1,
    /** Every byte is present, and verified as far as the shot's trailer allows. */
    SHOTLINE_STATE_COMPLETE = 2,
} shotline_state;

/**
 * Handle of a recording that is open for reading. It is a number, not an address: copy it freely. A handle with the id 0
 * is never open.
 */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_run;

/** Properties of a run. */
typedef struct {
    /** Visible rows, as shotline_run_rows() stores them. */
    uint64_t rows;
    /** Rows for which space is allocated. */
    uint64_t allocated_rows;
    /** Start of the run in TAI nanoseconds since 1970, by the recorder's clock. */
    uint64_t start_tai_ns;
    /** The same in UTC nanoseconds. Equal to start_tai_ns if the machine's TAI offset was not set. */
    uint64_t start_utc_ns;
    /** Number of links. */
    uint32_t links;
    /** 1 if the shots of all links have the same shape, so that SHOTLINE_ALL_LINKS reads them side by side; else 0. */
    uint32_t joined;
    /** 1 if the run was closed in order and has final counters; 0 if it is in progress or was interrupted. */
    uint32_t finished;
    /** 1 if a row joins shots of one time, whose numbers differ between links; 0 if all shots of a row have one number. */
    uint32_t aligned_by_stamp;
    /** Zero, for fields of later versions. */
    uint64_t reserved[8];
} shotline_run_info;

/** Properties of a link: the shape of its shots and the layout of a slot. shotline_run_get_link_text() has its name. */
typedef struct {
    /** Stream number, which shotline_loss and shotline_counter refer to. */
    uint32_t stream;
    /** Channels. */
    uint32_t channels;
    /** Samples per channel of one shot. */
    uint32_t samples;
    /** Resolution of a sample in bits. */
    uint32_t bits;
    /** Format of the samples in a slot: one of shotline_packing. */
    uint32_t packing;
    /** Bytes of an unpacked sample: 2 (shotline_run_read_int16) or 1 (shotline_run_read_uint8). */
    uint32_t element_bytes;
    /** Samples per second of each channel; 0 if unknown. */
    uint32_t sample_rate_hz;
    /** Packets of a complete shot. */
    uint32_t packets;
    /** Bytes of a presence map: one bit for each packet. */
    uint32_t presence_bytes;
    /** Length of the packed samples in bytes, without padding. */
    uint32_t sample_bytes;
    /** Offset of the trailer in bytes: the length of samples and padding. */
    uint32_t trailer_offset;
    /** Length of a shot in bytes: samples, padding and trailer. */
    uint32_t shot_bytes;
    /** Length of a slot in bytes, a multiple of 4096; zeros follow the shot. */
    uint32_t slot_bytes;
    /** Zero, for fields of later versions. */
    uint32_t reserved[11];
} shotline_link;

/** What is known of one shot of one link. */
typedef struct {
    /** Shot number, extended to 64 bits; SHOTLINE_NO_NUMBER if unknown. */
    uint64_t number;
    /** Time of the first sample in TAI nanoseconds since 1970, by the sender's clock; 0: unknown. */
    uint64_t stamp_tai_ns;
    /** When the kernel received the first packet, in TAI nanoseconds by the recorder's clock; 0: unknown. */
    uint64_t arrived_tai_ns;
    /** When the shot was completed or discarded, by the same clock; 0: unknown. */
    uint64_t completed_tai_ns;
    /** One of shotline_state. */
    uint32_t state;
    /** Bytes of samples that arrived. */
    uint32_t valid_bytes;
    /** Packets of a complete shot. */
    uint32_t packets;
    /** Packets that were received and placed. */
    uint32_t placed;
    /** From the end-of-shot record: bit 0 clock locked, bit 1 triggered. */
    uint32_t flags;
    /** 1 if the end-of-shot record arrived and its CRC matches; else 0. */
    uint32_t record_good;
    /** CRC-32 of the shot in its slot, if its record does not verify it; else 0. */
    uint32_t slot_crc32;
    /** 1 if the row's own CRC matches; 0 if the row is damaged. */
    uint32_t row_good;
    /** Dropped packets of this shot, by drop cause (shotline_cause_name). Elements of causes that do not exist are 0. */
    uint32_t drops[SHOTLINE_MAX_CAUSES];
    /** Zero, for fields of later versions. */
    uint64_t reserved[4];
} shotline_shot;

/** Indexes along one axis: `count` of them from `first` on, `step` apart. All zeros mean all of them. */
typedef struct {
    /** First index. */
    uint64_t first;
    /** Number of indexes; 0: as many as there are from `first` on in the direction of `step`. */
    uint64_t count;
    /** Distance of successive indexes, negative for descending ones; 0: 1. */
    int64_t step;
} shotline_axis;

/**
 * Part of a run to read. Initialise it with SHOTLINE_ZERO, then set the fields that matter: zeros mean all samples of all
 * visible rows of the first link.
 */
typedef struct {
    /** Rows. Without a count the rows that are visible: give a count while another thread may call shotline_run_refresh(). */
    shotline_axis rows;
    /** Samples of each channel. */
    shotline_axis samples;
    /** Channels; with SHOTLINE_ALL_LINKS counted over the links side by side. */
    shotline_axis channels;
    /** Index of a link, or SHOTLINE_ALL_LINKS, if the shots of all links have the same shape. */
    uint32_t link;
    /** Number of threads that read and unpack; 0: one for a small part, otherwise as many as help. */
    uint32_t threads;
    /** Must be zero. */
    uint64_t reserved[4];
} shotline_selection;

/**
 * Number of elements along each axis of an array of samples. Its last axis is contiguous: element (row, sample, channel)
 * is at index (row * samples + sample) * channels + channel.
 */
typedef struct {
    /** Number of rows. */
    uint64_t rows;
    /** Number of samples per channel. */
    uint64_t samples;
    /** Number of channels. */
    uint64_t channels;
    /** Product of the three: the number of elements that shotline_run_read_int16() needs. */
    uint64_t elements;
} shotline_shape;

/** Consecutive shot numbers of a stream that are in no row, or in a row as lost. */
typedef struct {
    /** First shot number. */
    uint64_t first;
    /** Number of consecutive shots. */
    uint64_t count;
    /** Stream number of the link (shotline_link.stream). */
    uint32_t stream;
    /** Number of the drop cause (shotline_cause_name). */
    uint32_t cause;
} shotline_loss;

/** Counter of a run that has ended. */
typedef struct {
    /** Its value. */
    uint64_t value;
    /** Stream number of a link, or SHOTLINE_WHOLE_RUN. */
    uint32_t stream;
    /** Its name, for example "packets_in", padded with zeros. */
    char name[SHOTLINE_COUNTER_NAME_BYTES];
} shotline_counter;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the binary interface of the library that is loaded. It differs from SHOTLINE_ABI_VERSION if
 * the program was compiled with the header of an incompatible version.
 *
 * Threads: any.
 */
uint32_t shotline_abi_version(void);

/**
 * Returns the version of the library that is loaded, for example "0.1.0". The string is static.
 *
 * Threads: any.
 */
const char *shotline_version(void);

/**
 * Returns what the last function of this thread that failed expected, what it found, and what to do; "" if none has failed.
 * Functions that succeed do not change it.
 *
 * Lifetime: the string is valid until the next function that fails on this thread, or until the thread ends. Copy it to
 * keep it. Threads: each has its own message.
 */
const char *shotline_last_error(void);

/**
 * Returns the error number of the kernel (errno) of the last function of this thread that failed, or 0 if the kernel was
 * not the cause.
 *
 * Threads: each has its own number.
 */
int32_t shotline_last_errno(void);

/**
 * Returns the name of a status, for example "SHOTLINE_ERROR_IO"; "unknown status" for any other number. The string is
 * static.
 *
 * Threads: any.
 */
const char *shotline_status_name(int32_t status);

/**
 * Returns the number of drop causes that this version knows. They are numbered from 0.
 *
 * Threads: any.
 */
uint32_t shotline_cause_count(void);

/**
 * Returns the name of a drop cause, for example "wire_gap", or NULL if there is none with this number. The string is static.
 * `shotline --explain NAME` says what to do about it.
 *
 * Threads: any.
 */
const char *shotline_cause_name(uint32_t cause);

/**
 * Returns what happened to a packet or shot that was dropped for this cause, or NULL if there is none with this number. The
 * string is static.
 *
 * Threads: any.
 */
const char *shotline_cause_meaning(uint32_t cause);

/**
 * Opens a recording for reading: finished, or still being written by another process. It reads a few kilobytes, for any
 * length of the run.
 *
 * path: the file; for a run of several files its master; for a raw drive the device, as `shotline inspect` takes it.
 * run: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close the handle with shotline_run_close(). Threads: any.
 * Errors: NOT_FOUND, IO (the kernel), FORMAT (not a recording that this version reads), INVALID_ARGUMENT.
 */
shotline_status shotline_run_open(const char *path, shotline_run *run);

/**
 * Closes a run. It waits until the calls of other threads with this handle have returned; later ones fail with CLOSED.
 *
 * Threads: any. Errors: CLOSED if the run is closed already.
 */
shotline_status shotline_run_close(shotline_run run);

/**
 * Makes new shots of a run in progress visible. Nothing else changes which rows are visible.
 *
 * rows: receives the number of visible rows; may be NULL.
 *
 * The rows that are visible stay what they are, with one exception: where a run with limited disk use has removed its
 * oldest files, their rows are gone and the others have moved down. shotline_run_find_row() finds a shot again.
 *
 * Threads: any; it waits for calls of other threads with this handle, which then see the new rows.
 * Errors: IO, FORMAT (the rows are then those from before), CLOSED.
 */
shotline_status shotline_run_refresh(shotline_run run, uint64_t *rows);

/**
 * Stores the number of rows that have been visible since the run was opened or refreshed. A row has one shot of each link.
 *
 * Threads: any. Errors: CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_rows(shotline_run run,
                                  uint64_t *rows);

/**
 * Stores the properties of a run.
 *
 * Threads: any. Errors: CLOSED, INVALID_ARGUMENT, IO.
 */
shotline_status shotline_run_get_info(shotline_run run, shotline_run_info *info);

/**
 * Copies a text about the run.
 *
 * name: "run_id", "software", "instrument", "notes", "operator", "host", "framing" or "config", as the attributes of the
 * file; or "json": all properties of the run and its links as one JSON object.
 * text: receives the text with a zero byte at its end; NULL to store only the length.
 * capacity: bytes at `text`; 0 if it is NULL.
 * length: receives the length of the text without the zero byte, also if the buffer is too small; may be NULL.
 *
 * Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_get_text(shotline_run run,
                                      const char *name,
                                      char *text,
                                      size_t capacity,
                                      size_t *length);

/**
 * Stores the properties of a link.
 *
 * link: index of the link, from 0.
 *
 * Threads: any. Errors: CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_get_link(shotline_run run, uint32_t link, shotline_link *properties);

/**
 * Copies a text about a link.
 *
 * link: index of the link, from 0.
 * name: "name"; "packing" (int16_le, int16_be, packed12_msb_first, uint8); or "trailer", the data after the samples
 * (record, hsb_metadata, block, context, none).
 * text, capacity, length: as for shotline_run_get_text().
 *
 * Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_get_link_text(shotline_run run,
                                           uint32_t link,
                                           const char *name,
                                           char *text,
                                           size_t capacity,
                                           size_t *length);

/**
 * Reads what is known of the shots of a link in consecutive rows.
 *
 * link: index of the link, from 0.
 * first_row, rows: the rows, all of them visible.
 * shots: receives `rows` structures.
 *
 * Threads: any, several at once. Errors: INVALID_ARGUMENT (no such link or row), IO, FORMAT, CLOSED.
 */
shotline_status shotline_run_read_shots(shotline_run run,
                                        uint32_t link,
                                        uint64_t first_row,
                                        uint64_t rows,
                                        shotline_shot *shots);

/**
 * Reads the presence maps of the shots of a link in consecutive rows: bit i % 8 of byte i / 8 is set if packet i is present.
 *
 * link: index of the link, from 0.
 * first_row, rows: the rows, all of them visible.
 * presence: receives `rows` maps of shotline_link.presence_bytes each.
 * capacity: bytes at `presence`.
 *
 * Threads: any, several at once.
 * Errors: INVALID_ARGUMENT (no such link or row), BUFFER_TOO_SMALL, IO, FORMAT, CLOSED.
 */
shotline_status shotline_run_read_presence(shotline_run run,
                                           uint32_t link,
                                           uint64_t first_row,
                                           uint64_t rows,
                                           uint8_t *presence,
                                           size_t capacity);

/**
 * Copies the slot of a shot: its bytes as they were on the wire, with zeros for packets that did not arrive, then the
 * trailer and zeros. Compressed shots are decompressed.
 *
 * link: index of the link, from 0.
 * row: a visible row.
 * slot: receives shotline_link.slot_bytes bytes.
 * capacity: bytes at `slot`.
 *
 * Threads: any, several at once.
 * Errors: INVALID_ARGUMENT (no such link or row), BUFFER_TOO_SMALL, IO, FORMAT (damaged), CLOSED.
 */
shotline_status shotline_run_read_slot(shotline_run run, uint32_t link, uint64_t row, void *slot, size_t capacity);

/**
 * Finds the first row of a link whose shot number is `number` or higher, by binary search.
 *
 * link: index of the link, from 0.
 * row: receives the row. It is the number of visible rows if all shots have lower numbers. Read the row to see whether
 * the shot has this number: it may be lost (shotline_run_read_losses).
 *
 * Threads: any, several at once. Errors: INVALID_ARGUMENT (no such link), IO, FORMAT, CLOSED.
 */
shotline_status shotline_run_find_row(shotline_run run, uint32_t link, uint64_t number, uint64_t *row);

/**
 * Stores the shape of the array that reading a selection fills.
 *
 * selection: the part; NULL as for shotline_run_read_int16().
 *
 * Threads: any. Errors: INVALID_ARGUMENT (beyond what the run has), CLOSED.
 */
shotline_status shotline_run_get_shape(shotline_run run, const shotline_selection *selection, shotline_shape *shape);

/**
 * Reads samples, unpacked to 16 bits, into memory of the caller: for links whose element_bytes is 2. Missing packets and
 * lost shots read as zeros; shotline_shot.state and the presence map distinguish them from samples.
 *
 * selection: the part to read; NULL for all samples of the visible rows of the first link.
 * samples: receives shotline_shape.elements elements, ordered by row, then sample, then channel.
 * capacity: number of elements at `samples`.
 *
 * Each slot is read once, by as many threads as the selection allows, which end before the function returns. If it fails,
 * the contents of `samples` are undefined.
 *
 * Threads: any, several at once. Errors: INVALID_ARGUMENT (beyond what the run has, or a link of 8-bit samples),
 * BUFFER_TOO_SMALL, IO, FORMAT (damaged), CLOSED.
 */
shotline_status shotline_run_read_int16(shotline_run run,
                                        const shotline_selection *selection,
                                        int16_t *samples,
                                        size_t capacity);

/**
 * Reads unsigned bytes, for links whose element_bytes is 1; otherwise as shotline_run_read_int16().
 *
 * Threads: any, several at once. Errors: as for shotline_run_read_int16().
 */
shotline_status shotline_run_read_uint8(shotline_run run,
                                        const shotline_selection *selection,
                                        uint8_t *samples,
                                        size_t capacity);

/**
 * Reads the ranges of shots that were lost. `not_data` and `not_triggered` are causes that are no losses.
 *
 * losses: receives the ranges; NULL to store only their number.
 * capacity: structures at `losses`; 0 if it is NULL.
 * count: receives the number of ranges, also if the buffer is too small.
 *
 * While the run is in progress, the number may grow from one call to the next.
 *
 * Threads: any, several at once. Errors: BUFFER_TOO_SMALL, IO, FORMAT, CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_read_losses(shotline_run run, shotline_loss *losses, size_t capacity, size_t *count);

/**
 * Reads all counters of a run that has ended: of each stream, then of the whole run. docs/file-format.md defines them, and
 * the sums that hold.
 *
 * counters: receives the counters; NULL to store only their number.
 * capacity: structures at `counters`; 0 if it is NULL.
 * count: receives the number of counters, also if the buffer is too small.
 *
 * Threads: any, several at once.
 * Errors: NOT_FOUND (the run is in progress or was interrupted), BUFFER_TOO_SMALL, IO, CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_read_counters(shotline_run run,
                                           shotline_counter *counters,
                                           size_t capacity,
                                           size_t *count);

/**
 * Reads one counter of a run that has ended.
 *
 * stream: stream number of a link, or SHOTLINE_WHOLE_RUN.
 * name: for example "shots_complete" of a stream, or "rows" of the whole run.
 * value: receives the value.
 *
 * Counters of drop causes are in the file only if they are not 0: NOT_FOUND then means 0.
 *
 * Threads: any, several at once. Errors: NOT_FOUND (no such counter; or the run is in progress or was interrupted), IO,
 * CLOSED, INVALID_ARGUMENT.
 */
shotline_status shotline_run_read_counter(shotline_run run, uint32_t stream, const char *name, uint64_t *value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHOTLINE_H */
