//! Each single fault of each datagram of an exchange.

use super::*;
use crate::traffic::Script;

/// Virtual channels, and packets on each.
const VCS: u8 = 2;
const PACKETS: u32 = 2;

/// Exchanges packets and broadcast messages, of which `change` may change each datagram by its number. Everything must arrive
/// once, without a link reset. Returns the datagrams.
fn exchange(change: impl Fn(usize, Vec<u8>) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut random = SplitMix64::new(3);
    let mut ends = [0, 1].map(|number| {
        let mut end = end(&mut random, 1, VCS, 0);
        end.source = Traffic::new(&mut random, VCS, PACKETS, 90);
        end.link.link().post_broadcast(message(number));
        end
    });
    let (mut sent, mut quiet_rounds, mut now) = (Vec::new(), 0, 0);
    while quiet_rounds < 3 {
        now += 1_000_000;
        assert!(now < 5_000_000_000, "{:?}", ends.each_ref().map(|end| *end.link.link_counters()));
        for from in 0..2 {
            let [first, second] = &mut ends;
            let (this, other) = if from == 0 { (first, second) } else { (second, first) };
            let mut out = Datagram { bytes: Vec::new(), space: 400 };
            if this.link.transmit(now, &mut this.source, &mut out) {
                other.incoming.extend(change(sent.len(), out.bytes.clone()));
                sent.push(out.bytes);
            }
            for mut bytes in std::mem::take(&mut this.incoming) {
                this.link.receive(&mut bytes, &mut this.source, &mut this.sink);
            }
        }
        let is_done = ends
            .iter_mut()
            .all(|end| end.link.is_up() && end.source.is_done() && end.link.link().is_all_acknowledged());
        quiet_rounds = if is_done { quiet_rounds + 1 } else { 0 };
    }
    for (end, other) in [(0, 1), (1, 0)] {
        let [end, other] = [end, other].map(|end: usize| &ends[end]);
        assert_eq!((end.sink.packets, end.sink.missing), ((u32::from(VCS) * PACKETS).into(), 0));
        assert_eq!((end.sink.broadcasts.len(), end.link.link_counters().link_resets), (1, 0));
        for vc in 0..VCS {
            let [near, far] = [end, other].map(|end| end.link.channel(vc).unwrap());
            assert_eq!(near.credit, far.granted, "channel {vc}");
        }
    }
    sent
}

#[test]
fn every_inverted_bit_of_an_exchange_is_repaired() {
    let sent = exchange(|_, bytes| vec![bytes]);
    assert!(sent.len() > 10, "{} datagrams", sent.len());
    for (number, datagram) in sent.iter().enumerate() {
        for bit in 0..8 * datagram.len() {
            exchange(|at, mut bytes| {
                if at == number {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                vec![bytes]
            });
        }
    }
}

#[test]
fn every_lost_or_doubled_datagram_is_repaired() {
    let sent = exchange(|_, bytes| vec![bytes]);
    for number in 0..sent.len() {
        for count in [0, 2, 3] {
            exchange(|at, bytes| vec![bytes; if at == number { count } else { 1 }]);
        }
    }
}

#[test]
fn every_cut_or_extended_datagram_is_repaired() {
    let sent = exchange(|_, bytes| vec![bytes]);
    for (number, datagram) in sent.iter().enumerate() {
        for len in 0..datagram.len() + 9 {
            exchange(|at, mut bytes| {
                if at == number {
                    bytes.resize(len, 0x55);
                }
                vec![bytes]
            });
        }
    }
}

#[test]
fn packets_that_are_incomplete_arrive_with_eep() {
    let packets = Script::with_incomplete_packets();
    let mut random = SplitMix64::new(1);
    let [mut from, mut to] = [(); 2].map(|()| end(&mut random, 3, 1, 0).link);
    let (mut source, mut sink, mut nothing) = (packets.clone(), Script::default(), Script::default());
    for now in (0..200_000_000).step_by(5_000_000) {
        let mut out = Datagram { bytes: Vec::new(), space: 8_000 };
        if from.transmit(now, &mut source, &mut out) {
            to.receive(&mut out.bytes, &mut Script::default(), &mut sink);
        }
        let mut out = Datagram { bytes: Vec::new(), space: 8_000 };
        if to.transmit(now, &mut Script::default(), &mut out) {
            from.receive(&mut out.bytes, &mut source, &mut nothing);
        }
    }
    assert_eq!(sink, packets);
}
