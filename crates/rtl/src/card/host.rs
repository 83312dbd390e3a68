//! The bus and the memory behind it.

use super::dma::Dma;
use super::memory::Memory;
use super::reads::{Completion, Injected, READ, ReadFaults, Reads};
use super::requests::Request;
use super::sys::{Inputs, Outputs};
use super::writes::{Event, Writes};
use shotline_random::SplitMix64;
use std::ops::RangeInclusive;

/// Bytes of a descriptor read.
const READ_BYTES: usize = READ as usize;

/// Probabilities, in 65536, that a port is not ready in a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Payload.
    pub data: u16,
    /// Slots.
    pub slots: u16,
    /// Descriptor reads.
    pub reads: u16,
}

/// Host of the module: it serves reads, and carries out writes in order.
///
/// It checks the rules of the interface: offers stay until they are accepted, writes do not cross 4 KiB.
#[derive(Debug)]
pub struct Host<M = Memory> {
    /// Memory.
    pub memory: M,
    /// Back-pressure.
    pub stalls: Stalls,
    /// The bus takes 64 bytes of a write in each clock, instead of two writes.
    pub single: bool,
    pub(crate) reads: Reads,
    pub(crate) writes: Writes,
    random: SplitMix64,
}

impl<M: Dma> Host<M> {
    /// Creates a host. With `channels`, the rings, reports and buffers of those channels must be where `addresses` says.
    pub(crate) fn new(memory: M, channels: Option<usize>, seed: u64) -> Self {
        Self {
            memory,
            stalls: Stalls::default(),
            single: false,
            reads: Reads::new(channels, seed ^ 1),
            writes: Writes::new(channels, seed ^ 2),
            random: SplitMix64::new(seed ^ 3),
        }
    }

    /// Sets the clocks from a read to its first completion, and the probability, in 65536, of clocks without one.
    pub fn delay_reads(&mut self, latency: RangeInclusive<u64>, idle: u16) {
        (self.reads.latency, self.reads.idle) = (latency, idle);
    }

    /// Sets the clocks from a slot to its write.
    pub fn delay_writes(&mut self, latency: RangeInclusive<u64>) {
        self.writes.latency = latency;
    }

    /// Sets the faults of a channel's reads.
    pub fn fail_reads(&mut self, channel: usize, faults: ReadFaults) {
        self.reads.faults[channel] = faults;
    }

    /// Returns the number of faults injected for a channel.
    pub fn injected(&self, channel: usize) -> Injected {
        self.reads.injected[channel]
    }

    /// Returns the number of completions without a read.
    pub fn strays(&self) -> u64 {
        self.reads.strays
    }

    /// Returns the clock of the last read.
    pub fn last_read(&self) -> u64 {
        self.reads.last
    }

    /// Returns `true` if completions, writes or notices are to come.
    pub fn is_busy(&self) -> bool {
        self.reads.is_busy() || self.writes.is_busy()
    }

    /// Returns the number of blocks of payload that no write has taken.
    pub fn excess(&self) -> usize {
        self.writes.excess()
    }

    /// Returns the bytes of payload whose slots and whose blocks were accepted.
    pub fn payload(&self) -> (u64, u64) {
        self.writes.payload
    }

    pub(crate) fn drive(&mut self, clock: u64, inputs: &mut Inputs) {
        let Stalls { data, slots, reads } = self.stalls;
        let mut ready = |chance: u16| chance == 0 || self.random.below(1 << 16) >= u64::from(chance);
        inputs.data_ready = ready(data);
        inputs.slot_ready = ready(slots) && !(self.single && self.writes.is_sending(clock));
        inputs.read_ready = ready(reads);
        if let Some(Completion { tag, error, words }) = self.reads.complete(clock, &mut self.memory) {
            (inputs.completion_valid, inputs.completion_tag, inputs.completion_error) = (true, tag, error);
            inputs.completion_data.copy_from_slice(&words);
        }
        let notices = &mut self.writes.notices;
        let is_due = notices.front().is_some_and(|notice| notice.due <= clock);
        if let Some(notice) = is_due.then(|| notices.pop_front()).flatten() {
            inputs.notice_valid = true;
            (inputs.notice_kind, inputs.notice_channel) = (notice.kind, notice.channel as u8);
        }
    }

    /// Takes the outputs of a clock, and returns what the bus did in it.
    ///
    /// # Errors
    /// If an output is against the rules of the interface.
    pub(crate) fn settle(&mut self, clock: u64, inputs: &Inputs, outputs: &Outputs) -> Result<Vec<Event>, String> {
        self.reads.settle(clock, inputs, outputs)?;
        self.writes.settle(clock, inputs, outputs)?;
        Ok(self.writes.apply(clock, &mut self.memory))
    }
}

impl Host {
    /// Returns whether the integrated block takes requests in a clock, by the probability of the slots.
    pub(crate) fn accepts(&mut self) -> bool {
        let chance = self.stalls.slots;
        chance == 0 || self.random.below(1 << 16) >= u64::from(chance)
    }

    /// Chooses the completion that the integrated block gets in a clock.
    pub(crate) fn complete(&mut self, clock: u64) -> Option<Completion> {
        self.reads.complete(clock, &mut self.memory)
    }

    /// Carries out a request of the integrated block. Returns the write that it was.
    ///
    /// # Errors
    /// If the card must not make such a request.
    pub(crate) fn carry_out(&mut self, clock: u64, request: &Request) -> Result<Option<Event>, String> {
        match *request {
            Request::Read { address, length: READ_BYTES, tag } => self.reads.accept(clock, address, tag).map(|()| None),
            Request::Write { address, ref bytes } => self.writes.carry_out(address, bytes, &mut self.memory).map(Some),
            Request::Read { .. } => Err(format!("{request:x?}")),
        }
    }
}
