//! The conformance suite over a backend's two ends, and what the tests of backends share with it.

use shotline_conformance::Failure;
use shotline_transport::conformance::{self, Ends, Fixture};
pub use shotline_transport::conformance::{Collector, Got, HEADER, Memory, PLACES, header};
use shotline_transport::{Capabilities, PacketIo, Recv, To};

/// Receives until `packets` have come.
pub fn receive<P: PacketIo>(rx: &mut P, memory: &Memory, ids: Vec<Option<u32>>, packets: usize) -> Vec<Got> {
    let wanted = ids.into_iter().map(|id| id.map_or(To::Scratch, To::Posted)).collect();
    conformance::receive(rx, Collector::new(memory, wanted), packets).unwrap()
}

pub fn post(rx: &mut impl PacketIo, memory: &Memory, ids: std::ops::Range<u32>) {
    let place = |id| Recv { id, sge: [memory.place(u64::from(id), 4096), shotline_memory::Sge::EMPTY] };
    let receives: Vec<Recv> = ids.map(place).collect();
    assert_eq!(rx.post(&receives), receives.len());
}

/// A receiver that asks the steer, and loses what it has no room for.
pub const STEERS: Capabilities = Capabilities { steers: true, credits: false };
/// The same of one that stops its sender instead.
pub const CREDITS: Capabilities = Capabilities { steers: true, credits: true };

/// Runs the suite over what `open` makes; `close` gets both ends when it is done.
pub fn conforms<T: PacketIo, R: PacketIo>(
    name: &str,
    sealed: bool,
    capabilities: Capabilities,
    memory: &Memory,
    mut open: impl FnMut() -> Ends<T, R>,
    close: impl FnOnce(Ends<T, R>) -> Result<(), Failure>,
) {
    let name = format!("{name}, {}", if sealed { "sealed" } else { "not sealed" });
    let fixture = Fixture { name, sealed, capabilities, open: |_: &Memory| Ok(open()), close };
    let report = conformance::run(fixture, memory);
    report.expect_conformance();
}
