//! Replays packets that were examined during learning, before any newer ones.

use shotline_memory::{Regions, Sge};
use shotline_transport::{
    BatchInfo, Icrc, IoError, MAX_HEADER, PacketIo, PayloadLocation, RxPacket, Steer, delegate_packet_io,
};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// A received packet without its ICRC.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    pub(super) source: SocketAddr,
    stamp_ns: u64,
    icrc: Icrc,
    fault: Option<DropCause>,
}

impl Packet {
    pub(super) fn of(rx: &RxPacket<'_>, bytes: Vec<u8>) -> Self {
        let RxPacket { source, stamp_ns, icrc, fault, .. } = *rx;
        Self { bytes, source, stamp_ns, icrc, fault }
    }
}

/// A `PacketIo` that first passes on its buffered packets, through the scratch memory. They have no CRC remainders,
/// so shots with an end-of-shot record cannot be proven from them: learners of such senders keep no packets.
#[derive(Debug)]
pub struct BufferedIo<P> {
    io: P,
    regions: Regions,
    scratch: Sge,
    packets: VecDeque<Packet>,
}

impl<P> BufferedIo<P> {
    pub(super) fn new(io: P, regions: &Regions, scratch: Sge, packets: Vec<Packet>) -> Self {
        Self { io, regions: regions.clone(), scratch, packets: packets.into() }
    }

    /// Creates a `PacketIo` without buffered packets.
    pub fn empty(io: P, regions: &Regions, scratch: Sge) -> Self {
        Self::new(io, regions, scratch, Vec::new())
    }

    fn deliver(&mut self, packet: &Packet, steer: &mut impl Steer) {
        let bytes = packet.bytes.as_slice();
        let len = bytes.len() as u32;
        let first = &bytes[..bytes.len().min(MAX_HEADER)];
        let seen = BatchInfo { first, packets: 1, segment: len, last: len, source: packet.source };
        let (header, payload) = bytes.split_at(steer.header_len(&seen).min(MAX_HEADER).min(bytes.len()));
        let landed = Sge { len: payload.len() as u32, ..self.scratch };
        if !payload.is_empty() {
            self.regions.get(landed.region).write(landed.offset as usize, payload);
        }
        steer.landed(&[RxPacket {
            landed: PayloadLocation::Scratch(landed),
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

impl<P: PacketIo> PacketIo for BufferedIo<P> {
    delegate_packet_io!(io; except poll, wait);

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        if self.packets.is_empty() {
            return self.io.poll(steer, max);
        }
        let mut packets = 0;
        while packets < max
            && let Some(packet) = self.packets.pop_front()
        {
            self.deliver(&packet, steer);
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
    use shotline_transport::conformance::{self, EndpointPair, Fixture, Memory};

    #[test]
    fn buffered_io_delegates_everything_else() {
        let memory = Memory::new();
        let packet = || Packet {
            bytes: vec![1; 60],
            source: ([127, 0, 0, 1], 9).into(),
            stamp_ns: 0,
            icrc: Icrc::Absent,
            fault: None,
        };
        let wrapper = Wrapper { name: "BufferedIo", overrides: &[], steer: None };
        delegation::check(&wrapper, |io| BufferedIo::empty(io, &memory.regions, memory.scratch)).unwrap();
        // A buffered packet is delivered first.
        let buffered = |io| BufferedIo::new(io, &memory.regions, memory.scratch, vec![packet()]);
        assert!(delegation::check(&wrapper, buffered).is_err_and(|reason| reason.contains("delegated calls of wait")));
    }

    #[test]
    fn buffered_io_conforms_like_the_transport_below() {
        let memory = Memory::new();
        let open = |memory: &Memory| {
            let buffered = |io| BufferedIo::empty(io, &memory.regions, memory.scratch);
            Ok(EndpointPair::in_process(memory, true, buffered))
        };
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "buffered".into(), sealed: true, capabilities, open, close: |_| Ok(()) };
        let report = conformance::run(fixture, &memory);
        report.expect_conformance();
    }
}
