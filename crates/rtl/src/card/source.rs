//! What brings packets into the card.

use super::descriptors::{Buffer, Settings};
use super::expected::Expected;
use super::memory::Memory;
use super::sys::{Inputs, Outputs};
use std::fmt::Debug;

/// Buffers of a channel that the card has used, the oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Used<'a> {
    /// Number of the channel.
    pub channel: usize,
    /// Memory.
    pub memory: &'a Memory,
    /// The buffers, and others after them that may be in use.
    pub buffers: &'a [Buffer],
    /// Configuration of the channel.
    pub settings: &'a Settings,
}

/// A source of packets, which knows what must arrive of them.
pub trait Source: Debug {
    /// Returns the number of packets that have not begun.
    fn waiting(&self) -> usize;

    /// Returns `true` if all packets have been accepted.
    fn is_empty(&self) -> bool;

    /// Returns the number of words accepted.
    fn words(&self) -> u64;

    /// Sets the inputs of a clock.
    fn drive(&mut self, clock: u64, inputs: &mut Inputs);

    /// Takes the outputs of this clock.
    fn settle(&mut self, outputs: &Outputs);

    /// Finds the packets in the first `count` of the buffers, which a report has counted.
    ///
    /// # Errors
    /// If they are not packets of the source, whole and in order.
    fn take(&mut self, expected: &mut Expected, used: &Used<'_>, count: usize) -> Result<(), String>;
}
