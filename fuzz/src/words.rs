//! Invariants of arbitrary words on the lanes of a SpaceFibre link.

use crate::ends::{Counts, Packets, VCS};
use shotline_spacefibre::link::{BroadcastMessage, MAX_UNACKNOWLEDGED, VcConfig};
use shotline_spacefibre::multilane::MAX_LANES;
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_spacefibre::words::{WordConfig, WordLink};
use shotline_wire::spacefibre::crc::crc8;
use shotline_wire::spacefibre::{ControlWord, Word};
use std::sync::OnceLock;

const INPUT_WORDS: u32 = 512;
/// K flags of a piece that is not a word but an event: no word has them.
pub const EVENT: u8 = 0b0110;

/// One end with what it sends and receives.
#[derive(Clone)]
pub struct End {
    /// The end.
    pub link: WordLink,
    /// What it sends.
    pub source: Packets,
    /// What it has received.
    pub sink: Counts,
    /// Words sent in the last word time.
    pub sent: [Option<Word>; MAX_LANES],
}

impl End {
    /// Ends a word time.
    pub fn step(&mut self) {
        self.link.step(&mut self.source, &mut self.sink, &mut self.sent);
    }

    /// Releases what the sink holds.
    fn release(&mut self) {
        for (vc, held) in (0..).zip(&mut self.sink.held) {
            self.link.release(vc, std::mem::take(held));
        }
    }
}

/// Returns both ends of a link of 1 to 3 lanes that is up and has nothing to send.
pub fn active_link(lanes: usize) -> [End; 2] {
    static LINKS: [OnceLock<[End; 2]>; 3] = [const { OnceLock::new() }; 3];
    LINKS[lanes - 1].get_or_init(|| connect(lanes)).clone()
}

fn connect(lanes: usize) -> [End; 2] {
    let config = WordConfig::at_rate(lanes, 1_000_000_000);
    let half = Share::from_percent(50).expect("50 % is a share");
    let channel = VcConfig { qos: VcQos::new(0, half), input_words: INPUT_WORDS };
    let mut ends = [(); 2].map(|()| {
        let mut link = WordLink::new(config, &[channel; VCS as usize]).expect("1 to 3 lanes and shares of 100 %");
        link.start();
        End { link, source: Packets::default(), sink: Counts::default(), sent: [None; MAX_LANES] }
    });
    // FCTs of 3 lanes cover 384 of the 512 words of an input buffer.
    let is_quiet = |end: &mut End| {
        let link = end.link.link();
        link.is_all_acknowledged()
            && link.credit(0).is_some_and(|(credit, granted)| credit + granted >= INPUT_WORDS * 3 / 2)
    };
    while !ends.iter_mut().all(is_quiet) {
        for (end, other) in [(0, 1), (1, 0)] {
            (0..lanes).for_each(|lane| {
                let word = ends[other].sent[lane];
                ends[end].link.receive(lane, word);
            });
            ends[end].step();
        }
    }
    ends
}

/// Lanes (1 byte), then pieces of 5 bytes: flags and 4 characters.
///
/// Flags: bits 3:0 K flags, or [`EVENT`]; bits 5:4 the lane, 3 for all lanes; bit 6 corrects the CRC-8 of a control word;
/// bit 7 ends the word time.
pub fn spacefibre_word_link(data: &[u8]) {
    run(data);
}

/// Runs the pieces, and returns the number of words and broadcast messages that were accepted.
pub fn run(data: &[u8]) -> [u64; 2] {
    let Some((lanes, pieces)) = data.split_first() else { return [0; 2] };
    let lanes = usize::from(lanes % 3) + 1;
    let [mut end, _] = active_link(lanes);
    for &[flags, a, b, c, d] in pieces.as_chunks().0 {
        let mut word = Word { characters: [a, b, c, d], control: flags & 0xF };
        if flags >> 6 & 1 == 1 && ControlWord::parse(word).is_err() {
            word.characters[3] = crc8(&[a, b, c]);
        }
        let lane = usize::from(flags >> 4 & 3);
        let selected = if lane == 3 { 0..lanes } else { lane % lanes..lane % lanes + 1 };
        for lane in selected {
            match (word.control, a % 8) {
                (EVENT, 0) => end.link.receive(lane, None),
                (EVENT, 1) => end.link.reset(),
                (EVENT, 2) => end.source.left = b.into(),
                (EVENT, 3) => end.release(),
                (EVENT, 4) => idle(&mut end, lanes, b),
                (EVENT, 5) => _ = end.link.link().post_broadcast(message(b)),
                (EVENT, 6) => end.link.lanes_mut().reset_lane(lane),
                _ => end.link.receive(lane, Some(word)),
            }
        }
        if flags >> 7 == 1 {
            end.step();
        }
        check(&mut end);
    }
    // An end that hears nothing is bounded, too.
    idle(&mut end, lanes, 8);
    check(&mut end);
    [end.sink.words, end.sink.broadcasts]
}

fn message(channel: u8) -> BroadcastMessage {
    BroadcastMessage { channel, kind: 1, data: [channel; 8], status: Default::default() }
}

/// Runs word times in which all lanes receive IDLE.
fn idle(end: &mut End, lanes: usize, words: u8) {
    for _ in 0..words {
        (0..lanes).for_each(|lane| end.link.receive(lane, Some(ControlWord::Idle.emit())));
        end.step();
    }
}

/// Verifies that what was counted balances.
fn check(end: &mut End) {
    let End { link, sink, .. } = end;
    let (counters, own) = (*link.link_counters(), *link.counters());
    assert_eq!(counters.words_in, sink.words);
    assert_eq!((counters.broadcasts_in, counters.link_resets), (sink.broadcasts, sink.resets));
    let frames = counters.frames_in + counters.frames_dropped + own.frames_cut + u64::from(link.is_receiving_data());
    assert_eq!(own.data_frames, frames);
    assert!(link.link().unacknowledged() <= MAX_UNACKNOWLEDGED);
    for (vc, held) in (0..).zip(sink.held) {
        let (_, granted) = link.link().credit(vc).expect("the channel exists");
        assert!(granted + held <= INPUT_WORDS, "channel {vc}: {granted} words granted, {held} held");
    }
}
