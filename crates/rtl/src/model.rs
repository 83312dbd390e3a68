//! The RTL, running.

use crate::registers::sender as register;
use crate::sys::{Limits, Model};
use crate::{Config, Shot};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};

/// A register did not take what was written: it is not there, or only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its address.
    pub address: u16,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no register at {:#05x} takes a write", self.address)
    }
}

impl std::error::Error for Refused {}

/// One of the sender's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Payload in: a pause offers nothing.
    Input,
    /// Frames out: a pause of the MAC takes nothing.
    Output,
}

/// A frame that has left, without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// From the Ethernet header to the ICRC.
    pub bytes: &'a [u8],
    /// The clock in which its last word left, counted from the model's beginning.
    pub clock: u64,
}

/// The sender (`shotline_roce_ud_tx`) as a model that Verilator made: every clock of it, every bit.
///
/// Payload is queued by [`send`](Self::send) and goes in while [`run`](Self::run) lets clocks pass; frames pile up
/// until they are [forgotten](Self::forget). Registers without a reset begin with random values.
#[derive(Debug)]
pub struct Sender(Model);

impl Sender {
    /// A sender after its reset. `seed` decides all that is random: values before the reset, and pauses by chance.
    pub fn new(seed: u64) -> Self {
        Self(Model::new(seed))
    }

    /// Writes what is on the ports, from now on, into a VCD file.
    ///
    /// # Errors
    /// If there can be no such file.
    pub fn trace(&mut self, path: &Path) -> io::Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        if self.0.trace(&name) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes a register; takes a few clocks, in which packets go on.
    pub fn write(&mut self, address: u16, value: u32) -> Result<(), Refused> {
        match self.0.write(address, value) {
            0 => Ok(()),
            _ => Err(Refused { address }),
        }
    }

    /// Reads a register; takes a few clocks, in which packets go on.
    pub fn read(&mut self, address: u16) -> u32 {
        self.0.read(address)
    }

    /// Reads a counter's two words.
    pub fn counter(&mut self, address: u16) -> u64 {
        let low = self.0.read(address);
        u64::from(self.0.read(address + 4)) << 32 | u64::from(low)
    }

    /// Writes a configuration. It holds from the next shot on that has not begun.
    pub fn configure(&mut self, config: &Config) -> Result<(), Refused> {
        config.writes().into_iter().try_for_each(|(address, value)| self.write(address, value))
    }

    /// Whether a configuration still waits for what is under way.
    pub fn is_configuring(&mut self) -> bool {
        self.read(register::CONTROL) & register::CONTROL_APPLY != 0
    }

    /// Queues a shot's samples, or a packet's payload. Nothing at all cannot be sent, and is ignored.
    pub fn send(&mut self, shot: &Shot, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.send(shot, bytes);
        }
    }

    /// Lets clocks pass.
    pub fn run(&mut self, limits: Limits) {
        self.0.run(limits);
    }

    /// Pauses one side in each clock with a chance of `chance` in 65536, and in the clocks from `clocks.start` to before
    /// `clocks.end`. Replaces what was asked for that side before.
    pub fn pause(&mut self, side: Side, chance: u16, clocks: std::ops::Range<u64>) {
        self.0.pause(side == Side::Output, chance.into(), clocks.start, clocks.end);
    }

    /// Clocks since the model began.
    pub fn clocks(&self) -> u64 {
        self.0.cycles()
    }

    /// Words taken.
    pub fn input_words(&self) -> u64 {
        self.0.input_words()
    }

    /// Words that have left.
    pub fn output_words(&self) -> u64 {
        self.0.output_words()
    }

    /// Input frames that have not been taken whole.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }

    /// Assertions of the RTL that have failed on this thread. A release build has none, for speed.
    pub fn failed_assertions(&self) -> u64 {
        self.0.failures()
    }

    /// The frames that have left and were not forgotten, the oldest first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame<'_>> {
        let (bytes, ends, clocks) = self.0.frames();
        ends.iter().zip(clocks).enumerate().map(move |(index, (&end, &clock))| {
            let begin = index.checked_sub(1).map_or(0, |before| ends[before]);
            Frame { bytes: &bytes[begin as usize..end as usize], clock }
        })
    }

    /// Forgets the oldest frames.
    pub fn forget(&mut self, count: usize) {
        self.0.forget(count);
    }
}
