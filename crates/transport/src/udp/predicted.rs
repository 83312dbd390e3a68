//! Receives several single packets with one system call, into predicted destinations.
//!
//! Packets that GRO has not merged cost one peek each if every header is read before the copy. In a steady stream the
//! steer can predict the next packets, so here `recvmmsg` receives into the predicted destinations. A packet that
//! differs from the prediction is still received completely: if it has the predicted length but belongs to another
//! destination, the steer moves it; if it has another length, or is a GRO batch after all, it overflows into memory
//! that holds any datagram, and is delivered from there.

use super::posted::{Progress, RawSlot, ReceiveQueue};
use super::sys::{IoVec, Received, RecvBatch};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Icrc, MAX_HEADER, PayloadLocation, Pick, RxPacket, Steer};
use arrayvec::ArrayVec;
use rustix::fd::OwnedFd;
use shotline_memory::Sge;
use shotline_wire::shot::DropCause;
use std::io;
use std::net::SocketAddr;

/// Maximum packets received by one call.
pub(super) const DEPTH: usize = 16;
/// Number of consecutive single packets after which this path is used.
const MIN_RUN: u32 = 64;
/// Maximum bytes of a datagram or GRO batch.
const MAX_DATAGRAM_BYTES: usize = 1 << 16;

/// State of receiving packets into predicted destinations.
#[derive(Default)]
pub(super) struct PredictedReceiver {
    /// Number of consecutive single packets so far, at most [`MIN_RUN`].
    singles: u32,
    /// `None` until first used.
    buffers: Option<Box<Buffers>>,
}

struct Buffers {
    messages: RecvBatch<DEPTH>,
    header_scratch: [[u8; MAX_HEADER + ICRC_BYTES]; DEPTH],
    overflow: Vec<u8>,
    expected: [Expected; DEPTH],
}

/// Prediction for one packet.
#[derive(Clone, Copy)]
struct Expected {
    header: usize,
    payload: usize,
    slot: Option<(PayloadLocation, RawSlot)>,
}

impl PredictedReceiver {
    /// Records a batch of this many packets.
    pub(super) fn record(&mut self, packets: usize) {
        self.singles = if packets == 1 { (self.singles + 1).min(MIN_RUN) } else { 0 };
    }

    /// Returns `true` if the stream consists of single packets.
    pub(super) fn is_active(&self) -> bool {
        self.singles == MIN_RUN
    }

    /// Receives packets into the destinations that the steer predicts; `None` if it predicts fewer than two.
    pub(super) fn receive<S: Steer>(
        &mut self,
        posted: &mut ReceiveQueue,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
    ) -> io::Result<Option<Progress>> {
        let mut picks = [Pick::default(); DEPTH];
        let predicted = steer.predict(&mut picks);
        if predicted < 2 {
            return Ok(None);
        }
        let mut buffers = self.buffers.take().unwrap_or_default();
        let received = receive_into_predicted(posted, fd, &mut buffers, &picks[..predicted]);
        let result = received.and_then(|received| self.deliver(posted, &buffers, received, local, sealer, steer));
        // Buffers that nothing was received into stay posted.
        let received = result.as_ref().map_or(predicted, |(received, _)| *received);
        for Expected { slot, .. } in &buffers.expected[received..predicted] {
            posted.repost(*slot);
        }
        self.buffers = Some(buffers);
        result.map(|(received, packets)| Some(Progress { batches: 1, packets, is_drained: received < predicted }))
    }

    /// Reports `received` datagrams to the steer. Those in their predicted destinations are reported first, in one
    /// batch: the steer may then move payloads into any buffer, so no unreported payload may be in one. Datagrams that
    /// differ from the prediction are copied out before that, and reported afterwards. Returns the number of datagrams
    /// and of packets.
    fn deliver<S: Steer>(
        &mut self,
        posted: &mut ReceiveQueue,
        buffers: &Buffers,
        received: usize,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
    ) -> io::Result<(usize, usize)> {
        let mut batch = ArrayVec::<RxPacket<'_>, DEPTH>::new();
        let mut others = ArrayVec::<(Received, Vec<u8>), DEPTH>::new();
        let trailer = posted.trailer();
        for index in 0..received {
            let meta = buffers.messages.received(index)?;
            let Expected { header, payload, slot } = buffers.expected[index];
            if meta.total != header + payload + trailer || meta.segment != meta.total {
                others.push((meta, copy_out(posted, buffers, index, &meta)));
                continue;
            }
            let head = &buffers.header_scratch[index];
            let mut done = RxPacket {
                landed: PayloadLocation::Scratch(Sge::EMPTY),
                header: &head[..header],
                len: payload as u32,
                source: meta.source,
                stamp_ns: meta.stamp_ns,
                icrc: Icrc::Absent,
                payload_crc: 0,
                congested: meta.congested,
                fault: None,
            };
            if let Some((landed, _)) = slot {
                done.landed = landed;
            }
            let pieces = slot.map_or([(std::ptr::null_mut(), 0); 2], |(_, slot)| slot.pieces(payload));
            let icrc = head[header..header + trailer].try_into().ok();
            posted.verify(&mut done, 0, pieces, icrc, local, sealer);
            batch.push(done);
        }
        let mut packets = batch.len();
        if !batch.is_empty() {
            steer.landed(&batch);
        }
        if !others.is_empty() {
            self.record(2); // fall back to peeking
        }
        for (meta, bytes) in &others {
            packets += deliver_through_scratch(posted, bytes, meta, local, sealer, steer);
        }
        Ok((received, packets))
    }
}

/// Calls `recvmmsg` once: the header and the ICRC of each packet are received contiguously, the payload into its
/// destination, and the excess of a longer datagram into the overflow area.
fn receive_into_predicted(
    posted: &mut ReceiveQueue,
    fd: &OwnedFd,
    buffers: &mut Buffers,
    picks: &[Pick],
) -> io::Result<usize> {
    let trailer = posted.trailer();
    let mut pieces = [[IoVec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 5]; DEPTH];
    for (index, pick) in picks.iter().enumerate() {
        let header = usize::from(pick.header_len.unwrap_or(0)).min(MAX_HEADER);
        let slot = posted.take_any(pick.destination);
        let payload = slot.map_or(0, |(_, slot)| slot.len[0] as usize + slot.len[1] as usize);
        buffers.expected[index] = Expected { header, payload, slot };
        let head = buffers.header_scratch[index].as_mut_ptr();
        let overflow = buffers.overflow.as_mut_ptr().wrapping_add(index * MAX_DATAGRAM_BYTES);
        let list = &mut pieces[index];
        list[0] = IoVec { iov_base: head.cast(), iov_len: header };
        if let Some((_, slot)) = slot {
            for (piece, (address, len)) in list[1..3].iter_mut().zip(slot.pieces(payload)) {
                *piece = IoVec { iov_base: address.cast(), iov_len: len };
            }
        }
        list[3] = IoVec { iov_base: head.wrapping_add(header).cast(), iov_len: trailer };
        list[4] = IoVec { iov_base: overflow.cast(), iov_len: MAX_DATAGRAM_BYTES };
    }
    // SAFETY: every piece is in `buffers`, which is exclusively borrowed, or in a posted buffer that its owner does not
    // access until it lands; no reference to any of them exists.
    let received = unsafe { buffers.messages.receive(fd, &mut pieces[..picks.len()]) };
    if received.is_err() {
        picks.iter().zip(&buffers.expected).for_each(|(_, expected)| posted.repost(expected.slot));
    }
    received
}

/// Copies out a datagram that differs from the prediction, and posts its buffer again.
fn copy_out(posted: &mut ReceiveQueue, buffers: &Buffers, index: usize, meta: &Received) -> Vec<u8> {
    let Expected { header, payload, slot } = buffers.expected[index];
    let mut bytes = Vec::with_capacity(meta.total);
    bytes.extend_from_slice(&buffers.header_scratch[index][..header]);
    for (address, len) in slot.iter().flat_map(|(_, slot)| slot.pieces(payload)).filter(|(_, len)| *len > 0) {
        // SAFETY: the kernel has finished writing these bytes, which are in memory of this process alone; the buffer's
        // owner does not access it until it is reported.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address, len) });
    }
    bytes.extend_from_slice(&buffers.header_scratch[index][header..header + posted.trailer()]);
    let rest = meta.total.saturating_sub(bytes.len()).min(MAX_DATAGRAM_BYTES);
    bytes.extend_from_slice(&buffers.overflow[index * MAX_DATAGRAM_BYTES..][..rest]);
    bytes.truncate(meta.total);
    posted.repost(slot);
    bytes
}

/// Delivers a whole datagram or batch through scratch memory.
fn deliver_through_scratch<S: Steer>(
    posted: &mut ReceiveQueue,
    bytes: &[u8],
    meta: &Received,
    local: SocketAddr,
    sealer: &mut Sealer,
    steer: &mut S,
) -> usize {
    let (trailer, segment) = (posted.trailer(), meta.segment.max(1));
    let mut packets = 0;
    let datagrams: Vec<&[u8]> = if bytes.is_empty() { vec![bytes] } else { bytes.chunks(segment).collect() };
    for (index, packet) in datagrams.into_iter().enumerate() {
        let first = &packet[..packet.len().min(MAX_HEADER)];
        let len = packet.len() as u32;
        let view = crate::BatchInfo { first, packets: 1, segment: len, last: len, source: meta.source };
        let header = steer.header_len(&view).min(MAX_HEADER);
        let mut done = RxPacket {
            landed: PayloadLocation::Scratch(Sge::EMPTY),
            header: first,
            len: 0,
            source: meta.source,
            stamp_ns: meta.stamp_ns,
            icrc: Icrc::Absent,
            payload_crc: 0,
            congested: meta.congested,
            fault: Some(DropCause::Malformed),
        };
        if let Some(payload) = packet.len().checked_sub(header + trailer) {
            let scratch = Sge { len: payload as u32, ..posted.scratch };
            if payload > 0 {
                let region = posted.regions.get(scratch.region);
                region.write(scratch.offset as usize, &packet[header..header + payload]);
            }
            let address = posted.regions.address(scratch);
            done.landed = PayloadLocation::Scratch(scratch);
            done.header = &packet[..header];
            done.len = payload as u32;
            done.fault = None;
            let icrc = packet[header + payload..].try_into().ok();
            posted.verify(&mut done, index, [(address, payload), (std::ptr::null_mut(), 0)], icrc, local, sealer);
        }
        steer.landed(&[done]);
        packets += 1;
    }
    packets
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            messages: RecvBatch::new(),
            header_scratch: [[0; MAX_HEADER + ICRC_BYTES]; DEPTH],
            overflow: vec![0; DEPTH * MAX_DATAGRAM_BYTES],
            expected: [Expected { header: 0, payload: 0, slot: None }; DEPTH],
        }
    }
}
