/* The table that distributes frames to channels, and the key of its Toeplitz hash. */

#include "driver.h"

#include <errno.h>
#include <string.h>

/* Key of Microsoft's verification suite for receive side scaling, as other drivers have it. */
static const uint8_t default_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

uint16_t shotline_table_size(const struct shotline_port *port)
{
	return RTE_MIN(port->table_entries, (unsigned)RTE_ETH_RSS_RETA_SIZE_512);
}

static uint16_t *entry(struct rte_eth_rss_reta_entry64 *table, unsigned index)
{
	return &table[index / RTE_ETH_RETA_GROUP_SIZE].reta[index % RTE_ETH_RETA_GROUP_SIZE];
}

/* Writes an entry, and those of a longer table of the card that repeat it. */
static int write_entry(struct shotline_port *port, unsigned index)
{
	uint32_t channel = *entry(port->table, index);
	for (; index < port->table_entries; index += shotline_table_size(port)) {
		int result = shotline_write(&port->bus, SHOTLINE_DISTRIBUTOR_TABLE,
					    index | channel << SHOTLINE_DISTRIBUTOR_TABLE_CHANNEL_LSB);
		if (result != 0)
			return result;
	}
	return 0;
}

static int write_key(struct shotline_port *port)
{
	for (unsigned word = 0; word < sizeof(port->key) / 4; word++) {
		uint32_t value;
		memcpy(&value, port->key + 4 * word, 4);
		int result = shotline_write(&port->bus, SHOTLINE_DISTRIBUTOR_KEY + 4 * word, rte_cpu_to_le_32(value));
		if (result != 0)
			return result;
	}
	return 0;
}

int shotline_rss_configure(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	const struct rte_eth_conf *conf = &device->data->dev_conf;
	const struct rte_eth_rss_conf *rss = &conf->rx_adv_conf.rss_conf;
	unsigned queues = conf->rxmode.mq_mode & RTE_ETH_MQ_RX_RSS_FLAG ? RTE_MAX(device->data->nb_rx_queues, 1) : 1;
	for (unsigned index = 0; index < shotline_table_size(port); index++)
		*entry(port->table, index) = index % queues;
	bool has_key = rss->rss_key != NULL && rss->rss_key_len == sizeof(port->key);
	memcpy(port->key, has_key ? rss->rss_key : default_key, sizeof(port->key));
	int result = write_key(port);
	for (unsigned index = 0; index < shotline_table_size(port) && result == 0; index++)
		result = write_entry(port, index);
	return result;
}

int shotline_table_update(struct rte_eth_dev *device, struct rte_eth_rss_reta_entry64 *conf, uint16_t entries)
{
	struct shotline_port *port = shotline_port(device);
	if (entries != shotline_table_size(port))
		return -EINVAL;
	for (unsigned index = 0; index < entries; index++) {
		const struct rte_eth_rss_reta_entry64 *group = &conf[index / RTE_ETH_RETA_GROUP_SIZE];
		if (!(group->mask >> index % RTE_ETH_RETA_GROUP_SIZE & 1))
			continue;
		if (*entry(conf, index) >= device->data->nb_rx_queues)
			return -EINVAL;
		*entry(port->table, index) = *entry(conf, index);
		int result = write_entry(port, index);
		if (result != 0)
			return result;
	}
	return 0;
}

int shotline_table_query(struct rte_eth_dev *device, struct rte_eth_rss_reta_entry64 *conf, uint16_t entries)
{
	struct shotline_port *port = shotline_port(device);
	if (entries != shotline_table_size(port))
		return -EINVAL;
	for (unsigned index = 0; index < entries; index++)
		if (conf[index / RTE_ETH_RETA_GROUP_SIZE].mask >> index % RTE_ETH_RETA_GROUP_SIZE & 1)
			*entry(conf, index) = *entry(port->table, index);
	return 0;
}

int shotline_hash_update(struct rte_eth_dev *device, struct rte_eth_rss_conf *conf)
{
	struct shotline_port *port = shotline_port(device);
	if (conf->rss_key == NULL)
		return 0;
	if (conf->rss_key_len != sizeof(port->key))
		return -EINVAL;
	memcpy(port->key, conf->rss_key, sizeof(port->key));
	return write_key(port);
}

int shotline_hash_get(struct rte_eth_dev *device, struct rte_eth_rss_conf *conf)
{
	struct shotline_port *port = shotline_port(device);
	if (conf->rss_key != NULL && conf->rss_key_len >= sizeof(port->key)) {
		memcpy(conf->rss_key, port->key, sizeof(port->key));
		conf->rss_key_len = sizeof(port->key);
	}
	conf->rss_hf = SHOTLINE_HASHES;
	return 0;
}
