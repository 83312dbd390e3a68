//! Many operations over a carrier with faults: memory and counters are right at the end.

use super::*;
use crate::api::Status;
use crate::spacefibre::SpaceFibreDropCounters;
use crate::spacefibre::link::Link;
use shotline_random::SplitMix64;
use shotline_testing::{seeds, wait_until};
use std::collections::VecDeque;

/// Requests in flight, each with its own memory at both ends: the remote memory of one-sided operations and the
/// receives are halves of the far end's.
const SLOTS: u64 = 16;
const SLOT_BYTES: u64 = 8192;
const REMOTE_BYTES: u64 = SLOTS * SLOT_BYTES;

/// What a completion must show.
struct Pending {
    slot: u64,
    /// Contents of the slot's memory after a READ or an atomic operation.
    result: Option<Vec<u8>>,
}

/// A message that the far end must receive: its bytes, if it is a SEND, and immediate data.
type Message = (Option<Vec<u8>>, Option<u32>);

struct Run {
    nodes: [Node; 2],
    qps: [Qp; 2],
    random: SplitMix64,
    /// The far end's memory as it must be.
    remote: Vec<u8>,
    free: Vec<u64>,
    pending: VecDeque<Pending>,
    messages: VecDeque<Message>,
    posted: u64,
    completed: u64,
    received: u64,
}

impl Run {
    fn new(options: &LinkOptions, faults: Faults, timeout: Duration) -> Self {
        let mut nodes = Node::pair(options, faults);
        let qps = connect(&mut nodes, 0, timeout);
        let mut run = Self {
            nodes,
            qps,
            random: SplitMix64::new(faults.seed),
            remote: vec![0; REMOTE_BYTES as usize],
            free: (0..SLOTS).collect(),
            pending: VecDeque::new(),
            messages: VecDeque::new(),
            posted: 0,
            completed: 0,
            received: 0,
        };
        (0..SLOTS).for_each(|slot| run.post_receive(slot));
        run
    }

    fn post_receive(&mut self, slot: u64) {
        let element = self.nodes[1].element(REMOTE_BYTES + slot * SLOT_BYTES, SLOT_BYTES as u32);
        self.nodes[1].post_recv(self.qps[1], slot, element);
    }

    /// Posts a random request.
    fn post(&mut self) {
        let Some(slot) = self.free.pop() else { return };
        let Self { random, remote, .. } = self;
        let len = if random.chance(0.5) { random.below(100) } else { random.below(SLOT_BYTES + 1) } as usize;
        let at = random.below(REMOTE_BYTES - SLOT_BYTES) as usize;
        let mut data = vec![0; len];
        random.fill_bytes(&mut data);
        let word = at / 8 * 8;
        let original: [u8; 8] = remote[word..][..8].try_into().unwrap();
        let to = self.nodes[1].remote(at as u64);
        let to_word = Remote { address: word as u64, ..to };
        let (imm, value) = (random.next_u64() as u32, u64::from_ne_bytes(original));
        let mut result = None;
        let operation = match random.below(7) {
            0 | 1 => {
                remote[at..][..len].copy_from_slice(&data);
                if imm & 1 == 0 {
                    Operation::Write(to)
                } else {
                    self.messages.push_back((None, Some(imm)));
                    Operation::WriteImm(to, imm)
                }
            }
            2 | 3 => {
                result = Some(remote[at..][..len].to_vec());
                Operation::Read(to)
            }
            4 => {
                let has_imm = imm & 1 == 0;
                self.messages.push_back((Some(data.clone()), has_imm.then_some(imm)));
                if has_imm { Operation::SendImm(imm) } else { Operation::Send }
            }
            5 => {
                remote[word..][..8].copy_from_slice(&value.wrapping_add(u64::from(imm) << 8).to_ne_bytes());
                result = Some(original.to_vec());
                Operation::FetchAdd { remote: to_word, add: u64::from(imm) << 8 }
            }
            _ => {
                let compare = if imm & 1 == 0 { value } else { !value };
                if compare == value {
                    remote[word..][..8].copy_from_slice(&u64::from(imm).to_ne_bytes());
                }
                result = Some(original.to_vec());
                Operation::CompareSwap { remote: to_word, compare, swap: imm.into() }
            }
        };
        let len = result.as_ref().map_or(len, Vec::len);
        let local = slot * SLOT_BYTES;
        if result.is_none() {
            self.nodes[0].region.write(local as usize, &data);
        }
        let element = self.nodes[0].element(local, len as u32);
        self.nodes[0].post(self.qps[0], self.posted, operation, &[element]);
        self.pending.push_back(Pending { slot, result });
        self.posted += 1;
    }

    fn check(&mut self, completion: &Completion) {
        assert_eq!((completion.id, completion.status), (self.completed, Status::Success));
        let Pending { slot, result } = self.pending.pop_front().unwrap();
        if let Some(expected) = result {
            assert_eq!(self.nodes[0].bytes(slot * SLOT_BYTES, expected.len()), expected, "{completion:?}");
        }
        self.free.push(slot);
        self.completed += 1;
    }

    fn check_received(&mut self, completion: &Completion) {
        assert_eq!(completion.status, Status::Success);
        let (data, imm) = self.messages.pop_front().unwrap();
        assert_eq!(completion.imm, imm);
        let kind = if data.is_some() { CompletionKind::Recv } else { CompletionKind::RecvWriteImm };
        assert_eq!(completion.kind, kind);
        if let Some(expected) = data {
            let at = REMOTE_BYTES + completion.id * SLOT_BYTES;
            assert_eq!(completion.bytes as usize, expected.len());
            assert_eq!(self.nodes[1].bytes(at, expected.len()), expected);
        }
        self.post_receive(completion.id);
        self.received += 1;
    }

    fn step(&mut self) {
        for completion in self.nodes[0].poll() {
            self.check(&completion);
        }
        for completion in self.nodes[1].poll() {
            self.check_received(&completion);
        }
    }

    fn run(&mut self, requests: u64) {
        wait_until("all requests complete", || {
            for _ in 0..100 {
                if self.posted < requests && self.random.chance(0.5) {
                    self.post();
                }
                self.step();
            }
            self.completed == requests && self.messages.is_empty()
        });
        assert!(self.nodes[1].bytes(0, self.remote.len()) == self.remote, "memory of the far end");
    }

    fn resets(&self) -> u64 {
        let of = |node: &Node| {
            let (_, link) = node.endpoint.links().next().unwrap();
            link.link_counters().link_resets + link.counters().far_end_resets
        };
        self.nodes.iter().map(of).sum()
    }

    /// Checks the counters once all packets have arrived.
    fn assert_balanced(&mut self) {
        if self.resets() == 0 {
            wait_until("all packets arrive", || {
                self.step();
                let [a, b] = self.nodes.each_ref().map(|node| *node.endpoint.counters());
                (a.packets_in, b.packets_in) == (b.packets_out, a.packets_out)
            });
        }
        for (node, qp) in self.nodes.iter().zip(self.qps) {
            let counters = node.endpoint.counters();
            let link_reset = counters.drops.link_reset;
            assert_eq!(counters.drops, SpaceFibreDropCounters { link_reset, ..Default::default() });
            assert!(link_reset <= self.resets(), "{link_reset} packets cut by {} resets", self.resets());
            let passed = node.endpoint.qp_counters(qp).unwrap();
            assert_eq!(counters.packets_in, passed.packets_in + link_reset);
            let waiting: u64 = node.endpoint.datapath.links.iter().flatten().map(Link::waiting).sum();
            assert_eq!(passed.packets_out, counters.packets_out + counters.packets_discarded + waiting);
        }
    }
}

fn run_with(faults: Faults, requests: u64) -> Run {
    let options = LinkOptions::new(1 + (faults.seed % 8) as u8, 1).unwrap();
    let mut run = Run::new(&options, faults, Duration::from_secs(2));
    run.run(requests);
    run.assert_balanced();
    assert!(run.received > requests / 10, "{} messages", run.received);
    run
}

#[test]
fn operations_without_faults_are_never_repeated() {
    for seed in seeds(0..3) {
        let run = run_with(Faults { seed, ..Faults::default() }, 2000);
        assert_eq!(run.resets(), 0);
        for (node, qp) in run.nodes.iter().zip(run.qps) {
            assert_eq!(node.endpoint.links().next().unwrap().1.link_counters().retries, 0);
            let counters = node.endpoint.qp_counters(qp).unwrap();
            assert_eq!((counters.drops, counters.duplicates), Default::default(), "{counters:?}");
        }
    }
}

#[test]
fn bit_errors_are_repaired_by_the_link() {
    for seed in seeds(10..13) {
        let run = run_with(Faults { seed, bit_error_rate: 1e-5, ..Faults::default() }, 2000);
        let retries = run.nodes[0].endpoint.links().next().unwrap().1.link_counters().retries;
        assert!(retries > 10, "{retries}");
    }
}

#[test]
fn lost_repeated_and_swapped_datagrams_are_repaired() {
    for seed in seeds(20..26) {
        let faults = Faults { seed, bit_error_rate: 1e-5, drop: 0.02, repeat: 0.02, swap: 0.02 };
        let run = run_with(faults, 1000);
        let lost = run.nodes[1].endpoint.links().next().unwrap().1.counters().lost;
        assert!(lost > 0, "{lost}");
    }
}

#[test]
fn requests_survive_link_resets() {
    for seed in seeds(30..33) {
        let options = LinkOptions::new(4, 1).unwrap();
        let faults = Faults { seed, bit_error_rate: 1e-6, ..Faults::default() };
        let mut run = Run::new(&options, faults, Duration::from_millis(100));
        for round in 1..=10 {
            // In the middle of packets in flight.
            (0..SLOTS / 2).for_each(|_| run.post());
            (0..4).for_each(|_| run.step());
            let SpaceFibreEndpoint { datapath, core, .. } = &mut run.nodes[round % 2].endpoint;
            datapath.reset_links(core);
            run.run(40 * round as u64);
        }
        run.assert_balanced();
        assert!(run.resets() >= 10, "{}", run.resets());
        let retransmitted = run.nodes[0].endpoint.qp_counters(run.qps[0]).unwrap().retransmitted;
        assert!(retransmitted > 0, "packets were lost");
    }
}

#[test]
fn channel_whose_initiator_guesses_keys_disturbs_no_other_one() {
    let mut nodes = Node::pair(&LinkOptions::new(4, 2).unwrap(), Faults::default());
    let timeouts = [Duration::from_millis(5), Duration::from_secs(60)];
    let [guessing, honest] = [0, 1].map(|level| connect(&mut nodes, level, timeouts[usize::from(level)])[0]);
    let remote = nodes[1].remote(0);
    let (mut guesses, mut written) = (Vec::new(), 0);
    for id in 0..40 {
        let element = nodes[0].element(0, 1000);
        let guess = Remote { address: 0, rkey: remote.rkey.wrapping_add(1 + id as u32) };
        nodes[0].post(guessing, id, Operation::Write(guess), &[element]);
    }
    nodes[0].region.write(4096, &[7; 1000]);
    for id in 0..40 {
        let element = nodes[0].element(4096, 1000);
        nodes[0].post(honest, id, Operation::Write(nodes[1].remote(4096 + 1000 * id)), &[element]);
    }
    wait_until("all requests complete", || {
        nodes[1].poll();
        for completion in nodes[0].poll() {
            if completion.qp == honest.0 {
                assert_eq!((completion.id, completion.status), (written, Status::Success));
                written += 1;
            } else {
                guesses.push((completion.id, completion.status));
            }
        }
        guesses.len() == 40 && written == 40
    });
    assert_eq!(guesses[0], (0, Status::RetryExceeded));
    assert!(guesses.iter().skip(1).zip(1..).all(|(guess, id)| *guess == (id, Status::Flushed)), "{guesses:?}");
    assert_eq!(nodes[0].endpoint.qp_counters(honest).unwrap().retransmitted, 0);
    assert!(nodes[1].bytes(0, 4096).iter().all(|byte| *byte == 0), "memory that no key opened");
    assert!(nodes[1].bytes(4096, 40_000).iter().all(|byte| *byte == 7));
}
