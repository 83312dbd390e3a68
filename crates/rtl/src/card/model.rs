//! The card's DMA module in its surroundings: packets, bus, memory, and the software of each channel.

use super::access::{Access, Answer, Registers};
use super::block::{Block, Tick};
use super::channel::Channel;
use super::feeder::Feeder;
use super::host::Host;
use super::memory::Memory;
use super::source::Source;
use super::sys::{Inputs, Model, Top};
use super::writes::Event;
use shotline_plan::pcie::Link;

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
    /// The integrated block for PCIe, if the card is behind one.
    pub block: Option<Block>,
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

    /// Creates a card with its bus side (`shotline_card`) behind a PCIe link, resets it, and waits until it is ready.
    ///
    /// # Errors
    /// As [`wait_until_ready`](Self::wait_until_ready).
    pub fn behind(link: &Link, seed: u64) -> Result<Self, String> {
        let mut card = Self::unready_behind(link, seed);
        card.wait_until_ready()?;
        Ok(card)
    }

    /// Creates a card with its bus side behind a PCIe link, and resets it.
    pub fn unready_behind(link: &Link, seed: u64) -> Self {
        let mut card = Self::around(Model::new(Top::Pcie, seed), Size::Full, Feeder::new(seed ^ 0x100), seed);
        card.attach(link);
        card
    }

    /// Resets the card and its surroundings: packets, reads and writes in flight are lost, and memory is empty.
    #[must_use]
    pub fn reset(mut self, seed: u64) -> Self {
        self.model.reset();
        let mut card = Self::around(self.model, self.size, Feeder::new(seed ^ 0x100), seed);
        if let Some(block) = &self.block {
            card.attach(block.link());
        }
        card
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
            host: Host::new(Memory::default(), Some(channels), seed ^ 0x200),
            block: None,
            channels: (0..channels).map(|number| Channel::new(number, seed ^ number as u64)).collect(),
            clock: 0,
            access: None,
        }
    }

    /// Puts the integrated block between the card and the host.
    pub(crate) fn attach(&mut self, link: &Link) {
        self.block = Some(Block::new(link));
        self.host.reads.beats = 2;
    }

    /// Runs until the card has cleared its channels after the reset.
    ///
    /// # Errors
    /// If it does not become ready, or as [`tick`](Self::tick).
    pub fn wait_until_ready(&mut self) -> Result<(), String> {
        self.become_ready()
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

    /// Runs for one clock with the host at the ports of the DMA module.
    fn tick_ports(&mut self, clock: u64, mut inputs: Inputs) -> Result<Option<Answer>, String> {
        self.host.drive(clock, &mut inputs);
        if let Some(access) = &self.access {
            access.drive(&mut inputs);
        }
        let outputs = self.model.tick(&inputs);
        let answer = self.access.as_mut().and_then(|access| access.settle(&outputs));
        self.feeder.settle(&outputs);
        for event in self.host.settle(clock, &inputs, &outputs)? {
            self.check(event)?;
        }
        Ok(answer)
    }

    /// Runs for one clock, and those of the integrated block that end in it.
    fn tick_block(&mut self, clock: u64, inputs: &Inputs, block: &mut Block) -> Result<Option<Answer>, String> {
        let mut answer = None;
        while block.is_due(clock) {
            let access = self.access.as_mut().filter(|_| answer.is_none());
            let Tick { requests, interrupt, answer: now } =
                block.tick(clock, &mut self.model, &mut self.host, access)?;
            // One after the other, so that a report shows what was written before it.
            for request in requests {
                if let Some(event) = self.host.carry_out(clock, &request)? {
                    self.check(event)?;
                }
            }
            if let Some(channel) = interrupt {
                self.check(Event::Interrupt { channel })?;
            }
            answer = answer.or(now);
        }
        let outputs = self.model.tick(inputs);
        self.feeder.settle(&outputs);
        Ok(answer)
    }

    /// Returns `true` if requests, completions, writes or notices are on their way.
    pub(crate) fn is_busy(&self) -> bool {
        self.host.is_busy() || self.block.as_ref().is_some_and(Block::is_busy)
    }

    fn check(&mut self, event: Event) -> Result<(), String> {
        self.channels[event.channel()].check(event, &self.host.memory, &mut self.feeder)
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

    /// Writes a register, and returns `false` if the write is refused. Behind a PCIe link nothing tells so.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn try_write(&mut self, address: u16, value: u32) -> Result<bool, String> {
        Ok(!self.access(address, Some(value))?.refused)
    }

    /// Reads a register.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn read(&mut self, address: u16) -> Result<u32, String> {
        self.read_register(address)
    }

    /// Reads both words of a 48-bit counter.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn counter(&mut self, address: u16) -> Result<u64, String> {
        self.read_counter(address)
    }
}

impl<S: Source> Registers for Card<S> {
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
        self.feeder.drive(clock, &mut inputs);
        let done = match self.block.take() {
            None => self.tick_ports(clock, inputs),
            Some(mut block) => {
                let done = self.tick_block(clock, &inputs, &mut block);
                self.block = Some(block);
                done
            }
        };
        match (done, self.model.failures()) {
            (Ok(answer), 0) => Ok(answer),
            (Ok(_), failed) => Err(format!("clock {clock}: {failed} assertions failed")),
            (Err(error), _) => Err(format!("clock {clock}: {error}")),
        }
    }
}
