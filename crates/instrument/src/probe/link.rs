//! Sending side of one link: packet order, fault injection, and hand-over to a transport.

use super::Config;
use super::faults::{Extent, FaultCounters, InjectedFault, Injector, OutgoingPacket, PlannedPacket};
use super::shots::{Payload, Shots};
use arrayvec::ArrayVec;
use serde::Serialize;
use shotline_transport::{IoError, PacketIo, Seal, TxPacket};
use shotline_wire::framing::{self, Counted, Framing, Kind, MAX_HEADER, Packet, Ud, Udp};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Packets passed to the transport at a time: a multiple of 15, the full packets of one UDP segmentation batch.
const BATCH: usize = 120;
/// Offset of the BTH byte with the congestion bits, which switches may set and the ICRC does not cover.
const ICRC_UNCOVERED_BYTE: u32 = 4;

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// Shots whose packets have all been processed: sent, held back, or dropped by fault injection.
    pub shots: u64,
    /// Packets accepted by the transport, including duplicates.
    pub packets: u64,
    /// Payload bytes in them.
    pub bytes: u64,
    /// Packets discarded because the probe was stopped while the path was full.
    pub discarded: u64,
    /// Packets that the source does not have, such as those missing in a recording.
    pub missing: u64,
    /// Send calls that did not accept all packets.
    pub tx_full: u64,
}

impl LinkCounters {
    /// Returns the difference to an earlier reading of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            shots: self.shots - earlier.shots,
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            discarded: self.discarded - earlier.discarded,
            missing: self.missing - earlier.missing,
            tx_full: self.tx_full - earlier.tx_full,
        }
    }
}

/// Destination and framing of a link.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) destination: SocketAddr,
    pub(super) framing: Arc<dyn Framing>,
    /// Queue pairs, queue key and stream.
    pub(super) keys: framing::Link,
}

/// Returns the framing with this set-up identifier if probes support it.
pub(super) fn framing_by_id(id: u8) -> Option<Arc<dyn Framing>> {
    match Kind::with_id(id)? {
        Kind::Ud => Some(Arc::new(Ud)),
        Kind::Counted => Some(Arc::new(Counted)),
        Kind::Udp => Some(Arc::new(Udp)),
        Kind::Digitizer | Kind::Vita49 | Kind::Spead | Kind::Hsb => None,
    }
}

/// Sending side of one link. Sequence numbers and counters continue across targets.
#[derive(Debug)]
pub(super) struct Link {
    index: u8,
    psn: u32,
    injector: Option<Injector>,
    outgoing: Vec<OutgoingPacket>,
    /// Batch being sent, kept to reuse its allocation.
    batch: Vec<PreparedPacket>,
    counters: LinkCounters,
}

impl Link {
    /// Creates a link whose first packet has sequence number `psn`.
    pub(super) fn new(index: u8, psn: u32, seed: u64, config: &Config) -> Self {
        let injector = || Injector::new(config.faults, seed, index, config.list_faults);
        let injector = (!config.faults.is_none()).then(injector);
        Self { index, psn, injector, outgoing: Vec::new(), batch: Vec::new(), counters: LinkCounters::default() }
    }

    /// Returns the sequence number of the next packet.
    pub(super) fn psn(&self) -> u32 {
        self.psn
    }
    pub(super) fn counters(&self) -> LinkCounters {
        self.counters
    }
    pub(super) fn fault_counters(&self) -> FaultCounters {
        self.injector.as_ref().map(Injector::counters).unwrap_or_default()
    }
    pub(super) fn take_faults(&mut self) -> Vec<InjectedFault> {
        self.injector.as_mut().map(Injector::take_list).unwrap_or_default()
    }

    /// Skips shots of `packets` packets each; their sequence numbers are consumed.
    pub(super) fn skip(&mut self, shots: u64, packets: u32) {
        let packets = shots.saturating_mul(packets.into());
        self.psn = self.psn.wrapping_add(packets as u32) & 0xff_ffff;
        self.counters.shots += shots;
        self.counters.missing += packets;
    }

    /// Sends a loaded shot. While the path is full, calls `retry` and stops trying once it returns `false`.
    pub(super) fn send_shot(
        &mut self,
        shot: u64,
        target: &Target,
        shots: &mut impl Shots,
        io: &mut impl PacketIo,
        retry: &mut dyn FnMut() -> bool,
    ) -> Result<(), IoError> {
        let geometry = *shots.geometry_of(self.index);
        let header = header_len(target, &geometry);
        let uncovered = target.framing.has_icrc().then_some(ICRC_UNCOVERED_BYTE);
        self.outgoing.clear();
        for packet in 0..geometry.packets() {
            let planned = PlannedPacket { shot, packet: packet as u16, psn: self.psn };
            self.psn = self.psn.wrapping_add(1) & 0xff_ffff;
            if !shots.contains(self.index, packet as u16) {
                self.counters.missing += 1;
                continue;
            }
            match &mut self.injector {
                Some(injector) => {
                    let extent = Extent { header, payload: geometry.packet_bytes(packet), uncovered };
                    injector.push(planned, extent, &mut self.outgoing);
                }
                None => self.outgoing.push(OutgoingPacket { planned, flips: None }),
            }
        }
        self.counters.shots += 1;
        self.send(target, shots, io, retry)
    }

    /// Sends packets still held back by fault injection.
    pub(super) fn flush(
        &mut self,
        target: &Target,
        shots: &mut impl Shots,
        io: &mut impl PacketIo,
        retry: &mut dyn FnMut() -> bool,
    ) -> Result<(), IoError> {
        self.outgoing.clear();
        if let Some(injector) = &mut self.injector {
            injector.flush(&mut self.outgoing);
        }
        self.send(target, shots, io, retry)
    }

    fn send(
        &mut self,
        target: &Target,
        shots: &mut impl Shots,
        io: &mut impl PacketIo,
        retry: &mut dyn FnMut() -> bool,
    ) -> Result<(), IoError> {
        let planned = self.outgoing.len() as u64;
        let before = self.counters.packets;
        let mut result = Ok(true);
        for batch in self.outgoing.chunks(BATCH) {
            self.batch.clear();
            self.batch.extend(batch.iter().map(|outgoing| PreparedPacket::new(outgoing, self.index, target, shots)));
            let mut sends = ArrayVec::<_, BATCH>::new();
            let sealed = target.framing.has_icrc() && !shots.are_framed();
            sends.extend(self.batch.iter().map(|packet| packet.send(sealed)));
            let before = self.counters.packets;
            result = send_all(&sends, target.destination, io, &mut self.counters, retry);
            let geometry = shots.geometry_of(self.index);
            let accepted = &batch[..(self.counters.packets - before) as usize];
            let payload = |outgoing: &OutgoingPacket| u64::from(geometry.packet_bytes(outgoing.planned.packet.into()));
            self.counters.bytes += accepted.iter().map(payload).sum::<u64>();
            if !matches!(result, Ok(true)) {
                break;
            }
        }
        self.counters.discarded += planned - (self.counters.packets - before);
        result.map(|_| ())
    }
}

/// Passes packets to the transport until it has accepted all; returns `false` if `retry` ended it early.
fn send_all(
    mut sends: &[TxPacket<'_>],
    to: SocketAddr,
    io: &mut impl PacketIo,
    counters: &mut LinkCounters,
    retry: &mut dyn FnMut() -> bool,
) -> Result<bool, IoError> {
    while !sends.is_empty() {
        let (accepted, rest) = sends.split_at(io.send(to, sends)?);
        counters.packets += accepted.len() as u64;
        sends = rest;
        if !sends.is_empty() {
            counters.tx_full += 1;
            if !retry() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A packet with its header, ready to send.
#[derive(Debug)]
struct PreparedPacket {
    header: ArrayVec<u8, MAX_HEADER>,
    payload: Payload,
}

impl PreparedPacket {
    fn new(outgoing: &OutgoingPacket, link: u8, target: &Target, shots: &mut impl Shots) -> Self {
        let PlannedPacket { shot, packet, psn } = outgoing.planned;
        let mut header = ArrayVec::new();
        if !shots.are_framed() {
            target.framing.emit(&target.keys, &nth(shots.geometry_of(link), psn, shot, packet.into()), &mut header);
        }
        let mut payload = shots.payload(link, shot, packet);
        if let Some(flips) = &outgoing.flips {
            payload = shots.copies().flip(&mut header, payload, flips);
        }
        Self { header, payload }
    }

    fn send(&self, sealed: bool) -> TxPacket<'_> {
        let seal = if sealed { Seal::Remainder(self.payload.remainder) } else { Seal::None };
        TxPacket { header: &self.header, gather: &self.payload.gather, seal }
    }
}

fn header_len(target: &Target, geometry: &Geometry) -> u32 {
    let mut header = ArrayVec::new();
    target.framing.emit(&target.keys, &nth(geometry, 0, 0, 0), &mut header);
    header.len() as u32
}

/// Infallible [`Packet::nth`] for an index that is within the geometry.
fn nth(geometry: &Geometry, psn: u32, shot: u64, index: u32) -> Packet {
    Packet {
        psn,
        shot,
        index,
        offset: geometry.packet_offset(index),
        len: geometry.packet_bytes(index),
        shot_bytes: geometry.sent_bytes(),
        last: index + 1 == geometry.packets(),
    }
}
