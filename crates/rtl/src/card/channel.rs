//! The software side of one channel: the ring of descriptors, its buffers, and the check of what arrives in them.

use super::addresses::{BUFFERS, REPORTS, base};
use super::descriptors::{Buffer, Cause, DESCRIPTOR, Defect, Settings};
use super::expected::Expected;
use super::memory::{Memory, REFUSED};
use super::source::{Source, Used};
use super::writes::Event;
use shotline_random::SplitMix64;
use std::collections::VecDeque;

/// One channel as its software sees it.
#[derive(Debug)]
pub struct Channel {
    pub(crate) number: usize,
    pub(crate) settings: Settings,
    pub(crate) generation: u8,
    /// Packets sent to the channel.
    pub expected: Expected,
    /// Descriptors given since the start.
    pub given: u64,
    /// Descriptors used since the start, from the last report.
    pub used: u64,
    /// Reports since the start.
    pub reports: u64,
    /// Interrupts since the start.
    pub interrupts: u64,
    /// The final report has come, with this cause.
    pub ended: Option<Option<Cause>>,
    pub(crate) running: bool,
    buffers: VecDeque<Buffer>,
    /// Index in `buffers` of the last one written to.
    writing: usize,
    /// Distance of the buffers.
    stride: u64,
    random: SplitMix64,
}

impl Channel {
    pub(crate) fn new(number: usize, seed: u64) -> Self {
        Self {
            number,
            settings: Settings::default(),
            generation: 0,
            expected: Expected::default(),
            given: 0,
            used: 0,
            reports: 0,
            interrupts: 0,
            ended: None,
            running: false,
            buffers: VecDeque::new(),
            writing: 0,
            stride: 0,
            random: SplitMix64::new(seed),
        }
    }

    /// Prepares a start.
    pub(crate) fn reset(&mut self, settings: Settings, generation: u8) {
        (self.settings, self.generation) = (settings, generation);
        (self.given, self.used, self.reports, self.interrupts) = (0, 0, 0, 0);
        (self.ended, self.running) = (None, true);
        self.buffers.clear();
        self.writing = 0;
        self.stride = u64::from(settings.buffer.max(settings.header.into()))
            + 8 * self.random.below(u64::from(settings.max_gap) + 1);
    }

    /// Returns the address of the ring.
    pub fn ring(&self) -> u64 {
        base(self.number) + (u64::from(self.generation) << 12)
    }

    /// Returns the address of the report.
    pub(crate) fn report(&self) -> u64 {
        let address = base(self.number) + REPORTS + 8 * u64::from(self.generation);
        if self.settings.refuse_reports { address | REFUSED } else { address }
    }

    /// Returns the number of descriptors of the ring that are free.
    pub fn free(&self) -> u64 {
        (1 << self.settings.ring_log2) - (self.given - self.used)
    }

    /// Writes the next descriptor to the ring, and marks its buffer.
    pub(crate) fn give(&mut self, memory: &mut Memory, defect: Option<Defect>) {
        let (index, slots) = (self.given, 1 << self.settings.ring_log2);
        let is_header = self.settings.header > 0 && index.is_multiple_of(2);
        let length = usize::from(if is_header { self.settings.header.into() } else { self.settings.buffer });
        let mut address = base(self.number) + BUFFERS + index % slots * self.stride;
        memory.clear(address, length);
        memory.clear(address | REFUSED, length);
        let mut word = index & 0xFFFF | (self.number as u64) << 16 | u64::from(self.generation) << 24;
        match defect {
            None => {}
            Some(Defect::Index) => word ^= 1 << self.random.below(16),
            Some(Defect::Channel) => word ^= 1 << (16 + self.random.below(8)),
            Some(Defect::Generation) => word ^= 1 << (24 + self.random.below(8)),
            Some(Defect::Zero) => word ^= 1 << (32 + self.random.below(32)),
            Some(Defect::Alignment) => address ^= 1 << self.random.below(3),
            Some(Defect::Refused) => address |= REFUSED,
        }
        let is_wrong = defect.is_some_and(|defect| defect.cause() == Cause::Descriptor);
        let at = self.ring() + index % slots * DESCRIPTOR;
        memory.write(at, &address.to_le_bytes());
        memory.write(at + 8, &word.to_le_bytes());
        self.buffers.push_back(Buffer { address, length: if is_wrong { 0 } else { length } });
        self.given += 1;
    }

    /// Checks what the bus did for this channel.
    ///
    /// # Errors
    /// If it must not happen, or if a report counts descriptors whose packets are not in memory.
    pub(crate) fn check(&mut self, event: Event, memory: &Memory, source: &mut impl Source) -> Result<(), String> {
        // The final report may have an interrupt.
        let is_over = self.ended.is_some() && !matches!(event, Event::Interrupt { .. });
        if !self.running || is_over {
            return Err(format!("{event:x?} of channel {}, which is stopped", self.number));
        }
        match event {
            Event::Write { address, length, .. } => self.check_write(address, length),
            Event::Report { address, value, .. } => self.check_report(address, value, memory, source),
            Event::Interrupt { .. } => {
                self.interrupts += 1;
                self.settings.interrupt.map(drop).ok_or_else(|| format!("interrupt of channel {}", self.number))
            }
        }
    }

    /// Buffers are written in the order of their descriptors.
    fn check_write(&mut self, address: u64, length: usize) -> Result<(), String> {
        let end = address + length as u64;
        let within = |buffer: &Buffer| buffer.address <= address && end <= buffer.address + buffer.length as u64;
        let ahead = self.buffers.iter().skip(self.writing).position(within);
        self.writing += ahead.ok_or_else(|| {
            let (channel, at) = (self.number, self.used + self.writing as u64);
            format!("channel {channel} wrote {length} bytes at {address:#x}: no buffer from descriptor {at} on")
        })?;
        Ok(())
    }

    fn check_report(
        &mut self,
        address: u64,
        value: u64,
        memory: &Memory,
        source: &mut impl Source,
    ) -> Result<(), String> {
        let fail = |what: &str| Err(format!("report {value:#x} of channel {}: {what}", self.number));
        if address != self.report() {
            return fail("wrong address");
        }
        if value >> 32 != 0 || value >> 16 & 0xFF != u64::from(self.generation) || value >> 25 & 7 != 0 {
            return fail("wrong generation or bits that are not zero");
        }
        let (is_final, error) = (value >> 24 & 1 == 1, (value >> 28 & 0xF) as u32);
        if !is_final && error != 0 {
            return fail("an error, but it is not final");
        }
        let count = (value as u16).wrapping_sub(self.used as u16);
        if u64::from(count) > self.given - self.used {
            return fail(&format!("{} descriptors were used and {} given", self.used, self.given));
        }
        self.reports += 1;
        let count = usize::from(count);
        let used =
            Used { channel: self.number, memory, buffers: self.buffers.make_contiguous(), settings: &self.settings };
        source
            .take(&mut self.expected, &used, count)
            .map_err(|error| format!("report {value:#x} of channel {}: {error}", self.number))?;
        self.buffers.drain(..count);
        self.writing = self.writing.saturating_sub(count);
        self.used += count as u64;
        if is_final {
            self.ended = Some(Cause::of(error)?);
        }
        Ok(())
    }
}
