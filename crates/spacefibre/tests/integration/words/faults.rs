//! Links over lines with faults, each from a seed.

use super::line::WORD;
use super::*;
use shotline_testing::seeds;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// Nothing arrives from a lane for some time.
    Cut,
    /// Nothing arrives from any lane in either direction for some time.
    CutAll,
    /// One lane is reset.
    LaneReset,
    /// An end resets the link.
    LinkReset,
    /// Both ends reset the link at once.
    BothReset,
    /// A receiver reads what it has held, and from now on more or less at once.
    Read,
    /// A broadcast message.
    Broadcast,
}

use Fault::{
    BothReset, Broadcast, Burst, Cut, CutAll, Flip, LaneReset, LinkReset, LoseWord, Read, RepeatWord, SlipBit,
};

/// Faults, and the range of mean word times between them.
struct Campaign<'a> {
    faults: &'a [Fault],
    interval: [u64; 2],
    words: u64,
}

struct Inflictor {
    link: Link,
    /// Word time until which each lane of each direction is cut.
    cut_until: [[u64; 6]; 2],
}

impl Inflictor {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x5EED);
        let shape = Shape {
            lanes: random.between(1, 5) as usize,
            vcs: random.between(1, 5) as u8,
            packets: 20,
            max_len: *[40, 1000, 5000].get(random.below(3) as usize).unwrap(),
            scrambled: random.chance(0.8),
        };
        let mut link = Link::new(seed, shape);
        for end in &mut link.ends {
            // A receiver that is slow.
            end.sink.held = random.chance(0.3).then(|| vec![0; shape.vcs.into()]);
        }
        Self { link, cut_until: [[0; 6]; 2] }
    }

    fn run(&mut self, campaign: &Campaign<'_>) {
        let [least, most] = campaign.interval;
        let mean = self.link.random.between(least, most);
        while self.link.words < campaign.words {
            if self.link.random.below(mean) == 0 {
                let fault = self.link.random.choose(campaign.faults);
                self.inflict(fault);
            }
            if self.link.random.below(300) == 0 {
                let event = self.link.random.choose(&[Read, Broadcast]);
                self.inflict(event);
            }
            let words = self.link.words;
            for (end, cut_until) in self.link.ends.iter_mut().zip(&self.cut_until) {
                for (line, until) in end.lines.iter_mut().zip(cut_until) {
                    line.is_cut = words < *until;
                }
            }
            self.link.step();
        }
        self.link.ends.iter_mut().flat_map(|end| &mut end.lines).for_each(|line| line.is_cut = false);
    }

    fn inflict(&mut self, fault: Fault) {
        let Link { ends, random, words, .. } = &mut self.link;
        let end = random.below(2) as usize;
        let lane = random.below(ends[0].lines.len() as u64) as usize;
        let line = &mut ends[end].lines[lane];
        match fault {
            Flip => line.flips ^= 1 << random.below(40),
            Burst => line.flips ^= random.next_u64() & WORD,
            SlipBit => line.slip_bit(random),
            RepeatWord => line.repeat_word(),
            LoseWord => line.lose_word(),
            Cut => self.cut_until[end][lane] = *words + random.between(1, 6_000),
            CutAll => {
                let until = *words + random.between(1, 6_000);
                self.cut_until = [[until; 6]; 2];
            }
            LaneReset => ends[end].link.lanes_mut().reset_lane(lane),
            LinkReset => ends[end].link.reset(),
            BothReset => ends.iter_mut().for_each(|end| end.link.reset()),
            Read => {
                let vcs = random.next_u64() as u32;
                self.link.release(vcs);
            }
            Broadcast => self.link.post(end),
        }
    }
}

/// Runs a campaign without link resets: everything must arrive exactly once.
fn run_without_resets(seed: u64, campaign: &Campaign<'_>) -> Link {
    let mut inflictor = Inflictor::new(seed);
    // An error in INIT3 can lead to another link reset.
    while !inflictor.link.is_all_up() {
        inflictor.link.step();
    }
    inflictor.run(campaign);
    let mut link = inflictor.link;
    link.finish();
    link.check_balance();
    link.check_all_arrived(20 * u64::from(link.vcs));
    let resets = link.ends.each_ref().map(|end| end.link.link_counters().link_resets);
    assert_eq!(resets, [0, 0], "{}", link.status());
    link
}

#[test]
fn packets_arrive_once_and_in_order_despite_bit_errors() {
    let (mut retries, mut resent) = (0, 0);
    for seed in seeds(0..24) {
        let campaign = Campaign { faults: &[Flip, Flip, Flip, Burst], interval: [20, 2_000], words: 12_000 };
        let link = run_without_resets(seed, &campaign);
        retries += link.ends[0].link.link_counters().retries;
        resent += link.ends[0].link.link_counters().items_resent;
    }
    assert!(retries > 0 && resent > 0);
}

#[test]
fn packets_arrive_despite_lost_and_repeated_words() {
    for seed in seeds(100..120) {
        let faults = [SlipBit, RepeatWord, LoseWord, Flip];
        run_without_resets(seed, &Campaign { faults: &faults, interval: [200, 4_000], words: 15_000 });
    }
}

#[test]
fn packets_arrive_although_lanes_fail_and_return() {
    for seed in seeds(200..216) {
        let faults = [Cut, Cut, CutAll, LaneReset, Flip];
        run_without_resets(seed, &Campaign { faults: &faults, interval: [1_000, 6_000], words: 25_000 });
    }
}

#[test]
fn packets_after_link_resets_are_whole() {
    let mut resets = 0;
    for seed in seeds(300..316) {
        let mut inflictor = Inflictor::new(seed);
        let faults = [LinkReset, LinkReset, BothReset, Flip, Burst, Cut, LoseWord];
        inflictor.run(&Campaign { faults: &faults, interval: [500, 6_000], words: 25_000 });
        let mut link = inflictor.link;
        link.finish();
        link.check_balance();
        for end in 0..2 {
            let counters = link.ends[end].link.link_counters();
            assert_eq!(counters.protocol_errors + counters.input_overflows, 0, "{}", link.status());
            resets += counters.link_resets;
            // The link carries whole packets again, and broadcast messages in order.
            assert!(link.ends[end].source.is_done());
            let broadcasts = &link.ends[end].sink.broadcasts;
            assert!(broadcasts.is_sorted_by(|a, b| a.channel < b.channel), "{}", link.status());
        }
    }
    assert!(resets > 16, "{resets}");
}
