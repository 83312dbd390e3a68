//! Packets that were looked at, handed on before anything newer.

use shotline_memory::{Regions, Sge};
use shotline_transport::{Done, Icrc, IoError, Landed, MAX_HEADER, PacketIo, Seen, Steer, delegate_packet_io};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// A packet as it came, without its ICRC.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    pub(super) source: SocketAddr,
    stamp_ns: u64,
    icrc: Icrc,
    fault: Option<DropCause>,
}

impl Packet {
    pub(super) fn of(done: &Done<'_>, bytes: Vec<u8>) -> Self {
        let Done { source, stamp_ns, icrc, fault, .. } = *done;
        Self { bytes, source, stamp_ns, icrc, fault }
    }
}

/// A `PacketIo` that hands on the packets it holds first, by way of the scratch memory. They come without their
/// CRC remainders, so shots that end in our record cannot be proven from them: such senders have set-up, and need
/// not be learned.
#[derive(Debug)]
pub struct Held<P> {
    io: P,
    regions: Regions,
    scratch: Sge,
    packets: VecDeque<Packet>,
}

impl<P> Held<P> {
    pub(super) fn new(io: P, regions: &Regions, scratch: Sge, packets: Vec<Packet>) -> Self {
        Self { io, regions: regions.clone(), scratch, packets: packets.into() }
    }

    /// Holds nothing.
    pub fn nothing(io: P, regions: &Regions, scratch: Sge) -> Self {
        Self::new(io, regions, scratch, Vec::new())
    }

    fn hand_on(&mut self, packet: &Packet, steer: &mut impl Steer) {
        let bytes = packet.bytes.as_slice();
        let len = bytes.len() as u32;
        let first = &bytes[..bytes.len().min(MAX_HEADER)];
        let seen = Seen { first, packets: 1, segment: len, last: len, source: packet.source };
        let (header, payload) = bytes.split_at(steer.header_len(&seen).min(MAX_HEADER).min(bytes.len()));
        let landed = Sge { len: payload.len() as u32, ..self.scratch };
        if !payload.is_empty() {
            self.regions.get(landed.region).write(landed.offset as usize, payload);
        }
        steer.landed(&[Done {
            landed: Landed::Scratch(landed),
            header,
            len: landed.len,
            source: packet.source,
            stamp_ns: packet.stamp_ns,
            icrc: packet.icrc,
            payload_crc: 0,
            congested: false,
            fault: packet.fault,
        }]);
    }
}

impl<P: PacketIo> PacketIo for Held<P> {
    delegate_packet_io!(io; except poll, wait);

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        if self.packets.is_empty() {
            return self.io.poll(steer, max);
        }
        let mut packets = 0;
        while packets < max
            && let Some(packet) = self.packets.pop_front()
        {
            self.hand_on(&packet, steer);
            packets += 1;
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        if self.packets.is_empty() { self.io.wait(timeout) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_transport::Capabilities;
    use shotline_transport::conformance::delegation::{self, Wrapper};
    use shotline_transport::conformance::{self, Ends, Fixture, Memory};

    #[test]
    fn held_passes_on_what_it_does_not_change() {
        let memory = Memory::new();
        let packet = || Packet {
            bytes: vec![1; 60],
            source: ([127, 0, 0, 1], 9).into(),
            stamp_ns: 0,
            icrc: Icrc::Absent,
            fault: None,
        };
        let wrapper = Wrapper { name: "Held", changes: &[], steer: None };
        delegation::check(&wrapper, |io| Held::nothing(io, &memory.regions, memory.scratch)).unwrap();
        // While it holds a packet, that one comes first.
        let held = |io| Held::new(io, &memory.regions, memory.scratch, vec![packet()]);
        assert!(delegation::check(&wrapper, held).is_err_and(|why| why.contains("what arrives of wait")));
    }

    #[test]
    fn held_conforms_as_the_transport_below_it() {
        let memory = Memory::new();
        let open = |memory: &Memory| {
            let held = |io| Held::nothing(io, &memory.regions, memory.scratch);
            Ok(Ends::in_process(memory, true, held))
        };
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "held".into(), sealed: true, capabilities, open, close: |_| Ok(()) };
        let report = conformance::run(fixture, &memory);
        report.expect_conformance();
    }
}
