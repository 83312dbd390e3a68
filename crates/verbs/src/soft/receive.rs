//! Validation of received packets and their dispatch to queue pairs.
//!
//! A packet must be complete for its opcode, its queue pair must exist and be of the opcode's transport service, and
//! its ICRC must be good. Otherwise it is dropped here without a response, and counted by the first check that failed
//! ([`SoftDropCounters`]). Then the queue pair's engine checks that its state allows receiving, that the source is its
//! peer, and that the partition keys match, and counts what it drops in its [`crate::engine::QpCounters`]. (Linux
//! `rxe_recv.c` checks the ICRC last, because it computes it there; here the transport has computed it already. The
//! same packets are dropped.) An ICRC that is [`Icrc::Good`], [`Icrc::Solved`] or [`Icrc::Device`] is good; one that
//! could not be checked ([`Icrc::Unverified`], [`Icrc::Absent`]) never is: an unvalidated packet may change nothing.
//! One-sided operations carry an address or change memory that was not posted for them, so they accept a solved ICRC
//! only if the IPv4 identification follows the sender's last one; otherwise one of 65,536 corrupted packets would be
//! accepted.
//! [`QpConfig::accept_any_source_port`](crate::api::QpConfig::accept_any_source_port) disables this check.

use super::counters::{SoftCounters, SoftDropCounters};
use crate::api::QpType;
use crate::endpoint::Core;
use crate::engine::{BatchHead, IncomingPacket, Payload};
use arrayvec::ArrayVec;
use shotline_memory::Sge;
use shotline_transport::{BatchInfo, Icrc, MAX_BATCH, PayloadDestination, PayloadLocation, Pick, RxPacket, Steer};
use shotline_wire::bth::{Bth, Opcode, Service};
use shotline_wire::roce::{self, ICRC_LEN, MAX_HEADER_LEN};
use shotline_wire::shot::DropCause;

/// Selects the counter of a drop cause.
type DropCounter = fn(&mut SoftDropCounters) -> &mut u64;

/// The [`Steer`] of an endpoint, for one call.
pub(super) struct EndpointSteer<'a> {
    core: &'a mut Core,
    counters: &'a mut SoftCounters,
    /// Buffer for a packet whose header was not as long as predicted.
    realign: Sge,
    /// Number and index of the last packet's queue pair: most packets of a batch are for the same one.
    last: Option<(u32, u32)>,
}

impl<'a> EndpointSteer<'a> {
    pub(super) fn new(core: &'a mut Core, counters: &'a mut SoftCounters, realign: Sge) -> Self {
        Self { core, counters, realign, last: None }
    }

    /// Returns the index of a queue pair, and reschedules the previous one if it is another.
    fn index_of(&mut self, number: u32) -> Option<u32> {
        match self.last {
            Some((last, index)) if last == number => Some(index),
            _ => {
                let index = self.core.index_of(number)?;
                if let Some((_, previous)) = self.last.replace((number, index)) {
                    self.core.reschedule(previous);
                }
                Some(index)
            }
        }
    }

    /// Returns the index of a packet's queue pair, if it exists and its service fits.
    fn admit(&mut self, bth: &Bth) -> Result<u32, DropCounter> {
        let index = self.index_of(bth.dest_qp).ok_or((|drops| &mut drops.unknown_qp) as DropCounter)?;
        let Some(pair) = self.core.pair(index) else { return Err(|drops| &mut drops.unknown_qp) };
        let kind = pair.engine.config().kind;
        let fits = match bth.opcode.service() {
            Service::ReliableConnection => kind == QpType::Rc,
            Service::UnreliableConnection => kind == QpType::Uc,
            Service::UnreliableDatagram => kind == QpType::Ud,
            Service::CongestionNotification => true,
        };
        if !fits {
            return Err(|drops| &mut drops.wrong_service);
        }
        Ok(index)
    }

    fn receive(&mut self, rx: &RxPacket<'_>) -> Result<(), DropCounter> {
        let malformed: DropCounter = |drops| &mut drops.malformed;
        if rx.fault.is_some_and(|fault| fault != DropCause::BadIcrc) {
            return Err(malformed);
        }
        let opcode = rx.header.first().copied().and_then(Opcode::from_u8).ok_or(malformed)?;
        let (mut landed, mut len) = (rx.landed, rx.len);
        let mut complete = ArrayVec::<u8, MAX_HEADER_LEN>::new();
        let mut header = rx.header;
        if header.len() != opcode.header_len() {
            (landed, len) = self.realign(rx, opcode.header_len(), &mut complete).ok_or(malformed)?;
            header = &complete;
        }
        let (bth, extensions) = roce::header(header).map_err(|_| malformed)?;
        if len < u32::from(bth.pad) {
            return Err(malformed);
        }
        let index = self.admit(&bth)?;
        let any_id = || self.core.pair(index).is_some_and(|pair| pair.engine.config().accept_any_source_port);
        match rx.icrc {
            Icrc::Good | Icrc::Solved { is_in_sequence: true } | Icrc::Device => {}
            Icrc::Solved { is_in_sequence: false } if !bth.opcode.is_one_sided() || any_id() => {}
            Icrc::Solved { .. } => return Err(|drops| &mut drops.unverified),
            Icrc::Bad => return Err(|drops| &mut drops.bad_icrc),
            Icrc::Unverified | Icrc::Absent => return Err(|drops| &mut drops.unverified),
        }
        let (congested, source) = (rx.congested, rx.source);
        let (extensions, payload) = (&extensions, Payload::Landed(landed));
        let packet = IncomingPacket { bth, extensions, part: None, payload, len, congested, source };
        self.core.with(index, |engine, context| engine.receive(context, &packet));
        Ok(())
    }

    /// Separates header and payload again in a packet whose header is longer or shorter than predicted: the header's
    /// bytes go to `header`, the others to memory of the endpoint. Returns `None` if the packet is too short for its
    /// header.
    fn realign(
        &mut self,
        rx: &RxPacket<'_>,
        needed: usize,
        header: &mut ArrayVec<u8, MAX_HEADER_LEN>,
    ) -> Option<(PayloadLocation, u32)> {
        let (regions, realign) = (self.core.regions(), self.realign);
        let pieces = match rx.landed {
            PayloadLocation::Memory(sges) => sges,
            PayloadLocation::Scratch(sge) => [sge, Sge::EMPTY],
            PayloadLocation::Posted(_) => return None, // no buffers are posted to the transport
        };
        let mut bytes = [0; MAX_HEADER_LEN];
        let known = rx.header.len().min(needed);
        bytes[..known].copy_from_slice(&rx.header[..known]);
        // Payload bytes that were received as header, and header bytes that were received as payload.
        let surplus = &rx.header[known..];
        let missing = needed - known;
        let mut left = rx.len as usize;
        if missing > left || surplus.len() + left > realign.len as usize {
            return None;
        }
        regions.get(realign.region).write(realign.offset as usize, surplus);
        let (mut header_len, mut payload_len) = (known, surplus.len());
        for piece in pieces {
            let len = (piece.len as usize).min(left);
            if len == 0 {
                continue;
            }
            left -= len;
            let from = regions.get(piece.region);
            let head = (needed - header_len).min(len);
            from.read(piece.offset as usize, &mut bytes[header_len..header_len + head]);
            header_len += head;
            let (begin, rest) = (piece.offset as usize + head, len - head);
            regions.get(realign.region).copy_from(realign.offset as usize + payload_len, from, begin, rest);
            payload_len += rest;
        }
        if left > 0 {
            return None;
        }
        header.try_extend_from_slice(&bytes[..needed]).ok()?;
        self.counters.bytes_copied_again += payload_len as u64;
        Some((PayloadLocation::Scratch(Sge { len: payload_len as u32, ..realign }), payload_len as u32))
    }
}

/// Redirects payloads to scratch memory where two payloads of a batch would overlap: packets are validated only after
/// the whole batch is copied, so one would corrupt the other. Receives may share their memory (benchmarks do), and
/// gather lists may overlap.
fn separate_overlaps(picks: &mut [Pick]) {
    let mut taken = ArrayVec::<Sge, { 2 * MAX_BATCH }>::new();
    let overlap = |a: &Sge, b: &Sge| {
        let end = |sge: &Sge| sge.offset + u64::from(sge.len);
        a.region == b.region && a.offset < end(b) && b.offset < end(a)
    };
    // Destinations mostly ascend: they are compared with all others only from the first one on that does not.
    let follows = |last: &Sge, sge: &Sge| last.region == sge.region && last.offset + u64::from(last.len) <= sge.offset;
    let mut ascending = true;
    for pick in picks {
        let PayloadDestination::Memory(sges) = pick.destination else { continue };
        for sge in sges.iter().filter(|sge| sge.len > 0) {
            ascending &= taken.last().is_none_or(|last| follows(last, sge));
            if !ascending && taken.iter().any(|other| overlap(other, sge)) {
                pick.destination = PayloadDestination::Scratch;
                break;
            }
            if taken.try_push(*sge).is_err() {
                pick.destination = PayloadDestination::Scratch;
            }
        }
    }
}

impl Steer for EndpointSteer<'_> {
    fn header_len(&mut self, batch: &BatchInfo<'_>) -> usize {
        batch.first.first().copied().and_then(Opcode::from_u8).map_or(Bth::LEN, Opcode::header_len)
    }

    fn pick(&mut self, batch: &BatchInfo<'_>, picks: &mut [Pick]) {
        let bare = |bytes: u32| bytes.saturating_sub(ICRC_LEN as u32);
        // An acknowledgement after a request in one batch is shorter than the request's header: all of it is header.
        if let Some(last) = picks.last_mut().filter(|_| bare(batch.last) < self.header_len(batch) as u32) {
            last.header_len = u16::try_from(bare(batch.last)).ok();
        }
        let Ok((bth, extensions)) = roce::header(batch.first) else { return };
        let Ok(index) = self.admit(&bth) else { return };
        let Some(pair) = self.core.pair(index) else { return };
        // A payload from another source must not reach the connection's memory.
        if !pair.engine.is_from_peer(batch.source) {
            return;
        }
        let Some(receives) = self.core.receives(pair) else { return };
        let head = BatchHead {
            bth,
            extensions: &extensions,
            first_payload_len: bare(batch.segment).saturating_sub(bth.opcode.header_len() as u32),
            segment_len: bare(batch.segment),
            last_len: bare(batch.last),
            source: batch.source,
        };
        pair.engine.pick(self.core.protection(), receives, &head, picks);
        separate_overlaps(picks);
        if self.core.has_shared_regions() {
            // The transport cannot write device memory: the payload goes to scratch memory, from where the engine
            // copies it.
            let regions = self.core.regions();
            let is_reachable = |to: PayloadDestination| match to {
                PayloadDestination::Memory(sges) => {
                    sges.iter().all(|sge| sge.len == 0 || regions.get(sge.region).is_mapped())
                }
                PayloadDestination::Scratch | PayloadDestination::Posted(_) => true,
            };
            picks
                .iter_mut()
                .filter(|pick| !is_reachable(pick.destination))
                .for_each(|pick| pick.destination = PayloadDestination::Scratch);
        }
    }

    fn predict(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }

    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }

    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        self.counters.batches_in += 1;
        self.counters.packets_in += batch.len() as u64;
        for rx in batch {
            if let Err(cause) = self.receive(rx) {
                *cause(&mut self.counters.drops) += 1;
            }
        }
        if let Some((_, index)) = self.last {
            self.core.reschedule(index);
        }
    }
}
