//! Memory of emulated accelerators over shared memory: the initiator's copies pass over a path of the target's model.

use crate::shm::{Side, connected, remote_at};
use shotline_memory::{Access, Addressing, EmulatedMemory, EmulatedPath, Mr, PathDirection, PathModel, Region};
use shotline_testing::WAIT_TIMEOUT;
use shotline_verbs::api::{
    Completion, CompletionKind, Data, Element, Modify, Operation, Provider, QpConfig, QpType, RecvWr, SendWr, Status,
    VerbsError,
};
use std::sync::Arc;

/// Local write, remote read and remote write.
const RW: Access = Access::from_bits(7);
/// Bytes that one call copies over path 2 at most: those of 100 us, in whole parts of 4096.
const WRITTEN_PER_CALL: u64 = 479_232;
const READ_PER_CALL: u64 = 118_784;

/// Registers a region for the peer.
fn open(side: &mut Side, region: &Arc<Region>, access: Access) -> Result<Mr, VerbsError> {
    side.shm.reg_mr(side.pd, region, 0, region.len() as u64, access, Addressing::ZeroBased)
}

/// Two connected sides; the second one has 2 MiB of memory behind path 2.
fn with_emulated(access: Access) -> (Side, Side, Arc<Region>, Mr) {
    let (a, mut b) = connected();
    let region = Region::emulated("hbm", 2 << 20, PathModel::PATH2).unwrap();
    let mr = open(&mut b, &region, access).unwrap();
    (a, b, region, mr)
}

/// Returns the bytes behind a path.
fn behind(region: &Region) -> &Region {
    region.emulated_memory().unwrap().region()
}

fn bytes(region: &Region, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(offset, &mut bytes);
    bytes
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Bytes written to and read from the accelerator.
fn passed(path: &EmulatedPath) -> (u64, u64) {
    let [write, read] = [PathDirection::Write, PathDirection::Read].map(|direction| path.counters(direction).bytes);
    (write, read)
}

#[test]
fn copies_of_the_initiator_pass_over_the_path() {
    let (mut a, b, region, mr) = with_emulated(RW);
    a.region.write(0, &pattern(100_000));
    a.post(1, Operation::Write(remote_at(13, &mr)), 0, 100_000).unwrap();
    a.post(2, Operation::Read(remote_at(113, &mr)), 1 << 20, 5_001).unwrap();
    assert_eq!(done(&mut a, 2), [(1, CompletionKind::Write, 0), (2, CompletionKind::Read, 5_001)]);
    assert_eq!(bytes(behind(&region), 13, 100_000), pattern(100_000));
    assert_eq!(a.read(1 << 20, 5_001), pattern(100_000)[100..5_101]);
    let path = a.shm.peer_path(mr.rkey).unwrap();
    assert_eq!((path.model(), passed(&path)), (PathModel::PATH2, (100_000, 5_001)));
    // Nothing passed over the target's own path: its processor copied nothing.
    assert_eq!(passed(region.emulated_memory().unwrap().path()), (0, 0));
    assert!(a.shm.peer_path(b.mr.rkey).is_none(), "ordinary memory has no path");
}

/// Polls until there are `count` completions, all of them successful.
fn done(side: &mut Side, count: usize) -> Vec<(u64, CompletionKind, u32)> {
    let mut all: Vec<Completion> = Vec::new();
    while all.len() < count {
        all.extend(side.poll());
    }
    assert!(all.iter().all(|completion| completion.status == Status::Success), "{all:?}");
    all.iter().map(|completion| (completion.id, completion.kind, completion.bytes)).collect()
}

#[test]
fn long_operation_is_copied_in_parts_by_later_calls() {
    let (mut a, _b, region, mr) = with_emulated(RW);
    a.region.write(0, &pattern(1 << 20));
    a.post(1, Operation::Write(remote_at(0, &mr)), 0, 1 << 20).unwrap();
    let path = a.shm.peer_path(mr.rkey).unwrap();
    assert_eq!(passed(&path).0, WRITTEN_PER_CALL);
    assert_eq!(a.poll(), [], "not all bytes have passed");
    assert_eq!(passed(&path).0, 2 * WRITTEN_PER_CALL);
    assert_eq!(done(&mut a, 1), [(1, CompletionKind::Write, 0)]);
    assert_eq!(passed(&path), (1 << 20, 0));
    assert_eq!(bytes(behind(&region), 0, 1 << 20), pattern(1 << 20));
    a.post(2, Operation::Read(remote_at(0, &mr)), 2 << 20, 1 << 20).unwrap();
    assert_eq!(passed(&path), (1 << 20, READ_PER_CALL));
    assert_eq!(done(&mut a, 1), [(2, CompletionKind::Read, 1 << 20)]);
    assert_eq!(a.read(2 << 20, 1 << 20), pattern(1 << 20));
}

#[test]
fn short_operations_together_take_no_longer_than_one_call() {
    let (mut a, _b, _region, mr) = with_emulated(RW);
    let elements = [a.element(0, 64 << 10)];
    let request = |id| SendWr::new(id, Operation::Write(remote_at(0, &mr)), Data::Elements(&elements));
    a.shm.post_send(a.qp, &std::array::from_fn::<_, 16, _>(|id| request(id as u64))).unwrap();
    let path = a.shm.peer_path(mr.rkey).unwrap();
    let (first, one) = (passed(&path).0, 64 << 10);
    // 7 whole ones, and a part of the eighth; a part has at least 4096 bytes.
    assert!((7 * one..=7 * one + (24 << 10)).contains(&first), "{first}");
    let all = done(&mut a, 16);
    assert!(all.iter().map(|(id, ..)| *id).eq(0..16), "{all:?}");
    assert_eq!(passed(&path).0, 16 * one);
}

#[test]
fn queue_pairs_take_turns_on_the_path_they_share() {
    let (mut a, mut b, _region, mr) = with_emulated(RW);
    let pair = |side: &mut Side| side.shm.create_qp(&QpConfig::new(QpType::Rc, side.pd, side.cq, side.cq)).unwrap();
    let (second, peer) = (pair(&mut a), pair(&mut b));
    a.connect_qp(second, peer.0, 7, WAIT_TIMEOUT);
    b.connect_qp(peer, second.0, 7, WAIT_TIMEOUT);
    let elements = [a.element(0, 1 << 20)];
    for (id, qp, at) in [(1, a.qp, 0), (2, second, 1 << 20)] {
        let request = SendWr::new(id, Operation::Write(remote_at(at, &mr)), Data::Elements(&elements));
        a.shm.post_send(qp, &[request]).unwrap();
    }
    let path = a.shm.peer_path(mr.rkey).unwrap();
    assert_eq!(passed(&path).0, 2 * WRITTEN_PER_CALL, "each call that posts has its time");
    // The first two of the four remaining parts: none of them is complete before the other has had its turn.
    assert_eq!(a.poll(), []);
    assert_eq!(a.poll(), []);
    assert_eq!(passed(&path).0, 4 * WRITTEN_PER_CALL);
    assert_eq!(done(&mut a, 2).len(), 2);
    assert_eq!(passed(&path).0, 2 << 20);
    a.shm.destroy_qp(second).unwrap();
}

#[test]
fn keys_of_one_memory_share_its_path() {
    let (mut a, mut b, region, first) = with_emulated(RW);
    let second = open(&mut b, &region, RW).unwrap();
    let other = Region::emulated("other", 4096, PathModel::PATH2).unwrap();
    let third = open(&mut b, &other, RW).unwrap();
    let shared = a.shm.peer_path(first.rkey).unwrap();
    assert!(Arc::ptr_eq(&shared, &a.shm.peer_path(second.rkey).unwrap()));
    assert!(!Arc::ptr_eq(&shared, &a.shm.peer_path(third.rkey).unwrap()));
    // Memories that share a path at the target share it at the initiator.
    let memory =
        EmulatedMemory::over(Region::memfd("more", 4096).unwrap(), region.emulated_memory().unwrap().path().clone());
    let fourth = open(&mut b, &Region::device(Arc::new(memory)), RW).unwrap();
    assert!(Arc::ptr_eq(&shared, &a.shm.peer_path(fourth.rkey).unwrap()));
    assert_eq!(a.shm.counters().malformed, 0);
}

#[test]
fn read_only_emulated_memory_is_sealed_against_writing() {
    let (mut a, _b, region, mr) = with_emulated(Access::REMOTE_READ);
    behind(&region).write(0, b"result");
    a.post(1, Operation::Read(remote_at(0, &mr)), 0, 6).unwrap();
    assert_eq!(done(&mut a, 1), [(1, CompletionKind::Read, 6)]);
    assert_eq!(a.read(0, 6), b"result");
    assert!(Region::from_fd(rustix::io::dup(behind(&region).fd().unwrap()).unwrap(), true).is_err());
    a.post(2, Operation::Write(remote_at(0, &mr)), 0, 6).unwrap();
    assert_eq!(a.poll()[0].status, Status::RemoteAccess);
    let path = a.shm.peer_path(mr.rkey).unwrap();
    assert_eq!((passed(&path), bytes(behind(&region), 0, 6)), ((0, 6), b"result".to_vec()));
}

#[test]
fn atomics_and_other_device_memory_are_refused() {
    let (mut a, mut b, region, mr) = with_emulated(RW);
    assert!(matches!(open(&mut b, &region, Access::ALL), Err(VerbsError::Register(_))));
    a.post(1, Operation::FetchAdd { remote: remote_at(0, &mr), add: 1 }, 0, 8).unwrap();
    assert_eq!(a.poll()[0].status, Status::RemoteAccess);
    // Emulated memory over memory that a peer cannot map.
    let private = Region::host(4096).unwrap().behind(Arc::new(EmulatedPath::new(PathModel::PATH2)));
    let error = open(&mut b, &private, RW).unwrap_err().to_string();
    assert!(error.contains("Region::memfd"), "{error}");
}

#[test]
fn write_imm_is_announced_after_its_last_part() {
    let (mut a, mut b, region, mr) = with_emulated(RW);
    a.region.write(0, &pattern(1 << 20));
    a.post(1, Operation::WriteImm(remote_at(0, &mr), 7), 0, 1 << 20).unwrap();
    let path = a.shm.peer_path(mr.rkey).unwrap();
    assert_eq!((passed(&path).0, a.poll()), (0, Vec::new()), "without a receive it waits");
    b.receive(5, 0, 0);
    let mut written = 0;
    while written < 1 << 20 {
        assert_eq!(b.poll(), []);
        assert_eq!(a.poll(), []);
        written += WRITTEN_PER_CALL;
        assert_eq!(passed(&path).0, written.min(1 << 20));
    }
    let arrived = b.poll();
    assert_eq!((arrived[0].id, arrived[0].imm, arrived[0].bytes), (5, Some(7), 1 << 20));
    assert_eq!(bytes(behind(&region), 0, 1 << 20), pattern(1 << 20));
    assert_eq!(done(&mut a, 1), [(1, CompletionKind::Write, 0)]);
}

#[test]
fn emulated_memory_is_also_the_local_side() {
    let (mut a, b, region, mr) = with_emulated(RW);
    let own = Region::emulated("own", 1 << 20, PathModel { write: Some(12_000_000_000), ..PathModel::PATH2 }).unwrap();
    behind(&own).write(0, &pattern(1 << 20));
    let own_mr = open(&mut a, &own, Access::LOCAL_WRITE).unwrap();
    let element = [Element { address: 0, len: 1 << 20, lkey: own_mr.lkey }];
    let own_path = own.emulated_memory().unwrap().path();
    for (id, operation) in [
        (1, Operation::Write(remote_at(0, &b.mr))),
        (2, Operation::Write(remote_at(0, &mr))),
        (3, Operation::Read(remote_at(0, &b.mr))),
    ] {
        let before = passed(own_path);
        a.shm.post_send(a.qp, &[SendWr::new(id, operation, Data::Elements(&element))]).unwrap();
        let (written, read) = passed(own_path);
        // The slowest path on the way decides: reads of both are at 1.2 GB/s, writes at 12 GB/s.
        let expected = if id == 3 { (1 << 20, 0) } else { (0, READ_PER_CALL) };
        assert_eq!((written - before.0, read - before.1), expected, "request {id}");
        assert_eq!(done(&mut a, 1)[0].0, id);
    }
    assert_eq!(bytes(&b.region, 0, 1 << 20), pattern(1 << 20));
    assert_eq!(bytes(behind(&region), 0, 1 << 20), pattern(1 << 20));
    assert_eq!(passed(&a.shm.peer_path(mr.rkey).unwrap()), (1 << 20, 0));
    // A message from emulated memory is received into emulated memory.
    let mut b = b;
    let into = open(&mut b, &region, Access::LOCAL_WRITE).unwrap();
    let receive = [Element { address: 0, len: 1 << 20, lkey: into.lkey }];
    behind(&region).write(0, &[0; 64]);
    b.shm.post_recv(b.qp, &[RecvWr { id: 8, elements: &receive }]).unwrap();
    a.shm.post_send(a.qp, &[SendWr::new(9, Operation::Send, Data::Elements(&element))]).unwrap();
    let mut arrived = Vec::new();
    while arrived.is_empty() {
        a.poll();
        arrived = b.poll();
    }
    assert_eq!((arrived[0].id, arrived[0].status), (8, Status::Success));
    assert_eq!(bytes(behind(&region), 0, 1 << 20), pattern(1 << 20));
    assert_eq!(passed(region.emulated_memory().unwrap().path()), (1 << 20, 0));
}

#[test]
fn error_state_ends_an_operation_between_its_parts() {
    let (mut a, _b, _region, mr) = with_emulated(RW);
    a.post(1, Operation::Write(remote_at(0, &mr)), 0, 1 << 20).unwrap();
    a.shm.modify_qp(a.qp, Modify::Error).unwrap();
    assert_eq!(a.poll()[0].status, Status::Flushed);
    let path = a.shm.peer_path(mr.rkey).unwrap();
    a.poll();
    assert_eq!(passed(&path).0, WRITTEN_PER_CALL);
}

#[test]
fn key_that_ends_between_parts_is_refused() {
    let (mut a, mut b, _region, mr) = with_emulated(RW);
    a.post(1, Operation::Write(remote_at(0, &mr)), 0, 1 << 20).unwrap();
    let path = a.shm.peer_path(mr.rkey).unwrap();
    b.shm.dereg_mr(&mr).unwrap();
    assert_eq!(a.poll()[0].status, Status::RemoteAccess);
    assert_eq!(passed(&path).0, WRITTEN_PER_CALL);
}
