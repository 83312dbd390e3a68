/* Internals of the poll-mode driver net_shotline. docs/packet-card.md describes the card. */

#ifndef SHOTLINE_DRIVER_H
#define SHOTLINE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ethdev_driver.h>
#include <rte_interrupts.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_spinlock.h>

#include "card_registers.h"
#include "window.h"

extern int shotline_log_type;
#define LOG(level, format, ...) rte_log(RTE_LOG_##level, shotline_log_type, "net_shotline: " format "\n", ##__VA_ARGS__)

/* --- the card's formats: docs/packet-card.md, "Drive it" ------------------------------------------ */

#define SHOTLINE_MAX_CHANNELS 256
/* Descriptors that the card takes at a time. */
#define SHOTLINE_GROUP 16
#define SHOTLINE_MIN_RING 64
#define SHOTLINE_MAX_RING 32768
/* Multiples of lengths and addresses of buffers, and the largest lengths in the registers. */
#define SHOTLINE_BLOCK 8
#define SHOTLINE_MAX_BUFFER 16376
#define SHOTLINE_MAX_HEADER 248
/* Longest frame with FCS, with the padding before it. */
#define SHOTLINE_MAX_FRAME 16369

struct shotline_descriptor {
	uint64_t address;
	/* Bits 15:0 index, 23:16 channel, 31:24 generation, others 0. */
	uint64_t place;
};

/* What the card writes before each frame. */
struct shotline_packet {
	uint16_t length; /* of the packet with this header and the padding */
	uint16_t flags;
	uint32_t hash;
	uint64_t time; /* TAI */
};

/* Bytes between this and the frame, if the card puts them there: they make a multiple of 8 of common headers. */
#define SHOTLINE_PADDING 2

/* Fields of a report. */
#define SHOTLINE_REPORT_USED(report) ((uint16_t)(report))
#define SHOTLINE_REPORT_GENERATION(report) ((uint8_t)((report) >> 16))
#define SHOTLINE_REPORT_FINAL (1u << 24)

/* Frames whose addresses, and ports where they have some, are hashed. */
#define SHOTLINE_HASHES                                                                                                \
	(RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV4_UDP |                              \
	 RTE_ETH_RSS_NONFRAG_IPV4_OTHER | RTE_ETH_RSS_FRAG_IPV4 | RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_TCP |    \
	 RTE_ETH_RSS_NONFRAG_IPV6_UDP | RTE_ETH_RSS_NONFRAG_IPV6_OTHER | RTE_ETH_RSS_FRAG_IPV6)

/* --- registers: bus.c ------------------------------------------------------------------------------ */

/* The card's registers, in a BAR or behind the window of a simulated card. */
struct shotline_bus {
	volatile uint8_t *base; /* BAR 0, or the window */
	bool is_window;
	int socket; /* to a simulated card, or -1 */
	/* The card has left: reads return ones, writes do nothing. */
	atomic_bool gone;
	rte_spinlock_t lock; /* of the window's commands */
};

/* Returns the window's head; only if `is_window`. */
static inline struct shotline_window_head *shotline_head(const struct shotline_bus *bus)
{
	return (struct shotline_window_head *)(uintptr_t)(bus->base + SHOTLINE_WINDOW_HEAD);
}

/* Reads a register; all ones if the card is gone. */
uint32_t shotline_read(struct shotline_bus *bus, uint16_t address);

/* Reads `count` registers, faster than one by one. */
void shotline_read_many(struct shotline_bus *bus, const uint16_t *addresses, uint32_t *values, unsigned count);

/* Writes a register. Returns 0, -EINVAL if a simulated card refuses the value, or -ENODEV if it is gone. */
int shotline_write(struct shotline_bus *bus, uint16_t address, uint32_t value);

/* Returns the address of a channel's register. */
static inline uint16_t shotline_channel(uint16_t address, unsigned channel)
{
	return (uint16_t)(address + SHOTLINE_CHANNEL_STRIDE * channel);
}

/* --- queues ---------------------------------------------------------------------------------------- */

/* Counters of a channel, in the order of the registers from `packets_received`. */
enum {
	SHOTLINE_RECEIVED,
	SHOTLINE_RECEIVED_BYTES,
	SHOTLINE_STOPPED,
	SHOTLINE_STOPPED_BYTES,
	SHOTLINE_NO_DESCRIPTOR,
	SHOTLINE_NO_DESCRIPTOR_BYTES,
	SHOTLINE_LATE,
	SHOTLINE_LATE_BYTES,
	SHOTLINE_CHANNEL_COUNTERS,
};

/* Counters of the whole card. */
enum {
	SHOTLINE_DELIVERED,
	SHOTLINE_ERROR,
	SHOTLINE_RUNT,
	SHOTLINE_GIANT,
	SHOTLINE_OVERFLOW,
	SHOTLINE_UNEXPECTED,
	SHOTLINE_CARD_COUNTERS,
};

/* A receive queue: one channel of the card. */
struct shotline_receive_queue {
	/* What a burst uses. All counters of descriptors are modulo 65536, and so are those of the card. */
	volatile uint64_t *report;
	struct shotline_descriptor *ring;
	struct rte_mbuf **mbufs;  /* of the descriptors */
	volatile uint32_t *doorbell;
	struct rte_mempool *pool; /* of odd descriptors with header split, else of all */
	uint64_t rearm;           /* rearm_data of a received mbuf */
	uint64_t flags;           /* ol_flags of a packet's first mbuf */
	uint64_t segment_flags;   /* ol_flags of its others */
	uint64_t place;           /* `place` of descriptors without the index */
	uint32_t mask;            /* descriptors - 1 */
	uint16_t next;            /* descriptor of the next packet */
	uint16_t given;           /* descriptors given to the card */
	uint16_t refill;          /* free descriptors from which on new ones are given */
	uint16_t buffer;          /* bytes of a buffer */
	uint16_t skipped;         /* bytes of a packet before its frame */
	uint16_t address_at;      /* offset of the address that the card uses in an mbuf: virtual or IOVA */
	uint16_t first;           /* offset in an mbuf's buffer at which the card begins to write */
	uint16_t odd_first;       /* the same of odd descriptors, with header split */
	uint8_t header;           /* bytes of an even descriptor's buffer with header split, else 0 */
	uint8_t generation;
	/* Cleared before a queue stops. A burst that is in progress is waited for: shotline_end_bursts. */
	atomic_bool is_running, in_burst;
	int time_at;              /* offset of the time in an mbuf, or -1 */

	/* Not used in a burst. */
	struct rte_mempool *header_pool;
	struct rte_eth_dev *device;
	const struct rte_memzone *memory; /* ring, then report */
	uint16_t number;
	uint16_t descriptors;
	uint16_t data_room;     /* bytes of a frame that fit into a buffer, or into a pair */
	uint16_t offset;        /* bytes before a frame that the application wants free, besides the headroom */
	uint16_t limit;         /* most bytes in a buffer, or 0 */
	uint16_t header_length; /* bytes of a frame in an even descriptor's buffer, with header split */
	bool is_deferred, wants_time, has_failed;
	uint64_t malformed; /* packets whose header contradicts the descriptors: the queue stops */
	uint64_t unread;    /* packets that were in memory, and not received, when the queue stopped */
};

/* A queue of frames that software sends. */
struct shotline_send_queue {
	struct shotline_send_ring *ring;
	struct rte_mbuf *mbufs[SHOTLINE_SEND_ENTRIES]; /* with the entry of its last piece */
	uint32_t given, freed;
	uint16_t address_at, number;
	struct shotline_bus *bus;
	uint64_t packets, bytes, errors;
};

/* --- the port -------------------------------------------------------------------------------------- */

/* Private data of a port. */
struct shotline_port {
	struct shotline_bus bus;
	struct rte_eth_dev *device;
	unsigned channels; /* of the card */
	unsigned table_entries;
	uint16_t address_at;
	/* Event descriptors of a simulated card's channels. */
	int events[SHOTLINE_MAX_CHANNELS];
	struct rte_intr_handle *gone_event; /* of the socket */
	/* Counters at the last reset of statistics, and their last values if the card is gone. */
	uint64_t base[SHOTLINE_MAX_CHANNELS][SHOTLINE_CHANNEL_COUNTERS], card_base[SHOTLINE_CARD_COUNTERS];
	uint64_t last[SHOTLINE_MAX_CHANNELS][SHOTLINE_CHANNEL_COUNTERS], card_last[SHOTLINE_CARD_COUNTERS];
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	uint8_t key[40];
};

static inline struct shotline_port *shotline_port(const struct rte_eth_dev *device)
{
	return device->data->dev_private;
}

/* ethdev.c: sets up an allocated port whose `bus` and `address_at` are set. Returns 0 or a negative errno. */
int shotline_port_init(struct rte_eth_dev *device);
extern const struct eth_dev_ops shotline_operations;
int shotline_close(struct rte_eth_dev *device);

/* queue.c */
int shotline_receive_queue_setup(struct rte_eth_dev *device, uint16_t number, uint16_t descriptors, unsigned socket,
				 const struct rte_eth_rxconf *conf, struct rte_mempool *pool);
/* Sets where the card writes in the buffers, with this padding before frames. Called before the channels start. */
int shotline_receive_queue_layout(struct shotline_receive_queue *queue, uint16_t padding);
void shotline_receive_queue_release(struct rte_eth_dev *device, uint16_t number);
int shotline_receive_queue_start(struct rte_eth_dev *device, uint16_t number);
int shotline_receive_queue_stop(struct rte_eth_dev *device, uint16_t number);
void shotline_receive_queue_info(struct rte_eth_dev *device, uint16_t number, struct rte_eth_rxq_info *info);
/* Returns whether a frame of `bytes` without FCS fits into one buffer of the queue. */
bool shotline_fits(const struct shotline_receive_queue *queue, uint32_t bytes);
/* Stops a channel that may be running, and waits until it is. */
int shotline_channel_stop(struct shotline_bus *bus, unsigned channel);

/* receive.c */
uint16_t shotline_receive(void *queue, struct rte_mbuf **packets, uint16_t count);
uint16_t shotline_receive_split(void *queue, struct rte_mbuf **packets, uint16_t count);
uint32_t shotline_receive_queue_count(void *queue);
int shotline_receive_descriptor_status(void *queue, uint16_t offset);
/* Lets no burst begin, and waits for one that is in progress in another thread. */
void shotline_end_bursts(struct shotline_receive_queue *queue);
/* Returns the packets that are in memory and not received. */
unsigned shotline_unread(const struct shotline_receive_queue *queue);
/* Gives free descriptors to the card, in groups of 16, as far as there are buffers. */
void shotline_refill(struct shotline_receive_queue *queue);

/* send.c */
int shotline_send_queue_setup(struct rte_eth_dev *device, uint16_t number, uint16_t descriptors, unsigned socket,
			      const struct rte_eth_txconf *conf);
void shotline_send_queue_release(struct rte_eth_dev *device, uint16_t number);
/* Waits until the card has read what was given to it, then frees it. */
void shotline_send_queue_drain(struct shotline_send_queue *queue);
uint16_t shotline_send(void *queue, struct rte_mbuf **packets, uint16_t count);

/* stats.c */
int shotline_stats_get(struct rte_eth_dev *device, struct rte_eth_stats *stats);
int shotline_stats_reset(struct rte_eth_dev *device);
int shotline_xstats_get(struct rte_eth_dev *device, struct rte_eth_xstat *stats, unsigned count);
int shotline_xstats_names(struct rte_eth_dev *device, struct rte_eth_xstat_name *names, unsigned count);

/* rss.c: the table of channels, and the key of the hash. */
int shotline_rss_configure(struct rte_eth_dev *device);
int shotline_table_update(struct rte_eth_dev *device, struct rte_eth_rss_reta_entry64 *conf, uint16_t entries);
int shotline_table_query(struct rte_eth_dev *device, struct rte_eth_rss_reta_entry64 *conf, uint16_t entries);
int shotline_hash_update(struct rte_eth_dev *device, struct rte_eth_rss_conf *conf);
int shotline_hash_get(struct rte_eth_dev *device, struct rte_eth_rss_conf *conf);
uint16_t shotline_table_size(const struct shotline_port *port);

/* interrupts.c */
int shotline_interrupts_start(struct rte_eth_dev *device);
void shotline_interrupts_stop(struct rte_eth_dev *device);
int shotline_interrupt_enable(struct rte_eth_dev *device, uint16_t queue);
int shotline_interrupt_disable(struct rte_eth_dev *device, uint16_t queue);

/* socket.c: the connection to a simulated card. All return 0 or a negative errno. */
int shotline_connect(struct shotline_port *port, const char *path);
void shotline_disconnect(struct shotline_port *port);
/* Lets the card access all of DPDK's memory, also that which it gets later. */
int shotline_share_memory(struct shotline_port *port);
int shotline_map(struct shotline_port *port, void *address, size_t length);
int shotline_unmap(struct shotline_port *port, void *address, size_t length);
int shotline_send_events(struct shotline_port *port);

#endif
