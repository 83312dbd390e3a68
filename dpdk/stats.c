/* Statistics: those of ethdev, and extended ones for all queues with each cause of loss. They are the card's own
 * counters, so receiving costs nothing for them. */

#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The addresses of the counters, in the order of the enumerations. */
static const uint16_t channel_counters[SHOTLINE_CHANNEL_COUNTERS] = {
	[SHOTLINE_RECEIVED] = SHOTLINE_CHANNEL_PACKETS_RECEIVED,
	[SHOTLINE_RECEIVED_BYTES] = SHOTLINE_CHANNEL_BYTES_RECEIVED,
	[SHOTLINE_STOPPED] = SHOTLINE_CHANNEL_PACKETS_STOPPED,
	[SHOTLINE_STOPPED_BYTES] = SHOTLINE_CHANNEL_BYTES_STOPPED,
	[SHOTLINE_NO_DESCRIPTOR] = SHOTLINE_CHANNEL_PACKETS_NO_DESCRIPTOR,
	[SHOTLINE_NO_DESCRIPTOR_BYTES] = SHOTLINE_CHANNEL_BYTES_NO_DESCRIPTOR,
	[SHOTLINE_LATE] = SHOTLINE_CHANNEL_PACKETS_LATE,
	[SHOTLINE_LATE_BYTES] = SHOTLINE_CHANNEL_BYTES_LATE,
};
static const char *const channel_names[SHOTLINE_CHANNEL_COUNTERS] = {
	"packets", "bytes", "stopped_packets", "stopped_bytes", "no_descriptor_packets", "no_descriptor_bytes",
	"late_packets", "late_bytes",
};
static const uint16_t card_counters[SHOTLINE_CARD_COUNTERS] = {
	[SHOTLINE_DELIVERED] = SHOTLINE_DISTRIBUTOR_DELIVERED, [SHOTLINE_ERROR] = SHOTLINE_DISTRIBUTOR_ERROR,
	[SHOTLINE_RUNT] = SHOTLINE_DISTRIBUTOR_RUNT,	       [SHOTLINE_GIANT] = SHOTLINE_DISTRIBUTOR_GIANT,
	[SHOTLINE_OVERFLOW] = SHOTLINE_DISTRIBUTOR_OVERFLOW,   [SHOTLINE_UNEXPECTED] = SHOTLINE_CARD_UNEXPECTED,
};
static const char *const card_names[SHOTLINE_CARD_COUNTERS] = {
	"rx_distributor_delivered_packets", "rx_distributor_error_packets",  "rx_distributor_runt_packets",
	"rx_distributor_giant_packets",	    "rx_distributor_overflow_packets", "rx_unexpected_completions",
};

/* Reads counters of 48 bits in two words each, and subtracts their values at the last reset. If the card is gone, the
 * last values are returned. */
static void read_counters(struct shotline_port *port, const uint16_t *addresses, unsigned count, uint16_t offset,
			  uint64_t *last, const uint64_t *base, uint64_t *values)
{
	uint16_t words[2 * SHOTLINE_CHANNEL_COUNTERS];
	uint32_t halves[2 * SHOTLINE_CHANNEL_COUNTERS];
	for (unsigned index = 0; index < count; index++) {
		words[2 * index] = addresses[index] + offset;
		words[2 * index + 1] = addresses[index] + offset + 4;
	}
	shotline_read_many(&port->bus, words, halves, 2 * count);
	for (unsigned index = 0; index < count; index++) {
		if (!atomic_load(&port->bus.gone))
			last[index] = (uint64_t)halves[2 * index + 1] << 32 | halves[2 * index];
		values[index] = last[index] - base[index];
	}
}

static void read_channel(struct shotline_port *port, unsigned channel, uint64_t *values)
{
	_Static_assert((int)SHOTLINE_CHANNEL_COUNTERS >= (int)SHOTLINE_CARD_COUNTERS, "buffers of read_counters");
	read_counters(port, channel_counters, SHOTLINE_CHANNEL_COUNTERS, SHOTLINE_CHANNEL_STRIDE * channel,
		      port->last[channel], port->base[channel], values);
	/* The card counts what it writes before each frame. */
	const struct shotline_receive_queue *queue =
		channel < port->device->data->nb_rx_queues ? port->device->data->rx_queues[channel] : NULL;
	uint64_t skipped = queue != NULL ? queue->skipped : sizeof(struct shotline_packet);
	for (unsigned index = 0; index < SHOTLINE_CHANNEL_COUNTERS; index += 2)
		values[index + 1] -= skipped * values[index];
}

static void read_card(struct shotline_port *port, uint64_t *values)
{
	read_counters(port, card_counters, SHOTLINE_CARD_COUNTERS, 0, port->card_last, port->card_base, values);
}

int shotline_stats_get(struct rte_eth_dev *device, struct rte_eth_stats *stats)
{
	struct shotline_port *port = shotline_port(device);
	uint64_t card[SHOTLINE_CARD_COUNTERS], channel[SHOTLINE_CHANNEL_COUNTERS];
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		read_channel(port, number, channel);
		uint64_t missed = channel[SHOTLINE_STOPPED] + channel[SHOTLINE_NO_DESCRIPTOR] + channel[SHOTLINE_LATE];
		stats->ipackets += channel[SHOTLINE_RECEIVED];
		stats->ibytes += channel[SHOTLINE_RECEIVED_BYTES];
		stats->imissed += missed;
		if (number < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_ipackets[number] = channel[SHOTLINE_RECEIVED];
			stats->q_ibytes[number] = channel[SHOTLINE_RECEIVED_BYTES];
			stats->q_errors[number] = missed;
		}
		const struct shotline_receive_queue *queue = device->data->rx_queues[number];
		stats->ierrors += queue != NULL ? queue->malformed : 0;
	}
	read_card(port, card);
	stats->imissed += card[SHOTLINE_OVERFLOW];
	stats->ierrors += card[SHOTLINE_ERROR] + card[SHOTLINE_RUNT] + card[SHOTLINE_GIANT];
	for (uint16_t number = 0; number < device->data->nb_tx_queues; number++) {
		const struct shotline_send_queue *queue = device->data->tx_queues[number];
		if (queue == NULL)
			continue;
		stats->opackets += queue->packets;
		stats->obytes += queue->bytes;
		stats->oerrors += queue->errors;
		if (number < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_opackets[number] = queue->packets;
			stats->q_obytes[number] = queue->bytes;
		}
	}
	stats->rx_nombuf = device->data->rx_mbuf_alloc_failed;
	return 0;
}

int shotline_stats_reset(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	uint64_t values[SHOTLINE_CHANNEL_COUNTERS];
	for (unsigned channel = 0; channel < port->channels; channel++) {
		read_channel(port, channel, values);
		memcpy(port->base[channel], port->last[channel], sizeof(port->base[channel]));
	}
	read_card(port, values);
	memcpy(port->card_base, port->card_last, sizeof(port->card_base));
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		struct shotline_receive_queue *queue = device->data->rx_queues[number];
		if (queue != NULL)
			queue->malformed = queue->unread = 0;
	}
	for (uint16_t number = 0; number < device->data->nb_tx_queues; number++) {
		struct shotline_send_queue *queue = device->data->tx_queues[number];
		if (queue != NULL)
			queue->packets = queue->bytes = queue->errors = 0;
	}
	device->data->rx_mbuf_alloc_failed = 0;
	return 0;
}

/* Extended statistics: the card's, then those of each receive queue, then those of each send queue. */
enum { MALFORMED = SHOTLINE_CHANNEL_COUNTERS, UNREAD, CHANNEL_ERROR, RECEIVE_COUNTERS };
enum { SENT, SENT_BYTES, SEND_ERRORS, SEND_COUNTERS };

static unsigned xstats_count(const struct rte_eth_dev *device)
{
	return SHOTLINE_CARD_COUNTERS + RECEIVE_COUNTERS * device->data->nb_rx_queues +
	       SEND_COUNTERS * device->data->nb_tx_queues;
}

int shotline_xstats_names(struct rte_eth_dev *device, struct rte_eth_xstat_name *names, unsigned count)
{
	unsigned all = xstats_count(device);
	if (names == NULL || count < all)
		return (int)all;
	for (unsigned index = 0; index < SHOTLINE_CARD_COUNTERS; index++, names++)
		snprintf(names->name, sizeof(names->name), "%s", card_names[index]);
	for (uint16_t queue = 0; queue < device->data->nb_rx_queues; queue++) {
		for (unsigned index = 0; index < SHOTLINE_CHANNEL_COUNTERS; index++, names++)
			snprintf(names->name, sizeof(names->name), "rx_q%u_%s", queue, channel_names[index]);
		snprintf((names++)->name, sizeof(names->name), "rx_q%u_malformed_packets", queue);
		snprintf((names++)->name, sizeof(names->name), "rx_q%u_unread_packets", queue);
		snprintf((names++)->name, sizeof(names->name), "rx_q%u_channel_error", queue);
	}
	for (uint16_t queue = 0; queue < device->data->nb_tx_queues; queue++) {
		snprintf((names++)->name, sizeof(names->name), "tx_q%u_packets", queue);
		snprintf((names++)->name, sizeof(names->name), "tx_q%u_bytes", queue);
		snprintf((names++)->name, sizeof(names->name), "tx_q%u_errors", queue);
	}
	return (int)all;
}

int shotline_xstats_get(struct rte_eth_dev *device, struct rte_eth_xstat *stats, unsigned count)
{
	struct shotline_port *port = shotline_port(device);
	unsigned all = xstats_count(device);
	if (stats == NULL || count < all)
		return (int)all;
	uint64_t values[RECEIVE_COUNTERS];
	for (unsigned index = 0; index < all; index++)
		stats[index].id = index;
	read_card(port, values);
	for (unsigned index = 0; index < SHOTLINE_CARD_COUNTERS; index++)
		(stats++)->value = values[index];
	for (uint16_t number = 0; number < device->data->nb_rx_queues; number++) {
		const struct shotline_receive_queue *queue = device->data->rx_queues[number];
		uint32_t state = shotline_read(&port->bus, shotline_channel(SHOTLINE_CHANNEL_STATE, number));
		read_channel(port, number, values);
		values[MALFORMED] = queue != NULL ? queue->malformed : 0;
		values[UNREAD] = queue != NULL ? queue->unread : 0;
		values[CHANNEL_ERROR] = atomic_load(&port->bus.gone) ? 0 : state >> SHOTLINE_CHANNEL_STATE_ERROR_LSB & 15;
		for (unsigned index = 0; index < RECEIVE_COUNTERS; index++)
			(stats++)->value = values[index];
	}
	for (uint16_t number = 0; number < device->data->nb_tx_queues; number++) {
		const struct shotline_send_queue *queue = device->data->tx_queues[number];
		(stats++)->value = queue != NULL ? queue->packets : 0;
		(stats++)->value = queue != NULL ? queue->bytes : 0;
		(stats++)->value = queue != NULL ? queue->errors : 0;
	}
	return (int)all;
}
