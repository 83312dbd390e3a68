/* Receives packets until the card has gone, and then goes on using its port.
 *
 *     pmd_removal EAL-OPTIONS -- PACKETS
 *
 * Prints a line when it has received them, and then what a port without a card returns. */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define MBUFS 1023
#define DESCRIPTORS 256

static atomic_uint events; /* bit 0: link; bit 1: removal */

static int note(uint16_t port, enum rte_eth_event_type type, void *argument, void *result)
{
	(void)port, (void)argument, (void)result;
	atomic_fetch_or(&events, type == RTE_ETH_EVENT_INTR_LSC ? 1 : 2);
	return 0;
}

static void check(int error, const char *what)
{
	if (error < 0)
		rte_exit(EXIT_FAILURE, "%s: %s\n", what, rte_strerror(-error));
}

static void start(struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { .intr_conf.lsc = 1 };
	check(rte_eth_dev_callback_register(0, RTE_ETH_EVENT_INTR_LSC, note, NULL), "link events");
	check(rte_eth_dev_callback_register(0, RTE_ETH_EVENT_INTR_RMV, note, NULL), "removal events");
	check(rte_eth_dev_configure(0, 1, 1, &conf), "configure");
	check(rte_eth_rx_queue_setup(0, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool), "receive queue");
	check(rte_eth_tx_queue_setup(0, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL), "send queue");
	check(rte_eth_dev_start(0), "start");
}

/* Sends a frame. Returns how many the driver accepts. */
static unsigned send_frame(struct rte_mempool *pool)
{
	struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
	check(frame == NULL ? -ENOMEM : 0, "mbuf");
	rte_pktmbuf_append(frame, 60);
	unsigned accepted = rte_eth_tx_burst(0, 0, &frame, 1);
	if (accepted == 0)
		rte_pktmbuf_free(frame);
	return accepted;
}

int main(int count, char **words)
{
	int used = rte_eal_init(count, words);
	if (used < 0 || count - used != 2)
		rte_exit(EXIT_FAILURE, "usage: pmd_removal EAL-OPTIONS -- PACKETS\n");
	unsigned wanted = atoi(words[used + 1]), received = 0, more = 0;
	struct rte_eth_stats stats;
	struct rte_eth_link link;
	struct rte_mbuf *packets[32];
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", MBUFS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	check(pool == NULL ? -ENOMEM : 0, "pool");
	start(pool);
	while (atomic_load(&events) != 3) {
		uint16_t now = rte_eth_rx_burst(0, 0, packets, 32);
		rte_pktmbuf_free_bulk(packets, now);
		received += now;
		if (now > 0 && received == wanted) {
			check(rte_eth_stats_get(0, &stats), "statistics");
			printf("received %u\n", received);
			fflush(stdout);
		}
	}
	for (int bursts = 0; bursts < 1000; bursts++)
		more += rte_eth_rx_burst(0, 0, packets, 32) + send_frame(pool);
	check(rte_eth_link_get_nowait(0, &link), "link");
	check(rte_eth_stats_get(0, &stats), "statistics");
	printf("more %u\nlink %u\nipackets %lu\n", more, link.link_status, stats.ipackets);
	check(rte_eth_dev_stop(0), "stop");
	printf("free %u\n", rte_mempool_avail_count(pool));
	check(rte_eth_dev_close(0), "close");
	rte_eal_cleanup();
	return 0;
}
