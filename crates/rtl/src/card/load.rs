//! Rate of the card at 100 Gbit/s Ethernet: how many packets of one length the module takes, and what it loses.
//!
//! The bus is always ready, and descriptors are there: what is measured is the module. Or the card is behind a PCIe link,
//! and what is measured is how close it comes to the limit of the link's model.

use super::block::{Block, Traffic};
use super::descriptors::Settings;
use super::model::{Card, Size};
use super::source::Source as _;
use shotline_plan::pcie::{self, Link, System, Writes};
use shotline_random::SplitMix64;

/// Clock of the module, in Hz.
const CLOCK: f64 = 200e6;
/// Rate of the wire, in bits per second.
const WIRE: f64 = 100e9;
/// Words of packets in a measurement.
const WORDS: usize = 3000;
/// Words of packets in a measurement of a link.
const LINK_WORDS: usize = 6000;
/// Clocks without a read after which all descriptors have been fetched.
const FETCHED: u64 = 400;
/// Clocks between two writes of software pointers, of one channel after the other.
const GIVE: u64 = 32;
/// Descriptors after which a report is written behind a link: as in the default load of [`shotline_plan::pcie`].
const REPORT: u32 = 16;
/// Clocks without payload after which all packets have been written.
const WRITTEN: u64 = 400;

/// Returns the clocks that a frame of `length` bytes, with FCS, has on the wire with preamble and gap.
pub fn wire_clocks(length: u16) -> f64 {
    (f64::from(length) + 20.0) * 8.0 / WIRE * CLOCK
}

/// Returns the bytes of this frame's packet: with the header of 16 bytes, without FCS.
pub fn packet_bytes(length: u16) -> u16 {
    length - 4 + 16
}

/// A load: how many channels receive packets, and their configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Channels, chosen at random for each packet.
    pub channels: usize,
    /// Bytes of a buffer.
    pub buffer: u16,
    /// Bytes of a header's buffer, 0 without header split.
    pub header: u8,
    /// Maximum length of a write: 128 bytes << `max_write`.
    pub max_write: u32,
    /// The bus takes 64 bytes of a write in each clock, instead of two writes.
    pub single: bool,
    /// The card is behind this link, instead of a bus that is always ready.
    pub link: Option<Link>,
}

impl Load {
    /// Returns the load of a card behind a link.
    #[must_use]
    pub fn behind(self, link: Link) -> Self {
        Self { max_write: (link.max_payload / 128).max(1).ilog2(), link: Some(link), ..self }
    }

    /// Returns the packets per second of the slowest of module, requester stream and link.
    fn limit_hz(&self, length: u16, packets: usize, traffic: &Traffic) -> f64 {
        let per = |tlps: u64| packets.div_ceil(tlps.max(1) as usize) as u32;
        let load = pcie::Load { packets_per_read: per(traffic.reads), packets_per_report: per(traffic.reports) };
        let writes = if self.header > 0 { Writes::Split(self.header.into()) } else { Writes::Packet };
        let link = self.link.unwrap_or_default();
        let limits = System { writes, load: Some(load), ..System::new(link) }.limits(length.into());
        limits.module_hz.min(limits.requester_hz).min(limits.link_hz)
    }
}

impl Default for Load {
    fn default() -> Self {
        Self { channels: 1, buffer: 2048, header: 0, max_write: 1, single: false, link: None }
    }
}

/// How many packets of one length the module takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bytes of a frame, with FCS.
    pub length: u16,
    /// Packets, relative to those of the wire.
    pub rate: f64,
    /// Bytes of the packets that were dropped although they came with the rate of the wire.
    pub lost: u64,
}

/// How many packets of one length go through a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    /// Bytes of a frame, with FCS.
    pub length: u16,
    /// Packets, relative to those of the wire.
    pub rate: f64,
    /// The same by the model of card and link, with as many reads and reports as were sent.
    pub limit: f64,
    /// TLPs.
    pub traffic: Traffic,
}

/// What happens to packets that come with the rate of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes of the packets that were dropped.
    pub lost: u64,
    /// Maximum number of packets that waited for the module.
    pub waiting: usize,
}

/// A card under load.
#[derive(Debug)]
pub struct Measurement {
    card: Card,
    load: Load,
    random: SplitMix64,
}

impl Measurement {
    /// Starts a card.
    ///
    /// # Errors
    /// At the first violation.
    pub fn new(load: Load, seed: u64) -> Result<Self, String> {
        let mut card = match &load.link {
            Some(link) => Card::behind(link, seed)?,
            None => Card::new(Size::Full, seed)?,
        };
        card.set_max_write(load.max_write)?;
        card.host.single = load.single;
        // Enough for the packets of two measurements.
        let descriptors = (8 * WORDS / load.channels).clamp(512, 1 << 14).next_power_of_two();
        let settings = Settings {
            ring_log2: descriptors.ilog2() as u8,
            buffer: load.buffer,
            header: load.header,
            // A write must not be split at a page: the model of the link has no such splits.
            max_gap: if load.link.is_some() { 0 } else { 8 },
            report_count: if load.link.is_some() { REPORT as u16 } else { 64 },
            report_time: if load.link.is_some() { u16::MAX } else { 32 },
            ..Settings::default()
        };
        for channel in 0..load.channels {
            card.start(channel, settings, 1)?;
        }
        Ok(Self { card, load, random: SplitMix64::new(seed) })
    }

    /// Returns the load.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Gives all free descriptors, and waits until the card holds as many as it can.
    fn prepare(&mut self) -> Result<(), String> {
        for channel in 0..self.load.channels {
            self.card.give(channel, u64::MAX)?;
        }
        let given = self.card.clock();
        while self.card.clock() < self.card.host.last_read().max(given) + FETCHED {
            self.card.tick()?;
        }
        Ok(())
    }

    fn send(&mut self, clock: u64, length: u16) {
        let channel = self.random.below(self.load.channels as u64) as usize;
        self.card.send_at(clock, channel, packet_bytes(length));
    }

    /// Measures how many frames of `length` bytes the module takes if the next packet is always there.
    ///
    /// # Errors
    /// At the first violation.
    pub fn rate(&mut self, length: u16) -> Result<Rate, String> {
        self.prepare()?;
        let blocks = usize::from(packet_bytes(length)).div_ceil(8);
        let packets = (8 * WORDS / blocks.max(8)).max(16);
        (0..packets).for_each(|_| self.send(0, length));
        let (mut first, mut last, mut payload) = (None, self.card.clock(), self.card.host.payload());
        while !self.card.feeder.is_empty() || self.card.clock() < last + WRITTEN {
            self.card.tick()?;
            if self.card.host.payload() != payload {
                (last, payload) = (self.card.clock(), self.card.host.payload());
                first = first.or(Some(last));
            }
        }
        let clocks = (last - first.unwrap_or(last)) as f64 / packets as f64;
        let lost = self.arrive(&vec![length; packets])?.lost;
        Ok(Rate { length, rate: wire_clocks(length) / clocks, lost })
    }

    /// Sends frames of these lengths with the rate of the wire, while software gives back the buffers that are reported.
    ///
    /// # Errors
    /// At the first violation.
    pub fn arrive(&mut self, lengths: &[u16]) -> Result<Arrival, String> {
        self.prepare()?;
        let before = self.card.host.payload().0;
        let mut end = self.card.clock() as f64;
        for &length in lengths {
            end += wire_clocks(length);
            self.send(end.ceil() as u64, length);
        }
        let waiting = self.serve()?;
        self.card.drain()?;
        let sent = lengths.iter().map(|&length| u64::from(packet_bytes(length))).sum::<u64>();
        Ok(Arrival { lost: before + sent - self.card.host.payload().0, waiting })
    }

    /// Gives back buffers until all packets are accepted. Returns the maximum number of packets that waited.
    fn serve(&mut self) -> Result<usize, String> {
        let mut waiting = 0;
        let (mut next, mut turn) = (self.card.clock(), 0);
        while !self.card.feeder.is_empty() {
            if self.card.clock() >= next {
                self.card.give(turn, u64::MAX)?;
                (next, turn) = (next + GIVE, (turn + 1) % self.load.channels);
            }
            self.card.tick()?;
            waiting = waiting.max(self.card.feeder.late(self.card.clock()));
        }
        Ok(waiting)
    }

    /// Measures how many frames of `length` bytes go through the link if the next packet is always there, while software
    /// gives back the buffers that are reported.
    ///
    /// # Errors
    /// At the first violation.
    pub fn passed(&mut self, length: u16) -> Result<Passed, String> {
        self.prepare()?;
        self.traffic();
        let blocks = usize::from(packet_bytes(length)).div_ceil(8);
        let packets = (8 * LINK_WORDS / blocks.max(8)).max(64);
        (0..packets).for_each(|_| self.send(0, length));
        self.serve()?;
        self.card.drain()?;
        let traffic = self.traffic();
        let packets_hz = packets as f64 / traffic.seconds();
        let wire_hz = CLOCK / wire_clocks(length);
        let limit = self.load.limit_hz(length, packets, &traffic) / wire_hz;
        Ok(Passed { length, rate: packets_hz / wire_hz, limit, traffic })
    }

    /// Returns what was sent over the link since the last call.
    fn traffic(&mut self) -> Traffic {
        self.card.block.as_mut().map(Block::take_traffic).unwrap_or_default()
    }

    /// Waits for all reports, and checks that the counters balance.
    ///
    /// # Errors
    /// If they do not.
    pub fn finish(mut self) -> Result<(), String> {
        if self.load.link.is_some() {
            (0..self.load.channels).try_for_each(|channel| self.card.stop(channel))?;
        }
        self.card.drain()?;
        self.card.run(256 * 64)?;
        (0..self.load.channels).try_for_each(|channel| self.card.balance(channel).map(drop))
    }
}
