/* Receives packets by interrupts, as an application that sleeps while there are none: it polls a queue until it is empty,
 * enables its interrupt, and sleeps until one comes.
 *
 *     pmd_interrupts EAL-OPTIONS -- QUEUES PACKETS
 *
 * Prints the packets of each queue and how often it slept. */

#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_mbuf.h>

#define LIMIT_MS 60000
#define MAX_QUEUES 16

static void check(int error, const char *what)
{
	if (error < 0)
		rte_exit(EXIT_FAILURE, "%s: %s\n", what, rte_strerror(-error));
}

static unsigned drain(uint16_t queue)
{
	struct rte_mbuf *packets[32];
	unsigned all = 0;
	for (uint16_t count; (count = rte_eth_rx_burst(0, queue, packets, 32)) > 0; all += count)
		rte_pktmbuf_free_bulk(packets, count);
	return all;
}

int main(int count, char **words)
{
	int used = rte_eal_init(count, words);
	if (used < 0 || count - used != 3)
		rte_exit(EXIT_FAILURE, "usage: pmd_interrupts EAL-OPTIONS -- QUEUES PACKETS\n");
	uint16_t queues = atoi(words[used + 1]);
	unsigned wanted = atoi(words[used + 2]), received[MAX_QUEUES] = { 0 }, all = 0, sleeps = 0;
	struct rte_eth_conf conf = { .intr_conf.rxq = 1, .rxmode.mq_mode = RTE_ETH_MQ_RX_RSS };
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", 8191, 64, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	check(pool == NULL || queues > MAX_QUEUES ? -ENOMEM : 0, "pool");
	check(rte_eth_dev_configure(0, queues, 0, &conf), "configure");
	for (uint16_t queue = 0; queue < queues; queue++)
		check(rte_eth_rx_queue_setup(0, queue, 256, SOCKET_ID_ANY, NULL, pool), "queue");
	check(rte_eth_dev_start(0), "start");
	for (uintptr_t queue = 0; queue < queues; queue++)
		check(rte_eth_dev_rx_intr_ctl_q(0, queue, RTE_EPOLL_PER_THREAD, RTE_INTR_EVENT_ADD, (void *)queue), "event");
	while (all < wanted) {
		struct rte_epoll_event events[MAX_QUEUES];
		for (uint16_t queue = 0; queue < queues; queue++)
			check(rte_eth_dev_rx_intr_enable(0, queue), "enable");
		int found = rte_epoll_wait(RTE_EPOLL_PER_THREAD, events, MAX_QUEUES, LIMIT_MS);
		check(found == 0 ? -ETIMEDOUT : found, "no interrupt");
		sleeps++;
		for (int index = 0; index < found; index++) {
			uint16_t queue = (uintptr_t)events[index].epdata.data;
			check(rte_eth_dev_rx_intr_disable(0, queue), "disable");
			unsigned now = drain(queue);
			received[queue] += now;
			all += now;
		}
	}
	printf("sleeps %u\n", sleeps);
	for (uint16_t queue = 0; queue < queues; queue++)
		printf("queue %u %u\n", queue, received[queue]);
	rte_eth_dev_stop(0);
	rte_eth_dev_close(0);
	rte_eal_cleanup();
	return 0;
}
