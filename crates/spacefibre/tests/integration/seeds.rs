//! The committed seeds of the fuzz target `spacefibre_word_link`, run through its own function.

#[path = "../../../../fuzz/src/words.rs"]
mod targets;

use shotline_random::SplitMix64;
use shotline_spacefibre::link::BroadcastMessage;
use shotline_testing::{assert_committed, check_mutations};
use shotline_wire::spacefibre::{BroadcastStatus, Capability, ControlWord, SequenceNumber, Word};
use std::path::PathBuf;
use targets::EVENT;

/// Flags of a piece: all lanes, and the end of a word time.
const ALL: u8 = 3 << 4;
const END: u8 = 1 << 7;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds/spacefibre_word_link"].iter().collect()
}

#[test]
fn committed_seeds_and_their_mutations_hold() {
    for (name, bytes) in seeds() {
        assert_committed(&folder().join(name), &bytes);
    }
    check_mutations(&folder(), targets::spacefibre_word_link);
}

#[test]
fn recorded_seeds_have_packets_that_are_accepted() {
    for (lanes, words) in [(1, 75), (2, 45)] {
        let accepted = targets::run(&recorded(lanes, words));
        assert_eq!(accepted, [2 * 26, 1], "{lanes} lanes");
    }
}

#[test]
fn random_words_among_recorded_ones_hold() {
    for seed in shotline_testing::seeds(0..300) {
        let mut random = SplitMix64::new(seed);
        let mut bytes = recorded(1 + (seed % 3) as u8, 200);
        for _ in 0..random.below(12) {
            let at = 1 + 5 * random.below(bytes.len() as u64 / 5) as usize;
            match random.below(4) {
                0 => random.fill_bytes(&mut bytes[at..at + 5]),
                1 => bytes[at + random.below(5) as usize] ^= 1 << random.below(8),
                2 => bytes.copy_within(at..at + 5, 1 + 5 * random.below(20) as usize),
                _ => bytes[at..at + 5].copy_from_slice(&event([random.below(8) as u8, random.below(256) as u8])),
            }
        }
        targets::run(&bytes);
    }
}

fn event(event: [u8; 2]) -> [u8; 5] {
    [EVENT | ALL | END, event[0], event[1], 0, 0]
}

fn piece(flags: u8, word: Word) -> [u8; 5] {
    let [a, b, c, d] = word.characters;
    [flags | word.control, a, b, c, d]
}

/// What the far end sends in `words` word times, with two packets and a broadcast message.
fn recorded(lanes: u8, words: usize) -> Vec<u8> {
    let [_, mut far] = targets::active_link(lanes.into());
    far.source.left = 2;
    far.link.link().post_broadcast(BroadcastMessage {
        channel: 7,
        kind: 1,
        data: *b"tick-008",
        status: BroadcastStatus::default(),
    });
    let mut seed = vec![lanes - 1];
    for _ in 0..words {
        for lane in 0..lanes {
            far.link.receive(lane.into(), Some(ControlWord::Idle.emit()));
        }
        far.step();
        for lane in 0..lanes {
            let word = far.sent[usize::from(lane)].unwrap();
            seed.extend(piece(lane << 4 | if lane + 1 == lanes { END } else { 0 }, word));
        }
    }
    seed
}

/// Control words of both directions on all lanes of a link of two lanes, and events of its user.
fn controls() -> Vec<u8> {
    let seq = |count| SequenceNumber { count, negative: false };
    let word = |word: ControlWord| piece(ALL | END, word.emit());
    let pieces = [
        event([2, 3]),
        event([5, 9]),
        word(ControlWord::FlowControlToken { vc: 0, multiplier: 2, seq: seq(9) }),
        word(ControlWord::StartIdleFrame { seq: seq(9) }),
        word(ControlWord::Ack { seq: seq(9) }),
        event([4, 40]),
        word(ControlWord::Nack { seq: seq(9) }),
        word(ControlWord::Full { seq: seq(12) }),
        word(ControlWord::Retry),
        event([3, 0]),
        word(ControlWord::Active { lanes: 3 }),
        word(ControlWord::Align { lane: 0, lanes: 2 }),
        event([6, 0]),
        word(ControlWord::Init3(Capability::MULTI_LANE.with(Capability::LINK_RESET, true))),
        event([0, 0]),
        event([1, 0]),
        event([4, 40]),
    ];
    [vec![1], pieces.concat()].concat()
}

fn seeds() -> [(&'static str, Vec<u8>); 3] {
    [("one_lane", recorded(1, 75)), ("two_lanes", recorded(2, 45)), ("controls", controls())]
}
