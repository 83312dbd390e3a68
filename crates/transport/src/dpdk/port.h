/* A port from the inside, for the files of the layer over DPDK. Rust sees shim.h only. */
#ifndef SHOTLINE_DPDK_PORT_H
#define SHOTLINE_DPDK_PORT_H

#include "shim.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>

#include <rte_mbuf.h>

/* Times that a burst gives way to the interrupt thread. */
#define YIELDS 256
/* The longest packet there is, with its frame. */
#define MOST_BYTES 65568

/* Buffers that a driver has taken and that are read where they lie, in the order of sending. Changed in bursts, and by
 * the interrupt thread where there is none. */
struct lent {
	struct rte_mbuf **mbufs;
	unsigned mask;
	atomic_uint given, back;
};

struct shot_port {
	uint16_t id, queues;
	bool guarded, gathers, dials, lends, places;
	bool started; /* changes only where no burst is under way */
	bool halted; /* stopped, to be started in the next call of the door */
	uint64_t dial_at; /* when to look for the other side again, in ms of the monotonic clock */
	uint16_t count; /* of held */
	struct rte_mbuf *held[SHOT_BURST];
	struct rte_mempool *receive_pool, *send_pool;
	uint8_t *joined; /* where frames of several buffers are put together */
	struct lent lent;
	struct rte_mbuf *around; /* the buffer around a place */
	struct shot_port *next;
	atomic_bool up;
	atomic_ullong ups, downs;
	alignas(64) atomic_bool busy; /* a burst is under way */
};

/* Bursts may be taken now: see the door in shim.c. */
extern atomic_bool shot_door_open;

/* Whether a burst may be taken now. If so, leave_port follows it. While the interrupt thread is at work, it has this
 * processor if it needs it; that takes microseconds, unless a port is just being opened or closed. */
static inline bool enter_port(struct shot_port *port)
{
	if (!port->guarded)
		return true;
	for (int yields = 0; !atomic_load_explicit(&shot_door_open, memory_order_relaxed); yields++) {
		if (yields == YIELDS)
			return false;
		sched_yield();
	}
	atomic_store(&port->busy, true);
	if (atomic_load(&shot_door_open) && port->started)
		return true;
	atomic_store_explicit(&port->busy, false, memory_order_release);
	return false;
}

static inline void leave_port(struct shot_port *port)
{
	if (port->guarded)
		atomic_store_explicit(&port->busy, false, memory_order_release);
}

/* Makes the calling thread known to DPDK. */
void shot_join(void);

/* --- burst.c ----------------------------------------------------------------------------------------- */

/* Frees the frames of the last burst. In a burst. */
void free_held(struct shot_port *port);
/* What is said of a frame that is held: its buffers put together, if there are several. */
void describe(struct shot_port *port, uint16_t index, struct shot_frame *frame);

/* --- place.c ----------------------------------------------------------------------------------------- */

/* Pools of this kind can be told which buffer to give out next. */
#define PLACE_POOL "shot_place"
/* Takes the buffer that goes around places. 0, or a negative errno. */
int place_open(struct shot_port *port);

/* --- lend.c: memory that the other side reads -------------------------------------------------------- */

/* Room for the buffers that are lent: at most so many. 0, or a negative errno. */
int lend_open(struct shot_port *port, uint32_t buffers);
/* The memory that may be lent: what a driver tells the other side of when a link is made. */
bool lend_reaches(const void *memory, size_t bytes);
/* Before a link is made: whether the descriptor of that memory is what DPDK believes it to be. */
bool lend_ready(void);
/* References to buffers that are about to be sent: two, of which the driver gives up one; one, if it did not want them. */
void lend_mark(struct rte_mbuf **mbufs, uint16_t count, uint16_t references);
/* The driver has taken these. */
void lend_note(struct shot_port *port, struct rte_mbuf **mbufs, uint16_t took);
/* Frees what the other side has read; after the link has gone all of it, which the driver forgets then. */
void lend_take_back(struct shot_port *port, bool all);
/* Frees the buffers that were lent to be written, after the link has gone. */
void lend_recover(struct shot_port *port);

#endif
