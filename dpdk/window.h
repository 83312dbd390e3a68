/* Shared memory between the driver and a simulated card, and the messages of the socket on which they meet.
 *
 * The window stands for BAR 0 of the card, and adds what a process needs instead of a bus:
 *
 *   offset    contents
 *   0         the first 64 KiB have the addresses of the card's registers, but only `card_channel.software_pointer` of
 *             each channel is there: the driver stores it (a doorbell), and the card looks at all of them
 *   0x10000   the head: what this is, and counters that both sides poll
 *   0x11000   commands: accesses of all other registers, carried out in order
 *   0x20000   rings of frames that software sends, one for each queue
 *
 * All is little-endian. The writer of a counter stores it after what it counts (release), the reader loads it first
 * (acquire). Counters are free-running and their rings have a power of two of entries. Neither side may rely on the
 * other's sanity: an index or an address from the other side is checked before it is used.
 *
 * The socket is a Unix socket of type SOCK_SEQPACKET. The card sends one `shotline_hello` with the descriptor of the
 * window, or closes the connection if it has a driver already. The driver sends requests, each of which is answered by
 * one `shotline_answer`. When the connection ends, the card is reset, and the next driver gets a new window.
 *
 * Over PCI the window is BAR 2 of an ivshmem device, there is no socket, and addresses are those of the guest. */

#ifndef SHOTLINE_WINDOW_H
#define SHOTLINE_WINDOW_H

#include <stdint.h>

/* Layout of the window. */
#define SHOTLINE_WINDOW_BYTES 0x400000
#define SHOTLINE_WINDOW_HEAD 0x10000
#define SHOTLINE_WINDOW_COMMANDS 0x11000
#define SHOTLINE_WINDOW_SEND 0x20000

#define SHOTLINE_WINDOW_MAGIC 0x574C4853 /* "SHLW" */
#define SHOTLINE_WINDOW_VERSION 1

/* Entries of the rings. */
#define SHOTLINE_COMMANDS 256
#define SHOTLINE_SEND_ENTRIES 256
#define SHOTLINE_SEND_QUEUES 256
/* Bytes from one send ring to the next. */
#define SHOTLINE_SEND_STRIDE 0x2000
/* Longest frame that software sends, in bytes without FCS. */
#define SHOTLINE_SEND_MAX 16367

struct shotline_window_head {
	uint32_t magic; /* written last by the card: the window is ready */
	uint32_t version;
	/* Increases while the card is there, at least once in 100 ms. */
	uint32_t heartbeat;
	uint32_t unused[13];
	/* Commands given by the driver, on a cache line of its own. */
	uint32_t commands_given;
	uint32_t unused_given[15];
	/* Commands carried out by the card. */
	uint32_t commands_done;
	uint32_t unused_done[15];
};

/* An access of a register. */
struct shotline_command {
	uint16_t address;
	uint16_t kind;   /* SHOTLINE_READ or SHOTLINE_WRITE */
	uint32_t value;  /* what is written */
	uint32_t answer; /* what was read */
	uint32_t status; /* 0, or SHOTLINE_REFUSED */
};

enum { SHOTLINE_READ, SHOTLINE_WRITE };
enum { SHOTLINE_REFUSED = 1 };

/* A piece of a frame without FCS that software sends. */
struct shotline_send_entry {
	uint64_t address;
	uint32_t length;
	uint32_t flags; /* SHOTLINE_SEND_END with the last piece of a frame */
};

enum { SHOTLINE_SEND_END = 1 };

/* Ring of a queue: pieces given by the driver, and pieces that the card has read, so that their memory is free. */
struct shotline_send_ring {
	uint32_t given;
	uint32_t unused_given[15];
	uint32_t done;
	uint32_t unused_done[15];
	struct shotline_send_entry entries[SHOTLINE_SEND_ENTRIES];
};

/* The socket's messages. */

/* The card's first message, with the descriptor of the window. */
struct shotline_hello {
	uint32_t magic; /* SHOTLINE_WINDOW_MAGIC */
	uint32_t version;
	uint64_t window_bytes;
};

enum shotline_request_kind {
	/* Memory that the card may access: `length` bytes at `offset` of the descriptor that comes with the message have
	 * the address `address`. */
	SHOTLINE_MAP,
	/* The card may not access `length` bytes from `address` any more, which are those of earlier maps. */
	SHOTLINE_UNMAP,
	/* Event descriptors (eventfd) come with the message, one for each channel from `address` on, at most
	 * SHOTLINE_MAX_EVENTS: the card adds 1 to that of the channel for each interrupt. */
	SHOTLINE_EVENTS,
};

#define SHOTLINE_MAX_EVENTS 64

struct shotline_request {
	uint32_t kind;
	uint32_t unused;
	uint64_t address;
	uint64_t length;
	uint64_t offset;
};

struct shotline_answer {
	int32_t error; /* 0, or an errno */
};

#endif
