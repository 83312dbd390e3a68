//! Shows what the medium access controller does for 2, 4, 8, 16 and 32 virtual channels: the share of the link that
//! each reserves and has, how long its frames wait for others, by priority, and whether time-slots are kept.
//!
//! Three kinds of traffic are simulated, and measured for 10 million words after one million:
//!
//! - `backlogged`: all channels always have data.
//! - `random`: frames arrive at random, for 90 % of each channel's share.
//! - `slots`: all channels always have data, and each of the 64 time-slots of 15,625 words belongs to one of them, in turn.
//!
//! Priorities are 0, 1, 2 and 3 in turn; shares are random, and add up to the whole link. The seed is fixed, so the
//! output is always the same. A wait is counted in frames of other channels that start although a frame is ready; the
//! frame that is being sent when it becomes ready is not counted. It is an inversion if the other channel has a lower
//! priority, and this one has used no more than its share: its bandwidth credit is above -0.9 B.
//!
//! Argument: `--csv` prints every channel of both kinds of traffic as comma-separated values, without the summary.

use shotline_random::SplitMix64;
use shotline_spacefibre::qos::{Limits, MediumAccess, Share, TIME_SLOTS, VcQos};

/// Words of a frame of 64 data words.
const FRAME: u32 = 66;
const WORDS: u64 = 10_000_000;
/// Words before the measurement, in which the credits of the channels reach their usual values.
const WARM_UP: u64 = 1_000_000;
const COUNTS: [usize; 5] = [2, 4, 8, 16, 32];
const PRIORITIES: usize = 4;
/// Words of a time-slot.
const SLOT_WORDS: u64 = 15_625;
/// Offered part of each channel's share with random arrivals.
const LOAD: f64 = 0.9;

#[derive(Clone, Copy)]
enum Traffic {
    Backlogged,
    Random,
    Slots,
}

impl Traffic {
    const fn name(self) -> &'static str {
        match self {
            Self::Backlogged => "backlogged",
            Self::Random => "random",
            Self::Slots => "slots",
        }
    }
}

/// What one channel has sent.
#[derive(Clone, Copy, Default)]
struct Measured {
    words: u64,
    /// Longest wait of a frame that is the first in the queue of its channel, in frames of other channels.
    max_wait: u64,
    /// Most of them in a row that were inversions.
    max_inversion: u64,
    /// Frames that started outside of the channel's time-slots.
    outside: u64,
}

/// One channel in a simulation.
struct Source {
    /// Frames that wait to be sent.
    queued: u64,
    /// Words sent when the next frame arrives.
    next: f64,
    /// Frames of other channels since the first of the queue could be sent.
    waited: u64,
    /// Those of lower priority, while this channel had used no more than its share.
    inverted: u64,
}

fn main() {
    let csv = std::env::args().any(|argument| argument == "--csv");
    if csv {
        println!(
            "traffic,channels,vc,priority,reserved_percent,measured_percent,max_wait_frames,max_inversion_frames,\
             frames_outside_slots"
        );
    } else {
        println!("All channels backlogged: share of the link, reserved and measured");
        println!("channels  largest error  smallest share        largest share");
    }
    let runs = |traffic| COUNTS.map(|count| (count, run(count, traffic)));
    let (backlogged, random, slots) = (runs(Traffic::Backlogged), runs(Traffic::Random), runs(Traffic::Slots));
    if csv {
        let all = [(Traffic::Backlogged, &backlogged), (Traffic::Random, &random), (Traffic::Slots, &slots)];
        for (traffic, runs) in all {
            runs.iter().for_each(|(count, channels)| print_csv(traffic, *count, channels));
        }
        return;
    }
    backlogged.iter().for_each(|(count, channels)| print_shares(*count, channels));
    println!("\nRandom arrivals for 90 % of the shares: longest wait of a frame, in frames of other channels");
    println!("channels  priority 0  priority 1  priority 2  priority 3");
    random.iter().for_each(|(count, channels)| print_waits(*count, channels));
    let of_all = |runs: &[(usize, Vec<(VcQos, Measured)>)], value: fn(&Measured) -> u64| {
        runs.iter().flat_map(|(_, channels)| channels).map(|(_, measured)| value(measured)).max().unwrap_or_default()
    };
    println!("\nMost inversions of a frame: {}", of_all(&random, |measured| measured.max_inversion));
    println!(
        "Frames of a channel that started outside of its time-slots: {}",
        of_all(&slots, |measured| measured.outside)
    );
}

fn run(count: usize, traffic: Traffic) -> Vec<(VcQos, Measured)> {
    let mut random = SplitMix64::new(1);
    let mut channels = channels(count, &mut random);
    if let Traffic::Slots = traffic {
        for (vc, qos) in channels.iter_mut().enumerate() {
            let slots = (vc..64).step_by(count).fold(0, |slots, slot| slots | 1 << slot);
            *qos = VcQos {
                slots,
                share: Share::from_parts(Share::WHOLE.parts() / count as u32).unwrap_or(Share::NONE),
                ..*qos
            };
        }
    }
    let measured = simulate(&channels, traffic, &mut random);
    channels.into_iter().zip(measured).collect()
}

/// Channels with random shares that add up to the whole link.
fn channels(count: usize, random: &mut SplitMix64) -> Vec<VcQos> {
    let min = Limits::default().min_share();
    let free = u64::from(Share::WHOLE.parts() - min * count as u32);
    let weights: Vec<_> = (0..count).map(|_| random.between(1, 1 << 20)).collect();
    let total: u64 = weights.iter().sum();
    let qos = |(vc, weight): (usize, &u64)| {
        let share = Share::from_parts(min + (free * weight / total) as u32).unwrap_or(Share::NONE);
        VcQos::new((vc % PRIORITIES) as u8, share)
    };
    weights.iter().enumerate().map(qos).collect()
}

fn simulate(channels: &[VcQos], traffic: Traffic, random: &mut SplitMix64) -> Vec<Measured> {
    let mut access = MediumAccess::new(channels).expect("the shares add up to the whole link");
    let mut measured = vec![Measured::default(); channels.len()];
    let mut sources: Vec<_> =
        channels.iter().map(|_| Source { queued: 0, next: 0.0, waited: 0, inverted: 0 }).collect();
    let mut words = 0;
    while words < WARM_UP + WORDS {
        let is_measured = words >= WARM_UP;
        let slot = words / SLOT_WORDS % u64::from(TIME_SLOTS);
        access.set_slot(slot as u8).expect("there are 64 time-slots");
        let mut ready = 0;
        for (vc, (source, qos)) in (0_u8..).zip(sources.iter_mut().zip(channels)) {
            match traffic {
                Traffic::Backlogged | Traffic::Slots => source.queued = 1,
                Traffic::Random => arrive(source, *qos, words as f64, random),
            }
            ready |= u32::from(source.queued > 0) << vc;
        }
        let selected = access.select(ready);
        let has_priority = (0..channels.len() as u8).map(|vc| access.status(vc).is_some_and(|status| !status.over_use));
        let has_priority: Vec<_> = has_priority.collect();
        let priority = selected.map(|vc| channels[usize::from(vc)].priority);
        access.sent(selected, FRAME);
        words += u64::from(FRAME);
        for (vc, (source, measured)) in (0_u8..).zip(sources.iter_mut().zip(&mut measured)) {
            if Some(vc) == selected {
                if is_measured {
                    measured.words += u64::from(FRAME);
                    measured.max_wait = measured.max_wait.max(source.waited);
                    measured.max_inversion = measured.max_inversion.max(source.inverted);
                    measured.outside += u64::from(channels[usize::from(vc)].slots >> slot & 1 == 0);
                }
                source.queued -= 1;
                (source.waited, source.inverted) = (0, 0);
            } else if source.queued > 0 {
                source.waited += 1;
                let is_lower = priority.is_some_and(|priority| priority > channels[usize::from(vc)].priority);
                source.inverted += u64::from(is_lower && has_priority[usize::from(vc)]);
            }
        }
    }
    measured
}

/// Adds the frames that have arrived, with exponential intervals.
fn arrive(source: &mut Source, qos: VcQos, words: f64, random: &mut SplitMix64) {
    let share = f64::from(qos.share.parts()) / f64::from(Share::WHOLE.parts());
    while source.next <= words {
        source.next += -(1.0 - random.next_f64()).ln() * f64::from(FRAME) / (LOAD * share);
        source.queued += 1;
    }
}

fn percent(share: Share) -> f64 {
    f64::from(share.parts()) / f64::from(Share::WHOLE.parts()) * 100.0
}

fn measured_percent(measured: &Measured) -> f64 {
    measured.words as f64 / WORDS as f64 * 100.0
}

fn print_csv(traffic: Traffic, count: usize, channels: &[(VcQos, Measured)]) {
    for (vc, (qos, measured)) in channels.iter().enumerate() {
        let (reserved, share) = (percent(qos.share), measured_percent(measured));
        let Measured { max_wait, max_inversion, outside, .. } = measured;
        let (name, priority) = (traffic.name(), qos.priority);
        println!("{name},{count},{vc},{priority},{reserved:.3},{share:.3},{max_wait},{max_inversion},{outside}");
    }
}

fn print_shares(count: usize, channels: &[(VcQos, Measured)]) {
    let error = |(qos, measured): &(VcQos, Measured)| (measured_percent(measured) - percent(qos.share)).abs();
    let largest = channels.iter().map(error).fold(0.0, f64::max);
    let text = |channel: Option<&(VcQos, Measured)>| {
        channel.map(|(qos, measured)| format!("{:5.2} -> {:5.2} %", percent(qos.share), measured_percent(measured)))
    };
    let least = text(channels.iter().min_by_key(|(qos, _)| qos.share)).unwrap_or_default();
    let most = text(channels.iter().max_by_key(|(qos, _)| qos.share)).unwrap_or_default();
    println!("{count:8}  {largest:11.3} %  {least:20}  {most}");
}

fn print_waits(count: usize, channels: &[(VcQos, Measured)]) {
    let longest = |priority: usize| {
        let level = channels.iter().filter(|(qos, _)| usize::from(qos.priority) == priority);
        level.map(|(_, measured)| measured.max_wait).max().map_or("-".to_owned(), |wait| wait.to_string())
    };
    let waits: String = (0..PRIORITIES).map(|priority| format!("  {:>10}", longest(priority))).collect();
    println!("{count:8}{waits}");
}
