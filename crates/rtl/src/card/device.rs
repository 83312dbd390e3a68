//! A card with its distributor as a device for the software and the memory of another process.

use super::access::{Access, Answer, Registers};
use super::dma::Dma;
use super::driver::{Counters, channel_register};
use super::frames::{CLOCK_FS, Frames, NS};
use super::host::Host;
use super::receiver::Distributed;
use super::source::Source as _;
use super::sys::{Inputs, Model, Top};
use super::writes::Event;
use crate::registers::card_channel;
use std::mem;

/// Channels of the card.
pub const CHANNELS: usize = 256;
/// Clocks without an access of the bus after which all packets have been decided on: more than the words of payload that
/// the card holds.
const QUIET: u64 = 700;
/// Limit of times in nanoseconds, so that no sum overflows: 146 years.
const LATEST_NS: u64 = 1 << 62;
/// Limit, in nanoseconds, of the time until a frame that was sent begins.
const AHEAD_NS: u64 = 1_000_000_000_000;

/// A simulation of `shotline_card_port` with 256 channels, a wire, and a bus that is always ready.
///
/// Nothing that the software of the channels does is an error here: what is wrong is refused, or stops its channel.
#[derive(Debug)]
pub struct Device<M> {
    model: Model,
    gbps: f64,
    seed: u64,
    frames: Frames,
    host: Host<M>,
    clock: u64,
    access: Option<Access>,
    /// Assertions that had failed on this thread before.
    failed: u64,
    /// Channels that raised an interrupt.
    interrupts: [bool; CHANNELS],
    /// Last report of each channel since its start.
    reports: [u64; CHANNELS],
    /// Last clock in which something was on its way, or a register was written.
    busy: u64,
}

impl<M: Dma> Device<M> {
    /// Creates a card, resets it, and waits until it is ready. Its TAI time begins with `start_ns`; `seed` determines the
    /// values of registers without a reset and the latencies of the bus.
    ///
    /// # Errors
    /// At the first violation of a rule by the RTL.
    pub fn new(gbps: f64, memory: M, start_ns: u64, seed: u64) -> Result<Self, String> {
        let model = Model::new(Top::Port, seed);
        let mut frames = Frames::new(gbps, CHANNELS);
        frames.epoch_ns = start_ns.min(LATEST_NS);
        let failed = model.failures();
        let mut device = Self {
            model,
            gbps,
            seed,
            frames,
            host: Host::new(memory, None, seed),
            clock: 0,
            access: None,
            failed,
            interrupts: [false; CHANNELS],
            reports: [0; CHANNELS],
            busy: 0,
        };
        device.become_ready()?;
        Ok(device)
    }

    /// Resets the card, and waits until it is ready. What is on its way is lost, also frames that wait for the wire. Time
    /// goes on.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn reset(&mut self, memory: M) -> Result<(), String> {
        let epoch_ns = self.now_ns();
        self.model.reset();
        self.frames = Frames::new(self.gbps, CHANNELS);
        self.frames.epoch_ns = epoch_ns;
        self.host = Host::new(memory, None, self.seed);
        (self.clock, self.access, self.busy) = (0, None, 0);
        (self.interrupts, self.reports) = ([false; CHANNELS], [0; CHANNELS]);
        self.become_ready()
    }

    /// Runs for one clock.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn tick(&mut self) -> Result<(), String> {
        self.step().map(drop)
    }

    /// Returns the clocks of 5 ns since the reset.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns the TAI time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.frames.epoch_ns + self.clock * (CLOCK_FS / NS)
    }

    /// Lets idle time pass that is not simulated, until a TAI time. Does nothing while frames are on the wire, or if that
    /// time has passed.
    pub fn skip_to(&mut self, at_ns: u64) {
        if self.frames.is_empty() {
            self.frames.epoch_ns += at_ns.min(LATEST_NS).saturating_sub(self.now_ns());
        }
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.host.memory
    }

    /// Returns the memory, to change it.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.host.memory
    }

    /// Reads a register.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn read(&mut self, address: u16) -> Result<u32, String> {
        self.read_register(address)
    }

    /// Writes a register, and returns `false` if the write is refused.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn try_write(&mut self, address: u16, value: u32) -> Result<bool, String> {
        let is_accepted = !self.access(address, Some(value))?.refused;
        let channel = address.wrapping_sub(card_channel::CONTROL) / card_channel::STRIDE;
        let is_control =
            channel < card_channel::COPIES && address == channel_register(card_channel::CONTROL, channel.into());
        if is_accepted && is_control && value & card_channel::CONTROL_RUN != 0 {
            self.reports[usize::from(channel)] = 0;
        }
        Ok(is_accepted)
    }

    /// Sends a frame with FCS over the wire after those before it, but not before a TAI time, which is at most 1000 s away:
    /// see [`skip_to`](Self::skip_to).
    pub fn send(&mut self, frame: Vec<u8>, at_ns: u64) {
        let now_fs = self.clock * CLOCK_FS;
        let ahead_ns = at_ns.saturating_sub(self.now_ns()).min(AHEAD_NS);
        self.frames.push(now_fs + ahead_ns * NS, frame);
    }

    /// Returns the number of frames that have not begun.
    pub fn waiting(&self) -> usize {
        self.frames.waiting()
    }

    /// Returns the number of frames since the reset that have come over the wire.
    pub fn arrived(&self) -> u64 {
        self.frames.sent
    }

    /// Returns `true` if frames are on the wire, or accesses of the bus on their way.
    pub fn is_busy(&self) -> bool {
        !self.frames.is_empty() || self.host.is_busy()
    }

    /// Returns the clocks since something was on its way, or a register was written.
    pub fn quiet(&self) -> u64 {
        self.clock - self.busy
    }

    /// Returns the [`quiet`](Self::quiet) clocks after which all frames have been decided on, and all reports and interrupts
    /// have been sent that are due `units` of 256 clocks after their cause.
    pub fn idle_clocks(units: u16) -> u64 {
        QUIET + 256 * (2 + u64::from(units))
    }

    /// Returns the channels that have raised an interrupt since the last call.
    pub fn interrupts(&mut self) -> impl Iterator<Item = usize> + use<M> {
        let raised = mem::replace(&mut self.interrupts, [false; CHANNELS]);
        raised.into_iter().enumerate().filter_map(|(channel, raised)| raised.then_some(channel))
    }

    /// Returns the descriptors that a channel has used since its start, modulo 65536, as its last report says.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn used(&self, channel: usize) -> u16 {
        self.reports[channel] as u16
    }

    /// Returns `true` if a channel has stopped since its start, as its last report says.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn has_ended(&self, channel: usize) -> bool {
        self.reports[channel] >> 24 & 1 == 1
    }

    /// Reads the counters of the distributor.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn distributed(&mut self) -> Result<Distributed, String> {
        Distributed::read(self)
    }

    /// Reads the counters of a channel.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn counters(&mut self, channel: usize) -> Result<Counters, String> {
        Counters::read(self, channel)
    }
}

impl<M: Dma> Registers for Device<M> {
    fn clock(&self) -> u64 {
        self.clock
    }

    fn set_access(&mut self, access: Option<Access>) {
        self.access = access;
    }

    fn step(&mut self) -> Result<Option<Answer>, String> {
        let clock = self.clock;
        self.clock += 1;
        let mut inputs = Inputs::default();
        self.frames.drive(clock, &mut inputs);
        self.host.drive(clock, &mut inputs);
        if let Some(access) = &self.access {
            access.drive(&mut inputs);
        }
        let outputs = self.model.tick(&inputs);
        let answer = self.access.as_mut().and_then(|access| access.settle(&outputs));
        let fail = |error| Err(format!("clock {clock}: {error}"));
        let events = match self.host.settle(clock, &inputs, &outputs) {
            Ok(events) => events,
            Err(error) => return fail(error),
        };
        for event in events {
            match event {
                Event::Write { .. } => {}
                Event::Report { channel, value, .. } => self.reports[channel] = value,
                Event::Interrupt { channel } => self.interrupts[channel] = true,
            }
        }
        if self.is_busy() || self.access.is_some_and(|access| access.value.is_some()) {
            self.busy = self.clock;
        }
        match self.model.failures() - self.failed {
            0 => Ok(answer),
            failed => fail(format!("{failed} assertions failed")),
        }
    }
}
