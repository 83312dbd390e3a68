/* Header split: the device writes headers into buffers of one pool, and payloads into memory that Rust chooses.
 *
 * The driver takes the buffers for payloads from a pool whose order is planned (split/plan.rs): each is handed out with
 * the memory of a posted receive, or with its own. A driver that fills its ring in the order in which it takes buffers
 * then writes each payload where it stays. */

#define ALLOW_EXPERIMENTAL_API /* rte_dev_dma_map */
#include "port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>

/* A buffer to hand out. */
struct planned {
	struct rte_mbuf *mbuf;
	void *address; /* of a posted receive; NULL: the buffer's own memory */
};

/* Memory that the device may access. */
struct mapped {
	void *address;
	size_t bytes;
};

/* Buffers of a pool. Not thread-safe: only bursts, start and stop use it, one at a time. */
struct split {
	struct planned *planned; /* a ring, in the order of handing out */
	struct rte_mbuf **returned, **mbufs;
	struct mapped *mapped;
	unsigned size, mask, first, planned_count, returned_count, mapped_count;
};

static int split_alloc(struct rte_mempool *pool)
{
	struct split *split = calloc(1, sizeof(*split));
	if (split == NULL)
		return -ENOMEM;
	split->size = pool->size;
	split->mask = rte_align32pow2(pool->size) - 1;
	split->planned = calloc(split->mask + 1, sizeof(*split->planned));
	split->returned = calloc(pool->size, sizeof(*split->returned));
	split->mbufs = calloc(pool->size, sizeof(*split->mbufs));
	pool->pool_data = split;
	return split->planned != NULL && split->returned != NULL && split->mbufs != NULL ? 0 : -ENOMEM;
}

static void split_free(struct rte_mempool *pool)
{
	struct split *split = pool->pool_data;
	if (split == NULL)
		return;
	free(split->planned);
	free(split->returned);
	free(split->mbufs);
	free(split->mapped);
	free(split);
}

static int split_enqueue(struct rte_mempool *pool, void *const *buffers, unsigned count)
{
	struct split *split = pool->pool_data;
	if (count > split->size - split->returned_count)
		return -ENOBUFS;
	memcpy(split->returned + split->returned_count, buffers, count * sizeof(*buffers));
	split->returned_count += count;
	return 0;
}

static int split_dequeue(struct rte_mempool *pool, void **buffers, unsigned count)
{
	struct split *split = pool->pool_data;
	if (count > split->planned_count)
		return -ENOBUFS;
	for (unsigned index = 0; index < count; index++) {
		struct planned *next = &split->planned[split->first++ & split->mask];
		struct rte_mbuf *mbuf = next->mbuf;
		size_t before = sizeof(*mbuf) + rte_pktmbuf_priv_size(pool);
		mbuf->buf_addr = next->address != NULL ? next->address : (char *)mbuf + before;
		/* Memory of receives is mapped only if the device uses virtual addresses: see shot_map. */
		mbuf->buf_iova = next->address != NULL ? (uintptr_t)next->address : rte_mempool_virt2iova(mbuf) + before;
		buffers[index] = mbuf;
	}
	split->planned_count -= count;
	return 0;
}

static unsigned split_count(const struct rte_mempool *pool)
{
	const struct split *split = pool->pool_data;
	return split->planned_count + split->returned_count;
}

static const struct rte_mempool_ops split_ops = {
	.name = "shot_split",
	.alloc = split_alloc,
	.free = split_free,
	.enqueue = split_enqueue,
	.dequeue = split_dequeue,
	.get_count = split_count,
};

RTE_MEMPOOL_REGISTER_OPS(split_ops)

int split_open(struct shot_port *port, const struct shot_config *config, const char *name, int socket)
{
	/* Each buffer has its number. */
	port->payload_pool = rte_pktmbuf_pool_create_by_ops(name, config->split_buffers, 0, RTE_MBUF_PRIV_ALIGN,
							    config->split_payload, socket, split_ops.name);
	if (port->payload_pool == NULL)
		return rte_errno != 0 ? -rte_errno : -ENOMEM;
	struct split *split = port->payload_pool->pool_data;
	memcpy(split->mbufs, split->returned, split->size * sizeof(*split->mbufs));
	for (uint32_t number = 0; number < split->size; number++)
		*(uint32_t *)rte_mbuf_to_priv(split->mbufs[number]) = number;
	split->returned_count = 0;
	return 0;
}

int split_setup_queue(struct shot_port *port, const struct shot_config *config, uint16_t queue, uint16_t descriptors,
		      int socket)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port->id, &info);
	if (result != 0)
		return result;
	union rte_eth_rxseg segments[2] = {
		{ .split = { .mp = port->receive_pool, .length = config->split_header } },
		{ .split = { .mp = port->payload_pool } },
	};
	struct rte_eth_rxconf conf = info.default_rxconf;
	conf.offloads |= RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
	conf.rx_seg = segments;
	conf.rx_nseg = 2;
	return rte_eth_rx_queue_setup(port->id, queue, descriptors, socket, &conf, NULL);
}

bool split_is_offered(const struct rte_eth_dev_info *info)
{
	return (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT) && info->rx_seg_capa.multi_pools &&
	       info->rx_seg_capa.max_nseg >= 2;
}

int shot_start(struct shot_port *port)
{
	int result = rte_eth_dev_start(port->id);
	port->started = result == 0;
	return result;
}

/* --- memory ---------------------------------------------------------------------------------------- */

int shot_map(struct shot_port *port, void *address, size_t bytes)
{
	struct split *split = port->payload_pool->pool_data;
	struct rte_eth_dev_info info;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int result = rte_eth_dev_info_get(port->id, &info);
	if (result != 0)
		return result;
	if (rte_eal_iova_mode() != RTE_IOVA_VA && port->is_pci)
		return -ENOTSUP;
	struct mapped *more = realloc(split->mapped, (split->mapped_count + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	split->mapped = more;
	if (rte_extmem_register(address, bytes, NULL, (unsigned)(bytes / page), page) != 0)
		return -rte_errno;
	if (rte_dev_dma_map(info.device, address, (uintptr_t)address, bytes) != 0) {
		result = rte_errno != 0 ? -rte_errno : -EIO;
		rte_extmem_unregister(address, bytes);
		return result;
	}
	more[split->mapped_count++] = (struct mapped){ .address = address, .bytes = bytes };
	return 0;
}

void split_unmap(struct shot_port *port)
{
	struct split *split = port->payload_pool->pool_data;
	struct rte_eth_dev_info info;
	bool is_there = rte_eth_dev_info_get(port->id, &info) == 0;
	while (split->mapped_count > 0) {
		struct mapped *last = &split->mapped[--split->mapped_count];
		if (is_there)
			rte_dev_dma_unmap(info.device, last->address, (uintptr_t)last->address, last->bytes);
		rte_extmem_unregister(last->address, last->bytes);
	}
}

/* --- buffers and frames ---------------------------------------------------------------------------- */

void shot_plan(struct shot_port *port, uint32_t buffer, void *address)
{
	struct split *split = port->payload_pool->pool_data;
	unsigned at = (split->first + split->planned_count++) & split->mask;
	split->planned[at] = (struct planned){ .mbuf = split->mbufs[buffer], .address = address };
}

uint32_t shot_returned(struct shot_port *port, uint32_t *buffers, uint32_t max)
{
	struct split *split = port->payload_pool->pool_data;
	uint32_t count = RTE_MIN(max, split->returned_count);
	for (uint32_t index = 0; index < count; index++)
		buffers[index] = *(const uint32_t *)rte_mbuf_to_priv(split->returned[--split->returned_count]);
	return count;
}

/* Describes the parts of a held frame. */
static void describe_parts(struct shot_port *port, uint16_t index, struct shot_split_frame *frame)
{
	const struct rte_mbuf *mbuf = port->held[index];
	frame->head = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	frame->head_len = mbuf->data_len;
	frame->parts = 0;
	frame->is_plain = true;
	for (mbuf = mbuf->next; mbuf != NULL; mbuf = mbuf->next) {
		if (mbuf->pool != port->payload_pool || frame->parts == SHOT_PARTS) {
			frame->is_plain = false;
			break;
		}
		frame->part[frame->parts++] = (struct shot_part){
			.data = rte_pktmbuf_mtod(mbuf, const uint8_t *),
			.len = mbuf->data_len,
			.buffer = *(const uint32_t *)rte_mbuf_to_priv((struct rte_mbuf *)(uintptr_t)mbuf),
		};
	}
}

uint16_t shot_receive_split(struct shot_port *port, struct shot_split_frame *frames, uint16_t max)
{
	shot_register_thread();
	if (!port->started || !enter_port(port))
		return 0;
	free_held(port);
	port->count = rte_eth_rx_burst(port->id, 0, port->held, max < SHOT_BURST ? max : SHOT_BURST);
	leave_port(port);
	for (uint16_t index = 0; index < port->count; index++)
		describe_parts(port, index, &frames[index]);
	return port->count;
}

void shot_join(struct shot_port *port, uint16_t index, struct shot_frame *frame)
{
	describe(port, index, frame);
}
