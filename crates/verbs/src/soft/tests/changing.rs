//! Memory that changes between the computation of a packet's ICRC and the kernel's copy.

use super::{MEMORY, RETRANSMIT_TIMEOUT, address, bring_up};
use crate::api::{Completion, Cq, Data, Element, Operation, Provider, Qp, QpConfig, QpType, Remote, SendWr, Status};
use crate::soft::SoftEndpoint;
use shotline_memory::{Access, Addressing, Mr, Region, Regions};
use shotline_testing::WAIT_TIMEOUT;
use shotline_transport::inproc::{self, InprocConfig, InprocIo};
use shotline_transport::{IoError, PacketIo, Seal, TxPacket, payload_crc};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Memory whose first 8 bytes are incremented during each send.
type ChangingMemory = Arc<Mutex<Option<Arc<Region>>>>;

/// A transport that seals a packet before it copies the payload, like sockets; the memory changes in between.
struct ChangingIo {
    io: InprocIo,
    regions: Regions,
    changing: ChangingMemory,
}

impl PacketIo for ChangingIo {
    shotline_transport::delegate_packet_io!(io; except register, send);

    fn register(&mut self, regions: &Regions) {
        self.regions = regions.clone();
        self.io.register(regions);
    }

    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let remainder = |packet: &TxPacket<'_>| {
            packet.gather.iter().fold(0, |register, sge| payload_crc(&self.regions, register, *sge))
        };
        let sealed: Vec<_> =
            packets.iter().map(|packet| TxPacket { seal: Seal::Remainder(remainder(packet)), ..*packet }).collect();
        if let Some(region) = &*self.changing.lock().unwrap() {
            region.fetch_add(0, 1);
        }
        self.io.send(to, &sealed)
    }
}

struct End {
    endpoint: SoftEndpoint<ChangingIo>,
    region: Arc<Region>,
    changing: ChangingMemory,
    mr: Mr,
    cq: Cq,
    qp: Qp,
}

/// Two connected ends with this memory.
fn ends(memory: [Arc<Region>; 2]) -> [End; 2] {
    let mut second_io = None;
    let mut open = |host: u8, memory: Arc<Region>| {
        let changing = ChangingMemory::default();
        let open_io = |regions: &Regions, scratch| {
            let config = |host| InprocConfig { address: address(host), sealed: true, capacity: 0, scratch };
            // Each end has its scratch memory in its own table, with the same index.
            let io = second_io.take().unwrap_or_else(|| {
                let (a, b) = inproc::pair(256, (config(1), regions), (config(2), regions));
                second_io = Some(b);
                a
            });
            Ok(ChangingIo { io, regions: regions.clone(), changing: Arc::clone(&changing) })
        };
        let mut endpoint = SoftEndpoint::with_transport(address(host), open_io).unwrap();
        let pd = endpoint.alloc_pd().unwrap();
        let mr = endpoint.reg_mr(pd, &memory, 0, MEMORY, Access::ALL, Addressing::ZeroBased).unwrap();
        let cq = endpoint.create_cq(64).unwrap();
        let qp = endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
        End { endpoint, region: memory, changing, mr, cq, qp }
    };
    let [first, second] = memory;
    let (mut a, mut b) = (open(1, first), open(2, second));
    bring_up(&mut a.endpoint, a.qp, (address(2), b.qp.0), RETRANSMIT_TIMEOUT);
    bring_up(&mut b.endpoint, b.qp, (address(1), a.qp.0), RETRANSMIT_TIMEOUT);
    [a, b]
}

impl End {
    fn start_changing(&self) {
        *self.changing.lock().unwrap() = Some(Arc::clone(&self.region));
    }
}

/// Runs one operation of the first end on all of the other's memory.
fn run([a, b]: &mut [End; 2], operation: fn(Remote) -> Operation) {
    let elements = [Element { address: 0, len: MEMORY as u32, lkey: a.mr.lkey }];
    let wr = SendWr::new(1, operation(Remote { address: 0, rkey: b.mr.rkey }), Data::Elements(&elements));
    a.endpoint.post_send(a.qp, &[wr]).unwrap();
    let (began, mut completion) = (Instant::now(), [Completion::default()]);
    while a.endpoint.poll_cq(a.cq, &mut completion).unwrap() == 0 {
        b.endpoint.progress().unwrap();
        assert!(began.elapsed() < WAIT_TIMEOUT, "never done: {:?}", a.endpoint.qp_counters(a.qp));
    }
    assert_eq!(completion[0].status, Status::Success);
}

#[test]
fn read_of_changing_shared_memory_is_answered_once() {
    let memory = [Region::heap(MEMORY as usize), Region::memfd("changing", MEMORY as usize)].map(Result::unwrap);
    let mut ends = ends(memory);
    ends[1].start_changing();
    run(&mut ends, Operation::Read);
    let [a, b] = &ends;
    assert_eq!((a.endpoint.counters().drops.total(), a.endpoint.qp_counters(a.qp).unwrap().retransmitted), (0, 0));
    assert_eq!(b.endpoint.counters().packets_copied, MEMORY / 4096);
}

#[test]
fn changing_private_memory_is_copied_when_retransmitted() {
    let heap = || Region::heap(MEMORY as usize).unwrap();
    for (changing, operation) in [(1, Operation::Read as fn(Remote) -> Operation), (0, Operation::Write)] {
        let mut ends = ends([heap(), heap()]);
        ends[changing].start_changing();
        run(&mut ends, operation);
        let [receives, sends] = [&ends[1 - changing], &ends[changing]].map(|end| end.endpoint.counters());
        assert!(receives.drops.bad_icrc > 0 && sends.packets_copied > 0, "{receives:?} {sends:?}");
    }
}

#[test]
fn unchanging_memory_is_not_copied() {
    let heap = || Region::heap(MEMORY as usize).unwrap();
    let mut ends = ends([heap(), heap()]);
    run(&mut ends, Operation::Read);
    run(&mut ends, Operation::Write);
    assert_eq!(ends.map(|end| end.endpoint.counters().packets_copied), [0, 0]);
}
