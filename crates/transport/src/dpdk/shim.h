/* C interface over DPDK for Rust, mirrored in sys.rs. It hides DPDK's inline functions and its structures. Every
 * function may be called from any thread unless stated otherwise. */
#ifndef SHOTLINE_DPDK_SHIM_H
#define SHOTLINE_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum frames of one burst. */
#define SHOT_BURST 32

/* A started port. Only one thread at a time may use it. */
struct shot_port;

/* Properties of a device, as reported by its driver. */
struct shot_info {
	char driver[64];
	uint8_t mac[6];
	uint16_t max_queues;
	uint16_t max_mtu;
	bool checksums;      /* verifies IP and UDP checksums of received frames */
	bool rss;            /* supports RSS by the hash of IP addresses and UDP ports */
	bool split;          /* writes headers and payloads into buffers of two pools */
};

struct shot_config {
	uint16_t port;
	uint16_t queues;
	uint16_t mtu;             /* 0: the device's default */
	uint16_t rx_buffer_bytes; /* bytes of a receive buffer */
	uint16_t tx_buffer_bytes; /* bytes of a send buffer */
	uint16_t descriptors;     /* per queue */
	uint32_t buffers;         /* number of receive buffers */
	uint32_t split_buffers;   /* number of buffers for payloads, with header split */
	uint16_t split_header;    /* bytes of a frame before its payload; 0: no header split. See split.c */
	uint16_t split_payload;   /* bytes of a buffer for payloads */
	bool is_pci;
	bool checksums, rss;  /* enable these features of the device */
	bool gated;               /* its driver unmaps memory in the interrupt thread: see the gate in shim.c */
	bool reconnects;          /* a memif client: its driver connects only when the port is started */
	bool gathers;             /* its driver accepts chained buffers in any memory, and has copied
	                           * them when its burst returns */
	bool direct;              /* its driver takes the buffer size from the pool: see direct.c */
	bool zero_copy;           /* its driver keeps sent buffers until the peer has read them: see zero_copy.c */
};

/* A received frame: complete and contiguous, valid until the next burst. */
struct shot_frame {
	const uint8_t *data;
	uint32_t len;
	uint32_t faults;
};
#define SHOT_BAD_CHECKSUM 1u /* reported by the device */
#define SHOT_TOO_LONG 2u     /* longer than the maximum packet: data is truncated */

/* Maximum buffers of a frame behind its header. */
#define SHOT_PARTS 16

/* Bytes of a frame in a buffer for payloads. */
struct shot_part {
	const uint8_t *data;
	uint32_t len;
	uint32_t buffer; /* number of the buffer */
};

/* A received frame with header split, valid until the next burst. */
struct shot_split_frame {
	const uint8_t *head;
	uint32_t head_len;
	uint32_t parts;
	bool is_plain; /* the parts are all of it */
	struct shot_part part[SHOT_PARTS];
};

/* A piece of a frame to send. */
struct shot_piece {
	const uint8_t *data;
	uint32_t len;
	bool stable; /* may be read in place until shot_in_flight no longer counts its frame; otherwise it is copied */
};

struct shot_stats {
	uint64_t missed, receive_errors, no_buffers, send_errors;
	uint64_t link_ups, link_downs;
};

/* Initialises EAL, once per process. Returns 0 or a negative errno. */
int shot_eal_init(int argc, char **argv);
/* Copies the newest bytes of DPDK's log, at most `size`, and clears it. Returns the number of bytes copied. */
size_t shot_log_take(char *to, size_t size);

/* Attaches the device with these arguments and finds its port by name. Returns 0 or a negative errno. */
int shot_attach(const char *arguments, const char *name, uint16_t *port);
void shot_detach(uint16_t port);
int shot_info(uint16_t port, struct shot_info *info);
/* Configures and starts a port. On failure returns NULL, sets the negative errno and the step that failed, and detaches
 * the device. */
struct shot_port *shot_open(const struct shot_config *config, const char **step, int *error);
/* Stops a port, detaches its device and frees its memory. */
void shot_close(struct shot_port *port);

/* Receives at most `max` and SHOT_BURST frames from one queue. Frees those of the previous burst. */
uint16_t shot_receive(struct shot_port *port, uint16_t queue, struct shot_frame *frames, uint16_t max);
/* Result of shot_receive_at. */
enum shot_receive_status {
	SHOT_NO_FRAME,     /* no frame was available, and nothing was written */
	SHOT_IN_PLACE,     /* the whole frame is at the destination */
	SHOT_ELSEWHERE,    /* the frame is elsewhere; the destination may have been written */
	SHOT_OVERWRITTEN,  /* no frame is available yet, but the destination was written */
};
/* Receives the next frame of the only queue to `at`, which has space for `capacity` bytes. Writes nothing outside of
 * them. Frees the frames of the previous burst. */
enum shot_receive_status shot_receive_at(struct shot_port *port, uint8_t *at, uint32_t capacity,
					 struct shot_frame *frame);
/* Copies a frame that is in place, of at most 65535 bytes, out of its destination. */
void shot_copy_out(struct shot_port *port, struct shot_frame *frame);
/* Starts a port with header split, which shot_open does not start. Returns 0 or a negative errno. */
int shot_start(struct shot_port *port);
/* Lets the device of a port with header split access memory: whole pages, valid until the port is closed. Returns 0 or a
 * negative errno. */
int shot_map(struct shot_port *port, void *address, size_t bytes);
/* Plans to hand out a buffer for payloads after those that were planned before, with this memory or, if NULL, with its
 * own. The buffer must be free, the memory mapped and as long as a buffer. */
void shot_plan(struct shot_port *port, uint32_t buffer, void *address);
/* Takes the numbers of buffers that have become free. Returns how many. */
uint32_t shot_returned(struct shot_port *port, uint32_t *buffers, uint32_t max);
/* As shot_receive, from the only queue of a port with header split. */
uint16_t shot_receive_split(struct shot_port *port, struct shot_split_frame *frames, uint16_t max);
/* Copies a frame with header split to contiguous memory. */
void shot_join(struct shot_port *port, uint16_t index, struct shot_frame *frame);
/* Sends at most SHOT_BURST frames; frame i consists of the pieces from ends[i - 1] to ends[i]. Returns how many the
 * driver accepted: fewer if its ring is full. */
uint16_t shot_send(struct shot_port *port, const struct shot_piece *pieces, const uint32_t *ends, uint16_t frames);

/* Returns the number of accepted frames that may still be read in place. */
uint32_t shot_in_flight(struct shot_port *port);
/* Allocates zeroed memory from which frames are sent without a copy; NULL if there is not enough, or no port is
 * zero-copy. */
void *shot_memory_alloc(size_t bytes);
void shot_memory_free(void *memory);

bool shot_link_is_up(struct shot_port *port);
int shot_stats(struct shot_port *port, struct shot_stats *stats);
/* Reads at most `max` of the driver's own counters: name (of 64 bytes) and value of each. Returns how many there
 * are. */
int shot_xstats(struct shot_port *port, char (*names)[64], uint64_t *values, int max);

#endif
