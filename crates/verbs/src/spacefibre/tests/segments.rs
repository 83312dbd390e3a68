//! Segments of WRITEs and SENDs, each of which continues the one before, as in section 11 of `docs/wire-formats.md`.

use super::unlinked::{RECEIVE, Unlinked, answer, data};
use super::*;
use crate::api::QpState;
use crate::spacefibre::receive::MAX_DATA;
use shotline_wire::spacefibre::rdma::{Operation as Op, Status};

/// Commands that do not continue the operation of which 8 of 20 bytes have arrived.
fn not_continuing(target: &Unlinked, operation: Op) -> Vec<(&'static str, Command)> {
    let right = target.segment(operation, 1, 8, 5, 20);
    let moved = |offset: u32, total: u32| target.segment(operation, 1, offset, 5, total);
    let other = if operation == Op::Write { Op::Send } else { Op::Write };
    let mut commands = vec![
        ("a smaller offset", moved(7, 20)),
        ("a larger offset", moved(9, 20)),
        ("a segment at the end", moved(15, 20)),
        ("another operation", moved(0, 20)),
        ("a longer operation", moved(8, 21)),
        ("a shorter operation", moved(8, 13)),
        ("a WRITE in a SEND, or a SEND in a WRITE", target.segment(other, 1, 8, 5, 20)),
        ("a READ", Command { operation_len: 20, ..target.command(Op::Read, 1) }),
        ("an atomic operation", target.command(Op::FetchAdd, 1)),
    ];
    if operation == Op::Write {
        commands.extend([
            ("another key", Command { key: right.key ^ 1, ..right }),
            ("the key 0", Command { key: 0, ..right }),
            ("another address", Command { address: right.address + 1, ..right }),
            ("the address of the operation", Command { address: 0, ..right }),
        ]);
    }
    commands
}

/// Returns a target that has received 8 of 20 bytes, and where they lie.
fn begun(operation: Op, strict: bool) -> (Unlinked, u64) {
    let mut target = Unlinked::new(strict);
    let at = if operation == Op::Write { 0 } else { RECEIVE.0 };
    target.post_receive();
    let first = target.segment(operation, 0, 0, 8, 20);
    target.take(first);
    assert_eq!(target.node.bytes(at, 9), [data(&first), vec![0]].concat());
    (target, at)
}

#[test]
fn segment_that_does_not_continue_has_status_2() {
    for operation in [Op::Write, Op::Send] {
        let count = not_continuing(&begun(operation, true).0, operation).len();
        for index in 0..count {
            let (mut target, at) = begun(operation, true);
            let (name, command) = not_continuing(&target, operation).swap_remove(index);
            target.take(command);
            let sent = target.sent();
            assert_eq!(sent, [answer(Status::InvalidRequest, 1, 0)], "{name} in a {operation:?}");
            assert_eq!((target.state(), target.node.bytes(at + 8, 32)), (QpState::Error, vec![0; 32]), "{name}");
        }
    }
}

#[test]
fn dropped_segment_does_not_disturb_its_operation() {
    for operation in [Op::Write, Op::Send] {
        let (mut target, at) = begun(operation, false);
        for (count, (name, command)) in (1..).zip(not_continuing(&target, operation)) {
            target.take(command);
            assert_eq!(target.qp_counters().drops.bad_opcode, count, "{name} in a {operation:?}");
            assert_eq!((target.sent(), target.node.bytes(at + 8, 32)), (vec![], vec![0; 32]), "{name}");
        }
        let rest = [target.segment(operation, 1, 8, 5, 20), target.segment(operation, 2, 13, 7, 20)];
        target.take(rest[0]);
        target.take(Command { reply_requested: true, ..rest[1] });
        assert_eq!(target.sent(), [answer(Status::Success, 2, 1)], "{operation:?}");
        assert_eq!(target.node.bytes(at + 8, 13), [data(&rest[0]), data(&rest[1]), vec![0]].concat());
    }
}

#[test]
fn segments_have_any_length_up_to_the_segment_size() {
    let lens = [1, 7, MAX_DATA, 2, MAX_DATA - 1, 3];
    let total: u32 = lens.iter().sum();
    for (operation, last) in [(Op::Write, Op::WriteImm), (Op::Send, Op::SendImm)] {
        let mut target = Unlinked::new(true);
        let at = if operation == Op::Write { 0 } else { 1 << 17 };
        let element = target.node.element(1 << 17, total);
        target.node.post_recv(target.qp, 5, element);
        let (mut offset, mut expected) = (0, Vec::new());
        for (id, len) in (0..).zip(lens) {
            let is_last = offset + len == total;
            let (operation, imm) = if is_last { (last, 9) } else { (operation, 0) };
            let command = target.segment(operation, id, offset, len, total);
            let command = Command { imm, reply_requested: is_last, solicited: is_last, ..command };
            expected.extend(data(&command));
            target.take(command);
            offset += len;
        }
        assert_eq!(target.sent(), [answer(Status::Success, lens.len() as u32 - 1, 1)], "{operation:?}");
        assert_eq!(target.node.bytes(at, total as usize), expected);
        let [completion] = target.node.poll()[..] else { panic!("one completion") };
        assert_eq!((completion.id, completion.bytes, completion.imm), (5, total, Some(9)));
    }
}
