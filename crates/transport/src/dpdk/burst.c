/* Receive and send bursts of a port. */

#include "port.h"

#include <string.h>

#include <rte_ethdev.h>
#include <rte_pause.h>

/* Maximum consecutive attempts to send while the driver's ring is full: some ten microseconds, in which a peer frees
 * part of it. */
#define MAX_TRIES 512

void free_held(struct shot_port *port)
{
	if (port->count > 0)
		rte_pktmbuf_free_bulk(port->held, port->count);
	port->count = 0;
}

void describe(struct shot_port *port, uint16_t index, struct shot_frame *frame)
{
	struct rte_mbuf *mbuf = port->held[index];
	uint64_t l4 = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	uint64_t l3 = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
	frame->faults = l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD || l3 == RTE_MBUF_F_RX_IP_CKSUM_BAD ? SHOT_BAD_CHECKSUM : 0;
	frame->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	frame->len = mbuf->pkt_len;
	if (mbuf->nb_segs == 1) {
		/* If a frame is chained, memif's driver adds up the lengths of its pieces but writes each over the
		 * previous one. */
		uint32_t size = mbuf->buf_len - mbuf->data_off;
		if (frame->len > size) {
			frame->faults |= SHOT_TOO_LONG;
			frame->len = size;
		}
		return;
	}
	if (frame->len > MAX_FRAME_BYTES) {
		frame->faults |= SHOT_TOO_LONG;
		frame->len = mbuf->data_len;
		return;
	}
	frame->data = rte_pktmbuf_read(mbuf, 0, frame->len, port->linear + (size_t)index * MAX_FRAME_BYTES);
	if (frame->data == NULL) { /* the driver's total is not the sum of its pieces */
		frame->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
		frame->len = mbuf->data_len;
		frame->faults |= SHOT_TOO_LONG;
	}
}

uint16_t shot_receive(struct shot_port *port, uint16_t queue, struct shot_frame *frames, uint16_t max)
{
	shot_register_thread();
	if (!enter_port(port))
		return 0;
	free_held(port);
	port->count = rte_eth_rx_burst(port->id, queue, port->held, max < SHOT_BURST ? max : SHOT_BURST);
	leave_port(port);
	for (uint16_t index = 0; index < port->count; index++)
		describe(port, index, &frames[index]);
	return port->count;
}

static void free_nothing(void *memory, void *opaque)
{
	(void)memory;
	(void)opaque;
}

/* Allocates a buffer whose data is the caller's memory. */
static struct rte_mbuf *attach_external(struct rte_mempool *pool, const struct shot_piece *piece)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	if (mbuf == NULL)
		return NULL;
	struct rte_mbuf_ext_shared_info *shared = rte_mbuf_to_priv(mbuf);
	shared->free_cb = free_nothing;
	rte_mbuf_ext_refcnt_set(shared, 1);
	rte_pktmbuf_attach_extbuf(mbuf, (void *)(uintptr_t)piece->data, RTE_BAD_IOVA, (uint16_t)piece->len, shared);
	mbuf->data_off = 0;
	mbuf->data_len = mbuf->pkt_len = piece->len;
	return mbuf;
}

/* Returns whether a frame can be sent without a copy: one piece, in memory that the peer can read. */
static bool is_sent_in_place(const struct shot_port *port, const struct shot_piece *piece, const struct shot_piece *end)
{
	return port->zero_copy && piece->stable && piece + 1 == end && zero_copy_reaches(piece->data, piece->len);
}

/* Builds a frame of these pieces; NULL if no buffers are free, or the driver does not support the frame. */
static struct rte_mbuf *build(struct shot_port *port, const struct shot_piece *piece, const struct shot_piece *end)
{
	struct rte_mbuf *head = NULL;
	if (is_sent_in_place(port, piece, end))
		return attach_external(port->send_pool, piece);
	for (; piece < end; piece++) {
		/* A driver that gathers has copied the data when its burst returns. */
		bool in_place = port->gathers && piece->stable;
		char *to = head != NULL && !in_place ? rte_pktmbuf_append(head, (uint16_t)piece->len) : NULL;
		if (to == NULL) {
			struct rte_mempool *pool = port->send_pool;
			struct rte_mbuf *next = in_place ? attach_external(pool, piece) : rte_pktmbuf_alloc(pool);
			if (next == NULL)
				goto failed;
			if (!in_place && (to = rte_pktmbuf_append(next, (uint16_t)piece->len)) == NULL) {
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
	shot_register_thread();
	struct rte_mbuf *mbufs[SHOT_BURST];
	uint16_t made = 0, sent = 0;
	uint32_t begin = 0;
	for (; made < frames && made < SHOT_BURST; made++) {
		mbufs[made] = build(port, pieces + begin, pieces + ends[made]);
		if (mbufs[made] == NULL)
			break;
		begin = ends[made];
	}
	if (port->zero_copy) {
		zero_copy_set_refcnt(mbufs, made, 2);
		if (made < frames)
			shot_in_flight(port); /* all buffers are in use by the peer: reclaim some */
	}
	for (int tries = 0; sent < made && tries < MAX_TRIES; tries++) {
		if (enter_port(port)) {
			uint16_t accepted = rte_eth_tx_burst(port->id, 0, mbufs + sent, made - sent);
			if (port->zero_copy) {
				zero_copy_record(port, mbufs + sent, accepted);
				zero_copy_reclaim(port, false);
			}
			leave_port(port);
			sent += accepted;
			if (accepted > 0)
				tries = 0;
		}
		if (sent < made)
			rte_pause();
	}
	if (port->zero_copy)
		zero_copy_set_refcnt(mbufs + sent, made - sent, 1);
	if (sent < made)
		rte_pktmbuf_free_bulk(mbufs + sent, made - sent);
	return sent;
}

