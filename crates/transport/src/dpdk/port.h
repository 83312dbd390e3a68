/* Internals of a port, for the C files of the shim. Rust uses shim.h only. */
#ifndef SHOTLINE_DPDK_PORT_H
#define SHOTLINE_DPDK_PORT_H

#include "shim.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* Maximum number of times that a burst yields to the interrupt thread. */
#define YIELDS 256
/* Maximum bytes of a frame: the longest IP packet with its Ethernet header. */
#define MAX_FRAME_BYTES 65568

/* Buffers that the driver has accepted and that the peer reads in place, in the order of sending. Modified within
 * bursts, and by the interrupt thread outside of bursts. */
struct in_flight {
	struct rte_mbuf **mbufs;
	unsigned mask;
	atomic_uint head, tail;
};

struct shot_port {
	uint16_t id, queues;
	bool gated, gathers, reconnects, zero_copy, direct, split, is_pci;
	bool started; /* modified only while no burst is in progress */
	bool halted; /* stopped, and started again by the next gate callback */
	uint64_t reconnect_at; /* time of the next connection attempt, in ms of the monotonic clock */
	uint16_t count; /* number of entries in held */
	struct rte_mbuf *held[SHOT_BURST];
	struct rte_mempool *receive_pool, *send_pool;
	struct rte_mempool *payload_pool; /* with header split; receive_pool is then that of headers */
	uint8_t *linear; /* memory to linearise frames of several buffers */
	struct in_flight in_flight;
	struct rte_mbuf *direct_mbuf; /* the buffer that covers a destination */
	struct shot_port *next;
	atomic_bool up;
	atomic_ullong ups, downs;
	alignas(64) atomic_bool busy; /* a burst is in progress */
};

/* Bursts may start: see the gate in shim.c. */
extern atomic_bool shot_gate_open;

/* Returns whether a burst may start; if so, leave_port must follow it. While the gate is closed it yields to the
 * interrupt thread, which works for microseconds, or longer while a port is opened or closed. */
static inline bool enter_port(struct shot_port *port)
{
	if (!port->gated)
		return true;
	for (int yields = 0; !atomic_load_explicit(&shot_gate_open, memory_order_relaxed); yields++) {
		if (yields == YIELDS)
			return false;
		sched_yield();
	}
	atomic_store(&port->busy, true);
	if (atomic_load(&shot_gate_open) && port->started)
		return true;
	atomic_store_explicit(&port->busy, false, memory_order_release);
	return false;
}

static inline void leave_port(struct shot_port *port)
{
	if (port->gated)
		atomic_store_explicit(&port->busy, false, memory_order_release);
}

/* Registers the calling thread with DPDK. */
void shot_register_thread(void);

/* --- burst.c ----------------------------------------------------------------------------------------- */

/* Frees the frames of the last burst. Call it within a burst. */
void free_held(struct shot_port *port);
/* Describes a held frame, and linearises it if it has several buffers. */
void describe(struct shot_port *port, uint16_t index, struct shot_frame *frame);

/* --- direct.c ----------------------------------------------------------------------------------------- */

/* Name of the pool type that can be made to hand out a given buffer next. */
#define DIRECT_POOL "shot_direct"
/* Allocates the buffer that covers destinations. Returns 0 or a negative errno. */
int direct_open(struct shot_port *port);

/* --- split.c: header split --------------------------------------------------------------------------- */

/* Returns whether a driver can write headers and payloads into buffers of two pools. */
bool split_is_offered(const struct rte_eth_dev_info *info);
/* Creates the pool of buffers for payloads. Returns 0 or a negative errno. */
int split_open(struct shot_port *port, const struct shot_config *config, const char *name, int socket);
/* Sets up a receive queue with both pools. Returns 0 or a negative errno. */
int split_setup_queue(struct shot_port *port, const struct shot_config *config, uint16_t queue, uint16_t descriptors,
		      int socket);
/* Takes memory from the stopped device that shot_map gave to it. */
void split_unmap(struct shot_port *port);

/* --- zero_copy.c: memory that the peer reads --------------------------------------------------------- */

/* Allocates the list of buffers in use by the peer, with this capacity. Returns 0 or a negative errno. */
int zero_copy_open(struct shot_port *port, uint32_t buffers);
/* Returns whether the peer can read this memory, which is the list of segments that the driver announces. */
bool zero_copy_reaches(const void *memory, size_t bytes);
/* Before a link is established: returns whether DPDK's descriptor of that memory is valid, and restores it if it was
 * closed. */
bool zero_copy_ready(void);
/* Sets the reference counts of buffers: two before sending, of which the driver drops one; one if the driver did not
 * accept them. */
void zero_copy_set_refcnt(struct rte_mbuf **mbufs, uint16_t count, uint16_t references);
/* Records the buffers that the driver has accepted. */
void zero_copy_record(struct shot_port *port, struct rte_mbuf **mbufs, uint16_t accepted);
/* Frees the buffers that the peer has read; with `all`, every buffer, after the link has gone down and the driver has
 * dropped them. */
void zero_copy_reclaim(struct shot_port *port, bool all);
/* Recovers the receive buffers that were passed to the peer, after the link has gone down. */
void zero_copy_recover(struct shot_port *port);

#endif
