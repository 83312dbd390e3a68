/* Bursts in and out of a port. */

#include "port.h"

#include <string.h>

#include <rte_ethdev.h>
#include <rte_pause.h>

/* Tries of one send while the driver has no room: some ten microseconds, in which a peer frees a ring's part. */
#define TRIES 512

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
		/* A memif counts all pieces of a chained frame, and writes each over the one before. */
		uint32_t room = mbuf->buf_len - mbuf->data_off;
		if (frame->len > room) {
			frame->faults |= SHOT_TOO_LONG;
			frame->len = room;
		}
		return;
	}
	if (frame->len > MOST_BYTES) {
		frame->faults |= SHOT_TOO_LONG;
		frame->len = mbuf->data_len;
		return;
	}
	frame->data = rte_pktmbuf_read(mbuf, 0, frame->len, port->joined + (size_t)index * MOST_BYTES);
	if (frame->data == NULL) { /* the driver's sum is not that of its pieces */
		frame->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
		frame->len = mbuf->data_len;
		frame->faults |= SHOT_TOO_LONG;
	}
}

uint16_t shot_receive(struct shot_port *port, uint16_t queue, struct shot_frame *frames, uint16_t most)
{
	shot_join();
	if (!enter_port(port))
		return 0;
	free_held(port);
	port->count = rte_eth_rx_burst(port->id, queue, port->held, most < SHOT_BURST ? most : SHOT_BURST);
	leave_port(port);
	for (uint16_t index = 0; index < port->count; index++)
		describe(port, index, &frames[index]);
	return port->count;
}

static void nothing(void *memory, void *opaque)
{
	(void)memory;
	(void)opaque;
}

/* A buffer whose bytes are the caller's own memory. */
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

/* Whether a frame is sent from where it lies: in one piece, in memory that the other side reads. */
static bool is_lent(const struct shot_port *port, const struct shot_piece *piece, const struct shot_piece *end)
{
	return port->lends && piece->stays && piece + 1 == end && lend_reaches(piece->data, piece->len);
}

/* A frame of these pieces; none without buffers, or if it does not fit the driver. */
static struct rte_mbuf *build(struct shot_port *port, const struct shot_piece *piece, const struct shot_piece *end)
{
	struct rte_mbuf *head = NULL;
	if (is_lent(port, piece, end))
		return around(port->send_pool, piece);
	for (; piece < end; piece++) {
		bool lies = port->gathers && piece->stays; /* such a driver has copied when its burst returns */
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
	shot_join();
	struct rte_mbuf *mbufs[SHOT_BURST];
	uint16_t made = 0, sent = 0;
	uint32_t begin = 0;
	for (; made < frames && made < SHOT_BURST; made++) {
		mbufs[made] = build(port, pieces + begin, pieces + ends[made]);
		if (mbufs[made] == NULL)
			break;
		begin = ends[made];
	}
	if (port->lends) {
		lend_mark(mbufs, made, 2);
		if (made < frames)
			shot_lent(port); /* all buffers are lent */
	}
	for (int tries = 0; sent < made && tries < TRIES; tries++) {
		if (enter_port(port)) {
			uint16_t took = rte_eth_tx_burst(port->id, 0, mbufs + sent, made - sent);
			if (port->lends) {
				lend_note(port, mbufs + sent, took);
				lend_take_back(port, false);
			}
			leave_port(port);
			sent += took;
			if (took > 0)
				tries = 0;
		}
		if (sent < made)
			rte_pause();
	}
	if (port->lends)
		lend_mark(mbufs + sent, made - sent, 1);
	if (sent < made)
		rte_pktmbuf_free_bulk(mbufs + sent, made - sent);
	return sent;
}

