//! One link of a probe: its packets in order, what faults make of them, and their way into a transport.

use super::Config;
use super::faults::{Emit, Extent, FaultCounts, Injected, Injector, Planned};
use super::shots::{Payload, Shots};
use arrayvec::ArrayVec;
use serde::Serialize;
use shotline_transport::{IoError, PacketIo, Seal, Send};
use shotline_wire::framing::{self, Counted, Framing, Kind, MAX_HEADER, Packet, Ud, Udp};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Packets given to the transport at a time: a multiple of 15, the full packets of one UDP segmentation batch.
const BATCH: usize = 120;
/// The byte with the BTH's congestion bits, which switches may set and the ICRC leaves out.
const ICRC_LEAVES_OUT: u32 = 4;

/// What a link has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Shots whose packets have all had their turn: sent, held back, or lost on purpose.
    pub shots: u64,
    /// Packets that the transport has taken, second copies included.
    pub packets: u64,
    /// Payload bytes in them.
    pub bytes: u64,
    /// Packets given up because the probe was told to stop while the path was full.
    pub unsent: u64,
    /// Packets that were never there to be sent: what a recording lacks.
    pub absent: u64,
    /// Times that the path was full.
    pub full: u64,
}

impl LinkCounts {
    /// What was added since an earlier state of the same counts.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            shots: self.shots - earlier.shots,
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            unsent: self.unsent - earlier.unsent,
            absent: self.absent - earlier.absent,
            full: self.full - earlier.full,
        }
    }
}

/// Where a link sends, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) to: SocketAddr,
    pub(super) framing: Arc<dyn Framing>,
    pub(super) link: framing::Link,
}

/// The framing with this identifier in set-up messages, if a probe speaks it.
pub(super) fn spoken(id: u8) -> Option<Arc<dyn Framing>> {
    match Kind::with_id(id)? {
        Kind::Ud => Some(Arc::new(Ud)),
        Kind::Counted => Some(Arc::new(Counted)),
        Kind::Udp => Some(Arc::new(Udp)),
        Kind::Digitizer | Kind::Vita49 | Kind::Spead | Kind::Hsb => None,
    }
}

/// The sending side of one link. Its sequence numbers and counts go on from target to target.
#[derive(Debug)]
pub(super) struct Link {
    index: u8,
    psn: u32,
    injector: Option<Injector>,
    emits: Vec<Emit>,
    /// The batch that is being sent; kept for its memory.
    ready: Vec<Ready>,
    counts: LinkCounts,
}

impl Link {
    /// A link whose first packet has sequence number `psn`.
    pub(super) fn new(index: u8, psn: u32, seed: u64, config: &Config) -> Self {
        let injector = || Injector::new(config.faults, seed, index, config.list_faults);
        let injector = (!config.faults.is_none()).then(injector);
        Self { index, psn, injector, emits: Vec::new(), ready: Vec::new(), counts: LinkCounts::default() }
    }

    /// Sequence number of the next packet.
    pub(super) fn psn(&self) -> u32 {
        self.psn
    }
    pub(super) fn counts(&self) -> LinkCounts {
        self.counts
    }
    pub(super) fn fault_counts(&self) -> FaultCounts {
        self.injector.as_ref().map(Injector::counts).unwrap_or_default()
    }
    pub(super) fn take_faults(&mut self) -> Vec<Injected> {
        self.injector.as_mut().map(Injector::take_list).unwrap_or_default()
    }

    /// Leaves out shots of `packets` packets: their sequence numbers pass.
    pub(super) fn skip(&mut self, shots: u64, packets: u32) {
        let packets = shots.saturating_mul(packets.into());
        self.psn = self.psn.wrapping_add(packets as u32) & 0xff_ffff;
        self.counts.shots += shots;
        self.counts.absent += packets;
    }

    /// Sends a shot, which must have been loaded. While the path is full, `again` says whether to go
    /// on trying.
    pub(super) fn send_shot(
        &mut self,
        shot: u64,
        target: &Target,
        shots: &mut impl Shots,
        io: &mut impl PacketIo,
        again: &mut dyn FnMut() -> bool,
    ) -> Result<(), IoError> {
        let geometry = *shots.geometry_of(self.index);
        let header = header_len(target, &geometry);
        let uncovered = target.framing.sealed().then_some(ICRC_LEAVES_OUT);
        self.emits.clear();
        for packet in 0..geometry.packets() {
            let planned = Planned { shot, packet: packet as u16, psn: self.psn };
            self.psn = self.psn.wrapping_add(1) & 0xff_ffff;
            if !shots.contains(self.index, packet as u16) {
                self.counts.absent += 1;
                continue;
            }
            match &mut self.injector {
                Some(injector) => {
                    let extent = Extent { header, payload: geometry.packet_bytes(packet), uncovered };
                    injector.push(planned, extent, &mut self.emits);
                }
                None => self.emits.push(Emit { planned, flips: None }),
            }
        }
        self.counts.shots += 1;
        self.send(target, shots, io, again)
    }

    /// Sends what faults still hold back.
    pub(super) fn flush(
        &mut self,
        target: &Target,
        shots: &mut impl Shots,
        io: &mut impl PacketIo,
        again: &mut dyn FnMut() -> bool,
    ) -> Result<(), IoError> {
        self.emits.clear();
        if let Some(injector) = &mut self.injector {
            injector.flush(&mut self.emits);
        }
        self.send(target, shots, io, again)
    }

    fn send(
        &mut self,
        target: &Target,
        shots: &mut impl Shots,
        io: &mut impl PacketIo,
        again: &mut dyn FnMut() -> bool,
    ) -> Result<(), IoError> {
        let planned = self.emits.len() as u64;
        let before = self.counts.packets;
        let mut result = Ok(true);
        for batch in self.emits.chunks(BATCH) {
            self.ready.clear();
            self.ready.extend(batch.iter().map(|emit| Ready::new(emit, self.index, target, shots)));
            let mut sends = ArrayVec::<_, BATCH>::new();
            let sealed = target.framing.sealed() && !shots.are_framed();
            sends.extend(self.ready.iter().map(|ready| ready.send(sealed)));
            let before = self.counts.packets;
            result = send_all(&sends, target.to, io, &mut self.counts, again);
            let geometry = shots.geometry_of(self.index);
            let taken = &batch[..(self.counts.packets - before) as usize];
            let payload = |emit: &Emit| u64::from(geometry.packet_bytes(emit.planned.packet.into()));
            self.counts.bytes += taken.iter().map(payload).sum::<u64>();
            if !matches!(result, Ok(true)) {
                break;
            }
        }
        self.counts.unsent += planned - (self.counts.packets - before);
        result.map(|_| ())
    }
}

/// Gives packets to the transport until it has taken all; false if `again` gave up.
fn send_all(
    mut sends: &[Send<'_>],
    to: SocketAddr,
    io: &mut impl PacketIo,
    counts: &mut LinkCounts,
    again: &mut dyn FnMut() -> bool,
) -> Result<bool, IoError> {
    while !sends.is_empty() {
        let (taken, rest) = sends.split_at(io.send(to, sends)?);
        counts.packets += taken.len() as u64;
        sends = rest;
        if !sends.is_empty() {
            counts.full += 1;
            if !again() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A packet with its header, ready for the transport.
#[derive(Debug)]
struct Ready {
    header: ArrayVec<u8, MAX_HEADER>,
    payload: Payload,
}

impl Ready {
    fn new(emit: &Emit, link: u8, target: &Target, shots: &mut impl Shots) -> Self {
        let Planned { shot, packet, psn } = emit.planned;
        let mut header = ArrayVec::new();
        if !shots.are_framed() {
            target.framing.emit(&target.link, &nth(shots.geometry_of(link), psn, shot, packet.into()), &mut header);
        }
        let mut payload = shots.payload(link, shot, packet);
        if let Some(flips) = &emit.flips {
            payload = shots.copies().flip(&mut header, payload, flips);
        }
        Self { header, payload }
    }

    fn send(&self, sealed: bool) -> Send<'_> {
        let seal = if sealed { Seal::Remainder(self.payload.remainder) } else { Seal::None };
        Send { header: &self.header, gather: &self.payload.gather, seal }
    }
}

fn header_len(target: &Target, geometry: &Geometry) -> u32 {
    let mut header = ArrayVec::new();
    target.framing.emit(&target.link, &nth(geometry, 0, 0, 0), &mut header);
    header.len() as u32
}

/// As [`Packet::nth`], for a packet that was planned from this geometry and so exists.
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
