/* The shim over DPDK: see shim.h. */

#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API /* rte_intr_instance_alloc and its setters */
#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_log.h>

/* Timeout of a memif's handshake, in milliseconds. Long, because the driver has a use after free if its client stops
 * retrying before the handshake. */
#define HANDSHAKE_MS 5000
/* Milliseconds between two connection attempts while no server listens. */
#define RECONNECT_MS 8
/* Number of low file descriptors that are left to the program: those of EAL are above. */
#define RESERVED_FDS 256

/* --- log ----------------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	size_t len;
	char text[8192];
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Keeps the newest text that fits. */
static ssize_t log_write(void *cookie, const char *text, size_t size)
{
	(void)cookie;
	size_t keep = size < sizeof(logged.text) ? size : sizeof(logged.text);
	pthread_mutex_lock(&logged.lock);
	if (logged.len + keep > sizeof(logged.text)) {
		size_t drop = logged.len + keep - sizeof(logged.text);
		memmove(logged.text, logged.text + drop, logged.len - drop);
		logged.len -= drop;
	}
	memcpy(logged.text + logged.len, text + size - keep, keep);
	logged.len += keep;
	pthread_mutex_unlock(&logged.lock);
	return (ssize_t)size;
}

size_t shot_log_take(char *to, size_t size)
{
	pthread_mutex_lock(&logged.lock);
	size_t len = logged.len < size ? logged.len : size;
	memcpy(to, logged.text + logged.len - len, len);
	logged.len = 0;
	pthread_mutex_unlock(&logged.lock);
	return len;
}

/* --- threads ------------------------------------------------------------------------------------- */

/* A thread registered with DPDK has its own caches in every pool. It must be unregistered when it ends. */
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void unregister_thread(void *unused)
{
	(void)unused;
	rte_thread_unregister();
}

static void make_key(void)
{
	pthread_key_create(&thread_key, unregister_thread);
}

void shot_register_thread(void)
{
	static _Thread_local bool tried;
	if (rte_lcore_id() != LCORE_ID_ANY || tried)
		return;
	tried = true; /* if DPDK's thread table is full, it works without caches */
	pthread_once(&thread_key_once, make_key);
	if (rte_thread_register() == 0)
		pthread_setspecific(thread_key, &thread_key);
}

/* --- the gate ------------------------------------------------------------------------------------ */

/* When a memif peer disconnects, the driver unmaps the shared memory in EAL's interrupt thread, regardless of other
 * threads: a receiver whose sender is killed would read unmapped memory. So the interrupt thread spends most of its
 * time in this callback, during which the gate is open, and bursts start only while it is open. Every few milliseconds
 * the callback closes the gate, waits for the current burst, and returns to let the thread do its work. It is called
 * again at once, because its descriptor is always readable. */
static struct {
	pthread_mutex_t control; /* held by the interrupt thread outside of the callback */
	pthread_mutex_t list;
	struct shot_port *ports;
	struct rte_intr_handle *handle;
	bool held;
} gate = { .control = PTHREAD_MUTEX_INITIALIZER, .list = PTHREAD_MUTEX_INITIALIZER };

atomic_bool shot_gate_open;

/* Number of calls of the callback: one for each time that the interrupt thread polls for events. */
static atomic_uint gate_turns;

/* Waits until the interrupt thread has polled again: it may still be processing an event of a closed socket, whose
 * descriptor number the next socket gets. */
static void wait_for_turn(void)
{
	unsigned turn = atomic_load(&gate_turns);
	struct timespec sleep_time = { .tv_nsec = 500 * 1000 };
	while (gate.handle != NULL && atomic_load(&gate_turns) == turn)
		nanosleep(&sleep_time, NULL);
}

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Updates the link state of a port. Call only while no burst is in progress. */
static void update_link(struct shot_port *port)
{
	struct rte_eth_link link = { 0 };
	bool up = rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
	if (up != atomic_exchange(&port->up, up)) {
		atomic_fetch_add(up ? &port->ups : &port->downs, 1);
		port->reconnect_at = 0;
		if (port->zero_copy && up)
			zero_copy_ready();
		if (port->zero_copy && !up) {
			zero_copy_reclaim(port, true);
			zero_copy_recover(port);
		}
	}
}

/* Reconnects a port that has no peer, or has lost it. Call only while no burst is in progress.
 *
 * This takes two calls, between which the interrupt thread polls for events again. Stopping closes a socket and
 * starting opens one, which gets the same number: on a pending event of the old socket the driver would receive from
 * the new one, and block there until the server sends. */
static void reconnect(struct shot_port *port)
{
	if (now_ms() < port->reconnect_at)
		return;
	if (!port->halted) {
		port->started = false;
		port->halted = true;
		rte_eth_dev_stop(port->id);
		return;
	}
	port->halted = false;
	port->started = (!port->zero_copy || zero_copy_ready()) && rte_eth_dev_start(port->id) == 0;
	port->reconnect_at = now_ms() + (port->started ? HANDSHAKE_MS : RECONNECT_MS);
}

static void gate_callback(void *unused)
{
	(void)unused;
	bool all_up = true;
	atomic_fetch_add(&gate_turns, 1);
	pthread_mutex_lock(&gate.list);
	for (struct shot_port *port = gate.ports; port != NULL; port = port->next) {
		update_link(port);
		all_up = all_up && atomic_load(&port->up);
	}
	pthread_mutex_unlock(&gate.list);
	if (gate.held)
		pthread_mutex_unlock(&gate.control);
	atomic_store(&shot_gate_open, true);
	/* A link is established in several steps, each of which needs this thread. */
	struct timespec open_time = { .tv_nsec = all_up ? 10 * 1000 * 1000 : 500 * 1000 };
	nanosleep(&open_time, NULL);
	pthread_mutex_lock(&gate.control);
	gate.held = true;
	atomic_store(&shot_gate_open, false);
	pthread_mutex_lock(&gate.list);
	for (struct shot_port *port = gate.ports; port != NULL; port = port->next) {
		while (atomic_load(&port->busy))
			sched_yield();
		if (port->reconnects && !atomic_load(&port->up))
			reconnect(port);
	}
	pthread_mutex_unlock(&gate.list);
}

static int gate_build(void)
{
	if (gate.handle != NULL)
		return 0;
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	if (handle == NULL || fd < 0)
		return -ENOMEM;
	rte_intr_fd_set(handle, fd);
	rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT);
	int result = rte_intr_callback_register(handle, gate_callback, NULL);
	if (result >= 0) {
		gate.handle = handle;
		return 0;
	}
	close(fd);
	rte_intr_instance_free(handle);
	return result;
}

/* --- set-up -------------------------------------------------------------------------------------- */

int shot_eal_init(int argc, char **argv)
{
	cookie_io_functions_t functions = { .write = log_write };
	FILE *stream = fopencookie(NULL, "w", functions);
	if (stream != NULL) {
		setvbuf(stream, NULL, _IOLBF, 512);
		rte_openlog_stream(stream);
	}
	/* Gives EAL descriptor numbers that are not reused while one of its descriptors is temporarily closed: see
	 * zero_copy.c. */
	int reserved[RESERVED_FDS], count = 0;
	for (int next = open("/dev/null", O_RDONLY | O_CLOEXEC); next >= 0 && count < RESERVED_FDS;
	     next = next < RESERVED_FDS - 1 ? fcntl(next, F_DUPFD_CLOEXEC, 0) : -1)
		reserved[count++] = next;
	int result = rte_eal_init(argc, argv);
	while (count > 0)
		close(reserved[--count]);
	if (result >= 0)
		return 0;
	return rte_errno != 0 ? -rte_errno : -EINVAL;
}

int shot_attach(const char *arguments, const char *name, uint16_t *port)
{
	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return -EEXIST;
	pthread_mutex_lock(&gate.control);
	int result = rte_dev_probe(arguments);
	pthread_mutex_unlock(&gate.control);
	if (result < 0)
		return result;
	return rte_eth_dev_get_port_by_name(name, port) == 0 ? 0 : -ENODEV;
}

void shot_detach(uint16_t port)
{
	struct rte_eth_dev_info info;
	pthread_mutex_lock(&gate.control);
	if (rte_eth_dev_info_get(port, &info) == 0)
		rte_dev_remove(info.device);
	pthread_mutex_unlock(&gate.control);
}

int shot_info(uint16_t port, struct shot_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac = { 0 };
	int result = rte_eth_dev_info_get(port, &info);
	if (result != 0)
		return result;
	rte_eth_macaddr_get(port, &mac);
	memset(out, 0, sizeof(*out));
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
	memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	out->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	out->max_mtu = info.max_mtu;
	uint64_t checksums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	out->checksums = (info.rx_offload_capa & checksums) == checksums;
	out->split = split_is_offered(&info);
	out->rss = info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	return 0;
}

static void free_port(struct shot_port *port)
{
	rte_mempool_free(port->receive_pool);
	rte_mempool_free(port->payload_pool);
	rte_mempool_free(port->send_pool);
	free(port->in_flight.mbufs);
	free(port->linear);
	free(port);
}

#define TRY(call, what)                                                                                                \
	do {                                                                                                           \
		*step = (what);                                                                                        \
		*error = (call);                                                                                       \
		if (*error < 0)                                                                                        \
			goto failed;                                                                                   \
	} while (0)

struct shot_port *shot_open(const struct shot_config *config, const char **step, int *error)
{
	static atomic_uint opened;
	struct shot_port *port = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*port), 64));
	*step = "allocating memory";
	*error = -ENOMEM;
	if (port == NULL || config->rx_buffer_bytes > UINT16_MAX - RTE_PKTMBUF_HEADROOM) {
		free(port);
		shot_detach(config->port);
		return NULL;
	}
	memset(port, 0, sizeof(*port));
	port->id = config->port;
	port->queues = config->queues;
	port->gated = config->gated;
	port->gathers = config->gathers;
	port->reconnects = config->reconnects;
	port->zero_copy = config->zero_copy;
	port->direct = config->direct;
	port->split = config->split_header != 0;
	port->is_pci = config->is_pci;
	/* Pages of `linear` are touched only if frames arrive in several buffers. */
	port->linear = malloc((size_t)SHOT_BURST * MAX_FRAME_BYTES);
	unsigned number = atomic_fetch_add(&opened, 1);
	char name[RTE_MEMPOOL_NAMESIZE];
	int socket = rte_eth_dev_socket_id(config->port);
	uint16_t buffer_bytes = config->rx_buffer_bytes + RTE_PKTMBUF_HEADROOM;
	/* zero_copy_recover and direct.c cannot see buffers in a cache. */
	unsigned cache = config->zero_copy || config->direct ? 0 : SHOT_BURST * 2;
	snprintf(name, sizeof(name), "shot_receive_%u", number);
	port->receive_pool = rte_pktmbuf_pool_create_by_ops(name, config->buffers, cache, 0, buffer_bytes, socket,
							    config->direct ? DIRECT_POOL : NULL);
	uint16_t shared = RTE_ALIGN_CEIL(sizeof(struct rte_mbuf_ext_shared_info), RTE_MBUF_PRIV_ALIGN);
	buffer_bytes = config->tx_buffer_bytes + RTE_PKTMBUF_HEADROOM;
	snprintf(name, sizeof(name), "shot_send_%u", number);
	/* Buffers that a device is still reading, and those of the next bursts. */
	uint32_t send_buffers = config->descriptors * (config->gathers ? 1u : config->queues) + 8 * SHOT_BURST;
	port->send_pool = rte_pktmbuf_pool_create(name, send_buffers, SHOT_BURST * 2, shared, buffer_bytes, socket);
	if (port->linear == NULL || port->receive_pool == NULL || port->send_pool == NULL) {
		*step = "allocating buffers";
		*error = rte_errno != 0 ? -rte_errno : -ENOMEM;
		goto failed;
	}
	if (port->direct)
		TRY(direct_open(port), "allocating buffers");
	snprintf(name, sizeof(name), "shot_payload_%u", number);
	if (port->split)
		TRY(split_open(port, config, name, socket), "allocating buffers for payloads");
	if (port->zero_copy)
		TRY(zero_copy_open(port, send_buffers), "sharing its memory with the peer");

	struct rte_eth_dev_info info;
	TRY(rte_eth_dev_info_get(port->id, &info), "querying its capabilities");
	struct rte_eth_conf conf = { .rxmode.mtu = config->mtu };
	conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	if (config->checksums)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	if (config->rss && config->queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	}
	if (port->split)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
	if (config->gathers) /* these drivers accept chains even if they do not report the offload */
		conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	TRY(rte_eth_dev_configure(port->id, port->queues, port->queues, &conf), "configuring its queues");
	uint16_t receive = config->descriptors, send = config->descriptors;
	TRY(rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &receive, &send), "sizing its queues");
	for (uint16_t queue = 0; queue < port->queues; queue++) {
		TRY(port->split ? split_setup_queue(port, config, queue, receive, socket) :
				  rte_eth_rx_queue_setup(port->id, queue, receive, socket, NULL, port->receive_pool),
		    "setting up a receive queue");
		TRY(rte_eth_tx_queue_setup(port->id, queue, send, socket, NULL), "setting up a send queue");
	}
	if (config->mtu != 0) {
		/* Software ports without an MTU accept any frame. */
		int result = rte_eth_dev_set_mtu(port->id, config->mtu);
		TRY(result == -ENOTSUP ? 0 : result, "setting its MTU");
	}
	/* With header split it starts with the first receives: see shot_start. */
	int start = port->split ? 0 : rte_eth_dev_start(port->id);
	TRY(port->reconnects ? 0 : start, "starting it");
	port->started = start == 0 && !port->split;
	port->reconnect_at = port->started ? now_ms() + HANDSHAKE_MS : 0;
	rte_eth_promiscuous_enable(port->id); /* frames for other addresses are counted; not all drivers support it */
	pthread_mutex_lock(&gate.list);
	port->next = gate.ports;
	gate.ports = port;
	pthread_mutex_unlock(&gate.list);
	*step = "monitoring its link";
	*error = gate_build();
	if (*error < 0) {
		shot_close(port);
		return NULL;
	}
	return port;
failed:
	/* A partly started device may hold buffers, so it is stopped before they are freed. */
	rte_eth_dev_stop(port->id);
	shot_detach(port->id);
	free_port(port);
	return NULL;
}

void shot_close(struct shot_port *port)
{
	pthread_mutex_lock(&gate.list);
	for (struct shot_port **at = &gate.ports; *at != NULL; at = &(*at)->next)
		if (*at == port) {
			*at = port->next;
			break;
		}
	pthread_mutex_unlock(&gate.list);
	pthread_mutex_lock(&gate.control);
	rte_pktmbuf_free_bulk(port->held, port->count);
	rte_eth_dev_stop(port->id);
	if (port->zero_copy)
		zero_copy_reclaim(port, true);
	if (port->split)
		split_unmap(port);
	pthread_mutex_unlock(&gate.control);
	shot_detach(port->id);
	free_port(port);
	wait_for_turn();
}

/* --- state --------------------------------------------------------------------------------------- */

bool shot_link_is_up(struct shot_port *port)
{
	return atomic_load_explicit(&port->up, memory_order_relaxed);
}

int shot_stats(struct shot_port *port, struct shot_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port->id, &stats);
	if (result != 0)
		return result;
	*out = (struct shot_stats){
		.missed = stats.imissed,
		.receive_errors = stats.ierrors,
		.no_buffers = stats.rx_nombuf,
		.send_errors = stats.oerrors,
		.link_ups = atomic_load(&port->ups),
		.link_downs = atomic_load(&port->downs),
	};
	return 0;
}

int shot_xstats(struct shot_port *port, char (*names)[64], uint64_t *values, int max)
{
	_Static_assert(RTE_ETH_XSTATS_NAME_SIZE == 64, "shim.h declares names of 64 bytes");
	int count = rte_eth_xstats_get_names(port->id, NULL, 0);
	if (count <= 0 || count > max)
		return count;
	struct rte_eth_xstat *stats = calloc((size_t)count, sizeof(*stats));
	if (stats == NULL)
		return -ENOMEM;
	int read = rte_eth_xstats_get_names(port->id, (struct rte_eth_xstat_name *)names, (unsigned)count);
	if (read == count)
		read = rte_eth_xstats_get(port->id, stats, (unsigned)count);
	for (int index = 0; read == count && index < count; index++)
		values[stats[index].id] = stats[index].value;
	free(stats);
	return read == count ? count : -EIO;
}
