/* The thin layer over DPDK: see shim.h. */

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

/* Milliseconds in which a memif must have met its other side. Long: a driver whose client gives up before it is greeted
 * frees what it still uses. */
#define GREETING_MS 5000
/* Milliseconds between two attempts while nobody listens. */
#define REDIAL_MS 8
/* Descriptors below this are the program's: EAL's are above. */
#define DESCRIPTORS 256

/* --- log ----------------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	size_t len;
	char text[8192];
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Keeps the newest text. */
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

/* A thread that DPDK knows has caches of its own in every pool. It must be forgotten when it ends. */
static pthread_key_t leaving;
static pthread_once_t leaving_once = PTHREAD_ONCE_INIT;

static void leave(void *known)
{
	(void)known;
	rte_thread_unregister();
}

static void make_key(void)
{
	pthread_key_create(&leaving, leave);
}

void shot_join(void)
{
	static _Thread_local bool tried;
	if (rte_lcore_id() != LCORE_ID_ANY || tried)
		return;
	tried = true; /* with more threads than it knows, DPDK works without caches */
	pthread_once(&leaving_once, make_key);
	if (rte_thread_register() == 0)
		pthread_setspecific(leaving, &leaving);
}

/* --- the door ------------------------------------------------------------------------------------ */

/* When a memif peer goes away, the driver unmaps the memory that both share, in EAL's interrupt thread, whatever
 * other threads are doing with it: a receiver whose sender is killed would read what is no more. So that thread
 * spends its time in a callback of ours and bursts are taken only meanwhile. It leaves every few milliseconds, after
 * the burst under way, does its work, and comes back at once, because the callback's descriptor is always readable. */
static struct {
	pthread_mutex_t control; /* held by the interrupt thread whenever it is not in the callback */
	pthread_mutex_t list;
	struct shot_port *ports;
	struct rte_intr_handle *handle;
	bool held;
} door = { .control = PTHREAD_MUTEX_INITIALIZER, .list = PTHREAD_MUTEX_INITIALIZER };

atomic_bool shot_door_open;

/* Calls of the door so far: one for each time that DPDK's thread asks for events. */
static atomic_uint door_turns;

/* Waits until that thread has asked anew: an event of a socket that was closed meanwhile may be among those it is busy with,
 * and the next socket gets the number. */
static void next_turn(void)
{
	unsigned turn = atomic_load(&door_turns);
	struct timespec nap = { .tv_nsec = 500 * 1000 };
	while (door.handle != NULL && atomic_load(&door_turns) == turn)
		nanosleep(&nap, NULL);
}

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Where no burst is under way. */
static void note_link(struct shot_port *port)
{
	struct rte_eth_link link = { 0 };
	bool up = rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
	if (up != atomic_exchange(&port->up, up)) {
		atomic_fetch_add(up ? &port->ups : &port->downs, 1);
		port->dial_at = 0;
		if (port->lends && up)
			lend_ready();
		if (port->lends && !up) {
			lend_take_back(port, true);
			lend_recover(port);
		}
	}
}

/* Looks for the other side again: started without it, or it has gone away. Where no burst is under way.
 *
 * In two calls, so that DPDK's thread asks for events anew in between: stopping closes a socket, starting opens one, which
 * gets the same number, and an event of the old one that came along with this call would have the driver receive from the
 * new one, and wait there for a server that is in no hurry. */
static void dial(struct shot_port *port)
{
	if (now_ms() < port->dial_at)
		return;
	if (!port->halted) {
		port->started = false;
		port->halted = true;
		rte_eth_dev_stop(port->id);
		return;
	}
	port->halted = false;
	port->started = (!port->lends || lend_ready()) && rte_eth_dev_start(port->id) == 0;
	port->dial_at = now_ms() + (port->started ? GREETING_MS : REDIAL_MS);
}

static void door_callback(void *unused)
{
	(void)unused;
	bool all_up = true;
	atomic_fetch_add(&door_turns, 1);
	pthread_mutex_lock(&door.list);
	for (struct shot_port *port = door.ports; port != NULL; port = port->next) {
		note_link(port);
		all_up = all_up && atomic_load(&port->up);
	}
	pthread_mutex_unlock(&door.list);
	if (door.held)
		pthread_mutex_unlock(&door.control);
	atomic_store(&shot_door_open, true);
	/* A link is made in some steps, each of which waits for this thread. */
	struct timespec stay = { .tv_nsec = all_up ? 10 * 1000 * 1000 : 500 * 1000 };
	nanosleep(&stay, NULL);
	pthread_mutex_lock(&door.control);
	door.held = true;
	atomic_store(&shot_door_open, false);
	pthread_mutex_lock(&door.list);
	for (struct shot_port *port = door.ports; port != NULL; port = port->next) {
		while (atomic_load(&port->busy))
			sched_yield();
		if (port->dials && !atomic_load(&port->up))
			dial(port);
	}
	pthread_mutex_unlock(&door.list);
}

static int door_build(void)
{
	if (door.handle != NULL)
		return 0;
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	if (handle == NULL || fd < 0)
		return -ENOMEM;
	rte_intr_fd_set(handle, fd);
	rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT);
	int result = rte_intr_callback_register(handle, door_callback, NULL);
	if (result >= 0) {
		door.handle = handle;
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
	/* EAL's descriptors get numbers that nothing else has while one of them is closed for a moment: see lend.c. */
	int taken[DESCRIPTORS], count = 0;
	for (int next = open("/dev/null", O_RDONLY | O_CLOEXEC); next >= 0 && count < DESCRIPTORS;
	     next = next < DESCRIPTORS - 1 ? fcntl(next, F_DUPFD_CLOEXEC, 0) : -1)
		taken[count++] = next;
	int result = rte_eal_init(argc, argv);
	while (count > 0)
		close(taken[--count]);
	if (result >= 0)
		return 0;
	return rte_errno != 0 ? -rte_errno : -EINVAL;
}

int shot_attach(const char *arguments, const char *name, uint16_t *port)
{
	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return -EEXIST;
	pthread_mutex_lock(&door.control);
	int result = rte_dev_probe(arguments);
	pthread_mutex_unlock(&door.control);
	if (result < 0)
		return result;
	return rte_eth_dev_get_port_by_name(name, port) == 0 ? 0 : -ENODEV;
}

void shot_detach(uint16_t port)
{
	struct rte_eth_dev_info info;
	pthread_mutex_lock(&door.control);
	if (rte_eth_dev_info_get(port, &info) == 0)
		rte_dev_remove(info.device);
	pthread_mutex_unlock(&door.control);
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
	out->spreads = info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	return 0;
}

static void free_port(struct shot_port *port)
{
	rte_mempool_free(port->receive_pool);
	rte_mempool_free(port->send_pool);
	free(port->lent.mbufs);
	free(port->joined);
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
	*step = "taking memory";
	*error = -ENOMEM;
	if (port == NULL || config->receive_room > UINT16_MAX - RTE_PKTMBUF_HEADROOM) {
		free(port);
		shot_detach(config->port);
		return NULL;
	}
	memset(port, 0, sizeof(*port));
	port->id = config->port;
	port->queues = config->queues;
	port->guarded = config->guarded;
	port->gathers = config->gathers;
	port->dials = config->dials;
	port->lends = config->lends;
	port->places = config->places;
	/* Pages are touched only where frames come in several buffers. */
	port->joined = malloc((size_t)SHOT_BURST * MOST_BYTES);
	unsigned number = atomic_fetch_add(&opened, 1);
	char name[RTE_MEMPOOL_NAMESIZE];
	int socket = rte_eth_dev_socket_id(config->port);
	uint16_t room = config->receive_room + RTE_PKTMBUF_HEADROOM;
	/* Neither lend_recover nor place.c sees what is in a cache. */
	unsigned cache = config->lends || config->places ? 0 : SHOT_BURST * 2;
	snprintf(name, sizeof(name), "shot_receive_%u", number);
	port->receive_pool = rte_pktmbuf_pool_create_by_ops(name, config->buffers, cache, 0, room, socket,
							    config->places ? PLACE_POOL : NULL);
	uint16_t shared = RTE_ALIGN_CEIL(sizeof(struct rte_mbuf_ext_shared_info), RTE_MBUF_PRIV_ALIGN);
	room = config->send_room + RTE_PKTMBUF_HEADROOM;
	snprintf(name, sizeof(name), "shot_send_%u", number);
	/* Buffers that a device still reads from, and those of the next bursts. */
	uint32_t send_buffers = config->descriptors * (config->gathers ? 1u : config->queues) + 8 * SHOT_BURST;
	port->send_pool = rte_pktmbuf_pool_create(name, send_buffers, SHOT_BURST * 2, shared, room, socket);
	if (port->joined == NULL || port->receive_pool == NULL || port->send_pool == NULL) {
		*step = "taking buffers";
		*error = rte_errno != 0 ? -rte_errno : -ENOMEM;
		goto failed;
	}
	if (port->places)
		TRY(place_open(port), "taking buffers");
	if (port->lends)
		TRY(lend_open(port, send_buffers), "lending its memory");

	struct rte_eth_dev_info info;
	TRY(rte_eth_dev_info_get(port->id, &info), "asking what it can do");
	struct rte_eth_conf conf = { .rxmode.mtu = config->mtu };
	conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	if (config->checksums)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	if (config->spreads && config->queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	}
	if (config->gathers) /* the drivers it is said of take chains, whether or not they name the offload */
		conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	TRY(rte_eth_dev_configure(port->id, port->queues, port->queues, &conf), "configuring its queues");
	uint16_t receive = config->descriptors, send = config->descriptors;
	TRY(rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &receive, &send), "sizing its queues");
	for (uint16_t queue = 0; queue < port->queues; queue++) {
		TRY(rte_eth_rx_queue_setup(port->id, queue, receive, socket, NULL, port->receive_pool),
		    "setting up a receive queue");
		TRY(rte_eth_tx_queue_setup(port->id, queue, send, socket, NULL), "setting up a send queue");
	}
	if (config->mtu != 0) {
		/* Software ports that have no notion of it take any frame. */
		int result = rte_eth_dev_set_mtu(port->id, config->mtu);
		TRY(result == -ENOTSUP ? 0 : result, "setting its MTU");
	}
	int start = rte_eth_dev_start(port->id);
	TRY(port->dials ? 0 : start, "starting it");
	port->started = start == 0;
	port->dial_at = port->started ? now_ms() + GREETING_MS : 0;
	rte_eth_promiscuous_enable(port->id); /* what is not ours is counted; a driver that cannot is as good */
	pthread_mutex_lock(&door.list);
	port->next = door.ports;
	door.ports = port;
	pthread_mutex_unlock(&door.list);
	*step = "watching its link";
	*error = door_build();
	if (*error < 0) {
		shot_close(port);
		return NULL;
	}
	return port;
failed:
	/* A device that began to start may hold buffers: it goes before they do. */
	rte_eth_dev_stop(port->id);
	shot_detach(port->id);
	free_port(port);
	return NULL;
}

void shot_close(struct shot_port *port)
{
	pthread_mutex_lock(&door.list);
	for (struct shot_port **at = &door.ports; *at != NULL; at = &(*at)->next)
		if (*at == port) {
			*at = port->next;
			break;
		}
	pthread_mutex_unlock(&door.list);
	pthread_mutex_lock(&door.control);
	rte_pktmbuf_free_bulk(port->held, port->count);
	rte_eth_dev_stop(port->id);
	if (port->lends)
		lend_take_back(port, true);
	pthread_mutex_unlock(&door.control);
	shot_detach(port->id);
	free_port(port);
	next_turn();
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

int shot_xstats(struct shot_port *port, char (*names)[64], uint64_t *values, int most)
{
	_Static_assert(RTE_ETH_XSTATS_NAME_SIZE == 64, "shim.h says so");
	int count = rte_eth_xstats_get_names(port->id, NULL, 0);
	if (count <= 0 || count > most)
		return count;
	struct rte_eth_xstat *stats = calloc((size_t)count, sizeof(*stats));
	if (stats == NULL)
		return -ENOMEM;
	int got = rte_eth_xstats_get_names(port->id, (struct rte_eth_xstat_name *)names, (unsigned)count);
	if (got == count)
		got = rte_eth_xstats_get(port->id, stats, (unsigned)count);
	for (int index = 0; got == count && index < count; index++)
		values[stats[index].id] = stats[index].value;
	free(stats);
	return got == count ? count : -EIO;
}
