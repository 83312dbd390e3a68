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
 * A program records with shotline_recorder_start(), and takes the shots while they are received, one by one
 * (shotline_recorder_take()), in a function that it passes (shotline_recorder_run()), or in an event loop
 * (shotline_recorder_get_fd()). It reads and writes memory of targets by RDMA with shotline_endpoint_connect(), and serves
 * memory with shotline_target_serve(). examples/c has programs.
 *
 * Errors. A function that can fail returns a shotline_status. If it is not SHOTLINE_OK, shotline_last_error() says on the
 * same thread what was expected, what was found, and what to do, and shotline_last_errno() has the number of the kernel's
 * error. Results are stored only on success, unless the function says otherwise. The comment of each function lists its
 * errors without their prefix SHOTLINE_ERROR_; INTERNAL is possible in each, and is a defect of the library.
 *
 * Handles. shotline_run and the like are numbers, which are never used again. A handle that was closed, also by another
 * thread, is an error (CLOSED) and never undefined behaviour. A handle set to zero bytes is never open: INVALID_ARGUMENT.
 * After fork() the handles of the parent process are an error in the child (FORKED), which opens its own.
 *
 * Pointers. A pointer that is not NULL must point to memory of the type and size that the function documents, which no other
 * thread uses during the call. NULL, addresses that are not aligned for their type, and counts that do not fit are
 * INVALID_ARGUMENT, and buffers that are too small are BUFFER_TOO_SMALL: nothing is written beyond a buffer. The library
 * keeps no pointer of the caller after a function returns, and the caller frees nothing that the library returns. One
 * function returns an address of samples, shotline_shots_data(), and one an address of memory, shotline_memory_allocate():
 * their comments say how long it is valid.
 *
 * Strings end with a zero byte. Those that the library returns are UTF-8; paths are bytes, as the kernel takes them.
 *
 * Threads. All functions may be called by any thread at any time, also several with one handle. shotline_run_close() and
 * shotline_run_refresh() wait for the others with the same handle; shotline_recorder_close() wakes those that wait. Only the
 * message of the last error belongs to one thread. The library has threads of its own while a recorder, an emulator or a
 * target is open, and calls functions of the program on threads of the program only.
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

/** As a time limit: none. */
#define SHOTLINE_FOREVER UINT64_MAX

/** Length of shotline_probe_description.model in bytes, with at least one zero at its end. */
#define SHOTLINE_MODEL_BYTES 40

/** Length of shotline_remote_region.name in bytes, with at least one zero at its end. */
#define SHOTLINE_REGION_NAME_BYTES 72

/** Length of shotline_remote_region.rights in bytes, with at least one zero at its end. */
#define SHOTLINE_RIGHTS_BYTES 8

/** As shotline_qp_options.retry_cnt: no retransmission. */
#define SHOTLINE_NO_RETRIES UINT32_MAX

/**
 * Flag of a request: it has a completion only if it fails. Requests of a queue pair are executed in order, so that one
 * request without this flag at the end of an array reports for all.
 */
#define SHOTLINE_WR_UNSIGNALLED 1

/** Flag of a request: the completion of the target's receive is a solicited event. */
#define SHOTLINE_WR_SOLICITED 2

/** Flag of a request: it starts only when all READs and atomic operations before it are done. */
#define SHOTLINE_WR_FENCE 4

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
    /** The handle belongs to the process that has forked this one: open it after the fork. */
    SHOTLINE_ERROR_FORKED = 13,
    /**
     * A run ended before its settings say so: its sender vanished, or the transport or the file failed. Or a completion
     * queue has lost completions.
     */
    SHOTLINE_ERROR_CUT_OFF = 14,
    /** The queue of requests is full: poll its completion queue. */
    SHOTLINE_ERROR_QUEUE_FULL = 15,
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

/** What a completion is of. */
typedef enum {
    /** A SEND. */
    SHOTLINE_COMPLETION_SEND = 0,
    /** A WRITE. */
    SHOTLINE_COMPLETION_WRITE = 1,
    /** A READ. */
    SHOTLINE_COMPLETION_READ = 2,
    /** A compare and swap. */
    SHOTLINE_COMPLETION_COMPARE_SWAP = 3,
    /** A fetch and add. */
    SHOTLINE_COMPLETION_FETCH_ADD = 4,
    /** A receive that was filled by a SEND. */
    SHOTLINE_COMPLETION_RECV = 5,
    /** A receive that was consumed by a WRITE with immediate data, which has not written to it. */
    SHOTLINE_COMPLETION_RECV_WRITE_IMM = 6,
} shotline_completion_kind;

/** Status of a completion; shotline_wc_status_meaning() explains each. */
typedef enum {
    /** The request succeeded. */
    SHOTLINE_WC_SUCCESS = 0,
    /** A message did not fit. */
    SHOTLINE_WC_LOCAL_LENGTH = 1,
    /** The local queue pair could not execute the request. */
    SHOTLINE_WC_LOCAL_OPERATION = 2,
    /** A local key, range or right is not valid. */
    SHOTLINE_WC_LOCAL_PROTECTION = 3,
    /** An earlier request of the queue pair failed, or the target has ended. */
    SHOTLINE_WC_FLUSHED = 4,
    /** The target sent an invalid response. */
    SHOTLINE_WC_BAD_RESPONSE = 5,
    /** The target rejected the request as invalid. */
    SHOTLINE_WC_REMOTE_INVALID = 6,
    /** The target refused key, range or rights. */
    SHOTLINE_WC_REMOTE_ACCESS = 7,
    /** The target could not execute the request. */
    SHOTLINE_WC_REMOTE_OPERATION = 8,
    /** No acknowledgement arrived after all retransmissions. */
    SHOTLINE_WC_RETRY_EXCEEDED = 9,
    /** The target had no receive for the message. */
    SHOTLINE_WC_RNR_RETRY_EXCEEDED = 10,
} shotline_wc_status;

/** Operation of a request. */
typedef enum {
    /** Sends a message, which the target's next posted receive takes. */
    SHOTLINE_SEND = 0,
    /** SEND with immediate data. */
    SHOTLINE_SEND_IMM = 1,
    /** Writes to memory of the target. */
    SHOTLINE_WRITE = 2,
    /** WRITE that also consumes a receive of the target, whose completion has the immediate data. */
    SHOTLINE_WRITE_IMM = 3,
    /** Reads memory of the target. */
    SHOTLINE_READ = 4,
    /** Replaces 8 bytes of the target by `swap` if they equal `compare_add`. Local memory of 8 bytes receives the original. */
    SHOTLINE_COMPARE_SWAP = 5,
    /** Adds `compare_add` to 8 bytes of the target, modulo 2^64. Local memory of 8 bytes receives the original. */
    SHOTLINE_FETCH_ADD = 6,
} shotline_operation;

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

/** Handle of a run in progress. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_recorder;

/** Handle of the shots of all links that belong together. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_shots;

/**
 * Function that shotline_recorder_run() calls for each event, with its shots and the pointer `user`. It returns 0 to
 * continue. It must return: no exception of C++ and no longjmp may leave it.
 */
typedef int32_t (*shotline_on_shots)(shotline_shots shots, void *user);

/** What is known of the shots of all links together. */
typedef struct {
    /** Shot number, extended to 64 bits; that of the first link that has a shot, if links are aligned by stamp. */
    uint64_t number;
    /** Number of links, also of those without a shot. */
    uint32_t links;
    /** State of all links: complete if all are, lost if all are, else partial (shotline_state). */
    uint32_t state;
    /** Zero, for fields of later versions. */
    uint64_t reserved[2];
} shotline_shots_info;

/** Counters since the start of a run. Each is exact; together they may be some milliseconds apart until the run is over. */
typedef struct {
    /** Packets that arrived. */
    uint64_t packets;
    /** Bytes of payload in shots. */
    uint64_t bytes;
    /** Packets that were dropped, here or by the device. */
    uint64_t packets_dropped;
    /** Complete shots. */
    uint64_t shots_complete;
    /** Partial shots. */
    uint64_t shots_partial;
    /** Dropped shots. */
    uint64_t shots_dropped;
    /** Rows that readers of the file see. */
    uint64_t rows;
    /** Events that the program has taken. */
    uint64_t taken;
    /** Events that the program has not taken when it closed the recorder. */
    uint64_t untaken;
    /** Events that the program holds. */
    uint64_t held;
    /** Events that it may hold before later ones are dropped; 0 before the run has begun. */
    uint64_t max_held;
    /** Shots that are in no event that the program gets: the sum of shotline_recorder_read_losses() and `unlisted`. */
    uint64_t lost;
    /** Of these, shots that are not in the list, because it is full. */
    uint64_t unlisted;
    /** Zero, for fields of later versions. */
    uint64_t reserved[7];
} shotline_recorder_counters;

/** Handle of a probe that takes set-up, real or emulated. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_probe;

/** Properties of a probe. */
typedef struct {
    /** Number of links. */
    uint32_t links;
    /** Channels of each link. */
    uint32_t channels;
    /** Resolution of a sample in bits. */
    uint32_t bits;
    /** Format of samples on the wire: one of shotline_packing. */
    uint32_t packing;
    /** Samples per second of each channel. */
    uint32_t sample_rate_hz;
    /** Maximum number of samples per channel of a shot. */
    uint32_t max_samples;
    /** Name of the model, padded with zeros. */
    char model[SHOTLINE_MODEL_BYTES];
    /** Zero, for fields of later versions. */
    uint32_t reserved[8];
} shotline_probe_description;

/** State and counters of a link of a probe. */
typedef struct {
    /** Number of the next shot. */
    uint64_t next_shot;
    /** Shots sent. */
    uint64_t shots_sent;
    /** Packets sent. */
    uint64_t packets_sent;
    /** Triggers that arrived while the probe could not acquire a shot. */
    uint64_t triggers_missed;
    /** Number of the link. */
    uint32_t link;
    /** 1 while shots are being sent; else 0. */
    uint32_t running;
    /** 1 if another receiver controls the probe; else 0. */
    uint32_t owned_by_other;
    /** Packets that an emulated probe has deliberately dropped. */
    uint32_t lost;
    /** Packets that it has deliberately sent twice. */
    uint32_t duplicated;
    /** Packets that it has deliberately sent out of order. */
    uint32_t reordered;
    /** Packets with a deliberately changed bit. */
    uint32_t corrupted;
    /** Zero, for fields of later versions. */
    uint32_t reserved[9];
} shotline_probe_status;

/** Samples for an emulated probe to send, the shots in turn. */
typedef struct {
    /** Samples in the order shot, sample, channel, with the channels of all links side by side. They are copied. */
    const int16_t *samples;
    /** Number of shots. */
    uint32_t shots;
    /** Samples per channel of one shot. */
    uint32_t samples_per_channel;
    /** Channels of all links together. */
    uint32_t channels;
    /** Must be zero. */
    uint32_t reserved;
} shotline_given_shots;

/** Handle of an emulated probe in this process. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_emulator;

/** Handle of memory for registrations and for targets. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_memory;

/** Handle of an endpoint that is connected to a target: an initiator. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_endpoint;

/** Handle of memory that is registered at an endpoint. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_region;

/** Keys of registered memory. */
typedef struct {
    /** Address of the first byte for requests (shotline_sge), which is not an address of the process. */
    uint64_t address;
    /** Length in bytes. */
    uint64_t length;
    /** Local key. */
    uint32_t lkey;
    /** Remote key, for the target. */
    uint32_t rkey;
    /** Zero, for fields of later versions. */
    uint64_t reserved[4];
} shotline_region_info;

/** Memory of a target, with its key for this connection. */
typedef struct {
    /** Length in bytes. */
    uint64_t length;
    /** Address of the first byte for requests, usually 0. It is not an address of the target's process. */
    uint64_t address;
    /** Remote key. */
    uint32_t rkey;
    /** Zero, for a field of later versions. */
    uint32_t reserved;
    /** "r", "w", "rw" or "atomic", padded with zeros. */
    char rights[SHOTLINE_RIGHTS_BYTES];
    /** Name, padded with zeros. */
    char name[SHOTLINE_REGION_NAME_BYTES];
} shotline_remote_region;

/** Handle of a completion queue. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_cq;

/** Completion of a request. `kind`, `bytes` and `imm` are valid only on success. */
typedef struct {
    /** Id of the request. */
    uint64_t id;
    /** One of shotline_wc_status; 0: success. */
    uint32_t status;
    /** One of shotline_completion_kind. */
    uint32_t kind;
    /** Number of the local queue pair. */
    uint32_t qp;
    /** Bytes received by a receive or a READ; else 0. */
    uint32_t bytes;
    /** Immediate data of a received message, if has_imm is 1; else 0. */
    uint32_t imm;
    /** 1 if there is immediate data; else 0. */
    uint32_t has_imm;
    /** Zero, for fields of later versions. */
    uint32_t reserved[4];
} shotline_completion;

/** Options of a queue pair. Initialise it with SHOTLINE_ZERO: zeros mean the defaults. */
typedef struct {
    /** Acknowledgement timeout before retransmission in nanoseconds; 0: 67 ms. */
    uint64_t timeout_ns;
    /** 0: reliable connection (RC); 1: unreliable connection (UC). */
    uint32_t unreliable;
    /** Depth of the send queue; 0: 128. */
    uint32_t max_send_wr;
    /** Depth of the receive queue; 0: 128. */
    uint32_t max_recv_wr;
    /** Maximum elements of a request; 0: 4. */
    uint32_t max_sge;
    /** Maximum inline bytes of a request; 0: 64. */
    uint32_t max_inline;
    /** Receives that the target keeps posted, at most 65535; 0: none, so that it takes no messages. */
    uint32_t receives;
    /** Bytes of each of them. */
    uint32_t receive_bytes;
    /** 1: the target sends each message back; 0: it discards them. */
    uint32_t echo;
    /** Maximum retransmissions, 1 to 7; 0: 7; SHOTLINE_NO_RETRIES: none. */
    uint32_t retry_cnt;
    /** Service level; over SpaceFibre the virtual channel. */
    uint32_t service_level;
    /** Maximum path MTU in bytes, a power of 2 from 256; 0: as large as possible. */
    uint32_t mtu;
    /** Must be zero. */
    uint32_t reserved[5];
} shotline_qp_options;

/** Handle of a queue pair that is connected to one of the target. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_qp;

/** Scatter/gather element: bytes of registered memory. */
typedef struct {
    /** shotline_region_info.address, plus the offset of the first byte. */
    uint64_t address;
    /** Length in bytes. */
    uint32_t length;
    /** shotline_region_info.lkey. */
    uint32_t lkey;
} shotline_sge;

/** Work request of a send queue. Initialise it with SHOTLINE_ZERO. */
typedef struct {
    /** Any number, which the completion has. */
    uint64_t id;
    /** One of shotline_operation. */
    uint32_t operation;
    /** Sum of SHOTLINE_WR_UNSIGNALLED, _SOLICITED and _FENCE. */
    uint32_t flags;
    /**
     * Local memory, gathered or scattered in order. It belongs to the library until the completion: do not change what is
     * sent, and do not read what is received, before. The array itself is copied.
     */
    const shotline_sge *sges;
    /** Bytes to send instead of `sges`, which are copied at once and need no key; NULL: none. */
    const void *inline_data;
    /** Number of elements at `sges`, or of bytes at `inline_data`. */
    uint32_t length;
    /** Immediate data. */
    uint32_t imm;
    /** Memory of the target: shotline_remote_region.address, plus the offset of the first byte. */
    uint64_t remote_address;
    /** shotline_remote_region.rkey. */
    uint32_t rkey;
    /** Must be zero. */
    uint32_t reserved;
    /** Operand of atomic operations. */
    uint64_t compare_add;
    /** New value of a compare and swap. */
    uint64_t swap;
} shotline_send_wr;

/** Work request of a receive queue. Initialise it with SHOTLINE_ZERO. */
typedef struct {
    /** Any number, which the completion has. */
    uint64_t id;
    /** Local memory that the message is written to, in order. The array itself is copied. */
    const shotline_sge *sges;
    /** Number of elements at `sges`. */
    uint32_t length;
    /** Must be zero. */
    uint32_t reserved;
} shotline_recv_wr;

/** A region of a target. */
typedef struct {
    /** Name: 1 to 64 letters, digits, '.', '_' and '-'. */
    const char *name;
    /** Rights of initiators: "r", "w", "rw" or "atomic". */
    const char *rights;
    /** Memory (shotline_memory_allocate). */
    shotline_memory memory;
} shotline_served_region;

/** Options of a target. Initialise it with SHOTLINE_ZERO: NULL and zeros mean the defaults. */
typedef struct {
    /** "soft", "ibverbs:DEVICE" or "spacefibre", as for `shotline target`; NULL: "soft". */
    const char *transport;
    /** Local address of the memory's traffic, with or without a port; NULL: loopback, any port. */
    const char *bind;
    /** Address of control connections; NULL: loopback, any port. */
    const char *listen;
    /** Token, 32 hexadecimal digits; NULL: a random one. */
    const char *token;
    /** 1: answer invalid requests with a NAK and the error state; 0: drop them. */
    uint32_t strict_ib;
    /** Maximum number of initiators at once; 0: the default. */
    uint32_t initiators;
    /** Must be zero. */
    uint64_t reserved[4];
} shotline_target_options;

/** Handle of a target in this process. A handle with the id 0 is never open. */
typedef struct {
    /** Number of the handle, which is used once in the life of the process. */
    uint64_t id;
} shotline_target;

/** State of a target. */
typedef struct {
    /** Initiators that are connected. */
    uint64_t initiators;
    /** Initiators since the start. */
    uint64_t welcomed;
    /** Connections that were refused for a wrong token. */
    uint64_t wrong_token;
    /** WRITEs of initiators to all regions. This and the following are 0 if the provider does not count them. */
    uint64_t writes;
    /** Bytes of these. */
    uint64_t bytes_in;
    /** READs of initiators from all regions. */
    uint64_t reads;
    /** Bytes of these. */
    uint64_t bytes_out;
    /** Atomic operations of initiators. */
    uint64_t atomics;
    /** Zero, for fields of later versions. */
    uint64_t reserved[4];
} shotline_target_state;

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

/**
 * Starts a run, which hands its shots to the program, and records them if the settings have `out`. It returns at once:
 * shotline_recorder_wait_started() tells whether packets are received.
 *
 * settings: a JSON object with the settings of `shotline record` by their names in a settings file, for example
 * {"probe": "[::1]:47910", "samples": 2000, "out": "run.h5"}; or the text of a settings file (TOML). docs/recording.md and
 * `shotline record --help` explain them.
 * recorder: receives the handle; on failure one with the id 0.
 *
 * Without `out` the program is the sink: shots that it takes too slowly, or for which it holds too many others, are dropped
 * by the setting `policy`, and are in shotline_recorder_read_losses(). With `out` every shot is recorded as without the
 * program, which sees as many as it can take.
 *
 * Lifetime: close the handle with shotline_recorder_close(). A run that is open when the program ends by exit() or by
 * returning from main() is closed then. Threads: any.
 * Errors: INVALID_ARGUMENT (a setting is wrong; the message has its name), IO (no descriptor or thread is left).
 */
shotline_status shotline_recorder_start(const char *settings,
                                        shotline_recorder *recorder);

/**
 * Waits until packets are received. From then on the files are created, and the properties of the shots are known.
 *
 * timeout_ns: limit of the wait in nanoseconds, or SHOTLINE_FOREVER.
 *
 * Threads: any, several at once.
 * Errors: of a run that cannot begin INVALID_ARGUMENT (the settings contradict the sender), REFUSED (for example because
 * another receiver controls the probe), TIMEOUT (the probe does not answer), IO (transport, file or memory). TIMEOUT (the
 * limit has passed; the message differs), CLOSED, FORKED.
 */
shotline_status shotline_recorder_wait_started(shotline_recorder recorder,
                                               uint64_t timeout_ns);

/**
 * Asks the run to end. Shots that have arrived are still handed over; then shotline_recorder_take() fails with ENDED.
 *
 * Threads: any. Errors: CLOSED, FORKED.
 */
shotline_status shotline_recorder_stop(shotline_recorder recorder);

/**
 * Triggers, if the settings have a time before triggers (`pre_trigger`). A probe is triggered by shotline_probe_trigger().
 *
 * Threads: any. Errors: CLOSED, FORKED.
 */
shotline_status shotline_recorder_trigger(shotline_recorder recorder);

/**
 * Waits until the run is over: its file is closed, and its counters and its report are final. Shots may be left to take.
 *
 * timeout_ns: limit of the wait in nanoseconds, or SHOTLINE_FOREVER.
 *
 * Threads: any, several at once.
 * Errors: CUT_OFF (the run has ended early, or could not begin; the message says why), TIMEOUT, CLOSED, FORKED.
 */
shotline_status shotline_recorder_wait_ended(shotline_recorder recorder,
                                             uint64_t timeout_ns);

/**
 * Ends the run and closes its handle. It waits until everything is in the file. Threads that wait for shots or for the end
 * of the run are woken, and fail with CLOSED. Shots that the program holds stay valid; those that it has not taken are
 * discarded (and are in the file, if there is one).
 *
 * Threads: any, also the callback of shotline_recorder_run(). Errors: CLOSED if the recorder is closed already, FORKED.
 * How the run has ended: shotline_recorder_stop() and shotline_recorder_wait_ended() before.
 */
shotline_status shotline_recorder_close(shotline_recorder recorder);

/**
 * Stores the properties of a link, which are known once the run has begun.
 *
 * link: index of the link, from 0.
 *
 * Threads: any. Errors: NOT_FOUND (the run has not begun), INVALID_ARGUMENT (no such link), CLOSED, FORKED.
 */
shotline_status shotline_recorder_get_link(shotline_recorder recorder, uint32_t link, shotline_link *properties);

/**
 * Copies a text about the run.
 *
 * name: "about": what the run receives, as a JSON object: instrument, framing, links, address and the geometry of a link's
 * shots; once the run has begun. Or "report": the report of `shotline record --json`, once the run is over.
 * text, capacity, length: as for shotline_run_get_text().
 *
 * Threads: any. Errors: NOT_FOUND (no text of this name, or not yet), BUFFER_TOO_SMALL, CUT_OFF (a report of a run that
 * could not begin), CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_get_text(shotline_recorder recorder,
                                           const char *name,
                                           char *text,
                                           size_t capacity,
                                           size_t *length);

/**
 * Takes the next shots; waits for them. Shots of several links with one number come together.
 *
 * timeout_ns: limit of the wait in nanoseconds; 0 to look only, SHOTLINE_FOREVER for no limit.
 * shots: receives a handle of the shots; on failure one with the id 0.
 *
 * Lifetime: release the shots with shotline_shots_release(). As long as the program holds as many as the pool has buffers
 * for (shotline_recorder_counters.max_held), later ones are dropped.
 * Threads: any, several at once; each shot goes to one of them.
 * Errors: TIMEOUT (there are none yet), ENDED (the run is over, and all shots were taken), CUT_OFF (as ENDED, but the run
 * has ended early or could not begin), CLOSED (also by another thread during the call), FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_take(shotline_recorder recorder,
                                       uint64_t timeout_ns,
                                       shotline_shots *shots);

/**
 * Calls a function for each event of the run on this thread, until the run is over or the function returns another value
 * than 0. The shots are released when the function returns: shotline_shots_share() keeps them.
 *
 * callback: the function.
 * user: passed to it as it is; may be NULL.
 *
 * Returns SHOTLINE_OK if the run has ended as its settings say, or the function has ended the loop. The run then goes on,
 * until it is stopped or closed.
 *
 * Threads: any, several at once; each shot goes to one of them. The function may call everything, also
 * shotline_recorder_close().
 * Errors: CUT_OFF (the run has ended early or could not begin), CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_run(shotline_recorder recorder,
                                      shotline_on_shots callback,
                                      void *user);

/**
 * Stores a file descriptor for poll() and epoll: it is readable while there may be shots, and at the end, between
 * shotline_recorder_start_waiting() and shotline_recorder_stop_waiting(). Do not read it or close it.
 *
 * Lifetime: until the recorder is closed; duplicate it (dup) for a loop that may still watch it then.
 * Threads: any. Errors: CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_get_fd(shotline_recorder recorder, int32_t *fd);

/**
 * Begins a wait on the descriptor.
 *
 * ready: receives 1 if there is something to take already, or the run is over: then do not wait. Else 0.
 *
 * A loop takes shots with the limit 0 until TIMEOUT, starts waiting, polls the descriptor if `ready` is 0, stops waiting,
 * and begins again.
 *
 * Threads: any, several waits at once; each needs its shotline_recorder_stop_waiting().
 * Errors: CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_start_waiting(shotline_recorder recorder,
                                                int32_t *ready);

/**
 * Ends a wait on the descriptor.
 *
 * Threads: any. Errors: INVALID_ARGUMENT (no wait has begun), CLOSED, FORKED.
 */
shotline_status shotline_recorder_stop_waiting(shotline_recorder recorder);

/**
 * Stores the number and the state of shots.
 *
 * Threads: any. Errors: CLOSED (released), FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_shots_get_info(shotline_shots shots, shotline_shots_info *info);

/**
 * Stores what is known of the shot of a link, as shotline_run_read_shots() reads it from the file. The file alone has
 * `slot_crc32`, which is 0 here.
 *
 * link: index of the link, from 0. A link of which no packet has arrived has the state SHOTLINE_STATE_LOST.
 *
 * Threads: any. Errors: CLOSED (released), FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_shots_get_shot(shotline_shots shots, uint32_t link, shotline_shot *shot);

/**
 * Copies the presence map of the shot of a link: bit i % 8 of byte i / 8 is set if packet i is present.
 *
 * link: index of the link, from 0. The map of a link of which no packet has arrived is all zeros.
 * presence: receives shotline_link.presence_bytes bytes.
 * capacity: bytes at `presence`.
 *
 * Threads: any. Errors: BUFFER_TOO_SMALL, CLOSED (released), FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_shots_get_presence(shotline_shots shots, uint32_t link, uint8_t *presence, size_t capacity);

/**
 * Stores the address of the bytes of a link's shot in the pool, without a copy: the slot as on the wire, with zeros for
 * packets that did not arrive, then the trailer and zeros (shotline_link has the offsets).
 *
 * link: index of the link, from 0.
 * data: receives the address, a multiple of 4096.
 * length: receives shotline_link.slot_bytes; may be NULL.
 *
 * Lifetime: the bytes are valid until the last handle of the shots is released, also after the recorder is closed. Then
 * their use is undefined behaviour: the pool uses the memory for other shots. They must not be changed.
 * Threads: any. Errors: NOT_FOUND (no packet of the link has arrived), UNSUPPORTED (the pool is in memory of a device: use
 * shotline_shots_read_int16()), CLOSED (released), FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_shots_data(shotline_shots shots,
                                    uint32_t link,
                                    const void **data,
                                    size_t *length);

/**
 * Unpacks the samples of a link's shot to 16 bits into memory of the caller: for links whose element_bytes is 2. Missing
 * packets read as zeros, and so does a link of which no packet has arrived.
 *
 * link: index of the link, from 0.
 * samples: receives shotline_link.samples * channels elements, ordered by sample, then channel.
 * capacity: number of elements at `samples`.
 *
 * Threads: any. Errors: INVALID_ARGUMENT (no such link, or 8-bit samples), BUFFER_TOO_SMALL, CLOSED (released), FORKED.
 */
shotline_status shotline_shots_read_int16(shotline_shots shots,
                                          uint32_t link,
                                          int16_t *samples,
                                          size_t capacity);

/**
 * Copies unsigned bytes, for links whose element_bytes is 1; otherwise as shotline_shots_read_int16().
 *
 * Threads: any. Errors: as for shotline_shots_read_int16().
 */
shotline_status shotline_shots_read_uint8(shotline_shots shots, uint32_t link, uint8_t *samples, size_t capacity);

/**
 * Stores another handle of the same shots, for example for another thread. Their buffers return to the pool when all
 * handles are released.
 *
 * other: receives the handle; on failure one with the id 0.
 *
 * Lifetime: release it with shotline_shots_release(). Threads: any. Errors: CLOSED (released), FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_shots_share(shotline_shots shots,
                                     shotline_shots *other);

/**
 * Releases shots: their buffers return to the pool, unless there are other handles (shotline_shots_share()). Calls with this
 * handle then fail with CLOSED, and addresses from shotline_shots_data() must not be used.
 *
 * Threads: any. Errors: CLOSED if they are released already, FORKED.
 */
shotline_status shotline_shots_release(shotline_shots shots);

/**
 * Stores the counters of a run.
 *
 * Threads: any. Errors: CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_get_counters(shotline_recorder recorder, shotline_recorder_counters *counters);

/**
 * Reads the ranges of shots that the program does not get, in the order in which they were noticed.
 *
 * losses: receives the ranges; NULL to store only their number.
 * capacity: structures at `losses`; 0 if it is NULL.
 * count: receives the number of ranges, also if the buffer is too small. It may grow from one call to the next.
 *
 * Threads: any. Errors: BUFFER_TOO_SMALL, CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_recorder_read_losses(shotline_recorder recorder,
                                              shotline_loss *losses,
                                              size_t capacity,
                                              size_t *count);

/**
 * Opens a socket for requests to a probe, which gets none yet. Each request is repeated until it is answered, for at most
 * 6.3 s.
 *
 * address: address or name, and port of its set-up port, for example "[::1]:47910".
 * take_over: 0, or 1 to override another receiver that controls the probe.
 * probe: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close the handle with shotline_probe_close(). Threads: any. Errors: INVALID_ARGUMENT (no address), IO.
 */
shotline_status shotline_probe_open(const char *address,
                                    int32_t take_over,
                                    shotline_probe *probe);

/**
 * Queries the properties of a probe.
 *
 * Threads: any; requests of several threads follow one another. Errors: TIMEOUT (it does not answer), CLOSED, FORKED,
 * INVALID_ARGUMENT.
 */
shotline_status shotline_probe_describe(shotline_probe probe, shotline_probe_description *description);

/**
 * Queries the state and the counters of a link of a probe.
 *
 * link: number of the link, from 0.
 *
 * Threads: any. Errors: TIMEOUT (the probe does not answer), REFUSED (it has no such link), CLOSED, FORKED,
 * INVALID_ARGUMENT.
 */
shotline_status shotline_probe_get_status(shotline_probe probe, uint32_t link, shotline_probe_status *status);

/**
 * Sends a trigger command to a probe.
 *
 * command_only: 0, or 1 to check only that the command would be accepted.
 * shot: receives the number of the shot that it starts; may be NULL.
 *
 * Threads: any. Errors: TIMEOUT (the probe does not answer), REFUSED (it does not accept the command, for example during a
 * shot), CLOSED, FORKED.
 */
shotline_status shotline_probe_trigger(shotline_probe probe,
                                       int32_t command_only,
                                       uint64_t *shot);

/**
 * Makes a probe stop sending after the shot in progress.
 *
 * Threads: any. Errors: TIMEOUT (it does not answer), REFUSED (another receiver controls it), CLOSED, FORKED.
 */
shotline_status shotline_probe_stop(shotline_probe probe);

/**
 * Closes the handle of a probe, which continues what it does. Requests in progress are completed.
 *
 * Threads: any. Errors: CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_probe_close(shotline_probe probe);

/**
 * Starts an emulated ultrasound probe, which receivers set up as a real one.
 *
 * config: a JSON object; what is absent has its default. NULL: all defaults. "links": 2, "channels": 96 of each link (or those
 * of `given`), "samples": 2000 per channel (or those of `given`), "packing": "packed12_msb_first", "int16_le", "int16_be" or
 * "uint8", "bits": all bits of the packing, "sample_rate_hz": 40000000, "input": an HDF5 file with radio-frequency data,
 * "phantom": {} for the echoes of a phantom, "free_running": pace of a free-running receiver: "device", "max" or
 * {"rate": shots per second}, "trigger_hz": frequency of the trigger input, "faults": {"loss": 0.0, "duplicate": 0.0, "reorder":
 * 0.0, "corrupt": 0.0} as probabilities, "first_shot": 0, "seed": of faults and random numbers.
 * listen: address and port for set-up messages, where port 0 selects a free one; NULL for "[::1]:0".
 * given: samples to send; NULL: those of "input" or "phantom", else test patterns, which `shotline verify` checks.
 * emulator: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close the handle with shotline_emulator_close(). Threads: any.
 * Errors: INVALID_ARGUMENT (the message names what is wrong), IO (the port is not available, the input not readable).
 */
shotline_status shotline_emulator_start(const char *config,
                                        const char *listen,
                                        const shotline_given_shots *given,
                                        shotline_emulator *emulator);

/**
 * Copies a text about an emulated probe.
 *
 * name: "address": address of the set-up port, for the setting `probe`. Or "counters": as a JSON object those of the report of
 * `shotline emulate probe --json`, at most 100 ms old; final after shotline_emulator_stop().
 * text, capacity, length: as for shotline_run_get_text().
 *
 * Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, FORKED, INVALID_ARGUMENT; IO if the
 * probe has failed.
 */
shotline_status shotline_emulator_get_text(shotline_emulator emulator,
                                           const char *name,
                                           char *text,
                                           size_t capacity,
                                           size_t *length);

/**
 * Ends an emulated probe, and waits for its end. Its texts stay until it is closed. A second call does nothing.
 *
 * Threads: any. Errors: IO (it has failed before), CLOSED, FORKED.
 */
shotline_status shotline_emulator_stop(shotline_emulator emulator);

/**
 * Ends an emulated probe, and closes its handle.
 *
 * Threads: any. Errors: IO (the probe has failed before; the handle is closed), CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_emulator_close(shotline_emulator emulator);

/**
 * Allocates memory that endpoints can use, filled with zeros.
 *
 * length: in bytes.
 * kind: "heap", "huge", "memfd" or "file=PATH"; NULL for "heap". `shotline list` explains them.
 * memory: receives the handle; on failure one with the id 0.
 * address: receives the address in this process.
 *
 * Lifetime: until shotline_memory_free(), and as long as a registration, a target or a request uses it. Then the use of the
 * address is undefined behaviour. Threads: any. Errors: INVALID_ARGUMENT, IO (not enough memory).
 */
shotline_status shotline_memory_allocate(size_t length,
                                         const char *kind,
                                         shotline_memory *memory,
                                         void **address);

/**
 * Frees memory once no registration, target or request uses it any more.
 *
 * Threads: any. Errors: CLOSED if it is freed already, FORKED.
 */
shotline_status shotline_memory_free(shotline_memory memory);

/**
 * Registers memory at an endpoint, for its requests.
 *
 * access: rights of the target: "" (none; NULL means the same), "r", "w", "rw" or "atomic".
 * region: receives the handle; on failure one with the id 0.
 * info: receives the keys; may be NULL.
 *
 * Lifetime: the keys are valid until shotline_region_close(), or until the endpoint is closed. Threads: any.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (the provider cannot), IO, CLOSED, FORKED.
 */
shotline_status shotline_endpoint_register(shotline_endpoint endpoint,
                                           shotline_memory memory,
                                           const char *access,
                                           shotline_region *region,
                                           shotline_region_info *info);

/**
 * Ends a registration: its keys are invalid from now on. Requests that were posted before still complete.
 *
 * Threads: any. Errors: CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_region_close(shotline_region region);

/**
 * Opens an endpoint and connects it to a target.
 *
 * to: "HOST:PORT" of the target's control connection, or the path of its socket.
 * token: the token that the target printed: 32 hexadecimal digits.
 * transport: "soft", "shm", "ibverbs:DEVICE" or "spacefibre:lanes=4", as for `shotline perf`; NULL for "soft".
 * bind: local address, with or without a port; NULL for that of the route.
 * endpoint: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close the handle with shotline_endpoint_close(). Threads: any.
 * Errors: INVALID_ARGUMENT, REFUSED (wrong token), IO (the target cannot be reached), UNSUPPORTED.
 */
shotline_status shotline_endpoint_connect(const char *to,
                                          const char *token,
                                          const char *transport,
                                          const char *bind,
                                          shotline_endpoint *endpoint);

/**
 * Ends the connection and closes the endpoint: its keys and queue pairs end at both ends. Threads that wait for completions
 * fail with CLOSED, and so do all later calls with what belongs to the endpoint.
 *
 * Threads: any. Errors: CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_endpoint_close(shotline_endpoint endpoint);

/**
 * Reads the regions of the target.
 *
 * regions: receives the regions; NULL to store only their number.
 * capacity: structures at `regions`; 0 if it is NULL.
 * count: receives the number of regions, also if the buffer is too small.
 *
 * Threads: any. Errors: BUFFER_TOO_SMALL, REFUSED, IO, ENDED (the target has ended), CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_endpoint_read_regions(shotline_endpoint endpoint,
                                               shotline_remote_region *regions,
                                               size_t capacity,
                                               size_t *count);

/**
 * Finds a region of the target by its name.
 *
 * Threads: any. Errors: NOT_FOUND (no region of this name), REFUSED, IO, ENDED, CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_endpoint_find_region(shotline_endpoint endpoint,
                                              const char *name,
                                              shotline_remote_region *region);

/**
 * Reads bytes of a region of the target, of any length, into memory of the caller, and waits until they have arrived.
 *
 * region: as shotline_endpoint_find_region() stores it.
 * offset: of the first byte in the region.
 * to: receives `length` bytes.
 *
 * Threads: any; calls follow one another. Errors: INVALID_ARGUMENT (beyond the region), REFUSED (by the target), TIMEOUT (the
 * target does not answer: it dropped the request, or has stopped), ENDED (the target has ended), CLOSED, FORKED.
 */
shotline_status shotline_endpoint_read(shotline_endpoint endpoint,
                                       const shotline_remote_region *region,
                                       uint64_t offset,
                                       void *to,
                                       size_t length);

/**
 * Writes bytes of the caller, of any length, to a region of the target, and waits until they have arrived.
 *
 * from: `length` bytes, which do not change during the call. Otherwise as shotline_endpoint_read().
 *
 * Threads: any; calls follow one another. Errors: as for shotline_endpoint_read().
 */
shotline_status shotline_endpoint_write(shotline_endpoint endpoint,
                                        const shotline_remote_region *region,
                                        uint64_t offset,
                                        const void *from,
                                        size_t length);

/**
 * Returns the name of a status of completions, for example "remote_access", or NULL if there is none with this number. The
 * string is static.
 *
 * Threads: any.
 */
const char *shotline_wc_status_name(uint32_t status);

/**
 * Returns what a status of completions means, with its probable cause, or NULL if there is none with this number. The
 * string is static.
 *
 * Threads: any.
 */
const char *shotline_wc_status_meaning(uint32_t status);

/**
 * Creates a completion queue.
 *
 * depth: number of completions that it has space for.
 * cq: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close it with shotline_cq_close(). Threads: any. Errors: INVALID_ARGUMENT, UNSUPPORTED, CLOSED, FORKED.
 */
shotline_status shotline_cq_create(shotline_endpoint endpoint, uint32_t depth, shotline_cq *cq);

/**
 * Moves completions, oldest first, to memory of the caller. Does not wait.
 *
 * completions: receives at most `capacity` structures.
 * count: receives their number, which may be 0.
 *
 * Threads: any, several at once; each completion goes to one of them. Errors: ENDED (the target has ended, and all
 * completions were returned), CUT_OFF (the queue was full and lost completions), CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_cq_poll(shotline_cq cq, shotline_completion *completions, size_t capacity, size_t *count);

/**
 * Waits until there is a completion; otherwise as shotline_cq_poll().
 *
 * timeout_ns: limit of the wait in nanoseconds, or SHOTLINE_FOREVER.
 *
 * Threads: any, several at once. Errors: TIMEOUT, CLOSED (also by another thread during the call); others as for
 * shotline_cq_poll().
 */
shotline_status shotline_cq_wait(shotline_cq cq,
                                 uint64_t timeout_ns,
                                 shotline_completion *completions,
                                 size_t capacity,
                                 size_t *count);

/**
 * Destroys a completion queue.
 *
 * Threads: any. Errors: BUSY (a queue pair uses it; the handle stays open), CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_cq_close(shotline_cq cq);

/**
 * Creates a queue pair and connects it to a new one of the target.
 *
 * send_cq, recv_cq: completion queues of the endpoint, which may be the same.
 * options: NULL for the defaults.
 * qp: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close it with shotline_qp_close(). Threads: any. Errors: INVALID_ARGUMENT, UNSUPPORTED, REFUSED (by the target),
 * IO, ENDED, CLOSED, FORKED.
 */
shotline_status shotline_qp_create(shotline_endpoint endpoint,
                                   shotline_cq send_cq,
                                   shotline_cq recv_cq,
                                   const shotline_qp_options *options,
                                   shotline_qp *qp);

/**
 * Posts requests in order, with one doorbell.
 *
 * requests: `count` requests.
 * posted: receives the number of requests that were posted, also if not all were; may be NULL.
 *
 * Threads: any, several at once. Errors: QUEUE_FULL (poll the completion queue), INVALID_ARGUMENT, CLOSED, FORKED.
 */
shotline_status shotline_qp_post_send(shotline_qp qp, const shotline_send_wr *requests, size_t count, size_t *posted);

/**
 * Posts receives in order.
 *
 * requests: `count` receives.
 * posted: receives the number of receives that were posted, also if not all were; may be NULL.
 *
 * Threads: any, several at once. Errors: QUEUE_FULL, INVALID_ARGUMENT, CLOSED, FORKED.
 */
shotline_status shotline_qp_post_recv(shotline_qp qp, const shotline_recv_wr *requests, size_t count, size_t *posted);

/**
 * Stores the number of a queue pair, as completions have it, and that of the target's.
 *
 * number, peer: receive the numbers; may be NULL.
 *
 * Threads: any. Errors: CLOSED, FORKED.
 */
shotline_status shotline_qp_get_numbers(shotline_qp qp, uint32_t *number, uint32_t *peer);

/**
 * Destroys a queue pair at both ends. Outstanding requests do not complete.
 *
 * Threads: any. Errors: CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_qp_close(shotline_qp qp);

/**
 * Serves memory to initiators, on a thread of the library, until the target is closed.
 *
 * regions: `count` regions; their memory stays as long as the target.
 * options: NULL for the defaults.
 * target: receives the handle; on failure one with the id 0.
 *
 * Lifetime: close it with shotline_target_close(). Threads: any. Initiators change the memory at any time: the program
 * reads it as memory that another thread writes. Errors: INVALID_ARGUMENT, IO (an address is in use), UNSUPPORTED.
 */
shotline_status shotline_target_serve(const shotline_served_region *regions,
                                      size_t count,
                                      const shotline_target_options *options,
                                      shotline_target *target);

/**
 * Copies a text about a target.
 *
 * name: "address": HOST:PORT for initiators; or "token".
 * text, capacity, length: as for shotline_run_get_text().
 *
 * Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_target_get_text(shotline_target target,
                                         const char *name,
                                         char *text,
                                         size_t capacity,
                                         size_t *length);

/**
 * Stores the state of a target.
 *
 * Threads: any. Errors: IO (its endpoint has failed), CLOSED, FORKED, INVALID_ARGUMENT.
 */
shotline_status shotline_target_get_state(shotline_target target, shotline_target_state *state);

/**
 * Disconnects all initiators, and closes the target.
 *
 * Threads: any. Errors: IO (its endpoint has failed before; the handle is closed), CLOSED if it is closed already, FORKED.
 */
shotline_status shotline_target_close(shotline_target target);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHOTLINE_H */
