//! Each single fault at each word of an exchange, and an end that starts again.

use super::line::WORD;
use super::*;
use crate::traffic::Script;

const PACKETS: u32 = 2;

/// A link whose lanes are up, before its first packets.
fn link(lanes: usize) -> Link {
    let mut link = Link::new(5, Shape { lanes, vcs: 2, packets: PACKETS, max_len: 90, scrambled: true });
    while !link.is_all_up() {
        link.step();
    }
    link
}

/// Inflicts `fault` on each lane and direction at each word of an exchange of packets and broadcast messages, until
/// everything is acknowledged. Everything must arrive once, and nothing but a retry must show that there was a fault.
fn inflict_at_each_word(lanes: usize, fault: impl Fn(&mut Line), finish: impl Fn(&mut Link)) {
    let mut link = link(lanes);
    (0..2).for_each(|end| link.post(end));
    let (mut words, mut retries) = (0, 0);
    while !link.is_done() {
        for (end, lane) in (0..2).flat_map(|end| (0..lanes).map(move |lane| (end, lane))) {
            let mut faulty = link.clone();
            fault(&mut faulty.ends[end].lines[lane]);
            finish(&mut faulty);
            faulty.check_balance();
            faulty.check_all_arrived(2 * u64::from(PACKETS));
            for End { link, .. } in &faulty.ends {
                let counters = link.link_counters();
                assert_eq!(counters.link_resets, 0, "{}", faulty.status());
                retries += counters.retries;
            }
        }
        link.step();
        words += 1;
    }
    assert!(words > 60 && retries > 10, "{words} words, {retries} retries");
}

/// Runs until everything has arrived, while all lanes stay up.
fn finish_at_once(link: &mut Link) {
    let limit = link.words + 20_000;
    while !link.is_done() {
        assert!(link.words < limit, "{}", link.status());
        link.step();
    }
    // The last FCTs and ACKs.
    link.run(100);
}

#[test]
fn every_inverted_bit_of_an_exchange_is_repaired() {
    for (lanes, bit) in [1, 2].into_iter().flat_map(|lanes| (0..40).map(move |bit| (lanes, bit))) {
        inflict_at_each_word(lanes, |line| line.flips = 1 << bit, finish_at_once);
    }
}

#[test]
fn every_destroyed_word_of_an_exchange_is_repaired() {
    for lanes in [1, 2] {
        inflict_at_each_word(lanes, |line| line.flips = WORD, finish_at_once);
        inflict_at_each_word(lanes, |line| line.flips = 0x55_5555_5555, finish_at_once);
    }
}

#[test]
fn every_lost_word_of_an_exchange_is_repaired() {
    for lanes in [1, 2] {
        inflict_at_each_word(lanes, Line::lose_word, Link::finish);
    }
}

#[test]
fn every_doubled_word_of_an_exchange_is_repaired() {
    for lanes in [1, 2] {
        inflict_at_each_word(lanes, Line::repeat_word, Link::finish);
    }
}

#[test]
fn end_that_starts_again_is_found_and_traffic_goes_on() {
    for lanes in [1, 3] {
        let shape = Shape { lanes, vcs: 2, packets: 20, max_len: 400, scrambled: true };
        for words in (40..900).step_by(60) {
            let mut link = Link::new(7, shape);
            while !link.is_all_up() {
                link.step();
            }
            link.run(words);
            // The process of one end is killed and started again.
            let [started, _] = Link::new(8, shape).ends;
            link.ends[0] = started;
            link.ends[1].sink.restart();
            link.finish();
            link.check_balance();
            assert_eq!(link.ends[1].link.link_counters().link_resets, 1, "{}", link.status());
            assert_eq!(
                (link.ends[1].sink.packets_of(0) >= 20, link.ends[1].sink.missing),
                (true, 0),
                "all from the new end"
            );
            assert!(link.ends[1].source.cut <= 2, "only packets in transmission are lost");
        }
    }
}

#[test]
fn packets_that_are_incomplete_arrive_with_eep() {
    let shape = Shape { lanes: 3, vcs: 1, packets: 0, max_len: 1, scrambled: true };
    let packets = Script::with_incomplete_packets();
    let mut ends = [(); 2].map(|()| WordLink::new(config(shape), &channels(shape)).unwrap());
    ends.iter_mut().for_each(WordLink::start);
    let (mut sources, mut sinks) = ([packets.clone(), Script::default()], [(); 2].map(|()| Script::default()));
    let mut words = [[None; MAX_LANES]; 2];
    for _ in 0..3_000 {
        for (end, words) in ends.iter_mut().zip([words[1], words[0]]) {
            words.iter().enumerate().take(3).for_each(|(lane, word)| end.receive(lane, *word));
        }
        for (end, words) in words.iter_mut().enumerate() {
            ends[end].step(&mut sources[end], &mut sinks[end], words);
        }
    }
    assert_eq!(sinks, [Script::default(), packets]);
}
