use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
const START_NS: u64 = 1_700_000_000_000_000_000;
const FOREVER: u64 = u64::MAX;

fn config(sources: usize, by: AlignBy) -> Config {
    Config { sources, by, disorder: 0, timeout_ns: FOREVER, quorum: 1, capacity: 64, lock_ns: 1000 }
}

fn numbered(number: u64) -> ItemMeta {
    ItemMeta { number, ..ItemMeta::default() }
}

/// Pushes an item that must be accepted, and returns the decided events: keys, and the sources present.
fn push(aligner: &mut Aligner<u64>, source: usize, now_ns: u64, meta: ItemMeta) -> Vec<(u64, Vec<bool>)> {
    aligner.push(source, now_ns, meta, meta.number).unwrap();
    decided(aligner, now_ns)
}

fn decided(aligner: &mut Aligner<u64>, now_ns: u64) -> Vec<(u64, Vec<bool>)> {
    std::iter::from_fn(|| aligner.pop(now_ns)).map(|event| (event.key, present(&event))).collect()
}

fn present<T>(event: &Event<T>) -> Vec<bool> {
    event.parts.iter().map(Result::is_ok).collect()
}

fn missing<T>(event: &Event<T>) -> Vec<Option<Missing>> {
    event.parts.iter().map(|part| part.as_ref().err().copied()).collect()
}

/// An action of a source.
#[derive(Clone, Copy, Debug)]
enum Action {
    Item(u64),
    Lost(u64, u64),
}

/// Actions of a source: its numbers in turn, some lost with or without a report, some twice, some late by up to 3; then
/// it may fall silent, and come back later.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let fault = prop_oneof![8 => Just(0_u8), 1 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4)];
    (prop::collection::vec((fault, 0..4_usize), 0..60), 0..20_u64).prop_map(|(faults, first)| {
        let mut actions = Vec::new();
        let mut number = first;
        for (fault, back) in faults {
            match fault {
                1 => actions.push(Action::Lost(number, 1 + back as u64)),
                2 => {}
                3 => actions.extend([Action::Item(number), Action::Item(number)]),
                4 => actions.insert(actions.len().saturating_sub(back), Action::Item(number)),
                _ => actions.push(Action::Item(number)),
            }
            number += if fault == 1 { 1 + back as u64 } else { 1 };
        }
        actions
    })
}

/// Reference model with the same rules: everything is remembered, nothing is indexed.
struct Model {
    config: Config,
    waiting: BTreeMap<u64, (u64, BTreeMap<usize, u64>)>,
    decided: Vec<(u64, BTreeSet<usize>)>,
    last_seen: Vec<Option<u64>>,
    newest: Vec<Option<u64>>,
    reported: Vec<BTreeSet<u64>>,
    stopped: Vec<bool>,
    lagging: Vec<bool>,
    started: Option<u64>,
}

impl Model {
    fn new(config: Config) -> Self {
        let n = config.sources;
        Self {
            config,
            waiting: BTreeMap::new(),
            decided: Vec::new(),
            last_seen: vec![None; n],
            newest: vec![None; n],
            reported: vec![BTreeSet::new(); n],
            stopped: vec![false; n],
            lagging: vec![false; n],
            started: None,
        }
    }

    fn touch(&mut self, source: usize, now: u64) {
        self.started.get_or_insert(now);
        self.last_seen[source] = Some(now);
        self.stopped[source] = false;
    }

    fn reach(&mut self, source: usize, newest: u64) {
        self.newest[source] = self.newest[source].max(Some(newest));
    }

    fn push(&mut self, source: usize, now: u64, number: u64, id: u64) -> Result<(), RefusalReason> {
        self.touch(source, now);
        self.reach(source, number);
        if self.decided.last().is_some_and(|(last, _)| number <= *last) {
            // Only as many decided events as the ring is long are remembered.
            let remembered = self.decided.iter().rev().take(self.config.capacity.next_power_of_two());
            let mut same = remembered.filter(|(key, present)| *key == number && present.contains(&source));
            let had = same.next().is_some();
            let last = self.decided.last().unwrap().0;
            self.lagging[source] = !had && last - number > self.config.capacity as u64;
            return Err(if had { RefusalReason::Duplicate } else { RefusalReason::Late });
        }
        self.lagging[source] = false;
        let (_, parts) = self.waiting.entry(number).or_insert((now, BTreeMap::new()));
        if parts.contains_key(&source) {
            return Err(RefusalReason::Duplicate);
        }
        parts.insert(source, id);
        Ok(())
    }

    fn is_past(&self, source: usize, key: u64, present: bool) -> bool {
        let limit = key + self.config.disorder;
        let reported = self.reported[source].contains(&key);
        self.stopped[source]
            || self.lagging[source]
            || self.newest[source].is_some_and(|n| n > limit || n == limit && (present || reported))
    }

    /// Returns the key and the items of the next event, if it is decided.
    fn pop(&mut self, now: u64) -> Option<(u64, BTreeMap<usize, u64>)> {
        let (key, (opened, parts)) = self.waiting.first_key_value()?;
        let all = parts.len() == self.config.sources;
        let next = self.decided.last().is_some_and(|(last, _)| last + 1 == *key);
        let settled = (0..self.config.sources).all(|s| self.is_past(s, *key, parts.contains_key(&s))) || all && next;
        let expired = now - opened >= self.config.timeout_ns;
        if !settled && !expired && self.waiting.len() < self.config.capacity {
            return None;
        }
        if !settled {
            for source in (0..self.config.sources).filter(|source| !parts.contains_key(source)) {
                let since = self.last_seen[source].unwrap_or(self.started.unwrap());
                let long = now - since >= self.config.timeout_ns;
                self.stopped[source] |= long && self.last_seen[source].is_none_or(|last_seen| last_seen < *opened);
            }
        }
        let (key, (_, parts)) = self.waiting.pop_first()?;
        self.decided.push((key, parts.keys().copied().collect()));
        Some((key, parts))
    }
}

proptest! {
    /// For any input in any order, the aligner does what the plain model does, and every item is output once.
    #[test]
    fn by_number_each_item_has_one_event_or_refusal_reason(
        sources in prop::collection::vec(actions(), 1..6),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u64), 600),
        (disorder, timeout_ns, quorum, capacity) in
            (0..4_u64, prop_oneof![10..60_u64, Just(FOREVER)], 1..4_usize, 1..24_usize),
    ) {
        let config = Config { disorder, timeout_ns, quorum, capacity, ..config(sources.len(), AlignBy::Number) };
        let (mut aligner, mut model) = (Aligner::new(config), Model::new(config));
        let mut left: Vec<_> = sources.iter().map(|actions| actions.iter()).collect();
        let (mut now, mut id) = (0, 0);
        let mut out = BTreeSet::new();
        let mut expected_counters = vec![SourceCounters::default(); sources.len()];
        for (pick, pause) in picks {
            now += pause;
            let alive: Vec<usize> = (0..left.len()).filter(|source| left[*source].len() > 0).collect();
            if !alive.is_empty() {
                let source = *pick.get(&alive);
                match left[source].next().unwrap() {
                    Action::Item(number) => {
                        id += 1;
                        expected_counters[source].items += 1;
                        let actual = aligner.push(source, now, numbered(*number), id);
                        let expected = model.push(source, now, *number, id);
                        prop_assert_eq!(actual.as_ref().map_err(|refused| refused.reason).copied(), expected);
                        if let Err(refused) = actual {
                            prop_assert!(out.insert(refused.item));
                            match refused.reason {
                                RefusalReason::Late => expected_counters[source].late += 1,
                                RefusalReason::Duplicate => expected_counters[source].duplicate += 1,
                                other => prop_assert!(false, "{other:?}"),
                            }
                        }
                    }
                    Action::Lost(first, count) => {
                        aligner.note_loss(source, now, DropCause::WireGap, *first, *count);
                        if !model.stopped[source] {
                            model.touch(source, now);
                        }
                        model.reach(source, first + count - 1);
                        model.reported[source].extend(*first..first + count);
                        expected_counters[source].lost += count;
                    }
                }
            }
            while let Some((key, parts)) = model.pop(now) {
                let event = aligner.pop(now);
                prop_assert!(event.is_some(), "the model has decided event {}", key);
                let event = event.unwrap();
                prop_assert_eq!(event.key, key);
                let dropped = parts.len() < quorum;
                let expected = match parts.len() {
                    _ if dropped => Verdict::Dropped,
                    n if n == sources.len() => Verdict::Complete,
                    _ => Verdict::Partial,
                };
                prop_assert_eq!(event.verdict, expected);
                for (source, part) in event.parts.iter().enumerate() {
                    prop_assert_eq!(part.as_ref().ok().map(|present| &present.item), parts.get(&source));
                    match part {
                        Ok(present) => {
                            prop_assert!(present.meta.number == key && out.insert(present.item));
                            let counters = &mut expected_counters[source];
                            *(if dropped { &mut counters.below_quorum } else { &mut counters.joined }) += 1;
                        }
                        Err(reason) => {
                            expected_counters[source].missing += 1;
                            prop_assert!(matches!(reason, Missing::Lost(_)) <= model.reported[source].contains(&key));
                        }
                    }
                }
            }
            prop_assert!(aligner.pop(now).is_none(), "the model has decided no more");
            prop_assert!(aligner.pending() < capacity);
        }
        for (source, expected) in expected_counters.iter().enumerate() {
            let counters = aligner.source(source);
            prop_assert!(counters.balance());
            let SourceCounters { waiting, stops, rejoins, .. } = *counters;
            let same = SourceCounters { waiting, stops, rejoins, ..*expected };
            prop_assert_eq!(*counters, same);
        }
        while let Some(event) = aligner.flush() {
            for present in event.parts.into_iter().flatten() {
                prop_assert!(out.insert(present.item));
            }
        }
        prop_assert_eq!(out.len() as u64, id);
        let mut counters = (0..sources.len()).map(|source| aligner.source(source));
        prop_assert!(counters.all(|counters| counters.waiting == 0 && counters.balance()));
    }

    /// Clocks that are off by up to a millisecond and drift by up to 50 ppm: items taken at the same time are aligned,
    /// and no others. Each source counts independently, so numbers are no help.
    #[test]
    fn by_stamp_events_are_aligned_for_any_clock_settings(
        clocks in prop::collection::vec((-1_000_000_i64..1_000_000, -50_000_i64..50_000, 0..1000_u64), 1..6),
        spacing in 20_000..2_000_000_u64,
        share in 0.3..0.49_f64,
        faults in prop::collection::vec((prop::collection::vec((0..12_u8, 0.0..1.0_f64), 6), 0.5..1.5_f64), 300),
    ) {
        let window_ns = (spacing as f64 * 0.5 * share * 2.0) as u64;
        let by = AlignBy::Stamp { window_ns: Some(window_ns) };
        let mut aligner = Aligner::new(Config { lock_ns: 100, ..config(clocks.len(), by) });
        let (mut at, mut out) = (0, Vec::new());
        let mut numbers: Vec<u64> = clocks.iter().map(|(_, _, first)| *first).collect();
        let mut taken = 0_usize;
        for (index, (faults, pause)) in faults.iter().enumerate() {
            at += spacing.max((spacing as f64 * pause) as u64);
            // Packets are delayed, but by less than the window.
            let delay = |source: usize| 5_000 + (faults[source].1 * window_ns as f64 / 8.0) as u64;
            let mut arrivals: Vec<(u64, usize)> =
                (0..clocks.len()).map(|source| (at + delay(source), source)).collect();
            arrivals.sort_unstable();
            for (arrived_ns, source) in arrivals {
                let (offset, drift_ppb, _) = clocks[source];
                let ahead = offset + (i128::from(at) * i128::from(drift_ppb) / 1_000_000_000) as i64;
                numbers[source] += 1;
                if faults[source].0 == 0 {
                    aligner.note_loss(source, arrived_ns, DropCause::WireGap, numbers[source], 1);
                    continue;
                }
                let stamp_ns = (START_NS + at).saturating_add_signed(ahead);
                let meta = ItemMeta { number: numbers[source], stamp_ns, arrived_ns: START_NS + arrived_ns };
                prop_assert!(aligner.push(source, arrived_ns, meta, index).is_ok());
                taken += 1;
                out.extend(std::iter::from_fn(|| aligner.pop(arrived_ns)));
            }
        }
        out.extend(std::iter::from_fn(|| aligner.flush()));
        let mut received = 0;
        let mut last = None;
        for event in &out {
            let items: Vec<usize> = event.parts.iter().flatten().map(|present| present.item).collect();
            received += items.len();
            prop_assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?} are one event");
            prop_assert!(last < items.first().copied(), "events {last:?}, {items:?}");
            last = items.first().copied();
            let reasons = missing(event).into_iter().enumerate();
            for (source, reason) in reasons.filter_map(|(source, reason)| Some((source, reason?))) {
                prop_assert_eq!(faults[items[0]].0[source].0, 0, "source {} is missing as {:?}", source, reason);
            }
        }
        prop_assert_eq!(received, taken);
        prop_assert!(aligner.counters().crowded == 0);
    }

    /// Arbitrary stamps and arrivals: nothing panics, and every item is in one counter.
    #[test]
    fn by_stamp_arbitrary_input_is_accounted_for(
        sources in 1..6_usize,
        window_ns in prop_oneof![0..1000_u64, any::<u64>()],
        actions in prop::collection::vec((0..6_usize, any::<[u64; 3]>(), 0..4_u8, 0..200_u64), 0..300),
    ) {
        let by = AlignBy::Stamp { window_ns: Some(window_ns) };
        let config = Config { timeout_ns: 500, capacity: 16, disorder: 5, ..config(sources, by) };
        let mut aligner = Aligner::new(config);
        let (mut now, mut items, mut out) = (0, 0, 0);
        for (source, [number, stamp_ns, arrived_ns], kind, pause) in actions {
            now += pause;
            let source = source % sources;
            let meta = match kind {
                0 => ItemMeta { number, stamp_ns, arrived_ns },
                1 => {
                    let near = |ns: u64| START_NS + ns % 2000;
                    ItemMeta { number: number % 8, stamp_ns: near(stamp_ns), arrived_ns: near(arrived_ns) }
                }
                2 => ItemMeta { number, stamp_ns: 0, arrived_ns: arrived_ns % 2 * START_NS },
                _ => {
                    aligner.note_loss(source, now, DropCause::Late, number, stamp_ns);
                    continue;
                }
            };
            items += 1;
            out += u64::from(aligner.push(source, now, meta, ()).is_err());
            while let Some(event) = aligner.pop(now) {
                out += event.parts.iter().flatten().count() as u64;
            }
            prop_assert!(aligner.pending() < 16);
            prop_assert!((0..sources).all(|source| aligner.source(source).balance()));
        }
        while let Some(event) = aligner.flush() {
            out += event.parts.iter().flatten().count() as u64;
        }
        prop_assert_eq!(out, items);
    }
}

#[test]
fn a_stopped_source_delays_one_event_and_can_rejoin() {
    let mut aligner = Aligner::new(Config { timeout_ns: 100 * MS, ..config(2, AlignBy::Number) });
    assert_eq!(push(&mut aligner, 0, 0, numbered(1)), []);
    assert_eq!(push(&mut aligner, 1, 1, numbered(1)), [(1, vec![true, true])]);
    // The second source sends no more: the first event waits for it, the next ones do not.
    assert_eq!(push(&mut aligner, 0, MS, numbered(2)), []);
    assert_eq!(push(&mut aligner, 0, 50 * MS, numbered(3)), []);
    let event = aligner.pop(101 * MS).unwrap();
    assert_eq!((event.key, missing(&event)), (2, vec![None, Some(Missing::Silent)]));
    assert!(aligner.is_stopped(1));
    assert_eq!(decided(&mut aligner, 101 * MS), [(3, vec![true, false])]);
    assert_eq!(push(&mut aligner, 0, 102 * MS, numbered(4)), [(4, vec![true, false])]);
    // Its items for those events are late; events wait for it again.
    assert_eq!(aligner.push(1, 103 * MS, numbered(4), 4).unwrap_err().reason, RefusalReason::Late);
    assert!(!aligner.is_stopped(1));
    assert_eq!(push(&mut aligner, 0, 104 * MS, numbered(5)), []);
    assert_eq!(push(&mut aligner, 1, 105 * MS, numbered(5)), [(5, vec![true, true])]);
    let counters = aligner.source(1);
    assert_eq!((counters.stops, counters.rejoins, counters.late, counters.missing), (1, 1, 1, 3));
    assert_eq!(aligner.counters().expired, 1);
}

#[test]
fn a_source_that_restarts_its_count_delays_no_event() {
    let mut aligner = Aligner::new(Config { capacity: 8, ..config(2, AlignBy::Number) });
    for number in 0..100 {
        push(&mut aligner, 0, 0, numbered(number));
        assert_eq!(push(&mut aligner, 1, 0, numbered(number)), [(number, vec![true, true])]);
    }
    assert_eq!(push(&mut aligner, 0, 1, numbered(100)), []);
    assert_eq!(aligner.push(1, 1, numbered(3), 3).unwrap_err().reason, RefusalReason::Late);
    assert_eq!(decided(&mut aligner, 1), [(100, vec![true, false])]);
    assert_eq!(push(&mut aligner, 0, 2, numbered(101)), [(101, vec![true, false])]);
    assert!((0..2).all(|source| aligner.source(source).balance()));
}

#[test]
fn sources_that_are_slow_together_have_not_stopped() {
    let mut aligner = Aligner::new(Config { timeout_ns: 100 * MS, ..config(2, AlignBy::Number) });
    for number in 0..5 {
        let now = number * 10_000 * MS;
        assert_eq!(push(&mut aligner, 0, now, numbered(number)), []);
        assert_eq!(push(&mut aligner, 1, now + 90 * MS, numbered(number)), [(number, vec![true, true])]);
    }
    assert_eq!(aligner.source(1).stops, 0);
}

#[test]
fn each_reason_for_a_missing_item_is_reported() {
    let mut aligner = Aligner::new(Config { timeout_ns: 100, ..config(5, AlignBy::Number) });
    for source in 0..4 {
        aligner.push(source, 0, numbered(0), 0).unwrap();
    }
    aligner.push(0, 50, numbered(1), 0).unwrap();
    aligner.note_loss(1, 60, DropCause::NoBuffer, 1, 5);
    aligner.push(2, 60, numbered(2), 0).unwrap();
    assert_eq!(aligner.push(3, 60, numbered(0), 0).unwrap_err().reason, RefusalReason::Duplicate);
    assert!(aligner.pop(99).is_none());
    let first = aligner.pop(150).unwrap();
    assert_eq!(missing(&first), [None, None, None, None, Some(Missing::Silent)]);
    let second = aligner.pop(150).unwrap();
    let expected = [
        None,
        Some(Missing::Lost(DropCause::NoBuffer)),
        Some(Missing::Skipped),
        Some(Missing::Late),
        Some(Missing::Silent),
    ];
    assert_eq!(missing(&second), expected);
}

#[test]
fn a_full_ring_decides_the_oldest_event_and_counts_it() {
    let mut aligner = Aligner::new(Config { capacity: 3, ..config(2, AlignBy::Number) });
    assert_eq!(push(&mut aligner, 0, 0, numbered(7)), []);
    assert_eq!(push(&mut aligner, 0, 0, numbered(8)), []);
    assert_eq!(push(&mut aligner, 0, 0, numbered(9)), [(7, vec![true, false])]);
    assert_eq!((aligner.counters().forced, aligner.pending()), (1, 2));
    // If decided events are not taken, items are refused and counted.
    aligner.push(0, 0, numbered(10), 10).unwrap();
    assert_eq!(aligner.push(0, 0, numbered(11), 11).unwrap_err().reason, RefusalReason::Full);
    assert!(aligner.source(0).full == 1 && aligner.source(0).balance());
}

#[test]
fn below_the_quorum_events_are_dropped_with_their_items() {
    let mut aligner = Aligner::new(Config { quorum: 2, ..config(3, AlignBy::Number) });
    aligner.note_loss(1, 0, DropCause::WireGap, 0, 3);
    aligner.note_loss(2, 0, DropCause::WireGap, 0, 1);
    aligner.push(0, 0, numbered(0), 0).unwrap();
    let event = aligner.pop(0).unwrap();
    assert_eq!((event.verdict, present(&event)), (Verdict::Dropped, vec![true, false, false]));
    aligner.push(0, 0, numbered(2), 2).unwrap();
    aligner.push(2, 0, numbered(2), 2).unwrap();
    assert_eq!(aligner.pop(0).unwrap().verdict, Verdict::Partial);
    let EventCounters { complete, partial, dropped, absent, .. } = *aligner.counters();
    assert_eq!((complete, partial, dropped, absent), (0, 1, 1, 1), "number 1 is absent");
    assert_eq!((aligner.source(0).below_quorum, aligner.source(0).joined), (1, 1));
}

#[test]
fn a_window_too_wide_keeps_events_of_one_source_separate() {
    let mut aligner = Aligner::new(config(2, AlignBy::Stamp { window_ns: Some(1000) }));
    let meta = |number: u64, at: u64| ItemMeta { number, stamp_ns: START_NS + at, arrived_ns: START_NS + at };
    // Two events 400 ns apart, window 1000 ns: each item of the second source goes to the nearest free event.
    for (source, number, at) in [(0, 10, 0), (0, 11, 400), (1, 70, 410), (1, 71, 420)] {
        aligner.push(source, at, meta(number, at), number).unwrap();
    }
    assert_eq!(aligner.push(1, 430, meta(71, 430), 71).unwrap_err().reason, RefusalReason::Duplicate);
    let events: Vec<_> = std::iter::from_fn(|| aligner.flush()).collect();
    let items: Vec<Vec<u64>> =
        events.iter().map(|event| event.parts.iter().flatten().map(|present| present.item).collect()).collect();
    assert_eq!(items, [[10, 71], [11, 70]]);
    assert_eq!(aligner.counters().crowded, 1);
    assert!(aligner.source(0).balance() && aligner.source(1).balance());
}

/// Three sources at 1 kHz; `ahead` gives each clock's lead over the true time. Returns the number of items in the
/// events of each half second.
fn run(aligner: &mut Aligner<u64>, ahead: impl Fn(usize, u64) -> Option<i64>) -> Vec<usize> {
    let mut halves = vec![0; 20];
    for index in 0..10_000 {
        let at = index * MS;
        for source in 0..3 {
            let Some(ahead) = ahead(source, at) else { continue };
            let arrived_ns = START_NS + at + 20_000 + (index * 7919 + source as u64 * 104_729) % 10_000;
            let meta = ItemMeta { number: index, stamp_ns: (START_NS + at).saturating_add_signed(ahead), arrived_ns };
            let _ = aligner.push(source, at, meta, index);
            while let Some(event) = aligner.pop(at) {
                let items: Vec<u64> = event.parts.iter().flatten().map(|present| present.item).collect();
                assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?} are one event");
                halves[(items[0] / 500) as usize] += items.len();
            }
        }
    }
    halves
}

fn stamped() -> Aligner<u64> {
    Aligner::new(Config { timeout_ns: 100 * MS, ..config(3, AlignBy::Stamp { window_ns: Some(40_000) }) })
}

#[test]
fn clock_offset_and_drift_are_found_and_locked() {
    let mut aligner = stamped();
    let halves = run(&mut aligner, |source, at| {
        Some([300_000, -700_000, 37_000_000_000][source] + [0, 50, -50][source] * at as i64 / MS as i64)
    });
    assert_eq!(halves[..19], [1500; 19]);
    for (source, offset, drift_ppb) in [(1, -1_000_000, 50_000), (2, 36_999_700_000, -50_000)] {
        let state = aligner.clock(source);
        let elapsed_ms = (state.at_ns - START_NS) / MS;
        assert!(state.locked && state.jumps == 0, "{state:?}");
        assert!((state.offset_ns - offset - drift_ppb / 1000 * elapsed_ms as i64).abs() < 100, "{state:?}");
        assert!((state.drift_ppb - drift_ppb).abs() < 100, "{state:?}");
    }
    let reference = aligner.clock(0);
    assert!(reference.locked && (reference.offset_ns - 280_000).abs() < 2000, "minus the network delay: {reference:?}");
}

/// Three sources at 100 Hz whose packets are delayed by up to 0.4 ms. Returns the complete and partial events.
fn at_100_hz(aligner: &mut Aligner<u64>) -> (u64, u64) {
    for index in 0..500 {
        let at = index * 10 * MS;
        for source in 0..3 {
            let waited = 100_000 + (index * 7919 + source as u64 * 104_729) % 400_000;
            let stamp_ns = START_NS + at + [0, 7 * MS, 3_000 * MS][source];
            let meta = ItemMeta { number: index, stamp_ns, arrived_ns: START_NS + at + waited };
            let _ = aligner.push(source, at, meta, index);
            while let Some(event) = aligner.pop(at) {
                let items: Vec<u64> = event.parts.iter().flatten().map(|present| present.item).collect();
                assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?} are one event");
            }
        }
    }
    (aligner.counters().complete, aligner.counters().partial)
}

#[test]
fn the_default_window_follows_from_the_item_interval() {
    let by = |window_ns| Config { timeout_ns: 100 * MS, ..config(3, AlignBy::Stamp { window_ns }) };
    let (mut narrow, mut chosen) = (Aligner::new(by(Some(10_000))), Aligner::new(by(None)));
    assert!(at_100_hz(&mut narrow).1 > 250, "more than half of the events are incomplete: {:?}", narrow.counters());
    let (complete, partial) = at_100_hz(&mut chosen);
    // Those at the beginning, before any time between two items was measured.
    assert!(complete >= 497 && partial <= 3, "{:?}", chosen.counters());
    assert_eq!(chosen.window_ns(), 2_500_000);
    for (apart, window_ns) in [(1_000, 10_000), (100_000, 25_000), (1_000 * MS, 10 * MS)] {
        let mut aligner = Aligner::new(by(None));
        for number in 1..4 {
            let stamp_ns = START_NS + number * apart;
            let _ = aligner.push(0, 0, ItemMeta { number, stamp_ns, arrived_ns: stamp_ns }, number);
        }
        assert_eq!(aligner.window_ns(), window_ns);
    }
}

#[test]
fn the_default_window_follows_the_rate_but_not_one_close_pair() {
    let mut aligner = Aligner::new(Config { timeout_ns: 100 * MS, ..config(2, AlignBy::Stamp { window_ns: None }) });
    let mut stamp_ns = START_NS;
    let mut windows_after = |intervals: &[u64]| {
        for interval in intervals {
            stamp_ns += interval;
            let _ = aligner.push(0, stamp_ns, ItemMeta { number: stamp_ns, stamp_ns, arrived_ns: stamp_ns }, 0);
            while aligner.pop(stamp_ns).is_some() {}
        }
        aligner.window_ns()
    };
    assert_eq!(windows_after(&[10 * MS; 20]), 2_500_000);
    assert_eq!(windows_after(&[50_000, 10 * MS]), 2_500_000, "one pair");
    assert_eq!(windows_after(&[MS; 2]), 250_000, "a higher rate, at once");
    assert_eq!(windows_after(&[20 * MS; 100]), 5 * MS, "a lower one, in time");
}

#[test]
fn a_clock_jump_is_recovered_from_arrivals() {
    let mut aligner = stamped();
    let halves = run(&mut aligner, |source, at| Some(if source == 1 && at > 4000 * MS { 9_300_000 } else { 0 }));
    assert!(aligner.clock(1).jumps >= 1 && aligner.clock(1).locked, "{:?}", aligner.clock(1));
    assert!(halves[8] > 1450, "it is missed in a few events only: {halves:?}");
    assert_eq!((&halves[..8], &halves[9..19]), (&[1500; 8][..], &[1500; 10][..]), "{halves:?}");
}

#[test]
fn the_reference_may_stop_and_return_with_another_time() {
    let mut aligner = stamped();
    let halves = run(&mut aligner, |source, at| match (source, at / MS) {
        (0, 0..3000) => Some(0),
        (0, 3000..6000) => None,
        (0, _) => Some(77 * MS as i64),
        (_, now) => Some(500_000 + 40 * now as i64),
    });
    assert_eq!(aligner.source(0).stops, 1);
    assert_eq!((halves[4], &halves[7..11], &halves[13..19]), (1500, &[1000; 4][..], &[1500; 6][..]), "{halves:?}");
    assert!(aligner.clock(1).locked && aligner.clock(2).locked);
}

#[test]
fn unstamped_items_are_aligned_by_arrival_or_refused() {
    let mut aligner = Aligner::new(config(2, AlignBy::Stamp { window_ns: Some(1000) }));
    let meta = |stamp_ns: u64, arrived_ns: u64| ItemMeta { number: arrived_ns, stamp_ns, arrived_ns };
    aligner.push(0, 0, meta(START_NS, START_NS + 100), 0).unwrap();
    aligner.push(1, 0, meta(0, START_NS + 300), 1).unwrap();
    assert_eq!(present(&aligner.pop(0).unwrap()), [true, true]);
    assert_eq!(aligner.push(1, 0, meta(0, 0), 2).unwrap_err().reason, RefusalReason::Unstamped);
}
