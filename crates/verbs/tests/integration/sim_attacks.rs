//! Attacks by an off-path attacker that has the addresses, the queue pair numbers and even the expected PSN (ReDMArk's
//! list: Rothenberger et al., USENIX Security 2021). An attacker that sees the packets cannot be rejected without
//! encryption, which RoCE does not have.

use crate::model::Workload;
use shotline_memory::{Access, Addressing};
use shotline_random::SplitMix64;
use shotline_testing::seeds;
use shotline_verbs::api::{Cq, Data, Element, Mtu, Operation, QpState, QpType, RecvWr, Remote, SendWr, Status};
use shotline_verbs::engine::{NakCounters, QpCounters, QpDropCounters};
use shotline_verbs::sim::{Datagram, Link, Options, SimNetwork, seal};
use shotline_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use shotline_wire::atomic::{AtomicAckEth, AtomicEth};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;
use std::time::Duration;

const MEMORY: u64 = 1 << 16;
/// Bytes of each registration.
const LEN: u64 = 4096;
/// PSN that the target expects.
const PSN: u32 = 0x4321;
const MTU: usize = 256;

/// Connection whose target has fully accessible memory, read-only memory, memory of another domain, a stale key and
/// windows that the peer must not use.
struct Target {
    network: SimNetwork,
    ends: [(u32, Cq); 2],
    lkeys: [u32; 2],
    full: u32,
    read_only: u32,
    foreign: u32,
    stale: u32,
    /// rkeys of two windows: one of another queue pair, and one that has expired.
    others: u32,
    expired: u32,
    before: Vec<u8>,
}

impl Target {
    fn new(strict: bool) -> Self {
        let mut network = SimNetwork::new(1, &[MEMORY as usize; 3]).unwrap();
        let timeout = Duration::from_micros(200);
        let options = Options { psn: [PSN, 0x77], strict, mtu: Mtu::B256, timeout, retry_cnt: 3, ..Options::default() };
        let ends = network.connect(QpType::Rc, &options).unwrap();
        let mut before = vec![0; MEMORY as usize];
        network.random.fill_bytes(&mut before);
        let lkeys = [0, 1].map(|index| network.node_mut(index).register(0, MEMORY, Access::LOCAL_WRITE).unwrap().lkey);
        let node = network.node_mut(1);
        node.memory().write(0, &before);
        let (memory, own, other) = (node.memory().clone(), node.pd(), node.protection.allocate());
        let mut register = |pd, part: u64, access| {
            let zero_based = Addressing::ZeroBased;
            node.protection.register(pd, &memory, part * 2 * LEN, LEN, access, zero_based).unwrap()
        };
        let full = register(own, 0, Access::ALL).rkey;
        let read_only = register(own, 1, Access::REMOTE_READ).rkey;
        let foreign = register(other, 2, Access::ALL).rkey;
        let stale = register(own, 3, Access::ALL);
        assert!(node.protection.deregister(stale.lkey));
        let mut bind =
            |qp, expires| node.protection.bind(own, lkeys[1], qp, 0, LEN, Access::REMOTE_WRITE, expires).unwrap();
        let (others, expired) = (bind(ends[1].0 + 1, None), bind(ends[1].0, Some(1_000)));
        Self { network, ends, lkeys, full, read_only, foreign, stale: stale.rkey, others, expired, before }
    }

    fn counters(&self) -> QpCounters {
        *self.network.node(1).qp_counters(self.ends[1].0).unwrap()
    }
    fn state(&self) -> QpState {
        self.network.node(1).engine(self.ends[1].0).unwrap().state()
    }
    fn is_untouched(&self) -> bool {
        self.network.node(1).read(0, MEMORY as usize) == self.before
    }

    /// Sends a packet with the address of the peer.
    fn attack(&mut self, packet: &Attack) {
        let [from, to] = [0, 1].map(|index| self.network.node(index).address());
        self.network.inject(packet.seal(from, to, self.ends[1].0));
        self.network.run(1_000_000);
    }

    /// Returns `true` if the real peer can still write.
    fn peer_write_succeeds(&mut self) -> bool {
        let element = [Element { address: 0, len: 600, lkey: self.lkeys[0] }];
        let write = Operation::Write(Remote { address: 100, rkey: self.full });
        let ((qp, cq), wr) = (self.ends[0], SendWr::new(1, write, Data::Elements(&element)));
        self.network.node(0).memory().write(0, &[0xAB; 600]);
        self.network.post_send(0, qp, &wr).unwrap();
        assert!(self.network.run(1_000_000_000));
        self.before[100..700].fill(0xAB);
        let completion = self.network.node_mut(0).poll(cq).unwrap();
        completion.status == Status::Success && self.is_untouched()
    }
}

/// Forged packet.
#[derive(Clone)]
struct Attack {
    bth: Bth,
    extensions: Extensions,
    payload: Vec<u8>,
}

impl Attack {
    fn new(opcode: Opcode, payload: &[u8]) -> Self {
        let pad = (payload.len().wrapping_neg() & 3) as u8;
        let bth = Bth { pad, ..Bth::new(opcode, 0, PSN) };
        let mut padded = payload.to_vec();
        padded.resize(payload.len() + usize::from(pad), 0);
        Self { bth, extensions: Extensions::default(), payload: padded }
    }
    fn reth(mut self, r_key: u32, address: u64, length: u32) -> Self {
        self.extensions.reth = Some(Reth { address, r_key, length });
        self
    }
    fn atomic(opcode: Opcode, r_key: u32, address: u64) -> Self {
        let mut attack = Self::new(opcode, &[]);
        attack.extensions.atomic = Some(AtomicEth { address, r_key, swap_or_add: 1, compare: 0 });
        attack
    }
    fn response(opcode: Opcode, syndrome: Syndrome, psn: u32) -> Self {
        let mut attack = Self::new(opcode, &[]);
        attack.bth.psn = psn;
        attack.extensions.aeth = Some(Aeth { syndrome, msn: 1 });
        attack.extensions.atomic_ack = Some(AtomicAckEth { original: 5 });
        attack
    }
    fn with_psn(mut self, psn: u32) -> Self {
        self.bth.psn = psn & 0xFF_FFFF;
        self
    }
    fn seal(&self, from: std::net::SocketAddr, to: std::net::SocketAddr, qp: u32) -> Datagram {
        let bth = Bth { dest_qp: qp, ack_request: true, ..self.bth };
        seal(from, to, &self.extensions.emit(&bth), &self.payload)
    }
}

/// Name, packet, expected drop counter, and the NAK code that IBTA prescribes.
type Case = (&'static str, Attack, fn(&QpDropCounters) -> u64, Option<NakCode>);

fn cases(target: &Target) -> Vec<Case> {
    use NakCode::{InvalidRequest as Invalid, RemoteAccessError as Denied};
    use Opcode as Op;
    let write = |key, address, length| Attack::new(Op::RcWriteOnly, &[0xEE; 8]).reth(key, address, length);
    let read = |key, address, length| Attack::new(Op::RcReadRequest, &[]).reth(key, address, length);
    let (full, last) = (target.full, LEN - 8);
    let mut other_partition = Attack::new(Op::RcSendOnly, &[1; 4]);
    other_partition.bth.p_key = 0x8001;
    vec![
        ("write, unknown key", write(target.full ^ 1, 0, 8), |r| r.bad_key, Some(Denied)),
        ("write, stale key", write(target.stale, 0, 8), |r| r.bad_key, Some(Denied)),
        ("write, key of another domain", write(target.foreign, 0, 8), |r| r.bad_key, Some(Denied)),
        ("write, window of another queue pair", write(target.others, 0, 8), |r| r.bad_key, Some(Denied)),
        ("write, expired window", write(target.expired, 0, 8), |r| r.bad_key, Some(Denied)),
        ("write, read-only memory", write(target.read_only, 0, 8), |r| r.bad_rights, Some(Denied)),
        ("write, one byte past the end", write(full, last + 1, 8), |r| r.bad_bounds, Some(Denied)),
        ("write, an address that wraps", write(full, u64::MAX - 3, 8), |r| r.bad_bounds, Some(Denied)),
        ("write, payload longer than its length", write(full, 0, 4), |r| r.bad_length, Some(Invalid)),
        ("write, payload shorter than its length", write(full, 0, 12), |r| r.bad_length, Some(Invalid)),
        (
            "write, over 2^31 bytes",
            Attack::new(Op::RcWriteFirst, &[1; MTU]).reth(full, 0, (1 << 31) + 1),
            |r| r.bad_length,
            Some(Invalid),
        ),
        (
            "write, past the end in a later packet",
            Attack::new(Op::RcWriteFirst, &[1; MTU]).reth(full, LEN - 256, 257),
            |r| r.bad_bounds,
            Some(Denied),
        ),
        (
            "write, a first packet that is not full",
            Attack::new(Op::RcWriteFirst, &[1; 128]).reth(full, 0, 512),
            |r| r.bad_length,
            Some(Invalid),
        ),
        (
            "write, a packet beyond the MTU",
            Attack::new(Op::RcWriteOnly, &[1; 2 * MTU]).reth(full, 0, 512),
            |r| r.bad_length,
            Some(Invalid),
        ),
        (
            "write, a middle packet without a first one",
            Attack::new(Op::RcWriteMiddle, &[1; MTU]),
            |r| r.bad_opcode,
            Some(Invalid),
        ),
        (
            "send, a last packet without a first one",
            Attack::new(Op::RcSendLast, &[1; 4]),
            |r| r.bad_opcode,
            Some(Invalid),
        ),
        ("read, unknown key", read(full ^ 2, 0, 8), |r| r.bad_key, Some(Denied)),
        ("read, one byte past the end", read(full, 1, LEN as u32), |r| r.bad_bounds, Some(Denied)),
        ("read, an address that wraps", read(full, u64::MAX, 2), |r| r.bad_bounds, Some(Denied)),
        ("read, over 2^31 bytes", read(full, 0, u32::MAX), |r| r.bad_length, Some(Invalid)),
        ("atomic, misaligned", Attack::atomic(Op::RcFetchAdd, full, 4), |r| r.bad_bounds, Some(Invalid)),
        ("atomic, past the end", Attack::atomic(Op::RcFetchAdd, full, LEN), |r| r.bad_bounds, Some(Denied)),
        (
            "atomic, read-only memory",
            Attack::atomic(Op::RcCompareSwap, target.read_only, 0),
            |r| r.bad_rights,
            Some(Denied),
        ),
        (
            "flush, which is unsupported",
            Attack::new(Op::RcFlush, &[]).reth(full, 0, 8),
            |r| r.bad_opcode,
            Some(Invalid),
        ),
        ("an unreliable opcode", Attack::new(Op::UcWriteOnly, &[1; 8]).reth(full, 0, 8), |r| r.bad_opcode, None),
        ("a datagram", Attack::new(Op::UdSendOnly, &[1; 8]), |r| r.bad_opcode, None),
        (
            "an acknowledgement without a request",
            Attack::response(Op::RcAcknowledge, Syndrome::ACK, 0x77),
            |r| r.bad_ack,
            None,
        ),
        (
            "a NAK without a request",
            Attack::response(Op::RcAcknowledge, Syndrome::Nak(Denied), 0x77),
            |r| r.bad_ack,
            None,
        ),
        (
            "a read response without a request",
            Attack::response(Op::RcReadResponseOnly, Syndrome::ACK, 0x77),
            |r| r.bad_psn,
            None,
        ),
        (
            "an atomic response without a request",
            Attack::response(Op::RcAtomicAcknowledge, Syndrome::ACK, 0x77),
            |r| r.bad_psn,
            None,
        ),
        ("another partition", other_partition, |r| r.bad_partition, None),
    ]
}

#[test]
fn attacks_with_the_expected_psn_are_counted_and_dropped() {
    for index in 0..cases(&Target::new(false)).len() {
        let mut target = Target::new(false);
        let (name, attack, cause, _) = cases(&target).swap_remove(index);
        target.attack(&attack);
        let counters = target.counters();
        assert_eq!(cause(&counters.drops), 1, "{name}: {counters:#?}");
        assert_eq!((counters.packets_in, counters.packets_out), (1, 0), "{name} is not answered");
        assert!(target.is_untouched() && target.state() == QpState::ReadyToSend, "{name}");
        assert!(target.peer_write_succeeds(), "{name}: the real peer is disturbed");
        assert_eq!(target.counters().retransmitted, 0);
    }
}

#[test]
fn strict_mode_answers_attacks_with_the_standard_nak() {
    for index in 0..cases(&Target::new(true)).len() {
        let mut target = Target::new(true);
        let (name, attack, cause, code) = cases(&target).swap_remove(index);
        target.attack(&attack);
        let counters = target.counters();
        assert_eq!(cause(&counters.drops), 1, "{name}: {counters:#?}");
        assert!(target.is_untouched(), "{name}");
        let (invalid, access) =
            (u64::from(code == Some(NakCode::InvalidRequest)), u64::from(code == Some(NakCode::RemoteAccessError)));
        assert_eq!(counters.naks_out, NakCounters { invalid, access, ..NakCounters::default() }, "{name}");
        let state = if code.is_some() { QpState::Error } else { QpState::ReadyToSend };
        assert_eq!(target.state(), state, "{name}");
    }
}

#[test]
fn send_longer_than_its_receive_leaves_it_posted() {
    let mut target = Target::new(false);
    let elements = [Element { address: 0x8000, len: 7, lkey: target.lkeys[1] }];
    let (qp, cq) = target.ends[1];
    target.network.post_recv(1, qp, &RecvWr { id: 9, elements: &elements }).unwrap();
    target.attack(&Attack::new(Opcode::RcSendOnly, &[1; 8]));
    assert_eq!((target.counters().drops.bad_length, target.counters().packets_out), (1, 0));
    assert!(target.is_untouched() && target.network.node_mut(1).poll(cq).is_none());
    target.attack(&Attack::new(Opcode::RcSendOnly, &[2; 7]));
    let completion = target.network.node_mut(1).poll(cq).unwrap();
    assert_eq!((completion.id, completion.status, completion.bytes), (9, Status::Success, 7));
}

#[test]
fn packets_with_a_wrong_address_or_queue_pair_are_dropped() {
    let mut target = Target::new(true);
    let [_, to, attacker] = [0, 1, 2].map(|index| target.network.node(index).address());
    let write = Attack::new(Opcode::RcWriteOnly, &[1; 8]).reth(target.full, 0, 8);
    target.network.inject(write.seal(attacker, to, target.ends[1].0));
    target.network.inject(write.seal(attacker, to, 0xBEEF));
    assert!(target.network.run(1_000_000));
    let counters = target.counters();
    assert_eq!((counters.drops.bad_source, counters.packets_out), (1, 0));
    assert_eq!(target.network.node(1).counters.unknown_qp, 1);
    assert!(target.is_untouched() && target.peer_write_succeeds());
}

#[test]
fn psn_guesses_cause_few_naks_and_no_harm() {
    let mut target = Target::new(false);
    let mut random = SplitMix64::new(3);
    for _ in 0..2000 {
        let psn = random.next_u64() as u32 & 0xFF_FFFF;
        let opcode = random.choose(&[Opcode::RcWriteOnly, Opcode::RcSendOnly, Opcode::RcReadRequest]);
        if psn != PSN {
            target.attack(
                &Attack::new(opcode, &[7; 8][..if opcode == Opcode::RcReadRequest { 0 } else { 8 }])
                    .reth(target.full, 0, 8)
                    .with_psn(psn),
            );
        }
    }
    let counters = target.counters();
    assert!(target.is_untouched(), "{counters:#?}");
    assert!(counters.naks_out.sequence <= 100, "{} sequence error NAKs", counters.naks_out.sequence);
    assert!(target.peer_write_succeeds());
}

#[test]
fn flood_of_future_psns_causes_one_nak() {
    let mut target = Target::new(false);
    let [from, to] = [0, 1].map(|index| target.network.node(index).address());
    for ahead in 1..1000 {
        let write = Attack::new(Opcode::RcWriteOnly, &[7; 8]).reth(target.full, 0, 8).with_psn(PSN + ahead);
        target.network.inject(write.seal(from, to, target.ends[1].0));
    }
    target.network.run(1_000_000);
    assert_eq!((target.counters().out_of_sequence, target.counters().naks_out.sequence), (999, 1));
    assert!(target.peer_write_succeeds());
}

#[test]
fn stale_key_of_the_peer_fails_only_its_request() {
    for (strict, expected) in [(false, Status::RetryExceeded), (true, Status::RemoteAccess)] {
        let mut target = Target::new(strict);
        let write = Operation::Write(Remote { address: 0, rkey: target.stale });
        let (qp, cq) = target.ends[0];
        for id in 0..2 {
            target.network.post_send(0, qp, &SendWr::new(id, write, Data::Inline(&[1; 8]))).unwrap();
        }
        assert!(target.network.run(10_000_000_000));
        let mut next = || target.network.node_mut(0).poll(cq).map(|completion| completion.status);
        assert_eq!([next(), next(), next()], [Some(expected), Some(Status::Flushed), None]);
        assert!(target.is_untouched());
    }
}

#[test]
fn transfer_under_attack_is_undisturbed() {
    for seed in seeds(0..300) {
        let strict = seed % 2 == 0;
        let options = Options {
            strict,
            psn: [0xFF_FFE0, 0x1000],
            retry_cnt: 50,
            timeout: Duration::from_millis(1),
            ..Options::default()
        };
        let mut work = Workload::new(QpType::Rc, seed, &options);
        (0..2).for_each(|from| work.plan(from, 12));
        let link = Link::random_lossless(&mut work.network.random);
        work.network.set_links(link);
        work.network.captured = Some(Vec::new());
        for index in 0..2 {
            work.post_receives(index, usize::MAX);
        }
        let mut injected = [0; 2];
        for round in 0.. {
            for (index, injected) in injected.iter_mut().enumerate() {
                let group = work.network.random.below(4);
                work.post_sends(index, group);
                if work.network.random.chance(0.8) {
                    *injected += 1;
                    let packet = forge(&mut work, index);
                    work.network.inject(packet);
                }
            }
            for _ in 0..work.network.random.between(1, 4) {
                work.network.step();
            }
            work.check_completions();
            if work.done() {
                break;
            }
            let engine = |index: usize| work.network.node(index).engine(work.sides[index].qp);
            assert!(round < 20_000, "the transfer does not end: {:#?}", [0, 1].map(engine));
        }
        assert!(work.network.run(100_000_000_000));
        for (index, injected) in injected.into_iter().enumerate() {
            work.check_memory(index);
            let side = &work.sides[index];
            assert_eq!(work.network.node(index).engine(side.qp).unwrap().state(), QpState::ReadyToSend);
            let counters = work.network.node(index).qp_counters(side.qp).unwrap();
            assert_eq!(counters.bytes_in, side.bytes, "{counters:#?}");
            assert!(counters.naks_out.sequence <= 10 + injected / 10, "{} of {injected}", counters.naks_out.sequence);
        }
    }
}

/// Returns a packet with the peer's address: a replay, or one whose PSN is far from the expected one.
fn forge(work: &mut Workload, victim: usize) -> Datagram {
    let address = |index: usize| work.network.node(index).address();
    let (from, to, qp) = (address(1 - victim), address(victim), work.sides[victim].qp);
    let random = &mut work.network.random;
    let captured = work.network.captured.as_ref().map_or(&[][..], Vec::as_slice);
    let replays: Vec<_> = captured.iter().filter(|(_, packet)| packet.destination == to).collect();
    // Between the PSNs of both directions, and far from either.
    let psn = random.between(0x10_0000, 0x70_0000) as u32;
    let rnr = RnrTimer::from_code(0).unwrap();
    let forged = match random.below(8) {
        0..3 if !replays.is_empty() => return replays[random.below(replays.len() as u64) as usize].1.clone(),
        0 | 3 => Attack::response(Opcode::RcAcknowledge, Syndrome::ACK, psn),
        1 | 4 => Attack::response(Opcode::RcAcknowledge, Syndrome::Nak(NakCode::PsnSequenceError), psn),
        2 => Attack::response(Opcode::RcAcknowledge, Syndrome::Nak(NakCode::RemoteAccessError), psn),
        5 => Attack::response(Opcode::RcAcknowledge, Syndrome::RnrNak(rnr), psn),
        6 => Attack::new(Opcode::RcWriteOnly, &[0xEE; 64]).reth(random.next_u64() as u32, 0, 64).with_psn(psn),
        _ => {
            let mut cnp = Attack::new(Opcode::CongestionNotification, &[0; 16]).with_psn(0);
            cnp.bth.becn = true;
            cnp
        }
    };
    forged.seal(from, to, qp)
}
