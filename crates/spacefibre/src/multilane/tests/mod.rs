//! Two ends of a multi-lane link, connected by simulated lines, with frames that the receiver can verify.

mod faults;
mod link;
mod rows;
mod traffic;

use super::{Alignment, MAX_LANES, MultiLane, MultiLaneConfig, MultiLaneEvent};
use crate::lane::Lane;
use shotline_random::SplitMix64;
use shotline_wire::spacefibre::Word;
use shotline_wire::spacefibre::line::{Decoder, Encoder, LINE_BITS};
use std::collections::VecDeque;
use traffic::{Sink, Source};

/// Line of one lane in one direction: 8b/10b, a delay, and faults.
struct Line {
    encoder: Encoder,
    decoder: Decoder,
    /// Line bits of words on the way.
    words: VecDeque<Option<u64>>,
    /// Bits that have arrived and are no whole word yet.
    bits: u128,
    len: u32,
    /// Whether the two wires are swapped.
    is_inverted: bool,
    /// Whether nothing arrives.
    is_cut: bool,
    /// Bits to be inverted in the next word.
    flips: u64,
}

impl Line {
    fn new(delay: usize) -> Self {
        Self {
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            words: vec![None; delay].into(),
            bits: 0,
            len: LINE_BITS / 2,
            is_inverted: false,
            is_cut: false,
            flips: 0,
        }
    }

    /// Loses or repeats a bit.
    fn slip_bit(&mut self, random: &mut SplitMix64) {
        if random.chance(0.5) {
            self.bits >>= 1;
            self.len = self.len.saturating_sub(1);
        } else {
            self.bits <<= 1;
            self.len += 1;
        }
    }

    /// Transfers a word, and returns those that the decoder of the receiving lane returns, or `None` without signal.
    fn transfer(&mut self, word: Option<Word>, receiver: &Lane) -> Option<Vec<Word>> {
        self.words.push_back(word.map(|word| self.encoder.encode(word)));
        let arrived = self.words.pop_front().flatten().filter(|_| !self.is_cut);
        if !receiver.receives() {
            self.decoder.reset();
        }
        self.decoder.set_inverted(receiver.invert_rx());
        let flips = std::mem::take(&mut self.flips) ^ if self.is_inverted { (1 << LINE_BITS) - 1 } else { 0 };
        self.bits |= u128::from(arrived? ^ flips) << self.len;
        self.len += LINE_BITS;
        let mut words = Vec::new();
        while self.len >= LINE_BITS {
            words.push(self.decoder.decode(self.bits as u64));
            self.bits >>= LINE_BITS;
            self.len -= LINE_BITS;
        }
        Some(words)
    }
}

/// One end of a link with what it sends and receives.
struct End {
    layer: MultiLane,
    source: Source,
    sink: Sink,
    /// Words on their way to the other end.
    lines: Vec<Line>,
    /// Words sent in the last word time.
    sent: [Option<Word>; MAX_LANES],
    events: Vec<MultiLaneEvent>,
}

/// Both ends of a link.
struct Link {
    ends: [End; 2],
    words: u64,
}

impl Link {
    /// Creates a link with these configurations, and a delay of each lane.
    fn new(configs: [MultiLaneConfig; 2], delay: impl Fn(usize) -> usize) -> Self {
        let mut seed = 0;
        let ends = configs.map(|config| {
            seed += 1;
            End {
                layer: MultiLane::new(config).unwrap(),
                source: Source::new(seed),
                sink: Sink::default(),
                lines: (0..config.lanes).map(|lane| Line::new(delay(lane))).collect(),
                sent: [None; MAX_LANES],
                events: Vec::new(),
            }
        });
        Self { ends, words: 0 }
    }

    /// Creates a link of lanes that start automatically, without skew.
    fn started(lanes: usize) -> Self {
        let mut link = Self::new([config(lanes); 2], |_| 3);
        link.start();
        link
    }

    fn start(&mut self) {
        for end in &mut self.ends {
            end.layer.set_start(u16::MAX, true);
        }
    }

    /// One word time.
    fn step(&mut self) {
        self.words += 1;
        for end in &mut self.ends {
            let End { layer, source, sent, .. } = end;
            layer.transmit(|lanes| source.next_row(lanes), sent);
        }
        let [near, far] = &mut self.ends;
        deliver(near, far);
        deliver(far, near);
    }

    fn run(&mut self, words: u64) {
        (0..words).for_each(|_| self.step());
    }

    /// Runs until both ends are ready with these data-sending lanes.
    #[track_caller]
    fn run_until_ready(&mut self, lanes: [u16; 2]) {
        let limit = self.words + 40_000;
        while !self.is_ready(lanes) {
            assert!(self.words < limit, "{}", self.status());
            self.step();
        }
    }

    fn is_ready(&self, lanes: [u16; 2]) -> bool {
        self.ends.iter().zip(lanes).all(|(end, lanes)| {
            end.layer.alignment() == Alignment::BothEndsReady && end.layer.data_sending_lanes() == lanes
        })
    }

    fn status(&self) -> String {
        let status = |End { layer, .. }: &End| {
            let states: Vec<_> = (0..layer.lanes()).map(|lane| layer.lane(lane).state()).collect();
            format!("{:?} {:?} {states:?} {:?}", layer.alignment(), layer.data_sending_lanes(), layer.counters())
        };
        format!("after {} words: {}; {}", self.words, status(&self.ends[0]), status(&self.ends[1]))
    }

    /// Runs word times in which both ends must receive frames and no error, once the present frame has ended: lanes
    /// that joined in it have not sent its beginning.
    #[track_caller]
    fn run_without_errors(&mut self, words: u64) {
        self.run(300);
        let before = self.ends.each_ref().map(|end| (end.sink.errors, end.sink.frames));
        self.run(words);
        for (end, (errors, frames)) in self.ends.iter().zip(before) {
            assert_eq!(end.sink.errors, errors, "{}", self.status());
            assert!(end.sink.frames > frames, "{}", self.status());
        }
    }
}

/// Transfers the words of one end to the other.
fn deliver(from: &mut End, to: &mut End) {
    for lane in 0..to.layer.lanes() {
        let line = from.lines.get_mut(lane);
        match line.and_then(|line| line.transfer(from.sent[lane], to.layer.lane(lane))) {
            Some(words) => words.into_iter().for_each(|word| to.layer.receive(lane, Some(word))),
            None => to.layer.receive(lane, None),
        }
    }
    while let Some(row) = to.layer.next_row() {
        to.sink.receive(row);
    }
    to.events.extend(std::iter::from_fn(|| to.layer.next_event()));
}

/// Configuration of lanes whose initialisation takes few words.
fn config(lanes: usize) -> MultiLaneConfig {
    let mut config = MultiLaneConfig { skip_interval_words: 300, ..MultiLaneConfig::at_rate(lanes, 6_250_000_000) };
    config.lane.init_random_words = 8;
    config
}
