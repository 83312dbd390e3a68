//! Start times of shots.
//!
//! A [`Pacer`] has no clock: each call passes the time in ns of one steady clock. Call [`Pacer::next`] until it returns
//! [`Next::Fire`], send the shot, then call [`Pacer::sent`].
//!
//! The emulated device needs `samples / sample rate + 1.85 us` per shot and ignores triggers during that time; they are
//! counted as missed. A periodic trigger just above the maximum shot rate therefore halves it, because every second
//! trigger is missed. If sending takes longer than sampling, ticks of the trigger input during sending are missed too.
//! The first trigger command during sending starts the next shot, because a receiver may respond to the last packet
//! with the next command before the sender has recorded the shot as sent.

use serde::{Deserialize, Serialize};
use shotline_plan::formula::shot::{DEAD_TIME_S, busy_s, period_s};
use shotline_wire::shot::Geometry;

/// Fractional bits of a period, enough to avoid drift (a quarter of a nanosecond in 2^30 shots).
const FRACTION: u32 = 32;

/// Pace of shots in free-running mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// The device's own pace: one shot per `samples / sample rate + 1.85 us`.
    #[default]
    Device,
    /// As fast as the link accepts shots.
    Max,
    /// A steady rate, in shots per second.
    Rate(f64),
    /// A steady rate with this bandwidth in Gbit/s: samples, padding and records of all links.
    Bandwidth(f64),
    /// The recorded times of the shots, sped up by this factor. Gaps are kept. Shots without recorded times are sent as
    /// fast as the link accepts them.
    Recorded(f64),
}

/// Source of shot starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// Free running.
    Free(Pace),
    /// A periodic external trigger with this frequency in Hz, which is missed while the device is busy.
    External(f64),
    /// One trigger command per shot, which is missed while the device is busy.
    Command,
}

impl Timing {
    /// Returns the period of shot starts in ns, if the timing is periodic. `links` holds each link's geometry.
    pub fn period_ns(&self, links: &[Geometry]) -> Option<f64> {
        match *self {
            Self::Free(Pace::Max | Pace::Recorded(_)) | Self::Command => None,
            Self::Free(Pace::Device) => Some(busy_ns(links)),
            Self::Free(Pace::Rate(hz)) | Self::External(hz) => Some(1e9 / hz),
            Self::Free(Pace::Bandwidth(gbit)) => {
                let bytes: f64 = links.iter().map(|geometry| f64::from(geometry.shot_bytes())).sum();
                Some(period_s(bytes, gbit * 1e9) * 1e9)
            }
        }
    }
}

/// Returns the time in ns for which a shot occupies the device; links sample concurrently.
fn busy_ns(links: &[Geometry]) -> f64 {
    let busy = |geometry: &Geometry| busy_s(geometry.samples(), geometry.sample_rate_hz().into(), DEAD_TIME_S) * 1e9;
    links.iter().map(busy).fold(DEAD_TIME_S * 1e9, f64::max)
}

/// Next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send a shot, then call [`Pacer::sent`].
    Fire,
    /// Wait until this time, in ns.
    At(u64),
    /// Wait for a trigger command.
    Trigger,
}

/// Counters of shot starts that did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PaceCounters {
    /// Triggers that arrived while the device was busy.
    pub missed: u64,
    /// Shots of a steady rate that were skipped because sending was late by more than one shot.
    pub skipped: u64,
}

impl PaceCounters {
    /// Returns the sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self { missed: self.missed + other.missed, skipped: self.skipped + other.skipped }
    }
}

/// Decides when shots start.
#[derive(Debug)]
pub struct Pacer {
    rule: Rule,
    busy_ns: u64,
    state: State,
    counters: PaceCounters,
}

#[derive(Debug)]
enum Rule {
    Max,
    /// Follows recorded times; the first shot starts immediately.
    Recorded {
        speed: f64,
        /// Send time and recorded time of the first shot.
        first: Option<(u64, u64)>,
        /// Start time of the upcoming shot.
        start: Option<u64>,
    },
    /// Skips ticks when late by more than one.
    Steady(Ticks),
    /// Misses ticks during a shot.
    External(Ticks),
    /// Time at which the shot of the accepted command will have been sampled.
    Command(Option<u64>),
}

#[derive(Debug)]
enum State {
    /// Triggers are ignored before this time.
    BusyUntil(u64),
    /// A shot that started at this time is being sent.
    Sending(u64),
}

impl Pacer {
    /// Creates a pacer that starts at `now`. `timing` must be valid ([`super::Config::check`]).
    pub fn new(timing: Timing, links: &[Geometry], now: u64) -> Self {
        let ticks = || Ticks::new(now, timing.period_ns(links).unwrap_or_else(|| busy_ns(links)));
        let rule = match timing {
            Timing::Free(Pace::Max) => Rule::Max,
            Timing::Free(Pace::Recorded(speed)) => Rule::Recorded { speed, first: None, start: None },
            Timing::Free(_) => Rule::Steady(ticks()),
            Timing::External(_) => Rule::External(ticks()),
            Timing::Command => Rule::Command(None),
        };
        Self {
            rule,
            busy_ns: busy_ns(links).round() as u64,
            state: State::BusyUntil(now),
            counters: PaceCounters::default(),
        }
    }

    /// Sets the recorded time of the upcoming shot, by the recording's clock. Only [`Pace::Recorded`] uses it.
    pub fn set_recorded_time(&mut self, recorded_ns: u64, now: u64) {
        if let (Rule::Recorded { speed, first, start }, State::BusyUntil(_)) = (&mut self.rule, &self.state) {
            let (first_sent_ns, first_recorded_ns) = *first.get_or_insert((now, recorded_ns));
            let after = recorded_ns.saturating_sub(first_recorded_ns) as f64 / *speed;
            *start = Some(first_sent_ns.saturating_add(after.round() as u64));
        }
    }

    /// Returns the next action at `now`, in ns.
    pub fn next(&mut self, now: u64) -> Next {
        let State::BusyUntil(busy_until) = self.state else { return Next::Fire };
        let started = match &mut self.rule {
            Rule::Max => now,
            Rule::Recorded { start, .. } => {
                if let Some(start) = start.filter(|start| now < *start) {
                    return Next::At(start);
                }
                start.take().unwrap_or(now)
            }
            Rule::Steady(ticks) => {
                if now < ticks.next() {
                    return Next::At(ticks.next());
                }
                self.counters.skipped += ticks.skip(ticks.whole_periods(now - ticks.next()).saturating_sub(1));
                ticks.take()
            }
            Rule::External(ticks) => {
                while ticks.next() <= now && ticks.next() < busy_until {
                    // Rounded down so that a tick at the very end of the busy time is checked separately.
                    let inside = ticks.whole_periods(busy_until.min(now) - ticks.next()).max(1);
                    self.counters.missed += ticks.skip(inside);
                }
                if now < ticks.next() {
                    return Next::At(ticks.next());
                }
                ticks.take()
            }
            Rule::Command(pending) => {
                let Some(sampled) = *pending else { return Next::Trigger };
                if now < sampled {
                    return Next::At(sampled);
                }
                *pending = None;
                now
            }
        };
        self.state = State::Sending(started);
        Next::Fire
    }

    /// Records that the shot was completely sent at `now`, in ns.
    pub fn sent(&mut self, now: u64) {
        if let State::Sending(started) = self.state {
            self.state = State::BusyUntil(now.max(started.saturating_add(self.busy_ns)));
        }
    }

    /// Processes a trigger command; returns `false` if it starts no shot. Pass commands that arrived during sampling
    /// before the shot is sent, and all others after [`Self::sent`].
    pub fn trigger(&mut self, now: u64) -> bool {
        let Rule::Command(pending) = &mut self.rule else { return false };
        let is_free = pending.is_none() && matches!(self.state, State::BusyUntil(_));
        if is_free {
            *pending = Some(now.saturating_add(self.busy_ns));
        } else {
            self.counters.missed += 1;
        }
        is_free
    }

    /// Returns the time from a shot's first sample to [`Next::Fire`], in ns: the sampling time if commands start the
    /// shots, else 0.
    pub fn since_first_sample_ns(&self) -> u64 {
        if self.takes_commands() { self.busy_ns } else { 0 }
    }

    /// Returns `true` if trigger commands start the shots.
    pub fn takes_commands(&self) -> bool {
        matches!(self.rule, Rule::Command(_))
    }

    /// Counts trigger commands that are known to have been lost in transit.
    pub fn miss(&mut self, triggers: u64) {
        self.counters.missed += triggers;
    }

    /// Returns the counters of starts that did not happen.
    pub fn counters(&self) -> PaceCounters {
        self.counters
    }
}

/// Equidistant times, saturating at `u64::MAX`.
#[derive(Debug)]
struct Ticks {
    start: u64,
    /// Period in 2^-32 ns. It is at least 1 ns, so `index` cannot overflow before the time does.
    period: u128,
    index: u64,
}

impl Ticks {
    fn new(start: u64, period_ns: f64) -> Self {
        let period = (period_ns * (1_u64 << FRACTION) as f64).round() as u128;
        Self { start, period: period.max(1 << FRACTION), index: 0 }
    }

    /// Returns the time of the next tick.
    fn next(&self) -> u64 {
        let half = 1 << (FRACTION - 1);
        let after = u128::from(self.index).saturating_mul(self.period).saturating_add(half) >> FRACTION;
        self.start.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    fn take(&mut self) -> u64 {
        let tick = self.next();
        self.index = self.index.saturating_add(1);
        tick
    }

    fn skip(&mut self, count: u64) -> u64 {
        self.index = self.index.saturating_add(count);
        count
    }

    fn whole_periods(&self, ns: u64) -> u64 {
        ((u128::from(ns) << FRACTION) / self.period) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shotline_wire::shot::Packing;

    /// Returns the geometries of two links of 96 channels.
    fn links(samples: u32) -> [Geometry; 2] {
        [Geometry::new(96, samples, 12, Packing::Packed12, 40_000_000).unwrap(); 2]
    }

    /// Runs for `ns` with a link that needs `sending` ns per shot; returns the start times.
    fn run(pacer: &mut Pacer, ns: u64, sending: u64) -> Vec<u64> {
        let (mut now, mut starts) = (0, Vec::new());
        while now < ns {
            match pacer.next(now) {
                Next::Fire => {
                    starts.push(now);
                    now += sending;
                    pacer.sent(now);
                }
                Next::At(at) => now = at,
                Next::Trigger => break,
            }
        }
        starts
    }

    #[test]
    fn free_running_shot_rates_match_the_paper() {
        for (samples, khz) in [(500, 69.68), (1000, 37.24), (2000, 19.28), (4000, 9.82)] {
            let mut pacer = Pacer::new(Timing::Free(Pace::Device), &links(samples), 0);
            let found = run(&mut pacer, 1_000_000_000, 5_000).len() as f64 / 1e3;
            assert!((found / khz - 1.0).abs() < 0.005, "{samples} samples: {found} kHz, the paper has {khz}");
        }
    }

    #[test]
    fn a_fractional_period_does_not_drift() {
        let mut pacer = Pacer::new(Timing::Free(Pace::Rate(30_000.0)), &links(500), 7);
        let starts = run(&mut pacer, 10_000_000_008, 1_000);
        assert_eq!((starts.len(), starts[300_000]), (300_001, 10_000_000_007));
        assert_eq!(pacer.counters(), PaceCounters::default());
    }

    #[test]
    fn a_bandwidth_counts_the_payload_of_all_links() {
        let period = Timing::Free(Pace::Bandwidth(40.0)).period_ns(&links(2000)).unwrap();
        assert!((period - 288_064.0 * 2.0 * 8.0 / 40.0).abs() < 1e-6);
    }

    #[test]
    fn a_steady_rate_catches_up_by_one_shot_and_skips_the_rest() {
        let mut pacer = Pacer::new(Timing::Free(Pace::Rate(1e6)), &links(2000), 0);
        assert_eq!(pacer.next(0), Next::Fire);
        pacer.sent(5_500); // the start times of shots 1 to 5 have passed
        assert_eq!(pacer.next(5_500), Next::Fire); // shot 4, one late
        pacer.sent(5_600);
        assert_eq!(pacer.next(5_600), Next::Fire); // shot 5
        pacer.sent(5_700);
        assert_eq!(pacer.next(5_700), Next::At(6_000));
        assert_eq!(pacer.counters(), PaceCounters { missed: 0, skipped: 3 });
    }

    #[test]
    fn an_external_trigger_just_too_fast_halves_the_shot_rate() {
        // 2000 samples occupy the device for 51.85 us: 19.286 kHz at most.
        for (hz, shots, missed) in [(19_000.0, 19_000, 0), (20_000.0, 10_000, 10_000), (40_000.0, 13_334, 26_666)] {
            let mut pacer = Pacer::new(Timing::External(hz), &links(2000), 0);
            assert_eq!(run(&mut pacer, 1_000_000_000, 10_000).len(), shots, "{hz} Hz");
            assert!(pacer.counters().missed.abs_diff(missed) <= 2, "{hz} Hz: {:?}", pacer.counters());
        }
    }

    #[test]
    fn triggers_during_slow_sending_are_missed() {
        let mut pacer = Pacer::new(Timing::External(10_000.0), &links(500), 0);
        let starts = run(&mut pacer, 1_000_000, 250_000); // every shot covers two further triggers
        assert_eq!(starts, [0, 300_000, 600_000, 900_000]);
        assert_eq!(pacer.counters().missed, 6);
    }

    #[test]
    fn every_trigger_starts_a_shot_or_is_missed() {
        let mut random = shotline_random::SplitMix64::new(5);
        let mut pacer = Pacer::new(Timing::External(50_000.0), &links(500), 0);
        let (mut now, mut shots) = (0, 0);
        for _ in 0..100_000 {
            now += random.below(60_000);
            if pacer.next(now) == Next::Fire {
                shots += 1;
                now += random.below(60_000);
                pacer.sent(now);
            }
        }
        let Rule::External(ticks) = &pacer.rule else { panic!() };
        assert_eq!(shots + pacer.counters().missed, ticks.index);
    }

    proptest! {
        #[test]
        fn no_rate_or_time_overflows_or_loops_forever(
            exponent in -320.0..320.0_f64,
            kind in 0..4_u8,
            start in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
            steps in prop::collection::vec((0..64_u32, any::<u64>()), 1..60),
        ) {
            let rate = 10_f64.powf(exponent).clamp(f64::MIN_POSITIVE, f64::MAX);
            let timing = match kind {
                0 => Timing::Free(Pace::Rate(rate)),
                1 => Timing::Free(Pace::Bandwidth(rate)),
                2 => Timing::Free(Pace::Recorded(rate)),
                _ => Timing::External(rate),
            };
            let (mut pacer, mut now) = (Pacer::new(timing, &links(500), start), start);
            for (shift, step) in steps {
                pacer.set_recorded_time(step, now);
                match pacer.next(now) {
                    Next::At(at) => prop_assert!(at > now, "{at} is not after {now}"),
                    Next::Fire => pacer.sent(now),
                    Next::Trigger => prop_assert!(false, "{timing:?} needs no command"),
                }
                now = now.saturating_add(step >> shift);
            }
        }
    }

    #[test]
    fn a_trigger_command_is_missed_while_sampling() {
        let mut pacer = Pacer::new(Timing::Command, &links(2000), 0);
        assert_eq!(pacer.next(0), Next::Trigger);
        assert!(pacer.trigger(10));
        assert!(!pacer.trigger(11));
        assert_eq!(pacer.next(20), Next::At(10 + 51_850));
        assert_eq!(pacer.next(10 + 51_850), Next::Fire);
        assert!(!pacer.trigger(10 + 51_851)); // arrived during sampling, processed late
        pacer.sent(90_000);
        assert!(pacer.trigger(90_001));
        assert_eq!((pacer.next(90_002), pacer.counters().missed), (Next::At(90_001 + 51_850), 2));
    }
}
