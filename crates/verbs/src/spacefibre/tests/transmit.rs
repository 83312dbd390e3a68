//! Packets on their way into the link: what a link reads, in pieces of any size, at any time.

use super::*;
use crate::spacefibre::transmit::Queues;
use shotline_spacefibre::frames::Source;
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::Operation as Op;

/// Virtual channels of the sender.
const VCS: u8 = 2;
const PEER_QP: u32 = 77;
const EOP: Option<PacketEnd> = Some(PacketEnd::Eop);
/// Gather list of the WRITEs, 37 bytes: offsets and lengths.
const PIECES: [(u64, u32); 3] = [(3, 5), (100, 1), (201, 31)];

/// A queue pair for each virtual channel, without a link.
struct Sender {
    node: Node,
    qps: Vec<Qp>,
    queues: Queues,
}

impl Sender {
    fn new() -> Self {
        let [mut node, _] = Node::pair(&LinkOptions::new(4, VCS).unwrap(), Faults::default());
        let qps: Vec<_> = (0..VCS).map(|level| node.create_qp(level)).collect();
        for qp in &qps {
            node.connect(*qp, (address(2), PEER_QP), Duration::from_secs(100)).unwrap();
        }
        let bytes: Vec<_> = (0..MEMORY).map(|index| (index % 251) as u8).collect();
        node.region.write(0, &bytes);
        let queues = Queues::new(0, VCS.into(), node.endpoint.core.regions().clone());
        Self { node, qps, queues }
    }

    /// Posts a WRITE of [`PIECES`] on a channel.
    fn post(&mut self, vc: u8) {
        let elements = PIECES.map(|(address, len)| self.node.element(address, len));
        let to = Remote { address: 0x1000, rkey: 0xABCD };
        self.node.post(self.qps[usize::from(vc)], 1, Operation::Write(to), &elements);
    }

    /// Takes packets of posted requests.
    fn take(&mut self) {
        self.queues.fill(&mut self.node.endpoint.core);
    }

    /// Posts WRITEs on a channel and takes their packets.
    fn fill(&mut self, vc: u8, count: usize) {
        (0..count).for_each(|_| self.post(vc));
        self.take();
    }

    /// Returns the packet of the WRITE with this sequence number, of memory as it was at first.
    fn expected(&self, psn: u32) -> Vec<u8> {
        let bytes = PIECES.iter().flat_map(|(address, len)| *address..address + u64::from(*len));
        let data: Vec<_> = bytes.map(|index| (index % 251) as u8).collect();
        let command = Command { key: 0xABCD, address: 0x1000, ..Command::new(Op::Write, PEER_QP, psn) };
        let (reply_requested, len) = (true, data.len() as u32);
        packet(&Header::Command(Command { reply_requested, operation_len: len, data_len: len, ..command }), &data)
    }

    /// Reads the rest of a packet in pieces of `size` bytes.
    fn read(&mut self, vc: u8, size: usize) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            assert!(self.queues.ready() & 1 << vc != 0, "more is ready after {} bytes", all.len());
            let (piece, end) = self.queues.read(vc, size);
            all.extend(piece);
            match end {
                Some(end) => {
                    assert!(end == PacketEnd::Eop && piece.len() < size, "an end needs a character");
                    return all;
                }
                None => assert_eq!(piece.len(), size, "without an end there are as many as asked for"),
            }
        }
    }

    /// Reads the first `count` bytes, which do not end the packet.
    fn begin(&mut self, vc: u8, count: usize) -> Vec<u8> {
        let (bytes, end) = self.queues.read(vc, count);
        assert_eq!((bytes.len(), end), (count, None));
        bytes.to_vec()
    }

    fn is_ready(&self, vc: u8) -> bool {
        self.queues.ready() & 1 << vc != 0
    }
}

/// Length of the WRITEs' packets.
const LEN: usize = Command::LEN + 37 + 4;

#[test]
fn packet_is_the_same_in_pieces_of_every_size() {
    let mut sender = Sender::new();
    for size in (4..=LEN + 7).step_by(4) {
        for vc in 0..VCS {
            let psn = (size / 4 - 1) as u32;
            sender.fill(vc, 1);
            let expected = sender.expected(psn);
            assert_eq!(expected.len(), LEN);
            assert_eq!(sender.read(vc, size), expected, "pieces of {size} bytes");
            assert!(!sender.is_ready(vc));
            assert_eq!(sender.queues.take_counts(), (1, 0));
        }
    }
}

#[test]
fn packet_without_data_has_no_data_crc() {
    let mut sender = Sender::new();
    let element = sender.node.element(0, 100);
    sender.node.post(sender.qps[0], 1, Operation::Read(Remote { address: 0, rkey: 9 }), &[element]);
    let empty = SendWr::new(2, Operation::Send, Data::Inline(&[]));
    sender.node.endpoint.post_send(sender.qps[0], &[empty]).unwrap();
    sender.take();
    let new = |operation, psn| Command { reply_requested: true, ..Command::new(operation, PEER_QP, psn) };
    let read = Command { key: 9, operation_len: 100, ..new(Op::Read, 0) };
    assert_eq!(sender.read(0, 40), packet(&Header::Command(read), &[]));
    assert_eq!(sender.read(0, 40), packet(&Header::Command(new(Op::Send, 1)), &[]));
    assert!(!sender.is_ready(0));
}

#[test]
fn waiting_packets_do_not_change_with_memory() {
    for read_before in [0, 4, 40, 44, 60, 76, 80] {
        let mut sender = Sender::new();
        let expected = [sender.expected(0), sender.expected(1)];
        sender.fill(0, 2);
        let mut first = if read_before > 0 { sender.begin(0, read_before) } else { Vec::new() };
        sender.node.region.write(0, &[0xFF; 1000]);
        first.extend(sender.read(0, 8));
        assert_eq!([first, sender.read(0, 8)], expected, "{read_before} bytes were read before");
        assert_eq!((sender.is_ready(0), sender.queues.take_counts()), (false, (2, 0)));
        assert_eq!(sender.queues.deadline(), None);
    }
}

#[test]
fn buffers_of_longer_packets_are_used_again() {
    let mut sender = Sender::new();
    for round in 0..20 {
        let psn = 3 * round;
        let element = sender.node.element(0, 1000 - round);
        sender.node.post(sender.qps[0], 1, Operation::Send, &[element]);
        sender.fill(0, 2);
        assert_eq!(sender.read(0, 64).len(), Command::LEN + 1000 - round as usize + 4);
        let expected = [sender.expected(psn + 1), sender.expected(psn + 2)];
        assert_eq!([sender.read(0, 16), sender.read(0, 4)], expected, "round {round}");
        assert!(!sender.is_ready(0));
    }
}

#[test]
fn few_packets_are_taken_before_they_are_read() {
    let mut sender = Sender::new();
    let element = sender.node.element(0, SEGMENT.bytes());
    (0..20).for_each(|_| sender.node.post(sender.qps[0], 1, Operation::Send, &[element]));
    sender.take();
    sender.take();
    let mut count = 0;
    while sender.is_ready(0) {
        sender.read(0, 1024);
        count += 1;
    }
    assert!((1..=3).contains(&count), "{count} packets were taken");
    sender.take();
    assert!(sender.is_ready(0), "the others were left to the engine");
}

#[test]
fn packets_that_wait_too_long_are_discarded() {
    let mut sender = Sender::new();
    sender.fill(0, 3);
    sender.queues.discard_late(1000);
    let deadline = sender.queues.deadline().unwrap();
    sender.queues.discard_late(deadline - 1);
    assert_eq!((sender.is_ready(0), sender.queues.take_counts()), (true, (0, 0)));
    sender.queues.discard_late(deadline);
    assert_eq!((sender.is_ready(0), sender.queues.take_counts()), (false, (0, 3)));
    assert_eq!(sender.queues.deadline(), None);
    // Packets that are posted later have their own time.
    sender.fill(0, 1);
    sender.queues.discard_late(deadline);
    assert_eq!(sender.queues.deadline(), Some(2 * deadline - 1000));
    let expected = sender.expected(3);
    assert_eq!(sender.read(0, 16), expected);
}

#[test]
fn channel_that_sends_slowly_loses_no_packets() {
    let mut sender = Sender::new();
    sender.fill(0, 4);
    sender.queues.discard_late(0);
    let timeout = sender.queues.deadline().unwrap();
    for psn in 0..4 {
        let now = u64::from(psn) * (timeout - 1);
        sender.queues.discard_late(now);
        let expected = sender.expected(psn);
        assert_eq!(sender.read(0, 16), expected);
        sender.queues.discard_late(now);
    }
    assert_eq!((sender.queues.deadline(), sender.queues.take_counts()), (None, (4, 0)));
}

#[test]
fn packet_read_in_part_is_not_discarded() {
    for count in [4, 80] {
        let mut sender = Sender::new();
        sender.fill(0, 3);
        let mut first = sender.begin(0, count);
        sender.queues.discard_late(0);
        let deadline = sender.queues.deadline().unwrap();
        sender.queues.discard_late(deadline);
        assert_eq!(sender.queues.take_counts(), (0, 2));
        sender.queues.discard_late(10 * deadline);
        assert_eq!((sender.queues.deadline(), sender.queues.take_counts()), (None, (0, 0)));
        first.extend(sender.read(0, 4));
        assert_eq!(first, sender.expected(0));
        assert_eq!((sender.is_ready(0), sender.queues.take_counts()), (false, (1, 0)));
    }
}

#[test]
fn packets_behind_one_read_in_part_are_taken_and_discarded() {
    let mut sender = Sender::new();
    sender.fill(0, 3);
    let mut first = sender.begin(0, 8);
    sender.queues.discard_late(0);
    let timeout = sender.queues.deadline().unwrap();
    sender.queues.discard_late(timeout);
    assert_eq!(sender.queues.take_counts(), (0, 2));
    for round in 5..8 {
        sender.fill(0, 1);
        sender.queues.discard_late(round * timeout);
        assert_eq!(sender.queues.deadline(), Some((round + 1) * timeout));
        sender.queues.discard_late((round + 1) * timeout);
        assert_eq!((sender.queues.deadline(), sender.queues.take_counts()), (None, (0, 1)));
    }
    sender.fill(0, 1);
    sender.queues.discard_late(9 * timeout);
    first.extend(sender.read(0, 4));
    let expected = [sender.expected(0), sender.expected(6)];
    assert_eq!([first, sender.read(0, 4)], expected);
    assert_eq!((sender.queues.ready(), sender.queues.deadline(), sender.queues.take_counts()), (0, None, (2, 0)));
}

#[test]
fn reset_cuts_only_packets_read_in_part() {
    let mut sender = Sender::new();
    (0..VCS).for_each(|_| sender.post(1));
    sender.fill(0, 3);
    sender.begin(0, 8);
    sender.queues.on_reset();
    sender.queues.on_reset();
    let mut expected = sender.expected(1);
    assert_eq!(sender.read(0, 12), expected);
    // All of the packet but its end.
    sender.begin(0, LEN / 4 * 4);
    sender.queues.on_reset();
    assert!(!sender.is_ready(0) && sender.is_ready(1));
    for psn in 0..2 {
        expected = sender.expected(psn);
        assert_eq!(sender.read(1, 12), expected, "another channel");
    }
    assert_eq!((sender.queues.ready(), sender.queues.take_counts()), (0, (3, 2)));
}

#[test]
fn channel_that_waits_does_not_stop_another_one() {
    let mut sender = Sender::new();
    sender.fill(0, 1);
    let begun = sender.begin(0, 8);
    for psn in 0..10 {
        sender.post(0);
        sender.fill(1, 1);
        let expected = sender.expected(psn);
        assert_eq!(sender.read(1, 16), expected);
    }
    let rest = [begun, sender.read(0, 16)].concat();
    assert_eq!(rest, sender.expected(0));
    for psn in 1..=10 {
        let expected = sender.expected(psn);
        assert_eq!(sender.read(0, 16), expected);
    }
    assert_eq!((sender.queues.ready(), sender.queues.take_counts()), (0, (21, 0)));
}

#[test]
fn only_ends_are_left_of_packets_that_were_read_whole() {
    let mut sender = Sender::new();
    sender.fill(0, 1);
    let element = sender.node.element(0, 4);
    // 48 bytes: the last word is full, so the end is in a word of its own.
    sender.node.post(sender.qps[1], 1, Operation::Send, &[element]);
    sender.take();
    sender.begin(1, Command::LEN + 8);
    assert_eq!(sender.queues.read(1, 4), (&[][..], EOP));
    assert_eq!(sender.queues.ready(), 1);
}
