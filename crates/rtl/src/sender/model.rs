//! Simulation of the RTL.

use super::config::{Config, Shot};
use super::sys::{Limits, Model};
use crate::registers::sender as register;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};

/// Write to a register that does not exist or is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// Address of the register.
    pub address: u16,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no writable register at {:#05x}", self.address)
    }
}

impl std::error::Error for WriteError {}

/// One of the sender's two AXI4-Streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Payload in: a pause holds `tvalid` low.
    Input,
    /// Frames out: a pause holds `tready` low.
    Output,
}

/// A frame that was sent, without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// From the Ethernet header to the ICRC.
    pub bytes: &'a [u8],
    /// Clock in which its last word left, counted from the start of the model.
    pub clock: u64,
}

/// Cycle-accurate and bit-accurate model of the sender (`shotline_roce_ud_tx`), compiled by Verilator.
///
/// [`send`](Self::send) queues payload, which the model accepts while [`run`](Self::run) advances the clock. Frames are
/// stored until they are [discarded](Self::discard). Registers without a reset start with random values.
#[derive(Debug)]
pub struct Sender(Model);

impl Sender {
    /// Creates a sender and resets it. `seed` determines all random values: those before the reset, and random pauses.
    pub fn new(seed: u64) -> Self {
        Self(Model::new(seed))
    }

    /// Starts to trace the ports to a VCD file.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn trace(&mut self, path: &Path) -> io::Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        if self.0.trace(&name) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes a register, which advances the clock by a few cycles.
    ///
    /// # Errors
    /// If the register does not exist or is read-only.
    pub fn write(&mut self, address: u16, value: u32) -> Result<(), WriteError> {
        match self.0.write(address, value) {
            0 => Ok(()),
            _ => Err(WriteError { address }),
        }
    }

    /// Reads a register, which advances the clock by a few cycles.
    pub fn read(&mut self, address: u16) -> u32 {
        self.0.read(address)
    }

    /// Reads both words of a 48-bit counter.
    pub fn counter(&mut self, address: u16) -> u64 {
        let low = self.0.read(address);
        u64::from(self.0.read(address + 4)) << 32 | u64::from(low)
    }

    /// Writes a configuration. It takes effect with the next shot that has not begun.
    ///
    /// # Errors
    /// If a write fails.
    pub fn configure(&mut self, config: &Config) -> Result<(), WriteError> {
        config.writes().into_iter().try_for_each(|(address, value)| self.write(address, value))
    }

    /// Returns `true` while a configuration waits for the frames in flight.
    pub fn is_configuring(&mut self) -> bool {
        self.read(register::CONTROL) & register::CONTROL_APPLY != 0
    }

    /// Queues a shot's samples, or a packet's payload. Empty input is ignored.
    pub fn send(&mut self, shot: &Shot, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.send(shot, bytes);
        }
    }

    /// Advances the clock until one of the limits is reached.
    pub fn run(&mut self, limits: Limits) {
        self.0.run(limits);
    }

    /// Pauses one side in each clock with a probability of `chance` in 65536, and in all clocks of the range `clocks`.
    /// Replaces that side's previous pauses.
    pub fn pause(&mut self, side: Side, chance: u16, clocks: std::ops::Range<u64>) {
        self.0.pause(side == Side::Output, chance.into(), clocks.start, clocks.end);
    }

    /// Returns the clocks since the model started.
    pub fn clocks(&self) -> u64 {
        self.0.cycles()
    }

    /// Returns the number of input words accepted.
    pub fn input_words(&self) -> u64 {
        self.0.input_words()
    }

    /// Returns the number of output words sent.
    pub fn output_words(&self) -> u64 {
        self.0.output_words()
    }

    /// Returns the number of input frames that have not been accepted completely.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }

    /// Returns the number of the RTL's assertions that have failed on this thread. A release build disables them.
    pub fn failed_assertions(&self) -> u64 {
        self.0.failures()
    }

    /// Returns the frames that were sent and not discarded, the oldest first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame<'_>> {
        let (bytes, ends, clocks) = self.0.frames();
        ends.iter().zip(clocks).enumerate().map(move |(index, (&end, &clock))| {
            let begin = index.checked_sub(1).map_or(0, |before| ends[before]);
            Frame { bytes: &bytes[begin as usize..end as usize], clock }
        })
    }

    /// Discards the oldest `count` frames.
    pub fn discard(&mut self, count: usize) {
        self.0.discard(count);
    }
}
