//! Tests of the faults that `Faulty` makes.

use shotline_testing::seeds;
use shotline_transport::carrier::faulty::{FaultCounters, Faults, Faulty};
use shotline_transport::carrier::{Carrier, inproc};

const DATAGRAMS: u64 = 20_000;
const LEN: usize = 64;

/// Sends numbered datagrams, in bursts. Returns those that arrive, and the counters.
fn through(faults: Faults) -> (Vec<Vec<u8>>, FaultCounters) {
    let (near, mut far) = inproc::pair(64).unwrap();
    let mut near = Faulty::new(near, faults);
    let mut arrived = Vec::new();
    let mut number = 0;
    while number < DATAGRAMS {
        for _ in 0..=number % 30 {
            assert_eq!(near.remaining(), near.max_datagram());
            near.append(&number.to_le_bytes());
            near.append(&number.to_le_bytes().repeat(LEN / 8 - 1));
            near.finish().unwrap();
            number += 1;
        }
        near.flush().unwrap();
        while let Some(bytes) = far.receive().unwrap() {
            arrived.push(bytes.to_vec());
        }
    }
    near.prepare_sleep();
    while let Some(bytes) = far.receive().unwrap() {
        arrived.push(bytes.to_vec());
    }
    assert_eq!(arrived.len() as u64 + near.counters().dropped, number + near.counters().repeated);
    (arrived, near.counters())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.first_chunk().copied().unwrap())
}

/// Asserts that a count is as likely as within five standard deviations.
fn assert_rate(count: u64, trials: u64, rate: f64) {
    let expected = trials as f64 * rate;
    let deviation = (expected * (1.0 - rate)).sqrt();
    assert!((count as f64 - expected).abs() <= 5.0 * deviation, "{count} of {trials}, {expected} are expected");
}

#[test]
fn faults_have_their_rates_and_depend_on_the_seed() {
    let of = |seed| Faults { seed, drop: 0.02, repeat: 0.01, swap: 0.03, bit_error_rate: 1e-4 };
    for seed in seeds(0..3) {
        let (arrived, counters) = through(of(seed));
        let passed = DATAGRAMS - counters.dropped;
        assert_rate(counters.dropped, DATAGRAMS, 0.02);
        assert_rate(counters.repeated, passed, 0.01);
        assert_rate(counters.swapped, passed, 0.03);
        assert_rate(counters.bit_errors, 8 * LEN as u64 * passed, 1e-4);
        assert_eq!((&arrived, counters), (&through(of(seed)).0, through(of(seed)).1));
        assert_ne!(arrived, through(of(seed + 1)).0);
    }
}

#[test]
fn dropped_datagrams_are_missing_and_others_in_order() {
    let (arrived, counters) = through(Faults { drop: 0.1, ..Faults::default() });
    assert!(arrived.is_sorted_by(|a, b| number(a) < number(b)));
    assert_eq!(counters, FaultCounters { dropped: counters.dropped, ..FaultCounters::default() });
    assert_eq!(through(Faults { drop: 1.0, ..Faults::default() }).0.len(), 0);
}

#[test]
fn repeated_datagrams_follow_themselves() {
    let (arrived, counters) = through(Faults { repeat: 0.1, ..Faults::default() });
    assert!(arrived.is_sorted_by_key(|bytes| number(bytes)));
    assert_eq!(arrived.windows(2).filter(|two| two[0] == two[1]).count() as u64, counters.repeated);
    let (twice, _) = through(Faults { repeat: 1.0, ..Faults::default() });
    assert!(twice.chunks(2).all(|two| two[0] == two[1]));
}

#[test]
fn swapped_datagrams_follow_the_next_one() {
    let (arrived, counters) = through(Faults { swap: 0.1, ..Faults::default() });
    let numbers: Vec<_> = arrived.iter().map(|bytes| number(bytes)).collect();
    let behind = numbers.windows(2).filter(|two| two[1] < two[0]).count() as u64;
    // Those that were held at the end, or over two flushes, keep their place.
    assert!(behind <= counters.swapped && behind + 2 >= counters.swapped, "{behind} of {}", counters.swapped);
    assert!(numbers.windows(2).all(|two| two[0] < two[1] + 2));
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn inverted_bits_are_counted() {
    for rate in [1e-5, 1e-3, 0.5, 1.0] {
        let (arrived, counters) = through(Faults { bit_error_rate: rate, ..Faults::default() });
        let errors = arrived.iter().enumerate().map(|(number, bytes)| {
            let sent = (number as u64).to_le_bytes().repeat(LEN / 8);
            bytes.iter().zip(&sent).map(|(found, sent)| u64::from((found ^ sent).count_ones())).sum::<u64>()
        });
        assert_eq!(errors.sum::<u64>(), counters.bit_errors);
        assert_rate(counters.bit_errors, 8 * LEN as u64 * arrived.len() as u64, rate);
    }
}

#[test]
fn held_datagram_is_sent_by_the_second_flush_or_before_a_sleep() {
    let path = || {
        let (near, far) = inproc::pair(4).unwrap();
        let mut near = Faulty::new(near, Faults { swap: 1.0, ..Faults::default() });
        assert!(near.remaining() > 0);
        near.append(b"held");
        near.finish().unwrap();
        (near, far)
    };
    let (mut near, mut far) = path();
    near.flush().unwrap();
    assert!(far.receive().unwrap().is_none());
    near.flush().unwrap();
    assert_eq!(far.receive().unwrap().as_deref(), Some(&b"held"[..]));
    let (mut near, mut far) = path();
    assert!(near.prepare_sleep());
    assert_eq!(far.receive().unwrap().as_deref(), Some(&b"held"[..]));
}

#[test]
fn full_path_below_faults_loses_nothing() {
    let (near, mut far) = inproc::pair(1).unwrap();
    let mut near = Faulty::new(near, Faults { repeat: 1.0, ..Faults::default() });
    for round in 0..10_u8 {
        assert!(near.remaining() > 0);
        near.append(&[round]);
        near.finish().unwrap();
        near.flush().unwrap();
        assert_eq!(near.remaining(), 0);
        assert_eq!(far.receive().unwrap().as_deref(), Some(&[round][..]));
        near.flush().unwrap();
        assert_eq!(far.receive().unwrap().as_deref(), Some(&[round][..]));
    }
}
