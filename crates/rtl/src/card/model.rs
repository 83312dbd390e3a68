//! The card's DMA module in its surroundings: packets, bus, memory, and the software of each channel.

use super::channel::Channel;
use super::feeder::Feeder;
use super::host::Host;
use super::source::Source;
use super::sys::{Inputs, Model, Outputs, Top};
use super::writes::Event;
use crate::registers::card;

/// Clocks after which a register access or a reset has failed.
const LIMIT: u64 = 20_000;

/// Parameters of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// 256 channels, 256 descriptors prefetched for each, 64 reads in flight, 512 words of payload.
    Full,
    /// 8 channels, 32 descriptors prefetched for each, 4 reads in flight, 32 words of payload: corner cases are
    /// frequent.
    Small,
}

impl Size {
    /// Returns the number of channels.
    pub fn channels(self) -> usize {
        match self {
            Self::Full => 256,
            Self::Small => 8,
        }
    }

    /// Returns the number of descriptors prefetched for each channel.
    pub fn prefetch(self) -> usize {
        match self {
            Self::Full => 256,
            Self::Small => 32,
        }
    }
}

/// A register access in progress.
#[derive(Clone, Copy, Debug)]
struct Access {
    address: u16,
    value: Option<u32>,
    accepted: bool,
}

/// Cycle-accurate and bit-accurate model of the packet card's DMA module (`shotline_card_dma`), compiled by Verilator,
/// with a host that checks everything that the module does.
///
/// All methods that advance the clock return the first violation as an error. Packets flow during accesses of registers,
/// too. Registers without a reset start with random values.
#[derive(Debug)]
pub struct Card<S = Feeder> {
    model: Model,
    size: Size,
    /// Source of packets.
    pub feeder: S,
    /// Bus and memory.
    pub host: Host,
    pub(crate) channels: Vec<Channel>,
    clock: u64,
    access: Option<Access>,
}

impl Card {
    /// Creates a card, resets it, and waits until it is ready. `seed` determines all random values.
    ///
    /// # Errors
    /// As [`wait_until_ready`](Self::wait_until_ready).
    pub fn new(size: Size, seed: u64) -> Result<Self, String> {
        let mut card = Self::unready(size, seed);
        card.wait_until_ready()?;
        Ok(card)
    }

    /// Creates a card and resets it.
    pub fn unready(size: Size, seed: u64) -> Self {
        let top = if size == Size::Small { Top::Small } else { Top::Dma };
        Self::around(Model::new(top, seed), size, Feeder::new(seed ^ 0x100), seed)
    }

    /// Resets the card and its surroundings: packets, reads and writes in flight are lost, and memory is empty.
    #[must_use]
    pub fn reset(mut self, seed: u64) -> Self {
        self.model.reset();
        Self::around(self.model, self.size, Feeder::new(seed ^ 0x100), seed)
    }

    /// Sends a packet to a channel, as soon as those before it are sent.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn send(&mut self, channel: usize, length: u16) {
        self.send_at(0, channel, length);
    }

    /// Sends a packet to a channel, but not before a clock.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn send_at(&mut self, clock: u64, channel: usize, length: u16) {
        let packet = self.channels[channel].expected.send(channel, length);
        self.feeder.push(clock, packet);
    }
}

impl<S: Source> Card<S> {
    pub(crate) fn around(model: Model, size: Size, feeder: S, seed: u64) -> Self {
        let channels = size.channels();
        Self {
            model,
            size,
            feeder,
            host: Host::new(channels, seed ^ 0x200),
            channels: (0..channels).map(|number| Channel::new(number, seed ^ number as u64)).collect(),
            clock: 0,
            access: None,
        }
    }

    /// Runs until the card has cleared its channels after the reset.
    ///
    /// # Errors
    /// If it does not become ready, or as [`tick`](Self::tick).
    pub fn wait_until_ready(&mut self) -> Result<(), String> {
        while self.read(card::STATUS)? & card::STATUS_READY == 0 {
            if self.clock > LIMIT {
                return Err("the card does not become ready".into());
            }
        }
        Ok(())
    }

    /// Returns the parameters.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the clocks since the reset.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns a channel's software.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn channel(&self, number: usize) -> &Channel {
        &self.channels[number]
    }

    /// Runs for one clock.
    ///
    /// # Errors
    /// If the module violates a rule, or if an assertion of the RTL failed.
    pub fn tick(&mut self) -> Result<(), String> {
        self.step().map(drop)
    }

    /// Runs for some clocks.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn run(&mut self, clocks: u64) -> Result<(), String> {
        (0..clocks).try_for_each(|_| self.tick())
    }

    fn step(&mut self) -> Result<Outputs, String> {
        let clock = self.clock;
        let mut inputs = Inputs::default();
        self.feeder.drive(clock, &mut inputs);
        self.host.drive(clock, &mut inputs);
        if let Some(Access { address, value, accepted: false }) = self.access {
            (inputs.axil_awaddr, inputs.axil_araddr) = (address, address);
            inputs.axil_wdata = value.unwrap_or(0);
            (inputs.axil_awvalid, inputs.axil_wvalid) = (value.is_some(), value.is_some());
            inputs.axil_arvalid = value.is_none();
        }
        let outputs = self.model.tick(&inputs);
        self.clock += 1;
        if let Some(access) = &mut self.access {
            let ready = if access.value.is_some() { outputs.axil_awready } else { outputs.axil_arready };
            access.accepted |= ready == 1;
        }
        self.feeder.settle(&outputs);
        let events = self.host.settle(clock, &inputs, &outputs);
        let checked = events.and_then(|events| {
            let check = |event: Event| self.channels[event.channel()].check(event, &self.host.memory, &mut self.feeder);
            events.into_iter().try_for_each(check)
        });
        match (checked, self.model.failures()) {
            (Ok(()), 0) => Ok(outputs),
            (Ok(()), failed) => Err(format!("clock {clock}: {failed} assertions failed")),
            (Err(error), _) => Err(format!("clock {clock}: {error}")),
        }
    }

    fn access(&mut self, address: u16, value: Option<u32>) -> Result<Outputs, String> {
        self.access = Some(Access { address, value, accepted: false });
        for _ in 0..LIMIT {
            let outputs = self.step()?;
            if outputs.axil_bvalid == 1 || outputs.axil_rvalid == 1 {
                self.access = None;
                return Ok(outputs);
            }
        }
        Err(format!("clock {}: register {address:#06x} does not respond", self.clock))
    }

    /// Writes a register.
    ///
    /// # Errors
    /// If the write is refused, or as [`tick`](Self::tick).
    pub fn write(&mut self, address: u16, value: u32) -> Result<(), String> {
        match self.try_write(address, value)? {
            true => Ok(()),
            false => Err(format!("clock {}: register {address:#06x} refuses {value:#x}", self.clock)),
        }
    }

    /// Writes a register, and returns `false` if the write is refused.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn try_write(&mut self, address: u16, value: u32) -> Result<bool, String> {
        Ok(self.access(address, Some(value))?.axil_bresp == 0)
    }

    /// Reads a register.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn read(&mut self, address: u16) -> Result<u32, String> {
        Ok(self.access(address, None)?.axil_rdata)
    }

    /// Reads both words of a 48-bit counter.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn counter(&mut self, address: u16) -> Result<u64, String> {
        let low = self.read(address)?;
        Ok(u64::from(self.read(address + 4)?) << 32 | u64::from(low))
    }
}
