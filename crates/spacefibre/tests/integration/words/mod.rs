//! Two ends of a link word by word, over 8b/10b lines with seeded faults.

mod faults;
mod frames;
mod initialisation;
mod line;
mod single_faults;

use crate::traffic::{Received, Traffic};
use line::Line;
use shotline_random::SplitMix64;
use shotline_spacefibre::link::{BroadcastMessage, VcConfig};
use shotline_spacefibre::multilane::MAX_LANES;
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_spacefibre::words::{Lines, WordConfig, WordLink};
use shotline_wire::spacefibre::{BroadcastStatus, Word};

/// One end of a link with what it sends and receives.
#[derive(Clone)]
struct End {
    link: WordLink,
    decoders: Lines,
    source: Traffic,
    sink: Received,
    /// Words on their way to the other end.
    lines: Vec<Line>,
    /// Words sent in the last word time.
    sent: [Option<Word>; MAX_LANES],
    /// Broadcast messages posted, whose channel is their number.
    posted: u8,
}

/// Both ends of a link.
#[derive(Clone)]
struct Link {
    ends: [End; 2],
    vcs: u8,
    words: u64,
    random: SplitMix64,
}

/// Shape of a link and its traffic.
#[derive(Clone, Copy, Debug)]
struct Shape {
    lanes: usize,
    vcs: u8,
    packets: u32,
    max_len: u64,
    scrambled: bool,
}

/// Configuration of lanes whose initialisation takes few words.
fn config(shape: Shape) -> WordConfig {
    let mut config = WordConfig::at_rate(shape.lanes, 6_250_000_000);
    config.scrambled = shape.scrambled;
    config.lanes.skip_interval_words = 300;
    config.lanes.lane.init_random_words = 8;
    config.lanes.lane.clear_line_words = 60;
    config
}

fn channels(shape: Shape) -> Vec<VcConfig> {
    let share = Share::from_parts(65_536 / u32::from(shape.vcs)).unwrap();
    let channel = VcConfig { qos: VcQos::new(0, share), input_words: 4 * 64 * shape.lanes as u32 };
    vec![channel; shape.vcs.into()]
}

impl Link {
    /// Creates a link whose lanes have a skew of up to 2 words, which SKIPs make one more.
    fn new(seed: u64, shape: Shape) -> Self {
        let mut random = SplitMix64::new(seed);
        let ends = [(); 2].map(|()| {
            let mut link = WordLink::new(config(shape), &channels(shape)).unwrap();
            link.start();
            End {
                link,
                decoders: Lines::new(shape.lanes),
                source: Traffic::new(&mut random, shape.vcs, shape.packets, shape.max_len),
                sink: Received::new(shape.vcs),
                lines: (0..shape.lanes).map(|_| Line::new(3 + random.below(3) as usize, random.chance(0.2))).collect(),
                sent: [None; MAX_LANES],
                posted: 0,
            }
        });
        Self { ends, vcs: shape.vcs, words: 0, random }
    }

    /// One word time.
    fn step(&mut self) {
        self.words += 1;
        for from in 0..2 {
            let [near, far] = &mut self.ends;
            let (from, to) = if from == 0 { (near, far) } else { (far, near) };
            for (lane, line) in from.lines.iter_mut().enumerate() {
                line.send(from.sent[lane], &mut self.random);
                match line.receive() {
                    Some(bits) => bits.for_each(|bits| to.decoders.receive(&mut to.link, lane, Some(bits))),
                    None => to.decoders.receive(&mut to.link, lane, None),
                }
            }
        }
        for End { link, source, sink, sent, .. } in &mut self.ends {
            link.step(source, sink, sent);
        }
    }

    fn run(&mut self, words: u64) {
        (0..words).for_each(|_| self.step());
    }

    /// Releases what the sinks of slow receivers hold, on these channels.
    fn release(&mut self, vcs: u32) {
        for End { link, sink, .. } in &mut self.ends {
            for (vc, held) in (0..).zip(sink.held.iter_mut().flatten()).filter(|(vc, _)| vcs >> vc & 1 == 1) {
                link.release(vc, std::mem::take(held));
            }
        }
    }

    /// Returns `true` if all packets have been read and everything is acknowledged.
    fn is_done(&mut self) -> bool {
        self.ends
            .iter_mut()
            .all(|end| end.link.is_up() && end.source.is_done() && end.link.link().is_all_acknowledged())
    }

    /// Returns `true` if all lanes of both ends carry rows.
    fn is_all_up(&self) -> bool {
        self.ends.iter().all(|End { link, lines, .. }| link.is_up() && link.lanes().data_lanes() == lines.len())
    }

    /// Runs until all has arrived, and the elastic buffers have their delay again.
    #[track_caller]
    fn finish(&mut self) {
        self.run(2_000);
        let limit = self.words + 400_000;
        while !(self.is_done() && self.is_all_up()) {
            assert!(self.words < limit, "{}", self.status());
            self.release(u32::MAX);
            self.step();
        }
        // The last FCTs and ACKs.
        self.release(u32::MAX);
        self.run(500);
    }

    fn status(&self) -> String {
        let status = |End { link, .. }: &End| {
            let lanes = link.lanes();
            let states: Vec<_> = (0..lanes.lanes()).map(|lane| lanes.lane(lane).state()).collect();
            let rows = (lanes.alignment(), lanes.data_lanes());
            format!("{rows:?} {states:?} up {} {:?} {:?}", link.is_up(), link.link_counters(), link.counters())
        };
        format!("after {} words:\n{}\n{}", self.words, status(&self.ends[0]), status(&self.ends[1]))
    }

    /// Verifies that credit, buffers and counters of a link without traffic balance.
    #[track_caller]
    fn check_balance(&mut self) {
        assert!(self.is_done(), "{}", self.status());
        let status = self.status();
        for from in 0..2 {
            for vc in 0..self.vcs {
                let [credit, granted] = [(from, 0), (1 - from, 1)].map(|(end, direction)| {
                    let (credit, granted) = self.ends[end].link.link().credit(vc).unwrap();
                    [credit, granted][direction]
                });
                assert_eq!(credit, granted, "channel {vc} from end {from}, {status}");
            }
            let End { link, .. } = &self.ends[from];
            let (counters, own, lanes) = (link.link_counters(), link.counters(), link.lanes().counters());
            let frames = counters.frames_in + counters.frames_dropped + own.frames_cut;
            assert_eq!(own.data_frames, frames + u64::from(link.is_receiving_data()), "{status}");
            assert_eq!((lanes.events_lost, lanes.overrun_words), (0, 0), "{status}");
        }
    }

    /// Verifies that each packet and broadcast message has arrived once.
    #[track_caller]
    fn check_all_arrived(&mut self, packets: u64) {
        let status = self.status();
        let posted = [self.ends[1].posted, self.ends[0].posted];
        for (end, posted) in self.ends.iter().zip(posted) {
            assert_eq!((end.sink.packets, end.sink.missing), (packets, 0), "{status}");
            let channels: Vec<_> = end.sink.broadcasts.iter().map(|message| message.channel).collect();
            assert_eq!(channels, (0..posted).collect::<Vec<_>>(), "{status}");
            assert!(end.sink.broadcasts.iter().all(|message| message.data == [message.channel; 8]));
        }
    }

    /// Posts a broadcast message at an end.
    fn post(&mut self, end: usize) {
        let End { link, posted, .. } = &mut self.ends[end];
        let message =
            BroadcastMessage { channel: *posted, kind: 3, data: [*posted; 8], status: BroadcastStatus::default() };
        if *posted < u8::MAX && link.is_up() && link.link().post_broadcast(message) {
            *posted += 1;
        }
    }
}

#[test]
fn all_packets_arrive_over_perfect_lines() {
    for lanes in [1, 2, 3, 4, 8, 16] {
        let shape = Shape { lanes, vcs: 1 + lanes as u8, packets: 12, max_len: 3000, scrambled: lanes != 2 };
        let mut link = Link::new(lanes as u64, shape);
        while !link.is_all_up() {
            link.step();
        }
        // The end that is ready first sends rows that the other one cannot receive yet.
        link.run(300);
        let errors = |link: &Link| {
            link.ends.each_ref().map(|End { link, .. }| {
                let (counters, own) = (link.link_counters(), link.counters());
                let errors = [counters.retries, counters.nacks_out, counters.frames_dropped, counters.link_resets];
                (errors, own.frames_cut, own.malformed_frames)
            })
        };
        let before = errors(&link);
        while !link.is_done() {
            link.run(100);
            (0..2).for_each(|end| link.post(end));
        }
        link.finish();
        assert_eq!(errors(&link), before, "{lanes} lanes");
        link.check_balance();
        link.check_all_arrived(12 * u64::from(shape.vcs));
        assert!(link.ends.iter().all(|end| end.posted > 10));
        let mut messages = link.ends.iter().flat_map(|end| &end.sink.broadcasts);
        assert!(messages.all(|message| !message.status.late), "a message that is sent once, and at once, is not late");
    }
}

#[test]
fn messages_that_waited_or_were_sent_again_are_late() {
    let shape = Shape { lanes: 2, vcs: 1, packets: 0, max_len: 1, scrambled: true };
    let mut link = Link::new(1, shape);
    // Before a lane is active.
    let message = BroadcastMessage { channel: 0, kind: 3, data: [0; 8], status: BroadcastStatus::default() };
    assert!(link.ends[0].link.link().post_broadcast(message));
    link.ends[0].posted = 1;
    link.finish();
    assert!(link.ends[1].sink.broadcasts[0].status.late);
    let mut resent = 0;
    for (word, number) in (0..14).zip(1..) {
        let retries = |link: &Link| link.ends[0].link.link_counters().retries;
        let before = retries(&link);
        link.post(0);
        link.run(word);
        // In one word of the message, or before or after it.
        link.ends[0].lines[1].flips = 1 << 17;
        while link.ends[1].sink.broadcasts.len() <= number {
            link.step();
        }
        assert_eq!(link.ends[1].sink.broadcasts[number].status.late, retries(&link) > before, "after {word} words");
        resent += retries(&link) - before;
        link.finish();
    }
    assert!((4..=8).contains(&resent), "{resent} messages were hit");
    link.check_all_arrived(0);
}

#[test]
fn slow_receiver_stops_only_its_own_channel() {
    let mut link = Link::new(1, Shape { lanes: 2, vcs: 2, packets: 30, max_len: 3000, scrambled: true });
    link.ends[1].sink.held = Some(vec![0; 2]);
    for _ in 0..60_000 {
        link.step();
        link.release(0b10);
    }
    let words = link.ends[1].sink.held.as_ref().unwrap()[0];
    let (_, granted) = link.ends[1].link.link().credit(0).unwrap();
    assert_eq!(words + granted, 512, "all of the input buffer is in use or granted");
    assert_eq!((link.ends[1].sink.packets_of(1), link.ends[0].sink.packets), (30, 60));
    link.finish();
    link.check_balance();
    link.check_all_arrived(60);
}

#[test]
fn far_end_without_several_lanes_uses_lane_0_only() {
    let mut link = Link::new(1, Shape { lanes: 1, vcs: 1, packets: 20, max_len: 1000, scrambled: true });
    let shape = Shape { lanes: 4, vcs: 1, packets: 20, max_len: 3000, scrambled: true };
    link.ends[1].link = WordLink::new(config(shape), &channels(shape)).unwrap();
    link.ends[1].link.start();
    link.finish();
    assert!(link.ends[1].link.lanes().is_bypass());
    link.check_balance();
    link.check_all_arrived(20);
}
