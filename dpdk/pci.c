/* The card on the PCI bus, through uio or VFIO: its registers are BAR 0. For tests without one, an ivshmem device of QEMU
 * whose BAR 2 is the window of a simulated card. Not tested with a card: there is none yet. */

#include "driver.h"

#include <errno.h>

#include <ethdev_pci.h>

#define IVSHMEM_VENDOR 0x1AF4
#define IVSHMEM_DEVICE 0x1110
/* What the PCIe block of the card must be configured with. */
#define CARD_VENDOR 0x10EE
#define CARD_DEVICE 0x5348

static const struct rte_pci_id ids[] = {
	{ RTE_PCI_DEVICE(CARD_VENDOR, CARD_DEVICE) },
	{ RTE_PCI_DEVICE(IVSHMEM_VENDOR, IVSHMEM_DEVICE) },
	{ .vendor_id = 0 },
};

/* Returns the registers of a device, NULL if they cannot be its. */
static volatile uint8_t *find_registers(const struct rte_pci_device *pci, bool is_window)
{
	const struct rte_mem_resource *bar = &pci->mem_resource[is_window ? 2 : 0];
	uint64_t least = is_window ? SHOTLINE_WINDOW_BYTES : 0x10000;
	if (bar->addr == NULL || bar->len < least) {
		LOG(ERR, "%s: expected a BAR of at least %#llx bytes, found %#llx", pci->name, (unsigned long long)least,
		    (unsigned long long)bar->len);
		return NULL;
	}
	return bar->addr;
}

static int init(struct rte_eth_dev *device)
{
	const struct rte_pci_device *pci = RTE_ETH_DEV_TO_PCI(device);
	struct shotline_port *port = shotline_port(device);
	port->bus.is_window = pci->id.vendor_id == IVSHMEM_VENDOR;
	port->bus.socket = -1;
	port->bus.base = find_registers(pci, port->bus.is_window);
	port->address_at = offsetof(struct rte_mbuf, buf_iova);
	rte_spinlock_init(&port->bus.lock);
	if (port->bus.base == NULL)
		return -ENODEV;
	if (port->bus.is_window) {
		const struct shotline_window_head *head = shotline_head(&port->bus);
		if (__atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != SHOTLINE_WINDOW_MAGIC ||
		    head->version != SHOTLINE_WINDOW_VERSION) {
			LOG(ERR, "%s: no simulated card of version %u is behind this shared memory", pci->name,
			    SHOTLINE_WINDOW_VERSION);
			return -ENODEV;
		}
	}
	return shotline_port_init(device);
}

static int probe(struct rte_pci_driver *driver, struct rte_pci_device *pci)
{
	(void)driver;
	return rte_eth_dev_pci_generic_probe(pci, sizeof(struct shotline_port), init);
}

static int remove_port(struct rte_pci_device *pci)
{
	return rte_eth_dev_pci_generic_remove(pci, shotline_close);
}

static struct rte_pci_driver shotline_pci = {
	.id_table = ids,
	.drv_flags = RTE_PCI_DRV_NEED_MAPPING,
	.probe = probe,
	.remove = remove_port,
};

RTE_PMD_REGISTER_PCI(net_shotline_pci, shotline_pci);
RTE_PMD_REGISTER_PCI_TABLE(net_shotline_pci, ids);
RTE_PMD_REGISTER_KMOD_DEP(net_shotline_pci, "* igb_uio | uio_pci_generic | vfio-pci");
