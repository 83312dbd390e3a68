//! A simulated network for the engines: two or more nodes, real memory, real packet bytes, simulated time.
//!
//! Every packet is encoded, sealed with its ICRC, and sent over a [`Link`] that may lose, duplicate, delay, reorder,
//! corrupt or mark it. It arrives in a batch with others, is copied to the destination that the engine picked from the
//! first header of the batch, checked, parsed and received. Nothing sleeps: time advances to the next event. The same
//! seed gives the same run (only remote keys come from the operating system, and nothing depends on their value).
//!
//! It is public for tests of code built on the engines:
//!
//! ```
//! use shotline_memory::Access;
//! use shotline_verbs::api::{Data, Element, Operation, QpType, Remote, SendWr, Status};
//! use shotline_verbs::sim::{Link, Options, SimNetwork};
//!
//! for seed in 0..8 {
//!     let mut network = SimNetwork::new(seed, &[1 << 16; 2]).unwrap();
//!     network.set_links(Link { loss: 0.1, ..Link::PERFECT });
//!     let [(a, cq), (b, _)] = network.connect(QpType::Rc, &Options::default()).unwrap();
//!
//!     network.node(0).memory().write(0, &[7; 9000]);
//!     let from = network.node_mut(0).register(0, 9000, Access::NONE).unwrap();
//!     let to = network.node_mut(1).register(0, 9000, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
//!     let element = [Element { address: 0, len: 9000, lkey: from.lkey }];
//!     let write = Operation::Write(Remote { address: 0, rkey: to.rkey });
//!     network.post_send(0, a, &SendWr::new(1, write, Data::Elements(&element))).unwrap();
//!
//!     network.run(1_000_000_000);
//!     assert_eq!(network.node_mut(0).poll(cq).unwrap().status, Status::Success);
//!     assert_eq!(network.node(1).read(0, 9000), [7; 9000]);
//!     assert_eq!(network.node(1).engine(b).unwrap().number(), b);
//! }
//! ```

mod link;
mod node;
mod packet;

pub use link::{Datagram, Link, LinkCounters};
pub use node::{Node, NodeCounters};
pub use packet::{is_intact, seal};

use crate::api::{
    Cq, Modify, Mtu, PostError, QpConfig, QpType, ReadyToReceive, ReadyToSend, RecvWr, SendWr, VerbsError,
};
use crate::engine::Nanos;
use link::LinkState;
use shotline_memory::Access;
use shotline_random::SplitMix64;
use shotline_transport::MAX_BATCH;
use shotline_wire::aeth::RnrTimer;
use shotline_wire::udp::ROCE_PORT;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Attributes of a pair of connected queue pairs, the same for both.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Path MTU.
    pub mtu: Mtu,
    /// Initial PSN of the first queue pair, and of the second.
    pub psn: [u32; 2],
    /// Access rights of peers.
    pub access: Access,
    /// Queue key (UD).
    pub q_key: u32,
    /// Maximum outstanding READs and atomic operations.
    pub rd_atomic: u8,
    /// Acknowledgement timeout.
    pub timeout: Duration,
    /// Maximum retransmissions without progress in between.
    pub retry_cnt: u8,
    /// Maximum retransmissions after an RNR NAK; 7: unlimited.
    pub rnr_retry: u8,
    /// RNR NAK delay that a peer requests, as a code.
    pub rnr_timer: u8,
    /// Bytes after which a requester requests an acknowledgement ([`ReadyToReceive::ack_every`]).
    pub ack_every: u32,
    /// Queue depth in work requests.
    pub depth: u32,
    /// NAKs and error states as IBTA requires them ([`QpConfig::strict`]).
    pub strict: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: Mtu::B1024,
            psn: [0x10, 0x9000],
            access: Access::ALL,
            q_key: 0x1111_1111,
            rd_atomic: 4,
            timeout: Duration::from_micros(500),
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 1,
            ack_every: 0,
            depth: 64,
            strict: false,
        }
    }
}

/// Simulated network: two or more nodes, and an outgoing link of each.
pub struct SimNetwork {
    now: Nanos,
    /// Random source of this run.
    pub random: SplitMix64,
    nodes: Vec<Node>,
    /// Outgoing link of each node.
    links: Vec<LinkState>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    /// Number of packets sent or injected: the order of those that arrive at the same time.
    order: u64,
    /// Buffer of [`Self::transmit`].
    sent: Vec<Datagram>,
    /// Packets sent to an address without a node.
    pub undeliverable: u64,
    /// If set, collects a copy of every packet sent, for inspection or replay.
    pub captured: Option<Vec<(Nanos, Datagram)>>,
}

impl SimNetwork {
    /// Creates nodes with the given bytes of memory, at 10.0.0.1 and following, connected by perfect links.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn new(seed: u64, memory: &[usize]) -> Result<Self, VerbsError> {
        let nodes = memory.iter().enumerate().map(|(index, bytes)| Node::new(Self::address(index), *bytes));
        Ok(Self::with_nodes(seed, nodes.collect::<Result<_, _>>()?))
    }

    /// Creates a network of these nodes.
    pub fn with_nodes(seed: u64, nodes: Vec<Node>) -> Self {
        Self {
            now: 1_000_000,
            random: SplitMix64::new(seed),
            links: vec![LinkState::new(Link::PERFECT); nodes.len()],
            nodes,
            in_flight: BinaryHeap::new(),
            order: 0,
            sent: Vec::new(),
            undeliverable: 0,
            captured: None,
        }
    }

    /// Returns the address of the node with this index.
    pub fn address(index: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, index as u8 + 1), ROCE_PORT))
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Nanos {
        self.now
    }
    /// Returns the node with this index.
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }
    /// Returns the node with this index.
    pub fn node_mut(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }
    /// Replaces the outgoing link of a node.
    pub fn set_link(&mut self, node: usize, link: Link) {
        self.links[node].link = link;
    }
    /// Replaces the outgoing links of all nodes.
    pub fn set_links(&mut self, link: Link) {
        self.links.iter_mut().for_each(|state| state.link = link);
    }
    /// Returns the counters of a node's outgoing link.
    pub fn link_counters(&self, node: usize) -> &LinkCounters {
        &self.links[node].counters
    }

    /// Creates a queue pair on each of the first two nodes, with one completion queue each, and connects them.
    /// Returns their numbers and completion queues.
    ///
    /// # Errors
    /// Those of [`Engine::modify`](crate::engine::Engine::modify).
    pub fn connect(&mut self, kind: QpType, options: &Options) -> Result<[(u32, Cq); 2], VerbsError> {
        let ends = [0, 1].map(|index| {
            let node = &mut self.nodes[index];
            let cq = node.create_cq();
            let depth = options.depth;
            let base = QpConfig::new(kind, node.pd(), cq, cq);
            let config = QpConfig { max_send_wr: depth, max_recv_wr: depth, strict: options.strict, ..base };
            (node.create_qp(&config), cq)
        });
        for (node, (qp, _)) in ends.iter().enumerate() {
            let peer = (self.nodes[1 - node].address(), ends[1 - node].0);
            self.bring_up(node, *qp, Some(peer), options, options.psn[node], options.psn[1 - node])?;
        }
        Ok(ends)
    }

    /// Brings a queue pair from `Reset` to `ReadyToSend`. `send_psn` is the PSN of its first packet, `receive_psn` that
    /// of the peer's.
    ///
    /// # Errors
    /// [`VerbsError::NoSuch`] if there is no such queue pair, and those of
    /// [`Engine::modify`](crate::engine::Engine::modify).
    pub fn bring_up(
        &mut self,
        node: usize,
        qp: u32,
        peer: Option<(SocketAddr, u32)>,
        options: &Options,
        send_psn: u32,
        receive_psn: u32,
    ) -> Result<(), VerbsError> {
        let ready_to_receive = ReadyToReceive {
            peer: peer.filter(|_| self.nodes[node].engine(qp).is_some_and(|engine| engine.config().kind != QpType::Ud)),
            mtu: options.mtu,
            psn: receive_psn,
            max_dest_rd_atomic: options.rd_atomic,
            min_rnr_timer: RnrTimer::from_code(options.rnr_timer & 31).expect("5 bits"),
            ack_every: options.ack_every,
        };
        let ready_to_send = ReadyToSend {
            psn: send_psn,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.rd_atomic,
        };
        let init = Modify::Init { access: options.access, q_key: options.q_key };
        for change in [init, Modify::ReadyToReceive(ready_to_receive), Modify::ReadyToSend(ready_to_send)] {
            self.modify(node, qp, &change)?;
        }
        Ok(())
    }

    /// Changes a queue pair's state.
    ///
    /// # Errors
    /// As for [`Self::bring_up`].
    pub fn modify(&mut self, node: usize, qp: u32, change: &Modify) -> Result<(), VerbsError> {
        self.nodes[node].modify(self.now, qp, change)
    }
    /// Posts a send work request. The packets leave in the next step.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if there is no such queue pair, and those of
    /// [`Engine::post_send`](crate::engine::Engine::post_send).
    pub fn post_send(&mut self, node: usize, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.nodes[node].post_send(self.now, qp, wr)
    }
    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if there is no such queue pair, and those of
    /// [`Engine::post_recv`](crate::engine::Engine::post_recv).
    pub fn post_recv(&mut self, node: usize, qp: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.nodes[node].post_recv(self.now, qp, wr)
    }

    /// Injects a packet, as an attacker that can forge any source address: it bypasses the links and arrives in the
    /// next step.
    pub fn inject(&mut self, packet: Datagram) {
        self.schedule(self.now, packet);
    }

    /// Transmits all pending packets, then processes the next event. Returns `false` if no event is left.
    ///
    /// # Panics
    /// If an engine violates its contract: see [`Self::run`].
    pub fn step(&mut self) -> bool {
        self.transmit();
        let arrival = self.in_flight.peek().map(|packet| packet.0.arrival);
        let deadline = self.nodes.iter().filter_map(Node::deadline).min();
        let Some(next) = [arrival, deadline].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        self.arrive();
        let now = self.now;
        self.nodes.iter_mut().for_each(|node| node.expire(now));
        true
    }

    /// Steps until no event is left, or until `time` has passed in simulated time. Returns `true` if no event is left.
    ///
    /// # Panics
    /// If an engine violates its contract: `has_packets_to_send` is `true` but it sends nothing, it sends more packets than
    /// allowed, or its deadline does not advance.
    pub fn run(&mut self, time: Nanos) -> bool {
        let end = self.now.saturating_add(time);
        let (mut since, mut steps) = (self.now, 0);
        while self.now <= end {
            if !self.step() {
                return true;
            }
            (since, steps) = if self.now == since { (since, steps + 1) } else { (self.now, 0) };
            let stuck = self.nodes.iter().flat_map(|node| node.queue_pairs().filter_map(|qp| node.engine(qp)));
            assert!(steps < 10_000, "simulated time does not advance at {since}: {:#?}", stuck.collect::<Vec<_>>());
        }
        false
    }

    fn transmit(&mut self) {
        let mut sent = std::mem::take(&mut self.sent);
        loop {
            let mut any = false;
            for node in 0..self.nodes.len() {
                let max = self.random.choose(&[1, 2, 7, 16, 64]);
                any |= self.nodes[node].transmit(self.now, max, &mut sent);
                for packet in sent.drain(..) {
                    self.dispatch(node, packet);
                }
            }
            if !any {
                break;
            }
        }
        self.sent = sent;
    }

    fn dispatch(&mut self, node: usize, packet: Datagram) {
        if let Some(captured) = &mut self.captured {
            captured.push((self.now, packet.clone()));
        }
        let mut arrivals = Vec::with_capacity(2);
        let arrive = &mut |arrival, packet| arrivals.push((arrival, packet));
        self.links[node].carry(self.now, &mut self.random, packet, arrive);
        arrivals.into_iter().for_each(|(arrival, packet)| self.schedule(arrival, packet));
    }

    fn schedule(&mut self, arrival: Nanos, packet: Datagram) {
        self.order += 1;
        self.in_flight.push(Reverse(InFlight { arrival, order: self.order, packet }));
    }

    /// Delivers the packets that have arrived, in batches like those of a kernel's GRO.
    fn arrive(&mut self) {
        let mut batch: Vec<Datagram> = Vec::new();
        while self.in_flight.peek().is_some_and(|packet| packet.0.arrival <= self.now) {
            let Some(Reverse(InFlight { packet, .. })) = self.in_flight.pop() else { break };
            if !extends_batch(&batch, &packet) {
                self.deliver(&batch);
                batch.clear();
            }
            batch.push(packet);
        }
        self.deliver(&batch);
    }

    fn deliver(&mut self, batch: &[Datagram]) {
        let Some(first) = batch.first() else { return };
        match self.nodes.iter_mut().find(|node| node.address() == first.destination) {
            Some(node) => node.receive(self.now, batch),
            None => self.undeliverable += batch.len() as u64,
        }
    }
}

/// Returns `true` if a packet can extend a batch: same flow and mark, equal lengths except for a shorter last one.
fn extends_batch(batch: &[Datagram], next: &Datagram) -> bool {
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return true };
    let bytes: usize = batch.iter().map(|packet| packet.bytes.len()).sum();
    (first.source, first.destination, first.marked) == (next.source, next.destination, next.marked)
        && last.bytes.len() == first.bytes.len()
        && next.bytes.len() <= first.bytes.len()
        && batch.len() < MAX_BATCH
        && bytes + next.bytes.len() <= usize::from(u16::MAX)
}

struct InFlight {
    arrival: Nanos,
    order: u64,
    packet: Datagram,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for InFlight {}
impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival, self.order).cmp(&(other.arrival, other.order))
    }
}
