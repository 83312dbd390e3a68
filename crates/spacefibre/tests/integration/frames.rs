//! Two frame links over a network that loses, repeats, reorders and corrupts datagrams.

mod single_faults;

use crate::traffic::{Received, Traffic};
use shotline_random::SplitMix64;
use shotline_spacefibre::frames::{FrameConfig, FrameLink, Output};
use shotline_spacefibre::link::{BroadcastMessage, VcConfig};
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_wire::spacefibre::BroadcastStatus;

struct Datagram {
    bytes: Vec<u8>,
    space: usize,
}

impl Output for Datagram {
    fn remaining(&mut self) -> usize {
        self.space - self.bytes.len()
    }
    fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.remaining());
        self.bytes.extend_from_slice(bytes);
    }
}

/// Probabilities of faults, per datagram.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: f64,
    repeat: f64,
    swap: f64,
    flip: f64,
    reset: f64,
}

struct End {
    lanes: u8,
    link: FrameLink,
    source: Traffic,
    sink: Received,
    /// Datagrams on their way to this end.
    incoming: Vec<Vec<u8>>,
}

fn end(random: &mut SplitMix64, lanes: u8, vcs: u8, packets: u32) -> End {
    let qos = |_| VcConfig {
        qos: VcQos::new(0, Share::from_parts(65_536 / u32::from(vcs)).unwrap()),
        input_words: 4 * 64 * u32::from(lanes.max(8)),
    };
    let channels: Vec<_> = (0..vcs).map(qos).collect();
    let config = FrameConfig { lanes, scrambled: random.chance(0.8), seed: random.next_u64() };
    End {
        lanes,
        link: FrameLink::new(config, &channels).unwrap(),
        source: Traffic::new(random, vcs, packets, 3000),
        sink: Received::new(vcs),
        incoming: Vec::new(),
    }
}

/// Runs until all packets have arrived and everything is acknowledged. Returns the ends.
fn run(seed: u64, lanes: u8, vcs: u8, packets: u32, faults: Faults) -> [End; 2] {
    let mut random = SplitMix64::new(seed);
    let mut ends = [(); 2].map(|()| end(&mut random, lanes, vcs, packets));
    let mut now = 0;
    for round in 0.. {
        assert!(round < 200_000, "seed {seed}: no end: {:?}", ends.each_ref().map(|end| *end.link.link_counters()));
        step_with(&mut random, faults, &mut ends, now);
        now += if ends.iter().all(|end| end.incoming.is_empty()) { 1_000_000 } else { 1_000 };
        let is_idle = |end: &mut End| end.source.is_done() && end.link.is_up() && end.link.link().is_all_acknowledged();
        if ends.iter_mut().all(is_idle) {
            break;
        }
    }
    ends
}

/// Lets each end send one datagram, and receive what has arrived.
fn step_with(random: &mut SplitMix64, faults: Faults, ends: &mut [End; 2], now: u64) {
    for from in 0..2 {
        let [first, second] = ends;
        let (this, other) = if from == 0 { (first, second) } else { (second, first) };
        let space = FrameLink::datagram_bytes(this.lanes, 1) + random.below(8_000) as usize;
        let mut out = Datagram { bytes: Vec::new(), space };
        if this.link.transmit(now, &mut this.source, &mut out) {
            send(random, faults, out.bytes, &mut other.incoming);
        }
        for mut bytes in std::mem::take(&mut this.incoming) {
            this.link.receive(&mut bytes, &mut this.source, &mut this.sink);
        }
        if random.chance(faults.reset) {
            this.link.reset(&mut this.source, &mut this.sink);
        }
    }
}

/// As [`step_with`], without faults.
fn step(ends: &mut [End; 2], now: u64) {
    step_with(&mut SplitMix64::new(now), Faults::default(), ends, now);
}

fn send(random: &mut SplitMix64, faults: Faults, mut bytes: Vec<u8>, to: &mut Vec<Vec<u8>>) {
    if random.chance(faults.lose) {
        return;
    }
    if random.chance(faults.repeat) {
        to.push(bytes.clone());
    }
    if random.chance(faults.flip) {
        let bit = random.below(8 * bytes.len() as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    to.push(bytes);
    if to.len() > 1 && random.chance(faults.swap) {
        let last = to.len() - 1;
        to.swap(last, last - 1);
    }
}

#[test]
fn all_packets_arrive_over_a_perfect_network() {
    for lanes in 1..=16 {
        for end in run(lanes.into(), lanes, 1 + (lanes * 2) % 32, 50, Faults::default()) {
            let counters = end.link.link_counters();
            assert_eq!((end.sink.packets, end.sink.missing), (50 * u64::from(1 + (lanes * 2) % 32), 0));
            assert_eq!((counters.retries, counters.nacks_out, counters.frames_dropped), (0, 0, 0));
        }
    }
}

#[test]
fn end_whose_data_have_no_credit_acknowledges_at_once() {
    let mut random = SplitMix64::new(1);
    let mut ends = [(); 2].map(|()| end(&mut random, 4, 1, 300));
    // The receiver never frees the space of what has arrived, so the other end has data that it may not send.
    ends[1].sink.held = Some(vec![0]);
    let mut now = 0;
    while !ends.iter().all(|end| end.link.is_up()) {
        now += 10_000_000;
        step(&mut ends, now);
    }
    // The time does not change, so no idle frame is due.
    let mut idle_steps = 0;
    while idle_steps < 4 {
        step(&mut ends, now);
        idle_steps = if ends.iter().all(|end| end.incoming.is_empty()) { idle_steps + 1 } else { 0 };
    }
    assert!(!ends[0].source.is_done() && ends[1].source.is_done());
    assert!(ends[1].link.link().is_all_acknowledged(), "{:?}", ends[0].link.link_counters());
}

#[test]
fn all_packets_arrive_once_and_in_order_despite_faults() {
    let faults = Faults { lose: 0.05, repeat: 0.03, swap: 0.05, flip: 0.05, reset: 0.0 };
    for seed in 0..400 {
        let vcs = 1 + (seed % 8) as u8;
        for end in run(seed, 1 + (seed % 5) as u8, vcs, 40, faults) {
            assert_eq!((end.sink.packets, end.sink.missing), (40 * u64::from(vcs), 0), "seed {seed}");
            assert_eq!(end.link.link_counters().link_resets, 0);
        }
    }
}

#[test]
fn faults_are_counted_and_repaired_by_retries() {
    let faults = Faults { lose: 0.05, repeat: 0.05, swap: 0.05, flip: 0.05, reset: 0.0 };
    let mut all = [0; 8];
    for seed in 0..40 {
        for end in run(seed, 4, 4, 100, faults) {
            let (frames, link) = (end.link.counters(), end.link.link_counters());
            let found = [
                frames.lost,
                frames.old,
                frames.malformed,
                link.crc16_errors,
                link.rxerrs,
                link.sequence_errors,
                link.retries,
                link.items_resent,
            ];
            all.iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
            assert_eq!(link.retries_in > 0, link.nacks_out > 0, "seed {seed}");
        }
    }
    assert!(all.iter().all(|count| *count > 10), "{all:?}");
}

#[test]
fn slow_receiver_stops_only_its_own_channel() {
    let mut random = SplitMix64::new(1);
    let mut ends = [(); 2].map(|()| end(&mut random, 4, 2, 300));
    // The receiver never frees the space of what has arrived on channel 0.
    ends[1].sink.held = Some(vec![0; 2]);
    let mut now = 0;
    for _ in 0..20_000 {
        step(&mut ends, now);
        let held = ends[1].sink.held.as_mut().unwrap();
        let read = std::mem::take(&mut held[1]);
        ends[1].link.release(1, read);
        now += 100_000;
    }
    let words = ends[1].sink.held.as_ref().unwrap()[0];
    let (_, granted) = ends[1].link.link().credit(0).unwrap();
    assert_eq!(words + granted, 2048, "all of the input buffer is in use or granted");
    assert_eq!(ends[1].sink.packets_of(1), 300);
    // Once it reads, the rest arrives.
    for _ in 0..20_000 {
        let held = ends[1].sink.held.as_mut().unwrap();
        for (vc, words) in [0, 1].into_iter().zip(held.iter_mut()) {
            let read = std::mem::take(words);
            ends[1].link.release(vc, read);
        }
        step(&mut ends, now);
        now += 100_000;
    }
    assert_eq!(ends[1].sink.packets, 600);
}

fn message(number: u8) -> BroadcastMessage {
    BroadcastMessage { channel: number, kind: 3, data: [number; 8], status: BroadcastStatus::default() }
}

#[test]
fn messages_that_waited_or_were_sent_again_are_late() {
    let mut random = SplitMix64::new(1);
    let mut ends = [(); 2].map(|()| end(&mut random, 2, 1, 0));
    let mut now = 0;
    let mut deliver = |ends: &mut [End; 2], count: usize| {
        while ends[1].sink.broadcasts.len() < count {
            now += 1_000_000;
            step(ends, now);
        }
    };
    ends[0].link.link().post_broadcast(message(0));
    deliver(&mut ends, 1);
    ends[0].link.link().post_broadcast(message(1));
    deliver(&mut ends, 2);
    // Its datagram is lost.
    ends[0].link.link().post_broadcast(message(2));
    let mut out = Datagram { bytes: Vec::new(), space: 8_000 };
    assert!(ends[0].link.transmit(0, &mut ends[0].source, &mut out));
    deliver(&mut ends, 3);
    let found: Vec<_> = ends[1].sink.broadcasts.iter().map(|message| (message.channel, message.status.late)).collect();
    assert_eq!(found, [(0, true), (1, false), (2, true)]);
}

#[test]
fn broadcast_messages_arrive_once_and_in_order_despite_faults() {
    let faults = Faults { lose: 0.05, repeat: 0.05, swap: 0.05, flip: 0.05, reset: 0.0 };
    for seed in 0..100 {
        let mut random = SplitMix64::new(seed);
        let mut ends = [(); 2].map(|()| end(&mut random, 2, 1, 20));
        let mut posted = 0;
        let mut now = 0;
        while ends[1].sink.broadcasts.len() < 50 {
            assert!(now < 20_000_000_000, "seed {seed}");
            if posted < 50 && ends[0].link.is_up() && ends[0].link.link().post_broadcast(message(posted)) {
                posted += 1;
            }
            step_with(&mut random, faults, &mut ends, now);
            now += 1_000_000;
        }
        let found: Vec<_> = ends[1].sink.broadcasts.iter().map(|message| message.channel).collect();
        assert_eq!(found, (0..50).collect::<Vec<_>>(), "seed {seed}");
        assert!(ends[1].sink.broadcasts.iter().all(|message| message.data == [message.channel; 8]));
    }
}

#[test]
fn ends_with_different_lanes_stay_down_and_say_so() {
    let mut random = SplitMix64::new(1);
    let mut ends = [end(&mut random, 4, 1, 1), end(&mut random, 2, 1, 1)];
    for round in 0..100 {
        step(&mut ends, round * 10_000_000);
    }
    assert_eq!(
        ends.each_ref().map(|end| (end.link.is_up(), end.link.other_lanes())),
        [(false, Some(2)), (false, Some(4))]
    );
}

#[test]
fn end_that_starts_again_is_found_and_traffic_goes_on() {
    for seed in 0..50 {
        let mut random = SplitMix64::new(seed);
        let mut ends = [(); 2].map(|()| end(&mut random, 4, 2, 50));
        for round in 0..40 {
            step(&mut ends, round * 100_000);
        }
        // The process of one end is killed and started again.
        ends[0] = end(&mut random, 4, 2, 50);
        ends[1].sink.restart();
        for round in 40..20_000 {
            step(&mut ends, round * 100_000);
        }
        assert_eq!(ends[1].link.link_counters().link_resets, 1, "seed {seed}");
        assert!(ends[1].source.is_done() && ends[0].source.is_done());
        assert!(ends[1].source.cut <= 2, "only packets in transmission are lost");
        assert_eq!((ends[1].sink.packets_of(0) >= 50, ends[1].sink.missing), (true, 0));
    }
}

#[test]
fn resets_lose_only_packets_in_transmission() {
    let faults = Faults { lose: 0.02, repeat: 0.01, swap: 0.02, flip: 0.02, reset: 0.01 };
    for seed in 0..200 {
        let vcs = 1 + (seed % 4) as u8;
        for end in run(seed, 4, vcs, 40, faults) {
            assert!(end.sink.packets <= 40 * u64::from(vcs));
        }
    }
}
