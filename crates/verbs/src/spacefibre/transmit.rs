//! Packets on their way into the link: a queue for each virtual channel.
//!
//! The engines' packets refer to the application's memory, which it may reuse as soon as a request fails, so a packet is
//! copied when it is taken from its engine. Few are taken ahead of what the link reads, so that they stay in the
//! processor's cache. Packets that wait too long are discarded: their requests then end by their timeouts, as on a link
//! that loses packets. One that was read in part cannot be discarded; it must not stop those behind it, because an
//! engine's timeout only runs for packets that were taken from it.

use super::packet::{self, Encoded};
use crate::endpoint::Core;
use crate::engine::{Burst, Nanos};
use shotline_memory::{Regions, Sge};
use shotline_spacefibre::frames::Source;
use shotline_wire::crc;
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::DATA_CRC_LEN;
use std::collections::VecDeque;

/// Time after which packets are discarded, if the link reads none of their channel.
const WAIT_TIMEOUT: Nanos = 100_000_000;
/// Bytes of waiting packets below which more are taken from the engines: more than a datagram has, so that it is not cut
/// short.
const LOW_BYTES: usize = 16 << 10;
/// Maximum number of packets taken from the engines at once.
const MAX_TAKEN: usize = 2;
/// Alignment of the payload in its buffer: copies from registered memory are faster.
const ALIGNMENT: usize = 8;

/// A packet that is read by the link.
#[derive(Debug, Default)]
struct Packet {
    /// Its buffer, which may be longer.
    bytes: Vec<u8>,
    /// Offset of the next byte to read, and of the end.
    offset: usize,
    end: usize,
    /// The link has read a part of it.
    has_begun: bool,
}

impl Packet {
    /// Copies a packet to a buffer.
    fn new(mut bytes: Vec<u8>, encoded: &Encoded, elements: &[Sge], regions: &Regions) -> Self {
        let Encoded { head, inline, payload } = encoded;
        let offset = head.len().next_multiple_of(ALIGNMENT) - head.len();
        let data = offset + head.len();
        let data_end = data + *payload as usize;
        let has_data = *inline > 0 || *payload > 0;
        let end = data_end + if has_data { DATA_CRC_LEN } else { 0 };
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..data].copy_from_slice(head);
        let mut to = &mut bytes[data..data_end];
        for element in elements {
            // The gather list has padding, the packet has not.
            if to.is_empty() {
                break;
            }
            let (piece, rest) = to.split_at_mut(to.len().min(element.len as usize));
            regions.get(element.region).read(element.offset as usize, piece);
            to = rest;
        }
        if has_data {
            let crc = crc::crc32(&bytes[data - inline..data_end]);
            bytes[data_end..end].copy_from_slice(&crc.to_le_bytes());
        }
        Self { bytes, offset, end, has_begun: false }
    }

    fn remaining(&self) -> usize {
        self.end - self.offset
    }
}

/// The packets of one virtual channel.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Packet>,
    /// Bytes that are left to read of packets that can be discarded, or are being read.
    waiting_bytes: usize,
    /// Buffers for packets.
    spare: Vec<Vec<u8>>,
    /// Time since which packets wait and the link has read none to its end.
    since: Option<Nanos>,
    /// The first packet was read in part and has waited too long. Those behind it are discarded.
    is_stalled: bool,
    /// Packets discarded since the last call of [`Queues::take_counts`].
    discarded: u64,
}

impl Queue {
    /// Returns `true` if packets wait that can be discarded.
    fn has_waiting(&self) -> bool {
        self.packets.len() > usize::from(self.is_stalled)
    }

    /// Takes packets from a send queue of the endpoint, if few wait.
    fn fill(&mut self, core: &mut Core, queue: u32, burst: &mut Burst, regions: &Regions) {
        while self.waiting_bytes < LOW_BYTES {
            burst.clear();
            core.fill(queue, burst, MAX_TAKEN);
            if burst.is_empty() {
                break;
            }
            for outgoing in &burst.packets {
                let elements = burst.elements(outgoing);
                let len = elements.iter().map(|element| element.len).sum();
                let Some(encoded) = packet::encode(outgoing, len) else {
                    // The link does not have such packets.
                    self.discarded += 1;
                    continue;
                };
                let packet = Packet::new(self.spare.pop().unwrap_or_default(), &encoded, elements, regions);
                self.waiting_bytes += packet.remaining();
                self.packets.push_back(packet);
            }
        }
    }

    /// Returns at most `max` characters of the first packet, and the end of the packet if it follows.
    #[inline(always)]
    fn read(&mut self, max: usize) -> (&[u8], Option<PacketEnd>) {
        let Some(packet) = self.packets.front_mut() else { return (&[], Some(PacketEnd::Eep)) };
        let (start, left) = (packet.offset, packet.remaining());
        // An end needs a character of its own.
        if left < max {
            self.since = None;
            return (&self.remove_first()[start..start + left], Some(PacketEnd::Eop));
        }
        (packet.offset, packet.has_begun) = (start + max, true);
        if !self.is_stalled {
            self.waiting_bytes -= max;
        }
        (&self.packets[0].bytes[start..start + max], None)
    }

    /// Removes the first packet and returns its buffer.
    fn remove_first(&mut self) -> &[u8] {
        if let Some(packet) = self.packets.pop_front() {
            if !std::mem::take(&mut self.is_stalled) {
                self.waiting_bytes -= packet.remaining();
            }
            self.spare.push(packet.bytes);
        }
        self.spare.last().map_or(&[], Vec::as_slice)
    }

    /// Discards the packets except one that was read in part.
    fn discard(&mut self) {
        self.is_stalled = self.packets.front().is_some_and(|packet| packet.has_begun);
        let before = self.spare.len();
        self.spare.extend(self.packets.drain(usize::from(self.is_stalled)..).map(|packet| packet.bytes));
        (self.since, self.waiting_bytes) = (None, 0);
        self.discarded += (self.spare.len() - before) as u64;
    }

    /// Discards a packet that was read in part.
    fn cut(&mut self) {
        if self.packets.front().is_some_and(|packet| packet.has_begun) {
            self.discarded += 1;
            self.remove_first();
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
    /// Packets that are being taken from an engine.
    burst: Burst,
    /// Send queue of the first virtual channel.
    first_queue: u32,
    /// Packets passed to the link since the last call of [`Self::take_counts`].
    packets_out: u64,
}

impl Queues {
    pub(super) fn new(first_queue: u32, vcs: usize, regions: Regions) -> Self {
        let queues = std::iter::repeat_with(Queue::default).take(vcs).collect();
        Self { queues, ready: 0, regions, burst: Burst::default(), first_queue, packets_out: 0 }
    }

    pub(super) fn register(&mut self, regions: &Regions) {
        self.regions = regions.clone();
    }

    /// Takes packets from the endpoint's send queues for the channels in which few wait.
    pub(super) fn fill(&mut self, core: &mut Core) {
        let Self { queues, burst, regions, .. } = self;
        for (queue, number) in queues.iter_mut().zip(self.first_queue..) {
            queue.fill(core, number, burst, regions);
        }
        self.update();
    }

    fn update(&mut self) {
        let bit = |(vc, queue): (usize, &Queue)| u32::from(!queue.packets.is_empty()) << vc;
        self.ready = self.queues.iter().enumerate().map(bit).sum();
    }

    /// Discards packets that wait for too long.
    pub(super) fn discard_late(&mut self, now: Nanos) {
        for queue in &mut self.queues {
            let is_late = queue.has_waiting() && now - *queue.since.get_or_insert(now) >= WAIT_TIMEOUT;
            if is_late {
                queue.discard();
            }
        }
        self.update();
    }

    /// Returns the time at which packets that wait are discarded.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let waiting = self.queues.iter().filter(|queue| queue.has_waiting());
        waiting.filter_map(|queue| queue.since).map(|since| since + WAIT_TIMEOUT).min()
    }

    /// Returns the number of packets passed to the link, and of those discarded, since the last call. Packets taken from
    /// the engines are one of these, or [wait](Self::waiting).
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        let discarded = self.queues.iter_mut().map(|queue| std::mem::take(&mut queue.discarded)).sum();
        (std::mem::take(&mut self.packets_out), discarded)
    }

    /// Returns the number of packets that wait for the link, or were read in part.
    pub(super) fn waiting(&self) -> u64 {
        self.queues.iter().map(|queue| queue.packets.len() as u64).sum()
    }
}

impl Source for Queues {
    fn ready(&self) -> u32 {
        self.ready
    }

    // Inlined: a call returns the end in memory as one byte, and a load of more bytes waits for all stores before.
    #[inline(always)]
    fn read(&mut self, vc: u8, max: usize) -> (&[u8], Option<PacketEnd>) {
        let queue = &mut self.queues[usize::from(vc)];
        let is_last = queue.packets.len() == 1;
        let (characters, end) = queue.read(max);
        if end.is_some() {
            self.packets_out += 1;
            if is_last {
                self.ready &= !(1 << vc);
            }
        }
        (characters, end)
    }

    /// Packets that were read in part must not be continued; their requests are sent again after a timeout.
    fn on_reset(&mut self) {
        self.queues.iter_mut().for_each(Queue::cut);
        self.update();
    }
}
