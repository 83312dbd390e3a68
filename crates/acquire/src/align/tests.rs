use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
const BEGIN: u64 = 1_700_000_000_000_000_000;
const FOR_EVER: u64 = u64::MAX;

fn config(sources: usize, by: By) -> Config {
    Config { sources, by, disorder: 0, patience_ns: FOR_EVER, quorum: 1, capacity: 64, lock_ns: 1000 }
}

fn numbered(number: u64) -> Mark {
    Mark { number, ..Mark::default() }
}

/// Pushes what must be taken, and returns all that is decided: keys, and who is in them.
fn push(aligner: &mut Aligner<u64>, source: usize, now_ns: u64, mark: Mark) -> Vec<(u64, Vec<bool>)> {
    aligner.push(source, now_ns, mark, mark.number).unwrap();
    decided(aligner, now_ns)
}

fn decided(aligner: &mut Aligner<u64>, now_ns: u64) -> Vec<(u64, Vec<bool>)> {
    std::iter::from_fn(|| aligner.pop(now_ns)).map(|event| (event.key, here(&event))).collect()
}

fn here<T>(event: &Event<T>) -> Vec<bool> {
    event.parts.iter().map(Result::is_ok).collect()
}

fn missing<T>(event: &Event<T>) -> Vec<Option<Missing>> {
    event.parts.iter().map(|part| part.as_ref().err().copied()).collect()
}

/// What happens at a source.
#[derive(Clone, Copy, Debug)]
enum Act {
    Item(u64),
    Lost(u64, u64),
}

/// What a source does: its numbers in turn, some lost with a word or without, some twice, some late by up to 3; then it
/// may fall silent, and come back further on.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let fate = prop_oneof![8 => Just(0_u8), 1 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4)];
    (prop::collection::vec((fate, 0..4_usize), 0..60), 0..20_u64).prop_map(|(fates, first)| {
        let mut acts = Vec::new();
        let mut number = first;
        for (fate, back) in fates {
            match fate {
                1 => acts.push(Act::Lost(number, 1 + back as u64)),
                2 => {}
                3 => acts.extend([Act::Item(number), Act::Item(number)]),
                4 => acts.insert(acts.len().saturating_sub(back), Act::Item(number)),
                _ => acts.push(Act::Item(number)),
            }
            number += if fate == 1 { 1 + back as u64 } else { 1 };
        }
        acts
    })
}

/// The same rules in the plainest way: everything is remembered, nothing is indexed.
struct Model {
    config: Config,
    waiting: BTreeMap<u64, (u64, BTreeMap<usize, u64>)>,
    decided: Vec<(u64, BTreeSet<usize>)>,
    heard: Vec<Option<u64>>,
    newest: Vec<Option<u64>>,
    told: Vec<BTreeSet<u64>>,
    stopped: Vec<bool>,
    astray: Vec<bool>,
    begun: Option<u64>,
}

impl Model {
    fn new(config: Config) -> Self {
        let n = config.sources;
        Self {
            config,
            waiting: BTreeMap::new(),
            decided: Vec::new(),
            heard: vec![None; n],
            newest: vec![None; n],
            told: vec![BTreeSet::new(); n],
            stopped: vec![false; n],
            astray: vec![false; n],
            begun: None,
        }
    }

    fn hear(&mut self, source: usize, now: u64) {
        self.begun.get_or_insert(now);
        self.heard[source] = Some(now);
        self.stopped[source] = false;
    }

    fn reach(&mut self, source: usize, newest: u64) {
        self.newest[source] = self.newest[source].max(Some(newest));
    }

    fn push(&mut self, source: usize, now: u64, number: u64, id: u64) -> Result<(), Why> {
        self.hear(source, now);
        self.reach(source, number);
        if self.decided.last().is_some_and(|(last, _)| number <= *last) {
            // The ring's length is what is remembered of what was decided.
            let remembered = self.decided.iter().rev().take(self.config.capacity.next_power_of_two());
            let mut same = remembered.filter(|(key, here)| *key == number && here.contains(&source));
            let had = same.next().is_some();
            let last = self.decided.last().unwrap().0;
            self.astray[source] = !had && last - number > self.config.capacity as u64;
            return Err(if had { Why::Duplicate } else { Why::Late });
        }
        self.astray[source] = false;
        let (_, parts) = self.waiting.entry(number).or_insert((now, BTreeMap::new()));
        if parts.contains_key(&source) {
            return Err(Why::Duplicate);
        }
        parts.insert(source, id);
        Ok(())
    }

    fn is_past(&self, source: usize, key: u64, here: bool) -> bool {
        let behind = key + self.config.disorder;
        let told = self.told[source].contains(&key);
        self.stopped[source]
            || self.astray[source]
            || self.newest[source].is_some_and(|n| n > behind || n == behind && (here || told))
    }

    /// The key and the parts of the next event, if it is decided.
    fn pop(&mut self, now: u64) -> Option<(u64, BTreeMap<usize, u64>)> {
        let (key, (opened, parts)) = self.waiting.first_key_value()?;
        let all = parts.len() == self.config.sources;
        let next = self.decided.last().is_some_and(|(last, _)| last + 1 == *key);
        let settled = (0..self.config.sources).all(|s| self.is_past(s, *key, parts.contains_key(&s))) || all && next;
        let expired = now - opened >= self.config.patience_ns;
        if !settled && !expired && self.waiting.len() < self.config.capacity {
            return None;
        }
        if !settled {
            for source in (0..self.config.sources).filter(|source| !parts.contains_key(source)) {
                let since = self.heard[source].unwrap_or(self.begun.unwrap());
                let long = now - since >= self.config.patience_ns;
                self.stopped[source] |= long && self.heard[source].is_none_or(|heard| heard < *opened);
            }
        }
        let (key, (_, parts)) = self.waiting.pop_first()?;
        self.decided.push((key, parts.keys().copied().collect()));
        Some((key, parts))
    }
}

proptest! {
    /// Whatever comes in whatever order, the aligner does what the plain model does, and every item comes out once.
    #[test]
    fn by_number_every_item_is_in_one_event_or_refused_under_one_cause(
        sources in prop::collection::vec(acts(), 1..6),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u64), 600),
        (disorder, patience_ns, quorum, capacity) in (0..4_u64, prop_oneof![10..60_u64, Just(FOR_EVER)], 1..4_usize, 1..24_usize),
    ) {
        let config = Config { disorder, patience_ns, quorum, capacity, ..config(sources.len(), By::Number) };
        let (mut aligner, mut model) = (Aligner::new(config), Model::new(config));
        let mut left: Vec<_> = sources.iter().map(|acts| acts.iter()).collect();
        let (mut now, mut id) = (0, 0);
        let mut out = BTreeSet::new();
        let mut tally = vec![SourceCounts::default(); sources.len()];
        for (pick, pause) in picks {
            now += pause;
            let alive: Vec<usize> = (0..left.len()).filter(|source| left[*source].len() > 0).collect();
            if !alive.is_empty() {
                let source = *pick.get(&alive);
                match left[source].next().unwrap() {
                    Act::Item(number) => {
                        id += 1;
                        tally[source].items += 1;
                        let ours = aligner.push(source, now, numbered(*number), id);
                        let theirs = model.push(source, now, *number, id);
                        prop_assert_eq!(ours.as_ref().map_err(|refused| refused.why).copied(), theirs);
                        if let Err(refused) = ours {
                            prop_assert!(out.insert(refused.item));
                            match refused.why {
                                Why::Late => tally[source].late += 1,
                                Why::Duplicate => tally[source].duplicate += 1,
                                other => prop_assert!(false, "{other:?}"),
                            }
                        }
                    }
                    Act::Lost(first, count) => {
                        aligner.lose(source, now, DropCause::WireGap, *first, *count);
                        if !model.stopped[source] {
                            model.hear(source, now);
                        }
                        model.reach(source, first + count - 1);
                        model.told[source].extend(*first..first + count);
                        tally[source].lost += count;
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
                    prop_assert_eq!(part.as_ref().ok().map(|here| &here.item), parts.get(&source));
                    match part {
                        Ok(here) => {
                            prop_assert!(here.mark.number == key && out.insert(here.item));
                            *(if dropped { &mut tally[source].below_quorum } else { &mut tally[source].joined }) += 1;
                        }
                        Err(why) => {
                            tally[source].missing += 1;
                            prop_assert!(matches!(why, Missing::Lost(_)) <= model.told[source].contains(&key));
                        }
                    }
                }
            }
            prop_assert!(aligner.pop(now).is_none(), "the model has decided no more");
            prop_assert!(aligner.waiting() < capacity);
        }
        for (source, tally) in tally.iter().enumerate() {
            let counts = aligner.source(source);
            prop_assert!(counts.balance());
            let same = SourceCounts { waiting: counts.waiting, stops: counts.stops, rejoins: counts.rejoins, ..*tally };
            prop_assert_eq!(*counts, same);
        }
        while let Some(event) = aligner.flush() {
            for here in event.parts.into_iter().flatten() {
                prop_assert!(out.insert(here.item));
            }
        }
        prop_assert_eq!(out.len() as u64, id);
        prop_assert!((0..sources.len()).all(|source| aligner.source(source).waiting == 0 && aligner.source(source).balance()));
    }

    /// Clocks that are off by up to a millisecond and drift by up to 50 ppm: what was taken at one moment comes
    /// together, and nothing else does. Each source counts for itself, so numbers are no help.
    #[test]
    fn by_stamp_events_come_together_whatever_the_clocks_read(
        clocks in prop::collection::vec((-1_000_000_i64..1_000_000, -50_000_i64..50_000, 0..1000_u64), 1..6),
        spacing in 20_000..2_000_000_u64,
        share in 0.3..0.49_f64,
        fates in prop::collection::vec((prop::collection::vec((0..12_u8, 0.0..1.0_f64), 6), 0.5..1.5_f64), 300),
    ) {
        let window_ns = (spacing as f64 * 0.5 * share * 2.0) as u64;
        let mut aligner = Aligner::new(Config { lock_ns: 100, ..config(clocks.len(), By::Stamp { window_ns: Some(window_ns) }) });
        let (mut at, mut out) = (0, Vec::new());
        let mut numbers: Vec<u64> = clocks.iter().map(|(_, _, first)| *first).collect();
        let mut taken = 0_usize;
        for (index, (fates, pause)) in fates.iter().enumerate() {
            at += spacing.max((spacing as f64 * pause) as u64);
            // Packets wait, but for less than the window.
            let mut arrivals: Vec<(u64, usize)> =
                (0..clocks.len()).map(|source| (at + 5_000 + (fates[source].1 * window_ns as f64 / 8.0) as u64, source)).collect();
            arrivals.sort_unstable();
            for (arrived, source) in arrivals {
                let (offset, drift_ppb, _) = clocks[source];
                let ahead = offset + (i128::from(at) * i128::from(drift_ppb) / 1_000_000_000) as i64;
                numbers[source] += 1;
                if fates[source].0 == 0 {
                    aligner.lose(source, arrived, DropCause::WireGap, numbers[source], 1);
                    continue;
                }
                let stamp_ns = (BEGIN + at).saturating_add_signed(ahead);
                let mark = Mark { number: numbers[source], stamp_ns, arrived_ns: BEGIN + arrived };
                prop_assert!(aligner.push(source, arrived, mark, index).is_ok());
                taken += 1;
                out.extend(std::iter::from_fn(|| aligner.pop(arrived)));
            }
        }
        out.extend(std::iter::from_fn(|| aligner.flush()));
        let mut came = 0;
        let mut last = None;
        for event in &out {
            let items: Vec<usize> = event.parts.iter().flatten().map(|here| here.item).collect();
            came += items.len();
            prop_assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?} are one event");
            prop_assert!(last < items.first().copied(), "events {last:?}, {items:?}");
            last = items.first().copied();
            for (source, why) in missing(event).into_iter().enumerate().filter_map(|(s, why)| Some((s, why?))) {
                prop_assert_eq!(fates[items[0]].0[source].0, 0, "source {} is missing as {:?}", source, why);
            }
        }
        prop_assert_eq!(came, taken);
        prop_assert!(aligner.counts().crowded == 0);
    }

    /// Stamps and arrivals that are nonsense: nothing panics, and every item is in one count.
    #[test]
    fn by_stamp_nonsense_is_accounted_for(
        sources in 1..6_usize,
        window_ns in prop_oneof![0..1000_u64, any::<u64>()],
        acts in prop::collection::vec((0..6_usize, any::<[u64; 3]>(), 0..4_u8, 0..200_u64), 0..300),
    ) {
        let config = Config { patience_ns: 500, capacity: 16, disorder: 5, ..config(sources, By::Stamp { window_ns: Some(window_ns) }) };
        let mut aligner = Aligner::new(config);
        let (mut now, mut items, mut out) = (0, 0, 0);
        for (source, [number, stamp_ns, arrived_ns], kind, pause) in acts {
            now += pause;
            let source = source % sources;
            let mark = match kind {
                0 => Mark { number, stamp_ns, arrived_ns },
                1 => Mark { number: number % 8, stamp_ns: BEGIN + stamp_ns % 2000, arrived_ns: BEGIN + arrived_ns % 2000 },
                2 => Mark { number, stamp_ns: 0, arrived_ns: arrived_ns % 2 * BEGIN },
                _ => {
                    aligner.lose(source, now, DropCause::Late, number, stamp_ns);
                    continue;
                }
            };
            items += 1;
            out += u64::from(aligner.push(source, now, mark, ()).is_err());
            while let Some(event) = aligner.pop(now) {
                out += event.parts.iter().flatten().count() as u64;
            }
            prop_assert!(aligner.waiting() < 16);
            prop_assert!((0..sources).all(|source| aligner.source(source).balance()));
        }
        while let Some(event) = aligner.flush() {
            out += event.parts.iter().flatten().count() as u64;
        }
        prop_assert_eq!(out, items);
    }
}

#[test]
fn a_source_that_stops_is_waited_for_once_and_joins_again() {
    let mut aligner = Aligner::new(Config { patience_ns: 100 * MS, ..config(2, By::Number) });
    assert_eq!(push(&mut aligner, 0, 0, numbered(1)), []);
    assert_eq!(push(&mut aligner, 1, 1, numbered(1)), [(1, vec![true, true])]);
    // The second one says no more: the first event waits for it, the next ones do not.
    assert_eq!(push(&mut aligner, 0, MS, numbered(2)), []);
    assert_eq!(push(&mut aligner, 0, 50 * MS, numbered(3)), []);
    let event = aligner.pop(101 * MS).unwrap();
    assert_eq!((event.key, missing(&event)), (2, vec![None, Some(Missing::Silent)]));
    assert!(aligner.is_stopped(1));
    assert_eq!(decided(&mut aligner, 101 * MS), [(3, vec![true, false])]);
    assert_eq!(push(&mut aligner, 0, 102 * MS, numbered(4)), [(4, vec![true, false])]);
    // What it had for those is late; it is waited for again.
    assert_eq!(aligner.push(1, 103 * MS, numbered(4), 4).unwrap_err().why, Why::Late);
    assert!(!aligner.is_stopped(1));
    assert_eq!(push(&mut aligner, 0, 104 * MS, numbered(5)), []);
    assert_eq!(push(&mut aligner, 1, 105 * MS, numbered(5)), [(5, vec![true, true])]);
    let counts = aligner.source(1);
    assert_eq!((counts.stops, counts.rejoins, counts.late, counts.missing), (1, 1, 1, 3));
    assert_eq!(aligner.counts().expired, 1);
}

#[test]
fn a_source_that_counts_anew_holds_nobody_up() {
    let mut aligner = Aligner::new(Config { capacity: 8, ..config(2, By::Number) });
    for number in 0..100 {
        push(&mut aligner, 0, 0, numbered(number));
        assert_eq!(push(&mut aligner, 1, 0, numbered(number)), [(number, vec![true, true])]);
    }
    assert_eq!(push(&mut aligner, 0, 1, numbered(100)), []);
    assert_eq!(aligner.push(1, 1, numbered(3), 3).unwrap_err().why, Why::Late);
    assert_eq!(decided(&mut aligner, 1), [(100, vec![true, false])]);
    assert_eq!(push(&mut aligner, 0, 2, numbered(101)), [(101, vec![true, false])]);
    assert!((0..2).all(|source| aligner.source(source).balance()));
}

#[test]
fn sources_that_are_slow_together_have_not_stopped() {
    let mut aligner = Aligner::new(Config { patience_ns: 100 * MS, ..config(2, By::Number) });
    for number in 0..5 {
        let now = number * 10_000 * MS;
        assert_eq!(push(&mut aligner, 0, now, numbered(number)), []);
        assert_eq!(push(&mut aligner, 1, now + 90 * MS, numbered(number)), [(number, vec![true, true])]);
    }
    assert_eq!(aligner.source(1).stops, 0);
}

#[test]
fn each_reason_for_a_missing_source_is_told() {
    let mut aligner = Aligner::new(Config { patience_ns: 100, ..config(5, By::Number) });
    for source in 0..4 {
        aligner.push(source, 0, numbered(0), 0).unwrap();
    }
    aligner.push(0, 50, numbered(1), 0).unwrap();
    aligner.lose(1, 60, DropCause::NoBuffer, 1, 5);
    aligner.push(2, 60, numbered(2), 0).unwrap();
    assert_eq!(aligner.push(3, 60, numbered(0), 0).unwrap_err().why, Why::Duplicate);
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
fn a_ring_that_is_full_gives_up_the_oldest_and_says_so() {
    let mut aligner = Aligner::new(Config { capacity: 3, ..config(2, By::Number) });
    assert_eq!(push(&mut aligner, 0, 0, numbered(7)), []);
    assert_eq!(push(&mut aligner, 0, 0, numbered(8)), []);
    assert_eq!(push(&mut aligner, 0, 0, numbered(9)), [(7, vec![true, false])]);
    assert_eq!((aligner.counts().hurried, aligner.waiting()), (1, 2));
    // Who does not take what is decided is refused, and it is counted.
    aligner.push(0, 0, numbered(10), 10).unwrap();
    assert_eq!(aligner.push(0, 0, numbered(11), 11).unwrap_err().why, Why::Full);
    assert!(aligner.source(0).full == 1 && aligner.source(0).balance());
}

#[test]
fn below_the_quorum_events_are_dropped_with_their_items() {
    let mut aligner = Aligner::new(Config { quorum: 2, ..config(3, By::Number) });
    aligner.lose(1, 0, DropCause::WireGap, 0, 3);
    aligner.lose(2, 0, DropCause::WireGap, 0, 1);
    aligner.push(0, 0, numbered(0), 0).unwrap();
    let event = aligner.pop(0).unwrap();
    assert_eq!((event.verdict, here(&event)), (Verdict::Dropped, vec![true, false, false]));
    aligner.push(0, 0, numbered(2), 2).unwrap();
    aligner.push(2, 0, numbered(2), 2).unwrap();
    assert_eq!(aligner.pop(0).unwrap().verdict, Verdict::Partial);
    let Counts { complete, partial, dropped, nobody, .. } = *aligner.counts();
    assert_eq!((complete, partial, dropped, nobody), (0, 1, 1, 1), "and number 1 nobody brought");
    assert_eq!((aligner.source(0).below_quorum, aligner.source(0).joined), (1, 1));
}

#[test]
fn in_a_window_that_is_too_wide_events_of_one_source_stay_apart() {
    let mut aligner = Aligner::new(config(2, By::Stamp { window_ns: Some(1000) }));
    let mark = |number: u64, at: u64| Mark { number, stamp_ns: BEGIN + at, arrived_ns: BEGIN + at };
    // Two events 400 ns apart, 1000 ns wide: the second source's go each to the nearest that is free.
    for (source, number, at) in [(0, 10, 0), (0, 11, 400), (1, 70, 410), (1, 71, 420)] {
        aligner.push(source, at, mark(number, at), number).unwrap();
    }
    assert_eq!(aligner.push(1, 430, mark(71, 430), 71).unwrap_err().why, Why::Duplicate);
    let events: Vec<_> = std::iter::from_fn(|| aligner.flush()).collect();
    let items: Vec<Vec<u64>> =
        events.iter().map(|event| event.parts.iter().flatten().map(|here| here.item).collect()).collect();
    assert_eq!(items, [[10, 71], [11, 70]]);
    assert_eq!(aligner.counts().crowded, 1);
    assert!(aligner.source(0).balance() && aligner.source(1).balance());
}

/// Three sources at 1 kHz; `ahead` says what each clock shows more than the true time. Returns how many of them were in
/// the events of each half second.
fn run(aligner: &mut Aligner<u64>, ahead: impl Fn(usize, u64) -> Option<i64>) -> Vec<usize> {
    let mut halves = vec![0; 20];
    for index in 0..10_000 {
        let at = index * MS;
        for source in 0..3 {
            let Some(ahead) = ahead(source, at) else { continue };
            let arrived_ns = BEGIN + at + 20_000 + (index * 7919 + source as u64 * 104_729) % 10_000;
            let mark = Mark { number: index, stamp_ns: (BEGIN + at).saturating_add_signed(ahead), arrived_ns };
            let _ = aligner.push(source, at, mark, index);
            while let Some(event) = aligner.pop(at) {
                let items: Vec<u64> = event.parts.iter().flatten().map(|here| here.item).collect();
                assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?} are one event");
                halves[(items[0] / 500) as usize] += items.len();
            }
        }
    }
    halves
}

fn stamped() -> Aligner<u64> {
    Aligner::new(Config { patience_ns: 100 * MS, ..config(3, By::Stamp { window_ns: Some(40_000) }) })
}

#[test]
fn clocks_are_known_and_locked() {
    let mut aligner = stamped();
    let halves = run(&mut aligner, |source, at| {
        Some([300_000, -700_000, 37_000_000_000][source] + [0, 50, -50][source] * at as i64 / MS as i64)
    });
    assert_eq!(halves[..19], [1500; 19]);
    for (source, offset, drift_ppb) in [(1, -1_000_000, 50_000), (2, 36_999_700_000, -50_000)] {
        let state = aligner.clock(source);
        let elapsed_ms = (state.at_ns - BEGIN) / MS;
        assert!(state.locked && state.jumps == 0, "{state:?}");
        assert!((state.offset_ns - offset - drift_ppb / 1000 * elapsed_ms as i64).abs() < 100, "{state:?}");
        assert!((state.drift_ppb - drift_ppb).abs() < 100, "{state:?}");
    }
    let reference = aligner.clock(0);
    assert!(reference.locked && (reference.offset_ns - 280_000).abs() < 2000, "less what packets take: {reference:?}");
}

/// Three sources at 100 Hz whose packets wait for up to 0.4 ms: complete and partial events.
fn at_100_hz(aligner: &mut Aligner<u64>) -> (u64, u64) {
    for index in 0..500 {
        let at = index * 10 * MS;
        for source in 0..3 {
            let waited = 100_000 + (index * 7919 + source as u64 * 104_729) % 400_000;
            let stamp_ns = BEGIN + at + [0, 7 * MS, 3_000 * MS][source];
            let mark = Mark { number: index, stamp_ns, arrived_ns: BEGIN + at + waited };
            let _ = aligner.push(source, at, mark, index);
            while let Some(event) = aligner.pop(at) {
                let items: Vec<u64> = event.parts.iter().flatten().map(|here| here.item).collect();
                assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?} are one event");
            }
        }
    }
    (aligner.counts().complete, aligner.counts().partial)
}

#[test]
fn a_window_that_nobody_names_follows_from_the_time_between_items() {
    let by = |window_ns| Config { patience_ns: 100 * MS, ..config(3, By::Stamp { window_ns }) };
    let (mut narrow, mut chosen) = (Aligner::new(by(Some(10_000))), Aligner::new(by(None)));
    assert!(at_100_hz(&mut narrow).1 > 250, "more than half of the events are incomplete: {:?}", narrow.counts());
    let (complete, partial) = at_100_hz(&mut chosen);
    // Those at the beginning, when no time between two items has been seen.
    assert!(complete >= 497 && partial <= 3, "{:?}", chosen.counts());
    assert_eq!(chosen.window_ns(), 2_500_000);
    for (apart, window_ns) in [(1_000, 10_000), (100_000, 25_000), (1_000 * MS, 10 * MS)] {
        let mut aligner = Aligner::new(by(None));
        for number in 1..4 {
            let stamp_ns = BEGIN + number * apart;
            let _ = aligner.push(0, 0, Mark { number, stamp_ns, arrived_ns: stamp_ns }, number);
        }
        assert_eq!(aligner.window_ns(), window_ns);
    }
}

#[test]
fn one_close_pair_does_not_narrow_the_window_and_another_rate_moves_it() {
    let mut aligner = Aligner::new(Config { patience_ns: 100 * MS, ..config(2, By::Stamp { window_ns: None }) });
    let mut stamp_ns = BEGIN;
    let mut windows_after = |intervals: &[u64]| {
        for interval in intervals {
            stamp_ns += interval;
            let _ = aligner.push(0, stamp_ns, Mark { number: stamp_ns, stamp_ns, arrived_ns: stamp_ns }, 0);
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
fn a_clock_that_jumps_is_found_again_by_its_arrivals() {
    let mut aligner = stamped();
    let halves = run(&mut aligner, |source, at| Some(if source == 1 && at > 4000 * MS { 9_300_000 } else { 0 }));
    assert!(aligner.clock(1).jumps >= 1 && aligner.clock(1).locked, "{:?}", aligner.clock(1));
    assert!(halves[8] > 1450, "it is missed in a few events only: {halves:?}");
    assert_eq!((&halves[..8], &halves[9..19]), (&[1500; 8][..], &[1500; 10][..]), "{halves:?}");
}

#[test]
fn the_reference_may_stop_and_come_back_with_another_time() {
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
fn an_item_without_a_stamp_is_placed_by_its_arrival_and_without_either_refused() {
    let mut aligner = Aligner::new(config(2, By::Stamp { window_ns: Some(1000) }));
    let mark = |stamp_ns: u64, arrived_ns: u64| Mark { number: arrived_ns, stamp_ns, arrived_ns };
    aligner.push(0, 0, mark(BEGIN, BEGIN + 100), 0).unwrap();
    aligner.push(1, 0, mark(0, BEGIN + 300), 1).unwrap();
    assert_eq!(here(&aligner.pop(0).unwrap()), [true, true]);
    assert_eq!(aligner.push(1, 0, mark(0, 0), 2).unwrap_err().why, Why::Unstamped);
}
