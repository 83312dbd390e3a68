//! Tests of destinations chosen before a packet is checked.

use super::*;
use Opcode::*;

/// Delivers a batch to a side: picks destinations, writes every payload to its pick, then processes the packets.
/// Returns the picks.
fn batch(from: SocketAddr, side: &mut Side, packets: &[TestPacket]) -> Vec<Pick> {
    let total = |packet: &TestPacket| (packet.bth.opcode.header_len() + packet.payload.len()) as u32;
    let (first, last) = (&packets[0], &packets[packets.len() - 1]);
    let head = BatchHead {
        bth: first.bth,
        extensions: &first.extensions,
        first_payload_len: first.payload.len() as u32,
        segment_len: total(first),
        last_len: total(last),
        source: from,
    };
    let mut picks = vec![Pick::default(); packets.len()];
    side.engine.pick(&side.protection, &side.receives, &head, &mut picks);
    let mut scratch = SCRATCH;
    let mut landed = vec![];
    for (packet, pick) in packets.iter().zip(&picks) {
        let header = pick.header_len.map_or(first.bth.opcode.header_len(), usize::from);
        landed.push(match pick.destination {
            PayloadDestination::Memory(pieces) if header == packet.bth.opcode.header_len() => {
                let mut rest = packet.payload.as_slice();
                for piece in pieces {
                    let (head, tail) = rest.split_at(rest.len().min(piece.len as usize));
                    side.memory.write(piece.offset as usize, head);
                    rest = tail;
                }
                assert!(rest.is_empty(), "the destination is too short");
                PayloadLocation::Memory(pieces)
            }
            _ => {
                side.memory.write(scratch as usize, &packet.payload);
                let len = packet.payload.len() as u32;
                scratch += u64::from(len);
                PayloadLocation::Scratch(Sge { region: RegionId(0), offset: scratch - u64::from(len), len })
            }
        });
    }
    for (packet, landed) in packets.iter().zip(landed) {
        side.receive_landed(from, packet, landed, false);
    }
    picks
}

/// Returns the number of payloads that are written to memory of the queue pair rather than to scratch memory.
fn in_place(picks: &[Pick]) -> usize {
    picks.iter().filter(|pick| matches!(pick.destination, PayloadDestination::Memory(_))).count()
}

#[test]
fn packets_after_the_first_of_a_write_land_in_place() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0x1000);
    ends.a.post(1, Operation::WriteImm(to, 7), 0, 10 * MTU).unwrap();
    ends.b.post_recv(9, &[]);
    let packets = ends.a.transmit(64);
    let (from, b) = (ends.a.address, &mut ends.b);
    assert_eq!(in_place(&batch(from, b, &packets[..1])), 0);
    assert_eq!(b.counters.bytes_copied, u64::from(MTU));
    assert_eq!(in_place(&batch(from, b, &packets[1..5])), 4);
    // The last packet has a longer header, which shows in its length.
    assert_eq!(in_place(&batch(from, b, &packets[5..9])), 4);
    assert_eq!(in_place(&batch(from, b, &packets[9..])), 1);
    assert_eq!(b.counters.bytes_copied, u64::from(MTU));
    assert_eq!(b.completed(), [(9, Status::Success)]);
    assert_eq!(b.read(0x1000, 10 * 256), ends.a.read(0, 10 * 256));
}

#[test]
fn short_last_packet_is_recognised_by_its_length() {
    for imm in [false, true] {
        let mut ends = Ends::new(RC);
        let to = ends.b.remote(0x1000);
        let operation = if imm { Operation::WriteImm(to, 7) } else { Operation::Write(to) };
        ends.a.post(1, operation, 0, 3 * MTU + 8).unwrap();
        ends.b.post_recv(9, &[]);
        let packets = ends.a.transmit(64);
        batch(ends.a.address, &mut ends.b, &packets[..1]);
        let picks = batch(ends.a.address, &mut ends.b, &packets[1..]);
        assert_eq!((in_place(&picks), picks[2].header_len), (3, imm.then_some(16)));
        assert_eq!(ends.b.read(0x1000, 3 * 256 + 8), ends.a.read(0, 3 * 256 + 8));
    }
}

#[test]
fn unexpected_or_forbidden_packets_get_no_destination() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0x1000);
    ends.a.post(1, Operation::Write(to), 0, 4 * MTU).unwrap();
    let packets = ends.a.transmit(64);
    let from = ends.a.address;
    batch(from, &mut ends.b, &packets[..1]);
    ends.b.post_recv(9, &[(0x4000, 4096)]);
    let before = ends.b.read(0x1000, 4096);
    for (opcode, psn) in
        [(RcWriteMiddle, 102), (RcWriteMiddle, 100), (RcSendFirst, 101), (RcSendOnly, 102), (UcSendOnly, 101)]
    {
        let forged = TestPacket::new(opcode, &ends.b, psn, &[0xEE; 256]);
        assert_eq!(in_place(&batch(from, &mut ends.b, &[forged])), 0, "{opcode:?} {psn}");
    }
    assert_eq!(ends.b.read(0x1000, 4096), before);
    let lkey = ends.b.mr.lkey;
    ends.b.protection.deregister(lkey);
    assert_eq!(in_place(&batch(from, &mut ends.b, &packets[1..])), 0, "the key is deregistered");
    assert_eq!(ends.b.read(0x1000, 4096), before);
}

#[test]
fn batched_sends_land_in_their_receives() {
    let mut ends = Ends::new(RC);
    for id in 0..4 {
        ends.b.post_recv(id, &[(0x1000 + id * 0x100, 100), (0x8000 + id * 0x100, 156)]);
        ends.a.post(id, Operation::Send, id * 1000, MTU).unwrap();
    }
    let packets = ends.a.transmit(64);
    assert_eq!(in_place(&batch(ends.a.address, &mut ends.b, &packets)), 4);
    assert_eq!((ends.b.counters.bytes_copied, ends.b.completed().len()), (0, 4));
    for id in 0..4 {
        let bytes = [ends.b.read(0x1000 + id * 0x100, 100), ends.b.read(0x8000 + id * 0x100, 156)].concat();
        assert_eq!(bytes, ends.a.read(id * 1000, 256));
    }
}

#[test]
fn wrong_guess_of_a_message_end_costs_only_a_copy() {
    // Messages of 2, 1, 3 packets in one batch of equal lengths, into receives that are longer than they.
    let mut ends = Ends::new(RC);
    for (id, len) in [(0, 2 * MTU), (1, MTU), (2, 3 * MTU)] {
        ends.b.post_recv(id, &[(0x1000 * (id + 1), 1000)]);
        ends.a.post(id, Operation::Send, 5000 * id, len).unwrap();
    }
    let packets = ends.a.transmit(64);
    assert_eq!(packets.len(), 6);
    batch(ends.a.address, &mut ends.b, &packets);
    assert_eq!(ends.b.completed(), [0, 1, 2].map(|id| (id, Status::Success)));
    for (id, len) in [(0, 512), (1, 256), (2, 768)] {
        assert_eq!(ends.b.read(0x1000 * (id + 1), len), ends.a.read(5000 * id, len));
    }
}

#[test]
fn read_responses_land_in_place_across_requests() {
    let mut ends = Ends::new(RC);
    let remote = ends.b.remote(0);
    ends.b.memory.write(0, &[0x5A; 4096]);
    ends.a.post(1, Operation::Write(remote), 0, 0).unwrap();
    ends.a.post(2, Operation::Read(remote), 0x8_0000, 3 * MTU).unwrap();
    ends.a.post(3, Operation::Read(remote), 0x9_0000, 2 * MTU + 8).unwrap();
    let requests = ends.a.transmit(64);
    ends.arrive_at_b(&requests);
    let responses = ends.b.transmit(64);
    assert_eq!(responses.len(), 6);
    let from = ends.b.address;
    // First and middle; last, and the next one's first and middle; its last.
    for range in [0..2, 2..5, 5..6] {
        assert_eq!(in_place(&batch(from, &mut ends.a, &responses[range.clone()])), range.len());
    }
    assert_eq!((ends.a.completed().len(), ends.a.counters.bytes_copied), (3, 0));
    assert_eq!((ends.a.read(0x8_0000, 768), ends.a.read(0x9_0000, 520)), (vec![0x5A; 768], vec![0x5A; 520]));
}

#[test]
fn unrequested_response_gets_no_destination() {
    let mut ends = Ends::new(RC);
    let remote = ends.b.remote(0);
    ends.a.post(2, Operation::Read(remote), 0x8_0000, 3 * MTU).unwrap();
    ends.a.transmit(64);
    for psn in [99, 101, 103, 5000] {
        let forged = TestPacket::new(RcReadResponseMiddle, &ends.a, psn, &[0xEE; 256]);
        assert_eq!(in_place(&batch(ends.b.address, &mut ends.a, &[forged])), 0, "{psn}");
    }
    assert_eq!(ends.a.read(0x8_0000, 768), [0; 768]);
}
