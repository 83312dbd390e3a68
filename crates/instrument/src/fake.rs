//! A test link that records the packets sent over it.

use shotline_memory::Regions;
use shotline_transport::{DeviceCounters, IoError, PacketIo, Seal, TxPacket};
use shotline_wire::crc;
use shotline_wire::icrc::{self, Flow, Network};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// Implements the receiving half of `PacketIo` for send-only links with a `regions` field.
macro_rules! receives_nothing {
    () => {
        fn counters(&self) -> Vec<(String, u64)> {
            Vec::new()
        }
        fn queue_pair(&self) -> Option<(u32, u32)> {
            None
        }
        fn capabilities(&self) -> shotline_transport::Capabilities {
            shotline_transport::Capabilities { steers: false, credits: true }
        }
        fn register(&mut self, regions: &shotline_memory::Regions) {
            self.regions = regions.clone();
        }
        fn post(&mut self, _: &[shotline_transport::Recv]) -> usize {
            0
        }
        fn withdraw(&mut self, _: &[u32]) {}
        fn poll<S: shotline_transport::Steer>(
            &mut self,
            _: &mut S,
            _: usize,
        ) -> Result<usize, shotline_transport::IoError> {
            Ok(0)
        }
        fn wait(&mut self, _: std::time::Duration) -> Result<(), shotline_transport::IoError> {
            Ok(())
        }
        fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }
    };
}
pub(crate) use receives_nothing;

/// Source address and port of every packet.
pub(crate) const SOURCE: ([u8; 4], u16) = ([127, 0, 0, 2], 49152);
/// Destination address of every packet, whichever address the caller passes; the caller's port is kept.
pub(crate) const DESTINATION: [u8; 4] = [127, 0, 0, 1];

/// A sent packet.
pub(crate) struct Sent {
    /// Number of the link.
    pub(crate) link: u8,
    pub(crate) to: SocketAddr,
    /// Send time by the test's clock, in ns.
    pub(crate) sent_ns: u64,
    /// UDP payload, with headers and ICRC.
    pub(crate) bytes: Vec<u8>,
    pub(crate) header_len: usize,
    /// The CRC remainder passed with the payload is correct. Senders that inject errors pass a wrong one.
    pub(crate) remainder_is_correct: bool,
}

/// Packets sent by all links of a test, and the test's clock.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) sent: Rc<RefCell<Vec<Sent>>>,
    pub(crate) now: Rc<Cell<u64>>,
}

/// A send-only link that accepts up to `capacity` packets per call.
pub(crate) struct FakeLink {
    pub(crate) link: u8,
    pub(crate) regions: Regions,
    pub(crate) capacity: usize,
    pub(crate) log: Log,
}

impl PacketIo for FakeLink {
    crate::fake::receives_nothing!();
    fn device_counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let accepted = packets.len().min(self.capacity);
        for packet in &packets[..accepted] {
            let mut bytes = packet.header.to_vec();
            for sge in packet.gather.iter().filter(|sge| sge.len > 0) {
                let at = bytes.len();
                bytes.resize(at + sge.len as usize, 0);
                self.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
            }
            let header_len = packet.header.len();
            let mut remainder_is_correct = true;
            match packet.seal {
                Seal::Remainder(remainder) => {
                    let payload = &bytes[header_len..];
                    remainder_is_correct = remainder == crc::remainder(payload);
                    let network = Network::V4 { src: SOURCE.0, dst: DESTINATION, id: 0 };
                    let flow = Flow { network, src_port: SOURCE.1, dst_port: to.port() };
                    let after = icrc::after_header(flow.prefix(bytes.len() as u16 + 4), packet.header);
                    let icrc = icrc::seal(after, payload.len() as u64, remainder);
                    bytes.extend(icrc.to_le_bytes());
                }
                Seal::Compute | Seal::None => {} // a real link would add the ICRC for `Compute`
                Seal::Forced(value) => bytes.extend(value.to_le_bytes()),
            }
            self.log.sent.borrow_mut().push(Sent {
                link: self.link,
                to,
                sent_ns: self.log.now.get(),
                bytes,
                header_len,
                remainder_is_correct,
            });
        }
        Ok(accepted)
    }
}
