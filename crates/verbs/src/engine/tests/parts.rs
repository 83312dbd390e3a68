//! The part of an operation in each packet.

use super::*;

fn parts(packets: &[TestPacket]) -> Vec<(u32, u32, Option<Remote>)> {
    packets.iter().map(|packet| (packet.part.operation_len, packet.part.offset, packet.part.remote)).collect()
}

#[test]
fn every_packet_of_a_write_has_its_own_address() {
    for options in [RC, UC] {
        let mut ends = Ends::new(options);
        let to = |offset: u64| Some(ends.b.remote(0x1000 + offset));
        let expected = [(600, 0, to(0)), (600, 256, to(256)), (600, 512, to(512))];
        for operation in [Operation::Write(ends.b.remote(0x1000)), Operation::WriteImm(ends.b.remote(0x1000), 9)] {
            ends.a.post(1, operation, 0, 600).unwrap();
            assert_eq!(parts(&ends.a.transmit(64)), expected, "{operation:?}");
        }
    }
}

#[test]
fn packets_of_a_send_have_no_address() {
    for options in [RC, UC] {
        let mut ends = Ends::new(options);
        ends.a.post(1, Operation::SendImm(9), 0, 257).unwrap();
        ends.a.post(1, Operation::Send, 0, 0).unwrap();
        assert_eq!(parts(&ends.a.transmit(64)), [(257, 0, None), (257, 256, None), (0, 0, None)]);
    }
}

#[test]
fn retransmitted_packets_have_the_same_parts() {
    let mut ends = Ends::new(RC);
    ends.a.post(1, Operation::Write(ends.b.remote(0x1000)), 0, 600).unwrap();
    let first = parts(&ends.a.transmit(64));
    ends.a.expire_at(1 + TIMEOUT);
    assert_eq!(parts(&ends.a.transmit(64)), first);
}

#[test]
fn requests_of_one_read_are_separate_operations() {
    let mut ends = Ends::new(RC);
    let len = 1 << 19;
    ends.a.post(1, Operation::Read(ends.b.remote(0x1000)), 0, len).unwrap();
    let packets = ends.a.transmit(64);
    let requested: Vec<_> = packets.iter().map(|packet| packet.extensions.reth.unwrap()).collect();
    assert!(requested.len() > 1 && requested[0].address == 0x1000, "{requested:?}");
    let expected = requested.iter().map(|reth| {
        let remote = Remote { address: reth.address, rkey: reth.r_key };
        (reth.length, 0, Some(remote))
    });
    assert_eq!(parts(&packets), expected.collect::<Vec<_>>());
}

#[test]
fn atomic_operations_have_8_bytes_and_responses_no_part() {
    let mut ends = Ends::new(RC);
    let remote = ends.b.remote(0x1000);
    ends.a.post(1, Operation::CompareSwap { remote, compare: 1, swap: 2 }, 0, 8).unwrap();
    ends.a.post(2, Operation::FetchAdd { remote, add: 1 }, 8, 8).unwrap();
    let packets = ends.a.transmit(64);
    assert_eq!(parts(&packets), [(8, 0, Some(remote)); 2]);
    ends.arrive_at_b(&packets);
    assert_eq!(parts(&ends.b.transmit(64)), [(0, 0, None); 2]);
}
