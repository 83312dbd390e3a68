//! UD queue pairs over the in-process link: packets to no queue pair, or without its key, have a drop cause.

use arrayvec::ArrayVec;
use shotline_memory::{Region, Registrar, Sge};
use shotline_transport::conformance::delegation::{self, Wrapper};
use shotline_transport::conformance::{self, EndpointPair, Fixture, Memory, Q_KEY, QUEUE_PAIR};
use shotline_transport::inproc::{InprocConfig, pair};
use shotline_transport::{
    BatchInfo, Capabilities, PacketIo, PayloadDestination, Pick, RxPacket, SCRATCH_BYTES, Seal, Steer, TxPacket,
};
use shotline_verbs::ud::{QueuePair, Ud};
use shotline_wire::framing::{self, Framing, Link, Packet};
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::net::SocketAddr;

#[derive(Default)]
struct Faults {
    picked: usize,
    seen: Vec<Option<DropCause>>,
}

impl Steer for Faults {
    fn header_len(&mut self, _batch: &BatchInfo<'_>) -> usize {
        24
    }
    fn pick(&mut self, _batch: &BatchInfo<'_>, picks: &mut [Pick]) {
        self.picked += picks.len();
    }
    fn predict(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        self.seen.extend(batch.iter().map(|done| done.fault));
    }
}

#[test]
fn wrong_number_key_or_opcode_is_dropped_with_its_cause() {
    let g = Geometry::new(8, 8, 12, Packing::Packed12, 0).unwrap(); // one packet of 192 bytes
    let mut registrar = Registrar::new();
    let mut add = |len| Sge { region: registrar.add(Region::host(len as usize).unwrap()), offset: 0, len };
    let (source, scratch) = (add(4096), add(SCRATCH_BYTES));
    let regions = registrar.finish();
    let end = |port| InprocConfig {
        address: SocketAddr::new("fd00::1".parse().unwrap(), port),
        sealed: true,
        capacity: 1,
        scratch,
    };
    let (mut tx, rx) = pair(100, (end(1), &regions), (end(2), &regions));
    let mut rx = Ud::new(rx);
    let (one, destroyed) = (rx.create().unwrap(), rx.create().unwrap());
    assert_ne!((one.number, one.q_key), (destroyed.number, destroyed.q_key));
    assert!(one.number > 1 && one.number < 1 << 24 && one.q_key < 1 << 31);
    rx.destroy(destroyed.number);

    let mut send = |pair: QueuePair, framing: &dyn Framing| {
        let link = Link { dest_qp: pair.number, src_qp: 5, q_key: pair.q_key, stream: 0 };
        let mut header = ArrayVec::new();
        framing.emit(&link, &Packet::nth(&g, 0, 0, 0).unwrap(), &mut header);
        let gather = [Sge { len: g.shot_bytes(), ..source }, Sge::EMPTY];
        let packet = TxPacket { header: &header, gather: &gather, seal: Seal::Compute };
        assert_eq!(tx.send(end(2).address, &[packet]).unwrap(), 1);
    };
    send(one, &framing::Ud);
    send(QueuePair { number: one.number ^ 1, ..one }, &framing::Ud);
    send(QueuePair { q_key: one.q_key ^ 1, ..one }, &framing::Ud);
    send(destroyed, &framing::Ud);
    send(one, &framing::Udp);
    let mut steer = Faults::default();
    while steer.seen.len() < 5 {
        rx.poll(&mut steer, 1).unwrap();
    }
    let unknown = Some(DropCause::UnknownStream);
    assert_eq!(steer.seen, [None, unknown, unknown, unknown, Some(DropCause::Malformed)]);
}

#[test]
fn ud_delegates_unchanged_methods() {
    let wrapper =
        Wrapper { name: "Ud", overrides: &["poll"], steer: Some(("Demultiplexer", &["pick", "margins", "landed"])) };
    delegation::check(&wrapper, Ud::new).unwrap();
}

#[test]
fn ud_passes_the_conformance_suite_of_the_transport() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let open = |memory: &Memory| {
            Ok(EndpointPair::in_process(memory, sealed, |io| {
                let mut rx = Ud::new(io);
                rx.attach(QueuePair { number: QUEUE_PAIR, q_key: Q_KEY });
                rx
            }))
        };
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "ud".into(), sealed, capabilities, open, close: |_| Ok(()) };
        let report = conformance::run(fixture, &memory);
        report.expect_conformance();
    }
}
