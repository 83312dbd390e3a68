//! Tests of the in-process link.

use crate::suite::{CREDITS, Collector, Memory, conforms, header, receive};
use shotline_testing::{seeds, wait_until};
use shotline_transport::conformance::EndpointPair;
use shotline_transport::inproc::{self, InprocConfig};
use shotline_transport::lossy::Lossy;
use shotline_transport::{PacketIo, Seal, TxPacket};
use std::net::SocketAddr;
use std::time::Duration;

#[test]
fn inproc_conforms_directly_and_below_lossy() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let open = || EndpointPair::in_process(&memory, sealed, |io| io);
        conforms("inproc", sealed, CREDITS, &memory, open, |_| Ok(()));
        let lossy = || {
            let EndpointPair { tx, rx, to } = open();
            EndpointPair { tx: Lossy::new(tx, 0.0, 1), rx: Lossy::new(rx, 0.0, 2), to }
        };
        conforms("lossy without loss", sealed, CREDITS, &memory, lossy, |ends| {
            if ends.tx.lost() == 0 { Ok(()) } else { Err(format!("{} packets are lost", ends.tx.lost())) }
        });
    }
}

#[test]
fn inproc_credits_equal_its_queue_capacity() {
    let memory = Memory::new();
    let end = |port| InprocConfig {
        address: SocketAddr::new("fd00::1".parse().unwrap(), port),
        sealed: true,
        capacity: 1,
        scratch: memory.scratch,
    };
    let (mut tx, mut rx) = inproc::pair(3, (end(1), &memory.regions), (end(2), &memory.regions));
    let head = header(1);
    let packet = TxPacket { header: &head, gather: &memory.payload(0, 100).0, seal: Seal::Compute };
    assert_eq!(tx.send(end(2).address, &[packet; 5]).unwrap(), 3);
    assert_eq!(receive(&mut rx, &memory, vec![None; 3], 3).len(), 3);
    assert_eq!(tx.send(end(2).address, &[packet; 5]).unwrap(), 3);
    drop(rx);
    assert!(tx.send(end(2).address, &[packet]).is_err());
}

#[test]
fn inproc_wait_returns_at_once_if_packets_are_queued() {
    let memory = Memory::new();
    let EndpointPair { mut tx, mut rx, to } = EndpointPair::in_process(&memory, true, |io| io);
    let head = header(1);
    let packet = TxPacket { header: &head, gather: &memory.payload(0, 100).0, seal: Seal::Compute };
    assert_eq!(tx.send(to, &[packet]).unwrap(), 1);
    let waiting = std::thread::spawn(move || rx.wait(Duration::MAX).map_err(|error| error.to_string()));
    wait_until("the wait is over", || waiting.is_finished());
    assert_eq!(waiting.join().unwrap(), Ok(()));
}

#[test]
fn lossy_drops_at_its_rate_at_random_and_keeps_the_order() {
    let memory = Memory::new();
    let end = |port| InprocConfig {
        address: SocketAddr::new("fd00::1".parse().unwrap(), port),
        sealed: false,
        capacity: 1,
        scratch: memory.scratch,
    };
    let arrived = |rate, seed| {
        let (tx, mut rx) = inproc::pair(64, (end(1), &memory.regions), (end(2), &memory.regions));
        let mut tx = Lossy::new(tx, rate, seed);
        let mut arrived = Vec::new();
        for number in 0..1000_u32 {
            let heads: Vec<_> = (0..40).map(|i| (number * 40 + i).to_be_bytes().repeat(6)).collect();
            let sends: Vec<_> = heads.iter().map(|header| TxPacket { header, gather: &[], seal: Seal::None }).collect();
            assert_eq!(tx.send(end(2).address, &sends).unwrap(), 40);
            let mut steer = Collector::new(&memory, [].into());
            while rx.poll(&mut steer, 64).unwrap() > 0 {}
            let number = |header: &[u8]| u32::from_be_bytes(*header.first_chunk().unwrap());
            arrived.extend(steer.received.iter().map(|received| number(&received.header)));
        }
        assert_eq!(arrived.len() as u64 + tx.lost(), 40_000);
        arrived
    };
    assert_eq!(arrived(0.0, 1).len(), 40_000);
    assert_eq!(arrived(1.0, 1).len(), 0);
    for seed in seeds(0..2) {
        let some = arrived(0.01, seed);
        assert!(some.is_sorted());
        // The expected loss is 400 packets, with a standard deviation of 20.
        assert!((39_480..39_720).contains(&some.len()), "seed {seed}: {}", some.len());
        assert_eq!(some, arrived(0.01, seed));
        assert_ne!(some, arrived(0.01, seed + 1));
    }
}
