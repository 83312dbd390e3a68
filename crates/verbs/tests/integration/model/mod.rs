//! Random operations between two connected queue pairs, with a reference model of the expected results.
//!
//! All operations are planned before anything runs. Since a reliable connection executes in order, the plan determines
//! the final memory and the order of completions.

use shotline_memory::{Access, Mr};
use shotline_random::SplitMix64;
use shotline_verbs::api::{
    Completion, CompletionKind, Cq, Data, Element, Operation, PostError, QpState, QpType, RecvWr, Remote, SendWr,
    Status,
};
use shotline_verbs::sim::{Options, SimNetwork};
use std::collections::VecDeque;

/// Memory areas of each node: source of sends, destination of READ and atomic results, target of the peer's writes,
/// target of the peer's reads, atomic counters, and destination of messages. Registrations end before the next area
/// begins.
const SOURCE: (u64, u64) = (0, 0xFF00);
const RESULT: (u64, u64) = (0x1_0000, 0x2_FF00);
const EXPOSED: (u64, u64) = (0x4_0000, 0x7F00);
const READABLE: (u64, u64) = (0x4_8000, 0x7F00);
const COUNTERS: (u64, u64) = (0x5_0000, 64);
const INBOX: (u64, u64) = (0x5_1000, 0x2_FF00);
const MEMORY: usize = 0x8_1000;

pub struct Workload {
    pub network: SimNetwork,
    pub sides: [Side; 2],
    mtu: u64,
    kind: QpType,
}

/// One node: initiator of one direction and target of the other.
pub struct Side {
    pub qp: u32,
    pub cq: Cq,
    source: Mr,
    result: Mr,
    exposed: Mr,
    readable: Mr,
    counters: Mr,
    inbox: Mr,
    model: Vec<u8>,
    /// Bytes of receives after the end of their messages: padding may be written there, or payloads of a wrongly
    /// guessed batch.
    undefined: Vec<bool>,
    result_next: u64,
    inbox_next: u64,
    /// A READ of the exposed area may be outstanding: writes there must wait for it.
    read_pending: bool,
    unsignalled: u32,
    /// rkeys of this side that messages of the peer invalidate.
    invalidated_keys: Vec<u32>,
    plan: VecDeque<Planned>,
    receives: VecDeque<(u64, Vec<Element>)>,
    /// Posted requests, oldest first.
    pub posted: VecDeque<Expected>,
    arriving: VecDeque<Expected>,
    /// Packets that this side must accept, and their payload bytes.
    pub accepted_packets: u64,
    pub bytes: u64,
}

struct Planned {
    operation: Operation,
    elements: Vec<Element>,
    inline: Option<Vec<u8>>,
    fence: bool,
    solicited: bool,
    expected: Expected,
}

/// An expected completion, and the memory that it covers.
#[derive(Clone, Debug)]
pub struct Expected {
    pub completion: Completion,
    pub signalled: bool,
    /// Addresses and expected bytes.
    filled: Vec<(u64, Vec<u8>)>,
}

impl Side {
    /// Returns the number of receives that have not completed.
    pub fn arriving(&self) -> usize {
        self.arriving.len()
    }
}

impl Workload {
    pub fn new(kind: QpType, seed: u64, options: &Options) -> Self {
        let mut network = SimNetwork::new(seed, &[MEMORY; 2]).unwrap();
        let ends = network.connect(kind, options).unwrap();
        let sides = [0, 1].map(|index| {
            let mut model = vec![0; MEMORY];
            for (start, len) in [SOURCE, EXPOSED, READABLE, COUNTERS] {
                network.random.fill_bytes(&mut model[start as usize..][..len as usize]);
            }
            let node = network.node_mut(index);
            node.memory().write(0, &model);
            let mut register = |(start, len), access| node.register(start, len, access).unwrap();
            let (qp, cq) = ends[index];
            Side {
                qp,
                cq,
                source: register(SOURCE, Access::NONE),
                result: register(RESULT, Access::LOCAL_WRITE),
                exposed: register(EXPOSED, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ),
                readable: register(READABLE, Access::REMOTE_READ),
                counters: register(COUNTERS, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC),
                inbox: register(INBOX, Access::LOCAL_WRITE),
                model,
                undefined: vec![false; MEMORY],
                result_next: RESULT.0,
                inbox_next: INBOX.0,
                read_pending: false,
                unsignalled: 0,
                invalidated_keys: Vec::new(),
                plan: VecDeque::new(),
                receives: VecDeque::new(),
                posted: VecDeque::new(),
                arriving: VecDeque::new(),
                accepted_packets: 0,
                bytes: 0,
            }
        });
        Self { network, sides, mtu: options.mtu.bytes().into(), kind }
    }

    /// Plans `count` operations initiated by side `from`.
    pub fn plan(&mut self, from: usize, count: u64) {
        for id in 0..count {
            self.plan_one(from, id, id + 1 == count);
        }
    }

    fn plan_one(&mut self, from: usize, id: u64, last: bool) {
        let random = &mut self.network.random;
        let [a, b] = &mut self.sides;
        let (own, peer) = if from == 0 { (a, b) } else { (b, a) };
        let wanted_len = length(random, self.mtu);
        let choice = match self.kind {
            QpType::Rc => random.below(10),
            // UC has no responses, so READs and atomics are excluded; only reliable connections invalidate keys.
            _ => random.choose(&[0, 2, 3, 4, 5, 6]),
        };
        let (mut inline, mut fence, solicited) = (None, random.chance(0.1), random.chance(0.3));
        let (mut filled, mut elements) = (Vec::new(), Vec::new());
        let (operation, kind, len);
        let mut pieces = random.between(1, 4);
        if choice < 7 {
            // SEND or WRITE.
            let is_write = choice >= 4;
            let capacity = if is_write { EXPOSED.1 } else { (INBOX.0 + INBOX.1).saturating_sub(peer.inbox_next + 64) };
            len = wanted_len.min(capacity);
            let mut message = vec![0; len as usize];
            if len <= 64 && random.chance(0.5) {
                random.fill_bytes(&mut message);
                inline = Some(message.clone());
            } else {
                let mut offset = 0;
                while pieces > 0 {
                    let piece_len = if pieces == 1 { len - offset } else { random.below(len - offset + 1) };
                    let start = SOURCE.0 + random.below(SOURCE.1 - piece_len + 1);
                    let bytes = &own.model[start as usize..][..piece_len as usize];
                    message[offset as usize..][..piece_len as usize].copy_from_slice(bytes);
                    elements.push(Element { address: start, len: piece_len as u32, lkey: own.source.lkey });
                    (offset, pieces) = (offset + piece_len, pieces - 1);
                }
            }
            let imm = random.next_u64() as u32;
            let mut completes = None;
            if is_write {
                let start = EXPOSED.0 + random.below(EXPOSED.1 - len + 1);
                peer.model[start as usize..][..len as usize].copy_from_slice(&message);
                fence |= std::mem::take(&mut own.read_pending);
                let remote = Remote { address: start, rkey: peer.exposed.rkey };
                operation = if choice == 4 { Operation::WriteImm(remote, imm) } else { Operation::Write(remote) };
                if choice == 4 {
                    // Its receive gets no bytes, so a short one suffices. The written bytes are not compared when it
                    // completes, since later operations may have overwritten them, but at the end.
                    completes = Some((CompletionKind::RecvWriteImm, Some(imm), None, len.min(8)));
                }
                kind = CompletionKind::Write;
            } else {
                operation = match choice {
                    0 => Operation::SendImm(imm),
                    1 => Operation::SendInvalidate(extra_key(&mut self.network, 1 - from)),
                    _ => Operation::Send,
                };
                let imm = (choice == 0).then_some(imm);
                let invalidated_keys = if let Operation::SendInvalidate(key) = operation { Some(key) } else { None };
                peer.invalidated_keys.extend(invalidated_keys);
                completes = Some((CompletionKind::Recv, imm, invalidated_keys, len));
                kind = CompletionKind::Send;
            }
            let random = &mut self.network.random;
            if let Some((kind, imm, invalidated, capacity)) = completes {
                let capacity = capacity + random.below(32);
                let lkey = peer.inbox.lkey;
                let receive = allocate(random, &mut peer.inbox_next, lkey, capacity);
                let filled = match kind {
                    CompletionKind::Recv => scatter(&receive, &message),
                    _ => Vec::new(),
                };
                for element in &receive {
                    peer.undefined[element.address as usize..][..element.len as usize].fill(true);
                }
                for (address, bytes) in &filled {
                    peer.undefined[*address as usize..][..bytes.len()].fill(false);
                }
                apply(&mut peer.model, &filled);
                let id = peer.receives.len() as u64 + peer.arriving.len() as u64 + 1000;
                let completion =
                    Completion { bytes: len as u32, imm, invalidated, solicited, ..completion(id, kind, peer.qp) };
                peer.receives.push_back((id, receive));
                peer.arriving.push_back(Expected { completion, signalled: true, filled });
            }
            peer.accepted_packets += len.div_ceil(self.mtu).max(1);
            peer.bytes += len;
        } else {
            // READ or atomic operation.
            let read = choice < 9;
            let capacity = (RESULT.0 + RESULT.1).saturating_sub(own.result_next + 64);
            len = if read { wanted_len.min(capacity).min(READABLE.1) } else { 8 };
            elements = allocate(random, &mut own.result_next, own.result.lkey, len);
            let slot = COUNTERS.0 + 8 * random.below(COUNTERS.1 / 8);
            let counter = Remote { address: slot, rkey: peer.counters.rkey };
            let mut before = [0; 8];
            before.copy_from_slice(&peer.model[slot as usize..][..8]);
            let before = u64::from_ne_bytes(before);
            let mut value = before.to_ne_bytes().to_vec();
            let mut after = before;
            (operation, kind) = match choice {
                7 | 8 => {
                    let (area, key) = random.choose(&[(READABLE, peer.readable.rkey), (EXPOSED, peer.exposed.rkey)]);
                    own.read_pending = (own.read_pending && !fence) || area == EXPOSED;
                    let start = area.0 + random.below(area.1 - len + 1);
                    value = peer.model[start as usize..][..len as usize].to_vec();
                    (Operation::Read(Remote { address: start, rkey: key }), CompletionKind::Read)
                }
                _ if random.chance(0.5) => {
                    let add = random.next_u64();
                    after = before.wrapping_add(add);
                    (Operation::FetchAdd { remote: counter, add }, CompletionKind::FetchAdd)
                }
                _ => {
                    let compare = if random.chance(0.7) { before } else { random.next_u64() };
                    let swap = random.next_u64();
                    after = if compare == before { swap } else { before };
                    (Operation::CompareSwap { remote: counter, compare, swap }, CompletionKind::CompareSwap)
                }
            };
            peer.model[slot as usize..][..8].copy_from_slice(&after.to_ne_bytes());
            filled = scatter(&elements, &value);
            apply(&mut own.model, &filled);
            peer.accepted_packets += 1;
            own.accepted_packets += if read { len.div_ceil(self.mtu).max(1) } else { 1 };
            own.bytes += if read { len } else { 0 };
        }
        let signalled = last || own.unsignalled > 8 || self.network.random.chance(0.5);
        own.unsignalled = if signalled { 0 } else { own.unsignalled + 1 };
        let bytes = if kind == CompletionKind::Read { len as u32 } else { 0 };
        let completion = Completion { bytes, ..completion(id, kind, own.qp) };
        let expected = Expected { completion, signalled, filled };
        own.plan.push_back(Planned { operation, elements, inline, fence, solicited, expected });
    }

    /// Returns the number of planned receives of this side that are not posted.
    pub fn receives_planned(&self, index: usize) -> usize {
        self.sides[index].receives.len()
    }

    /// Posts up to `max` planned receives.
    pub fn post_receives(&mut self, index: usize, max: usize) {
        for _ in 0..max {
            let Some((id, elements)) = self.sides[index].receives.pop_front() else { return };
            self.network.post_recv(index, self.sides[index].qp, &RecvWr { id, elements: &elements }).unwrap();
        }
    }

    /// Posts up to `max` requests while the queue has space.
    pub fn post_sends(&mut self, index: usize, max: u64) {
        for _ in 0..max {
            let side = &mut self.sides[index];
            let Some(next) = side.plan.front() else { return };
            let data = next.inline.as_deref().map_or(Data::Elements(&next.elements), Data::Inline);
            let base = SendWr::new(next.expected.completion.id, next.operation, data);
            let (signalled, solicited, fence) = (next.expected.signalled, next.solicited, next.fence);
            match self.network.post_send(index, side.qp, &SendWr { signalled, solicited, fence, ..base }) {
                Ok(()) => side.posted.extend(side.plan.pop_front().map(|planned| planned.expected)),
                Err(PostError::Full) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Polls both sides and checks every completion against the plan: order, values, and received bytes.
    pub fn check_completions(&mut self) {
        for index in 0..2 {
            while let Some(completion) = self.network.node_mut(index).poll(self.sides[index].cq) {
                let side = &mut self.sides[index];
                let receive = matches!(completion.kind, CompletionKind::Recv | CompletionKind::RecvWriteImm);
                let expected = if receive {
                    side.arriving.pop_front()
                } else {
                    // Unsignalled requests are completed by the next signalled one.
                    std::iter::from_fn(|| side.posted.pop_front()).find(|expected| expected.signalled)
                };
                let expected = expected.unwrap_or_else(|| panic!("unexpected completion: {completion:?}"));
                let comparable = if receive || completion.kind == CompletionKind::Read {
                    completion
                } else {
                    Completion { bytes: 0, ..completion }
                };
                assert_eq!(comparable, expected.completion, "side {index}");
                for (address, bytes) in &expected.filled {
                    let found = self.network.node(index).read(*address, bytes.len());
                    let wrong = || (0..bytes.len()).filter(|byte| found[*byte] != bytes[*byte]);
                    assert!(
                        found == *bytes,
                        "side {index}: {completion:?}: {} of {} bytes at {address:#x} are wrong, the first is {:?}",
                        wrong().count(),
                        bytes.len(),
                        wrong().next()
                    );
                }
            }
        }
    }

    /// Returns `true` if all planned operations have completed.
    pub fn done(&self) -> bool {
        self.sides.iter().all(|side| side.plan.is_empty() && side.posted.is_empty() && side.arriving.is_empty())
    }

    /// Posts at random times, and steps until all operations are done and the network is idle. Receives are posted at
    /// once, or late.
    pub fn run(&mut self, receives_late: bool) {
        for round in 0.. {
            for index in 0..2 {
                let max = if !receives_late {
                    usize::MAX
                } else if self.network.random.chance(0.1) {
                    self.network.random.between(1, 4) as usize
                } else {
                    0
                };
                self.post_receives(index, max);
                if self.network.random.chance(0.5) {
                    let group = self.network.random.between(1, 8);
                    self.post_sends(index, group);
                }
            }
            for _ in 0..self.network.random.between(1, 6) {
                self.network.step();
            }
            self.check_completions();
            if self.done() {
                break;
            }
            assert!(
                round < 20_000,
                "{} and {} requests are pending",
                self.sides[0].posted.len(),
                self.sides[1].posted.len()
            );
        }
        assert!(self.network.run(100_000_000_000), "the network becomes idle");
        self.check_completions();
    }

    /// Checks memory, states, keys and counters after the end.
    pub fn check_end(&mut self) {
        for index in 0..2 {
            self.check_memory(index);
            let (node, side) = (self.network.node(index), &self.sides[index]);
            assert_eq!(node.engine(side.qp).unwrap().state(), QpState::ReadyToSend);
            for key in &side.invalidated_keys {
                assert!(node.protection.remote(node.pd(), *key, 0, 1, Access::NONE).is_err(), "the key is invalidated");
            }
            let (counters, link) = (node.counters, self.network.link_counters(1 - index));
            assert_eq!(counters.arrived, link.sent - link.lost + link.duplicated);
            assert_eq!(
                counters.arrived,
                counters.bad_icrc + counters.malformed + counters.unknown_qp + counters.delivered
            );
            let qp = node.qp_counters(side.qp).unwrap();
            assert_eq!(qp.packets_in, counters.delivered);
            assert_eq!(qp.bytes_in, side.bytes, "payload is accepted once: {qp:#?}");
        }
    }

    /// Compares the whole memory of a node with the model.
    pub fn check_memory(&self, index: usize) {
        let (found, side) = (self.network.node(index).read(0, MEMORY), &self.sides[index]);
        let wrong = |byte: &usize| found[*byte] != side.model[*byte] && !side.undefined[*byte];
        if let Some(first) = (0..MEMORY).find(wrong) {
            let count = (0..MEMORY).filter(wrong).count();
            panic!("side {index}: {count} bytes are not the model's, the first at {first:#x}");
        }
    }
}

fn length(random: &mut SplitMix64, mtu: u64) -> u64 {
    let any = random.between(0, 8 * mtu);
    random.choose(&[0, 1, 7, 64, mtu - 1, mtu, mtu + 1, 2 * mtu, 2 * mtu + 3, any, any / 4, any / 16])
}

/// Returns elements for `len` bytes in up to four pieces, with gaps between them, from address `next` on.
fn allocate(random: &mut SplitMix64, next: &mut u64, lkey: u32, len: u64) -> Vec<Element> {
    let (mut elements, mut left) = (Vec::new(), len);
    let pieces = random.between(1, 4);
    for piece in 1..=pieces {
        let piece_len = if piece == pieces { left } else { random.below(left + 1) };
        *next += random.below(8);
        elements.push(Element { address: *next, len: piece_len as u32, lkey });
        (*next, left) = (*next + piece_len, left - piece_len);
    }
    elements
}

/// Returns the addresses and bytes that a message is written to.
fn scatter(elements: &[Element], message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut rest = message;
    let mut filled = Vec::new();
    for element in elements {
        let (piece, after) = rest.split_at(rest.len().min(element.len as usize));
        filled.push((element.address, piece.to_vec()));
        rest = after;
    }
    assert!(rest.is_empty());
    filled
}

fn apply(model: &mut [u8], filled: &[(u64, Vec<u8>)]) {
    for (address, bytes) in filled {
        model[*address as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn completion(id: u64, kind: CompletionKind, qp: u32) -> Completion {
    let (status, solicited) = (Status::Success, false);
    Completion { id, status, kind, qp, bytes: 0, imm: None, invalidated: None, source: None, solicited }
}

/// Returns the key of an unused registration, for a message that invalidates it.
fn extra_key(network: &mut SimNetwork, index: usize) -> u32 {
    network.node_mut(index).register(READABLE.0, 64, Access::REMOTE_READ | Access::REMOTE_INVALIDATE).unwrap().rkey
}
