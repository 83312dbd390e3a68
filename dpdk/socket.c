/* The connection to a simulated card in another process: its window, the memory that it may access, its events. */

#include "driver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_eal_memconfig.h>
#include <rte_memory.h>

/* Time in which a card must answer. */
#define ANSWER_S 10

/* --- messages -------------------------------------------------------------------------------------- */

/* Sends a request with descriptors. Returns what the card answers. */
static int ask(struct shotline_port *port, const struct shotline_request *request, const int *descriptors, unsigned count)
{
	union {
		char bytes[CMSG_SPACE(SHOTLINE_MAX_EVENTS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec piece = { .iov_base = (void *)(uintptr_t)request, .iov_len = sizeof(*request) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	struct shotline_answer answer;
	if (atomic_load(&port->bus.gone))
		return -ENODEV;
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
	}
	rte_spinlock_lock(&port->bus.lock);
	int result = 0;
	if (sendmsg(port->bus.socket, &message, MSG_NOSIGNAL) < 0)
		result = -errno;
	else if (recv(port->bus.socket, &answer, sizeof(answer), 0) != sizeof(answer))
		result = -ENODEV;
	else
		result = -answer.error;
	rte_spinlock_unlock(&port->bus.lock);
	return result;
}

/* Receives the card's first message, and returns the descriptor of its window. */
static int receive_hello(int socket, struct shotline_hello *hello)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec piece = { .iov_base = hello, .iov_len = sizeof(*hello) };
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	if (bytes == 0)
		return -EBUSY; /* it has a driver already */
	if (bytes < 0)
		return -errno;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (bytes != sizeof(*hello) || header == NULL || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(int)))
		return -EPROTO;
	int descriptor;
	memcpy(&descriptor, CMSG_DATA(header), sizeof(descriptor));
	struct stat found;
	if (hello->magic == SHOTLINE_WINDOW_MAGIC && hello->version == SHOTLINE_WINDOW_VERSION &&
	    hello->window_bytes == SHOTLINE_WINDOW_BYTES && fstat(descriptor, &found) == 0 &&
	    found.st_size >= SHOTLINE_WINDOW_BYTES)
		return descriptor;
	LOG(ERR, "expected a window of version %u and %u bytes, found version %u and %" PRIu64 " bytes: use driver and "
		 "program of the same version",
	    SHOTLINE_WINDOW_VERSION, SHOTLINE_WINDOW_BYTES, hello->version, hello->window_bytes);
	close(descriptor);
	return -EPROTO;
}

/* --- connection ------------------------------------------------------------------------------------ */

/* The card's process has ended, or has closed the connection: there is no link any more. */
static void on_event(void *data)
{
	struct shotline_port *port = data;
	char byte;
	ssize_t bytes = recv(port->bus.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EINTR)))
		return; /* an answer, which another thread receives */
	atomic_store(&port->bus.gone, true);
	LOG(ERR, "%s: the simulated card is gone; start it again, then detach and attach the port",
	    port->device->device->name);
	rte_intr_callback_unregister_pending(port->gone_event, on_event, port, NULL);
	port->device->dev_ops->link_update(port->device, 0);
	rte_eth_dev_callback_process(port->device, RTE_ETH_EVENT_INTR_LSC, NULL);
	rte_eth_dev_callback_process(port->device, RTE_ETH_EVENT_INTR_RMV, NULL);
}

/* Watches the socket for its end. */
static int watch(struct shotline_port *port)
{
	port->gone_event = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	if (port->gone_event == NULL)
		return -ENOMEM;
	rte_intr_fd_set(port->gone_event, port->bus.socket);
	rte_intr_type_set(port->gone_event, RTE_INTR_HANDLE_EXT);
	return rte_intr_callback_register(port->gone_event, on_event, port);
}

int shotline_connect(struct shotline_port *port, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = ANSWER_S };
	struct shotline_hello hello;
	port->bus.is_window = true;
	for (unsigned channel = 0; channel < SHOTLINE_MAX_CHANNELS; channel++)
		port->events[channel] = -1;
	if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	port->bus.socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (port->bus.socket < 0)
		return -errno;
	setsockopt(port->bus.socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(port->bus.socket, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;
		LOG(ERR, "cannot connect to %s: %s; start the card first: shotline emulate card --listen %s", path,
		    strerror(error), path);
		return -error;
	}
	int window = receive_hello(port->bus.socket, &hello);
	if (window == -EBUSY)
		LOG(ERR, "%s: the card has another driver", path);
	if (window < 0)
		return window;
	void *base = mmap(NULL, SHOTLINE_WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, window, 0);
	close(window);
	if (base == MAP_FAILED)
		return -errno;
	port->bus.base = base;
	return 0;
}

/* --- memory ---------------------------------------------------------------------------------------- */

/* Memory that follows what was found before, in addresses and in its file. */
struct range {
	struct shotline_port *port;
	uint64_t address, length, offset;
	int descriptor, result;
};

static int map_range(struct shotline_port *port, uint64_t address, uint64_t length, uint64_t offset, int descriptor)
{
	struct shotline_request request = { .kind = SHOTLINE_MAP, .address = address, .length = length, .offset = offset };
	int result = ask(port, &request, &descriptor, 1);
	if (result != 0)
		LOG(ERR, "the card cannot map %" PRIu64 " bytes at %#" PRIx64 ": %s", length, address, strerror(-result));
	return result;
}

static void flush(struct range *range)
{
	if (range->length > 0 && range->result == 0)
		range->result = map_range(range->port, range->address, range->length, range->offset, range->descriptor);
	range->length = 0;
}

/* Adds a segment of DPDK's memory; others than DPDK's own have no descriptor here. */
static int add_segment(const struct rte_memseg_list *list, const struct rte_memseg *segment, void *data)
{
	struct range *range = data;
	size_t offset = 0;
	if (list->external)
		return 0;
	int descriptor = rte_memseg_get_fd_thread_unsafe(segment);
	if (descriptor < 0 || rte_memseg_get_fd_offset_thread_unsafe(segment, &offset) < 0) {
		LOG(ERR, "DPDK's memory has no file descriptor: use --no-huge, or huge pages without --legacy-mem");
		range->result = -ENOTSUP;
		return 1;
	}
	bool follows = range->length > 0 && segment->addr_64 == range->address + range->length &&
		       descriptor == range->descriptor && offset == range->offset + range->length;
	if (!follows) {
		flush(range);
		range->address = segment->addr_64;
		range->offset = offset;
		range->descriptor = descriptor;
	}
	range->length += segment->len;
	return range->result != 0;
}

/* Memory that DPDK gets or gives back while it runs. */
static void on_memory(enum rte_mem_event event, const void *address, size_t length, void *data)
{
	struct shotline_port *port = data;
	struct range range = { .port = port };
	const struct rte_memseg_list *list = rte_mem_virt2memseg_list(address);
	if (event == RTE_MEM_EVENT_FREE) {
		shotline_unmap(port, (void *)(uintptr_t)address, length);
		return;
	}
	for (size_t done = 0; list != NULL && done < length;) {
		const struct rte_memseg *segment = rte_mem_virt2memseg((const char *)address + done, list);
		if (segment == NULL || add_segment(list, segment, &range) != 0)
			break;
		done += segment->len;
	}
	flush(&range);
}

static void name_events(const struct shotline_port *port, char *name, size_t size)
{
	snprintf(name, size, "shotline_%u", port->device->data->port_id);
}

int shotline_share_memory(struct shotline_port *port)
{
	struct range range = { .port = port };
	char name[RTE_MEM_EVENT_CALLBACK_NAME_LEN];
	rte_memseg_walk_thread_unsafe(add_segment, &range); /* probing holds the lock, or no other thread runs */
	flush(&range);
	name_events(port, name, sizeof(name));
	/* Without dynamic memory it is not supported, and not needed. */
	if (range.result == 0 && rte_mem_event_callback_register(name, on_memory, port) != 0 && rte_errno != ENOTSUP)
		return -rte_errno;
	return range.result;
}

/* Finds an open descriptor of the file that is mapped at an address. Memory of an application, such as a memfd, has no
 * other name. Returns -1 if there is none. */
static int find_descriptor(const void *address, size_t length, uint64_t *offset)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int found = -1;
	while (maps != NULL && found < 0 && fgets(line, sizeof(line), maps) != NULL) {
		uintptr_t begin, end;
		char rights[5];
		unsigned major, minor;
		unsigned long inode;
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %lu", &begin, &end, rights, offset, &major, &minor,
			   &inode) != 7 ||
		    (uintptr_t)address < begin || (uintptr_t)address + length > end || rights[3] != 's')
			continue;
		*offset += (uintptr_t)address - begin;
		for (int descriptor = 0; descriptor < 65536 && found < 0; descriptor++) {
			struct stat file;
			if (fstat(descriptor, &file) == 0 && file.st_ino == inode && file.st_dev == makedev(major, minor))
				found = descriptor;
		}
	}
	if (maps != NULL)
		fclose(maps);
	return found;
}

int shotline_map(struct shotline_port *port, void *address, size_t length)
{
	uint64_t offset;
	int descriptor = find_descriptor(address, length, &offset);
	if (descriptor < 0) {
		LOG(ERR, "%zu bytes at %p: expected one shared mapping of an open file, such as a memfd", length, address);
		return -ENOTSUP;
	}
	return map_range(port, (uintptr_t)address, length, offset, descriptor);
}

int shotline_unmap(struct shotline_port *port, void *address, size_t length)
{
	struct shotline_request request = { .kind = SHOTLINE_UNMAP, .address = (uintptr_t)address, .length = length };
	return ask(port, &request, NULL, 0);
}

/* --- events ---------------------------------------------------------------------------------------- */

int shotline_send_events(struct shotline_port *port)
{
	for (unsigned channel = 0; channel < port->channels; channel++) {
		port->events[channel] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (port->events[channel] < 0)
			return -errno;
	}
	for (unsigned first = 0; first < port->channels; first += SHOTLINE_MAX_EVENTS) {
		struct shotline_request request = { .kind = SHOTLINE_EVENTS, .address = first };
		int result = ask(port, &request, port->events + first, RTE_MIN(port->channels - first, SHOTLINE_MAX_EVENTS));
		if (result != 0)
			return result;
	}
	int result = watch(port);
	port->device->intr_handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	return result < 0 ? result : port->device->intr_handle == NULL ? -ENOMEM : 0;
}

void shotline_disconnect(struct shotline_port *port)
{
	char name[RTE_MEM_EVENT_CALLBACK_NAME_LEN];
	name_events(port, name, sizeof(name));
	rte_mem_event_callback_unregister(name, port);
	if (port->gone_event != NULL) {
		rte_intr_callback_unregister_sync(port->gone_event, on_event, port);
		rte_intr_instance_free(port->gone_event);
		port->gone_event = NULL;
	}
	rte_intr_instance_free(port->device->intr_handle);
	port->device->intr_handle = NULL;
	for (unsigned channel = 0; channel < SHOTLINE_MAX_CHANNELS; channel++)
		if (port->events[channel] >= 0)
			close(port->events[channel]);
	if (port->bus.base != NULL)
		munmap((void *)(uintptr_t)port->bus.base, SHOTLINE_WINDOW_BYTES);
	if (port->bus.socket >= 0)
		close(port->bus.socket);
	port->bus.socket = -1;
	port->bus.base = NULL;
}
