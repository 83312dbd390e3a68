//! Replies at an initiator: which match, and what each does, as in section 11 of `docs/wire-formats.md`.

use super::unlinked::Unlinked;
use super::*;
use crate::api::{QpState, Status as WrStatus};
use crate::spacefibre::SpaceFibreDropCounters;
use crate::spacefibre::receive::MAX_DATA;
use shotline_wire::spacefibre::crc::crc8;
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::{Operation as Op, Reply, ReplyKind, Status};

const KINDS: [ReplyKind; 6] = [
    ReplyKind::Acknowledge,
    ReplyKind::Atomic,
    ReplyKind::Read { first: false, last: false },
    ReplyKind::Read { first: false, last: true },
    ReplyKind::Read { first: true, last: false },
    ReplyKind::Read { first: true, last: true },
];

impl Unlinked {
    /// Posts a request for `len` bytes, and returns the commands that the queue pair sends.
    fn request(&mut self, operation: Operation, len: u32) -> Vec<Command> {
        let element = self.node.element(0, len);
        self.node.post(self.qp, 1, operation, &[element]);
        self.commands()
    }

    fn commands(&mut self) -> Vec<Command> {
        let command = |(header, _)| match header {
            Header::Command(command) => command,
            Header::Reply(reply) => panic!("{reply:?}"),
        };
        self.sent().into_iter().map(command).collect()
    }

    /// Receives a reply to this queue pair.
    fn reply(&mut self, reply: Reply, data: &[u8]) {
        let header = Header::Reply(Reply { dest_qp: self.qp.0, ..reply });
        self.receive(&packet(&header, data), PacketEnd::Eop);
    }

    fn completed(&mut self) -> Vec<WrStatus> {
        self.node.poll().iter().map(|completion| completion.status).collect()
    }
}

/// Requests of each kind, with the number of their transaction identifiers.
fn requests() -> [(Operation, u32, u32); 4] {
    let to = Remote { address: 0, rkey: 7 };
    [
        (Operation::Write(to), 3 * MAX_DATA, 3),
        (Operation::Send, 3 * MAX_DATA, 3),
        (Operation::Read(to), 3 * MAX_DATA, 3),
        (Operation::FetchAdd { remote: to, add: 1 }, 8, 1),
    ]
}

fn failure(kind: ReplyKind, status: Status, id: u32) -> Reply {
    Reply { status, data_len: 0, ..Reply::new(kind, 0, id) }
}

#[test]
fn failure_of_any_kind_ends_the_request_with_its_status() {
    let ends = [
        (Status::GeneralError, WrStatus::RemoteOperation),
        (Status::InvalidRequest, WrStatus::RemoteInvalid),
        (Status::InvalidKey, WrStatus::RemoteAccess),
    ];
    for (operation, len, _) in requests() {
        for (kind, (status, expected)) in KINDS.into_iter().flat_map(|kind| ends.map(|end| (kind, end))) {
            let mut initiator = Unlinked::new(false);
            initiator.request(operation, len);
            initiator.reply(failure(kind, status, 0), &[]);
            assert_eq!(initiator.completed(), [expected], "{operation:?}, {kind:?}, {status:?}");
            assert_eq!((initiator.state(), initiator.sent()), (QpState::Error, vec![]), "a reply is never answered");
        }
    }
}

#[test]
fn failure_acknowledges_the_segments_before_it() {
    let mut initiator = Unlinked::new(false);
    let to = Remote { address: 0, rkey: 7 };
    initiator.request(Operation::Write(to), MAX_DATA + 1);
    initiator.request(Operation::Write(to), 1);
    initiator.reply(failure(ReplyKind::Acknowledge, Status::InvalidKey, 2), &[]);
    assert_eq!(initiator.completed(), [WrStatus::Success, WrStatus::RemoteAccess]);
}

#[test]
fn sequence_error_of_any_kind_sends_again_from_there() {
    for kind in KINDS {
        let mut initiator = Unlinked::new(false);
        let sent = initiator.request(Operation::Send, 3 * MAX_DATA);
        assert_eq!(sent.iter().map(|command| command.transaction_id).collect::<Vec<_>>(), [0, 1, 2]);
        initiator.reply(failure(kind, Status::SequenceError, 1), &[]);
        assert_eq!(initiator.commands(), sent[1..], "{kind:?}: the same commands");
    }
}

#[test]
fn receiver_not_ready_of_any_kind_delays_the_requests() {
    for kind in KINDS {
        let mut initiator = Unlinked::new(false);
        let sent = initiator.request(Operation::Send, 3 * MAX_DATA);
        let status = Status::ReceiverNotReady(RnrTimer::from_code(0).unwrap());
        initiator.reply(failure(kind, status, 1), &[]);
        assert_eq!((initiator.sent(), initiator.qp_counters().naks_in.receiver_not_ready), (vec![], 1), "{kind:?}");
        // All is sent again from the one that was not ready; before, the delay has to pass.
        assert_eq!(sent.len(), 3);
    }
}

#[test]
fn reply_with_invalid_fields_is_dropped() {
    let valid = Reply { data_len: 8, ..Reply::new(ReplyKind::Read { first: true, last: true }, 0, 0) };
    let ack = Reply::new(ReplyKind::Acknowledge, 0, 0);
    let changes: [(Reply, usize, u8, &str); 9] = [
        (ack, 2, 3 << 2, "an unknown kind"),
        (ack, 2, 2 << 2 | 1, "the last segment of an acknowledgement"),
        (ack, 2, 2 << 2 | 2, "the first one"),
        (ack, 4, 4, "an unknown status"),
        (ack, 15, 1, "a delay with another status"),
        (Reply { status: Status::ReceiverNotReady(RnrTimer::from_code(1).unwrap()), ..ack }, 15, 32, "a delay"),
        (ack, 18, 8, "data of an acknowledgement"),
        (valid, 4, 2, "data with a failure"),
        (Reply { kind: ReplyKind::Read { first: true, last: false }, ..valid }, 18, 0, "a READ's segment without data"),
    ];
    for (reply, at, value, what) in changes {
        let mut initiator = Unlinked::new(true);
        initiator.request(Operation::Read(Remote { address: 0, rkey: 7 }), 8);
        let mut header = Reply { dest_qp: initiator.qp.0, ..reply }.emit();
        header[at] = value;
        header[19] = crc8(&header[..19]);
        initiator.receive(&header, PacketEnd::Eop);
        let expected = SpaceFibreDropCounters { malformed: 1, ..Default::default() };
        assert_eq!(initiator.counters.drops, expected, "{what}");
        assert_eq!((initiator.qp_counters().packets_in, initiator.completed()), (0, vec![]), "{what}");
    }
}

#[test]
fn read_completes_only_with_the_segments_of_its_reply() {
    let mut initiator = Unlinked::new(false);
    let sent = initiator.request(Operation::Read(Remote { address: 0, rkey: 7 }), 2 * MAX_DATA + 5);
    assert_eq!((sent.len(), sent[0].operation), (1, Op::Read));
    for id in 0..3 {
        let data_len = if id == 2 { 5 } else { MAX_DATA };
        let right = ReplyKind::Read { first: id == 0, last: id == 2 };
        let reply = Reply { data_len, ..Reply::new(right, 0, id) };
        for kind in KINDS.into_iter().filter(|kind| matches!(kind, ReplyKind::Read { .. }) && *kind != right) {
            // A READ may be sent again as one of the segments that are missing, so any but the first may be first.
            if id > 0 && (kind == ReplyKind::Read { first: true, last: id == 2 }) {
                continue;
            }
            initiator.reply(Reply { kind, ..reply }, &vec![0xEE; data_len as usize]);
        }
        for wrong in [1, 4, data_len - 1, data_len + 1].into_iter().filter(|len| *len <= MAX_DATA) {
            initiator.reply(Reply { data_len: wrong, ..reply }, &vec![0xEE; wrong as usize]);
        }
        assert_eq!(initiator.node.bytes(u64::from(id * MAX_DATA), 5), [0; 5], "segment {id}");
        initiator.reply(reply, &vec![id as u8 + 1; data_len as usize]);
        assert_eq!(initiator.completed(), if id == 2 { vec![WrStatus::Success] } else { vec![] });
    }
    let drops = initiator.qp_counters().drops;
    assert_eq!((drops.bad_opcode, drops.bad_length), (3 + 2 + 2, 3 + 3 + 4));
    let expected = [vec![1; MAX_DATA as usize], vec![2; MAX_DATA as usize], vec![3; 5], vec![0]].concat();
    assert_eq!(initiator.node.bytes(0, expected.len()), expected);
    assert_eq!(initiator.sent(), []);
}

#[test]
fn read_is_sent_again_as_one_of_what_is_missing() {
    let mut initiator = Unlinked::new(true);
    let read = initiator.request(Operation::Read(Remote { address: 100, rkey: 7 }), 3 * MAX_DATA)[0];
    let reply = |first, last, id| Reply { data_len: MAX_DATA, ..Reply::new(ReplyKind::Read { first, last }, 0, id) };
    initiator.reply(reply(true, false, 0), &vec![1; MAX_DATA as usize]);
    // The second segment of the reply is lost.
    initiator.reply(reply(false, true, 2), &vec![9; MAX_DATA as usize]);
    let address = 100 + u64::from(MAX_DATA);
    let again = Command { transaction_id: 1, address, operation_len: 2 * MAX_DATA, ..read };
    assert_eq!(initiator.commands(), [again]);
    initiator.reply(reply(true, false, 1), &vec![2; MAX_DATA as usize]);
    initiator.reply(reply(false, true, 2), &vec![3; MAX_DATA as usize]);
    assert_eq!(initiator.completed(), [WrStatus::Success]);
    let expected = [1, 2, 3].map(|byte| vec![byte; MAX_DATA as usize]).concat();
    assert_eq!(initiator.node.bytes(0, expected.len()), expected);
}

#[test]
fn reply_with_another_identifier_is_dropped() {
    for (operation, len, count) in requests() {
        for id in [count, 0x7F_FFFF, 0xFF_FFFF, 0x80_0000] {
            let mut initiator = Unlinked::new(true);
            initiator.request(operation, len);
            for kind in KINDS {
                for status in [Status::InvalidKey, Status::SequenceError] {
                    initiator.reply(failure(kind, status, id), &[]);
                }
            }
            initiator.reply(Reply::new(ReplyKind::Acknowledge, 0, id), &[]);
            initiator.reply(Reply::new(ReplyKind::Atomic, 0, id), &[0; 8]);
            let what = format!("{operation:?}, {id}");
            assert_eq!((initiator.completed(), initiator.state()), (vec![], QpState::ReadyToSend), "{what}");
            assert_eq!(initiator.sent(), [], "{what}: a reply is never answered");
        }
    }
}
