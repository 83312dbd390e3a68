//! Packets on their way into the link: a queue for each virtual channel.
//!
//! The engines' packets refer to the application's memory, which it may reuse as soon as a request fails. So what the
//! link does not accept in the same call is copied to the backlog; the number of packets taken from the engines is
//! limited to what the link has space for, so that this is rare. Packets that wait too long are discarded: their
//! requests then end by their timeouts, as on a link that loses packets. One that was read in part cannot be discarded;
//! it must not stop those behind it, because an engine's timeout only runs for packets that were taken from it.

use super::packet::{self, Encoded};
use crate::endpoint::Core;
use crate::engine::{Burst, Nanos};
use shotline_memory::{Regions, Sge};
use shotline_spacefibre::frames::Source;
use shotline_wire::crc;
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::DATA_CRC_LEN;
use std::collections::VecDeque;

/// Time after which packets that the link does not accept are discarded.
const BACKLOG_TIMEOUT: Nanos = 100_000_000;

/// A packet of a burst that is being read.
#[derive(Debug)]
struct Reading {
    encoded: Encoded,
    /// Bytes read of header, data and data CRC together.
    offset: usize,
    /// Gather element that is read next, and the bytes of it that were read.
    element: usize,
    element_offset: u32,
    /// Register of the data CRC.
    crc: u32,
}

impl Reading {
    fn new(encoded: Encoded) -> Self {
        let inline = &encoded.head[encoded.head.len() - encoded.inline..];
        Self { crc: crc::register(u32::MAX, inline), encoded, offset: 0, element: 0, element_offset: 0 }
    }

    /// Returns the number of bytes that are left.
    fn remaining(&self) -> usize {
        let has_data = self.encoded.inline > 0 || self.encoded.payload > 0;
        let crc = if has_data { DATA_CRC_LEN } else { 0 };
        self.encoded.head.len() + self.encoded.payload as usize + crc - self.offset
    }

    /// Reads the next bytes, at most [`Self::remaining`].
    fn read(&mut self, elements: &[Sge], regions: &Regions, to: &mut [u8]) {
        let head_len = self.encoded.head.len();
        let payload_end = head_len + self.encoded.payload as usize;
        let (head, to) = to.split_at_mut(head_len.saturating_sub(self.offset).min(to.len()));
        head.copy_from_slice(&self.encoded.head[self.offset.min(head_len)..][..head.len()]);
        self.offset += head.len();
        let (payload, to) = to.split_at_mut(payload_end.saturating_sub(self.offset).min(to.len()));
        self.read_payload(elements, regions, payload);
        self.crc = crc::register(self.crc, payload);
        self.offset += payload.len();
        if !to.is_empty() {
            to.copy_from_slice(&(!self.crc).to_le_bytes()[self.offset - payload_end..][..to.len()]);
            self.offset += to.len();
        }
    }

    fn read_payload(&mut self, elements: &[Sge], regions: &Regions, mut to: &mut [u8]) {
        while !to.is_empty() {
            let Some(element) = elements.get(self.element) else { return };
            let count = ((element.len - self.element_offset) as usize).min(to.len());
            let (piece, rest) = to.split_at_mut(count);
            let (region, offset) =
                (regions.get(element.region), element.offset as usize + self.element_offset as usize);
            region.read(offset, piece);
            // The next frame's bytes are loaded while this one is encoded. Elements often follow each other in memory.
            region.prefetch(offset + count, count);
            self.element_offset += count as u32;
            if self.element_offset == element.len {
                (self.element, self.element_offset) = (self.element + 1, 0);
            }
            to = rest;
        }
    }
}

/// A packet, or the rest of one, that was copied.
#[derive(Debug, Default)]
struct Stored {
    bytes: Vec<u8>,
    /// Bytes that were read.
    offset: usize,
    /// The link has read a part of the packet, here or before it was copied.
    has_begun: bool,
}

/// The packets of one virtual channel.
#[derive(Debug, Default)]
struct Queue {
    /// Packets that were copied; they precede those of the burst.
    backlog: VecDeque<Stored>,
    /// Buffers for the backlog.
    spare: Vec<Vec<u8>>,
    /// Time at which the backlog was filled.
    since: Nanos,
    /// The first packet of the backlog was read in part and has waited too long. Those behind it are discarded.
    is_stalled: bool,
    /// Packets of the engines, valid during one call.
    burst: Burst,
    /// Index of the packet that is being read, and its state; `None` before its first byte.
    next: usize,
    current: Option<Reading>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.next == self.burst.len()
    }

    /// Returns `true` if packets wait that can be discarded.
    fn has_waiting(&self) -> bool {
        self.backlog.len() > usize::from(self.is_stalled)
    }

    /// Begins the next packet of the burst. Packets that this link does not have are skipped.
    fn current(&mut self) -> Option<(&mut Reading, &[Sge])> {
        while self.current.is_none() {
            let packet = self.burst.packets.get(self.next)?;
            let len = self.burst.elements(packet).iter().map(|element| element.len).sum();
            self.current = packet::encode(packet, len).map(Reading::new);
            self.next += usize::from(self.current.is_none());
        }
        let Self { burst, next, current, .. } = self;
        Some((current.as_mut()?, burst.elements(burst.packets.get(*next)?)))
    }

    /// Reads characters of the first packet, and the end of the packet if it follows.
    fn read(&mut self, regions: &Regions, to: &mut [u8]) -> (usize, Option<PacketEnd>) {
        // An end needs a character of its own.
        let part = |left: usize, space: usize| (left.min(space), (left < space).then_some(PacketEnd::Eop));
        if let Some(stored) = self.backlog.front_mut() {
            let (count, end) = part(stored.bytes.len() - stored.offset, to.len());
            to[..count].copy_from_slice(&stored.bytes[stored.offset..][..count]);
            (stored.offset, stored.has_begun) = (stored.offset + count, true);
            if end.is_some() {
                self.remove_first();
            }
            return (count, end);
        }
        let Some((reading, elements)) = self.current() else { return (0, Some(PacketEnd::Eep)) };
        let (count, end) = part(reading.remaining(), to.len());
        reading.read(elements, regions, &mut to[..count]);
        if end.is_some() {
            (self.current, self.next) = (None, self.next + 1);
        }
        (count, end)
    }

    /// Copies what is left of the burst.
    fn store(&mut self, regions: &Regions, now: Nanos) {
        if !self.has_waiting() {
            self.since = now;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        while let Some((reading, elements)) = self.current() {
            let has_begun = reading.offset > 0;
            bytes.resize(reading.remaining(), 0);
            reading.read(elements, regions, &mut bytes);
            self.backlog.push_back(Stored { bytes, offset: 0, has_begun });
            (self.current, self.next) = (None, self.next + 1);
            bytes = self.spare.pop().unwrap_or_default();
        }
        self.spare.push(bytes);
    }

    /// Removes the first packet of the backlog.
    fn remove_first(&mut self) {
        self.is_stalled = false;
        self.spare.extend(self.backlog.pop_front().map(|stored| stored.bytes));
    }

    /// Discards the packets of the backlog, except one that was read in part. Returns their number.
    fn discard(&mut self) -> u64 {
        self.is_stalled = self.backlog.front().is_some_and(|stored| stored.has_begun);
        let discarded = self.backlog.drain(usize::from(self.is_stalled)..);
        let before = self.spare.len();
        self.spare.extend(discarded.map(|stored| stored.bytes));
        (self.spare.len() - before) as u64
    }

    /// Removes a packet that was read in part.
    fn cut(&mut self) {
        if self.backlog.front().is_some_and(|stored| stored.has_begun) {
            self.remove_first();
        }
        if self.current.take_if(|reading| reading.offset > 0).is_some() {
            self.next += 1;
        }
    }
}

/// Packets that wait for the link.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// Bit per channel with packets.
    ready: u32,
    regions: Regions,
    /// Send queue of the first virtual channel.
    first_queue: u32,
    /// Packets passed to the link since the last call of [`Self::take_counts`], and those discarded.
    packets_out: u64,
    discarded: u64,
}

impl Queues {
    pub(super) fn new(first_queue: u32, vcs: usize, regions: Regions) -> Self {
        let queues = std::iter::repeat_with(Queue::default).take(vcs).collect();
        Self { queues, ready: 0, regions, first_queue, packets_out: 0, discarded: 0 }
    }

    /// Returns `true` if there are several virtual channels.
    pub(super) fn has_several(&self) -> bool {
        self.queues.len() > 1
    }

    pub(super) fn register(&mut self, regions: &Regions) {
        self.regions = regions.clone();
    }

    /// Refills the queues in which no packets wait from the endpoint's send queues, with at most `max` packets each.
    pub(super) fn fill(&mut self, core: &mut Core, max: usize) {
        let is_used_up = |queue: &Queue| queue.next == queue.burst.len() && !queue.has_waiting();
        for (vc, queue) in self.queues.iter_mut().enumerate().filter(|(_, queue)| is_used_up(queue)) {
            queue.burst.clear();
            queue.next = 0;
            core.fill(self.first_queue + vc as u32, &mut queue.burst, max);
        }
        self.update();
    }

    fn update(&mut self) {
        let bit = |(vc, queue): (usize, &Queue)| u32::from(!queue.is_empty()) << vc;
        self.ready = self.queues.iter().enumerate().map(bit).sum();
    }

    /// Copies what the link has not accepted, and discards what waits for too long. The application's memory is not
    /// read after this call.
    pub(super) fn settle(&mut self, now: Nanos) {
        for queue in self.queues.iter_mut().filter(|queue| !queue.is_empty()) {
            queue.store(&self.regions, now);
            if now.saturating_sub(queue.since) >= BACKLOG_TIMEOUT {
                self.discarded += queue.discard();
                queue.since = now;
            }
        }
        self.update();
    }

    /// Returns the time at which packets that wait are discarded.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let waiting = self.queues.iter().filter(|queue| queue.has_waiting());
        waiting.map(|queue| queue.since + BACKLOG_TIMEOUT).min()
    }

    /// Returns the number of packets passed to the link, and of those discarded, since the last call.
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.packets_out), std::mem::take(&mut self.discarded))
    }
}

impl Source for Queues {
    fn ready(&self) -> u32 {
        self.ready
    }

    fn read(&mut self, vc: u8, to: &mut [u8]) -> (usize, Option<PacketEnd>) {
        let queue = &mut self.queues[usize::from(vc)];
        let (count, end) = queue.read(&self.regions, to);
        if end.is_some() {
            self.packets_out += 1;
            if queue.is_empty() {
                self.ready &= !(1 << vc);
            }
        }
        (count, end)
    }

    /// Packets that were read in part must not be continued; their requests are sent again after a timeout.
    fn on_reset(&mut self) {
        self.queues.iter_mut().for_each(Queue::cut);
        self.update();
    }
}
