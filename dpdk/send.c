/* Frames that software sends through the port of a simulated card. The card itself only receives. */

#include "driver.h"

#include <errno.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

/* Time in which a simulated card must read the frames that it was given before a queue stops. */
#define DRAIN_MS 2000

int shotline_send_queue_setup(struct rte_eth_dev *device, uint16_t number, uint16_t descriptors, unsigned socket,
			      const struct rte_eth_txconf *conf)
{
	struct shotline_port *port = shotline_port(device);
	struct shotline_send_queue *queue = rte_zmalloc_socket("shotline", sizeof(*queue), RTE_CACHE_LINE_SIZE, socket);
	(void)descriptors; /* the ring has one size */
	(void)conf;
	if (queue == NULL)
		return -ENOMEM;
	queue->bus = &port->bus;
	queue->number = number;
	queue->address_at = port->address_at;
	queue->ring = (struct shotline_send_ring *)(uintptr_t)(port->bus.base + SHOTLINE_WINDOW_SEND +
							       (size_t)SHOTLINE_SEND_STRIDE * number);
	/* An application that was killed may have left frames, and the card may not have read them yet. */
	queue->given = __atomic_load_n(&queue->ring->given, __ATOMIC_RELAXED);
	queue->freed = __atomic_load_n(&queue->ring->done, __ATOMIC_RELAXED);
	if (queue->given - queue->freed > SHOTLINE_SEND_ENTRIES)
		queue->freed = queue->given;
	device->data->tx_queues[number] = queue;
	return 0;
}

/* Frees the mbufs of pieces that the card has read. */
static void free_sent(struct shotline_send_queue *queue, uint32_t until)
{
	for (; queue->freed != until; queue->freed++) {
		struct rte_mbuf **mbuf = &queue->mbufs[queue->freed % SHOTLINE_SEND_ENTRIES];
		rte_pktmbuf_free(*mbuf); /* NULL but for the last piece of a frame */
		*mbuf = NULL;
	}
}

static void reclaim(struct shotline_send_queue *queue)
{
	uint32_t done = __atomic_load_n(&queue->ring->done, __ATOMIC_ACQUIRE);
	if (done - queue->freed <= queue->given - queue->freed)
		free_sent(queue, done);
}

void shotline_send_queue_drain(struct shotline_send_queue *queue)
{
	uint64_t limit = rte_get_timer_cycles() + DRAIN_MS * rte_get_timer_hz() / 1000;
	for (reclaim(queue); queue->freed != queue->given && rte_get_timer_cycles() < limit; reclaim(queue)) {
		if (atomic_load(&queue->bus->gone))
			break;
		rte_delay_us_sleep(100);
	}
	if (queue->freed != queue->given)
		LOG(WARNING, "queue %u: the card has not read %u pieces of frames", queue->number, queue->given - queue->freed);
	free_sent(queue, queue->given);
}

void shotline_send_queue_release(struct rte_eth_dev *device, uint16_t number)
{
	struct shotline_send_queue *queue = device->data->tx_queues[number];
	if (queue == NULL)
		return;
	free_sent(queue, queue->given);
	rte_free(queue);
	device->data->tx_queues[number] = NULL;
}

uint16_t shotline_send(void *data, struct rte_mbuf **packets, uint16_t count)
{
	struct shotline_send_queue *queue = data;
	uint32_t given = queue->given;
	uint16_t sent = 0;
	if (atomic_load_explicit(&queue->bus->gone, memory_order_relaxed))
		return 0;
	reclaim(queue);
	for (; sent < count; sent++) {
		struct rte_mbuf *mbuf = packets[sent];
		if (mbuf->pkt_len > SHOTLINE_SEND_MAX || mbuf->nb_segs > SHOTLINE_SEND_ENTRIES || mbuf->pkt_len == 0) {
			queue->errors++;
			rte_pktmbuf_free(mbuf);
			continue;
		}
		if (SHOTLINE_SEND_ENTRIES - (given - queue->freed) < mbuf->nb_segs)
			break;
		queue->packets++;
		queue->bytes += mbuf->pkt_len;
		for (struct rte_mbuf *piece = mbuf; piece != NULL; piece = piece->next, given++) {
			uint32_t at = given % SHOTLINE_SEND_ENTRIES;
			uint64_t base = *(const uint64_t *)((const char *)piece + queue->address_at);
			queue->ring->entries[at] = (struct shotline_send_entry){
				.address = base + piece->data_off,
				.length = piece->data_len,
				.flags = piece->next == NULL ? SHOTLINE_SEND_END : 0,
			};
			queue->mbufs[at] = piece->next == NULL ? mbuf : NULL;
		}
	}
	queue->given = given;
	__atomic_store_n(&queue->ring->given, given, __ATOMIC_RELEASE);
	return sent;
}
