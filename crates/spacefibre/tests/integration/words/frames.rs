//! The same packets over words and over frames in datagrams.

use super::*;
use shotline_spacefibre::frames::{FrameConfig, FrameLink, Output};
use shotline_spacefibre::link::DataLink;
use shotline_wire::spacefibre::ControlWord;
use shotline_wire::spacefibre::crc::{CRC16_INIT, crc16_update};
use shotline_wire::spacefibre::datagram::{Header, Record};

/// Virtual channel, and for each lane the characters of its data words and of its EDF.
type Frame = (u8, Vec<Vec<[u8; 4]>>);

/// Credit that is never used up, so that the segments do not depend on when FCTs arrive.
const INPUT_WORDS: u32 = 1 << 15;

fn wide_channels(shape: Shape) -> Vec<VcConfig> {
    channels(shape).into_iter().map(|channel| VcConfig { input_words: INPUT_WORDS, ..channel }).collect()
}

/// Takes the packets of both ends away until they have all credit.
fn hold_back(sources: [&mut Traffic; 2]) -> [Traffic; 2] {
    sources.map(|source| std::mem::replace(source, Traffic::new(&mut SplitMix64::new(0), 0, 0, 1)))
}

/// The last FCT is sent only if all of it fits: up to 512 words.
fn has_all_credit(link: &mut DataLink, shape: Shape) -> bool {
    (0..shape.vcs).all(|vc| link.credit(vc).is_some_and(|(credit, _)| credit > INPUT_WORDS - 512))
}

struct Datagram(Vec<u8>);

impl Output for Datagram {
    fn remaining(&mut self) -> usize {
        FrameLink::datagram_bytes(16, 2) - self.0.len()
    }
    fn append(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Sends the packets of a shape over frames. Returns the sinks and the data frames of each end.
fn over_frames(seed: u64, shape: Shape) -> ([Received; 2], [Vec<Frame>; 2]) {
    let mut random = SplitMix64::new(seed);
    let lanes = shape.lanes as u8;
    let mut ends = [1, 2].map(|seed| {
        let config = FrameConfig { lanes, scrambled: shape.scrambled, seed };
        FrameLink::new(config, &wide_channels(shape)).unwrap()
    });
    let mut sources = [(); 2].map(|()| {
        let traffic = Traffic::new(&mut random, shape.vcs, shape.packets, shape.max_len);
        // As `Link::new` uses the random numbers.
        (0..shape.lanes).for_each(|_| _ = (random.below(3), random.chance(0.2)));
        traffic
    });
    let mut sinks = [(); 2].map(|()| Received::new(shape.vcs));
    let [first, second] = &mut sources;
    let mut held = Some(hold_back([first, second]));
    let mut frames = [const { Vec::new() }; 2];
    for round in 0.. {
        if held.is_some() && ends.iter_mut().all(|end| has_all_credit(end.link(), shape)) {
            sources = held.take().unwrap();
        }
        if held.is_none()
            && sources.iter().all(Traffic::is_done)
            && ends.iter_mut().all(|end| end.link().is_all_acknowledged())
        {
            break;
        }
        assert!(round < 100_000);
        for from in 0..2 {
            let to = 1 - from;
            let mut datagram = Datagram(Vec::new());
            if ends[from].transmit(round * 1_000_000, &mut sources[from], &mut datagram) {
                frames[from].extend(frames_of(&datagram.0, lanes));
                ends[to].receive(&mut datagram.0, &mut sources[to], &mut sinks[to]);
            }
        }
    }
    (sinks, frames)
}

/// Returns the data frames of a datagram.
fn frames_of(datagram: &[u8], lanes: u8) -> Vec<Frame> {
    let mut datagram = datagram.to_vec();
    let mut bytes = &mut datagram[Header::LEN..];
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (record, body, rest) = Record::parse(bytes, lanes).unwrap();
        if let Record::Data { .. } = record {
            let words = body.as_chunks::<4>().0;
            let (data, ends) = words[1..].split_at(words.len() - 1 - usize::from(lanes));
            let column = |lane| data.iter().skip(lane).step_by(lanes.into()).chain([&ends[lane]]).copied().collect();
            frames.push((words[0][2], (0..usize::from(lanes)).map(column).collect()));
        }
        bytes = rest;
    }
    frames
}

/// Collects the data frames that a lane sends, without words that are inserted in them.
#[derive(Default)]
struct Collector {
    vc: Option<u8>,
    words: Vec<[u8; 4]>,
    is_in_broadcast: bool,
    frames: Vec<(u8, Vec<[u8; 4]>)>,
}

impl Collector {
    fn take(&mut self, word: Word) {
        match ControlWord::parse(word) {
            Ok(Some(ControlWord::StartDataFrame { vc })) => (self.vc, self.words) = (Some(vc), Vec::new()),
            Ok(Some(ControlWord::StartBroadcastFrame { .. })) => self.is_in_broadcast = true,
            Ok(Some(ControlWord::EndBroadcastFrame { .. })) => self.is_in_broadcast = false,
            Ok(Some(ControlWord::Retry | ControlWord::StartIdleFrame { .. })) => self.vc = None,
            Ok(Some(ControlWord::EndDataFrame { .. })) => {
                if let Some(vc) = self.vc.take() {
                    self.words.push(word.characters);
                    self.frames.push((vc, std::mem::take(&mut self.words)));
                }
            }
            Ok(None) if word.is_data() && !self.is_in_broadcast => self.words.push(word.characters),
            _ => {}
        }
    }
}

/// Sends the packets of a shape over words, as [`over_frames`] does.
fn over_words(seed: u64, shape: Shape) -> ([Received; 2], [Vec<Frame>; 2]) {
    let mut link = Link::new(seed, shape);
    for end in &mut link.ends {
        end.link = WordLink::new(config(shape), &wide_channels(shape)).unwrap();
        end.link.start();
    }
    let [first, second] = &mut link.ends;
    let held = hold_back([&mut first.source, &mut second.source]);
    while !link.ends.iter_mut().all(|end| has_all_credit(end.link.link(), shape)) {
        link.step();
        assert!(link.words < 200_000, "{}", link.status());
    }
    link.ends.iter_mut().zip(held).for_each(|(end, source)| end.source = source);
    let mut collectors = [(); 2].map(|()| (0..shape.lanes).map(|_| Collector::default()).collect::<Vec<_>>());
    while !link.is_done() {
        link.step();
        assert!(link.words < 200_000, "{}", link.status());
        for (end, collectors) in link.ends.iter().zip(&mut collectors) {
            for (collector, word) in collectors.iter_mut().zip(end.sent) {
                word.into_iter().for_each(|word| collector.take(word));
            }
        }
    }
    let frames = collectors.map(|collectors| {
        let count = collectors[0].frames.len();
        let frame = |index: usize| {
            let columns = collectors.iter().map(|lane| lane.frames[index].1.clone()).collect();
            (collectors[0].frames[index].0, columns)
        };
        (0..count).map(frame).collect()
    });
    (link.ends.map(|end| end.sink), frames)
}

/// Verifies the CRC-16 of each lane, and returns the frames of each channel in order without it and without the sequence
/// number, on which it depends and which counts FCTs, too.
fn checked(mut frames: Vec<Frame>) -> Vec<Frame> {
    for (vc, columns) in &mut frames {
        for column in columns {
            let (end, data) = column.split_last_mut().unwrap();
            let start = [0xFC, 0x50, *vc, 0];
            let state = [&start[..], data.as_flattened(), &end[..2]].into_iter().fold(CRC16_INIT, crc16_update);
            assert_eq!(end[2..], state.to_le_bytes());
            end[1..].fill(0);
        }
    }
    frames.sort_by_key(|(vc, _)| *vc);
    frames
}

#[test]
fn words_and_frames_deliver_the_same_packets_in_the_same_frames() {
    for lanes in [1, 2, 3, 4, 7, 16] {
        for scrambled in [true, false] {
            let (seed, vcs) = (lanes as u64, 3);
            let shape = Shape { lanes, vcs, packets: 15, max_len: 4000, scrambled };
            let ((words, word_frames), (frames, frame_frames)) = (over_words(seed, shape), over_frames(seed, shape));
            for (words, frames) in words.iter().zip(&frames) {
                assert_eq!((words.packets, words.missing), (45, 0));
                assert_eq!((frames.packets, frames.missing), (45, 0));
            }
            for (words, frames) in word_frames.into_iter().zip(frame_frames) {
                assert!(words.len() >= 45);
                assert!(checked(words) == checked(frames), "{shape:?}");
            }
        }
    }
}
