//! The committed seed of the fuzz target `spacefibre_frame_link`, run through its own function.

#[path = "../../../../fuzz/src/frame_link.rs"]
mod targets;

use shotline_random::SplitMix64;
use shotline_testing::assert_committed;
use shotline_wire::spacefibre::datagram::Record;
use shotline_wire::spacefibre::{ControlWord, SequenceNumber};
use std::path::PathBuf;

/// Kinds of the pieces of an input.
const RECORDS: u8 = 1;
const AFTER_A_GAP: u8 = 2;
const POST: u8 = 3;
const RELEASE: u8 = 4;
const INITIALISE: u8 = 5;

fn piece(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, bytes.len() as u8], bytes].concat()
}

fn words(words: &[ControlWord]) -> Vec<u8> {
    let characters: Vec<_> = words.iter().flat_map(|word| word.emit().characters).collect();
    [&Record::Words { count: words.len() as u16 }.emit(), characters.as_slice()].concat()
}

/// Control words in and out of sequence, a lost datagram, packets to send and a reset of the far end.
fn controls() -> Vec<u8> {
    let seq = |count| SequenceNumber { count, negative: false };
    let fct = |vc, count| ControlWord::FlowControlToken { vc, multiplier: 4, seq: seq(count) };
    let pieces = [
        piece(RECORDS, &words(&[fct(0, 1), fct(1, 2)])),
        piece(POST, &[0; 9]),
        piece(RECORDS, &words(&[ControlWord::Ack { seq: seq(3) }, fct(0, 3)])),
        piece(AFTER_A_GAP, &words(&[ControlWord::Nack { seq: seq(4) }, ControlWord::Retry])),
        piece(RECORDS, &words(&[ControlWord::Full { seq: seq(3) }, ControlWord::StartIdleFrame { seq: seq(3) }])),
        piece(RELEASE, &[]),
        piece(INITIALISE, &[]),
        piece(RECORDS, &words(&[fct(0, 1), fct(9, 2), ControlWord::Ack { seq: seq(99) }])),
        piece(POST, &[]),
    ];
    [vec![3], pieces.concat()].concat()
}

#[test]
fn committed_seed_and_its_mutations_hold() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds/spacefibre_frame_link"].iter().collect();
    let bytes = controls();
    assert_committed(&folder.join("controls"), &bytes);
    (0..=bytes.len()).for_each(|len| targets::spacefibre_frame_link(&bytes[..len]));
    for (at, bit) in (0..8 * bytes.len()).map(|bit| (bit / 8, bit % 8)) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        targets::spacefibre_frame_link(&changed);
    }
}

#[test]
fn random_datagrams_hold() {
    for seed in shotline_testing::seeds(0..300) {
        let mut random = SplitMix64::new(seed);
        let mut bytes = vec![random.next_u64() as u8];
        for _ in 0..random.below(40) {
            let mut piece = vec![0; 2 + random.below(200) as usize];
            random.fill_bytes(&mut piece);
            piece[1] = (piece.len() - 2) as u8;
            if random.chance(0.5) && piece.len() > 2 {
                // The kind of a record.
                piece[2] = 1 + random.below(3) as u8;
            }
            bytes.extend(piece);
        }
        targets::spacefibre_frame_link(&bytes);
    }
}
