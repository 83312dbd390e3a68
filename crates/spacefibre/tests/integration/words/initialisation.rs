//! Link resets while lanes are initialised, with errors in INIT3.

use super::*;
use shotline_wire::spacefibre::{Capability, ControlWord};

/// A link without 8b/10b, whose words a test may change.
#[derive(Clone)]
struct Wires {
    ends: [WordLink; 2],
    /// Words sent in the last word time.
    sent: [[Option<Word>; MAX_LANES]; 2],
}

impl Wires {
    fn new(lanes: usize) -> Self {
        let shape = Shape { lanes, vcs: 1, packets: 0, max_len: 1, scrambled: true };
        let ends = [(); 2].map(|()| {
            let mut link = WordLink::new(config(shape), &channels(shape)).unwrap();
            link.start();
            link
        });
        Self { ends, sent: [[None; MAX_LANES]; 2] }
    }

    /// One word time, in which `change` may change the words of each direction, from end 0 or 1, and lane.
    fn step(&mut self, change: impl Fn(usize, usize, Word) -> Word) {
        for (to, end) in self.ends.iter_mut().enumerate() {
            for lane in 0..end.lanes().lanes() {
                end.receive(lane, self.sent[1 - to][lane].map(|word| change(1 - to, lane, word)));
            }
        }
        let mut nothing = Traffic::new(&mut SplitMix64::new(0), 1, 0, 1);
        for (end, sent) in self.ends.iter_mut().zip(&mut self.sent) {
            end.step(&mut nothing, &mut Received::new(1), sent);
        }
    }

    /// Runs until all lanes of both ends carry rows.
    #[track_caller]
    fn initialise(&mut self) -> usize {
        let is_up = |end: &WordLink| end.is_up() && end.lanes().data_lanes() == end.lanes().lanes();
        let mut words = 0;
        while !self.ends.iter().all(is_up) {
            self.step(|_, _, word| word);
            words += 1;
            assert!(words < 30_000, "the link does not come up");
        }
        words
    }

    fn resets(&self) -> [u64; 2] {
        self.ends.each_ref().map(|end| end.link_counters().link_resets)
    }
    fn time_outs(&self) -> [u64; 2] {
        self.ends.each_ref().map(|end| end.counters().reset_time_outs)
    }
}

#[test]
fn errors_in_the_last_words_of_init3_cost_no_link_reset() {
    for lanes in [1, 2] {
        let words = Wires::new(lanes).initialise();
        let mut wires = Wires::new(lanes);
        (0..words - 150).for_each(|_| wires.step(|_, _, word| word));
        // In each word, until after the first rows.
        for _ in 0..170 {
            for (from, lane) in (0..2).flat_map(|from| (0..lanes).map(move |lane| (from, lane))) {
                for burst in [1, 3, 13] {
                    let mut damaged = wires.clone();
                    let is_hit = |hit: (usize, usize)| hit == (from, lane);
                    for _ in 0..burst {
                        damaged.step(|from, lane, word| if is_hit((from, lane)) { Word::RXERR } else { word });
                    }
                    (0..300).for_each(|_| damaged.step(|_, _, word| word));
                    damaged.initialise();
                    assert_eq!(
                        (damaged.resets(), damaged.time_outs()),
                        ([0, 0], [0, 0]),
                        "{lanes} lanes, {burst} words"
                    );
                }
            }
            wires.step(|_, _, word| word);
        }
    }
}

#[test]
fn end_that_waits_for_the_far_ends_reset_flag_resets_again() {
    for lanes in [1, 2] {
        let mut wires = Wires::new(lanes);
        // End 0 never sees the flag of end 1, as after three INIT3s with the same error.
        let without_flag = |from, _, word| match ControlWord::parse(word) {
            Ok(Some(ControlWord::Init3(capability))) if from == 1 => {
                ControlWord::Init3(capability.with(Capability::LINK_RESET, false)).emit()
            }
            _ => word,
        };
        while !wires.ends[0].lanes().is_active() {
            wires.step(without_flag);
        }
        (0..9_990).for_each(|_| wires.step(without_flag));
        assert_eq!((wires.resets(), wires.time_outs()), ([0, 0], [0, 0]), "{lanes} lanes");
        assert!(!wires.ends[0].is_up(), "it sends no frames before both ends are reset");
        (0..20).for_each(|_| wires.step(without_flag));
        assert_eq!((wires.resets(), wires.time_outs()), ([1, 0], [1, 0]), "{lanes} lanes");
        wires.initialise();
        assert_eq!((wires.resets(), wires.time_outs()), ([1, 0], [1, 0]), "{lanes} lanes");
    }
}
