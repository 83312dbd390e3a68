//! Delivery of one datagram to a steer, for backends that hold its frame.

use crate::frame::{self, Datagram};
use crate::neighbour::NeighbourCache;
use crate::payload::PostedReceives;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{BatchInfo, Icrc, MAX_HEADER, PayloadDestination, PayloadLocation, Pick, RxPacket, Steer};
use shotline_memory::Sge;
use shotline_wire::shot::DropCause;
use shotline_wire::{ParseError, crc, icrc};
use std::net::SocketAddr;
use std::num::NonZeroU16;

/// The state needed to deliver a datagram.
pub struct Landing<'a> {
    pub posted: &'a mut PostedReceives,
    pub sealer: &'a mut Sealer,
    pub scratch: Sge,
    /// Packets end in an ICRC.
    pub sealed: bool,
    /// Payload remainders are also computed for packets without an ICRC.
    pub remainders: bool,
}

impl Landing<'_> {
    /// Delivers the datagram of a frame if it is for this address and port, or all datagrams that an offload has merged
    /// into it, of `segment` bytes each except the last. Returns how many there were. A sender whose ICRC is valid is
    /// added to `neighbours`.
    pub fn land_frame<S: Steer>(
        &mut self,
        frame: &[u8],
        segment: Option<NonZeroU16>,
        local: SocketAddr,
        neighbours: &mut NeighbourCache,
        steer: &mut S,
    ) -> Result<usize, ParseError> {
        let mut datagram = frame::parse(frame)?;
        if !frame::is_same(datagram.destination, local) {
            return Ok(0);
        }
        if let (SocketAddr::V6(source), SocketAddr::V6(local)) = (&mut datagram.source, local) {
            source.set_scope_id(local.scope_id()); // 0 except for link-local addresses
        }
        let (mut good, mut packets) = (false, 0);
        for datagram in datagram.segments(segment) {
            good |= self.land(&datagram, steer) == Icrc::Good;
            packets += 1;
        }
        if good {
            neighbours.learn(datagram.source.ip(), datagram.mac);
        }
        Ok(packets)
    }

    /// Lets the steer choose a destination for a datagram, copies its payload there, and returns the ICRC's verdict.
    pub fn land<S: Steer>(&mut self, datagram: &Datagram<'_>, steer: &mut S) -> Icrc {
        let seen = seen(datagram);
        let header = steer.header_len(&seen).min(MAX_HEADER);
        let mut pick = [Pick::default()];
        if let Some(front_len) = self.front_len(datagram).filter(|front_len| header <= *front_len) {
            steer.pick(&seen, &mut pick);
            let chosen = pick[0].header_len.map(|chosen| usize::from(chosen).min(MAX_HEADER).min(front_len));
            return self.land_at(datagram, chosen.unwrap_or(header), pick[0].destination, steer);
        }
        self.land_at(datagram, header, pick[0].destination, steer)
    }

    /// Returns the bytes of a datagram in front of its ICRC; `None` if it is shorter than that.
    fn front_len(&self, datagram: &Datagram<'_>) -> Option<usize> {
        datagram.payload.len().checked_sub(if self.sealed { ICRC_BYTES } else { 0 })
    }

    /// Copies a datagram's payload behind a header of this length to a destination, and returns the ICRC's verdict.
    pub fn land_at<S: Steer>(
        &mut self,
        datagram: &Datagram<'_>,
        header: usize,
        destination: PayloadDestination,
        steer: &mut S,
    ) -> Icrc {
        let bytes = datagram.payload;
        let mut done = RxPacket {
            landed: PayloadLocation::Scratch(Sge::EMPTY),
            header: &bytes[..bytes.len().min(MAX_HEADER)],
            len: 0,
            source: datagram.source,
            stamp_ns: 0,
            icrc: Icrc::Absent,
            payload_crc: 0,
            congested: datagram.congested,
            fault: Some(DropCause::Malformed),
        };
        if let Some(front_len) = self.front_len(datagram).filter(|front_len| header <= *front_len) {
            let (front, sealed) = bytes.split_at(front_len);
            let (header, payload) = front.split_at(header);
            done.header = header;
            done.len = payload.len() as u32;
            done.fault = None;
            done.landed = self.posted.land(destination, payload, self.scratch);
            if self.sealed || self.remainders {
                done.payload_crc = crc::remainder(payload); // these bytes are still in the cache
            }
            let ports = [datagram.source.port(), datagram.destination.port()];
            if let Ok(received) = sealed.try_into().map(u32::from_le_bytes) {
                done.icrc = self.sealer.check_known(datagram.network, ports, &done, received);
                // The sender may use inputs that our sockets do not: IP options, or packets that may be fragmented.
                if done.icrc == Icrc::Bad && icrc::verify_ip_packet(datagram.packet) == Ok(true) {
                    done.icrc = Icrc::Good;
                }
                if done.icrc == Icrc::Bad {
                    done.fault = Some(DropCause::BadIcrc);
                }
            }
        }
        let verdict = done.icrc;
        steer.landed(&[done]);
        verdict
    }
}

/// Returns what a steer sees of a datagram before its payload is copied.
pub fn seen<'a>(datagram: &Datagram<'a>) -> BatchInfo<'a> {
    let len = datagram.payload.len() as u32;
    let first = &datagram.payload[..datagram.payload.len().min(MAX_HEADER)];
    BatchInfo { first, packets: 1, segment: len, last: len, source: datagram.source }
}
