/* The operations of the port as a whole. */

#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_ether.h>
#include <rte_malloc.h>

RTE_LOG_REGISTER(shotline_log_type, pmd.net.shotline, NOTICE);

/* Bytes of a frame besides the MTU: the Ethernet header with two VLAN tags, and the FCS. */
#define FRAME_OVERHEAD (RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN + RTE_ETHER_CRC_LEN)

static int get_info(struct rte_eth_dev *device, struct rte_eth_dev_info *info)
{
	const struct shotline_port *port = shotline_port(device);
	info->max_rx_queues = port->channels;
	/* The card only receives; a simulated one sends what software puts into rings. */
	info->max_tx_queues = port->bus.is_window ? SHOTLINE_SEND_QUEUES : 0;
	info->max_mac_addrs = 1;
	info->min_rx_bufsize = 64;
	info->max_rx_pktlen = SHOTLINE_MAX_FRAME;
	info->min_mtu = RTE_ETHER_MIN_MTU;
	info->max_mtu = SHOTLINE_MAX_FRAME - FRAME_OVERHEAD;
	info->speed_capa = RTE_ETH_LINK_SPEED_100G;
	info->rx_offload_capa = RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_RSS_HASH | RTE_ETH_RX_OFFLOAD_TIMESTAMP |
				RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
	info->rx_queue_offload_capa = RTE_ETH_RX_OFFLOAD_TIMESTAMP | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
	info->rx_seg_capa = (struct rte_eth_rxseg_capa){
		.multi_pools = 1, .offset_allowed = 1, .offset_align_log2 = 3, .max_nseg = 2,
	};
	info->tx_offload_capa = port->bus.is_window ? RTE_ETH_TX_OFFLOAD_MULTI_SEGS : 0;
	info->rx_desc_lim = (struct rte_eth_desc_lim){
		.nb_max = SHOTLINE_MAX_RING, .nb_min = SHOTLINE_MIN_RING, .nb_align = SHOTLINE_GROUP,
	};
	info->tx_desc_lim = (struct rte_eth_desc_lim){
		.nb_max = SHOTLINE_SEND_ENTRIES, .nb_min = 1, .nb_align = 1,
	};
	info->default_rxportconf = (struct rte_eth_dev_portconf){ .burst_size = 32, .ring_size = 512, .nb_queues = 1 };
	info->default_txportconf =
		(struct rte_eth_dev_portconf){ .burst_size = 32, .ring_size = SHOTLINE_SEND_ENTRIES, .nb_queues = 1 };
	info->reta_size = shotline_table_size(port);
	info->hash_key_size = sizeof(port->key);
	info->flow_type_rss_offloads = SHOTLINE_HASHES;
	info->dev_capa = 0;
	return 0;
}

static const uint32_t *get_packet_types(struct rte_eth_dev *device)
{
	static const uint32_t types[] = { RTE_PTYPE_L2_ETHER, RTE_PTYPE_L2_ETHER_VLAN, RTE_PTYPE_L3_IPV4_EXT_UNKNOWN,
					  RTE_PTYPE_L3_IPV6_EXT_UNKNOWN, RTE_PTYPE_UNKNOWN };
	(void)device;
	return types;
}

static int get_firmware(struct rte_eth_dev *device, char *text, size_t size)
{
	struct shotline_bus *bus = &shotline_port(device)->bus;
	int length = snprintf(text, size, "registers %u%s", shotline_read(bus, SHOTLINE_CARD_VERSION),
			      bus->is_window ? ", simulated" : "");
	return length < 0 ? -EINVAL : (size_t)length >= size ? length + 1 : 0;
}

static int update_link(struct rte_eth_dev *device, int wait)
{
	struct shotline_bus *bus = &shotline_port(device)->bus;
	(void)wait;
	bool is_up = device->data->dev_started && !atomic_load(&bus->gone);
	struct rte_eth_link link = {
		.link_speed = is_up ? RTE_ETH_SPEED_NUM_100G : RTE_ETH_SPEED_NUM_NONE,
		.link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
		.link_autoneg = RTE_ETH_LINK_FIXED,
		.link_status = is_up ? RTE_ETH_LINK_UP : RTE_ETH_LINK_DOWN,
	};
	return rte_eth_linkstatus_set(device, &link);
}

static int is_removed(struct rte_eth_dev *device)
{
	return atomic_load(&shotline_port(device)->bus.gone);
}

/* The card has no filter of addresses: it is always promiscuous. */
static int accept_all(struct rte_eth_dev *device)
{
	(void)device;
	return 0;
}

static int refuse_filter(struct rte_eth_dev *device)
{
	(void)device;
	return -ENOTSUP;
}

static int set_address(struct rte_eth_dev *device, struct rte_ether_addr *address)
{
	(void)device;
	(void)address; /* ethdev stores it */
	return 0;
}

/* --- configuration --------------------------------------------------------------------------------- */

static int configure(struct rte_eth_dev *device)
{
	const struct rte_eth_conf *conf = &device->data->dev_conf;
	if (conf->rxmode.mq_mode & ~RTE_ETH_MQ_RX_RSS_FLAG) {
		LOG(ERR, "expected receive queues by RSS, found mode %#x", conf->rxmode.mq_mode);
		return -EINVAL;
	}
	return shotline_rss_configure(device);
}

/* Checks that the frames of an MTU fit into the buffers, or may be scattered. */
static int check_mtu(struct rte_eth_dev *device, uint16_t mtu)
{
	const struct rte_eth_rxmode *mode = &device->data->dev_conf.rxmode;
	uint32_t bytes = mtu + RTE_ETHER_HDR_LEN;
	bool is_scattered = false;
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		const struct shotline_receive_queue *queue = device->data->rx_queues[number];
		if (queue != NULL && !shotline_fits(queue, bytes)) {
			is_scattered = true;
			if (!(mode->offloads & RTE_ETH_RX_OFFLOAD_SCATTER)) {
				LOG(ERR, "queue %u: a frame of %u bytes (MTU %u) does not fit into a buffer of %u: enable "
					 "scattered packets (RTE_ETH_RX_OFFLOAD_SCATTER), or use a pool with larger buffers",
				    number, bytes, mtu, queue->data_room);
				return -EINVAL;
			}
		}
	}
	device->data->scattered_rx = is_scattered;
	return 0;
}

static int write_mtu(struct rte_eth_dev *device, uint16_t mtu)
{
	return shotline_write(&shotline_port(device)->bus, SHOTLINE_DISTRIBUTOR_MAX_LENGTH, mtu + FRAME_OVERHEAD);
}

/* Longer frames are counted as giants. */
static int set_mtu(struct rte_eth_dev *device, uint16_t mtu)
{
	int result = device->data->dev_started ? check_mtu(device, mtu) : 0;
	return result != 0 ? result : write_mtu(device, mtu);
}

/* --- start and stop -------------------------------------------------------------------------------- */

/* Chooses where the card writes in all buffers. */
static int choose_layout(struct rte_eth_dev *device)
{
	struct shotline_bus *bus = &shotline_port(device)->bus;
	uint16_t padding = 0;
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		const struct shotline_receive_queue *queue = device->data->rx_queues[number];
		if (queue->header_length % SHOTLINE_BLOCK != 0)
			padding = SHOTLINE_PADDING;
	}
	int result = shotline_write(bus, SHOTLINE_DISTRIBUTOR_PAD, padding != 0 ? SHOTLINE_DISTRIBUTOR_PAD_ENABLE : 0);
	for (uint16_t number = 0; number < device->data->nb_rx_queues && result == 0; number++)
		result = shotline_receive_queue_layout(device->data->rx_queues[number], padding);
	return result;
}

static bool is_split(struct rte_eth_dev *device)
{
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		const struct shotline_receive_queue *queue = device->data->rx_queues[number];
		if (queue->header != 0)
			return true;
	}
	return false;
}

/* Stops the first queues. */
static void stop_queues(struct rte_eth_dev *device, uint16_t count)
{
	for (uint16_t number = 0; number < count; number++)
		if (device->data->rx_queue_state[number] != RTE_ETH_QUEUE_STATE_STOPPED)
			shotline_receive_queue_stop(device, number);
}

static int start(struct rte_eth_dev *device)
{
	int result = choose_layout(device);
	if (result == 0)
		result = check_mtu(device, device->data->mtu);
	if (result == 0)
		result = write_mtu(device, device->data->mtu);
	if (result == 0)
		result = shotline_interrupts_start(device);
	if (result != 0)
		return result;
	device->rx_pkt_burst = is_split(device) ? shotline_receive_split : shotline_receive;
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		const struct shotline_receive_queue *queue = device->data->rx_queues[number];
		result = queue->is_deferred ? 0 : shotline_receive_queue_start(device, number);
		if (result != 0) {
			stop_queues(device, number);
			shotline_interrupts_stop(device);
			return result;
		}
	}
	for (uint16_t number = 0; number < device->data->nb_tx_queues; number++)
		device->data->tx_queue_state[number] = RTE_ETH_QUEUE_STATE_STARTED;
	device->data->dev_started = 1;
	update_link(device, 0);
	return 0;
}

static int stop(struct rte_eth_dev *device)
{
	stop_queues(device, device->data->nb_rx_queues);
	for (uint16_t number = 0; number < device->data->nb_tx_queues; number++) {
		shotline_send_queue_drain(device->data->tx_queues[number]);
		device->data->tx_queue_state[number] = RTE_ETH_QUEUE_STATE_STOPPED;
	}
	shotline_interrupts_stop(device);
	device->data->dev_started = 0;
	update_link(device, 0);
	return 0;
}

int shotline_close(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	if (device->data->dev_started)
		stop(device);
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++)
		shotline_receive_queue_release(device, number);
	for (uint16_t number = 0; number < device->data->nb_tx_queues; number++)
		shotline_send_queue_release(device, number);
	if (port->bus.socket >= 0)
		shotline_disconnect(port);
	return 0;
}

const struct eth_dev_ops shotline_operations = {
	.dev_configure = configure,
	.dev_start = start,
	.dev_stop = stop,
	.dev_close = shotline_close,
	.dev_infos_get = get_info,
	.dev_supported_ptypes_get = get_packet_types,
	.fw_version_get = get_firmware,
	.link_update = update_link,
	.is_removed = is_removed,
	.promiscuous_enable = accept_all,
	.promiscuous_disable = refuse_filter,
	.allmulticast_enable = accept_all,
	.allmulticast_disable = refuse_filter,
	.mac_addr_set = set_address,
	.mtu_set = set_mtu,
	.rx_queue_setup = shotline_receive_queue_setup,
	.rx_queue_release = shotline_receive_queue_release,
	.rx_queue_start = shotline_receive_queue_start,
	.rx_queue_stop = shotline_receive_queue_stop,
	.rx_queue_intr_enable = shotline_interrupt_enable,
	.rx_queue_intr_disable = shotline_interrupt_disable,
	.rxq_info_get = shotline_receive_queue_info,
	.tx_queue_setup = shotline_send_queue_setup,
	.tx_queue_release = shotline_send_queue_release,
	.reta_update = shotline_table_update,
	.reta_query = shotline_table_query,
	.rss_hash_update = shotline_hash_update,
	.rss_hash_conf_get = shotline_hash_get,
	.stats_get = shotline_stats_get,
	.stats_reset = shotline_stats_reset,
	.xstats_get = shotline_xstats_get,
	.xstats_reset = shotline_stats_reset,
	.xstats_get_names = shotline_xstats_names,
};

/* Checks that this is a card, and stops channels that a killed application may have left running. */
static int identify(struct shotline_port *port)
{
	struct shotline_bus *bus = &port->bus;
	uint32_t id = shotline_read(bus, SHOTLINE_CARD_ID), version = shotline_read(bus, SHOTLINE_CARD_VERSION);
	if (id != SHOTLINE_CARD_ID_RESET || version != SHOTLINE_CARD_VERSION_RESET) {
		LOG(ERR, "expected a card with id %#x and registers of version %u, found %#x and %u",
		    SHOTLINE_CARD_ID_RESET, SHOTLINE_CARD_VERSION_RESET, id, version);
		return -ENODEV;
	}
	uint32_t parameters = shotline_read(bus, SHOTLINE_CARD_PARAMETERS);
	uint32_t distributor = shotline_read(bus, SHOTLINE_DISTRIBUTOR_PARAMETERS);
	port->channels = 1u << (parameters & SHOTLINE_CARD_PARAMETERS_CHANNELS_LOG2);
	port->table_entries = 1u << (distributor & SHOTLINE_DISTRIBUTOR_PARAMETERS_TABLE_LOG2);
	if (port->channels > SHOTLINE_MAX_CHANNELS)
		return -ENODEV;
	uint16_t addresses[SHOTLINE_MAX_CHANNELS];
	uint32_t states[SHOTLINE_MAX_CHANNELS];
	for (unsigned channel = 0; channel < port->channels; channel++)
		addresses[channel] = shotline_channel(SHOTLINE_CHANNEL_STATE, channel);
	shotline_read_many(bus, addresses, states, port->channels);
	int result = 0;
	for (unsigned channel = 0; channel < port->channels && result == 0; channel++)
		if (states[channel] & SHOTLINE_CHANNEL_STATE_STATE)
			result = shotline_channel_stop(bus, channel);
	return result;
}

int shotline_port_init(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	port->device = device;
	int result = identify(port);
	if (result != 0)
		return result;
	/* The card has no address of its own. */
	device->data->mac_addrs = rte_zmalloc("shotline", sizeof(struct rte_ether_addr), 0);
	if (device->data->mac_addrs == NULL)
		return -ENOMEM;
	rte_eth_random_addr(device->data->mac_addrs->addr_bytes);
	device->dev_ops = &shotline_operations;
	device->rx_pkt_burst = shotline_receive;
	device->tx_pkt_burst = shotline_send;
	device->rx_queue_count = shotline_receive_queue_count;
	device->rx_descriptor_status = shotline_receive_descriptor_status;
	return 0;
}
