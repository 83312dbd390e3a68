//! Links over lines with seeded faults.

use super::*;

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A bit is inverted.
    Flip,
    /// Several bits of a word are inverted.
    Burst,
    /// A bit is lost or repeated.
    SlipBit,
    /// A word is repeated.
    RepeatWord,
    /// A word is lost.
    LoseWord,
    /// Nothing arrives for some time.
    Cut,
    /// All lanes of an end are reset, with the multi-lane layer.
    LinkReset,
    /// One lane is reset.
    LaneReset,
    /// An end is replaced by a new one.
    Restart,
}

use Fault::{Burst, Cut, Flip, LaneReset, LinkReset, LoseWord, RepeatWord, Restart, SlipBit};

/// Runs a link while faults occur, then verifies that it recovers. Frames are verified all the time.
fn run_with_faults(seed: u64, faults: &[Fault], words: u64) {
    let mut random = SplitMix64::new(seed);
    let lanes = random.between(1, 6) as usize;
    let skew: [usize; 6] = [(); 6].map(|()| random.below(4) as usize);
    let max_data_lanes = random.between(1, 6) as usize;
    let configs = [MultiLaneConfig { max_data_lanes, ..config(lanes) }, config(lanes)];
    let mut link = Link::new(configs, |lane| 3 + skew[lane]);
    for end in &mut link.ends {
        end.lines.iter_mut().for_each(|line| line.is_inverted = random.chance(0.2));
        let is_scrambled = random.chance(0.5);
        let capability = shotline_wire::spacefibre::Capability::DATA_SCRAMBLED;
        end.layer.set_capability(capability.with(capability, is_scrambled));
    }
    link.start();
    let mean_words = random.between(200, 4000);
    let mut cut_until = [[0; 6]; 2];
    while link.words < words {
        if random.below(mean_words) == 0 {
            let fault = random.choose(faults);
            let (end, lane) = (random.below(2) as usize, random.below(lanes as u64) as usize);
            if let Cut = fault {
                cut_until[end][lane] = link.words + random.between(1, 8_000);
            }
            inflict(&mut link, fault, end, lane, &mut random);
        }
        for (end, cut_until) in link.ends.iter_mut().zip(&cut_until) {
            for (line, until) in end.lines.iter_mut().zip(cut_until) {
                line.is_cut = link.words < *until;
            }
        }
        link.step();
    }
    link.ends.iter_mut().flat_map(|end| &mut end.lines).for_each(|line| line.is_cut = false);
    let all = u16::MAX >> (MAX_LANES - lanes);
    let limited = u16::MAX >> (MAX_LANES - lanes.min(max_data_lanes));
    if faults.iter().any(|fault| matches!(fault, SlipBit | RepeatWord | LoseWord)) {
        // The skew grew, and the lanes' elastic buffers limit it again when they are initialised.
        for end in &mut link.ends {
            for (lane, line) in end.lines.iter_mut().enumerate() {
                line.words.resize(3 + skew[lane], None);
            }
            end.layer.reset_lanes();
        }
    }
    link.run(1_000);
    link.run_until_ready([limited, all]);
    link.run_without_errors(2_000);
    let lost = link.ends.each_ref().map(|end| end.layer.counters().events_lost + end.layer.counters().overrun_words);
    assert_eq!(lost, [0, 0]);
}

fn inflict(link: &mut Link, fault: Fault, end: usize, lane: usize, random: &mut SplitMix64) {
    let line = &mut link.ends[end].lines[lane];
    match fault {
        Flip => line.flips ^= 1 << random.below(LINE_BITS.into()),
        Burst => line.flips ^= random.next_u64() & ((1 << LINE_BITS) - 1),
        SlipBit => line.slip_bit(random),
        RepeatWord => line.words.push_front(line.words[0]),
        LoseWord if line.words.len() > 1 => _ = line.words.pop_front(),
        LoseWord | Cut => {}
        LinkReset => {
            link.ends[end].layer.reset_link();
            link.ends[end].layer.reset_lanes();
            link.ends[end].sink.reset();
        }
        LaneReset => link.ends[end].layer.reset_lane(lane),
        Restart => {
            let End { layer, source, sink, .. } = &mut link.ends[end];
            *layer = MultiLane::new(layer.config).unwrap();
            layer.set_start(u16::MAX, true);
            source.restart();
            sink.reset();
        }
    }
}

#[test]
fn bit_errors_are_reported_with_their_frames() {
    (0..25).for_each(|seed| run_with_faults(seed, &[Flip, Flip, Flip, Burst], 30_000));
}

#[test]
fn lost_and_repeated_bits_and_words_are_reported() {
    (100..125).for_each(|seed| run_with_faults(seed, &[SlipBit, RepeatWord, LoseWord], 30_000));
}

#[test]
fn lanes_that_fail_and_return_are_used_again() {
    (200..225).for_each(|seed| run_with_faults(seed, &[Cut, Cut, LaneReset, Flip], 60_000));
}

#[test]
fn ends_that_are_reset_or_replaced_become_ready_again() {
    (300..325).for_each(|seed| run_with_faults(seed, &[LinkReset, LaneReset, Restart, Cut], 60_000));
}

#[test]
fn all_faults_together_are_survived() {
    let faults = [Flip, Burst, SlipBit, RepeatWord, LoseWord, Cut, LinkReset, LaneReset, Restart];
    (400..440).for_each(|seed| run_with_faults(seed, &faults, 60_000));
}

#[test]
fn links_recover_from_faults_without_a_reset() {
    for seed in 500..530 {
        let mut random = SplitMix64::new(seed);
        let lanes = random.between(2, 6) as usize;
        let all = u16::MAX >> (MAX_LANES - lanes);
        let mut link = Link::started(lanes);
        link.run_until_ready([all; 2]);
        for _ in 0..10 {
            // Errors on all lanes for some time, in one direction or both.
            let (errors, directions) = (random.between(1, 60), random.between(1, 3));
            for _ in 0..errors {
                for (end, other) in link.ends.iter_mut().enumerate() {
                    if directions >> end & 1 == 1 {
                        other.lines.iter_mut().for_each(|line| line.flips = random.next_u64() & ((1 << LINE_BITS) - 1));
                    }
                }
                link.step();
            }
            link.run(1_000);
            link.run_until_ready([all; 2]);
            link.run_without_errors(500);
        }
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_words_on_all_lanes_do_not_panic(
        lanes in 1..4_usize,
        words in proptest::collection::vec((0..4_usize, 0..12_u8, proptest::prelude::any::<[u8; 4]>()), 0..600),
    ) {
        let mut link = Link::started(lanes);
        link.run_until_ready([u16::MAX >> (MAX_LANES - lanes); 2]);
        let End { layer, sent, .. } = &mut link.ends[0];
        for (lane, choice, characters) in words {
            let word = match choice {
                0 => None,
                1 => Some(Word::RXERR),
                2..4 => Some(Word::comma([0xFC, 0x77, characters[2], !characters[2]])),
                4 => Some(Word::comma([0xFC, characters[1], characters[2], characters[3]])),
                5 => Some(Word::comma([0xFC, 0x20, characters[0] & 7, 0])),
                _ => Some(Word { characters, control: choice & 1 }),
            };
            layer.receive(lane % lanes, word);
            if let Some(super::super::RxRow::Data(words)) = layer.next_row() {
                proptest::prop_assert!((1..=lanes).contains(&words.len()));
            }
            layer.transmit(|lanes| Some(super::super::TxRow::Data(&[Word::RXERR; MAX_LANES][..lanes])), sent);
        }
    }
}
