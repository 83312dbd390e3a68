//! The order in which buffers are given to a device that writes payloads behind their headers.
//!
//! Buffers are given long before it is known which packets will fill them. A packet takes one buffer, or more if its
//! payload and ICRC are longer than one. The buffer of a posted receive's own memory is given where the packet that
//! belongs there will begin, if all packets come in order and as long as expected: the plan counts how many buffers the
//! packets before it take. Between them are buffers of other memory, for ICRCs.
//!
//! Payloads are delivered to the oldest receive. One that lands elsewhere, because a packet of another host took its
//! place, is copied there. The count then continues from what happened, so that later payloads land in place again.

use std::collections::VecDeque;

/// A receive in which nothing was delivered yet.
#[derive(Clone, Copy, Debug)]
struct Posted {
    id: u32,
    /// Ordinal among all receives.
    sequence: u64,
    /// Length in bytes.
    bytes: u32,
    /// Number of buffers of the packet that is expected.
    buffers: usize,
    /// The device can write a whole buffer there.
    is_reachable: bool,
    /// The device has its memory.
    is_given: bool,
}

/// A buffer of the device's pool.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// The device has it.
    is_given: bool,
    /// Receive whose memory it was given with.
    receive: Option<u64>,
}

/// A buffer to give to the device next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextBuffer {
    /// Number of the buffer.
    pub buffer: u32,
    /// Receive whose memory the device is to write; otherwise memory of its own.
    pub receive: Option<u32>,
}

/// The receive that a payload is delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Id of the receive, which is no longer posted.
    pub id: u32,
    /// The payload is there; otherwise it is to be copied, and nothing else writes there.
    pub in_place: bool,
}

/// Posted receives and buffers of a queue.
#[derive(Debug)]
pub struct Plan {
    buffers: Vec<Buffer>,
    free: Vec<u32>,
    /// Receives in the order of posting.
    posted: VecDeque<Posted>,
    next_sequence: u64,
    /// Number of buffers that the device has.
    given: usize,
    /// Number of packets that begin in these.
    packets: usize,
    /// Buffers that the last of them needs beyond these.
    missing: usize,
    /// These two numbers are to be counted again.
    is_stale: bool,
}

/// Buffers of packets that are expected beyond the posted receives.
const UNKNOWN: usize = 2;

impl Plan {
    /// Creates a plan for this number of buffers.
    pub fn new(buffers: u32) -> Self {
        Self {
            buffers: vec![Buffer::default(); buffers as usize],
            free: (0..buffers).rev().collect(),
            posted: VecDeque::new(),
            next_sequence: 0,
            given: 0,
            packets: 0,
            missing: 0,
            is_stale: false,
        }
    }

    /// Posts a receive of this length for a packet that is expected to take this number of buffers, at least one.
    pub fn post(&mut self, id: u32, bytes: u32, buffers: usize, is_reachable: bool) {
        let sequence = self.next_sequence;
        self.posted.push_back(Posted { id, sequence, bytes, buffers, is_reachable, is_given: false });
        self.next_sequence += 1;
    }

    /// Returns the number of buffers that the device has.
    pub fn given(&self) -> usize {
        self.given
    }

    /// Chooses the next buffer to give to the device; `None` if no more receives are posted or no buffer is free.
    pub fn give(&mut self) -> Option<NextBuffer> {
        if std::mem::take(&mut self.is_stale) {
            self.count();
        }
        let buffer = *self.free.last()?;
        let mut receive = None;
        if self.missing > 0 {
            self.missing -= 1;
        } else {
            let posted = self.posted.get_mut(self.packets)?;
            // The memory of a receive may be with the device in another place, from which it comes back before this
            // packet arrives: it is copied then.
            if posted.is_reachable && !posted.is_given {
                posted.is_given = true;
                receive = Some((posted.id, posted.sequence));
            }
            self.packets += 1;
            self.missing = posted.buffers - 1;
        }
        self.free.pop();
        self.given += 1;
        self.buffers[buffer as usize] = Buffer { is_given: true, receive: receive.map(|(_, sequence)| sequence) };
        Some(NextBuffer { buffer, receive: receive.map(|(id, _)| id) })
    }

    /// Chooses a buffer of other memory to give to the device, which takes several at a time and would wait for more
    /// receives; `None` if no buffer is free.
    pub fn give_other(&mut self) -> Option<NextBuffer> {
        let buffer = self.free.pop()?;
        self.given += 1;
        self.is_stale = true;
        self.buffers[buffer as usize] = Buffer { is_given: true, receive: None };
        Some(NextBuffer { buffer, receive: None })
    }

    /// Returns the receive whose memory a packet in these buffers begins in, if it would be delivered there.
    pub fn in_place(&self, buffers: &[u32]) -> Option<u32> {
        let first = self.buffers[*buffers.first()? as usize].receive?;
        self.posted.front().filter(|front| front.sequence == first).map(|front| front.id)
    }

    /// Delivers a packet of this payload length that landed in these buffers, its payload in the first if `is_whole`.
    /// `None` if no receive can take it: the packet is lost.
    pub fn deliver(&mut self, buffers: &[u32], bytes: u32, is_whole: bool) -> Option<Delivery> {
        let in_place = is_whole && self.in_place(buffers).is_some();
        self.take_back(buffers);
        // The device may still have the oldest receive's memory, in a later place.
        let index = self.posted.iter().position(|posted| !posted.is_given && posted.bytes >= bytes);
        let posted = index.and_then(|index| self.posted.remove(index));
        let as_expected = index == Some(0) && posted.is_some_and(|posted| posted.buffers == buffers.len());
        if as_expected && !self.is_stale {
            self.packets -= 1;
        } else {
            self.is_stale = true;
        }
        posted.map(|posted| Delivery { id: posted.id, in_place })
    }

    /// Notes that what landed in these buffers is not delivered.
    pub fn discard(&mut self, buffers: &[u32]) {
        self.is_stale |= self.take_back(buffers);
    }

    /// Notes that a buffer is in its pool again, used or not.
    pub fn free(&mut self, buffer: u32) {
        self.discard(&[buffer]);
        self.free.push(buffer);
    }

    /// Notes that the device no longer has these buffers. Returns `true` if it had one.
    fn take_back(&mut self, buffers: &[u32]) -> bool {
        let before = self.given;
        for buffer in buffers {
            let Buffer { is_given, receive } = std::mem::take(&mut self.buffers[*buffer as usize]);
            self.given -= usize::from(is_given);
            let Some(sequence) = receive else { continue };
            let index = self.posted.partition_point(|posted| posted.sequence < sequence);
            if let Some(posted) = self.posted.get_mut(index).filter(|posted| posted.sequence == sequence) {
                posted.is_given = false;
            }
        }
        self.given < before
    }

    /// Counts the packets that begin in the buffers that the device has.
    fn count(&mut self) {
        let mut left = self.given;
        (self.packets, self.missing) = (0, 0);
        while left > 0 {
            let buffers = self.posted.get(self.packets).map_or(UNKNOWN, |posted| posted.buffers);
            self.missing = buffers.saturating_sub(left);
            left = left.saturating_sub(buffers);
            self.packets += 1;
        }
    }
}

#[cfg(test)]
mod tests;
