//! The conformance suite over a backend's two ends, and helpers of the backends' tests.

use shotline_conformance::Failure;
use shotline_transport::conformance::{self, EndpointPair, Fixture};
pub use shotline_transport::conformance::{BUFFERS, Collector, HEADER, Memory, ReceivedPacket, header};
use shotline_transport::{Capabilities, PacketIo, PayloadDestination, Recv};

/// Receives until `packets` packets have landed.
pub fn receive<P: PacketIo>(rx: &mut P, memory: &Memory, ids: Vec<Option<u32>>, packets: usize) -> Vec<ReceivedPacket> {
    let choices =
        ids.into_iter().map(|id| id.map_or(PayloadDestination::Scratch, PayloadDestination::Posted)).collect();
    conformance::receive(rx, Collector::new(memory, choices), packets).unwrap()
}

pub fn post(rx: &mut impl PacketIo, memory: &Memory, ids: std::ops::Range<u32>) {
    let buffer = |id| Recv { id, sge: [memory.buffer(u64::from(id), 4096), shotline_memory::Sge::EMPTY] };
    let receives: Vec<Recv> = ids.map(buffer).collect();
    assert_eq!(rx.post(&receives), receives.len());
}

/// A receiver that calls the steer, and drops packets when it is full.
pub const STEERS: Capabilities = Capabilities { steers: true, credits: false };
/// A receiver that calls the steer, and stops its sender when it is full.
pub const CREDITS: Capabilities = Capabilities { steers: true, credits: true };

/// Runs the suite over the ends that `open` returns; `close` gets both ends afterwards.
pub fn conforms<T: PacketIo, R: PacketIo>(
    name: &str,
    sealed: bool,
    capabilities: Capabilities,
    memory: &Memory,
    mut open: impl FnMut() -> EndpointPair<T, R>,
    close: impl FnOnce(EndpointPair<T, R>) -> Result<(), Failure>,
) {
    let name = format!("{name}, {}", if sealed { "sealed" } else { "not sealed" });
    let fixture = Fixture { name, sealed, capabilities, open: |_: &Memory| Ok(open()), close };
    let report = conformance::run(fixture, memory);
    report.expect_conformance();
}
