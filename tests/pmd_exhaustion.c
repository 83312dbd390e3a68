/* Holds all packets that it receives until the driver has no mbufs left, frees them, and receives the rest.
 *
 *     pmd_exhaustion EAL-OPTIONS -- PACKETS
 *
 * Prints how many packets it held, and the statistics rx_nombuf and imissed. */

#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define MBUFS 511
#define DESCRIPTORS 256

static void check(int error, const char *what)
{
	if (error < 0)
		rte_exit(EXIT_FAILURE, "%s: %s\n", what, rte_strerror(-error));
}

int main(int count, char **words)
{
	int used = rte_eal_init(count, words);
	if (used < 0 || count - used != 2)
		rte_exit(EXIT_FAILURE, "usage: pmd_exhaustion EAL-OPTIONS -- PACKETS\n");
	unsigned wanted = atoi(words[used + 1]), received = 0, held = 0;
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_stats stats;
	struct rte_mbuf *packets[MBUFS + 1];
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", MBUFS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	check(pool == NULL ? -ENOMEM : 0, "pool");
	check(rte_eth_dev_configure(0, 1, 0, &conf), "configure");
	check(rte_eth_rx_queue_setup(0, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool), "queue");
	check(rte_eth_dev_start(0), "start");
	do {
		held += rte_eth_rx_burst(0, 0, packets + held, 1);
		/* Reading statistics takes long beside a burst. */
		if (held + DESCRIPTORS > MBUFS - 32)
			check(rte_eth_stats_get(0, &stats), "statistics");
		else
			stats.rx_nombuf = 0;
	} while (stats.rx_nombuf == 0);
	printf("held %u\n", held);
	rte_pktmbuf_free_bulk(packets, held);
	for (received = held; received < wanted;) {
		uint16_t now = rte_eth_rx_burst(0, 0, packets, 32);
		rte_pktmbuf_free_bulk(packets, now);
		received += now;
	}
	check(rte_eth_stats_get(0, &stats), "statistics");
	printf("received %u\nnombuf %lu\nmissed %lu\n", received, stats.rx_nombuf, stats.imissed);
	rte_eth_dev_stop(0);
	printf("free %u\n", rte_mempool_avail_count(pool));
	rte_eth_dev_close(0);
	rte_eal_cleanup();
	return 0;
}
