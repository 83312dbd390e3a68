//! When the next shot starts.
//!
//! A [`Pacer`] has no clock: every call brings the time, in nanoseconds of one steady clock. The order is
//! [`Pacer::next`] until it says [`Next::Fire`], then the shot is sent, then [`Pacer::sent`].
//!
//! The device that is emulated needs `samples / sample rate + 1.85 us` for a shot, and until then it is deaf:
//! a trigger that falls into this time is missed and counted. So a periodic trigger just above the highest
//! shot rate halves it: every second trigger is missed. If sending really takes longer, ticks of the trigger
//! input that fall into it are missed too. Of trigger commands, the first that comes meanwhile starts the next
//! shot: a receiver may answer the last packet with the next command before the sender knows that it is done.

use serde::{Deserialize, Serialize};
use shotline_plan::formula::shot::{DEAD_TIME_S, busy_s, period_s};
use shotline_wire::shot::Geometry;

/// Fractional bits of a period: no drift over any run (a quarter of a nanosecond in 2^30 shots).
const FRACTION: u32 = 32;

/// What starts a shot when nothing outside does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// The end of the last one, at the device's own pace: `samples / sample rate + 1.85 us`.
    #[default]
    Device,
    /// The end of the last one, as fast as the link takes them.
    Max,
    /// A steady rate, in shots per second.
    Rate(f64),
    /// A steady rate that makes so many Gbit/s, samples, padding and records of all links together.
    Bandwidth(f64),
    /// The times at which the shots were taken, so many times as fast. Gaps stay gaps. Shots that have no such times
    /// are sent as fast as the link takes them.
    Recorded(f64),
}

/// What starts a shot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// The probe itself.
    Free(Pace),
    /// A periodic external trigger of so many hertz, which the device misses while it is busy.
    External(f64),
    /// A trigger command for each shot, which the device misses while it is busy.
    Command,
}

impl Timing {
    /// Nanoseconds from one start to the next, where the timing has a period. `links` has the shape of each
    /// link's shots.
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

/// Nanoseconds for which one shot occupies the device: its links sample at the same time.
fn busy_ns(links: &[Geometry]) -> f64 {
    let busy = |geometry: &Geometry| busy_s(geometry.samples(), geometry.sample_rate_hz().into(), DEAD_TIME_S) * 1e9;
    links.iter().map(busy).fold(DEAD_TIME_S * 1e9, f64::max)
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send a shot, then call [`Pacer::sent`].
    Fire,
    /// Nothing before this time.
    At(u64),
    /// Nothing before a trigger command.
    Trigger,
}

/// Starts that were asked for and did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PaceCounts {
    /// Triggers that came while the device was busy.
    pub missed: u64,
    /// Shots of a steady rate that were left out because sending fell behind by more than one.
    pub slipped: u64,
}

impl PaceCounts {
    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self { missed: self.missed + other.missed, slipped: self.slipped + other.slipped }
    }
}

/// Decides when shots start.
#[derive(Debug)]
pub struct Pacer {
    rule: Rule,
    busy_ns: u64,
    state: State,
    counts: PaceCounts,
}

#[derive(Debug)]
enum Rule {
    Max,
    /// The upcoming shot was told to be due; the first one is at once.
    Recorded {
        speed: f64,
        /// When the first shot was sent, and when it had been taken.
        begun: Option<(u64, u64)>,
        due: Option<u64>,
    },
    /// Behind by more than one, ticks are left out.
    Steady(Ticks),
    /// Ticks during a shot are missed.
    External(Ticks),
    /// A command has been taken, and its shot will have been sampled at this time.
    Command(Option<u64>),
}

#[derive(Debug)]
enum State {
    /// Deaf to triggers before this time.
    BusyUntil(u64),
    /// A shot that started at this time is being sent.
    Sending(u64),
}

impl Pacer {
    /// Starts now. `timing` must have been checked ([`super::Config::check`]).
    pub fn new(timing: Timing, links: &[Geometry], now: u64) -> Self {
        let ticks = || Ticks::new(now, timing.period_ns(links).unwrap_or_else(|| busy_ns(links)));
        let rule = match timing {
            Timing::Free(Pace::Max) => Rule::Max,
            Timing::Free(Pace::Recorded(speed)) => Rule::Recorded { speed, begun: None, due: None },
            Timing::Free(_) => Rule::Steady(ticks()),
            Timing::External(_) => Rule::External(ticks()),
            Timing::Command => Rule::Command(None),
        };
        Self {
            rule,
            busy_ns: busy_ns(links).round() as u64,
            state: State::BusyUntil(now),
            counts: PaceCounts::default(),
        }
    }

    /// The upcoming shot was taken at this time, by a clock of its own. For [`Pace::Recorded`]; nothing else looks.
    pub fn taken(&mut self, taken_ns: u64, now: u64) {
        if let (Rule::Recorded { speed, begun, due }, State::BusyUntil(_)) = (&mut self.rule, &self.state) {
            let (sent, taken) = *begun.get_or_insert((now, taken_ns));
            let after = taken_ns.saturating_sub(taken) as f64 / *speed;
            *due = Some(sent.saturating_add(after.round() as u64));
        }
    }

    /// What to do at `now`.
    pub fn next(&mut self, now: u64) -> Next {
        let State::BusyUntil(busy_until) = self.state else { return Next::Fire };
        let started = match &mut self.rule {
            Rule::Max => now,
            Rule::Recorded { due, .. } => {
                if let Some(due) = due.filter(|due| now < *due) {
                    return Next::At(due);
                }
                due.take().unwrap_or(now)
            }
            Rule::Steady(ticks) => {
                if now < ticks.due() {
                    return Next::At(ticks.due());
                }
                self.counts.slipped += ticks.skip(ticks.whole_periods(now - ticks.due()).saturating_sub(1));
                ticks.take()
            }
            Rule::External(ticks) => {
                while ticks.due() <= now && ticks.due() < busy_until {
                    // Rounded down, so that a tick at the very end of the busy time is looked at by itself.
                    let inside = ticks.whole_periods(busy_until.min(now) - ticks.due()).max(1);
                    self.counts.missed += ticks.skip(inside);
                }
                if now < ticks.due() {
                    return Next::At(ticks.due());
                }
                ticks.take()
            }
            Rule::Command(taken) => {
                let Some(sampled) = *taken else { return Next::Trigger };
                if now < sampled {
                    return Next::At(sampled);
                }
                *taken = None;
                now
            }
        };
        self.state = State::Sending(started);
        Next::Fire
    }

    /// The shot has been sent; it is `now`.
    pub fn sent(&mut self, now: u64) {
        if let State::Sending(started) = self.state {
            self.state = State::BusyUntil(now.max(started.saturating_add(self.busy_ns)));
        }
    }

    /// A trigger command has arrived; false if it starts no shot. Those that came while a shot was being
    /// sampled must be told before it is sent, all others after [`Self::sent`].
    pub fn trigger(&mut self, now: u64) -> bool {
        let Rule::Command(taken) = &mut self.rule else { return false };
        let free = taken.is_none() && matches!(self.state, State::BusyUntil(_));
        if free {
            *taken = Some(now.saturating_add(self.busy_ns));
        } else {
            self.counts.missed += 1;
        }
        free
    }

    /// Nanoseconds between a shot's first sample and [`Next::Fire`].
    pub fn sampled_before_ns(&self) -> u64 {
        if self.takes_commands() { self.busy_ns } else { 0 }
    }

    /// Whether trigger commands start the shots.
    pub fn takes_commands(&self) -> bool {
        matches!(self.rule, Rule::Command(_))
    }

    /// Trigger commands are known to have been lost on their way.
    pub fn miss(&mut self, triggers: u64) {
        self.counts.missed += triggers;
    }

    /// Starts that did not happen.
    pub fn counts(&self) -> PaceCounts {
        self.counts
    }
}

/// Instants at equal distances. Those beyond the end of time are at its end.
#[derive(Debug)]
struct Ticks {
    start: u64,
    /// In 2^-32 ns, at least 1 ns: so no more ticks fit into time than `index` counts.
    period: u128,
    index: u64,
}

impl Ticks {
    fn new(start: u64, period_ns: f64) -> Self {
        let period = (period_ns * (1_u64 << FRACTION) as f64).round() as u128;
        Self { start, period: period.max(1 << FRACTION), index: 0 }
    }

    fn due(&self) -> u64 {
        let half = 1 << (FRACTION - 1);
        let after = u128::from(self.index).saturating_mul(self.period).saturating_add(half) >> FRACTION;
        self.start.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    fn take(&mut self) -> u64 {
        let due = self.due();
        self.index = self.index.saturating_add(1);
        due
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

    /// Two links of 96 channels.
    fn links(samples: u32) -> [Geometry; 2] {
        [Geometry::new(96, samples, 12, Packing::Packed12, 40_000_000).unwrap(); 2]
    }

    /// Runs for `ns` with a link that takes `sending` for each shot; returns the starts.
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
    fn free_running_shots_come_at_the_rates_of_the_paper() {
        for (samples, khz) in [(500, 69.68), (1000, 37.24), (2000, 19.28), (4000, 9.82)] {
            let mut pacer = Pacer::new(Timing::Free(Pace::Device), &links(samples), 0);
            let found = run(&mut pacer, 1_000_000_000, 5_000).len() as f64 / 1e3;
            assert!((found / khz - 1.0).abs() < 0.005, "{samples} samples: {found} kHz, the paper has {khz}");
        }
    }

    #[test]
    fn a_period_that_is_no_whole_nanosecond_does_not_drift() {
        let mut pacer = Pacer::new(Timing::Free(Pace::Rate(30_000.0)), &links(500), 7);
        let starts = run(&mut pacer, 10_000_000_008, 1_000);
        assert_eq!((starts.len(), starts[300_000]), (300_001, 10_000_000_007));
        assert_eq!(pacer.counts(), PaceCounts::default());
    }

    #[test]
    fn a_bandwidth_counts_the_payload_of_all_links() {
        let period = Timing::Free(Pace::Bandwidth(40.0)).period_ns(&links(2000)).unwrap();
        assert!((period - 288_064.0 * 2.0 * 8.0 / 40.0).abs() < 1e-6);
    }

    #[test]
    fn a_steady_rate_catches_up_by_one_shot_and_leaves_out_the_rest() {
        let mut pacer = Pacer::new(Timing::Free(Pace::Rate(1e6)), &links(2000), 0);
        assert_eq!(pacer.next(0), Next::Fire);
        pacer.sent(5_500); // shots 1 to 5 were due meanwhile
        assert_eq!(pacer.next(5_500), Next::Fire); // shot 4, one late
        pacer.sent(5_600);
        assert_eq!(pacer.next(5_600), Next::Fire); // shot 5
        pacer.sent(5_700);
        assert_eq!(pacer.next(5_700), Next::At(6_000));
        assert_eq!(pacer.counts(), PaceCounts { missed: 0, slipped: 3 });
    }

    #[test]
    fn an_external_trigger_just_too_fast_halves_the_shot_rate() {
        // 2000 samples occupy the device for 51.85 us: 19.286 kHz at most.
        for (hz, shots, missed) in [(19_000.0, 19_000, 0), (20_000.0, 10_000, 10_000), (40_000.0, 13_334, 26_666)] {
            let mut pacer = Pacer::new(Timing::External(hz), &links(2000), 0);
            assert_eq!(run(&mut pacer, 1_000_000_000, 10_000).len(), shots, "{hz} Hz");
            assert!(pacer.counts().missed.abs_diff(missed) <= 2, "{hz} Hz: {:?}", pacer.counts());
        }
    }

    #[test]
    fn triggers_that_fall_into_slow_sending_are_missed_too() {
        let mut pacer = Pacer::new(Timing::External(10_000.0), &links(500), 0);
        let starts = run(&mut pacer, 1_000_000, 250_000); // every shot covers two further triggers
        assert_eq!(starts, [0, 300_000, 600_000, 900_000]);
        assert_eq!(pacer.counts().missed, 6);
    }

    #[test]
    fn every_trigger_is_a_shot_or_missed_wherever_the_time_stands() {
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
        assert_eq!(shots + pacer.counts().missed, ticks.index);
    }

    proptest! {
        #[test]
        fn no_rate_and_no_time_overflows_or_comes_to_no_end(
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
                pacer.taken(step, now);
                match pacer.next(now) {
                    Next::At(at) => prop_assert!(at > now, "{at} is no time after {now}"),
                    Next::Fire => pacer.sent(now),
                    Next::Trigger => prop_assert!(false, "{timing:?} waits for no command"),
                }
                now = now.saturating_add(step >> shift);
            }
        }
    }

    #[test]
    fn a_trigger_command_is_taken_when_idle_and_missed_while_sampling() {
        let mut pacer = Pacer::new(Timing::Command, &links(2000), 0);
        assert_eq!(pacer.next(0), Next::Trigger);
        assert!(pacer.trigger(10));
        assert!(!pacer.trigger(11));
        assert_eq!(pacer.next(20), Next::At(10 + 51_850));
        assert_eq!(pacer.next(10 + 51_850), Next::Fire);
        assert!(!pacer.trigger(10 + 51_851)); // had been waiting to be looked at
        pacer.sent(90_000);
        assert!(pacer.trigger(90_001));
        assert_eq!((pacer.next(90_002), pacer.counts().missed), (Next::At(90_001 + 51_850), 2));
    }
}
