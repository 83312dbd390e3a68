/* Receiving a frame directly into its predicted destination. memif's driver copies a frame into a buffer of the queue's
 * pool, in any memory. So this pool can be made to hand out, on the next request, a buffer that covers the destination.
 * The destination cannot overflow: the driver takes the buffer size from the pool and continues in the next buffer. */

#include "port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mempool.h>

/* Free buffers of the queue's pool. Not thread-safe: only bursts take buffers, one at a time. */
struct stack {
	void *next; /* handed out first, to a request for a single buffer */
	unsigned count;
	void *free[];
};

static int stack_alloc(struct rte_mempool *pool)
{
	pool->pool_data = calloc(1, sizeof(struct stack) + pool->size * sizeof(void *));
	return pool->pool_data != NULL ? 0 : -ENOMEM;
}

static void stack_free(struct rte_mempool *pool)
{
	free(pool->pool_data);
}

static int stack_enqueue(struct rte_mempool *pool, void *const *buffers, unsigned count)
{
	struct stack *stack = pool->pool_data;
	if (count > pool->size - stack->count)
		return -ENOBUFS;
	memcpy(stack->free + stack->count, buffers, count * sizeof(*buffers));
	stack->count += count;
	return 0;
}

static int stack_dequeue(struct rte_mempool *pool, void **buffers, unsigned count)
{
	struct stack *stack = pool->pool_data;
	if (count == 1 && stack->next != NULL) {
		*buffers = stack->next;
		stack->next = NULL;
		return 0;
	}
	if (count > stack->count)
		return -ENOBUFS;
	for (unsigned index = 0; index < count; index++)
		buffers[index] = stack->free[--stack->count];
	return 0;
}

static unsigned stack_count(const struct rte_mempool *pool)
{
	return ((const struct stack *)pool->pool_data)->count;
}

static const struct rte_mempool_ops stack_ops = {
	.name = DIRECT_POOL,
	.alloc = stack_alloc,
	.free = stack_free,
	.enqueue = stack_enqueue,
	.dequeue = stack_dequeue,
	.get_count = stack_count,
};

RTE_MEMPOOL_REGISTER_OPS(stack_ops)

int direct_open(struct shot_port *port)
{
	port->direct_mbuf = rte_pktmbuf_alloc(port->receive_pool);
	return port->direct_mbuf != NULL ? 0 : -ENOMEM;
}

enum shot_receive_status shot_receive_at(struct shot_port *port, uint8_t *at, uint32_t capacity,
					 struct shot_frame *frame)
{
	shot_register_thread();
	struct stack *stack = port->receive_pool->pool_data;
	struct rte_pktmbuf_pool_private *pool = rte_mempool_get_priv(port->receive_pool);
	struct rte_mbuf *mbuf = port->direct_mbuf;
	uint16_t usual = pool->mbuf_data_room_size;
	if (capacity + RTE_PKTMBUF_HEADROOM > usual || !enter_port(port))
		return SHOT_NO_FRAME;
	free_held(port);
	void *own = mbuf->buf_addr;
	mbuf->buf_addr = at - RTE_PKTMBUF_HEADROOM;
	mbuf->buf_len = pool->mbuf_data_room_size = (uint16_t)(capacity + RTE_PKTMBUF_HEADROOM);
	stack->next = mbuf;
	uint16_t count = rte_eth_rx_burst(port->id, 0, port->held, 1);
	bool written = stack->next == NULL;
	stack->next = NULL;
	pool->mbuf_data_room_size = usual;
	enum shot_receive_status status = written ? SHOT_OVERWRITTEN : SHOT_NO_FRAME;
	if (count > 0 && port->held[0] != mbuf) {
		port->count = 1;
		describe(port, 0, frame);
		status = SHOT_ELSEWHERE;
	} else if (count > 0) {
		port->held[0] = mbuf;
		describe(port, 0, frame);
		status = frame->data == at ? SHOT_IN_PLACE : SHOT_ELSEWHERE;
	}
	if (written) {
		rte_pktmbuf_free(mbuf->next); /* the part that did not fit; it is also in `linear` */
		mbuf->next = NULL;
		mbuf->nb_segs = 1;
	}
	mbuf->buf_addr = own;
	mbuf->buf_len = usual;
	leave_port(port);
	return status;
}

void shot_copy_out(struct shot_port *port, struct shot_frame *frame)
{
	frame->data = memcpy(port->linear, frame->data, frame->len);
}
