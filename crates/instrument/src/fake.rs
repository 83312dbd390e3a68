//! A link for tests that keeps what is sent over it.

use shotline_memory::Regions;
use shotline_transport::{DeviceCounts, IoError, PacketIo, Seal, Send};
use shotline_wire::crc;
use shotline_wire::icrc::{self, Flow, Network};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// The half of a `PacketIo` that receives, for links that never do, and that have their `regions`.
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

/// The address and port that everything is sent from.
pub(crate) const SOURCE: ([u8; 4], u16) = ([127, 0, 0, 2], 49152);
/// The address that everything is sent to, whatever is asked for; the port is the one asked for.
pub(crate) const DESTINATION: [u8; 4] = [127, 0, 0, 1];

/// A packet as it left.
pub(crate) struct Sent {
    /// Over which link.
    pub(crate) link: u8,
    pub(crate) to: SocketAddr,
    /// When, by the test's clock.
    pub(crate) at: u64,
    /// Everything after UDP.
    pub(crate) bytes: Vec<u8>,
    pub(crate) header_len: usize,
    /// What the link was told of the payload's CRC is true; senders that inject errors lie.
    pub(crate) told_truly: bool,
}

/// What the links of a test have sent, and its clock.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) sent: Rc<RefCell<Vec<Sent>>>,
    pub(crate) now: Rc<Cell<u64>>,
}

/// Takes up to `room` packets at a time, and receives none.
pub(crate) struct FakeLink {
    pub(crate) link: u8,
    pub(crate) regions: Regions,
    pub(crate) room: usize,
    pub(crate) log: Log,
}

impl PacketIo for FakeLink {
    crate::fake::receives_nothing!();
    fn device(&self) -> DeviceCounts {
        DeviceCounts::default()
    }
    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        let taken = packets.len().min(self.room);
        for packet in &packets[..taken] {
            let mut bytes = packet.header.to_vec();
            for sge in packet.gather.iter().filter(|sge| sge.len > 0) {
                let at = bytes.len();
                bytes.resize(at + sge.len as usize, 0);
                self.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
            }
            let header_len = packet.header.len();
            let mut told_truly = true;
            match packet.seal {
                Seal::Remainder(remainder) => {
                    let payload = &bytes[header_len..];
                    told_truly = remainder == crc::remainder(payload);
                    let network = Network::V4 { src: SOURCE.0, dst: DESTINATION, id: 0 };
                    let flow = Flow { network, src_port: SOURCE.1, dst_port: to.port() };
                    let after = icrc::after_header(flow.prefix(bytes.len() as u16 + 4), packet.header);
                    let icrc = icrc::seal(after, payload.len() as u64, remainder);
                    bytes.extend(icrc.to_le_bytes());
                }
                Seal::Compute | Seal::None => {} // a real link would add the first
                Seal::Forced(value) => bytes.extend(value.to_le_bytes()),
            }
            self.log.sent.borrow_mut().push(Sent {
                link: self.link,
                to,
                at: self.log.now.get(),
                bytes,
                header_len,
                told_truly,
            });
        }
        Ok(taken)
    }
}
