//! Register accesses of a channel's software.

use super::access::Registers;
use super::descriptors::{Cause, Defect, Settings};
use super::model::Card;
use super::packet::Tally;
use super::source::Source;
use crate::registers::{card, card_channel as register};
use std::fmt;

/// Clocks within which a channel must start or stop, unless a read waits for its timeout.
const LIMIT: u64 = 20_000;

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Stopped; the configuration may be written.
    Stopped,
    /// Starting.
    Starting,
    /// Running.
    Running,
    /// Stopping; the final report is written next.
    Stopping,
}

/// Counters of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets written to memory.
    pub received: Tally,
    /// Packets dropped because the channel was not running.
    pub stopped: Tally,
    /// Packets dropped because software had given too few descriptors.
    pub no_descriptor: Tally,
    /// Packets dropped because their descriptors had not been fetched.
    pub late: Tally,
}

impl Counters {
    /// Reads the counters of a channel.
    pub(crate) fn read(of: &mut impl Registers, channel: usize) -> Result<Self, String> {
        let mut tally = |packets, bytes| {
            let packets = of.read_counter(channel_register(packets, channel))?;
            Ok::<_, String>(Tally { packets, bytes: of.read_counter(channel_register(bytes, channel))? })
        };
        Ok(Self {
            received: tally(register::PACKETS_RECEIVED, register::BYTES_RECEIVED)?,
            stopped: tally(register::PACKETS_STOPPED, register::BYTES_STOPPED)?,
            no_descriptor: tally(register::PACKETS_NO_DESCRIPTOR, register::BYTES_NO_DESCRIPTOR)?,
            late: tally(register::PACKETS_LATE, register::BYTES_LATE)?,
        })
    }

    /// Returns all packets, received and dropped.
    pub fn total(&self) -> Tally {
        [self.received, self.stopped, self.no_descriptor, self.late].into_iter().sum()
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.received = self.received + other.received;
        self.stopped = self.stopped + other.stopped;
        self.no_descriptor = self.no_descriptor + other.no_descriptor;
        self.late = self.late + other.late;
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [received, stopped, none, late] = [self.received, self.stopped, self.no_descriptor, self.late];
        write!(f, "received {received:?}, stopped {stopped:?}, without descriptor {none:?}, late {late:?}")
    }
}

/// Returns the address of a channel's register.
pub fn channel_register(register: u16, channel: usize) -> u16 {
    register + register::STRIDE * channel as u16
}

impl<S: Source> Card<S> {
    /// Sets the maximum length of a write to 128 bytes << `size`.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn set_max_write(&mut self, size: u32) -> Result<(), String> {
        self.host.writes.max_write = 128 << size;
        self.write(card::MAX_WRITE, size)
    }

    /// Writes a register of a channel.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_channel(&mut self, channel: usize, register: u16, value: u32) -> Result<(), String> {
        self.write(channel_register(register, channel), value)
    }

    /// Reads a register of a channel.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn read_channel(&mut self, channel: usize, register: u16) -> Result<u32, String> {
        self.read(channel_register(register, channel))
    }

    /// Configures a stopped channel and starts it. It has no descriptors.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn start(&mut self, channel: usize, settings: Settings, generation: u8) -> Result<(), String> {
        let software = &mut self.channels[channel];
        software.reset(settings, generation);
        let (ring, report) = (software.ring(), software.report());
        let halves = |address: u64| [address as u32, (address >> 32) as u32];
        let ([ring_low, ring_high], [report_low, report_high]) = (halves(ring), halves(report));
        let buffer = u32::from(settings.buffer) | u32::from(settings.header) << register::BUFFER_HEADER_SIZE_LSB;
        let count = u32::from(settings.report_count) << register::REPORT_COUNT_LSB;
        let time = u32::from(settings.report_time) << register::REPORT_TIME_LSB;
        let enable = if settings.interrupt.is_some() { register::INTERRUPT_ENABLE } else { 0 };
        let run = register::CONTROL_RUN | u32::from(generation) << register::CONTROL_GENERATION_LSB;
        for (address, value) in [
            (register::RING_LOW, ring_low),
            (register::RING_HIGH, ring_high),
            (register::RING, settings.ring_log2.into()),
            (register::BUFFER, buffer),
            (register::REPORT_LOW, report_low),
            (register::REPORT_HIGH, report_high),
            (register::REPORT, count | time),
            (register::INTERRUPT, u32::from(settings.interrupt.unwrap_or(0)) | enable),
            (register::CONTROL, run),
        ] {
            self.write_channel(channel, address, value)?;
        }
        Ok(())
    }

    /// Gives descriptors to the card, at most as many as are free, and returns their number.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn give(&mut self, channel: usize, count: u64) -> Result<u64, String> {
        let count = self.prepare(channel, count, None);
        self.publish(channel)?;
        Ok(count)
    }

    /// Writes descriptors to the ring without the pointer, the last one with a defect. Returns their number.
    pub fn prepare(&mut self, channel: usize, count: u64, defect: Option<Defect>) -> u64 {
        let software = &mut self.channels[channel];
        let count = count.min(software.free());
        for index in 0..count {
            software.give(&mut self.host.memory, defect.filter(|_| index + 1 == count));
        }
        count
    }

    /// Writes the pointer of the descriptors that are in the ring.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn publish(&mut self, channel: usize) -> Result<(), String> {
        let pointer = self.channels[channel].given as u16;
        self.write_channel(channel, register::SOFTWARE_POINTER, pointer.into())
    }

    /// Requests that a channel stops.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn stop(&mut self, channel: usize) -> Result<(), String> {
        self.write_channel(channel, register::CONTROL, 0)
    }

    /// Returns the state of a channel, and why it stopped by itself.
    ///
    /// # Errors
    /// If there is no such state, or as [`tick`](Self::tick).
    pub fn state(&mut self, channel: usize) -> Result<(State, Option<Cause>), String> {
        let value = self.read_channel(channel, register::STATE)?;
        let state = match (value & register::STATE_STATE) >> register::STATE_STATE_LSB {
            0 => State::Stopped,
            1 => State::Starting,
            2 => State::Running,
            _ => State::Stopping,
        };
        Ok((state, Cause::of((value & register::STATE_ERROR) >> register::STATE_ERROR_LSB)?))
    }

    /// Runs until a channel has a state.
    ///
    /// # Errors
    /// If it takes too long, or as [`tick`](Self::tick).
    pub fn wait_for(&mut self, channel: usize, state: State) -> Result<(), String> {
        let end = self.clock() + LIMIT;
        while self.clock() < end {
            if self.state(channel)?.0 == state {
                return Ok(());
            }
        }
        Err(format!("channel {channel} is not {state:?} after {LIMIT} clocks: {:?}", self.state(channel)?))
    }

    /// Checks that a stopped channel ended as its final report says, and returns why.
    ///
    /// # Errors
    /// If there was no final report, or another one than the registers say.
    pub fn finish(&mut self, channel: usize) -> Result<Option<Cause>, String> {
        let (state, cause) = self.state(channel)?;
        let pointer = self.read_channel(channel, register::HARDWARE_POINTER)?;
        let software = &mut self.channels[channel];
        software.running = false;
        // An error that comes after the final report is only in the register.
        let is_reported = software.ended.is_some_and(|reported| reported.is_none() || reported == cause);
        if state != State::Stopped || !is_reported || pointer != u32::from(software.used as u16) {
            return Err(format!(
                "channel {channel} is {state:?} for {cause:?} with {pointer} descriptors used; its last report says {:?} \
                 and {}",
                software.ended, software.used
            ));
        }
        Ok(cause)
    }

    /// Runs until all packets have been accepted and the bus is idle.
    ///
    /// # Errors
    /// If it takes too long, or as [`tick`](Self::tick).
    pub fn drain(&mut self) -> Result<(), String> {
        let mut quiet = 0;
        let mut progress = (self.clock(), self.feeder.words());
        while quiet < 500 {
            self.tick()?;
            let is_idle = self.feeder.is_empty() && !self.is_busy();
            quiet = if is_idle { quiet + 1 } else { 0 };
            if progress.1 != self.feeder.words() {
                progress = (self.clock(), self.feeder.words());
            } else if self.clock() - progress.0 > 10 * LIMIT {
                return Err(format!("clock {}: {} packets are not accepted", self.clock(), self.feeder.waiting()));
            }
        }
        Ok(())
    }

    /// Reads the counters of a channel.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn counters(&mut self, channel: usize) -> Result<Counters, String> {
        Counters::read(self, channel)
    }
}

impl Card {
    /// Checks, when no packet is in flight, that each packet sent to a channel was received or counted by one cause.
    ///
    /// # Errors
    /// If the counters do not balance.
    pub fn balance(&mut self, channel: usize) -> Result<Counters, String> {
        let counters = self.counters(channel)?;
        let sum = counters.total();
        let expected = &self.channels[channel].expected;
        if counters.received != expected.received || sum != expected.sent {
            let (sent, found) = (expected.sent, expected.received);
            return Err(format!("channel {channel}: {sent:?} sent, {found:?} found in memory; counted: {counters}"));
        }
        Ok(counters)
    }
}
