/* What Rust calls of DPDK: sys.rs declares the same. DPDK's burst functions are inline, and its structures are its
 * own; neither shows here. Every function may be called from any thread unless it says otherwise. */
#ifndef SHOTLINE_DPDK_SHIM_H
#define SHOTLINE_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most frames of one burst. */
#define SHOT_BURST 32

/* A port that is started. One thread at a time may use it. */
struct shot_port;

/* What a driver says of its device. */
struct shot_info {
	char driver[64];
	uint8_t mac[6];
	uint16_t max_queues;
	uint16_t max_mtu;
	bool checksums;      /* checks IP and UDP checksums of what it receives */
	bool spreads;        /* RSS over IP and UDP */
};

struct shot_config {
	uint16_t port;
	uint16_t queues;
	uint16_t mtu;          /* 0: as the device has it */
	uint16_t receive_room; /* bytes of a receive buffer */
	uint16_t send_room;    /* bytes of a buffer for what is sent */
	uint16_t descriptors;  /* of each queue */
	uint32_t buffers;      /* receive buffers */
	bool checksums, spreads;
	bool guarded;          /* its driver unmaps memory in the interrupt thread: see the door in shim.c */
	bool dials;            /* a memif client: its driver looks for the other side only when the port is started */
	bool gathers;          /* its driver takes chains, and has copied them when it has taken them, whatever memory
	                        * they lie in */
	bool places;           /* its driver copies into buffers as long as its pool says: see place.c */
	bool lends;            /* its driver keeps what it has taken until the other side has read it: see lend.c */
};

/* A frame that came: whole and in one piece, until the next burst. */
struct shot_frame {
	const uint8_t *data;
	uint32_t len;
	uint32_t faults;
};
#define SHOT_BAD_CHECKSUM 1u /* the device says so */
#define SHOT_TOO_LONG 2u     /* longer than a packet can be: data holds less */

/* A piece of a frame to be sent. */
struct shot_piece {
	const uint8_t *data;
	uint32_t len;
	bool stays; /* it may be read from where it lies, until shot_lent says that it was; otherwise it is copied */
};

struct shot_stats {
	uint64_t missed, receive_errors, no_buffers, send_errors;
	uint64_t link_ups, link_downs;
};

/* EAL, once per process. 0, or a negative errno. */
int shot_eal_init(int argc, char **argv);
/* Takes what DPDK has logged, at most size bytes of it. Returns how many. */
size_t shot_log_take(char *to, size_t size);

/* Attaches the device of these arguments and finds its port by name. 0, or a negative errno. */
int shot_attach(const char *arguments, const char *name, uint16_t *port);
void shot_detach(uint16_t port);
int shot_info(uint16_t port, struct shot_info *info);
/* Sets a port up and starts it; none on failure, with errno and the step that failed. The port stays attached. */
struct shot_port *shot_open(const struct shot_config *config, const char **step, int *error);
/* Stops a port, detaches its device and frees all of it. */
void shot_close(struct shot_port *port);

/* Frames that wait in one queue, at most so many and SHOT_BURST. Frees those of the burst before. */
uint16_t shot_receive(struct shot_port *port, uint16_t queue, struct shot_frame *frames, uint16_t most);
/* What shot_receive_at did. */
enum shot_came {
	SHOT_NOTHING,   /* no frame waits, and nothing was written */
	SHOT_THERE,     /* a frame, all of it at the place */
	SHOT_ELSEWHERE, /* a frame elsewhere; the place may have been written */
	SHOT_SPOILT,    /* no frame yet, but the place was written */
};
/* The frame that waits in the only queue, its first byte at `at`, where it may be `room` bytes long. Nothing but those
 * bytes is written. Frees the frames of the burst before. */
enum shot_came shot_receive_at(struct shot_port *port, uint8_t *at, uint32_t room, struct shot_frame *frame);
/* Copies such a frame, of at most 65535 bytes, out of its place. */
void shot_put_aside(struct shot_port *port, struct shot_frame *frame);
/* Sends frames; frame i is made of the pieces from ends[i - 1] to ends[i]. Returns how many the driver took: fewer
 * when the path is full. At most SHOT_BURST. */
uint16_t shot_send(struct shot_port *port, const struct shot_piece *pieces, const uint32_t *ends, uint16_t frames);

/* Frames that were taken and that may still be read where they lie. */
uint32_t shot_lent(struct shot_port *port);
/* Memory, all zeros, that frames are sent from where they lie; none if there is not enough, or no port lends. */
void *shot_memory_take(size_t bytes);
void shot_memory_free(void *memory);

bool shot_link_is_up(struct shot_port *port);
int shot_stats(struct shot_port *port, struct shot_stats *stats);
/* The driver's own counters: name (of 64 bytes) and value of each, at most so many. Returns how many there are. */
int shot_xstats(struct shot_port *port, char (*names)[64], uint64_t *values, int most);

#endif
