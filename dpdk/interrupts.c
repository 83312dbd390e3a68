/* Receive interrupts: an event descriptor for each queue, written by a simulated card, or by VFIO for one on the bus.
 *
 * The card raises an interrupt with the next report after it was enabled. A report that came before it would be missed, so
 * enabling looks for one and signals the event itself. */

#include "driver.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <bus_pci_driver.h>

/* Prepares the vectors of a simulated card: its event descriptors. */
static int use_events(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	struct rte_intr_handle *handle = device->intr_handle;
	uint16_t queues = device->data->nb_rx_queues;
	if (handle == NULL)
		return -ENOTSUP;
	for (uint16_t queue = 0; queue < queues; queue++)
		if (rte_intr_efds_index_set(handle, queue, port->events[queue]) != 0)
			return -rte_errno;
	if (rte_intr_nb_efd_set(handle, queues) != 0 || rte_intr_max_intr_set(handle, queues + 1) != 0 ||
	    rte_intr_type_set(handle, RTE_INTR_HANDLE_VDEV) != 0 ||
	    rte_intr_efd_counter_size_set(handle, sizeof(uint64_t)) != 0)
		return -rte_errno;
	return 0;
}

int shotline_interrupts_start(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	struct rte_intr_handle *handle = device->intr_handle;
	uint16_t queues = device->data->nb_rx_queues;
	if (device->data->dev_conf.intr_conf.rxq == 0)
		return 0;
	if (port->bus.is_window && port->bus.socket < 0) {
		LOG(ERR, "ivshmem has no interrupts");
		return -ENOTSUP;
	}
	int result = port->bus.is_window ? use_events(device) : rte_intr_efd_enable(handle, queues);
	if (result != 0)
		return result;
	if (rte_intr_vec_list_alloc(handle, "shotline", queues) != 0)
		return -ENOMEM;
	for (uint16_t queue = 0; queue < queues; queue++)
		rte_intr_vec_list_index_set(handle, queue, RTE_INTR_VEC_RXTX_OFFSET + queue);
	return port->bus.is_window ? 0 : rte_intr_enable(handle);
}

void shotline_interrupts_stop(struct rte_eth_dev *device)
{
	struct shotline_port *port = shotline_port(device);
	if (device->data->dev_conf.intr_conf.rxq == 0 || device->intr_handle == NULL)
		return;
	if (!port->bus.is_window) {
		rte_intr_disable(device->intr_handle);
		rte_intr_efd_disable(device->intr_handle);
	}
	rte_intr_vec_list_free(device->intr_handle);
}

int shotline_interrupt_enable(struct rte_eth_dev *device, uint16_t number)
{
	struct shotline_port *port = shotline_port(device);
	struct shotline_receive_queue *queue = device->data->rx_queues[number];
	int result = shotline_write(&port->bus, shotline_channel(SHOTLINE_CHANNEL_INTERRUPT, number),
				    SHOTLINE_CHANNEL_INTERRUPT_ENABLE);
	int event = rte_intr_efds_index_get(device->intr_handle, number);
	if (result == 0 && event >= 0 && shotline_receive_queue_count(queue) > 0)
		eventfd_write(event, 1);
	return result;
}

int shotline_interrupt_disable(struct rte_eth_dev *device, uint16_t number)
{
	return shotline_write(&shotline_port(device)->bus, shotline_channel(SHOTLINE_CHANNEL_INTERRUPT, number), 0);
}
