/* Receive bursts.
 *
 * A report in memory says how many descriptors the card has used. A packet begins with its length, from which follows
 * how many of them it has. Nothing else is read: neither a register nor a descriptor. */

#include "driver.h"

#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_io.h>
#include <rte_vect.h>

/* Stops taking packets: their headers cannot be those that the card writes. */
static void fail(struct shotline_receive_queue *queue, uint32_t length)
{
	LOG(ERR, "queue %u: a packet of %u bytes in %u descriptors: it was not written by the card; the queue is stopped",
	    queue->number, length, (uint16_t)(SHOTLINE_REPORT_USED(*queue->report) - queue->next));
	queue->malformed++;
	queue->is_running = false;
}

/* Writes descriptors for mbufs that are in place, none of them behind the end of the ring. */
static inline void write_descriptors(const struct shotline_receive_queue *queue, uint32_t at, uint16_t count)
{
	struct rte_mbuf *const *mbufs = &queue->mbufs[at];
	struct shotline_descriptor *ring = &queue->ring[at];
	const uint16_t address_at = queue->address_at, first = queue->first;
	/* With header split odd ones begin elsewhere. */
	const uint16_t odd_first = queue->header == 0 ? first : queue->odd_first;
	/* The index within a group never carries into the channel, because groups are aligned. */
	uint64_t place = queue->place | queue->given;
	for (uint16_t index = 0; index < count; index += 2, place += 2) {
		ring[index].address = *(const uint64_t *)((const char *)mbufs[index] + address_at) + first;
		ring[index].place = place;
		ring[index + 1].address = *(const uint64_t *)((const char *)mbufs[index + 1] + address_at) + odd_first;
		ring[index + 1].place = place + 1;
	}
}

/* Takes mbufs for pairs of descriptors. */
static bool take_pairs(struct shotline_receive_queue *queue, struct rte_mbuf **mbufs)
{
	struct rte_mbuf *headers[SHOTLINE_GROUP / 2], *payloads[SHOTLINE_GROUP / 2];
	if (rte_mempool_get_bulk(queue->header_pool, (void **)headers, SHOTLINE_GROUP / 2) != 0)
		return false;
	if (rte_mempool_get_bulk(queue->pool, (void **)payloads, SHOTLINE_GROUP / 2) != 0) {
		rte_mempool_put_bulk(queue->header_pool, (void **)headers, SHOTLINE_GROUP / 2);
		return false;
	}
	for (unsigned pair = 0; pair < SHOTLINE_GROUP / 2; pair++) {
		mbufs[2 * pair] = headers[pair];
		mbufs[2 * pair + 1] = payloads[pair];
	}
	return true;
}

void shotline_refill(struct shotline_receive_queue *queue)
{
	const uint16_t most = queue->header == 0 ? 4 * SHOTLINE_GROUP : SHOTLINE_GROUP;
	uint16_t before = queue->given;
	for (;;) {
		uint32_t at = queue->given & queue->mask;
		uint32_t count = RTE_MIN((uint32_t)(uint16_t)(queue->descriptors - (queue->given - queue->next)), most);
		count = RTE_ALIGN_FLOOR(RTE_MIN(count, queue->mask + 1 - at), SHOTLINE_GROUP);
		if (count == 0)
			break;
		/* The place of a group has bits 15:0 of the index, so a batch ends where they do. */
		count = RTE_MIN(count, 0x10000u - queue->given);
		bool has_mbufs = queue->header == 0 ? rte_mempool_get_bulk(queue->pool, (void **)&queue->mbufs[at], count) == 0 :
						      take_pairs(queue, &queue->mbufs[at]);
		if (unlikely(!has_mbufs)) {
			/* Counted as rx_nombuf; the card counts the packets that find no descriptor. */
			queue->device->data->rx_mbuf_alloc_failed += count;
			break;
		}
		write_descriptors(queue, at, count);
		queue->given += count;
	}
	if (queue->given != before) {
		rte_io_wmb(); /* descriptors before the pointer to them */
		*queue->doorbell = queue->given;
	}
}

/* Looks at a report without new packets: there may have been no mbufs, or the channel has stopped by itself. */
static void look_at_nothing(struct shotline_receive_queue *queue, uint64_t report)
{
	static const char *const errors[16] = { "none", "a wrong descriptor", "a descriptor read failed",
						"a descriptor read had no completion", "the bus refused a write" };
	if ((uint16_t)(queue->descriptors - (queue->given - queue->next)) >= SHOTLINE_GROUP)
		shotline_refill(queue);
	if (queue->has_failed || !(report & SHOTLINE_REPORT_FINAL) ||
	    SHOTLINE_REPORT_GENERATION(report) != queue->generation)
		return;
	unsigned error = report >> 28 & 15;
	LOG(ERR, "queue %u: the card has stopped the channel: error %u, %s; start the queue again", queue->number, error,
	    errors[error] != NULL ? errors[error] : "unknown");
	queue->has_failed = true;
}

/* Packet types by the flags of a packet. */
#define IP(l2) (l2), (l2) | RTE_PTYPE_L3_IPV4_EXT_UNKNOWN, (l2) | RTE_PTYPE_L3_IPV6_EXT_UNKNOWN, (l2)
static const uint8_t types[16] __rte_aligned(16) = { IP(RTE_PTYPE_L2_ETHER), IP(RTE_PTYPE_L2_ETHER), IP(RTE_PTYPE_L2_ETHER_VLAN),
				  IP(RTE_PTYPE_L2_ETHER_VLAN) };

/* Sets data_off, refcnt, nb_segs and port. */
static inline void rearm(const struct shotline_receive_queue *queue, struct rte_mbuf *mbuf)
{
	memcpy((char *)mbuf + offsetof(struct rte_mbuf, rearm_data), &queue->rearm, sizeof(queue->rearm));
}

/* Fills the fields of a packet's first mbuf, except its lengths. */
static inline void describe(const struct shotline_receive_queue *queue, struct rte_mbuf *mbuf,
			    const struct shotline_packet *packet)
{
	rearm(queue, mbuf);
	mbuf->ol_flags = queue->flags;
	mbuf->packet_type = types[packet->flags % 16];
	mbuf->hash.rss = packet->hash;
	if (queue->time_at >= 0)
		*RTE_MBUF_DYNFIELD(mbuf, queue->time_at, rte_mbuf_timestamp_t *) = packet->time;
}

/* Chains the buffers of a packet that is longer than one. Returns how many it has, or 0 if it is impossible. */
static uint16_t chain(struct shotline_receive_queue *queue, struct rte_mbuf *mbuf, uint16_t at, uint32_t length,
		      uint16_t available)
{
	uint32_t buffers = (length + queue->buffer - 1) / queue->buffer;
	if (length <= queue->skipped || buffers > available) {
		fail(queue, length);
		return 0;
	}
	uint32_t rest = length - queue->buffer;
	struct rte_mbuf *last = mbuf;
	mbuf->pkt_len = length - queue->skipped;
	mbuf->data_len = queue->buffer - queue->skipped;
	mbuf->nb_segs = buffers;
	for (uint32_t index = 1; index < buffers; index++) {
		struct rte_mbuf *segment = queue->mbufs[(uint16_t)(at + index) & queue->mask];
		rearm(queue, segment);
		segment->data_off = queue->first;
		segment->data_len = RTE_MIN(rest, queue->buffer);
		segment->ol_flags = queue->segment_flags;
		rest -= segment->data_len;
		last->next = segment;
		last = segment;
	}
	return buffers;
}

#ifdef __SSE4_1__
/* Takes packets of one buffer each, four at a time. Returns how many: it ends before a packet that is longer. */
static inline uint16_t take_whole(const struct shotline_receive_queue *queue, uint16_t next, struct rte_mbuf **packets,
				  uint16_t most)
{
	_Static_assert(offsetof(struct rte_mbuf, ol_flags) == offsetof(struct rte_mbuf, rearm_data) + 8, "one store");
	_Static_assert(offsetof(struct rte_mbuf, hash) == offsetof(struct rte_mbuf, packet_type) + 12, "one store");
	/* From length, flags and hash of a packet to packet_type (its flags), pkt_len, data_len, vlan_tci, hash. */
	const __m128i fields = _mm_setr_epi8(2, -1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 4, 5, 6, 7);
	const __m128i only_flags = _mm_setr_epi8(0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	/* What turns flags into types when it is added to them. */
	const __m128i flags = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const __m128i changes = _mm_sub_epi8(_mm_load_si128((const __m128i *)types), flags);
	const int16_t skipped = queue->skipped, room = queue->buffer - queue->skipped;
	const __m128i skip = _mm_setr_epi16(0, 0, skipped, 0, skipped, 0, 0, 0);
	const __m128i longest = _mm_setr_epi16(-1, -1, -1, -1, room, -1, -1, -1);
	const __m128i rearm_flags = _mm_set_epi64x(queue->flags, queue->rearm);
	const int time_at = queue->time_at;
	const uint16_t first = queue->first;
	uint32_t at = next & queue->mask;
	struct rte_mbuf *const *mbufs = &queue->mbufs[at], **end;
	end = packets + RTE_ALIGN_FLOOR(RTE_MIN((uint32_t)most, queue->mask + 1 - at), 4);
	struct rte_mbuf **to = packets;
	for (; to != end; to += 4, mbufs += 4) {
		struct rte_mbuf *const four[4] = { mbufs[0], mbufs[1], mbufs[2], mbufs[3] };
		__m128i packet[4], field[4], over = _mm_setzero_si128();
		for (unsigned index = 0; index < 4; index++) {
			packet[index] = _mm_loadu_si128((const __m128i *)((const char *)four[index]->buf_addr + first));
			field[index] = _mm_sub_epi16(_mm_shuffle_epi8(packet[index], fields), skip);
			/* A packet shorter than its header wraps, and is too long, too. */
			over = _mm_or_si128(over, _mm_subs_epu16(field[index], longest));
		}
		if (unlikely(!_mm_testz_si128(over, over)))
			break;
		for (unsigned index = 0; index < 4; index++) {
			__m128i change = _mm_shuffle_epi8(changes, _mm_or_si128(field[index], only_flags));
			to[index] = four[index];
			_mm_store_si128((__m128i *)((char *)four[index] + offsetof(struct rte_mbuf, rearm_data)), rearm_flags);
			_mm_store_si128((__m128i *)((char *)four[index] + offsetof(struct rte_mbuf, packet_type)),
					_mm_add_epi8(field[index], change));
		}
		if (time_at >= 0)
			for (unsigned index = 0; index < 4; index++)
				*RTE_MBUF_DYNFIELD(four[index], time_at, uint64_t *) = _mm_extract_epi64(packet[index], 1);
	}
	uint16_t done = to - packets;
	return done;
}
#else
static inline uint16_t take_whole(const struct shotline_receive_queue *queue, uint16_t next, struct rte_mbuf **packets,
				  uint16_t most)
{
	(void)queue, (void)next, (void)packets, (void)most;
	return 0; /* packets are taken one by one */
}
#endif

static inline uint16_t receive(struct shotline_receive_queue *queue, struct rte_mbuf **packets, uint16_t count)
{
	uint64_t report = __atomic_load_n(queue->report, __ATOMIC_ACQUIRE);
	uint16_t next = queue->next, used = SHOTLINE_REPORT_USED(report);
	if (unlikely(used == next)) {
		look_at_nothing(queue, report);
		return 0;
	}
	uint16_t received = take_whole(queue, next, packets, RTE_MIN(count, (uint16_t)(used - next)));
	next += received;
	while (received < count && next != used) {
		struct rte_mbuf *mbuf = queue->mbufs[next & queue->mask];
		const struct shotline_packet *packet = (const void *)((const char *)mbuf->buf_addr + queue->first);
		uint32_t length = packet->length;
		uint16_t buffers = 1;
		describe(queue, mbuf, packet);
		if (likely(length - queue->skipped - 1 < (uint32_t)(queue->buffer - queue->skipped))) {
			mbuf->data_len = length - queue->skipped;
			mbuf->pkt_len = length - queue->skipped;
		} else {
			buffers = chain(queue, mbuf, next, length, used - next);
			if (buffers == 0)
				break;
		}
		packets[received++] = mbuf;
		next += buffers;
	}
	queue->next = next;
	if ((uint16_t)(queue->descriptors - (queue->given - next)) >= queue->refill)
		shotline_refill(queue);
	return received;
}

/* Makes a packet of pairs of buffers: the header, and the payload in those of odd descriptors. Returns the number of
 * descriptors that it has, or 0 if it is impossible. */
static uint16_t join(struct shotline_receive_queue *queue, struct rte_mbuf *mbuf, uint16_t at, uint32_t length,
		     uint16_t available)
{
	uint32_t header = RTE_MIN(length, queue->header), rest = length - header;
	uint32_t pairs = rest <= queue->buffer ? 1 : (rest + queue->buffer - 1) / queue->buffer;
	if (length <= queue->skipped || 2 * pairs > available) {
		fail(queue, length);
		return 0;
	}
	struct rte_mbuf *last = mbuf;
	mbuf->data_len = header - queue->skipped;
	mbuf->pkt_len = length - queue->skipped;
	for (uint32_t pair = 0; pair < pairs; pair++) {
		struct rte_mbuf *even = queue->mbufs[(uint16_t)(at + 2 * pair) & queue->mask];
		struct rte_mbuf *odd = queue->mbufs[(uint16_t)(at + 2 * pair + 1) & queue->mask];
		if (pair > 0)
			rte_mbuf_raw_free(even); /* unused */
		if (rest == 0) {
			rte_mbuf_raw_free(odd);
			break;
		}
		rearm(queue, odd);
		odd->data_off = queue->odd_first;
		odd->data_len = RTE_MIN(rest, queue->buffer);
		odd->ol_flags = queue->segment_flags;
		rest -= odd->data_len;
		last->next = odd;
		last = odd;
		mbuf->nb_segs++;
	}
	return 2 * pairs;
}

static inline uint16_t receive_split(struct shotline_receive_queue *queue, struct rte_mbuf **packets, uint16_t count)
{
	uint64_t report = __atomic_load_n(queue->report, __ATOMIC_ACQUIRE);
	uint16_t next = queue->next, received = 0;
	uint16_t used = SHOTLINE_REPORT_USED(report);
	if (unlikely(used == next)) {
		look_at_nothing(queue, report);
		return 0;
	}
	while (received < count && next != used) {
		struct rte_mbuf *mbuf = queue->mbufs[next & queue->mask];
		const struct shotline_packet *packet = (const void *)((const char *)mbuf->buf_addr + queue->first);
		describe(queue, mbuf, packet);
		uint16_t descriptors = join(queue, mbuf, next, packet->length, used - next);
		if (descriptors == 0)
			break;
		packets[received++] = mbuf;
		next += descriptors;
	}
	queue->next = next;
	if ((uint16_t)(queue->descriptors - (queue->given - next)) >= queue->refill)
		shotline_refill(queue);
	return received;
}

/* --- bursts and stops in different threads --------------------------------------------------------- */

/* An application should not stop a queue while another thread receives from it, but testpmd does. A burst stores that it is
 * in progress, and then reads whether the queue runs; a stop does the opposite. So that a burst needs no fence, the stop has
 * one for both (membarrier). */

static inline bool begin_burst(struct shotline_receive_queue *queue)
{
	atomic_store_explicit(&queue->in_burst, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return likely(atomic_load_explicit(&queue->is_running, memory_order_acquire));
}

static inline uint16_t end_burst(struct shotline_receive_queue *queue, uint16_t received)
{
	atomic_store_explicit(&queue->in_burst, false, memory_order_release);
	return received;
}

void shotline_end_bursts(struct shotline_receive_queue *queue)
{
	atomic_store(&queue->is_running, false);
	/* Registering is needed once, and repeating it does no harm. A kernel without it leaves the time of a pause. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
		rte_delay_us_sleep(1000);
	while (atomic_load(&queue->in_burst))
		rte_delay_us_sleep(10);
}

uint16_t shotline_receive(void *data, struct rte_mbuf **packets, uint16_t count)
{
	struct shotline_receive_queue *queue = data;
	return end_burst(queue, begin_burst(queue) ? receive(queue, packets, count) : 0);
}

uint16_t shotline_receive_split(void *data, struct rte_mbuf **packets, uint16_t count)
{
	struct shotline_receive_queue *queue = data;
	if (!begin_burst(queue))
		return end_burst(queue, 0);
	/* Other queues of the port have header split, if this one has none. */
	return end_burst(queue, queue->header != 0 ? receive_split(queue, packets, count) : receive(queue, packets, count));
}

unsigned shotline_unread(const struct shotline_receive_queue *queue)
{
	uint16_t used = SHOTLINE_REPORT_USED(*queue->report);
	unsigned count = 0;
	for (uint16_t at = queue->next; at != used; count++) {
		const struct rte_mbuf *mbuf = queue->mbufs[at & queue->mask];
		uint32_t length = ((const struct shotline_packet *)((const char *)mbuf->buf_addr + queue->first))->length;
		uint32_t rest = length - RTE_MIN(length, queue->header);
		uint32_t buffers = RTE_MAX((rest + queue->buffer - 1) / queue->buffer, 1u) * (queue->header != 0 ? 2 : 1);
		if (buffers > (uint16_t)(used - at))
			break;
		at += buffers;
	}
	return count;
}

uint32_t shotline_receive_queue_count(void *data)
{
	const struct shotline_receive_queue *queue = data;
	return (uint16_t)(SHOTLINE_REPORT_USED(*queue->report) - queue->next);
}

int shotline_receive_descriptor_status(void *data, uint16_t offset)
{
	const struct shotline_receive_queue *queue = data;
	if (offset >= queue->descriptors)
		return -EINVAL;
	if (offset < shotline_receive_queue_count(data))
		return RTE_ETH_RX_DESC_DONE;
	return offset < (uint16_t)(queue->given - queue->next) ? RTE_ETH_RX_DESC_AVAIL : RTE_ETH_RX_DESC_UNAVAIL;
}
