//! What a transport does that holds whole packets in memory: [`PacketCopier`], for transports of your own.
//!
//! Such a transport reads packets from somewhere into a buffer of its own and passes them to [`PacketCopier::land`]. Its
//! send makes the bytes of each packet by [`PacketCopier::gather`]. What remains to be written is how bytes are read and
//! written, how to wait, and how many packets fit. [`inproc`](crate::inproc) is one, and
//! `examples/06-custom-transport` another; [`conformance`](crate::conformance) checks both.
//!
//! Each payload is copied once more than by a transport that reads the header before the payload, as [`udp`](crate::udp)
//! does.

use crate::payload::PostedReceives;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{
    BatchInfo, Icrc, MAX_BATCH, MAX_HEADER, PayloadLocation, Pick, Recv, RxPacket, SCRATCH_BYTES, Seal, Steer, TxPacket,
};
use arrayvec::ArrayVec;
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::net::SocketAddr;

/// Maximum length of a packet, header and ICRC included: of longer ones the payload may not fit into scratch memory.
pub const MAX_PACKET: usize = SCRATCH_BYTES as usize;

/// Configuration of a [`PacketCopier`].
#[derive(Clone, Copy, Debug)]
pub struct CopierConfig {
    /// Address of this end. A transport without IP addresses uses any, the same at both ends: the ICRC covers it.
    pub address: SocketAddr,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Maximum number of posted receives.
    pub capacity: usize,
    /// Registered memory for payloads without a destination: one batch of [`SCRATCH_BYTES`].
    pub scratch: Sge,
}

/// Posted receives, and the ICRCs and payloads of packets that a transport holds as bytes.
pub struct PacketCopier {
    config: CopierConfig,
    posted: PostedReceives,
    sealer: Sealer,
}

impl PacketCopier {
    /// Creates a copier without posted receives.
    pub fn new(config: CopierConfig, regions: &Regions) -> Self {
        Self { config, posted: PostedReceives::new(config.capacity, regions), sealer: Sealer::new() }
    }

    /// Returns its configuration.
    pub fn config(&self) -> &CopierConfig {
        &self.config
    }

    /// As [`PacketIo::register`](crate::PacketIo::register).
    pub fn register(&mut self, regions: &Regions) {
        self.posted.regions = regions.clone();
    }

    /// As [`PacketIo::post`](crate::PacketIo::post).
    ///
    /// # Panics
    /// If an id is at or above the capacity.
    pub fn post(&mut self, receives: &[Recv]) -> usize {
        self.posted.post(receives)
    }

    /// As [`PacketIo::withdraw`](crate::PacketIo::withdraw).
    pub fn withdraw(&mut self, ids: &[u32]) {
        self.posted.withdraw(ids);
    }

    /// Delivers received packets of one sender to the steer: copies their payloads to the destinations that it chooses,
    /// verifies their ICRCs, and passes them on.
    ///
    /// Packets of equal length, of which the last may be shorter, may be passed together, up to [`MAX_BATCH`] of them.
    /// A transport that reads one packet at a time passes each alone. A packet that is longer than [`MAX_PACKET`], or
    /// shorter than its header, is passed on as malformed.
    pub fn land<S: Steer>(&mut self, source: SocketAddr, packets: &[&[u8]], steer: &mut S) {
        let mut rest = packets;
        while !rest.is_empty() {
            // All of a batch may go to scratch memory.
            let mut space = self.config.scratch.len as usize;
            let fitting = rest.iter().take(MAX_BATCH).take_while(|packet| {
                let fits = packet.len() <= space;
                space = space.saturating_sub(packet.len());
                fits
            });
            let (batch, more) = rest.split_at(fitting.count().max(1));
            self.land_batch(source, batch, steer);
            rest = more;
        }
    }

    fn land_batch<S: Steer>(&mut self, source: SocketAddr, batch: &[&[u8]], steer: &mut S) {
        let [first, ..] = batch else { return };
        let seen = BatchInfo {
            first: &first[..first.len().min(MAX_HEADER)],
            packets: batch.len(),
            segment: first.len() as u32,
            last: batch[batch.len() - 1].len() as u32,
            source,
        };
        let header = steer.header_len(&seen).min(MAX_HEADER);
        let mut picks = [Pick::default(); MAX_BATCH];
        if first.len() >= header + self.trailer() {
            steer.pick(&seen, &mut picks[..batch.len()]);
        }
        let mut scratch = self.config.scratch;
        let mut landed = ArrayVec::<RxPacket<'_>, MAX_BATCH>::new();
        for (segment, (packet, pick)) in batch.iter().zip(picks).enumerate() {
            let max_header = packet.len().saturating_sub(self.trailer()).min(MAX_HEADER);
            let header = pick.header_len.map_or(header, |chosen| usize::from(chosen).min(max_header));
            landed.push(self.land_packet(source, packet, (segment, header, pick), &mut scratch));
        }
        steer.landed(&landed);
    }

    /// Copies one payload, and verifies the packet with this position in its batch and this length of its header.
    fn land_packet<'p>(
        &mut self,
        source: SocketAddr,
        packet: &'p [u8],
        (segment, header, pick): (usize, usize, Pick),
        scratch: &mut Sge,
    ) -> RxPacket<'p> {
        let mut done = RxPacket {
            landed: PayloadLocation::Scratch(Sge::EMPTY),
            header: &packet[..packet.len().min(MAX_HEADER)],
            len: 0,
            source,
            stamp_ns: 0,
            icrc: Icrc::Absent,
            payload_crc: 0,
            congested: false,
            fault: Some(DropCause::Malformed),
        };
        let Some(front) = packet.len().checked_sub(self.trailer()).filter(|front| header <= *front) else {
            return done;
        };
        let (front, sealed) = packet.split_at(front);
        let (head, payload) = front.split_at(header);
        // Any destination may turn out not to fit.
        if payload.len() > scratch.len as usize {
            return done;
        }
        done.header = head;
        done.len = payload.len() as u32;
        done.fault = None;
        done.payload_crc = crc::remainder(payload);
        done.landed = self.posted.land(pick.destination, payload, *scratch);
        if let PayloadLocation::Scratch(used) = done.landed {
            scratch.offset += u64::from(used.len);
            scratch.len -= used.len;
        }
        if let Ok(received) = sealed.try_into().map(u32::from_le_bytes) {
            let (to, len) = (self.config.address, payload.len());
            done.icrc = self.sealer.check(source, to, segment, head, len, done.payload_crc, received);
            if done.icrc == Icrc::Bad {
                done.fault = Some(DropCause::BadIcrc);
            }
        }
        done
    }

    /// Appends the bytes of a packet to send: its header, its payload, and the ICRC if packets have one. `segment` is
    /// its position among those that are sent together, below [`MAX_BATCH`]; 0 is always valid.
    ///
    /// # Panics
    /// If a piece of the payload is outside its region.
    pub fn gather(&mut self, to: SocketAddr, segment: usize, packet: &TxPacket<'_>, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(packet.header);
        let payload = bytes.len();
        for sge in packet.gather.iter().filter(|sge| sge.len > 0) {
            let at = bytes.len();
            bytes.resize(at + sge.len as usize, 0);
            self.posted.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
        }
        if !self.config.sealed {
            return;
        }
        let payload = &bytes[payload..];
        let remainder = match packet.seal {
            Seal::Forced(icrc) => return bytes.extend_from_slice(&icrc.to_le_bytes()),
            Seal::Remainder(remainder) => remainder,
            // Of the copy: what is sent is what was sealed, whatever happens to the memory meanwhile.
            Seal::Compute | Seal::None => crc::remainder(payload),
        };
        let icrc = self.sealer.seal(self.config.address, to, segment, packet.header, payload.len(), remainder);
        bytes.extend_from_slice(&icrc.to_le_bytes());
    }

    fn trailer(&self) -> usize {
        if self.config.sealed { ICRC_BYTES } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Collector, Memory};

    #[test]
    fn packets_beyond_scratch_are_malformed_and_land_nowhere() {
        let memory = Memory::new();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let lands = |scratch: Sge, len| {
            let config = CopierConfig { address, sealed: false, capacity: 1, scratch };
            let mut steer = Collector::new(&memory, [].into());
            PacketCopier::new(config, &memory.regions).land(address, &[&vec![7; len]], &mut steer);
            let [packet] = steer.received.as_slice() else { panic!("{} packets", steer.received.len()) };
            (packet.fault, packet.bytes.len())
        };
        let header = crate::conformance::HEADER;
        assert_eq!(lands(memory.scratch, MAX_PACKET), (None, MAX_PACKET - header));
        assert_eq!(lands(memory.scratch, header + MAX_PACKET + 1), (Some(DropCause::Malformed), 0));
        assert_eq!(lands(Sge::EMPTY, header + 1), (Some(DropCause::Malformed), 0));
    }
}
