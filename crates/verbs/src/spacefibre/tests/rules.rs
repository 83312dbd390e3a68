//! Rules for a target, row by row as in section 11 of `docs/wire-formats.md`.

use super::unlinked::{PEER_QP, RECEIVE, Unlinked, answer, data};
use super::*;
use crate::api::{QpState, Status as WrStatus};
use crate::spacefibre::receive::MAX_DATA;
use shotline_wire::spacefibre::rdma::{Operation as Op, Reply, ReplyKind, Status};

fn not_ready() -> Status {
    Status::ReceiverNotReady(RnrTimer::from_code(1).unwrap())
}

#[test]
fn command_for_an_unconnected_queue_pair_is_dropped() {
    let mut target = Unlinked::new(true);
    let other = target.node.create_qp_with(&QpConfig { strict: true, ..target.node.config() }, Access::ALL);
    target.take(Command { dest_qp: other.0, ..target.segment(Op::Write, 0, 0, 13, 13) });
    assert_eq!(target.node.endpoint.qp_counters(other).unwrap().drops.bad_state, 1);
    assert_eq!((target.sent(), target.node.bytes(0, 1)), (vec![], vec![0]));
}

/// A command for a target with these rights, with or without a receive, that is refused with a status.
type Refused = (&'static str, Access, bool, fn(&Unlinked) -> Command, Status);

/// Commands that one check refuses, or that several do, of which the first determines the status.
const REFUSED: &[Refused] = {
    const BAD_KEY: u32 = 0xBAD;
    const NO_WRITE: Access = Access::REMOTE_READ;
    use Status::{InvalidKey, InvalidRequest};
    &[
        ("an operation that is not allowed", NO_WRITE, true, |t| t.segment(Op::Write, 0, 0, 8, 8), InvalidRequest),
        ("a READ that is not allowed", Access::REMOTE_WRITE, true, |t| t.command(Op::Read, 0), InvalidRequest),
        ("an atomic operation that is not allowed", NO_WRITE, true, |t| t.command(Op::FetchAdd, 0), InvalidRequest),
        ("a segment of nothing", Access::ALL, true, |t| t.segment(Op::Write, 0, 8, 8, 20), InvalidRequest),
        ("a segment of no SEND", Access::ALL, true, |t| t.segment(Op::Send, 0, 8, 8, 20), InvalidRequest),
        ("an operation that is too long", Access::ALL, true, |t| read(t, (1 << 31) + 1), InvalidRequest),
        ("a WRITE that is", Access::ALL, true, |t| t.segment(Op::Write, 0, 0, 8, u32::MAX), InvalidRequest),
        ("an odd address", Access::ALL, true, |t| Command { address: 4, ..t.command(Op::FetchAdd, 0) }, InvalidRequest),
        ("an unknown key", Access::ALL, true, |t| Command { key: BAD_KEY, ..read(t, 8) }, InvalidKey),
        ("bytes past the region", Access::ALL, true, |t| Command { address: MEMORY - 7, ..read(t, 8) }, InvalidKey),
        ("an address that overflows", Access::ALL, true, |t| Command { address: u64::MAX, ..read(t, 8) }, InvalidKey),
        ("a later segment past it", Access::ALL, true, |t| at_end(t, 20), InvalidKey),
        ("a key that is not invalidated", Access::ALL, true, |t| invalidate(t, 8), InvalidKey),
        ("a SEND that is too long", Access::ALL, true, |t| t.segment(Op::Send, 0, 0, 41, 41), InvalidRequest),
        // Two reasons.
        ("no right, no receive", NO_WRITE, false, |t| t.segment(Op::WriteImm, 0, 0, 8, 8), InvalidRequest),
        (
            "no right, no key",
            NO_WRITE,
            true,
            |t| Command { key: 1, ..t.segment(Op::Write, 0, 0, 8, 8) },
            InvalidRequest,
        ),
        ("too long, no key", Access::ALL, true, |t| Command { key: 1, ..read(t, u32::MAX) }, InvalidRequest),
        ("too long, key that is not invalidated", Access::ALL, true, |t| invalidate(t, 41), InvalidRequest),
        (
            "no key, odd address",
            Access::ALL,
            true,
            |t| Command { key: BAD_KEY, address: 4, ..t.command(Op::FetchAdd, 0) },
            InvalidKey,
        ),
    ]
};

fn read(target: &Unlinked, len: u32) -> Command {
    Command { operation_len: len, ..target.command(Op::Read, 0) }
}

/// The first segment of a WRITE that is too long by a byte.
fn at_end(target: &Unlinked, total: u32) -> Command {
    Command { address: MEMORY - u64::from(total) + 1, ..target.segment(Op::Write, 0, 0, 8, total) }
}

fn invalidate(target: &Unlinked, len: u32) -> Command {
    Command { key: 0xBAD, ..target.segment(Op::SendInvalidate, 0, 0, len, len) }
}

#[test]
fn refused_command_has_the_status_of_the_first_check() {
    for (name, access, has_receive, command, status) in REFUSED {
        for strict in [true, false] {
            let mut target = Unlinked::with_access(strict, *access);
            if *has_receive {
                target.post_receive();
            }
            let command = command(&target);
            assert!(!command.reply_requested, "a failure is answered in any case");
            target.take(command);
            let answers = if strict { vec![answer(*status, 0, 0)] } else { vec![] };
            assert_eq!(target.sent(), answers, "{name}");
            let state = if strict { QpState::Error } else { QpState::ReadyToSend };
            assert_eq!(target.state(), state, "{name}");
            // The bytes of the receive are undefined.
            assert!(target.node.bytes(0, RECEIVE.0 as usize).iter().all(|byte| *byte == 0), "{name}: memory");
        }
    }
}

#[test]
fn requests_beyond_the_agreed_number_have_status_2() {
    for operation in [Op::Read, Op::FetchAdd] {
        let mut target = Unlinked::new(true);
        for id in 0..17 {
            let command = target.command(operation, id);
            target.take(command);
        }
        let sent = target.sent();
        assert_eq!((sent.len(), &sent[16]), (17, &answer(Status::InvalidRequest, 16, 16)), "{operation:?}");
        assert!(sent[..16].iter().all(|(header, _)| matches!(header, Header::Reply(r) if r.status == Status::Success)));
    }
}

#[test]
fn command_without_a_receive_is_expected_again() {
    for (operation, key) in [(Op::Send, None), (Op::WriteImm, None), (Op::WriteImm, Some(0xBAD))] {
        let mut target = Unlinked::new(true);
        let command = Command { reply_requested: true, ..target.segment(operation, 0, 0, 20, 20) };
        // That no receive is posted comes before the key.
        target.take(Command { key: key.unwrap_or(command.key), ..command });
        assert_eq!(target.sent(), [answer(not_ready(), 0, 0)], "{operation:?}");
        assert_eq!((target.state(), target.node.bytes(0, 20)), (QpState::ReadyToSend, vec![0; 20]));
        target.post_receive();
        target.take(command);
        assert_eq!(target.sent(), [answer(Status::Success, 0, 1)], "{operation:?}");
        assert_eq!(target.node.poll().iter().map(|done| done.status).collect::<Vec<_>>(), [WrStatus::Success]);
    }
}

#[test]
fn access_of_no_bytes_needs_no_key() {
    let mut target = Unlinked::new(true);
    target.take(Command { key: 0xBAD, reply_requested: true, ..target.segment(Op::Write, 0, 0, 0, 0) });
    assert_eq!(target.sent(), [answer(Status::Success, 0, 1)]);
    target.take(Command { key: 0xBAD, ..target.command(Op::Read, 1) });
    let reply = Reply { msn: 2, ..Reply::new(ReplyKind::Read { first: true, last: true }, PEER_QP, 1) };
    assert_eq!(target.sent(), [(Header::Reply(reply), vec![])]);
}

#[test]
fn command_after_a_missing_one_has_status_16_once() {
    let mut target = Unlinked::new(true);
    for id in [1, 2, 0x7F_FFFF] {
        let command = Command { reply_requested: true, ..target.segment(Op::Write, id, 0, 8, 8) };
        target.take(command);
        let expected = if id == 1 { vec![answer(Status::SequenceError, 0, 0)] } else { vec![] };
        assert_eq!((target.sent(), target.node.bytes(0, 8)), (expected, vec![0; 8]), "{id}");
    }
    for id in 0..2 {
        let command = target.segment(Op::Write, id, 0, 8, 8);
        target.take(Command { reply_requested: id == 1, ..command });
        assert_eq!(target.node.bytes(0, 8), data(&command));
    }
    // One reply acknowledges both.
    assert_eq!(target.sent(), [answer(Status::Success, 1, 2)]);
    assert_eq!((target.qp_counters().out_of_sequence, target.qp_counters().duplicates), (3, 0));
}

#[test]
fn repeated_write_or_send_is_acknowledged_and_writes_nothing() {
    for operation in [Op::Write, Op::Send, Op::WriteImm, Op::SendImm] {
        let mut target = Unlinked::new(true);
        target.post_receive();
        let command = target.segment(operation, 0, 0, 8, 8);
        target.take(Command { reply_requested: true, ..command });
        assert_eq!(target.sent(), [answer(Status::Success, 0, 1)], "{operation:?}");
        let before = target.node.bytes(0, 1 << 13);
        target.take_with(command, &[0xEE; 8]);
        assert_eq!(target.sent(), [answer(Status::Success, 0, 1)], "{operation:?}");
        assert_eq!((target.node.bytes(0, 1 << 13), target.qp_counters().duplicates), (before, 1));
    }
}

#[test]
fn repeated_read_is_read_again() {
    let mut target = Unlinked::new(true);
    let command = read(&target, 8);
    let reply = Reply { msn: 1, data_len: 8, ..Reply::new(ReplyKind::Read { first: true, last: true }, PEER_QP, 0) };
    for byte in [1, 2] {
        target.node.region.write(0, &[byte; 8]);
        target.take(command);
        assert_eq!(target.sent(), [(Header::Reply(reply), vec![byte; 8])]);
    }
    assert_eq!(target.qp_counters().duplicates, 1);
    // One that was never requested is dropped.
    target.take(Command { operation_len: 2 * MAX_DATA, ..command });
    assert_eq!((target.sent(), target.qp_counters().drops.bad_psn), (vec![], 1));
}

#[test]
fn repeated_atomic_operation_has_its_saved_value() {
    let mut target = Unlinked::new(true);
    let add = |target: &mut Unlinked, id: u32| {
        target.take_with(target.command(Op::FetchAdd, id), &1_u64.to_be_bytes());
        target.sent()
    };
    let saved = |id: u32, msn| {
        let reply = Reply { msn, ..Reply::new(ReplyKind::Atomic, PEER_QP, id) };
        vec![(Header::Reply(reply), u64::from(id).to_be_bytes().to_vec())]
    };
    for id in 0..17 {
        assert_eq!(add(&mut target, id), saved(id, id + 1));
    }
    for id in 1..17 {
        assert_eq!(add(&mut target, id), saved(id, 17));
    }
    assert_eq!(add(&mut target, 0), [], "as many are saved as may be unanswered");
    assert_eq!(target.node.bytes(0, 8), 17_u64.to_ne_bytes());
    assert_eq!((target.state(), target.qp_counters().drops.bad_psn), (QpState::ReadyToSend, 1));
}

#[test]
fn each_reply_to_a_read_has_the_number_of_completed_operations() {
    let mut target = Unlinked::new(true);
    let bytes: Vec<_> = (0..MEMORY).map(|index| (index % 251) as u8).collect();
    target.node.region.write(0, &bytes);
    let write = target.segment(Op::Write, 0, 0, 8, 8);
    target.take(write);
    let len = 3 * MAX_DATA + 5;
    target.take(Command { address: 100, operation_len: len, ..target.command(Op::Read, 1) });
    let expected = (0..4).map(|index| {
        let start = index * MAX_DATA;
        let data_len = (len - start).min(MAX_DATA);
        let kind = ReplyKind::Read { first: index == 0, last: index == 3 };
        let reply = Reply { msn: 2, data_len, ..Reply::new(kind, PEER_QP, 1 + index) };
        (Header::Reply(reply), bytes[100 + start as usize..][..data_len as usize].to_vec())
    });
    assert_eq!(target.sent(), expected.collect::<Vec<_>>());
    // The next command has the identifier after those of the reply.
    target.take(Command { reply_requested: true, ..target.segment(Op::Write, 5, 0, 8, 8) });
    assert_eq!(target.sent(), [answer(Status::Success, 5, 3)]);
}
