/* The thin layer over DPDK: see shim.h. */

#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API /* rte_intr_instance_alloc and its setters */
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
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
#include <rte_mbuf.h>
#include <rte_pause.h>

/* Tries of one send while the driver has no room: some ten microseconds, in which a peer frees a ring's part. */
#define TRIES 512
/* Milliseconds in which a memif must have met its other side. Long: a driver whose client gives up before it is greeted
 * frees what it still uses. */
#define GREETING_MS 1000
/* Milliseconds between two attempts while nobody listens. */
#define REDIAL_MS 8
/* Times that a burst gives way to the interrupt thread. */
#define YIELDS 256
/* The longest packet there is, with its frame. */
#define MOST_BYTES 65568

struct shot_port {
	uint16_t id, queues;
	bool guarded, gathers, dials;
	bool started; /* changes only where no burst is under way */
	uint64_t dial_at; /* when to look for the other side again, in ms of the monotonic clock */
	uint16_t count; /* of held */
	struct rte_mbuf *held[SHOT_BURST];
	struct rte_mempool *receive_pool, *send_pool;
	uint8_t *joined; /* where frames of several buffers are put together */
	struct shot_port *next;
	atomic_bool up;
	atomic_ullong ups, downs;
	alignas(64) atomic_bool busy; /* a burst is under way */
};

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

static void join(void)
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
	atomic_bool open;
	bool held;
} door = { .control = PTHREAD_MUTEX_INITIALIZER, .list = PTHREAD_MUTEX_INITIALIZER };

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void note_link(struct shot_port *port)
{
	struct rte_eth_link link = { 0 };
	bool up = rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
	if (up != atomic_exchange(&port->up, up)) {
		atomic_fetch_add(up ? &port->ups : &port->downs, 1);
		port->dial_at = 0;
	}
}

/* Looks for the other side again: started without it, or it has gone away. Where no burst is under way. */
static void dial(struct shot_port *port)
{
	if (now_ms() < port->dial_at)
		return;
	rte_eth_dev_stop(port->id);
	port->started = rte_eth_dev_start(port->id) == 0;
	port->dial_at = now_ms() + (port->started ? GREETING_MS : REDIAL_MS);
}

static void door_callback(void *unused)
{
	(void)unused;
	bool all_up = true;
	pthread_mutex_lock(&door.list);
	for (struct shot_port *port = door.ports; port != NULL; port = port->next) {
		note_link(port);
		all_up = all_up && atomic_load(&port->up);
	}
	pthread_mutex_unlock(&door.list);
	if (door.held)
		pthread_mutex_unlock(&door.control);
	atomic_store(&door.open, true);
	/* A link is made in some steps, each of which waits for this thread. */
	struct timespec stay = { .tv_nsec = all_up ? 10 * 1000 * 1000 : 500 * 1000 };
	nanosleep(&stay, NULL);
	pthread_mutex_lock(&door.control);
	door.held = true;
	atomic_store(&door.open, false);
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

/* Whether a burst may be taken now. If so, leave_port follows it. While the interrupt thread is at work, it has this
 * processor if it needs it; that takes microseconds, unless a port is just being opened or closed. */
static inline bool enter_port(struct shot_port *port)
{
	if (!port->guarded)
		return true;
	for (int yields = 0; !atomic_load_explicit(&door.open, memory_order_relaxed); yields++) {
		if (yields == YIELDS)
			return false;
		sched_yield();
	}
	atomic_store(&port->busy, true);
	if (atomic_load(&door.open) && port->started)
		return true;
	atomic_store_explicit(&port->busy, false, memory_order_release);
	return false;
}

static inline void leave_port(struct shot_port *port)
{
	if (port->guarded)
		atomic_store_explicit(&port->busy, false, memory_order_release);
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
	if (rte_eal_init(argc, argv) >= 0)
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
	/* Pages are touched only where frames come in several buffers. */
	port->joined = malloc((size_t)SHOT_BURST * MOST_BYTES);
	unsigned number = atomic_fetch_add(&opened, 1);
	char name[RTE_MEMPOOL_NAMESIZE];
	int socket = rte_eth_dev_socket_id(config->port);
	uint16_t room = config->receive_room + RTE_PKTMBUF_HEADROOM;
	snprintf(name, sizeof(name), "shot_receive_%u", number);
	port->receive_pool = rte_pktmbuf_pool_create(name, config->buffers, SHOT_BURST * 2, 0, room, socket);
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
	pthread_mutex_unlock(&door.control);
	shot_detach(port->id);
	free_port(port);
}

/* --- bursts -------------------------------------------------------------------------------------- */

uint16_t shot_receive(struct shot_port *port, uint16_t queue, struct shot_frame *frames)
{
	join();
	if (port->count > 0)
		rte_pktmbuf_free_bulk(port->held, port->count);
	port->count = 0;
	if (!enter_port(port))
		return 0;
	uint16_t count = rte_eth_rx_burst(port->id, queue, port->held, SHOT_BURST);
	leave_port(port);
	port->count = count;
	for (uint16_t index = 0; index < count; index++) {
		struct rte_mbuf *mbuf = port->held[index];
		struct shot_frame *frame = &frames[index];
		uint64_t l4 = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
		uint64_t l3 = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
		frame->faults = l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD || l3 == RTE_MBUF_F_RX_IP_CKSUM_BAD ? SHOT_BAD_CHECKSUM : 0;
		frame->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
		frame->len = mbuf->pkt_len;
		if (mbuf->nb_segs == 1)
			continue;
		if (frame->len > MOST_BYTES) {
			frame->faults |= SHOT_TOO_LONG;
			frame->len = mbuf->data_len;
			continue;
		}
		frame->data = rte_pktmbuf_read(mbuf, 0, frame->len, port->joined + (size_t)index * MOST_BYTES);
		if (frame->data == NULL) { /* the driver's sum is not that of its pieces */
			frame->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
			frame->len = mbuf->data_len;
			frame->faults |= SHOT_TOO_LONG;
		}
	}
	return count;
}

static void nothing(void *memory, void *opaque)
{
	(void)memory;
	(void)opaque;
}

/* A buffer whose bytes are the caller's own memory. Its driver has copied them before the burst returns. */
static struct rte_mbuf *around(struct rte_mempool *pool, const struct shot_piece *piece)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	if (mbuf == NULL)
		return NULL;
	struct rte_mbuf_ext_shared_info *shared = rte_mbuf_to_priv(mbuf);
	shared->free_cb = nothing;
	rte_mbuf_ext_refcnt_set(shared, 1);
	rte_pktmbuf_attach_extbuf(mbuf, (void *)(uintptr_t)piece->data, RTE_BAD_IOVA, (uint16_t)piece->len, shared);
	mbuf->data_off = 0;
	mbuf->data_len = mbuf->pkt_len = piece->len;
	return mbuf;
}

/* A frame of these pieces; none without buffers, or if it does not fit the driver. */
static struct rte_mbuf *build(struct shot_port *port, const struct shot_piece *piece, const struct shot_piece *end)
{
	struct rte_mbuf *head = NULL;
	for (; piece < end; piece++) {
		bool lies = port->gathers && piece->stays;
		char *to = head != NULL && !lies ? rte_pktmbuf_append(head, (uint16_t)piece->len) : NULL;
		if (to == NULL) {
			struct rte_mbuf *next = lies ? around(port->send_pool, piece) : rte_pktmbuf_alloc(port->send_pool);
			if (next == NULL)
				goto failed;
			if (!lies && (to = rte_pktmbuf_append(next, (uint16_t)piece->len)) == NULL) {
				rte_pktmbuf_free(next);
				goto failed;
			}
			if (head == NULL) {
				head = next;
			} else if (!port->gathers || rte_pktmbuf_chain(head, next) != 0) {
				rte_pktmbuf_free(next);
				goto failed;
			}
		}
		if (to != NULL)
			memcpy(to, piece->data, piece->len);
	}
	return head;
failed:
	rte_pktmbuf_free(head);
	return NULL;
}

uint16_t shot_send(struct shot_port *port, const struct shot_piece *pieces, const uint32_t *ends, uint16_t frames)
{
	join();
	struct rte_mbuf *mbufs[SHOT_BURST];
	uint16_t made = 0, sent = 0;
	uint32_t begin = 0;
	for (; made < frames && made < SHOT_BURST; made++) {
		mbufs[made] = build(port, pieces + begin, pieces + ends[made]);
		if (mbufs[made] == NULL)
			break;
		begin = ends[made];
	}
	for (int tries = 0; sent < made && tries < TRIES; tries++) {
		if (enter_port(port)) {
			uint16_t took = rte_eth_tx_burst(port->id, 0, mbufs + sent, made - sent);
			leave_port(port);
			sent += took;
			if (took > 0)
				tries = 0;
		}
		if (sent < made)
			rte_pause();
	}
	if (sent < made)
		rte_pktmbuf_free_bulk(mbufs + sent, made - sent);
	return sent;
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
