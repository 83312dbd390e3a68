/* Frames received into places that are chosen before they are seen. memif's driver copies a frame into a buffer of the
 * queue's pool, whatever memory that buffer is of. So there is a pool that gives out, when it is told to, a buffer around
 * a place. No more than the place holds is written there: the driver believes buffers to be as long as the pool says,
 * and goes on in the next one. */

#include "port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mempool.h>

/* What such a pool has free. One thread at a time uses it: only bursts take buffers. */
struct stack {
	void *next; /* goes before the others, if it is alone */
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
	.name = PLACE_POOL,
	.alloc = stack_alloc,
	.free = stack_free,
	.enqueue = stack_enqueue,
	.dequeue = stack_dequeue,
	.get_count = stack_count,
};

RTE_MEMPOOL_REGISTER_OPS(stack_ops)

int place_open(struct shot_port *port)
{
	port->around = rte_pktmbuf_alloc(port->receive_pool);
	return port->around != NULL ? 0 : -ENOMEM;
}

enum shot_came shot_receive_at(struct shot_port *port, uint8_t *at, uint32_t room, struct shot_frame *frame)
{
	shot_join();
	struct stack *stack = port->receive_pool->pool_data;
	struct rte_pktmbuf_pool_private *pool = rte_mempool_get_priv(port->receive_pool);
	struct rte_mbuf *around = port->around;
	uint16_t usual = pool->mbuf_data_room_size;
	if (room + RTE_PKTMBUF_HEADROOM > usual || !enter_port(port))
		return SHOT_NOTHING;
	free_held(port);
	void *own = around->buf_addr;
	around->buf_addr = at - RTE_PKTMBUF_HEADROOM;
	around->buf_len = pool->mbuf_data_room_size = (uint16_t)(room + RTE_PKTMBUF_HEADROOM);
	stack->next = around;
	uint16_t count = rte_eth_rx_burst(port->id, 0, port->held, 1);
	bool written = stack->next == NULL;
	stack->next = NULL;
	pool->mbuf_data_room_size = usual;
	enum shot_came came = written ? SHOT_SPOILT : SHOT_NOTHING;
	if (count > 0 && port->held[0] != around) {
		port->count = 1;
		describe(port, 0, frame);
		came = SHOT_ELSEWHERE;
	} else if (count > 0) {
		port->held[0] = around;
		describe(port, 0, frame);
		came = frame->data == at ? SHOT_THERE : SHOT_ELSEWHERE;
	}
	if (written) {
		rte_pktmbuf_free(around->next); /* what did not fit; it is in `joined`, too */
		around->next = NULL;
		around->nb_segs = 1;
	}
	around->buf_addr = own;
	around->buf_len = usual;
	leave_port(port);
	return came;
}

void shot_put_aside(struct shot_port *port, struct shot_frame *frame)
{
	frame->data = memcpy(port->joined, frame->data, frame->len);
}
