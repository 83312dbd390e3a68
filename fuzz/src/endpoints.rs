//! Invariants of a queue pair under arbitrary packets, and under arbitrary calls of its user.

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_verbs::api::{
    CompletionKind, Cq, Data, Destination, Element, Modify, Mtu, Operation, QpConfig, QpState, QpType, RecvWr, Remote,
    SendWr, Srq,
};
use shotline_verbs::sim::{Datagram, Link, Node, Options, SimNetwork, seal};
use shotline_wire::roce::Packet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// First sequence number of both directions, just before the wrap-around.
const PSN: u32 = 0xFF_FFFC;
const KINDS: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];
/// Registered ranges: for local use, for all accesses of peers, for reads of peers. Bytes between them must not change.
const AREAS: [(u64, Access); 3] = [(0x400, Access::LOCAL_WRITE), (0x1C00, Access::ALL), (0x3400, Access::REMOTE_READ)];
const LEN: u64 = 0x1400;
const CHECKED: usize = 0x4C00;
const UNTOUCHED: u8 = 0xA5;

thread_local! {
    static MEMORY: [Arc<Region>; 2] = [(); 2].map(|()| Region::host(1 << 20).expect("2 MiB of memory"));
}

fn nodes(seed: u64) -> SimNetwork {
    let nodes = MEMORY.with(|memory| {
        memory
            .iter()
            .enumerate()
            .map(|(at, region)| {
                region.write(0, &[UNTOUCHED; CHECKED]);
                Node::with_memory(SimNetwork::address(at), Arc::clone(region)).expect("the region was allocated before")
            })
            .collect()
    });
    SimNetwork::with_nodes(seed, nodes)
}

fn register(network: &mut SimNetwork, at: usize) -> [Mr; 3] {
    AREAS.map(|(offset, access)| {
        network.node_mut(at).register(offset, LEN, access).expect("the range is within the region")
    })
}

fn assert_guarded(network: &SimNetwork, at: usize) {
    let bytes = network.node(at).read(0, CHECKED);
    let mut start = 0;
    for (offset, end) in AREAS[..2].iter().map(|(offset, _)| (*offset, offset + LEN)).chain([(CHECKED as u64, 0)]) {
        let between = &bytes[start..offset as usize];
        assert!(between == &[UNTOUCHED; CHECKED][..between.len()], "bytes outside the registered ranges were written");
        start = end as usize;
    }
}

/// Packets for a queue pair with outstanding work: kind, flags and work (one byte each), then packets, each with a byte
/// of flags, a length and that many bytes starting with the BTH; the ICRC is computed.
pub fn endpoint_packets(data: &[u8]) {
    let Some((&[kind, flags, work], mut packets)) = data.split_first_chunk::<3>() else { return };
    let options = Options {
        mtu: Mtu::ALL[usize::from(flags & 7) % 5],
        psn: [PSN; 2],
        rd_atomic: flags >> 5 & 3,
        strict: flags & 8 != 0,
        retry_cnt: 2,
        timeout: Duration::from_micros(50),
        ..Options::default()
    };
    let mut network = nodes(0);
    let [(qp, cq), _] = network.connect(KINDS[usize::from(kind) % 3], &options).expect("attributes are valid");
    let mrs = register(&mut network, 0);
    network.node_mut(0).steers = flags & 16 == 0;
    // All packets that the queue pair sends are lost: it receives only those of the input.
    network.set_links(Link::CUT);
    let mut posted = HashSet::new();
    for id in 0..8 {
        let element = [Element { address: AREAS[0].0 + 0x100 * id, len: [8, 700][id as usize % 2], lkey: mrs[0].lkey }];
        if flags & 128 != 0 {
            let _ = network.post_recv(0, qp, &RecvWr { id: 100 + id, elements: &element });
        }
        let remote = Remote { address: AREAS[1].0, rkey: 1 };
        let operation = match id {
            0 => Operation::Send,
            1 => Operation::Write(remote),
            2 => Operation::FetchAdd { remote, add: 1 },
            3 | 5 => Operation::Read(remote),
            4 => Operation::CompareSwap { remote, compare: 1, swap: 2 },
            6 => Operation::SendImm(6),
            _ => Operation::WriteImm(remote, 7),
        };
        let destination = (KINDS[usize::from(kind) % 3] == QpType::Ud).then(|| peer_destination(qp));
        let wr = SendWr { destination, ..SendWr::new(id, operation, Data::Elements(&element)) };
        if work >> id & 1 == 1 && network.post_send(0, qp, &wr).is_ok() {
            posted.insert(id);
        }
    }
    network.step();
    while let Some((&[control, len], rest)) = packets.split_first_chunk() {
        let (bytes, rest) = rest.split_at(rest.len().min(len.into()));
        packets = rest;
        let packet = forged(control, bytes, qp, &mrs, options.mtu);
        network.inject(packet);
        if control & 1 == 0 {
            network.step();
        }
    }
    network.run(2_000_000);
    let delivered = network.node(0).counters.delivered;
    assert_eq!(network.node(0).qp_counters(qp).map(|counters| counters.packets_in), Some(delivered));
    network.modify(0, qp, &Modify::Error).expect("Error can be entered from any state");
    while let Some(done) = network.node_mut(0).poll(cq) {
        assert!(is_receive(done.kind) || posted.remove(&done.id), "{done:?} completes an unknown request");
    }
    assert!(posted.is_empty(), "requests without a completion: {posted:?}");
    assert_guarded(&network, 0);
}

fn peer_destination(qp: u32) -> Destination {
    Destination { address: SimNetwork::address(1), qp, q_key: 0x1111_1111 }
}

fn is_receive(completed: CompletionKind) -> bool {
    matches!(completed, CompletionKind::Recv | CompletionKind::RecvWriteImm)
}

/// A packet from the peer, with valid queue pair, PSN and keys inserted if its flags say so: the fuzzer cannot guess
/// them.
fn forged(control: u8, bytes: &[u8], qp: u32, mrs: &[Mr; 3], mtu: Mtu) -> Datagram {
    let source = SimNetwork::address(usize::from(control & 64 == 0));
    // The parser expects an ICRC at the end.
    let whole = [bytes, &[0; 4]].concat();
    let Ok(packet) = Packet::parse(&whole) else { return seal(source, SimNetwork::address(0), bytes, &[]) };
    let (mut bth, mut extensions) = (packet.bth, packet.extensions);
    if control & 2 == 0 {
        bth.dest_qp = qp;
    }
    if control & 4 == 0 {
        bth.psn = PSN.wrapping_add(bth.psn & 15) & 0xFF_FFFF;
    }
    if control & 8 == 0 {
        let key = |index: u32| mrs[index as usize % 3].rkey;
        let address = |address: u64| AREAS[1].0 + address % (LEN + 16);
        if let Some(reth) = &mut extensions.reth {
            (reth.r_key, reth.address) = (key(reth.r_key), address(reth.address));
        }
        if let Some(atomic) = &mut extensions.atomic {
            (atomic.r_key, atomic.address) = (key(atomic.r_key), address(atomic.address));
        }
        if let Some(deth) = &mut extensions.deth {
            deth.q_key = 0x1111_1111;
        }
    }
    let mut payload = packet.payload.to_vec();
    if control & 32 != 0 {
        payload.resize(mtu.bytes() as usize, 7);
    }
    payload.extend_from_slice(&[0; 3][..bth.pad.into()]);
    Datagram { marked: control & 16 != 0, ..seal(source, SimNetwork::address(0), &extensions.emit(&bth), &payload) }
}

/// Calls on two nodes, four bytes each: function, object, and two arguments.
pub fn verbs_calls(data: &[u8]) {
    let mut user = User {
        network: nodes(data.len() as u64),
        cqs: Vec::new(),
        srqs: Vec::new(),
        mrs: [Vec::new(), Vec::new()],
        id: 0,
        open: [HashSet::new(), HashSet::new()],
        reset: [HashSet::new(), HashSet::new()],
    };
    for at in 0..2 {
        let cq = user.network.node_mut(at).create_cq();
        user.cqs.push(cq);
        let srq = user.network.node_mut(at).create_srq(8, 2);
        user.srqs.push(srq);
        let mrs = register(&mut user.network, at);
        user.mrs[at].extend(mrs);
    }
    data.chunks_exact(4).take(200).for_each(|call| user.call([call[0], call[1], call[2], call[3]]));
    user.end();
}

struct User {
    network: SimNetwork,
    cqs: Vec<Cq>,
    srqs: Vec<Srq>,
    mrs: [Vec<Mr>; 2],
    id: u64,
    /// Signalled requests that must complete exactly once, by queue pair.
    open: [HashSet<(u32, u64)>; 2],
    /// Requests of queue pairs that were reset or destroyed, whose completions may still be queued.
    reset: [HashSet<(u32, u64)>; 2],
}

impl User {
    fn call(&mut self, [what, which, x, y]: [u8; 4]) {
        let at = usize::from(which & 1);
        let qp = Node::FIRST_QP + u32::from(which >> 1 & 7);
        let modify = |user: &mut Self, change| user.network.modify(at, qp, &change).is_ok();
        match what % 16 {
            0 | 1 if self.network.node(at).queue_pairs().count() < 6 => {
                let (node, cq) = (self.network.node_mut(at), self.cqs[at]);
                let srq = (x & 8 != 0).then_some(self.srqs[at]);
                let (max_send_wr, max_recv_wr) = (u32::from(y & 7), u32::from(y >> 4));
                let base = QpConfig::new(KINDS[usize::from(x & 7) % 3], node.pd(), cq, cq);
                let strict = x & 16 != 0;
                node.create_qp(&QpConfig { srq, max_send_wr, max_recv_wr, max_sge: 2, max_inline: 16, strict, ..base });
            }
            2 | 3 => self.bring_up(at, qp, x, y),
            4 => self.reset(at, qp, x == 0),
            5 if x == 0 => {
                modify(self, Modify::Error);
            }
            5 => {
                modify(self, Modify::Init { access: Access::ALL, q_key: y.into() });
            }
            6..=9 => self.post_send(at, qp, what, x, y),
            10 | 11 => {
                self.id += 1;
                let elements = [self.element(at, x, y), self.element(at, y, x)];
                let wr = RecvWr { id: self.id, elements: &elements[..usize::from(x & 3).min(2)] };
                let _ = match x & 64 {
                    0 => self.network.post_recv(at, qp, &wr),
                    _ => self.network.node_mut(at).post_srq_recv(self.srqs[at], &wr),
                };
            }
            12 => {
                self.network.step();
            }
            13 => {
                let link = Link { loss: f64::from(x) / 512.0, duplicate: f64::from(y) / 512.0, ..Link::PERFECT };
                self.network.set_link(at, link);
            }
            14 if x & 1 == 0 && self.mrs[at].len() < 16 => {
                let offset = AREAS[1].0 + 16 * u64::from(y);
                let node = self.network.node_mut(at);
                let (memory, pd) = (Arc::clone(node.memory()), node.pd());
                let mr = node.protection.register(pd, &memory, offset, 256, Access::ALL, Addressing::Virtual(offset));
                self.mrs[at].extend(mr);
            }
            14 => {
                let mr = self.mrs[at][usize::from(y) % self.mrs[at].len()];
                self.network.node_mut(at).protection.deregister(mr.lkey);
            }
            _ => self.poll(at),
        }
    }

    fn bring_up(&mut self, at: usize, qp: u32, x: u8, y: u8) {
        let peer = Node::FIRST_QP + u32::from(x & 7);
        let options = Options {
            mtu: Mtu::ALL[usize::from(y & 7) % 5],
            rd_atomic: y >> 3 & 3,
            retry_cnt: x >> 3 & 3,
            rnr_retry: y >> 5,
            timeout: Duration::from_micros(if x & 32 == 0 { 40 } else { 0 }),
            ..Options::default()
        };
        let _ = self.network.bring_up(at, qp, Some((SimNetwork::address(1 - at), peer)), &options, PSN, PSN);
    }

    fn reset(&mut self, at: usize, qp: u32, destroy: bool) {
        let reset = match destroy {
            true => {
                let now = self.network.now();
                self.network.node_mut(at).destroy_qp(now, qp).is_ok()
            }
            false => self.network.modify(at, qp, &Modify::Reset).is_ok(),
        };
        if reset {
            let dropped: Vec<_> = self.open[at].extract_if(|(of, _)| *of == qp).collect();
            self.reset[at].extend(dropped);
        }
    }

    fn element(&self, at: usize, x: u8, y: u8) -> Element {
        let mr = self.mrs[at][usize::from(x) % self.mrs[at].len()];
        let len = [0, 1, 8, 255, 256, 1000, 4096, 0x8000_0000][usize::from(y & 7)];
        Element { address: mr.address + u64::from(y >> 3) * 8, len, lkey: mr.lkey }
    }

    fn post_send(&mut self, at: usize, qp: u32, what: u8, x: u8, y: u8) {
        let theirs = &self.mrs[1 - at];
        let mr = theirs[usize::from(x >> 3) % theirs.len()];
        let remote = Remote { address: mr.address + u64::from(y >> 4) * 8, rkey: mr.rkey };
        let operation = match x & 7 {
            0 => Operation::Send,
            1 => Operation::SendImm(x.into()),
            2 => Operation::SendInvalidate(mr.rkey),
            3 => Operation::Write(remote),
            4 => Operation::WriteImm(remote, y.into()),
            5 => Operation::Read(remote),
            6 => Operation::CompareSwap { remote, compare: 0, swap: 1 },
            _ => Operation::FetchAdd { remote, add: u64::MAX },
        };
        self.id += 1;
        let elements = [self.element(at, what >> 4, y), self.element(at, y, x)];
        let data = match what % 4 {
            0 => Data::Inline(&[7; 20][..usize::from(y % 20)]),
            count => Data::Elements(&elements[..usize::from(count).min(2)]),
        };
        let address = SimNetwork::address(1 - at);
        let to = Destination { address, qp: Node::FIRST_QP + u32::from(y & 7), q_key: 0x1111_1111 };
        let datagrams = self.network.node(at).engine(qp).is_some_and(|engine| engine.config().kind == QpType::Ud);
        let destination = datagrams.then_some(to);
        let (signalled, solicited, fence) = (what & 64 == 0, what & 128 != 0, y & 8 != 0);
        let base = SendWr::new(self.id, operation, data);
        let wr = SendWr { signalled, solicited, fence, destination, ..base };
        if self.network.post_send(at, qp, &wr).is_ok() && signalled {
            self.open[at].insert((qp, self.id));
        }
    }

    fn poll(&mut self, at: usize) {
        while let Some(done) = self.network.node_mut(at).poll(self.cqs[at]) {
            let request = (done.qp, done.id);
            let failed = done.status != shotline_verbs::api::Status::Success;
            let known = self.open[at].remove(&request) || self.reset[at].remove(&request);
            assert!(is_receive(done.kind) || known || failed, "{done:?} completes an unknown request");
        }
    }

    /// Moves every queue pair to its error state, after which all posted requests must have completed.
    fn end(&mut self) {
        self.network.run(1_000_000);
        for at in 0..2 {
            for qp in self.network.node(at).queue_pairs() {
                let _ = self.network.modify(at, qp, &Modify::Error);
                let state = self.network.node(at).engine(qp).map(|engine| engine.state());
                assert!(state.is_none_or(|state| state == QpState::Error));
            }
            self.poll(at);
            assert!(self.open[at].is_empty(), "requests without a completion: {:?}", self.open[at]);
            assert_guarded(&self.network, at);
        }
        assert!(self.network.run(10_000_000_000), "a queue pair in its error state is still active");
    }
}
