//! Receiving GRO batches: peek, choice of destinations, one copy, verification.

use super::config::UdpConfig;
use super::posted::{Progress, RawSlot, ReceiveQueue};
use super::predicted::PredictedReceiver;
use super::small::SmallReceiver;
use super::sys::{self, IoVec, push_headers};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{BatchInfo, Icrc, MAX_BATCH, MAX_HEADER, PayloadLocation, Pick, RxPacket, SCRATCH_BYTES, Steer};
use arrayvec::ArrayVec;
use rustix::fd::OwnedFd;
use shotline_memory::{Regions, Sge};
use shotline_wire::shot::DropCause;
use std::io;
use std::net::SocketAddr;

/// Bytes for the headers and trailers of a batch, contiguous in stream order.
const HEADER_SCRATCH_BYTES: usize = MAX_BATCH * (MAX_HEADER + ICRC_BYTES) + MAX_HEADER;

/// Layout of one packet.
struct PacketLayout {
    /// Offset of its header in the header scratch.
    header_offset: usize,
    /// Bytes of its header; a runt consists of a header only.
    header: usize,
    /// Bytes of its payload.
    payload: usize,
    /// Bytes of its ICRC.
    trailer: usize,
    /// Offset of its payload in the scratch memory, if it has no destination.
    scratch_offset: usize,
    /// Destination of its payload, if not the scratch memory.
    slot: Option<(PayloadLocation, RawSlot)>,
    /// Too short for a header and an ICRC.
    is_runt: bool,
}

pub(super) struct Receiver {
    pub(super) posted: ReceiveQueue,
    header_scratch: Box<[u8; HEADER_SCRATCH_BYTES]>,
    pieces: Vec<IoVec>,
    /// Layout of each packet of the batch.
    layouts: Vec<PacketLayout>,
    predicted: PredictedReceiver,
    small: SmallReceiver,
}

// SAFETY: the addresses in `pieces` and `layouts` are recomputed for each batch, from `posted`, and are only passed to
// the kernel or read through `&mut self`.
unsafe impl std::marker::Send for Receiver {}

impl Receiver {
    pub(super) fn new(config: &UdpConfig, regions: &Regions) -> Self {
        Self {
            posted: ReceiveQueue::new(config, regions),
            header_scratch: Box::new([0; HEADER_SCRATCH_BYTES]),
            pieces: Vec::with_capacity(3 * MAX_BATCH + 1),
            layouts: Vec::with_capacity(MAX_BATCH),
            predicted: PredictedReceiver::default(),
            small: SmallReceiver::default(),
        }
    }

    /// Receives one batch, or up to `max` small ones. An empty datagram counts as a packet.
    pub(super) fn receive<S: Steer>(
        &mut self,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
        max: usize,
    ) -> io::Result<Progress> {
        if self.posted.scratch.len < SCRATCH_BYTES {
            return Err(io::Error::other("this backend was opened without scratch memory, for sending only"));
        }
        if self.predicted.is_active()
            && let Some(progress) = self.predicted.receive(&mut self.posted, fd, local, sealer, steer)?
        {
            return Ok(progress);
        }
        if self.small.is_active() {
            return self.receive_small(fd, local, sealer, steer, max);
        }
        let mut first = [IoVec { iov_base: self.header_scratch.as_mut_ptr().cast(), iov_len: MAX_HEADER }];
        // SAFETY: the piece is `self.header_scratch`, which is exclusively borrowed.
        let Some(meta) = (unsafe { sys::peek(fd, &mut first)? }) else {
            return Ok(Progress { batches: 0, packets: 0, is_drained: true });
        };
        let leading: [u8; MAX_HEADER] = *self.header_scratch.first_chunk().unwrap_or(&[0; MAX_HEADER]);
        let packets = self.steer(&meta, &leading, steer);
        // SAFETY: every piece is in `self.header_scratch`, in the scratch element, or in a posted buffer that its owner
        // does not access until it lands; no reference to any of them exists.
        let len = unsafe { sys::dequeue(fd, &mut self.pieces)? };
        if len != Some(meta.total) {
            return Err(io::Error::other("a datagram changed between peek and receive: is the socket shared?"));
        }
        self.report(&meta, local, sealer, steer);
        Ok(Progress { batches: 1, packets, is_drained: false })
    }

    /// Receives whole datagrams and copies their payloads to the destinations that the steer chooses.
    fn receive_small<S: Steer>(
        &mut self,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
        max: usize,
    ) -> io::Result<Progress> {
        let (mut buffers, count, requested) = self.small.receive(fd, max)?;
        let mut packets = 0;
        let mut result = Ok(());
        for index in 0..count {
            match buffers.meta(index) {
                Ok(meta) => {
                    let bytes = buffers.bytes(index);
                    packets += self.steer(&meta, bytes, steer);
                    // SAFETY: every piece is in `self.header_scratch`, in the scratch element, or in a posted buffer that
                    // its owner does not access until it lands; no reference to any of them exists.
                    unsafe { sys::scatter(bytes, &self.pieces) };
                    self.report(&meta, local, sealer, steer);
                }
                Err(error) => result = Err(error),
            }
        }
        self.small.return_buffers(buffers);
        result.map(|()| Progress { batches: count, packets, is_drained: count < requested })
    }

    /// Calls the steer for a batch's destinations and lists the pieces. `first` are its leading bytes. Returns its
    /// number of packets.
    fn steer<S: Steer>(&mut self, meta: &sys::Received, first: &[u8], steer: &mut S) -> usize {
        let batch = Batch::of(meta);
        self.predicted.record(batch.packets);
        self.small.record(meta.total);
        let view = BatchInfo {
            first: &first[..batch.segment.min(MAX_HEADER).min(first.len())],
            packets: batch.packets,
            segment: batch.segment as u32,
            last: batch.last as u32,
            source: meta.source,
        };
        let header = steer.header_len(&view).min(MAX_HEADER);
        let mut picks = [Pick::default(); MAX_BATCH];
        if batch.segment >= header + self.posted.trailer() {
            steer.pick(&view, &mut picks[..batch.packets]);
        }
        self.gather(&batch, header, &picks[..batch.packets]);
        batch.packets
    }

    /// Lists the pieces in stream order: header, payload, trailer of each packet; a trailer and the next header are
    /// adjacent and form one piece.
    fn gather(&mut self, batch: &Batch, header: usize, picks: &[Pick]) {
        let header_scratch = self.header_scratch.as_mut_ptr();
        let scratch = self.posted.regions.address(self.posted.scratch);
        let trailer = self.posted.trailer();
        let mut pending = 0..0; // the run of header bytes not yet listed
        let mut at = 0;
        self.pieces.clear();
        self.layouts.clear();
        for (index, pick) in picks.iter().enumerate() {
            let len = batch.len(index);
            // If the steer set a header length that is longer than the packet, it is shortened: the packet is still
            // delivered.
            let header = match pick.header_len {
                Some(chosen) => usize::from(chosen).min(MAX_HEADER).min(len.saturating_sub(trailer)),
                None => header,
            };
            let mut layout = match len.checked_sub(header + trailer) {
                Some(payload) => PacketLayout {
                    header_offset: at,
                    header,
                    payload,
                    trailer,
                    scratch_offset: index * batch.segment,
                    slot: None,
                    is_runt: false,
                },
                None => PacketLayout {
                    header_offset: at,
                    header: len.min(MAX_HEADER),
                    payload: len.saturating_sub(MAX_HEADER),
                    trailer: 0,
                    scratch_offset: index * batch.segment,
                    slot: None,
                    is_runt: true,
                },
            };
            pending.end += layout.header;
            if layout.payload > 0 {
                push_headers(&mut self.pieces, header_scratch, pending);
                layout.slot =
                    if layout.is_runt { None } else { self.posted.take_fitting(pick.destination, layout.payload) };
                match &layout.slot {
                    Some((_, slot)) => {
                        let pieces = slot.pieces(layout.payload).into_iter().filter(|(_, len)| *len > 0);
                        self.pieces.extend(pieces.map(|(at, iov_len)| IoVec { iov_base: at.cast(), iov_len }));
                    }
                    None => self.pieces.push(IoVec {
                        // Inside the scratch element: a batch is at most SCRATCH_BYTES.
                        iov_base: scratch.wrapping_add(layout.scratch_offset).cast(),
                        iov_len: layout.payload,
                    }),
                }
                pending = at + layout.header..at + layout.header;
            }
            pending.end += layout.trailer;
            at += layout.header + layout.trailer;
            self.layouts.push(layout);
        }
        push_headers(&mut self.pieces, header_scratch, pending);
    }

    /// Verifies every packet of the batch that was just copied and reports it to the steer.
    fn report<S: Steer>(&self, meta: &sys::Received, local: SocketAddr, sealer: &mut Sealer, steer: &mut S) {
        let scratch = self.posted.regions.address(self.posted.scratch);
        let mut batch = ArrayVec::<RxPacket<'_>, MAX_BATCH>::new();
        for (index, layout) in self.layouts.iter().enumerate() {
            let mut done = RxPacket {
                landed: PayloadLocation::Scratch(Sge::EMPTY),
                header: &self.header_scratch[layout.header_offset..layout.header_offset + layout.header],
                len: 0,
                source: meta.source,
                stamp_ns: meta.stamp_ns,
                icrc: Icrc::Absent,
                payload_crc: 0,
                congested: meta.congested,
                fault: None,
            };
            if layout.is_runt {
                done.fault = Some(DropCause::Malformed);
                batch.push(done);
                continue;
            }
            let payload = layout.payload;
            done.len = payload as u32;
            let (landed, pieces) = match &layout.slot {
                Some((landed, slot)) => (*landed, slot.pieces(payload)),
                None => {
                    let offset = self.posted.scratch.offset + layout.scratch_offset as u64;
                    let sge = Sge { offset, len: payload as u32, ..self.posted.scratch };
                    let at = scratch.wrapping_add(layout.scratch_offset);
                    (PayloadLocation::Scratch(sge), [(at, payload), (std::ptr::null_mut(), 0)])
                }
            };
            done.landed = landed;
            let trailer = layout.header_offset + layout.header;
            let icrc = self.header_scratch[trailer..trailer + layout.trailer].try_into().ok();
            self.posted.verify(&mut done, index, pieces, icrc, local, sealer);
            batch.push(done);
        }
        steer.landed(&batch);
    }
}

/// The segments of a super-packet: all of `segment` bytes, except that the last may be shorter.
#[derive(Clone, Copy)]
struct Batch {
    packets: usize,
    segment: usize,
    last: usize,
}

impl Batch {
    fn of(meta: &sys::Received) -> Self {
        let packets = meta.total.div_ceil(meta.segment.max(1)).max(1);
        if packets > MAX_BATCH {
            // The kernel's GRO stops at 64 segments: treated as one malformed packet.
            return Self { packets: 1, segment: meta.total, last: meta.total };
        }
        Self { packets, segment: meta.segment, last: meta.total - (packets - 1) * meta.segment }
    }
    /// Returns the bytes of a packet.
    fn len(&self, index: usize) -> usize {
        if index + 1 == self.packets { self.last } else { self.segment }
    }
}
