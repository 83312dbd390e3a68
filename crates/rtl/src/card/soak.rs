//! Constrained-random test of the card: channels start and stop under load, with faults of software and of the bus.
//!
//! Lengths, sizes of buffers and rings, back-pressure and latencies are drawn so that corner cases are frequent. What
//! happens in memory is compared by [`Card`] in each clock; in the end the counters must balance.

use super::descriptors::{Cause, Defect, Settings};
use super::driver::{Counters, State, channel_register};
use super::host::Stalls;
use super::model::{Card, Size};
use super::reads::{Injected, ReadFaults};
use super::source::Source as _;
use crate::registers::{card, card_channel as register};
use shotline_plan::pcie::Link;
use shotline_random::SplitMix64;
use std::ops::AddAssign;

/// Timeout of a read, in units of 256 clocks: more than the host's latency.
const TIMEOUT: u32 = 16;
/// Clocks within which a channel must stop.
const STOP_LIMIT: u64 = 256 * 2 * TIMEOUT as u64 + 20_000;
/// Channels in use at one time.
const HOT: usize = 12;

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Clocks simulated.
    pub clocks: u64,
    /// Starts of channels.
    pub starts: u64,
    /// Stops by software, and by each [`Cause`] at its number.
    pub stops: [u64; 5],
    /// Counters of all channels.
    pub counters: Counters,
    /// Reports, except of runs that continue.
    pub reports: u64,
    /// Interrupts, except of runs that continue.
    pub interrupts: u64,
    /// Completions without a read.
    pub strays: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.clocks += other.clocks;
        self.starts += other.starts;
        for (count, more) in self.stops.iter_mut().zip(other.stops) {
            *count += more;
        }
        self.counters += other.counters;
        self.reports += other.reports;
        self.interrupts += other.interrupts;
        self.strays += other.strays;
    }
}

/// What the software of a channel did since its start.
#[derive(Clone, Debug, Default)]
struct Run {
    running: bool,
    /// When the channel was stopped, or was seen to stop.
    stopping: Option<u64>,
    /// Software stopped it.
    stopped: bool,
    /// Causes for which it may stop by itself, except faults of reads.
    causes: Vec<Cause>,
    /// Its reads may fail.
    failing: bool,
    /// Faults of reads before the start.
    before: Injected,
}

struct Soak {
    card: Card,
    random: SplitMix64,
    runs: Vec<Run>,
    hot: Vec<usize>,
    summary: Summary,
}

/// Runs for at least this number of clocks.
///
/// # Errors
/// At the first violation.
pub fn run(seed: u64, clocks: u64, size: Size) -> Result<Summary, String> {
    soak(seed, clocks, Card::unready(size, seed)).map_err(|error| format!("seed {seed}, {size:?}: {error}"))
}

/// Runs a card behind a PCIe link for at least this number of clocks. Its bus side does not send what the bus would
/// refuse, and does not tell whether a register was written, so neither is tested.
///
/// # Errors
/// At the first violation.
pub fn run_behind(link: &Link, seed: u64, clocks: u64) -> Result<Summary, String> {
    let mut card = Card::unready_behind(link, seed);
    if let Some(block) = &mut card.block {
        block.read_credits = [8, 15, 64][seed as usize % 3];
    }
    soak(seed, clocks, card).map_err(|error| format!("seed {seed}, {link:?}: {error}"))
}

fn soak(seed: u64, clocks: u64, mut card: Card) -> Result<Summary, String> {
    let mut random = SplitMix64::new(seed);
    let size = card.size();
    (0..random.below(8)).for_each(|channel| card.send(channel as usize, 100));
    card.wait_until_ready()?;
    card.set_max_write(random.below(4) as u32)?;
    card.write(card::READ_TIMEOUT, TIMEOUT)?;
    let channels = size.channels();
    let hot = (0..HOT.min(channels)).map(|index| (index * 37 + seed as usize) % channels).collect();
    let mut soak = Soak { card, random, runs: vec![Run::default(); channels], hot, summary: Summary::default() };
    let mut next = 0;
    while soak.card.clock() < clocks {
        if soak.card.clock() >= next {
            next = soak.card.clock() + 500 + soak.random.below(4000);
            soak.change();
        }
        soak.feed();
        if soak.random.below(8) == 0 {
            let channel = soak.random.choose(&soak.hot);
            soak.act(channel)?;
        } else {
            soak.card.tick()?;
        }
    }
    soak.end()
}

impl Soak {
    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    /// Changes back-pressure, latencies and the channels in use.
    fn change(&mut self) {
        let random = &mut self.random;
        let mut chance = || random.choose(&[0, 0, 0, 0x1000, 0x8000, 0xF000]);
        let (idle, no_word) = (chance(), chance());
        let mut stalls = Stalls { data: chance(), slots: chance(), reads: chance() };
        // A read that waits in the bus side for its turn on the stream would end by its timeout.
        if random.below(32) == 0 && self.card.block.is_none() {
            stalls.slots = u16::MAX;
        } else if random.below(32) == 0 {
            stalls.data = u16::MAX;
        }
        self.card.host.stalls = stalls;
        self.card.feeder.idle = no_word;
        self.card.feeder.max_gap = random.choose(&[0, 0, 1, 9]);
        let latency = random.choose(&[1, 20, 100]);
        self.card.host.delay_reads(latency..=2 * latency, idle.min(0x8000));
        self.card.host.delay_writes(0..=random.choose(&[0, 10, 200]));
        let index = random.below(self.hot.len() as u64) as usize;
        let other = random.below(self.runs.len() as u64) as usize;
        if !self.runs[self.hot[index]].running && !self.hot.contains(&other) {
            self.hot[index] = other;
        }
    }

    /// Queues packets.
    fn feed(&mut self) {
        if self.card.feeder.waiting() >= 40 || !self.one_in(4) {
            return;
        }
        let channel = self.random.choose(&self.hot);
        for _ in 0..1 + self.random.below(12) {
            let length = match self.random.below(32) {
                0 => self.random.between(1, 16_383),
                1..=4 => self.random.between(1, 16),
                5 => 4096 - 8 + self.random.below(17),
                6..=8 => 8 * self.random.between(1, 64),
                9..=12 => self.random.between(301, 1600),
                _ => self.random.between(17, 300),
            };
            self.card.send(channel, length as u16);
        }
    }

    /// Does what a channel's software does next.
    fn act(&mut self, channel: usize) -> Result<(), String> {
        if !self.runs[channel].running {
            return if self.one_in(4) { self.start(channel) } else { self.card.tick() };
        }
        if self.runs[channel].stopping.is_some() || self.card.channel(channel).ended.is_some() {
            return self.finish(channel);
        }
        match self.random.below(200) {
            0 => self.stop(channel)?,
            1..=3 => {
                let defect = self.random.choose(&Defect::ALL);
                let defect =
                    if self.card.block.is_some() && defect == Defect::Refused { Defect::Index } else { defect };
                let count = 1 + self.random.below(16);
                if self.card.prepare(channel, count, Some(defect)) > 0 {
                    self.runs[channel].causes.push(defect.cause());
                }
            }
            4..=6 => self.fail(channel),
            7 if self.card.block.is_none() => self.misuse(channel)?,
            8..=40 => self.card.tick()?,
            _ => {
                let count = match self.random.below(4) {
                    0 => self.random.below(16),
                    1 => 16,
                    2 => 16 * self.random.between(1, 8),
                    _ => self.card.channel(channel).free(),
                };
                self.card.give(channel, count)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, channel: usize) -> Result<(), String> {
        let random = &mut self.random;
        let header = random.choose(&[0, 8, 40, 64, 128, 248]);
        let settings = Settings {
            ring_log2: random.choose(&[4, 4, 5, 6, 7, 8, 10, 12]),
            buffer: match random.below(8) {
                0 => 8 * random.between(1, 16),
                1 => 8 * random.between(1, 2047),
                _ => random.choose(&[64, 128, 256, 512, 2048, 4096, 8192, 16_376]),
            } as u16,
            header: if random.below(2) == 0 { header } else { 0 },
            report_count: random.choose(&[0, 1, 2, 16, 64, 1000]),
            report_time: random.below(8) as u16,
            refuse_reports: random.below(32) == 0 && self.card.block.is_none(),
            interrupt: (random.below(2) == 0).then_some(random.choose(&[1, 4, 10])),
            ..Settings::default()
        };
        let generation = random.next_u64() as u8;
        let before = self.card.host.injected(channel);
        let causes = settings.refuse_reports.then_some(Cause::Refused).into_iter().collect();
        self.runs[channel] = Run { running: true, before, causes, ..Run::default() };
        self.summary.starts += 1;
        self.card.start(channel, settings, generation)?;
        if self.one_in(16) { self.stop(channel) } else { Ok(()) }
    }

    fn stop(&mut self, channel: usize) -> Result<(), String> {
        self.card.stop(channel)?;
        (self.runs[channel].stopping, self.runs[channel].stopped) = (Some(self.card.clock()), true);
        Ok(())
    }

    /// Lets some of a channel's reads fail from now on.
    fn fail(&mut self, channel: usize) {
        let faults = match self.random.below(4) {
            0 => ReadFaults { error: 0x4000, ..ReadFaults::default() },
            1 => ReadFaults { never: 0x4000, ..ReadFaults::default() },
            _ => ReadFaults { twice: 0x4000, ..ReadFaults::default() },
        };
        self.runs[channel].failing |= faults.twice == 0;
        self.card.host.fail_reads(channel, faults);
    }

    /// Writes registers that must not be written while a channel runs.
    fn misuse(&mut self, channel: usize) -> Result<(), String> {
        if self.runs[channel].failing || !self.runs[channel].causes.is_empty() {
            return self.card.tick(); // it may have stopped by itself
        }
        let registers = [
            register::RING_LOW,
            register::RING_HIGH,
            register::RING,
            register::BUFFER,
            register::REPORT_LOW,
            register::REPORT_HIGH,
            register::CONTROL,
        ];
        let address = channel_register(self.random.choose(&registers), channel);
        let value = self.random.next_u64() as u32 | register::CONTROL_RUN;
        if self.card.try_write(address, value)? {
            return Err(format!(
                "clock {}: register {address:#06x} of a running channel was written",
                self.card.clock()
            ));
        }
        Ok(())
    }

    /// Waits for the end of a channel that stops, and checks why it stopped.
    fn finish(&mut self, channel: usize) -> Result<(), String> {
        let clock = self.card.clock();
        let begin = *self.runs[channel].stopping.get_or_insert(clock);
        if self.card.state(channel)?.0 != State::Stopped {
            return match clock - begin > STOP_LIMIT {
                true => Err(format!("clock {clock}: channel {channel} does not stop: {:?}", self.card.state(channel)?)),
                false => Ok(()),
            };
        }
        let cause = self.card.finish(channel)?;
        let run = &mut self.runs[channel];
        let injected = self.card.host.injected(channel);
        let is_expected = match cause {
            None => run.stopped,
            Some(Cause::Completion) => injected.errors > run.before.errors,
            Some(Cause::Timeout) => injected.never > run.before.never,
            Some(cause) => run.causes.contains(&cause),
        };
        if !is_expected {
            return Err(format!("clock {clock}: channel {channel} stopped for {cause:?}; {run:?}, {injected:?}"));
        }
        run.running = false;
        self.card.host.fail_reads(channel, ReadFaults::default());
        self.summary.stops[cause.map_or(0, |cause| cause as usize)] += 1;
        self.summary.reports += self.card.channel(channel).reports;
        self.summary.interrupts += self.card.channel(channel).interrupts;
        Ok(())
    }

    /// Stops all channels when all packets have been written, and compares the counters.
    fn end(mut self) -> Result<Summary, String> {
        self.card.host.stalls = Stalls::default();
        self.card.drain()?;
        self.card.run(256 * 10)?;
        for channel in 0..self.runs.len() {
            let run = &self.runs[channel];
            if run.running && !run.failing && run.causes.is_empty() && run.stopping.is_none() {
                let pointer = self.card.read_channel(channel, register::HARDWARE_POINTER)?;
                let used = self.card.channel(channel).used;
                if pointer != u32::from(used as u16) {
                    return Err(format!("channel {channel} has used {pointer} descriptors and reported {used}"));
                }
            }
            if run.running && run.stopping.is_none() && self.card.channel(channel).ended.is_none() {
                self.stop(channel)?;
            }
        }
        for channel in 0..self.runs.len() {
            while self.runs[channel].running {
                self.finish(channel)?;
            }
        }
        self.card.drain()?;
        for channel in 0..self.runs.len() {
            self.summary.counters += self.card.balance(channel)?;
        }
        self.summary.strays = self.card.counter(card::UNEXPECTED)?;
        if self.summary.strays != self.card.host.strays() || self.card.host.excess() != 0 {
            let (strays, excess) = (self.card.host.strays(), self.card.host.excess());
            let counted = self.summary.strays;
            return Err(format!(
                "{counted} of {strays} unexpected completions counted; {excess} blocks without a write"
            ));
        }
        self.summary.clocks = self.card.clock();
        Ok(self.summary)
    }
}
