//! Tests of the shared-memory provider with both endpoints in this process.

use shotline_memory::{Access, Addressing, MemoryError, Mr, Pd, Region};
use shotline_testing::{WAIT_TIMEOUT, wait_until, wait_until_asleep, wait_until_some};
use shotline_verbs::api::{
    Completion, CompletionKind, Cq, Data, Element, Modify, Mtu, Operation, PostError, Provider, Qp, QpConfig, QpState,
    QpType, ReadyToReceive, ReadyToSend, RecvWr, Remote, SendWr, Status, VerbsError,
};
use shotline_verbs::cm::{MemoryBudget, MemoryLimit};
use shotline_verbs::shm::ShmEndpoint;
use shotline_wire::aeth::RnrTimer;
use std::sync::Arc;
use std::time::Duration;

const LOCAL: Access = Access::LOCAL_WRITE;

/// Endpoint with a queue pair and 4 MiB of memory.
pub(crate) struct Side {
    pub(crate) shm: ShmEndpoint,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
    pub(crate) region: Arc<Region>,
    pub(crate) mr: Mr,
}

fn side(mut shm: ShmEndpoint, strict: bool) -> Side {
    let pd = shm.alloc_pd().unwrap();
    let cq = shm.create_cq(64).unwrap();
    let mut config = QpConfig::new(QpType::Rc, pd, cq, cq);
    config.strict = strict;
    (config.max_send_wr, config.max_recv_wr) = (16, 16);
    let qp = shm.create_qp(&config).unwrap();
    let region = Region::memfd("test", 4 << 20).unwrap();
    let mr = shm.reg_mr(pd, &region, 0, region.len() as u64, Access::ALL, Addressing::ZeroBased).unwrap();
    Side { shm, pd, cq, qp, region, mr }
}

impl Side {
    pub(crate) fn connect(&mut self, peer: u32, rnr_retries: u8) {
        self.connect_within(peer, rnr_retries, WAIT_TIMEOUT);
    }
    /// Connects with another timeout for a peer that does not receive.
    pub(crate) fn connect_within(&mut self, peer: u32, rnr_retries: u8, timeout: Duration) {
        self.connect_qp(self.qp, peer, rnr_retries, timeout);
    }
    /// Connects another queue pair of this side.
    pub(crate) fn connect_qp(&mut self, qp: Qp, peer: u32, rnr_retries: u8, timeout: Duration) {
        let init = Modify::Init { access: Access::ALL, q_key: 0 };
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse().unwrap(), peer)),
            mtu: Mtu::B4096,
            psn: 77,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        let send = ReadyToSend { psn: 77, timeout, retry_cnt: 2, rnr_retry: rnr_retries, max_rd_atomic: 1 };
        for change in [init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)] {
            self.shm.modify_qp(qp, change).unwrap();
        }
    }
    pub(crate) fn element(&self, address: u64, len: u32) -> Element {
        Element { address, len, lkey: self.mr.lkey }
    }
    pub(crate) fn post(&mut self, id: u64, operation: Operation, address: u64, len: u32) -> Result<(), PostError> {
        let element = [self.element(address, len)];
        let wr = SendWr::new(id, operation, Data::Elements(&element));
        self.shm.post_send(self.qp, &[wr]).map_err(|(_, error)| error)
    }
    pub(crate) fn receive(&mut self, id: u64, address: u64, len: u32) {
        let elements = [self.element(address, len)];
        self.shm.post_recv(self.qp, &[RecvWr { id, elements: &elements }]).unwrap();
    }
    pub(crate) fn poll(&mut self) -> Vec<Completion> {
        let mut out = [Completion::default(); 64];
        let found = self.shm.poll_cq(self.cq, &mut out).unwrap();
        out[..found].to_vec()
    }
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.region.read(offset, &mut out);
        out
    }
    pub(crate) fn state(&self) -> QpState {
        self.shm.qp_state(self.qp).unwrap()
    }
}

fn sides(strict: bool) -> (Side, Side) {
    let (a, b) = ShmEndpoint::pair().unwrap();
    (side(a, strict), side(b, strict))
}

pub(crate) fn connected() -> (Side, Side) {
    let (mut a, mut b) = sides(false);
    a.connect(b.qp.0, 7);
    b.connect(a.qp.0, 7);
    (a, b)
}

pub(crate) fn remote_at(address: u64, mr: &Mr) -> Remote {
    Remote { address, rkey: mr.rkey }
}

/// Returns the completions of both sides, polled until neither has had any for a while.
fn settle(a: &mut Side, b: &mut Side) -> (Vec<Completion>, Vec<Completion>) {
    let (mut of_a, mut of_b, mut idle) = (Vec::new(), Vec::new(), 0);
    while idle < 100 {
        let before = of_a.len() + of_b.len();
        of_a.extend(a.poll());
        of_b.extend(b.poll());
        idle = if of_a.len() + of_b.len() == before { idle + 1 } else { 0 };
    }
    (of_a, of_b)
}

#[test]
fn peer_memory_is_limited_by_its_budget() {
    let (mut a, mut b) = ShmEndpoint::pair().unwrap();
    let (one, all) = (MemoryLimit { bytes: 1 << 20, option: "--one" }, MemoryLimit { bytes: 1 << 30, option: "--all" });
    let budget = MemoryBudget::new(one, all);
    a.charge(budget.clone(), 7);
    let pd = b.alloc_pd().unwrap();
    let region = Region::memfd("test", 1 << 20).unwrap();
    let mut register = || b.reg_mr(pd, &region, 0, 1 << 20, Access::ALL, Addressing::ZeroBased).unwrap();
    let keys: Vec<Mr> = (0..20).map(|_| register()).collect();
    let refusal = wait_until_some("a refusal", || a.refusal());
    assert!(refusal.message.contains("an initiator's memory") && refusal.message.contains("--one"), "{refusal}");
    let state = budget.state();
    assert_eq!((state.used_bytes, state.refused), (7 * ((128 << 10) + 2048), 13));
    keys.iter().for_each(|mr| b.dereg_mr(mr).unwrap());
    wait_until("release of the memory", || a.refusal().is_none() && budget.state().used_bytes == 0);
    assert_eq!(a.counters().malformed, 0);
}

#[test]
fn one_sided_operations_need_no_target_cpu() {
    let (mut a, b) = connected();
    a.region.write(100, b"written");
    b.region.write(5000, b"to be read");
    b.region.write(8000, &40_u64.to_ne_bytes());
    a.post(1, Operation::Write(remote_at(200, &b.mr)), 100, 7).unwrap();
    a.post(2, Operation::Read(remote_at(5000, &b.mr)), 300, 10).unwrap();
    a.post(3, Operation::FetchAdd { remote: remote_at(8000, &b.mr), add: 2 }, 400, 8).unwrap();
    a.post(4, Operation::CompareSwap { remote: remote_at(8000, &b.mr), compare: 42, swap: 7 }, 408, 8).unwrap();
    a.post(5, Operation::CompareSwap { remote: remote_at(8000, &b.mr), compare: 42, swap: 8 }, 416, 8).unwrap();
    let done: Vec<_> = a.poll().iter().map(|done| (done.id, done.status, done.kind, done.bytes)).collect();
    let ok = Status::Success;
    let expected = [
        (1, ok, CompletionKind::Write, 0),
        (2, ok, CompletionKind::Read, 10),
        (3, ok, CompletionKind::FetchAdd, 8),
        (4, ok, CompletionKind::CompareSwap, 8),
        (5, ok, CompletionKind::CompareSwap, 8),
    ];
    assert_eq!(done, expected);
    assert_eq!((b.read(200, 7), a.read(300, 10)), (b"written".to_vec(), b"to be read".to_vec()));
    let results = [40_u64, 42, 7].map(u64::to_ne_bytes).concat();
    assert_eq!((a.read(400, 24), b.read(8000, 8)), (results, 7_u64.to_ne_bytes().to_vec()));
}

#[test]
fn messages_of_every_length_arrive_whole_and_in_order() {
    let (mut a, mut b) = connected();
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    a.region.write(0, &bytes);
    for (round, len) in [0, 1, 31, 32, 33, 4096, 32_768, 32_769, 1 << 20, 3 << 20, 100_000].into_iter().enumerate() {
        b.region.zero(0, b.region.len());
        // Elements of odd lengths.
        let third = len / 3;
        let elements = [b.element(10, third), b.element(3 << 20, 0), b.element(10 + u64::from(third), len - third)];
        b.shm.post_recv(b.qp, &[RecvWr { id: 9, elements: &elements }]).unwrap();
        let own = [a.element(0, len / 2), a.element(u64::from(len / 2), len - len / 2)];
        let wr = SendWr::new(8, Operation::SendImm(round as u32), Data::Elements(&own));
        a.shm.post_send(a.qp, &[wr]).unwrap();
        let (of_a, of_b) = settle(&mut a, &mut b);
        assert_eq!((of_a.len(), of_a[0].id, of_a[0].status), (1, 8, Status::Success));
        assert_eq!((of_b.len(), of_b[0].status, of_b[0].bytes), (1, Status::Success, len));
        assert_eq!((of_b[0].imm, of_b[0].kind), (Some(round as u32), CompletionKind::Recv));
        assert_eq!(b.read(10, len as usize), bytes[..len as usize]);
    }
}

#[test]
fn inline_messages_wrap_around_the_ring() {
    let (mut a, mut b) = connected();
    let mut seen = 0_u32;
    for group in 0..2500_u32 {
        (0..8).for_each(|slot| b.receive(slot, slot * 64, 64));
        for number in group * 8..group * 8 + 8 {
            let bytes = [number.to_le_bytes(); 15].concat();
            let mut wr = SendWr::new(u64::from(number), Operation::Send, Data::Inline(&bytes[..60]));
            wr.signalled = number % 8 == 7;
            a.shm.post_send(a.qp, &[wr]).unwrap();
        }
        let (of_a, of_b) = settle(&mut a, &mut b);
        assert_eq!((of_a.len(), of_b.len()), (1, 8));
        for done in of_b {
            assert_eq!(b.read(done.id as usize * 64, 60), [seen.to_le_bytes(); 15].concat()[..60]);
            seen += 1;
        }
    }
}

#[test]
fn write_imm_completes_a_receive_after_its_bytes() {
    let (mut a, mut b) = connected();
    b.receive(5, 0, 0);
    a.region.write(0, b"payload");
    a.post(1, Operation::WriteImm(remote_at(700, &b.mr), 0xABCD), 0, 7).unwrap();
    let (of_a, of_b) = settle(&mut a, &mut b);
    assert_eq!((of_a[0].status, of_a[0].kind), (Status::Success, CompletionKind::Write));
    let done = of_b[0];
    assert_eq!((done.id, done.kind, done.imm, done.bytes), (5, CompletionKind::RecvWriteImm, Some(0xABCD), 7));
    assert_eq!(b.read(700, 7), b"payload");
}

#[test]
fn send_without_a_receive_blocks_later_requests() {
    let (mut a, mut b) = connected();
    a.region.write(0, b"first");
    a.post(1, Operation::Send, 0, 5).unwrap();
    a.post(2, Operation::Write(remote_at(900, &b.mr)), 0, 5).unwrap();
    assert_eq!((settle(&mut a, &mut b), b.read(900, 5)), ((vec![], vec![]), vec![0; 5]));
    b.receive(3, 0, 5);
    let (of_a, of_b) = settle(&mut a, &mut b);
    assert_eq!(
        of_a.iter().map(|done| (done.id, done.status)).collect::<Vec<_>>(),
        [(1, Status::Success), (2, Status::Success)]
    );
    assert_eq!((of_b.len(), b.read(0, 5), b.read(900, 5)), (1, b"first".to_vec(), b"first".to_vec()));
}

#[test]
fn rnr_retries_run_out_without_a_receive() {
    let (mut a, mut b) = sides(false);
    a.connect(b.qp.0, 1);
    b.connect(a.qp.0, 7);
    a.post(1, Operation::Send, 0, 5).unwrap();
    a.post(2, Operation::Send, 0, 5).unwrap();
    let mut done = Vec::new();
    wait_until("two completions", || {
        done.extend(a.poll());
        done.len() == 2
    });
    assert_eq!([done[0].status, done[1].status], [Status::RnrRetryExceeded, Status::Flushed]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::ReadyToSend));
}

#[test]
fn request_to_a_reset_peer_fails_and_to_a_late_one_succeeds() {
    let (mut a, mut b) = sides(false);
    a.connect(b.qp.0, 7);
    a.post(1, Operation::Write(remote_at(0, &b.mr)), 0, 5).unwrap();
    assert!(a.poll().is_empty());
    b.connect(a.qp.0, 7);
    let (of_a, _) = settle(&mut a, &mut b);
    assert_eq!(of_a[0].status, Status::Success);

    let (mut a, mut b) = sides(false);
    a.connect_within(b.qp.0, 7, Duration::from_millis(2));
    b.connect(a.qp.0, 7);
    b.shm.modify_qp(b.qp, Modify::Reset).unwrap();
    a.post(2, Operation::Read(remote_at(0, &b.mr)), 0, 5).unwrap();
    let done = wait_until_some("a completion", || Some(a.poll()).filter(|done| !done.is_empty()));
    assert_eq!((done[0].id, done[0].status, a.state()), (2, Status::RetryExceeded, QpState::Error));
}

#[test]
fn forbidden_access_is_refused_and_writes_nothing() {
    let len = 4 << 20;
    type Case = (&'static str, fn(&Side) -> Remote);
    let cases: [Case; 4] = [
        ("an unknown key", |b| Remote { address: 0, rkey: b.mr.rkey ^ 1 }),
        ("one byte past the end", |b| Remote { address: (4 << 20) - 7, rkey: b.mr.rkey }),
        ("an address that wraps", |b| Remote { address: u64::MAX - 3, rkey: b.mr.rkey }),
        ("a deregistered key", |b| Remote { address: 0, rkey: b.mr.rkey }),
    ];
    for (name, remote) in cases {
        for strict in [false, true] {
            let (mut a, mut b) = sides(strict);
            a.connect(b.qp.0, 7);
            b.connect(a.qp.0, 7);
            a.region.write(0, &[1; 8]);
            let remote = remote(&b);
            if name == "a deregistered key" {
                // The initiator has the key cached, and is not notified of its deregistration.
                a.post(0, Operation::Read(remote), 64, 8).unwrap();
                assert_eq!(a.poll()[0].status, Status::Success);
                b.shm.dereg_mr(&b.mr).unwrap();
            }
            a.post(1, Operation::Write(remote), 0, 8).unwrap();
            let (of_a, _) = settle(&mut a, &mut b);
            assert_eq!((of_a[0].status, a.state()), (Status::RemoteAccess, QpState::Error), "{name}");
            while b.shm.progress().unwrap() {}
            let expected = if strict { QpState::Error } else { QpState::ReadyToSend };
            assert_eq!(b.state(), expected, "{name}");
            assert_eq!(b.read(0, len), vec![0; len], "{name}");
        }
    }
}

#[test]
fn read_only_memory_is_sealed_against_writing() {
    let (mut a, mut b) = connected();
    let region = Region::memfd("test", 4096).unwrap();
    let mr = b.shm.reg_mr(b.pd, &region, 0, 4096, LOCAL | Access::REMOTE_READ, Addressing::ZeroBased).unwrap();
    region.write(0, b"look");
    a.post(1, Operation::Read(remote_at(0, &mr)), 0, 4).unwrap();
    assert_eq!((a.poll()[0].status, a.read(0, 4)), (Status::Success, b"look".to_vec()));
    // The peer has only this descriptor.
    let fd = rustix::io::dup(region.fd().unwrap()).unwrap();
    assert!(matches!(Region::from_fd(fd, true), Err(MemoryError::Map { .. })));
    let fd = rustix::io::dup(region.fd().unwrap()).unwrap();
    assert!(rustix::io::pwrite(fd, b"x", 0).is_err());
    a.post(2, Operation::Write(remote_at(0, &mr)), 0, 4).unwrap();
    assert_eq!(a.poll()[0].status, Status::RemoteAccess);
}

#[test]
fn unenforceable_rights_are_refused_with_a_hint() {
    let (mut a, _b) = connected();
    let (heap, shared) = (Region::heap(8192).unwrap(), Region::memfd("test", 8192).unwrap());
    let mut register = |region: &Arc<Region>, offset, len, access| {
        let made = a.shm.reg_mr(a.pd, region, offset, len, access, Addressing::ZeroBased);
        match made {
            Ok(_) => String::new(),
            Err(VerbsError::Unsupported(why)) => why.to_owned(),
            Err(other) => panic!("{other}"),
        }
    };
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE | LOCAL;
    assert!(register(&heap, 0, 8192, all).contains("Region::memfd"));
    assert!(register(&shared, 4096, 4096, all).contains("register all of it"));
    assert!(register(&shared, 0, 8192, Access::REMOTE_WRITE | LOCAL).contains("add remote read and write access"));
    assert!(register(&shared, 0, 8192, Access::REMOTE_ATOMIC | LOCAL).contains("add remote read and write access"));
    assert_eq!(register(&shared, 0, 8192, all), "");
    assert_eq!(register(&shared, 0, 8192, all), "");
    assert!(register(&shared, 0, 8192, Access::REMOTE_READ).contains("use another region"));
    assert_eq!(register(&heap, 100, 100, LOCAL), "");
    let sealed = Region::memfd("test", 4096).unwrap();
    assert_eq!(register(&sealed, 0, 4096, Access::REMOTE_READ), "");
    assert!(register(&sealed, 0, 4096, all).contains("use another region"));
}

#[test]
fn too_long_message_fails_its_receive_only_if_strict() {
    for strict in [false, true] {
        let (mut a, mut b) = sides(strict);
        a.connect(b.qp.0, 7);
        b.connect(a.qp.0, 7);
        b.receive(1, 0, 4);
        a.region.write(0, &[1; 5]);
        a.post(2, Operation::Send, 0, 5).unwrap();
        a.post(3, Operation::Send, 0, 5).unwrap();
        let (of_a, of_b) = settle(&mut a, &mut b);
        assert_eq!([of_a[0].status, of_a[1].status], [Status::RemoteInvalid, Status::Flushed]);
        assert_eq!((b.read(0, 5), a.state()), (vec![0; 5], QpState::Error));
        if strict {
            assert_eq!((of_b[0].id, of_b[0].status, b.state()), (1, Status::LocalLength, QpState::Error));
        } else {
            assert_eq!((of_b.len(), b.state()), (0, QpState::ReadyToSend));
        }
    }
}

#[test]
fn send_with_invalidate_revokes_a_key_that_allows_it() {
    let (mut a, mut b) = connected();
    b.receive(1, 0, 8);
    a.post(1, Operation::SendInvalidate(b.mr.rkey), 0, 4).unwrap();
    let (of_a, of_b) = settle(&mut a, &mut b);
    assert_eq!((of_a[0].status, of_b[0].invalidated), (Status::Success, Some(b.mr.rkey)));
    a.post(2, Operation::Read(remote_at(0, &b.mr)), 0, 4).unwrap();
    assert_eq!(a.poll()[0].status, Status::RemoteAccess);
}

#[test]
fn invalid_requests_are_not_posted() {
    let (mut a, b) = connected();
    let write = Operation::Write(remote_at(0, &b.mr));
    let atomic = Operation::FetchAdd { remote: remote_at(0, &b.mr), add: 1 };
    assert_eq!(a.post(1, atomic, 0, 4), Err(PostError::Length { max: 8, found: 4 }));
    assert!(matches!(a.post(1, write, (4 << 20) - 3, 4), Err(PostError::Element { index: 0, .. })));
    assert!(matches!(a.post(1, write, u64::MAX, 4), Err(PostError::Element { index: 0, .. })));
    let bytes = [0; 65];
    let wr = SendWr::new(1, write, Data::Inline(&bytes));
    assert_eq!(a.shm.post_send(a.qp, &[wr]), Err((0, PostError::Inline { max: 64, found: 65 })));
    let wr = SendWr::new(1, Operation::Read(remote_at(0, &b.mr)), Data::Inline(&bytes[..8]));
    assert_eq!(a.shm.post_send(a.qp, &[wr]), Err((0, PostError::Inline { max: 0, found: 8 })));
    let five = [a.element(0, 1); 5];
    let wr = SendWr::new(1, write, Data::Elements(&five));
    assert_eq!(a.shm.post_send(a.qp, &[wr]), Err((0, PostError::TooManyElements { max: 4, found: 5 })));
    for id in 0..16 {
        a.post(id, write, 0, 1).unwrap();
    }
    assert_eq!(a.post(16, write, 0, 1), Err(PostError::Full));
    assert_eq!(a.poll().len(), 16);
    a.post(16, write, 0, 1).unwrap();
    a.shm.modify_qp(a.qp, Modify::Error).unwrap();
    a.post(17, write, 0, 1).unwrap();
    a.receive(18, 0, 1);
    let done: Vec<_> = a.poll().iter().map(|done| (done.id, done.status)).collect();
    assert_eq!(done, [(16, Status::Success), (17, Status::Flushed), (18, Status::Flushed)]);
    a.shm.modify_qp(a.qp, Modify::Reset).unwrap();
    assert_eq!(a.post(1, write, 0, 1), Err(PostError::State(QpState::Reset)));
}

#[test]
fn unsignalled_requests_are_freed_by_a_signalled_one() {
    let (mut a, b) = connected();
    let element = [a.element(0, 1)];
    let mut wr = SendWr::new(1, Operation::Write(remote_at(0, &b.mr)), Data::Elements(&element));
    wr.signalled = false;
    a.shm.post_send(a.qp, &[wr; 15]).unwrap();
    assert!(a.poll().is_empty());
    wr.signalled = true;
    assert_eq!(a.shm.post_send(a.qp, &[wr; 2]), Err((1, PostError::Full)));
    assert_eq!(a.poll().len(), 1);
    a.shm.post_send(a.qp, &[wr; 16]).unwrap();
}

#[test]
fn peer_exit_flushes_all_requests() {
    let (mut a, b) = connected();
    a.receive(1, 0, 8);
    a.post(2, Operation::Send, 0, 8).unwrap();
    drop(b);
    let mut done = Vec::new();
    wait_until("the end of the peer", || {
        done.extend(a.poll().iter().map(|done| (done.id, done.status)));
        done.len() == 2
    });
    assert_eq!(done, [(2, Status::Flushed), (1, Status::Flushed)]);
    assert!(a.state() == QpState::Error && !a.shm.is_linked());
}

#[test]
fn armed_queue_wakes_a_waiting_thread() {
    let (mut a, mut b) = connected();
    b.receive(1, 0, 8);
    b.shm.arm_cq(b.cq, false).unwrap();
    let (name, named) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        name.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let event = b.shm.wait(WAIT_TIMEOUT).unwrap();
        (event == Some(b.cq), b.poll(), b)
    });
    wait_until_asleep(named.recv().unwrap());
    a.post(2, Operation::Send, 0, 8).unwrap();
    let (woken, done, _b) = sleeper.join().unwrap();
    assert!(woken && done.len() == 1 && done[0].id == 1);
}

#[test]
fn solicited_event_requires_a_solicited_request() {
    let (mut a, mut b) = connected();
    b.receive(1, 0, 8);
    b.receive(2, 0, 8);
    b.shm.arm_cq(b.cq, true).unwrap();
    let element = [a.element(0, 8)];
    let mut wr = SendWr::new(1, Operation::Send, Data::Elements(&element));
    a.shm.post_send(a.qp, &[wr]).unwrap();
    assert_eq!(b.shm.wait(Duration::from_millis(20)).unwrap(), None);
    wr.solicited = true;
    a.shm.post_send(a.qp, &[wr]).unwrap();
    assert_eq!(b.shm.wait(WAIT_TIMEOUT).unwrap(), Some(b.cq));
    assert_eq!(b.shm.next_event(), None);
}

#[test]
fn shared_receive_queue_serves_several_queue_pairs() {
    let (a, b) = ShmEndpoint::pair().unwrap();
    let (mut a, mut b) = (side(a, false), side(b, false));
    let srq = b.shm.create_srq(b.pd, 8, 2).unwrap();
    let mut links = Vec::new();
    for _ in 0..3 {
        let ours = QpConfig::new(QpType::Rc, a.pd, a.cq, a.cq);
        let mut theirs = QpConfig::new(QpType::Rc, b.pd, b.cq, b.cq);
        theirs.srq = Some(srq);
        (a.qp, b.qp) = (a.shm.create_qp(&ours).unwrap(), b.shm.create_qp(&theirs).unwrap());
        a.connect(b.qp.0, 7);
        b.connect(a.qp.0, 7);
        links.push((a.qp, b.qp));
    }
    for (index, (ours, _)) in links.iter().enumerate() {
        a.qp = *ours;
        a.region.write(0, &[index as u8; 8]);
        a.post(index as u64, Operation::Send, 0, 8).unwrap();
    }
    let (of_a, of_b) = settle(&mut a, &mut b);
    assert!(of_a.is_empty() && of_b.is_empty());
    for id in 0..2 {
        let elements = [b.element(id * 8, 8)];
        b.shm.post_srq_recv(srq, &[RecvWr { id, elements: &elements }]).unwrap();
    }
    let (of_a, of_b) = settle(&mut a, &mut b);
    assert_eq!((of_a.len(), of_b.len()), (2, 2));
    assert!(of_b.iter().all(|done| links.iter().any(|(_, theirs)| theirs.0 == done.qp)));
    assert!(matches!(b.shm.destroy_srq(srq), Err(VerbsError::InUse { .. })));
}

#[test]
fn region_is_found_by_its_published_name() {
    let (mut a, mut b) = connected();
    assert_eq!(a.shm.peer_region("frames"), None);
    b.shm.publish("frames", &b.mr).unwrap();
    let found = a.shm.peer_region("frames").unwrap();
    assert_eq!((found.rkey, found.len, found.access), (b.mr.rkey, b.mr.len, Access::ALL));
    b.shm.dereg_mr(&b.mr).unwrap();
    assert_eq!(a.shm.peer_region("frames"), None);
}
