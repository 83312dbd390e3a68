//! A card with its distributor as a user has it: frames go in, and their packets are taken from memory.

use super::access::Registers;
use super::descriptors::Settings;
use super::driver::Counters;
use super::frames::{CLOCK_FS, Found, Frames, NS};
use super::model::{Card, Size};
use super::source::Source as _;
use super::sys::{Model, Top};
use crate::registers::card_distributor as register;
use shotline_plan::pcie::Link;

/// Key of the Toeplitz hash: that of Microsoft's verification suite for receive side scaling.
pub const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// Frames that are queued ahead.
const AHEAD: usize = 64;
/// Clocks between two looks at the reports of all channels.
const LOOK: u64 = 32;
/// Used descriptors for which software writes the pointer.
const BATCH: u64 = 32;
/// Time of a report, in units of 256 clocks.
const REPORT_TIME: u16 = 1;
/// Clocks without a write after which the card is idle: more than the words of payload that it holds.
const QUIET: u64 = 700;
/// Clocks within which queued frames must be taken.
const LIMIT: u64 = 1_000_000;
/// Idle time in nanoseconds that is not simulated.
const IDLE_NS: u64 = 100_000;
/// Limit of times in nanoseconds, so that no sum overflows: 146 years.
const LATEST_NS: u64 = 1 << 62;

/// Configuration of a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Rate of the wire, at most [`MAX_GBPS`](super::MAX_GBPS).
    pub gbps: f64,
    /// Channels, 1 to 256. Entry n of the table of channels is n modulo this number.
    pub channels: usize,
    /// Bytes of a buffer, a multiple of 8.
    pub buffer: u16,
    /// Bytes of a header's buffer, a multiple of 8; 0 without header split.
    pub header: u8,
    /// Two bytes of padding between the header of a packet and its frame.
    pub pad: bool,
    /// Longest frame with FCS.
    pub max_length: u16,
    /// TAI time at the first frame.
    pub start_ns: u64,
    /// The PCIe link that the card is behind with its bus side, with at least 128 bytes of payload; `None`: a bus that is
    /// always ready at the DMA module.
    pub link: Option<Link>,
    /// Seed of all random values.
    pub seed: u64,
}

/// What became of the frames in the distributor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distributed {
    /// Passed on to the DMA module.
    pub delivered: u64,
    /// Damaged.
    pub error: u64,
    /// Too short.
    pub runt: u64,
    /// Too long.
    pub giant: u64,
    /// Dropped because the frame buffer was full.
    pub overflow: u64,
}

impl Distributed {
    /// Returns all frames.
    pub fn total(&self) -> u64 {
        self.delivered + self.error + self.runt + self.giant + self.overflow
    }

    /// Reads the counters.
    pub(crate) fn read(of: &mut impl Registers) -> Result<Self, String> {
        Ok(Self {
            delivered: of.read_counter(register::DELIVERED)?,
            error: of.read_counter(register::ERROR)?,
            runt: of.read_counter(register::RUNT)?,
            giant: of.read_counter(register::GIANT)?,
            overflow: of.read_counter(register::OVERFLOW)?,
        })
    }
}

/// Counters of a card in the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Frames that came over the wire.
    pub frames: u64,
    /// What became of them in the distributor.
    pub distributed: Distributed,
    /// Packets of the delivered ones, by channel.
    pub channels: Vec<Counters>,
}

impl std::ops::AddAssign for Distributed {
    fn add_assign(&mut self, other: Self) {
        self.delivered += other.delivered;
        self.error += other.error;
        self.runt += other.runt;
        self.giant += other.giant;
        self.overflow += other.overflow;
    }
}

/// A card under test with its software: it gives back all buffers as soon as it sees in a report that they were used.
#[derive(Debug)]
pub struct Receiver {
    card: Card<Frames>,
    channels: usize,
    /// Time of the first frame on the clock of the simulation.
    origin_fs: u64,
    /// Idle time that was not simulated.
    skipped_ns: u64,
}

impl Receiver {
    /// Creates a card and starts its channels.
    ///
    /// # Errors
    /// At the first violation.
    pub fn new(setup: &Setup) -> Result<Self, String> {
        let frames = Frames::new(setup.gbps, setup.channels);
        let top = if setup.link.is_some() { Top::Ethernet } else { Top::Port };
        let mut card = Card::around(Model::new(top, setup.seed), Size::Full, frames, setup.seed);
        if let Some(link) = &setup.link {
            card.attach(link);
        }
        card.wait_until_ready()?;
        if let Some(link) = &setup.link {
            card.set_max_write((link.max_payload / 128).max(1).ilog2())?;
        }
        for (&address, bytes) in register::KEY.iter().zip(KEY.chunks_exact(4)) {
            card.write(address, bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))?;
        }
        let entries = 1_u32 << (card.read(register::PARAMETERS)? & register::PARAMETERS_TABLE_LOG2);
        card.feeder.entries = entries as usize;
        for entry in 0..entries {
            let channel = entry % setup.channels as u32;
            card.write(register::TABLE, entry | channel << register::TABLE_CHANNEL_LSB)?;
        }
        card.write(register::MAX_LENGTH, setup.max_length.into())?;
        card.write(register::PAD, setup.pad.into())?;
        card.feeder.pad = setup.pad;
        // Enough descriptors in one channel, and not too much memory in all.
        let ring_log2 = 17_u32.saturating_sub(setup.channels.next_power_of_two().ilog2()).clamp(9, 12) as u8;
        let (buffer, header) = (setup.buffer, setup.header);
        let settings = Settings {
            ring_log2,
            buffer,
            header,
            report_count: BATCH as u16,
            report_time: REPORT_TIME,
            ..Settings::default()
        };
        for channel in 0..setup.channels {
            card.start(channel, settings, 1)?;
            card.give(channel, u64::MAX)?;
        }
        let given = card.clock();
        while card.clock() < card.host.last_read().max(given) + QUIET {
            card.tick()?;
        }
        let origin_fs = card.clock() * CLOCK_FS;
        card.feeder.epoch_ns = setup.start_ns.min(LATEST_NS).saturating_sub(origin_fs / NS);
        Ok(Self { card, channels: setup.channels, origin_fs, skipped_ns: 0 })
    }

    /// Returns the clocks of the module that were simulated.
    pub fn clocks(&self) -> u64 {
        self.card.clock()
    }

    /// Returns the time from the first frame until now in seconds, with the time that was not simulated.
    pub fn seconds(&self) -> f64 {
        self.elapsed_ns() as f64 / 1e9 + self.skipped_ns as f64 / 1e9
    }

    /// Returns the entries of the table of channels.
    pub fn entries(&self) -> usize {
        self.card.feeder.entries
    }

    /// Sends a frame with FCS over the wire after those before it, but not before a time since the first frame.
    ///
    /// # Errors
    /// At the first violation.
    pub fn send(&mut self, frame: Vec<u8>, at_ns: u64) -> Result<(), String> {
        while self.card.feeder.waiting() >= AHEAD {
            self.tick()?;
        }
        let mut due_ns = at_ns.min(LATEST_NS).saturating_sub(self.skipped_ns);
        let free_ns = self.card.feeder.free_fs().saturating_sub(self.origin_fs) / NS;
        if due_ns > free_ns + IDLE_NS {
            self.idle()?;
            let skip_ns = due_ns.saturating_sub(self.elapsed_ns());
            self.card.feeder.epoch_ns += skip_ns;
            self.skipped_ns += skip_ns;
            due_ns -= skip_ns;
        }
        self.card.feeder.push(self.origin_fs + due_ns.max(self.elapsed_ns()) * NS, frame);
        Ok(())
    }

    /// Returns the time since the first frame at which the wire is free after all frames.
    pub fn free_ns(&self) -> u64 {
        self.card.feeder.free_fs().saturating_sub(self.origin_fs) / NS + self.skipped_ns
    }

    /// Returns the simulated time since the first frame.
    fn elapsed_ns(&self) -> u64 {
        (self.card.clock() * CLOCK_FS - self.origin_fs) / NS
    }

    /// Returns the frames found in memory since the last call, each channel's in order.
    pub fn found(&mut self) -> std::vec::Drain<'_, Found> {
        self.card.feeder.found.drain(..)
    }

    /// Runs until the distributor has counted all frames, and the bus is idle. Packets whose descriptors take long to
    /// count may still be undecided.
    ///
    /// # Errors
    /// At the first violation.
    fn idle(&mut self) -> Result<(), String> {
        let end = self.card.clock() + LIMIT;
        while !self.card.feeder.is_empty() || self.distributed()?.total() < self.card.feeder.sent {
            if self.card.clock() > end {
                return Err(format!("clock {}: frames are neither delivered nor counted", self.card.clock()));
            }
            self.run(50)?;
        }
        let mut quiet = 0;
        while quiet < QUIET {
            self.tick()?;
            quiet = if self.card.is_busy() { 0 } else { quiet + 1 };
        }
        self.run(256 * (2 + u64::from(REPORT_TIME)))
    }

    /// Runs until all frames have been written to memory and reported, or dropped.
    ///
    /// # Errors
    /// If a frame is neither, or at the first violation.
    pub fn settle(&mut self) -> Result<(), String> {
        self.decided().map(drop)
    }

    /// Settles and returns all counters.
    fn decided(&mut self) -> Result<(Distributed, Vec<Counters>), String> {
        let mut before = None;
        loop {
            self.idle()?;
            let distributed = self.distributed()?;
            let channels =
                (0..self.channels).map(|channel| self.card.counters(channel)).collect::<Result<Vec<_>, _>>()?;
            let decided = channels.iter().map(|counters| counters.total().packets).sum::<u64>();
            let frames = self.card.feeder.sent;
            if decided == distributed.delivered && distributed.total() == frames {
                return Ok((distributed, channels));
            }
            // No decision takes as long as the card was idle.
            if before == Some(decided) {
                return Err(format!(
                    "{frames} frames arrived; counted by the distributor: {distributed:?}, by the channels: {decided}"
                ));
            }
            before = Some(decided);
        }
    }

    /// Settles, and checks that each frame is in memory or counted once.
    ///
    /// # Errors
    /// If the counters do not balance, or at the first violation.
    pub fn finish(&mut self) -> Result<Outcome, String> {
        let (distributed, channels) = self.decided()?;
        for (channel, counters) in channels.iter().enumerate() {
            let found = self.card.channel(channel).expected.received;
            if counters.received != found {
                return Err(format!("channel {channel}: {found:?} found in memory; counted: {counters}"));
            }
        }
        match self.card.host.excess() {
            0 => Ok(Outcome { frames: self.card.feeder.sent, distributed, channels }),
            excess => Err(format!("{excess} blocks without a write")),
        }
    }

    /// Reads the counters of the distributor.
    fn distributed(&mut self) -> Result<Distributed, String> {
        Distributed::read(&mut self.card)
    }

    fn run(&mut self, clocks: u64) -> Result<(), String> {
        (0..clocks).try_for_each(|_| self.tick())
    }

    /// Runs for at least one clock, and gives back the buffers that were used.
    fn tick(&mut self) -> Result<(), String> {
        self.card.tick()?;
        if self.card.clock().is_multiple_of(LOOK) {
            for channel in 0..self.channels {
                if self.card.channel(channel).free() >= BATCH {
                    self.card.give(channel, u64::MAX)?;
                }
            }
        }
        Ok(())
    }
}
