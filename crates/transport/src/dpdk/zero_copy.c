/* A memif client with zero-copy=yes: the peer reads and writes DPDK's own memory. This file works around three
 * limitations of the driver of DPDK 22.11:
 *
 * - When the link goes down, it does not reclaim the buffers that the peer still has. So each buffer that is sent
 *   keeps a reference of ours, and the receive buffers are searched for.
 * - It closes EAL's own descriptor of the memory when a link is established, and sends its number to the next peer. So
 *   there is a second descriptor, from which the first is restored. Nothing else gets its number meanwhile:
 *   shot_eal_init ensures that.
 * - It announces one list of memory segments, with the length that the list has when the link is established.
 *   Other memory is copied. */

#define _GNU_SOURCE
#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal_memconfig.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_memory.h>

/* --- which memory -------------------------------------------------------------------------------- */

/* The list of segments that drivers announce, determined once: its pages are reserved when EAL starts. */
static struct {
	const uint8_t *begin;
	size_t len;
	int fd, fd_copy;
} shared = { .fd = -1, .fd_copy = -1 };

static int add_segment(const struct rte_memseg_list *list, const struct rte_memseg *segment, void *unused)
{
	(void)unused;
	if (shared.begin == NULL) {
		shared.begin = list->base_va;
		shared.fd = rte_memseg_get_fd_thread_unsafe(segment);
	}
	if (list->base_va != shared.begin)
		return 1;
	shared.len += segment->len;
	return 0;
}

bool zero_copy_reaches(const void *memory, size_t bytes)
{
	size_t offset = (size_t)((const uint8_t *)memory - shared.begin);
	return shared.begin != NULL && (const uint8_t *)memory >= shared.begin && offset <= shared.len &&
	       bytes <= shared.len - offset;
}

bool zero_copy_ready(void)
{
	struct stat current, copy;
	if (shared.fd_copy < 0 || fstat(shared.fd_copy, &copy) != 0)
		return false;
	if (fstat(shared.fd, &current) != 0)
		return dup3(shared.fd_copy, shared.fd, O_CLOEXEC) == shared.fd;
	return current.st_dev == copy.st_dev && current.st_ino == copy.st_ino;
}

int zero_copy_open(struct shot_port *port, uint32_t buffers)
{
	if (shared.begin == NULL) {
		if (!rte_mcfg_get_single_file_segments())
			return -ENOTSUP;
		rte_memseg_walk(add_segment, NULL);
		shared.fd_copy = shared.fd < 0 ? -1 : fcntl(shared.fd, F_DUPFD_CLOEXEC, shared.fd + 1);
	}
	uint32_t size = rte_align32pow2(buffers);
	port->in_flight.mask = size - 1;
	port->in_flight.mbufs = calloc(size, sizeof(*port->in_flight.mbufs));
	if (port->in_flight.mbufs == NULL)
		return -ENOMEM;
	bool all = true;
	struct rte_mempool *pools[] = { port->receive_pool, port->send_pool };
	for (int index = 0; index < 2; index++) {
		struct rte_mempool_memhdr *part;
		STAILQ_FOREACH(part, &pools[index]->mem_list, next)
			all = all && zero_copy_reaches(part->addr, part->len);
	}
	return all && zero_copy_ready() ? 0 : -ENOTSUP;
}

void *shot_memory_alloc(size_t bytes)
{
	void *memory = rte_malloc("shotline", bytes, 4096);
	if (memory != NULL && !zero_copy_reaches(memory, bytes)) {
		rte_free(memory);
		return NULL;
	}
	if (memory != NULL)
		memset(memory, 0, bytes); /* the first touch of a page is slow */
	return memory;
}

void shot_memory_free(void *memory)
{
	rte_free(memory);
}

/* --- sent ---------------------------------------------------------------------------------------- */

void zero_copy_set_refcnt(struct rte_mbuf **mbufs, uint16_t count, uint16_t references)
{
	for (uint16_t index = 0; index < count; index++)
		rte_mbuf_refcnt_set(mbufs[index], references);
}

void zero_copy_record(struct shot_port *port, struct rte_mbuf **mbufs, uint16_t accepted)
{
	unsigned head = atomic_load_explicit(&port->in_flight.head, memory_order_relaxed);
	for (uint16_t index = 0; index < accepted; index++)
		port->in_flight.mbufs[head++ & port->in_flight.mask] = mbufs[index];
	atomic_store_explicit(&port->in_flight.head, head, memory_order_release);
}

void zero_copy_reclaim(struct shot_port *port, bool all)
{
	unsigned head = atomic_load_explicit(&port->in_flight.head, memory_order_relaxed);
	unsigned tail = atomic_load_explicit(&port->in_flight.tail, memory_order_relaxed);
	for (; tail != head; tail++) {
		struct rte_mbuf *mbuf = port->in_flight.mbufs[tail & port->in_flight.mask];
		if (rte_mbuf_refcnt_read(mbuf) > 1) {
			if (!all)
				break;
			rte_mbuf_refcnt_set(mbuf, 1);
		}
		rte_pktmbuf_free(mbuf);
	}
	atomic_store_explicit(&port->in_flight.tail, tail, memory_order_release);
}

uint32_t shot_in_flight(struct shot_port *port)
{
	shot_register_thread();
	if (!port->zero_copy)
		return 0;
	unsigned head = atomic_load_explicit(&port->in_flight.head, memory_order_acquire);
	if (head != atomic_load_explicit(&port->in_flight.tail, memory_order_acquire) && enter_port(port)) {
		rte_eth_tx_burst(port->id, 0, NULL, 0); /* the driver frees buffers that were read when it sends */
		zero_copy_reclaim(port, false);
		leave_port(port);
	}
	return head - atomic_load_explicit(&port->in_flight.tail, memory_order_acquire);
}

/* --- received ------------------------------------------------------------------------------------ */

/* Marks of a buffer after the link has gone down. */
enum { LOST = 1, KNOWN };

static void mark_lost(struct rte_mempool *pool, void *unused, void *buffer, unsigned index)
{
	(void)pool, (void)unused, (void)index;
	((struct rte_mbuf *)buffer)->hash.usr = LOST;
}

static void free_lost(struct rte_mempool *pool, void *unused, void *buffer, unsigned index)
{
	(void)unused, (void)index;
	struct rte_mbuf *mbuf = buffer;
	if (mbuf->hash.usr == KNOWN)
		return;
	mbuf->next = NULL; /* as in every free buffer of a pool */
	mbuf->nb_segs = 1;
	rte_mbuf_refcnt_set(mbuf, 1);
	rte_mempool_put(pool, mbuf);
}

void zero_copy_recover(struct shot_port *port)
{
	struct rte_mempool *pool = port->receive_pool;
	void **free_mbufs = calloc(pool->size, sizeof(*free_mbufs));
	if (free_mbufs == NULL)
		return;
	unsigned count = 0;
	rte_mempool_obj_iter(pool, mark_lost, NULL);
	for (uint16_t index = 0; index < port->count; index++)
		for (struct rte_mbuf *mbuf = port->held[index]; mbuf != NULL; mbuf = mbuf->next)
			mbuf->hash.usr = KNOWN;
	while (count < pool->size && rte_mempool_get(pool, &free_mbufs[count]) == 0)
		((struct rte_mbuf *)free_mbufs[count++])->hash.usr = KNOWN;
	rte_mempool_put_bulk(pool, free_mbufs, count);
	rte_mempool_obj_iter(pool, free_lost, NULL);
	free(free_mbufs);
}
