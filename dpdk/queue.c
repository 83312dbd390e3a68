/* Receive queues: set-up, start and stop of the card's channels. */

#include "driver.h"

#include <errno.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

/* Descriptors of a report, and the time after which one is written with fewer, in units of 256 clocks. */
#define REPORT_COUNT 32
#define REPORT_TIME 1
/* Free descriptors from which on new ones are given, unless the application says otherwise. */
#define REFILL 32
/* Time in which a channel must stop. The card's own limit of a descriptor read is 100 ms; a simulated one is slower. */
#define STOP_S 10

/* --- set-up ---------------------------------------------------------------------------------------- */

/* Returns the bytes of the largest buffer of a pool behind `first` bytes, a multiple of the card's blocks. */
static uint32_t room(struct rte_mempool *pool, uint32_t first, uint32_t limit)
{
	uint32_t bytes = rte_pktmbuf_data_room_size(pool);
	bytes = bytes <= first ? 0 : RTE_MIN(bytes - first, limit);
	return RTE_ALIGN_FLOOR(bytes, SHOTLINE_BLOCK);
}

/* Sets the pools, and what goes into their buffers. */
static int choose_pools(struct shotline_receive_queue *queue, const struct rte_eth_rxconf *conf,
			struct rte_mempool *pool)
{
	if (conf->rx_nseg == 0) {
		queue->pool = pool;
		return 0;
	}
	const struct rte_eth_rxseg_split *first = &conf->rx_seg[0].split, *last = &conf->rx_seg[conf->rx_nseg - 1].split;
	queue->offset = first->offset;
	queue->limit = last->length;
	queue->pool = last->mp;
	if (conf->rx_nseg == 1)
		return 0;
	queue->header_pool = first->mp;
	queue->header_length = first->length;
	queue->odd_first = last->offset;
	uint32_t most = SHOTLINE_MAX_HEADER - sizeof(struct shotline_packet);
	/* Two bytes of padding make a multiple of 8 of Ethernet's 14 bytes with others. */
	if (first->length == 0 || first->length > most || (first->length % 8 != 0 && first->length % 8 != 6)) {
		LOG(ERR, "queue %u: expected headers of 8n or 8n + 6 bytes, at most %u, such as 62 of RoCEv2, found %u",
		    queue->number, most, first->length);
		return -EINVAL;
	}
	return 0;
}

static uint64_t pool_flags(struct rte_mempool *pool)
{
	return rte_pktmbuf_priv_flags(pool) & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF ? RTE_MBUF_F_EXTERNAL : 0;
}

int shotline_receive_queue_layout(struct shotline_receive_queue *queue, uint16_t padding)
{
	bool is_split = queue->header_pool != NULL;
	uint32_t limit = queue->limit != 0 ? queue->limit : UINT16_MAX;
	queue->skipped = sizeof(struct shotline_packet) + padding;
	queue->first = RTE_ALIGN_FLOOR(RTE_PKTMBUF_HEADROOM + queue->offset - queue->skipped, SHOTLINE_BLOCK);
	queue->header = is_split ? queue->skipped + queue->header_length : 0;
	if (queue->header % SHOTLINE_BLOCK != 0) {
		LOG(ERR, "queue %u: its headers of %u bytes need no padding, those of another queue do", queue->number,
		    queue->header_length);
		return -EINVAL;
	}
	if (is_split)
		queue->buffer = RTE_MIN(room(queue->pool, queue->odd_first, limit), (uint32_t)SHOTLINE_MAX_BUFFER);
	else
		queue->buffer = RTE_MIN(room(queue->pool, queue->first, limit + queue->skipped), (uint32_t)SHOTLINE_MAX_BUFFER);
	if (queue->buffer <= (is_split ? 0 : queue->skipped) ||
	    (is_split && room(queue->header_pool, queue->first, UINT16_MAX) < queue->header)) {
		LOG(ERR, "queue %u: the buffers of its pool are too small", queue->number);
		return -EINVAL;
	}
	queue->data_room = is_split ? queue->header_length + queue->buffer : queue->buffer - queue->skipped;
	struct rte_mbuf mbuf = { .data_off = queue->first + queue->skipped, .nb_segs = 1, .port = queue->device->data->port_id };
	rte_mbuf_refcnt_set(&mbuf, 1);
	memcpy(&queue->rearm, &mbuf.rearm_data, sizeof(queue->rearm));
	queue->segment_flags = pool_flags(queue->pool);
	queue->flags = RTE_MBUF_F_RX_RSS_HASH | pool_flags(is_split ? queue->header_pool : queue->pool);
	queue->time_at = -1;
	if (queue->wants_time) {
		uint64_t flag;
		if (rte_mbuf_dyn_rx_timestamp_register(&queue->time_at, &flag) != 0)
			return -rte_errno;
		queue->flags |= flag;
	}
	return 0;
}

int shotline_receive_queue_setup(struct rte_eth_dev *device, uint16_t number, uint16_t descriptors, unsigned socket,
				 const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	struct shotline_port *port = shotline_port(device);
	struct shotline_receive_queue *queue = rte_zmalloc_socket("shotline", sizeof(*queue), RTE_CACHE_LINE_SIZE, socket);
	if (queue == NULL)
		return -ENOMEM;
	uint32_t ring = rte_align32pow2(descriptors);
	size_t bytes = ring * sizeof(struct shotline_descriptor);
	queue->device = device;
	queue->number = number;
	queue->descriptors = descriptors;
	queue->mask = ring - 1;
	queue->address_at = port->address_at;
	queue->doorbell = (volatile uint32_t *)(port->bus.base + shotline_channel(SHOTLINE_CHANNEL_SOFTWARE_POINTER, number));
	queue->is_deferred = conf->rx_deferred_start;
	queue->wants_time = (conf->offloads | device->data->dev_conf.rxmode.offloads) & RTE_ETH_RX_OFFLOAD_TIMESTAMP;
	queue->refill = RTE_ALIGN_CEIL(conf->rx_free_thresh != 0 ? conf->rx_free_thresh : REFILL, SHOTLINE_GROUP);
	queue->refill = RTE_MIN(queue->refill, descriptors / 2);
	device->data->rx_queues[number] = queue;
	int result = choose_pools(queue, conf, pool);
	if (result == 0) {
		/* The report is in a cache line of its own. */
		queue->memory = rte_eth_dma_zone_reserve(device, "ring", number, bytes + RTE_CACHE_LINE_SIZE, 4096, socket);
		queue->mbufs = rte_calloc_socket("shotline", ring, sizeof(*queue->mbufs), RTE_CACHE_LINE_SIZE, socket);
		if (queue->memory == NULL || queue->mbufs == NULL) {
			LOG(ERR, "queue %u: no memory for %u descriptors", number, descriptors);
			result = -ENOMEM;
		}
	}
	if (result != 0) {
		shotline_receive_queue_release(device, number);
		return result;
	}
	queue->ring = queue->memory->addr;
	queue->report = (volatile uint64_t *)((char *)queue->memory->addr + bytes);
	return 0;
}

/* Frees the mbufs that a stopped queue holds. */
static void free_mbufs(struct shotline_receive_queue *queue)
{
	for (; queue->next != queue->given; queue->next++)
		rte_mbuf_raw_free(queue->mbufs[queue->next & queue->mask]);
}

void shotline_receive_queue_release(struct rte_eth_dev *device, uint16_t number)
{
	struct shotline_receive_queue *queue = device->data->rx_queues[number];
	if (queue == NULL)
		return;
	free_mbufs(queue);
	rte_memzone_free(queue->memory);
	rte_free(queue->mbufs);
	rte_free(queue);
	device->data->rx_queues[number] = NULL;
}

void shotline_receive_queue_info(struct rte_eth_dev *device, uint16_t number, struct rte_eth_rxq_info *info)
{
	const struct shotline_receive_queue *queue = device->data->rx_queues[number];
	info->mp = queue->pool;
	info->nb_desc = queue->descriptors;
	info->rx_buf_size = queue->buffer;
	info->scattered_rx = device->data->scattered_rx;
	info->conf.rx_free_thresh = queue->refill;
	info->conf.rx_deferred_start = queue->is_deferred;
	info->conf.offloads = device->data->dev_conf.rxmode.offloads;
}

bool shotline_fits(const struct shotline_receive_queue *queue, uint32_t bytes)
{
	return bytes <= queue->data_room;
}

/* --- start and stop -------------------------------------------------------------------------------- */

/* Configures a stopped channel and starts it. */
static int start_channel(struct shotline_bus *bus, struct shotline_receive_queue *queue)
{
	uint64_t offset = (uintptr_t)queue->report - (uintptr_t)queue->ring;
	bool is_virtual = queue->address_at == offsetof(struct rte_mbuf, buf_addr);
	uint64_t ring = is_virtual ? queue->memory->addr_64 : queue->memory->iova, report = ring + offset;
	uint32_t size_log2 = rte_log2_u32(queue->mask + 1);
	uint32_t buffer = queue->buffer | (uint32_t)queue->header << SHOTLINE_CHANNEL_BUFFER_HEADER_SIZE_LSB;
	const uint32_t values[][2] = {
		{ SHOTLINE_CHANNEL_RING_LOW, (uint32_t)ring },
		{ SHOTLINE_CHANNEL_RING_HIGH, (uint32_t)(ring >> 32) },
		{ SHOTLINE_CHANNEL_RING, size_log2 },
		{ SHOTLINE_CHANNEL_BUFFER, buffer },
		{ SHOTLINE_CHANNEL_REPORT_LOW, (uint32_t)report },
		{ SHOTLINE_CHANNEL_REPORT_HIGH, (uint32_t)(report >> 32) },
		{ SHOTLINE_CHANNEL_REPORT, REPORT_COUNT | REPORT_TIME << SHOTLINE_CHANNEL_REPORT_TIME_LSB },
		{ SHOTLINE_CHANNEL_INTERRUPT, 0 },
		{ SHOTLINE_CHANNEL_CONTROL,
		  SHOTLINE_CHANNEL_CONTROL_RUN | (uint32_t)queue->generation << SHOTLINE_CHANNEL_CONTROL_GENERATION_LSB },
	};
	*queue->doorbell = 0;
	for (unsigned index = 0; index < RTE_DIM(values); index++) {
		int result = shotline_write(bus, shotline_channel(values[index][0], queue->number), values[index][1]);
		if (result != 0) {
			LOG(ERR, "queue %u: %s register %#x = %#x", queue->number,
			    result == -ENODEV ? "the card is gone at" : "the card refuses", values[index][0], values[index][1]);
			return result;
		}
	}
	return 0;
}

int shotline_receive_queue_start(struct rte_eth_dev *device, uint16_t number)
{
	struct shotline_receive_queue *queue = device->data->rx_queues[number];
	struct shotline_bus *bus = &shotline_port(device)->bus;
	int result = shotline_channel_stop(bus, number); /* an application that was killed may have left it running */
	if (result != 0)
		return result;
	free_mbufs(queue);
	uint32_t control = shotline_read(bus, shotline_channel(SHOTLINE_CHANNEL_CONTROL, number));
	queue->generation = (control >> SHOTLINE_CHANNEL_CONTROL_GENERATION_LSB) + 1;
	queue->place = (uint64_t)number << 16 | (uint64_t)queue->generation << 24;
	queue->next = queue->given = 0;
	queue->has_failed = false;
	*queue->report = (uint64_t)queue->generation << 16;
	result = start_channel(bus, queue);
	if (result != 0)
		return result;
	shotline_refill(queue);
	if (queue->given == 0) {
		LOG(ERR, "queue %u: no mbufs are free: its pool needs %u", number, queue->descriptors);
		shotline_channel_stop(bus, number);
		return -ENOMEM;
	}
	atomic_store(&queue->is_running, true);
	device->data->rx_queue_state[number] = RTE_ETH_QUEUE_STATE_STARTED;
	return 0;
}

int shotline_channel_stop(struct shotline_bus *bus, unsigned channel)
{
	const uint16_t state = shotline_channel(SHOTLINE_CHANNEL_STATE, channel);
	uint64_t limit = rte_get_timer_cycles() + STOP_S * rte_get_timer_hz();
	for (bool is_asked = false;; is_asked = true) {
		uint32_t value = shotline_read(bus, state);
		if (atomic_load(&bus->gone))
			return -ENODEV;
		if ((value & SHOTLINE_CHANNEL_STATE_STATE) == 0)
			return 0;
		if (!is_asked)
			shotline_write(bus, shotline_channel(SHOTLINE_CHANNEL_CONTROL, channel), 0);
		if (rte_get_timer_cycles() > limit) {
			LOG(ERR, "channel %u does not stop: state %#x", channel, value);
			return -EBUSY;
		}
		rte_delay_us_sleep(100);
	}
}

int shotline_receive_queue_stop(struct rte_eth_dev *device, uint16_t number)
{
	struct shotline_receive_queue *queue = device->data->rx_queues[number];
	struct shotline_bus *bus = &shotline_port(device)->bus;
	shotline_end_bursts(queue);
	int result = shotline_channel_stop(bus, number);
	/* A card that is gone writes nothing any more. */
	if (result != 0 && result != -ENODEV)
		return result;
	queue->unread += shotline_unread(queue);
	free_mbufs(queue);
	device->data->rx_queue_state[number] = RTE_ETH_QUEUE_STATE_STOPPED;
	return 0;
}
