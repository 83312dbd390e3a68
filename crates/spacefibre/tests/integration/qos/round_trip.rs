//! Shares of a link whose both directions are busy, with credit and acknowledgements that take a round trip.

use super::link::{random_parts, share};
use shotline_random::SplitMix64;
use shotline_spacefibre::link::{Control, DataLink, FRAME_ROWS, MAX_CREDIT_WORDS, VcConfig};
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_wire::spacefibre::{ControlWord, SequenceNumber};
use std::collections::VecDeque;

/// Frames of an input buffer, as far as the credit counter can count their words.
const INPUT_FRAMES: u32 = 128;
/// Rows of a measurement.
const ROWS: u64 = 400_000;
/// Rows of a line within which a link is full: 3.2 microseconds at 6.25 Gbit/s, 600 m.
const SHORT: u64 = 500;
/// Numbers of lanes of which one frame needs a part of an FCT, one or several.
const LANES: [u8; 6] = [1, 4, 8, 9, 12, 16];

enum Item {
    Word(ControlWord),
    Data { vc: u8, words: u32, seq: SequenceNumber },
}

/// What an end has sent in a measurement.
#[derive(Clone, Default)]
struct Sent {
    /// Data frames of each channel.
    frames: [u64; 32],
    idle_rows: u64,
    /// Frames for which a channel had no credit while another one was selected.
    without_credit: u64,
}

impl Sent {
    /// Checks that each channel has sent its share within 1 % of what the end has sent.
    #[track_caller]
    fn assert_shares(&self, parts: &[u32], case: &str) {
        let all = self.frames.iter().sum::<u64>() as f64;
        for (vc, (found, parts)) in self.frames.iter().zip(parts).enumerate() {
            let (found, expected) = (*found as f64 / all, f64::from(*parts) / 65_536.0);
            assert!((found - expected).abs() < 0.01, "{case}, channel {vc}: {found:.3} instead of {expected:.3}");
        }
    }
    /// Returns the number of data frames in each round trip of a line of `delay` rows.
    fn frames_per_round_trip(&self, delay: u64) -> f64 {
        self.frames.iter().sum::<u64>() as f64 * (2 * delay) as f64 / ROWS as f64
    }
}

/// One end, and the line to it.
struct End {
    link: DataLink,
    /// Channels that always have data.
    ready: u32,
    /// Rows sent since the beginning.
    now: u64,
    /// What is on its way to this end, with the time of its arrival.
    incoming: VecDeque<(u64, Item)>,
    sent: Sent,
}

impl End {
    fn new(lanes: u8, parts: &[u32]) -> Self {
        let input_words = (INPUT_FRAMES * FRAME_ROWS * u32::from(lanes)).min(MAX_CREDIT_WORDS);
        let channel = |parts: &u32| VcConfig { qos: VcQos::new(0, share(*parts)), input_words };
        let channels: Vec<_> = parts.iter().map(channel).collect();
        let link = DataLink::new(lanes, &channels, Share::WHOLE).unwrap();
        Self { link, ready: 0, now: 0, incoming: VecDeque::new(), sent: Sent::default() }
    }

    /// Takes what has arrived. Data frames are read at once.
    fn receive(&mut self) {
        while self.incoming.front().is_some_and(|(arrival, _)| *arrival <= self.now) {
            let Some((_, item)) = self.incoming.pop_front() else { break };
            match item {
                Item::Word(word) => self.link.on_control(word),
                Item::Data { vc, words, seq } => {
                    assert!(self.link.on_data_frame(vc, words, seq, true));
                    self.link.release(vc, words);
                }
            }
        }
        assert_eq!(self.link.take_reset(), None);
    }

    /// Sends a frame or a control word. If there is neither, no row is counted but those for which an ACK would wait, as
    /// over a carrier.
    fn send(&mut self) -> Option<Item> {
        if let Some(control) = self.link.next_control() {
            let Control::Word(word) = control else { unreachable!("{control:?}") };
            self.now += 1;
            return Some(Item::Word(word));
        }
        let Some(vc) = self.link.select(self.ready) else {
            if self.link.has_pending_ack() {
                self.link.pass_idle_rows(15);
            }
            (self.now, self.sent.idle_rows) = (self.now + 8, self.sent.idle_rows + 8);
            return None;
        };
        let words = self.link.max_segment();
        let without_credit = |vc: &u8| self.ready >> vc & 1 == 1 && self.link.segment_limit(*vc) < words;
        self.sent.without_credit += (0..32).filter(without_credit).count() as u64;
        self.sent.frames[usize::from(vc)] += 1;
        let words = self.link.segment_limit(vc);
        self.link.admit(vc, words);
        self.now += u64::from(FRAME_ROWS) + 2;
        Some(Item::Data { vc, words, seq: self.link.finish_segment() })
    }
}

/// Measures both ends of a link with these shares, whose lines take `delay` rows each. The channels of the ends in `busy`
/// always have data. The second end begins later than the first one, which then fills the link alone.
fn measure(lanes: u8, shares: [&[u32]; 2], busy: [bool; 2], delay: u64) -> [Sent; 2] {
    let mut ends = shares.map(|parts| End::new(lanes, parts));
    // Until all input buffers are granted, after at most 32 * 128 FCTs, and bandwidth credits have settled.
    let begin = 100 * delay + 100_000;
    for (until, busy) in [(begin, [busy[0], false]), (2 * begin, busy), (2 * begin + ROWS, busy)] {
        for ((end, busy), parts) in ends.iter_mut().zip(busy).zip(shares) {
            (end.sent, end.ready) = (Sent::default(), if busy { u32::MAX >> (32 - parts.len()) } else { 0 });
        }
        while ends.iter().any(|end| end.now < until) {
            let from = usize::from(ends[1].now < ends[0].now);
            ends[from].receive();
            let item = ends[from].send();
            let arrival = ends[from].now + delay;
            ends[1 - from].incoming.extend(item.map(|item| (arrival, item)));
        }
    }
    ends.map(|end| end.sent)
}

fn random_shares(vcs: usize, seed: u64) -> [Vec<u32>; 2] {
    let mut random = SplitMix64::new(seed);
    [(); 2].map(|()| random_parts(vcs, 65_536, &mut random))
}

#[test]
fn shares_are_kept_in_both_directions_of_a_full_link() {
    for lanes in LANES {
        for (vcs, seed) in [2, 3, 5, 8, 16, 32].into_iter().zip(0..) {
            let parts = random_shares(vcs, seed);
            let sent = measure(lanes, parts.each_ref().map(|parts| &parts[..]), [true; 2], SHORT);
            for (sent, parts) in sent.iter().zip(&parts) {
                let case = format!("{lanes} lanes, {vcs} channels");
                sent.assert_shares(parts, &case);
                assert_eq!((sent.idle_rows, sent.without_credit), (0, 0), "{case}");
            }
        }
    }
}

#[test]
fn no_channel_lacks_credit_while_acks_limit_a_link() {
    for lanes in LANES {
        for (vcs, seed) in [2, 3, 8, 32].into_iter().zip(100..) {
            for delay in [5_000, 10_000] {
                let parts = random_shares(vcs, seed);
                let sent = measure(lanes, parts.each_ref().map(|parts| &parts[..]), [true; 2], delay);
                for sent in sent {
                    let case = format!("{lanes} lanes, {vcs} channels, {delay} rows");
                    // An FCT covers 512 words, so neither direction takes what the other one needs.
                    let (frames, least) = (sent.frames_per_round_trip(delay), 122.0 * 8.0 / f64::from(lanes + 8));
                    assert!(frames > 0.9 * least, "{case}: {frames} of {least} frames");
                    assert_eq!(sent.without_credit, 0, "{case}");
                }
            }
        }
    }
}

#[test]
fn one_direction_has_the_whole_window_of_a_link() {
    for lanes in LANES {
        let (delay, parts) = (10_000, [45_875, 19_661]);
        let [sent, _] = measure(lanes, [&parts; 2], [true, false], delay);
        sent.assert_shares(&parts, &format!("{lanes} lanes"));
        assert_eq!(sent.without_credit, 0, "{lanes} lanes");
        // As many frames as there are items, or as the far end has FCTs for.
        let (frames, window) = (sent.frames_per_round_trip(delay), 125_f64.min(122.0 * 8.0 / f64::from(lanes)));
        assert!(frames > 0.97 * window, "{lanes} lanes: {frames} of {window}");
    }
}
