//! A wrapper that disturbs the sent datagrams on purpose.

use super::Carrier;
use crate::{IoError, geometric};
use shotline_random::SplitMix64;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Faults to make, each with a probability from 0 to 1; by default there are none. They are the same for the same seed
/// and the same sent datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Probability of each bit to be inverted.
    pub bit_error_rate: f64,
    /// Probability of each datagram to be dropped.
    pub drop: f64,
    /// Probability of each datagram to be sent twice.
    pub repeat: f64,
    /// Probability of each datagram to be sent after the one that follows it.
    pub swap: f64,
}

/// Faults made so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Inverted bits.
    pub bit_errors: u64,
    /// Dropped datagrams.
    pub dropped: u64,
    /// Datagrams that were sent twice.
    pub repeated: u64,
    /// Datagrams that were held back to be sent after the next one.
    pub swapped: u64,
}

/// Disturbs the datagrams that are sent over a carrier. Received ones are not affected. It copies each datagram.
#[derive(Debug)]
pub struct Faulty<C> {
    carrier: C,
    faults: Faults,
    random: SplitMix64,
    /// Bits to pass before the next one is inverted.
    bits_left: u64,
    counters: FaultCounters,
    building: Vec<u8>,
    /// Bytes that may be appended to it; 0 also until that is known.
    space: usize,
    /// A datagram that is sent after the next one.
    held: Option<Vec<u8>>,
    /// [`Carrier::flush`] was called while it was held.
    was_flushed: bool,
    /// Datagrams for which the carrier had no space.
    pending: VecDeque<Vec<u8>>,
}

impl<C: Carrier> Faulty<C> {
    /// Creates a wrapper that makes these faults.
    pub fn new(carrier: C, faults: Faults) -> Self {
        let mut random = SplitMix64::new(faults.seed);
        let bits_left = geometric::draw(&mut random, faults.bit_error_rate);
        Self {
            carrier,
            faults,
            random,
            bits_left,
            counters: FaultCounters::default(),
            building: Vec::new(),
            space: 0,
            held: None,
            was_flushed: false,
            pending: VecDeque::new(),
        }
    }

    /// Returns the number of faults made so far.
    pub fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Inverts bits of a datagram.
    fn invert_bits(&mut self, datagram: &mut [u8]) {
        let bits = 8 * datagram.len() as u64;
        while self.bits_left < bits {
            datagram[(self.bits_left / 8) as usize] ^= 1 << (self.bits_left % 8);
            self.counters.bit_errors += 1;
            let distance = geometric::draw(&mut self.random, self.faults.bit_error_rate);
            self.bits_left = self.bits_left.saturating_add(1).saturating_add(distance);
        }
        self.bits_left -= bits;
    }

    /// Decides what happens to a completed datagram.
    fn disturb(&mut self, mut datagram: Vec<u8>) {
        if self.random.chance(self.faults.drop) {
            self.counters.dropped += 1;
            return;
        }
        self.invert_bits(&mut datagram);
        if self.random.chance(self.faults.repeat) {
            self.counters.repeated += 1;
            self.pending.push_back(datagram.clone());
        }
        if self.random.chance(self.faults.swap) && self.held.is_none() {
            self.counters.swapped += 1;
            self.held = Some(datagram);
            self.was_flushed = false;
        } else {
            self.pending.push_back(datagram);
            self.pending.extend(self.held.take());
        }
    }

    /// Sends pending datagrams, as far as the carrier has space.
    fn forward(&mut self) -> Result<(), IoError> {
        while let Some(datagram) = self.pending.front()
            && self.carrier.remaining() > 0
        {
            self.carrier.append(datagram);
            self.pending.pop_front();
            self.carrier.finish()?;
        }
        Ok(())
    }
}

impl<C: Carrier> Carrier for Faulty<C> {
    fn max_datagram(&self) -> usize {
        self.carrier.max_datagram()
    }

    fn remaining(&mut self) -> usize {
        if self.space == 0 && self.building.is_empty() && self.pending.is_empty() {
            self.space = self.carrier.remaining();
        }
        self.space
    }

    fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.space, "{} bytes are appended, {} remain", bytes.len(), self.space);
        self.space -= bytes.len();
        self.building.extend_from_slice(bytes);
    }

    fn finish(&mut self) -> Result<(), IoError> {
        if self.building.is_empty() {
            return Ok(());
        }
        self.space = 0;
        let datagram = std::mem::take(&mut self.building);
        self.disturb(datagram);
        self.forward()
    }

    /// Also sends a datagram that was held back since before the last call: there may be no next one.
    fn flush(&mut self) -> Result<(), IoError> {
        if std::mem::replace(&mut self.was_flushed, true) {
            self.pending.extend(self.held.take());
        }
        self.forward()?;
        self.carrier.flush()
    }

    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        self.carrier.receive()
    }

    /// Also sends a datagram that is held back.
    fn prepare_sleep(&mut self) -> bool {
        self.pending.extend(self.held.take());
        // An error occurs again in the caller's next `flush`.
        self.forward().is_ok() && self.carrier.flush().is_ok() && self.carrier.prepare_sleep()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.carrier.fd()
    }
}
