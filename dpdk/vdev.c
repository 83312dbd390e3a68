/* The virtual device net_shotline: a card that `shotline emulate card --listen PATH` simulates.
 *
 *   --vdev net_shotline0,socket=PATH */

#include "driver.h"

#include <errno.h>
#include <string.h>

#include <ethdev_vdev.h>
#include <rte_kvargs.h>

#define SOCKET_ARGUMENT "socket"

static int take_text(const char *key, const char *value, void *data)
{
	(void)key;
	if (value == NULL || *value == '\0')
		return -EINVAL;
	*(const char **)data = value;
	return 0;
}

/* Connects to the card, and sets up the port. */
static int open_port(struct rte_eth_dev *device, const char *path)
{
	struct shotline_port *port = shotline_port(device);
	port->device = device;
	port->bus.socket = -1;
	port->address_at = offsetof(struct rte_mbuf, buf_addr);
	rte_spinlock_init(&port->bus.lock);
	int result = shotline_connect(port, path);
	if (result == 0)
		result = shotline_share_memory(port);
	if (result == 0)
		result = shotline_port_init(device);
	if (result == 0)
		result = shotline_send_events(port);
	if (result != 0)
		shotline_disconnect(port);
	return result;
}

static int probe(struct rte_vdev_device *vdev)
{
	static const char *const known[] = { SOCKET_ARGUMENT, NULL };
	const char *path = NULL, *name = rte_vdev_device_name(vdev);
	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		LOG(ERR, "%s: secondary processes are not supported", name);
		return -ENOTSUP;
	}
	struct rte_kvargs *arguments = rte_kvargs_parse(rte_vdev_device_args(vdev), known);
	if (arguments == NULL || rte_kvargs_process(arguments, SOCKET_ARGUMENT, take_text, &path) != 0 || path == NULL) {
		LOG(ERR, "expected %s,socket=PATH, found \"%s\"", name, rte_vdev_device_args(vdev));
		rte_kvargs_free(arguments);
		return -EINVAL;
	}
	struct rte_eth_dev *device = rte_eth_vdev_allocate(vdev, sizeof(struct shotline_port));
	int result = device == NULL ? -ENOMEM : open_port(device, path);
	rte_kvargs_free(arguments);
	if (result != 0) {
		if (device != NULL)
			rte_eth_dev_release_port(device);
		return result;
	}
	device->data->dev_flags |= RTE_ETH_DEV_INTR_LSC | RTE_ETH_DEV_INTR_RMV;
	rte_eth_dev_probing_finish(device);
	return 0;
}

static int remove_port(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *device = rte_eth_dev_allocated(rte_vdev_device_name(vdev));
	if (device == NULL)
		return 0;
	shotline_close(device);
	return rte_eth_dev_release_port(device);
}

static struct shotline_port *port_of(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *device = rte_eth_dev_allocated(rte_vdev_device_name(vdev));
	return device != NULL ? shotline_port(device) : NULL;
}

/* Memory of the application (rte_extmem_register, rte_dev_dma_map). Its address is the virtual one. */
static int map(struct rte_vdev_device *vdev, void *address, uint64_t iova, size_t length)
{
	struct shotline_port *port = port_of(vdev);
	(void)iova;
	int result = port == NULL ? -ENODEV : shotline_map(port, address, length);
	rte_errno = -result;
	return result;
}

static int unmap(struct rte_vdev_device *vdev, void *address, uint64_t iova, size_t length)
{
	struct shotline_port *port = port_of(vdev);
	(void)iova;
	int result = port == NULL ? -ENODEV : shotline_unmap(port, address, length);
	rte_errno = -result;
	return result;
}

static struct rte_vdev_driver shotline_vdev = {
	.probe = probe,
	.remove = remove_port,
	.dma_map = map,
	.dma_unmap = unmap,
};

RTE_PMD_REGISTER_VDEV(net_shotline, shotline_vdev);
RTE_PMD_REGISTER_PARAM_STRING(net_shotline, SOCKET_ARGUMENT "=<path>");
