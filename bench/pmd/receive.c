/* Receives bursts from one queue of a port, under callgrind, which counts the instructions of each call.
 *
 *     receive EAL-OPTIONS -- BURSTS DESCRIPTORS
 *
 * After each call the count is dumped with the number of packets that it returned. It ends after BURSTS full bursts.
 * What a call counts includes the instructions of starting and stopping the count: the first dump, `empty`, has only
 * those. Freeing the packets is not counted. */

#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_debug.h>
#include <rte_errno.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <valgrind/callgrind.h>

#define BURST 32
#define MBUFS 16383
#define MBUF_CACHE 256
/* Time for the sender to fill the ring after a burst that was not full. */
#define PAUSE_US 20000

static void open_port(uint16_t port, uint16_t descriptors)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_dev_info info;
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("packets", MBUFS, MBUF_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		rte_exit(EXIT_FAILURE, "no memory for %u mbufs\n", MBUFS);
	int error = rte_eth_dev_info_get(port, &info);
	uint16_t senders = info.max_tx_queues > 0; /* virtio's queues are pairs */
	if (error == 0)
		error = rte_eth_dev_configure(port, 1, senders, &conf);
	if (error == 0)
		error = rte_eth_rx_queue_setup(port, 0, descriptors, SOCKET_ID_ANY, NULL, pool);
	if (error == 0 && senders > 0)
		error = rte_eth_tx_queue_setup(port, 0, descriptors, SOCKET_ID_ANY, NULL);
	if (error == 0)
		error = rte_eth_dev_start(port);
	if (error != 0)
		rte_exit(EXIT_FAILURE, "the port cannot be started: %s\n", rte_strerror(-error));
}

int main(int count, char **words)
{
	int used = rte_eal_init(count, words);
	if (used < 0 || count - used != 3)
		rte_exit(EXIT_FAILURE, "usage: receive EAL-OPTIONS -- BURSTS DESCRIPTORS\n");
	unsigned bursts = strtoul(words[used + 1], NULL, 10);
	uint16_t port = rte_eth_find_next(0);
	if (port == RTE_MAX_ETHPORTS)
		rte_exit(EXIT_FAILURE, "no port: --vdev is missing or wrong\n");
	open_port(port, strtoul(words[used + 2], NULL, 10));

	CALLGRIND_START_INSTRUMENTATION;
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT("empty");
	for (unsigned full = 0; full < bursts;) {
		struct rte_mbuf *packets[BURST];
		CALLGRIND_TOGGLE_COLLECT;
		uint16_t received = rte_eth_rx_burst(port, 0, packets, BURST);
		CALLGRIND_TOGGLE_COLLECT;
		char what[8];
		snprintf(what, sizeof(what), "%u", received);
		CALLGRIND_DUMP_STATS_AT(what);
		if (received == BURST)
			full++;
		else
			rte_delay_us_sleep(PAUSE_US);
		rte_pktmbuf_free_bulk(packets, received);
	}
	CALLGRIND_STOP_INSTRUMENTATION;
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	return 0;
}
