use super::*;
use crate::sim::random::Random;
use shotline_testing::seeds;

/// A simulated machine: a trial at a rate passes with a known probability.
struct Machine {
    /// True threshold.
    truth: f64,
    /// Width of the transition in units of the logarithm of the rate; 0 is a step.
    width: f64,
    /// Share of trials spoilt at any rate.
    spoilt: f64,
    passing: f64,
}

impl Machine {
    fn passes(&self, rate: f64, random: &mut Random) -> bool {
        let at_truth = self.passing / (1.0 - self.spoilt);
        let offset = (at_truth / (1.0 - at_truth)).ln();
        let above = (self.truth / rate).ln();
        let unspoilt = match self.width {
            0.0 => f64::from(u8::from(above >= 0.0)),
            width => 1.0 / (1.0 + (-above / width - offset).exp()),
        };
        random.unit() < (1.0 - self.spoilt) * unspoilt
    }

    fn search(&self, config: SearchConfig, seed: u64) -> (Estimate, u32) {
        let mut random = Random::new(seed);
        let mut search = Search::new(config).unwrap();
        while let Some(rate) = search.next() {
            assert!(rate >= config.min_rate * 0.999 && rate <= config.max_rate * (1.0 + config.precision), "{rate}");
            search.record(rate, self.passes(rate, &mut random));
        }
        (search.estimate(), search.trials_made())
    }
}

const WIDE: SearchConfig =
    SearchConfig { min_rate: 0.1, max_rate: 100.0, precision: 0.02, confidence: 0.95, passing: 0.5, trials: 100 };
const QUICK: SearchConfig =
    SearchConfig { min_rate: 1.0, max_rate: 20.0, precision: 0.1, confidence: 0.95, passing: 0.5, trials: 60 };

fn holds(estimate: &Estimate, truth: f64) -> bool {
    estimate.low.is_none_or(|low| low <= truth) && estimate.high.is_none_or(|high| truth <= high)
}

/// Returns machines with random thresholds, some outside the searched range.
fn machines(width: f64, spoilt: f64, passing: f64) -> impl Iterator<Item = (u64, Machine)> {
    seeds(0..RUNS).map(move |seed| {
        let mut random = Random::new(seed ^ 0xABCD);
        let truth = 0.8 * 30_f64.powf(random.unit());
        (seed, Machine { truth, width, spoilt, passing })
    })
}

/// Number of machines of a kind; a share over fewer is not significant.
const RUNS: u64 = 100;

/// Returns the share of machines whose threshold is in the interval; 1 if there are too few machines.
fn coverage(machines: impl Iterator<Item = (u64, Machine)>, config: SearchConfig) -> f64 {
    let (mut covered, mut all) = (0, 0);
    for (seed, machine) in machines {
        covered += u64::from(holds(&machine.search(config, seed).0, machine.truth));
        all += 1;
    }
    if all < RUNS { 1.0 } else { covered as f64 / all as f64 }
}

#[test]
fn intervals_have_the_stated_coverage_on_every_machine() {
    for (width, spoilt) in [(0.0, 0.0), (0.01, 0.0), (0.05, 0.02), (0.3, 0.0), (0.02, 0.15), (0.1, 0.3)] {
        for confidence in [0.6, 0.95] {
            let config = SearchConfig { confidence, ..QUICK };
            let share = coverage(machines(width, spoilt, 0.5), config);
            println!("width {width}, spoilt {spoilt}: {share:.3} of the intervals hold, {confidence} required");
            assert!(share >= confidence, "width {width}, spoilt {spoilt}: {share} of {confidence}");
        }
    }
}

#[test]
fn intervals_hold_at_any_stop_and_pass_probability() {
    for passing in [0.3, 0.5, 0.8] {
        for trials in [1, 5, 12, 30] {
            let config = SearchConfig { passing, trials, confidence: 0.8, ..QUICK };
            let share = coverage(machines(0.05, 0.05, passing), config);
            assert!(share >= 0.8, "passing {passing}, {trials} trials: {share}");
        }
    }
}

#[test]
fn a_quiet_machine_needs_about_thirty_trials() {
    for truth in [0.35, 3.21, 12.0, 41.9, 77.7] {
        let machine = Machine { truth, width: 0.0, spoilt: 0.0, passing: 0.5 };
        let (estimate, made) = machine.search(WIDE, 1);
        assert!(estimate.is_precise && made <= 35, "{truth}: {made} trials, {estimate:?}");
        assert!(holds(&estimate, truth) && (estimate.rate / truth - 1.0).abs() < 0.02, "{truth}: {estimate:?}");
        assert!(estimate.high.unwrap() / estimate.low.unwrap() < 1.0201);
    }
}

#[test]
fn a_noisy_machine_gives_a_rate_and_its_interval() {
    let (mut runs, mut far) = (0, 0);
    for seed in seeds(0..20) {
        let machine = Machine { truth: 23.0, width: 0.02, spoilt: 0.1, passing: 0.5 };
        let (estimate, made) = machine.search(WIDE, seed);
        assert!(estimate.is_precise || made == 100, "{made} trials, {estimate:?}");
        (runs, far) = (runs + 1, far + u32::from((estimate.rate / 23.0 - 1.0).abs() > 0.1));
        let (low, high) = (estimate.low.unwrap_or(0.1), estimate.high.unwrap_or(100.0));
        assert!(low < estimate.rate && estimate.rate < high, "{estimate:?}");
    }
    assert!(far <= runs / 100, "of {runs} rates {far} are wrong by a tenth");
}

#[test]
fn a_rate_outside_the_range_is_reported_as_such() {
    for (truth, above) in [(1e-3, false), (1e6, true)] {
        let machine = Machine { truth, width: 0.0, spoilt: 0.0, passing: 0.5 };
        let (estimate, made) = machine.search(WIDE, 1);
        assert!(estimate.is_precise && made <= 40, "{made} trials, {estimate:?}");
        assert_eq!((estimate.low.is_some(), estimate.high.is_some()), (above, !above), "{estimate:?}");
    }
}

#[test]
fn the_same_results_give_the_same_search() {
    let machine = Machine { truth: 7.0, width: 0.1, spoilt: 0.1, passing: 0.5 };
    assert_eq!(machine.search(WIDE, 9), machine.search(WIDE, 9));
}

#[test]
fn the_interval_is_unbounded_before_the_first_trial() {
    let estimate = Search::new(WIDE).unwrap().estimate();
    assert_eq!((estimate.low, estimate.high, estimate.is_precise), (None, None, false));
}

#[test]
fn invalid_parameters_are_refused() {
    let refused = |change: fn(&mut SearchConfig)| {
        let mut config = WIDE;
        change(&mut config);
        Search::new(config).unwrap_err()
    };
    assert!(refused(|q| q.precision = 0.0).contains("precision"));
    assert!(refused(|q| q.precision = f64::NAN).contains("precision"));
    assert!(refused(|q| q.confidence = 1.0).contains("confidence"));
    assert!(refused(|q| q.passing = 0.0).contains("probability"));
    assert!(refused(|q| q.max_rate = 0.05).contains("span at least twice"));
    assert!(refused(|q| q.min_rate = -1.0).contains("span at least twice"));
    assert!(refused(|q| q.max_rate = f64::INFINITY).contains("span at least twice"));
    assert!(refused(|q| q.trials = 0).contains("at least 1 trial"));
}
