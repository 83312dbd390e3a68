//! Descriptor reads of the module, and their completions.

use super::addresses::channel_at;
use super::dma::Dma;
use super::held::Held;
use super::sys::{Inputs, Outputs};
use shotline_random::SplitMix64;
use std::ops::RangeInclusive;

/// Bytes of a read: 16 descriptors.
pub(crate) const READ: u64 = 256;
/// Words of 8 bytes in a beat of the module's completions.
const BEAT_WORDS: usize = 4;
/// Beats of the module in a completion of the integrated block for PCIe.
const MAX_BEATS: usize = 2;
/// Beats of the completions of a read.
const BEATS: u8 = 8;

/// Probabilities, in 65536, of the faults of a channel's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFaults {
    /// A completion with an error ends the read.
    pub error: u16,
    /// Completions, all or the last ones, never come.
    pub never: u16,
    /// Another completion follows the last one.
    pub twice: u16,
}

/// Number of faults injected for a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Completions with an error.
    pub errors: u64,
    /// Reads without all completions.
    pub never: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Never,
}

/// A completion, or an error instead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub tag: u8,
    pub error: bool,
    pub words: Vec<u64>,
}

#[derive(Debug)]
struct Read {
    tag: u8,
    address: u64,
    /// `None` in memory without a layout.
    channel: Option<usize>,
    /// First clock of a completion.
    due: u64,
    /// Beats sent.
    beats: u8,
    /// A fault instead of this beat.
    fault: Option<(Fault, u8)>,
    twice: bool,
}

impl Read {
    fn is_dead(&self) -> bool {
        self.fault == Some((Fault::Never, self.beats))
    }
}

/// The reads in flight.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Clocks from a read to its first completion.
    pub latency: RangeInclusive<u64>,
    /// Probability, in 65536, of a clock without a completion.
    pub idle: u16,
    /// Beats of a completion, 1 or a divisor of those of a read.
    pub beats: u8,
    /// Of each channel; empty in memory without a layout.
    pub faults: Vec<ReadFaults>,
    pub injected: Vec<Injected>,
    /// Completions without a read.
    pub strays: u64,
    /// Clock of the last read.
    pub last: u64,
    random: SplitMix64,
    flying: Vec<Read>,
    stray: Option<u8>,
    held: Held<(u64, u8)>,
}

impl Reads {
    pub fn new(channels: Option<usize>, seed: u64) -> Self {
        let channels = channels.unwrap_or(0);
        Self {
            latency: 100..=200,
            idle: 0,
            beats: 1,
            faults: vec![ReadFaults::default(); channels],
            injected: vec![Injected::default(); channels],
            strays: 0,
            last: 0,
            random: SplitMix64::new(seed),
            flying: Vec::new(),
            stray: None,
            held: Held::default(),
        }
    }

    fn one_in(&mut self, chance: u16) -> bool {
        chance > 0 && self.random.below(1 << 16) < u64::from(chance)
    }

    /// Returns `true` if completions are still to come.
    pub fn is_busy(&self) -> bool {
        self.flying.iter().any(|read| !read.is_dead())
    }

    /// Chooses the completion of this clock.
    pub fn complete(&mut self, clock: u64, memory: &mut impl Dma) -> Option<Completion> {
        let count = BEAT_WORDS * usize::from(self.beats);
        if let Some(tag) = self.stray.take().filter(|&tag| self.flying.iter().all(|read| read.tag != tag)) {
            self.strays += u64::from(self.beats);
            return Some(Completion { tag, error: false, words: (0..count).map(|_| self.random.next_u64()).collect() });
        }
        let idle = self.idle;
        if self.flying.is_empty() || self.one_in(idle) {
            return None;
        }
        let ready = |read: &&mut Read| read.due <= clock && !read.is_dead();
        let choice = self.random.below(self.flying.iter_mut().filter(ready).count() as u64) as usize;
        let read = self.flying.iter_mut().filter(ready).nth(choice)?;
        let at = read.address + u64::from(read.beats) * 8 * BEAT_WORDS as u64;
        let mut bytes = [0; MAX_BEATS * 8 * BEAT_WORDS];
        let bytes = &mut bytes[..8 * count];
        let error = !memory.read(at, bytes) || read.fault == Some((Fault::Error, read.beats));
        let words = bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
        read.beats += self.beats;
        let (tag, channel, twice) = (read.tag, read.channel, read.twice);
        let is_dead = read.is_dead();
        if let Some(injected) = channel.map(|channel| &mut self.injected[channel]) {
            injected.never += u64::from(is_dead);
            injected.errors += u64::from(error);
        }
        if error || read.beats == BEATS {
            self.stray = twice.then_some(tag);
            self.flying.retain(|read| read.tag != tag);
        }
        Some(Completion { tag, error, words })
    }

    /// Takes the read of this clock.
    ///
    /// # Errors
    /// If it is against the rules of the interface.
    pub fn settle(&mut self, clock: u64, inputs: &Inputs, outputs: &Outputs) -> Result<(), String> {
        let offer = (outputs.read_valid == 1).then_some((outputs.read_address, outputs.read_tag));
        self.held.check("read", offer, inputs.read_ready)?;
        match offer.filter(|_| inputs.read_ready) {
            Some((address, tag)) => self.accept(clock, address, tag),
            None => Ok(()),
        }
    }

    /// Takes a read.
    ///
    /// # Errors
    /// If it is not one of the ring of a channel, or its tag is in flight.
    pub fn accept(&mut self, clock: u64, address: u64, tag: u8) -> Result<(), String> {
        let channel = channel_at(address).filter(|&channel| channel < self.faults.len());
        let is_free = self.faults.is_empty();
        if !address.is_multiple_of(READ) || (channel.is_none() && !is_free) {
            return Err(format!("read at {address:#x}"));
        }
        if self.flying.iter().any(|read| read.tag == tag && !read.is_dead()) {
            return Err(format!("read at {address:#x} with tag {tag}, which is in flight"));
        }
        self.flying.retain(|read| read.tag != tag);
        let faults = channel.map(|channel| self.faults[channel]).unwrap_or_default();
        let kind = if self.one_in(faults.error) {
            Some(Fault::Error)
        } else if self.one_in(faults.never) {
            Some(Fault::Never)
        } else {
            None
        };
        let fault = kind.map(|kind| (kind, self.random.below(BEATS.into()) as u8 / self.beats * self.beats));
        let due = clock + 1 + self.random.between(*self.latency.start(), *self.latency.end());
        let twice = self.one_in(faults.twice);
        let read = Read { tag, address, channel, due, beats: 0, fault, twice };
        if let Some(channel) = channel {
            self.injected[channel].never += u64::from(read.is_dead());
        }
        self.flying.push(read);
        self.last = clock;
        Ok(())
    }
}
