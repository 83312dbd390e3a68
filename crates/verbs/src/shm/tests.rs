//! Fuzzing with a malicious peer that writes arbitrary data to its board, its ring and the socket.

use super::board::{MAX_KEYS, MAX_QUEUES, RING_BYTES, Word};
use super::control::{KeyOffer, Message, PathOffer};
use super::endpoint::{ShmCounters, ShmEndpoint};
use super::record::{Header, record_len};
use crate::api::{
    Completion, CompletionKind, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpType,
    ReadyToReceive, ReadyToSend, RecvWr, Remote, SendWr, Status,
};
use shotline_memory::{Access, Addressing, Mr, PathModel, Region};
use shotline_random::SplitMix64;
use shotline_testing::seeds;
use shotline_wire::aeth::RnrTimer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Returns one of the likely numbers, or sometimes a random one.
fn pick(random: &mut SplitMix64, likely: &[u32]) -> u32 {
    match random.below(8) {
        0 => random.next_u64() as u32,
        1 => random.below(100) as u32,
        _ => random.choose(likely),
    }
}

/// Returns no path, or one of valid and invalid models.
fn pick_path(random: &mut SplitMix64) -> Option<PathOffer> {
    let rate = |random: &mut SplitMix64| [None, Some(1 << 30), Some(1), Some(u64::MAX)][random.below(4) as usize];
    let (write, read) = (rate(random), rate(random));
    let latency_ns = [0, 100, 0, u64::MAX][random.below(4) as usize];
    let path = PathOffer { number: pick(random, &[0, 1]), model: PathModel { write, read, latency_ns } };
    (random.below(2) == 0).then_some(path)
}

/// The honest side. Its requests and receives use the first half of its memory; the second half must never change.
struct Honest {
    shm: ShmEndpoint,
    cq: Cq,
    qp: Qp,
    region: Arc<Region>,
    mr: Mr,
}

const HALF: usize = 64 << 10;
/// Access rights to memory that is not mapped into the owner's process.
const SHARED: Access = Access::from_bits(7);

fn honest(mut shm: ShmEndpoint) -> Honest {
    let pd = shm.alloc_pd().unwrap();
    let cq = shm.create_cq(256).unwrap();
    let qp = shm.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
    let region = Region::memfd("test", 2 * HALF).unwrap();
    region.write(HALF, &vec![0x5A; HALF]);
    let mr = shm.reg_mr(pd, &region, 0, 2 * HALF as u64, Access::LOCAL_WRITE, Addressing::ZeroBased).unwrap();
    Honest { shm, cq, qp, region, mr }
}

fn connect(side: &mut Honest, peer: u32) {
    let receive = ReadyToReceive {
        peer: Some(("127.0.0.1:0".parse().unwrap(), peer)),
        mtu: Mtu::B4096,
        psn: 0,
        max_dest_rd_atomic: 1,
        min_rnr_timer: RnrTimer::from_code(1).unwrap(),
        ack_every: 0,
    };
    let send = ReadyToSend { psn: 0, timeout: Duration::from_micros(50), retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 1 };
    let init = Modify::Init { access: Access::ALL, q_key: 0 };
    for change in [Modify::Reset, init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)] {
        if side.shm.modify_qp(side.qp, change).is_err() {
            return; // the peer has made the link fail
        }
    }
}

/// Publishes a connected queue pair on the attacker's board, so that many attacks pass the first checks.
fn publish_fake_connection(attacker: &mut ShmEndpoint, memory: &Region, own: (u32, u32), peer: u32) {
    let words = [(Word::Number, own.1), (Word::Peer, peer), (Word::Access, 31), (Word::Domain, 0), (Word::State, 1)];
    words.iter().for_each(|(word, value)| attacker.mine.pair(0, *word).store(*value, Ordering::Release));
    attacker.mine.changes().fetch_add(1, Ordering::Release);
    attacker.mine.receives(0).store(1000, Ordering::Release);
    attacker.mine.live(0).store(7, Ordering::Release);
    let offer = KeyOffer { slot: 0, rkey: 7, domain: 0, address: 0, len: 4096, access: Access::ALL, path: None };
    attacker.control.send(Message::Ended { slot: 0, rkey: 7 });
    attacker.control.send(Message::Key(offer, rustix::io::dup(memory.fd().unwrap()).unwrap()));
}

/// Performs one random attack.
fn attack(
    peer: &mut ShmEndpoint,
    random: &mut SplitMix64,
    target: (u32, u32),
    own: (u32, u32),
    memory: &Region,
    tail: &mut u64,
) {
    let (to_slot, to) = target;
    let numbers = [0, 1, 2, 64, 4096, to, own.0, own.1, u32::MAX, 1 << 31];
    match random.below(9) {
        0 => {
            let line = if random.below(2) == 0 { own.0 as usize } else { random.below(MAX_QUEUES as u64) as usize };
            let words =
                [Word::Number, Word::Peer, Word::State, Word::Access, Word::Domain, Word::Receives, Word::RnrTimer];
            let more = [Word::Strict, Word::Expected, Word::Refused, Word::RefusalCode];
            let word = *words.iter().chain(&more).nth(random.below(11) as usize).unwrap();
            peer.mine.pair(line, word).store(pick(random, &numbers), Ordering::Release);
        }
        1 => peer.mine.receives(random.below(64) as usize).store(pick(random, &numbers), Ordering::Release),
        2 => peer.mine.live(random.below(MAX_KEYS as u64) as usize).store(pick(random, &numbers), Ordering::Release),
        3 => peer.mine.wake().store(random.next_u64() as u32, Ordering::Release),
        4 if random.below(100) == 0 => peer.mine.head().store(random.next_u64() >> random.below(64), Ordering::Release),
        4 if random.below(100) == 0 => peer.mine.tail().store(random.next_u64() >> random.below(64), Ordering::Release),
        4..=6 => {
            let fragment = [0, 32, 64, 5000][random.below(4) as usize];
            let mut header = Header {
                to_slot,
                to,
                from: own.1,
                message: random.below(2) as u32,
                flags: if random.below(2) == 0 { Header::FIRST | Header::LAST } else { random.below(64) as u16 },
                queue: random.next_u64() as u16,
                word: random.next_u64() as u32,
                total: fragment,
                fragment,
            };
            // Half of the headers have one wrong field.
            let field = match random.below(16) {
                0 => &mut header.to_slot,
                1 => &mut header.to,
                2 => &mut header.from,
                3 => &mut header.message,
                4 | 5 => &mut header.total,
                6 => &mut header.fragment,
                _ => &mut header.word,
            };
            *field = pick(random, &numbers);
            let (board, offset, _) = peer.mine.ring(*tail & (RING_BYTES - 1));
            board.write(offset, &header.bytes());
            *tail += if random.below(50) == 0 { 64 * random.below(90) } else { record_len(u64::from(fragment)) };
            peer.mine.tail().store(*tail, Ordering::Release);
        }
        7 => {
            let access = Access::from_bits(random.next_u64() as u8);
            let (slot, rkey) = (pick(random, &[0, 1, MAX_KEYS as u32]), pick(random, &[0, 7, 8]));
            let (address, len) = ([0, u64::MAX, 5][random.below(3) as usize], random.next_u64() >> random.below(64));
            let fd = match random.below(3) {
                0 => rustix::io::dup(memory.fd().unwrap()).unwrap(),
                1 => rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap(),
                _ => std::fs::File::open("/dev/null").unwrap().into(),
            };
            let (domain, path) = (pick(random, &[0]), pick_path(random));
            peer.control.send(Message::Key(KeyOffer { slot, rkey, domain, address, len, access, path }, fd));
        }
        _ => match random.below(5) {
            0 => peer.control.send(Message::Named { rkey: pick(random, &[7, 8]), name: vec![0xFF; 64] }),
            1 => {
                peer.control.send(Message::Ended { slot: pick(random, &[0, 1, u32::MAX]), rkey: pick(random, &[7, 8]) })
            }
            2 => peer.control.send(Message::Fault { qp: to, from: own.1 }),
            3 => _ = rustix::net::send(peer.control.fd(), &[9; 40], rustix::net::SendFlags::DONTWAIT),
            _ => peer.control.wake(),
        },
    }
}

#[test]
fn each_dropped_message_is_counted_once() {
    let (a, mut attacker) = ShmEndpoint::pair().unwrap();
    let mut a = honest(a);
    let memory = Region::memfd("theirs", 4096).unwrap();
    let own = (0, 77);
    publish_fake_connection(&mut attacker, &memory, own, a.qp.0);
    connect(&mut a, own.1);
    // Out of sequence, without a posted receive, and for no queue pair.
    let (mut tail, target) = (0, a.qp.0);
    for (to, message) in [(target, 9), (target, 0), (target + 1, 0)] {
        let flags = Header::FIRST | Header::LAST;
        let header = Header { to_slot: 0, to, from: own.1, message, flags, queue: 0, word: 0, total: 32, fragment: 32 };
        let (board, offset, _) = attacker.mine.ring(tail & (RING_BYTES - 1));
        board.write(offset, &header.bytes());
        tail += record_len(32);
        attacker.mine.tail().store(tail, Ordering::Release);
    }
    while a.shm.progress().unwrap() {}
    let ShmCounters { stray, refused, malformed, .. } = a.shm.counters();
    assert_eq!((stray, refused, malformed), (1, 2, 0));
}

#[test]
fn malicious_peer_harms_only_its_own_link() {
    let (mut successes, mut counters) = ([0_u32; 2], [0; 3]);
    let seeds = seeds(0..150);
    let runs = seeds.size_hint().0;
    for seed in seeds {
        let mut random = SplitMix64::new(seed);
        let (a, mut attacker) = ShmEndpoint::pair().unwrap();
        let mut a = honest(a);
        let memory = Region::memfd("theirs", 4096).unwrap();
        let (own, mut tail) = ((0, 77), 0);
        for round in 0..300 {
            if round % 10 == 0 {
                publish_fake_connection(&mut attacker, &memory, own, a.qp.0);
                connect(&mut a, own.1);
            }
            attack(&mut attacker, &mut random, (0, a.qp.0), own, &memory, &mut tail);
            let elements = [Element { address: random.below(1000), len: random.below(3200) as u32, lkey: a.mr.lkey }];
            let remote = Remote { address: random.below(1000), rkey: pick(&mut random, &[7]) };
            let operation = match random.below(6) {
                0 => Operation::Write(remote),
                1 => Operation::Read(remote),
                2 => Operation::WriteImm(remote, 1),
                3 => Operation::SendInvalidate(5),
                _ => Operation::Send,
            };
            let _ = a.shm.post_send(a.qp, &[SendWr::new(1, operation, Data::Elements(&elements))]);
            let _ = a.shm.post_recv(a.qp, &[RecvWr { id: 2, elements: &elements }]);
            let mut out = [Completion::default(); 16];
            let found = a.shm.poll_cq(a.cq, &mut out).unwrap();
            for done in out[..found].iter().filter(|done| done.status == Status::Success) {
                successes[usize::from(matches!(done.kind, CompletionKind::Recv | CompletionKind::RecvWriteImm))] += 1;
            }
            if random.below(20) == 0 {
                a.shm.progress().unwrap();
                let _ = a.shm.peer_region("x");
            }
        }
        let mut guard = vec![0; HALF];
        a.region.read(HALF, &mut guard);
        assert!(guard.iter().all(|byte| *byte == 0x5A), "seed {seed}: memory outside all requests was written");
        let ShmCounters { stray, refused, malformed, .. } = a.shm.counters();
        counters.iter_mut().zip([stray, refused, malformed]).for_each(|(sum, count)| *sum += count);
    }
    // Not everything was refused at the first check: requests and messages got through, and each kind of refusal
    // occurred.
    let occurred = |count: u64| runs < 150 || count > 100;
    let all = successes.iter().map(|count| u64::from(*count)).chain(counters).all(occurred);
    assert!(all, "{successes:?} {counters:?}");
}

#[test]
fn malformed_path_of_a_peer_is_refused() {
    let model = |write, read, latency_ns| PathModel { write, read, latency_ns };
    let (good, other) = (PathModel::PATH2, PathModel::PATH3);
    let cases = [
        (Access::ALL, good, "atomic operations"),
        (SHARED, model(Some(1), None, 0), "too slow"),
        (SHARED, model(None, Some(u64::MAX), 0), "too fast"),
        (SHARED, model(None, None, u64::MAX), "too long a latency"),
        (SHARED, other, "another model of a known path"),
    ];
    let (mut a, mut peer) = ShmEndpoint::pair().unwrap();
    let memory = Region::memfd("theirs", 4096).unwrap();
    let mut offer = |rkey, access, model| {
        let path = Some(PathOffer { number: 3, model });
        let offer = KeyOffer { slot: rkey, rkey, domain: 0, address: 0, len: 4096, access, path };
        peer.control.send(Message::Key(offer, rustix::io::dup(memory.fd().unwrap()).unwrap()));
        a.progress().unwrap();
        (a.counters().malformed, a.peer_path(rkey))
    };
    let path = offer(1, SHARED, good).1.unwrap();
    for (index, (access, model, why)) in cases.into_iter().enumerate() {
        let index = index as u32;
        let (malformed, path) = offer(2 + index, access, model);
        assert!(malformed == u64::from(index) + 1 && path.is_none(), "{why}");
    }
    assert!(std::sync::Arc::ptr_eq(&offer(9, SHARED, good).1.unwrap(), &path), "the path of this number is shared");
    // A tag that is neither 0 nor 1.
    let mut bytes = [0; 128];
    (bytes[0], bytes[4], bytes[8], bytes[32]) = (2, 20, 20, 2);
    shotline_transport::fd_passing::send(peer.control.fd(), &bytes, memory.fd()).unwrap();
    a.progress().unwrap();
    assert_eq!((a.counters().malformed, a.peer_path(20).is_none()), (6, true));
}
