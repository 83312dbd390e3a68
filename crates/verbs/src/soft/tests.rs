//! Packets of an attacker, and memory that a transport cannot reach.

mod changing;

use super::{SoftDropCounters, SoftEndpoint};
use crate::api::{
    Completion, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend,
    RecvWr, Remote, SendWr, Status, VerbsError,
};
use shotline_memory::{Access, Addressing, DeviceMemory, Mr, Pd, Region, RegionId, Regions, Registrar, Sge};
use shotline_testing::WAIT_TIMEOUT;
use shotline_transport::inproc::{self, InprocConfig, InprocIo};
use shotline_transport::{
    BatchInfo, PacketIo, PayloadDestination, Pick, RxPacket, SCRATCH_BYTES, Seal, Steer, TxPacket,
};
use shotline_wire::aeth::RnrTimer;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;
use shotline_wire::{crc, icrc};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Acknowledgement timeout of the tests.
const RETRANSMIT_TIMEOUT: Duration = Duration::from_millis(20);
const MEMORY: u64 = 1 << 16;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4791))
}

fn scratch() -> (Regions, Sge) {
    let mut registrar = Registrar::new();
    let region = registrar.add(Region::heap(SCRATCH_BYTES as usize).unwrap());
    (registrar.finish(), Sge { region, offset: 0, len: SCRATCH_BYTES })
}

/// An endpoint with memory and a UC queue pair, and an attacker at the other end of the link, which can send any
/// packet.
struct Victim {
    endpoint: SoftEndpoint<InprocIo>,
    attacker: InprocIo,
    payload: Sge,
    region: Arc<Region>,
    pd: Pd,
    mr: Mr,
    cq: Cq,
    qp: Qp,
}

/// Counts received packets.
#[derive(Default)]
struct PacketCounter(usize);
impl Steer for PacketCounter {
    fn header_len(&mut self, _: &BatchInfo<'_>) -> usize {
        Bth::LEN
    }
    fn pick(&mut self, _: &BatchInfo<'_>, _: &mut [Pick]) {}
    fn predict(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        self.0 += batch.len();
    }
}

impl Victim {
    fn new(sealed: bool) -> Self {
        let (regions, payload) = scratch();
        regions.get(RegionId(0)).write(0, &(0..=255).collect::<Vec<u8>>());
        let mut attacker = None;
        let mut endpoint = SoftEndpoint::with_transport(address(1), |own, scratch| {
            let here = InprocConfig { address: address(1), sealed, capacity: 0, scratch };
            let there = InprocConfig { address: address(2), scratch: payload, ..here };
            let (a, b) = inproc::pair(256, (here, own), (there, &regions));
            attacker = Some(b);
            Ok(a)
        })
        .unwrap();
        let (pd, region) = (endpoint.alloc_pd().unwrap(), Region::heap(MEMORY as usize).unwrap());
        let mr = endpoint.reg_mr(pd, &region, 0, MEMORY, Access::ALL, Addressing::ZeroBased).unwrap();
        let cq = endpoint.create_cq(64).unwrap();
        let qp = endpoint.create_qp(&QpConfig::new(QpType::Uc, pd, cq, cq)).unwrap();
        bring_up(&mut endpoint, qp, (address(2), 77), RETRANSMIT_TIMEOUT);
        Self { endpoint, attacker: attacker.unwrap(), payload, region, pd, mr, cq, qp }
    }

    /// Sends packets in one batch: header and payload length of each, with payload bytes that count up from 0.
    fn send(&mut self, packets: &[(Bth, Extensions, u32)], seal: Seal) {
        let headers: Vec<_> = packets.iter().map(|(bth, extensions, _)| extensions.emit(bth)).collect();
        let gather: Vec<_> = packets.iter().map(|(_, _, len)| [Sge { len: *len, ..self.payload }]).collect();
        let sends: Vec<_> =
            headers.iter().zip(&gather).map(|(header, gather)| TxPacket { header, gather, seal }).collect();
        assert_eq!(self.attacker.send(address(1), &sends).unwrap(), packets.len());
        while self.endpoint.progress().unwrap() {}
    }

    fn bth(&self, opcode: Opcode, psn: u32) -> Bth {
        Bth::new(opcode, self.qp.0, psn)
    }

    fn write(&self, to: u64, len: u32) -> Extensions {
        Extensions { reth: Some(Reth { address: to, r_key: self.mr.rkey, length: len }), ..Extensions::default() }
    }

    fn drops(&self) -> SoftDropCounters {
        self.endpoint.counters().drops
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(offset, &mut bytes);
        bytes
    }

    /// Returns the number of packets that the endpoint sent since the last call.
    fn responses(&mut self) -> usize {
        let mut count = PacketCounter::default();
        self.attacker.poll(&mut count, 64).unwrap();
        count.0
    }
}

/// Connects a queue pair with retransmission timeout `timeout`.
fn bring_up<P: PacketIo>(endpoint: &mut SoftEndpoint<P>, qp: Qp, peer: (SocketAddr, u32), timeout: Duration) {
    let rtr = ReadyToReceive {
        peer: Some(peer),
        mtu: Mtu::B4096,
        psn: 0,
        max_dest_rd_atomic: 1,
        min_rnr_timer: RnrTimer::from_code(1).unwrap(),
        ack_every: 0,
    };
    let rts = ReadyToSend { psn: 0, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
    for change in
        [Modify::Init { access: Access::ALL, q_key: 0 }, Modify::ReadyToReceive(rtr), Modify::ReadyToSend(rts)]
    {
        endpoint.modify_qp(qp, change).unwrap();
    }
}

#[test]
fn packets_for_no_queue_pair_are_counted_and_unanswered() {
    let mut victim = Victim::new(true);
    let unknown = (victim.qp.0 ^ 1).clamp(2, 0x00FF_FFFE);
    let write = victim.write(0, 8);
    victim.send(&[(Bth::new(Opcode::UcWriteOnly, unknown, 0), write, 8)], Seal::Compute);
    assert_eq!(victim.drops(), SoftDropCounters { unknown_qp: 1, ..SoftDropCounters::default() });
    // For an existing queue pair of another transport service.
    victim.send(&[(victim.bth(Opcode::RcWriteOnly, 0), write, 8)], Seal::Compute);
    assert_eq!(victim.drops(), SoftDropCounters { unknown_qp: 1, wrong_service: 1, ..SoftDropCounters::default() });
    assert_eq!((victim.bytes(0, 8), victim.responses()), (vec![0; 8], 0));
}

#[test]
fn packet_with_wrong_icrc_changes_nothing() {
    let mut victim = Victim::new(true);
    let write = victim.write(0, 8);
    // Other values may match by chance: for 2^-16 of them there is an identification that fits.
    victim.send(&[(victim.bth(Opcode::UcWriteOnly, 0), write, 8)], Seal::Forced(0x1234_5678));
    let drops = victim.drops();
    assert_eq!((drops.bad_icrc, drops.total()), (1, 1), "{drops:?}");
    assert_eq!((victim.bytes(0, 8), victim.responses()), (vec![0; 8], 0));
    victim.send(&[(victim.bth(Opcode::UcWriteOnly, 0), write, 8)], Seal::Compute);
    assert_eq!(victim.bytes(0, 8), [0, 1, 2, 3, 4, 5, 6, 7], "the same with its own ICRC");
}

#[test]
fn write_with_solved_icrc_needs_a_following_identification() {
    let mut victim = Victim::new(true);
    let (write, payload) = (victim.write(0, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    let mut send = |psn, id, opcode, extensions: Extensions| {
        let bth = victim.bth(opcode, psn);
        let header = extensions.emit(&bth);
        let network = icrc::Network::V4 { src: [10, 0, 0, 2], dst: [10, 0, 0, 1], id };
        let prefix = icrc::Flow { network, src_port: 4791, dst_port: 4791 }.prefix((header.len() + 8 + 4) as u16);
        let sealed = icrc::seal(icrc::after_header(prefix, &header), 8_u64, crc::remainder(&payload));
        victim.send(&[(bth, extensions, 8)], Seal::Forced(sealed));
        let written = victim.bytes(0, 8) == payload;
        victim.region.zero(0, 8);
        (written, victim.drops().unverified)
    };
    let sends = Extensions::default();
    assert_eq!(send(0, 1000, Opcode::UcWriteOnly, write), (true, 0), "the first packet of this sender");
    assert_eq!(send(1, 1002, Opcode::UcWriteOnly, write), (true, 0));
    assert_eq!(send(2, 50_000, Opcode::UcWriteOnly, write), (false, 1));
    assert_eq!(send(2, 50_001, Opcode::UcWriteOnly, write), (true, 1));
    assert_eq!(send(3, 9000, Opcode::UcSendOnly, sends), (false, 1), "a SEND is accepted, but no receive is posted");
}

#[test]
fn unsealed_packets_are_never_accepted() {
    let mut victim = Victim::new(false);
    let write = victim.write(0, 8);
    victim.send(&[(victim.bth(Opcode::UcWriteOnly, 0), write, 8)], Seal::None);
    assert_eq!(victim.drops(), SoftDropCounters { unverified: 1, ..SoftDropCounters::default() });
    assert_eq!(victim.bytes(0, 8), [0; 8]);
}

#[test]
fn runts_and_unknown_opcodes_are_malformed() {
    let mut victim = Victim::new(true);
    for header in [&[][..], &[0x2A], &[0xFF; 12], &[0x2A, 0x40, 0xFF, 0xFF, 0, 0, 0, 9, 0, 0, 0, 0]] {
        victim.attacker.send(address(1), &[TxPacket { header, gather: &[], seal: Seal::Compute }]).unwrap();
    }
    while victim.endpoint.progress().unwrap() {}
    assert_eq!(victim.drops(), SoftDropCounters { malformed: 4, ..SoftDropCounters::default() });
    // More padding than payload.
    let bth = Bth { pad: 3, ..victim.bth(Opcode::UcSendOnly, 0) };
    victim.send(&[(bth, Extensions::default(), 2)], Seal::Compute);
    assert_eq!(victim.drops().malformed, 5);
}

#[test]
fn header_of_unpredicted_length_costs_only_a_copy() {
    let mut victim = Victim::new(true);
    let qp = victim.qp;
    for address in [1000, 2000] {
        let into = [Element { address, len: 100, lkey: victim.mr.lkey }];
        victim.endpoint.post_recv(qp, &[RecvWr { id: address, elements: &into }]).unwrap();
    }
    let (send, write) = (Extensions::default(), victim.write(0, 24));
    let [first, second, third, fourth] = [
        (victim.bth(Opcode::UcSendOnly, 0), send, 40),
        (victim.bth(Opcode::UcWriteOnly, 1), write, 24),
        (victim.bth(Opcode::UcWriteOnly, 2), victim.write(200, 24), 24),
        (victim.bth(Opcode::UcSendOnly, 3), send, 40),
    ];
    let bytes: Vec<u8> = (0..40).collect();
    victim.send(&[first, second], Seal::Compute); // the second header is longer
    assert_eq!((victim.bytes(1000, 40), victim.bytes(0, 25)), (bytes.clone(), [&bytes[..24], &[0]].concat()));
    victim.send(&[third, fourth], Seal::Compute); // the second header is shorter
    assert_eq!((victim.bytes(2000, 40), victim.bytes(200, 25)), (bytes.clone(), [&bytes[..24], &[0]].concat()));
    assert_eq!(victim.endpoint.counters().bytes_copied_again, 24 + 40);
    assert_eq!(
        (victim.endpoint.poll_cq(victim.cq, &mut [Completion::default(); 4]).unwrap(), victim.drops().total()),
        (2, 0)
    );
}

#[test]
fn backlog_survives_reuse_of_completed_requests_memory() {
    // The path accepts 4 packets, a request has 64.
    let [mut a, mut b] = SoftEndpoint::pair(4, [address(1), address(2)]).unwrap();
    let mut ends = Vec::new();
    for endpoint in [&mut a, &mut b] {
        let (pd, region) = (endpoint.alloc_pd().unwrap(), Region::heap(1 << 18).unwrap());
        let mr = endpoint.reg_mr(pd, &region, 0, 1 << 18, Access::ALL, Addressing::ZeroBased).unwrap();
        let cq = endpoint.create_cq(64).unwrap();
        let qp = endpoint.create_qp(&QpConfig::new(QpType::Uc, pd, cq, cq)).unwrap();
        ends.push((region, mr, cq, qp));
    }
    bring_up(&mut a, ends[0].3, (address(2), ends[1].3.0), RETRANSMIT_TIMEOUT);
    bring_up(&mut b, ends[1].3, (address(1), ends[0].3.0), RETRANSMIT_TIMEOUT);
    let bytes: Vec<u8> = (0..1_u32 << 18).map(|index| (index >> 5) as u8 ^ index as u8).collect();
    let (here, mine, cq, qp) = &ends[0];
    here.write(0, &bytes);
    let from = [Element { address: 0, len: 1 << 18, lkey: mine.lkey }];
    let remote = Remote { address: 0, rkey: ends[1].1.rkey };
    a.post_send(*qp, &[SendWr::new(1, Operation::Write(remote), Data::Elements(&from))]).unwrap();
    let mut complete = false;
    for _ in 0..1000 {
        if !complete && a.poll_cq(*cq, &mut [Completion::default()]).unwrap() == 1 {
            complete = true;
            here.zero(0, 1 << 18); // the request is complete, so its memory may be reused
            assert!(a.dereg_mr(mine).is_ok());
        }
        a.progress().unwrap();
        b.progress().unwrap();
    }
    assert!(complete && a.counters().partial_sends > 0);
    let mut found = vec![0; 1 << 18];
    ends[1].0.read(0, &mut found);
    assert!(found == bytes, "the WRITE's bytes are not those that were posted");
}

#[test]
fn descriptor_becomes_readable_for_a_retransmission() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut victim = Victim::new(true);
    let pd = victim.endpoint.alloc_pd().unwrap();
    let qp = victim.endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, victim.cq, victim.cq)).unwrap();
    bring_up(&mut victim.endpoint, qp, (address(2), 77), RETRANSMIT_TIMEOUT); // a peer that never responds
    victim.endpoint.post_send(qp, &[SendWr::new(1, Operation::Send, Data::Inline(b"no reply"))]).unwrap();
    for times in 1..=3 {
        while victim.endpoint.progress().unwrap() {}
        // More than one if the timer expired again before the poll.
        assert!(victim.responses() > 0, "not sent in round {times}");
        let timeout = Timespec { tv_sec: WAIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&victim.endpoint.fd(), PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(woken, 1, "no wake-up for the retransmission");
    }
}

/// Device memory that only copies can reach.
struct OffHostMemory(Mutex<Vec<u8>>);

// SAFETY: the copies have the requested lengths, between the caller's memory and the vector, whose indexing is checked.
unsafe impl DeviceMemory for OffHostMemory {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        let bytes = self.0.lock().unwrap();
        // SAFETY: the caller guarantees `to`; the source is `len` bytes of a slice.
        unsafe { std::ptr::copy_nonoverlapping(bytes[offset..offset + len].as_ptr(), to, len) };
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        let mut bytes = self.0.lock().unwrap();
        // SAFETY: the caller guarantees `from`; the target is `len` bytes of a slice.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes[offset..offset + len].as_mut_ptr(), len) };
    }
}

fn device_end(endpoint: &mut SoftEndpoint<InprocIo>) -> (Arc<Region>, Pd, Mr, Cq, Qp) {
    let pd = endpoint.alloc_pd().unwrap();
    let region = Region::device(Arc::new(OffHostMemory(Mutex::new(vec![0; 1 << 20]))));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = endpoint.reg_mr(pd, &region, 0, 1 << 20, access, Addressing::ZeroBased).unwrap();
    let cq = endpoint.create_cq(64).unwrap();
    let qp = endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
    (region, pd, mr, cq, qp)
}

#[test]
fn device_memory_supports_writes_reads_and_sends() {
    let [mut a, mut b] = SoftEndpoint::pair(64, [address(1), address(2)]).unwrap();
    let (here, _, mine, cq, qa) = device_end(&mut a);
    let (there, _, theirs, other_cq, qb) = device_end(&mut b);
    bring_up(&mut a, qa, (address(2), qb.0), RETRANSMIT_TIMEOUT);
    bring_up(&mut b, qb, (address(1), qa.0), RETRANSMIT_TIMEOUT);
    let bytes: Vec<u8> = (0..300_000_u32).map(|index| ((index * 7) >> 3) as u8).collect();
    here.write(0, &bytes);
    let element = |mr: &Mr, address, len| [Element { address, len, lkey: mr.lkey }];
    let (from, into) = (element(&mine, 0, 300_000), element(&mine, 500_000, 300_000));
    let remote = Remote { address: 1, rkey: theirs.rkey };
    let slot = element(&theirs, 600_000, 300_000);
    b.post_recv(qb, &[RecvWr { id: 1, elements: &slot }]).unwrap();
    let requests = [
        SendWr::new(1, Operation::Write(remote), Data::Elements(&from)),
        SendWr::new(2, Operation::Read(remote), Data::Elements(&into)),
        SendWr::new(3, Operation::Send, Data::Elements(&from)),
    ];
    a.post_send(qa, &requests).unwrap();
    let mut done: Vec<Completion> = Vec::new();
    for _ in 0..10_000 {
        let mut out = [Completion::default(); 4];
        let count = a.poll_cq(cq, &mut out).unwrap();
        done.extend(&out[..count]);
        b.progress().unwrap();
        if done.len() == 3 {
            break;
        }
    }
    assert!(done.len() == 3 && done.iter().all(|c| c.status == Status::Success), "{done:?}");
    assert_eq!(b.poll_cq(other_cq, &mut [Completion::default(); 4]).unwrap(), 1);
    for (region, offset) in [(&there, 1), (&here, 500_000), (&there, 600_000)] {
        let mut found = vec![0; 300_000];
        region.read(offset, &mut found);
        assert!(found == bytes, "at {offset}");
    }
}

#[test]
fn device_memory_refuses_atomic_access() {
    let [mut a, _b] = SoftEndpoint::pair(64, [address(1), address(2)]).unwrap();
    let pd = a.alloc_pd().unwrap();
    let region = Region::device(Arc::new(OffHostMemory(Mutex::new(vec![0; 4096]))));
    let refused = a.reg_mr(pd, &region, 0, 4096, Access::ALL, Addressing::ZeroBased);
    assert!(matches!(refused, Err(VerbsError::Register(_))), "{refused:?}");
}

#[test]
fn acknowledgement_after_a_longer_header_in_a_batch_is_accepted() {
    let [mut a, mut b] = SoftEndpoint::pair(64, [address(1), address(2)]).unwrap();
    let end = |endpoint: &mut SoftEndpoint<InprocIo>| {
        let (pd, region) = (endpoint.alloc_pd().unwrap(), Region::heap(4096).unwrap());
        let mr = endpoint.reg_mr(pd, &region, 0, 4096, Access::ALL, Addressing::ZeroBased).unwrap();
        let cq = endpoint.create_cq(64).unwrap();
        (mr, cq, endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap(), region)
    };
    let ((mine, cq, qa, here), (theirs, other_cq, qb, there)) = (end(&mut a), end(&mut b));
    bring_up(&mut a, qa, (address(2), qb.0), RETRANSMIT_TIMEOUT);
    bring_up(&mut b, qb, (address(1), qa.0), RETRANSMIT_TIMEOUT);
    let write = |from: &mut SoftEndpoint<InprocIo>, qp: Qp, to: &Mr, word: u64| {
        let remote = Remote { address: 0, rkey: to.rkey };
        let word = word.to_le_bytes();
        from.post_send(qp, &[SendWr::new(0, Operation::Write(remote), Data::Inline(&word))]).unwrap();
    };
    let word = |region: &Region| {
        let mut bytes = [0; 8];
        region.read(0, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let mut out = [Completion::default(); 4];
    let mut done = 0;
    for number in 1..100 {
        // The response is posted while the acknowledgement of the request is still pending.
        write(&mut a, qa, &theirs, number);
        while word(&there) != number {
            done += a.poll_cq(cq, &mut out).unwrap();
            b.poll_cq(other_cq, &mut out).unwrap();
        }
        write(&mut b, qb, &mine, number);
        while word(&here) != number {
            b.poll_cq(other_cq, &mut out).unwrap();
            done += a.poll_cq(cq, &mut out).unwrap();
        }
    }
    assert!(done >= 98, "{done} of 99 writes are acknowledged with the responses to them");
    for (endpoint, qp) in [(&a, qa), (&b, qb)] {
        assert_eq!(endpoint.counters().drops, SoftDropCounters::default());
        assert_eq!(endpoint.qp_counters(qp).unwrap().retransmitted, 0);
    }
}

#[test]
fn memory_is_kept_until_the_batch_that_fills_it_is_done() {
    let mut victim = Victim::new(true);
    let qp = victim.qp;
    let receive = |victim: &mut Victim, id: u64, len: u32| {
        let region = Region::heap(len as usize).unwrap();
        let pd = victim.pd;
        let mr =
            victim.endpoint.reg_mr(pd, &region, 0, u64::from(len), Access::LOCAL_WRITE, Addressing::ZeroBased).unwrap();
        let elements = [Element { address: 0, len, lkey: mr.lkey }];
        victim.endpoint.post_recv(qp, &[RecvWr { id, elements: &elements }]).unwrap();
        (region, mr)
    };
    // The first receive is longer than its message: the third payload is steered as a part of that message, and is
    // copied there first.
    let (first, mr) = receive(&mut victim, 1, 3 * 4096);
    let (second, _) = receive(&mut victim, 2, 4096);
    victim.endpoint.dereg_mr(&mr).unwrap();
    let plain = Extensions::default();
    let packets = [Opcode::UcSendFirst, Opcode::UcSendLast, Opcode::UcSendOnly];
    let packets: Vec<_> = (0..).zip(packets).map(|(psn, code)| (victim.bth(code, psn), plain, 4096)).collect();
    victim.send(&packets, Seal::Compute);
    let mut out = [Completion::default(); 4];
    let cq = victim.cq;
    assert_eq!(victim.endpoint.poll_cq(cq, &mut out).unwrap(), 2);
    assert!(out[..2].iter().all(|done| done.status == Status::Success), "{out:?}");
    let (mut found, mut sent) = ([0; 4096], [0; 4096]);
    second.read(0, &mut found);
    first.read(0, &mut sent);
    assert_eq!(found, sent, "both messages begin with the same bytes");
    let _ = victim.endpoint.progress().unwrap();
    assert_eq!(Arc::strong_count(&first), 1, "released after the batch");
}

#[test]
fn few_bytes_of_a_long_operation_are_copied_twice() {
    const LEN: u32 = 64 << 10;
    let [mut a, mut b] = SoftEndpoint::pair(256, [address(1), address(2)]).unwrap();
    let end = |endpoint: &mut SoftEndpoint<InprocIo>| {
        let (pd, region) = (endpoint.alloc_pd().unwrap(), Region::heap(LEN as usize).unwrap());
        let mr = endpoint.reg_mr(pd, &region, 0, LEN.into(), Access::ALL, Addressing::ZeroBased).unwrap();
        let cq = endpoint.create_cq(64).unwrap();
        (mr, cq, endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap())
    };
    let ((mine, cq, qa), (theirs, other_cq, qb)) = (end(&mut a), end(&mut b));
    bring_up(&mut a, qa, (address(2), qb.0), WAIT_TIMEOUT);
    bring_up(&mut b, qb, (address(1), qa.0), WAIT_TIMEOUT);
    let (from, to) = ([Element { address: 0, len: LEN, lkey: mine.lkey }], Remote { address: 0, rkey: theirs.rkey });
    let slot = [Element { address: 0, len: LEN, lkey: theirs.lkey }];
    // Payloads copied out of 16: the first packet of a WRITE carries the address, and the destinations of its batch are
    // chosen before it is validated; all other destinations are known before.
    for (operation, max_sixteenths) in [(Operation::Write(to), 2), (Operation::Send, 0), (Operation::Read(to), 0)] {
        let before = [(&a, qa), (&b, qb)].map(|(endpoint, qp)| *endpoint.qp_counters(qp).unwrap());
        for _ in 0..50 {
            if operation == Operation::Send {
                b.post_recv(qb, &[RecvWr { id: 0, elements: &slot }]).unwrap();
            }
            a.post_send(qa, &[SendWr::new(0, operation, Data::Elements(&from))]).unwrap();
            while a.poll_cq(cq, &mut [Completion::default(); 4]).unwrap() == 0 {
                b.poll_cq(other_cq, &mut [Completion::default(); 4]).unwrap();
            }
        }
        let after = [(&a, qa), (&b, qb)].map(|(endpoint, qp)| *endpoint.qp_counters(qp).unwrap());
        let copied: u64 =
            before.iter().zip(&after).map(|(before, after)| after.bytes_copied - before.bytes_copied).sum();
        let bytes = 50 * u64::from(LEN);
        assert!(copied * 16 <= bytes * max_sixteenths, "{operation:?}: {copied} of {bytes}");
    }
}
